//! Advisory locks. flock(2) is the open file description's, as in the device. A POSIX lock is a process's, whatever
//! file it goes through: each owner that the kernel names has a description of its own, whose locks the device keeps as
//! those of a description, and that is closed when the owner closes any descriptor of the file. (Locks of a session
//! would not do: a session is many processes here, and the close of one of them would free the locks of all.)
//!
//! The device never waits; whoever is to wait is asked for again, with growing pauses, by one thread, until the lock is
//! there or the caller is interrupted.

use crate::channel::Channel;
use crate::files::OpenFile;
use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weldfs::{LockKind, LockSpace};
use weldfs_ciscops::Errno;
use weldfs_locks::{Condvar, Mutex};

/// The first pause, and the longest.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// Interrupts kept of requests that were not waiting when they came.
const EARLY_MAX: usize = 64;

/// What is asked for.
#[derive(Clone)]
pub struct Wanted {
    /// The description that is to hold it.
    pub file: Arc<OpenFile>,
    /// Whose it is to be, as the kernel names him; of byte ranges.
    pub owner: u64,
    pub space: LockSpace,
    pub kind: LockKind,
    pub start: u64,
    pub len: u64,
    pub pid: u64,
}

impl Wanted {
    /// Asks once. EAGAIN: another has it.
    pub fn ask(&self) -> Result<(), Errno> {
        let raw = self.file.session.raw();
        raw.lock_set(self.file.handle, self.space, self.kind, self.start, self.len, self.pid)
    }
}

struct Waiter {
    unique: u64,
    wanted: Wanted,
    next: Instant,
    pause: Duration,
}

/// The description of one owner's locks on one file.
struct Owned {
    file: Arc<OpenFile>,
    /// The number of the open file that it came through.
    through: u64,
    /// The process that took the latest, and what they cover: first bytes, and those behind the last. Who is in the way
    /// is told by these; whether anyone is, by the device.
    pid: u64,
    covered: Vec<(u64, u64)>,
}

impl Owned {
    /// A lock was given, or given back.
    fn changed(&mut self, wanted: &Wanted) {
        let (start, end) = (wanted.start, end_of(wanted.start, wanted.len));
        self.covered = outside(&self.covered, start, end);
        if wanted.kind != LockKind::Unlock {
            self.covered.push((start, end));
            self.pid = wanted.pid;
        }
    }

    fn covers(&self, start: u64, end: u64) -> bool {
        self.covered.iter().any(|(from, to)| *from < end && start < *to)
    }
}

/// What is left of ranges without one.
fn outside(ranges: &[(u64, u64)], start: u64, end: u64) -> Vec<(u64, u64)> {
    let left = |(from, to): &(u64, u64)| [(*from, (*to).min(start)), ((*from).max(end), *to)];
    ranges.iter().flat_map(left).filter(|(from, to)| from < to).collect()
}

/// One past the last byte; no length is up to the end of all files.
fn end_of(start: u64, len: u64) -> u64 {
    if len == 0 { u64::MAX } else { start.saturating_add(len) }
}

#[derive(Default)]
struct State {
    owned: HashMap<(u64, u64), Owned>,
    waiting: Vec<Waiter>,
    /// Interrupts that came before their request waited.
    early: VecDeque<u64>,
    ended: bool,
}

/// All locks of a mount.
pub struct Locks {
    state: Mutex<State>,
    changed: Condvar,
    channel: Arc<Channel>,
}

impl Locks {
    pub fn new(channel: Arc<Channel>) -> Locks {
        Locks { state: Mutex::default(), changed: Condvar::new(), channel }
    }

    /// The description of an owner's locks, if it has one.
    pub fn description(&self, node: u64, owner: u64) -> Option<Arc<OpenFile>> {
        self.state.lock().owned.get(&(node, owner)).map(|owned| owned.file.clone())
    }

    /// Makes `file` the description of an owner's locks; the one that it has, if another thread was faster.
    pub fn adopt(&self, node: u64, owner: u64, file: Arc<OpenFile>, through: u64) -> Arc<OpenFile> {
        let mut state = self.state.lock();
        let fresh = Owned { file, through, pid: 0, covered: Vec::new() };
        let owned = state.owned.entry((node, owner)).or_insert(fresh);
        *owned.file.lock_owner.lock() = Some(owner);
        owned.file.clone()
    }

    /// A byte-range lock was given, or given back.
    pub fn changed(&self, wanted: &Wanted) {
        if let Some(owned) = self.state.lock().owned.get_mut(&(wanted.file.node, wanted.owner)) {
            owned.changed(wanted);
        }
    }

    /// The process of this mount that has a lock in that range and is not `owner`; 0 for one of another session.
    pub fn holder(&self, node: u64, owner: u64, start: u64, len: u64) -> u64 {
        let end = end_of(start, len);
        let state = self.state.lock();
        let mut others = state.owned.iter().filter(|((n, o), _)| *n == node && *o != owner);
        others.find(|(_, owned)| owned.covers(start, end)).map_or(0, |(_, owned)| owned.pid)
    }

