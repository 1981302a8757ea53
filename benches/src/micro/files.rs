//! The files that operations work on, made and checked the same way on every system, outside of what is timed.
//!
//! Every record starts with a stamp: its number and the serial number of the run that wrote it. A run is checked
//! afterwards, on files read back by ordinary calls: a system that skipped work fails, it is not reported as fast.

use super::catalogue::{self, layout};
use super::cell::{Cell, FIELD, FIELD_AT, MicroOp};
use std::io;
use std::path::{Path, PathBuf};
use weldfs::{Client, OpenOptions};

/// Bytes of the file that records are read from and written to.
const DATA: u64 = 4 << 20;
/// Bytes of the checksum behind a record that has one.
pub(super) const SUM: usize = 4;
/// Files that are opened by name.
pub(super) const FILES: u64 = 256;
/// What a record's bytes are, behind the stamp.
const FILL: u8 = 0x5a;
/// What a read-modify-write combines the field with by exclusive or.
pub(super) const MASK: [u8; FIELD] = [0xa5; FIELD];

/// A tree of files, reached by ordinary calls.
pub(crate) trait Tree {
    fn make_dir(&self, path: &str) -> io::Result<()>;
    /// Makes or replaces a file.
    fn put(&self, path: &str, data: &[u8]) -> io::Result<()>;
    /// Fills the room from an offset, or fails.
    fn get(&self, path: &str, offset: u64, room: &mut [u8]) -> io::Result<()>;
    fn size(&self, path: &str) -> io::Result<u64>;
    /// Entries of a directory.
    fn count(&self, path: &str) -> io::Result<u64>;
    fn exists(&self, path: &str) -> bool;
    fn remove_all(&self, path: &str) -> io::Result<()>;
}

impl Tree for Client {
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.create_dir(path)
    }

    fn put(&self, path: &str, data: &[u8]) -> io::Result<()> {
        self.write(path, data)
    }

    fn get(&self, path: &str, offset: u64, room: &mut [u8]) -> io::Result<()> {
        self.open(path, &OpenOptions::new().read(true))?.read_exact_at(room, offset)
    }

    fn size(&self, path: &str) -> io::Result<u64> {
        Ok(self.metadata(path)?.len())
    }

    fn count(&self, path: &str) -> io::Result<u64> {
        let entries = self.open_dir(path)?.entries().collect::<io::Result<Vec<_>>>()?;
        Ok(entries.iter().filter(|e| e.is_file()).count() as u64)
    }

    fn exists(&self, path: &str) -> bool {
        Client::exists(self, path).unwrap_or(false)
    }

    fn remove_all(&self, path: &str) -> io::Result<()> {
        Client::remove_all(self, path)
    }
}

/// A directory of the host; names are relative to it.
pub(crate) struct HostTree(pub PathBuf);

impl HostTree {
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }
}

impl Tree for HostTree {
    fn make_dir(&self, path: &str) -> io::Result<()> {
        std::fs::create_dir(self.path(path))
    }

    fn put(&self, path: &str, data: &[u8]) -> io::Result<()> {
        std::fs::write(self.path(path), data)
    }

    fn get(&self, path: &str, offset: u64, room: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::open(self.path(path))?, room, offset)
    }

    fn size(&self, path: &str) -> io::Result<u64> {
        Ok(self.path(path).metadata()?.len())
    }

    fn count(&self, path: &str) -> io::Result<u64> {
        Ok(std::fs::read_dir(self.path(path))?.count() as u64)
    }

    fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    fn remove_all(&self, path: &str) -> io::Result<()> {
        std::fs::remove_dir_all(self.path(path))
    }
}

/// A payload of `size` bytes with its stamp.
pub(super) fn payload(size: u32, number: u64, run: u64) -> Vec<u8> {
    let mut data = vec![FILL; size as usize];
    stamp(&mut data, number, run);
    data
}

/// The same with its checksum behind it.
fn summed(size: u32, number: u64, run: u64) -> Vec<u8> {
    let mut data = payload(size, number, run);
    data.extend(weldfs_functions::crc32c(&data).to_le_bytes());
    data
}

/// Whether a record of that number and its checksum were read.
pub(super) fn is_summed(read: &[u8], number: u64) -> io::Result<()> {
    let (data, sum) = read.split_at(read.len() - SUM);
    if data[..8] == number.to_le_bytes() && weldfs_functions::crc32c(data).to_le_bytes() == sum {
        return Ok(());
    }
    Err(io::Error::other(format!("what was read is not record {number}, or its checksum is another")))
}

/// The payload of an operation: for compression one that compresses by half.
pub(super) fn content(op: MicroOp, size: u32, run: u64) -> Vec<u8> {
    if op == MicroOp::CompressWrite { catalogue::mixed(size, 0, run) } else { payload(size, 0, run) }
}

