// Makes `weldfs://` known to RocksDB, when this is loaded.

#include <cstring>

#include "filesystem.h"
#include "rocksdb/utilities/object_registry.h"
#include "weldfs_fs.h"

namespace ROCKSDB_NAMESPACE {

Status NewWeldFileSystem(const std::string& target, std::shared_ptr<FileSystem>* result, const WeldOptions& options) {
  result->reset();
  const size_t n = std::strlen(kWeldScheme);
  const bool has_scheme = target.compare(0, n, kWeldScheme) == 0;
  std::shared_ptr<weldfs_rocksdb::Store> store;
  Status status = weldfs_rocksdb::Store::Attach(has_scheme ? target.substr(n) : target, options, &store);
  if (status.ok()) {
    *result = std::make_shared<weldfs_rocksdb::WeldFileSystem>(store);
  }
  return status;
}

bool GetWeldCounters(const FileSystem* fs, WeldCounters* counters) {
  if (fs == nullptr || std::strcmp(fs->Name(), weldfs_rocksdb::WeldFileSystem::kClassName()) != 0) {
    return false;
  }
  *counters = static_cast<const weldfs_rocksdb::WeldFileSystem*>(fs)->store().counters.Get();
  return true;
}

}  // namespace ROCKSDB_NAMESPACE

// The name is what a static build of RocksDB keeps with `-u` (weldfs.mk, CMakeLists.txt).
extern "C" ROCKSDB_NAMESPACE::FactoryFunc<ROCKSDB_NAMESPACE::FileSystem> weldfs_filesystem_reg;
ROCKSDB_NAMESPACE::FactoryFunc<ROCKSDB_NAMESPACE::FileSystem> weldfs_filesystem_reg =
    ROCKSDB_NAMESPACE::ObjectLibrary::Default()->AddFactory<ROCKSDB_NAMESPACE::FileSystem>(
        ROCKSDB_NAMESPACE::ObjectLibrary::PatternEntry("weldfs", false).AddSeparator("://", false),
        [](const std::string& uri, std::unique_ptr<ROCKSDB_NAMESPACE::FileSystem>* guard, std::string* why) {
          std::shared_ptr<weldfs_rocksdb::Store> store;
          const std::string target = uri.substr(std::strlen(ROCKSDB_NAMESPACE::kWeldScheme));
          const ROCKSDB_NAMESPACE::Status status =
              weldfs_rocksdb::Store::Attach(target, ROCKSDB_NAMESPACE::WeldOptions(), &store);
          if (!status.ok()) {
            *why = status.ToString();
            return static_cast<ROCKSDB_NAMESPACE::FileSystem*>(nullptr);
          }
          guard->reset(new weldfs_rocksdb::WeldFileSystem(store));
          return guard->get();
        });

extern "C" int weldfs_rocksdb_register() { return weldfs_filesystem_reg ? 1 : 0; }
