// ap_uint as far as weldfs_flits.h uses it: enough to build without anything to install.
//
// For arithmetic on numbers of any width take the open headers of this name (Apache-2.0; the Python package hls4ml has
// them), and build with `make hls AP_TYPES=their/folder`. Vitis brings its own.
#ifndef AP_INT_H
#define AP_INT_H

#include <cstdint>

// Of up to 64 bits: a number.
template <int BITS, bool WIDE = (BITS > 64)> class ap_uint {
  public:
    ap_uint(uint64_t value = 0) : value_(BITS == 64 ? value : value & ((uint64_t(1) << (BITS % 64)) - 1)) {}
    operator uint64_t() const { return value_; }

  private:
    uint64_t value_;
};

// Wider: bits that are copied, and nothing else.
template <int BITS> class ap_uint<BITS, true> {
    uint64_t words_[(BITS + 63) / 64] = {};
};

#endif
