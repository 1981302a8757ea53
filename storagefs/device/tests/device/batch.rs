//! Sequences: batches and directory listings with attributes. Each element is a command of its own, with its own
//! result; the ring sees them in the place of the batch; one crossing is counted; hostile ones do no harm.

use std::sync::Arc;

use weldfs::{At, Client, ClientOptions, Command, Cqe, Durability, Errno, Handle, Op, OpenFlags, PoolRange, Queue};
use weldfs_ciscops::dirent::DirentsPlus;
use weldfs_ciscops::{Sqe, StatBody, TxnMode};
use weldfs_device::DeviceConfig;
use weldfs_journal::{SystemClock, SystemRandom};
use weldfs_kernel_shim::{Embedded, Source};
use weldfs_media::ImageKind;
use weldfs_store::mount::{MkfsOptions, format};
use zerocopy::{FromZeros, IntoBytes};

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE).union(OpenFlags::CREATE);
/// Where batches put their entries, results and operands.
const ITEMS: u32 = 0;
const RESULTS: u32 = 64 << 10;
const DATA: u32 = 128 << 10;

fn device(cores: usize) -> Embedded {
    Embedded::open(&Source::Ram(64 << 20), DeviceConfig { cores, ..DeviceConfig::default() }).unwrap()
}

fn client(device: &Embedded) -> Client {
    Client::with_options(Arc::new(device.clone()), ClientOptions { umask: Some(0), ..ClientOptions::default() })
        .unwrap()
}

struct Rig {
    queue: Queue,
}

impl Rig {
    fn new(client: &Client) -> Rig {
        Rig { queue: client.queue(64, 1 << 20).unwrap() }
    }

    fn put(&self, off: u32, bytes: &[u8]) -> PoolRange {
        let range = PoolRange::new(off, bytes.len() as u32);
        self.queue.pool().slice(range).unwrap().copy_from(bytes);
        range
    }

    /// Puts entries where batches have them.
    fn batch_of(&self, entries: &[Sqe]) -> Op {
        let count = entries.len() as u32;
        for (i, sqe) in entries.iter().enumerate() {
            self.put(ITEMS + i as u32 * 64, sqe.as_bytes());
        }
        Op::Batch { items: PoolRange::new(ITEMS, count * 64), results: PoolRange::new(RESULTS, count * 32) }
    }

    fn results(&self, count: usize) -> Vec<Cqe> {
        let one = |i| {
            let mut cqe = Cqe::default();
            let range = PoolRange::new(RESULTS + i as u32 * 32, 32);
            self.queue.pool().slice(range).unwrap().copy_to(cqe.as_mut_bytes());
            cqe
        };
        (0..count).map(one).collect()
    }

    fn run(&mut self, entries: &[Sqe]) -> (Cqe, Vec<Cqe>) {
        let op = self.batch_of(entries);
        let cqe = self.queue.execute(&Command::new(0, op)).unwrap();
        (cqe, self.results(entries.len()))
    }

    fn write_new(&self, name: &[u8], at: u32, data: &[u8]) -> Op {
        let path = self.put(at, name);
        let src = self.put(at + 256, data);
        Op::OpenWriteClose { base: Handle::ROOT, path, flags: RW, mode: 0o644, at: At::Offset(0), src }
    }
}

fn total(client: &Client, name: &str) -> u64 {
    let json: serde_json::Value = serde_json::from_str(&client.stats_json().unwrap()).unwrap();
    fn find(v: &serde_json::Value, name: &str) -> Option<u64> {
        match v {
            serde_json::Value::Object(m) => {
                m.get(name).and_then(serde_json::Value::as_u64).or_else(|| m.values().find_map(|v| find(v, name)))
            }
            _ => None,
        }
    }
    find(&json["session"], name).or_else(|| find(&json, name)).unwrap_or_else(|| panic!("no {name} in {json}"))
}

