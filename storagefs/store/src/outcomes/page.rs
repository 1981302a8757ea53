//! Values of the tree that hold outcomes, and the page of a queue's ring as it is in memory.

use super::{Bound, Entry, PAGE_ENTRIES, PAGES, RING, decode_outcome, encode_outcome};
use crate::codec::{DecodeError, Reader, Writer};
use std::sync::Arc;

/// First byte of every value here.
const VERSION: u8 = 1;

/// A sixteenth of a queue's ring: 64 neighbouring positions, of which the first `fresh` slots hold this lap's outcomes
/// and the others those of the lap before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Position of slot 0 in this lap.
    first: u64,
    fresh: u16,
    bound: Bound,
    slots: Vec<Entry>,
}

impl Page {
    /// Puts the outcome of `position` in; true if another one had to go, which raises the bound. `bound` is the
    /// queue's.
    pub fn put(&mut self, position: u64, entry: Entry, bound: Bound) -> bool {
        let slot = (position % PAGE_ENTRIES as u64) as usize;
        (self.first, self.fresh) = (position - slot as u64, slot as u16 + 1);
        self.bound = self.bound.max(bound);
        match self.slots.get_mut(slot) {
            Some(old) => {
                self.bound = self.bound.max(Some(old.sequence));
                *old = entry;
                true
            }
            None => {
                self.slots.push(entry);
                false
            }
        }
    }

    /// Its outcomes, in order of slots.
    pub fn entries(&self) -> &[Entry] {
        &self.slots
    }

    /// The queue's bound when it was last changed.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// As a value of the tree.
    pub fn to_value(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(32 + 28 * self.slots.len());
        w.u8(VERSION);
        w.var(self.first);
        w.var(self.fresh.into());
        put_bound(self.bound, &mut w);
        for e in &self.slots {
            w.var(e.sequence);
            w.var(e.stamp);
            encode_outcome(&e.outcome, &mut w);
        }
        w.into_vec()
    }

    /// From a value of the tree; `page` is its place in the ring.
    ///
    /// # Errors
    /// Bytes that [`Page::to_value`] does not produce.
    pub fn from_value(page: u64, bytes: &[u8]) -> Result<Page, DecodeError> {
        let mut r = Reader::new(bytes);
        r.version(VERSION)?;
        let (first, fresh) = (r.var()?, r.var16()?);
        let bound = take_bound(&mut r)?;
        let mut slots = Vec::new();
        while !r.is_empty() {
            if slots.len() == PAGE_ENTRIES {
                return Err(DecodeError("outcomes: too many"));
            }
            slots.push(Entry { sequence: r.var()?, stamp: r.var()?, outcome: decode_outcome(&mut r)? });
        }
        let whole = PAGE_ENTRIES as u64;
        let placed = first % whole == 0 && first / whole % PAGES == page && first < 1 << 62;
        let kept = match first < RING {
            true => slots.len() == fresh as usize,
            false => slots.len() == PAGE_ENTRIES,
        };
        if !placed || !kept || fresh == 0 || fresh as usize > PAGE_ENTRIES {
            return Err(DecodeError("outcomes: positions"));
        }
        Ok(Page { first, fresh, bound, slots })
    }
}

/// Head, bound and last stamp of a queue with these pages.
///
/// # Errors
/// Pages that do not belong side by side.
pub(super) fn join(pages: &[Option<Arc<Page>>]) -> Result<(u64, Bound, u64), DecodeError> {
    let here = || pages.iter().flatten();
    let head = here().map(|p| p.first + u64::from(p.fresh)).max().unwrap_or(0);
    let whole = PAGE_ENTRIES as u64;
    for at in 0..PAGES {
        // The newest page of the ring with this place, if the queue came that far.
        let newest = head.saturating_sub(1) / whole;
        let behind = (newest + PAGES - at) % PAGES;
        let wanted = newest.checked_sub(behind).map(|n| n * whole);
        let page = pages.get(at as usize).and_then(Option::as_ref);
        let whole_or_last = |p: &Page| behind == 0 || p.fresh as usize == PAGE_ENTRIES;
        if page.map(|p| p.first) != wanted || page.is_some_and(|p| !whole_or_last(p)) {
            return Err(DecodeError("outcomes: pages"));
        }
    }
    let last = here().flat_map(|p| p.entries()).map(|e| e.stamp).max().unwrap_or(0);
    Ok((head, here().filter_map(|p| p.bound).max(), last))
}

/// What the tree says of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientRec {
    /// Its id.
    pub id: [u8; 16],
    /// Its user.
    pub uid: u32,
    /// Bound of its queues that were dropped.
    pub bound: Bound,
}

impl ClientRec {
    /// As a value of the tree.
    pub fn to_value(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(34);
        w.u8(VERSION);
        w.raw(&self.id);
        w.var(self.uid.into());
        put_bound(self.bound, &mut w);
        w.into_vec()
    }

    /// From a value of the tree.
    ///
    /// # Errors
    /// Bytes that [`ClientRec::to_value`] does not produce.
    pub fn from_value(bytes: &[u8]) -> Result<ClientRec, DecodeError> {
        let mut r = Reader::new(bytes);
        r.version(VERSION)?;
        let id = r.take(16)?.try_into().map_err(|_| DecodeError("client id"))?;
        let rec = ClientRec { id, uid: r.var32()?, bound: take_bound(&mut r)? };
        r.end()?;
        Ok(rec)
    }
}

fn put_bound(bound: Bound, w: &mut Writer) {
    w.u8(bound.is_some().into());
    if let Some(b) = bound {
        w.var(b);
    }
}

fn take_bound(r: &mut Reader<'_>) -> Result<Bound, DecodeError> {
    match r.u8()? {
        0 => Ok(None),
        1 => Ok(Some(r.var()?)),
        _ => Err(DecodeError("outcomes: bound")),
    }
}

/// A bound alone as a value of the tree.
pub fn bound_to_value(bound: Bound) -> Vec<u8> {
    let mut w = Writer::with_capacity(12);
    w.u8(VERSION);
    put_bound(bound, &mut w);
    w.into_vec()
}

/// From a value of the tree.
///
/// # Errors
/// Bytes that `bound_to_value` does not produce.
pub fn bound_from_value(bytes: &[u8]) -> Result<Bound, DecodeError> {
    let mut r = Reader::new(bytes);
    r.version(VERSION)?;
    let bound = take_bound(&mut r)?;
    r.end()?;
    Ok(bound)
}
