// A Verilated kernel behind fpga/include/weldfs_kernel.h. Compiled once for each top module, with
//   WELD_TOP         its class, as Verilator names it
//   WELD_TOP_HEADER  the header of that
//
// A step turns the clock until there is nothing to do: the input has no flit to offer (the clock stands until there is
// one), or the output has no room. So a packet takes the same number of cycles however it is cut; the cycles of reset
// and parameters are counted with the first step that follows. Both sides obey and check the rules of AXI-Stream.
#include "weldfs_kernel.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <utility>

#include WELD_TOP_HEADER
#include "verilated.h"
#include "verilated_vcd_c.h"

namespace {

constexpr size_t FLIT = 64;
// A kernel that takes and gives nothing for so many cycles hangs. The longest silence of ours is 300 cycles, and a side
// moves in one cycle of a thousand at least.
constexpr uint64_t PATIENCE = 1 << 20;
// What lies in a flit past its length: a kernel may not depend on it.
constexpr uint8_t FILLING = 0xdb;

enum Status { WAITS = 0, RUNS = 1, PARAMS = 2, DATA = 3 };

// xorshift64 (Marsaglia, Xorshift RNGs, 2003).
struct Random {
    uint64_t state = 1;
    uint32_t permille() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return static_cast<uint32_t>((state >> 20) % 1000);
    }
};

// The memory port of a kernel that has one: the card's memory behind it takes a request in every cycle, and answers
// LATENCY cycles later, in order, as a channel of DDR4 does at 250 MHz (16 GB/s, 128 ns). Bits that a kernel may not
// depend on are not looked at.
template <typename Top, typename = void> struct Memory {
    void reset(Top &) {}
    void give(uint8_t *, uint64_t) {}
    template <typename Stalls> void before(Top &, uint64_t, Stalls) {}
    bool after(Top &, uint64_t, bool &) { return true; }
};

template <typename Top> struct Memory<Top, decltype(void(std::declval<Top &>().q_valid))> {
    static constexpr uint64_t LATENCY = 32;
    static constexpr size_t DEPTH = 64;
    struct Answer {
        uint64_t due;
        uint8_t data[FLIT];
    };
    struct Request {
        bool write;
        uint64_t at;
        uint8_t data[FLIT];
    };

    uint8_t *memory = nullptr;
    uint64_t flits = 0;
    std::deque<Answer> answers;
    Request held;
    bool pending = false, offered = false;

    void reset(Top &top) {
        answers.clear();
        pending = offered = false;
        top.q_ready = top.a_valid = 0;
    }

    void give(uint8_t *at, uint64_t bytes) {
        memory = at;
        flits = bytes / FLIT;
    }

    // What the memory offers in this cycle. `stalls` says, each time it is asked, whether a side stalls.
    template <typename Stalls> void before(Top &top, uint64_t now, Stalls stalls) {
        top.q_ready = answers.size() < DEPTH && !stalls();
        offered = offered || (!answers.empty() && answers.front().due <= now && !stalls());
        top.a_valid = offered;
        if (offered) std::memcpy(&top.a_data[0], answers.front().data, FLIT);
    }

    // What the kernel made of it; false: it broke a rule. `moved`: something was asked for or taken.
    bool after(Top &top, uint64_t now, bool &moved) {
        if (pending && (!top.q_valid || top.q_write != held.write || top.q_addr != held.at ||
                        (held.write && std::memcmp(held.data, &top.q_data[0], FLIT) != 0)))
            return false;
        pending = top.q_valid && !top.q_ready;
        if (top.q_valid) {
            held.write = top.q_write;
            held.at = top.q_addr;
            std::memcpy(held.data, &top.q_data[0], FLIT);
        }
        if (offered && top.a_ready) {
            answers.pop_front();
            offered = false;
            moved = true;
        }
        if (!top.q_valid || !top.q_ready) return true;
        moved = true;
        if (held.at >= flits) return false;
        uint8_t *place = memory + held.at * FLIT;
        if (held.write) {
            std::memcpy(place, held.data, FLIT);
        } else {
            answers.push_back({now + LATENCY, {}});
            std::memcpy(answers.back().data, place, FLIT);
        }
        return true;
    }
};

} // namespace

