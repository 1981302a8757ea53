//! An exerciser of the API, as fsx is one of system calls: random operations on two files, each checked against arrays
//! of bytes, on a device whose commands run on the calling thread and on one that is served at a socket.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;
use weldfs::{
    At, Change, Client, Durability, Errno, FallocMode, File, OpenFlags, OpenOptions, Payload, Room, SocketConnector,
    Whence,
};
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, ServeConfig, Server, Source};

/// Operations, half of them on each kind of device.
const OPS: u64 = 1_000_000;
/// Bytes of a file at most.
const FILE_MAX: usize = 256 << 10;
/// Bytes of most operations at most.
const LEN_MAX: usize = 16 << 10;
/// Operations between two comparisons of everything.
const COMPARE: u64 = 1000;
/// Operations that a failure tells of.
const TOLD: usize = 12;

const NAMES: [&str; 2] = ["/x", "/y"];

type Checked = Result<(), String>;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// A file, as it should be and as it is.
struct Pair {
    name: &'static str,
    bytes: Vec<u8>,
    file: File,
    append: bool,
    /// Where reads and writes without an offset go on.
    at: usize,
}

struct Exerciser {
    client: Client,
    rng: StdRng,
    pairs: [Pair; 2],
    /// The latest operations.
    told: VecDeque<String>,
    done: u64,
}

fn options(append: bool) -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true).append(append)
}

/// Makes room up to `end`, and puts bytes there.
fn put(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    bytes.resize(bytes.len().max(at + data.len()), 0);
    bytes[at..at + data.len()].copy_from_slice(data);
}

impl Exerciser {
    fn new(client: Client, seed: u64) -> Exerciser {
        let pairs = NAMES.map(|name| {
            let file = client.open(name, &options(false)).unwrap();
            Pair { name, bytes: Vec::new(), file, append: false, at: 0 }
        });
        let told = VecDeque::new();
        Exerciser { client, rng: StdRng::seed_from_u64(seed), pairs, told, done: 0 }
    }

    /// An offset, mostly within the file, and a length that ends before the largest one.
    fn range(&mut self, n: usize) -> (usize, usize) {
        let size = self.pairs[n].bytes.len();
        let limit = if self.rng.random_ratio(1, 10) { FILE_MAX } else { (size + LEN_MAX).min(FILE_MAX) };
        let mut at = self.rng.random_range(0..limit);
        if self.rng.random_ratio(1, 4) {
            at -= at % 4096;
        }
        let max = if self.rng.random_ratio(1, 50) { 96 << 10 } else { LEN_MAX };
        let mut len = self.rng.random_range(0..=max.min(FILE_MAX - at));
        if self.rng.random_ratio(1, 4) {
            len -= len % 4096;
        }
        (at, len)
    }

    fn data(&mut self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.rng.fill(&mut data[..]);
        data
    }

    /// What a read must give.
    fn expected(&self, n: usize, at: usize, len: usize) -> Vec<u8> {
        let bytes = &self.pairs[n].bytes;
        bytes[at.min(bytes.len())..(at + len).min(bytes.len())].to_vec()
    }

    fn tell(&mut self, n: usize, what: String) {
        if self.told.len() == TOLD {
            self.told.pop_front();
        }
        self.told.push_back(format!("{} {}: {what}", self.done, self.pairs[n].name));
    }

    /// Runs so many operations. The first difference is told with the operations before it.
    fn run(&mut self, ops: u64) -> Checked {
        for _ in 0..ops {
            self.done += 1;
            let n = usize::from(self.rng.random_ratio(1, 3));
            self.step(n).and_then(|()| self.size(n)).map_err(|why| self.failed(&why))?;
            if self.done.is_multiple_of(COMPARE) {
                self.compare().map_err(|why| self.failed(&why))?;
            }
        }
        self.compare().map_err(|why| self.failed(&why))
    }

    fn failed(&self, why: &str) -> String {
        let told: Vec<&str> = self.told.iter().map(String::as_str).collect();
        format!("operation {}: {why}; the latest:\n{}", self.done, told.join("\n"))
    }

    fn step(&mut self, n: usize) -> Checked {
        match self.rng.random_range(0..100) {
            0..22 => self.read(n),
            22..44 => self.write(n),
            44..50 => self.append(n),
            50..55 => self.truncate(n),
            55..67 => self.allocate(n),
            67..75 => self.copy(n),
            75..80 => self.reopen(n),
            80..88 => self.stream(n),
            88..94 => self.fused(n),
            94..98 => self.seek(n),
            _ => {
                self.tell(n, "fdatasync".to_owned());
                self.pairs[n].file.sync_data().map_err(said)
            }
        }
    }

