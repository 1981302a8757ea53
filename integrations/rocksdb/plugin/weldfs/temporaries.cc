#include "temporaries.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace weldfs_rocksdb {
namespace {

constexpr char kSuffix[] = ".dbtmp";
// Above this a file is written like any other.
constexpr size_t kBytesMax = 256 << 10;

// RocksDB makes names of the database's, with or without a slash at its end: one spelling for each of them.
std::string Normal(const std::string& name) {
  std::string normal;
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part != ".") {
      normal += "/" + part;
    }
    begin = end + 1;
  }
  return normal.empty() ? "/" : normal;
}

// The directory that a normal name is in.
std::string ParentOf(const std::string& name) {
  const size_t slash = name.rfind('/');
  return slash == 0 ? "/" : name.substr(0, slash);
}

bool IsBelow(const std::string& name, const std::string& directory) {
  return directory == "/" || (name.size() > directory.size() && name[directory.size()] == '/' &&
                              name.compare(0, directory.size(), directory) == 0);
}

}  // namespace

struct Temporaries::Kept {
  enum class State {
    kKept,
    // Written to the device, or renamed there.
    kInDevice,
    // Removed, or its name was given to a new one.
    kGone,
  };

  std::string name;
  FileOptions options;
  std::mutex mutex;
  State state = State::kKept;
  std::string content;
  bool synced = false;
  bool closed = false;
  // The file in the device, when it was written while it was open: the same one, whatever its name is by now.
  std::unique_ptr<Writable> plain;

  // True when it was kept until now.
  bool Lose() {
    std::lock_guard<std::mutex> lock(mutex);
    const bool was_kept = state == State::kKept;
    state = was_kept ? State::kGone : state;
    return was_kept;
  }
};

// A kept file while it is open; a plain one once it was written.
class Temporaries::File : public FSWritableFile {
 public:
  File(std::shared_ptr<Temporaries> owner, std::shared_ptr<Kept> kept)
      : FSWritableFile(kept->options), owner_(std::move(owner)), kept_(std::move(kept)) {}
  ~File() override { Close(IOOptions(), nullptr).PermitUncheckedError(); }

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) override {
    return Write(data, size(), nullptr, options, dbg);
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const DataVerificationInfo& handoff,
                  IODebugContext* dbg) override {
    return Write(data, size(), &handoff, options, dbg);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            IODebugContext* dbg) override {
    return Write(data, offset, nullptr, options, dbg);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const DataVerificationInfo& handoff, IODebugContext* dbg) override {
    return Write(data, offset, &handoff, options, dbg);
  }

  IOStatus Truncate(uint64_t size, const IOOptions& options, IODebugContext* dbg) override {
    std::unique_lock<std::mutex> lock;
    IOStatus status = Enter(&lock);
    if (!status.ok()) {
      return status;
    }
    if (kept_->plain != nullptr) {
      return kept_->plain->Truncate(size, options, dbg);
    }
    kept_->content.resize(size);
    return status;
  }

  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    std::unique_lock<std::mutex> lock;
    IOStatus status = Enter(&lock);
    if (!status.ok()) {
      return status;
    }
    if (kept_->plain != nullptr) {
      return kept_->plain->Sync(options, dbg);
    }
    kept_->synced = true;
    return status;
  }

  IOStatus Close(const IOOptions& options, IODebugContext* dbg) override {
    IOStatus status = owner_->store_->CheckProcess();
    if (!status.ok()) {
      return status;
    }
    std::unique_lock<std::mutex> lock(kept_->mutex);
    kept_->closed = true;
    return kept_->plain != nullptr ? kept_->plain->Close(options, dbg) : status;
  }

  uint64_t GetFileSize(const IOOptions& options, IODebugContext* dbg) override {
    std::unique_lock<std::mutex> lock(kept_->mutex);
    return kept_->plain != nullptr ? kept_->plain->GetFileSize(options, dbg) : kept_->content.size();
  }

 private:
  uint64_t size() { return GetFileSize(IOOptions(), nullptr); }

  // Takes the lock of a file that can be used. It is kept then, or has a plain one.
  IOStatus Enter(std::unique_lock<std::mutex>* lock) {
    IOStatus status = owner_->store_->CheckProcess();
    if (!status.ok()) {
      return status;
    }
    *lock = std::unique_lock<std::mutex>(kept_->mutex);
    if (kept_->closed) {
      return IOStatus::IOError(kept_->name, "used after it was closed");
    }
    if (kept_->state == Kept::State::kGone) {
      return IOStatus::IOError(kept_->name, "it was removed, or made anew, while it was open");
    }
    return status;
  }

  IOStatus Write(const Slice& data, uint64_t offset, const DataVerificationInfo* handoff, const IOOptions& options,
                 IODebugContext* dbg) {
    std::unique_lock<std::mutex> lock;
    IOStatus status = Enter(&lock);
    if (!status.ok()) {
      return status;
    }
    // A checksum is the device's to verify, at once.
    const bool fits = handoff == nullptr && offset == kept_->content.size() && offset + data.size() <= kBytesMax;
    if (kept_->state == Kept::State::kKept && fits) {
      kept_->content.append(data.data(), data.size());
      return status;
    }
    status = owner_->Write(kept_);
    if (!status.ok()) {
      return status;
    }
    return handoff != nullptr ? kept_->plain->PositionedAppend(data, offset, options, *handoff, dbg)
                              : kept_->plain->PositionedAppend(data, offset, options, dbg);
  }

  const std::shared_ptr<Temporaries> owner_;
  const std::shared_ptr<Kept> kept_;
};

