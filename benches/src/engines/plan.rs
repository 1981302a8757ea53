//! What is measured: engines, workloads, and the cells that they make with sizes of values, threads and journals.

/// A storage engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Engine {
    /// RocksDB.
    RocksDb,
    /// LevelDB.
    LevelDb,
    /// SQLite.
    Sqlite,
}

impl Engine {
    /// All of them.
    pub const ALL: [Engine; 3] = [Engine::RocksDb, Engine::LevelDb, Engine::Sqlite];

    /// Name in tables, JSON and `--engines`; its driver is `weldfs-drive-NAME`.
    pub fn name(self) -> &'static str {
        match self {
            Engine::RocksDb => "rocksdb",
            Engine::LevelDb => "leveldb",
            Engine::Sqlite => "sqlite",
        }
    }
}

/// What an engine does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Workload {
    /// Every key once, ascending, in a new database.
    FillSeq,
    /// Keys at random, in a new database.
    FillRandom,
    /// The same, each put durable.
    FillSync,
    /// Values of keys at random.
    ReadRandom,
    /// An iterator set to a key at random.
    SeekRandom,
    /// Keys at random over what is there.
    Overwrite,
    /// Reads beside a thread that writes.
    ReadWhileWriting,
    /// Half reads, half updates.
    YcsbA,
    /// 95 % reads, 5 % updates.
    YcsbB,
    /// Reads.
    YcsbC,
    /// Half reads, half reads with an update.
    YcsbF,
    /// 95 % reads of what was inserted last, 5 % inserts.
    YcsbD,
    /// 95 % short scans, 5 % inserts.
    YcsbE,
    /// Transactions that insert a row.
    OneRow,
    /// Transactions that insert a hundred rows.
    HundredRows,
    /// Transactions that read or update a row.
    Mixed,
}

impl Workload {
    /// All of them, in the order in which they are run on a database: what leaves it as it was comes first, and YCSB
    /// in the order that its authors recommend.
    pub const ALL: [Workload; 16] = [
        Workload::FillSeq,
        Workload::FillRandom,
        Workload::FillSync,
        Workload::ReadRandom,
        Workload::SeekRandom,
        Workload::Overwrite,
        Workload::ReadWhileWriting,
        Workload::YcsbA,
        Workload::YcsbB,
        Workload::YcsbC,
        Workload::YcsbF,
        Workload::YcsbD,
        Workload::YcsbE,
        Workload::OneRow,
        Workload::HundredRows,
        Workload::Mixed,
    ];

    /// Name in tables, JSON, `--workloads` and for the drivers.
    pub fn name(self) -> &'static str {
        match self {
            Workload::FillSeq => "fillseq",
            Workload::FillRandom => "fillrandom",
            Workload::FillSync => "fillsync",
            Workload::ReadRandom => "readrandom",
            Workload::SeekRandom => "seekrandom",
            Workload::Overwrite => "overwrite",
            Workload::ReadWhileWriting => "readwhilewriting",
            Workload::YcsbA => "ycsb-a",
            Workload::YcsbB => "ycsb-b",
            Workload::YcsbC => "ycsb-c",
            Workload::YcsbF => "ycsb-f",
            Workload::YcsbD => "ycsb-d",
            Workload::YcsbE => "ycsb-e",
            Workload::OneRow => "one-row",
            Workload::HundredRows => "hundred-rows",
            Workload::Mixed => "mixed",
        }
    }

    fn transactions(self) -> bool {
        matches!(self, Workload::OneRow | Workload::HundredRows | Workload::Mixed)
    }

    pub(super) fn ycsb(self) -> bool {
        self.name().starts_with("ycsb")
    }

    /// Whether what it writes is durable when the call returns.
    pub(super) fn durable(self) -> bool {
        self == Workload::FillSync || self.transactions()
    }

    /// Whether it begins with a database of its own that is empty.
    pub(super) fn fresh(self) -> bool {
        matches!(self, Workload::FillSeq | Workload::FillRandom | Workload::FillSync)
    }

    fn of(self, engine: Engine) -> bool {
        self.transactions() == (engine == Engine::Sqlite)
    }
}

/// How SQLite can undo: by a rollback journal; by none where the file system writes all pages at once, else by such a
/// journal, with an SQLite of its own; by a write-ahead log; by one of a single connection, whose index is not shared.
pub const JOURNALS: [&str; 4] = ["delete", BATCH, "wal", "wal-exclusive"];
const BATCH: &str = "batch";
/// The driver of an SQLite with batch atomic writes.
pub(super) const SQLITE_BATCH: &str = "sqlite-batch";
/// Bytes of a record of YCSB: ten fields of 100.
const YCSB_VALUE: u64 = 1000;
/// Bytes of a value in SQLite's rows, and those from which `keys` counts the bytes of a set.
const ROW_VALUE: u64 = 100;
/// Bytes of a key.
const KEY: u64 = 16;
/// RocksDB's workloads that are run with checksums handed over, too.
const HANDED_OVER: [Workload; 2] = [Workload::FillRandom, Workload::FillSync];

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Engines.
    pub engines: Vec<Engine>,
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// SQLite's journals, of [`JOURNALS`].
    pub journals: Vec<&'static str>,
    /// Bytes of a value, several times; YCSB and SQLite have their own.
    pub values: Vec<u64>,
    /// Threads, several times; what is of one thread is run with one.
    pub threads: Vec<u32>,
    /// Keys of a set with values of 100 bytes; other sets have about as many bytes.
    pub keys: u64,
}

