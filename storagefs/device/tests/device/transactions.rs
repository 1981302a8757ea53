//! Transactions that a session collects, and programs, through the device: all or nothing over several files, charged
//! and bounded, gone with their session.

use std::sync::Arc;

use weldfs::{At, Client, Command, Cqe, Durability, Errno, Handle, Op, OpenFlags, OpenOptions, PoolRange, Queue};
use weldfs_ciscops::flags::Access;
use weldfs_ciscops::limits::{TXN_BYTES_MAX, TXNS_MAX};
use weldfs_ciscops::program::{Builder, Bytes, Micro, Place, To, Value};
use weldfs_device::{DeviceConfig, Usage};
use weldfs_kernel_shim::{Embedded, Source};

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE).union(OpenFlags::CREATE);

fn device(bytes: u64) -> Embedded {
    Embedded::open(&Source::Ram(bytes), DeviceConfig { cores: 1, ..DeviceConfig::default() }).unwrap()
}

fn client(device: &Embedded) -> Client {
    Client::with(Arc::new(device.clone())).unwrap()
}

struct Rig {
    queue: Queue,
}

impl Rig {
    fn new(client: &Client) -> Rig {
        Rig { queue: client.queue(16, 2 << 20).unwrap() }
    }

    fn run(&mut self, op: Op) -> Cqe {
        self.queue.execute(&Command::new(0, op).with_durability(Durability::Durable)).unwrap()
    }

    fn open(&mut self, name: &str, flags: OpenFlags) -> Handle {
        let path = self.put(name.as_bytes());
        let op = Op::open(Handle::ROOT, path, flags, 0o644);
        Handle::from_wire(self.run(op).ok().unwrap().0)
    }

    fn put(&self, bytes: &[u8]) -> PoolRange {
        let range = PoolRange::new(0, bytes.len() as u32);
        self.queue.pool().slice(range).unwrap().copy_from(bytes);
        range
    }

    fn begin(&mut self) -> Handle {
        Handle::from_wire(self.run(Op::TxnBegin).ok().unwrap().0)
    }

    fn write(&mut self, txn: Handle, h: Handle, at: At, bytes: &[u8]) -> Cqe {
        let src = self.put(bytes);
        self.run(Op::TxnWrite { txn, h, at, src })
    }
}

fn errno(cqe: Cqe) -> Errno {
    Errno(cqe.status)
}

#[test]
fn writes_to_several_files_are_seen_together_or_not_at_all() {
    let device = device(64 << 20);
    let client = client(&device);
    let mut rig = Rig::new(&client);
    let (a, b) = (rig.open("a", RW), rig.open("b", RW | OpenFlags::APPEND));
    let txn = rig.begin();
    assert_eq!(rig.write(txn, a, At::Offset(0), &[1; 5000]).ok(), Ok((5000, 1)));
    assert_eq!(rig.write(txn, b, At::Offset(77), b"appended").ok(), Ok((8, 2)));
    assert_eq!(rig.write(txn, a, At::Offset(10), b"edited").ok(), Ok((6, 3)));
    assert!(client.read("a").unwrap().is_empty(), "nobody sees anything yet");
    // The handle may go before the commit.
    assert_eq!(rig.run(Op::Close { h: a }).status, 0);
    assert_eq!(rig.run(Op::TxnCommit { txn }).ok(), Ok((5014, 0)));
    let mut want = vec![1; 5000];
    want[10..16].copy_from_slice(b"edited");
    assert_eq!(client.read("a").unwrap(), want);
    assert_eq!(client.read("b").unwrap(), b"appended");
    // It is over.
    for op in [Op::TxnCommit { txn }, Op::TxnAbort { txn }] {
        assert_eq!(errno(rig.run(op)), Errno::BADF);
    }
    assert_eq!(errno(rig.write(txn, b, At::End, b"x")), Errno::BADF);
    // One that is given up leaves nothing.
    let txn = rig.begin();
    rig.write(txn, b, At::End, b"never").ok().unwrap();
    assert_eq!(rig.run(Op::TxnAbort { txn }).status, 0);
    assert_eq!(client.read("b").unwrap(), b"appended");
    // Handles of transactions are no handles of files, grants count, and others know nothing of them.
    let txn = rig.begin();
    let reader = rig.open("b", OpenFlags::READ);
    assert_eq!(errno(rig.write(txn, reader, At::End, b"x")), Errno::BADF);
    let other = Rig::new(&self::client(&device)).run(Op::TxnCommit { txn });
    assert_eq!(errno(other), Errno::BADF);
    assert_eq!(rig.run(Op::TxnCommit { txn }).ok(), Ok((0, 0)), "one without writes changes nothing");
}

