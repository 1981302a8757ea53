/* Copies its input, or does what it should not: a macro says which. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "weldfs_kernel.h"

/* The socket to the card. */
#define SOCKET 3
/* Bytes of a buffer, and of all that is shared: four buffers in, four out. */
#define BUFFER (256u << 10)
#define SHARED (8 * BUFFER)

struct weldfs_kernel {
    uint32_t shown;
};

uint32_t weldfs_kernel_abi(void) { return WELDFS_KERNEL_ABI; }
weldfs_kernel *weldfs_kernel_new(void) { return calloc(1, sizeof(weldfs_kernel)); }
void weldfs_kernel_free(weldfs_kernel *k) { free(k); }

int weldfs_kernel_reset(weldfs_kernel *k, const uint32_t *params, size_t count) {
    (void)params;
    (void)count;
    k->shown = 0;
    return 0;
}

int weldfs_kernel_peek(weldfs_kernel *k, uint32_t port, uint32_t *value) {
    *value = k->shown;
    return port == 0 ? 0 : EINVAL;
}

/* A reply as the card takes it, see fpga/src/host/wire.rs. */
struct reply {
    uint32_t code, done;
    uint64_t taken, made, cycles;
    uint32_t value, nothing;
};

static void forge(size_t taken, size_t made, int done) {
    struct reply reply = {.done = (uint32_t)done, .taken = taken, .made = made};
    syscall(SYS_sendto, SOCKET, &reply, sizeof reply, MSG_NOSIGNAL, NULL, 0);
}

#ifdef RECURSES
/* Ends for a number that is never given. */
static size_t deeper(size_t n) {
    volatile uint8_t frame[64 << 10];
    frame[n % sizeof frame] = 1;
    return n == SIZE_MAX ? 0 : deeper(n + 1 + frame[0] / 2) + frame[n % sizeof frame];
}
#endif

#ifdef KEEPS
/* What the constructor could open, one bit each: the memory of the process that started this one, its maps, and a file
 * that all may read, which it keeps. */
static uint32_t opened;
__attribute__((constructor)) static void keep(void) {
    char path[64];
    long parent = 0;
    int fd = open("/proc/self/stat", O_RDONLY);
    if (fd >= 0) {
        char text[256] = "";
        if (read(fd, text, sizeof text - 1) > 0) parent = strtol(strrchr(text, ')') + 4, NULL, 10);
        close(fd);
    }
    if (parent > 1) opened |= 1u << 3;
    snprintf(path, sizeof path, "/proc/%ld/mem", parent);
    if (open(path, O_RDONLY) >= 0) opened |= 1u << 0;
    snprintf(path, sizeof path, "/proc/%ld/maps", parent);
    fd = open(path, O_RDONLY);
    if (fd >= 0 && read(fd, path, sizeof path) > 0) opened |= 1u << 1;
    if (open("/proc/self/maps", O_RDONLY) >= 0) opened |= 1u << 2;
}

/* Which descriptors there are that can be read. */
static uint32_t readable(void) {
    uint32_t still = 0;
    char byte;
    for (int fd = 0; fd < 16; fd++)
        if (fd != SOCKET && read(fd, &byte, 1) == 1) still |= 1u << fd;
    return still;
}
#endif

#ifdef EXCHANGES
/* Puts a file in the place of its socket. */
__attribute__((constructor)) static void exchange(void) {
    close(SOCKET);
    open("/proc/self/maps", O_RDONLY);
}
#endif

