//! Copying trees: `put`, `get` and `cp` are one walk between two ends, each either the host's file system or an
//! image. Files of up to 1 MiB cross in one fused command each way.

mod content;
mod host;
mod image;

use crate::failure::{Doing, Failure};
use crate::output::{self, say};
use indicatif::ProgressBar;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub use content::{Content, Piece, Plain};
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
    /// Some of them lie in holes.
    pub sparse: bool,
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
    /// Content of a file that looked so.
    fn reader(&self, path: &Path, look: &Look) -> io::Result<Box<dyn Content + '_>>;
    /// Content that has no size and no name of its own, if that is what the caller means by `path`: standard input.
    fn stream(&self, _path: &Path) -> io::Result<Option<Box<dyn Content + '_>>> {
        Ok(None)
    }
    /// Several things are about to be made in `dir`, whose names the caller did not choose.
    fn enter(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }
    /// More about an error at `path` than its errno says, where there is more to say.
    fn because(&self, _path: &Path, _error: &io::Error) -> Option<String> {
        None
    }
    /// What a new file with this mode gets, where that is not the system's business.
    fn masked(&self, mode: u32) -> u32 {
        mode
    }
    /// What a symbolic link says.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Makes or replaces a file with what `from` gives, holes as holes; returns the bytes. `begun` is set when the file
    /// is there, or what it held is not there any more.
    fn write(&self, path: &Path, mode: u32, from: &mut dyn Content, begun: &mut bool) -> io::Result<u64>;
    /// Makes a directory that its owner may fill; an existing one is kept, with its mode. Says whether it was made.
    fn mkdir(&self, path: &Path, mode: u32) -> io::Result<bool>;
    /// Takes these permission bits away from a directory that `mkdir` has made.
    fn withdraw(&self, dir: &Path, bits: u32) -> io::Result<()>;
    /// Makes or replaces a symbolic link.
    fn symlink(&self, target: &Path, path: &Path) -> io::Result<()>;
    /// Sets the times, of a symbolic link itself.
    fn set_times(&self, path: &Path, times: [(i64, u32); 2]) -> io::Result<()>;
}

/// Which symbolic links of the source are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// None: a link stays a link.
    Never,
    /// Those that the caller names; links in trees stay links.
    Named,
    /// All.
    Always,
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
    #[serde(rename = "copied_bytes")]
    pub bytes: u64,
    /// Things of other kinds, left out (each is named on stderr).
    pub skipped: u64,
    /// Things that could not be read, or would have replaced themselves (each is named on stderr).
    pub failed: u64,
}

/// Whether a name that a directory gave is one: not empty, neither `.` nor `..`, without a slash.
pub fn is_plain(name: &OsStr) -> bool {
    !matches!(name.as_bytes(), b"" | b"." | b"..") && !name.as_bytes().contains(&b'/')
}

/// What a copy of a file may have of its mode. Not the bits that make a program run as its owner or group: the copy
/// belongs to whoever copies, and what it does was chosen by whoever made the image.
const FILE_MODE: u32 = 0o777;
/// The same of a directory. The sticky bit lends no rights.
const DIRECTORY_MODE: u32 = 0o1777;
/// What the owner of a directory needs to fill it.
const FILL: u32 = 0o700;

/// A reader that remembers whether it was the one that failed.
struct Watched<'r> {
    inner: Box<dyn Content + 'r>,
    failed: bool,
}

