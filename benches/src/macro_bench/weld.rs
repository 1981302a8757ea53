//! WeldFS: each sequence as one fused command, or as its single commands. One command at a time, payload in the pool.

use super::model::{APPEND_MAX, FILE_MAX, Step};
use super::personality::Sequence;
use super::store::{LOG, Names, Store, compare, durable, stamp};
use crate::micro::sample::Counts;
use std::io;
use weldfs::{At, Client, Command, Cqe, Durability, Errno, Handle, Op, OpenFlags, OpenOptions, PoolRange, Queue};
use weldfs_ciscops::SharedRegion;

/// Two files, an append, names.
const POOL: u32 = 4 << 20;
const NEW: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE);
const UPDATE: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

pub(super) struct Weld {
    queue: Queue,
    pool: SharedRegion,
    names: Names,
    fused: bool,
    base: Handle,
    log: Handle,
    src: PoolRange,
    out: PoolRange,
    name: PoolRange,
    stat: PoolRange,
    _keep: (weldfs::Dir, weldfs::File),
}

impl Weld {
    pub(super) fn new(client: &Client, root: &str, names: Names, fused: bool) -> io::Result<Weld> {
        let folder = client.open_dir(root)?;
        let log = client.open(format!("{root}/{LOG}"), &OpenOptions::new().write(true))?;
        let mut queue = client.queue(8, POOL)?;
        let pool = queue.pool().clone();
        let (src, out) = (queue.alloc(FILE_MAX as u32)?, queue.alloc(FILE_MAX as u32)?);
        let (name, stat) = (queue.alloc(Names::PATH as u32)?, queue.alloc(256)?);
        pool.slice(src)?.copy_from(&vec![0x5a; FILE_MAX as usize]);
        let (base, log_handle) = (folder.as_file().handle(), log.handle());
        let keep = (folder, log);
        Ok(Weld { queue, pool, names, fused, base, log: log_handle, src, out, name, stat, _keep: keep })
    }

    fn run(&mut self, op: Op, durable: bool) -> io::Result<Cqe> {
        let class = if durable { Durability::Durable } else { Durability::Volatile };
        let cqe = self.queue.execute(&Command::new(0, op).with_durability(class))?;
        if cqe.status == 0 { Ok(cqe) } else { Err(io::Error::from_raw_os_error(cqe.status)) }
    }

    fn path(&self, file: u64) -> Result<PoolRange, Errno> {
        let mut path = [0; Names::PATH];
        self.names.write(file, &mut path);
        self.pool.slice(self.name)?.copy_from(&path);
        Ok(self.name)
    }

    /// The payload of a step; a file's first bytes are its stamp.
    fn payload(&self, step: &Step) -> Result<PoolRange, Errno> {
        let range = PoolRange::new(self.src.off, step.len as u32);
        if step.size == 0 {
            self.pool.slice(range)?.sub(0, 8).copy_from(&stamp(step.file));
        }
        Ok(range)
    }

    fn room(&self, step: &Step) -> PoolRange {
        PoolRange::new(self.out.off, step.size as u32)
    }

    fn check_read(&self, step: &Step, read: u64) -> io::Result<()> {
        if read != step.size {
            return Err(io::Error::other(format!("read {read} of the {} bytes of file {}", step.size, step.file)));
        }
        let mut start = [0; 8];
        self.pool.slice(self.room(step))?.sub(0, 8).copy_to(&mut start);
        compare(step.file, &start)
    }

    fn fused(&mut self, step: &Step) -> io::Result<()> {
        let (base, path) = (self.base, self.path(step.file)?);
        let cqe = match step.what {
            Sequence::ReadWhole => {
                let out = self.room(step);
                self.run(Op::OpenReadClose { base, path, flags: OpenFlags::READ, offset: 0, out }, false)?
            }
            Sequence::ReadAppendSync => {
                let (out, src, flags) = (self.room(step), self.payload(step)?, UPDATE);
                let op = Op::OpenReadWriteClose { base, path, flags, mode: 0, read_off: 0, out, at: At::End, src };
                self.run(op, true)?
            }
            what => {
                let flags = if what == Sequence::OpenAppend { OpenFlags::WRITE } else { NEW };
                let src = self.payload(step)?;
                let op = Op::OpenWriteClose { base, path, flags, mode: 0o644, at: At::End, src };
                self.run(op, durable(what))?
            }
        };
        match step.what {
            Sequence::ReadWhole | Sequence::ReadAppendSync => self.check_read(step, cqe.result),
            _ => Ok(()),
        }
    }

    fn single(&mut self, step: &Step) -> io::Result<()> {
        let flags = match step.what {
            Sequence::ReadWhole => OpenFlags::READ,
            Sequence::ReadAppendSync => UPDATE,
            Sequence::OpenAppend => OpenFlags::WRITE,
            _ => NEW,
        };
        let (base, path) = (self.base, self.path(step.file)?);
        let opened = self.run(Op::open(base, path, flags, 0o644), false)?;
        let h = Handle::from_wire(opened.result);
        if flags.contains(OpenFlags::READ) {
            let read = self.run(Op::Read { h, at: At::Offset(0), out: self.room(step), watch: 0 }, false)?;
            self.check_read(step, read.result)?;
        }
        if flags.contains(OpenFlags::WRITE) {
            self.run(Op::Write { h, at: At::End, src: self.payload(step)? }, false)?;
            if durable(step.what) {
                self.run(Op::Fsync { h }, false)?;
            }
        }
        self.run(Op::Close { h }, false).map(drop)
    }
}

impl Store for Weld {
    fn step(&mut self, step: &Step) -> io::Result<()> {
        debug_assert!(step.len <= FILE_MAX && step.size <= FILE_MAX && APPEND_MAX <= FILE_MAX);
        let base = self.base;
        match step.what {
            Sequence::Delete => {
                let path = self.path(step.file)?;
                self.run(Op::Unlink { base, path }, false).map(drop)
            }
            Sequence::Stat => {
                let (path, out) = (self.path(step.file)?, self.stat);
                self.run(Op::StatPath { base, path, nofollow: true, out }, false).map(drop)
            }
            Sequence::Log => {
                let src = PoolRange::new(self.src.off, step.len as u32);
                self.run(Op::Write { h: self.log, at: At::End, src }, false).map(drop)
            }
            _ if self.fused => self.fused(step),
            _ => self.single(step),
        }
    }

    fn cut_log(&mut self) -> io::Result<()> {
        self.run(Op::Truncate { h: self.log, size: 0 }, false).map(drop)
    }

    fn counts(&self) -> Counts {
        Counts { syscalls: self.queue.system_calls(), ..Counts::default() }
    }
}
