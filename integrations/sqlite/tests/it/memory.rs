//! A device in the memory of the test, with what it counts.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use crate::rig::{connect, register};
use rusqlite::Connection;
use std::sync::Arc;
use weldfs::Client;
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};
use weldfs_sqlite::{Provided, Way};

/// A device in memory, found under the name of a file.
pub struct Memory {
    embedded: Embedded,
    dir: tempfile::TempDir,
    _provided: Provided,
}

impl Memory {
    /// Of so many bytes.
    pub fn new(bytes: u64, way: Way) -> Memory {
        register();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("memory"), "").unwrap();
        let embedded = Embedded::open(&Source::Ram(bytes), DeviceConfig::default()).unwrap();
        let client = Client::with(Arc::new(embedded.clone())).unwrap();
        let provided = weldfs_sqlite::provide(&dir.path().join("memory"), client, way).unwrap();
        Memory { embedded, dir, _provided: provided }
    }

    /// A connection.
    pub fn open(&self, name: &str) -> Connection {
        connect(&self.name(name)).unwrap()
    }

    /// A file in it, as SQLite names it.
    pub fn name(&self, file: &str) -> String {
        format!("{}:/{file}", self.dir.path().join("memory").display())
    }

    /// A client beside the databases.
    pub fn client(&self) -> Client {
        Client::with(Arc::new(self.embedded.clone())).unwrap()
    }

    /// Flushes of the log and commands of a kind since the start.
    pub fn counted(&self, opcode: u16) -> (u64, u64) {
        let stats = self.embedded.device().stats();
        (stats.log.flushes, stats.total.of(opcode))
    }
}

/// Opcodes of docs/COMMANDS.md.
pub const OPEN: u16 = 1;
pub const WRITE: u16 = 4;
pub const FDATASYNC: u16 = 9;
pub const TXN_COMMIT: u16 = 27;
pub const UNLINK: u16 = 34;
pub const PROGRAM: u16 = 70;

/// Ways to end a transaction with a rollback journal, and the flushes of each.
pub const ENDS: [(&str, &str, u64); 8] = [
    ("delete", "full", 1),
    ("delete", "extra", 1),
    ("delete", "normal", 1),
    ("truncate", "full", 1),
    ("truncate", "normal", 1),
    ("persist", "full", 1),
    ("memory", "full", 1),
    ("delete", "off", 0),
];

/// A database with so many rows, each on a page of its own.
pub fn rows_of_a_page(memory: &Memory, name: &str, rows: i64) -> Connection {
    let db = memory.open(name);
    db.execute_batch("create table t(x integer primary key, y, z default 0)").unwrap();
    let fill = "insert into t(x, y) select x, zeroblob(3000) from
                (with recursive s(x) as (select 1 union all select x + 1 from s where x < ?) select x from s)";
    db.execute(fill, [rows]).unwrap();
    db
}
