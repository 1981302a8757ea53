#include "temporaries.h"

#include <fcntl.h>

#include <vector>

namespace weldfs_rocksdb {
namespace {

constexpr char kSuffix[] = ".dbtmp";
// Above this a file is written like any other.
constexpr size_t kBytesMax = 256 << 10;
constexpr uint32_t kMode = 0644;

}  // namespace

struct Temporaries::Kept {
  std::string name;
  std::mutex mutex;
  std::string content;
  bool synced = false;
  bool closed = false;
  // Written to the device, or renamed: nothing of it is kept any more.
  bool settled = false;
};

// A kept file while it is open; a plain one once it was settled.
class Temporaries::File : public FSWritableFile {
 public:
  File(std::shared_ptr<Temporaries> owner, std::shared_ptr<Kept> kept, const FileOptions& options)
      : FSWritableFile(options), owner_(std::move(owner)), kept_(std::move(kept)), options_(options) {}
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
    std::unique_lock<std::mutex> lock(kept_->mutex);
    if (!kept_->settled) {
      kept_->content.resize(size);
      return IOStatus::OK();
    }
    IOStatus status = Plain();
    return status.ok() ? plain_->Truncate(size, options, dbg) : status;
  }

  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    std::unique_lock<std::mutex> lock(kept_->mutex);
    if (!kept_->settled) {
      kept_->synced = true;
      return IOStatus::OK();
    }
    IOStatus status = Plain();
    return status.ok() ? plain_->Sync(options, dbg) : status;
  }

  IOStatus Close(const IOOptions& options, IODebugContext* dbg) override {
    std::unique_lock<std::mutex> lock(kept_->mutex);
    kept_->closed = true;
    return plain_ != nullptr ? plain_->Close(options, dbg) : IOStatus::OK();
  }

  uint64_t GetFileSize(const IOOptions& options, IODebugContext* dbg) override {
    std::unique_lock<std::mutex> lock(kept_->mutex);
    return plain_ != nullptr ? plain_->GetFileSize(options, dbg) : kept_->content.size();
  }

 private:
  uint64_t size() { return GetFileSize(IOOptions(), nullptr); }

  IOStatus Write(const Slice& data, uint64_t offset, const DataVerificationInfo* handoff, const IOOptions& options,
                 IODebugContext* dbg) {
    std::unique_lock<std::mutex> lock(kept_->mutex);
    // A checksum is the device's to verify, at once.
    const bool keep = handoff == nullptr && offset == kept_->content.size() && offset + data.size() <= kBytesMax;
    if (!kept_->settled && keep) {
      kept_->content.append(data.data(), data.size());
      return IOStatus::OK();
    }
    if (!kept_->settled) {
      lock.unlock();
      IOStatus status = owner_->Settle(kept_->name);
      if (!status.ok()) {
        return status;
      }
      lock.lock();
    }
    IOStatus status = Plain();
    if (!status.ok()) {
      return status;
    }
    return handoff != nullptr ? plain_->PositionedAppend(data, offset, options, *handoff, dbg)
                              : plain_->PositionedAppend(data, offset, options, dbg);
  }

  // The file in the device, as it was settled.
  IOStatus Plain() {
    if (plain_ != nullptr) {
      return IOStatus::OK();
    }
    weldfs_file* file = nullptr;
    const int error = weldfs_open(owner_->store_->client(), kept_->name.c_str(), O_RDWR, 0, &file);
    if (error < 0) {
      return StatusOf(error, kept_->name);
    }
    plain_.reset(new Writable(owner_->store_, kept_->name, file, kept_->content.size(), options_));
    return IOStatus::OK();
  }

  const std::shared_ptr<Temporaries> owner_;
  const std::shared_ptr<Kept> kept_;
  const FileOptions options_;
  std::unique_ptr<Writable> plain_;
};

Temporaries::~Temporaries() { Settle("").PermitUncheckedError(); }

