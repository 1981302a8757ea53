// Files that are read, and reads that are not waited for on the spot.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rocksdb/file_system.h"
#include "store.h"

namespace weldfs_rocksdb {

using ROCKSDB_NAMESPACE::FSRandomAccessFile;
using ROCKSDB_NAMESPACE::FSReadRequest;
using ROCKSDB_NAMESPACE::FSSequentialFile;
using ROCKSDB_NAMESPACE::IODebugContext;
using ROCKSDB_NAMESPACE::IOHandleDeleter;
using ROCKSDB_NAMESPACE::IOOptions;

// The type of ReadAsync's callback: releases differ in whether its request is const.
template <typename Method>
struct CallbackOf;
template <typename Callback>
struct CallbackOf<IOStatus (FSRandomAccessFile::*)(FSReadRequest&, const IOOptions&, Callback, void*, void**,
                                                   IOHandleDeleter*, IODebugContext*)> {
  using type = Callback;
};
using ReadCallback = CallbackOf<decltype(&FSRandomAccessFile::ReadAsync)>::type;

// The queue of a Store for reads in flight.
class AsyncReads {
 public:
  explicit AsyncReads(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  ~AsyncReads();

  // Submits a read. False when it cannot be in flight now (the queue is full, the read longer than a command): then
  // nothing was done.
  bool Submit(const weldfs_file* file, const FSReadRequest& request, const IOOptions& options,
              const std::string& name, const ReadCallback& callback, void* argument, void** handle,
              IOHandleDeleter* deleter);
  // Waits for all of them, and calls the callback of each.
  IOStatus Poll(const std::vector<void*>& handles);
  // Gives them up: when this returns, none of them is written to, and no callback will be called.
  IOStatus Abort(const std::vector<void*>& handles);

 private:
  struct Read;
  static void Done(void* read, const weldfs_completion* completion);
  // Waits until a read is no longer in flight.
  void Finish(Read* read);
  weldfs_queue* Queue();

  const std::shared_ptr<Store> store_;
  std::mutex mutex_;
  weldfs_queue* queue_ = nullptr;
};

class RandomAccess : public FSRandomAccessFile {
 public:
  RandomAccess(std::shared_ptr<Store> store, std::shared_ptr<AsyncReads> async, std::string name, weldfs_file* file)
      : store_(std::move(store)), async_(std::move(async)), name_(std::move(name)), file_(file) {}
  ~RandomAccess() override { weldfs_close(file_); }

  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override;
  // As one submission.
  IOStatus MultiRead(FSReadRequest* requests, size_t count, const IOOptions&, IODebugContext*) override;
  IOStatus ReadAsync(FSReadRequest& request, const IOOptions&, ReadCallback callback, void* argument, void** handle,
                     IOHandleDeleter* deleter, IODebugContext*) override;
  size_t GetUniqueId(char* id, size_t max_size) const override;
  // Nothing of a device's file is cached in this process; RocksDB reads ahead into buffers of its own.
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }
  // Overrides what releases from 10 on have.
  IOStatus GetFileSize(uint64_t* size);

 private:
  const std::shared_ptr<Store> store_;
  const std::shared_ptr<AsyncReads> async_;
  const std::string name_;
  weldfs_file* file_;
};

class Sequential : public FSSequentialFile {
 public:
  Sequential(std::string name, weldfs_file* file) : name_(std::move(name)), file_(file) {}
  ~Sequential() override { weldfs_close(file_); }

  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch, IODebugContext*) override;
  IOStatus Skip(uint64_t n) override;
  IOStatus PositionedRead(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                          IODebugContext*) override;
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

 private:
  const std::string name_;
  weldfs_file* file_;
  uint64_t position_ = 0;
};

}  // namespace weldfs_rocksdb
