//! The real file system behind the model's vocabulary: runs the model's operations on a mounted store, and takes the
//! same picture of its tree. One thread, no device around it.

mod many;

use crate::model::{self, Content, Falloc, Name, Reply, SetAttr, SetTime, Stat, TreeEntry, TreeImage, Who, Xattrs};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use weldfs_ciscops::interp::Outcome;
use weldfs_ciscops::{
    AccessMask, At, ChecksumKind, Command, FallocMode, Handle, InodeNo, Modify, Op, OpenFlags, PoolRange, RenameFlags,
    SetAttrBody, SetAttrMask, StatBody, TxnMode, Whence, WireTime, XattrFlags, dirent,
};
use weldfs_fs::Cred;
use weldfs_fs::driver::Direct;
use weldfs_store::Store;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the pool unless told otherwise.
const POOL: usize = 8 << 20;
/// A directory entry: name, type, and the cookie after it.
pub(crate) type DirLine = (Vec<u8>, u8, u64);
/// A handle that was never given.
const NOBODY: Handle = Handle { index: 60_000, generation: 7 };

/// The real file system with the model's slots.
pub struct Real {
    /// What runs the commands.
    pub direct: Direct,
    slots: HashMap<u32, Handle>,
    /// Bytes of the buffer that directories are read through.
    pub dir_buf: u32,
    used: u32,
    /// Where the pool's second half begins: the first holds operands, the second receives.
    out: u32,
    /// Transaction mode that fused operations ask for.
    pub mode: TxnMode,
    /// Whether operations are durable when they return.
    pub durable: bool,
    /// Where the device has the choice: whether the last command asked for steps.
    stepped: bool,
}

fn done(o: Outcome) -> Result<Outcome, i32> {
    if o.is_ok() { Ok(o) } else { Err(o.status) }
}

/// Whether a device would refuse a fused operation as it stands; the driver then runs it whole.
fn refused(op: &model::Op) -> bool {
    let odd = |flags: i32| flags & (libc::O_DIRECTORY | libc::O_PATH) != 0;
    match op {
        model::Op::OpenWriteClose { flags, at, .. } | model::Op::OpenReadWriteClose { flags, at, .. } => {
            odd(*flags) || *at == model::At::Current
        }
        model::Op::ReadModifyWrite { len, .. } => *len == 0,
        _ => false,
    }
}

fn falloc(mode: Falloc) -> FallocMode {
    match mode {
        Falloc::Reserve => FallocMode::Reserve,
        Falloc::KeepSize => FallocMode::KeepSize,
        Falloc::Punch => FallocMode::Punch,
        Falloc::Zero => FallocMode::Zero,
        Falloc::ZeroKeepSize => FallocMode::ZeroKeepSize,
    }
}

fn at(at: model::At) -> At {
    match at {
        model::At::Offset(off) => At::Offset(off),
        model::At::Current => At::Current,
        model::At::End => At::End,
    }
}

fn set_attr_body(set: &SetAttr) -> SetAttrBody {
    let mut body = SetAttrBody::default();
    let mut mask = SetAttrMask::empty();
    if let Some(v) = set.mode {
        (body.mode, mask) = (v, mask | SetAttrMask::MODE);
    }
    if let Some(v) = set.uid {
        (body.uid, mask) = (v, mask | SetAttrMask::UID);
    }
    if let Some(v) = set.gid {
        (body.gid, mask) = (v, mask | SetAttrMask::GID);
    }
    if let Some(v) = set.size {
        (body.size, mask) = (v, mask | SetAttrMask::SIZE);
    }
    match set.atime {
        SetTime::Omit => {}
        SetTime::Now => mask |= SetAttrMask::ATIME_NOW,
        SetTime::To(t) => (body.atime, mask) = (WireTime::new(t.0, t.1), mask | SetAttrMask::ATIME),
    }
    match set.mtime {
        SetTime::Omit => {}
        SetTime::Now => mask |= SetAttrMask::MTIME_NOW,
        SetTime::To(t) => (body.mtime, mask) = (WireTime::new(t.0, t.1), mask | SetAttrMask::MTIME),
    }
    body.mask = mask.bits();
    body
}

fn stat_of(b: &StatBody) -> Stat {
    let t = |t: WireTime| (t.sec, t.nsec);
    Stat {
        mode: b.mode,
        uid: b.uid,
        gid: b.gid,
        nlink: b.nlink,
        size: b.size,
        mtime: t(b.mtime),
        ctime: t(b.ctime),
        btime: t(b.btime),
    }
}

