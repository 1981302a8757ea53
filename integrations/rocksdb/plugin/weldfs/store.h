// A client of a device, what has changed through it, and what of that is durable.
#pragma once

#include <sys/types.h>
#include <weldfs.h>

#include <atomic>
#include <memory>
#include <string>

#include "rocksdb/io_status.h"
#include "weldfs_fs.h"

namespace weldfs_rocksdb {

using ROCKSDB_NAMESPACE::IOStatus;
using ROCKSDB_NAMESPACE::Slice;
using ROCKSDB_NAMESPACE::Status;
using ROCKSDB_NAMESPACE::WeldCounters;
using ROCKSDB_NAMESPACE::WeldOptions;

// RocksDB's status for a negative errno of a call on `what`, with the library's sentence about it.
IOStatus StatusOf(int64_t error, const std::string& what);
// The same, with the reason given: for an error that is not that of this thread's last call.
IOStatus StatusOf(int64_t error, const std::string& what, const std::string& why);

// The mode of a new file, less the umask.
constexpr uint32_t kFileMode = 0644;

// One more of what WeldCounters counts.
class Counter {
 public:
  void Add() { count_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t Get() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> count_{0};
};

struct Counters {
  Counter handoffs, handoff_mismatches, handoffs_on_host, durable_appends, unwanted_durable_appends, syncs,
      syncs_done_before, replacements, temporaries_written, multi_reads, async_reads;
  WeldCounters Get() const;
};

// The attachment of one FileSystem. All calls may be made by any number of threads.
//
// Everything is sent as a volatile command. The device makes what was completed first durable first, across files and
// directories: so one durable command makes durable whatever was completed before it was sent. Changes are numbered as
// they complete; a Sync whose change is below what some durable command covered has nothing left to do.
class Store {
 public:
  static Status Attach(const std::string& target, const WeldOptions& options, std::shared_ptr<Store>* store);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // An error in a forked child, where a call by name would attach anew, to a device that knows none of the open files.
  // Checked before any lock is taken: another thread of the parent may have held it at the fork.
  IOStatus CheckProcess() const;

  weldfs_client* client() const { return client_; }
  const std::string& target() const { return target_; }
  // Bytes of the largest command.
  size_t payload_max() const { return payload_max_; }
  // Identifies the device's file system, for ids of files.
  uint64_t identity() const { return identity_; }

  // A volatile command has completed: its number.
  uint64_t Changed() { return changes_.fetch_add(1) + 1; }
  // Before a durable command is sent: the number of the last change that it will cover.
  uint64_t Covered() const { return changes_.load(); }
  // It succeeded.
  void Settled(uint64_t covered);
  // Whether a change is durable.
  bool IsDurable(uint64_t change) const { return durable_.load() >= change; }
  // Makes a change durable (and all before it), unless it is. By `file`, or without one by the device's own sync.
  IOStatus MakeDurable(uint64_t change, weldfs_file* file, const std::string& what);

  Counters counters;

 private:
  Store() = default;

  weldfs_client* client_ = nullptr;
  pid_t process_ = 0;
  std::string target_;
  size_t payload_max_ = 1 << 20;
  uint64_t identity_ = 0;
  // What happened before this attachment is not known to be durable.
  std::atomic<uint64_t> changes_{1};
  std::atomic<uint64_t> durable_{0};
};

}  // namespace weldfs_rocksdb
