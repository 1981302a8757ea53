// Files that are written under a temporary name and renamed at once: CURRENT, IDENTITY, OPTIONS.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "writable.h"

namespace weldfs_rocksdb {

// RocksDB switches to another manifest by writing `N.dbtmp`, syncing it, and renaming it to CURRENT. Here the content
// stays in this process until the rename, which is one atomic, durable command: create, write, sync, rename, sync of
// the directory. What is found after a crash at any moment is what the steps would leave, too: the old CURRENT, or the
// new one whole; a `.dbtmp` that is not there is one that RocksDB would have removed at its next start. Whatever else
// is done with the name before (a look, a read, a listing, another rename) has the file written first, durably if it
// was to be synced.
class Temporaries : public std::enable_shared_from_this<Temporaries> {
 public:
  explicit Temporaries(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  // What is kept still is written.
  ~Temporaries();

  // Whether files of that name are kept so.
  static bool IsOne(const std::string& name);
  // Makes an empty one.
  std::unique_ptr<FSWritableFile> Make(const std::string& name, const FileOptions& options);
  // Before anything is done with `name` (empty: with any directory): what is kept of it is in the device.
  IOStatus Settle(const std::string& name);
  // The rename of a kept one that is closed: true when it was done here, with its outcome in *status.
  bool Replace(const std::string& name, const std::string& by, IOStatus* status);
  // The removal of a kept one: true when it was one.
  bool Forget(const std::string& name);

 private:
  struct Kept;
  class File;

  std::shared_ptr<Kept> Take(const std::string& name);
  IOStatus Write(Kept& kept);

  const std::shared_ptr<Store> store_;
  // How many are kept: most calls see 0 and take no lock.
  std::atomic<size_t> count_{0};
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Kept>> kept_;
};

}  // namespace weldfs_rocksdb
