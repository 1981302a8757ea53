//! What a program does that is only rehearsed: it opens and reads, and what it would change it only notes.

use rustix::fs::{Mode, fstat};
use weldfs_ciscops::program::PIECE_BYTES;
use weldfs_ciscops::{
    Access, At, ChecksumState, Errno, Handle, Kept, OpenFlags, Opened, Quiet, RenameFlags, Sink, Source, Written,
};

use super::attr::kind;
use super::data;
use super::foresight::{Foresight, Imagined, Leads};
use super::long::SLICE_NS;
use super::names::host_flags;
use super::txn::{FileRef, Held, HostTxn, allow};
use super::walk;
use weldfs_session::clock::now_ns;

/// Bytes of its own writes that a rehearsal keeps, to read them again.
const NOTED_MAX: usize = 4 << 20;

impl HostTxn<'_> {
    /// Whether nothing is to be done.
    pub(super) fn is_rehearsed(&self) -> bool {
        self.foresight.as_ref().is_some_and(|f| f.rehearsal)
    }

    pub(super) fn take_foresight(&mut self) -> Option<Kept> {
        self.foresight.as_mut().and_then(|f| f.kept.take())
    }

    pub(super) fn keep_foresight(&mut self, kept: Kept) {
        if let Some(f) = &mut self.foresight {
            f.kept = Some(kept);
        }
    }

    pub(super) fn kept_foresight(&mut self) -> Option<Kept> {
        self.take_foresight()
    }

    /// Codecs or ciphers are about to run on so many bytes that no rehearsal has seen.
    pub(super) fn is_unforeseen(&mut self, bytes: u64) -> Result<(), Errno> {
        let (held, done) = (self.is_placed(), self.done);
        let Some(f) = &mut self.foresight else { return Ok(()) };
        if !held {
            // Not cut before the step is over: it would begin anew, and again.
            (f.computed, f.computes) = (true, true);
            // (The thread that looks at rings waits for no turn.)
            if self.work.away && self.scratch.turn.is_none() {
                self.scratch.take_turn(self.core, self.work, true);
            }
            return Ok(());
        }
        if !done {
            f.lost = true;
            return Err(Errno::AGAIN);
        }
        if bytes <= PIECE_BYTES as u64 { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }

    pub(super) fn note_quiet(&mut self, how: Quiet) {
        if how == Quiet::Between
            && let Some(f) = &mut self.foresight
        {
            f.computes = false;
            self.scratch.turn = None;
        }
    }

    /// At a boundary while it computes: whether it goes on at once.
    pub(super) fn compute_in_turn(&mut self) {
        if !self.is_placed() && self.names.is_none() {
            self.scratch.renew_turn(self.core, self.work);
        }
    }

    /// Between steps of a rehearsal that holds nothing: what has been computed is kept, and others may have the thread.
    pub(super) fn may_be_cut(&mut self) -> Result<(), Errno> {
        let waited_for = self.core.long.is_waiting();
        let held = self.is_placed();
        match &mut self.foresight {
            Some(f) if f.rehearsal && !held && f.computed && !f.computes && waited_for => {
                if now_ns().saturating_sub(f.begun) > SLICE_NS {
                    f.cut = true;
                    return Err(Errno::AGAIN);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn ahead(&mut self) -> &mut Foresight {
        self.foresight.get_or_insert_default()
    }

    pub(super) async fn imagine_open(
        &mut self,
        base: Handle,
        path: &[u8],
        flags: OpenFlags,
    ) -> Result<Opened<FileRef>, Errno> {
        let leads = self.ahead().leads(base, path).cloned();
        let (from, to) = match &leads {
            Some(Leads::As(base, path)) => (*base, path.clone()),
            _ => (base, path.to_vec()),
        };
        let found = match leads {
            Some(Leads::New(file)) => Ok(Held::Imagined(file)),
            Some(Leads::Nowhere) => Err(Errno::NOENT),
            None => self.open_as_it_is(base, path, flags),
            _ => self.open_as_it_is(from, &to, flags),
        };
        let (held, created) = match found {
            Err(Errno::NOENT) if flags.contains(OpenFlags::CREATE) => {
                self.ahead().files.push(Imagined::default());
                let file = self.ahead().files.len() - 1;
                self.ahead().lead(base, path, Leads::New(file));
                (Held::Imagined(file), true)
            }
            Ok(_) if flags.contains(OpenFlags::CREATE | OpenFlags::EXCL) => return Err(Errno::EXIST),
            other => (other?, false),
        };
        let file = self.keep(held, flags.access());
        if flags.contains(OpenFlags::TRUNC) && !created {
            self.imagine_size(file, 0)?;
        }
        Ok(Opened { file, created, mode: 0 })
    }

    fn open_as_it_is(&mut self, base: Handle, path: &[u8], flags: OpenFlags) -> Result<Held, Errno> {
        let start = walk::start(self.core, self.session(), base, path)?;
        let fd = match self.open_found(base, path, flags) {
            Some(found) => found?,
            None => {
                self.hold_names(false);
                let fd = self.open_path(start, path, host_flags(flags), Mode::empty());
                // Nothing is kept from others: that it is as it was then is seen later.
                self.let_names_go();
                fd?
            }
        };
        let stat = fstat(&fd)?;
        match stat.st_mode & kind::MASK {
            kind::FILE => Ok(Held::Own(fd)),
            kind::DIR if !flags.contains(OpenFlags::CREATE) => Ok(Held::Own(fd)),
            kind::DIR => Err(Errno::ISDIR),
            _ => Err(Errno::NXIO),
        }
    }

    /// Which of the files that the program would have changed this is.
    fn imagined(&self, f: FileRef) -> Option<usize> {
        if let Held::Imagined(file) = self.held(f) {
            return Some(*file);
        }
        let stat = fstat(self.fd(f)).ok()?;
        let files = &self.foresight.as_ref()?.files;
        files.iter().position(|file| file.host == Some((stat.st_dev, stat.st_ino)))
    }

    /// The same, of one that it changes now.
    fn changed_in_mind(&mut self, f: FileRef) -> Result<&mut Imagined, Errno> {
        let at = match self.imagined(f) {
            Some(at) => at,
            None => {
                let stat = fstat(self.fd(f))?;
                let (host, size) = (Some((stat.st_dev, stat.st_ino)), stat.st_size as u64);
                self.ahead().files.push(Imagined { host, size, parts: Vec::new() });
                self.ahead().files.len() - 1
            }
        };
        self.ahead().files.get_mut(at).ok_or(Errno::INVAL)
    }

    pub(super) fn imagine_size(&mut self, f: FileRef, size: u64) -> Result<(), Errno> {
        let file = self.changed_in_mind(f)?;
        if size < file.size {
            // What lies behind is zeros, should it grow again.
            file.parts.push((size, vec![0; (file.size - size).min(NOTED_MAX as u64) as usize]));
        }
        file.size = size;
        Ok(())
    }

    pub(super) fn imagined_size(&self, f: FileRef) -> Result<u64, Errno> {
        match self.imagined(f).and_then(|at| self.foresight.as_ref()?.files.get(at)) {
            Some(file) => Ok(file.size),
            None => self.size_core(f),
        }
    }

    pub(super) fn imagine_write(
        &mut self,
        f: FileRef,
        at: At,
        src: Source<'_>,
        sum: Option<&mut ChecksumState>,
    ) -> Result<Written, Errno> {
        allow(f, Access::WRITE)?;
        let mut bytes = vec![0; src.len()];
        src.copy_to(0, &mut bytes);
        if let Some(sum) = sum {
            sum.update(&bytes);
        }
        let len = bytes.len() as u64;
        let file = self.changed_in_mind(f)?;
        let off = match at {
            At::Offset(off) => off,
            At::End => file.size,
            At::Current => return Err(Errno::INVAL),
        };
        file.size = file.size.max(off.saturating_add(len));
        let noted = self.ahead().noted + bytes.len();
        if noted <= NOTED_MAX {
            self.ahead().noted = noted;
            self.changed_in_mind(f)?.parts.push((off, bytes));
        }
        Ok(Written { off, len })
    }

    pub(super) fn imagine_read(
        &mut self,
        f: FileRef,
        off: u64,
        len: u64,
        mut sink: Sink<'_>,
        sum: Option<&mut ChecksumState>,
    ) -> Result<u64, Errno> {
        let Some(at) = self.imagined(f) else { return self.read_core(f, off, len, sink, sum) };
        allow(f, Access::READ)?;
        let Some(file) = self.foresight.as_ref().and_then(|ahead| ahead.files.get(at)) else { return Ok(0) };
        let n = len.min(file.size.saturating_sub(off)) as usize;
        let mut bytes = vec![0; n];
        if file.host.is_some() {
            data::read_at(self.fd(f), &mut bytes, off)?;
        }
        for (from, part) in &file.parts {
            let (start, end) = (off.max(*from), (off + n as u64).min(from + part.len() as u64));
            if start < end {
                let (to, of) = ((start - off) as usize, (start - from) as usize);
                let len = (end - start) as usize;
                bytes[to..to + len].copy_from_slice(&part[of..of + len]);
            }
        }
        if let Some(sum) = sum {
            sum.update(&bytes);
        }
        sink.put(0, &bytes);
        Ok(n as u64)
    }

    /// A name that is not there any more, or leads where another one led.
    pub(super) fn imagine_name(&mut self, (base, path): (Handle, &[u8]), from: Option<(Handle, &[u8])>) {
        let ahead = self.ahead();
        let leads = match from {
            None => Leads::Nowhere,
            Some((base, path)) => ahead.leads(base, path).cloned().unwrap_or(Leads::As(base, path.to_vec())),
        };
        ahead.lead(base, path, leads);
    }

    pub(super) fn imagine_rename(&mut self, from: (Handle, &[u8]), to: (Handle, &[u8]), flags: RenameFlags) {
        let other = self.ahead().leads(to.0, to.1).cloned().unwrap_or(Leads::As(to.0, to.1.to_vec()));
        self.imagine_name(to, Some(from));
        let left = if flags.contains(RenameFlags::EXCHANGE) { other } else { Leads::Nowhere };
        self.ahead().lead(from.0, from.1, left);
    }
}
