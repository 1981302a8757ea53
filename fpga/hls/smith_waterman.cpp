// smith-waterman: local alignment scores of pairs. What it computes: fpga/kernels/src/smith_waterman.rs.
#include "weldfs_hls.h"

class SmithWaterman {
  public:
    static constexpr unsigned WORDS = 3;

    static bool check(const uint32_t *params, size_t count) {
        if (count != 3)
            return false;
        const int32_t equal = int32_t(params[0]), differ = int32_t(params[1]), gap = int32_t(params[2]);
        return equal >= 1 && equal <= 127 && differ >= -128 && differ <= 0 && gap >= -128 && gap <= -1;
    }

    void load(const uint32_t *params) {
        equal = int32_t(params[0]);
        differ = int32_t(params[1]);
        gap = int32_t(params[2]);
        align.load(96);
    }

    bool tick(flits &in, flits &out) {
#pragma HLS dataflow
        bool busy = align.tick(in, aligned);
        busy |= score();
        busy |= packed.tick(scores, out);
        return busy;
    }

    bool peek(uint32_t port, uint32_t &value) {
        value = seen;
        return port == 0;
    }

  private:
    static constexpr unsigned QUERY = 128, TARGET = 256, CLOCKS = QUERY + TARGET - 1;

    bool score() {
        if (aligned.empty() || scores.full())
            return false;
        const piece<64> p = aligned.read();
        piece<4> result = {};
        if (p.eop) {
            result.eop = true;
            scores.write(result);
            held = 0;
            return true;
        }
        place<64>(pair + held, p.b, p.len);
        held += p.len;
        if (p.last) {
            const int16_t best = systolic();
            result.b[0] = uint16_t(best) & 0xff;
            result.b[1] = uint16_t(best) >> 8;
            result.len = 4;
            scores.write(result);
            held = 0;
            seen++;
        }
        return true;
    }

    static int16_t base(const uint8_t *bytes, unsigned i) { return bytes[i / 4] >> (2 * (i % 4)) & 3; }

    // Element i of the array has base i of the query. At clock t it computes H[i][t - i]; the left neighbour's score of
    // the clock before is H[i-1][t-i], and of the one before that H[i-1][t-i-1]. Where t - i is outside of the target the
    // element sees a base that equals none, which leaves no score above the best.
    int16_t systolic() {
        int16_t query[QUERY], target[CLOCKS + QUERY - 1];
        int16_t now[QUERY + 1] = {}, before[QUERY + 1] = {}, long_before[QUERY + 1] = {}, best[QUERY] = {};
#pragma HLS array_partition variable = query complete
#pragma HLS array_partition variable = now complete
#pragma HLS array_partition variable = before complete
#pragma HLS array_partition variable = long_before complete
#pragma HLS array_partition variable = best complete
        for (unsigned i = 0; i < QUERY; i++)
            query[i] = base(pair, i);
        // Last base first, so that what the elements see at a clock lies side by side.
        for (unsigned i = 0; i < CLOCKS + QUERY - 1; i++) {
            const int j = int(CLOCKS) - 1 - int(i);
            target[i] = j >= 0 && j < int(TARGET) ? base(pair + 32, j) : int16_t(-1);
        }
    clocks:
        for (unsigned t = 0; t < CLOCKS; t++) {
#pragma HLS pipeline II = 1
            const int16_t *seen_by = target + (CLOCKS - 1 - t);
        elements:
            for (unsigned i = 0; i < QUERY; i++) {
#pragma HLS unroll
                const int16_t along = long_before[i] + (query[i] == seen_by[i] ? equal : differ);
                const int16_t left = before[i], up = before[i + 1];
                const int16_t gapped = (left > up ? left : up) + gap;
                int16_t h = along > gapped ? along : gapped;
                h = h > 0 ? h : int16_t(0);
                now[i + 1] = h;
                best[i] = best[i] > h ? best[i] : h;
            }
            for (unsigned i = 1; i <= QUERY; i++) {
#pragma HLS unroll
                long_before[i] = before[i];
                before[i] = now[i];
            }
        }
        int16_t most = 0;
        for (unsigned i = 0; i < QUERY; i++) {
#pragma HLS unroll
            most = best[i] > most ? best[i] : most;
        }
        return most;
    }

    int16_t equal = 0, differ = 0, gap = 0;
    uint8_t pair[96] = {};
    unsigned held = 0;
    uint32_t seen = 0;
    Align align;
    hls::stream<piece<64>> aligned;
    hls::stream<piece<4>> scores;
    Pack<4> packed;
};

extern "C" void weld_smith_waterman(flits &in, flits &out, const uint32_t params[SmithWaterman::WORDS]) {
#pragma HLS interface axis port = in
#pragma HLS interface axis port = out
#pragma HLS interface s_axilite port = params
#pragma HLS interface ap_ctrl_none port = return
    static SmithWaterman kernel;
    static bool loaded = false;
#pragma HLS reset variable = loaded
    if (!loaded)
        kernel.load(params);
    loaded = true;
    kernel.tick(in, out);
}

WELDFS_HLS_KERNEL(SmithWaterman)
