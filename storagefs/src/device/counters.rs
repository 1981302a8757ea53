//! Counters: counted once, in the device, where the thing happens.
//!
//! Each queue pair has its own set, written by the one device thread that serves it (so a count is a plain add, no
//! locked instruction) and summed up by whoever asks. A queue pair that goes adds its counts to its tenant's total.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use weldfs_ciscops::OPS;

/// Opcodes are below this.
const OPCODES: usize = 128;

/// A count with one writer at a time and any number of readers.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds; only from the one thread that owns the counter at that time.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters of one queue pair.
        pub struct QueueCounters {
            by_opcode: [Count; OPCODES],
            $($(#[$doc])* pub $name: Count,)*
        }

        impl Default for QueueCounters {
            fn default() -> Self {
                QueueCounters { by_opcode: std::array::from_fn(|_| Count::default()), $($name: Count::default(),)* }
            }
        }

        /// Counters summed up, as reports show them.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize)]
        pub struct Totals {
            #[serde(serialize_with = "named")]
            commands_by_opcode: [u64; OPCODES],
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Default for Totals {
            fn default() -> Self {
                Totals { commands_by_opcode: [0; OPCODES], $($name: 0,)* }
            }
        }

        impl Totals {
            /// Adds one queue pair's counts.
            pub fn add_queue(&mut self, q: &QueueCounters) {
                for (sum, n) in self.commands_by_opcode.iter_mut().zip(&q.by_opcode) {
                    *sum += n.get();
                }
                $(self.$name += q.$name.get();)*
            }

            /// Adds other totals.
            pub fn add(&mut self, other: &Totals) {
                for (sum, n) in self.commands_by_opcode.iter_mut().zip(&other.commands_by_opcode) {
                    *sum += n;
                }
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Commands completed.
    commands,
    /// Commands that named no known operation or did not decode.
    malformed,
    /// Commands completed with an errno.
    errors,
    /// Fused commands among them.
    fused,
    /// Times a client rang the doorbell because the device slept.
    doorbells,
    /// Times the device woke a sleeping client.
    client_wakes,
    /// Payload copies between pool and device.
    payload_copies,
    /// Payload bytes from host to device.
    payload_bytes_in,
    /// Payload bytes from device to host.
    payload_bytes_out,
    /// Copies of names, attribute blocks, results other than payload.
    metadata_copies,
    /// Bytes over the link from host to device: entries, names, payload.
    link_bytes_in,
    /// Bytes over the link from device to host: entries, results, payload.
    link_bytes_out,
    /// Commands that waited for the watermark.
    durable_waits,
    /// Commands whose inode set changed while they waited for it.
    set_retries,
    /// Commands that waited for room in log, memory or space.
    room_waits,
    /// Commands that back-pressure held back before they started.
    pace_waits,
    /// Nanoseconds from taking a command to its first slice, plus waits for its set.
    queue_ns,
    /// Nanoseconds of device thread time in commands.
    process_ns,
    /// Nanoseconds by which the profile held completions back.
    modelled_ns,
}

impl QueueCounters {
    /// Counts a command of this opcode.
    #[inline]
    pub fn opcode(&self, opcode: u16) {
        if let Some(c) = self.by_opcode.get(usize::from(opcode)) {
            c.add(1);
        }
    }
}

impl Totals {
    /// Commands of one opcode.
    pub fn of(&self, opcode: u16) -> u64 {
        self.commands_by_opcode.get(usize::from(opcode)).copied().unwrap_or(0)
    }
}

fn named<S: serde::Serializer>(by: &[u64; OPCODES], s: S) -> Result<S::Ok, S::Error> {
    s.collect_map(OPS.iter().filter_map(|op| {
        let n = by[op.opcode as usize];
        (n > 0).then_some((op.name, n))
    }))
}
