#include "logger.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <vector>

#include "writable.h"

namespace weldfs_rocksdb {
namespace {

// Lines are written when there are so many bytes of them, or when the last time was so long ago.
constexpr size_t kBytes = 16 << 10;
constexpr auto kAge = std::chrono::seconds(1);
// A line that is longer is cut.
constexpr size_t kLineMax = 64 << 10;

std::string Stamp() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts;
  localtime_r(&now.tv_sec, &parts);
  char text[96];
  std::snprintf(text, sizeof text, "%04d/%02d/%02d-%02d:%02d:%02d.%06ld %ld ", parts.tm_year + 1900, parts.tm_mon + 1,
                parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, now.tv_nsec / 1000, syscall(SYS_gettid));
  return text;
}

}  // namespace

WeldLogger::~WeldLogger() {
  if (!closed_) {
    closed_ = true;
    CloseImpl().PermitUncheckedError();
  }
}

void WeldLogger::Logv(const char* format, va_list arguments) {
  std::string line = Stamp();
  va_list again;
  va_copy(again, arguments);
  const int n = std::vsnprintf(nullptr, 0, format, arguments);
  if (n > 0) {
    std::vector<char> text(std::min(static_cast<size_t>(n), kLineMax) + 1);
    std::vsnprintf(text.data(), text.size(), format, again);
    line.append(text.data());
  }
  va_end(again);
  if (line.back() != '\n') {
    line += '\n';
  }
  std::lock_guard<std::mutex> lock(mutex_);
  lines_ += line;
  if (lines_.size() >= kBytes || std::chrono::steady_clock::now() - written_ >= kAge) {
    Write();
  }
}

void WeldLogger::Write() {
  if (file_ != nullptr && !lines_.empty() &&
      WriteAll(file_, lines_.data(), lines_.size(), size_, WELDFS_VOLATILE) == 0) {
    size_ += lines_.size();
  }
  lines_.clear();
  written_ = std::chrono::steady_clock::now();
}

void WeldLogger::Flush() {
  std::lock_guard<std::mutex> lock(mutex_);
  Write();
}

size_t WeldLogger::GetLogFileSize() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return size_ + lines_.size();
}

Status WeldLogger::CloseImpl() {
  std::lock_guard<std::mutex> lock(mutex_);
  Write();
  return CloseFile(&file_, "LOG");
}

}  // namespace weldfs_rocksdb