impl Real {
    /// Over a mounted store, as the superuser.
    pub fn new(store: Arc<Store>) -> Real {
        Real::with_pool(store, POOL)
    }

    /// The same with a pool of this many bytes, at least 256 KiB; payloads must fit its half.
    pub(crate) fn with_pool(store: Arc<Store>, pool: usize) -> Real {
        let (direct, out) = (Direct::new(store, pool), pool as u32 / 2);
        Real {
            direct,
            slots: HashMap::new(),
            dir_buf: 4096,
            used: 0,
            out,
            mode: TxnMode::Default,
            durable: false,
            stepped: false,
        }
    }

    /// Whether an operation in the present mode runs as micro-transactions: as asked, else those that append a checksum
    /// and those that may create or empty a file.
    pub fn runs_micro(&self, op: &model::Op) -> bool {
        if refused(op) {
            return false;
        }
        let creates = |flags: i32| flags & (libc::O_CREAT | libc::O_TRUNC) != 0;
        match (self.mode, op) {
            (TxnMode::Macro, _) => false,
            (TxnMode::Micro, _) | (_, model::Op::AppendChecksumWrite { .. }) => op.is_fused(),
            (_, model::Op::OpenWriteClose { flags, .. } | model::Op::OpenReadWriteClose { flags, .. }) => {
                creates(*flags)
            }
            _ => false,
        }
    }

    /// Acts as another user from now on; open slots stay.
    pub fn act_as(&mut self, cred: &model::Cred) {
        let groups = cred.groups.as_slice().into();
        self.direct.set_cred(Cred { uid: cred.uid, gid: cred.gid, groups });
    }

    fn put(&mut self, bytes: &[u8]) -> PoolRange {
        let range = self.direct.put(self.used, bytes);
        self.used += bytes.len() as u32;
        range
    }

    fn slot(&self, slot: u32) -> Handle {
        self.slots.get(&slot).copied().unwrap_or(NOBODY)
    }

    fn name(&mut self, name: &Name) -> (Handle, PoolRange) {
        let base = name.base.map_or(Handle::ROOT, |s| self.slot(s));
        (base, self.put(&name.path))
    }

    fn who(&mut self, who: &Who) -> (Handle, PoolRange, bool) {
        match who {
            Who::Slot(s) => (self.slot(*s), PoolRange::EMPTY, false),
            Who::Path(name, nofollow) => {
                let (base, path) = self.name(name);
                (base, path, *nofollow)
            }
        }
    }

    fn run(&mut self, op: Op) -> Result<Outcome, i32> {
        let mode = self.mode_of(op);
        done(self.direct.run_with(op, mode, self.durable))
    }

    /// Where the device may commit in steps or as one record, it is left the choice every other time.
    fn mode_of(&mut self, op: Op) -> TxnMode {
        if self.mode != TxnMode::Default || !Command::new(0, op).commits_in_steps() {
            return self.mode;
        }
        self.stepped = !self.stepped;
        if self.stepped { TxnMode::Micro } else { TxnMode::Default }
    }

    fn taken(&self, n: u64) -> Reply {
        Reply::Bytes(self.direct.take(PoolRange::new(self.out, n as u32)))
    }

    /// The handle behind a slot of the model.
    pub fn handle(&self, slot: u32) -> Option<Handle> {
        self.slots.get(&slot).copied()
    }

