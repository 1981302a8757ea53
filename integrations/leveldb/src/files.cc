#include "files.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace weldfs {

using leveldb::Slice;
using leveldb::Status;

namespace {
constexpr uint32_t kMode = 0644;
}

Status Open::As(const std::string& path, int flags) {
  const int error = weldfs_open(device_->client(), path.c_str(), flags | O_CLOEXEC, kMode, &file_);
  return error < 0 ? Failed(error) : Status::OK();
}

weldfs_file* Open::Take() { return std::exchange(file_, nullptr); }

Status Sequential::Read(size_t n, Slice* result, char* scratch) {
  const int64_t got = weldfs_pread(open_->file(), scratch, n, at_);
  *result = Slice(scratch, got < 0 ? 0 : got);
  if (got < 0) return open_->Failed(got);
  at_ += got;
  return Status::OK();
}

Status Sequential::Skip(uint64_t n) {
  at_ += n;
  return Status::OK();
}

Status RandomAccess::Read(uint64_t offset, size_t n, Slice* result, char* scratch) const {
  const int64_t got = weldfs_pread(open_->file(), scratch, n, offset);
  *result = Slice(scratch, got < 0 ? 0 : got);
  return got < 0 ? open_->Failed(got) : Status::OK();
}

Writable::Writable(std::unique_ptr<Open> open, Kind kind, uint64_t size)
    : open_(std::move(open)), kind_(kind), fragments_(size) {}

Status Writable::Fail(Status status) {
  if (!status.ok()) {
    failed_ = status;
    held_.clear();
  }
  return status;
}

Status Writable::Write(const char* data, size_t size, uint32_t durability) {
  owed_ = true;
  // Longer data is several commands: one flush behind them all is as good as one behind each.
  const bool whole = size <= open_->device().payload_max();
  while (size > 0) {
    const uint32_t now = whole ? durability : WELDFS_VOLATILE;
    const int64_t n = weldfs_pwrite(open_->file(), data, size, WELDFS_END, now, nullptr);
    if (n < 0) return open_->Failed(n);
    data += n;
    size -= n;
  }
  if (durability != WELDFS_DURABLE) return Status::OK();
  const int error = whole ? 0 : weldfs_fdatasync(open_->file());
  if (error < 0) return open_->Failed(error);
  // Durable with everything that was completed before it: earlier writes, and the file's name.
  owed_ = false;
  return Status::OK();
}

Status Writable::Send(uint32_t durability) {
  if (!failed_.ok()) return failed_;
  if (held_.empty()) return Status::OK();
  Status s = Fail(Write(held_.data(), held_.size(), durability));
  held_.clear();
  return s;
}

Status Writable::Settle(uint32_t durability) {
  if (!held_.empty() || !failed_.ok()) return Send(durability);
  if (durability != WELDFS_DURABLE || !owed_) return Status::OK();
  const int error = weldfs_fdatasync(open_->file());
  if (error < 0) return Fail(open_->Failed(error));
  owed_ = false;
  return Status::OK();
}

Status Writable::Append(const Slice& data) {
  if (closed_) return Failure(open_->name(), -EBADF);
  if (!failed_.ok()) return failed_;
  if (kind_ == Kind::kLog) fragments_.Follow(data.data(), data.size());
  if (held_.size() + data.size() > open_->device().payload_max()) {
    Status s = Send(WELDFS_VOLATILE);
    if (!s.ok()) return s;
    if (data.size() >= open_->device().payload_max()) return Fail(Write(data.data(), data.size(), WELDFS_VOLATILE));
  }
  held_.append(data.data(), data.size());
  return Status::OK();
}

#ifdef WELDFS_LEVELDB_BLOCKS
bool Writable::AppendBlock(const Slice& block, char type, Status* status) {
  const size_t payload_max = open_->device().payload_max();
  if (kind_ != Kind::kTable || closed_ || !failed_.ok()) return false;
  if (block.size() + 1 + sizeof(uint32_t) > payload_max) return false;
  *status = Send(WELDFS_VOLATILE);
  if (!status->ok()) return true;
  held_.assign(block.data(), block.size());
  held_.push_back(type);
  owed_ = true;
  const int error = weldfs_append_checksum(open_->file(), WELDFS_CRC32C_MASKED, held_.data(), held_.size(),
                                           WELDFS_VOLATILE, nullptr, nullptr);
  held_.clear();
  if (error < 0) *status = Fail(open_->Failed(error));
  return true;
}
#endif

Status Writable::Flush() {
  if (!failed_.ok()) return failed_;
  // Tables and manifests count from their sync on; of a record in fragments none does before the last.
  if (kind_ == Kind::kTable || kind_ == Kind::kManifest || fragments_.within_record()) return Status::OK();
  // What was sent survives the death of this process: a device of its own lives on with it, and one in this process
  // hands it to the kernel.
  if (held_.empty()) return Settle(WELDFS_VOLATILE);
  habit_.Flushed();
  return Send(habit_.expects_sync() ? WELDFS_DURABLE : WELDFS_VOLATILE);
}

Status Writable::Sync() {
  if (!failed_.ok()) return failed_;
  if (closed_) return Failure(open_->name(), -EBADF);
  habit_.Synced();
  return Settle(WELDFS_DURABLE);
}

Status Writable::Close() {
  if (closed_) return failed_;
  closed_ = true;
  Status s = Settle(WELDFS_VOLATILE);
  const int error = weldfs_close(open_->Take());
  return s.ok() && error < 0 ? open_->Failed(error) : s;
}

Temporary::Temporary(std::shared_ptr<Device> device, std::string path, std::string name)
    : device_(std::move(device)), path_(std::move(path)), name_(std::move(name)) {}

Status Temporary::Refusal() const { return device_->is_ours() ? failed_ : Failure(name_, -EBADF); }

Status Temporary::Append(const Slice& data) {
  if (closed_) return Failure(name_, -EBADF);
  held_.append(data.data(), data.size());
  return Refusal();
}

Status Temporary::Put(uint32_t durability) {
  const bool whole = held_.size() <= device_->payload_max();
  int flags = O_WRONLY | O_CREAT | O_APPEND | (made_ ? 0 : O_TRUNC);
  size_t done = 0;
  do {
    const size_t piece = std::min(held_.size() - done, device_->payload_max());
    const int64_t n =
        weldfs_open_write_close(device_->client(), path_.c_str(), flags, kMode, held_.data() + done, piece, WELDFS_END,
                                whole ? durability : WELDFS_VOLATILE, nullptr);
    if (n < 0) return failed_ = Failure(name_, n);
    made_ = true;
    flags &= ~O_TRUNC;
    done += n;
  } while (done < held_.size());
  held_.clear();
  owed_ = durability != WELDFS_DURABLE || !whole;
  return Status::OK();
}

Status Temporary::Sync() {
  Status refusal = Refusal();
  if (!refusal.ok()) return refusal;
  if (!made_ || !held_.empty()) {
    Status s = Put(WELDFS_DURABLE);
    if (!s.ok()) return s;
  }
  const int error = owed_ ? weldfs_sync(device_->client()) : 0;
  if (error < 0) return failed_ = Failure(name_, error);
  owed_ = false;
  return Status::OK();
}

Status Temporary::Close() {
  if (closed_) return failed_;
  closed_ = true;
  Status refusal = Refusal();
  return refusal.ok() && (!made_ || !held_.empty()) ? Put(WELDFS_VOLATILE) : refusal;
}

}  // namespace weldfs
