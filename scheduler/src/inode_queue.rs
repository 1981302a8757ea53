//! The tickets that commands hold on one inode, in order.
//!
//! Tickets are ordered by the sequence number their command got when it arrived, whatever the order in which they are
//! placed. A ticket *may run* here when no earlier ticket conflicts with it and no running ticket does. So a command
//! waits only for commands that are older than itself or already running; a running command waits for nothing but its
//! own I/O; hence no cycle of waits can form, also when a command changes its set and places its ticket late (it keeps
//! its number).
//!
//! A command that computes for long *lends* its tickets: they keep no other waiting until it takes them back, under a
//! new number, so behind all that wait by then. What it saw of the inode still stands if no exclusive ticket started
//! meanwhile, and it learns whether one did.

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
    /// Its command runs and does not hold the inode for now.
    Lent,
}

#[derive(Debug)]
struct Ticket<W> {
    seq: Seq,
    mode: Mode,
    token: Token,
    state: State,
    /// Since it was lent until it runs again: whether an exclusive ticket has started.
    overtaken: bool,
    waiter: Option<W>,
}

impl<W> Ticket<W> {
    /// Whether it is before a waiting ticket of this number, or runs.
    fn is_ahead_of(&self, seq: Seq) -> bool {
        match self.state {
            State::Waiting => self.seq < seq,
            State::Running => self.seq != seq,
            State::Lent => false,
        }
    }
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
        self.tickets.insert(at, Ticket { seq, mode, token, state: State::Waiting, overtaken: false, waiter: None });
    }

    /// True when the ticket could start now.
    pub fn may_run(&self, seq: Seq) -> bool {
        let Some(mine) = self.tickets.iter().find(|t| t.seq == seq) else { return false };
        self.tickets.iter().filter(|t| t.is_ahead_of(seq)).all(|t| mine.mode == Mode::Shared && t.mode == Mode::Shared)
    }

    /// The slots of the commands that this ticket waits for.
    pub fn blockers(&self, seq: Seq) -> impl Iterator<Item = Token> + '_ {
        let mode = self.tickets.iter().find(|t| t.seq == seq).map(|t| t.mode);
        let ahead = move |t: &&Ticket<W>| t.is_ahead_of(seq);
        let conflicts = move |t: &&Ticket<W>| mode == Some(Mode::Exclusive) || t.mode == Mode::Exclusive;
        self.tickets.iter().filter(ahead).filter(conflicts).map(|t| t.token)
    }

    /// Marks the ticket as running. Only after `may_run` said yes for every queue of the command, under one lock.
    pub fn start(&mut self, seq: Seq) {
        let Some(at) = self.tickets.iter().position(|t| t.seq == seq) else { return };
        let t = &mut self.tickets[at];
        (t.state, t.waiter) = (State::Running, None);
        if t.mode == Mode::Exclusive && self.tickets.len() > 1 {
            self.tickets.iter_mut().filter(|t| t.seq != seq).for_each(|t| t.overtaken = true);
        }
    }

    /// The slots of the commands that wait for this ticket, and perhaps for others too.
    pub fn kept_waiting(&self, seq: Seq) -> impl Iterator<Item = Token> + '_ {
        let mine = self.tickets.iter().find(|t| t.seq == seq).map(|t| t.mode);
        let conflicts = move |t: &&Ticket<W>| mine == Some(Mode::Exclusive) || t.mode == Mode::Exclusive;
        self.tickets.iter().filter(|t| t.state == State::Waiting).filter(conflicts).map(|t| t.token)
    }

    /// A running ticket keeps no other waiting from now on; each that may run now is handed to `wake`.
    pub fn lend(&mut self, seq: Seq, wake: impl FnMut(W)) {
        let Some(t) = self.tickets.iter_mut().find(|t| t.seq == seq) else { return };
        debug_assert!(t.state == State::Running, "what is not held cannot be lent");
        (t.state, t.overtaken) = (State::Lent, false);
        self.wake_free(wake);
    }

    /// A lent ticket waits again, under a new number, so behind all others.
    pub fn take_back(&mut self, seq: Seq, new: Seq) {
        let Some(at) = self.tickets.iter().position(|t| t.seq == seq) else { return };
        let ticket = self.tickets.remove(at);
        let at = self.tickets.iter().rposition(|t| t.seq < new).map_or(0, |p| p + 1);
        self.tickets.insert(at, Ticket { seq: new, state: State::Waiting, ..ticket });
    }

    /// Whether an exclusive ticket has started since this one was lent. Of a ticket that was lent and runs again.
    pub fn was_overtaken(&self, seq: Seq) -> bool {
        self.tickets.iter().any(|t| t.seq == seq && t.overtaken)
    }

    /// Leaves something to wake for a ticket that has to wait; replaces what was left before.
    pub fn wait(&mut self, seq: Seq, waiter: W) {
        if let Some(t) = self.tickets.iter_mut().find(|t| t.seq == seq) {
            t.waiter = Some(waiter);
        }
    }

    /// Takes the ticket away, and hands each waiting ticket that may run here now to `wake`.
    pub fn remove(&mut self, seq: Seq, wake: impl FnMut(W)) {
        let Some(at) = self.tickets.iter().position(|t| t.seq == seq) else { return };
        self.tickets.remove(at);
        if !self.tickets.is_empty() {
            self.wake_free(wake);
        }
    }

    fn wake_free(&mut self, mut wake: impl FnMut(W)) {
        let mut all_shared = !self.tickets.iter().any(|t| t.state == State::Running && t.mode == Mode::Exclusive);
        let mut running = self.tickets.iter().any(|t| t.state == State::Running);
        for t in self.tickets.iter_mut().filter(|t| t.state != State::Lent) {
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

    #[test]
    fn a_lent_ticket_keeps_no_other_waiting_and_comes_back_behind_those_that_wait() {
        let mut q = InodeQueue::<u64>::default();
        q.place(Seq(1), Mode::Exclusive, Token(1));
        q.start(Seq(1));
        for (seq, mode) in [(2, Mode::Shared), (3, Mode::Exclusive), (4, Mode::Shared)] {
            q.place(Seq(seq), mode, Token(seq as u32));
            q.wait(Seq(seq), seq);
        }
        assert_eq!(q.kept_waiting(Seq(1)).collect::<Vec<_>>(), [Token(2), Token(3), Token(4)]);
        let mut woken = Vec::new();
        q.lend(Seq(1), |w| woken.push(w));
        assert_eq!(woken, [2], "the exclusive ticket behind it keeps the next shared one waiting");
        assert!(q.may_run(Seq(2)) && q.blockers(Seq(2)).next().is_none());
        q.start(Seq(2));
        q.take_back(Seq(1), Seq(5));
        assert!(!q.may_run(Seq(5)));
        q.remove(Seq(2), |_| {});
        assert!(q.may_run(Seq(3)) && !q.may_run(Seq(5)));
        assert!(!q.was_overtaken(Seq(5)), "a shared ticket changes nothing");
        q.start(Seq(3));
        q.remove(Seq(3), |_| {});
        q.remove(Seq(4), |_| {});
        assert!(q.may_run(Seq(5)));
        q.start(Seq(5));
        assert!(q.was_overtaken(Seq(5)));
        q.lend(Seq(5), |_| {});
        q.take_back(Seq(5), Seq(6));
        q.start(Seq(6));
        assert!(!q.was_overtaken(Seq(6)), "nothing came between this time");
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
