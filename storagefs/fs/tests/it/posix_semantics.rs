//! Properties of files and directories that a comparison with the model does not show: what a command costs, what rot
//! does, what a full image does, what stays stable while a directory changes.

use std::sync::Arc;
use weldfs_ciscops::interp::Outcome;
use weldfs_ciscops::{At, ChecksumKind, Errno, FallocMode, Handle, InodeNo, Op, OpenFlags, PoolRange, Whence, dirent};
use weldfs_fs::driver::Direct;
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_media::RamMedium;
use weldfs_store::MountOptions;
use weldfs_store::mount::{MkfsOptions, format};

const OUT: u32 = 4 << 20;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

fn options() -> MountOptions {
    MountOptions {
        memory: 16 << 20,
        ..MountOptions::new(Arc::new(ManualClock::new(1_000_000_000)), Arc::new(SeededRandom::new(3)))
    }
}

struct Fs {
    medium: Arc<dyn Medium>,
    d: Direct,
}

impl Fs {
    fn new(bytes: u64) -> Fs {
        let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(bytes));
        let o = options();
        format(&medium, &MkfsOptions::default(), &*o.clock, &*o.random).expect("large enough");
        let store = weldfs_fs::mount(medium.clone(), o).expect("just formatted").0;
        Fs { medium, d: Direct::new(store, 8 << 20) }
    }

    fn remount(&mut self) {
        self.d.close_all();
        self.d.store().unmount().expect("the medium is healthy");
        let store = weldfs_fs::mount(self.medium.clone(), options()).expect("unmounted cleanly").0;
        self.d = Direct::new(store, 8 << 20);
    }

    fn path(&self, path: &str) -> PoolRange {
        self.d.put(0, path.as_bytes())
    }

    fn open(&mut self, path: &str, flags: OpenFlags) -> Result<Handle, Errno> {
        let path = self.path(path);
        let o = self.d.run(Op::open(Handle::ROOT, path, flags, 0o644));
        ok(o).map(|o| Handle::from_wire(o.result))
    }

    fn create(&mut self, path: &str) -> Handle {
        self.open(path, RW | OpenFlags::CREATE).expect("a new file")
    }

    fn write(&mut self, h: Handle, at: At, data: &[u8]) -> Result<(), Errno> {
        let src = self.d.put(8192, data);
        ok(self.d.run(Op::Write { h, at, src })).map(drop)
    }

    fn read(&mut self, h: Handle, off: u64, len: u32) -> Result<Vec<u8>, Errno> {
        let o = ok(self.d.run(Op::Read { h, at: At::Offset(off), out: PoolRange::new(OUT, len), watch: 0 }))?;
        Ok(self.d.take(PoolRange::new(OUT, o.result as u32)))
    }

    fn put(&mut self, path: &str, data: &[u8]) -> Result<Outcome, Errno> {
        let (path, src) = (self.path(path), self.d.put(8192, data));
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
        let at = At::Offset(0);
        ok(self.d.run(Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o644, at, src }))
    }

    fn unlink(&mut self, path: &str) -> Result<(), Errno> {
        let path = self.path(path);
        ok(self.d.run(Op::Unlink { base: Handle::ROOT, path })).map(drop)
    }

    fn list(&mut self, h: Handle, cookie: u64, room: u32) -> (Vec<String>, u64) {
        let o = ok(self.d.run(Op::ReadDir { h, cookie, out: PoolRange::new(OUT, room) })).expect("a directory");
        let bytes = self.d.take(PoolRange::new(OUT, o.result as u32));
        (dirent::Dirents(&bytes).map(|d| String::from_utf8_lossy(d.name).into_owned()).collect(), o.result2)
    }
}

fn ok(o: Outcome) -> Result<Outcome, Errno> {
    if o.is_ok() { Ok(o) } else { Err(Errno(o.status)) }
}

#[test]
fn a_fused_write_of_a_block_copies_its_payload_once() {
    let mut fs = Fs::new(32 << 20);
    let before = fs.d.counters();
    fs.put("file", &[7; 4096]).expect("there is room");
    let after = fs.d.counters();
    assert_eq!(after.payload_copies - before.payload_copies, 1);
    assert_eq!(after.blocks_written - before.blocks_written, 1);
    assert_eq!(after.bytes_in - before.bytes_in, 4096);
}

