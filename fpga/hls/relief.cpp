// relief: learns which features tell two classes apart, and passes those. What it computes: fpga/kernels/src/relief.rs.
#include "weldfs_hls.h"

class Relief {
  public:
    static constexpr unsigned WORDS = 4 + 256;

    static bool check(const uint32_t *params, size_t count) {
        if (count < 4 || params[1] == 0 || params[2] == 0)
            return false;
        return params[3] >= 1 && params[3] <= 256 && count == 4 + size_t(params[3]);
    }

    void load(const uint32_t *params) {
        threshold = int32_t(params[0]);
        hits = params[1];
        trained = ap_uint<33>(hits) + params[2];
        features = params[3];
        flits_per_row = (features + 15) / 16;
        align.load(4 * features);
    load_query:
        for (unsigned i = 0; i < 256; i++)
#pragma HLS pipeline
            query[i] = int32_t(params[4 + i]);
    }

    bool tick(flits &in, flits &out) {
#pragma HLS dataflow
        bool busy = align.tick(in, aligned);
        busy |= emit();
        busy |= take();
        busy |= packed.tick(passed, out);
        return busy;
    }

    bool peek(uint32_t port, uint32_t &value) {
        value = port == 0 ? rows : passing;
        return port <= 1;
    }

  private:
    // One flit of a row: 16 lanes. A row that passes is handed to `emit` when it is complete.
    bool take() {
#pragma HLS pipeline II = 1
        if (aligned.empty() || ending || (emitting && at + 1 == flits_per_row))
            return false;
        const piece<64> p = aligned.read();
        if (p.eop) {
            ending = true;
            at = 0;
            return true;
        }
        if (at == 0)
            low = high = 0;
        for (unsigned i = 0; i < 16; i++) {
#pragma HLS unroll
            uint32_t word = 0;
            for (unsigned j = 0; j < 4; j++)
                word |= uint32_t(p.b[4 * i + j]) << (8 * j);
            const int32_t number = int32_t(word), other = query[16 * at + i];
            row[now][16 * at + i] = number;
            const uint64_t difference =
                number < other ? uint64_t(int64_t(other) - number) : uint64_t(int64_t(number) - other);
            const uint64_t square = difference * difference;
            low += square & 0xffffffff;
            high += square >> 32;
        }
        at++;
        if (p.last) {
            at = 0;
            complete();
        }
        return true;
    }

    void complete() {
#pragma HLS inline
        if (begins) {
            begins = false;
            rows = passing = 0;
            count = 0;
            hit = now == 2 ? 0 : now + 1;
            miss = 3 - now - hit;
        }
        rows++;
        if (count < trained) {
            const bool is_hit = count < hits, is_first = count == 0 || count == hits;
            const ap_uint<73> distance = (ap_uint<73>(high) << 32) + low;
            unsigned &best = is_hit ? hit : miss;
            if (is_first || distance < nearest) {
                nearest = distance;
                const unsigned other = best;
                best = now;
                now = other;
            }
            if (++count == trained)
                weigh();
        } else {
            emitting = true;
            sent = 0;
            ready = now;
            now = now == hit ? miss : hit;
        }
    }

    void weigh() {
    weights:
        for (unsigned i = 0; i < 256; i++) {
#pragma HLS pipeline II = 1
#pragma HLS unroll factor = 16
            const int weight = int(row[miss][i] != query[i]) - int(row[hit][i] != query[i]);
            keep[i] = i < features && weight >= threshold;
            passing += keep[i];
        }
    }

    // One flit of a row that passes: its features move together.
    bool emit() {
#pragma HLS pipeline II = 1
        if (passed.full() || !(emitting || ending))
            return false;
        piece<64> p = {};
        if (emitting) {
            for (unsigned i = 0; i < 16; i++) {
                if (!keep[16 * sent + i])
                    continue;
                const uint32_t word = uint32_t(row[ready][16 * sent + i]);
                for (unsigned j = 0; j < 4; j++)
                    p.b[p.len + j] = word >> (8 * j);
                p.len += 4;
            }
            emitting = ++sent < flits_per_row;
        } else {
            p.eop = true;
            ending = false;
            begins = true;
        }
        passed.write(p);
        return true;
    }

    int32_t query[256] = {};
    int32_t row[3][256] = {};
    bool keep[256] = {};
#pragma HLS array_partition variable = query cyclic factor = 16
#pragma HLS array_partition variable = row dim = 1 complete
#pragma HLS array_partition variable = row dim = 2 cyclic factor = 16
#pragma HLS array_partition variable = keep cyclic factor = 16
    int32_t threshold = 0;
    uint32_t hits = 0, features = 0, flits_per_row = 0;
    ap_uint<33> trained = 0, count = 0;
    // Which row buffer is filled, has the nearest hit and miss (two to alternate with, later), and is put out.
    unsigned now = 0, hit = 1, miss = 2, ready = 0;
    // Halves of the sum of a row's squares.
    uint64_t low = 0, high = 0;
    ap_uint<73> nearest = 0;
    unsigned at = 0, sent = 0;
    bool emitting = false, ending = false, begins = true;
    uint32_t rows = 0, passing = 0;
    Align align;
    hls::stream<piece<64>> aligned, passed;
    Pack<64> packed;
};

extern "C" void weld_relief(flits &in, flits &out, const uint32_t params[Relief::WORDS]) {
#pragma HLS interface axis port = in
#pragma HLS interface axis port = out
#pragma HLS interface s_axilite port = params
#pragma HLS interface ap_ctrl_none port = return
    static Relief kernel;
    static bool loaded = false;
#pragma HLS reset variable = loaded
    if (!loaded)
        kernel.load(params);
    loaded = true;
    kernel.tick(in, out);
}

WELDFS_HLS_KERNEL(Relief)
