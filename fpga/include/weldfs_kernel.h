/* A kernel as a shared object: the C interface that WeldFS loads, in a process of its own, into a slot.
 *
 * Verilated RTL, HLS C++ and kernels in any language have this one interface. The functions of one kernel are called by
 * one thread at a time. Numbers that they return besides `weldfs_kernel_new` and `weldfs_kernel_abi` are 0 or an errno:
 * EINVAL (parameters), EBADMSG (the stream is not what the kernel takes), EIO.
 */
#ifndef WELDFS_KERNEL_H
#define WELDFS_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WELDFS_KERNEL_ABI 1u

typedef struct weldfs_kernel weldfs_kernel;

/* What one step came to. */
typedef struct weldfs_kernel_step {
    uint64_t taken;  /* bytes taken from the input */
    uint64_t made;   /* bytes put in the output */
    uint64_t cycles; /* clock cycles that took; 0 where the manifest's cycles per flit are to be used */
    uint32_t done;   /* 1: the whole packet, with its end, is taken, and all of its output made */
    uint32_t reserved;
} weldfs_kernel_step;

/* WELDFS_KERNEL_ABI. */
uint32_t weldfs_kernel_abi(void);
/* NULL where there is no memory. */
weldfs_kernel *weldfs_kernel_new(void);
void weldfs_kernel_free(weldfs_kernel *);
/* Begins anew with these parameters: nothing of an earlier packet is left. */
int weldfs_kernel_reset(weldfs_kernel *, const uint32_t *params, size_t count);
/* Takes some of `in`, fills some of `out`. `eop` says that the packet ends with the last byte of `in`; it is repeated
 * until that byte is taken. Unless there is nothing to take and no end, or no room, it takes or makes a byte, or is
 * done. */
int weldfs_kernel_step_run(weldfs_kernel *, const uint8_t *in, size_t in_len, int eop, uint8_t *out, size_t out_len,
                           weldfs_kernel_step *step);

/* The following may be missing. */

/* Memory of the card, as much as the manifest's `ports.dram_bytes` says: given once, before the first reset, and the
 * kernel's until it is freed. It begins at a page and is zero after every reset: the card sees to that. Not called
 * where the manifest asks for none. */
int weldfs_kernel_dram(weldfs_kernel *, uint8_t *memory, uint64_t bytes);

/* A value of the debug port; EINVAL where there is no such port. */
int weldfs_kernel_peek(weldfs_kernel *, uint32_t port, uint32_t *value);
/* For tests: from now on each side stalls at random cycles, so many in a thousand; seed 0 ends that. */
int weldfs_kernel_stall(weldfs_kernel *, uint64_t seed, uint32_t in_permille, uint32_t out_permille);
/* For tests: writes a waveform (VCD) of what follows to this file; NULL ends that. */
int weldfs_kernel_wave(weldfs_kernel *, const char *path);

#ifdef __cplusplus
}
#endif

#endif
