#include "latency.h"

#include <algorithm>
#include <cmath>

namespace drive {

void Latency::Add(const Latency& other) {
  for (size_t i = 0; i < counts_.size(); i++) counts_[i] += other.counts_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
}

uint64_t Latency::Last(unsigned bucket) {
  if (bucket < (1u << kBits)) return bucket;
  const unsigned shift = (bucket >> kBits) - 1;
  const uint64_t first = (static_cast<uint64_t>(1) << kBits) + (bucket & ((1u << kBits) - 1));
  return (first << shift) + ((static_cast<uint64_t>(1) << shift) - 1);
}

uint64_t Latency::At(double share) const {
  const auto wanted = static_cast<uint64_t>(std::ceil(share * static_cast<double>(count_)));
  uint64_t seen = 0;
  for (unsigned i = 0; i < counts_.size(); i++) {
    seen += counts_[i];
    if (seen > 0 && seen >= wanted) return std::min(Last(i), max_);
  }
  return 0;
}

}  // namespace drive
