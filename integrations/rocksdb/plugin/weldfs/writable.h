// Files that are written: logs, tables, the manifest.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "hints.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "store.h"

namespace weldfs_rocksdb {

using ROCKSDB_NAMESPACE::DataVerificationInfo;
using ROCKSDB_NAMESPACE::Env;
using ROCKSDB_NAMESPACE::FileOptions;
using ROCKSDB_NAMESPACE::FSRandomRWFile;
using ROCKSDB_NAMESPACE::FSWritableFile;
using ROCKSDB_NAMESPACE::IODebugContext;
using ROCKSDB_NAMESPACE::IOOptions;

// Whether the next append will be followed by a Sync before anything else is appended, as those before it were: then
// it is made durable by the command that writes it, and the Sync finds nothing left to do.
//
// RocksDB writes a log by Append, Flush, and perhaps Sync. After Flush the bytes must be outside of this process, so
// an append cannot be held back until it is known whether a Sync comes; but what comes is what came before. A wrong
// guess costs a flush and makes more durable than was asked, never less; each one doubles the number of synced appends
// in a row that the next guess needs.
class SyncGuess {
 public:
  // Something is appended: whether to make it durable at once. `unwanted` counts guesses that were wrong.
  bool OnAppend(Counter* unwanted);
  void OnSync();

 private:
  static constexpr uint32_t kNeededMax = 64;

  std::mutex mutex_;
  uint32_t appends_ = 0;  // since the last Sync
  uint32_t streak_ = 0;   // Syncs in a row that followed on exactly one append
  uint32_t needed_ = 1;
  bool guessed_ = false;
};

// A file that is written from one end to the other. Append and its kin are called by one thread at a time; Sync may
// be called beside them.
class Writable : public FSWritableFile {
 public:
  // Owns `file`, opened for writing; appends go to `position`.
  Writable(std::shared_ptr<Store> store, std::string name, weldfs_file* file, uint64_t position,
           const FileOptions& options);
  ~Writable() override;

  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override;
  IOStatus Append(const Slice& data, const IOOptions&, const DataVerificationInfo&, IODebugContext*) override;
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&, IODebugContext*) override;
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&, const DataVerificationInfo&,
                            IODebugContext*) override;
  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override;
  IOStatus Close(const IOOptions&, IODebugContext*) override;
  // What was appended is in the device already.
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override;
  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override { return Sync(options, dbg); }
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_.load(); }
  size_t GetUniqueId(char* id, size_t max_size) const override;
  // Nothing of a device's file is cached in this process.
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }
  IOStatus Allocate(uint64_t offset, uint64_t len, const IOOptions&, IODebugContext*) override;
  void SetWriteLifeTimeHint(Env::WriteLifeTimeHint hint) override;
  void SetIOPriority(Env::IOPriority priority) override;

 private:
  IOStatus Write(const Slice& data, uint64_t offset, const IOOptions& options, const DataVerificationInfo* handoff);
  // Has the device know how urgent what follows is, and how long it will stay.
  void Hint(Env::IOPriority of_call);
  // Verifies, writes and perhaps syncs, as one command.
  int64_t WriteVerified(const Slice& data, uint64_t offset, uint32_t crc, bool durably);
  int64_t WritePlain(const Slice& data, uint64_t offset, bool durably);

  const std::shared_ptr<Store> store_;
  const std::string name_;
  weldfs_file* file_;
  const bool allocate_;
  std::atomic<uint64_t> size_;
  // Up to where space is allocated beyond what was written.
  uint64_t allocated_ = 0;
  // As weldfs_set_hints had them last.
  uint32_t hints_ = 0;
  // The last change that a Sync has to make durable: at first, that the file was made or opened.
  std::atomic<uint64_t> change_;
  SyncGuess guess_;
};

// A file that is read and written anywhere.
class RandomRW : public FSRandomRWFile {
 public:
  RandomRW(std::shared_ptr<Store> store, std::string name, weldfs_file* file)
      : store_(std::move(store)), name_(std::move(name)), file_(file), change_(store_->Changed()) {}
  ~RandomRW() override { weldfs_close(file_); }

  IOStatus Write(uint64_t offset, const Slice& data, const IOOptions&, IODebugContext*) override;
  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override;
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override;
  IOStatus Close(const IOOptions&, IODebugContext*) override;

 private:
  const std::shared_ptr<Store> store_;
  const std::string name_;
  weldfs_file* file_;
  std::atomic<uint64_t> change_;
};

// Writes all of it at `offset`: 0, or a negative errno.
int64_t WriteAll(weldfs_file* file, const char* data, size_t n, uint64_t offset, uint32_t durability);
// Reads until `n` bytes are there or the file ends: how many, or a negative errno.
int64_t ReadAll(const weldfs_file* file, char* into, size_t n, uint64_t offset, uint32_t how);
// The read of RocksDB's interface: *result is what there is of the `n` bytes, in `scratch`.
IOStatus ReadInto(const weldfs_file* file, const std::string& name, uint64_t offset, size_t n,
                  const IOOptions& options, Slice* result, char* scratch);
// Closes *file, which is nullptr afterwards.
IOStatus CloseFile(weldfs_file** file, const std::string& name);
// An id of what is open, the same for as long as the device keeps the file: its length, 0 when there is no room.
size_t FileId(const Store& store, const weldfs_file* file, char* id, size_t max_size);

}  // namespace weldfs_rocksdb
