//! What is going on with the databases of a device, by their paths: their open rollback journals, pages that wait with
//! one that is kept, a sync that is owed.

use crate::code;
use crate::fault::{Done, Fault};
use crate::journal::Journal;
use crate::pages::Pages;
use std::collections::HashMap;
use std::sync::Arc;
use weldfs::{Client, Durability};
use weldfs_locks::Mutex;

/// See the module.
#[derive(Default)]
pub struct Commits(Mutex<HashMap<Vec<u8>, Commit>>);

#[derive(Default)]
struct Commit {
    /// Rollback journals of it that are open: of the one connection that writes, idle ones, and those that others look
    /// into.
    journals: Vec<Arc<Journal>>,
    /// The journal that the writing connection has closed, and that is kept; that it is removed comes next.
    closed: Option<Arc<Journal>>,
    /// Pages of that connection, which wait as long as the journal is kept.
    pages: Option<Arc<Pages>>,
    /// Whether a sync of it was put off to what ends its journal.
    owed: bool,
}

impl Commit {
    /// Journals of the transaction that goes on.
    fn active(&self) -> impl Iterator<Item = &Arc<Journal>> {
        self.journals.iter().filter(|journal| !journal.is_idle())
    }

    /// Whether there is one such journal, and it is kept.
    fn is_kept(&self) -> bool {
        let mut active = self.active();
        active.next().is_some_and(|journal| journal.is_kept()) && active.next().is_none()
    }

    fn is_idle(&self) -> bool {
        self.journals.is_empty() && self.closed.is_none() && self.pages.is_none() && !self.owed
    }
}

impl Commits {
    fn change<T>(&self, database: &[u8], f: impl FnOnce(&mut Commit) -> T) -> T {
        let mut all = self.0.lock();
        if let Some(commit) = all.get_mut(database) {
            let out = f(commit);
            if commit.is_idle() {
                all.remove(database);
            }
            return out;
        }
        let mut commit = Commit::default();
        let out = f(&mut commit);
        if !commit.is_idle() {
            all.insert(database.to_vec(), commit);
        }
        out
    }

    fn look<T: Default>(&self, database: &[u8], f: impl FnOnce(&Commit) -> T) -> T {
        self.0.lock().get(database).map_or_else(T::default, f)
    }

    /// A rollback journal of it was opened.
    pub fn journal_opened(&self, database: &[u8], journal: Arc<Journal>) {
        // What is let go of may close a file: not under the lock.
        drop(self.change(database, |commit| {
            commit.journals.push(journal);
            commit.closed.take()
        }));
    }

    /// A rollback journal of it was closed.
    pub fn journal_closed(&self, database: &[u8], journal: &Arc<Journal>) {
        self.change(database, |commit| {
            commit.journals.retain(|known| !Arc::ptr_eq(known, journal));
            if journal.is_kept() && !journal.is_idle() {
                commit.closed = Some(journal.clone());
            }
        });
    }

    /// Whether a page that the connection with these writes may wait: its journal is kept, and has a head.
    pub fn holds(&self, database: &[u8], pages: &Arc<Pages>) -> bool {
        let begun = self.look(database, |commit| commit.active().next().filter(|_| commit.is_kept()).cloned());
        if !begun.is_some_and(|journal| journal.has_begun()) {
            return false;
        }
        let mut all = self.0.lock();
        let Some(commit) = all.get_mut(database) else { return false };
        if !commit.pages.as_ref().is_some_and(|known| Arc::ptr_eq(known, pages)) {
            commit.pages = Some(pages.clone());
        }
        true
    }

    /// Whether its journal is kept.
    pub fn keeps(&self, database: &[u8]) -> bool {
        self.look(database, Commit::is_kept)
    }

    /// Whether a journal is open for the transaction that goes on.
    pub fn has_journal(&self, database: &[u8]) -> bool {
        self.look(database, |commit| commit.active().next().is_some())
    }