    /// Runs one operation of the model. The errors are positive errnos.
    pub fn apply(&mut self, op: &model::Op) -> Result<Reply, i32> {
        self.used = 0;
        match op {
            model::Op::Open { name, flags, mode, slot } => {
                let (base, path) = self.name(name);
                let flags = OpenFlags::from_linux(*flags);
                let o = self.run(Op::open(base, path, flags, *mode))?;
                self.slots.insert(*slot, Handle::from_wire(o.result));
                Ok(Reply::Unit)
            }
            model::Op::Close { slot } => {
                let h = self.slot(*slot);
                self.run(Op::Close { h })?;
                self.slots.remove(slot);
                Ok(Reply::Unit)
            }
            model::Op::ReadDir { slot } => self.read_dir(self.slot(*slot)),
            model::Op::Mkdir { name, mode } => {
                let (base, path) = self.name(name);
                self.unit(Op::Mkdir { base, path, mode: *mode })
            }
            model::Op::Rmdir { name } => {
                let (base, path) = self.name(name);
                self.unit(Op::Rmdir { base, path })
            }
            model::Op::Unlink { name } => {
                let (base, path) = self.name(name);
                self.unit(Op::Unlink { base, path })
            }
            model::Op::Rename { from, to, noreplace, exchange } => {
                let ((from_base, from), (to_base, to)) = (self.name(from), self.name(to));
                let mut flags = RenameFlags::empty();
                flags.set(RenameFlags::NOREPLACE, *noreplace);
                flags.set(RenameFlags::EXCHANGE, *exchange);
                self.unit(Op::Rename { from_base, from, to_base, to, flags })
            }
            model::Op::Link { from, to } => {
                let ((from_base, from, nofollow), (to_base, to)) = (self.who(from), self.name(to));
                self.unit(Op::Link { from_base, from, to_base, to, follow: !nofollow })
            }
            model::Op::Symlink { target, name } => {
                let (base, path) = self.name(name);
                let target = self.put(target);
                self.unit(Op::Symlink { base, path, target })
            }
            model::Op::Readlink { name } => {
                let (base, path) = self.name(name);
                let o = self.run(Op::Readlink { base, path, out: PoolRange::new(self.out, 4096) })?;
                Ok(self.taken(o.result))
            }
            model::Op::Access { name, mask } => {
                let (base, path) = self.name(name);
                let mask = AccessMask::from_bits_truncate(*mask as u8);
                self.unit(Op::Access { base, path, mask, nofollow: false })
            }
            model::Op::Stat { who } => {
                let (base, path, nofollow) = self.who(who);
                let body = self.stat(base, path, nofollow)?;
                Ok(Reply::Stat(stat_of(&body)))
            }
            model::Op::SetAttr { who, set } => {
                let (base, path, nofollow) = self.who(who);
                let set = self.put(set_attr_body(set).as_bytes());
                self.unit(match who {
                    Who::Slot(_) => Op::SetAttr { h: base, set },
                    Who::Path(..) => Op::SetAttrPath { base, path, nofollow, set },
                })
            }
            _ => self.apply_data(op),
        }
    }

    fn unit(&mut self, op: Op) -> Result<Reply, i32> {
        self.run(op).map(|_| Reply::Unit)
    }

    fn stat(&mut self, base: Handle, path: PoolRange, nofollow: bool) -> Result<StatBody, i32> {
        let out = PoolRange::new(self.out, size_of::<StatBody>() as u32);
        self.run(Op::StatPath { base, path, nofollow, out })?;
        Ok(StatBody::read_from_bytes(&self.direct.take(out)).expect("exactly the size of the body"))
    }

