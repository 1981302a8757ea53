// knn: the squared distance of every record to a query. What it computes: fpga/kernels/src/knn.rs.
#include "weldfs_hls.h"

class Knn {
  public:
    static constexpr unsigned WORDS = 1025;

    static bool check(const uint32_t *params, size_t count) {
        if (count == 0 || params[0] < 1 || params[0] > 4096)
            return false;
        const uint32_t d = params[0], surplus = d % 4;
        return count == 1 + (d + 3) / 4 && (surplus == 0 || params[count - 1] >> (8 * surplus) == 0);
    }

    void load(const uint32_t *params) {
        align.load(64 + params[0]);
    load_query:
        for (unsigned i = 0; i < 1024; i++) {
#pragma HLS pipeline
            for (unsigned j = 0; j < 4; j++)
                query[4 * i + j] = params[1 + i] >> (8 * j);
        }
    }

    bool tick(flits &in, flits &out) {
#pragma HLS dataflow
        bool busy = align.tick(in, aligned);
        busy |= distance();
        busy |= packed.tick(found, out);
        return busy;
    }

    bool peek(uint32_t port, uint32_t &value) {
        value = seen;
        return port == 0;
    }

  private:
    // 64 lanes of one flit; digits beyond the record, and the query there, are 0.
    bool distance() {
#pragma HLS pipeline II = 1
        if (aligned.empty() || found.full())
            return false;
        const piece<64> p = aligned.read();
        piece<68> result = {};
        if (p.eop) {
            result.eop = true;
            found.write(result);
            at = 0;
        } else if (at == 0) {
            place<64>(label, p.b, 64);
            sum = 0;
            at = 1;
        } else {
            const uint8_t *digits = query + 64 * (at - 1);
            ap_uint<32> squares = sum;
            uint32_t flit_sum = 0;
        lanes:
            for (unsigned i = 0; i < 64; i++) {
#pragma HLS unroll
                const int16_t difference = int16_t(p.b[i]) - int16_t(digits[i]);
                flit_sum += int32_t(difference) * difference;
            }
            sum = squares + flit_sum;
            at++;
        }
        if (p.last) {
            for (unsigned i = 0; i < 4; i++)
                result.b[i] = uint32_t(sum) >> (8 * i);
            place<64>(result.b + 4, label, 64);
            result.len = 68;
            found.write(result);
            at = 0;
            seen++;
        }
        return true;
    }

    uint8_t query[4096] = {};
#pragma HLS array_partition variable = query cyclic factor = 64
    uint8_t label[64] = {};
    // Which flit of a record is next.
    unsigned at = 0;
    ap_uint<32> sum = 0;
    uint32_t seen = 0;
    Align align;
    hls::stream<piece<64>> aligned;
    hls::stream<piece<68>> found;
    Pack<68> packed;
};

extern "C" void weld_knn(flits &in, flits &out, const uint32_t params[Knn::WORDS]) {
#pragma HLS interface axis port = in
#pragma HLS interface axis port = out
#pragma HLS interface s_axilite port = params
#pragma HLS interface ap_ctrl_none port = return
    static Knn kernel;
    static bool loaded = false;
#pragma HLS reset variable = loaded
    if (!loaded)
        kernel.load(params);
    loaded = true;
    kernel.tick(in, out);
}

WELDFS_HLS_KERNEL(Knn)