#[test]
fn k_files_are_written_and_read_by_one_command_each_with_a_result_of_its_own() {
    for cores in [1, 2] {
        let device = device(cores);
        let client = client(&device);
        let names: Vec<String> = (0..8).map(|i| format!("f{i}")).collect();
        let datas: Vec<Vec<u8>> = (0..8u8).map(|i| vec![i + 1; 3000 + usize::from(i)]).collect();
        let before = total(&client, "commands");
        let mut batch = client.batch();
        for (name, data) in names.iter().zip(&datas) {
            batch.open_write_close(Handle::ROOT, name.as_bytes(), RW, 0o644, At::Offset(0), data);
        }
        batch.open_write_close(Handle::ROOT, b"no/such/dir", RW, 0o644, At::Offset(0), b"x");
        let done = batch.run().unwrap();
        assert_eq!(total(&client, "commands") - before, 1, "one crossing");
        assert_eq!(total(&client, "elements"), 9);
        for (cqe, data) in done.iter().zip(&datas) {
            assert_eq!((cqe.status, cqe.result, cqe.micro_done), (0, data.len() as u64, 3));
        }
        assert_eq!((done[8].status, done[8].micro_failed), (Errno::NOENT.0, 1));
        let mut rooms = vec![vec![0; 4096]; 8];
        let mut buffer = client.buffer(4096).unwrap();
        let mut batch = client.batch();
        for (name, room) in names.iter().zip(&mut rooms) {
            batch.open_read_close(Handle::ROOT, name.as_bytes(), OpenFlags::READ, 0, room);
        }
        batch.open_read_close(Handle::ROOT, b"f3", OpenFlags::READ, 1, &mut buffer);
        let mut old = vec![0; 4096];
        let exchange = (2, &mut old);
        batch.open_read_write_close(Handle::ROOT, b"f2", RW, 0o644, exchange, (At::End, &b"tail"[..]));
        let done = batch.run().unwrap();
        for ((cqe, room), data) in done.iter().zip(&rooms).zip(&datas) {
            assert_eq!(room[..cqe.result as usize], data[..]);
        }
        assert_eq!(old[..done[9].result as usize], datas[2][2..]);
        assert_eq!(client.read("f2").unwrap(), [&datas[2][..], b"tail"].concat());
        client.write("f2", &datas[2]).unwrap();
        assert_eq!(buffer.bytes()[..done[8].result as usize], datas[3][1..]);
        let paths: Vec<&[u8]> = names.iter().map(|n| n.as_bytes()).chain([&b"missing"[..]]).collect();
        let stats = client.raw().stat_many(Handle::ROOT, &paths, true).unwrap();
        for (stat, data) in stats.iter().zip(&datas) {
            assert_eq!(stat.unwrap().size, data.len() as u64);
        }
        assert_eq!(stats[8], Err(Errno::NOENT));
    }
}

#[test]
fn more_than_one_command_holds_become_several_in_order() {
    let device = device(1);
    let client = client(&device);
    let names: Vec<String> = (0..600).map(|i| format!("n{i}")).collect();
    let mut batch = client.batch();
    for name in &names {
        batch.mkdir(Handle::ROOT, name.as_bytes(), 0o755);
    }
    let done = batch.run().unwrap();
    assert!(done.len() == 600 && done.iter().all(|c| c.status == 0));
    let paths: Vec<&[u8]> = names.iter().map(|n| n.as_bytes()).collect();
    let before = total(&client, "commands");
    let stats = client.raw().stat_many(Handle::ROOT, &paths, true).unwrap();
    assert!(stats.iter().all(Result::is_ok));
    assert_eq!(total(&client, "commands") - before, 3);
    // Operands of more than a MiB.
    let large = vec![7; 600 << 10];
    let mut batch = client.batch();
    for name in &names[..4] {
        batch.open_write_close(Handle::ROOT, name.as_bytes(), RW, 0o644, At::Offset(0), &large);
    }
    let done = batch.run().unwrap();
    assert!(done.iter().all(|c| c.status == Errno::ISDIR.0), "{done:?}");
}

