#include "reads.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "writable.h"

namespace weldfs_rocksdb {
namespace {

// Reads in flight at most, and the memory of the queue that they lie in until they are delivered.
constexpr uint32_t kDepth = 256;
constexpr uint32_t kPoolBytes = 16u << 20;
// How long one thread waits for the device before it looks whether another one got what it waits for.
constexpr int kReapMillis = 50;

// Of a command that was one of many, or was waited for later: the thread's last failed call was another one.
IOStatus StatusOfResult(int64_t result, const std::string& name) {
  return result < 0 ? StatusOf(result, name, weldfs_strerror(static_cast<int>(result))) : IOStatus::OK();
}

}  // namespace

struct AsyncReads::Read {
  AsyncReads* owner;
  std::string name;
  uint64_t offset;
  size_t len;
  char* scratch;
  ReadCallback callback;
  void* argument;
  uint64_t ticket = 0;
  int64_t result = 0;
  bool reported = false;
  // Set last by whichever thread delivers the completion.
  std::atomic<bool> finished{false};
};

AsyncReads::~AsyncReads() { weldfs_queue_destroy(queue_); }

weldfs_queue* AsyncReads::Queue() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (queue_ == nullptr) {
    weldfs_queue_options options;
    std::memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.depth = kDepth;
    options.pool_bytes = kPoolBytes;
    if (weldfs_queue_create(store_->client(), &options, &queue_) < 0) {
      queue_ = nullptr;
    }
  }
  return queue_;
}

// RocksDB's own callback is called by Poll, on the thread that asked: its buffers have no lock.
void AsyncReads::Done(void* data, const weldfs_completion* completion) {
  auto* read = static_cast<Read*>(data);
  read->result = completion->result;
  read->finished.store(true, std::memory_order_release);
}

bool AsyncReads::Submit(const weldfs_file* file, const FSReadRequest& request, const IOOptions& options,
                        const std::string& name, const ReadCallback& callback, void* argument, void** handle,
                        IOHandleDeleter* deleter) {
  weldfs_queue* queue = Queue();
  if (queue == nullptr || request.len > store_->payload_max()) {
    return false;
  }
  std::unique_ptr<Read> read(new Read());
  read->owner = this;
  read->name = name;
  read->offset = request.offset;
  read->len = request.len;
  read->scratch = request.scratch;
  read->callback = callback;
  read->argument = argument;
  weldfs_job job;
  std::memset(&job, 0, sizeof job);
  job.size = sizeof job;
  job.flags = PriorityOf(options.rate_limiter_priority);
  job.done = &Done;
  job.data = read.get();
  job.ticket = &read->ticket;
  if (weldfs_submit_pread(queue, file, read->scratch, read->len, read->offset, &job) < 0) {
    return false;
  }
  store_->counters.async_reads.Add();
  *handle = read.release();
  *deleter = [](void* gone) {
    auto* one = static_cast<Read*>(gone);
    // RocksDB polls or aborts before; the memory must not be written to after this in any case.
    one->owner->Finish(one);
    delete one;
  };
  return true;
}

void AsyncReads::Finish(Read* read) {
  while (!read->finished.load(std::memory_order_acquire)) {
    const int64_t n = weldfs_queue_reap(queue_, nullptr, kDepth, kReapMillis);
    if (n < 0 && !read->finished.load(std::memory_order_acquire)) {
      // In a forked child nothing is delivered any more, and nothing is written to.
      read->result = n;
      return;
    }
    if (n == 0) {
      std::this_thread::yield();
    }
  }
}

IOStatus AsyncReads::Poll(const std::vector<void*>& handles) {
  for (void* handle : handles) {
    auto* read = static_cast<Read*>(handle);
    if (read == nullptr || read->reported) {
      continue;
    }
    Finish(read);
    read->reported = true;
    FSReadRequest request;
    request.offset = read->offset;
    request.len = read->len;
    request.scratch = read->scratch;
    request.result = Slice(read->scratch, read->result < 0 ? 0 : static_cast<size_t>(read->result));
    request.status = StatusOfResult(read->result, read->name);
    read->callback(request, read->argument);
  }
  return IOStatus::OK();
}

