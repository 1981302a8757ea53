#include "writable.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "crc32c.h"

namespace weldfs_rocksdb {
namespace {

IOStatus Mismatch(Store* store, const std::string& name) {
  store->counters.handoff_mismatches.Add();
  return IOStatus::Corruption(name, "the bytes to write do not match the checksum that RocksDB computed of them");
}

}  // namespace

int64_t WriteAll(weldfs_file* file, const char* data, size_t n, uint64_t offset, uint32_t durability) {
  while (n > 0) {
    const int64_t done = weldfs_pwrite(file, data, n, offset, durability, nullptr);
    if (done <= 0) {
      return done < 0 ? done : -EIO;
    }
    data += done;
    n -= static_cast<size_t>(done);
    offset += static_cast<uint64_t>(done);
  }
  return 0;
}

int64_t ReadAll(const weldfs_file* file, char* into, size_t n, uint64_t offset, uint32_t how) {
  size_t got = 0;
  while (got < n) {
    const int64_t done = weldfs_pread_how(file, into + got, n - got, offset + got, how);
    if (done < 0) {
      return done;
    }
    if (done == 0) {
      break;
    }
    got += static_cast<size_t>(done);
  }
  return static_cast<int64_t>(got);
}

IOStatus ReadInto(const weldfs_file* file, const std::string& name, uint64_t offset, size_t n,
                  const IOOptions& options, Slice* result, char* scratch) {
  const int64_t got = ReadAll(file, scratch, n, offset, PriorityOf(options.rate_limiter_priority));
  *result = Slice(scratch, got < 0 ? 0 : static_cast<size_t>(got));
  return got < 0 ? StatusOf(got, name) : IOStatus::OK();
}

IOStatus CloseFile(weldfs_file** file, const std::string& name) {
  const int error = weldfs_close(*file);
  *file = nullptr;
  return error < 0 ? StatusOf(error, name) : IOStatus::OK();
}

size_t FileId(const Store& store, const weldfs_file* file, char* id, size_t max_size) {
  weldfs_stat stat;
  const uint64_t fs = store.identity();
  if (max_size < 3 * sizeof(uint64_t) || weldfs_fstat(file, &stat) < 0) {
    return 0;
  }
  std::memcpy(id, &fs, sizeof fs);
  std::memcpy(id + sizeof fs, &stat.ino, sizeof stat.ino);
  std::memcpy(id + 2 * sizeof fs, &stat.generation, sizeof stat.generation);
  return 3 * sizeof(uint64_t);
}

bool SyncGuess::OnAppend(Counter* unwanted) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (++appends_ > 1) {
    // The one before was not followed by a Sync.
    if (guessed_) {
      unwanted->Add();
      needed_ = std::min(needed_ * 2, kNeededMax);
    }
    streak_ = 0;
  }
  guessed_ = appends_ == 1 && streak_ >= needed_;
  return guessed_;
}

void SyncGuess::OnSync() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (appends_ > 0) {
    streak_ = appends_ == 1 ? streak_ + 1 : 0;
  }
  appends_ = 0;
  guessed_ = false;
}

Writable::Writable(std::shared_ptr<Store> store, std::string name, weldfs_file* file, uint64_t position,
                   const FileOptions& options)
    : FSWritableFile(options),
      store_(std::move(store)),
      name_(std::move(name)),
      file_(file),
      allocate_(options.allow_fallocate),
      size_(position),
      change_(store_->Changed()) {}

Writable::~Writable() { Close(IOOptions(), nullptr).PermitUncheckedError(); }

int64_t Writable::WritePlain(const Slice& data, uint64_t offset, bool durably) {
  return WriteAll(file_, data.data(), data.size(), offset, durably ? WELDFS_DURABLE : WELDFS_VOLATILE);
}

int64_t Writable::WriteVerified(const Slice& data, uint64_t offset, uint32_t crc, bool durably) {
  // The checksum is that of the bytes that are stored, not of the memory that they come from; what does not match was
  // never there, for other clients or after a crash.
  const int64_t done = weldfs_pwrite_verified(file_, data.data(), data.size(), offset, crc,
                                              durably ? WELDFS_DURABLE : WELDFS_VOLATILE, nullptr);
  return done < 0 ? done : 0;
}

void Writable::Hint(Env::IOPriority of_call) {
  const Env::IOPriority priority = of_call == Env::IO_TOTAL ? GetIOPriority() : of_call;
  const uint32_t hints = PriorityOf(priority) | LifeOf(GetWriteLifeTimeHint());
  if (hints != hints_ && file_ != nullptr && weldfs_set_hints(file_, hints) == 0) {
    hints_ = hints;
  }
}

void Writable::SetWriteLifeTimeHint(Env::WriteLifeTimeHint hint) {
  FSWritableFile::SetWriteLifeTimeHint(hint);
  Hint(Env::IO_TOTAL);
}