bool Temporaries::IsOne(const std::string& name) {
  constexpr size_t n = sizeof kSuffix - 1;
  return name.size() > n && name.compare(name.size() - n, n, kSuffix) == 0;
}

std::unique_ptr<FSWritableFile> Temporaries::Make(const std::string& name, const FileOptions& options) {
  auto kept = std::make_shared<Kept>();
  kept->name = name;
  // What a crash left under the name.
  if (weldfs_unlink(store_->client(), name.c_str()) == 0) {
    store_->Changed();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  auto& slot = kept_[name];
  if (slot != nullptr) {
    // As an open file whose name was made anew: it goes on without one.
    std::lock_guard<std::mutex> old(slot->mutex);
    slot->settled = true;
  }
  slot = kept;
  count_.store(kept_.size());
  return std::unique_ptr<FSWritableFile>(new File(shared_from_this(), kept, options));
}

std::shared_ptr<Temporaries::Kept> Temporaries::Take(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = kept_.find(name);
  return found == kept_.end() ? nullptr : found->second;
}

IOStatus Temporaries::Write(Kept& kept) {
  std::lock_guard<std::mutex> one(kept.mutex);
  if (kept.settled) {
    return IOStatus::OK();
  }
  const uint64_t covered = store_->Covered();
  const int64_t error = weldfs_open_write_close(store_->client(), kept.name.c_str(), O_WRONLY | O_CREAT | O_TRUNC, kMode,
                                                kept.content.data(), kept.content.size(), 0,
                                                kept.synced ? WELDFS_DURABLE : WELDFS_VOLATILE, nullptr);
  if (error < 0) {
    return StatusOf(error, kept.name);
  }
  if (kept.synced) {
    store_->Settled(covered);
  }
  store_->Changed();
  store_->counters.temporaries_written.Add();
  kept.settled = true;
  return IOStatus::OK();
}

IOStatus Temporaries::Settle(const std::string& name) {
  if (count_.load() == 0) {
    return IOStatus::OK();
  }
  std::vector<std::shared_ptr<Kept>> wanted;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& entry : kept_) {
      if (name.empty() || entry.first == name) {
        wanted.push_back(entry.second);
      }
    }
  }
  for (const auto& kept : wanted) {
    IOStatus status = Write(*kept);
    if (!status.ok()) {
      return status;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = kept_.find(kept->name);
    if (found != kept_.end() && found->second == kept) {
      kept_.erase(found);
      count_.store(kept_.size());
    }
  }
  return IOStatus::OK();
}

bool Temporaries::Replace(const std::string& name, const std::string& by, IOStatus* status) {
  if (count_.load() == 0) {
    return false;
  }
  const std::shared_ptr<Kept> kept = Take(name);
  if (kept == nullptr) {
    return false;
  }
  {
    std::lock_guard<std::mutex> one(kept->mutex);
    if (kept->settled || !kept->closed) {
      return false;
    }
    const uint64_t covered = store_->Covered();
    const int error = weldfs_atomic_replace(store_->client(), by.c_str(), nullptr, kMode, kept->content.data(),
                                            kept->content.size());
    if (error < 0) {
      *status = StatusOf(error, by);
      return true;
    }
    store_->Settled(covered);
    store_->counters.replacements.Add();
    kept->settled = true;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  kept_.erase(name);
  count_.store(kept_.size());
  *status = IOStatus::OK();
  return true;
}

bool Temporaries::Forget(const std::string& name) {
  if (count_.load() == 0) {
    return false;
  }
  const std::shared_ptr<Kept> kept = Take(name);
  if (kept == nullptr) {
    return false;
  }
  {
    std::lock_guard<std::mutex> one(kept->mutex);
    if (kept->settled) {
      return false;
    }
    kept->settled = true;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  kept_.erase(name);
  count_.store(kept_.size());
  return true;
}

}  // namespace weldfs_rocksdb
