//! A damaged image through the command line program, with as little memory as the processes that look at it: every verb
//! ends in time by a code of its own and without a panic, what it lists or copies with success is complete and the
//! truth, and nothing changes beside what it was told to change.

use super::MEMORY;
use super::expected::{Changed, Expected, FROM, TO, lines};
use super::harm::{Case, Harmed, KINDS, image};
use super::judge::is_marked;
use super::names::{Item, Names, below};
use super::pristine::pristine;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weldfs_ciscops::dirent::dtype;

/// Every how many images, at most: prime to the number of kinds, so that each kind has its share.
const EVERY: u64 = 97;
/// What one verb may take.
const HANG: Duration = Duration::from_secs(60);
/// Code of a Rust program that panicked, and what it says then.
const PANIC: i32 = 101;
const PANICKED: &[u8] = b"panicked at";
/// What a verb may print of an image of 4 MiB.
const OUTPUT_MAX: u64 = 16 << 20;
/// The longest file that is looked at on the host: no file of an image is longer, but for holes.
const FILE_MAX: u64 = 4 << 20;

/// Every how many of so many images go through the program: of few a larger share, so that each kind does twice.
pub fn every(count: u64) -> u64 {
    let kinds = KINDS.len() as u64;
    let prime = |step: &u64| (2..=kinds).all(|n| !step.is_multiple_of(n) || !kinds.is_multiple_of(n));
    (1..=EVERY.min(count / (2 * kinds)).max(1)).rev().find(prime).unwrap_or(1)
}

/// How many verbs ended with success, and how many not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    pub well: u64,
    pub failed: u64,
}

/// The program.
pub struct Program {
    path: PathBuf,
    hang: Duration,
}

/// What a verb did.
pub struct Done {
    code: i32,
    out: Vec<u8>,
    said: Vec<u8>,
}

impl Done {
    fn well(&self) -> bool {
        self.code == 0
    }

    /// The paths that `find --print0` printed, without the root.
    fn paths(&self) -> BTreeSet<Vec<u8>> {
        let all = self.out.split(|b| *b == 0).map(|path| path.strip_prefix(b"/").unwrap_or(path));
        all.filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect()
    }
}

/// Reads to the end, but no more than a verb may print; so a verb that goes on has a reader that is gone.
fn read(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.map(|from| from.take(OUTPUT_MAX).read_to_end(&mut bytes));
        bytes
    })
}

impl Program {
    /// # Errors
    /// There is none at this path.
    pub fn new(path: &Path) -> std::io::Result<Program> {
        let said = |e: std::io::Error| std::io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        Ok(Program { path: path.canonicalize().map_err(said)?, hang: HANG })
    }

    #[cfg(test)]
    pub fn with_hang(self, hang: Duration) -> Program {
        Program { hang, ..self }
    }

    /// One verb, in a directory.
    ///
    /// # Errors
    /// It does not end in time, or as no verb may.
    pub fn verb(&self, dir: &Path, args: &[&OsStr]) -> Result<Done, String> {
        let what = args[..args.len().min(2)].join(OsStr::new(" ")).display().to_string();
        let mut command = Command::new("sh");
        // A limit that a process sets itself needs code between fork and exec; the shell has it.
        command.args(["-c", &format!("ulimit -d {} && exec \"$@\"", MEMORY >> 10), "sh"]).arg(&self.path).args(args);
        command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("sh: {e}"))?;
        let (out, said) = (read(child.stdout.take()), read(child.stderr.take()));
        let start = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if start.elapsed() > self.hang => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("{what}: nothing after {} s", self.hang.as_secs()));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Err(e) => return Err(format!("{what}: {e}")),
            }
        };
        let (out, said) = (out.join().unwrap_or_default(), said.join().unwrap_or_default());
        let text = String::from_utf8_lossy(&said).trim_end().replace('\n', " | ");
        if [&out, &said].iter().any(|bytes| bytes.len() as u64 == OUTPUT_MAX) {
            return Err(format!("{what}: prints {OUTPUT_MAX} bytes and more"));
        }
        if status.code() == Some(PANIC) || said.windows(PANICKED.len()).any(|w| w == PANICKED) {
            return Err(format!("{what}: a panic: {text}"));
        }
        let Some(code) = status.code() else { return Err(format!("{what}: {status}: {text}")) };
        let codes: &[i32] = match args[0].to_str() {
            Some("fsck" | "scrub") => &[0, 4, 8],
            Some("info") => &[0, 1, 4],
            _ => &[0, 1],
        };
        match codes.contains(&code) {
            true if code != 0 && out.is_empty() && said.is_empty() => Err(format!("{what}: fails without a word")),
            true => Ok(Done { code, out, said }),
            false => Err(format!("{what}: exit code {code}: {text}")),
        }
    }
}

