//! The `weldfs` command end to end: images are made, filled, served, checked and refused as the manual says, with the
//! exit codes it says, on both media.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench { dir: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `a.img:/path`, absolute.
    pub(crate) fn inside(&self, image: &str, path: &str) -> String {
        format!("{}:{path}", self.path(image).display())
    }

    pub(crate) fn image(&self, name: &str, medium: &str) -> PathBuf {
        let path = self.path(name);
        ok([OsStr::new("mkfs"), path.as_ref(), "--size=48M".as_ref(), "--medium".as_ref(), medium.as_ref()]);
        path
    }
}

pub(crate) fn weldfs<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(args: I) -> Output {
    // Tests of an image in use do not wait for it for long.
    let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    command.args(args).env("WELDFS_WAIT", "5").output().expect("the command runs")
}

pub(crate) fn ok<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(args: I) -> String {
    let out = weldfs(args);
    assert!(out.status.success(), "{}: {}", out.status, String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

/// The exit code and the one sentence of a failure.
pub(crate) fn fails<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(args: I) -> (i32, String) {
    let out = weldfs(args);
    let text = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    assert!(!out.status.success(), "must fail");
    assert!(!text.contains("panicked") && !text.is_empty(), "{text}");
    (out.status.code().expect("an exit code"), text)
}

pub(crate) fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

pub(crate) struct Served {
    child: Child,
}

impl Served {
    pub(crate) fn start(image: &Path) -> Served {
        Served::of(image, &[], Stdio::null())
    }

    /// With its log in a file.
    pub(crate) fn logging(image: &Path, log: &Path) -> Served {
        Served::of(image, &[], fs::File::create(log).expect("a log").into())
    }

    fn of(image: &Path, arguments: &[&str], log: Stdio) -> Served {
        let child = Command::new(env!("CARGO_BIN_EXE_weldfs"))
            .arg("serve")
            .args(arguments)
            .arg(image)
            .stderr(log)
            .spawn()
            .expect("the device starts");
        let mut socket = image.as_os_str().to_owned();
        socket.push(".sock");
        let start = Instant::now();
        while weldfs::Client::connect(&socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "the device answers");
            std::thread::sleep(Duration::from_millis(5));
        }
        Served { child }
    }

    /// The device's process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn term(mut self) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signal");
        assert!(self.child.wait().expect("the device ends").success());
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("signal");
        self.child.wait().expect("the device ends");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn tree(root: &Path) {
    fs::create_dir_all(root.join("sub/deep")).expect("mkdir");
    fs::write(root.join("empty"), b"").expect("write");
    fs::write(root.join("sub/small"), b"some text\n").expect("write");
    let big: Vec<u8> = (0..3_300_000u32).map(|i| (i % 249) as u8).collect();
    fs::write(root.join("sub/deep/big"), big).expect("write");
    fs::write(root.join("run.sh"), b"#!/bin/sh\n").expect("write");
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o750)).expect("chmod");
    symlink("sub/small", root.join("link")).expect("symlink");
    symlink("nowhere", root.join("dangling")).expect("symlink");
}

fn same(a: &Path, b: &Path) {
    let names = |dir: &Path| {
        let mut all: Vec<_> = fs::read_dir(dir).expect("list").map(|e| e.expect("entry").file_name()).collect();
        all.sort();
        all
    };
    assert_eq!(names(a), names(b));
    for name in names(a) {
        let (a, b) = (a.join(&name), b.join(&name));
        let meta = fs::symlink_metadata(&a).expect("stat");
        assert_eq!(meta.permissions(), fs::symlink_metadata(&b).expect("stat").permissions(), "{}", a.display());
        if meta.is_dir() {
            same(&a, &b);
        } else if meta.is_symlink() {
            assert_eq!(fs::read_link(&a).expect("link"), fs::read_link(&b).expect("link"));
        } else {
            assert!(fs::read(&a).expect("read") == fs::read(&b).expect("read"), "{}", a.display());
        }
    }
}

