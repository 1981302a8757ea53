// Makes a kernel of fpga/include/weldfs_kernel.h of a class with
//
//     static constexpr unsigned WORDS;                             the largest number of parameters
//     static bool check(const uint32_t *params, size_t count);     whether they are right; runs on the host
//     void load(const uint32_t *params);                           once after a reset
//     bool tick(flits &in, flits &out);                            one clock; false: nothing has changed
//     bool peek(uint32_t port, uint32_t &value);                   false: there is no such port
//
// by WELDFS_HLS_KERNEL(Class). Nothing of this goes to hardware: Vitis takes the function weld_NAME of each file, and
// leaves this out.
#ifndef WELDFS_HLS_H
#define WELDFS_HLS_H

#include "weldfs_flits.h"

#ifdef __SYNTHESIS__
#define WELDFS_HLS_KERNEL(Class)
#else

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>

#pragma GCC visibility push(default)
#include "weldfs_kernel.h"
#pragma GCC visibility pop

namespace weldfs {

// Chooses at which clocks a side stalls.
class Stall {
  public:
    void set(uint64_t seed, uint32_t permille) {
        state = seed;
        most = std::min(permille, 950u);
    }

    // True at some clocks, for ever only by a chance of nothing.
    bool now() {
        if (state == 0)
            return false;
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state % 1000 < most;
    }

  private:
    uint64_t state = 0;
    uint32_t most = 0;
};

// Gives a kernel that has a function `attach(memory, bytes)` the card's memory; false: it is too small. A kernel
// without one needs none.
template <typename K> auto attach(K &kernel, uint8_t *at, uint64_t bytes, int) -> decltype(kernel.attach(at, bytes)) {
    return kernel.attach(at, bytes);
}
template <typename K> bool attach(K &, uint8_t *, uint64_t, long) { return true; }

template <typename K> class Slot {
  public:
    bool make() {
        kernel.reset(new (std::nothrow) K());
        return kernel != nullptr;
    }

    void give(uint8_t *at, uint64_t size) {
        memory = at;
        bytes_of_memory = size;
    }

    int reset(const uint32_t *params, size_t count) {
        if (!K::check(params, count))
            return EINVAL;
        if (!make())
            return EIO;
        uint32_t words[K::WORDS] = {};
        std::copy(params, params + count, words);
        kernel->load(words);
        if (!attach(*kernel, memory, bytes_of_memory, 0))
            return EINVAL;
        clear(in);
        clear(out);
        held = given = due = 0;
        ended = giving = last = false;
        return 0;
    }

    void step(const uint8_t *from, size_t from_len, bool eop, uint8_t *to, size_t to_len, weldfs_kernel_step &step) {
        step = {};
        bool moved = true;
        while (moved) {
            const bool stalled_out = stall_out.now(), stalled_in = stall_in.now();
            moved = stalled_in || stalled_out;
            if (!stalled_out)
                moved |= drain(to, to_len, step);
            if (step.done)
                return;
            if (!stalled_in)
                moved |= feed(from, from_len, eop, step);
            moved |= kernel->tick(in, out);
        }
    }

    bool peek(uint32_t port, uint32_t &value) { return kernel->peek(port, value); }

    void stall(uint64_t seed, uint32_t in_permille, uint32_t out_permille) {
        stall_in.set(seed, in_permille);
        stall_out.set(seed * 31, out_permille);
    }

  private:
    static void clear(flits &f) {
        while (!f.empty())
            f.read();
    }

    // Hands on what is left of a flit, or the next.
    bool drain(uint8_t *to, size_t to_len, weldfs_kernel_step &step) {
        bool moved = false;
        if (!giving && !out.empty()) {
            const flit f = out.read();
            unpack(f.data, gift);
            given = 0;
            due = f.len;
            last = f.eop;
            giving = moved = true;
        }
        const size_t n = std::min<size_t>(due - given, to_len - step.made);
        if (n > 0)
            std::memcpy(to + step.made, gift + given, n);
        given += n;
        step.made += n;
        if (giving && given == due) {
            giving = false;
            if (last) {
                step.done = 1;
                ended = false;
            }
        }
        return moved || n > 0;
    }

    // Fills a flit, and sends it once it is known whether it is the last.
    bool feed(const uint8_t *from, size_t from_len, bool eop, weldfs_kernel_step &step) {
        const size_t n = std::min<size_t>(64 - held, from_len - step.taken);
        if (n > 0)
            std::memcpy(bytes + held, from + step.taken, n);
        held += n;
        step.taken += n;
        const bool more = step.taken < from_len, end = eop && !more && !ended;
        if (in.full() || !((held == 64 && more) || end))
            return n > 0;
        flit f;
        std::memset(bytes + held, 0, 64 - held);
        pack(bytes, f.data);
        f.len = held;
        f.eop = ended = end;
        in.write(f);
        held = 0;
        return true;
    }

    std::unique_ptr<K> kernel;
    uint8_t *memory = nullptr;
    uint64_t bytes_of_memory = 0;
    flits in, out;
    uint8_t bytes[64], gift[64];
    size_t held = 0, given = 0, due = 0;
    bool ended = false, giving = false, last = false;
    Stall stall_in, stall_out;
};

} // namespace weldfs

#define WELDFS_HLS_KERNEL(Class)                                                                                      \
    struct weldfs_kernel : weldfs::Slot<Class> {};                                                                    \
    extern "C" {                                                                                                      \
    uint32_t weldfs_kernel_abi(void) { return WELDFS_KERNEL_ABI; }                                                    \
    weldfs_kernel *weldfs_kernel_new(void) {                                                                          \
        std::unique_ptr<weldfs_kernel> k(new (std::nothrow) weldfs_kernel());                                         \
        return k && k->make() ? k.release() : nullptr;                                                                \
    }                                                                                                                 \
    void weldfs_kernel_free(weldfs_kernel *k) { delete k; }                                                           \
    int weldfs_kernel_reset(weldfs_kernel *k, const uint32_t *params, size_t count) {                                 \
        return k->reset(params, count);                                                                               \
    }                                                                                                                 \
    int weldfs_kernel_step_run(weldfs_kernel *k, const uint8_t *in, size_t in_len, int eop, uint8_t *out,             \
                               size_t out_len, weldfs_kernel_step *step) {                                            \
        k->step(in, in_len, eop != 0, out, out_len, *step);                                                           \
        return 0;                                                                                                     \
    }                                                                                                                 \
    int weldfs_kernel_peek(weldfs_kernel *k, uint32_t port, uint32_t *value) {                                        \
        return k->peek(port, *value) ? 0 : EINVAL;                                                                    \
    }                                                                                                                 \
    int weldfs_kernel_dram(weldfs_kernel *k, uint8_t *memory, uint64_t bytes) {                                       \
        k->give(memory, bytes);                                                                                       \
        return 0;                                                                                                     \
    }                                                                                                                 \
    int weldfs_kernel_stall(weldfs_kernel *k, uint64_t seed, uint32_t in_permille, uint32_t out_permille) {           \
        k->stall(seed, in_permille, out_permille);                                                                    \
        return 0;                                                                                                     \
    }                                                                                                                 \
    }

#endif
#endif
