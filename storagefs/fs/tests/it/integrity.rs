//! Data read is data written, or EIO: a byte is flipped under each path by which data is read, on every kind of medium.
//! The log says which file and offset, which checksum was expected and which was found.

use std::io;
use std::sync::Arc;
use weldfs_ciscops::interp::Outcome;
use weldfs_ciscops::{At, ChecksumKind, Errno, Handle, InodeNo, Modify, Op, OpenFlags, PoolRange};
use weldfs_fs::driver::Direct;
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_locks::Mutex;
use weldfs_media::{ImageKind, RamMedium, create};
use weldfs_store::MountOptions;
use weldfs_store::mount::{MkfsOptions, format};

const SIZE: u64 = 32 << 20;
const SRC: u32 = 64 << 10;
const OUT: u32 = 4 << 20;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const BLOCKS: u64 = 8;

fn options() -> MountOptions {
    MountOptions::new(Arc::new(ManualClock::new(1_000_000_000)), Arc::new(SeededRandom::new(3)))
}

/// Lines of the log of this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(buf);
        Ok(buf.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock())).expect("text")
    }
}

struct Fs {
    medium: Arc<dyn Medium>,
    d: Direct,
    log: Lines,
    _capture: tracing::subscriber::DefaultGuard,
}

impl Fs {
    /// With a file "file" of [`BLOCKS`] blocks, checkpointed, and nothing of it in memory.
    fn new(medium: Arc<dyn Medium>) -> Fs {
        let o = options();
        format(&medium, &MkfsOptions::default(), &*o.clock, &*o.random).expect("large enough");
        let store = weldfs_fs::mount(medium.clone(), o).expect("just formatted").0;
        let log = Lines::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let _capture = tracing::subscriber::set_default(subscriber);
        let mut fs = Fs { medium, d: Direct::new(store, 8 << 20), log, _capture };
        let src = fs.d.put(SRC, &content());
        let h = fs.open(RW | OpenFlags::CREATE);
        ok(fs.d.run(Op::Write { h, at: At::Offset(0), src })).expect("room");
        fs.remount();
        fs
    }

    fn remount(&mut self) {
        self.d.close_all();
        self.d.store().unmount().expect("healthy");
        let store = weldfs_fs::mount(self.medium.clone(), options()).expect("unmounted cleanly").0;
        self.d = Direct::new(store, 8 << 20);
    }

    fn open(&mut self, flags: OpenFlags) -> Handle {
        let path = self.d.put(0, b"file");
        let o = self.d.run(Op::open(Handle::ROOT, path, flags, 0o644));
        Handle::from_wire(ok(o).expect("opens").result)
    }

    /// Flips a bit of the medium under block `blk` of the file; returns a way back.
    fn flip(&self, blk: u64) -> u64 {
        let store = self.d.store();
        let mut place = None;
        store
            .blocking(|| {
                store.block_map(InodeNo(2), blk, 1, &mut |_, v| {
                    place = v.addr;
                    true
                })
            })
            .expect("mapped");
        let at = place.expect("written").0 * 4096 + 77;
        self.flip_byte(at);
        at
    }

    fn flip_byte(&self, at: u64) {
        let mut byte = [0];
        let mut block = vec![0; 4096];
        self.medium.read(at / 4096 * 4096, &mut block).expect("reads");
        byte[0] = block[(at % 4096) as usize] ^ 0x10;
        self.medium.write(at, &byte).expect("writes");
    }

    fn read(&mut self, h: Handle, off: u64, len: u32) -> Result<Vec<u8>, Errno> {
        self.d.put(OUT, &vec![0; len as usize]);
        let o = ok(self.d.run(Op::Read { h, at: At::Offset(off), out: PoolRange::new(OUT, len), watch: 0 }))?;
        Ok(self.d.take(PoolRange::new(OUT, o.result as u32)))
    }

    fn write(&mut self, h: Handle, off: u64, data: &[u8]) -> Result<(), Errno> {
        let src = self.d.put(SRC, data);
        ok(self.d.run(Op::Write { h, at: At::Offset(off), src })).map(drop)
    }

    /// The log names the file's block `blk` and both checksums, once.
    fn logged(&self, blk: u64) {
        let text = self.log.take();
        let lines: Vec<&str> = text.lines().filter(|l| l.contains("damaged data")).collect();
        assert_eq!(lines.len(), 1, "{text}");
        let offset = format!("offset={}", blk * 4096);
        for part in ["ERROR", "inode=2", &offset, "expected=\"0x", "actual=\"0x"] {
            assert!(lines[0].contains(part), "{part} in {text}");
        }
    }
}

fn content() -> Vec<u8> {
    (0..BLOCKS as usize * 4096).map(|i| (i / 7) as u8 ^ (i >> 12) as u8).collect()
}

/// Errors only: contents do not belong into the output of a failed test.
fn eio<T>(r: Result<T, Errno>) -> bool {
    r.err() == Some(Errno::IO)
}

fn ok(o: Outcome) -> Result<Outcome, Errno> {
    if o.is_ok() { Ok(o) } else { Err(Errno(o.status)) }
}

