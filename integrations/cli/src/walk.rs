//! Walking a tree of an image: `ls -R`, `find`, `du`, and `chmod`, `chown` and `rm` of whole trees. Symbolic links are
//! not followed below the top. What cannot be read is said, counted and left out.

use crate::failure::{Doing, Failure};
use crate::output::say;
use crate::place::Place;
use crate::tree::is_plain;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use weldfs::{Client, Metadata};

/// One thing that was found.
pub struct Step<'s> {
    /// Where it is.
    pub path: &'s Path,
    /// What it is.
    pub meta: &'s Metadata,
    /// How far below the top.
    pub depth: usize,
}

/// When a visitor is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At each thing; what is returned says whether to go into it if it is a directory.
    Found,
    /// At a directory that was to be gone into, after everything in it (or after it could not be).
    Left,
}

/// Called for what a walk meets.
pub type Visit<'v> = dyn FnMut(When, &Step<'_>) -> Result<bool, Failure> + 'v;

/// A walk through one image.
pub struct Walk<'c> {
    client: &'c Client,
    image: PathBuf,
    /// Inodes of the directories that it is in.
    above: Vec<u64>,
    /// Things that could not be looked at.
    pub failed: u64,
    /// A directory of which a name was gone, and what it has now.
    again: Option<(PathBuf, Vec<OsString>)>,
}

/// Names in a directory, sorted.
pub fn names(client: &Client, dir: &Path) -> std::io::Result<Vec<OsString>> {
    let open = client.open_dir(dir)?;
    let mut names = open.entries().map(|entry| Ok(entry?.name)).collect::<std::io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

impl<'c> Walk<'c> {
    /// Through the device that `client` is attached to; `image` is what messages call it.
    pub fn new(client: &'c Client, image: &Path) -> Walk<'c> {
        Walk { client, image: image.to_owned(), above: Vec::new(), failed: 0, again: None }
    }

    fn miss(&mut self, failure: &Failure) {
        say!("weldfs: {failure}");
        self.failed += 1;
    }

    fn label(&self, path: &Path) -> String {
        Place { image: self.image.clone(), path: path.to_owned() }.to_string()
    }

    /// Visits `top` and what is below it. What is named by the caller must be there.
    pub fn tree(&mut self, top: &Path, follow: bool, visit: &mut Visit<'_>) -> Result<(), Failure> {
        let meta = if follow { self.client.metadata(top) } else { self.client.symlink_metadata(top) };
        let meta = meta.doing("look at", self.label(top))?;
        self.step(&Step { path: top, meta: &meta, depth: 0 }, visit)
    }

    fn step(&mut self, step: &Step<'_>, visit: &mut Visit<'_>) -> Result<(), Failure> {
        if !visit(When::Found, step)? || !step.meta.is_dir() {
            return Ok(());
        }
        let names = if self.above.contains(&step.meta.ino()) {
            Err(Failure::new(format!("{} is a directory that it lies in: left out", self.label(step.path))))
        } else {
            names(self.client, step.path).doing("list", self.label(step.path))
        };
        match names {
            Err(failure) => self.miss(&failure),
            Ok(names) => {
                self.above.push(step.meta.ino());
                for name in names {
                    self.name(step, &name, visit)?;
                }
                self.above.pop();
            }
        }
        visit(When::Left, step).map(drop)
    }

    /// What is behind a name that was listed, unless it is gone since then: another listing does not have it.
    fn look_at(&mut self, dir: &Path, name: &OsStr) -> std::io::Result<Option<Metadata>> {
        let path = dir.join(name);
        match self.client.symlink_metadata(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            looked => return looked.map(Some),
        }
        // One for all the names of a directory.
        if self.again.as_ref().is_none_or(|(of, _)| of != dir) {
            let again = match names(self.client, dir) {
                // Gone as well, with all that was in it.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
                again => again?,
            };
            self.again = Some((dir.to_owned(), again));
        }
        let lists = |(_, names): &(PathBuf, Vec<OsString>)| names.binary_search_by(|n| n.as_os_str().cmp(name)).is_ok();
        if !self.again.as_ref().is_some_and(lists) {
            return Ok(None);
        }
        // It may have come back meanwhile.
        self.client.symlink_metadata(&path).map(Some)
    }

    fn name(&mut self, dir: &Step<'_>, name: &OsStr, visit: &mut Visit<'_>) -> Result<(), Failure> {
        if !is_plain(name) {
            let (dir, name) = (self.label(dir.path), name.display());
            self.miss(&Failure::new(format!("'{name}' in {dir} is no name of a file: left out")));
            return Ok(());
        }
        let path = dir.path.join(name);
        match self.look_at(dir.path, name) {
            Ok(Some(meta)) => self.step(&Step { path: &path, meta: &meta, depth: dir.depth + 1 }, visit),
            Ok(None) => Ok(()),
            Err(e) => {
                if let Err(failure) = Err::<(), _>(e).doing("look at", self.label(&path)) {
                    self.miss(&failure);
                }
                Ok(())
            }
        }
    }
}
