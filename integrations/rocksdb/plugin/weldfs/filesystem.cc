#include "filesystem.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "logger.h"

namespace weldfs_rocksdb {
namespace {

constexpr uint32_t kFileMode = 0644;
constexpr uint32_t kDirectoryMode = 0755;

// A file that is open for its lock, which the device takes back when this process or its session ends.
class Lock : public FileLock {
 public:
  explicit Lock(weldfs_file* file) : file_(file) {}
  ~Lock() override { weldfs_close(file_); }
  int Release() { return weldfs_flock(file_, LOCK_UN); }

 private:
  weldfs_file* file_;
};

class Directory : public FSDirectory {
 public:
  Directory(std::shared_ptr<Store> store, std::string name, weldfs_file* file)
      : store_(std::move(store)), name_(std::move(name)), file_(file) {}
  ~Directory() override { weldfs_close(file_); }

  // Whatever changed in it through this file system did so before now.
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return store_->MakeDurable(store_->Covered(), file_, name_);
  }
  // A new name, a new content under a name and a removal are all changes before now, too.
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* dbg, const DirFsyncOptions&) override {
    return Fsync(options, dbg);
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override {
    const int error = weldfs_close(file_);
    file_ = nullptr;
    return error < 0 ? StatusOf(error, name_) : IOStatus::OK();
  }
  size_t GetUniqueId(char* id, size_t max_size) const override { return FileId(*store_, file_, id, max_size); }

 private:
  const std::shared_ptr<Store> store_;
  const std::string name_;
  weldfs_file* file_;
};

// What asks whether there is a file says for these that there is none.
bool IsNone(int error) {
  return error == -ENOENT || error == -ENOTDIR || error == -EACCES || error == -ELOOP || error == -ENAMETOOLONG;
}

}  // namespace

WeldFileSystem::WeldFileSystem(std::shared_ptr<Store> store)
    : store_(std::move(store)), async_(std::make_shared<AsyncReads>(store_)), temporaries_(std::make_shared<Temporaries>(store_)) {}

std::string WeldFileSystem::GetId() const { return std::string(ROCKSDB_NAMESPACE::kWeldScheme) + store_->target(); }

IOStatus WeldFileSystem::Open(const std::string& name, int flags, weldfs_file** file) {
  *file = nullptr;
  IOStatus status = temporaries_->Settle(name);
  if (!status.ok()) {
    return status;
  }
  const int error = weldfs_open(client(), name.c_str(), flags, kFileMode, file);
  return error < 0 ? StatusOf(error, name) : IOStatus::OK();
}

IOStatus WeldFileSystem::Stat(const std::string& name, weldfs_stat* stat) {
  IOStatus status = temporaries_->Settle(name);
  if (!status.ok()) {
    return status;
  }
  const int error = weldfs_stat_path(client(), name.c_str(), stat);
  return error < 0 ? StatusOf(error, name) : IOStatus::OK();
}

IOStatus WeldFileSystem::NewSequentialFile(const std::string& name, const FileOptions&,
                                           std::unique_ptr<FSSequentialFile>* result, IODebugContext*) {
  result->reset();
  weldfs_file* file;
  IOStatus status = Open(name, O_RDONLY, &file);
  if (status.ok()) {
    result->reset(new Sequential(name, file));
  }
  return status;
}

IOStatus WeldFileSystem::NewRandomAccessFile(const std::string& name, const FileOptions&,
                                             std::unique_ptr<FSRandomAccessFile>* result, IODebugContext*) {
  result->reset();
  weldfs_file* file;
  IOStatus status = Open(name, O_RDONLY, &file);
  if (status.ok()) {
    result->reset(new RandomAccess(store_, async_, name, file));
  }
  return status;
}