#[test]
fn commands_of_a_ring_come_before_and_after_all_elements() {
    for cores in [1, 2] {
        let device = device(cores);
        let client = client(&device);
        let mut rig = Rig::new(&client);
        for round in 0..200u32 {
            let first = rig.write_new(b"f", DATA, &[1; 4096]);
            let last = rig.write_new(b"f", DATA + (32 << 10), &[9; 4096]);
            let entries: Vec<Sqe> = (0..16u8)
                .map(|i| {
                    let src = rig.put(DATA + (64 << 10) + u32::from(i) * 4096, &[i + 2; 4096]);
                    let path = rig.put(DATA + (32 << 10) + 8192, b"f");
                    let (base, flags, at) = (Handle::ROOT, OpenFlags::WRITE | OpenFlags::APPEND, At::End);
                    Command::new(u64::from(i), Op::OpenWriteClose { base, path, flags, mode: 0, at, src }).encode()
                })
                .collect();
            let op = rig.batch_of(&entries);
            let out = PoolRange::new(DATA + (256 << 10), 17 * 4096);
            let path = rig.put(DATA + (48 << 10), b"f");
            let read = Op::OpenReadClose { base: Handle::ROOT, path, flags: OpenFlags::READ, offset: 0, out };
            let unlink = Op::Unlink { base: Handle::ROOT, path };
            // All at once: the batch appends after the first write, before the read, and before the name goes.
            let tickets: Vec<_> = [first, op, read, last, unlink]
                .map(|op| rig.queue.submit(&Command::new(0, op)).unwrap())
                .into_iter()
                .collect();
            rig.queue.flush();
            let cqes: Vec<Cqe> = tickets.into_iter().map(|t| rig.queue.wait(t).unwrap()).collect();
            assert!(cqes.iter().all(|c| c.status == 0), "round {round}: {cqes:?}");
            assert_eq!((cqes[1].result, cqes[1].result2), (16, 0));
            assert_eq!(cqes[2].result, 17 * 4096);
            let bytes = rig.queue.pool().slice(out).unwrap().to_vec();
            for (i, block) in bytes.chunks(4096).enumerate() {
                let want = if i == 0 { 1 } else { i as u8 + 1 };
                assert!(block.iter().all(|b| *b == want), "round {round}, block {i}");
            }
            assert!(rig.results(16).iter().enumerate().all(|(i, c)| c.sequence == i as u64 && c.status == 0));
        }
    }
}

#[test]
fn hostile_elements_have_their_errno_and_the_others_run() {
    let device = device(1);
    let client = client(&device);
    let mut rig = Rig::new(&client);
    let good = Command::new(77, rig.write_new(b"good", DATA, b"data")).encode();
    let nested = Command::new(1, rig.batch_of(&[good])).encode();
    let path = rig.put(DATA + 4096, b"good");
    let read = |out| Op::OpenReadClose { base: Handle::ROOT, path, flags: OpenFlags::READ, offset: 0, out };
    let bad_pool = Command::new(2, read(PoolRange::new(u32::MAX - 8, 4096))).encode();
    let stray = Sqe { imm: [1; 16], ..Command::new(3, Op::Nop).encode() };
    let unknown = Sqe { opcode: 999, sequence: 4, ..Sqe::default() };
    let posted = Sqe { flags: 1 << 7, sequence: 5, ..Command::new(5, Op::Nop).encode() };
    // It overwrites the last entry, which is copied when its turn comes: then it names no operation.
    let over = Command::new(6, read(PoolRange::new(ITEMS + 7 * 64, 4))).encode();
    let entries = [nested, bad_pool, stray, unknown, posted, good, over, good];
    let (cqe, results) = rig.run(&entries);
    assert_eq!((cqe.status, cqe.result, cqe.result2), (0, 8, 6));
    let want = [Errno::INVAL, Errno::FAULT, Errno::INVAL, Errno::NOSYS, Errno::INVAL];
    for (i, errno) in want.iter().enumerate() {
        assert_eq!((results[i].status, results[i].sequence), (errno.0, i as u64 + 1), "{i}");
    }
    assert_eq!((results[5].status, results[5].result, results[5].sequence), (0, 4, 77));
    assert_eq!((results[6].status, results[6].result), (0, 4));
    assert_eq!(results[7].status, Errno::NOSYS.0);
    // An element that reads over results that were given already: its own bytes stand there, and nothing else happens.
    let over = Command::new(6, read(PoolRange::new(RESULTS, 4))).encode();
    let (cqe, results) = rig.run(&[good, over, good]);
    assert_eq!((cqe.status, cqe.result2), (0, 0));
    assert_eq!(results[0].sequence.to_le_bytes()[..4], *b"data");
    // Refused as a whole.
    let sqe = |items, results| Command::new(0, Op::Batch { items, results }).encode();
    let r = PoolRange::new;
    let refused = [
        (sqe(r(0, 128), r(64, 64)), Errno::INVAL),
        (sqe(r(0, 64), r(1 << 20, 32)), Errno::FAULT),
        (sqe(r(0, 96), r(4096, 32)), Errno::INVAL),
        (sqe(r(0, 257 * 64), r(512 << 10, 257 * 32)), Errno::TOOBIG),
    ];
    for (sqe, errno) in refused {
        let ticket = rig.queue.submit_sqe(sqe).unwrap();
        assert_eq!(rig.queue.wait(ticket).unwrap().status, errno.0);
    }
}