Temporaries::~Temporaries() {
  if (store_->CheckProcess().ok()) {
    SettleBelow("/").PermitUncheckedError();
  }
}

bool Temporaries::IsOne(const std::string& name) {
  constexpr size_t n = sizeof kSuffix - 1;
  return name.size() > n && name.compare(name.size() - n, n, kSuffix) == 0;
}

// The directory must take a new file, as when it were made at once.
IOStatus Temporaries::CheckParent(const std::string& name) const {
  const int error = weldfs_access(store_->client(), ParentOf(name).c_str(), W_OK | X_OK);
  return error < 0 ? StatusOf(error, name) : IOStatus::OK();
}

IOStatus Temporaries::Make(const std::string& name, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* result) {
  auto kept = std::make_shared<Kept>();
  kept->name = Normal(name);
  kept->options = options;
  Forget(name);
  // What a crash left under the name.
  const int error = weldfs_unlink(store_->client(), kept->name.c_str());
  IOStatus status = error == -ENOENT ? CheckParent(kept->name)
                    : error < 0      ? StatusOf(error, kept->name)
                                     : IOStatus::OK();
  if (!status.ok()) {
    return status;
  }
  if (error == 0) {
    store_->Changed();
  }
  std::shared_ptr<Kept> slot = kept;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    slot.swap(kept_[kept->name]);
    count_.store(kept_.size());
  }
  if (slot != nullptr) {
    // Another thread made one meanwhile.
    slot->Lose();
  }
  result->reset(new File(shared_from_this(), kept));
  return status;
}