    /// Before anything else is done to the database: what is in its journal is in the device, and the pages that waited
    /// with that after it. An error in the first leaves them waiting.
    pub fn send(&self, client: &Client, database: &[u8]) -> Done {
        let (mut journals, closed, pages) = self.look(database, |commit| {
            (commit.active().cloned().collect::<Vec<_>>(), commit.closed.clone(), commit.pages.clone())
        });
        if pages.as_ref().is_some_and(|pages| !pages.is_empty()) {
            journals.extend(closed);
        }
        journals.iter().try_for_each(|journal| journal.send(client))?;
        let sent = pages.map_or(Ok(()), |pages| pages.write());
        sent.map_err(|e| Fault::of(code::IOERR_WRITE, e, || shown("write", database)))
    }

    /// The same for a call after whose failure SQLite undoes the whole transaction: where the journal is still kept,
    /// the device has nothing of it, and nothing of it waits any more. (Of several files that commit without a
    /// super-journal one may be there as a whole: what undoes it has no room either, and it stays.)
    pub fn send_or_undo(&self, client: &Client, database: &[u8]) -> Done {
        let sent = self.send(client, database);
        if sent.is_err() && self.keeps(database) {
            self.look(database, |commit| commit.pages.clone()).iter().for_each(|pages| pages.undo());
        }
        sent
    }

    /// Before its journal is ended: pages that no sync has asked for are there, all or none.
    pub fn finish(&self, client: &Client, database: &[u8]) -> Done {
        let Some(pages) = self.look(database, |commit| commit.pages.clone()) else { return Ok(()) };
        if pages.is_empty() {
            drop(pages.take());
            return Ok(());
        }
        let done = pages.commit(Durability::Volatile);
        match done.map_err(|e| Fault::of(code::IOERR_WRITE, e, || shown("commit", database)))? {
            true => Ok(()),
            false => self.send_or_undo(client, database),
        }
    }

    /// The kept journal that was closed: it is removed now, or will not be.
    pub fn take_closed(&self, database: &[u8]) -> Option<Arc<Journal>> {
        self.change(database, |commit| commit.closed.take())
    }

    /// The connection with these pages does not write any more. What waits is of a transaction that failed; others may
    /// make a journal before a journal that is open is used again.
    pub fn over(&self, database: &[u8], pages: &Arc<Pages>) {
        let ends = |commit: &mut Commit| {
            let mine = commit.pages.as_ref().is_none_or(|known| Arc::ptr_eq(known, pages));
            mine.then(|| {
                commit.journals.iter().for_each(|journal| journal.rest());
                (commit.pages.take(), commit.closed.take())
            })
        };
        drop(self.change(database, ends));
        drop(pages.take());
    }

    /// Puts a sync off, if there is a journal whose end will make up for it. That one is owed from before, of a journal
    /// whose end failed, is no reason to.
    pub fn put_off(&self, database: &[u8]) -> bool {
        self.change(database, |commit| {
            let put_off = commit.active().next().is_some() && !commit.is_kept();
            commit.owed |= put_off;
            put_off
        })
    }

    /// Whether a sync is owed.
    pub fn owed(&self, database: &[u8]) -> bool {
        self.look(database, |commit| commit.owed)
    }

    /// Everything of it that was completed is durable.
    pub fn settled(&self, database: &[u8]) {
        self.change(database, |commit| commit.owed = false);
    }
}

fn shown(doing: &str, database: &[u8]) -> String {
    format!("{doing} {}", String::from_utf8_lossy(database))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use weldfs_device::DeviceConfig;
    use weldfs_kernel_shim::{Embedded, Source};

    #[test]
    fn a_sync_that_is_owed_from_before_puts_no_other_one_off() {
        let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
        let client = Client::with(Arc::new(embedded)).unwrap();
        let name = Name { target: "d.img".into(), path: b"/a.db-journal".to_vec() };
        let journal = Arc::new(Journal::of(name, 0, client.create("/a.db-journal").unwrap(), 0, false));
        let commits = Commits::default();
        assert!(!commits.put_off(b"/a.db"), "there is no journal");
        commits.journal_opened(b"/a.db", journal.clone());
        assert!(commits.put_off(b"/a.db"));
        // It is closed, and could not be removed: nothing paid for the sync.
        commits.journal_closed(b"/a.db", &journal);
        assert!(commits.owed(b"/a.db"));
        assert!(!commits.put_off(b"/a.db"), "no journal's end will make up for it");
        commits.settled(b"/a.db");
        assert!(!commits.owed(b"/a.db"));
    }
}