#ifdef ATTEMPTS
/* What went through, one bit each. */
static uint32_t attempts(void) {
    uint32_t done = 0;
    char page[64];
    struct iovec here = {page, sizeof page}, there = {page, sizeof page};
    struct rlimit limit = {1, 1};
    struct msghdr message = {.msg_iov = &here, .msg_iovlen = 1};
    int pipes[2];
    if (syscall(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0) == 0) done |= 1u << 0;
    if (syscall(SYS_ptrace, PTRACE_SEIZE, 1, 0, 0) == 0) done |= 1u << 1;
    if (syscall(SYS_process_vm_readv, getpid(), &here, 1, &there, 1, 0) >= 0) done |= 1u << 2;
    if (syscall(SYS_process_vm_writev, getpid(), &here, 1, &there, 1, 0) >= 0) done |= 1u << 3;
    if (syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) >= 0) done |= 1u << 4;
    if (syscall(SYS_clone3, NULL, 0) >= 0 || errno != EPERM) done |= 1u << 5;
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, 4096, PROT_READ | PROT_EXEC) == 0) done |= 1u << 6;
    if (syscall(SYS_pkey_mprotect, memory, 4096, PROT_READ | PROT_EXEC, -1) == 0) done |= 1u << 7;
    if (syscall(SYS_memfd_create, "m", 0) >= 0) done |= 1u << 8;
    if (syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, pipes) == 0) done |= 1u << 9;
    if (syscall(SYS_sendmsg, SOCKET, &message, MSG_DONTWAIT) >= 0) done |= 1u << 10;
    if (syscall(SYS_recvmsg, SOCKET, &message, MSG_DONTWAIT) >= 0 || errno != EPERM) done |= 1u << 11;
    if (syscall(SYS_shutdown, SOCKET, SHUT_RD) == 0) done |= 1u << 12;
    if (syscall(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0) == 0) done |= 1u << 13;
    if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, NULL) == 0) done |= 1u << 14;
    if (syscall(SYS_unshare, CLONE_NEWUSER) == 0) done |= 1u << 15;
    if (syscall(SYS_personality, 0x0400000) >= 0) done |= 1u << 16;
    if (syscall(SYS_openat, AT_FDCWD, "/", O_RDONLY | O_DIRECTORY) >= 0) done |= 1u << 17;
    if (syscall(SYS_openat2, AT_FDCWD, "/", NULL, 0) >= 0 || errno != EPERM) done |= 1u << 18;
    if (syscall(SYS_io_uring_setup, 1, NULL) >= 0 || errno != EPERM) done |= 1u << 19;
    if (syscall(SYS_bpf, 0, NULL, 0) >= 0 || errno != EPERM) done |= 1u << 20;
    if (syscall(SYS_userfaultfd, 0) >= 0) done |= 1u << 21;
    if (syscall(SYS_setsid) >= 0) done |= 1u << 22;
    if (syscall(SYS_kill, -1, 0) == 0 || errno != EPERM) done |= 1u << 23;
    if (syscall(SYS_rt_sigqueueinfo, 1, SIGTERM, page) == 0) done |= 1u << 24;
    if (syscall(SYS_pidfd_open, 1, 0) >= 0) done |= 1u << 25;
    if (syscall(SYS_dup, SOCKET) >= 0) done |= 1u << 26;
    if (syscall(SYS_ioctl, SOCKET, 0x5421, &pipes) == 0) done |= 1u << 27;
    if (syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, page) == 0) done |= 1u << 28;
    if (syscall(SYS_mount, "none", "/", "tmpfs", 0, NULL) == 0) done |= 1u << 29;
    if (syscall(SYS_seccomp, 0, 0, NULL) == 0) done |= 1u << 30;
    return done;
}
#endif

int weldfs_kernel_step_run(weldfs_kernel *k, const uint8_t *in, size_t in_len, int eop, uint8_t *out, size_t out_len,
                           weldfs_kernel_step *step) {
    size_t n = in_len < out_len ? in_len : out_len;
    (void)forge;
    (void)k;
#ifdef FORGES
    /* Answers for itself, writes over everything while the card reads it, and never looks at what it is asked. The
     * first step has the first buffers. */
    for (;;) {
        forge(n, n, eop);
        memset((uint8_t *)in, 0xee, SHARED);
    }
#endif
#ifdef FORGES_MORE
    for (uint32_t i = 0; i < 64; i++) forge(n, n, eop);
#endif
#ifdef FORGES_NONSENSE
    for (uint32_t i = 0; i < 64; i++) syscall(SYS_sendto, SOCKET, "nonsense", i % 8, MSG_NOSIGNAL, NULL, 0);
#endif
#ifdef SCRIBBLES
    uint8_t *all = (uint8_t *)in;
    uint8_t *kept = malloc(n + 1);
    memcpy(kept, in, n);
    memset(all, 0xee, SHARED);
    memcpy(out, kept, n);
    free(kept);
#else
    memmove(out, in, n);
#endif
    step->taken = n;
    step->made = n;
    step->done = eop && n == in_len;
#ifdef ATTEMPTS
    k->shown = attempts();
#endif
#ifdef KEEPS
    k->shown = opened << 16 | readable();
#endif
#ifdef HUGE
    /* All address space that it may have: GiB, then what is left. */
    while (mmap(NULL, 1u << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) k->shown++;
    while (malloc(64u << 10) != NULL) {
    }
#endif
#ifdef RECURSES
    deeper(n);
#endif
#ifdef CLOSES
    close(SOCKET);
    for (;;) sched_yield();
#endif
#ifdef LIES_OF_CYCLES
    step->cycles = UINT64_MAX;
#endif
#ifdef MAKES_EVERYTHING
    step->made = SIZE_MAX;
#endif
#ifdef MAKES_A_BYTE_MORE
    step->made = out_len + 1;
#endif
#ifdef IGNORES_SIGNALS
    for (int s = 1; s < 64; s++) signal(s, SIG_IGN);
    for (;;) sched_yield();
#endif
#ifdef OTHER_ABI
    /* The calls of 32-bit programs have other numbers: 5 is open. */
#ifdef __x86_64__
    long got;
    __asm__ volatile("int $0x80" : "=a"(got) : "a"(5L), "b"(0L), "c"(0L), "d"(0L) : "memory");
    k->shown = (uint32_t)got;
#else
    raise(SIGSYS);
#endif
#endif
    return 0;
}
