//! A command as its transaction sees it: when it makes way for others, and where it computes.

use std::sync::atomic::Ordering;

use weldfs_ciscops::Kernel;

use super::opcx::OpCx;
use super::packet;
use weldfs_fs::{Computing, Slicer};

impl Slicer for OpCx<'_> {
    fn due(&self) -> bool {
        OpCx::due(self)
    }

    fn is_cancelled(&self) -> bool {
        OpCx::is_cancelled(self)
    }

    fn micro(&self, index: u16) {
        self.slot.micro.store(u32::from(index), Ordering::Relaxed);
    }

    fn kernel<'k>(&'k self, kernel: Kernel<'k>, input: Vec<u8>, out_max: usize) -> Computing<'k> {
        Box::pin(packet::kernel(self, kernel, input.into(), out_max))
    }

    fn fell_back(&self) {
        self.queue.counters.slot_fallbacks.add(1);
    }
}
