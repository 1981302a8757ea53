//! `weldfs run` with a mount of its own: un-hooked code finds the same files by the same names, programs are executed
//! where they lie, and what the mount leaves behind on the host: nothing. Descriptors stay the device's.

use crate::rig::{BINARY, NOBODY, fails, ok, shell_as, usable, weldfs};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs `script` with a device in memory.
fn run(options: &[&str], script: &str) -> Command {
    let mut command = weldfs(["run", "--ram", "128M"]);
    command.args(options).args(["--", "timeout", "-s", "KILL", "60", "bash", "-ec", script]).current_dir("/");
    command
}

/// A program of `tests/c`, in a folder.
fn compiled(test: &str, folder: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let program = folder.join(name);
    let built = Command::new("cc").args(["-O1", "-g", "-Wall", "-o"]).arg(&program).arg(source).args(flags).output();
    match built {
        Ok(output) if output.status.success() => return Some(program),
        Ok(output) => println!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(e) => println!("cc: {e}"),
    }
    crate::skips::skip(test, "needs a C compiler, and libc for static programs");
    None
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").expect("mounts")
}

#[test]
fn a_program_that_is_not_hooked_finds_the_same_files_by_the_same_names() {
    let test = "a_program_that_is_not_hooked_finds_the_same_files_by_the_same_names";
    let folder = tempfile::tempdir().expect("a folder");
    let Some(plain) = usable(test).then(|| compiled(test, folder.path(), "plain", &["-static"])).flatten() else {
        return;
    };
    let script = format!(
        "mkdir /weld/d; cd /weld/d; echo inside > a
        test $({plain} a b) = /weld/d       # where this shell stands, by relative names
        test $(cat b) = inside
        {plain} /weld/d/b /weld/c > /dev/null; test $(cat /weld/c) = inside
        ln -s /weld/d/b link; {plain} link e > /dev/null; cmp e a
        cp {plain} /weld/d/own; test $(./own a f) = /weld/d; cmp f a
        test \"$(stat -c '%d %i' a)\" = \"$({plain} a g > /dev/null; stat -c '%d %i' a)\"
        grep -c ' /weld ' /proc/self/mountinfo",
        plain = plain.display()
    );
    assert_eq!(ok(&mut run(&[], &script)), "1\n");
    assert!(!mounts().contains(" /weld "), "the mount is seen on the host");
    // Without one they are not there, and nothing lands anywhere else.
    let (_, said) = fails(&mut run(&["--mount", "never"], &script));
    assert!(said.contains("No such file"), "{said}");
}

#[test]
fn a_program_that_maps_files_has_all_that_a_mount_has() {
    let test = "a_program_that_maps_files_has_all_that_a_mount_has";
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = usable(test).then(|| compiled(test, folder.path(), "mapped", &[])).flatten() else { return };
    let host = ok(Command::new(&program).arg(folder.path().join("file")).current_dir(folder.path()));
    let program = program.display();
    let script = format!(
        "mkdir /weld/d; cd /weld/d; {program} file; {program} /weld/other; cmp file /weld/other; cat file | wc -c"
    );
    let said = ok(run(&[], &script).env("WELDFS_BYPASS", "mapped"));
    assert_eq!(said, format!("{host}{host}20480\n"));
    // With the library, too: the kernel maps the file, and the library's calls see what is mapped.
    assert_eq!(ok(&mut run(&["--mount", "always"], &script)), format!("{host}{host}20480\n"));
    // Without a mount there is no such mapping: the device would not see what it writes.
    let (code, said) = fails(&mut run(&["--mount", "never"], &format!("{program} /weld/file >&2")));
    let says_why = said.contains("a shared mmap that can change the file; nothing is mounted there: --mount never");
    assert_eq!((code, said.contains("mmap: No such device"), says_why), (Some(3), true, true), "{said}");
}

