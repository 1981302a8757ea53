//! Chains of linked io_uring requests: each chain runs in order, several of them side by side, and one system call
//! submits them all and waits for them.

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{DestinationSlot, Fd, Fixed, FsyncFlags};
use io_uring::{IoUring, opcode};
use std::io;
use std::os::fd::RawFd;

/// Requests of one chain at most.
const STEPS: usize = 10;
/// Bytes of a name with its NUL, at most.
pub const NAME_MAX: usize = 64;

/// Which file a request is about.
#[derive(Clone, Copy, Debug)]
pub enum On {
    /// An open descriptor, which the caller keeps open until the chain has ended.
    Fd(RawFd),
    /// What the chain's own [`Step::Open`] opened.
    Opened,
}

/// A request of a chain.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// openat(2) of the chain's name, into the chain's place in the ring's file table.
    Open {
        /// The directory.
        dir: RawFd,
        /// O_ flags.
        flags: i32,
        /// Permission bits of a new file.
        mode: u32,
    },
    /// pread(2) into the chain's buffer.
    Read {
        /// The file.
        file: On,
        /// Bytes.
        len: u32,
        /// Where in the file.
        offset: u64,
    },
    /// pwrite(2) out of the chain's buffer.
    Write {
        /// The file.
        file: On,
        /// First byte in the buffer.
        from: u32,
        /// Bytes.
        len: u32,
        /// Where in the file.
        offset: u64,
    },
    /// fsync(2) or fdatasync(2).
    Sync {
        /// The file.
        file: On,
        /// Whether fdatasync is enough.
        data_only: bool,
    },
    /// unlinkat(2) of the chain's name.
    Unlink {
        /// The directory.
        dir: RawFd,
    },
    /// renameat(2) of the chain's name to its other name.
    Rename {
        /// The directory of both.
        dir: RawFd,
    },
    /// statx(2) of the chain's name, which is not followed.
    Stat {
        /// The directory.
        dir: RawFd,
    },
    /// Closes what was opened.
    Close,
}

struct Chain {
    name: Box<[u8; NAME_MAX]>,
    other: Box<[u8; NAME_MAX]>,
    stat: Box<libc::statx>,
    buffer: Box<[u8]>,
    steps: usize,
    results: [i32; STEPS],
    flying: bool,
}

/// A ring with the names and buffers of its chains. Used by the thread that made it.
pub struct Chains {
    // Dropped before the memory that its requests name; none is in flight then.
    ring: IoUring,
    chains: Vec<Chain>,
    flying: usize,
    enters: u64,
}

impl Chains {
    /// A ring for so many chains of `bytes` buffer each. Fails where the kernel or its policy refuses io_uring.
    pub fn new(chains: usize, bytes: usize) -> io::Result<Chains> {
        let entries = (chains * STEPS).next_power_of_two() as u32;
        let tuned = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(entries);
        let ring = tuned.or_else(|_| IoUring::new(entries))?;
        ring.submitter().register_files_sparse(chains as u32)?;
        let chain = || Chain {
            name: Box::new([0; NAME_MAX]),
            other: Box::new([0; NAME_MAX]),
            // SAFETY: a structure of integers, for which zeros are a value.
            stat: Box::new(unsafe { std::mem::zeroed() }),
            buffer: vec![0; bytes].into_boxed_slice(),
            steps: 0,
            results: [0; STEPS],
            flying: false,
        };
        Ok(Chains { ring, chains: (0..chains).map(|_| chain()).collect(), flying: 0, enters: 0 })
    }

    /// System calls made so far.
    pub(crate) fn enters(&self) -> u64 {
        self.enters
    }

    /// A chain's buffer. Panics while the chain is in flight.
    pub fn buffer(&mut self, chain: usize) -> &mut [u8] {
        assert!(!self.chains[chain].flying, "the kernel has the buffer");
        &mut self.chains[chain].buffer
    }

    /// Sets a chain's name. Panics while the chain is in flight, and on a name that does not fit or holds a NUL.
    pub fn name(&mut self, chain: usize, name: &[u8]) {
        let chain = &mut self.chains[chain];
        assert!(!chain.flying, "a chain at rest");
        set_name(&mut chain.name, name);
    }

    /// Sets the name that the chain's file is renamed to. Panics as [`Chains::name`].
    pub(crate) fn other_name(&mut self, chain: usize, name: &[u8]) {
        let chain = &mut self.chains[chain];
        assert!(!chain.flying, "a chain at rest");
        set_name(&mut chain.other, name);
    }

