//! The worker that uses the crate `weldfs`: this test program, started anew.

use super::program::pattern;
use super::worker::{API_WORKER, USERS};
use rustix::process::{Gid, Uid};
use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use weldfs::{
    AccessMask, At, Client, ClientOptions, Errno, FallocMode, Handle, LockKind, LockSpace, OpenOptions, Payload,
    RenameFlags, Room, SetAttrBody, SetAttrMask, SocketConnector, StatBody, Whence, WireTime, XattrFlags,
};
use weldfs_ciscops::dirent::Dirents;

/// The number of this process as an owner of locks.
const OWNER: u64 = 1;
const SLOTS: usize = 5;

/// What an answer holds.
enum Said {
    Number(i64),
    Words(String),
    Bytes(Vec<u8>),
}

/// A call's words.
struct Words<'l>(Vec<&'l str>);

impl Words<'_> {
    fn text(&self, at: usize) -> &str {
        self.0.get(at).copied().unwrap_or_default()
    }

    fn number(&self, at: usize) -> i64 {
        self.text(at).parse().unwrap_or(0)
    }
}

struct Api {
    client: Client,
    files: [Option<Handle>; SLOTS],
    root: String,
}

fn told(body: &StatBody) -> Said {
    let StatBody { mode, uid, gid, nlink, size, ino, mtime, ctime, btime, .. } = *body;
    let time = |t: WireTime| format!("{} {}", t.sec, t.nsec);
    let times = format!("{} {} {}", time(mtime), time(ctime), time(btime));
    Said::Words(format!("{mode} {uid} {gid} {nlink} {size} {ino} {times}"))
}

fn lock_kind(kind: i64) -> LockKind {
    match kind as i32 {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        _ => LockKind::Unlock,
    }
}

fn set_times(words: &Words<'_>, first: usize) -> SetAttrBody {
    let mut set = SetAttrBody::default();
    let parts = [(SetAttrMask::ATIME, SetAttrMask::ATIME_NOW), (SetAttrMask::MTIME, SetAttrMask::MTIME_NOW)];
    for (i, (given, now)) in parts.into_iter().enumerate() {
        let (sec, nsec) = (words.number(first + 2 * i), words.number(first + 2 * i + 1));
        match nsec {
            libc::UTIME_OMIT => {}
            libc::UTIME_NOW => set.mask |= now.bits(),
            _ => {
                set.mask |= given.bits();
                let time = WireTime::new(sec, nsec as u32);
                if i == 0 { set.atime = time } else { set.mtime = time }
            }
        }
    }
    set
}

fn owner(uid: i64, gid: i64) -> SetAttrBody {
    let mut set = SetAttrBody::default();
    if uid >= 0 {
        (set.uid, set.mask) = (uid as u32, SetAttrMask::UID.bits());
    }
    if gid >= 0 {
        (set.gid, set.mask) = (gid as u32, set.mask | SetAttrMask::GID.bits());
    }
    set
}

fn permissions(mode: i64) -> SetAttrBody {
    SetAttrBody { mask: SetAttrMask::MODE.bits(), mode: mode as u32, ..SetAttrBody::default() }
}

fn done(result: Result<(), Errno>) -> Result<Said, Errno> {
    result.map(|()| Said::Number(0))
}