IOStatus WeldFileSystem::NewWritableFile(const std::string& name, const FileOptions& options,
                                         std::unique_ptr<FSWritableFile>* result, IODebugContext*) {
  result->reset();
  if (Temporaries::IsOne(name)) {
    *result = temporaries_->Make(name, options);
    return IOStatus::OK();
  }
  weldfs_file* file;
  IOStatus status = Open(name, O_RDWR | O_CREAT | O_TRUNC, &file);
  if (status.ok()) {
    result->reset(new Writable(store_, name, file, 0, options));
  }
  return status;
}

IOStatus WeldFileSystem::ReopenWritableFile(const std::string& name, const FileOptions& options,
                                            std::unique_ptr<FSWritableFile>* result, IODebugContext*) {
  result->reset();
  weldfs_file* file;
  IOStatus status = Open(name, O_RDWR | O_CREAT, &file);
  if (!status.ok()) {
    return status;
  }
  weldfs_stat stat;
  const int error = weldfs_fstat(file, &stat);
  if (error < 0) {
    weldfs_close(file);
    return StatusOf(error, name);
  }
  result->reset(new Writable(store_, name, file, stat.bytes, options));
  return status;
}

IOStatus WeldFileSystem::ReuseWritableFile(const std::string& name, const std::string& old_name,
                                           const FileOptions& options, std::unique_ptr<FSWritableFile>* result,
                                           IODebugContext* dbg) {
  result->reset();
  IOStatus status = RenameFile(old_name, name, options.io_options, dbg);
  weldfs_file* file = nullptr;
  if (status.ok()) {
    status = Open(name, O_RDWR, &file);
  }
  if (status.ok()) {
    // Written over from its beginning.
    result->reset(new Writable(store_, name, file, 0, options));
  }
  return status;
}

IOStatus WeldFileSystem::NewRandomRWFile(const std::string& name, const FileOptions&,
                                         std::unique_ptr<FSRandomRWFile>* result, IODebugContext*) {
  result->reset();
  weldfs_file* file;
  IOStatus status = Open(name, O_RDWR | O_CREAT, &file);
  if (status.ok()) {
    result->reset(new RandomRW(store_, name, file));
  }
  return status;
}

IOStatus WeldFileSystem::NewDirectory(const std::string& name, const IOOptions&, std::unique_ptr<FSDirectory>* result,
                                      IODebugContext*) {
  result->reset();
  weldfs_file* file;
  IOStatus status = Open(name, O_RDONLY | O_DIRECTORY, &file);
  if (status.ok()) {
    result->reset(new Directory(store_, name, file));
  }
  return status;
}

IOStatus WeldFileSystem::FileExists(const std::string& name, const IOOptions&, IODebugContext*) {
  IOStatus status = temporaries_->Settle(name);
  if (!status.ok()) {
    return status;
  }
  const int error = weldfs_access(client(), name.c_str(), F_OK);
  if (error == 0) {
    return status;
  }
  return IsNone(error) ? IOStatus::NotFound(name) : StatusOf(error, name);
}

IOStatus WeldFileSystem::GetChildren(const std::string& directory, const IOOptions&, std::vector<std::string>* result,
                                     IODebugContext*) {
  result->clear();
  IOStatus status = temporaries_->Settle("");
  if (!status.ok()) {
    return status;
  }
  weldfs_dir* open;
  int error = weldfs_opendir(client(), directory.c_str(), &open);
  if (error < 0) {
    return IsNone(error) ? IOStatus::NotFound(directory, weldfs_last_error()) : StatusOf(error, directory);
  }
  weldfs_entry entry;
  while ((error = weldfs_readdir(open, &entry)) == 1) {
    result->emplace_back(entry.name);
  }
  weldfs_closedir(open);
  return error < 0 ? StatusOf(error, directory) : status;
}

