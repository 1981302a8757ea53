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
    /// Copies `sources` to `dest`: into it when it is a directory, else (one source) to be it.
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
            if self.same && target.starts_with(source) {
                let (source, target) = (self.from.label(source), self.to.label(&target));
                return Err(Failure::new(format!("cannot copy {source} to {target}: that is itself, or inside it")));
            }
            self.tree(source, &target)?;
        }
        Ok(())
    }

    fn tree(&mut self, from: &Path, to: &Path) -> Result<(), Failure> {
        let look = self.from.look(from, false).doing("read", self.from.label(from))?;
        match look.kind {
            Kind::File => self.file(from, to, look)?,
            Kind::Dir => self.directory(from, to, look)?,
            Kind::Link => {
                let target = self.from.read_link(from).doing("read", self.from.label(from))?;
                self.to.symlink(&target, to).doing("make link", self.to.label(to))?;
                self.tally.symlinks += 1;
            }
            Kind::Other => {
                tracing::warn!("{} is neither file, directory nor symbolic link: left out", self.from.label(from));
                self.tally.skipped += 1;
                return Ok(());
            }
        }
        if self.times {
            self.to.set_times(to, look.times).doing("set the times of", self.to.label(to))?;
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, to: &Path, look: Look) -> Result<(), Failure> {
        let mut reader = self.from.reader(from, look.size).doing("read", self.from.label(from))?;
        let bytes = self.to.write(to, look.mode, &mut reader).doing("write", self.to.label(to))?;
        self.tally.files += 1;
        self.tally.bytes += bytes;
        self.bar.inc(bytes);
        Ok(())
    }

    fn directory(&mut self, from: &Path, to: &Path, look: Look) -> Result<(), Failure> {
        // Listed first: a tree copied into itself must end.
        let mut names = self.from.names(from).doing("list", self.from.label(from))?;
        names.sort();
        self.to.mkdir(to, look.mode).doing("make directory", self.to.label(to))?;
        self.tally.directories += 1;
        self.bar.set_message(from.display().to_string());
        for name in names {
            self.tree(&from.join(&name), &to.join(&name))?;
        }
        Ok(())
    }
}