impl Content for Watched<'_> {
    fn next(&mut self, buf: &mut [u8]) -> io::Result<Piece> {
        let done = self.inner.next(buf);
        self.failed |= done.is_err();
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
    /// Which links are followed.
    pub follow: Follow,
    /// The directories that are being copied, outermost first.
    pub above: Vec<(u64, u64)>,
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
        if !into_dir {
            self.has_folder(dest)?;
        }
        if into_dir {
            // What an earlier copy left in it leads nowhere else, of one source as of several.
            self.to.enter(dest).doing("open", self.to.label(dest))?;
        }
        for source in sources {
            let target = match source.file_name() {
                Some(name) if into_dir => dest.join(name),
                _ => dest.to_owned(),
            };
            let stream = self.from.stream(source);
            match self.given("read", source, stream)? {
                None => {}
                Some(Some(_)) if into_dir && source == Path::new("-") => {
                    let (dest, say) = (self.to.label(dest), self.to.label(&dest.join("NAME")));
                    let sentence = format!("{dest} is a directory, and standard input has no name: say {say}");
                    return Err(Failure::usage(sentence));
                }
                Some(Some(stream)) => {
                    self.bytes(stream, source, &target, self.to.masked(0o666))?;
                }
                Some(None) => self.tree(source, &target, true)?,
            }
        }
        Ok(())
    }

    /// Something can only be made in a directory that is there.
    fn has_folder(&self, dest: &Path) -> Result<(), Failure> {
        let Some(folder) = dest.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
        match self.to.look(folder, true) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let (dest, folder) = (self.to.label(dest), self.to.label(folder));
                Err(Failure::new(format!("cannot write {dest}: there is no directory {folder}")))
            }
            _ => Ok(()),
        }
    }

    fn miss(&mut self, failure: &Failure) {
        self.bar.suspend(|| say!("weldfs: {failure}"));
        self.tally.failed += 1;
    }

    /// What the source gave, or `None` when it did not (which is said). A device that is gone ends the copy.
    fn given<T>(&mut self, what: &str, from: &Path, got: io::Result<T>) -> Result<Option<T>, Failure> {
        let because = got.as_ref().err().and_then(|e| self.from.because(from, e));
        let gone = because.is_none() && got.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ENODEV));
        match got.map_err(|e| because.map_or(e, io::Error::other)).doing(what, self.from.label(from)) {
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

    fn tree(&mut self, from: &Path, to: &Path, named: bool) -> Result<(), Failure> {
        let follow = self.follow == Follow::Always || self.follow == Follow::Named && named;
        let look = self.from.look(from, follow);
        let Some(look) = self.given("read", from, look)? else { return Ok(()) };
        if look.kind != Kind::Other && self.hits_itself(from, to, look) {
            return Ok(());
        }
        let copied = match look.kind {
            Kind::File => self.file(from, to, look)?,
            Kind::Dir => self.directory(from, to, look)?,
            Kind::Link => self.link(from, to)?,
            // The caller asked for this one: leaving it out is a failure.
            Kind::Other if named => {
                let from = self.from.label(from);
                self.miss(&Failure::new(format!(
                    "cannot copy {from}: neither a file nor a directory (what a program gives goes in through '-')"
                )));
                false
            }
            Kind::Other => {
                let from = self.from.label(from);
                self.bar.suspend(|| say!("weldfs: {from}: neither a file, a directory nor a symbolic link: left out"));
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
        let Some(inner) = self.given("read", from, source.reader(from, &look))? else { return Ok(false) };
        self.bytes(inner, from, to, look.mode & FILE_MODE)
    }

    /// Makes the file `to` of what `inner` gives.
    fn bytes(&mut self, inner: Box<dyn Content + '_>, from: &Path, to: &Path, mode: u32) -> Result<bool, Failure> {
        if to.as_os_str().as_bytes().ends_with(b"/") {
            return Err(Failure::new(format!("cannot write {0}: there is no directory {0}", self.to.label(to))));
        }
        let mut reader = Watched { inner, failed: false };
        let mut begun = false;
        let written = self.to.write(to, mode, &mut reader, &mut begun);
        if written.is_err() && begun {
            let to = self.to.label(to);
            self.bar.suspend(|| say!("weldfs: {to} is partial: what is missing could not be copied"));
        }
        let bytes = match written {
            written if reader.failed => {
                let Some(bytes) = self.given("read", from, written)? else { return Ok(false) };
                bytes
            }
            // A link that is in the way leads somewhere else than the tree: it stays, and this one is left out.
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
                let why = self.to.because(to, &e).unwrap_or_else(|| "a symbolic link is in its place".into());
                self.miss(&Failure::new(format!("cannot write {}: {why}", self.to.label(to))));
                return Ok(false);
            }
            written => {
                let told = |e| self.to.because(to, &e).map_or(e, io::Error::other);
                written.map_err(told).doing("write", self.to.label(to))?
            }
        };
        self.tally.files += 1;
        self.tally.bytes += bytes;
        self.bar.inc(bytes);
        Ok(true)
    }

    fn directory(&mut self, from: &Path, to: &Path, look: Look) -> Result<bool, Failure> {
        if self.above.contains(&look.id) {
            let from = self.from.label(from);
            self.miss(&Failure::new(format!("cannot copy {from}: it is a directory that it lies in")));
            return Ok(false);
        }
        let names = self.from.names(from);
        let Some(mut names) = self.given("list", from, names)? else { return Ok(false) };
        names.sort();
        let made = self.to.mkdir(to, look.mode & DIRECTORY_MODE).doing("make directory", self.to.label(to))?;
        self.tally.directories += 1;
        self.bar.set_message(output::plain(&from.to_string_lossy()).into_owned());
        self.above.push(look.id);
        let filled = self.fill(from, to, &names);
        self.above.pop();
        let surplus = FILL & !look.mode;
        if made && surplus != 0 {
            self.to.withdraw(to, surplus).doing("set the mode of", self.to.label(to))?;
        }
        filled.map(|()| true)
    }

    fn fill(&mut self, from: &Path, to: &Path, names: &[OsString]) -> Result<(), Failure> {
        for name in names {
            let name = name.as_os_str();
            if is_plain(name) {
                self.tree(&from.join(name), &to.join(name), false)?;
            } else {
                // A forged image: as a path it would lead out of the tree.
                let (dir, name) = (self.from.label(from), name.display());
                self.miss(&Failure::new(format!("cannot copy '{name}' of {dir}: that is no name of a file")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