#[test]
fn payload_and_trailer_of_one_block_are_written_once() {
    let mut fs = Fs::new(32 << 20);
    let h = fs.create("log");
    for i in 0..3 {
        let src = fs.d.put(8192, &[i; 4092]);
        let before = fs.d.counters();
        ok(fs.d.run(Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src })).expect("there is room");
        assert_eq!(fs.d.counters().blocks_written - before.blocks_written, 1);
        assert_eq!(fs.d.counters().blocks_read, before.blocks_read);
        let (kind, offset) = (ChecksumKind::Crc32c, u64::from(i) * 4096);
        let out = PoolRange::new(OUT, 4092);
        ok(fs.d.run(Op::ReadChecksumVerify { h, kind, offset, len: 4092, out })).expect("what was written");
    }
    fs.write(h, At::Offset(4096 + 5), b"!").expect("there is room");
    let out = PoolRange::EMPTY;
    let verify = Op::ReadChecksumVerify { h, kind: ChecksumKind::Crc32c, offset: 4096, len: 4092, out };
    assert_eq!(ok(fs.d.run(verify)).err(), Some(Errno::BADMSG));
}

#[test]
fn a_range_is_summed_up_as_it_is_read_and_short_at_the_end() {
    let mut fs = Fs::new(32 << 20);
    let h = fs.create("file");
    fs.write(h, At::Offset(5000), b"data").expect("there is room");
    let mut range = |offset, len| {
        let o = fs.d.run(Op::ChecksumRange { h, kind: ChecksumKind::Crc32c, offset, len });
        (o.status, o.result, o.result2)
    };
    let want = weldfs_functions::crc32c(b"\0\0data").into();
    assert_eq!(range(4998, 6), (0, 6, want));
    assert_eq!(range(4998, 1 << 40), (0, 6, want));
    assert_eq!(range(6000, 1), (0, 0, 0));
    let dir = Op::ChecksumRange { h: Handle::ROOT, kind: ChecksumKind::Crc32c, offset: 0, len: 1 };
    assert_eq!(fs.d.run(dir).status, Errno::ISDIR.0);
}

#[test]
fn a_verified_write_happens_if_its_checksum_is_right_and_not_at_all_otherwise() {
    let mut fs = Fs::new(32 << 20);
    let h = fs.create("file");
    fs.write(h, At::Offset(0), &[1; 5000]).expect("there is room");
    let (data, kind) = (vec![2; 6000], ChecksumKind::Crc32c);
    let (src, sum) = (fs.d.put(0, &data), weldfs_functions::crc32c(&data));
    let before = fs.read(h, 0, 20_000);
    for at in [At::Offset(0), At::Offset(4095), At::End, At::Current] {
        let o = fs.d.run(Op::WriteVerified { h, at, src, kind, sum: sum ^ 1 });
        assert_eq!((o.status, o.result), (Errno::BADMSG.0, 0), "{at:?}");
    }
    assert_eq!(fs.read(h, 0, 20_000), before);
    let o = fs.d.run(Op::WriteVerified { h, at: At::End, src, kind, sum });
    assert_eq!((o.status, o.result, o.result2), (0, 6000, 5000));
    let o = fs.d.run(Op::WriteVerified { h, at: At::Current, src, kind, sum });
    assert_eq!((o.status, o.result, o.result2), (0, 6000, 0), "the offset was not moved by what did not happen");
    let nothing = PoolRange::new(0, 0);
    let o = fs.d.run(Op::WriteVerified { h, at: At::End, src: nothing, kind, sum: 0 });
    assert_eq!((o.status, o.result), (0, 0), "the sum of no bytes is 0");
    let all = fs.read(h, 0, 20_000).expect("it is open for reading");
    assert_eq!((all.len(), &all[..6000], &all[6000..]), (11_000, &data[..], &data[..5000]));
}

#[test]
fn a_small_overwrite_rides_in_the_record() {
    let mut fs = Fs::new(32 << 20);
    let h = fs.create("file");
    fs.write(h, At::Offset(0), &[1; 8192]).expect("there is room");
    let before = fs.d.counters();
    fs.write(h, At::Offset(4000), &[2; 200]).expect("there is room");
    let after = fs.d.counters();
    assert_eq!((after.blocks_written, after.patches - before.patches), (before.blocks_written, 2));
    let written = fs.d.store().stats().checkpoint_bytes;
    for _ in 0..2 {
        let all = fs.read(h, 0, 9000).expect("readable");
        assert_eq!((all.len(), all[3999], all[4000], all[4199], all[4200]), (8192, 1, 2, 2, 1));
        fs.d.store().checkpoint().expect("the medium is healthy");
    }
    // The two blocks that were merged, a page of metadata, three superblocks.
    let written = fs.d.store().stats().checkpoint_bytes - written;
    assert!(written >= (2 + 4 + 3) * 4096 && written.is_multiple_of(4096), "{written} bytes");
}

