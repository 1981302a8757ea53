// gzip: LZ77 in batches of eight lanes, fixed Huffman codes. What it computes, to the bit: fpga/kernels/src/gzip.rs.
#include "weldfs_hls.h"

// Up to 10 codes of a batch: two of a match that ends, and one for each byte. `last`: the packet ends with them.
struct codes {
    uint32_t code[10];
    uint8_t bits[10];
    uint8_t count;
    bool first;
    bool last;
    uint32_t crc;
    uint32_t len;
};

class Gzip {
  public:
    static constexpr unsigned WORDS = 1;

    static bool check(const uint32_t *params, size_t count) { return count == 1 && params[0] == 0; }

    void load(const uint32_t *) {
        align.load(8);
    crc_tables:
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (unsigned bit = 0; bit < 8; bit++)
                c = c >> 1 ^ (0xedb88320u & (0u - (c & 1)));
            crc_table[0][i] = c;
        }
        for (unsigned k = 1; k < 8; k++)
            for (unsigned i = 0; i < 256; i++)
                crc_table[k][i] = crc_table[k - 1][i] >> 8 ^ crc_table[0][crc_table[k - 1][i] & 0xff];
        begin();
    }

    bool tick(flits &in, flits &out) {
#pragma HLS dataflow
        bool busy = align.tick(in, aligned);
        busy |= search();
        busy |= write_bits();
        busy |= packed.tick(bytes, out);
        return busy;
    }

    bool peek(uint32_t port, uint32_t &value) {
        value = matches;
        return port == 0;
    }

  private:
    static constexpr unsigned LANES = 8, HASH_BITS = 15, RING = 32768, WINDOW = RING - 2 * LANES, MATCH_MAX = 258;

    // --- LZ77 ---

    // Empties the table: 32,768 clocks, or fewer with more banks.
    void begin() {
        for (unsigned i = 0; i < 1u << HASH_BITS; i++)
#pragma HLS pipeline II = 1
            table[i] = 0x80000000u;
        position = len = 0;
        crc = ~0u;
        have = 0;
        open = false;
        first = true;
    }

    // A batch is worked on when the one after it is there, or the end: its last lanes look three bytes ahead.
    bool search() {
#pragma HLS pipeline II = 2
        if (found.full() || (!ending && aligned.empty()))
            return false;
        if (!ending) {
            const piece<64> p = aligned.read();
            ending = p.eop;
            for (unsigned i = 0; i < LANES; i++) {
#pragma HLS unroll
                if (i < p.len)
                    ring[(position + have + i) % RING] = p.b[i];
            }
            have += p.len;
            len += p.len;
            if (p.eop || have <= LANES)
                return true;
        }
        codes c = {};
        c.first = first;
        first = false;
        const unsigned n = have < LANES ? have : LANES;
        sum_up(n);
        batch(n, have < 3 ? 0 : have - 3 < LANES ? have - 3 : LANES, c);
        position += n;
        have -= n;
        if (ending && have == 0) {
            if (open)
                put_match(c);
            c.last = true;
            c.crc = ~crc;
            c.len = len;
            ending = false;
            begin();
        }
        found.write(c);
        return true;
    }

    // CRC-32 of up to eight bytes at once: tables for each place.
    void sum_up(unsigned n) {
#pragma HLS inline
        uint32_t next = 0;
        for (unsigned i = 0; i < LANES; i++) {
#pragma HLS unroll
            if (i < n) {
                const uint8_t mask = i < 4 ? crc >> (8 * i) : 0;
                next ^= crc_table[n - 1 - i][ring[(position + i) % RING] ^ mask];
            }
        }
        // Of fewer than four bytes the rest of the sum moves down.
        crc = n < 4 ? next ^ (n == 0 ? crc : crc >> (8 * n)) : next;
    }

    uint8_t at(uint32_t where) const { return ring[where % RING]; }

    // Bytes equal to those `distance` before, from lane `from` up to lane `to`.
    unsigned equal(unsigned from, unsigned to, uint32_t distance) const {
#pragma HLS inline
        unsigned n = 0;
        bool same = true;
        for (unsigned i = 0; i < LANES; i++) {
#pragma HLS unroll
            same = same && from + i < to && at(position + from + i) == at(position + from + i - distance);
            n += same;
        }
        return n;
    }

    void batch(unsigned n, unsigned hashed, codes &c) {
#pragma HLS inline
        uint32_t candidate[LANES], hash[LANES];
    lookup:
        for (unsigned i = 0; i < LANES; i++) {
#pragma HLS unroll
            uint32_t word = 0;
            for (unsigned j = 0; j < 4; j++)
                word |= uint32_t(at(position + i + j)) << (8 * j);
            hash[i] = word * 2654435761u >> (32 - HASH_BITS);
            candidate[i] = table[hash[i]];
        }
    insert:
        for (unsigned i = 0; i < LANES; i++) {
#pragma HLS unroll
            if (i < hashed)
                table[hash[i]] = position + i;
        }
        unsigned done = 0;
        if (open) {
            const unsigned most = MATCH_MAX - match_len;
            done = equal(0, most < n ? most : n, match_distance);
            match_len += done;
            if (done < n || match_len == MATCH_MAX)
                put_match(c);
        }
    select:
        for (unsigned i = 0; i < LANES; i++) {
#pragma HLS unroll
            if (i < done || i >= n)
                continue;
            const uint32_t distance = position + i - candidate[i];
            bool four = i < hashed && distance - 1 < WINDOW;
            for (unsigned j = 0; j < 4; j++)
                four = four && at(position + i + j) == at(position + i + j - distance);
            if (!four) {
                put_symbol(at(position + i), 0, 0, c);
                continue;
            }
            match_distance = distance;
            match_len = equal(i, n, distance);
            open = true;
            done = i + match_len;
            if (done < n)
                put_match(c);
        }
    }

    // --- codes ---

    static uint32_t reversed(uint32_t code, unsigned bits) {
#pragma HLS inline
        ap_uint<16> turned = 0;
        for (unsigned i = 0; i < bits; i++)
            turned = turned << 1 | (code >> i & 1);
        return turned;
    }

    static unsigned log2(uint32_t n) {
#pragma HLS inline
        unsigned bits = 0;
        for (unsigned i = 0; i < 16; i++) {
#pragma HLS unroll
            if (n >> i & 1)
                bits = i;
        }
        return bits;
    }

    static void put(uint32_t code, unsigned bits, codes &c) {
#pragma HLS inline
        c.code[c.count] = code;
        c.bits[c.count++] = bits;
    }

    // A literal, the end of the block, or a length with its extra bits.
    static void put_symbol(unsigned symbol, uint32_t extra, unsigned extra_bits, codes &c) {
#pragma HLS inline
        const unsigned bits = symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8;
        const unsigned code = symbol < 144   ? 0x30 + symbol
                              : symbol < 256 ? 0x190 + symbol - 144
                              : symbol < 280 ? symbol - 256
                                             : 0xc0 + symbol - 280;
        put(reversed(code, bits) | extra << bits, bits + extra_bits, c);
    }

    void put_match(codes &c) {
#pragma HLS inline
        const uint32_t l = match_len - 3, d = match_distance - 1;
        const unsigned length_bits = l < 8 || l == 255 ? 0 : log2(l) - 2;
        const unsigned symbol = l == 255 ? 285 : l < 8 ? 257 + l : 261 + 4 * length_bits + (l >> length_bits & 3);
        put_symbol(symbol, l & ((1u << length_bits) - 1), length_bits, c);
        const unsigned distance_bits = d < 4 ? 0 : log2(d) - 1;
        const uint32_t code = d < 4 ? d : 2 * distance_bits + 2 + (d >> distance_bits & 1);
        put(reversed(code, 5) | (d & ((1u << distance_bits) - 1)) << 5, 5 + distance_bits, c);
        open = false;
        matches++;
    }

    // --- bits to bytes ---

    void push(uint32_t code, unsigned bits, piece<48> &p) {
#pragma HLS inline
        held |= uint64_t(code) << held_bits;
        held_bits += bits;
        for (unsigned i = 0; i < 4; i++) {
#pragma HLS unroll
            if (held_bits >= 8) {
                p.b[p.len++] = held & 0xff;
                held >>= 8;
                held_bits -= 8;
            }
        }
    }

    bool write_bits() {
#pragma HLS pipeline II = 2
        if (bytes.full())
            return false;
        piece<48> p = {};
        if (closing) {
            closing = false;
            p.eop = true;
            bytes.write(p);
            return true;
        }
        if (found.empty())
            return false;
        const codes c = found.read();
        if (c.first) {
            const uint8_t header[10] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255};
            for (unsigned i = 0; i < 10; i++)
                p.b[i] = header[i];
            p.len = 10;
            held = 3; // a final block with fixed codes: three bits
            held_bits = 3;
        }
        for (unsigned i = 0; i < 10; i++) {
#pragma HLS unroll
            if (i < c.count)
                push(c.code[i], c.bits[i], p);
        }
        if (c.last) {
            push(0, 7, p); // the end of the block
            push(0, (8 - held_bits) % 8, p);
            push(c.crc & 0xffff, 16, p);
            push(c.crc >> 16, 16, p);
            push(c.len & 0xffff, 16, p);
            push(c.len >> 16, 16, p);
            closing = true;
        }
        bytes.write(p);
        return true;
    }

    uint32_t table[1u << HASH_BITS];
    uint8_t ring[RING] = {};
    uint32_t crc_table[8][256];
#pragma HLS array_partition variable = ring cyclic factor = 16
#pragma HLS array_partition variable = crc_table dim = 1 complete
    uint32_t position = 0, len = 0, crc = 0;
    // Bytes in the ring that are not worked on.
    unsigned have = 0;
    bool first = true, ending = false;
    // A match that runs on.
    bool open = false;
    unsigned match_len = 0;
    uint32_t match_distance = 0;
    uint32_t matches = 0;
    uint64_t held = 0;
    unsigned held_bits = 0;
    bool closing = false;
    Align align;
    hls::stream<piece<64>> aligned;
    hls::stream<codes> found;
    hls::stream<piece<48>> bytes;
    Pack<48> packed;
};

extern "C" void weld_gzip(flits &in, flits &out, const uint32_t params[Gzip::WORDS]) {
#pragma HLS interface axis port = in
#pragma HLS interface axis port = out
#pragma HLS interface s_axilite port = params
#pragma HLS interface ap_ctrl_none port = return
    static Gzip kernel;
    static bool loaded = false;
#pragma HLS reset variable = loaded
    if (!loaded)
        kernel.load(params);
    loaded = true;
    kernel.tick(in, out);
}

WELDFS_HLS_KERNEL(Gzip)
