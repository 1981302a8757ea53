//! The judge of the program finds what no program may do: programs that do it.

use crate::images::MEMORY;
use crate::images::expected::{Expected, FROM, TO};
use crate::images::harm::{Case, Harmed, KINDS, MARK, kind};
use crate::images::names::Names;
use crate::images::pristine::pristine;
use crate::images::verbs::{Ended, Program, every, judge, sound};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use weldfs_ciscops::dirent::dtype;
use weldfs_fuzz_targets::cursor::Cursor;
use weldfs_fuzz_targets::media::draft;

#[test]
fn images_of_every_kind_go_through_the_program() {
    let all: BTreeSet<&str> = KINDS.iter().copied().collect();
    for count in [10_000, 500, 3000, 50, KINDS.len() as u64] {
        let kinds: BTreeSet<&str> = (0..count).step_by(every(count) as usize).map(kind).collect();
        assert_eq!(kinds, all, "of {count}");
    }
    assert!((1..3 * KINDS.len() as u64).all(|count| every(count) == 1));
    assert_eq!((every(10_000), every(1_000_000)), (97, 97));
    assert!((0..500).step_by(every(500) as usize).count() < 25, "the gate has no time for more");
}

/// For what ends by itself.
const LONG: Duration = Duration::from_secs(60);

/// A shell script in the place of the program.
struct Fake(tempfile::TempDir);

impl Fake {
    /// What it does is written by another process: a file that this one has open for writing in one thread could not
    /// be run by the next.
    fn new(script: &str) -> Fake {
        let fake = Fake(tempfile::tempdir().unwrap());
        let mut command = Command::new("sh");
        command.args(["-c", "cat > \"$0\" && chmod +x \"$0\""]).arg(fake.path()).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let here = fake.0.path().display();
        write!(child.stdin.take().unwrap(), "#!/bin/sh\nhere={here}\n{script}\n").unwrap();
        assert!(child.wait().unwrap().success());
        fake
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("program")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self) -> Program {
        Program::new(&self.path()).unwrap()
    }

    /// One verb.
    fn verb(&self, verb: &str, hang: Duration) -> Result<(), String> {
        self.program().with_hang(hang).verb(self.0.path(), &[verb.as_ref()]).map(drop)
    }
}

#[test]
fn a_verb_that_hangs_panics_dies_or_says_nothing_is_found() {
    let found = |script: &str, said: &str| {
        let hang = if script.contains("sleep") { Duration::from_millis(300) } else { LONG };
        let why = Fake::new(script).verb("ls", hang).unwrap_err();
        assert!(why.contains(said), "{script}: {why}");
    };
    assert_eq!(Fake::new("echo said; exit 1").verb("ls", LONG), Ok(()));
    assert_eq!(Fake::new("echo said; exit 8").verb("fsck", LONG), Ok(()));
    found("exec sleep 20", "nothing after");
    found("exit 101", "a panic");
    found("echo \"thread 'x' panicked at y\" >&2; exit 0", "a panic: thread 'x'");
    found("kill -ABRT $$", "signal: 6");
    found("exit 1", "fails without a word");
    found("echo said; exit 2", "exit code 2: ");
    found("exec yes", "prints 16777216 bytes and more");
}

#[test]
fn verbs_run_with_as_little_memory_as_the_processes_that_look_at_images() {
    let script = format!("test $(ulimit -d) = {} || kill -ABRT $$; echo said", MEMORY >> 10);
    assert_eq!(Fake::new(&script).verb("ls", LONG), Ok(()));
}

/// Answers from files beside it.
const ANSWERS: &str = r#"
case "$1 $2" in
"ls -R") cat "$here/recursive";;
ls*) cat "$here/root";;
find*copy:/) cat "$here/changed";;
find*) cat "$here/find";;
du*) cat "$here/du";;
get*copy:*) cp -R "$here/made" "$3";;
get*) cp -R "$here/tree" "$3";;
esac
test -e "$here/also" && . "$here/also"
exit 0
"#;

fn text(path: &[u8]) -> String {
    String::from_utf8(path.to_vec()).unwrap()
}

/// A folder of the host that holds these names.
fn folder(at: &Path, names: &Names) {
    std::fs::create_dir(at).unwrap();
    for (path, item) in names {
        let to = at.join(text(path));
        let content = item.content.clone().unwrap_or_default();
        match item.dtype {
            dtype::DIR => std::fs::create_dir(to).unwrap(),
            // What no one knows the target of leads somewhere.
            dtype::LNK if content.is_empty() => std::os::unix::fs::symlink("target", to).unwrap(),
            dtype::LNK => std::os::unix::fs::symlink(OsStr::from_bytes(&content), to).unwrap(),
            _ => std::fs::write(to, content).unwrap(),
        }
    }
}