#[test]
fn rot_is_an_error_and_never_data() {
    let mut fs = Fs::new(32 << 20);
    let h = fs.create("file");
    fs.write(h, At::Offset(0), &[9; 12_288]).expect("there is room");
    let mut place = None;
    fs.d.store()
        .block_map(InodeNo(2), 1, 1, &mut |_, v| {
            place = v.addr;
            true
        })
        .expect("in memory");
    let off = place.expect("written").0 * 4096 + 77;
    fs.medium.write(off, &[8]).expect("in range");
    assert_eq!(fs.read(h, 4096, 4096), Err(Errno::IO), "whole block");
    assert_eq!(fs.read(h, 5000, 10), Err(Errno::IO), "part of it");
    assert_eq!(fs.read(h, 0, 4096).map(|d| d.len()), Ok(4096), "its neighbour");
    fs.write(h, At::Offset(4096), &[9; 4096]).expect("a whole overwrite needs no old bytes");
    assert_eq!(fs.read(h, 0, 12_288), Ok(vec![9; 12_288]));
}

#[test]
fn entries_that_stay_are_seen_exactly_once_while_others_come_and_go() {
    let mut fs = Fs::new(64 << 20);
    let path = fs.path("dir");
    ok(fs.d.run(Op::Mkdir { base: Handle::ROOT, path, mode: 0o755 })).expect("a new directory");
    for i in 0..400 {
        let h = fs.create(&format!("dir/stay{i}"));
        ok(fs.d.run(Op::Close { h })).expect("open");
    }
    let mut dir = fs.open("dir", OpenFlags::READ | OpenFlags::DIRECTORY).expect("a directory");
    let (mut seen, mut cookie, mut round) = (Vec::new(), 0, 0);
    loop {
        let (names, next) = fs.list(dir, cookie, 700);
        if names.is_empty() {
            break;
        }
        seen.extend(names);
        (cookie, round) = (next, round + 1);
        let h = fs.create(&format!("dir/come{round}"));
        ok(fs.d.run(Op::Close { h })).expect("open");
        if round > 1 {
            fs.unlink(&format!("dir/come{}", round - 1)).expect("made a round ago");
        }
        match round {
            5 | 9 => drop(fs.d.store().checkpoint().expect("the medium is healthy")),
            13 => {
                fs.remount();
                dir = fs.open("dir", OpenFlags::READ | OpenFlags::DIRECTORY).expect("a directory");
            }
            _ => {}
        }
    }
    let mut stay: Vec<_> = seen.iter().filter(|n| n.starts_with("stay")).collect();
    assert_eq!(stay.len(), 400);
    stay.sort();
    stay.dedup();
    assert_eq!(stay.len(), 400);
    assert_eq!(&seen[..2], [".", ".."]);
}

#[test]
fn absolute_links_are_relative_to_the_prefix() {
    let mut fs = Fs::new(32 << 20);
    fs.put("file", b"x").expect("there is room");
    for (target, name) in [("/weld/file", "in"), ("/etc/passwd", "out"), ("/file", "plain"), ("/welding/file", "near")]
    {
        let (path, target) = (fs.d.put(0, name.as_bytes()), fs.d.put(100, target.as_bytes()));
        ok(fs.d.run(Op::Symlink { base: Handle::ROOT, path, target })).expect("a new link");
    }
    assert_eq!(fs.open("plain", OpenFlags::READ).err(), None);
    assert_eq!(fs.open("in", OpenFlags::READ).err(), Some(Errno::NOENT));
    fs.d.set_prefix(Some(b"/weld".to_vec()));
    assert_eq!(fs.open("in", OpenFlags::READ).err(), None);
    assert_eq!(fs.open("out", OpenFlags::READ).err(), Some(Errno::XDEV));
    assert_eq!(fs.open("near", OpenFlags::READ).err(), Some(Errno::XDEV));
}

