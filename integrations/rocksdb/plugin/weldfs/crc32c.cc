#include "crc32c.h"

#include <array>

namespace weldfs_rocksdb {
namespace {

// The reflected polynomial of Castagnoli.
constexpr uint32_t kPolynomial = 0x82f63b78u;
// Bytes that one step takes; each has a table.
constexpr size_t kStride = 8;

using Tables = std::array<std::array<uint32_t, 256>, kStride>;

Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    }
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < kStride; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

}  // namespace

uint32_t Crc32c(const char* data, size_t n) {
  static const Tables tables = MakeTables();
  const auto* at = reinterpret_cast<const unsigned char*>(data);
  uint32_t crc = 0xffffffffu;
  for (; n >= kStride; n -= kStride, at += kStride) {
    const uint32_t first = crc ^ (uint32_t{at[0]} | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24);
    crc = tables[7][first & 0xff] ^ tables[6][first >> 8 & 0xff] ^ tables[5][first >> 16 & 0xff] ^ tables[4][first >> 24] ^
          tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
  }
  for (; n > 0; --n, ++at) {
    crc = (crc >> 8) ^ tables[0][(crc ^ *at) & 0xff];
  }
  return crc ^ 0xffffffffu;
}

}  // namespace weldfs_rocksdb