    /// The size that a [`Step::Stat`] found. Panics while the chain is in flight.
    pub(crate) fn stat_size(&self, chain: usize) -> u64 {
        assert!(!self.chains[chain].flying, "the kernel has the attributes");
        self.chains[chain].stat.stx_size
    }

    /// Queues a chain. `hard`: a step that fails or falls short does not cancel the steps behind it. Panics while the
    /// chain is in flight, and on steps that do not fit its buffer.
    pub fn push(&mut self, at: usize, hard: bool, steps: &[Step]) {
        let link = if hard { Flags::IO_HARDLINK } else { Flags::IO_LINK };
        assert!(!self.chains[at].flying && steps.len() <= STEPS, "a chain at rest of a few steps");
        for (i, step) in steps.iter().enumerate() {
            let entry = self.entry(at, step).user_data((at * STEPS + i) as u64);
            let entry = if i + 1 < steps.len() { entry.flags(link) } else { entry };
            // SAFETY: names, attributes and buffer are boxed and live as long as the ring; nothing touches them while
            // `flying`, and `wait` (which Drop calls) ends only when every request has completed.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            assert!(pushed.is_ok(), "the ring holds every chain's steps");
        }
        self.chains[at].flying = true;
        self.chains[at].steps = steps.len();
        self.flying += steps.len();
    }

    fn entry(&mut self, at: usize, step: &Step) -> Entry {
        let chain = &mut self.chains[at];
        let slot = Fixed(at as u32);
        let inside = |from: u32, len: u32| {
            assert!(from as usize + len as usize <= chain.buffer.len(), "inside the buffer");
        };
        match *step {
            Step::Open { dir, flags, mode } => {
                let dest = DestinationSlot::try_from_slot_target(at as u32).ok();
                // A descriptor of the ring's table is never inherited, and takes no such flag.
                let flags = flags & !libc::O_CLOEXEC;
                opcode::OpenAt::new(Fd(dir), chain.name.as_ptr().cast())
                    .file_index(dest)
                    .flags(flags)
                    .mode(mode)
                    .build()
            }
            Step::Read { file, len, offset } => {
                inside(0, len);
                let to = chain.buffer.as_mut_ptr();
                match file {
                    On::Fd(fd) => opcode::Read::new(Fd(fd), to, len).offset(offset).build(),
                    On::Opened => opcode::Read::new(slot, to, len).offset(offset).build(),
                }
            }
            Step::Write { file, from, len, offset } => {
                inside(from, len);
                let source = chain.buffer[from as usize..].as_ptr();
                match file {
                    On::Fd(fd) => opcode::Write::new(Fd(fd), source, len).offset(offset).build(),
                    On::Opened => opcode::Write::new(slot, source, len).offset(offset).build(),
                }
            }
            Step::Sync { file, data_only } => {
                let flags = if data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
                match file {
                    On::Fd(fd) => opcode::Fsync::new(Fd(fd)).flags(flags).build(),
                    On::Opened => opcode::Fsync::new(slot).flags(flags).build(),
                }
            }
            Step::Rename { dir } => {
                let (from, to) = (chain.name.as_ptr().cast(), chain.other.as_ptr().cast());
                opcode::RenameAt::new(Fd(dir), from, Fd(dir), to).build()
            }
            Step::Stat { dir } => {
                let to = std::ptr::from_mut(&mut *chain.stat).cast();
                opcode::Statx::new(Fd(dir), chain.name.as_ptr().cast(), to)
                    .flags(libc::AT_SYMLINK_NOFOLLOW)
                    .mask(libc::STATX_BASIC_STATS)
                    .build()
            }
            Step::Unlink { dir } => opcode::UnlinkAt::new(Fd(dir), chain.name.as_ptr().cast()).build(),
            Step::Close => opcode::Close::new(slot).build(),
        }
    }

    /// Submits what was queued and waits until every chain has ended.
    pub fn wait(&mut self) -> io::Result<()> {
        while self.flying > 0 {
            self.enters += 1;
            match self.ring.submit_and_wait(self.flying) {
                Ok(_) => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
                Err(e) => return Err(e),
            }
            for done in self.ring.completion() {
                let tag = done.user_data() as usize;
                self.chains[tag / STEPS].results[tag % STEPS] = done.result();
                self.flying -= 1;
            }
        }
        self.chains.iter_mut().for_each(|c| c.flying = false);
        Ok(())
    }