#[test]
fn sqlite_in_wal_mode_with_processes_that_write_and_read_at_once() {
    let test = "sqlite_in_wal_mode_with_processes_that_write_and_read_at_once";
    if !usable(test) {
        return;
    }
    if Command::new("sqlite3").arg("--version").output().is_err() {
        return crate::skips::skip(test, "needs sqlite3");
    }
    let script = r#"
cd /weld
test "$(sqlite3 db 'PRAGMA journal_mode=wal; CREATE TABLE t(who, n);')" = wal
writer() {
    for i in $(seq 1 $2); do echo ".timeout 20000"; echo "INSERT INTO t VALUES($1, $i);"; done | sqlite3 /weld/db
}
reader() {
    last=0
    for i in $(seq 1 20); do
        now=$(sqlite3 -cmd '.timeout 20000' /weld/db 'SELECT count(*) FROM t')
        test $now -ge $last; last=$now
    done
}
writer 1 200 & a=$!; writer 2 200 & b=$!; reader & c=$!
wait $a; wait $b; wait $c
sqlite3 db 'SELECT who, count(*), sum(n) FROM t GROUP BY who ORDER BY who; PRAGMA wal_checkpoint(TRUNCATE);
    PRAGMA integrity_check;'"#;
    for passed_over in ["", "sqlite3"] {
        let said = ok(run(&[], script).env("WELDFS_BYPASS", passed_over));
        assert_eq!(said, "1|200|20100\n2|200|20100\n0|0|0\nok\n", "{passed_over:?}");
    }
}

#[test]
fn programs_are_executed_as_they_lie() {
    let test = "programs_are_executed_as_they_lie";
    if !usable(test) {
        return;
    }
    // The same with a mount and without: a link that leads to the host; a script; a program.
    let both = r#"
mkdir /weld/bin; cd /weld
ln -s /bin/echo bin/link; test "$(bin/link linked)" = linked
ln -s bin/link second; test "$(exec -a name ./second twice)" = twice
printf '#!/bin/sh\necho "$0 $1"\n' > bin/script; chmod 755 bin/script
test "$(/weld/bin/script x)" = '/weld/bin/script x'
cp /bin/cat bin/own; test "$(echo through | bin/own)" = through
chmod 644 bin/own; ! bin/own < /dev/null 2> /dev/null
! /weld/nothing 2> /dev/null
echo well"#;
    assert_eq!(ok(&mut run(&["--mount", "never"], both)), "well\n");
    assert_eq!(ok(&mut run(&["--mount", "always"], both)), "well\n");
    let mounted = r#"
cp /bin/readlink /weld/own; cd /weld
test "$(./own /proc/self/exe)" = /weld/own
cp /bin/bash sh; printf '#!/weld/sh\necho "$0 in $BASH"\n' > script; chmod 755 script
test "$(./script)" = './script in /weld/sh'
python3 - <<'END'
import ctypes, shutil
ctypes.CDLL("libm.so.6")
path = next(line.split()[-1] for line in open("/proc/self/maps") if "/libm.so" in line)
shutil.copy(path, "/weld/own.so")
print(ctypes.CDLL("/weld/own.so").cos is not None)
END
"#;
    assert_eq!(ok(&mut run(&["--mount", "always"], mounted)), "True\n");
}

