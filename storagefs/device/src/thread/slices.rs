//! Slices: what runs next, for how long it ran, and who is charged.

use super::*;

impl<'d, F, M> Loop<'_, 'd, F, M>
where
    F: Future<Output = ()> + Send,
    M: Fn(Mail<OpCx<'d>, Done>) -> F + Send + Sync,
{
    /// Runs a slice of what is next. False when there was nothing.
    pub(super) fn dispatch(&mut self) -> bool {
        let board = &self.core.board;
        if let Some(slot) = self.direct.take() {
            self.stop_looking();
            self.run_slot(slot, None);
            return true;
        }
        if board.runq.is_empty() {
            return false;
        }
        let Some((entry, lender)) = board.runq.pick() else { return false };
        // A slice from the run queue may be long.
        self.publish();
        self.stop_looking();
        if board.is_shared() && !board.runq.is_empty() {
            board.call_for_work(entry.inode);
        }
        self.run_slot(entry.token.0, Some(lender));
        true
    }

    /// From now on this core is inside an op: what is runnable beside it needs another one.
    fn stop_looking(&mut self) {
        if std::mem::take(&mut self.looking) {
            let board = &self.core.board;
            board.spin(false);
            if board.is_shared() && !board.runq.is_empty() {
                board.call_for_work(0);
            }
        }
    }

    /// Runs a slot's op until it waits, gives way, or ends. `picked` from the run queue, in whose place, or found
    /// alone.
    pub(super) fn run_slot(&mut self, at: u32, picked: Option<Option<TenantId>>) {
        let (core, board) = (self.core, &self.core.board);
        self.worked += 1;
        let mut work = self.slots.work(at);
        board.set_running(self.index, true);
        let migrated = board.start(at, self.index);
        let state = board.slot(at);
        let begin = now_ns();
        self.meter.note(begin);
        let modelled = core.emulated.is_on();
        if modelled {
            self.meter.set_stretch(core.emulated.stretch());
            collect();
        }
        state.begin.store(begin, Ordering::Relaxed);
        let polled = match work.notes.as_ref().and_then(|notes| notes.refused) {
            Some(errno) => Ok(Poll::Ready(opcx::failed(errno))),
            None => catch_unwind(AssertUnwindSafe(|| self.slots.poll(at, &mut work))),
        };
        let spent = self.meter.slice(begin, now_ns());
        board.set_running(self.index, false);
        let media = if modelled { collected() } else { 0 };
        if modelled {
            self.busy_until = begin + spent.device_ns;
        }
        let done = match polled {
            Ok(Poll::Ready(done)) => Some(done),
            Ok(Poll::Pending) => None,
            Err(_) => {
                core.poison();
                // What is left of the op gives back its tickets when dropped; that may panic once more.
                if catch_unwind(AssertUnwindSafe(|| self.slots.replace(&mut work))).is_err() {
                    tracing::error!("a slot is lost");
                }
                Some(opcx::failed(Errno::IO))
            }
        };
        let Some(notes) = work.notes.as_mut() else { return };
        if notes.first_run == 0 {
            (notes.first_run, notes.uncontended) = (begin, picked.is_none());
        }
        notes.device_ns += spent.device_ns;
        notes.media = notes.media.max(media);
        let (lender, picked) = (picked.flatten(), picked.is_some());
        self.charge(at, notes, Ran { begin, spent, picked, lender, migrated, over: done.is_some() });
        self.again = (picked && !board.runq.is_empty()).then(|| notes.queue.clone());
        let Some(done) = done else {
            drop(work);
            return self.put_down(at);
        };
        let Some(notes) = work.notes.take() else { return };
        drop(work);
        // As long as the slot is this command's: given back, it is the next one's, perhaps of the same ring.
        match notes.queue.pair.home == self.index {
            true => drop(notes.queue.pair.admitted(at, state.generation())),
            // It may have ended without ever having had its place.
            false => core.admitted(&notes.queue, at),
        }
        notes.queue.pair.tell();
        board.end(at);
        self.slots.give_back(at, &mut self.at_hand);
        let over = begin + spent.wall_ns;
        // What answering costs is charged with the next slice of the same ring, if another waits for the core.
        let payer = (!board.runq.is_empty()).then(|| notes.queue.clone());
        self.complete(notes, done, over);
        if let Some(queue) = payer {
            queue.pair.owe(self.meter.beside(over, now_ns()));
        }
        board.feed();
    }

    /// Charges a slice to its tenant, if another waited for the core meanwhile, and counts it. With it goes what taking
    /// and answering commands of its ring has cost since the last one; an emulated core is slow in slices only, so that
    /// is charged as it was measured.
    pub(super) fn charge(&self, at: u32, notes: &Notes, slice: Ran) {
        let (board, runq) = (&self.core.board, &self.core.board.runq);
        let (state, spent, runnable) = (board.slot(at), slice.spent, runq.len());
        let inode = state.primary.load(Ordering::Relaxed);
        let contended = slice.picked || runnable > 0;
        let owed = notes.queue.pair.take_owed();
        let cost_ns = match runq.cost() {
            _ if !contended => 0,
            CostModel::Measured => spent.device_ns + owed,
            CostModel::Constant if slice.over => constant_cost(notes.opcode),
            CostModel::Constant => 0,
        };
        if contended {
            let cost = Cost { time_ns: cost_ns, lender: slice.lender, weight: notes.priority.weight() };
            runq.account(notes.queue.tenant.id, inode, cost);
        }
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let record = Slice {
            start_ns: slice.begin,
            end_ns: slice.begin + spent.wall_ns,
            cost_ns,
            session: notes.queue.session.id,
            inode,
            tenant: notes.queue.tenant.id.0,
            slot: at,
            runnable: runnable as u32,
            opcode: notes.opcode,
            micro: if notes.fused { state.micro.load(Ordering::Relaxed) as u16 + 1 } else { 0 },
            core: self.index as u16,
            end: match (slice.over, state.yielded.load(Ordering::Relaxed)) {
                (true, _) => slice_end::DONE,
                (false, true) => slice_end::PREEMPTED,
                (false, false) => slice_end::WAITS,
            },
            flags: flag(slice.lender.is_some(), slice_flag::BOOSTED)
                | flag(spent.corrected.is_some_and(|ns| ns > 0), slice_flag::CORRECTED)
                | flag(!contended, slice_flag::UNCONTENDED),
            reserved: 0,
        };
        let extra = SliceExtra {
            migrated: slice.migrated,
            corrected_ns: spent.corrected.unwrap_or(0),
            used_ns: spent.device_ns + if contended { owed } else { 0 },
        };
        notes.queue.counters.queued.add(u64::from(slice.picked));
        count_slice(&self.me.counters, &notes.queue.counters, &record, extra);
        self.me.counters.stretched_ns.add(spent.device_ns.saturating_sub(spent.host_ns));
        self.core.trace.slice(self.index, || record);
    }

    /// An op that is not over waits, for another or for a moment, or goes to the end of its queue.
    pub(super) fn put_down(&mut self, at: u32) {
        let board = &self.core.board;
        let state = board.slot(at);
        let pause = state.pause.swap(0, Ordering::Relaxed);
        if pause != 0 {
            self.paused.add(pause, at);
        }
        if state.yielded.load(Ordering::Relaxed) { board.give_way(at) } else { board.wait(at) }
    }

    /// Whether the emulated core is still busy with what this one has done.
    #[inline]
    pub(super) fn is_gated(&self) -> bool {
        self.busy_until != 0 && self.busy_until > now_ns()
    }

    /// Waits for the emulated core a little, without being away for long: rings are read meanwhile.
    pub(super) fn nap(&mut self) -> bool {
        let left = self.busy_until.saturating_sub(now_ns());
        let due = [self.delayed.at(), self.paused.at()].into_iter().flatten().min();
        let left = due.map_or(left, |at| left.min(at.saturating_sub(now_ns())));
        if left > SPIN_ALONE_NS {
            self.publish();
            // What comes now is seen now, also behind a command that has not got its place yet.
            let now = now_ns();
            for q in self.queues.iter().filter(|q| q.pair.has_entries()) {
                if let Some(mut ends) = q.pair.try_ends() {
                    self.note_depth(q, &mut ends, now);
                }
            }
            // A core that has slept is slow for a while, and the emulated one would pay for it many times over.
            self.rest(|| match left > GATED_SPIN_NS {
                true => std::thread::sleep(std::time::Duration::from_nanos(GATED_NAP_NS)),
                false => std::thread::yield_now(),
            });
        } else {
            std::hint::spin_loop();
        }
        true
    }
}

/// The constant-cost model, as nanoseconds of device time: one unit is a microsecond.
pub(super) fn constant_cost(opcode: u16) -> u64 {
    const UNIT_NS: u64 = 1_000;
    match Opcode::from_wire(opcode) {
        Some(Opcode::ReadChecksumVerify | Opcode::ChecksumRange) => 3 * UNIT_NS,
        Some(op) if op.spec().fused => 5 * UNIT_NS,
        _ => UNIT_NS,
    }
}
