//! The tickets that commands hold on one inode, in order.
//!
//! Tickets are ordered by the sequence number their command got when it arrived, whatever the order in which they are
//! placed. A ticket *may run* here when no earlier ticket conflicts with it and no running ticket does. So a command
//! waits only for commands that are older than itself or already running; a running command waits for nothing but its
//! own I/O; hence no cycle of waits can form, also when a command changes its set and places its ticket late (it keeps
//! its number).

use smallvec::SmallVec;

use crate::Token;

/// Arrival number of a command, unique in the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Seq(pub u64);

/// What a ticket asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Runs beside other shared tickets.
    Shared,
    /// Runs alone.
    Exclusive,
}

impl Mode {
    /// The stronger of two wishes of the same command.
    pub fn max(self, other: Mode) -> Mode {
        if self == Mode::Exclusive { self } else { other }
    }
}

/// Where a ticket stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Waiting for its turn.
    Waiting,
    /// Its command runs and holds the inode.
    Running,
}

#[derive(Debug)]
struct Ticket<W> {
    seq: Seq,
    mode: Mode,
    token: Token,
    state: State,
    waiter: Option<W>,
}

/// The queue of one inode. `W` is whatever wakes the command that waits.
#[derive(Debug)]
pub struct InodeQueue<W> {
    tickets: SmallVec<[Ticket<W>; 2]>,
}

impl<W> Default for InodeQueue<W> {
    fn default() -> Self {
        InodeQueue { tickets: SmallVec::new() }
    }
}

impl<W> InodeQueue<W> {
    /// Places a ticket of the command in slot `token`. A command has at most one ticket in a queue.
    pub fn place(&mut self, seq: Seq, mode: Mode, token: Token) {
        let at = self.tickets.iter().rposition(|t| t.seq < seq).map_or(0, |p| p + 1);
        debug_assert!(self.tickets.iter().all(|t| t.seq != seq), "one ticket per command and queue");
        self.tickets.insert(at, Ticket { seq, mode, token, state: State::Waiting, waiter: None });
    }

    /// True when the ticket could start now.
    pub fn may_run(&self, seq: Seq) -> bool {
        let Some(mine) = self.tickets.iter().find(|t| t.seq == seq) else { return false };
        self.tickets
            .iter()
            .filter(|t| t.seq != seq && (t.seq < seq || t.state == State::Running))
            .all(|t| mine.mode == Mode::Shared && t.mode == Mode::Shared)
    }