/// Puts the stamp into the first 16 bytes.
pub(super) fn stamp(data: &mut [u8], number: u64, run: u64) {
    data[..8].copy_from_slice(&number.to_le_bytes());
    data[8..16].copy_from_slice(&run.to_le_bytes());
}

/// Writes `f0000123` behind which the caller puts a NUL where it needs one; all names have the same length.
pub(super) fn name_of(number: u64, into: &mut [u8; NAME]) {
    into[0] = b'f';
    let mut left = number;
    for digit in into[1..].iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
}

/// Bytes of a name.
pub(super) const NAME: usize = 8;

pub(super) fn name(number: u64) -> String {
    let mut bytes = [0; NAME];
    name_of(number, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What one thread of one run works on.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The folder, from the root of the tree.
    pub folder: String,
    /// The file in it, where the operation is on one file.
    pub file: Option<&'static str>,
    /// Files in it that stay open, where there are several or other ones.
    pub open: Vec<String>,
    /// Whether it is removed after the run.
    fresh: bool,
    /// Operations of this thread.
    pub count: u64,
    /// The run's serial number.
    pub run: u64,
    /// Fields of the records that are checked, as they were before.
    before: Vec<[u8; FIELD]>,
}

/// Records in the data file.
pub(super) fn records(size: u32) -> u64 {
    (DATA / u64::from(size)).max(1)
}

/// Which record or file the `i`th operation works on: all of them in turn, in an order without pattern (multiplying by
/// an odd number permutes the residues of a power of two).
pub(super) fn pick(i: u64, among: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b1) % among
}

fn wrong(tree: &str, what: &str) -> io::Error {
    io::Error::other(format!("{tree}: the work was not done: {what}"))
}

impl Place {
    /// Makes what the operation needs, if it is not there.
    pub(super) fn prepare(tree: &dyn Tree, cell: &Cell, thread: u32, run: u64, count: u64) -> io::Result<Place> {
        use MicroOp::*;
        let size = cell.size;
        let shape = catalogue::is_one(cell.op).then(|| layout::shape(cell.op));
        let own = shape.as_ref().map(|shape| {
            let which = if shape.fresh { format!("{run}-{thread}") } else { format!("{size}-{thread}") };
            (format!("/{}-{which}", shape.folder), None, shape.fresh)
        });
        let (folder, file, fresh) = match cell.op {
            _ if own.is_some() => own.unwrap_or_default(),
            AppendChecksumWrite | AppendChecksumWriteGathered | Append => {
                (format!("/log-{run}-{thread}"), Some("log"), true)
            }
            OpenWriteClose | OpenWriteCloseBatched => (format!("/new-{run}-{thread}"), None, true),
            Write | Read | ReadModifyWrite | ReadModifyWriteNarrow => {
                (format!("/data-{size}-{thread}"), Some("data"), false)
            }
            ReadChecksumVerify => (format!("/summed-{size}-{thread}"), Some("data"), false),
            OpenReadClose | OpenReadCloseCopied | OpenReadCloseBatched | OpenReadWriteClose => {
                (format!("/set-{size}-{thread}"), None, false)
            }
            _ => return Err(io::Error::other(format!("{} has no files", cell.op.name()))),
        };
        let open = shape.map_or_else(Vec::new, |shape| shape.open);
        let mut place = Place { folder, file, open, fresh, count, run, before: Vec::new() };
        if !tree.exists(&place.folder) {
            place.fill(tree, cell)?;
        }
        if matches!(cell.op, ReadModifyWrite | ReadModifyWriteNarrow) {
            for i in place.samples() {
                place.before.push(field(tree, &place.path("data"), pick(i, records(size)), size)?);
            }
        }
        Ok(place)
    }

    fn fill(&self, tree: &dyn Tree, cell: &Cell) -> io::Result<()> {
        let size = cell.size;
        tree.make_dir(&self.folder)?;
        match self.file {
            _ if catalogue::is_one(cell.op) => layout::fill(tree, &self.folder, cell, self.run),
            Some("data") => {
                let sums = cell.op == MicroOp::ReadChecksumVerify;
                let record = |i| if sums { summed(size, i, self.run) } else { payload(size, i, self.run) };
                let all: Vec<u8> = (0..records(size)).flat_map(record).collect();
                tree.put(&self.path("data"), &all)
            }
            Some(file) => tree.put(&self.path(file), &[]),
            None if self.fresh => Ok(()),
            None => (0..FILES).try_for_each(|i| tree.put(&self.path(&name(i)), &payload(size, i, self.run))),
        }
    }

    /// The path of a name in its folder.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// The operations whose outcome is looked at: first, middle, last.
    fn samples(&self) -> [u64; 3] {
        [0, self.count / 2, self.count.saturating_sub(1)]
    }

