// hls::stream as far as the kernels here use it, for a compiler that makes programs of them. Vitis brings its own header of
// this name, with the same functions; this folder is not on its search path.
//
// A stream is bounded, as in hardware: what would block there for ever, because one thread runs all processes in turn,
// ends the program here.
#ifndef WELDFS_SIM_HLS_STREAM_H
#define WELDFS_SIM_HLS_STREAM_H

#include <cstdio>
#include <cstdlib>

namespace hls {

// Depth 0: that of a stream for which nothing is said, two.
template <typename T, int DEPTH = 0> class stream {
  public:
    stream() = default;
    stream(const stream &) = delete;
    stream &operator=(const stream &) = delete;

    bool empty() const { return count_ == 0; }
    bool full() const { return count_ == CAPACITY; }

    T read() {
        if (empty())
            stuck("a read from an empty stream");
        const unsigned at = first_;
        first_ = next(first_);
        count_--;
        return items_[at];
    }

    void write(const T &item) {
        if (full())
            stuck("a write to a full stream");
        items_[last_] = item;
        last_ = next(last_);
        count_++;
    }

  private:
    static constexpr unsigned CAPACITY = DEPTH == 0 ? 2 : DEPTH;

    static unsigned next(unsigned at) { return at + 1 == CAPACITY ? 0 : at + 1; }

    [[noreturn]] static void stuck(const char *what) {
        std::fprintf(stderr, "hls::stream: %s blocks for ever\n", what);
        std::abort();
    }

    T items_[CAPACITY];
    unsigned first_ = 0, last_ = 0, count_ = 0;
};

} // namespace hls

#endif
