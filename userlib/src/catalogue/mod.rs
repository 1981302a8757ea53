//! The catalogue: fused operations that travel as programs. Each call here is one command, atomic as a whole (all of it
//! or nothing, also after a crash), and durable as the view it is called through says; `weldfs_ciscops::catalogue` has
//! the expansion of each. Operands are those of [`Raw`]: handles, byte paths, ordinary memory or pool buffers. Thread
//! safety is the client's. Unlike other calls these allocate: the program's body, some hundred bytes.
//!
//! * `sums`: payloads with checksums; `fields`: changes in place and in logs; `moves`: copies, replacement, trees;
//!   `transforms` and `keys`: compression, encryption, recovery of logs.
//!
//! Where the compute part of a call runs is chosen by [`Raw::placement`]: see [`Placement`].

mod fields;
mod keys;
mod moves;
mod run;
mod sums;
mod transforms;

pub use fields::FieldEdit;
pub use keys::Key;
pub use moves::TreeNode;
pub use run::Operand;
pub use sums::Record;
pub use transforms::{Encryption, Frame, Recovered};
pub use weldfs_ciscops::KeyKind;
pub use weldfs_ciscops::catalogue::{CONCAT_MAX, ReadFrom, SumPlace, Summing};
pub use weldfs_ciscops::program::{Codec, Order, Record as LogRecord, SumKind};

#[allow(unused_imports)] // named in the page above
use crate::raw::Raw;

/// Where the compute part of a call (checksum, codec, cipher, arithmetic) runs. The result is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// The device's choice: today always the device.
    #[default]
    Auto,
    /// In the device: one command.
    Device,
    /// On the caller's processor, before or after plain commands: the bytes cross the link. Where that takes more than
    /// one command, others may come in between.
    Host,
    /// In an FPGA slot of the device: checksums by the kernel `crc32c`, LZ4 frames by `lz4`. EOPNOTSUPP for what no
    /// kernel computes (other codecs and checksums, ciphers, arithmetic), and on a directory of the host; EIO when the
    /// slot is lost. Calls without a compute part run as ever.
    Slot,
    /// The same; a core does what no slot can, or what a slot has lost, and that is counted.
    SlotOrCore,
}

impl Placement {
    /// For a command of that op.
    pub(crate) fn of(self, op: &weldfs_ciscops::Op) -> weldfs_ciscops::Placement {
        use weldfs_ciscops::Placement as Wire;
        match self {
            Placement::Slot if op.has_slot_form() => Wire::Slot { or_core: false },
            Placement::SlotOrCore if op.has_slot_form() => Wire::Slot { or_core: true },
            Placement::Device => Wire::Device,
            _ => Wire::Auto,
        }
    }
}

/// An integer of `width` bytes; EINVAL unless that is 1, 2, 4 or 8.
fn int(order: Order, width: u32) -> Result<weldfs_ciscops::program::Int, weldfs_ciscops::Errno> {
    use weldfs_ciscops::program::{Int, Width};
    let width = match width {
        1 => Width::W1,
        2 => Width::W2,
        4 => Width::W4,
        8 => Width::W8,
        _ => return Err(weldfs_ciscops::Errno::INVAL),
    };
    Ok(Int { width, order })
}
