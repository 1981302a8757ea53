//! What advisory locks must answer: byte ranges of processes and of open file descriptions, which know each other, and
//! those of flock(2), which know only themselves.

use std::collections::BTreeMap;

/// Whose a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A worker's process.
    Process(usize),
    /// The open file description of a slot.
    Slot(u32),
}

#[derive(Clone, Debug)]
struct Held {
    ino: u64,
    owner: Owner,
    /// First byte, and the one behind the last.
    span: (u64, u64),
    exclusive: bool,
}

/// Every lock that is held.
#[derive(Default)]
pub struct Locks {
    ranges: Vec<Held>,
    whole: BTreeMap<u32, (u64, bool)>,
}

/// A range of fcntl(2): no length is to the end of all files.
fn span(start: u64, len: u64) -> (u64, u64) {
    (start, if len == 0 { u64::MAX } else { start + len })
}

impl Locks {
    fn in_the_way(&self, ino: u64, owner: Owner, span: (u64, u64), exclusive: bool) -> impl Iterator<Item = &Held> {
        self.ranges.iter().filter(move |held| {
            held.ino == ino
                && held.owner != owner
                && held.span.0 < span.1
                && span.0 < held.span.1
                && (exclusive || held.exclusive)
        })
    }

    /// Takes bytes from an owner's locks.
    fn cut(&mut self, ino: u64, owner: Owner, span: (u64, u64)) {
        let (of, others): (Vec<Held>, Vec<Held>) =
            std::mem::take(&mut self.ranges).into_iter().partition(|held| held.ino == ino && held.owner == owner);
        let left = of.iter().flat_map(|held| {
            let parts = [(held.span.0, held.span.1.min(span.0)), (held.span.0.max(span.1), held.span.1)];
            parts.into_iter().filter(|(from, to)| from < to).map(|span| Held { span, ..held.clone() })
        });
        self.ranges = others;
        self.ranges.extend(left);
    }

    /// Sets a lock on a range, or gives it back. Errors: EAGAIN.
    pub fn set(&mut self, ino: u64, owner: Owner, kind: i16, start: u64, len: u64) -> Result<(), i32> {
        let (span, exclusive) = (span(start, len), kind == libc::F_WRLCK as i16);
        let unlock = kind == libc::F_UNLCK as i16;
        if !unlock && self.in_the_way(ino, owner, span, exclusive).next().is_some() {
            return Err(libc::EAGAIN);
        }
        self.cut(ino, owner, span);
        if !unlock {
            self.ranges.push(Held { ino, owner, span, exclusive });
        }
        Ok(())
    }

    /// Whether a lock that was told of, or none, is what stands in the way.
    pub fn told(
        &self,
        ino: u64,
        owner: Owner,
        kind: i16,
        (start, len): (u64, u64),
        told: (i64, i64, i64),
    ) -> Result<(), String> {
        let span_ = span(start, len);
        let exclusive = kind == libc::F_WRLCK as i16;
        let mut others = self.in_the_way(ino, owner, span_, exclusive).peekable();
        if told.0 == i64::from(libc::F_UNLCK) {
            return others.next().map_or(Ok(()), |held| Err(format!("{held:?} is in the way, and is not told of")));
        }
        let (exclusive, at) = (told.0 == i64::from(libc::F_WRLCK), span(told.1 as u64, told.2 as u64));
        // Neighbours of one owner and kind may be told of as one.
        let meets = |held: &Held| held.exclusive == exclusive && held.span.0 >= at.0 && held.span.1 <= at.1;
        let all: Vec<&Held> = others.collect();
        if all.iter().any(|held| meets(held)) { Ok(()) } else { Err(format!("{told:?} is told of, held are {all:?}")) }
    }

    /// flock(2) without waiting. Errors: EAGAIN, and the lock that was to be replaced stays.
    pub fn flock(&mut self, ino: u64, slot: u32, kind: i32) -> Result<(), i32> {
        if kind == libc::LOCK_UN {
            self.whole.remove(&slot);
            return Ok(());
        }
        let exclusive = kind == libc::LOCK_EX;
        let mut others = self.whole.iter().filter(|(s, (i, _))| **s != slot && *i == ino);
        if others.any(|(_, (_, other))| exclusive || *other) {
            return Err(libc::EAGAIN);
        }
        self.whole.insert(slot, (ino, exclusive));
        Ok(())
    }

    /// A process has closed a descriptor of a file: its own locks on that go, and the description's.
    pub fn closed(&mut self, ino: u64, worker: usize, slot: u32) {
        self.ranges.retain(|held| {
            held.owner != Owner::Slot(slot) && (held.ino != ino || held.owner != Owner::Process(worker))
        });
        self.whole.remove(&slot);
    }

    /// Whether a slot's description holds one.
    pub fn of_description(&self, slot: u32) -> bool {
        self.whole.contains_key(&slot) || self.ranges.iter().any(|held| held.owner == Owner::Slot(slot))
    }
}