    /// Into memory, into three pieces of it, or into a buffer that the device sees.
    fn read(&mut self, n: usize) -> Checked {
        let ((at, len), how) = (self.range(n), self.rng.random_range(0..3));
        self.tell(n, format!("read {len} at {at}, way {how}"));
        let (expected, file) = (self.expected(n, at, len), &self.pairs[n].file);
        let mut room = vec![0xaa; len];
        let read = match how {
            0 => file.read_at(&mut room[..], at as u64).map_err(said)?,
            1 => {
                let (first, rest) = room.split_at_mut(len / 5);
                let (second, third) = rest.split_at_mut(rest.len() / 2);
                let mut parts = [first, second, third].map(IoSliceMut::new);
                file.read_at(Room::Scatter(&mut parts), at as u64).map_err(said)?
            }
            _ => {
                let mut buffer = self.client.buffer(len.max(1)).map_err(said)?;
                let read = file.read_at(&mut buffer, at as u64).map_err(said)?.min(len);
                buffer.get(0, &mut room[..read]).map_err(said)?;
                read
            }
        };
        same(&expected, &room[..read])
    }

    fn write(&mut self, n: usize) -> Checked {
        let ((at, len), how) = (self.range(n), self.rng.random_range(0..3));
        let data = self.data(len);
        let pair = &self.pairs[n];
        // What is opened to append writes at the end, wherever it is told to.
        let to = if pair.append { pair.bytes.len() } else { at };
        self.tell(n, format!("write {len} at {to}, way {how}"));
        let file = &self.pairs[n].file;
        let written = match how {
            0 => file.write_at(&data[..], at as u64).map_err(said)?,
            1 => {
                let (first, rest) = data.split_at(len / 5);
                let (second, third) = rest.split_at(rest.len() / 2);
                let parts = [first, second, third].map(IoSlice::new);
                file.write_at(Payload::Gather(&parts), at as u64).map_err(said)?
            }
            _ => {
                let mut buffer = self.client.buffer(len.max(1)).map_err(said)?;
                buffer.put(0, &data).map_err(said)?;
                file.write_at(buffer.slice(0..len), at as u64).map_err(said)?
            }
        };
        put(&mut self.pairs[n].bytes, to, &data);
        same_number("bytes written", len, written)
    }

    fn append(&mut self, n: usize) -> Checked {
        let size = self.pairs[n].bytes.len();
        let len = self.rng.random_range(0..LEN_MAX).min(FILE_MAX.saturating_sub(size));
        let data = self.data(len);
        let durable = self.rng.random_ratio(1, 8);
        self.tell(n, format!("append {len} at {size}, durable: {durable}"));
        let durability = if durable { Durability::Durable } else { Durability::Default };
        let written = self.pairs[n].file.append_with(&data[..], durability).map_err(said)?;
        put(&mut self.pairs[n].bytes, size, &data);
        same_number("offset of an append", size, written.offset as usize)?;
        same_number("bytes appended", len, written.len)
    }

    fn truncate(&mut self, n: usize) -> Checked {
        let (size, _) = self.range(n);
        let by_name = self.rng.random();
        self.tell(n, format!("truncate to {size}, by name: {by_name}"));
        let pair = &mut self.pairs[n];
        match by_name {
            true => self.client.set_len(pair.name, size as u64),
            false => pair.file.set_len(size as u64),
        }
        .map_err(said)?;
        pair.bytes.resize(size, 0);
        Ok(())
    }

    fn allocate(&mut self, n: usize) -> Checked {
        let modes = [
            FallocMode::Punch,
            FallocMode::Punch,
            FallocMode::Zero,
            FallocMode::ZeroKeepSize,
            FallocMode::Reserve,
            FallocMode::KeepSize,
        ];
        let ((at, len), mode) = (self.range(n), modes[self.rng.random_range(0..modes.len())]);
        self.tell(n, format!("allocate {mode:?} {len} at {at}"));
        let pair = &mut self.pairs[n];
        let done = pair.file.allocate(mode, at as u64, len as u64);
        if len == 0 {
            return match done.map_err(|e| e.raw_os_error()) {
                Err(Some(libc::EINVAL)) => Ok(()),
                other => Err(format!("no length: {other:?}")),
            };
        }
        done.map_err(said)?;
        if matches!(mode, FallocMode::Reserve | FallocMode::Zero) {
            pair.bytes.resize(pair.bytes.len().max(at + len), 0);
        }
        if !matches!(mode, FallocMode::Reserve | FallocMode::KeepSize) {
            let (from, to) = (at.min(pair.bytes.len()), (at + len).min(pair.bytes.len()));
            pair.bytes[from..to].fill(0);
        }
        Ok(())
    }

