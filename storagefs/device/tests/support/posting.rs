//! A client by hand that posts changes of one file, to a device on this thread.

use std::sync::Arc;

use weldfs_ciscops::interp::LEASED;
use weldfs_ciscops::{
    At, Command, CqConsumer, Cqe, Durability, Handle, Op, OpenFlags, PoolRange, QueueMemory, SharedRegion, SqProducer,
    StatBody,
};
use weldfs_device::{Device, DeviceConfig, LogFacts, Session, Totals};
use weldfs_fs::Cred;
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_media::{CrashModel, RecordingMedium, Replayer};
use weldfs_store::MountOptions;
use weldfs_store::mount::{MkfsOptions, format};
use zerocopy::{FromZeros, IntoBytes};

/// Bytes of a medium that is large enough.
pub const MEDIUM: u64 = 24 << 20;
const POOL: u32 = 1 << 20;
const DEPTH: u32 = 128;
/// Where the bytes of what is posted lie, in order; and the last pages, for what comes back.
const OUT: u32 = POOL - (256 << 10);

/// A queue pair by hand, with the lease of a file.
pub struct Hand<'t> {
    sq: SqProducer,
    cq: CqConsumer,
    pool: SharedRegion,
    used: u32,
    pub h: Handle,
    turn: &'t mut dyn FnMut() -> bool,
    _session: Session,
}

impl Hand<'_> {
    fn new<'t>(device: &Device, cred: Cred, flags: OpenFlags, turn: &'t mut dyn FnMut() -> bool) -> Hand<'t> {
        // A directory for everyone.
        let mut root = Hand::bare(device, Cred::root(), turn);
        let path = root.put(b"d");
        let made = root.all(&[(Op::Mkdir { base: Handle::ROOT, path, mode: 0o777 }, false)], true);
        assert_eq!(made[0].status, 0);
        let mut hand = Hand::bare(device, cred, root.turn);
        let path = hand.put(b"d/f");
        let open = Op::open(Handle::ROOT, path, flags | OpenFlags::CREATE | OpenFlags::READ, 0o6755);
        let cqe = hand.all(&[(open, true)], true).remove(0);
        assert_eq!((cqe.status, cqe.result2 & LEASED), (0, LEASED), "{cqe:?}");
        hand.h = Handle::from_wire(cqe.result);
        hand
    }

    pub fn bare<'t>(device: &Device, cred: Cred, turn: &'t mut dyn FnMut() -> bool) -> Hand<'t> {
        let session = device.attach(cred, [0; 16], b"").unwrap();
        let parts = session.new_queue_local(DEPTH, POOL).unwrap();
        let memory = QueueMemory::new(parts.region, &parts.layout).unwrap();
        let pool = memory.pool(&parts.layout).unwrap();
        let (sq, cq) = (SqProducer::new(memory.clone()), CqConsumer::new(memory));
        Hand { sq, cq, pool, used: 0, h: Handle::ROOT, turn, _session: session }
    }

    /// Bytes in the pool, behind those that are there.
    pub fn put(&mut self, bytes: &[u8]) -> PoolRange {
        let range = PoolRange::new(self.used, bytes.len() as u32);
        self.used = (self.used + bytes.len() as u32).next_multiple_of(64);
        assert!(self.used <= OUT);
        self.pool.slice(range).unwrap().copy_from(bytes);
        range
    }

    /// Sends commands, posted or not, all of them before the device looks, or one by one.
    pub fn all(&mut self, ops: &[(Op, bool)], together: bool) -> Vec<Cqe> {
        let mut answers = Vec::new();
        for (n, (op, posted)) in ops.iter().enumerate() {
            let cmd = Command::new(n as u64, *op);
            self.sq.push(&if *posted { cmd.posted() } else { cmd }.encode()).unwrap();
            if together && n + 1 < ops.len() {
                continue;
            }
            self.sq.publish();
            while answers.len() <= n {
                match self.cq.pop() {
                    Some(cqe) => answers.push(cqe),
                    None => drop((self.turn)()),
                }
            }
            self.cq.release();
        }
        answers
    }

    /// The file: what is in it, and what stat says but for its times of now.
    pub fn file(&mut self) -> (Vec<u8>, StatOf) {
        let out = PoolRange::new(OUT, 256);
        assert_eq!(self.all(&[(Op::Stat { h: self.h, out }, false)], true)[0].status, 0);
        let mut body = StatBody::new_zeroed();
        self.pool.slice(out).unwrap().copy_to(body.as_mut_bytes());
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < body.size {
            let out = PoolRange::new(OUT, 64 << 10);
            let read = Op::Read { h: self.h, at: At::Offset(bytes.len() as u64), out, watch: 0 };
            let cqe = self.all(&[(read, false)], true).remove(0);
            assert_eq!(cqe.status, 0);
            let len = cqe.result as usize;
            assert!(len > 0);
            bytes.extend_from_slice(&self.pool.slice(out).unwrap().to_vec()[..len]);
        }
        let StatBody { size, blocks512, mode, uid, gid, .. } = body;
        let times = [body.atime, body.mtime, body.ctime, body.btime].map(|t| (t.sec, t.nsec));
        (bytes, StatOf { size, blocks512, mode, uid, gid, times })
    }

    pub fn next(&mut self, at: At, len: usize, fill: u8) -> (Op, bool) {
        let src = self.put(&vec![fill; len]);
        (Op::Write { h: self.h, at, src }, true)
    }
}