/// Where an image, a copy of it and what verbs make of it are, deep enough that a name which leads up is seen.
struct Bench {
    top: tempfile::TempDir,
    dir: PathBuf,
    image: PathBuf,
    copy: PathBuf,
}

fn broken(e: std::io::Error) -> String {
    format!("the test's own files: {e}")
}

/// What lies below a directory of the host, but for a path; no link is followed.
fn host(top: &Path, but: &[&Path]) -> std::io::Result<Names> {
    let (mut all, mut todo) = (Names::new(), vec![(top.to_owned(), Vec::new())]);
    while let Some((dir, path)) = todo.pop() {
        for entry in std::fs::read_dir(dir)? {
            let at = entry?.path();
            let path = below(&path, at.file_name().unwrap_or_default().as_bytes());
            if but.contains(&&*at) {
                continue;
            }
            let meta = at.symlink_metadata()?;
            let (kind, content) = match meta.file_type() {
                t if t.is_dir() => (dtype::DIR, None),
                t if t.is_symlink() => {
                    (dtype::LNK, Some(std::fs::read_link(&at)?.into_os_string().as_bytes().to_vec()))
                }
                t if t.is_file() && meta.len() <= FILE_MAX => (dtype::REG, Some(std::fs::read(&at)?)),
                t if t.is_file() => (dtype::REG, None),
                _ => (dtype::UNKNOWN, None),
            };
            if kind == dtype::DIR {
                todo.push((at, path.clone()));
            }
            all.insert(path, Item { ino: 0, dtype: kind, content });
        }
    }
    Ok(all)
}

impl Bench {
    fn new(bytes: &[u8]) -> std::io::Result<Bench> {
        let top = tempfile::tempdir()?;
        let dir = top.path().join("deep/er/still");
        std::fs::create_dir_all(&dir)?;
        for beside in ["deep", "deep/er", "deep/er/still"] {
            std::fs::write(top.path().join(beside).join("beside"), beside)?;
        }
        let (image, copy) = (top.path().join("image"), top.path().join("copy"));
        std::fs::write(&image, bytes)?;
        std::fs::write(&copy, bytes)?;
        Ok(Bench { top, dir, image, copy })
    }

    fn target(&self) -> PathBuf {
        self.dir.join("out")
    }

    /// What no verb may change: the image, and all that lies beside what verbs are to make.
    fn beside(&self, copy: bool) -> Result<Names, String> {
        let target = self.target();
        let but = [&*target, &*self.copy];
        host(self.top.path(), &but[..if copy { 1 } else { 2 }]).map_err(broken)
    }

    /// What `get` made; none of it may be bytes that no write made.
    fn got(&self) -> Result<Names, String> {
        let all = host(&self.target(), &[]).map_err(broken)?;
        match all.iter().find(|(_, item)| item.content.as_deref().is_some_and(is_marked)) {
            Some((path, _)) => {
                Err(format!("get copies bytes that no write made, to {}", String::from_utf8_lossy(path)))
            }
            None => Ok(all),
        }
    }

    fn clear(&self) -> Result<(), String> {
        let target = self.target();
        let gone = if target.is_dir() { std::fs::remove_dir_all(target) } else { std::fs::remove_file(target) };
        gone.or_else(|e| if e.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(broken(e)) })
    }
}

fn unchanged(before: &Names, after: &Names, by: &str) -> Result<(), String> {
    let other = |path: &&Vec<u8>| before.get(*path) != after.get(*path);
    match before.keys().chain(after.keys()).find(other) {
        Some(path) => Err(format!("{by} made, changed or removed {}", String::from_utf8_lossy(path))),
        None => Ok(()),
    }
}

/// One image with the verbs that ran so far.
struct Session<'p> {
    program: &'p Program,
    bench: Bench,
    expected: Expected,
    ended: Ended,
}