#[test]
fn nothing_is_left_of_a_run_that_is_killed() {
    let test = "nothing_is_left_of_a_run_that_is_killed";
    if !usable(test) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let prefix = folder.path().join("made");
    // What is left of it keeps the mounts of others, and goes soon.
    let script = "echo x > $WELDFS_PREFIX/f; echo $WELDFS_MOUNT; exec sleep 20";
    let mut command = weldfs(["run", "--ram", "64M", "--prefix"]);
    command.arg(&prefix).args(["--", "sh", "-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut killed = command.spawn().expect("starts");
    let mut line = String::new();
    let mut said = std::io::BufReader::new(killed.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut said, &mut line).expect("reads");
    assert_eq!(line.trim_end(), prefix.to_str().expect("text"));
    assert!(prefix.exists() && fs::read_dir(&prefix).expect("lists").next().is_none(), "seen from outside: empty");
    killed.kill().expect("killed");
    killed.wait().expect("waited for");
    assert!(!mounts().contains(prefix.to_str().expect("text")));
    // The next run has it again, and the last one takes it away.
    let mut again = weldfs(["run", "--ram", "64M", "--prefix"]);
    again.arg(&prefix).args(["--", "sh", "-c", "test ! -e $WELDFS_PREFIX/f && echo $WELDFS_MOUNT"]);
    assert_eq!(ok(&mut again).trim_end(), prefix.to_str().expect("text"));
    assert!(!prefix.exists());
    // A directory of the user's own stays.
    fs::create_dir(&prefix).expect("mkdir");
    assert_eq!(ok(&mut again).trim_end(), prefix.to_str().expect("text"));
    assert!(prefix.exists());
}

#[test]
fn runs_at_one_prefix_do_not_see_each_other() {
    let test = "runs_at_one_prefix_do_not_see_each_other";
    if !usable(test) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let prefix = folder.path().join("made");
    let runs: Vec<_> = (0..6)
        .map(|n| {
            let script = format!(
                "cd $WELDFS_PREFIX; for i in $(seq 20); do echo {n} > f; test $(cat f) = {n}; done; ls $WELDFS_PREFIX"
            );
            let mut command = weldfs(["run", "--ram", "64M", "--mount", "always", "--prefix"]);
            command.arg(&prefix).args(["--", "sh", "-ec", &script]).stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            std::thread::sleep(std::time::Duration::from_millis(30 * n));
            command.spawn().expect("starts")
        })
        .collect();
    for run in runs {
        let out = run.wait_with_output().expect("ends");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && out.stdout == b"f\n", "{}: {said}", out.status);
    }
    assert!(!prefix.exists());
}

#[test]
fn where_nothing_can_be_mounted_it_is_said_or_done_without() {
    let test = "where_nothing_can_be_mounted_it_is_said_or_done_without";
    if !usable(test) {
        return;
    }
    let hidden = |options: &str| {
        let mut command = Command::new("unshare");
        let script = format!(
            "mount --bind /dev/null /dev/fuse; exec {BINARY} run --ram 64M {options} -- sh -c 'echo a > /weld/f; \
             cat /weld/f; echo $WELDFS_MOUNT'"
        );
        command.args(["-m", "sh", "-c", &script]).env("WELDFS_CONFIG", "");
        command
    };
    assert_eq!(ok(&mut hidden("")), "a\n\n");
    let (code, said) = fails(&mut hidden("--mount always"));
    assert_eq!((code, said.contains("cannot mount")), (Some(1), true), "{said}");
    // A user that may not mount.
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).expect("chmod");
    let mut other = weldfs(["run", "--ram", "64M", "--", "sh", "-c", "echo a > /weld/f; cat /weld/f"]);
    other.uid(NOBODY).gid(NOBODY).env("HOME", folder.path()).env("TMPDIR", folder.path()).current_dir("/");
    assert_eq!(ok(&mut other), "a\n");
}

#[test]
fn a_refusal_that_a_mount_would_spare_says_why_there_is_none() {
    let test = "a_refusal_that_a_mount_would_spare_says_why_there_is_none";
    if !usable(test) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "x").expect("written");
    let full = folder.path().to_str().expect("text");
    let script = r##"
cd $WELDFS_PREFIX; cp /bin/sh sh; printf "#!$WELDFS_PREFIX/sh\necho run\n" > script; chmod 755 script
if env -i $WELDFS_PREFIX/script; then exit 0; else exit 9; fi"##;
    let asked = |options: &[&str]| fails(run(options, script).env("WELDFS_REPORT", "1"));
    for (options, why) in [(["--mount", "never"], "--mount never"), (["--prefix", full], "the prefix is not empty")] {
        let (code, said) = asked(&options);
        let refusal = format!("a script whose interpreter lies under the prefix; nothing is mounted there: {why}\n");
        assert!(code == Some(9) && said.contains(&refusal), "{said}");
        assert!(said.contains(&format!("is preloaded; nothing is mounted: {why}\n")), "{said}");
    }
    assert_eq!(ok(&mut run(&["--mount", "always"], script)), "run\n");
}

