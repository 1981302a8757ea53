// The Env: names to devices and paths, and everything that is done by name.
//
//   env.cc     this: names, directories, locks
//   device.*   an attachment, and errors as Status
//   files.*    reading and writing files
//   tail.*     what of a file is held back, and until when
//   logger.*   LevelDB's information log
//   c.cc       the same for LevelDB's C interface

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device.h"
#include "files.h"
#include "leveldb/env.h"
#include "logger.h"
#include "weldfs_leveldb.h"

namespace weldfs {
namespace {

using leveldb::Status;

constexpr uint32_t kDirectoryMode = 0755;

// A lock is one of the open file: it excludes other processes and other opens of this one alike, and ends with the
// session, however the process ends.
class Lock final : public leveldb::FileLock {
 public:
  explicit Lock(std::unique_ptr<Open> open) : open_(std::move(open)) {}
  Open& open() { return *open_; }

 private:
  const std::unique_ptr<Open> open_;
};

class DeviceEnv final : public leveldb::EnvWrapper {
 public:
  explicit DeviceEnv(std::string target) : EnvWrapper(Env::Default()), target_(std::move(target)) {}

  // Attaches to the Env's own target, if it has one.
  Status Begin() {
    Place place;
    return target_.empty() ? Status::OK() : Find("/", &place);
  }

  Status NewSequentialFile(const std::string& name, leveldb::SequentialFile** file) override {
    return Opened(name, O_RDONLY, file, [](std::unique_ptr<Open> open) { return new Sequential(std::move(open)); });
  }

  Status NewRandomAccessFile(const std::string& name, leveldb::RandomAccessFile** file) override {
    return Opened(name, O_RDONLY, file, [](std::unique_ptr<Open> open) { return new RandomAccess(std::move(open)); });
  }

  Status NewWritableFile(const std::string& name, leveldb::WritableFile** file) override {
    const Kind kind = KindOf(name);
    if (kind == Kind::kTemporary) {
      Place place;
      *file = nullptr;
      Status s = Find(name, &place);
      if (s.ok()) *file = new Temporary(place.device, place.path, name);
      return s;
    }
    return Opened(name, O_WRONLY | O_CREAT | O_TRUNC, file,
                  [kind](std::unique_ptr<Open> open) { return new Writable(std::move(open), kind, 0); });
  }

  Status NewAppendableFile(const std::string& name, leveldb::WritableFile** file) override {
    std::unique_ptr<Open> open;
    *file = nullptr;
    Status s = OpenAs(name, O_WRONLY | O_CREAT | O_APPEND, &open);
    if (!s.ok()) return s;
    weldfs_stat stat;
    const int error = weldfs_fstat(open->file(), &stat);
    if (error < 0) return Failure(name, error);
    *file = new Writable(std::move(open), KindOf(name), stat.bytes);
    return Status::OK();
  }

  Status NewLogger(const std::string& name, leveldb::Logger** logger) override {
    return Opened(name, O_WRONLY | O_CREAT | O_APPEND, logger,
                  [](std::unique_ptr<Open> open) { return new LineLogger(std::move(open)); });
  }

  // Says no only where the device says so: LevelDB makes a new database, over the old one, where CURRENT is absent.
  bool FileExists(const std::string& name) override {
    Place place;
    // Without a device there is nothing to overwrite, and nothing can be made.
    if (!Find(name, &place).ok()) return false;
    const int error = weldfs_access(place.client(), place.name(), F_OK);
    return error != -ENOENT && error != -ENOTDIR && error != -ENAMETOOLONG;
  }

  Status GetChildren(const std::string& name, std::vector<std::string>* children) override {
    children->clear();
    return At(name, [children](const Place& at) {
      weldfs_dir* dir = nullptr;
      int more = weldfs_opendir(at.client(), at.name(), &dir);
      if (more < 0) return more;
      weldfs_entry entry;
      while ((more = weldfs_readdir(dir, &entry)) > 0) children->push_back(entry.name);
      weldfs_closedir(dir);
      return more;
    });
  }

  Status RemoveFile(const std::string& name) override {
    return At(name, [](const Place& at) { return weldfs_unlink(at.client(), at.name()); });
  }

  Status CreateDir(const std::string& name) override {
    return At(name, [](const Place& at) { return weldfs_mkdir(at.client(), at.name(), kDirectoryMode); });
  }

  Status RemoveDir(const std::string& name) override {
    return At(name, [](const Place& at) { return weldfs_rmdir(at.client(), at.name()); });
  }

  Status GetFileSize(const std::string& name, uint64_t* size) override {
    *size = 0;
    return At(name, [size](const Place& at) {
      weldfs_stat stat;
      const int error = weldfs_stat_path(at.client(), at.name(), &stat);
      if (error == 0) *size = stat.bytes;
      return error;
    });
  }