/// One cell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Cell {
    pub(super) engine: Engine,
    pub(super) workload: Workload,
    pub(super) value: u64,
    pub(super) threads: u32,
    /// Checksums handed to the file system (RocksDB).
    pub(super) handoff: bool,
    /// SQLite's journal; else empty.
    pub(super) journal: &'static str,
}

/// Cells that are run on the same database.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) cells: Vec<Cell>,
}

impl Group {
    /// Whether any of its cells needs a database with all keys in it.
    pub(super) fn loads(&self) -> bool {
        self.cells.iter().any(|c| !c.workload.fresh())
    }
}

impl Cell {
    /// What runs it: `weldfs-drive-NAME`.
    pub(super) fn driver(&self) -> &'static str {
        if self.journal == BATCH { SQLITE_BATCH } else { self.engine.name() }
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        let threads = if self.threads == 1 { String::new() } else { format!(", {} threads", self.threads) };
        let journal = if self.journal.is_empty() { String::new() } else { format!(", {}", self.journal) };
        let handoff = if self.handoff { ", checksums handed over" } else { "" };
        format!("{} {}, {} bytes{threads}{journal}{handoff}", self.engine.name(), self.workload.name(), self.value)
    }
}

impl Plan {
    /// Bytes of a set, about.
    pub fn bytes(&self) -> u64 {
        self.keys * (KEY + ROW_VALUE)
    }

    /// Keys of a set with values of this size.
    pub(super) fn keys_of(&self, value: u64) -> u64 {
        (self.bytes() / (KEY + value)).max(1)
    }

    /// All cells, by the database that they are run on.
    pub(super) fn groups(&self) -> Vec<Group> {
        let mut groups = Vec::new();
        for &engine in &self.engines {
            if engine == Engine::Sqlite {
                groups.extend(self.journals.iter().map(|journal| self.group(engine, ROW_VALUE, journal, |_| true)));
                continue;
            }
            groups.extend(self.values.iter().map(|value| self.group(engine, *value, "", |w| !w.ycsb())));
            groups.push(self.group(engine, YCSB_VALUE, "", Workload::ycsb));
        }
        groups.retain(|g| !g.cells.is_empty());
        groups
    }

    fn group(&self, engine: Engine, value: u64, journal: &'static str, has: impl Fn(Workload) -> bool) -> Group {
        let mut cells = Vec::new();
        let wanted = |w: &Workload| w.of(engine) && has(*w) && self.workloads.contains(w);
        for workload in Workload::ALL.into_iter().filter(wanted) {
            let single = engine == Engine::Sqlite || workload == Workload::FillSeq;
            for &threads in if single { &[1][..] } else { &self.threads[..] } {
                let cell = Cell { engine, workload, value, threads, handoff: false, journal };
                cells.push(cell);
                if engine == Engine::RocksDb && HANDED_OVER.contains(&workload) {
                    cells.push(Cell { handoff: true, ..cell });
                }
            }
        }
        Group { cells }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(engines: &[Engine], workloads: &[Workload]) -> Plan {
        let (engines, workloads, journals) = (engines.to_vec(), workloads.to_vec(), JOURNALS.to_vec());
        Plan { engines, workloads, journals, values: vec![100, 4096], threads: vec![1, 4], keys: 1000 }
    }

    #[test]
    fn every_engine_has_its_own_workloads_in_every_size() {
        let groups = plan(&[Engine::LevelDb], &Workload::ALL).groups();
        let cells: Vec<usize> = groups.iter().map(|g| g.cells.len()).collect();
        assert_eq!(cells, [13, 13, 12], "two sizes of values, and YCSB: fillseq has one thread");
        let sqlite = plan(&[Engine::Sqlite], &Workload::ALL).groups();
        assert_eq!(
            sqlite.iter().map(|g| (g.cells.len(), g.cells[0].journal, g.cells[0].driver())).collect::<Vec<_>>(),
            [(3, "delete", "sqlite"), (3, "batch", SQLITE_BATCH), (3, "wal", "sqlite"), (3, "wal-exclusive", "sqlite")]
        );
        assert!(sqlite.iter().flat_map(|g| &g.cells).all(|c| c.threads == 1 && c.workload.durable()));
    }

    #[test]
    fn checksums_are_handed_over_by_rocksdb_beside_the_same_without() {
        let of = |engine| {
            let groups = plan(&[engine], &[Workload::FillSync, Workload::ReadRandom]).groups();
            groups.iter().flat_map(|g| &g.cells).filter(|c| c.handoff).count()
        };
        assert_eq!((of(Engine::RocksDb), of(Engine::LevelDb)), (4, 0));
    }

    #[test]
    fn sets_have_about_the_same_bytes_and_are_loaded_where_they_are_read() {
        let p = plan(&[Engine::RocksDb], &[Workload::FillSeq]);
        assert_eq!((p.bytes(), p.keys_of(100), p.keys_of(4096)), (116_000, 1000, 28));
        assert!(!p.groups()[0].loads());
        assert!(plan(&[Engine::RocksDb], &[Workload::YcsbC]).groups()[0].loads());
        assert!(plan(&[Engine::Sqlite], &[Workload::YcsbC]).groups().is_empty());
    }
}