impl Session<'_> {
    fn run(&mut self, args: &[&OsStr]) -> Result<Done, String> {
        let done = self.program.verb(&self.bench.dir, args)?;
        if done.well() {
            self.ended.well += 1;
        } else {
            self.ended.failed += 1;
        }
        Ok(done)
    }

    fn all(&mut self) -> Result<(), String> {
        let before = self.bench.beside(true)?;
        let clean = self.looked()?;
        unchanged(&before, &self.bench.beside(true)?, "what only reads")?;
        self.bench.clear()?;
        let before = self.bench.beside(false)?;
        self.changed(clean)?;
        unchanged(&before, &self.bench.beside(false)?, "cp, rm or get")
    }

    /// The verbs that change nothing. Whether fsck and scrub find nothing.
    fn looked(&mut self) -> Result<bool, String> {
        let (image, target) = (self.bench.image.clone(), self.bench.target());
        let root = [image.as_os_str(), OsStr::new(":/")].join(OsStr::new(""));
        let word = OsStr::new;
        let fsck = self.run(&[word("fsck"), word("-n"), image.as_os_str()])?;
        let scrub = self.run(&[word("scrub"), image.as_os_str()])?;
        self.run(&[word("info"), image.as_os_str()])?;
        self.run(&[word("info"), word("--log"), image.as_os_str()])?;
        let clean = fsck.well() && scrub.well();
        let ls = self.run(&[word("ls"), &root])?;
        let recursive = self.run(&[word("ls"), word("-R"), &root])?;
        let find = self.run(&[word("find"), &root, word("--print0")])?;
        let du = self.run(&[word("du"), word("-a"), &root])?;
        let get = self.run(&[word("get"), &root, target.as_os_str()])?;
        for (verb, done) in [("ls", &ls), ("ls -R", &recursive), ("find", &find), ("du", &du), ("get", &get)] {
            if clean && !done.well() {
                let said = String::from_utf8_lossy(&done.said).trim_end().replace('\n', " | ");
                return Err(format!("fsck and scrub find nothing, and {verb} fails: {said}"));
            }
        }
        let (names, paths, expected) = (lines([&recursive.out[..]]), find.paths(), &self.expected);
        if ls.well() {
            expected.root(&ls.out)?;
        }
        if recursive.well() {
            expected.recursive(&recursive.out)?;
        }
        if find.well() {
            expected.found(&paths)?;
        }
        if du.well() {
            let path = |line: &[u8]| Some(line.get(line.iter().position(|b| *b == b'\t')? + 2..)?.to_vec());
            let all = du.out.split(|b| *b == b'\n').filter_map(path).filter(|path| !path.is_empty());
            expected.measured(&all.collect())?;
        }
        let got = if target.symlink_metadata().is_ok_and(|m| m.is_dir()) { self.bench.got()? } else { Names::new() };
        if get.well() {
            expected.copied(None, &got)?;
        }
        // Whatever the image: verbs that end well show the same names.
        let last = |path: &[u8]| path.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec();
        let listed = lines(paths.iter().map(|path| last(path)).collect::<Vec<_>>().iter().map(|name| &name[..]));
        if find.well() && recursive.well() && !listed.iter().all(|(name, n)| names.get(name).is_some_and(|m| m >= n)) {
            return Err("find and ls -R end well, and find has names that ls -R has not".into());
        }
        let left_out = String::from_utf8_lossy(&get.said).contains("left out");
        if find.well() && get.well() && !left_out && !paths.iter().all(|path| got.contains_key(path)) {
            return Err("find and get end well, and find has names that get has not copied".into());
        }
        Ok(clean)
    }

    /// What changes the copy of the image.
    fn changed(&mut self, clean: bool) -> Result<(), String> {
        let (copy, target) = (self.bench.copy.clone(), self.bench.target());
        let at = |name: &str| [copy.as_os_str(), OsStr::new(name)].join(OsStr::new(":/"));
        let word = OsStr::new;
        let cp = self.run(&[word("cp"), &at(FROM), &at(TO)])?;
        let get = self.run(&[word("get"), &at(TO), target.as_os_str()])?;
        if cp.well() && get.well() && self.expected.has_from() {
            self.expected.copied(Some(FROM), &self.bench.got()?).map_err(|why| format!("after cp: {why}"))?;
        }
        let rm = self.run(&[word("rm"), word("-r"), &at(FROM)])?;
        let find = self.run(&[word("find"), &at(""), word("--print0")])?;
        for (verb, done) in [("cp", &cp), ("get", &get), ("rm -r", &rm), ("find", &find)] {
            if clean && self.expected.has_from() && !done.well() {
                let said = String::from_utf8_lossy(&done.said).trim_end().replace('\n', " | ");
                return Err(format!("fsck and scrub find nothing, and {verb} of a copy fails: {said}"));
            }
        }
        if find.well() {
            self.expected.changed(&find.paths(), Changed { copied: cp.well(), removed: rm.well() })?;
        }
        Ok(())
    }
}

/// Judges one image.
///
/// # Errors
/// What must not be.
pub fn judge(program: &Program, case: &Case) -> Result<Ended, String> {
    let bench = Bench::new(&image(&case.harmed).to_bytes()).map_err(broken)?;
    let mut session = Session { program, bench, expected: Expected::of(case), ended: Ended::default() };
    session.all()?;
    Ok(session.ended)
}

/// A sound image: every verb must end well, or what is found of others says nothing.
///
/// # Errors
/// What must not be.
pub fn sound(program: &Program) -> Result<(), String> {
    let of = &pristine()[0];
    let case = Case { what: "sound".into(), harmed: Harmed::Plain { of, image: of.base.image.clone() } };
    match judge(program, &case)? {
        Ended { failed: 0, .. } => Ok(()),
        Ended { failed, .. } => Err(format!("{failed} verbs fail on a sound image")),
    }
}