#[test]
fn each_element_is_a_transaction_of_its_own_and_durable_ones_share_a_wait() {
    let device = device(1);
    let client = client(&device);
    let mut rig = Rig::new(&client);
    let durable = |op| Command::new(0, op).with_durability(Durability::Durable).encode();
    let entries = [
        durable(rig.write_new(b"a", DATA, &[1; 5000])),
        durable(Op::Mkdir { base: Handle::ROOT, path: rig.put(DATA + (16 << 10), b"a"), mode: 0o755 }),
        durable(rig.write_new(b"b", DATA + (32 << 10), &[2; 5000])),
        Command::new(0, Op::Fsync { h: Handle::ROOT }).encode(),
        Command::new(0, Op::Close { h: Handle { index: 9, generation: 9 } }).encode(),
    ];
    let (cqe, results) = rig.run(&entries);
    assert_eq!((cqe.status, cqe.result, cqe.result2), (0, 5, 2));
    let statuses: Vec<i32> = results.iter().map(|c| c.status).collect();
    assert_eq!(statuses, [0, Errno::EXIST.0, 0, 0, Errno::BADF.0]);
    assert_eq!(client.read("a").unwrap(), [1; 5000]);
    assert_eq!(client.read("b").unwrap(), [2; 5000]);
}

#[test]
fn durable_outcomes_of_elements_that_changed_nothing_share_the_wait() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let medium = weldfs_media::create(&path, ImageKind::Block, 64 << 20, false).unwrap();
    format(&medium, &MkfsOptions::default(), &SystemClock, &SystemRandom).unwrap();
    // Children of other tests have the image's lock, too, until their exec.
    medium.let_go();
    drop(medium);
    let config = DeviceConfig { cores: 1, ..DeviceConfig::default() };
    let device = Embedded::open(&Source::Image(path), config).unwrap();
    let client = client(&device);
    let mut rig = Rig::new(&client);
    let missing = rig.put(DATA, b"missing");
    let unlink = Op::Unlink { base: Handle::ROOT, path: missing };
    let waits = total(&client, "durable_waits");
    let entry = |seq| Command::new(seq, unlink).with_durability(Durability::Durable).detectable().encode();
    let (cqe, results) = rig.run(&(1..=12).map(entry).collect::<Vec<_>>());
    assert_eq!((cqe.status, cqe.result, cqe.result2), (0, 12, 12));
    assert!(results.iter().all(|c| c.status == Errno::NOENT.0));
    assert!(total(&client, "durable_waits") - waits <= 1, "one wait for all of them");
}

#[test]
fn a_directory_comes_with_attributes_as_stat_gives_them() {
    let device = device(1);
    let client = client(&device);
    client.create_dir("/d").unwrap();
    for i in 0..700 {
        client.write(format!("/d/some-file-{i}"), &vec![0u8; i]).unwrap();
    }
    client.create_dir("/d/sub").unwrap();
    client.symlink("nowhere", "/d/link").unwrap();
    let raw = client.raw();
    let dir = raw.openat(Handle::ROOT, b"/d", OpenFlags::READ | OpenFlags::DIRECTORY, 0, 0).unwrap().handle;
    let (mut cookie, mut seen) = (0, std::collections::BTreeMap::new());
    let mut room = vec![0; 40_000];
    let mut commands = 0;
    loop {
        let (n, next) = raw.read_dir_plus(dir, cookie, &mut room[..]).unwrap();
        commands += 1;
        if n == 0 {
            break;
        }
        for e in DirentsPlus(&room[..n]) {
            let stat = raw.statat(dir, e.entry.name, true).unwrap();
            assert_eq!(e.stat, Ok(stat));
            assert_eq!(e.entry.ino, stat.ino);
            assert!(seen.insert(e.entry.name.to_vec(), stat.size).is_none(), "once each");
        }
        cookie = next;
    }
    assert_eq!(seen.len(), 704, "with the dots");
    assert!(commands > 3);
    assert_eq!(seen[&b"some-file-123"[..]], 123);
    assert_eq!(raw.read_dir_plus(dir, 0, &mut [0u8; 200][..]), Err(Errno::INVAL));
    assert_eq!(raw.read_dir_plus(Handle { index: 99, generation: 1 }, 0, &mut room[..]), Err(Errno::BADF));
    let file = raw.openat(Handle::ROOT, b"/d/some-file-1", OpenFlags::READ, 0, 0).unwrap().handle;
    assert_eq!(raw.read_dir_plus(file, 0, &mut room[..]), Err(Errno::NOTDIR));
    // It is an element like any other.
    let mut rig = Rig::new(&client);
    let out = PoolRange::new(DATA, 4096);
    let (cqe, results) =
        rig.run(&[Command::new(0, Op::ReadDirPlus { h: Handle::ROOT, cookie: 0, out, watch: 0 }).encode()]);
    assert_eq!((cqe.status, results[0].status), (0, 0));
    let bytes = rig.queue.pool().slice(PoolRange::new(DATA, results[0].result as u32)).unwrap().to_vec();
    let names: Vec<&[u8]> = DirentsPlus(&bytes).map(|e| e.entry.name).collect();
    assert_eq!(names.len(), 3, "., .. and d");
}

