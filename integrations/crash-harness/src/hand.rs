//! A mounted store driven by hand: one thread, commands by path, errors as errno numbers, and a picture of the whole
//! tree. What the sweeps, the bit flips, the directed canaries and the power cuts have in common.

use std::collections::BTreeMap;
use std::sync::Arc;
use weldfs_ciscops::interp::Outcome;
use weldfs_ciscops::virt::TO_END;
use weldfs_ciscops::{
    At, ChecksumKind, Direction, FallocMode, Handle, Modify, Op, OpenFlags, PoolRange, RenameFlags, StatBody, TxnMode,
    VirtRange, VirtSpec, XattrFlags, dirent,
};
use weldfs_fs::driver::Direct;
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_store::geometry::GeometryOptions;
use weldfs_store::mount::{MkfsOptions, format};
use weldfs_store::{MountOptions, Store};
use zerocopy::FromBytes;

/// Bytes of the pool: operands in the first half, results in the second.
const POOL: u32 = 512 << 10;
const OUT: u32 = POOL / 2;
const WRITE_NEW: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE).union(OpenFlags::TRUNC);

/// What one path shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shown {
    /// Type and permissions.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Content of a file, target of a symbolic link, nothing of a directory.
    pub bytes: Vec<u8>,
    /// Extended attributes in byte order.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Extended attributes: names and values.
type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Every path but the root's, without a leading slash.
pub(crate) type Picture = BTreeMap<String, Shown>;

/// See the module. Errors are errno numbers.
pub struct Hand {
    direct: Direct,
    used: u32,
    /// In which transaction mode commands run.
    pub mode: TxnMode,
}

type Done = Result<Outcome, i32>;

/// A layout for images of a few MiB: a log of `log_bytes`, groups of 512 blocks.
pub fn small_layout(log_bytes: u64) -> MkfsOptions {
    let geometry = GeometryOptions { log_len: Some(log_bytes), group_blocks: Some(512), ..GeometryOptions::default() };
    MkfsOptions { label: "small".into(), geometry, ..MkfsOptions::default() }
}

/// How small images are mounted: a clock that stands, fixed salts, little memory, commits by the caller.
pub fn small_mount(seed: u64) -> MountOptions {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000_000));
    let random = Arc::new(SeededRandom::new(seed));
    MountOptions { memory: 4 << 20, inline_commits: true, ..MountOptions::new(clock, random) }
}

/// Formats and mounts.
///
/// # Errors
/// In words.
pub fn fresh(medium: &Arc<dyn Medium>, options: &MkfsOptions, seed: u64) -> Result<Hand, String> {
    let (clock, random) = (ManualClock::new(1_700_000_000_000_000_000), SeededRandom::new(seed));
    format(medium, options, &clock, &random).map_err(|e| format!("format: {e}"))?;
    let (store, _) = weldfs_fs::mount(medium.clone(), small_mount(seed + 1)).map_err(|e| format!("mount: {e}"))?;
    Ok(Hand::new(store))
}

impl Hand {
    /// Over a mounted store.
    pub fn new(store: Arc<Store>) -> Hand {
        Hand { direct: Direct::new(store, POOL as usize), used: 0, mode: TxnMode::Default }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        self.direct.store()
    }

    /// The driver.
    pub fn direct(&mut self) -> &mut Direct {
        &mut self.direct
    }

    fn arg(&mut self, bytes: &[u8]) -> PoolRange {
        let range = self.direct.put(self.used, bytes);
        self.used += bytes.len() as u32;
        range
    }

    fn run(&mut self, op: Op) -> Done {
        self.used = 0;
        let outcome = self.direct.run_with(op, self.mode, false);
        if outcome.is_ok() { Ok(outcome) } else { Err(outcome.status) }
    }

    /// Everything so far becomes durable.
    ///
    /// # Errors
    /// EIO.
    pub fn sync(&self) -> Result<(), i32> {
        let Some(end) = self.direct.last_end() else { return Ok(()) };
        self.store().journal().wait(end).map_err(|_| libc::EIO)
    }

    /// Creates a directory.
    pub fn mkdir(&mut self, path: &str) -> Done {
        let path = self.arg(path.as_bytes());
        self.run(Op::Mkdir { base: Handle::ROOT, path, mode: 0o755 })
    }

    /// Removes a directory.
    pub fn rmdir(&mut self, path: &str) -> Done {
        let path = self.arg(path.as_bytes());
        self.run(Op::Rmdir { base: Handle::ROOT, path })
    }

    /// open_write_close: a file of exactly these bytes.
    pub fn put(&mut self, path: &str, data: &[u8]) -> Done {
        let (path, src) = (self.arg(path.as_bytes()), self.arg(data));
        self.run(Op::OpenWriteClose { base: Handle::ROOT, path, flags: WRITE_NEW, mode: 0o644, at: At::Offset(0), src })
    }

