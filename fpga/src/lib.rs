//! FPGA slots: a room reserved, and honest about being empty.
//!
//! What will live here: slots, the kernel runtime (flits of 64 bytes, end-of-packet, credits), kernels (RTL, HLS source
//! and software reference), the XRT back-end. What it may touch: `weldfs-ciscops` only; it never sees a file or a
//! journal.
//!
//! Nothing is implemented yet. A command that asks for slot placement is refused with `EOPNOTSUPP` where commands are
//! validated, so no result can pretend to have come from a slot.
#![forbid(unsafe_code)]