struct weldfs_kernel {
    VerilatedContext context;
    std::unique_ptr<WELD_TOP> top;
    std::unique_ptr<VerilatedVcdC> wave;
    // Of the clock since it was made, of the current step, and since anything was taken or given.
    uint64_t time = 0, cycles = 0, idle = 0;
    uint64_t dump_from = 0;
    // errno after which only a reset helps.
    int failed = EINVAL;

    // The flit that is gathered; `ending`: the packet's last byte is in it; `ended`: the kernel has taken that flit.
    uint8_t in[FLIT];
    size_t in_len = 0;
    bool ending = false, ended = false;
    // The flit that is handed out.
    uint8_t out[FLIT];
    size_t out_at = 0, out_len = 0;
    bool out_last = false;

    Memory<WELD_TOP> memory;

    bool stalls = false, offered = false, pending = false;
    uint32_t in_permille = 0, out_permille = 0;
    Random random;

    weldfs_kernel() {
        // What has no reset starts at random, so that a kernel that depends on it is found.
        context.randReset(2);
        context.randSeed(1);
        context.traceEverOn(true);
        // No thread beside this one: the process that this runs in may make none.
        context.threads(1);
        top = std::make_unique<WELD_TOP>(&context, "top");
    }

    // The clock may be low more than once in a cycle: the waveform has the first.
    void dump(uint64_t now) {
        if (wave && now >= dump_from) wave->dump(now);
        dump_from = now + 1;
    }

    void settle() {
        top->clk = 0;
        top->eval();
        dump(2 * time);
    }

    void edge() {
        top->clk = 1;
        top->eval();
        dump(2 * time + 1);
        time += 1;
        cycles += 1;
    }

    int reset(const uint32_t *params, size_t count) {
        in_len = out_at = out_len = 0;
        ending = ended = out_last = offered = pending = false;
        cycles = idle = 0;
        top->s_valid = top->m_ready = top->p_valid = 0;
        memory.reset(*top);
        top->rst = 1;
        for (int i = 0; i < 2; i++) {
            settle();
            edge();
        }
        top->rst = 0;
        // An empty list is a beat without a word.
        size_t beats = count ? count : 1;
        for (size_t at = 0; at < beats;) {
            top->p_valid = 1;
            top->p_data = count ? params[at] : 0;
            top->p_keep = count != 0;
            top->p_last = at + 1 == beats;
            settle();
            if (top->p_ready) at += 1;
            edge();
            if (cycles > PATIENCE) return failed = EIO;
        }
        top->p_valid = 0;
        for (settle(); top->status == WAITS; settle()) {
            edge();
            if (cycles > PATIENCE) return failed = EIO;
        }
        failed = top->status == RUNS ? 0 : top->status == PARAMS ? EINVAL : EIO;
        return failed;
    }

    // One cycle. `offer`: the gathered flit is whole.
    int cycle(bool offer) {
        bool stall_in = stalls && !offered && random.permille() < in_permille;
        bool stall_out = stalls && random.permille() < out_permille;
        offered = offer && !stall_in;
        top->s_valid = offered;
        if (offered) {
            std::memcpy(&top->s_data[0], in, FLIT);
            top->s_len = static_cast<uint8_t>(in_len);
            top->s_last = ending;
        }
        top->m_ready = !stall_out;
        memory.before(*top, time, [this] { return stalls && random.permille() < std::max(in_permille, out_permille); });
        settle();
        if (top->status != RUNS) return top->status == DATA ? EBADMSG : EIO;
        // What was offered may not be withdrawn or changed before it is taken.
        if (pending && (!top->m_valid || top->m_len != out_len || top->m_last != out_last ||
                        std::memcmp(out, &top->m_data[0], out_len) != 0))
            return EIO;
        pending = false;
        bool took = offered && top->s_ready, gave = top->m_valid && !stall_out;
        if (top->m_valid) {
            if (top->m_len > FLIT || (!top->m_last && top->m_len != FLIT)) return EIO;
            std::memcpy(out, &top->m_data[0], FLIT);
            out_len = top->m_len;
            out_last = top->m_last;
            out_at = 0;
            pending = !gave;
        }
        bool moved = took || gave;
        if (!memory.after(*top, time, moved)) return EIO;
        edge();
        if (took) {
            ended = ending;
            in_len = 0;
            offered = false;
        }
        idle = moved ? 0 : idle + 1;
        return idle > PATIENCE ? EIO : 0;
    }