#[test]
fn a_commit_without_room_or_on_too_many_files_leaves_nothing() {
    let device = device(8 << 20);
    let client = client(&device);
    let mut rig = Rig::new(&client);
    let handles: Vec<Handle> = (0..17).map(|i| rig.open(&format!("f{i}"), RW)).collect();
    let txn = rig.begin();
    for h in &handles {
        rig.write(txn, *h, At::Offset(0), b"x").ok().unwrap();
    }
    assert_eq!(errno(rig.run(Op::TxnCommit { txn })), Errno::TOOBIG);
    let filler = rig.open("filler", RW);
    let src = rig.put(&vec![7; 256 << 10]);
    while rig.run(Op::Write { h: filler, at: At::End, src }).status == 0 {}
    let txn = rig.begin();
    rig.write(txn, handles[0], At::Offset(0), b"small").ok().unwrap();
    for _ in 0..3 {
        rig.write(txn, handles[1], At::End, &vec![3; 256 << 10]).ok().unwrap();
    }
    assert_eq!(errno(rig.run(Op::TxnCommit { txn })), Errno::NOSPC);
    for i in 0..17 {
        assert!(client.read(format!("f{i}")).unwrap().is_empty(), "f{i}");
    }
}

#[test]
fn what_is_collected_is_bounded_and_gone_with_its_session() {
    let device = device(64 << 20);
    {
        let client = client(&device);
        let mut rig = Rig::new(&client);
        let h = rig.open("f", RW);
        let txn = rig.begin();
        let mib = vec![1; 1 << 20];
        for _ in 0..TXN_BYTES_MAX >> 20 {
            rig.write(txn, h, At::End, &mib).ok().unwrap();
        }
        assert_eq!(errno(rig.write(txn, h, At::End, b"x")), Errno::TOOBIG);
        for _ in 1..TXNS_MAX {
            rig.begin();
        }
        assert_eq!(errno(rig.run(Op::TxnBegin)), Errno::MFILE);
        assert_eq!(client.read("f").unwrap().len(), 0);
    }
    let start = std::time::Instant::now();
    while device.device().usage() != Usage::default() {
        assert!(start.elapsed().as_secs() < 20, "{:?}", device.device().usage());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(!device.device().is_poisoned());
}

/// The library's transactions: begin, write, edit, commit or abort.
#[test]
fn the_library_collects_edits_commits_and_aborts() {
    let device = device(64 << 20);
    let client = client(&device);
    let open = |name: &str| OpenOptions::new().read(true).write(true).create(true).open(&client, name).unwrap();
    let (a, b) = (open("a"), open("b"));
    let txn = client.transaction().unwrap();
    assert_eq!(txn.write(&a, At::Offset(0), b"first draft"), Ok(1));
    assert_eq!(txn.write(&b, At::End, b"beside"), Ok(2));
    assert_eq!(txn.write(&a, At::Offset(0), b"final"), Ok(3), "an edit");
    // Longer than one command takes: in pieces, which are one thing to all others.
    let long = vec![7; (1 << 20) + 5];
    assert_eq!(txn.write(&b, At::Offset(100), &long), Ok(5));
    assert!(client.read("a").unwrap().is_empty() && client.read("b").unwrap().is_empty());
    drop(a);
    assert_eq!(txn.commit(), Ok(11 + 6 + 5 + long.len() as u64));
    assert_eq!(client.read("a").unwrap(), b"final draft");
    let b_content = client.read("b").unwrap();
    assert_eq!((&b_content[..6], &b_content[100..]), (&b"beside"[..], &long[..]));

    let txn = client.transaction().unwrap();
    txn.write(&b, At::Offset(0), b"never").unwrap();
    txn.abort().unwrap();
    // Dropping one aborts it: as many as a session may have, twice.
    for _ in 0..2 * TXNS_MAX {
        drop(client.transaction().unwrap());
    }
    assert_eq!(client.read("b").unwrap()[..6], *b"beside");
    let reader = OpenOptions::new().read(true).open(&client, "b").unwrap();
    let txn = client.transaction().unwrap();
    assert_eq!(txn.write(&reader, At::End, b"x"), Err(Errno::BADF));
    assert_eq!(txn.commit_with(Durability::Durable), Ok(0));
    // Files of another session are not its files.
    let other = self::client(&device);
    let theirs = OpenOptions::new().write(true).open(&other, "b").unwrap();
    assert_eq!(client.transaction().unwrap().write(&theirs, At::End, b"x"), Err(Errno::BADF));
    let old = client.transaction().unwrap();
    client.reconnect().unwrap();
    assert_eq!(old.commit(), Err(Errno::BADF));
}

#[test]
fn a_multi_write_is_one_command_and_all_or_nothing() {
    let device = device(8 << 20);
    let client = client(&device);
    let open = |name: &str| OpenOptions::new().read(true).write(true).create(true).open(&client, name).unwrap();
    let files: Vec<_> = (0..9).map(|i| open(&format!("f{i}"))).collect();
    let h: Vec<Handle> = files.iter().map(weldfs::File::handle).collect();
    let raw = client.raw();
    let writes = [(h[0], At::Offset(2), &b"two"[..]), (h[1], At::End, b"one"), (h[0], At::End, b"end")];
    raw.multi_write(&writes).unwrap();
    assert_eq!(client.read("f0").unwrap(), b"\0\0twoend");
    assert_eq!(client.read("f1").unwrap(), b"one");
    raw.multi_write(&[]).unwrap();
    raw.multi_write(&[(h[0], At::End, b"")]).unwrap();
    let each: Vec<_> = h.iter().map(|h| (*h, At::Offset(0), &b"x"[..])).collect();
    raw.multi_write(&each[..8]).unwrap();
    assert_eq!(raw.multi_write(&each), Err(Errno::TOOBIG), "nine files");
    assert_eq!(raw.multi_write(&[each[0]; 15]), Ok(()));
    assert_eq!(raw.multi_write(&[each[0]; 16]), Err(Errno::TOOBIG));
    // Which write is to blame: one through a handle that cannot write, that is gone, and none when all are.
    let reader = OpenOptions::new().read(true).open(&client, "f0").unwrap();
    let blame =
        |writes: &[(Handle, At, &[u8])]| raw.multi_write_by_item(writes).map_err(|fault| (fault.item, fault.errno));
    let x = &b"x"[..];
    let (empty, far) = ((h[0], At::End, &b""[..]), (h[1], At::Offset(u64::MAX - 9), x));
    assert_eq!(blame(&[each[0], empty, each[1], (reader.handle(), At::End, x)]), Err((Some(3), Errno::BADF)));
    assert_eq!(blame(&[empty, (reader.handle(), At::End, x), each[0]]), Err((Some(1), Errno::BADF)));
    let gone = reader.handle();
    drop(reader);
    assert_eq!(blame(&[each[0], each[1], (gone, At::End, x), each[2]]), Err((Some(2), Errno::BADF)));
    assert_eq!(blame(&[each[0], (h[1], At::Current, x)]), Err((Some(1), Errno::INVAL)));
    assert_eq!(blame(&[each[0], each[1], far]).map_err(|(item, _)| item), Err(Some(2)));
    assert_eq!(blame(&each).map_err(|(_, errno)| errno), Err(Errno::TOOBIG));
    // The second does not fit: the first is not there either.
    let mib = vec![1; 1 << 20];
    let many: Vec<_> = std::iter::once((h[2], At::Offset(0), &b"torn"[..]))
        .chain((0..12).map(|i| (h[3], At::Offset(i << 20), &mib[..])))
        .collect();
    assert_eq!(raw.multi_write(&many), Err(Errno::NOSPC));
    assert_eq!((client.read("f2").unwrap(), client.read("f3").unwrap()), (b"x".to_vec(), b"x".to_vec()));
}

#[test]
fn what_is_not_waited_for_is_all_or_nothing_too() {
    let device = device(64 << 20);
    let client = client(&device);
    let queue = client.async_queue(32, 256 << 10).unwrap();
    let open = |name: &str| OpenOptions::new().read(true).write(true).create(true).open(&client, name).unwrap();
    let (a, b) = (open("a"), open("b"));
    // Several writes; one of them cannot be.
    let reader = OpenOptions::new().read(true).open(&client, "b").unwrap();
    let both = |second: &weldfs::File| [(a.handle(), At::End, &b"one"[..]), (second.handle(), At::End, &b"two"[..])];
    queue.multi_write(&both(&b)).unwrap().wait().unwrap();
    assert_eq!(queue.multi_write(&both(&reader)).unwrap().wait(), Err(Errno::BADF));
    queue.multi_write(&[]).unwrap().wait().unwrap();
    assert_eq!(queue.multi_write(&[both(&b)[0]; 16]).unwrap_err(), Errno::TOOBIG);
    assert_eq!((client.read("a").unwrap(), client.read("b").unwrap()), (b"one".to_vec(), b"two".to_vec()));

    // A program with a range each way, many times under way; what it was given is of no use to the others.
    let mut builder = Builder::new();
    let (from, into) = (builder.pool(3), builder.pool(8));
    let file = builder.take(a.handle(), Access::READ | Access::WRITE);
    builder.push(Micro::Write { file, place: Place::At(Value::Imm(0)), from: Bytes::Pool(from), fold: None, at: None });
    let (off, len, to) = (Value::Imm(0), Value::Imm(8), To::Pool(into));
    builder.push(Micro::Read { file, off, len, to, whole: false, pad: false, fold: None, count: None });
    let body = builder.finish().unwrap();
    let run = |bytes: &[u8]| queue.program(&body, &[Some(bytes), None]);
    let under_way: Vec<_> =
        [&b"ABC"[..], b"DEF", b"GHI"].into_iter().map(|bytes| (bytes, run(bytes).unwrap())).collect();
    for (bytes, (pending, rooms)) in under_way {
        let ran = pending.wait().unwrap().ok().unwrap();
        assert_eq!((rooms.bytes(&ran, 0), rooms.bytes(&ran, 1)), (bytes, &[bytes, &[0; 5]].concat()[..]));
        assert!(rooms.bytes(&ran, 2).is_empty());
    }
    assert_eq!(run(b"four").map(drop), Err(Errno::INVAL));
    assert_eq!(queue.program(&body, &[None, None]).map(drop), Err(Errno::INVAL));
    assert_eq!(queue.program(&body, &[Some(b"ABC"), Some(&[0; 8])]).map(drop), Err(Errno::INVAL));
    assert_eq!(queue.program(&body, &[Some(b"ABC")]).map(drop), Err(Errno::INVAL));

    // A transaction: of another session, refused, done.
    let txn = client.transaction().unwrap();
    let logged = [(&a, &b"first"[..]), (&b, b"second")].map(|(f, data)| queue.txn_write(&txn, f, At::Offset(0), data));
    let mut logged = logged.map(|pending| pending.unwrap().wait().unwrap());
    logged.sort_unstable();
    assert_eq!(logged, [1, 2]);
    let other = self::client(&device);
    let (foreign, theirs) = (other.async_queue(32, 256 << 10).unwrap(), other.transaction().unwrap());
    assert_eq!(queue.txn_write(&theirs, &a, At::End, b"x").map(drop), Err(Errno::BADF));
    let (errno, txn) = foreign.txn_commit(txn).map(drop).unwrap_err();
    assert_eq!((errno, client.read("a").unwrap()), (Errno::BADF, b"GHI".to_vec()));
    assert_eq!(queue.durability(Durability::Durable).txn_commit(txn).map_err(|(e, _)| e).unwrap().wait(), Ok(11));
    assert_eq!((client.read("a").unwrap(), client.read("b").unwrap()), (b"first".to_vec(), b"second".to_vec()));
}
