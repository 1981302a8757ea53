#include "tail.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace weldfs {

Kind KindOf(const std::string& name) {
  const std::string base = name.substr(name.rfind('/') + 1);
  const std::string manifest = "MANIFEST-";
  auto digits = [&](size_t from, size_t to) {
    auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
    return from < to && std::all_of(base.begin() + from, base.begin() + to, digit);
  };
  if (base.compare(0, manifest.size(), manifest) == 0 && digits(manifest.size(), base.size())) return Kind::kManifest;
  const size_t dot = base.rfind('.');
  if (dot == std::string::npos || !digits(0, dot)) return Kind::kOther;
  const std::string ending = base.substr(dot);
  if (ending == ".log") return Kind::kLog;
  if (ending == ".ldb" || ending == ".sst") return Kind::kTable;
  if (ending == ".dbtmp") return Kind::kTemporary;
  return Kind::kOther;
}

void Fragments::Follow(const char* data, size_t size) {
  while (size > 0) {
    size_t step;
    if (left_ > 0) {
      step = std::min(left_, size);
      left_ -= step;
    } else if (head_size_ == 0 && kBlock - in_block_ < kHead) {
      step = std::min(kBlock - in_block_, size);
    } else {
      step = std::min(kHead - head_size_, size);
      std::memcpy(head_ + head_size_, data, step);
      head_size_ += step;
      if (head_size_ == kHead) {
        head_size_ = 0;
        left_ = head_[4] | head_[5] << 8;
        type_ = head_[6];
      }
    }
    data += step;
    size -= step;
    in_block_ = (in_block_ + step) % kBlock;
  }
}

}  // namespace weldfs
