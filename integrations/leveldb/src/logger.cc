#include "logger.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <string>

namespace weldfs {

void LineLogger::Logv(const char* format, std::va_list ap) {
  timeval now;
  gettimeofday(&now, nullptr);
  tm local;
  localtime_r(&now.tv_sec, &local);
  char head[96];
  const size_t date = std::strftime(head, sizeof(head), "%Y/%m/%d-%H:%M:%S", &local);
  const int more = std::snprintf(head + date, sizeof(head) - date, ".%06ld %ld ", static_cast<long>(now.tv_usec),
                                 static_cast<long>(syscall(SYS_gettid)));
  std::string line(head, date + more);
  std::va_list again;
  va_copy(again, ap);
  const int size = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (size < 0) return;
  const size_t from = line.size();
  line.resize(from + size + 1);  // with room for the NUL
  std::vsnprintf(&line[from], size + 1, format, ap);
  line.pop_back();
  if (line.back() != '\n') line.push_back('\n');
  weldfs_pwrite(open_->file(), line.data(), line.size(), WELDFS_END, WELDFS_VOLATILE, nullptr);
}

}  // namespace weldfs
