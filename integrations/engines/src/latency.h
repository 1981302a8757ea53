// Latencies in buckets that are 1/64 of their power of two wide: what a percentile says is at most 1.6 % too high.
#pragma once

#include <array>
#include <cstdint>

namespace drive {

class Latency {
 public:
  void Add(uint64_t ns) {
    counts_[Bucket(ns)]++;
    count_++;
    if (ns > max_) max_ = ns;
  }
  void Add(const Latency& other);
  uint64_t count() const { return count_; }
  uint64_t max() const { return max_; }
  // The least time within which this share of the operations was over; 0 of none.
  uint64_t At(double share) const;

 private:
  static constexpr unsigned kBits = 6;
  static unsigned Bucket(uint64_t ns) {
    if (ns < (1u << kBits)) return static_cast<unsigned>(ns);
    const unsigned shift = 63u - static_cast<unsigned>(__builtin_clzll(ns)) - kBits;
    return ((shift + 1) << kBits) + static_cast<unsigned>((ns >> shift) - (1u << kBits));
  }
  // The last value that the bucket counts.
  static uint64_t Last(unsigned bucket);

  std::array<uint64_t, (64 - kBits + 1) << kBits> counts_{};
  uint64_t count_ = 0;
  uint64_t max_ = 0;
};

}  // namespace drive
