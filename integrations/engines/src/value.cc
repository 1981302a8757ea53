#include "value.h"

#include <cstdio>
#include <cstring>
#include <numeric>

namespace drive {

namespace {

constexpr size_t kHead = 2 * sizeof(uint64_t);
constexpr size_t kPool = 1 << 20;
// Runs of random bytes and of one byte, so long each: any cut of the pool is about half of each.
constexpr size_t kRun = 48;

}  // namespace

std::string Key(uint64_t number) {
  char text[24];
  std::snprintf(text, sizeof(text), "%016llu", static_cast<unsigned long long>(number));
  return std::string(text, kKeySize);
}

bool NumberOf(const char* key, size_t size, uint64_t* number) {
  if (size != kKeySize) return false;
  *number = 0;
  for (size_t i = 0; i < size; i++) {
    if (key[i] < '0' || key[i] > '9') return false;
    *number = *number * 10 + static_cast<uint64_t>(key[i] - '0');
  }
  return true;
}

Values::Values(uint64_t size) : size_(size), pool_(kPool + size, 'x') {
  Random random(7);
  for (size_t i = 0; i < pool_.size(); i++) {
    if (i / kRun % 2 == 0) pool_[i] = static_cast<char>(random.Next());
  }
}

const char* Values::Filler(uint64_t key, uint64_t version) const {
  return pool_.data() + Mixed(key ^ Mixed(version)) % kPool;
}

void Values::Make(uint64_t key, uint64_t version, std::string* out) const {
  out->resize(size_);
  std::memcpy(out->data(), &key, sizeof(key));
  std::memcpy(out->data() + sizeof(key), &version, sizeof(version));
  std::memcpy(out->data() + kHead, Filler(key, version), size_ - kHead);
}

bool Values::Check(uint64_t key, const char* data, size_t size, uint64_t* version) const {
  if (size != size_) return false;
  uint64_t of = 0;
  std::memcpy(&of, data, sizeof(of));
  std::memcpy(version, data + sizeof(of), sizeof(*version));
  return of == key && std::memcmp(data + kHead, Filler(key, *version), size_ - kHead) == 0;
}

Shuffled::Shuffled(uint64_t n) : n_(n), step_(0x9e3779b97f4a7c15 % n) {
  // A step without a common divisor comes to every number before it comes to one again.
  while (std::gcd(step_, n_) != 1) step_++;
}

}  // namespace drive