fn errno(error: &std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

impl Api {
    fn handle(&self, words: &Words<'_>, at: usize) -> Result<Handle, Errno> {
        let slot = usize::try_from(words.number(at)).map_err(|_| Errno::BADF)?;
        self.files.get(slot).copied().flatten().ok_or(Errno::BADF)
    }

    /// A name, and where it starts.
    fn name(&self, text: &str) -> Result<(Handle, Vec<u8>), Errno> {
        if let Some(rest) = text.strip_prefix('@') {
            let (slot, path) = rest.split_once(':').ok_or(Errno::INVAL)?;
            let slot: usize = slot.parse().map_err(|_| Errno::INVAL)?;
            return Ok((self.files.get(slot).copied().flatten().ok_or(Errno::BADF)?, path.into()));
        }
        let path = text.strip_prefix('/').unwrap_or(text);
        Ok((Handle::ROOT, if path.is_empty() { self.root.clone() } else { format!("{}/{path}", self.root) }.into()))
    }

    fn open(&mut self, words: &Words<'_>) -> Result<Said, Errno> {
        let options = OpenOptions::from_linux(words.number(3) as i32, words.number(4) as u32);
        let (base, path) = self.name(words.text(2))?;
        let handle = match base {
            Handle::ROOT => {
                let path = String::from_utf8(path).map_err(|_| Errno::INVAL)?;
                self.client.open(path, &options.mode(words.number(4) as u32)).map_err(|e| errno(&e))?.into_handle()
            }
            base => self.client.raw().openat(base, &path, options.flags(), words.number(4) as u32, 0)?.handle,
        };
        let ino = self.client.raw().stat(handle)?.ino;
        if let Some(old) = self.files[words.number(1) as usize].replace(handle) {
            self.client.raw().close(old)?;
        }
        Ok(Said::Number(ino as i64))
    }

    fn close(&mut self, slot: usize) -> Result<Said, Errno> {
        let handle = self.files.get_mut(slot).and_then(Option::take).ok_or(Errno::BADF)?;
        done(self.client.raw().close(handle))
    }

    fn read(&self, words: &Words<'_>) -> Result<Said, Errno> {
        let (handle, at, len) = (self.handle(words, 1)?, place(words.text(2)), words.number(3) as usize);
        let mut bytes = vec![0; len];
        let n = match words.number(4) {
            0 => self.client.raw().read(handle, at, &mut bytes[..])?,
            _ => {
                let (first, rest) = bytes.split_at_mut(len / 3);
                let (second, third) = rest.split_at_mut(len / 2 - len / 3);
                let mut parts = [first, second, third].map(IoSliceMut::new);
                self.client.raw().read(handle, at, Room::Scatter(&mut parts))?
            }
        };
        bytes.truncate(n);
        Ok(Said::Bytes(bytes))
    }

    fn write(&self, words: &Words<'_>) -> Result<Said, Errno> {
        let (handle, at) = (self.handle(words, 1)?, place(words.text(2)));
        let bytes = pattern(words.number(4) as u8, words.number(3) as u64);
        let (first, second) = (bytes.len() / 3, bytes.len() / 2);
        let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]].map(IoSlice::new);
        let data = if words.number(5) == 0 { Payload::Bytes(&bytes) } else { Payload::Gather(&parts) };
        Ok(Said::Number(self.client.raw().write(handle, at, data)?.len as i64))
    }

    fn list(&self, words: &Words<'_>) -> Result<Said, Errno> {
        let (handle, mut cookie, mut room) = (self.handle(words, 1)?, 0, vec![0; 4096]);
        let mut said = Vec::new();
        loop {
            let n = self.client.raw().read_dir(handle, cookie, &mut room[..])?;
            if n == 0 {
                return Ok(Said::Words(said.join(" ")));
            }
            for entry in Dirents(&room[..n]) {
                cookie = entry.next_cookie;
                said.push(format!("{}:{}", String::from_utf8_lossy(entry.name), u32::from(entry.dtype) << 12));
            }
        }
    }

    fn lock(&self, words: &Words<'_>) -> Result<Said, Errno> {
        let (handle, kind) = (self.handle(words, 1)?, lock_kind(words.number(3)));
        let space = if words.text(2) == "ofd" { LockSpace::OpenFile } else { LockSpace::Process };
        let (start, len) = (words.number(4) as u64, words.number(5) as u64);
        let raw = self.client.raw();
        if words.number(6) == 0 {
            return done(raw.lock_set(handle, space, kind, start, len, OWNER));
        }
        let found = raw.lock_get(handle, space, kind, start, len, OWNER)?;
        Ok(Said::Words(found.map_or_else(
            || format!("{} 0 0", libc::F_UNLCK),
            |found| {
                let kind = if found.kind == LockKind::Read as u8 { libc::F_RDLCK } else { libc::F_WRLCK };
                format!("{kind} {} {}", found.start, found.len)
            },
        )))
    }

    /// A lock that is waited for.
    fn insist(&self, handle: Handle, kind: LockKind) -> Result<(), Errno> {
        loop {
            match self.client.raw().lock_set(handle, LockSpace::Process, kind, 0, 8, OWNER) {
                Err(Errno::AGAIN) => std::thread::sleep(std::time::Duration::from_micros(200)),
                done => return done,
            }
        }
    }

    fn add(&self, words: &Words<'_>) -> Result<Said, Errno> {
        let (handle, raw) = (self.handle(words, 1)?, self.client.raw());
        for _ in 0..words.number(2) {
            self.insist(handle, LockKind::Write)?;
            let mut value = [0; 8];
            raw.read(handle, At::Offset(0), &mut value[..])?;
            let value = u64::from_le_bytes(value) + 1;
            raw.write(handle, At::Offset(0), &value.to_le_bytes()[..])?;
            self.insist(handle, LockKind::Unlock)?;
        }
        Ok(Said::Number(0))
    }

    fn append(&self, words: &Words<'_>) -> Result<Said, Errno> {
        let handle = self.handle(words, 1)?;
        for i in 0..words.number(2) {
            let record = format!("{} {i} {}\n", words.number(3), ".".repeat(i as usize * 131 % 3000));
            self.client.raw().write(handle, At::Current, record.as_bytes())?;
        }
        Ok(Said::Number(0))
    }

    fn claim(&self, words: &Words<'_>) -> Result<Said, Errno> {
        let (_, path) = self.name(words.text(1))?;
        let path = String::from_utf8_lossy(&path).into_owned();
        let options = OpenOptions::new().write(true).create_new(true);
        let mut mine = 0;
        for i in 0..words.number(2) {
            match self.client.open(format!("{path}/n{i}"), &options) {
                Ok(_) => mine += 1,
                Err(e) if errno(&e) == Errno::EXIST => {}
                Err(e) => return Err(errno(&e)),
            }
        }
        Ok(Said::Number(mine))
    }

    fn on_files(&mut self, words: &Words<'_>) -> Option<Result<Said, Errno>> {
        let n = |at: usize| words.number(at);
        Some(match words.text(0) {
            "open" => self.open(words),
            "close" => self.close(n(1) as usize),
            "read" => self.read(words),
            "write" => self.write(words),
            "list" => self.list(words),
            "lock" => self.lock(words),
            "add" => self.add(words),
            "append" => self.append(words),
            "claim" => self.claim(words),
            "root" => {
                (0..SLOTS).for_each(|slot| drop(self.close(slot)));
                words.text(1).trim_end_matches('/').clone_into(&mut self.root);
                Ok(Said::Number(0))
            }
            verb => {
                let handle = match self.handle(words, 1) {
                    Ok(handle) => handle,
                    Err(e) if ON_HANDLES.contains(&verb) => return Some(Err(e)),
                    Err(_) => return None,
                };
                let raw = self.client.raw();
                match verb {
                    "fstat" => raw.stat(handle).map(|body| told(&body)),
                    "truncate" => done(raw.truncate(handle, n(2) as u64)),
                    "allocate" => falloc(n(2)).and_then(|m| done(raw.fallocate(handle, m, n(3) as u64, n(4) as u64))),
                    "seek" => whence(n(2)).and_then(|w| raw.seek(handle, w, n(3))).map(|at| Said::Number(at as i64)),
                    "copy" => self.handle(words, 2).and_then(|to| {
                        let copied = raw.copy_range(handle, n(3) as u64, n(5) as u64, to, At::Offset(n(4) as u64))?;
                        Ok(Said::Number(copied as i64))
                    }),
                    "fchmod" => done(raw.set_attr(handle, &permissions(n(2)))),
                    "fchown" => done(raw.set_attr(handle, &owner(n(2), n(3)))),
                    "futimes" => done(raw.set_attr(handle, &set_times(words, 2))),
                    "flock" => {
                        let kind = match n(2) as i32 {
                            libc::LOCK_SH => LockKind::Read,
                            libc::LOCK_EX => LockKind::Write,
                            _ => LockKind::Unlock,
                        };
                        done(raw.lock_set(handle, LockSpace::Flock, kind, 0, 0, OWNER))
                    }
                    _ => return None,
                }
            }
        })
    }

    fn on_names(&self, words: &Words<'_>) -> Result<Said, Errno> {
        let (raw, n) = (self.client.raw(), |at: usize| words.number(at));
        let first = || self.name(words.text(1));
        let second = || self.name(words.text(2));
        let key = words.text(2).as_bytes();
        let mut room = vec![0; 4096];
        let set = |nofollow: bool, set: SetAttrBody| {
            let (base, path) = first()?;
            done(raw.set_attr_at(base, &path, nofollow, &set))
        };
        let bytes = |n: usize, mut room: Vec<u8>| {
            room.truncate(n);
            Said::Bytes(room)
        };
        match words.text(0) {
            "stat" => first().and_then(|(base, path)| raw.statat(base, &path, n(2) != 0)).map(|body| told(&body)),
            "mkdir" => first().and_then(|(base, path)| done(raw.mkdirat(base, &path, n(2) as u32))),
            "rmdir" => first().and_then(|(base, path)| done(raw.rmdirat(base, &path))),
            "unlink" => first().and_then(|(base, path)| done(raw.unlinkat(base, &path))),
            "rename" => {
                let ((a, from), (b, to)) = (first()?, second()?);
                done(raw.renameat(a, &from, b, &to, RenameFlags::from_bits_truncate(n(3) as u8)))
            }
            "link" => {
                let ((a, from), (b, to)) = (first()?, second()?);
                done(raw.linkat(a, &from, b, &to, n(3) == 0))
            }
            "symlink" => second().and_then(|(base, path)| done(raw.symlinkat(words.text(1).as_bytes(), base, &path))),
            "readlink" => {
                let (base, path) = first()?;
                raw.readlinkat(base, &path, &mut room).map(|n| bytes(n, room))
            }
            "access" => {
                let mask = AccessMask::from_bits_truncate(n(2) as u8);
                first().and_then(|(base, path)| done(raw.accessat(base, &path, mask, false)))
            }
            "chmod" => set(false, permissions(n(2))),
            "resize" => {
                let mask = SetAttrMask::SIZE.bits();
                set(false, SetAttrBody { mask, size: n(2) as u64, ..SetAttrBody::default() })
            }
            "chown" => set(n(2) != 0, owner(n(3), n(4))),
            "utimes" => set(n(2) != 0, set_times(words, 3)),
            "setx" => {
                let ((base, path), value) = (first()?, pattern(7, n(3) as u64));
                let flags = XattrFlags::from_bits_truncate(n(4) as u8);
                done(raw.set_xattr(base, &path, false, key, &value, flags))
            }
            "getx" => {
                let (base, path) = first()?;
                raw.get_xattr(base, &path, false, key, &mut room).map(|n| bytes(n, room))
            }
            "listx" => {
                let (base, path) = first()?;
                raw.list_xattr(base, &path, false, &mut room).map(|n| bytes(n, room))
            }
            "rmx" => first().and_then(|(base, path)| done(raw.remove_xattr(base, &path, false, key))),
            verb => panic!("{verb} is no call"),
        }
    }

    fn answer(&mut self, words: &Words<'_>) -> Vec<u8> {
        match self.on_files(words).unwrap_or_else(|| self.on_names(words)) {
            Err(e) => format!("E {}\n", e.0).into(),
            Ok(Said::Number(n)) => format!("O {n}\n").into(),
            Ok(Said::Words(words)) => format!("O {words}\n").into(),
            Ok(Said::Bytes(bytes)) => [format!("B {}\n", bytes.len()).as_bytes(), &bytes].concat(),
        }
    }
}

