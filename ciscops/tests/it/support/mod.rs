//! The smallest Target that can hold the contract: a flat map of byte vectors, with handles. One command's changes are
//! staged by cloning the whole state.
#![allow(dead_code)] // each test uses the part it needs

pub mod micros;

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};
use weldfs_ciscops::dirent::DirentWriter;
use weldfs_ciscops::*;

/// What a description is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Description {
    file: usize,
    flags: OpenFlags,
    offset: u64,
}

/// All state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    pub names: BTreeMap<Vec<u8>, usize>,
    pub files: Vec<Vec<u8>>,
    open: Vec<Option<Description>>,
    /// Nonces drawn.
    drawn: u64,
    /// What each micro-op of the running command left, with the registers after it.
    sealed: Vec<Sealed>,
    /// Bytes read since the command made way, and the most of them.
    read: (u64, u64),
    /// So many bytes from the end of a file cannot be read.
    pub lost: usize,
}

/// A command as it stands between two micro-ops.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sealed {
    pub index: u16,
    pub regs: Registers,
    pub state: State,
}

impl State {
    /// Content by name.
    pub fn tree(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.names.iter().map(|(n, f)| (n.clone(), self.files[*f].clone())).collect()
    }
}

/// A toy file system and its pool.
pub struct Toy {
    pub state: State,
    pub pool: SharedRegion,
    /// The micro-ops of the last command that went well.
    pub steps: Vec<Sealed>,
    /// Most bytes that a command read without making way.
    pub longest: u64,
}

/// Names of the toy's two keys.
pub const XTS_KEY: u64 = 3;
pub const GCM_KEY: u64 = 4;

/// Room in the pool, by convention of these tests.
pub const PATH_AT: u32 = 0;
pub const SRC_AT: u32 = 8192;
pub const OUT_AT: u32 = 65536;
pub const ARG_AT: u32 = 131072;
pub const BODY_AT: u32 = 196608;
pub const POOL: u32 = 262144;

impl Toy {
    pub fn new() -> Toy {
        Toy { state: State::default(), pool: SharedRegion::heap(POOL as usize), steps: Vec::new(), longest: 0 }
    }

    /// Puts bytes in the pool.
    pub fn put(&self, at: u32, bytes: &[u8]) -> PoolRange {
        let range = PoolRange::new(at, bytes.len() as u32);
        self.pool.slice(range).unwrap().copy_from(bytes);
        range
    }

    /// Bytes from the pool.
    pub fn get(&self, at: u32, len: usize) -> Vec<u8> {
        self.pool.slice(PoolRange::new(at, len as u32)).unwrap().to_vec()
    }

    /// Runs one op the whole way: encode, validate, fetch, run, commit or drop. Panics if the op is not valid.
    pub fn run(&mut self, op: Op) -> Outcome {
        self.run_with(op, TxnMode::Default)
    }

    /// The same in a given transaction mode: after a failure a MicroTx keeps what its earlier micro-ops did.
    pub fn run_with(&mut self, op: Op, mode: TxnMode) -> Outcome {
        let sqe = Command::new(1, op).with_mode(mode).encode();
        let cmd = match validate(&RawCommand(sqe), &SessionLimits { pool_bytes: POOL }) {
            Ok(cmd) => cmd,
            Err(e) => return Outcome::failed(e),
        };
        assert_eq!((cmd.op, cmd.mode), (op, mode));
        if let Op::Close { h } = op {
            self.state.open[h.index as usize - 1] = None;
            return Outcome::ok(0, 0);
        }
        let paths = match Paths::fetch(&cmd, &self.pool) {
            Ok(p) => p,
            Err(e) => return Outcome::failed(e),
        };
        let mut staged = self.state.clone();
        let outcome = block_on(interp::run(&cmd, &paths, &self.pool, &mut staged));
        self.steps = std::mem::take(&mut staged.sealed);
        self.longest = self.longest.max(std::mem::take(&mut staged.read).1);
        if outcome.is_ok() {
            self.state = staged;
        } else if let Some(last) = self.steps.last().filter(|_| cmd.commits_in_steps()) {
            self.state = last.state.clone();
        }
        outcome
    }