std::shared_ptr<Temporaries::Kept> Temporaries::Take(const std::string& name) {
  if (count_.load() == 0) {
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = kept_.find(Normal(name));
  return found == kept_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Temporaries::Kept>> Temporaries::TakeWhere(
    const std::function<bool(const std::string&)>& wanted) {
  std::vector<std::shared_ptr<Kept>> taken;
  if (count_.load() == 0) {
    return taken;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& entry : kept_) {
    if (wanted(entry.first)) {
      taken.push_back(entry.second);
    }
  }
  return taken;
}

void Temporaries::Drop(const std::shared_ptr<Kept>& kept) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = kept_.find(kept->name);
  // The name may be that of a newer one by now.
  if (found != kept_.end() && found->second == kept) {
    kept_.erase(found);
  }
  count_.store(kept_.size());
}

IOStatus Temporaries::WriteClosed(const Kept& kept) const {
  const uint64_t covered = store_->Covered();
  const int64_t error = weldfs_open_write_close(store_->client(), kept.name.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                                kFileMode, kept.content.data(), kept.content.size(), 0,
                                                kept.synced ? WELDFS_DURABLE : WELDFS_VOLATILE, nullptr);
  if (error < 0) {
    return StatusOf(error, kept.name);
  }
  if (kept.synced) {
    store_->Settled(covered);
  } else {
    store_->Changed();
  }
  return IOStatus::OK();
}

IOStatus Temporaries::WriteOpen(Kept* kept) const {
  weldfs_file* file = nullptr;
  const int error =
      weldfs_open(store_->client(), kept->name.c_str(), O_RDWR | O_CREAT | O_TRUNC, kFileMode, &file);
  if (error < 0) {
    return StatusOf(error, kept->name);
  }
  std::unique_ptr<Writable> plain(new Writable(store_, kept->name, file, 0, kept->options));
  IOStatus status = plain->Append(kept->content, IOOptions(), nullptr);
  if (status.ok() && kept->synced) {
    status = plain->Sync(IOOptions(), nullptr);
  }
  if (status.ok()) {
    kept->plain = std::move(plain);
  }
  return status;
}

IOStatus Temporaries::Write(const std::shared_ptr<Kept>& kept) {
  if (kept->state != Kept::State::kKept) {
    return IOStatus::OK();
  }
  IOStatus status = kept->closed ? WriteClosed(*kept) : WriteOpen(kept.get());
  if (!status.ok()) {
    // It stays kept: nothing of it is to be found in the device.
    weldfs_unlink(store_->client(), kept->name.c_str());
    store_->Changed();
    return status;
  }
  store_->counters.temporaries_written.Add();
  kept->state = Kept::State::kInDevice;
  Drop(kept);
  return status;
}

bool Temporaries::Has(const std::string& name) { return Take(name) != nullptr; }

std::vector<FileAttributes> Temporaries::In(const std::string& directory) {
  const std::string normal = Normal(directory);
  std::vector<FileAttributes> files;
  for (const auto& kept : TakeWhere([&](const std::string& name) { return ParentOf(name) == normal; })) {
    std::lock_guard<std::mutex> lock(kept->mutex);
    files.push_back({kept->name.substr(kept->name.rfind('/') + 1), kept->content.size()});
  }
  return files;
}

IOStatus Temporaries::Settle(const std::string& name) {
  const std::shared_ptr<Kept> kept = Take(name);
  if (kept == nullptr) {
    return IOStatus::OK();
  }
  std::lock_guard<std::mutex> lock(kept->mutex);
  return Write(kept);
}

IOStatus Temporaries::SettleBelow(const std::string& directory) {
  const std::string normal = Normal(directory);
  IOStatus first;
  for (const auto& kept : TakeWhere([&](const std::string& name) { return IsBelow(name, normal); })) {
    std::lock_guard<std::mutex> lock(kept->mutex);
    IOStatus status = Write(kept);
    if (first.ok()) {
      first = status;
    }
  }
  return first;
}

bool Temporaries::Replace(const std::string& name, const std::string& by, IOStatus* status) {
  const std::shared_ptr<Kept> kept = Take(name);
  if (kept == nullptr) {
    return false;
  }
  std::lock_guard<std::mutex> lock(kept->mutex);
  if (kept->state != Kept::State::kKept || !kept->closed) {
    return false;
  }
  const uint64_t covered = store_->Covered();
  const int error = weldfs_atomic_replace(store_->client(), by.c_str(), nullptr, kFileMode, kept->content.data(),
                                          kept->content.size());
  if (error < 0) {
    *status = StatusOf(error, by);
    return true;
  }
  store_->Settled(covered);
  store_->counters.replacements.Add();
  kept->state = Kept::State::kInDevice;
  Drop(kept);
  *status = IOStatus::OK();
  return true;
}

bool Temporaries::Forget(const std::string& name) {
  const std::shared_ptr<Kept> kept = Take(name);
  if (kept == nullptr || !kept->Lose()) {
    return false;
  }
  Drop(kept);
  return true;
}

}  // namespace weldfs_rocksdb