fn trees_survive(medium: &str) {
    let bench = Bench::new();
    let image = bench.image("a.img", medium);
    let source = bench.path("tree");
    tree(&source);
    let facts = json(&ok([OsStr::new("put"), source.as_ref(), bench.inside("a.img", "/").as_ref(), "--json".as_ref()]));
    assert_eq!((&facts["files"], &facts["directories"], &facts["symlinks"]), (&4.into(), &3.into(), &2.into()));
    ok(["get", &bench.inside("a.img", "/tree"), bench.path("back").to_str().expect("text")]);
    same(&source, &bench.path("back"));
    ok(["cp", &bench.inside("a.img", "/tree"), &bench.inside("a.img", "/copy")]);
    ok(["rm", "-r", &bench.inside("a.img", "/tree")]);
    ok(["mv", &bench.inside("a.img", "/copy"), &bench.inside("a.img", "/again")]);
    ok(["mkdir", "-p", &bench.inside("a.img", "/x/y/z")]);
    assert_eq!(ok(["ls", &bench.inside("a.img", "/")]), "again\nx\n");
    assert_eq!(ok(["cat", &bench.inside("a.img", "/again/link")]), "some text\n");
    let stat = json(&ok(["stat", "--json", &bench.inside("a.img", "/again/run.sh")]));
    assert_eq!((&stat[0]["mode"], &stat[0]["size_bytes"]), (&"0750".into(), &10.into()));
    let report = json(&ok([OsStr::new("fsck"), "--data".as_ref(), "--json".as_ref(), image.as_ref()]));
    assert_eq!((&report["clean"], &report["medium"]), (&true.into(), &medium.into()));
    assert!(report["verified_blocks"].as_u64() > Some(800));
    ok(["get", &bench.inside("a.img", "/again"), bench.path("last").to_str().expect("text")]);
    same(&source, &bench.path("last"));
}

#[test]
fn trees_go_in_and_come_out_unchanged_on_block() {
    trees_survive("block");
}

#[test]
fn trees_go_in_and_come_out_unchanged_on_pmem() {
    trees_survive("pmem");
}

#[test]
fn a_served_image_is_reached_through_its_device_and_by_nobody_else() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let served = Served::start(&image);
    let mut file = fs::File::create(bench.path("f")).expect("create");
    file.write_all(b"through the socket").expect("write");
    ok(["put", bench.path("f").to_str().expect("text"), &bench.inside("a.img", "/")]);
    assert_eq!(ok(["cat", &bench.inside("a.img.sock", "/f")]), "through the socket");
    let info = json(&ok([OsStr::new("info"), "--json".as_ref(), image.as_ref()]));
    assert_eq!((&info["served"], &info["medium"]), (&true.into(), &"pmem".into()));
    let (code, why) = fails([OsStr::new("serve"), image.as_ref()]);
    assert!(code == 1 && (why.contains("in use") || why.contains("served")), "{code}: {why}");
    let other = bench.path("other.sock");
    let (code, _) = fails([OsStr::new("serve"), image.as_ref(), "--socket".as_ref(), other.as_ref()]);
    assert_eq!(code, 1);
    assert_eq!(fails([OsStr::new("fsck"), image.as_ref()]).0, 8);
    assert_eq!(fails([OsStr::new("mkfs"), "--size=48M".as_ref(), "--force".as_ref(), image.as_ref()]).0, 1);
    served.term();
    assert_eq!(ok(["cat", &bench.inside("a.img", "/f")]), "through the socket");
}