IOStatus WeldFileSystem::GetChildrenFileAttributes(const std::string& directory, const IOOptions&,
                                                   std::vector<ROCKSDB_NAMESPACE::FileAttributes>* result,
                                                   IODebugContext*) {
  result->clear();
  IOStatus status = temporaries_->Settle("");
  if (!status.ok()) {
    return status;
  }
  weldfs_dir* open;
  int error = weldfs_opendir(client(), directory.c_str(), &open);
  if (error < 0) {
    return IsNone(error) ? IOStatus::NotFound(directory, weldfs_last_error()) : StatusOf(error, directory);
  }
  weldfs_entry entry;
  weldfs_stat stat;
  int attributes;
  while ((error = weldfs_readdir_plus(open, &entry, &stat, &attributes)) == 1) {
    // One that was removed meanwhile has none, and is left out.
    if (attributes == 0) {
      result->push_back({entry.name, stat.bytes});
    }
  }
  weldfs_closedir(open);
  return error < 0 ? StatusOf(error, directory) : status;
}

IOStatus WeldFileSystem::DeleteFile(const std::string& name, const IOOptions&, IODebugContext*) {
  const bool kept = temporaries_->Forget(name);
  const int error = weldfs_unlink(client(), name.c_str());
  if (error < 0) {
    return kept && error == -ENOENT ? IOStatus::OK() : StatusOf(error, name);
  }
  store_->Changed();
  return IOStatus::OK();
}

IOStatus WeldFileSystem::Truncate(const std::string& name, size_t size, const IOOptions&, IODebugContext*) {
  IOStatus status = temporaries_->Settle(name);
  if (!status.ok()) {
    return status;
  }
  const int error = weldfs_truncate(client(), name.c_str(), size);
  store_->Changed();
  return error < 0 ? StatusOf(error, name) : status;
}

IOStatus WeldFileSystem::CreateDir(const std::string& name, const IOOptions&, IODebugContext*) {
  const int error = weldfs_mkdir(client(), name.c_str(), kDirectoryMode);
  store_->Changed();
  return error < 0 ? StatusOf(error, name) : IOStatus::OK();
}

IOStatus WeldFileSystem::CreateDirIfMissing(const std::string& name, const IOOptions& options, IODebugContext* dbg) {
  const int error = weldfs_mkdir(client(), name.c_str(), kDirectoryMode);
  store_->Changed();
  if (error == -EEXIST) {
    bool is_directory = false;
    IOStatus status = IsDirectory(name, options, &is_directory, dbg);
    return status.ok() && !is_directory ? IOStatus::IOError(name, "exists, and is no directory") : status;
  }
  return error < 0 ? StatusOf(error, name) : IOStatus::OK();
}

IOStatus WeldFileSystem::DeleteDir(const std::string& name, const IOOptions&, IODebugContext*) {
  const int error = weldfs_rmdir(client(), name.c_str());
  store_->Changed();
  return error < 0 ? StatusOf(error, name) : IOStatus::OK();
}

IOStatus WeldFileSystem::GetFileSize(const std::string& name, const IOOptions&, uint64_t* size, IODebugContext*) {
  weldfs_stat stat;
  IOStatus status = Stat(name, &stat);
  *size = status.ok() ? stat.bytes : 0;
  return status;
}

IOStatus WeldFileSystem::GetFileModificationTime(const std::string& name, const IOOptions&, uint64_t* seconds,
                                                 IODebugContext*) {
  weldfs_stat stat;
  IOStatus status = Stat(name, &stat);
  *seconds = status.ok() ? static_cast<uint64_t>(stat.mtime.sec) : 0;
  return status;
}

IOStatus WeldFileSystem::RenameFile(const std::string& from, const std::string& to, const IOOptions&, IODebugContext*) {
  IOStatus status = temporaries_->Settle(to);
  if (!status.ok() || temporaries_->Replace(from, to, &status)) {
    return status;
  }
  status = temporaries_->Settle(from);
  if (!status.ok()) {
    return status;
  }
  const int error = weldfs_rename(client(), from.c_str(), to.c_str(), 0);
  store_->Changed();
  return error < 0 ? StatusOf(error, from) : status;
}

IOStatus WeldFileSystem::LinkFile(const std::string& from, const std::string& to, const IOOptions&, IODebugContext*) {
  IOStatus status = temporaries_->Settle("");
  if (!status.ok()) {
    return status;
  }
  const int error = weldfs_link(client(), from.c_str(), to.c_str());
  store_->Changed();
  return error < 0 ? StatusOf(error, from) : status;
}

