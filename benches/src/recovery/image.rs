//! The images that crashes leave behind, made from one finished run: its log is captured by record, and laid again
//! up to the wanted point. All 64 appends are in flight at once, as with 64 clients: first all begin records, then all
//! data commits, then all trailer commits. No record says that any was durable: recovery verifies their data.

use super::{Arm, DATA, Point, RECORD, RECORDS};
use crate::head::Head;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weldfs_ciscops::{At, ChecksumKind, Handle, Op, OpenFlags, TxnMode};
use weldfs_fs::driver::Direct;
use weldfs_journal::{Medium, RecordHead, RecordKind, SystemClock, SystemRandom, Verdict};
use weldfs_media::{ImageKind, OpenMode};
use weldfs_store::MountOptions;
use weldfs_store::mount::{MkfsOptions, format};
use weldfs_store::superblock::Superblock;

const SRC: u32 = 1 << 20;
/// Bytes copied at a time.
const PIECE: usize = 1 << 20;

fn other(e: impl std::fmt::Display) -> io::Error {
    io::Error::other(e.to_string())
}

fn options() -> MountOptions {
    MountOptions { memory: 512 << 20, ..MountOptions::new(Arc::new(SystemClock), Arc::new(SystemRandom)) }
}

fn mount(medium: &Arc<dyn Medium>) -> io::Result<Direct> {
    let (store, _) = weldfs_fs::mount(medium.clone(), options()).map_err(other)?;
    Ok(Direct::new(store, 4 << 20))
}

/// The data of record `r` of file `i`.
fn data(i: usize, r: u64) -> Vec<u8> {
    let seed = (i as u64 * RECORDS + r).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let words = (0..DATA.div_ceil(8) as u64).map(|w| (seed ^ w).wrapping_mul(0xff51_afd7_ed55_8ccd));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(DATA);
    bytes
}

/// See the module.
pub(super) struct Images {
    folder: PathBuf,
    sources: PathBuf,
    files: usize,
    /// The four crashes of MicroTx; the first is also that of all others.
    crashed: Vec<(Point, Head)>,
}

type Captured = Vec<(RecordHead, Vec<u8>)>;

impl Images {
    pub(super) fn make(folder: &Path, files: usize) -> io::Result<Images> {
        std::fs::create_dir(folder.join("sources"))?;
        for i in 0..files {
            std::fs::write(folder.join("sources").join(i.to_string()), data(i, RECORDS - 1))?;
        }
        // Ample: near full a checkpoint would come between and take what is to be captured.
        let size = files as u64 * RECORDS * RECORD * 2 + (96 << 20);
        let medium = weldfs_media::create(&folder.join("whole"), ImageKind::Pmem, size, false).map_err(other)?;
        format(&medium, &MkfsOptions::default(), &SystemClock, &SystemRandom).map_err(other)?;
        let mut d = mount(&medium)?;
        for i in 0..files {
            let h = create(&mut d, i)?;
            (0..RECORDS - 1).try_for_each(|r| append(&mut d, h, &data(i, r), TxnMode::Macro))?;
            d.close_all();
            if i % 8 == 7 {
                d.store().checkpoint().map_err(other)?;
            }
        }
        d.store().unmount().map_err(other)?;
        drop(d);
        let base = Head::of(&*medium)?;
        let captured = capture(&medium, files)?;
        let mut crashed = Vec::new();
        for point in super::POINTS {
            base.lay(&*medium)?;
            crash(&medium, &captured, point)?;
            crashed.push((point, Head::of(&*medium)?));
        }
        Ok(Images { folder: folder.to_owned(), sources: folder.join("sources"), files, crashed })
    }

    /// Where the application keeps the data of the interrupted records.
    pub(super) fn sources(&self) -> &Path {
        &self.sources
    }

    /// Makes what an arm starts with; returns the image, or the folder of plain files.
    pub(super) fn lay(&self, point: Point, arm: Arm) -> io::Result<PathBuf> {
        if arm == Arm::Host {
            return self.lay_host(point);
        }
        let target = self.folder.join("image");
        copy(&self.folder.join("whole"), &target)?;
        let medium = weldfs_media::open(&target, ImageKind::Pmem, OpenMode::ReadWrite).map_err(other)?;
        let crashed = |point| {
            let found = self.crashed.iter().find(|(p, _)| *p == point);
            found.map(|(_, head)| head).ok_or_else(|| other("no such crash point"))
        };
        match arm {
            Arm::Micro => crashed(point)?.lay(&*medium)?,
            // One record says all of it: where it is not there, nothing is.
            Arm::Redo => crashed(Point::BeforeBegin)?.lay(&*medium)?,
            Arm::App | Arm::Tail | Arm::Host => {
                crashed(Point::BeforeBegin)?.lay(&*medium)?;
                let mut d = mount(&medium)?;
                for i in 0..self.files {
                    let h = open(&mut d, i, OpenFlags::WRITE)?;
                    for (at, bytes) in plain(point, i) {
                        let src = d.put(SRC, &bytes);
                        ok(d.run(Op::Write { h, at: At::Offset(at), src }))?;
                    }
                }
                let journal = d.store().journal().clone();
                journal.wait(journal.tail()).map_err(other)?;
            }
        }
        Ok(target)
    }