IOStatus AsyncReads::Abort(const std::vector<void*>& handles) {
  for (void* handle : handles) {
    auto* read = static_cast<Read*>(handle);
    if (read == nullptr || read->reported) {
      continue;
    }
    read->reported = true;
    if (!read->finished.load(std::memory_order_acquire) && weldfs_forget(queue_, read->ticket) == 0) {
      read->finished.store(true, std::memory_order_release);
    }
    // Else another thread delivers it at this moment.
    Finish(read);
  }
  return IOStatus::OK();
}

IOStatus RandomAccess::Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                            IODebugContext*) const {
  return ReadInto(file_, name_, offset, n, options, result, scratch);
}

IOStatus RandomAccess::MultiRead(FSReadRequest* requests, size_t count, const IOOptions& options,
                                 IODebugContext* dbg) {
  weldfs_batch* batch = nullptr;
  if (count > 1 && weldfs_batch_create(store_->client(), &batch) < 0) {
    batch = nullptr;
  }
  std::vector<size_t> batched;
  for (size_t i = 0; i < count; ++i) {
    FSReadRequest& one = requests[i];
    if (batch != nullptr && one.len > 0 && one.len <= store_->payload_max() &&
        weldfs_batch_pread(batch, file_, one.scratch, one.len, one.offset) == 0) {
      batched.push_back(i);
    } else {
      one.status = Read(one.offset, one.len, options, &one.result, one.scratch, dbg);
    }
  }
  if (!batched.empty()) {
    std::vector<weldfs_result> results(batched.size());
    const uint32_t priority = PriorityOf(options.rate_limiter_priority);
    const int64_t failed = weldfs_batch_run(batch, priority, results.data(), results.size());
    store_->counters.multi_reads.Add();
    for (size_t i = 0; i < batched.size(); ++i) {
      FSReadRequest& one = requests[batched[i]];
      const int64_t got = failed < 0 ? failed : results[i].result;
      one.result = Slice(one.scratch, got < 0 ? 0 : static_cast<size_t>(got));
      one.status = failed < 0 ? StatusOf(failed, name_) : StatusOfResult(got, name_);
    }
  }
  weldfs_batch_destroy(batch);
  return IOStatus::OK();
}

IOStatus RandomAccess::ReadAsync(FSReadRequest& request, const IOOptions& options, ReadCallback callback,
                                 void* argument, void** handle, IOHandleDeleter* deleter, IODebugContext* dbg) {
  if (async_->Submit(file_, request, options, name_, callback, argument, handle, deleter)) {
    return IOStatus::OK();
  }
  request.status = Read(request.offset, request.len, options, &request.result, request.scratch, dbg);
  callback(request, argument);
  return IOStatus::OK();
}

size_t RandomAccess::GetUniqueId(char* id, size_t max_size) const { return FileId(*store_, file_, id, max_size); }

IOStatus RandomAccess::GetFileSize(uint64_t* size) {
  weldfs_stat stat;
  const int error = weldfs_fstat(file_, &stat);
  if (error < 0) {
    return StatusOf(error, name_);
  }
  *size = stat.bytes;
  return IOStatus::OK();
}

IOStatus Sequential::Read(size_t n, const IOOptions& options, Slice* result, char* scratch, IODebugContext* dbg) {
  const IOStatus status = PositionedRead(position_, n, options, result, scratch, dbg);
  position_ += result->size();
  return status;
}

IOStatus Sequential::Skip(uint64_t n) {
  weldfs_stat stat;
  const int error = weldfs_fstat(file_, &stat);
  if (error < 0) {
    return StatusOf(error, name_);
  }
  const uint64_t left = stat.bytes > position_ ? stat.bytes - position_ : 0;
  position_ += std::min(n, left);
  return IOStatus::OK();
}

IOStatus Sequential::PositionedRead(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                                    IODebugContext*) {
  return ReadInto(file_, name_, offset, n, options, result, scratch);
}

}  // namespace weldfs_rocksdb