    /// The slots of the commands that this ticket waits for.
    pub fn blockers(&self, seq: Seq) -> impl Iterator<Item = Token> + '_ {
        let mode = self.tickets.iter().find(|t| t.seq == seq).map(|t| t.mode);
        let ahead = move |t: &&Ticket<W>| t.seq != seq && (t.seq < seq || t.state == State::Running);
        let conflicts = move |t: &&Ticket<W>| mode == Some(Mode::Exclusive) || t.mode == Mode::Exclusive;
        self.tickets.iter().filter(ahead).filter(conflicts).map(|t| t.token)
    }

    /// Marks the ticket as running. Only after `may_run` said yes for every queue of the command, under one lock.
    pub fn start(&mut self, seq: Seq) {
        if let Some(t) = self.tickets.iter_mut().find(|t| t.seq == seq) {
            t.state = State::Running;
            t.waiter = None;
        }
    }

    /// Leaves something to wake for a ticket that has to wait; replaces what was left before.
    pub fn wait(&mut self, seq: Seq, waiter: W) {
        if let Some(t) = self.tickets.iter_mut().find(|t| t.seq == seq) {
            t.waiter = Some(waiter);
        }
    }

    /// Takes the ticket away, and hands each waiting ticket that may run here now to `wake`.
    pub fn remove(&mut self, seq: Seq, mut wake: impl FnMut(W)) {
        let Some(at) = self.tickets.iter().position(|t| t.seq == seq) else { return };
        self.tickets.remove(at);
        if self.tickets.is_empty() {
            return;
        }
        let mut all_shared = !self.tickets.iter().any(|t| t.state == State::Running && t.mode == Mode::Exclusive);
        let mut running = self.tickets.iter().any(|t| t.state == State::Running);
        for t in self.tickets.iter_mut() {
            let free = match t.mode {
                Mode::Shared => all_shared,
                Mode::Exclusive => !running,
            };
            if t.state == State::Waiting
                && free
                && let Some(w) = t.waiter.take()
            {
                wake(w);
            }
            // Everything later waits for this ticket, unless both are shared.
            running = true;
            all_shared &= t.mode == Mode::Shared;
            if !all_shared {
                break;
            }
        }
    }

    /// Tickets in the queue.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Tickets that wait for others.
    pub fn waiting(&self) -> usize {
        self.tickets.iter().filter(|t| t.state == State::Waiting).count()
    }

    /// True when no command wants the inode: the queue may be dropped.
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shared_tickets_run_together_and_an_exclusive_one_alone() {
        let mut q = InodeQueue::<u64>::default();
        q.place(Seq(1), Mode::Shared, Token(0));
        q.place(Seq(2), Mode::Shared, Token(0));
        q.place(Seq(3), Mode::Exclusive, Token(0));
        q.place(Seq(4), Mode::Shared, Token(0));
        assert!(q.may_run(Seq(1)) && q.may_run(Seq(2)));
        assert!(!q.may_run(Seq(3)), "an exclusive ticket waits for the shared ones before it");
        assert!(!q.may_run(Seq(4)), "a later shared ticket does not overtake a waiting exclusive one");
        q.start(Seq(1));
        q.start(Seq(2));
        q.wait(Seq(3), 3);
        q.wait(Seq(4), 4);
        let mut woken = Vec::new();
        q.remove(Seq(1), |w| woken.push(w));
        assert!(woken.is_empty());
        q.remove(Seq(2), |w| woken.push(w));
        assert_eq!(woken, [3]);
        assert!(q.may_run(Seq(3)) && !q.may_run(Seq(4)));
    }

    #[test]
    fn a_ticket_placed_late_keeps_the_place_of_its_number() {
        let mut q = InodeQueue::<u64>::default();
        q.place(Seq(5), Mode::Exclusive, Token(0));
        q.place(Seq(2), Mode::Exclusive, Token(0));
        assert!(q.may_run(Seq(2)) && !q.may_run(Seq(5)));
        q.start(Seq(2));
        q.place(Seq(1), Mode::Exclusive, Token(0));
        assert!(!q.may_run(Seq(1)), "a running command is not interrupted by an older one");
    }

    proptest! {
        /// Whatever the interleaving: no exclusive ticket ever runs beside another, nothing is left waiting without
        /// having been woken, and everything ends.
        #[test]
        fn every_ticket_runs_and_exclusion_holds(modes in proptest::collection::vec(any::<bool>(), 1..24),
                                                 picks in proptest::collection::vec(any::<u16>(), 0..400)) {
            let mut q = InodeQueue::<usize>::default();
            let n = modes.len();
            let mode = |i: usize| if modes[i] { Mode::Shared } else { Mode::Exclusive };
            let (mut running, mut done, mut placed) = (Vec::<usize>::new(), 0usize, 0usize);
            // Commands that were told that they may run: at placing, or by a wake-up later.
            let mut runnable = std::collections::BTreeSet::<usize>::new();
            let mut picks = picks.into_iter().chain(std::iter::repeat(7)).map(usize::from);
            while done < n {
                let p = picks.next().unwrap_or(7);
                if placed < n && (p % 3 == 0 || (runnable.is_empty() && running.is_empty())) {
                    q.place(Seq(placed as u64), mode(placed), Token(0));
                    q.wait(Seq(placed as u64), placed);
                    if q.may_run(Seq(placed as u64)) {
                        runnable.insert(placed);
                    }
                    placed += 1;
                } else if !runnable.is_empty() && (p % 3 == 1 || running.is_empty()) {
                    let i = *runnable.iter().nth(p % runnable.len()).unwrap();
                    runnable.remove(&i);
                    prop_assert!(q.may_run(Seq(i as u64)));
                    q.start(Seq(i as u64));
                    running.push(i);
                    prop_assert!(running.len() == 1 || running.iter().all(|&r| mode(r) == Mode::Shared));
                } else if !running.is_empty() {
                    let i = running.remove(p % running.len());
                    q.remove(Seq(i as u64), |w| { runnable.insert(w); });
                    done += 1;
                } else {
                    prop_assert!(false, "stuck: tickets wait and nothing may run");
                }
            }
            prop_assert!(q.is_empty());
        }
    }
}