/// A program that answers as one must of whom this is expected.
fn truthful(expected: &Expected) -> Fake {
    let (fake, tree) = (Fake::new(ANSWERS), &expected.trees[0]);
    let write = |name: &str, text: String| std::fs::write(fake.file(name), text).unwrap();
    let all = || tree.iter().map(|(path, item)| (text(path), item));
    let find = |paths: &mut dyn Iterator<Item = String>| paths.map(|path| format!("/{path}\0")).collect::<String>();
    let mut dirs: Vec<String> = all().filter(|(_, item)| item.dtype == dtype::DIR).map(|(path, _)| path).collect();
    dirs.push(String::new());
    let section = |dir: &String| {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let names = all().filter_map(|(path, _)| path.strip_prefix(&prefix).map(str::to_owned));
        names.filter(|name| !name.contains('/')).map(|name| format!("{name}\n")).collect::<String>()
    };
    write("root", section(&String::new()));
    write("recursive", dirs.iter().map(|dir| format!("/{dir}:\n{}\n", section(dir))).collect());
    write("find", find(&mut all().map(|(path, _)| path)));
    // (`a/b/hard` is another name of a file that has been named.)
    let mut seen = BTreeSet::new();
    let once = all().filter(|(_, item)| item.dtype == dtype::DIR || seen.insert(item.ino));
    write("du", once.map(|(path, _)| format!("4.0K\t/{path}\n")).chain(["4.0K\t/\n".to_owned()]).collect());
    let below = format!("{FROM}/");
    let made = |path: &str| path.strip_prefix(&below).map(|rest| format!("{TO}/{rest}"));
    let stay = all().map(|(path, _)| path).filter(|path| path != FROM).map(|path| made(&path).unwrap_or(path));
    write("changed", find(&mut stay.chain([TO.to_owned()])));
    folder(&fake.file("tree"), tree);
    let part = tree.iter().filter_map(|(path, item)| {
        let rest = path.strip_prefix(below.as_bytes())?;
        Some((rest.to_vec(), item.clone()))
    });
    folder(&fake.file("made"), &part.collect());
    fake
}

fn plain() -> Case {
    let of = &pristine()[2];
    Case { what: "sound".into(), harmed: Harmed::Plain { of, image: of.base.image.clone() } }
}

fn sealed() -> Case {
    let input = vec![2, 0];
    let (of, image, _) = draft(&mut Cursor(&input));
    Case { what: "as it was".into(), harmed: Harmed::Sealed { of, image, input, marked: false } }
}

/// Without the first line, or what ends in a zero byte, that has this.
fn without(file: &Path, part: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    let end = if text.contains('\0') { '\0' } else { '\n' };
    let mut gone = false;
    let keep = text.split_inclusive(end).filter(|line| {
        let this = !gone && line.contains(part);
        gone |= this;
        !this
    });
    std::fs::write(file, keep.collect::<String>()).unwrap();
    assert!(gone, "{part} in {}", file.display());
}

/// What the judge says of a program that differs in one thing from a truthful one.
fn said(case: &Case, change: &dyn Fn(&Fake)) -> String {
    let fake = truthful(&Expected::of(case));
    change(&fake);
    judge(&fake.program(), case).map_or_else(|why| why, |ended| format!("{ended:?}"))
}

#[test]
fn a_program_that_tells_the_truth_is_believed() {
    for case in [plain(), sealed()] {
        assert_eq!(said(&case, &|_| ()), format!("{:?}", Ended { well: 13, failed: 0 }));
    }
    // All verbs must end well on a sound image, or nothing is said of any other.
    let fake = Fake::new("echo no; exit 1");
    assert!(sound(&fake.program()).unwrap_err().contains("exit code 1"), "fsck has no such code");
    let fake = Fake::new("case $1 in fsck|scrub) echo no; exit 8;; *) echo no; exit 1;; esac");
    assert_eq!(sound(&fake.program()), Err("13 verbs fail on a sound image".to_owned()));
}

