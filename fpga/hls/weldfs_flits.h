// The units that kernels move, and the two sub-kernels that most of them begin and end with.
//
// A kernel is a class whose `tick` is one clock: each sub-kernel takes at most one item from its FIFO and puts at most one
// into the next. What it knows between two clocks are its members. So a packet may come in pieces, at any pace.
#ifndef WELDFS_FLITS_H
#define WELDFS_FLITS_H

#include <ap_int.h>
#include <hls_stream.h>

#include <cstdint>
#include <cstring>

// What the FIFOs of a slot carry. All flits of a packet are full, but for the one with `eop`: that has 0 to 64 bytes.
struct flit {
    ap_uint<512> data;
    ap_uint<16> len;
    bool eop;
};

typedef hls::stream<flit> flits;

// Up to N bytes on their way between sub-kernels; those beyond `len` are 0. `last`: a record ends with them. `eop`: the
// packet has ended; such a piece has no bytes.
template <unsigned N> struct piece {
    uint8_t b[N];
    uint16_t len;
    bool last;
    bool eop;
};

// A cast of wires. A program copies memory, which has the same order: `range` would take twenty times as long.
inline void unpack(const ap_uint<512> &data, uint8_t *bytes) {
#pragma HLS inline
#ifdef __SYNTHESIS__
    for (int i = 0; i < 64; i++) {
#pragma HLS unroll
        bytes[i] = data.range(8 * i + 7, 8 * i);
    }
#else
    static_assert(sizeof(data) == 64, "ap_uint<512> is eight words");
    std::memcpy(bytes, static_cast<const void *>(&data), 64);
#endif
}

inline void pack(const uint8_t *bytes, ap_uint<512> &data) {
#pragma HLS inline
#ifdef __SYNTHESIS__
    for (int i = 0; i < 64; i++) {
#pragma HLS unroll
        data.range(8 * i + 7, 8 * i) = bytes[i];
    }
#else
    std::memcpy(static_cast<void *>(&data), bytes, 64);
#endif
}

// The first `n` of `N` bytes move; a barrel shifter in hardware.
template <unsigned N> void place(uint8_t *to, const uint8_t *from, unsigned n) {
#pragma HLS inline
#ifdef __SYNTHESIS__
    for (unsigned i = 0; i < N; i++) {
#pragma HLS unroll
        if (i < n)
            to[i] = from[i];
    }
#else
    std::memmove(to, from, n);
#endif
}

// Cuts packets into records of one size, and these into pieces of up to 64 bytes: a record begins with a piece. A
// trailing part of a record comes, too, without `last`.
class Align {
  public:
    void load(uint32_t record_bytes) { record = left = record_bytes; }

    bool tick(flits &in, hls::stream<piece<64>> &out) {
#pragma HLS inline
        if (out.full())
            return false;
        const unsigned want = left < 64 ? left : 64;
        bool busy = false;
        if (have < want && !ending && !in.empty()) {
            const flit f = in.read();
            uint8_t bytes[64];
            unpack(f.data, bytes);
            place<64>(held + have, bytes, f.len);
            have += f.len;
            ending = f.eop;
            busy = true;
        }
        if (have < want && !ending)
            return busy;
        piece<64> p = {};
        p.len = have < want ? have : want;
        p.eop = have == 0;
        place<64>(p.b, held, p.len);
        have -= p.len;
        place<64>(held, held + p.len, have);
        left -= p.len;
        p.last = left == 0;
        if (p.eop)
            ending = false;
        if (p.last || p.eop)
            left = record;
        out.write(p);
        return true;
    }

  private:
    uint8_t held[192] = {};
    unsigned have = 0;
    uint32_t record = 1, left = 1;
    bool ending = false;
};

// Makes full flits of pieces.
template <unsigned N> class Pack {
  public:
    bool tick(hls::stream<piece<N>> &in, flits &out) {
#pragma HLS inline
        if (out.full())
            return false;
        bool busy = false;
        if (have <= 64 && !ending && !in.empty()) {
            const piece<N> p = in.read();
            place<N>(held + have, p.b, p.len);
            have += p.len;
            ending = p.eop;
            busy = true;
        }
        // A full flit waits for the byte behind it, or the end: it may be the last.
        if (have <= 64 && !ending)
            return busy;
        flit f;
        pack(held, f.data);
        f.len = have < 64 ? have : 64;
        f.eop = have <= 64;
        have -= f.len;
        place<64 + N>(held, held + 64, have);
        if (f.eop)
            ending = false;
        out.write(f);
        return true;
    }

  private:
    uint8_t held[2 * (64 + N)] = {};
    unsigned have = 0;
    bool ending = false;
};

#endif
