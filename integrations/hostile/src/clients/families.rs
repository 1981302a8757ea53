//! What a hostile client does: the attacks by name.

use super::attacks::{load, names, rings, sessions};
use std::io;
use std::path::PathBuf;
use weldfs::Client;

/// Where the attacker may work.
pub const HOME: &str = "/attacker";

/// What an attack has.
pub struct Ground {
    pub socket: PathBuf,
    pub client: Client,
}

/// One way to attack.
pub struct Family {
    pub name: &'static str,
    pub about: &'static str,
    /// Commands in flight: as many as the honest neighbour has that it is compared with.
    pub depth: u32,
    /// Gets ready (as the attacker), then the tester is told.
    pub prepare: fn(&Ground) -> io::Result<()>,
    /// Does not return before it is killed.
    pub attack: fn(&Ground) -> io::Result<()>,
    /// By two users, on a device that has few descriptors.
    pub two: bool,
}

fn nothing(_: &Ground) -> io::Result<()> {
    Ok(())
}

const fn family(name: &'static str, depth: u32, about: &'static str, attack: fn(&Ground) -> io::Result<()>) -> Family {
    Family { name, about, depth, prepare: nothing, attack, two: false }
}

impl Family {
    const fn after(self, prepare: fn(&Ground) -> io::Result<()>) -> Family {
        Family { prepare, ..self }
    }

    const fn by_two(self) -> Family {
        Family { two: true, ..self }
    }
}

/// All of them.
pub const FAMILIES: &[Family] = &[
    family("hold-change", 4, "programs that compute, then change names they may not", names::hold_change)
        .after(names::noise),
    family(
        "hold-search",
        4,
        "programs that compute, then name what is not there in a folder of the victim",
        names::hold_search,
    )
    .after(names::noise),
    family("hold-read", 4, "programs that compute over a file of the victim that all may read", names::hold_read)
        .after(names::noise),
    family(
        "hold-done",
        4,
        "programs that change a file, then compute over it and names of the victim",
        names::hold_done,
    )
    .after(names::noise),
    family("walks", 4, "paths of 39 symbolic links of 4 KiB", names::walks).after(names::links),
    family("walk-programs", 4, "programs of 16 renames along such paths", names::walk_programs).after(names::links),
    family("deep-rename", 4, "renames of a directory into one that lies deep below it", names::rename)
        .after(names::deep),
    family("xattrs", 4, "attributes set on a file that has thousands", names::xattrs).after(names::many_xattrs),
    family("seeks", 4, "seeks over thousands of fragments", names::seeks).after(names::fragments),
    family("lock-joins", 4, "thousands of locks on bytes, joined and split again", names::lock_joins),
    family("locks-of-others", 8, "locks by PATH handles and by readers on files of the victim", names::locks),
    family("backlog", 4096, "checksums of 16 TiB, published by the thousand", load::backlog).after(load::sparse),
    family("batches", 1024, "batches of 256 writes, published by the hundred", load::batches),
    family("programs", 1024, "batches of 256 programs, published by the hundred", load::programs),
    family("nops", 1024, "commands that do nothing, as many as fit", load::nops),
    family("memory", 256, "long reads and checksums, handles and names without end", load::memory),
    family("greedy", 64, "writes until there is no room, again and again", load::greedy),
    family("random-entries", 128, "entries with every field anything, buffers anywhere", rings::entries),
    family("flipped-bytes", 128, "a thread that flips bytes of ring and pool", rings::flips),
    family("cursors", 64, "cursors out of range, session after session: also a flood of the log", rings::cursors),
    family("taken-back", 64, "published entries that are taken back", rings::taken_back),
    family("attaches", 8, "attaching and detaching as fast as it goes", sessions::attaches),
    family("churn", 8, "queue pairs of 64 MiB, made and dropped", sessions::churn),
    family("control", 64, "requests for statistics and small queue pairs, over many connections", sessions::control),
    family("exhaustion", 8, "sessions, connections and placeholders, held by two users", sessions::exhaustion).by_two(),
    family("descriptors", 8, "descriptors sent along whose close takes long", sessions::descriptors),
];

/// The family of a name.
pub fn find(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.name == name)
}

/// With this in the environment, an attacker says on stderr what its threads are refused first, and a victim how long
/// each of its commands took.
pub const SAY: &str = "WELDFS_HOSTILE_SAY";

/// Runs `work` in so many threads without end. What the device refuses to the attacker is its right.
pub fn forever(threads: u32, work: impl Fn(u32) -> io::Result<()> + Sync) -> io::Result<()> {
    std::thread::scope(|scope| {
        for i in 0..threads {
            let work = &work;
            scope.spawn(move || {
                let mut say = std::env::var_os(SAY).is_some();
                loop {
                    if let Err(e) = work(i) {
                        if std::mem::take(&mut say) {
                            eprintln!("thread {i}: {e}");
                        }
                        // A device that refuses everything is not asked in a busy loop.
                        std::thread::sleep(std::time::Duration::from_micros(50));
                    }
                }
            });
        }
    });
    Ok(())
}

/// A number that differs each time.
pub fn seed() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)
}