#[test]
fn a_name_that_a_verb_leaves_out_with_success_is_found() {
    for case in [plain(), sealed()] {
        let found = |file: &str, part: &str, why: &str| {
            let said = said(&case, &|fake| without(&fake.file(file), part));
            assert!(said.contains(why), "{file} without {part}: {said}");
        };
        found("root", "big", "ls ends well without /big");
        found("recursive", "block", "ls -R ends well without `block`");
        found("recursive", "/a/b:", "ls -R ends well without `/a/b:`");
        found("find", "/a/block", "find ends well without /a/block");
        found("du", "/a/b\n", "du ends well without /a/b");
        found("du", "/big", "du ends well without /big");
        found("changed", "/big", "find after cp and rm ends well without /big");
        found("changed", &format!("/{TO}/block"), &format!("ends well without /{TO}/block"));
        let lost = |folder: &str| said(&case, &|fake| std::fs::remove_file(fake.file(folder).join("block")).unwrap());
        assert!(lost("tree/a").contains("get ends well without /a/block"), "{}", lost("tree/a"));
        assert!(lost("made").contains("after cp: get ends well without /block"), "{}", lost("made"));
    }
}

#[test]
fn a_name_or_content_that_there_is_not_is_found() {
    let add = |file: PathBuf, text: &str| {
        std::fs::OpenOptions::new().append(true).open(file).unwrap().write_all(text.as_bytes()).unwrap();
    };
    let found = |case: &Case, change: &dyn Fn(&Fake), why: &str| {
        let said = said(case, change);
        assert!(said.contains(why), "{why}: {said}");
    };
    let case = plain();
    found(&case, &|f| add(f.file("root"), "new\n"), "ls ends well with /new, which there is not");
    found(&case, &|f| add(f.file("recursive"), "new\n"), "ls -R ends well with names that there are not");
    found(&case, &|f| add(f.file("find"), "/new\0"), "find ends well with /new");
    found(&case, &|f| add(f.file("du"), "1\t/new\n"), "du ends well with /new");
    found(&case, &|f| add(f.file("changed"), "/new\0"), "find after cp and rm ends well with /new");
    found(&case, &|f| std::fs::write(f.file("tree/new"), "").unwrap(), "get ends well with /new");
    found(&case, &|f| add(f.file("tree/big"), "more"), "get ends well with another /big");
    for case in [plain(), sealed()] {
        found(&case, &|f| add(f.file("changed"), &format!("/{FROM}\0")), "with /a, which was removed");
        found(&case, &|f| std::fs::write(f.file("tree/big"), MARK).unwrap(), "bytes that no write made, to big");
        let both = |f: &Fake| add(f.file("find"), "/forged\0");
        found(&case, &both, if matches!(case.harmed, Harmed::Plain { .. }) { "/forged" } else { "that ls -R has not" });
    }
    let case = sealed();
    let found_only = |f: &Fake| {
        add(f.file("find"), "/forged\0");
        add(f.file("recursive"), "forged\n");
    };
    found(&case, &found_only, "find has names that get has not copied");
}

#[test]
fn what_a_verb_writes_or_removes_beside_its_target_is_found() {
    for case in [plain(), sealed()] {
        for (also, why) in [
            ("test $1 = get && echo x > ../escaped", "what only reads made, changed or removed deep/er/escaped"),
            ("test $1 = get && rm -f ../../beside", "what only reads made, changed or removed deep/beside"),
            ("test $1 = ls && echo x >> ../../../image", "what only reads made, changed or removed image"),
            ("test $1 = scrub && echo x >> ../../../copy", "what only reads made, changed or removed copy"),
            ("test $1 = rm && rm -f ../../../image", "cp, rm or get made, changed or removed image"),
        ] {
            let said = said(&case, &|fake| std::fs::write(fake.file("also"), format!("{also}\n")).unwrap());
            assert_eq!(said, why);
        }
    }
}

#[test]
fn a_verb_that_fails_where_nothing_is_found_is_found() {
    for case in [plain(), sealed()] {
        for verb in ["ls", "find", "du", "get"] {
            let also = format!("test $1 = {verb} && {{ echo no >&2; exit 1; }}\n");
            let said = said(&case, &|fake| std::fs::write(fake.file("also"), &also).unwrap());
            assert_eq!(said, format!("fsck and scrub find nothing, and {verb} fails: no"));
        }
        for (verb, name) in [("cp", "cp"), ("rm", "rm -r")] {
            let also = format!("test $1 = {verb} && {{ echo no >&2; exit 1; }}\n");
            let said = said(&case, &|fake| std::fs::write(fake.file("also"), &also).unwrap());
            assert_eq!(said, format!("fsck and scrub find nothing, and {name} of a copy fails: no"));
        }
    }
}