IOStatus WeldFileSystem::NumFileLinks(const std::string& name, const IOOptions&, uint64_t* count, IODebugContext*) {
  weldfs_stat stat;
  IOStatus status = Stat(name, &stat);
  *count = status.ok() ? stat.nlink : 0;
  return status;
}

IOStatus WeldFileSystem::AreFilesSame(const std::string& first, const std::string& second, const IOOptions&, bool* same,
                                      IODebugContext*) {
  weldfs_stat a;
  weldfs_stat b;
  IOStatus status = Stat(first, &a);
  if (status.ok()) {
    status = Stat(second, &b);
  }
  *same = status.ok() && a.dev == b.dev && a.ino == b.ino && a.generation == b.generation;
  return status;
}

IOStatus WeldFileSystem::IsDirectory(const std::string& name, const IOOptions&, bool* is_directory, IODebugContext*) {
  weldfs_stat stat;
  IOStatus status = Stat(name, &stat);
  *is_directory = status.ok() && S_ISDIR(stat.mode);
  return status;
}

IOStatus WeldFileSystem::LockFile(const std::string& name, const IOOptions&, FileLock** lock, IODebugContext*) {
  *lock = nullptr;
  weldfs_file* file;
  IOStatus status = Open(name, O_RDWR | O_CREAT, &file);
  if (!status.ok()) {
    return status;
  }
  // Locks are of open files: one of this process excludes another one of it, too.
  const int error = weldfs_flock(file, LOCK_EX | LOCK_NB);
  if (error < 0) {
    const std::string why = error == -EAGAIN ? "lock held by another database that is open" : weldfs_last_error();
    weldfs_close(file);
    return IOStatus::IOError(name, why);
  }
  *lock = new Lock(file);
  return status;
}

IOStatus WeldFileSystem::UnlockFile(FileLock* lock, const IOOptions&, IODebugContext*) {
  auto* mine = static_cast<Lock*>(lock);
  const int error = mine->Release();
  delete mine;
  return error < 0 ? StatusOf(error, "unlock") : IOStatus::OK();
}

IOStatus WeldFileSystem::GetTestDirectory(const IOOptions& options, std::string* name, IODebugContext* dbg) {
  *name = "/tmp/rocksdbtest-" + std::to_string(geteuid());
  IOStatus status = CreateDirIfMissing("/tmp", options, dbg);
  return status.ok() ? CreateDirIfMissing(*name, options, dbg) : status;
}

IOStatus WeldFileSystem::NewLogger(const std::string& name, const IOOptions&,
                                   std::shared_ptr<ROCKSDB_NAMESPACE::Logger>* result, IODebugContext*) {
  result->reset();
  weldfs_file* file;
  IOStatus status = Open(name, O_WRONLY | O_CREAT | O_TRUNC, &file);
  if (status.ok()) {
    *result = std::make_shared<WeldLogger>(store_, file);
  }
  return status;
}

IOStatus WeldFileSystem::GetAbsolutePath(const std::string& name, const IOOptions&, std::string* absolute,
                                         IODebugContext*) {
  *absolute = !name.empty() && name[0] == '/' ? name : "/" + name;
  return IOStatus::OK();
}

IOStatus WeldFileSystem::GetFreeSpace(const std::string&, const IOOptions&, uint64_t* bytes, IODebugContext*) {
  weldfs_space space;
  const int error = weldfs_get_space(client(), &space);
  if (error < 0) {
    return StatusOf(error, store_->target());
  }
  *bytes = space.blocks_avail * space.block_bytes;
  return IOStatus::OK();
}

IOStatus WeldFileSystem::Poll(std::vector<void*>& handles, size_t) { return async_->Poll(handles); }

IOStatus WeldFileSystem::AbortIO(std::vector<void*>& handles) { return async_->Abort(handles); }

}  // namespace weldfs_rocksdb
