// convolve: a vector of 64 signed bytes times 32 kernels. What it computes: fpga/kernels/src/convolve.rs.
#include "weldfs_hls.h"

class Convolve {
  public:
    static constexpr unsigned WORDS = 513;

    static bool check(const uint32_t *params, size_t count) { return count == WORDS && params[0] <= 16; }

    void load(const uint32_t *params) {
        shift = params[0];
    load_weights:
        for (unsigned i = 0; i < 512; i++) {
#pragma HLS pipeline
            for (unsigned j = 0; j < 4; j++)
                weights[i / 16][4 * (i % 16) + j] = int8_t(params[1 + i] >> (8 * j));
        }
    }

    bool tick(flits &in, flits &out) {
#pragma HLS dataflow
        bool busy = multiply(in);
        busy |= packed.tick(products, out);
        return busy;
    }

    bool peek(uint32_t, uint32_t &) { return false; }

  private:
    // 2,048 products and 32 adder trees a clock.
    bool multiply(flits &in) {
#pragma HLS pipeline II = 1
        if (products.full())
            return false;
        piece<64> p = {};
        if (ending) {
            ending = false;
            p.eop = true;
            products.write(p);
            return true;
        }
        if (in.empty())
            return false;
        const flit f = in.read();
        ending = f.eop;
        if (f.len < 64)
            return true;
        uint8_t bytes[64];
        unpack(f.data, bytes);
    kernels:
        for (unsigned k = 0; k < 32; k++) {
#pragma HLS unroll
            // Sums of 21 bits and a sign.
            int32_t sum = 0;
        elements:
            for (unsigned i = 0; i < 64; i++) {
#pragma HLS unroll
                sum += int16_t(int8_t(bytes[i])) * int16_t(weights[k][i]);
            }
            ap_int<22> shifted = sum >> shift;
            if (shifted > 32767)
                shifted = 32767;
            if (shifted < -32768)
                shifted = -32768;
            const uint16_t product = uint16_t(int(shifted));
            p.b[2 * k] = product & 0xff;
            p.b[2 * k + 1] = product >> 8;
        }
        p.len = 64;
        products.write(p);
        return true;
    }

    int8_t weights[32][64] = {};
#pragma HLS array_partition variable = weights dim = 0 complete
    unsigned shift = 0;
    bool ending = false;
    hls::stream<piece<64>> products;
    Pack<64> packed;
};

extern "C" void weld_convolve(flits &in, flits &out, const uint32_t params[Convolve::WORDS]) {
#pragma HLS interface axis port = in
#pragma HLS interface axis port = out
#pragma HLS interface s_axilite port = params
#pragma HLS interface ap_ctrl_none port = return
    static Convolve kernel;
    static bool loaded = false;
#pragma HLS reset variable = loaded
    if (!loaded)
        kernel.load(params);
    loaded = true;
    kernel.tick(in, out);
}

WELDFS_HLS_KERNEL(Convolve)
