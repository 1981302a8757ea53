//! Copying trees: `put`, `get` and `cp` are one walk between two ends, each either the host's file system or an
//! image. Files of up to 1 MiB cross in one fused command each way.

mod host;
mod image;

use crate::failure::{Doing, Failure};
use indicatif::ProgressBar;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use host::Host;
pub use image::Image;

/// What kind of thing a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Dir,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A socket, FIFO or device: not copied.
    Other,
}

/// What one look at a name shows.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Which file it is, whatever its name: device and inode number.
    pub id: (u64, u64),
    /// Its kind.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// Access and modification time: seconds, nanoseconds.
    pub times: [(i64, u32); 2],
}

/// One end of a copy.
pub trait End {
    /// How messages name a path of this end.
    fn label(&self, path: &Path) -> String;
    /// Looks at a name; `follow`: at what a final symbolic link names.
    fn look(&self, path: &Path, follow: bool) -> io::Result<Look>;
    /// Names in a directory.
    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// Content of a file of about `size` bytes.
    fn reader(&self, path: &Path, size: u64) -> io::Result<Box<dyn Read + '_>>;
    /// What a symbolic link says.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Makes or replaces a file with what `from` gives; returns the bytes.
    fn write(&self, path: &Path, mode: u32, from: &mut dyn Read) -> io::Result<u64>;
    /// Makes a directory; an existing one is kept.
    fn mkdir(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Makes or replaces a symbolic link.
    fn symlink(&self, target: &Path, path: &Path) -> io::Result<()>;
    /// Sets the times, of a symbolic link itself.
    fn set_times(&self, path: &Path, times: [(i64, u32); 2]) -> io::Result<()>;
}

/// What a copy did.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Tally {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Things of other kinds, left out (each is named on stderr).
    pub skipped: u64,
    /// Things that could not be read, or would have replaced themselves (each is named on stderr).
    pub failed: u64,
}

/// A reader that remembers whether it was the one that failed.
struct Watched<'r> {
    inner: Box<dyn Read + 'r>,
    failed: bool,
}

impl Read for Watched<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let done = self.inner.read(buf);
        self.failed |= done.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::Interrupted);
        done
    }
}

/// A copy in progress.
pub struct Copy<'a> {
    /// Where from.
    pub from: &'a dyn End,
    /// Where to.
    pub to: &'a dyn End,
    /// Both ends are one image.
    pub same: bool,
    /// Whether times are kept.
    pub times: bool,
    /// What was done so far.
    pub tally: Tally,
    /// Shown meanwhile.
    pub bar: ProgressBar,
}

impl Copy<'_> {
    /// Copies `sources` to `dest`: into it when it is a directory, else (one source) to be it. What the source does not
    /// give is named on stderr and counted; what the target does not take ends the copy.
    pub fn all(&mut self, sources: &[PathBuf], dest: &Path) -> Result<(), Failure> {
        let into_dir = self.to.look(dest, true).is_ok_and(|look| look.kind == Kind::Dir);
        if sources.len() > 1 && !into_dir {
            let dest = self.to.label(dest);
            return Err(Failure::usage(format!("{dest} is not a directory, so only one thing can be copied there")));
        }
        for source in sources {
            let target = match source.file_name() {
                Some(name) if into_dir => dest.join(name),
                _ => dest.to_owned(),
            };
            self.tree(source, &target)?;
        }
        Ok(())
    }

    fn miss(&mut self, failure: &Failure) {
        self.bar.suspend(|| eprintln!("weldfs: {failure}"));
        self.tally.failed += 1;
    }

    /// What the source gave, or `None` when it did not (which is said). A device that is gone ends the copy.
    fn given<T>(&mut self, what: &str, from: &Path, got: io::Result<T>) -> Result<Option<T>, Failure> {
        let gone = got.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ENODEV));
        match got.doing(what, self.from.label(from)) {
            Ok(got) => Ok(Some(got)),
            Err(failure) if gone => Err(failure),
            Err(failure) => {
                self.miss(&failure);
                Ok(None)
            }
        }
    }

    /// Whether writing `to` would hit what `from` is, or what lies in it; that is said. Names do not matter: links and
    /// `..` lead to the same inode.
    fn hits_itself(&mut self, from: &Path, to: &Path, look: Look) -> bool {
        if !self.same {
            return false;
        }
        let id_of = |path: &Path| self.to.look(path, look.kind != Kind::Link).ok();
        let hit = match look.kind {
            // A directory that is not there yet was made for, or will be made in, its parent.
            Kind::Dir => {
                let parent = || to.parent().unwrap_or(Path::new("/")).to_owned();
                let mut at = if id_of(to).is_some() { to.to_owned() } else { parent() };
                let mut last = None;
                loop {
                    match id_of(&at).map(|found| found.id) {
                        Some(id) if id == look.id => break true,
                        // The root is its own parent.
                        Some(id) if last != Some(id) => last = Some(id),
                        _ => break false,
                    }
                    at.push("..");
                }
            }
            _ => id_of(to).is_some_and(|found| found.id == look.id),
        };
        if hit {
            let (from, to) = (self.from.label(from), self.to.label(to));
            self.miss(&Failure::new(format!("cannot copy {from} to {to}: that is itself, or inside it")));
        }
        hit
    }

    fn tree(&mut self, from: &Path, to: &Path) -> Result<(), Failure> {
        let look = self.from.look(from, false);
        let Some(look) = self.given("read", from, look)? else { return Ok(()) };
        if look.kind != Kind::Other && self.hits_itself(from, to, look) {
            return Ok(());
        }
        let copied = match look.kind {
            Kind::File => self.file(from, to, look)?,
            Kind::Dir => self.directory(from, to, look)?,
            Kind::Link => self.link(from, to)?,
            Kind::Other => {
                tracing::warn!("{} is neither file, directory nor symbolic link: left out", self.from.label(from));
                self.tally.skipped += 1;
                false
            }
        };
        if copied && self.times {
            self.to.set_times(to, look.times).doing("set the times of", self.to.label(to))?;
        }
        Ok(())
    }

    fn link(&mut self, from: &Path, to: &Path) -> Result<bool, Failure> {
        let target = self.from.read_link(from);
        let Some(target) = self.given("read", from, target)? else { return Ok(false) };
        self.to.symlink(&target, to).doing("make link", self.to.label(to))?;
        self.tally.symlinks += 1;
        Ok(true)
    }

    fn file(&mut self, from: &Path, to: &Path, look: Look) -> Result<bool, Failure> {
        let source = self.from;
        let Some(inner) = self.given("read", from, source.reader(from, look.size))? else { return Ok(false) };
        let mut reader = Watched { inner, failed: false };
        let written = self.to.write(to, look.mode, &mut reader);
        let bytes = if reader.failed {
            let Some(bytes) = self.given("read", from, written)? else { return Ok(false) };
            bytes
        } else {
            written.doing("write", self.to.label(to))?
        };
        self.tally.files += 1;
        self.tally.bytes += bytes;
        self.bar.inc(bytes);
        Ok(true)
    }

    fn directory(&mut self, from: &Path, to: &Path, look: Look) -> Result<bool, Failure> {
        let names = self.from.names(from);
        let Some(mut names) = self.given("list", from, names)? else { return Ok(false) };
        names.sort();
        self.to.mkdir(to, look.mode).doing("make directory", self.to.label(to))?;
        self.tally.directories += 1;
        self.bar.set_message(from.display().to_string());
        for name in names {
            self.tree(&from.join(&name), &to.join(&name))?;
        }
        Ok(true)
    }
}