    /// An owner has closed a descriptor of a file: its locks on it go, and those that wait for them are asked again.
    pub fn closed(&self, node: u64, owner: u64) {
        let owned = self.state.lock().owned.remove(&(node, owner));
        if let Some(owned) = owned {
            self.free(&owned);
        }
    }

    /// An open file has gone: so have the locks that came through it.
    pub fn released(&self, fh: u64) {
        let gone: Vec<Owned> =
            self.state.lock().owned.extract_if(|_, owned| owned.through == fh).map(|(_, owned)| owned).collect();
        gone.iter().for_each(|owned| self.free(owned));
    }

    fn free(&self, owned: &Owned) {
        let all = Wanted {
            file: owned.file.clone(),
            owner: 0,
            space: LockSpace::OpenFile,
            kind: LockKind::Unlock,
            start: 0,
            len: 0,
            pid: 0,
        };
        // What fails here has no locks any more.
        let _ = all.ask();
        *owned.file.lock_owner.lock() = None;
        self.hurry();
    }

    /// Something was unlocked: who waits is asked again at once.
    pub fn hurry(&self) {
        let mut state = self.state.lock();
        let now = Instant::now();
        for waiter in &mut state.waiting {
            (waiter.next, waiter.pause) = (now, PAUSE_MIN);
        }
        if !state.waiting.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Answers a request when the lock is there. EINTR at once if it was interrupted already.
    pub fn wait(&self, unique: u64, wanted: Wanted) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if let Some(at) = state.early.iter().position(|early| *early == unique) {
            state.early.remove(at);
            return Err(Errno::INTR);
        }
        state.waiting.push(Waiter { unique, wanted, next: Instant::now() + PAUSE_MIN, pause: PAUSE_MIN });
        self.changed.notify_one();
        Ok(())
    }

    /// A request was interrupted. Those that do not wait are answered in time anyway.
    pub fn interrupt(&self, unique: u64) {
        let waiter = {
            let mut state = self.state.lock();
            match state.waiting.iter().position(|waiter| waiter.unique == unique) {
                Some(at) => Some(state.waiting.swap_remove(at)),
                None => {
                    if state.early.len() >= EARLY_MAX {
                        state.early.pop_front();
                    }
                    state.early.push_back(unique);
                    None
                }
            }
        };
        if waiter.is_some() {
            self.channel.fail(unique, Errno::INTR);
        }
    }

    /// The thread that asks again. Returns after `end`.
    pub fn run(&self) {
        let mut state = self.state.lock();
        while !state.ended {
            let now = Instant::now();
            let Some(at) = (0..state.waiting.len()).min_by_key(|at| state.waiting[*at].next) else {
                self.changed.wait(&mut state);
                continue;
            };
            if state.waiting[at].next > now {
                let until = state.waiting[at].next;
                self.changed.wait_until(&mut state, until);
                continue;
            }
            let (unique, wanted) = (state.waiting[at].unique, state.waiting[at].wanted.clone());
            drop(state);
            let answer = wanted.ask();
            state = self.state.lock();
            let Some(at) = state.waiting.iter().position(|waiter| waiter.unique == unique) else {
                // Interrupted meanwhile: a lock that it got all the same goes back.
                drop(state);
                if answer.is_ok() {
                    let _ = Wanted { kind: LockKind::Unlock, ..wanted }.ask();
                }
                state = self.state.lock();
                continue;
            };
            if answer == Err(Errno::AGAIN) {
                let waiter = &mut state.waiting[at];
                waiter.next = Instant::now() + waiter.pause;
                waiter.pause = (waiter.pause * 2).min(PAUSE_MAX);
                continue;
            }
            state.waiting.swap_remove(at);
            if answer.is_ok()
                && let Some(owned) = state.owned.get_mut(&(wanted.file.node, wanted.owner))
            {
                owned.changed(&wanted);
            }
            match answer {
                Ok(()) => self.channel.answer(unique, &[]),
                Err(e) => self.channel.fail(unique, wanted.file.session.told(e)),
            }
        }
    }

    /// Ends the thread and lets go of all descriptions.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let (owned, waiting) = (std::mem::take(&mut state.owned), std::mem::take(&mut state.waiting));
        self.changed.notify_all();
        drop(state);
        drop((owned, waiting));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_covered_is_what_was_taken_and_not_given_back() {
        assert_eq!(outside(&[(0, 100)], 10, 20), [(0, 10), (20, 100)]);
        assert_eq!(outside(&[(0, 10), (20, 30)], 5, 25), [(0, 5), (25, 30)]);
        assert!(outside(&[(5, 9)], 0, u64::MAX).is_empty());
        assert_eq!((end_of(5, 0), end_of(5, 3)), (u64::MAX, 8));
    }
}