    int step(const uint8_t *from, size_t len, bool eop, uint8_t *to, size_t room, weldfs_kernel_step *step) {
        if (failed) return failed;
        size_t taken = 0, made = 0;
        step->done = 0;
        for (;;) {
            if (!pending && out_at < out_len) {
                size_t n = std::min(out_len - out_at, room - made);
                std::memcpy(to + made, out + out_at, n);
                out_at += n;
                made += n;
                if (out_at < out_len) break;
            }
            if (!pending && out_last) {
                if (!ended) return failed = EIO;
                step->done = 1;
                ending = ended = out_last = false;
                out_at = out_len = 0;
                break;
            }
            if (!ending) {
                size_t n = std::min(FLIT - in_len, len - taken);
                std::memcpy(in + in_len, from + taken, n);
                in_len += n;
                taken += n;
                ending = eop && taken == len;
                if (ending) std::memset(in + in_len, FILLING, FLIT - in_len);
            }
            // A full flit waits until it is known whether it is the last.
            bool offer = !ended && (ending || (in_len == FLIT && taken < len));
            if (!offer && !ended) break;
            if (int code = cycle(offer)) return failed = code;
        }
        step->taken = taken;
        step->made = made;
        step->cycles = cycles;
        step->reserved = 0;
        cycles = 0;
        return 0;
    }
};

extern "C" {

uint32_t weldfs_kernel_abi(void) { return WELDFS_KERNEL_ABI; }

weldfs_kernel *weldfs_kernel_new(void) { return new (std::nothrow) weldfs_kernel; }

void weldfs_kernel_free(weldfs_kernel *kernel) {
    if (!kernel) return;
    kernel->top->final();
    if (kernel->wave) kernel->wave->close();
    delete kernel;
}

int weldfs_kernel_reset(weldfs_kernel *kernel, const uint32_t *params, size_t count) {
    return kernel->reset(params, count);
}

int weldfs_kernel_step_run(weldfs_kernel *kernel, const uint8_t *in, size_t in_len, int eop, uint8_t *out,
                           size_t out_len, weldfs_kernel_step *step) {
    int code = kernel->step(in, in_len, eop != 0, out, out_len, step);
    // The process of a kernel is killed, not ended: what has been said by then is to be in the file.
    if (kernel->wave) kernel->wave->flush();
    return code;
}

int weldfs_kernel_peek(weldfs_kernel *kernel, uint32_t port, uint32_t *value) {
    kernel->top->d_port = port;
    kernel->top->clk = 0;
    kernel->top->eval();
    if (!kernel->top->d_known) return EINVAL;
    *value = kernel->top->d_value;
    return 0;
}

int weldfs_kernel_dram(weldfs_kernel *kernel, uint8_t *memory, uint64_t bytes) {
    kernel->memory.give(memory, bytes);
    return 0;
}

int weldfs_kernel_stall(weldfs_kernel *kernel, uint64_t seed, uint32_t in_permille, uint32_t out_permille) {
    // A side that always stalls would never end.
    if (in_permille > 999 || out_permille > 999) return EINVAL;
    kernel->stalls = seed != 0;
    kernel->random.state = seed ? seed : 1;
    kernel->in_permille = in_permille;
    kernel->out_permille = out_permille;
    return 0;
}

int weldfs_kernel_wave(weldfs_kernel *kernel, const char *path) {
    if (kernel->wave) kernel->wave->close();
    kernel->wave.reset();
    if (!path) return 0;
    kernel->wave = std::make_unique<VerilatedVcdC>();
    kernel->top->trace(kernel->wave.get(), 99);
    kernel->wave->open(path);
    if (kernel->wave->isOpen()) return 0;
    kernel->wave.reset();
    return EIO;
}
}
