// CRC-32C on the host: for what is longer than one command, which the device therefore cannot verify before it writes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weldfs_rocksdb {

uint32_t Crc32c(const char* data, size_t n);

}  // namespace weldfs_rocksdb
