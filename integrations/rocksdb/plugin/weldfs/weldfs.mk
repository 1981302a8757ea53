# WeldFS as a plug-in of a RocksDB tree: `ln -s .../integrations/rocksdb/plugin/weldfs plugin/weldfs`, then
# `make ROCKSDB_PLUGINS=weldfs`. The C library is found by pkg-config (install.sh of WeldFS puts it there).
weldfs_SOURCES = crc32c.cc filesystem.cc logger.cc reads.cc register.cc store.cc temporaries.cc writable.cc
weldfs_HEADERS = weldfs_fs.h
# Asked at the first use, and once: RocksDB's make expands its flags anew for each of some hundred objects.
weldfs_CXXFLAGS = $(eval weldfs_CXXFLAGS := $$(shell pkg-config --cflags weldfs))$(weldfs_CXXFLAGS)
weldfs_LDFLAGS = $(shell pkg-config --libs weldfs) -u weldfs_filesystem_reg
