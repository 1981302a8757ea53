//! Whether spinning pays: for the client that waits for a completion and for the device that waits for a command.
//!
//! What lives here: [`Crowd`], a sampled look at how many threads want the machine's processors (`crowd`), and the
//! parsing of what the kernel says of them (`load`); [`Slice`] and [`give_way`], what threads ask of the scheduler
//! (`slice`).
//! What may be touched: `/proc/loadavg` and `/sys/devices/system/cpu/online`, read and closed again; the clock; of the
//! calling thread, what it asks of the host's scheduler, its timer slack and (for one such call) CAP_SYS_NICE.
//! What flows through: a waiter asks before it spins; where others want the processors it sleeps at once, so that the
//! peer it waits for gets one, and so that its own time slice is whole when it is woken.
//!
//! A spinning thread is for the kernel a busy one. It uses up its share of the processor, and then it, and the peer
//! that it wakes, wait for the next scheduler tick (1 to 10 ms) like any other busy thread; one that sleeps keeps its
//! share and preempts a busy thread when it is woken (Linux kernel documentation, "EEVDF Scheduler": lag and virtual
//! deadlines). `sched_yield` does not help: it gives away the rest of the slice, up to a tick, to whoever is there.

mod crowd;
mod load;
mod slice;

pub use crowd::{Crowd, Spinning, crowd};
pub use slice::{ShortSleeps, Slice, give_way, with_right_to_nice};