/// Verbs whose first word is a slot.
const ON_HANDLES: [&str; 9] = ["fstat", "truncate", "allocate", "seek", "copy", "fchmod", "fchown", "futimes", "flock"];

fn place(text: &str) -> At {
    text.parse().map_or(At::Current, At::Offset)
}

fn falloc(mode: i64) -> Result<FallocMode, Errno> {
    const MODES: [(i64, FallocMode); 5] = [
        (0, FallocMode::Reserve),
        (1, FallocMode::KeepSize),
        (3, FallocMode::Punch),
        (16, FallocMode::Zero),
        (17, FallocMode::ZeroKeepSize),
    ];
    MODES.iter().find(|(linux, _)| *linux == mode).map(|(_, mode)| *mode).ok_or(Errno::OPNOTSUPP)
}

fn whence(whence: i64) -> Result<Whence, Errno> {
    Ok(match whence as i32 {
        libc::SEEK_SET => Whence::Set,
        libc::SEEK_CUR => Whence::Cur,
        libc::SEEK_END => Whence::End,
        libc::SEEK_DATA => Whence::Data,
        libc::SEEK_HOLE => Whence::Hole,
        _ => return Err(Errno::INVAL),
    })
}

/// Gives this thread the credentials of a user: the device knows a session by those that it was attached with.
fn become_user(number: usize) {
    let (uid, gid, group) = USERS[number];
    let groups: Vec<Gid> = (group != 0).then(|| Gid::from_raw(group)).into_iter().collect();
    rustix::thread::set_thread_groups(&groups).expect("setgroups");
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(Some(gid), Some(gid), Some(gid)).expect("setresgid");
    rustix::thread::set_thread_res_uid(Some(uid), Some(uid), Some(uid)).expect("setresuid");
}

#[test]
#[ignore = "the worker at the API's door: the other tests of doors start it"]
fn worker() {
    let told = std::env::var(API_WORKER).expect("the test that starts this one says where the device is");
    let (number, socket) = told.split_once(':').expect("a user and a socket");
    let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor"));
    become_user(number.parse().expect("a number"));
    let options = ClientOptions { umask: Some(0), ..ClientOptions::default() };
    let client = Client::with_options(Arc::new(SocketConnector::new(socket)), options).expect("attaches");
    let mut api = Api { client, files: [None; SLOTS], root: String::new() };
    let mut out = stream.try_clone().expect("a descriptor");
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let answer = api.answer(&Words(line.split(' ').collect()));
        if out.write_all(&answer).is_err() {
            break;
        }
    }
}
