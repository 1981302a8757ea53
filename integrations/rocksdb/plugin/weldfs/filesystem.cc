#include "filesystem.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "logger.h"

namespace weldfs_rocksdb {
namespace {

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

  // Covers what changed through this file system object, all of which is before now.
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return store_->MakeDurable(store_->Covered(), file_, name_);
  }
  // A new name, a new content under a name and a removal are all changes before now, too.
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* dbg, const DirFsyncOptions&) override {
    return Fsync(options, dbg);
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return CloseFile(&file_, name_); }
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
    : store_(std::move(store)),
      async_(std::make_shared<AsyncReads>(store_)),
      temporaries_(std::make_shared<Temporaries>(store_)) {}

std::string WeldFileSystem::GetId() const { return std::string(ROCKSDB_NAMESPACE::kWeldScheme) + store_->target(); }

IOStatus WeldFileSystem::Enter(const std::string& name) {
  IOStatus status = store_->CheckProcess();
  return status.ok() ? temporaries_->Settle(name) : status;
}

IOStatus WeldFileSystem::Open(const std::string& name, int flags, weldfs_file** file) {
  *file = nullptr;
  IOStatus status = Enter(name);
  if (!status.ok()) {
    return status;
  }
  const int error = weldfs_open(client(), name.c_str(), flags, kFileMode, file);
  if (error < 0) {
    return StatusOf(error, name);
  }
  if (flags & O_CREAT) {
    // A sync of the directory makes the name durable, whatever is done with the file.
    store_->Changed();
  }
  return status;
}

IOStatus WeldFileSystem::Stat(const std::string& name, weldfs_stat* stat) {
  IOStatus status = Enter(name);
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
    IOStatus status = store_->CheckProcess();
    return status.ok() ? temporaries_->Make(name, options, result) : status;
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
  IOStatus status = store_->CheckProcess();
  // One that is kept can be asked for, and removed, when there is no room to write it.
  if (!status.ok() || temporaries_->Has(name)) {
    return status;
  }
  const int error = weldfs_access(client(), name.c_str(), F_OK);
  if (error == 0) {
    return status;
  }
  return IsNone(error) ? IOStatus::NotFound(name) : StatusOf(error, name);
}

template <typename Next>
IOStatus WeldFileSystem::List(const std::string& directory, Next next, std::vector<FileAttributes>* files) {
  IOStatus status = store_->CheckProcess();
  if (!status.ok()) {
    return status;
  }
  // Asked for first: one that is written meanwhile is then found in the device.
  std::vector<FileAttributes> kept = temporaries_->In(directory);
  weldfs_dir* open;
  int error = weldfs_opendir(client(), directory.c_str(), &open);
  if (error < 0) {
    return IsNone(error) ? IOStatus::NotFound(directory, weldfs_last_error()) : StatusOf(error, directory);
  }
  FileAttributes file;
  while ((error = next(open, &file)) == 1) {
    files->push_back(file);
  }
  if (error < 0) {
    status = StatusOf(error, directory);
  }
  weldfs_closedir(open);
  for (FileAttributes& one : kept) {
    auto is_it = [&](const FileAttributes& other) { return other.name == one.name; };
    if (std::none_of(files->begin(), files->end(), is_it)) {
      files->push_back(std::move(one));
    }
  }
  return status;
}

IOStatus WeldFileSystem::GetChildren(const std::string& directory, const IOOptions&, std::vector<std::string>* result,
                                     IODebugContext*) {
  result->clear();
  auto next = [](weldfs_dir* open, FileAttributes* file) {
    weldfs_entry entry;
    const int error = weldfs_readdir(open, &entry);
    if (error == 1) {
      file->name = entry.name;
    }
    return error;
  };
  std::vector<FileAttributes> files;
  IOStatus status = List(directory, next, &files);
  for (FileAttributes& file : files) {
    result->push_back(std::move(file.name));
  }
  return status;
}