void Writable::SetIOPriority(Env::IOPriority priority) {
  FSWritableFile::SetIOPriority(priority);
  Hint(Env::IO_TOTAL);
}

IOStatus Writable::Write(const Slice& data, uint64_t offset, const IOOptions& options,
                         const DataVerificationInfo* handoff) {
  if (file_ == nullptr) {
    return IOStatus::IOError(name_, "written after it was closed");
  }
  if (data.empty()) {
    return IOStatus::OK();
  }
  Hint(options.rate_limiter_priority);
  const bool durably = guess_.OnAppend(&store_->counters.unwanted_durable_appends);
  const uint64_t covered = store_->Covered();
  int64_t error = 0;
  if (handoff != nullptr && handoff->checksum.size() == sizeof(uint32_t)) {
    const auto* b = reinterpret_cast<const unsigned char*>(handoff->checksum.data());
    const uint32_t crc = uint32_t{b[0]} | uint32_t{b[1]} << 8 | uint32_t{b[2]} << 16 | uint32_t{b[3]} << 24;
    if (data.size() <= store_->payload_max()) {
      error = WriteVerified(data, offset, crc, durably);
      store_->counters.handoffs.Add();
    } else if (Crc32c(data.data(), data.size()) == crc) {
      error = WritePlain(data, offset, durably);
      store_->counters.handoffs_on_host.Add();
    } else {
      return Mismatch(store_.get(), name_);
    }
  } else {
    error = WritePlain(data, offset, durably);
  }
  if (error == -EBADMSG) {
    return Mismatch(store_.get(), name_);
  }
  if (error < 0) {
    // What of it is there is not known: a Sync that comes after all the same is one.
    change_.store(store_->Changed());
    return StatusOf(error, name_);
  }
  if (durably) {
    store_->Settled(covered);
    store_->counters.durable_appends.Add();
    change_.store(covered);
  } else {
    change_.store(store_->Changed());
  }
  size_.store(std::max(size_.load(), offset + data.size()));
  return IOStatus::OK();
}

IOStatus Writable::Append(const Slice& data, const IOOptions& options, IODebugContext*) {
  return Write(data, size_.load(), options, nullptr);
}

IOStatus Writable::Append(const Slice& data, const IOOptions& options, const DataVerificationInfo& handoff,
                          IODebugContext*) {
  return Write(data, size_.load(), options, &handoff);
}

IOStatus Writable::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options, IODebugContext*) {
  return Write(data, offset, options, nullptr);
}

IOStatus Writable::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                                    const DataVerificationInfo& handoff, IODebugContext*) {
  return Write(data, offset, options, &handoff);
}

IOStatus Writable::Truncate(uint64_t size, const IOOptions& options, IODebugContext*) {
  Hint(options.rate_limiter_priority);
  const int error = weldfs_ftruncate(file_, size);
  if (error < 0) {
    return StatusOf(error, name_);
  }
  change_.store(store_->Changed());
  size_.store(size);
  allocated_ = 0;
  return IOStatus::OK();
}

IOStatus Writable::Close(const IOOptions& options, IODebugContext* dbg) {
  if (file_ == nullptr) {
    return IOStatus::OK();
  }
  IOStatus status;
  if (allocated_ > size_.load()) {
    status = Truncate(size_.load(), options, dbg);
  }
  IOStatus closed = CloseFile(&file_, name_);
  return status.ok() ? closed : status;
}

IOStatus Writable::Sync(const IOOptions&, IODebugContext*) {
  guess_.OnSync();
  return store_->MakeDurable(change_.load(), file_, name_);
}

size_t Writable::GetUniqueId(char* id, size_t max_size) const { return FileId(*store_, file_, id, max_size); }

IOStatus Writable::Allocate(uint64_t offset, uint64_t len, const IOOptions& options, IODebugContext*) {
  if (!allocate_) {
    return IOStatus::OK();
  }
  Hint(options.rate_limiter_priority);
  const int error = weldfs_fallocate(file_, FALLOC_FL_KEEP_SIZE, offset, len);
  if (error < 0) {
    return StatusOf(error, name_);
  }
  change_.store(store_->Changed());
  allocated_ = std::max(allocated_, offset + len);
  return IOStatus::OK();
}

IOStatus RandomRW::Write(uint64_t offset, const Slice& data, const IOOptions&, IODebugContext*) {
  const int64_t error = WriteAll(file_, data.data(), data.size(), offset, WELDFS_VOLATILE);
  change_.store(store_->Changed());
  return error < 0 ? StatusOf(error, name_) : IOStatus::OK();
}

IOStatus RandomRW::Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                        IODebugContext*) const {
  return ReadInto(file_, name_, offset, n, options, result, scratch);
}

IOStatus RandomRW::Sync(const IOOptions&, IODebugContext*) {
  return store_->MakeDurable(change_.load(), file_, name_);
}

IOStatus RandomRW::Close(const IOOptions&, IODebugContext*) { return CloseFile(&file_, name_); }

}  // namespace weldfs_rocksdb
