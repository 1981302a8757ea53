//! What a device counts, and where a run of a form differs from what it must have moved.

use serde::Serialize;
use weldfs_device::Device;

/// Counters of a device that a form moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counted {
    /// Commands completed.
    pub commands: u64,
    /// Bytes over the link from host to device: entries, names, payload.
    pub link_bytes_in: u64,
    /// The same from device to host.
    pub link_bytes_out: u64,
    /// Payload of them, to the device.
    pub payload_bytes_in: u64,
    /// Payload of them, to the host.
    pub payload_bytes_out: u64,
    /// Slot time charged, nanoseconds: cycles over the slots' clock.
    pub slot_ns: u64,
    /// Bytes that kernels took.
    pub slot_bytes_in: u64,
    /// Bytes that they made.
    pub slot_bytes_out: u64,
    /// Clock cycles of all slots.
    pub cycles: u64,
    /// Time that a link and cores of the profile held completions back, nanoseconds; 0 without a profile.
    pub modelled_ns: u64,
}

impl Counted {
    /// All that the device has counted so far.
    pub fn of(device: &Device) -> Counted {
        let stats = device.stats();
        let t = &stats.total;
        Counted {
            commands: t.commands,
            link_bytes_in: t.link_bytes_in,
            link_bytes_out: t.link_bytes_out,
            payload_bytes_in: t.payload_bytes_in,
            payload_bytes_out: t.payload_bytes_out,
            slot_ns: t.slot_ns,
            slot_bytes_in: t.slot_bytes_in,
            slot_bytes_out: t.slot_bytes_out,
            cycles: stats.slots.iter().map(|slot| slot.cycles).sum(),
            modelled_ns: t.modelled_ns,
        }
    }

    /// What was counted after `earlier`.
    pub fn since(&self, earlier: &Counted) -> Counted {
        Counted {
            commands: self.commands - earlier.commands,
            link_bytes_in: self.link_bytes_in - earlier.link_bytes_in,
            link_bytes_out: self.link_bytes_out - earlier.link_bytes_out,
            payload_bytes_in: self.payload_bytes_in - earlier.payload_bytes_in,
            payload_bytes_out: self.payload_bytes_out - earlier.payload_bytes_out,
            slot_ns: self.slot_ns - earlier.slot_ns,
            slot_bytes_in: self.slot_bytes_in - earlier.slot_bytes_in,
            slot_bytes_out: self.slot_bytes_out - earlier.slot_bytes_out,
            cycles: self.cycles - earlier.cycles,
            modelled_ns: self.modelled_ns - earlier.modelled_ns,
        }
    }

    /// Bytes over the link, both ways.
    pub fn link_bytes(&self) -> u64 {
        self.link_bytes_in + self.link_bytes_out
    }
}