fn on_all_media(test: impl Fn(&mut Fs)) {
    let dir = tempfile::tempdir().expect("a folder");
    test(&mut Fs::new(Arc::new(RamMedium::new(SIZE))));
    for kind in [ImageKind::Pmem, ImageKind::PmemNoFlush, ImageKind::Block] {
        let path = dir.path().join(format!("{kind:?}"));
        test(&mut Fs::new(create(&path, kind, SIZE, false).expect("creates")));
    }
}

#[test]
fn whole_blocks_handed_straight_out_are_verified_and_nothing_wrong_stays_with_the_client() {
    on_all_media(|fs| {
        fs.flip(2);
        let h = fs.open(RW);
        assert!(eio(fs.read(h, 2 * 4096, 4096)));
        fs.logged(2);
        let pool = fs.d.take(PoolRange::new(OUT, 4096));
        assert!(pool.iter().all(|b| *b == 0), "bytes that failed verification");
        assert!(eio(fs.read(h, 0, 5 * 4096)), "as a part of more");
        assert_eq!(fs.log.take(), "", "said once");
        assert_eq!(fs.read(h, 3 * 4096, 4096).expect("its neighbour"), &content()[3 * 4096..4 * 4096]);
        assert!(fs.d.store().stats().damage_found >= 2);
    });
}

#[test]
fn parts_of_blocks_are_verified_with_the_whole_block() {
    on_all_media(|fs| {
        fs.flip(1);
        let h = fs.open(RW);
        assert!(eio(fs.read(h, 4096 + 3000, 10)), "the flipped byte is not among them");
        fs.logged(1);
        assert!(eio(fs.read(h, 4000, 200)), "across a boundary");
    });
}

#[test]
fn what_the_log_lays_over_a_bad_block_does_not_make_it_good() {
    on_all_media(|fs| {
        let h = fs.open(RW);
        fs.write(h, 4 * 4096 + 500, b"patched").expect("room");
        fs.flip(4);
        assert!(eio(fs.read(h, 4 * 4096, 4096)));
        fs.logged(4);
        fs.d.store().checkpoint().expect("damage of data does not stop a checkpoint");
        assert!(fs.log.take().is_empty(), "the same finding");
        for _ in 0..2 {
            let h = fs.open(RW);
            assert!(eio(fs.read(h, 4 * 4096, 4096)), "the whole block");
            assert!(eio(fs.read(h, 4 * 4096 + 500, 7)), "never a fresh checksum over unverified bytes");
            fs.remount();
        }
        let h = fs.open(RW);
        fs.write(h, 4 * 4096, &[5; 4096]).expect("a whole overwrite needs no old bytes");
        assert!(fs.read(h, 4 * 4096, 4096) == Ok(vec![5; 4096]));
        fs.remount();
    });
}

#[test]
fn a_merge_at_the_checkpoint_that_meets_damage_first_says_so() {
    on_all_media(|fs| {
        let h = fs.open(RW);
        fs.write(h, 6 * 4096 + 9, b"x").expect("room");
        fs.flip(6);
        fs.d.store().checkpoint().expect("goes on");
        fs.logged(6);
        assert!(eio(fs.read(h, 6 * 4096, 10)));
    });
}

#[test]
fn the_old_bytes_under_a_partial_write_are_verified() {
    on_all_media(|fs| {
        let h = fs.open(RW);
        let at = fs.flip(3);
        // Too long for the record: the block is read, changed and written elsewhere. So is the base of the add.
        let long = vec![7; 20_000];
        assert_eq!(fs.write(h, 3 * 4096 + 1, &long).err(), Some(Errno::IO));
        fs.logged(3);
        let out = PoolRange::new(OUT, 8);
        let add = Op::ReadModifyWrite { h, offset: 3 * 4096, len: 8, modify: Modify::Add(1), out };
        assert_eq!(ok(fs.d.run(add)).err(), Some(Errno::IO));
        fs.flip_byte(at);
        fs.remount();
        let h = fs.open(RW);
        assert!(fs.read(h, 0, 8 * 4096) == Ok(content()), "nothing of the failed writes is there");
    });
}

#[test]
fn verified_reads_and_fused_reads_are_verified_twice() {
    on_all_media(|fs| {
        fs.flip(0);
        let path = fs.d.put(0, b"file");
        let out = PoolRange::new(OUT, 4096);
        let whole = Op::OpenReadClose { base: Handle::ROOT, path, flags: OpenFlags::READ, offset: 0, out };
        assert_eq!(ok(fs.d.run(whole)).err(), Some(Errno::IO));
        let text = fs.log.take();
        assert!(text.contains("path=\"file\"") && text.contains("inode=2"), "{text}");
        let h = fs.open(RW);
        let verify = Op::ReadChecksumVerify { h, kind: ChecksumKind::Crc32c, offset: 0, len: 4092, out };
        assert_eq!(ok(fs.d.run(verify)).err(), Some(Errno::IO), "before the trailer is even looked at");
    });
}

#[test]
fn a_medium_that_lies_once_is_believed_the_next_time() {
    on_all_media(|fs| {
        let h = fs.open(RW);
        let at = fs.flip(5);
        assert!(eio(fs.read(h, 5 * 4096, 100)));
        fs.flip_byte(at);
        assert_eq!(fs.read(h, 5 * 4096, 100).expect("no cache keeps the lie"), &content()[5 * 4096..5 * 4096 + 100]);
    });
}