#[test]
fn who_may_read_a_directory_but_not_search_it_gets_names_without_attributes() {
    let device = device(1);
    let root = client(&device);
    root.create_dir("/d").unwrap();
    root.write("/d/file", b"x").unwrap();
    root.set_permissions("/d", 0o744).unwrap();
    let cred = weldfs_fs::Cred::new(1000, 1000);
    let other = Client::with(Arc::new(device.acting_as(cred))).unwrap();
    let raw = other.raw();
    let dir = raw.openat(Handle::ROOT, b"/d", OpenFlags::READ | OpenFlags::DIRECTORY, 0, 0).unwrap().handle;
    let mut room = [0; 4096];
    let (n, _) = raw.read_dir_plus(dir, 0, &mut room[..]).unwrap();
    let entries: Vec<_> = DirentsPlus(&room[..n]).collect();
    let file = entries.iter().find(|e| e.entry.name == b"file").unwrap();
    assert_eq!(file.stat, Err(Errno::ACCES), "as stat_path says");
    assert_eq!(raw.statat(dir, b"file", true), Err(Errno::ACCES));
    let zero = StatBody::new_zeroed();
    let at = room[..n].windows(256).any(|w| *w == *zero.as_bytes());
    assert!(at, "and the body is zero");
}

#[test]
fn a_batch_of_the_client_library_has_the_transaction_mode_of_its_view() {
    let device = device(1);
    let client = client(&device);
    for (mode, stays) in [(TxnMode::Macro, false), (TxnMode::Micro, true)] {
        let (raw, path) = (client.raw().mode(mode), format!("{mode:?}"));
        let mut batch = raw.batch();
        // The file is made, and then nothing can be written there.
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        batch.open_write_close(Handle::ROOT, path.as_bytes(), flags, 0o644, At::Offset(1 << 50), b"x");
        assert_eq!(batch.run().unwrap()[0].ok(), Err(Errno::FBIG));
        assert_eq!(client.exists(&path).unwrap(), stays, "{mode:?}");
    }
}

#[test]
fn what_earlier_commands_of_a_batch_did_is_said_when_a_later_one_fails() {
    let device = device(1);
    let client = client(&device);
    let raw = client.raw();
    let h = raw.openat(Handle::ROOT, b"f", RW, 0o644, 0).unwrap().handle;
    // No queue pair is left for a payload that the thread's own has no room for.
    let taken: Vec<Queue> = std::iter::from_fn(|| client.queue(2, 4096).ok()).collect();
    assert!(!taken.is_empty());
    let big = vec![1; 1 << 20];
    let mut batch = raw.batch();
    for _ in 0..256 {
        batch.write(h, At::End, b"x");
    }
    batch.write(h, At::End, &big).write(h, At::End, b"y");
    let done = batch.run().unwrap();
    assert_eq!(done.len(), 258, "an answer for each");
    assert!(done[..256].iter().all(|cqe| cqe.ok().is_ok()));
    let refused = done[256].ok().unwrap_err();
    assert_eq!((refused, done[257].ok()), (Errno::MFILE, Err(Errno::MFILE)), "neither was sent");
    assert_eq!(raw.stat(h).unwrap().size, 256);
    // What can be found before is no half batch.
    let mut batch = raw.batch();
    let huge = vec![1; (1 << 20) + 1];
    for _ in 0..256 {
        batch.write(h, At::End, b"x");
    }
    batch.write(h, At::End, &huge);
    assert_eq!(batch.run().map(drop), Err(Errno::TOOBIG));
    assert_eq!(raw.stat(h).unwrap().size, 256, "nothing was sent");
}