#[test]
fn a_killed_device_leaves_an_image_that_fsck_recovers() {
    let bench = Bench::new();
    for medium in ["block", "pmem"] {
        let name = format!("{medium}.img");
        let image = bench.image(&name, medium);
        let served = Served::start(&image);
        fs::write(bench.path("f"), b"durable").expect("write");
        ok(["put", bench.path("f").to_str().expect("text"), &bench.inside(&name, "/")]);
        served.kill();
        let info = json(&ok([OsStr::new("info"), "--json".as_ref(), image.as_ref()]));
        assert_eq!((&info["served"], &info["clean"]), (&false.into(), &false.into()));
        let before = fs::read(&image).expect("read");
        let report = json(&ok([OsStr::new("fsck"), "-n".as_ref(), "--json".as_ref(), image.as_ref()]));
        assert_eq!((&report["clean"], &report["recovered"]), (&true.into(), &false.into()));
        assert!(report["recovery"]["records"].as_u64() > Some(0));
        assert!(fs::read(&image).expect("read") == before, "-n changes nothing");
        let out = weldfs([OsStr::new("fsck"), "-y".as_ref(), "--json".as_ref(), image.as_ref()]);
        assert_eq!(out.status.code(), Some(1), "{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(json(&String::from_utf8_lossy(&out.stdout))["recovered"], true);
        assert_eq!(json(&ok([OsStr::new("fsck"), "--json".as_ref(), image.as_ref()]))["recovery"]["clean"], true);
        assert_eq!(ok(["cat", &bench.inside(&name, "/f")]), "durable");
    }
}

#[test]
fn what_is_no_image_is_refused_in_one_sentence_and_left_alone() {
    let bench = Bench::new();
    let good = fs::read(bench.image("good.img", "pmem")).expect("read");
    let mut damaged = good.clone();
    [0, 8 * 4096, good.len() - 4096].iter().for_each(|at| damaged[at + 100] ^= 0xff);
    let mut newer = good.clone();
    newer[..4096].fill(0);
    let cases: [(&str, Vec<u8>); 4] = [
        ("foreign", vec![0x5a; 8 << 20]),
        ("tiny", vec![1; 100]),
        ("truncated", good[..good.len() / 2].to_vec()),
        ("damaged", damaged),
    ];
    for (name, bytes) in cases {
        let path = bench.path(name);
        fs::write(&path, &bytes).expect("write");
        for verb in ["info", "fsck", "serve"] {
            let (code, why) = fails([OsStr::new(verb), path.as_ref()]);
            assert!(code == if verb == "fsck" { 8 } else { 1 }, "{verb} {name}: {code}: {why}");
            assert!(why.contains(name) && why.lines().count() == 1, "{verb} {name}: {why}");
        }
        assert_eq!(fails(["ls", &bench.inside(name, "/")]).0, 1);
        assert!(fs::read(&path).expect("read") == bytes, "{name} is untouched");
    }
    // One good copy of three is enough.
    fs::write(bench.path("newer"), &newer).expect("write");
    ok([OsStr::new("info"), bench.path("newer").as_ref()]);
}

#[test]
fn wrong_command_lines_and_missing_names_have_their_exit_codes() {
    let bench = Bench::new();
    bench.image("a.img", "pmem");
    assert_eq!(fails(["cat", "no-colon"]).0, 2);
    assert_eq!(fails(["frobnicate"]).0, 2);
    assert_eq!(fails(["mkfs", "x.img", "--size", "lots"]).0, 2);
    assert_eq!(fails(["cp", "/etc/hostname", "/tmp"]).0, 2);
    assert_eq!(fails(["serve"]).0, 2);
    let (code, why) = fails(["cat", &bench.inside("a.img", "/none")]);
    assert!(code == 1 && why.contains("/none") && why.contains("No such file"), "{why}");
    assert_eq!(fails(["cat", &bench.inside("none.img", "/f")]).0, 1);
    assert_eq!(fails(["rm", &bench.inside("a.img", "/none")]).0, 1);
    ok(["rm", "-f", &bench.inside("a.img", "/none")]);
    let path = bench.path("a.img");
    let (code, why) = fails([OsStr::new("mkfs"), path.as_ref(), "--size=48M".as_ref()]);
    assert!(code == 1 && why.contains("exists"), "{why}");
    ok([OsStr::new("mkfs"), path.as_ref(), "--size=48M".as_ref(), "--force".as_ref(), "--label=again".as_ref()]);
    assert_eq!(json(&ok([OsStr::new("info"), "--json".as_ref(), path.as_ref()]))["label"], "again");
}

#[test]
fn a_device_of_memory_lives_as_long_as_it_is_served() {
    let bench = Bench::new();
    let socket = bench.path("ram.sock");
    let child = Command::new(env!("CARGO_BIN_EXE_weldfs"))
        .args(["serve", "--ram", "64M", "--durability", "volatile", "--cores", "2", "--socket"])
        .arg(&socket)
        .stderr(Stdio::null())
        .spawn()
        .expect("the device starts");
    let served = Served { child };
    let start = Instant::now();
    while weldfs::Client::connect(&socket).is_err() {
        assert!(start.elapsed() < Duration::from_secs(30), "the device answers");
        std::thread::sleep(Duration::from_millis(5));
    }
    ok(["mkdir", &bench.inside("ram.sock", "/d")]);
    assert_eq!(ok(["ls", &bench.inside("ram.sock", "/")]), "d\n");
    served.term();
    assert_eq!(fails(["ls", &bench.inside("ram.sock", "/")]).0, 1);
}

/// Processors that a thread of this name of a process may use, as the kernel prints them.
fn processors_of(pid: u32, name: &str) -> Option<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    let of = |task: PathBuf| {
        let status = fs::read_to_string(task.join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(|v| v.trim().to_owned());
        (field("Name:")? == name).then(|| field("Cpus_allowed_list:")).flatten()
    };
    tasks.filter_map(Result::ok).find_map(|task| of(task.path()))
}

#[test]
fn two_cores_of_a_served_device_have_no_processor_in_common_and_one_core_has_all() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let comm = fs::read_to_string("/proc/self/comm").expect("a name");
    let all = processors_of(std::process::id(), comm.trim()).expect("this process");
    let many = rustix::thread::sched_getaffinity(None).expect("known").count() > 1;
    for cores in ["1", "2"] {
        let served = Served::of(&image, &["--cores", cores], Stdio::null());
        let of = |core: u32| processors_of(served.child.id(), &format!("weld-dev-{core}"));
        let start = Instant::now();
        let right = || match cores {
            "2" if many => of(0).is_some() && of(1).is_some() && of(0) != of(1) && of(0) != Some(all.clone()),
            "2" => of(0) == Some(all.clone()) && of(1) == of(0),
            _ => of(0) == Some(all.clone()) && of(1).is_none(),
        };
        while !right() {
            assert!(start.elapsed() < Duration::from_secs(30), "{cores}: {:?} and {:?} of {all}", of(0), of(1));
            std::thread::sleep(Duration::from_millis(5));
        }
        served.term();
    }
}

