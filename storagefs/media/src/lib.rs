//! What bytes persist on: the media that implement `weldfs_journal::Medium`.
//!
//! `RamMedium` (heap), `PmemMedium` (a mapped file, persisted by instructions), `BlockMedium` (a file or device behind
//! O_DIRECT), and two first-class parts of testing: `RecordingMedium` with `Replayer` (every crash state of a run), and
//! `FaultyMedium` (the n-th access fails). `create` and `open` find, lock and size an image. Raw memory is touched by
//! `region` and `kernels` only, the ring by `uring`, the signal handler by `sigbus`.

mod block;
mod cow;
mod crash;
mod faulty;
mod image;
mod kernels;
mod pmem;
pub mod ram;
mod recording;
mod region;
mod sigbus;
mod uring;

pub use block::BlockMedium;
pub use cow::{CowImage, CowMedium};
pub use crash::{InFlight, Replayer, Unit};
pub use faulty::{FaultKind, FaultOn, FaultPlan, FaultyMedium};
pub use image::{Holder, ImageKind, OpenError, OpenMode, create, create_showing, holder, open};
pub use kernels::write_back_name;
pub use kernels::{crc32c_join, crc32c_then_zeros};
pub use pmem::PmemMedium;
pub use ram::RamMedium;
pub use recording::{CrashModel, Recording, RecordingMedium};

/// Releases the lock of an image, for every copy of its description: a forked child has one, too.
fn unlock(file: &std::fs::File) {
    // It cannot fail for a descriptor that is open; if it did, the lock would go with the last copy.
    let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
}
