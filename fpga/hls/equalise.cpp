// equalise: spreads the histogram of images. What it computes: fpga/kernels/src/equalise.rs.
#include "weldfs_hls.h"

// A flit in the device's DRAM.
struct word64 {
    uint8_t b[64];
};

class Equalise {
  public:
    static constexpr unsigned WORDS = 1;

    static bool check(const uint32_t *params, size_t count) {
        return count == 1 && params[0] >= 1 && params[0] <= 1u << 24;
    }

    void load(const uint32_t *params) {
        flits_of_image = (2 * uint64_t(params[0]) + 63) / 64;
        align.load(2 * params[0]);
    }

#ifndef __SYNTHESIS__
    // A program is given the DRAM once; as a circuit the kernel has a port to it.
    bool attach(uint8_t *at, uint64_t bytes) {
        memory = reinterpret_cast<word64 *>(at);
        return bytes / 64 >= flits_of_image;
    }

    bool tick(flits &in, flits &out) { return tick(in, out, memory); }
#endif

    bool tick(flits &in, flits &out, word64 *dram) {
#pragma HLS dataflow
        bool busy = align.tick(in, aligned);
        busy |= remapping ? remap(dram) : count(dram);
        busy |= packed.tick(remapped, out);
        return busy;
    }

    bool peek(uint32_t port, uint32_t &value) {
        value = images;
        return port == 0;
    }

  private:
    static constexpr unsigned LANES = 32, BINS = 4096;

    static unsigned pixel(const uint8_t *bytes) { return bytes[0] | unsigned(bytes[1]) << 8; }

    // First pass: 32 lanes count, each in a histogram of its own, and the flit goes to DRAM.
    bool count(word64 *dram) {
#pragma HLS pipeline II = 1
        if (aligned.empty())
            return false;
        const piece<64> p = aligned.read();
        if (p.eop)
            ending = true;
        const unsigned pixels = p.len / 2;
    lanes:
        for (unsigned i = 0; i < LANES; i++) {
#pragma HLS unroll
            if (i < pixels)
                histogram[pixel(p.b + 2 * i) >> 4][i]++;
        }
        if (pixels > 0)
            place<64>(dram[stored++].b, p.b, 64);
        total += pixels;
        if (p.last || p.eop) {
            remapping = true;
            sent = left = 0;
            if (total > 0)
                level();
        }
        return true;
    }

    // Between the passes: 4,096 clocks.
    void level() {
        uint64_t below = 0;
    bins:
        for (unsigned b = 0; b < BINS; b++) {
#pragma HLS pipeline II = 1
            uint32_t in_bin = 0;
            for (unsigned i = 0; i < LANES; i++) {
#pragma HLS unroll
                in_bin += histogram[b][i];
                histogram[b][i] = 0;
            }
            below += in_bin;
            levels[b] = (below * 65535 + total / 2) / total;
        }
        left = total;
        images++;
    }

    // Second pass: 32 lanes look their pixels up.
    bool remap(word64 *dram) {
#pragma HLS pipeline II = 1
        if (remapped.full())
            return false;
        piece<64> p = {};
        if (left > 0) {
            const word64 word = dram[sent++];
            const unsigned pixels = left < LANES ? left : LANES;
            for (unsigned i = 0; i < LANES; i++) {
#pragma HLS unroll
                const uint16_t level = levels[pixel(word.b + 2 * i) >> 4];
                if (i < pixels) {
                    p.b[2 * i] = level & 0xff;
                    p.b[2 * i + 1] = level >> 8;
                }
            }
            p.len = 2 * pixels;
            left -= pixels;
            remapped.write(p);
        }
        if (left > 0 || (ending && p.len > 0))
            return true;
        if (ending) {
            p.eop = true;
            remapped.write(p);
        }
        ending = remapping = false;
        stored = 0;
        total = 0;
        return true;
    }

    uint32_t histogram[BINS][LANES] = {};
    uint16_t levels[BINS] = {};
#pragma HLS array_partition variable = histogram dim = 2 complete
    unsigned stored = 0, sent = 0;
    uint32_t total = 0, left = 0;
    bool remapping = false, ending = false;
    uint32_t images = 0;
    Align align;
    hls::stream<piece<64>> aligned, remapped;
    Pack<64> packed;
    uint64_t flits_of_image = 0;
#ifndef __SYNTHESIS__
    word64 *memory = nullptr;
#endif
};

extern "C" void weld_equalise(flits &in, flits &out, const uint32_t params[Equalise::WORDS], word64 *dram) {
#pragma HLS interface axis port = in
#pragma HLS interface axis port = out
#pragma HLS interface s_axilite port = params
#pragma HLS interface m_axi port = dram depth = 524288
#pragma HLS interface ap_ctrl_none port = return
    static Equalise kernel;
    static bool loaded = false;
#pragma HLS reset variable = loaded
    if (!loaded)
        kernel.load(params);
    loaded = true;
    kernel.tick(in, out, dram);
}

WELDFS_HLS_KERNEL(Equalise)