    /// open_write_close into what is there already (created if it is not).
    pub fn patch(&mut self, path: &str, at: At, data: &[u8]) -> Done {
        let (path, src) = (self.arg(path.as_bytes()), self.arg(data));
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        self.run(Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o644, at, src })
    }

    /// open_read_write_close: reads `len` bytes from the start, then writes.
    pub fn swap(&mut self, path: &str, len: u32, at: At, data: &[u8]) -> Done {
        let (path, src) = (self.arg(path.as_bytes()), self.arg(data));
        let (flags, out) = (OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE, PoolRange::new(OUT, len));
        let base = Handle::ROOT;
        self.run(Op::OpenReadWriteClose { base, path, flags, mode: 0o644, read_off: 0, out, at, src })
    }

    /// Opens; the handle must be closed.
    pub fn open(&mut self, path: &str, flags: OpenFlags) -> Result<Handle, i32> {
        let path = self.arg(path.as_bytes());
        let o = self.run(Op::open(Handle::ROOT, path, flags, 0o644))?;
        Ok(Handle::from_wire(o.result))
    }

    /// Closes.
    pub fn close(&mut self, h: Handle) -> Done {
        self.run(Op::Close { h })
    }

    /// Runs `f` on an open file.
    pub fn with(&mut self, path: &str, f: impl FnOnce(&mut Hand, Handle) -> Done) -> Done {
        let h = self.open(path, OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE)?;
        let done = f(self, h);
        self.close(h)?;
        done
    }

    /// write at an offset or at the end.
    pub fn write(&mut self, h: Handle, at: At, data: &[u8]) -> Done {
        let src = self.arg(data);
        self.run(Op::Write { h, at, src })
    }

    /// append_checksum_write.
    pub fn append_checked(&mut self, h: Handle, data: &[u8]) -> Done {
        let src = self.arg(data);
        self.run(Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src })
    }

    /// read_modify_write, adding to a field of eight bytes.
    pub fn add(&mut self, h: Handle, offset: u64, n: u64) -> Done {
        self.run(Op::ReadModifyWrite { h, offset, len: 8, modify: Modify::Add(n), out: PoolRange::new(OUT, 8) })
    }

    /// fallocate.
    pub fn fallocate(&mut self, h: Handle, mode: FallocMode, off: u64, len: u64) -> Done {
        self.run(Op::Fallocate { h, mode, off, len })
    }

    /// ftruncate.
    pub fn truncate(&mut self, h: Handle, size: u64) -> Done {
        self.run(Op::Truncate { h, size })
    }

    /// rename, replacing.
    pub fn rename(&mut self, from: &str, to: &str, flags: RenameFlags) -> Done {
        let (from, to) = (self.arg(from.as_bytes()), self.arg(to.as_bytes()));
        self.run(Op::Rename { from_base: Handle::ROOT, from, to_base: Handle::ROOT, to, flags })
    }

    /// A hard link.
    pub fn link(&mut self, from: &str, to: &str) -> Done {
        let (from, to) = (self.arg(from.as_bytes()), self.arg(to.as_bytes()));
        self.run(Op::Link { from_base: Handle::ROOT, from, to_base: Handle::ROOT, to, follow: false })
    }

    /// A symbolic link.
    pub fn symlink(&mut self, target: &str, path: &str) -> Done {
        let (path, target) = (self.arg(path.as_bytes()), self.arg(target.as_bytes()));
        self.run(Op::Symlink { base: Handle::ROOT, path, target })
    }

    /// unlink.
    pub fn unlink(&mut self, path: &str) -> Done {
        let path = self.arg(path.as_bytes());
        self.run(Op::Unlink { base: Handle::ROOT, path })
    }

    /// setxattr.
    pub fn set_xattr(&mut self, path: &str, name: &str, value: &[u8]) -> Done {
        let (path, name, value) = (self.arg(path.as_bytes()), self.arg(name.as_bytes()), self.arg(value));
        let flags = XattrFlags::empty();
        self.run(Op::SetXattr { base: Handle::ROOT, path, nofollow: true, name, value, flags })
    }

    /// removexattr.
    pub fn remove_xattr(&mut self, path: &str, name: &str) -> Done {
        let (path, name) = (self.arg(path.as_bytes()), self.arg(name.as_bytes()));
        self.run(Op::RemoveXattr { base: Handle::ROOT, path, nofollow: true, name })
    }

    /// virt_register: a virtual file over another one.
    pub fn register(&mut self, path: &str, over: &str) -> Done {
        let range = VirtRange { path: over.as_bytes().to_vec(), offset: 0, length: TO_END };
        let (kernel, params) = ("grep".to_owned(), vec![1, 97]);
        let spec = VirtSpec { kernel, params, direction: Direction::Read, ranges: vec![range] };
        let spec = spec.encode().map_err(|e| e.0)?;
        let (path, spec) = (self.arg(path.as_bytes()), self.arg(&spec));
        self.run(Op::VirtRegister { base: Handle::ROOT, path, mode: 0o644, spec })
    }

    /// The whole content of a file.
    pub fn read(&mut self, path: &str) -> Result<Vec<u8>, i32> {
        let mut all = Vec::new();
        loop {
            let range = self.arg(path.as_bytes());
            let (offset, out) = (all.len() as u64, PoolRange::new(OUT, POOL - OUT));
            let flags = OpenFlags::READ;
            let o = self.run(Op::OpenReadClose { base: Handle::ROOT, path: range, flags, offset, out })?;
            all.extend(self.direct.take(PoolRange::new(OUT, o.result as u32)));
            if o.result < u64::from(POOL - OUT) {
                return Ok(all);
            }
        }
    }

    /// What a file of this size holds: its bytes, or the spec of a virtual one.
    fn content(&mut self, path: &str, size: u64) -> Result<Vec<u8>, i32> {
        match self.read(path) {
            Ok(bytes) if bytes.len() as u64 != size => Err(libc::EIO),
            Err(libc::EOPNOTSUPP) => {
                let (path, out) = (self.arg(path.as_bytes()), PoolRange::new(OUT, POOL - OUT));
                let o = self.run(Op::VirtSpec { base: Handle::ROOT, path, nofollow: true, out })?;
                Ok(self.direct.take(PoolRange::new(OUT, o.result as u32)))
            }
            other => other,
        }
    }

    /// Names and types in a directory, without the two dots.
    pub fn list(&mut self, path: &str) -> Result<Vec<(String, u8)>, i32> {
        let h = self.open(path, OpenFlags::READ | OpenFlags::DIRECTORY)?;
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let out = PoolRange::new(OUT, 16 << 10);
            let o = self.run(Op::ReadDir { h, cookie, out })?;
            let bytes = self.direct.take(PoolRange::new(OUT, o.result as u32));
            let names = dirent::Dirents(&bytes).filter(|d| d.name != b"." && d.name != b"..");
            all.extend(names.map(|d| (String::from_utf8_lossy(d.name).into_owned(), d.dtype)));
            if bytes.is_empty() {
                break;
            }
            cookie = o.result2;
        }
        self.close(h)?;
        Ok(all)
    }

    fn stat(&mut self, path: &str) -> Result<StatBody, i32> {
        let (path, out) = (self.arg(path.as_bytes()), PoolRange::new(OUT, size_of::<StatBody>() as u32));
        self.run(Op::StatPath { base: Handle::ROOT, path, nofollow: true, out })?;
        StatBody::read_from_bytes(&self.direct.take(out)).map_err(|_| libc::EIO)
    }

    fn xattrs(&mut self, path: &str) -> Result<Xattrs, i32> {
        let (base, nofollow, out) = (Handle::ROOT, true, PoolRange::new(OUT, 64 << 10));
        let range = self.arg(path.as_bytes());
        let o = self.run(Op::ListXattr { base, path: range, nofollow, out })?;
        let names = self.direct.take(PoolRange::new(OUT, o.result as u32));
        let mut all = Vec::new();
        for key in names.split(|b| *b == 0).filter(|n| !n.is_empty()) {
            let (range, name) = (self.arg(path.as_bytes()), self.arg(key));
            let o = self.run(Op::GetXattr { base, path: range, nofollow, name, out })?;
            all.push((key.to_vec(), self.direct.take(PoolRange::new(OUT, o.result as u32))));
        }
        all.sort();
        Ok(all)
    }

    fn shown(&mut self, path: &str, dtype: u8) -> Result<Shown, i32> {
        let stat = self.stat(path)?;
        let bytes = match dtype {
            dirent::dtype::REG => self.content(path, stat.size)?,
            dirent::dtype::LNK => {
                let range = self.arg(path.as_bytes());
                let out = PoolRange::new(OUT, 4096);
                let o = self.run(Op::Readlink { base: Handle::ROOT, path: range, out })?;
                self.direct.take(PoolRange::new(OUT, o.result as u32))
            }
            _ => Vec::new(),
        };
        Ok(Shown { mode: stat.mode, nlink: stat.nlink, bytes, xattrs: self.xattrs(path)? })
    }

    /// Everything there is, every byte read.
    ///
    /// # Errors
    /// The path at which reading failed, and the errno.
    pub(crate) fn picture(&mut self) -> Result<Picture, (String, i32)> {
        let (mut picture, mut todo) = (Picture::new(), vec![String::new()]);
        while let Some(dir) = todo.pop() {
            let place = if dir.is_empty() { "/" } else { &dir };
            let names = self.list(place).map_err(|e| (dir.clone(), e))?;
            for (name, dtype) in names {
                let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
                let shown = self.shown(&path, dtype).map_err(|e| (path.clone(), e))?;
                if dtype == dirent::dtype::DIR {
                    todo.push(path.clone());
                }
                picture.insert(path, shown);
            }
        }
        Ok(picture)
    }
}
