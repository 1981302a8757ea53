// The FileSystem that RocksDB sees.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "reads.h"
#include "rocksdb/file_system.h"
#include "store.h"
#include "temporaries.h"

namespace weldfs_rocksdb {

using ROCKSDB_NAMESPACE::DirFsyncOptions;
using ROCKSDB_NAMESPACE::FileLock;
using ROCKSDB_NAMESPACE::FileSystem;
using ROCKSDB_NAMESPACE::FSDirectory;

class WeldFileSystem : public FileSystem {
 public:
  explicit WeldFileSystem(std::shared_ptr<Store> store);

  static const char* kClassName() { return "WeldFileSystem"; }
  const char* Name() const override { return kClassName(); }
  const char* NickName() const override { return "weldfs"; }
  // The URI that makes another one on the same target.
  std::string GetId() const override;
  const Store& store() const { return *store_; }

  IOStatus NewSequentialFile(const std::string& name, const FileOptions& options,
                             std::unique_ptr<FSSequentialFile>* result, IODebugContext* dbg) override;
  IOStatus NewRandomAccessFile(const std::string& name, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* result, IODebugContext* dbg) override;
  IOStatus NewWritableFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* result, IODebugContext* dbg) override;
  IOStatus ReopenWritableFile(const std::string& name, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* result, IODebugContext* dbg) override;
  IOStatus ReuseWritableFile(const std::string& name, const std::string& old_name, const FileOptions& options,
                             std::unique_ptr<FSWritableFile>* result, IODebugContext* dbg) override;
  IOStatus NewRandomRWFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<FSRandomRWFile>* result, IODebugContext* dbg) override;
  IOStatus NewDirectory(const std::string& name, const IOOptions& options, std::unique_ptr<FSDirectory>* result,
                        IODebugContext* dbg) override;

  IOStatus FileExists(const std::string& name, const IOOptions& options, IODebugContext* dbg) override;
  IOStatus GetChildren(const std::string& directory, const IOOptions& options, std::vector<std::string>* result,
                       IODebugContext* dbg) override;
  // Names and sizes together, many in one crossing.
  IOStatus GetChildrenFileAttributes(const std::string& directory, const IOOptions& options,
                                     std::vector<FileAttributes>* result, IODebugContext* dbg) override;
  IOStatus DeleteFile(const std::string& name, const IOOptions& options, IODebugContext* dbg) override;
  IOStatus Truncate(const std::string& name, size_t size, const IOOptions& options, IODebugContext* dbg) override;
  IOStatus CreateDir(const std::string& name, const IOOptions& options, IODebugContext* dbg) override;
  IOStatus CreateDirIfMissing(const std::string& name, const IOOptions& options, IODebugContext* dbg) override;
  IOStatus DeleteDir(const std::string& name, const IOOptions& options, IODebugContext* dbg) override;
  IOStatus GetFileSize(const std::string& name, const IOOptions& options, uint64_t* size, IODebugContext* dbg) override;
  IOStatus GetFileModificationTime(const std::string& name, const IOOptions& options, uint64_t* seconds,
                                   IODebugContext* dbg) override;
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* dbg) override;
  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions& options,
                    IODebugContext* dbg) override;
  IOStatus NumFileLinks(const std::string& name, const IOOptions& options, uint64_t* count,
                        IODebugContext* dbg) override;
  IOStatus AreFilesSame(const std::string& first, const std::string& second, const IOOptions& options, bool* same,
                        IODebugContext* dbg) override;
  IOStatus IsDirectory(const std::string& name, const IOOptions& options, bool* is_directory,
                       IODebugContext* dbg) override;

  IOStatus LockFile(const std::string& name, const IOOptions& options, FileLock** lock, IODebugContext* dbg) override;
  IOStatus UnlockFile(FileLock* lock, const IOOptions& options, IODebugContext* dbg) override;
  IOStatus GetTestDirectory(const IOOptions& options, std::string* name, IODebugContext* dbg) override;
  IOStatus NewLogger(const std::string& name, const IOOptions& options,
                     std::shared_ptr<ROCKSDB_NAMESPACE::Logger>* result, IODebugContext* dbg) override;
  IOStatus GetAbsolutePath(const std::string& name, const IOOptions& options, std::string* absolute,
                           IODebugContext* dbg) override;
  IOStatus GetFreeSpace(const std::string& name, const IOOptions& options, uint64_t* bytes,
                        IODebugContext* dbg) override;
  IOStatus Poll(std::vector<void*>& handles, size_t min_completions) override;
  IOStatus AbortIO(std::vector<void*>& handles) override;
  // Overrides what releases from 8 on have: asynchronous reads, and none of the others. A prefetch would fill no cache
  // of this process; RocksDB's own buffers do that better.
  void SupportedOps(int64_t& operations) { operations = 1; }

 private:
  // Before a call by name: this process may make it, and what is kept under the name is in the device.
  IOStatus Enter(const std::string& name);
  // Opens a file after what is kept under its name is in the device.
  IOStatus Open(const std::string& name, int flags, weldfs_file** file);
  // What is in a directory, and kept for it. `next` gives the next entry of the open directory, as weldfs_readdir does.
  template <typename Next>
  IOStatus List(const std::string& directory, Next next, std::vector<FileAttributes>* files);
  IOStatus Stat(const std::string& name, weldfs_stat* stat);
  weldfs_client* client() const { return store_->client(); }

  const std::shared_ptr<Store> store_;
  const std::shared_ptr<AsyncReads> async_;
  const std::shared_ptr<Temporaries> temporaries_;
};

}  // namespace weldfs_rocksdb
