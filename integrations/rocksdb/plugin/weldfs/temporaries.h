// Files that are written under a temporary name and renamed at once: CURRENT, IDENTITY, OPTIONS.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "writable.h"

namespace weldfs_rocksdb {

using ROCKSDB_NAMESPACE::FileAttributes;

// RocksDB switches to another manifest by writing `N.dbtmp`, syncing it, and renaming it to CURRENT. Here the content
// stays in this process until the rename, which is one atomic, durable command: create, write, sync, rename, sync of
// the directory. What is found after a crash at any moment is what the steps would leave, too: the old CURRENT, or the
// new one whole; a `.dbtmp` that is not there is one that RocksDB would have removed at its next start.
//
// A kept file can be listed and asked for, which writes nothing. Whatever else is done with the name before (a read,
// a rename while it is open) has the file written first, durably if it was to be synced. When that fails, for want of
// room for example, the file stays kept, and can still be removed.
class Temporaries : public std::enable_shared_from_this<Temporaries> {
 public:
  explicit Temporaries(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  // What is kept still is written.
  ~Temporaries();

  // Whether files of that name are kept so.
  static bool IsOne(const std::string& name);
  // Makes an empty one.
  IOStatus Make(const std::string& name, const FileOptions& options, std::unique_ptr<FSWritableFile>* result);
  // Whether one of that name is kept.
  bool Has(const std::string& name);
  // Those that are kept in a directory.
  std::vector<FileAttributes> In(const std::string& directory);
  // Before anything is done with `name`: what is kept of it is in the device.
  IOStatus Settle(const std::string& name);
  // Before a directory is renamed or removed: what is kept in it, at any depth, is in the device. A failure does not
  // stop the others; the first is returned.
  IOStatus SettleBelow(const std::string& directory);
  // The rename of a kept one that is closed: true when it was done here, with its outcome in *status.
  bool Replace(const std::string& name, const std::string& by, IOStatus* status);
  // The removal of a kept one: true when it was one.
  bool Forget(const std::string& name);

 private:
  struct Kept;
  class File;

  std::shared_ptr<Kept> Take(const std::string& name);
  std::vector<std::shared_ptr<Kept>> TakeWhere(const std::function<bool(const std::string&)>& wanted);
  IOStatus CheckParent(const std::string& name) const;
  void Drop(const std::shared_ptr<Kept>& kept);
  // The next three: the mutex of `kept` is taken already.
  IOStatus Write(const std::shared_ptr<Kept>& kept);
  IOStatus WriteClosed(const Kept& kept) const;
  IOStatus WriteOpen(Kept* kept) const;

  const std::shared_ptr<Store> store_;
  // How many are kept: most calls see 0 and take no lock.
  std::atomic<size_t> count_{0};
  // Of the map. It is taken after that of a file, never before.
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Kept>> kept_;
};

}  // namespace weldfs_rocksdb