    /// Results of a chain that has ended: bytes, or the negative errno, by step.
    pub fn results(&self, chain: usize) -> &[i32] {
        let chain = &self.chains[chain];
        if chain.flying { &[] } else { &chain.results[..chain.steps] }
    }
}

fn set_name(into: &mut [u8; NAME_MAX], name: &[u8]) {
    assert!(name.len() < NAME_MAX && !name.contains(&0), "a short name");
    into[..name.len()].copy_from_slice(name);
    into[name.len()] = 0;
}

impl Drop for Chains {
    fn drop(&mut self) {
        if self.wait().is_err() {
            // Requests may be in flight over our memory: it must outlive them, so it is never given back.
            self.chains.drain(..).for_each(std::mem::forget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsRawFd;

    /// A ring, or nothing where io_uring is refused.
    fn ring() -> Option<Chains> {
        match Chains::new(4, 4096) {
            Ok(ring) => Some(ring),
            Err(e) => {
                println!("skipped: io_uring is refused here: {e}");
                if let Some(path) = std::env::var_os("WELDFS_TEST_SKIPS").filter(|path| !path.is_empty()) {
                    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
                    let line = format!("weldfs-benches: chains of linked requests: io_uring is refused: {e}\n");
                    file.and_then(|mut f| f.write_all(line.as_bytes())).expect("skips can be written down");
                }
                None
            }
        }
    }

    #[test]
    fn chains_make_write_sync_close_and_read_files_in_order() {
        let Some(mut ring) = ring() else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let dir = std::fs::File::open(folder.path()).expect("opened");
        let open = |flags| Step::Open { dir: dir.as_raw_fd(), flags, mode: 0o644 };
        for chain in 0..4 {
            ring.name(chain, format!("file{chain}").as_bytes());
            ring.buffer(chain).fill(chain as u8 + 1);
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC;
            let write = Step::Write { file: On::Opened, from: 96, len: 1000, offset: 0 };
            ring.push(
                chain,
                false,
                &[open(flags), write, Step::Sync { file: On::Opened, data_only: true }, Step::Close],
            );
        }
        ring.wait().expect("they end");
        for chain in 0..4 {
            assert_eq!(ring.results(chain), [0, 1000, 0, 0]);
            let found = std::fs::read(folder.path().join(format!("file{chain}"))).expect("it is there");
            assert_eq!(found, vec![chain as u8 + 1; 1000]);
        }
        // A short read cancels what follows, unless the link is hard.
        for (hard, last) in [(false, -libc::ECANCELED), (true, 0)] {
            ring.push(0, hard, &[open(0), Step::Read { file: On::Opened, len: 4096, offset: 0 }, Step::Close]);
            ring.wait().expect("it ends");
            assert_eq!(ring.results(0), [0, 1000, last]);
        }
    }

    #[test]
    fn a_chain_renames_what_it_made_and_another_says_how_large_it_is() {
        let Some(mut ring) = ring() else { return };
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("old"), b"old").expect("written");
        let file = std::fs::File::open(folder.path()).expect("opened");
        let dir = file.as_raw_fd();
        ring.name(0, b"new");
        ring.other_name(0, b"old");
        ring.name(1, b"old");
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
        let write = Step::Write { file: On::Opened, from: 0, len: 700, offset: 0 };
        ring.push(0, false, &[Step::Open { dir, flags, mode: 0o644 }, write, Step::Close, Step::Rename { dir }]);
        ring.wait().expect("it ends");
        ring.push(1, false, &[Step::Stat { dir }]);
        ring.wait().expect("it ends");
        assert_eq!((ring.results(0), ring.stat_size(1)), (&[0, 700, 0, 0][..], 700));
        assert!(!folder.path().join("new").exists());
    }

    #[test]
    fn a_chain_without_its_file_is_cancelled_after_the_errno() {
        let Some(mut ring) = ring() else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let dir = std::fs::File::open(folder.path()).expect("opened");
        ring.name(2, b"missing");
        let open = Step::Open { dir: dir.as_raw_fd(), flags: 0, mode: 0 };
        ring.push(2, false, &[open, Step::Read { file: On::Opened, len: 8, offset: 0 }, Step::Close]);
        ring.wait().expect("it ends");
        assert_eq!(ring.results(2), [-libc::ENOENT, -libc::ECANCELED, -libc::ECANCELED]);
    }
}