#[test]
fn another_users_lock_on_the_directory_keeps_no_run_from_its_mount() {
    let test = "another_users_lock_on_the_directory_keeps_no_run_from_its_mount";
    if !usable(test) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
    let (given, made) = (folder.path().join("given"), folder.path().join("made"));
    let mounted = |prefix: &Path| {
        let mut command = weldfs(["run", "--ram", "64M", "--mount", "always", "--prefix"]);
        ok(command.arg(prefix).args(["--", "sh", "-c", "echo $WELDFS_MOUNT"]))
    };
    // One that was there before, and that any user may read.
    fs::create_dir(&given).expect("mkdir");
    let script = format!("exec flock -x {} -c 'echo held; exec sleep 60'", given.display());
    let mut stranger = shell_as(NOBODY, "", &script);
    let mut stranger = stranger.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    let mut said = std::io::BufReader::new(stranger.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut said, &mut line).expect("reads");
    assert_eq!(line, "held\n");
    assert_eq!(mounted(&given), format!("{}\n", given.display()));
    stranger.kill().expect("killed");
    stranger.wait().expect("waited for");
    assert!(given.exists());
    // One that a run has made, and that others cannot lock: whoever holds it keeps the last run from taking it away.
    let mut first = weldfs(["run", "--ram", "64M", "--mount", "always", "--prefix"]);
    first.arg(&made).args(["--", "sh", "-c", "echo up; read end"]);
    let mut first = first.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    let mut said = std::io::BufReader::new(first.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut said, &mut line).expect("reads");
    let mut stranger = shell_as(NOBODY, "", &format!("flock -n -x {} -c true", made.display()));
    let (_, why) = fails(&mut stranger);
    assert!(why.contains("Permission denied"), "{why}");
    assert_eq!(mounted(&made), format!("{}\n", made.display()));
    drop(first.stdin.take());
    first.wait().expect("waited for");
    assert!(!made.exists());
}

#[test]
fn a_directory_of_another_user_is_not_covered() {
    let test = "a_directory_of_another_user_is_not_covered";
    if !usable(test) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let prefix = folder.path().join("theirs");
    fs::create_dir(&prefix).expect("mkdir");
    std::os::unix::fs::chown(&prefix, Some(NOBODY), None).expect("chown");
    let mut always = weldfs(["run", "--ram", "64M", "--mount", "always", "--prefix"]);
    let (code, said) = fails(always.arg(&prefix).args(["--", "true"]));
    assert_eq!((code, said.contains("cannot mount") && said.contains("another user's")), (Some(1), true), "{said}");
    let mut auto = weldfs(["run", "--ram", "64M", "--prefix"]);
    let script = "echo a > $WELDFS_PREFIX/f; cat $WELDFS_PREFIX/f; echo $WELDFS_MOUNT";
    assert_eq!(ok(auto.arg(&prefix).args(["--", "sh", "-c", script])), "a\n\n");
}

