//! What tar and git work on: an archive, and a repository with a history, both made here and the same each time.

use super::Op;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Files of the archive; in a quick run.
const FILES: (usize, usize) = (5000, 200);
/// Files and commits of the repository; in a quick run.
const TRACKED: (usize, usize) = (1000, 60);
const COMMITS: (usize, usize) = (20, 3);
/// Files in a directory.
const IN_DIR: usize = 100;
/// Bytes of a file at most.
const FILE_MAX: usize = 8192;

/// Archive and repository, which go with this.
pub(super) struct Sets {
    folder: tempfile::TempDir,
    archive: Option<String>,
    repository: Option<String>,
    /// What is not there, and why.
    pub(super) skipped: Vec<String>,
}

fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    Err(io::Error::other(format!("{name}: {}: {said}", out.status)))
}

/// git without the settings of this user and this machine.
pub(super) fn git(home: &Path) -> Command {
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("HOME", home);
    command.env("GIT_TERMINAL_PROMPT", "0");
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"] {
        command.env_remove(variable);
    }
    command
}

/// Lines of words: they compress as text does.
fn text(rng: &mut StdRng, len: usize) -> Vec<u8> {
    let words = ["read", "write", "inode", "extent", "device", "command", "ring", "journal", "queue", "commit"];
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        text.extend_from_slice(words[rng.random_range(0..words.len())].as_bytes());
        text.push(if rng.random_range(0..10) == 0 { b'\n' } else { b' ' });
    }
    text.truncate(len);
    text
}

/// A tree of so many files, and their bytes.
fn tree(root: &Path, files: usize, rng: &mut StdRng) -> io::Result<u64> {
    let mut bytes = 0;
    for n in 0..files {
        let dir = root.join(format!("d{:03}", n / IN_DIR));
        if n % IN_DIR == 0 {
            fs::create_dir_all(&dir)?;
        }
        let len = rng.random_range(0..=FILE_MAX);
        fs::write(dir.join(format!("f{n:05}")), text(rng, len))?;
        bytes += len as u64;
    }
    Ok(bytes)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Bytes of the files below a directory.
fn bytes_below(dir: &Path) -> io::Result<u64> {
    fs::read_dir(dir)?.try_fold(0, |sum, entry| {
        let entry = entry?;
        let meta = entry.metadata()?;
        Ok(sum + if meta.is_dir() { bytes_below(&entry.path())? } else { meta.len() })
    })
}

impl Sets {
    /// Makes what the operations that are `wanted` work on; in memory, where there is room for it.
    pub(super) fn make(quick: bool, wanted: impl Fn(Op) -> bool) -> io::Result<Sets> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("weldfs-sets-");
        let folder = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir())?;
        let mut sets = Sets { folder, archive: None, repository: None, skipped: Vec::new() };
        let of = |full: (usize, usize)| if quick { full.1 } else { full.0 };
        if wanted(Op::Tar) {
            let made = sets.make_archive(of(FILES));
            sets.archive = sets.unless_missing(Op::Tar, made)?;
        }
        if wanted(Op::Git) {
            let made = sets.make_repository(of(TRACKED), of(COMMITS));
            sets.repository = sets.unless_missing(Op::Git, made)?;
        }
        Ok(sets)
    }

    /// A program that is not installed is a reason to leave its operation out, and to say so.
    fn unless_missing(&mut self, op: Op, made: io::Result<String>) -> io::Result<Option<String>> {
        match made {
            Ok(described) => Ok(Some(described)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.skipped.push(format!("{}: not installed: {e}", op.name()));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn make_archive(&self, files: usize) -> io::Result<String> {
        let source = self.folder.path().join("tree");
        let bytes = tree(&source, files, &mut StdRng::seed_from_u64(1))?;
        run(Command::new("tar").arg("cf").arg(self.archive()).arg("-C").arg(&source).arg("."))?;
        fs::remove_dir_all(source)?;
        Ok(format!("tar_x: {files} files, {}", mib(bytes)))
    }

    fn make_repository(&self, files: usize, commits: usize) -> io::Result<String> {
        let (repository, mut rng) = (self.repository(), StdRng::seed_from_u64(2));
        let git = |args: &[&str]| {
            let mut command = git(self.folder.path());
            let date = "2026-01-01T00:00:00+0000";
            command.env("GIT_AUTHOR_DATE", date).env("GIT_COMMITTER_DATE", date);
            run(command
                .args(["-c", "user.name=bench", "-c", "user.email=bench@invalid", "-C"])
                .arg(&repository)
                .args(args))
        };
        fs::create_dir(&repository)?;
        git(&["init", "-q"])?;
        tree(&repository, files, &mut rng)?;
        for commit in 0..commits {
            // Each commit but the first changes a twentieth of the files.
            for _ in 0..if commit == 0 { 0 } else { files / 20 } {
                let n = rng.random_range(0..files);
                let len = rng.random_range(0..=FILE_MAX);
                let path = repository.join(format!("d{:03}/f{n:05}", n / IN_DIR));
                fs::write(path, text(&mut rng, len))?;
            }
            git(&["add", "-A"])?;
            git(&["commit", "-q", "-m", &format!("commit {commit}")])?;
        }
        git(&["gc", "-q"])?;
        let packed = bytes_below(&repository.join(".git/objects"))?;
        let bytes = bytes_below(&repository)?.saturating_sub(bytes_below(&repository.join(".git"))?);
        Ok(format!("git_clone: {files} files, {}, {commits} commits, {} packed", mib(bytes), mib(packed)))
    }

    pub(super) fn archive(&self) -> PathBuf {
        self.folder.path().join("archive.tar")
    }

    pub(super) fn repository(&self) -> PathBuf {
        self.folder.path().join("repository")
    }

    /// Whether there is what an operation works on.
    pub(super) fn has(&self, op: Op) -> bool {
        match op {
            Op::Tar => self.archive.is_some(),
            Op::Git => self.repository.is_some(),
            _ => true,
        }
    }

    /// For the report.
    pub(super) fn describe(&self) -> Vec<String> {
        self.archive.iter().chain(&self.repository).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_the_same_each_time_and_what_is_missing_is_named() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let of = |dir: &Path| tree(dir, 150, &mut StdRng::seed_from_u64(3)).unwrap();
        assert_eq!(of(a.path()), of(b.path()));
        assert_eq!(bytes_below(a.path()).unwrap(), bytes_below(b.path()).unwrap());
        assert_eq!(fs::read(a.path().join("d001/f00149")).unwrap(), fs::read(b.path().join("d001/f00149")).unwrap());
        let mut sets = Sets::make(true, |_| false).unwrap();
        assert!(!sets.has(Op::Tar) && !sets.has(Op::Git) && sets.has(Op::Read) && sets.describe().is_empty());
        let missing = io::Error::new(io::ErrorKind::NotFound, "tar");
        assert_eq!(sets.unless_missing(Op::Tar, Err(missing)).unwrap(), None);
        assert_eq!(sets.skipped, ["tar_x: not installed: tar"]);
        assert!(sets.unless_missing(Op::Git, Err(io::Error::other("full"))).is_err());
    }
}