    /// Runs a program whose pool ranges lie at `ranges`.
    pub fn run_program(&mut self, body: &program::Body, ranges: &[PoolRange], mode: TxnMode) -> Outcome {
        let bytes = body.bind(ranges).unwrap();
        let at = self.put(BODY_AT, &bytes);
        self.run_with(program::Body::op(at), mode)
    }

    /// Finishes a command that was interrupted behind one of its micro-ops, without its client.
    pub fn finish(&self, op: Op, mode: TxnMode, from: &Sealed) -> (Outcome, State) {
        let cmd = Command::new(1, op).with_mode(mode);
        let paths = Paths::default();
        let mut staged = from.state.clone();
        let outcome = block_on(interp::resume(&cmd, from.regs, from.index + 1, &paths, &self.pool, &mut staged));
        staged.sealed.clear();
        staged.read = (0, 0);
        (outcome, staged)
    }

    /// Size of the file behind a handle.
    pub fn size_behind(&self, h: Handle) -> u64 {
        self.state.files[self.state.description(h).unwrap().file].len() as u64
    }

    /// Whether writes through a handle go to the end.
    pub fn appends(&self, h: Handle) -> bool {
        self.state.description(h).unwrap().flags.contains(OpenFlags::APPEND)
    }

    /// Whether two handles are of one file.
    pub fn same_file(&self, a: Handle, b: Handle) -> bool {
        self.state.description(a).unwrap().file == self.state.description(b).unwrap().file
    }

    pub fn open(&mut self, path: &[u8], flags: OpenFlags) -> Result<Handle, Errno> {
        let path = self.put(PATH_AT, path);
        let o = self.run(Op::open(Handle::ROOT, path, flags, 0o644));
        if o.is_ok() { Ok(Handle::from_wire(o.result)) } else { Err(Errno(o.status)) }
    }
}

/// Nothing here ever waits.
pub fn block_on<F: Future>(f: F) -> F::Output {
    let mut f = std::pin::pin!(f);
    match f.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(v) => v,
        Poll::Pending => panic!("the toy target never waits"),
    }
}

impl State {
    /// What is no file of bytes is one that says what it is.
    fn special(&mut self, path: &[u8], content: Vec<u8>) -> Done<()> {
        if self.names.contains_key(path) {
            return Err(Errno::EXIST);
        }
        self.files.push(content);
        self.names.insert(path.to_vec(), self.files.len() - 1);
        Ok(())
    }

    fn description(&self, h: Handle) -> Result<Description, Errno> {
        let slot = (h.index as usize).checked_sub(1).ok_or(Errno::BADF)?;
        self.open.get(slot).copied().flatten().ok_or(Errno::BADF)
    }
}

type Done<T> = Result<T, Errno>;

#[allow(unused_variables)]
impl Target for State {
    type File = usize;

    async fn seal(&mut self, index: u16, regs: &Registers) -> Done<()> {
        let state = State { sealed: Vec::new(), read: (0, 0), ..self.clone() };
        self.sealed.push(Sealed { index, regs: *regs, state });
        Ok(())
    }
    #[cfg(feature = "ciphers")]
    fn key(&self, name: u64) -> Done<std::sync::Arc<weldfs_functions::cipher::Key>> {
        use weldfs_functions::cipher::{Key, KeyKind};
        let bytes: Vec<u8> = (0..32).collect();
        let kind = match name {
            XTS_KEY => KeyKind::Xts128,
            GCM_KEY => KeyKind::Gcm256,
            _ => return Err(Errno::NOKEY),
        };
        Ok(std::sync::Arc::new(Key::new(kind, &bytes).map_err(|_| Errno::INVAL)?))
    }
    #[cfg(feature = "ciphers")]
    fn random(&mut self, out: &mut [u8]) -> Done<()> {
        // As long as no nonce comes twice.
        self.drawn += 1;
        out[..8].copy_from_slice(&self.drawn.to_le_bytes());
        Ok(())
    }
    async fn boundary(&mut self, index: u16) -> Done<()> {
        self.read.0 = 0;
        Ok(())
    }
    fn number(&self, f: usize) -> u64 {
        f as u64 + 1
    }
    async fn numbered(&mut self, number: u64, access: Access) -> Done<usize> {
        Ok(number as usize - 1)
    }