IOStatus WeldFileSystem::GetChildrenFileAttributes(const std::string& directory, const IOOptions&,
                                                   std::vector<FileAttributes>* result, IODebugContext*) {
  result->clear();
  auto next = [](weldfs_dir* open, FileAttributes* file) {
    weldfs_entry entry;
    weldfs_stat stat;
    int error;
    // One that was removed meanwhile has no attributes, and is left out.
    int missing = 0;
    do {
      error = weldfs_readdir_plus(open, &entry, &stat, &missing);
    } while (error == 1 && missing != 0);
    if (error == 1) {
      *file = {entry.name, stat.bytes};
    }
    return error;
  };
  return List(directory, next, result);
}

IOStatus WeldFileSystem::DeleteFile(const std::string& name, const IOOptions&, IODebugContext*) {
  IOStatus status = store_->CheckProcess();
  if (!status.ok()) {
    return status;
  }
  const bool kept = temporaries_->Forget(name);
  const int error = weldfs_unlink(client(), name.c_str());
  if (error < 0) {
    return kept && error == -ENOENT ? status : StatusOf(error, name);
  }
  store_->Changed();
  return status;
}

IOStatus WeldFileSystem::Truncate(const std::string& name, size_t size, const IOOptions&, IODebugContext*) {
  IOStatus status = Enter(name);
  if (!status.ok()) {
    return status;
  }
  const int error = weldfs_truncate(client(), name.c_str(), size);
  store_->Changed();
  return error < 0 ? StatusOf(error, name) : status;
}

IOStatus WeldFileSystem::CreateDir(const std::string& name, const IOOptions&, IODebugContext*) {
  IOStatus status = Enter(name);
  if (!status.ok()) {
    return status;
  }
  const int error = weldfs_mkdir(client(), name.c_str(), kDirectoryMode);
  store_->Changed();
  return error < 0 ? StatusOf(error, name) : status;
}

IOStatus WeldFileSystem::CreateDirIfMissing(const std::string& name, const IOOptions& options, IODebugContext* dbg) {
  IOStatus status = Enter(name);
  if (!status.ok()) {
    return status;
  }
  const int error = weldfs_mkdir(client(), name.c_str(), kDirectoryMode);
  store_->Changed();
  if (error == -EEXIST) {
    bool is_directory = false;
    status = IsDirectory(name, options, &is_directory, dbg);
    return status.ok() && !is_directory ? IOStatus::IOError(name, "exists, and is no directory") : status;
  }
  return error < 0 ? StatusOf(error, name) : status;
}

IOStatus WeldFileSystem::DeleteDir(const std::string& name, const IOOptions&, IODebugContext*) {
  IOStatus status = store_->CheckProcess();
  if (status.ok()) {
    // A kept file is one that the directory is not empty of.
    status = temporaries_->SettleBelow(name);
  }
  if (!status.ok()) {
    return status;
  }
  const int error = weldfs_rmdir(client(), name.c_str());
  store_->Changed();
  return error < 0 ? StatusOf(error, name) : status;
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
  IOStatus status = Enter(to);
  if (!status.ok() || temporaries_->Replace(from, to, &status)) {
    return status;
  }
  status = temporaries_->Settle(from);
  // In directories, what is kept moves along, and is in the way of what comes in its place.
  for (const std::string* directory : {&from, &to}) {
    if (status.ok()) {
      status = temporaries_->SettleBelow(*directory);
    }
  }
  if (!status.ok()) {
    return status;
  }
  const int error = weldfs_rename(client(), from.c_str(), to.c_str(), 0);
  store_->Changed();
  return error < 0 ? StatusOf(error, from) : status;
}

IOStatus WeldFileSystem::LinkFile(const std::string& from, const std::string& to, const IOOptions&, IODebugContext*) {
  IOStatus status = Enter(from);
  if (status.ok()) {
    status = temporaries_->Settle(to);
  }
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
  IOStatus status = store_->CheckProcess();
  if (!status.ok()) {
    return status;
  }
  weldfs_space space;
  const int error = weldfs_get_space(client(), &space);
  if (error < 0) {
    return StatusOf(error, store_->target());
  }
  *bytes = space.blocks_avail * space.block_bytes;
  return status;
}

IOStatus WeldFileSystem::Poll(std::vector<void*>& handles, size_t) { return async_->Poll(handles); }

IOStatus WeldFileSystem::AbortIO(std::vector<void*>& handles) { return async_->Abort(handles); }

}  // namespace weldfs_rocksdb
