// LevelDB's information log, in the device.
#ifndef WELDFS_LEVELDB_LOGGER_H
#define WELDFS_LEVELDB_LOGGER_H

#include <memory>

#include "files.h"
#include "leveldb/env.h"

namespace weldfs {

// A line is one command. LevelDB's Logger has no errors: a line that cannot be written is lost.
class LineLogger final : public leveldb::Logger {
 public:
  explicit LineLogger(std::unique_ptr<Open> open) : open_(std::move(open)) {}
  void Logv(const char* format, std::va_list ap) override;

 private:
  const std::unique_ptr<Open> open_;
};

}  // namespace weldfs

#endif