#[test]
fn files_reach_eight_tebibytes_and_holes_are_free() {
    let mut fs = Fs::new(32 << 20);
    let h = fs.create("sparse");
    let far = (8 << 40) - 5000;
    let free = fs.d.store().statfs().free;
    fs.write(h, At::Offset(far), &[3; 5000]).expect("there is room");
    assert!(free - fs.d.store().statfs().free < 8, "holes take no space");
    assert_eq!(fs.read(h, far - 1, 3), Ok(vec![0, 3, 3]));
    assert_eq!(fs.write(h, At::Offset(1 << 44), b"x"), Err(Errno::FBIG));
    ok(fs.d.run(Op::Fallocate { h, mode: FallocMode::Punch, off: 0, len: 8 << 40 })).expect("holes need nothing");
    assert_eq!(fs.read(h, far, 10), Ok(vec![0; 10]));
}

#[test]
fn a_full_image_refuses_growth_and_nothing_else() {
    let mut fs = Fs::new(16 << 20);
    let h = fs.create("kept");
    fs.write(h, At::Offset(0), &[1; 65_536]).expect("there is room");
    let mut i = 0;
    while let Ok(o) = fs.put(&format!("fill{i}"), &vec![i as u8; 200_000]) {
        assert_eq!(o.result, 200_000);
        i += 1;
        assert!(i < 1000, "an image of 16 MiB must fill up");
    }
    let path = fs.path(&format!("fill{i}"));
    let stat = Op::StatPath { base: Handle::ROOT, path, nofollow: false, out: PoolRange::new(OUT, 256) };
    assert_eq!(ok(fs.d.run(stat)).err(), Some(Errno::NOENT), "no partial effect");
    for round in 0..40u8 {
        fs.write(h, At::Offset(0), &[round; 65_536]).expect("an overwrite of allocated blocks never fails");
    }
    assert_eq!(fs.read(h, 0, 65_536), Ok(vec![39; 65_536]));
    for n in 0..i {
        fs.unlink(&format!("fill{n}")).expect("unlink always succeeds");
    }
    fs.put("again", &[5; 200_000]).expect("the space came back");
}

#[test]
fn an_unlinked_file_lives_until_its_last_close() {
    let mut fs = Fs::new(32 << 20);
    let h = fs.create("file");
    fs.write(h, At::Offset(0), &[4; 300_000]).expect("there is room");
    fs.unlink("file").expect("it is there");
    fs.d.store().reclaim_all().expect("the medium is healthy");
    assert_eq!(fs.read(h, 299_999, 10), Ok(vec![4]));
    let inodes = fs.d.store().statfs().inodes;
    ok(fs.d.run(Op::Close { h })).expect("open");
    fs.d.store().reclaim_all().expect("the medium is healthy");
    assert_eq!(fs.d.store().statfs().inodes, inodes - 1);
}

#[test]
fn an_append_of_no_bytes_leaves_the_offset_where_it_is() {
    let mut fs = Fs::new(32 << 20);
    fs.put("log", b"0123456789").expect("there is room");
    let h = fs.open("log", RW | OpenFlags::APPEND).expect("it is there");
    let place = |fs: &mut Fs| ok(fs.d.run(Op::Seek { h, whence: Whence::Cur, off: 0 })).map(|o| o.result);
    ok(fs.d.run(Op::Seek { h, whence: Whence::Set, off: 3 })).expect("within the file");
    fs.write(h, At::Current, b"").expect("nothing to write");
    assert_eq!(place(&mut fs), Ok(3));
    fs.write(h, At::Current, b"ab").expect("there is room");
    assert_eq!(place(&mut fs), Ok(12), "behind what was appended");
}

#[test]
fn a_command_that_is_too_big_has_no_effect() {
    let mut fs = Fs::new(32 << 20);
    let h = fs.create("file");
    let src = PoolRange::new(8192, (1 << 20) + 1);
    assert_eq!(ok(fs.d.run(Op::Write { h, at: At::End, src })).err(), Some(Errno::TOOBIG));
    let src = PoolRange::new(8192, 1 << 20);
    let append = Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src };
    assert_eq!(ok(fs.d.run(append)).err(), Some(Errno::TOOBIG));
    assert_eq!(fs.read(h, 0, 10), Ok(vec![]));
    fs.write(h, At::End, &vec![1; 1 << 20]).expect("one MiB is allowed");
}