    fn apply_data(&mut self, op: &model::Op) -> Result<Reply, i32> {
        match op {
            model::Op::Read { slot, at: place, len } => {
                let out = PoolRange::new(self.out, *len as u32);
                let o = self.run(Op::Read { h: self.slot(*slot), at: at(*place), out, watch: 0 })?;
                Ok(self.taken(o.result))
            }
            model::Op::Write { slot, at: place, data } => {
                let src = self.put(data);
                let o = self.run(Op::Write { h: self.slot(*slot), at: at(*place), src })?;
                Ok(Reply::Wrote(o.result2, o.result))
            }
            model::Op::Truncate { slot, size } => self.unit(Op::Truncate { h: self.slot(*slot), size: *size }),
            model::Op::Fallocate { slot, mode, off, len } => {
                self.unit(Op::Fallocate { h: self.slot(*slot), mode: falloc(*mode), off: *off, len: *len })
            }
            model::Op::Seek { slot, whence, off } => {
                let whence = Whence::from_wire(*whence as u64).ok_or(libc::EINVAL)?;
                let o = self.run(Op::Seek { h: self.slot(*slot), whence, off: *off })?;
                Ok(Reply::Number(o.result))
            }
            model::Op::OpenWriteClose { name, flags, mode, at: place, data } => {
                let (base, path) = self.name(name);
                let src = self.put(data);
                let flags = OpenFlags::from_linux(flags & !libc::O_ACCMODE | libc::O_WRONLY);
                let o = self.run(Op::OpenWriteClose { base, path, flags, mode: *mode, at: at(*place), src })?;
                Ok(Reply::Wrote(o.result2 & !(1 << 63), o.result))
            }
            model::Op::OpenReadClose { name, flags, off, len } => {
                let (base, path) = self.name(name);
                let flags = OpenFlags::from_linux(flags & !libc::O_ACCMODE);
                let out = PoolRange::new(self.out, *len as u32);
                let o = self.run(Op::OpenReadClose { base, path, flags, offset: *off, out })?;
                Ok(self.taken(o.result))
            }
            model::Op::OpenReadWriteClose { name, flags, mode, off, len, at: place, data } => {
                let (base, path) = self.name(name);
                let src = self.put(data);
                let flags = OpenFlags::from_linux(flags & !libc::O_ACCMODE | libc::O_RDWR);
                let out = PoolRange::new(self.out, *len as u32);
                let (mode, place) = (*mode, at(*place));
                let o =
                    self.run(Op::OpenReadWriteClose { base, path, flags, mode, read_off: *off, out, at: place, src })?;
                let old = self.direct.take(PoolRange::new(self.out, o.result as u32));
                Ok(Reply::ReadWrote(old, o.result2 & !(1 << 63), data.len() as u64))
            }
            model::Op::AppendChecksumWrite { slot, data } => {
                let src = self.put(data);
                let o = self.run(Op::AppendChecksumWrite { h: self.slot(*slot), kind: ChecksumKind::Crc32c, src })?;
                Ok(Reply::Wrote(o.result, data.len() as u64 + 4))
            }
            model::Op::ReadChecksumVerify { slot, off, len } => {
                let out = PoolRange::new(self.out, *len as u32);
                let (h, kind, len) = (self.slot(*slot), ChecksumKind::Crc32c, *len as u32);
                let o = self.run(Op::ReadChecksumVerify { h, kind, offset: *off, len, out })?;
                Ok(self.taken(o.result))
            }
            model::Op::ReadModifyWrite { slot, off, len, modify } => {
                let modify = match modify {
                    model::Modify::Patch(b) => Modify::Patch(self.put(b)),
                    model::Modify::Add(n) => Modify::Add(*n),
                    model::Modify::Xor(b) => Modify::Xor(self.put(b)),
                    model::Modify::CompareSwap { expect, new } => {
                        Modify::CompareSwap { expect: self.put(expect), new: self.put(new) }
                    }
                };
                let (h, len, out) = (self.slot(*slot), *len as u32, PoolRange::new(self.out, *len as u32));
                let o = self.run(Op::ReadModifyWrite { h, offset: *off, len, modify, out })?;
                Ok(self.taken(o.result))
            }
            _ => self.apply_xattr(op),
        }
    }

    fn apply_xattr(&mut self, op: &model::Op) -> Result<Reply, i32> {
        match op {
            model::Op::GetXattr { who, key, room } => {
                let (base, path, nofollow) = self.who(who);
                let (name, out) = (self.put(key), PoolRange::new(self.out, *room as u32));
                let o = self.run(Op::GetXattr { base, path, nofollow, name, out })?;
                Ok(if *room == 0 { Reply::Number(o.result) } else { self.taken(o.result) })
            }
            model::Op::SetXattr { who, key, value, create, replace } => {
                let (base, path, nofollow) = self.who(who);
                let (name, value) = (self.put(key), self.put(value));
                let mut flags = XattrFlags::empty();
                flags.set(XattrFlags::CREATE, *create);
                flags.set(XattrFlags::REPLACE, *replace);
                self.unit(Op::SetXattr { base, path, nofollow, name, value, flags })
            }
            model::Op::ListXattr { who, room } => {
                let (base, path, nofollow) = self.who(who);
                let out = PoolRange::new(self.out, *room as u32);
                let o = self.run(Op::ListXattr { base, path, nofollow, out })?;
                if *room == 0 {
                    return Ok(Reply::Number(o.result));
                }
                let bytes = self.direct.take(PoolRange::new(self.out, o.result as u32));
                let names = bytes.split(|b| *b == 0).filter(|n| !n.is_empty());
                Ok(Reply::Names(names.map(|n| (n.to_vec(), 0)).collect()))
            }
            model::Op::RemoveXattr { who, key } => {
                let (base, path, nofollow) = self.who(who);
                let name = self.put(key);
                self.unit(Op::RemoveXattr { base, path, nofollow, name })
            }
            other => unreachable!("{other:?} is handled by apply"),
        }
    }

    /// One call of readdir: the entries and the cookie to go on with.
    pub(crate) fn read_dir_step(&mut self, h: Handle, cookie: u64) -> Result<(Vec<DirLine>, u64), i32> {
        let o = self.run(Op::ReadDir { h, cookie, out: PoolRange::new(self.out, self.dir_buf) })?;
        let bytes = self.direct.take(PoolRange::new(self.out, o.result as u32));
        Ok((dirent::Dirents(&bytes).map(|d| (d.name.to_vec(), d.dtype, d.next_cookie)).collect(), o.result2))
    }