    /// Looks whether the work was done.
    pub(super) fn verify(&self, tree: &dyn Tree, who: &str, cell: &Cell) -> io::Result<()> {
        use MicroOp::*;
        let size = u64::from(cell.size);
        match cell.op {
            AppendChecksumWrite | AppendChecksumWriteGathered => self.verify_log(tree, who, cell, size + 4),
            Append => self.verify_log(tree, who, cell, size),
            Write => self.samples().into_iter().try_for_each(|i| {
                let at = pick(i, records(cell.size));
                self.expect(tree, who, &self.path("data"), at * size, at)
            }),
            // Every read compared the record's number.
            Read | ReadChecksumVerify | OpenReadClose | OpenReadCloseCopied | OpenReadCloseBatched => Ok(()),
            OpenWriteClose | OpenWriteCloseBatched => {
                let found = tree.count(&self.folder)?;
                if found != self.count {
                    return Err(wrong(who, &format!("{found} files instead of {}", self.count)));
                }
                self.samples().into_iter().try_for_each(|i| {
                    let path = self.path(&name(i));
                    self.expect_size(tree, who, &path, size)?;
                    self.expect(tree, who, &path, 0, i)
                })
            }
            OpenReadWriteClose => self.samples().into_iter().try_for_each(|i| {
                let at = pick(i, FILES);
                let path = self.path(&name(at));
                self.expect_size(tree, who, &path, size)?;
                self.expect(tree, who, &path, 0, at)
            }),
            ReadModifyWrite | ReadModifyWriteNarrow => self.verify_fields(tree, who, cell),
            _ => self.samples().into_iter().try_for_each(|i| {
                let verdict = layout::verify(tree, &self.folder, cell, self.run, (i, self.count));
                verdict.map_err(|e| io::Error::other(format!("{who}: {e}")))
            }),
        }
    }

    fn expect_size(&self, tree: &dyn Tree, who: &str, path: &str, size: u64) -> io::Result<()> {
        let found = tree.size(path)?;
        if found == size { Ok(()) } else { Err(wrong(who, &format!("{path} has {found} bytes instead of {size}"))) }
    }

    /// A record with this number, written by this run.
    fn expect(&self, tree: &dyn Tree, who: &str, path: &str, offset: u64, number: u64) -> io::Result<()> {
        let (mut found, mut due) = ([0; 16], [0; 16]);
        tree.get(path, offset, &mut found)?;
        stamp(&mut due, number, self.run);
        let at = || format!("{path} at {offset} holds {found:02x?} instead of {due:02x?}");
        if found == due { Ok(()) } else { Err(wrong(who, &at())) }
    }

    fn verify_log(&self, tree: &dyn Tree, who: &str, cell: &Cell, step: u64) -> io::Result<()> {
        let path = self.path("log");
        self.expect_size(tree, who, &path, self.count * step)?;
        for i in self.samples() {
            self.expect(tree, who, &path, i * step, i)?;
            if step > u64::from(cell.size) {
                let mut record = vec![0; step as usize];
                tree.get(&path, i * step, &mut record)?;
                let (data, sum) = record.split_at(cell.size as usize);
                if weldfs_functions::crc32c(data).to_le_bytes() != sum {
                    return Err(wrong(who, &format!("the checksum of record {i} is another")));
                }
            }
        }
        Ok(())
    }

    fn verify_fields(&self, tree: &dyn Tree, who: &str, cell: &Cell) -> io::Result<()> {
        let among = records(cell.size);
        for (i, before) in self.samples().into_iter().zip(&self.before) {
            let at = pick(i, among);
            let changes = (0..self.count).filter(|j| pick(*j, among) == at).count();
            let mut due = *before;
            if changes % 2 == 1 {
                due.iter_mut().zip(MASK).for_each(|(b, m)| *b ^= m);
            }
            if field(tree, &self.path("data"), at, cell.size)? != due {
                return Err(wrong(who, &format!("the field of record {at} is not what {changes} changes make of it")));
            }
        }
        Ok(())
    }

    /// Removes what only this run needed.
    pub(super) fn clear(&self, tree: &dyn Tree) -> io::Result<()> {
        if self.fresh { tree.remove_all(&self.folder) } else { Ok(()) }
    }
}

fn field(tree: &dyn Tree, path: &str, record: u64, size: u32) -> io::Result<[u8; FIELD]> {
    let mut bytes = [0; FIELD];
    tree.get(path, record * u64::from(size) + FIELD_AT as u64, &mut bytes)?;
    Ok(bytes)
}

/// Makes sure that the root of the host's files is there.
pub(crate) fn host_tree(dir: &Path) -> io::Result<(tempfile::TempDir, HostTree)> {
    let folder = tempfile::Builder::new().prefix("weldfs-micro-").tempdir_in(dir)?;
    let tree = HostTree(folder.path().to_owned());
    Ok((folder, tree))
}
