// Keys and values whose content can be checked by whoever reads them.
#pragma once

#include <cstdint>
#include <string>

namespace drive {

// 16 digits: in the order of their numbers.
constexpr size_t kKeySize = 16;
std::string Key(uint64_t number);
// The number of a key; false if it is none.
bool NumberOf(const char* key, size_t size, uint64_t* number);

// Values of one size: which key and which version of it they are, then bytes that follow from both, of which a
// compressor takes half away, as with db_bench's.
class Values {
 public:
  static constexpr uint64_t kLeast = 32;

  explicit Values(uint64_t size);
  uint64_t size() const { return size_; }
  void Make(uint64_t key, uint64_t version, std::string* out) const;
  // Whether these bytes are a value of this key, and which version.
  bool Check(uint64_t key, const char* data, size_t size, uint64_t* version) const;

 private:
  const char* Filler(uint64_t key, uint64_t version) const;

  uint64_t size_;
  std::string pool_;
};

// A number that looks like no other (splitmix64).
inline uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Numbers in an order that the seed decides.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mixed(seed)) {}
  uint64_t Next() { return Mixed(state_++); }
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  // From 0 to below 1.
  double Share() { return static_cast<double>(Next() >> 11) / static_cast<double>(1ull << 53); }

 private:
  uint64_t state_;
};

// Every number below n once, in an order without one: i goes from 0 to below n.
class Shuffled {
 public:
  explicit Shuffled(uint64_t n);
  uint64_t At(uint64_t i) const { return static_cast<uint64_t>(static_cast<unsigned __int128>(i) * step_ % n_); }

 private:
  uint64_t n_;
  uint64_t step_;
};

}  // namespace drive
