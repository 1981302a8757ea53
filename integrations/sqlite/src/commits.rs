//! What is going on with the databases of a device, by their paths: their open rollback journals, pages that wait with
//! one that is kept, a sync that is owed.

use crate::code;
use crate::fault::{Done, Fault};
use crate::journal::Journal;
use crate::pages::Pages;
use std::collections::HashMap;
use std::sync::Arc;
use weldfs::{Client, Durability, Errno};
use weldfs_locks::Mutex;

/// See the module.
#[derive(Default)]
pub struct Commits(Mutex<HashMap<Vec<u8>, Commit>>);

#[derive(Default)]
struct Commit {
    /// Rollback journals of it that are open: of the one connection that writes.
    journals: Vec<Arc<Journal>>,
    /// Pages of that connection, which wait as long as the journal is kept.
    pages: Option<Arc<Pages>>,
    /// Its journal was closed without ever having been a file; that it is removed comes next.
    unmade: bool,
    /// Whether a sync of it was put off to what ends its journal.
    owed: bool,
}

impl Commits {
    fn change<T>(&self, database: &[u8], f: impl FnOnce(&mut Commit) -> T) -> T {
        let mut all = self.0.lock();
        if let Some(commit) = all.get_mut(database) {
            let out = f(commit);
            if commit.journals.is_empty() && commit.pages.is_none() && !commit.unmade && !commit.owed {
                all.remove(database);
            }
            return out;
        }
        let mut commit = Commit::default();
        let out = f(&mut commit);
        if !commit.journals.is_empty() || commit.owed {
            all.insert(database.to_vec(), commit);
        }
        out
    }

    fn look<T: Default>(&self, database: &[u8], f: impl FnOnce(&Commit) -> T) -> T {
        self.0.lock().get(database).map_or_else(T::default, f)
    }

    /// A rollback journal of it was opened.
    pub fn journal_opened(&self, database: &[u8], journal: Arc<Journal>) {
        self.change(database, |commit| {
            commit.journals.push(journal);
            commit.unmade = false;
        });
    }

    /// A rollback journal of it was closed.
    pub fn journal_closed(&self, database: &[u8], journal: &Arc<Journal>) {
        self.change(database, |commit| {
            commit.journals.retain(|known| !Arc::ptr_eq(known, journal));
            commit.unmade = journal.is_unmade();
        });
    }

    /// Whether its journal is kept: no page that this was true for is in the device.
    fn is_kept(commit: &Commit) -> bool {
        matches!(&commit.journals[..], [journal] if journal.is_kept())
    }

    /// Whether a page that the connection with these writes may wait with its journal.
    pub fn holds(&self, database: &[u8], pages: &Arc<Pages>) -> bool {
        let mut all = self.0.lock();
        let Some(commit) = all.get_mut(database).filter(|commit| Commits::is_kept(commit)) else { return false };
        if !commit.pages.as_ref().is_some_and(|known| Arc::ptr_eq(known, pages)) {
            commit.pages = Some(pages.clone());
        }
        true
    }

    /// Whether its journal is kept.
    pub fn keeps(&self, database: &[u8]) -> bool {
        self.look(database, Commits::is_kept)
    }

    /// Before anything else is done to the database: what is in its journal is in the device, and the pages that waited
    /// with that after it.
    pub fn send(&self, client: &Client, database: &[u8]) -> Done {
        let (journals, pages) = self.look(database, |commit| (commit.journals.clone(), commit.pages.clone()));
        journals.iter().try_for_each(|journal| journal.send(client))?;
        let sent = pages.map_or(Ok(()), |pages| pages.write());
        sent.map_err(|e| Fault::of(code::IOERR_WRITE, e, || shown("write", database)))
    }

    /// Before its journal is ended: pages that no sync has asked for are there, all or none.
    pub fn finish(&self, database: &[u8], code: i32) -> Done {
        let Some(pages) = self.look(database, |commit| commit.pages.clone()) else { return Ok(()) };
        if pages.is_empty() {
            return Ok(());
        }
        let failed = |e| Fault::of(code, e, || shown("commit", database));
        match pages.commit(Durability::Volatile).map_err(failed)? {
            true => Ok(()),
            // There is no journal any more that could take them another way.
            false => {
                drop(pages.take());
                Err(Fault::of(code::IOERR_WRITE, Errno::NOSPC, || shown("commit", database)))
            }
        }
    }

    /// Whether the journal that is removed now was never made.
    pub fn was_unmade(&self, database: &[u8]) -> bool {
        self.change(database, |commit| std::mem::take(&mut commit.unmade))
    }

    /// Its connection has nothing to itself any more. What waits is of a transaction that failed.
    pub fn over(&self, database: &[u8]) {
        let pages = self.change(database, |commit| {
            commit.unmade = false;
            commit.pages.take()
        });
        drop(pages.map(|pages| pages.take()));
    }

    /// Puts a sync off, if there is a journal whose end will make up for it. That one is owed from before, of a journal
    /// whose end failed, is no reason to.
    pub fn put_off(&self, database: &[u8]) -> bool {
        self.change(database, |commit| {
            let put_off = !commit.journals.is_empty() && !Commits::is_kept(commit);
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
    use weldfs_kernel_shim::{Embedded, Source};
    use weldfs_storagefs::device::DeviceConfig;

    #[test]
    fn a_sync_that_is_owed_from_before_puts_no_other_one_off() {
        let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
        let client = Client::with(Arc::new(embedded)).unwrap();
        let name = Name { target: "d.img".into(), path: b"/a.db-journal".to_vec() };
        let journal = Arc::new(Journal::of(name, client.create("/a.db-journal").unwrap(), 0, false));
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