#[derive(PartialEq, Debug)]
pub struct StatOf {
    pub size: u64,
    pub blocks512: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub times: [(i64, u32); 4],
}

/// A device of its own over an empty medium, and a file that is posted to.
pub fn on<T>(
    (medium, durability): (Arc<dyn Medium>, Durability),
    cred: Cred,
    flags: OpenFlags,
    run: impl FnOnce(&mut Hand<'_>, &dyn Fn() -> LogFacts) -> T,
) -> (T, Totals) {
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(7)));
    format(&medium, &MkfsOptions::default(), &*clock, &*random).unwrap();
    let (store, _) = weldfs_fs::mount(medium.clone(), MountOptions::new(clock, random)).unwrap();
    let config = DeviceConfig { inline: Some(false), durability, ..DeviceConfig::default() };
    Device::on_this_thread(store, config, |device, turn| {
        let mut hand = Hand::new(device, cred, flags, turn);
        let came = run(&mut hand, &|| device.stats().log);
        drop(hand);
        (came, device.stats().total)
    })
    .unwrap()
}

/// Pieces of a row, and bytes of each.
const ROW: u64 = 10;
const PIECE: usize = 70;
const ROWS: u64 = 6;

/// Posts rows of appends and syncs each, with the next one behind it in the ring; then cuts the power so many times.
/// How many of the images were bad.
pub fn cut_rows(model: CrashModel, cuts: u64) -> usize {
    let medium = Arc::new(RecordingMedium::new(MEDIUM, model));
    // Where in the recording a sync was known to be over, and what was to be there from then on.
    let mut known = Vec::new();
    let flags = OpenFlags::WRITE | OpenFlags::APPEND;
    let (_, total) = on((medium.clone(), Durability::Volatile), Cred::root(), flags, |hand, _| {
        let mut begun = false;
        for row in 0..ROWS {
            let mut ops = Vec::new();
            for n in 0..ROW {
                ops.push(hand.next(At::Current, PIECE, (row * ROW + n) as u8));
            }
            ops.push((Op::Fsync { h: hand.h }, false));
            // Behind the sync, where nothing promises it. On a disk a sync is waited for, and what is posted behind
            // one ends the lease.
            let last = hand.next(At::Current, PIECE, 200);
            let apart: &[_] = if model == CrashModel::Pmem { &[] } else { &[last] };
            ops.extend((model == CrashModel::Pmem).then_some(last));
            if !begun {
                known.push((medium.position(), 0));
                begun = true;
            }
            assert!(hand.all(&ops, true).iter().all(|c| c.status == 0));
            assert!(hand.all(apart, true).iter().all(|c| c.status == 0));
            known.push((medium.position(), (row + 1) * (ROW * PIECE as u64) + row * PIECE as u64));
        }
    });
    assert_eq!(total.merged_writes, ROWS * (ROW - 1));
    let recording = medium.recording();
    let mut replayer = Replayer::new(&recording, 0);
    let (first, mut bad) = (known[0].0, 0);
    for cut in 0..cuts {
        let position = first + (recording.len() - first) * cut / cuts.max(1);
        replayer.goto(position);
        let least = known.iter().rev().find(|(at, _)| *at <= position).map_or(0, |(_, bytes)| *bytes);
        if let Err(why) = judge(replayer.image(cut), model, least) {
            bad += 1;
            eprintln!("{model:?}, cut at {position} of {}: {why}", recording.len());
        }
    }
    bad
}

/// What a device finds on the medium.
fn judge(image: Vec<u8>, model: CrashModel, least: u64) -> Result<(), String> {
    let medium = Arc::new(RecordingMedium::from_bytes(image, model));
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(8)));
    let (store, _) = weldfs_fs::mount(medium, MountOptions::new(clock, random)).map_err(|e| format!("mount: {e}"))?;
    let config = DeviceConfig { inline: Some(false), ..DeviceConfig::default() };
    let found = Device::on_this_thread(store, config, |device, turn| {
        let mut hand = Hand::bare(device, Cred::root(), turn);
        let path = hand.put(b"d/f");
        let opened = hand.all(&[(Op::open(Handle::ROOT, path, OpenFlags::READ, 0), false)], true).remove(0);
        if opened.status != 0 {
            return None;
        }
        hand.h = Handle::from_wire(opened.result);
        Some(hand.file().0)
    })
    .map_err(|e| format!("device: {e}"))?;
    let found = found.unwrap_or_default();
    let row = |row: u64| (0..ROW).flat_map(move |n| vec![(row * ROW + n) as u8; PIECE]).chain([200; PIECE]);
    let all: Vec<u8> = (0..ROWS).flat_map(row).collect();
    let (len, each) = (found.len() as u64, (ROW + 1) * PIECE as u64);
    let whole = len.is_multiple_of(each) || (len % each) == ROW * PIECE as u64;
    if !whole || len < least || !all.starts_with(&found) {
        return Err(format!("{len} bytes, of which {least} were synced"));
    }
    Ok(())
}
