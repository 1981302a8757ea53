//! Files that a program has open at the device itself, handed to the kernel: names in the root, which no listing shows.
//! `.weldfs-fd-N` is the file behind descriptor N of whoever looks, if that stands for an open file of the device;
//! `.weldfs-map-N` is the same, to be mapped, and says so in the registry that programs of this run look at;
//! `.weldfs-hold-N` is the same, and holds off mappings of it.
//!
//! The preload library opens them. It is the descriptor that counts, and not a name of the file: one without a name,
//! or whose names are out of the opener's reach by now, is handed over as any other, with the access it was opened
//! with. Between the look-up and the open the file is kept for the thread that asks. What is to be mapped is told when
//! the kernel has dropped what it had of it (`mapped`), by an ioctl(2).

use crate::channel::Request;
use crate::files::{Mapping, OpenFile};
use crate::fs::{Fs, Keeping, Out, Said};
use crate::handing::{Pending, Purpose, number};
use crate::session::Session;
use crate::who;
use crate::wire::{self, InHeader, ROOT};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use weldfs::OpenFlags;
use weldfs_ciscops::{Errno, StatBody, mapped};

impl Fs {
    /// The answer to a look-up of one of these names; none where it is a name as any other: in another directory, in a
    /// mount without a registry, of a number that is no open file of the device for its caller.
    pub(crate) fn handed(
        &self,
        head: &InHeader,
        name: &[u8],
        session: &Arc<Session>,
        out: &mut Out,
    ) -> Option<Result<Said, Errno>> {
        let handing = self.handing.as_ref().filter(|_| head.nodeid == ROOT)?;
        let (fd, purpose) = number(name)?;
        let theirs = who::placeholder(head.pid, fd, &session.closing)?;
        let claimed = session.raw().claim_anew(theirs.as_fd()).ok()?;
        let held = session.hold(claimed.handle);
        let stat = session.raw().stat(held.handle()).ok().filter(|stat| stat.mode & libc::S_IFMT == libc::S_IFREG)?;
        if claimed.flags.contains(OpenFlags::PATH) || session.raw().is_virtual(held.handle(), b"", false) {
            return None;
        }
        let handle = Arc::into_inner(held).map(crate::session::Held::into_handle)?;
        let node = self.nodes.lock().told(&stat);
        let file = OpenFile::new(session.clone(), handle, node, claimed.flags.to_linux() as u32, false);
        if let Err(e) = handing.keep(Pending::new((node, head.pid), purpose, stat.mtime, file)) {
            self.nodes.lock().forget(node, 1);
            return Some(Err(e));
        }
        // The next look is another's, or after another file got the number.
        let keeping = Keeping { entries: Duration::ZERO, ..self.keeping };
        Some(out.put(&keeping.entry(node, &self.told(&stat))))
    }

    /// Opens what this thread has just looked up under such a name; none: it has not.
    pub(crate) fn open_handed(
        &self,
        head: &InHeader,
        session: &Arc<Session>,
        flags: u32,
    ) -> Option<Result<(OpenFile, StatBody), Errno>> {
        let handing = self.handing.as_ref()?;
        let found = handing.take(head, session)?;
        let open = || {
            let access = |flags: u32| OpenFlags::from_linux(flags as i32) & (OpenFlags::READ | OpenFlags::WRITE);
            // What may not write to a file has no write that a mapping could meet.
            let idle = found.purpose == Purpose::HoldOff && !access(flags).contains(OpenFlags::WRITE);
            if idle || !access(found.file.flags).contains(access(flags)) {
                return Err(Errno::ACCES);
            }
            let ino = found.file.session.raw().stat(found.file.handle)?.ino;
            let mapping = match found.purpose {
                Purpose::Use => Mapping::None,
                Purpose::Map => Mapping::Is(handing.listing().list(ino, found.mtime)?),
                Purpose::HoldOff => Mapping::HeldOff(handing.listing().hold_off(ino)?),
            };
            // What was written by whoever did not see it listed is seen in this.
            let stat = found.file.session.raw().stat(found.file.handle)?;
            Ok((OpenFile::sharing(found.file.clone(), flags).with(mapping), stat))
        };
        Some(open())
    }

    /// That a mapping may begin; ENOSYS, which the kernel makes ENOTTY, of all others.
    pub(crate) fn ioctl(&self, request: &Request<'_>, out: &mut Out) -> Result<Said, Errno> {
        let ioctl: wire::Ioctl = request.fixed()?;
        if ioctl.command != mapped::BEGINS {
            return Err(Errno::NOSYS);
        }
        self.files.get(ioctl.fh)?.begin_mapping()?;
        out.put(&wire::IoctlOut::default())
    }
}