fn pattern(len: u32) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn a_copy_onto_itself_by_whatever_name_is_refused_and_leaves_it_whole() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let content = pattern(3 << 20);
    fs::create_dir_all(bench.path("d/sub")).expect("mkdir");
    fs::write(bench.path("d/sub/f"), &content).expect("write");
    ok(["put", bench.path("d").to_str().expect("text"), &bench.inside("a.img", "/")]);
    let served = Served::start(&image);
    let client = weldfs::Client::connect(bench.path("a.img.sock")).expect("attaches");
    client.hard_link("/d/sub/f", "/hard").expect("links");
    client.symlink("d/sub/f", "/soft").expect("links");
    client.symlink("/d", "/dlink").expect("links");
    drop(client);
    served.term();
    let cases = [
        ("/hard", "/d/sub/f"),
        ("/d/sub/f", "/soft"),
        ("/d/sub/f", "/d/sub"),
        ("/d/sub/f", "/d/sub/../sub/f"),
        ("/d/sub/f", "/dlink/sub"),
        ("/d", "/d/sub"),
        ("/d", "/d/sub/new"),
        ("/d", "/dlink/sub"),
        ("/dlink", "/d/"),
        ("/d/sub/..", "/d/new"),
        ("/d", "/"),
        ("/", "/d"),
    ];
    let before = ok(["ls", "-R", &bench.inside("a.img", "/")]);
    for (from, to) in cases {
        let (code, why) = fails(["cp", &bench.inside("a.img", from), &bench.inside("a.img", to)]);
        assert!(code == 1 && why.lines().count() == 1 && why.contains("itself"), "{from} {to}: {code}: {why}");
    }
    assert_eq!(ok(["ls", "-R", &bench.inside("a.img", "/")]), before);
    ok(["get", &bench.inside("a.img", "/d/sub/f"), bench.path("back").to_str().expect("text")]);
    assert!(fs::read(bench.path("back")).expect("read") == content, "the file is whole");
    // Two names for one device.
    let served = Served::start(&image);
    assert_eq!(fails(["cp", &bench.inside("a.img", "/hard"), &bench.inside("a.img.sock", "/d/sub/f")]).0, 1);
    served.term();
    // What only looks alike is copied.
    ok(["cp", &bench.inside("a.img", "/d"), &bench.inside("a.img", "/d/../d2")]);
    ok(["cp", "-P", &bench.inside("a.img", "/dlink"), &bench.inside("a.img", "/d/")]);
    ok([OsStr::new("fsck"), "--data".as_ref(), image.as_ref()]);
}