    fn lay_host(&self, point: Point) -> io::Result<PathBuf> {
        use std::os::unix::fs::FileExt;
        let folder = self.folder.join("plain");
        let fresh = !folder.exists();
        std::fs::create_dir_all(&folder)?;
        for i in 0..self.files {
            let path = folder.join(format!("f{i}"));
            let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
            for r in (0..RECORDS - 1).filter(|_| fresh) {
                let bytes = data(i, r);
                file.write_all_at(&bytes, r * RECORD)?;
                file.write_all_at(&weldfs_functions::crc32c(&bytes).to_le_bytes(), r * RECORD + DATA as u64)?;
            }
            file.set_len((RECORDS - 1) * RECORD)?;
            plain(point, i).into_iter().try_for_each(|(at, bytes)| file.write_all_at(&bytes, at))?;
        }
        Ok(folder)
    }
}

/// What the application had written of its last record by then: data, then its checksum.
fn plain(point: Point, i: usize) -> Vec<(u64, Vec<u8>)> {
    let (last, bytes) = ((RECORDS - 1) * RECORD, data(i, RECORDS - 1));
    let sum = weldfs_functions::crc32c(&bytes).to_le_bytes().to_vec();
    match point {
        Point::BeforeBegin | Point::AfterBegin => Vec::new(),
        Point::AfterData => vec![(last, bytes)],
        Point::AfterTrailer => vec![(last, bytes), (last + DATA as u64, sum)],
    }
}

/// Copies an image over the last one, in place: fresh memory would be paid for again and again.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    use std::io::{Read, Write};
    let mut from = std::fs::File::open(from)?;
    let mut to = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(to)?;
    let mut piece = vec![0; PIECE];
    loop {
        let n = from.read(&mut piece)?;
        if n == 0 {
            return Ok(());
        }
        to.write_all(&piece[..n])?;
    }
}

fn ok(o: weldfs_ciscops::interp::Outcome) -> io::Result<u64> {
    if o.is_ok() { Ok(o.result) } else { Err(io::Error::from_raw_os_error(o.status)) }
}

fn open(d: &mut Direct, i: usize, flags: OpenFlags) -> io::Result<Handle> {
    let name = super::arm::name(i);
    let path = d.put(0, name.as_os_str().as_encoded_bytes());
    let h = ok(d.run(Op::open(Handle::ROOT, path, flags, 0o644)))?;
    Ok(Handle::from_wire(h))
}

fn create(d: &mut Direct, i: usize) -> io::Result<Handle> {
    open(d, i, OpenFlags::WRITE | OpenFlags::CREATE)
}

fn append(d: &mut Direct, h: Handle, bytes: &[u8], mode: TxnMode) -> io::Result<()> {
    let src = d.put(SRC, bytes);
    ok(d.run_with(Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src }, mode, false)).map(drop)
}

/// Runs the last append on every file as a MicroTx and takes its records from the log; its data stays on the medium.
fn capture(medium: &Arc<dyn Medium>, files: usize) -> io::Result<Captured> {
    let mut d = mount(medium)?;
    for i in 0..files {
        let h = open(&mut d, i, OpenFlags::WRITE)?;
        append(&mut d, h, &data(i, RECORDS - 1), TxnMode::Micro)?;
    }
    let journal = d.store().journal().clone();
    journal.wait(journal.tail()).map_err(other)?;
    drop((d, journal));
    let (sb, _) = Superblock::load(&**medium).map_err(other)?;
    let mut all: Captured = Vec::new();
    weldfs_journal::scan(&**medium, &sb.geometry.log, &sb.segments, sb.cut, &mut |r| {
        all.push((r.header.head, r.payload.to_vec()));
        Verdict::Ok
    })
    .map_err(other)?;
    let begun = all.iter().filter(|(head, _)| head.kind == RecordKind::Begin).count();
    if begun != files || all.len() != 4 * files {
        return Err(io::Error::other(format!("{begun} begin records of {} for {files} appends", all.len())));
    }
    Ok(all)
}

/// Lays the records up to the crash point in the order in which 64 clients at once would have them.
fn crash(medium: &Arc<dyn Medium>, captured: &Captured, point: Point) -> io::Result<()> {
    let kept = match point {
        Point::BeforeBegin => 0,
        Point::AfterBegin => 1,
        Point::AfterData => 2,
        Point::AfterTrailer => 3,
    };
    let d = mount(medium)?;
    let journal = d.store().journal();
    for step in 0..kept {
        // Four records each: begin, two commits, end.
        for (head, payload) in captured.iter().skip(step).step_by(4) {
            journal.append(*head, &[payload], Vec::new(), None).map_err(other)?;
        }
    }
    journal.commit_through(journal.tail()).map_err(other)
}
