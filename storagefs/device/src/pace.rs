//! Back-pressure: when operations fill the log or the overlay faster than checkpoints empty them, each one waits a
//! little, the more the fuller they are, instead of all of them stopping when nothing is left.
//!
//! A changing command is charged the time that a checkpoint takes for as many log bytes as its reservation is likely
//! to come to, times a factor of how full the fuller of the two is: 0 up to one half, 1 at two thirds, 6 at seven
//! eighths, without bound towards full (what is moved comes free at once, at a checkpoint's end: so the factor must be
//! 1 on the way, not at the top). It starts when the charges of its session's earlier commands are worked off. Every
//! session that is waiting has its share, however many queues it has. The factor makes this a controller: wherever the
//! constants are wrong, the fullness at which as much goes in as comes out is a little higher or lower. Below the half
//! nothing is computed and nothing is armed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use weldfs_locks::Mutex;

use crate::limits::{PACE_NS_MAX, PACE_NS_PER_KIB, PACE_RECENT_NS};

/// The scale of fractions here: full.
pub const FULL: u64 = 1024;

/// What the device knows about checkpoints' speed, and what sessions owe. Thread-safe.
pub struct Pace {
    /// Nanoseconds that checkpoints took for 1 KiB of log.
    ns_per_kib: AtomicU64,
    /// When the running checkpoint began (nonzero), and the bytes of log it is about.
    since: AtomicU64,
    about: AtomicU64,
    /// Whether log or overlay were last seen more than half full.
    pressed: AtomicBool,
    /// Log bytes that came of what was charged: reservations are upper bounds.
    came: AtomicU64,
    debts: Mutex<Debts>,
}

#[derive(Default)]
struct Debts {
    sessions: Vec<Debt>,
    /// Log bytes reserved by whoever was charged.
    reserved: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            ns_per_kib: AtomicU64::new(PACE_NS_PER_KIB),
            since: AtomicU64::new(0),
            about: AtomicU64::new(0),
            pressed: AtomicBool::new(false),
            came: AtomicU64::new(0),
            debts: Mutex::default(),
        }
    }
}

struct Debt {
    session: u64,
    until: u64,
}

/// By how much a commit at this fullness is slowed down: `FULL` means to the speed of checkpoints.
pub fn factor(fill: u64) -> u64 {
    let fill = fill.min(FULL - 4);
    (2 * fill).saturating_sub(FULL) * FULL / (FULL - fill)
}

impl Pace {
    /// A checkpoint of so many bytes of log begins.
    pub fn begin(&self, now: u64, bytes: u64) {
        self.about.store(bytes, Relaxed);
        self.since.store(now.max(1), Relaxed);
    }

    /// It ended after moving so many; what moved little says little about speed, `enough` is the least that counts.
    pub fn end(&self, now: u64, moved: u64, enough: u64) {
        let since = self.since.swap(0, Relaxed);
        if moved >= enough.max(1) {
            let measured = now.saturating_sub(since) * FULL / moved;
            let before = self.ns_per_kib.load(Relaxed);
            self.ns_per_kib.store(((before * 3 + measured) / 4).max(1), Relaxed);
        }
    }

    /// Nanoseconds per KiB: as measured, and at least what the running checkpoint has taken already.
    fn speed(&self, now: u64) -> u64 {
        let measured = self.ns_per_kib.load(Relaxed);
        match (self.since.load(Relaxed), self.about.load(Relaxed)) {
            (0, _) | (_, 0) => measured,
            (since, about) => measured.max(now.saturating_sub(since) * FULL / about),
        }
    }

    /// Log or overlay are so full now, and so many bytes of log were appended. Cheap; whoever commits says it.
    #[inline]
    pub fn note(&self, fill: u64, appended: u64) {
        if fill > FULL / 2 {
            self.came.fetch_add(appended, Relaxed);
            if !self.pressed.load(Relaxed) {
                self.pressed.store(true, Relaxed);
            }
        }
    }

    /// Whether changes may have to wait at all.
    #[inline]
    pub fn is_pressed(&self) -> bool {
        self.pressed.load(Relaxed)
    }

    /// When the session's next change, which reserves so many log bytes, may start: `None` for now.
    #[inline]
    pub fn start_at(
        &self,
        session: u64,
        bytes: u64,
        fill: impl FnOnce() -> u64,
        now: impl FnOnce() -> u64,
    ) -> Option<u64> {
        if self.pressed.load(Relaxed) { self.queue(session, bytes, fill(), now()) } else { None }
    }

    #[cold]
    fn queue(&self, session: u64, bytes: u64, fill: u64, now: u64) -> Option<u64> {
        let mut debts = self.debts.lock();
        if fill <= FULL / 2 {
            // There is room again: what is owed is forgotten.
            debts.sessions.clear();
            self.pressed.store(false, Relaxed);
            return None;
        }
        let bytes = debts.likely(bytes, &self.came);
        let all = &mut debts.sessions;
        all.retain(|d| d.session == session || d.until + PACE_RECENT_NS > now);
        let at = all.iter().position(|d| d.session == session).unwrap_or_else(|| {
            all.push(Debt { session, until: now });
            all.len() - 1
        });
        let cost = bytes * self.speed(now) / FULL * factor(fill) / FULL * all.len() as u64;
        let debt = &mut all[at];
        let start = debt.until.max(now);
        debt.until = start + cost.min(PACE_NS_MAX);
        (start > now).then_some(start)
    }
}

impl Debts {
    /// What a reservation is likely to come to, by what the earlier ones came to.
    fn likely(&mut self, bytes: u64, came: &AtomicU64) -> u64 {
        const FORGET: u64 = 16 << 20;
        self.reserved += bytes;
        if self.reserved > FORGET {
            self.reserved /= 2;
            came.store(came.load(Relaxed) / 2, Relaxed);
        }
        (bytes * came.load(Relaxed) / self.reserved.max(1)).clamp(bytes / 32, bytes)
    }
}

#[cfg(test)]
mod tests;