  Status RenameFile(const std::string& from, const std::string& to) override {
    Place target;
    Status s = Find(to, &target);
    if (!s.ok()) return s;
    return At(from, [&target](const Place& at) {
      // Two attachments of one Env are two targets.
      if (at.device != target.device) return -EXDEV;
      return weldfs_rename(at.client(), at.name(), target.name(), 0);
    });
  }

  Status LockFile(const std::string& name, leveldb::FileLock** lock) override {
    *lock = nullptr;
    std::unique_ptr<Open> open;
    Status s = OpenAs(name, O_RDWR | O_CREAT, &open);
    if (!s.ok()) return s;
    const int error = weldfs_flock(open->file(), LOCK_EX);
    if (error == -EAGAIN) return Status::IOError("lock " + name, "already held, by this process or another");
    if (error < 0) return Failure("lock " + name, error);
    *lock = new Lock(std::move(open));
    return Status::OK();
  }

  Status UnlockFile(leveldb::FileLock* lock) override {
    std::unique_ptr<Lock> ours(static_cast<Lock*>(lock));
    const int error = weldfs_flock(ours->open().file(), LOCK_UN);
    return error < 0 ? Failure("unlock " + ours->open().name(), error) : Status::OK();
  }

  Status GetTestDirectory(std::string* path) override {
    const char* said = std::getenv("TEST_TMPDIR");
    *path = said != nullptr && *said != '\0' ? said : "/leveldbtest-" + std::to_string(geteuid());
    // Made by the first one of many that ask.
    Status s = CreateDir(*path);
    return s.ok() || FileExists(*path) ? Status::OK() : s;
  }

 private:
  // A path in a device.
  struct Place {
    std::shared_ptr<Device> device;
    std::string path;

    const weldfs_client* client() const { return device->client(); }
    const char* name() const { return path.c_str(); }
  };

  // Splits a name at the first `:/`, as the command line does, unless the Env is of one target.
  Status Split(const std::string& name, std::string* target, std::string* path) const {
    *target = target_;
    *path = name;
    const size_t colon = target_.empty() ? name.find(":/") : std::string::npos;
    if (colon != std::string::npos) {
      *target = name.substr(0, colon);
      *path = name.substr(colon + 1);
    } else if (target_.empty()) {
      const char* said = std::getenv("WELDFS_LEVELDB_TARGET");
      if (said != nullptr) *target = said;
    }
    if (!target->empty()) return Status::OK();
    return Status::InvalidArgument(name, "no target: a name is TARGET:/path, or WELDFS_LEVELDB_TARGET says the target");
  }

  Status Find(const std::string& name, Place* place) {
    std::string target;
    Status s = Split(name, &target, &place->path);
    if (!s.ok()) return s;
    std::lock_guard<std::mutex> guard(mutex_);
    std::shared_ptr<Device>& device = devices_[target];
    if (device != nullptr && !device->is_ours()) {
      return Status::IOError(name, "an Env that was made before a fork is used in the child");
    }
    // A device that is gone takes its files and locks with it. While any of them is open a database is, too, which
    // must not go on: others may have opened it since. Only an Env without any attaches anew.
    if (device != nullptr && device.use_count() == 1 && device->is_gone()) device.reset();
    if (device == nullptr) s = Device::Attach(target, &device);
    place->device = device;
    return s;
  }

  // Does something by name.
  template <typename F>
  Status At(const std::string& name, F&& f) {
    Place place;
    Status s = Find(name, &place);
    if (!s.ok()) return s;
    const int error = f(place);
    return error < 0 ? Failure(name, error) : Status::OK();
  }

  Status OpenAs(const std::string& name, int flags, std::unique_ptr<Open>* open) {
    Place place;
    Status s = Find(name, &place);
    if (!s.ok()) return s;
    open->reset(new Open(place.device, name));
    return (*open)->As(place.path, flags);
  }

  template <typename T, typename Make>
  Status Opened(const std::string& name, int flags, T** file, Make&& make) {
    std::unique_ptr<Open> open;
    *file = nullptr;
    Status s = OpenAs(name, flags, &open);
    if (s.ok()) *file = make(std::move(open));
    return s;
  }

  const std::string target_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Device>> devices_;
};

}  // namespace

Status NewLevelDBEnv(const std::string& target, leveldb::Env** env) {
  *env = nullptr;
  std::unique_ptr<DeviceEnv> made(new DeviceEnv(target));
  Status s = made->Begin();
  if (s.ok()) *env = made.release();
  return s;
}

}  // namespace weldfs