#[test]
fn an_impossible_size_leaves_an_existing_image_alone() {
    let bench = Bench::new();
    for medium in ["block", "pmem"] {
        let name = format!("{medium}.img");
        let image = bench.image(&name, medium);
        let before = fs::read(&image).expect("read");
        for size in ["--size=1M", "--size=900T", "--size=7000000T"] {
            let make = [OsStr::new("mkfs"), "--force".as_ref(), size.as_ref(), "--medium".as_ref(), medium.as_ref()];
            let (code, why) = fails(make.into_iter().chain([image.as_ref()]));
            assert!(code == 1 && why.lines().count() == 1 && why.contains(&name), "{size}: {code}: {why}");
            assert!(fs::read(&image).expect("read") == before, "{size}: untouched");
            let fresh = bench.path("fresh.img");
            assert_eq!(fails(make.into_iter().chain([fresh.as_ref()])).0, 1);
            assert!(!fresh.exists(), "nothing is left of it");
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_does_not_keep_the_others_back() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let content = pattern(64 << 10);
    fs::create_dir(bench.path("t")).expect("mkdir");
    fs::write(bench.path("t/a"), &content).expect("write");
    fs::write(bench.path("t/b"), b"whole").expect("write");
    ok(["put", bench.path("t").to_str().expect("text"), &bench.inside("a.img", "/")]);
    let mut bytes = fs::read(&image).expect("read");
    let hits: Vec<_> = (0..bytes.len() / 4096).filter(|i| bytes[i * 4096..][..4096] == content[..4096]).collect();
    assert!(!hits.is_empty(), "the file is in the image");
    hits.iter().for_each(|i| bytes[i * 4096 + 7] ^= 0xff);
    fs::write(&image, &bytes).expect("write");
    let (code, why) = fails(["get", &bench.inside("a.img", "/t"), bench.path("back").to_str().expect("text")]);
    assert!(code == 1 && why.lines().any(|l| l.starts_with("weldfs: cannot read") && l.contains("/t/a")), "{why}");
    assert_eq!(fs::read(bench.path("back/b")).expect("read"), b"whole");
    let out = weldfs(["cp", "--json", &bench.inside("a.img", "/t"), &bench.inside("a.img", "/u")]);
    let tally = json(&String::from_utf8_lossy(&out.stdout));
    assert_eq!((out.status.code(), &tally["files"], &tally["failed"]), (Some(1), &1.into(), &1.into()));
    assert_eq!(ok(["cat", &bench.inside("a.img", "/u/b")]), "whole");
    let none = ["get", &bench.inside("a.img", "/none"), &bench.inside("a.img", "/t/b"), "."].map(str::to_owned);
    let out = Command::new(env!("CARGO_BIN_EXE_weldfs")).args(none).current_dir(bench.dir.path()).output();
    assert_eq!(out.expect("runs").status.code(), Some(1));
    assert_eq!(fs::read(bench.path("b")).expect("read"), b"whole");
}

#[test]
fn what_cannot_be_had_is_said_in_one_sentence() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let (code, why) = fails(["run", "--ram", "4096T", "true"]);
    assert!(code == 1 && why.lines().count() == 1 && why.contains("memory"), "{code}: {why}");
    let nowhere = bench.path("none/x.sock");
    let at = [OsStr::new("--socket"), nowhere.as_ref()];
    let (code, why) = fails([OsStr::new("serve"), image.as_ref()].into_iter().chain(at));
    assert!(code == 1 && why.contains("none/x.sock") && why.contains("there is no folder"), "{code}: {why}");
    assert_eq!(fails([OsStr::new("serve"), image.as_ref(), "--memory=1023K".as_ref()]).0, 2);
    // A damaged copy of the superblock is worth a warning; the image is whole.
    let mut bytes = fs::read(&image).expect("read");
    bytes[8 * 4096 + 100] ^= 0xff;
    fs::write(&image, &bytes).expect("write");
    let said = ok([OsStr::new("fsck"), image.as_ref()]);
    assert!(said.contains("warning: superblock copy in block 8"), "{said}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    tree(&bench.path("tree"));
    ok(["put", bench.path("tree").to_str().expect("text"), &bench.inside("a.img", "/")]);
    let root = bench.inside("a.img", "/");
    let big = bench.inside("a.img", "/tree/sub/deep/big");
    let image = image.to_str().expect("text");
    let verbs: [&[&str]; 6] = [
        &["ls", "-R", &root],
        &["ls", "--json", &root],
        &["stat", &root],
        &["info", image],
        &["fsck", image],
        &["cat", &big],
    ];
    for args in verbs {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        let out = command.args(args).stdout(writer).stderr(Stdio::piped()).spawn().expect("runs").wait_with_output();
        let out = out.expect("ends");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.is_empty(), "{args:?}: {}: {said}", out.status);
    }
}
