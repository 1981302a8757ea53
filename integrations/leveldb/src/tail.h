// What is held back of a file that LevelDB writes, and how far LevelDB's calls allow that.
#ifndef WELDFS_LEVELDB_TAIL_H
#define WELDFS_LEVELDB_TAIL_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace weldfs {

// What LevelDB does with a file, by its name.
enum class Kind {
  kLog,       // NUMBER.log: a Put has returned when its record was flushed
  kManifest,  // MANIFEST-NUMBER: an edit counts when it was synced
  kTable,     // NUMBER.ldb, NUMBER.sst: counts when it was synced, as a whole
  kTemporary, // NUMBER.dbtmp: counts when it was synced, and then renamed to CURRENT
  kOther,     // a file of the program's own: what was flushed survives the process
};

Kind KindOf(const std::string& name);

// Follows the bytes of a log from block to block, and knows whether they end within a record: with a fragment that is
// to be followed by others. A reader ignores such a record, so its bytes are nothing that a caller could have been told
// about. Where the bytes are not those of a log, or end within a fragment, it says no.
class Fragments {
 public:
  // From where in the file the bytes are to come.
  explicit Fragments(uint64_t size) : in_block_(size % kBlock) {}
  void Follow(const char* data, size_t size);
  bool within_record() const { return left_ == 0 && head_size_ == 0 && (type_ == kFirst || type_ == kMiddle); }

 private:
  // doc/log_format.md of LevelDB: a block has fragments, and zeros where no head fits any more; a head is a checksum
  // of four bytes, a length of two, and a type.
  static constexpr size_t kBlock = 32768, kHead = 7;
  static constexpr uint8_t kFirst = 2, kMiddle = 3;

  size_t in_block_;
  size_t left_ = 0;  // of the fragment's content
  unsigned char head_[kHead] = {};
  size_t head_size_ = 0;
  uint8_t type_ = 0;
};

// Whether a sync follows on each flush of a log: then a flush may as well be durable at once, which makes both one
// command. It errs on the side of volatile (the sync is then a command of its own), and changes nothing of what a sync
// means.
class Habit {
 public:
  bool expects_sync() const { return streak_ >= kEnough; }
  void Flushed() {
    streak_ = synced_ ? streak_ : 0;
    synced_ = false;
  }
  void Synced() {
    if (!synced_ && streak_ < kEnough) streak_++;
    synced_ = true;
  }

 private:
  static constexpr int kEnough = 3;
  int streak_ = 0;
  bool synced_ = true;
};

}  // namespace weldfs

#endif
