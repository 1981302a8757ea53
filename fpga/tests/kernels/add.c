/* Adds its parameter to every byte, well or badly: a macro says how. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weldfs_kernel.h"

struct weldfs_kernel {
    uint8_t add;
    uint32_t seen;
};

#ifdef HANGS_AT_START
__attribute__((constructor)) static void hang(void) {
    for (volatile int i = 0;; i++) {
    }
}
#endif

uint32_t weldfs_kernel_abi(void) {
#ifdef OLD_ABI
    return 77;
#else
    return WELDFS_KERNEL_ABI;
#endif
}

weldfs_kernel *weldfs_kernel_new(void) { return calloc(1, sizeof(weldfs_kernel)); }

void weldfs_kernel_free(weldfs_kernel *k) { free(k); }

#ifdef REMEMBERS
/* Of the reset before, which the next should not see. */
static uint32_t kept, shown;
#endif

int weldfs_kernel_reset(weldfs_kernel *k, const uint32_t *params, size_t count) {
    if (count != 1 || params[0] > 255) return EINVAL;
    k->add = (uint8_t)params[0];
    k->seen = 0;
#ifdef HANGS_AT_RESET
    for (volatile int i = 0;; i++) {
    }
#endif
#ifdef REMEMBERS
    shown = kept;
    kept = params[0];
#endif
    return 0;
}

#if defined(CURIOUS) || defined(CONSTRUCTS)
/* Whether a process that was there before this one, as the card is, can be reached. */
static int signals_others(void) {
    pid_t own = getpid();
    for (pid_t pid = own > 2000 ? own - 2000 : 1; pid < own; pid++)
        if (syscall(SYS_tgkill, pid, pid, 0) == 0) return 1;
    return syscall(SYS_tgkill, 1, 1, 0) == 0;
}
#endif

#ifdef CONSTRUCTS
static uint32_t constructed;

/* While it is loaded it may read files: what else went through, one bit each. */
__attribute__((constructor)) static void construct(void) {
    Dl_info info;
    char path[4096];
    if (dladdr((void *)construct, &info) == 0) constructed |= 1;
    snprintf(path, sizeof path, "%s.victim", info.dli_fname);
    if (open(path, O_RDONLY | O_TRUNC) >= 0) constructed |= 2;
    snprintf(path, sizeof path, "%s.made", info.dli_fname);
    if (open(path, O_RDONLY | O_CREAT, 0600) >= 0) constructed |= 4;
    if (prctl(PR_SET_PDEATHSIG, 0) == 0) constructed |= 8;
    struct rlimit limit;
    if (prlimit(1, RLIMIT_NOFILE, NULL, &limit) == 0) constructed |= 16;
    if (signals_others()) constructed |= 32;
}
#endif

#ifdef CURIOUS
/* What went through, one bit each. */
static uint32_t try_everything(void) {
    uint32_t done = 0;
    if (open("/etc/hostname", O_RDONLY) >= 0) done |= 1;
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0) done |= 2;
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (child > 0) done |= 4;
    char *const nothing[] = {NULL};
    if (execve("/bin/true", nothing, nothing) == 0) done |= 8;
    if (kill(getppid(), 0) == 0) done |= 16;
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) done |= 32;
    for (int fd = 4; fd < 100; fd++)
        if (write(fd, "x", 1) == 1) done |= 64;
    if (open("/tmp/weldfs-curious", O_WRONLY | O_CREAT, 0600) >= 0) done |= 128;
    if (signals_others()) done |= 256;
    return done;
}
#endif

#ifndef NO_STEP
int weldfs_kernel_step_run(weldfs_kernel *k, const uint8_t *in, size_t in_len, int eop, uint8_t *out, size_t out_len,
                           weldfs_kernel_step *step) {
#ifdef TRICKLES
    /* A byte at a time, and not many in a second. */
    usleep(100000);
    if (in_len > 1) in_len = 1, eop = 0;
#endif
#ifdef HANGS
    for (volatile int i = 0;; i++) {
    }
#endif
#ifdef CRASHES
    __builtin_trap();
#endif
#ifdef EXITS
    exit(0);
#endif
#ifdef OVERRUNS
    memset(out, 1, out_len + (64u << 20));
#endif
#ifdef ENDLESS
    memset(out, 1, out_len);
    step->taken = in_len;
    step->made = out_len;
    return 0;
#endif
    size_t n = in_len < out_len ? in_len : out_len;
#ifdef SLOW
    /* Longer than a step may take without a word. */
    if (n > 100000) n = 100000;
    usleep(25000);
#endif
#ifdef DOUBLES
    size_t pairs = in_len < out_len / 2 ? in_len : out_len / 2;
    for (size_t i = 0; i < pairs; i++) {
        if (k->add == 1 && in[i] == 254) return EBADMSG;
        out[2 * i] = out[2 * i + 1] = (uint8_t)(in[i] + k->add);
    }
    k->seen += (uint32_t)pairs;
    step->taken = pairs;
    step->made = 2 * pairs;
    step->done = eop && pairs == in_len;
    return 0;
#endif
#ifdef FAST
    /* Eight bytes at a time, so that a compiler makes vectors of it: the seven low bits, then the high one. */
    const uint64_t low = 0x7f7f7f7f7f7f7f7fu, all = 0x0101010101010101u * k->add;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, in + i, 8);
        word = ((word & low) + (all & low)) ^ ((word ^ all) & ~low);
        memcpy(out + i, &word, 8);
    }
    for (size_t i = n - n % 8; i < n; i++) out[i] = (uint8_t)(in[i] + k->add);
#else
    for (size_t i = 0; i < n; i++) {
        if (k->add == 1 && in[i] == 254) return EBADMSG;
        out[i] = (uint8_t)(in[i] + k->add);
    }
#endif
    k->seen += (uint32_t)n;
    step->taken = n;
    step->made = n;
    step->done = eop && n == in_len;
#ifdef CURIOUS
    k->seen = try_everything();
#endif
#ifdef NEVER_ENDS
    step->done = 0;
#endif
#ifdef TAKES_TOO_MUCH
    step->taken = in_len + 1;
#endif
#ifdef MAKES_TOO_MUCH
    step->made = out_len + (1u << 30);
#endif
#ifdef ENDS_EARLY
    if (n > 0) {
        step->taken = n - 1;
        step->done = 1;
    }
#endif
    return 0;
}
#endif

int weldfs_kernel_peek(weldfs_kernel *k, uint32_t port, uint32_t *value) {
    if (port != 0) return EINVAL;
    *value = k->seen;
#ifdef CONSTRUCTS
    *value = constructed;
#endif
#ifdef REMEMBERS
    *value = shown;
#endif
#ifdef HANGS_AT_PEEK
    for (volatile int i = 0;; i++) {
    }
#endif
    return 0;
}