    /// Within a file, or to the other one; to a place, or to the end.
    fn copy(&mut self, n: usize) -> Checked {
        let to = usize::from(self.rng.random_ratio(1, 2)) ^ n;
        let ((at, len), (place, _)) = (self.range(n), self.range(to));
        let end = self.rng.random_ratio(1, 4) || self.pairs[to].append;
        let start = if end { self.pairs[to].bytes.len() } else { place };
        self.tell(n, format!("copy {len} at {at} to {} at {start}", NAMES[to]));
        let source = self.expected(n, at, len);
        if start + source.len() > FILE_MAX {
            return Ok(());
        }
        let target = if end { At::End } else { At::Offset(start as u64) };
        let (from, into) = (self.pairs[n].file.handle(), self.pairs[to].file.handle());
        let copied = self.client.raw().copy_range(from, at as u64, len as u64, into, target);
        if n == to && start < at + source.len() && at < start + source.len() {
            return if copied == Err(Errno::INVAL) { Ok(()) } else { Err(format!("onto itself: {copied:?}")) };
        }
        put(&mut self.pairs[to].bytes, start, &source);
        same_number("bytes copied", source.len(), copied.map_err(said)? as usize)
    }

    fn reopen(&mut self, n: usize) -> Checked {
        let append = self.rng.random_ratio(1, 3);
        self.tell(n, format!("reopen, append: {append}"));
        let name = NAMES[n];
        let file = self.client.open(name, &options(append)).map_err(said)?;
        let pair = &mut self.pairs[n];
        let old = std::mem::replace(&mut pair.file, file);
        (pair.append, pair.at) = (append, 0);
        old.close().map_err(said)
    }

    /// Reads and writes that go on where the last one ended.
    fn stream(&mut self, n: usize) -> Checked {
        let (place, len) = self.range(n);
        let (jumps, reads) = (self.rng.random_ratio(1, 2), self.rng.random_ratio(1, 2));
        let data = self.data(len);
        let pair = &mut self.pairs[n];
        if jumps {
            pair.at = pair.file.seek(SeekFrom::Start(place as u64)).map_err(said)? as usize;
        }
        let at = pair.at;
        self.tell(n, format!("{} {len} on from {at}", if reads { "read" } else { "write" }));
        let expected = self.expected(n, at, len);
        let pair = &mut self.pairs[n];
        if reads {
            let mut room = vec![0xaa; len];
            let read = pair.file.read(&mut room).map_err(said)?;
            pair.at += read;
            return same(&expected, &room[..read]);
        }
        let to = if pair.append { pair.bytes.len() } else { at };
        // Of no bytes: whether the offset goes to the end with O_APPEND, POSIX leaves open.
        if to + len > FILE_MAX || len == 0 {
            return Ok(());
        }
        let written = pair.file.write(&data).map_err(said)?;
        put(&mut pair.bytes, to, &data);
        pair.at = to + len;
        same_number("bytes written on", len, written)
    }

    /// Several steps in one command.
    fn fused(&mut self, n: usize) -> Checked {
        let ((at, len), kind) = (self.range(n), self.rng.random_range(0..4));
        let (name, size) = (NAMES[n], self.pairs[n].bytes.len());
        self.tell(n, format!("fused {kind}, {len} at {at}"));
        let expected = self.expected(n, at, len);
        let (mut room, flags) = (vec![0xaa; len], OpenFlags::READ | OpenFlags::WRITE);
        match kind {
            0 => {
                let read =
                    self.client.open_read_close(name, OpenFlags::READ, at as u64, &mut room[..]).map_err(said)?;
                same(&expected, &room[..read])
            }
            1 => {
                let data = self.data(len);
                let place = At::Offset(at as u64);
                let done = self.client.open_write_close(name, OpenFlags::WRITE, 0, place, &data[..]).map_err(said)?;
                put(&mut self.pairs[n].bytes, at, &data);
                same_number("bytes written", len, done.len)
            }
            2 => {
                let data = self.data(len.min(FILE_MAX - size.min(FILE_MAX)));
                let (client, from) = (&self.client, at as u64);
                let done = client.open_read_write_close(name, flags, 0, from, &mut room[..], At::End, &data[..]);
                let done = done.map_err(said)?;
                put(&mut self.pairs[n].bytes, size, &data);
                same_number("offset of the end", size, done.offset as usize)?;
                same(&expected, &room[..done.read])
            }
            _ => {
                let by: [u8; 8] = self.rng.random();
                let at = at.min(FILE_MAX - by.len());
                let mut new = self.expected(n, at, by.len());
                new.resize(by.len(), 0);
                let (old, mut got) = (new.clone(), [0; 8]);
                new.iter_mut().zip(by).for_each(|(byte, by)| *byte ^= by);
                let change = Change::Xor(&by);
                // A field has its place, also in a file that is opened to append.
                let plain = self.client.open(name, &options(false)).map_err(said)?;
                plain.read_modify_write(at as u64, change, Some(&mut got)).map_err(said)?;
                put(&mut self.pairs[n].bytes, at, &new);
                same(&old, &got)
            }
        }
    }