    fn read_dir(&mut self, h: Handle) -> Result<Reply, i32> {
        let (mut names, mut cookie) = (BTreeSet::new(), 0);
        loop {
            let (step, next) = self.read_dir_step(h, cookie)?;
            if step.is_empty() {
                return Ok(Reply::Names(names));
            }
            for (name, dtype, _) in step {
                let fresh = names.insert((name.clone(), u32::from(dtype) << 12));
                if !fresh {
                    return Err(libc::EIO); // a name shown twice
                }
            }
            cookie = next;
        }
    }

    /// The picture of everything that has a name, as the superuser sees it: every attribute, every byte.
    ///
    /// # Errors
    /// What could not be read, in words.
    pub fn tree(&mut self) -> Result<TreeImage, String> {
        self.act_as(&model::Cred::root());
        let mut entries: BTreeMap<Vec<u8>, (u64, TreeEntry)> = BTreeMap::new();
        let mut todo = vec![Vec::new()];
        while let Some(path) = todo.pop() {
            let show = String::from_utf8_lossy(&path).into_owned();
            let entry = self.entry(&path, &mut todo).map_err(|e| format!("/{show}: {e}"))?;
            entries.insert(path, entry);
        }
        Ok(TreeImage::new(entries))
    }

    fn entry(&mut self, path: &[u8], todo: &mut Vec<Vec<u8>>) -> Result<(u64, TreeEntry), String> {
        let errno = |what: &'static str| move |e: i32| format!("{what} fails with errno {e}");
        let full = if path.is_empty() { b"/".to_vec() } else { path.to_vec() };
        let who = Who::Path(Name { base: None, path: full.clone() }, true);
        self.used = 0;
        let range = self.put(&full);
        let body = self.stat(Handle::ROOT, range, true).map_err(errno("stat"))?;
        let mut entry = TreeEntry::of(stat_of(&body), self.all_xattrs(&who).map_err(errno("reading attributes"))?);
        match body.mode & libc::S_IFMT {
            libc::S_IFREG => entry.content = self.content(InodeNo(body.ino), body.size)?,
            libc::S_IFLNK => match self.apply(&model::Op::Readlink { name: Name { base: None, path: full } }) {
                Ok(Reply::Bytes(target)) => entry.target = target,
                other => return Err(format!("readlink answers {other:?}")),
            },
            _ => {
                self.used = 0;
                let (flags, range) = (OpenFlags::READ | OpenFlags::DIRECTORY, self.put(&full));
                let open = Op::open(Handle::ROOT, range, flags, 0);
                let h = Handle::from_wire(self.run(open).map_err(errno("open"))?.result);
                let names = self.read_dir(h).map_err(errno("readdir"));
                self.direct.run(Op::Close { h });
                let Reply::Names(names) = names? else { return Err("readdir answers something else".into()) };
                let names = names.into_iter().map(|(n, _)| n).filter(|n| n != b"." && n != b"..");
                todo.extend(names.map(|n| [path, b"/", &n].concat()));
            }
        }
        Ok((body.ino, entry))
    }

    fn all_xattrs(&mut self, who: &Who) -> Result<Xattrs, i32> {
        let listed = self.apply(&model::Op::ListXattr { who: who.clone(), room: 65_536 })?;
        let Reply::Names(keys) = listed else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for (key, _) in keys {
            let got = self.apply(&model::Op::GetXattr { who: who.clone(), key: key.clone(), room: 65_536 })?;
            if let Reply::Bytes(value) = got {
                all.push((key, value));
            }
        }
        Ok(all)
    }

    /// Every block of a file up to its end, the last one whole: stale bytes behind the end show too.
    fn content(&mut self, ino: InodeNo, size: u64) -> Result<Content, String> {
        let store = self.direct.store().clone();
        let end = size.div_ceil(model::BLOCK);
        let mut content = Content::default();
        let mut next = 0;
        loop {
            let found = store.blocking(|| store.seek_block(ino, next, end, true));
            let Some(blk) = found.map_err(|e| format!("finding data: {e}"))? else { return Ok(content) };
            let mut bytes = [0; model::BLOCK as usize];
            store.blocking(|| store.read_block(ino, blk, &mut bytes)).map_err(|e| format!("block {blk}: {e}"))?;
            content.push(blk, Arc::new(bytes));
            next = blk + 1;
        }
    }
}
