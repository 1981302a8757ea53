// RocksDB's I/O priorities and write-lifetime hints as those of the device.
#pragma once

#include <weldfs.h>

#include <cstdint>

#include "rocksdb/env.h"

namespace weldfs_rocksdb {

// In the order of RocksDB's rate limiter. IO_HIGH is a flush's: writers wait for it as for a command of their own, which
// names none, so both are normal.
inline uint32_t PriorityOf(ROCKSDB_NAMESPACE::Env::IOPriority priority) {
  using ROCKSDB_NAMESPACE::Env;
  switch (priority) {
    case Env::IO_LOW:
      return WELDFS_PRIORITY_LOW;
    case Env::IO_MID:
      return WELDFS_PRIORITY_MEDIUM;
    case Env::IO_USER:
      return WELDFS_PRIORITY_HIGH;
    default:
      return 0;
  }
}

inline uint32_t LifeOf(ROCKSDB_NAMESPACE::Env::WriteLifeTimeHint hint) {
  using ROCKSDB_NAMESPACE::Env;
  switch (hint) {
    case Env::WLTH_SHORT:
      return WELDFS_LIFE_SHORT;
    case Env::WLTH_MEDIUM:
      return WELDFS_LIFE_MEDIUM;
    case Env::WLTH_LONG:
      return WELDFS_LIFE_LONG;
    case Env::WLTH_EXTREME:
      return WELDFS_LIFE_EXTREME;
    default:
      return 0;
  }
}

}  // namespace weldfs_rocksdb