    /// What lies before the next data is zeros.
    fn seek(&mut self, n: usize) -> Checked {
        let (at, _) = self.range(n);
        let hole = self.rng.random();
        self.tell(n, format!("seek to {} from {at}", if hole { "a hole" } else { "data" }));
        let pair = &mut self.pairs[n];
        let found = pair.file.seek_to(if hole { Whence::Hole } else { Whence::Data }, at as i64);
        let found = match found.map_err(|e| e.raw_os_error()) {
            Ok(found) => found as usize,
            Err(Some(libc::ENXIO)) if !hole || at >= pair.bytes.len() => pair.bytes.len(),
            Err(e) => return Err(format!("errno {e:?}")),
        };
        if at < pair.bytes.len() {
            pair.at = if found == pair.bytes.len() && !hole { pair.at } else { found };
        }
        if found < at.min(pair.bytes.len()) || found > pair.bytes.len() {
            return Err(format!("at {found} of {}", pair.bytes.len()));
        }
        let before = &pair.bytes[at.min(found)..found];
        if hole || before.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(format!("data before {found}")) }
    }

    fn size(&self, n: usize) -> Checked {
        let size = self.pairs[n].file.metadata().map_err(said)?.len();
        same_number("size", self.pairs[n].bytes.len(), size as usize)
    }

    fn compare(&self) -> Checked {
        self.pairs.iter().try_for_each(|pair| {
            let found = self.client.read(pair.name).map_err(said)?;
            same(&pair.bytes, &found).map_err(|why| format!("all of {}: {why}", pair.name))
        })
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn same_number(what: &str, expected: usize, found: usize) -> Checked {
    if expected == found { Ok(()) } else { Err(format!("{what}: {found} and not {expected}")) }
}

fn same(expected: &[u8], found: &[u8]) -> Checked {
    same_number("bytes", expected.len(), found.len())?;
    match expected.iter().zip(found).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} of {} is {:#x} and not {:#x}", found.len(), found[at], expected[at])),
    }
}

/// Runs half of the operations; another client may do something in their middle.
fn exercise(client: Client, kind: &str) {
    let (ops, seed) = (number("WELDFS_API_OPS", OPS) / 2, number("WELDFS_API_SEED", 1));
    let run = Exerciser::new(client, seed).run(ops);
    assert_eq!(run, Ok(()), "{kind}, again: WELDFS_API_SEED={seed}");
}

fn inline() -> (Embedded, Client) {
    let config = DeviceConfig { inline: Some(true), ..DeviceConfig::default() };
    let device = Embedded::open(&Source::Ram(64 << 20), config).unwrap();
    let client = Client::with(Arc::new(device.clone())).unwrap();
    (device, client)
}

#[test]
fn random_operations_on_a_device_in_this_thread_give_what_arrays_give() {
    let (device, client) = inline();
    exercise(client, "inline");
    device.close().unwrap();
}

#[test]
fn random_operations_on_a_served_device_give_what_arrays_give() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let server = Server::bind(ServeConfig::new(Source::Ram(64 << 20), &socket)).unwrap();
    let serving = std::thread::spawn(move || server.run());
    exercise(Client::connect(&socket).unwrap(), "served");
    SocketConnector::new(&socket).stop(Duration::from_secs(20)).unwrap();
    serving.join().unwrap().unwrap();
}

#[test]
fn a_byte_that_is_changed_behind_its_back_is_found() {
    let (_device, client) = inline();
    let mut exerciser = Exerciser::new(client.clone(), 7);
    assert_eq!(exerciser.run(500), Ok(()));
    let size = exerciser.pairs[0].bytes.len();
    assert!(size > 0);
    let at = size as u64 / 2;
    let file = client.open(NAMES[0], &options(false)).unwrap();
    file.read_modify_write(at, Change::Xor(&[1]), None).unwrap();
    let found = exerciser.compare().unwrap_err();
    assert!(found.contains(&format!("byte {at} of {size}")), "{found}");
}

#[test]
fn a_directory_has_no_bytes_to_copy() {
    let (_device, client) = inline();
    client.create_dir("/d").unwrap();
    let directory = client.open("/d", &OpenOptions::new().read(true).directory(true)).unwrap();
    let file = client.create("/f").unwrap();
    let copy = |len| client.raw().copy_range(directory.handle(), 0, len, file.handle(), At::Offset(0));
    assert_eq!([copy(1), copy(4096), copy(0)], [Err(Errno::ISDIR); 3]);
}
