// RocksDB's own log (LOG), in the device.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "rocksdb/env.h"
#include "store.h"

namespace weldfs_rocksdb {

// Lines are collected, and written by the line with which they are many, the first one a second after the last write,
// or a flush: there is no timer. A device that is gone or full costs the lines, and nothing else:
// RocksDB's own logger takes a file that failed for a bug in its user, and builds with assertions end by that.
class WeldLogger : public ROCKSDB_NAMESPACE::Logger {
 public:
  // Owns `file`, which is empty and open for writing.
  WeldLogger(std::shared_ptr<Store> store, weldfs_file* file) : store_(std::move(store)), file_(file) {}
  ~WeldLogger() override;

  using ROCKSDB_NAMESPACE::Logger::Logv;
  void Logv(const char* format, va_list arguments) override;
  void Flush() override;
  size_t GetLogFileSize() const override;

 protected:
  Status CloseImpl() override;

 private:
  void Write();

  const std::shared_ptr<Store> store_;
  mutable std::mutex mutex_;
  weldfs_file* file_;
  std::string lines_;
  uint64_t size_ = 0;
  std::chrono::steady_clock::time_point written_ = std::chrono::steady_clock::now();
};

}  // namespace weldfs_rocksdb
