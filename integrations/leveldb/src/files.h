// Files in a device, as LevelDB reads and writes them.
#ifndef WELDFS_LEVELDB_FILES_H
#define WELDFS_LEVELDB_FILES_H

#include <memory>
#include <string>

#include "device.h"
#include "leveldb/env.h"
#include "tail.h"

namespace weldfs {

// An open file, and the attachment that it needs.
class Open {
 public:
  Open(std::shared_ptr<Device> device, std::string name) : device_(std::move(device)), name_(std::move(name)) {}
  ~Open() { weldfs_close(file_); }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

  // `path` is the name in the device, `name` what LevelDB calls it: for messages.
  leveldb::Status As(const std::string& path, int flags);
  leveldb::Status Failed(int64_t error) const { return Failure(name_, error); }
  const Device& device() const { return *device_; }
  const weldfs_file* file() const { return file_; }
  const std::string& name() const { return name_; }
  weldfs_file* Take();

 private:
  const std::shared_ptr<Device> device_;
  const std::string name_;
  weldfs_file* file_ = nullptr;
};

class Sequential final : public leveldb::SequentialFile {
 public:
  explicit Sequential(std::unique_ptr<Open> open) : open_(std::move(open)) {}
  leveldb::Status Read(size_t n, leveldb::Slice* result, char* scratch) override;
  leveldb::Status Skip(uint64_t n) override;

 private:
  const std::unique_ptr<Open> open_;
  uint64_t at_ = 0;
};

class RandomAccess final : public leveldb::RandomAccessFile {
 public:
  explicit RandomAccess(std::unique_ptr<Open> open) : open_(std::move(open)) {}
  leveldb::Status Read(uint64_t offset, size_t n, leveldb::Slice* result, char* scratch) const override;

 private:
  const std::unique_ptr<Open> open_;
};

// A file that is written at its end. After a write that failed every call fails as that one did: what LevelDB writes
// next would otherwise lie where its readers do not look for it.
class Writable final : public leveldb::WritableFile {
 public:
  Writable(std::unique_ptr<Open> open, Kind kind, uint64_t size);
  ~Writable() override { Close(); }
  leveldb::Status Append(const leveldb::Slice& data) override;
#ifdef WELDFS_LEVELDB_BLOCKS
  // With patches/blocks.patch: the device makes the checksum, in the pass that copies the block.
  bool AppendBlock(const leveldb::Slice& block, char type, leveldb::Status* status) override;
#endif
  leveldb::Status Close() override;
  leveldb::Status Flush() override;
  leveldb::Status Sync() override;

 private:
  // Sends what is held.
  leveldb::Status Send(uint32_t durability);
  // The same, and for WELDFS_DURABLE also has all that was sent so far durable.
  leveldb::Status Settle(uint32_t durability);
  leveldb::Status Write(const char* data, size_t size, uint32_t durability);
  leveldb::Status Fail(leveldb::Status status);

  const std::unique_ptr<Open> open_;
  const Kind kind_;
  std::string held_;
  bool owed_ = true;  // something of it, its name at least, is not durable yet
  bool closed_ = false;
  leveldb::Status failed_;
  Fragments fragments_;
  Habit habit_;
};

// A small file that is written once, synced, closed and then renamed: opened, written and closed by one command.
class Temporary final : public leveldb::WritableFile {
 public:
  Temporary(std::shared_ptr<Device> device, std::string path, std::string name);
  ~Temporary() override { Close(); }
  leveldb::Status Append(const leveldb::Slice& data) override;
  leveldb::Status Close() override;
  leveldb::Status Flush() override { return Refusal(); }
  leveldb::Status Sync() override;

 private:
  // Why nothing is to be written: a failure so far; or this is a child of the process that made the file, which would
  // reach a served device through an attachment of its own.
  leveldb::Status Refusal() const;
  leveldb::Status Put(uint32_t durability);

  const std::shared_ptr<Device> device_;
  const std::string path_, name_;
  std::string held_;
  bool made_ = false, owed_ = true, closed_ = false;
  leveldb::Status failed_;
};

}  // namespace weldfs

#endif