#[test]
fn no_write_beside_a_mapping_that_begins_and_ends_is_lost() {
    let test = "no_write_beside_a_mapping_that_begins_and_ends_is_lost";
    if !usable(test) {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/scripts/beside.py");
    // As they are, and such that each write to the mount takes as long as several steps of the one that maps.
    for lingering in [None, Some("400")] {
        let mut command = run(&[], &format!("exec python3 -B {script} /weld 10"));
        lingering.map(|microseconds| command.env("WELDFS_WRITES_LINGER", microseconds));
        assert_eq!(ok(&mut command), "none is lost\n", "{lingering:?}");
    }
}

#[test]
fn what_a_mapping_wrote_is_there_after_the_run() {
    let test = "what_a_mapping_wrote_is_there_after_the_run";
    if !usable(test) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = "
import mmap, os
fd = os.open('/weld/f', os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 1 << 20)
m = mmap.mmap(fd, 0); m[:6] = b'mapped'; m[-1:] = b'!'
os._exit(0)";
    for passed_over in ["", "python3"] {
        let image = folder.path().join(format!("image-{passed_over}"));
        ok(weldfs(["mkfs", "--size", "64M"]).arg(&image));
        let mut command = weldfs(["run", "--image"]);
        ok(command.arg(&image).args(["--", "python3", "-c", script]).env("WELDFS_BYPASS", passed_over));
        let out = weldfs(["cat"]).arg(format!("{}:/f", image.display())).output().expect("runs");
        let whole = out.stdout.starts_with(b"mapped\0") && out.stdout.ends_with(b"\0!");
        assert!(whole && out.stdout.len() == 1 << 20, "{passed_over:?}");
        ok(weldfs(["fsck", "-n"]).arg(&image));
    }
}

#[test]
fn what_a_run_leaves_behind_is_told_and_writes_nothing_to_the_host() {
    let test = "what_a_run_leaves_behind_is_told_and_writes_nothing_to_the_host";
    let folder = tempfile::tempdir().expect("a folder");
    let Some(plain) = usable(test).then(|| compiled(test, folder.path(), "plain", &["-static"])).flatten() else {
        return;
    };
    let prefix = folder.path().join("made");
    let (from, said) = (folder.path().join("from"), folder.path().join("said"));
    fs::write(&from, "x").expect("written");
    let script = format!(
        "(cd $WELDFS_PREFIX; echo > there; while [ -e there ]; do sleep 0.05; done
          {} {} landed 2> {}) > /dev/null 2>&1 &
         until [ -e $WELDFS_PREFIX/there ]; do sleep 0.01; done",
        plain.display(),
        from.display(),
        said.display()
    );
    let mut command = weldfs(["run", "--ram", "64M", "--mount", "always", "--prefix"]);
    ok(command.arg(&prefix).args(["--", "sh", "-c", &script]));
    crate::rig::until("the end of what was left behind", || {
        fs::read_to_string(&said).is_ok_and(|said| said.contains("not connected"))
    });
    // The directory that the run has made stays while it was in use, with nothing in it; the next run takes it away.
    assert_eq!(fs::read_dir(&prefix).map_or(0, Iterator::count), 0, "it landed on the host");
    let mut next = weldfs(["run", "--ram", "64M", "--mount", "always", "--prefix"]);
    ok(next.arg(&prefix).args(["--", "true"]));
    crate::rig::until("the directory's end", || {
        let _ = weldfs(["run", "--ram", "64M", "--prefix"]).arg(&prefix).args(["--", "true"]).status();
        !prefix.exists()
    });
}

#[test]
fn what_lies_on_the_host_is_not_covered_and_a_run_in_a_run_has_its_own_files() {
    let test = "what_lies_on_the_host_is_not_covered_and_a_run_in_a_run_has_its_own_files";
    if !usable(test) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let full = folder.path().join("full");
    fs::create_dir(&full).expect("mkdir");
    fs::write(full.join("file"), "x").expect("written");
    for (prefix, why) in [(full.as_path(), "not empty"), (Path::new("/proc"), "not empty"), (&std::env::temp_dir(), "")]
    {
        let mut command = weldfs(["run", "--ram", "64M", "--mount", "always", "--prefix"]);
        let (code, said) = fails(command.arg(prefix).args(["--", "true"]));
        assert_eq!((code, said.contains(why) && said.contains("cannot mount")), (Some(1), true), "{said}");
    }
    let link = folder.path().join("link");
    fs::create_dir(folder.path().join("aim")).expect("mkdir");
    std::os::unix::fs::symlink("aim", &link).expect("symlink");
    let mut linked = weldfs(["run", "--ram", "64M", "--mount", "always", "--prefix"]);
    assert_eq!(linked.arg(&link).args(["--", "sh", "-c", "exit 3"]).status().expect("runs").code(), Some(3));
    let image = folder.path().join("a.img");
    ok(weldfs(["mkfs", "--size", "64M"]).arg(&image));
    let inner = format!(
        "echo outer > /weld/f; {BINARY} run --image {} -- sh -c 'echo inner > /weld/f; cat /weld/f'; cat /weld/f",
        image.display()
    );
    assert_eq!(ok(&mut run(&["--mount", "always"], &inner)), "inner\nouter\n");
    assert_eq!(ok(weldfs(["cat"]).arg(format!("{}:/f", image.display()))), "inner\n");
}
