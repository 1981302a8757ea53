//! Copies out of a forged image: whatever its names are, nothing is made beside the target.

use super::{Content, Copy, End, Follow, Host, Kind, Look, Plain, Tally};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What a forged image says: directories with any names in them, the same name twice if need be.
struct Forged {
    /// By path: names, in the order of the listing.
    dirs: BTreeMap<PathBuf, Vec<&'static str>>,
    /// By path: what each look says, one after the other, the last one for good.
    kinds: BTreeMap<PathBuf, std::cell::RefCell<Vec<Kind>>>,
    links: BTreeMap<PathBuf, PathBuf>,
    /// Inode numbers that are not made of the path.
    inodes: BTreeMap<PathBuf, u64>,
}

fn path_number(path: &Path) -> u64 {
    path.to_string_lossy().bytes().fold(7, |n, b| n.wrapping_mul(31).wrapping_add(b.into()))
}

impl End for Forged {
    fn label(&self, path: &Path) -> String {
        format!("forged:{}", path.display())
    }
    fn look(&self, path: &Path, _follow: bool) -> io::Result<Look> {
        let kinds = self.kinds.get(path).ok_or(io::ErrorKind::NotFound)?;
        let mut kinds = kinds.borrow_mut();
        let kind = if kinds.len() > 1 { kinds.remove(0) } else { kinds[0] };
        let ino = self.inodes.get(path).copied().unwrap_or_else(|| path_number(path));
        Ok(Look { id: (0, ino), kind, mode: 0o755, size: 5, sparse: false, times: [(0, 0); 2] })
    }
    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        Ok(self.dirs.get(dir).ok_or(io::ErrorKind::NotADirectory)?.iter().map(Into::into).collect())
    }
    fn reader(&self, _path: &Path, _look: &Look) -> io::Result<Box<dyn Content + '_>> {
        Ok(Box::new(Plain(&b"owned"[..])))
    }
    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(self.links.get(path).cloned().ok_or(io::ErrorKind::InvalidInput)?)
    }
    fn write(&self, _: &Path, _: u32, _: &mut dyn Content, _: &mut bool) -> io::Result<u64> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn mkdir(&self, _: &Path, _: u32) -> io::Result<bool> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn withdraw(&self, _: &Path, _: u32) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn symlink(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn set_times(&self, _: &Path, _: [(i64, u32); 2]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

fn forged(dirs: &[(&str, &[&'static str])], kinds: &[(&str, &[Kind])], links: &[(&str, PathBuf)]) -> Forged {
    Forged {
        dirs: dirs.iter().map(|(path, names)| (path.into(), names.to_vec())).collect(),
        kinds: kinds.iter().map(|(path, kinds)| (path.into(), kinds.to_vec().into())).collect(),
        links: links.iter().map(|(path, target)| (path.into(), target.clone())).collect(),
        inodes: BTreeMap::new(),
    }
}

fn get(from: &Forged, sources: &[&str], dest: &Path) -> Tally {
    let to = Host::target(dest);
    let (follow, bar) = (Follow::Named, indicatif::ProgressBar::hidden());
    let (tally, above) = (Tally::default(), Vec::new());
    let mut copy = Copy { from, to: &to, same: false, times: false, follow, above, tally, bar };
    let sources: Vec<PathBuf> = sources.iter().map(Into::into).collect();
    let _ = copy.all(&sources, dest);
    copy.tally
}

/// Names in a directory of the host.
fn listing(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("list").map(|e| e.expect("entry").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn names_that_are_no_names_lead_nowhere() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let names: &[&str] = &["", ".", "..", "../beside", "/tmp/weldfs-beside", "a/b", "good"];
    let mut kinds = vec![("/t", &[Kind::Dir][..]), ("/t/good", &[Kind::File][..])];
    let joined: Vec<String> = names.iter().map(|n| Path::new("/t").join(n).display().to_string()).collect();
    kinds.extend(joined.iter().map(|path| (path.as_str(), &[Kind::File][..])));
    kinds.retain(|(path, _)| *path != "/t" && *path != "/t/");
    kinds.push(("/t", &[Kind::Dir]));
    let from = forged(&[("/t", names)], &kinds, &[]);
    let tally = get(&from, &["/t"], &place.path().join("out"));
    assert_eq!((tally.files, tally.failed), (1, 6));
    assert_eq!(listing(place.path()), ["out"]);
    assert_eq!(listing(&place.path().join("out")), ["good"]);
    assert!(!Path::new("/tmp/weldfs-beside").exists());
}

#[test]
fn a_link_and_a_directory_of_one_name_lead_nowhere() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let outside = place.path().join("outside");
    fs::create_dir(&outside).expect("mkdir");
    fs::write(outside.join("f"), b"mine").expect("write");
    // `d` is listed twice: first as a link to a directory of the host, then as a directory with a file.
    let dirs: &[(&str, &[&str])] = &[("/t", &["d", "d"]), ("/t/d", &["f"])];
    let kinds: &[(&str, &[Kind])] =
        &[("/t", &[Kind::Dir]), ("/t/d", &[Kind::Link, Kind::Dir]), ("/t/d/f", &[Kind::File])];
    let from = forged(dirs, kinds, &[("/t/d", outside.clone())]);
    get(&from, &["/t"], &place.path().join("out"));
    assert_eq!(fs::read(outside.join("f")).expect("read"), b"mine");
    assert_eq!(listing(&outside), ["f"]);
}

#[test]
fn a_link_and_a_file_of_one_name_lead_nowhere() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let outside = place.path().join("outside");
    fs::write(&outside, b"mine").expect("write");
    let dirs: &[(&str, &[&str])] = &[("/t", &["f", "f"])];
    let kinds: &[(&str, &[Kind])] = &[("/t", &[Kind::Dir]), ("/t/f", &[Kind::Link, Kind::File])];
    let from = forged(dirs, kinds, &[("/t/f", outside.clone())]);
    let tally = get(&from, &["/t"], &place.path().join("out"));
    assert_eq!((tally.symlinks, tally.files, tally.failed), (1, 0, 1));
    assert_eq!(fs::read(&outside).expect("read"), b"mine");
}

#[test]
fn a_directory_that_lies_in_itself_ends() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let dirs: &[(&str, &[&str])] = &[("/t", &["d"]), ("/t/d", &["d"])];
    let kinds: &[(&str, &[Kind])] = &[("/t", &[Kind::Dir]), ("/t/d", &[Kind::Dir])];
    let mut from = forged(dirs, kinds, &[]);
    from.inodes = BTreeMap::from([("/t".into(), 9), ("/t/d".into(), 9)]);
    let tally = get(&from, &["/t"], &place.path().join("out"));
    assert_eq!((tally.directories, tally.failed), (1, 1));
}

#[test]
fn a_link_that_an_earlier_copy_left_is_not_followed_by_a_copy_of_one_thing() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let (out, beside) = (place.path().join("out"), place.path().join("beside"));
    fs::create_dir(&out).expect("mkdir");
    fs::write(&beside, b"its own").expect("write");
    std::os::unix::fs::symlink(&beside, out.join("u")).expect("symlink");
    let from = forged(&[], &[("/u", &[Kind::File])], &[]);
    let tally = get(&from, &["/u"], &out);
    assert_eq!((tally.files, tally.failed), (0, 1));
    assert_eq!(fs::read(&beside).expect("read"), b"its own");
}

#[test]
fn what_the_caller_names_may_be_a_link() {
    let place = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(place.path().join("real")).expect("mkdir");
    std::os::unix::fs::symlink("real", place.path().join("link")).expect("symlink");
    let dirs: &[(&str, &[&str])] = &[("/t", &["f"])];
    let kinds: &[(&str, &[Kind])] = &[("/t", &[Kind::Dir]), ("/t/f", &[Kind::File]), ("/u", &[Kind::File])];
    let from = forged(dirs, kinds, &[]);
    let tally = get(&from, &["/t", "/u"], &place.path().join("link"));
    assert_eq!((tally.files, tally.failed), (2, 0));
    assert_eq!(fs::read(place.path().join("real/t/f")).expect("read"), b"owned");
    assert_eq!(fs::read(place.path().join("real/u")).expect("read"), b"owned");
}