    async fn open(&mut self, base: Handle, path: &[u8], flags: OpenFlags, mode: u32) -> Done<Opened<usize>> {
        if let Some(&file) = self.names.get(path) {
            if flags.contains(OpenFlags::CREATE | OpenFlags::EXCL) {
                return Err(Errno::EXIST);
            }
            if flags.contains(OpenFlags::TRUNC) {
                self.files[file].clear();
            }
            return Ok(Opened { file, created: false, mode: 0o100644 });
        }
        if !flags.contains(OpenFlags::CREATE) {
            return Err(Errno::NOENT);
        }
        let file = self.files.len();
        self.files.push(Vec::new());
        self.names.insert(path.to_vec(), file);
        Ok(Opened { file, created: true, mode: 0o100000 | mode })
    }
    async fn install(&mut self, opened: Opened<usize>, flags: OpenFlags, placeholder: u32) -> Done<Handle> {
        self.open.push(Some(Description { file: opened.file, flags, offset: 0 }));
        Ok(Handle { index: self.open.len() as u32, generation: 0 })
    }
    async fn file(&mut self, h: Handle, need: Access) -> Done<usize> {
        let d = self.description(h)?;
        if d.flags.access().contains(need) { Ok(d.file) } else { Err(Errno::BADF) }
    }
    async fn cursor(&mut self, h: Handle) -> Done<Cursor> {
        let d = self.description(h)?;
        Ok(Cursor { offset: d.offset, append: d.flags.contains(OpenFlags::APPEND) })
    }
    async fn set_cursor(&mut self, h: Handle, offset: u64) -> Done<()> {
        self.open[h.index as usize - 1].as_mut().ok_or(Errno::BADF)?.offset = offset;
        Ok(())
    }
    async fn size(&mut self, f: usize) -> Done<u64> {
        Ok(self.files[f].len() as u64)
    }
    async fn read(
        &mut self,
        f: usize,
        off: u64,
        len: u64,
        mut sink: Sink<'_>,
        sum: Option<&mut ChecksumState>,
    ) -> Done<u64> {
        let data = &self.files[f];
        let start = (off as usize).min(data.len());
        let end = (start + len as usize).min(data.len());
        if end > data.len() - self.lost.min(data.len()) {
            return Err(Errno::IO);
        }
        self.read.0 += (end - start) as u64;
        self.read.1 = self.read.1.max(self.read.0);
        sink.put(0, &data[start..end]);
        if let Some(sum) = sum {
            sum.update(&data[start..end]);
        }
        Ok((end - start) as u64)
    }
    async fn write(&mut self, f: usize, at: At, src: Source<'_>, sum: Option<&mut ChecksumState>) -> Done<Written> {
        let data = &mut self.files[f];
        let off = match at {
            At::Offset(off) => off as usize,
            At::End => data.len(),
            At::Current => panic!("the interpreter resolves Current"),
        };
        if off > 1 << 20 {
            return Err(Errno::FBIG);
        }
        let mut bytes = vec![0; src.len()];
        src.copy_to(0, &mut bytes);
        if let Some(sum) = sum {
            sum.update(&bytes);
        }
        if data.len() < off + bytes.len() && !bytes.is_empty() {
            data.resize(off + bytes.len(), 0);
        }
        if !bytes.is_empty() {
            data[off..off + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(Written { off: off as u64, len: bytes.len() as u64 })
    }
    async fn truncate(&mut self, f: usize, size: u64) -> Done<()> {
        if size > 1 << 20 {
            return Err(Errno::FBIG);
        }
        self.files[f].resize(size as usize, 0);
        Ok(())
    }
    async fn fallocate(&mut self, f: usize, mode: FallocMode, off: u64, len: u64) -> Done<()> {
        Err(Errno::OPNOTSUPP)
    }
    async fn seek(&mut self, h: Handle, whence: Whence, off: i64) -> Done<u64> {
        self.set_cursor(h, off as u64).await.map(|()| off as u64)
    }
    async fn read_dir(&mut self, h: Handle, cookie: u64, out: &mut DirentWriter<'_>) -> Done<u64> {
        let mut at = cookie;
        for (name, file) in self.names.iter().skip(cookie as usize) {
            if !out.push(*file as u64, at + 1, dirent::dtype::REG, name) {
                break;
            }
            at += 1;
        }
        Ok(at)
    }
    async fn stat(&mut self, base: Handle, path: &[u8], nofollow: bool) -> Done<StatBody> {
        let file = *self.names.get(path).ok_or(Errno::NOENT)?;
        Ok(StatBody { ino: file as u64, size: self.files[file].len() as u64, ..StatBody::default() })
    }
    async fn set_attr(&mut self, base: Handle, path: &[u8], nofollow: bool, set: &SetAttrBody) -> Done<()> {
        let file = *self.names.get(path).ok_or(Errno::NOENT)?;
        if set.mask & SetAttrMask::SIZE.bits() != 0 {
            if set.size > 1 << 20 {
                return Err(Errno::FBIG);
            }
            self.files[file].resize(set.size as usize, 0);
        }
        Ok(())
    }
    async fn access(&mut self, base: Handle, path: &[u8], mask: AccessMask, nofollow: bool) -> Done<()> {
        self.names.get(path).map(|_| ()).ok_or(Errno::NOENT)
    }
    async fn statfs(&mut self) -> Done<StatfsBody> {
        Ok(StatfsBody { bsize: 4096, ..StatfsBody::default() })
    }
    async fn mkdir(&mut self, base: Handle, path: &[u8], mode: u32) -> Done<()> {
        self.special(path, format!("directory {mode:o}").into_bytes())
    }
    async fn rmdir(&mut self, base: Handle, path: &[u8]) -> Done<()> {
        let file = *self.names.get(path).ok_or(Errno::NOENT)?;
        if !self.files[file].starts_with(b"directory ") {
            return Err(Errno::NOTDIR);
        }
        self.names.remove(path);
        Ok(())
    }
    async fn unlink(&mut self, base: Handle, path: &[u8]) -> Done<()> {
        self.names.remove(path).map(|_| ()).ok_or(Errno::NOENT)
    }
    async fn rename(&mut self, fb: Handle, from: &[u8], tb: Handle, to: &[u8], flags: RenameFlags) -> Done<()> {
        let file = self.names.remove(from).ok_or(Errno::NOENT)?;
        self.names.insert(to.to_vec(), file);
        Ok(())
    }
    async fn link(&mut self, fb: Handle, from: &[u8], tb: Handle, to: &[u8], follow: bool) -> Done<()> {
        let file = *self.names.get(from).ok_or(Errno::NOENT)?;
        self.names.insert(to.to_vec(), file);
        Ok(())
    }
    async fn symlink(&mut self, target: &[u8], base: Handle, path: &[u8]) -> Done<()> {
        self.special(path, [b"link to ", target].concat())
    }
    async fn readlink(&mut self, base: Handle, path: &[u8], room: u64, sink: Sink<'_>) -> Done<u64> {
        Err(Errno::INVAL)
    }
    async fn get_xattr(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        name: &[u8],
        room: u64,
        sink: Sink<'_>,
    ) -> Done<u64> {
        Err(Errno::NODATA)
    }
    async fn set_xattr(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Done<()> {
        Err(Errno::OPNOTSUPP)
    }
    async fn list_xattr(&mut self, base: Handle, path: &[u8], nofollow: bool, room: u64, sink: Sink<'_>) -> Done<u64> {
        Ok(0)
    }
    async fn remove_xattr(&mut self, base: Handle, path: &[u8], nofollow: bool, name: &[u8]) -> Done<()> {
        Err(Errno::NODATA)
    }
}
