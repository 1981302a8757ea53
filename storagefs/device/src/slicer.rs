//! A command as its transaction sees it: when it makes way for others, and where it computes.

use std::sync::atomic::Ordering;

use weldfs_ciscops::Kernel;

use super::opcx::OpCx;
use super::{departed, placed};
use weldfs_fs::{Computing, Slicer};
use weldfs_session::clock::now_ns;

impl Slicer for OpCx<'_> {
    fn due(&self) -> bool {
        let runq = &self.core.board.runq;
        let ran = self.core.scaled(now_ns().wrapping_sub(self.slot.begin.load(Ordering::Relaxed)));
        // With nothing runnable, too: commands may wait in rings that no core reads while this core is in here.
        let due = ran >= runq.quantum_ns() && (runq.is_empty() || runq.preempts(self.queue.tenant.id, ran));
        if due {
            self.slot.yielded.store(true, Ordering::Relaxed);
        }
        due
    }

    fn is_cancelled(&self) -> bool {
        !departed::goes_on(self.core, self.session(), &self.cmd.op)
    }

    fn micro(&self, index: u16) {
        self.slot.micro.store(u32::from(index), Ordering::Relaxed);
    }

    fn kernel<'k>(&'k self, kernel: Kernel<'k>, input: Vec<u8>, out_max: usize) -> Computing<'k> {
        Box::pin(placed::kernel(self, kernel, input.into(), out_max))
    }

    fn fell_back(&self) {
        self.queue.counters.slot_fallbacks.add(1);
    }
}
