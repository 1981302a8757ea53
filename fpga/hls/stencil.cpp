// stencil: a 3x3 filter over an image. What it computes: fpga/kernels/src/stencil.rs.
#include "weldfs_hls.h"

class Stencil {
  public:
    static constexpr unsigned WORDS = 11;

    static bool check(const uint32_t *params, size_t count) {
        if (count != WORDS || params[0] < 1 || params[0] > 8192 || params[1] > 15)
            return false;
        uint64_t sum = 0;
        for (unsigned i = 2; i < WORDS; i++) {
            const int64_t k = int32_t(params[i]);
            sum += k < 0 ? -k : k;
        }
        return sum <= 128;
    }

    void load(const uint32_t *params) {
        width = params[0];
        blocks = (width + 63) / 64;
        shift = params[1];
        for (unsigned i = 0; i < 9; i++)
            coefficients[i] = int16_t(int32_t(params[2 + i]));
        align.load(width);
    }

    bool tick(flits &in, flits &out) {
#pragma HLS dataflow
        bool busy = align.tick(in, aligned);
        busy |= filter();
        busy |= packed.tick(filtered, out);
        return busy;
    }

    bool peek(uint32_t, uint32_t &) { return false; }

  private:
    // 64 columns of three rows, and the last column of the block to the left.
    struct window {
        uint8_t row[3][64];
        uint8_t left[3];
    };

    // Each block that comes completes the one before it, of which it has the right neighbours, in the row above. After the
    // packet's end blocks of zeros follow until all pixels are out.
    bool filter() {
#pragma HLS pipeline II = 1
        if (filtered.full() || (!ending && aligned.empty()))
            return false;
        piece<64> p = {};
        if (!ending) {
            p = aligned.read();
            ending = p.eop;
            pixels += p.len;
            if (!p.eop)
                advance(p);
            return true;
        }
        if (made < pixels) {
            advance(p);
            return true;
        }
        p.eop = true;
        filtered.write(p);
        ending = held = false;
        block = row = 0;
        made = pixels = 0;
        return true;
    }

    void advance(const piece<64> &p) {
#pragma HLS inline
        window next;
        for (unsigned i = 0; i < 64; i++) {
#pragma HLS unroll
            next.row[0][i] = row >= 2 ? lines[0][block][i] : uint8_t(0);
            next.row[1][i] = row >= 1 ? lines[1][block][i] : uint8_t(0);
            next.row[2][i] = p.b[i];
            lines[0][block][i] = next.row[1][i];
            lines[1][block][i] = p.b[i];
        }
        for (unsigned r = 0; r < 3; r++)
            next.left[r] = held && block > 0 ? current.row[r][63] : uint8_t(0);
        // The first row has nothing to put out: it is the middle one only when the second comes.
        if (held && (row > 1 || (row == 1 && block > 0)))
            put_out(next);
        current = next;
        held = true;
        if (++block == blocks) {
            block = 0;
            row += row < 2 ? 1 : 0;
        }
    }

    void put_out(const window &next) {
#pragma HLS inline
        const bool ends_row = block == 0;
        const unsigned full = ends_row ? width - 64 * (blocks - 1) : 64;
        uint8_t around[3][66];
        for (unsigned r = 0; r < 3; r++) {
#pragma HLS unroll
            around[r][0] = current.left[r];
            place<64>(around[r] + 1, current.row[r], 64);
            around[r][65] = ends_row ? uint8_t(0) : next.row[r][0];
        }
        piece<64> p = {};
        const uint64_t due = pixels - made;
        p.len = !ending || due > full ? full : due;
        for (unsigned x = 0; x < 64; x++) {
#pragma HLS unroll
            int16_t sum = 0;
            for (unsigned k = 0; k < 9; k++) {
#pragma HLS unroll
                sum += int16_t(around[k / 3][x + k % 3]) * coefficients[k];
            }
            const int16_t shifted = sum >> shift;
            const uint8_t clamped = shifted < 0 ? 0 : shifted > 255 ? 255 : shifted;
            p.b[x] = x < p.len ? clamped : uint8_t(0);
        }
        made += p.len;
        filtered.write(p);
    }

    int16_t coefficients[9] = {};
    uint32_t width = 1, blocks = 1;
    unsigned shift = 0;
    // The two rows before: the older first.
    uint8_t lines[2][128][64] = {};
#pragma HLS array_partition variable = lines dim = 1 complete
#pragma HLS array_reshape variable = lines dim = 3 complete
    window current = {};
    unsigned block = 0, row = 0;
    bool held = false, ending = false;
    // Of this packet: taken, and put out.
    uint64_t pixels = 0, made = 0;
    Align align;
    hls::stream<piece<64>> aligned, filtered;
    Pack<64> packed;
};

extern "C" void weld_stencil(flits &in, flits &out, const uint32_t params[Stencil::WORDS]) {
#pragma HLS interface axis port = in
#pragma HLS interface axis port = out
#pragma HLS interface s_axilite port = params
#pragma HLS interface ap_ctrl_none port = return
    static Stencil kernel;
    static bool loaded = false;
#pragma HLS reset variable = loaded
    if (!loaded)
        kernel.load(params);
    loaded = true;
    kernel.tick(in, out);
}

WELDFS_HLS_KERNEL(Stencil)
