//! The verbs on files, each on an image that no device serves, on one that is served, and on a directory of the host.

use crate::images::{Bench, Served, fails, json, ok, weldfs};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `serve --hostdir`, ended with it.
struct HostDir(Child);

impl HostDir {
    fn start(dir: &Path, socket: &Path) -> HostDir {
        fs::create_dir(dir).expect("mkdir");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        serve.args(["serve", "--hostdir"]).arg(dir).arg("--socket").arg(socket).stderr(Stdio::null());
        let served = HostDir(serve.spawn().expect("it starts"));
        let start = Instant::now();
        while weldfs::Client::connect(socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "it answers");
            std::thread::sleep(Duration::from_millis(5));
        }
        served
    }
}

impl Drop for HostDir {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `body` with something to put in front of `:/path`: each of the three kinds.
fn everywhere(body: impl Fn(&Bench, &str)) {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    body(&bench, image.to_str().expect("text"));
    let bench = Bench::new();
    let image = bench.image("a.img", "block");
    let served = Served::start(&image);
    body(&bench, image.to_str().expect("text"));
    served.term();
    let bench = Bench::new();
    let socket: PathBuf = bench.path("host.sock");
    let _served = HostDir::start(&bench.path("host"), &socket);
    body(&bench, socket.to_str().expect("text"));
}

fn stat(at: &str) -> Value {
    json(&ok(["stat", "--json", at]))[0].clone()
}

fn put(bench: &Bench, content: &[u8], at: &str) {
    fs::write(bench.path("source"), content).expect("write");
    ok(["put", bench.path("source").to_str().expect("text"), at]);
}

#[test]
fn links_are_made_replaced_and_refused() {
    everywhere(|bench, image| {
        let at = |path: &str| format!("{image}:{path}");
        put(bench, b"one", &at("/a"));
        put(bench, b"two", &at("/b"));
        ok(["ln", &at("/a"), &at("/hard")]);
        assert_eq!(stat(&at("/hard"))["inode"], stat(&at("/a"))["inode"]);
        ok(["ln", "-s", "a", &at("/soft")]);
        assert_eq!(stat(&at("/soft"))["target"], "a");
        let (code, why) = fails(["ln", &at("/b"), &at("/hard")]);
        assert!(code == 1 && why.contains("exists"), "{why}");
        ok(["ln", "-f", &at("/b"), &at("/hard")]);
        assert_eq!(ok(["cat", &at("/hard")]), "two");
        // A name of the file itself stays one.
        ok(["ln", "-f", &at("/b"), &at("/hard")]);
        ok(["ln", "-sf", "b", &at("/soft")]);
        assert_eq!(ok(["cat", &at("/soft")]), "two");
        ok(["mkdir", &at("/d")]);
        ok(["ln", &at("/a"), &at("/b"), &at("/d")]);
        assert_eq!(ok(["ls", &at("/d")]), "a\nb\n");
        assert_eq!(fails(["ln", &at("/a"), &at("/b"), &at("/none")]).0, 2);
        assert_eq!(fails(["ln", "no-colon", &at("/x")]).0, 2);
        assert_eq!(fails(["ln", &at("/d"), &at("/dir-link")]).0, 1);
        assert_eq!(fails(["ln", "-sf", "x", &at("/d/a/b")]).0, 1);
        // Nothing is left over.
        assert_eq!(ok(["find", &at("/"), "--name", ".weldfs*"]), "");
    });
}

#[test]
fn modes_and_owners_change_of_files_and_trees() {
    everywhere(|bench, image| {
        let at = |path: &str| format!("{image}:{path}");
        ok(["mkdir", "-p", &at("/t/d")]);
        put(bench, b"x", &at("/t/d/f"));
        ok(["ln", "-s", "f", &at("/t/d/l")]);
        ok(["chmod", "640", &at("/t/d/f")]);
        assert_eq!(stat(&at("/t/d/f"))["mode"], "0640");
        ok(["chmod", "u+x,go=", &at("/t/d/l")]);
        assert_eq!(stat(&at("/t/d/f"))["mode"], "0700", "a named link is followed");
        ok(["chmod", "-R", "u=rwX,go=rX", &at("/t")]);
        let modes = ["/t", "/t/d", "/t/d/f"].map(|path| stat(&at(path))["mode"].clone());
        assert_eq!(modes, ["0755", "0755", "0755"]);
        ok(["chmod", "-R", "a-x", &at("/t")]);
        assert_eq!(stat(&at("/t"))["mode"], "0644");
        ok(["chmod", "-R", "a+X", &at("/t")]);
        assert_eq!((&stat(&at("/t/d"))["mode"], &stat(&at("/t/d/f"))["mode"]), (&"0755".into(), &"0644".into()));
        assert_eq!(fails(["chmod", "9", &at("/t")]).0, 2);
        assert_eq!(fails(["chmod", "755", &at("/none")]).0, 1);
        if rustix::process::geteuid().is_root() {
            ok(["chown", "-R", "1234:5678", &at("/t")]);
            let f = stat(&at("/t/d/f"));
            assert_eq!((&f["uid"], &f["gid"]), (&1234.into(), &5678.into()));
            assert_eq!(stat(&at("/t/d/l"))["uid"], 1234, "a link in a tree itself");
            ok(["chown", "root:", &at("/t/d/l")]);
            assert_eq!((&stat(&at("/t/d/f"))["gid"], &stat(&at("/t/d/l"))["gid"]), (&0.into(), &5678.into()));
            ok(["chown", "--no-dereference", ":7", &at("/t/d/l")]);
            assert_eq!(stat(&at("/t/d/l"))["gid"], 7);
        } else {
            crate::skips::skip("modes_and_owners_change_of_files_and_trees", "owners need root");
        }
        assert_eq!(fails(["chown", "no such user", &at("/t")]).0, 2);
        assert_eq!(fails(["chown", "0", &at("/none")]).0, 1);
    });
}

#[test]
fn sizes_are_set_and_files_are_made() {
    everywhere(|bench, image| {
        let at = |path: &str| format!("{image}:{path}");
        put(bench, b"0123456789", &at("/f"));
        ok(["truncate", "-s", "4", &at("/f")]);
        assert_eq!(ok(["cat", &at("/f")]), "0123");
        ok(["truncate", "--size=+2", &at("/f")]);
        assert_eq!(ok(["cat", &at("/f")]), "0123\0\0");
        ok(["truncate", "-s", "-5", &at("/f"), &at("/made")]);
        assert_eq!(
            (stat(&at("/f"))["size_bytes"].clone(), stat(&at("/made"))["size_bytes"].clone()),
            (1.into(), 0.into())
        );
        ok(["truncate", "-c", "-s", "1M", &at("/not-made")]);
        assert_eq!(fails(["stat", &at("/not-made")]).0, 1);
        ok(["truncate", "-s", "1G", &at("/sparse")]);
        let sparse = stat(&at("/sparse"));
        assert_eq!((&sparse["size_bytes"], &sparse["allocated_bytes"]), (&(1u64 << 30).into(), &0.into()));
        // A copy keeps holes, of small files as well.
        ok(["truncate", "-s", "900K", &at("/small")]);
        ok(["cp", &at("/small"), &at("/copy")]);
        let copy = stat(&at("/copy"));
        assert_eq!((&copy["size_bytes"], &copy["allocated_bytes"]), (&(900u64 << 10).into(), &0.into()));
        assert_eq!(fails(["truncate", "-s", "lots", &at("/f")]).0, 2);
        assert_eq!(fails(["truncate", "-s", "1", &at("/none/f")]).0, 1);
    });
}

#[test]
fn find_finds_by_name_kind_size_and_number() {
    everywhere(|bench, image| {
        let at = |path: &str| format!("{image}:{path}");
        ok(["mkdir", "-p", &at("/t/a/empty")]);
        put(bench, &[7; 5000], &at("/t/a/big.log"));
        put(bench, b"x", &at("/t/small.LOG"));
        ok(["ln", "-s", "a", &at("/t/link")]);
        let find = |args: &[&str]| ok(["find", &at("/t")].iter().copied().chain(args.iter().copied()));
        assert_eq!(find(&[]), "/t\n/t/a\n/t/a/big.log\n/t/a/empty\n/t/link\n/t/small.LOG\n");
        assert_eq!(find(&["--name", "*.log"]), "/t/a/big.log\n");
        assert_eq!(find(&["--iname", "*.log", "--size=-2"]), "/t/small.LOG\n");
        assert_eq!(find(&["--type", "d", "--min-depth", "1"]), "/t/a\n/t/a/empty\n");
        assert_eq!(find(&["--type", "l"]), "/t/link\n");
        assert_eq!(find(&["--size", "+4K"]).lines().filter(|l| l.ends_with(".log")).count(), 1);
        assert_eq!(find(&["--empty"]), "/t/a/empty\n");
        assert_eq!(find(&["--max-depth", "1", "--path", "*/a"]), "/t/a\n");
        assert_eq!(find(&["--mtime=+1"]), "");
        assert_eq!(find(&["--name", "*.log", "-0"]), "/t/a/big.log\0");
        let number = stat(&at("/t/a/big.log"))["inode"].to_string();
        assert_eq!(find(&["--inode", &number]), "/t/a/big.log\n");
        let found = json(&find(&["--name", "big*", "--json"]));
        assert_eq!(found[0], stat(&at("/t/a/big.log")), "find and stat say the same");
        assert_eq!(fails(["find", &at("/none")]).0, 1);
        assert_eq!(fails(["find", &at("/t"), "--name", "["]).0, 2);
    });
}

#[test]
fn space_is_told_of_the_whole_and_of_trees() {
    everywhere(|bench, image| {
        let at = |path: &str| format!("{image}:{path}");
        let before = json(&ok(["df", "--json", image]))[0].clone();
        ok(["mkdir", "-p", &at("/t/d")]);
        put(bench, &vec![7; 2 << 20], &at("/t/d/f"));
        ok(["ln", &at("/t/d/f"), &at("/t/g")]);
        ok(["sync", image]);
        let n = |v: &Value, name: &str| v[name].as_u64().unwrap_or_else(|| panic!("{name} in {v}"));
        let after = json(&ok(["df", "--json", &at("/t")]))[0].clone();
        if after["medium"] != "hostdir" {
            assert!(n(&after, "used_bytes") >= n(&before, "used_bytes") + (2 << 20), "{before} {after}");
            assert_eq!(n(&after, "used_bytes") + n(&after, "free_bytes"), n(&after, "size_bytes"));
            assert_eq!(n(&after, "inodes"), n(&before, "inodes") + 3);
        }
        let text = ok(["df", "--bytes", image]);
        assert!(text.lines().count() == 2 && text.starts_with("image") && text.contains(image), "{text}");
        // A file with two names counts once.
        let sums = json(&ok(["du", "--json", "-a", &at("/t")]));
        let rows = sums.as_array().expect("an array");
        let paths: Vec<&str> = rows.iter().filter_map(|row| row["path"].as_str()).collect();
        assert_eq!(paths, ["/t/d/f", "/t/d", "/t"]);
        let whole = rows.last().expect("the tree itself");
        assert_eq!((n(whole, "size_bytes"), n(whole, "inodes")), (2 << 20, 3));
        assert!(n(whole, "allocated_bytes") >= 2 << 20);
        assert_eq!(ok(["du", "-s", "--apparent-size", &at("/t")]), "2.0M\t/t\n");
        assert_eq!(ok(["du", "-bc", "--apparent-size", "-d0", &at("/t")]), "2097152\t/t\n2097152\ttotal\n");
        assert_eq!(fails(["du", &at("/none")]).0, 1);
        assert_eq!(fails(["df", &format!("{image}.none")]).0, 1);
    });
}

#[test]
fn listings_have_headings_dates_and_letters() {
    everywhere(|bench, image| {
        let at = |path: &str| format!("{image}:{path}");
        ok(["mkdir", "-p", &at("/d/e")]);
        put(bench, b"12345", &at("/d/f"));
        put(bench, b"x", &at("/top"));
        ok(["ln", "-s", "d", &at("/l")]);
        assert_eq!(ok(["ls", &at("/d")]), "e\nf\n");
        assert_eq!(ok(["ls", &at("/l")]), "e\nf\n", "through a link, as ls does");
        assert_eq!(ok(["ls", &at("/d"), &at("/top"), &at("/d/e")]), "/top\n\n/d:\ne\nf\n\n/d/e:\n");
        assert_eq!(ok(["ls", "-R", &at("/d")]), "/d:\ne\nf\n\n/d/e:\n");
        assert_eq!(ok(["ls", "-d", &at("/d"), &at("/top")]), "/d\n/top\n");
        let mut long = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        let listed = |zone: &str, long: &mut Command| {
            let out = long.env("TZ", zone).args(["ls", "-l", &at("/d/f")]).output().expect("runs");
            String::from_utf8(out.stdout).expect("text")
        };
        let line = listed("UTC0", &mut long);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words[0].starts_with("-rw") && words[4] == "5" && words.len() == 9 && words[8] == "/d/f", "{line}");
        assert!(words[7].contains(':'), "a date for people: {line}");
        let elsewhere = listed("XXX-5", &mut Command::new(env!("CARGO_BIN_EXE_weldfs")));
        assert_ne!(elsewhere, line, "in the time zone of whoever reads it");
        let link = ok(["ls", "-l", &at("/l")]);
        assert!(link.starts_with('l') && link.ends_with("/l -> d\n"), "{link}");
        let said = ok(["stat", &at("/d/f")]);
        assert!(said.contains("mode: 06") && said.contains("-rw") && said.contains("mtime: 20"), "{said}");
    });
}

#[test]
fn changes_are_made_durable_of_whole_images_and_of_files() {
    everywhere(|bench, image| {
        let at = |path: &str| format!("{image}:{path}");
        put(bench, b"x", &at("/f"));
        assert_eq!(ok(["sync", image, &at("/f")]), "");
        assert_eq!(fails(["sync", &at("/none")]).0, 1);
    });
    assert_eq!(fails(["sync", "/no/such/image"]).0, 1);
    let dir = tempfile::tempdir().expect("a folder");
    let pipe = dir.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("a FIFO");
    let (code, said) = fails(["sync", pipe.to_str().expect("text")]);
    assert!(code == 1 && said.contains("neither a file, a block device"), "{said}");
}

#[test]
fn every_verb_has_help() {
    for verb in [
        "ls", "cat", "put", "get", "cp", "rm", "mkdir", "mv", "ln", "chmod", "chown", "truncate", "find", "sync",
        "stat", "df", "du",
    ] {
        let help = ok([verb, "--help"]);
        assert!(help.contains("Usage: weldfs") && help.lines().count() > 5, "{verb}: {help}");
        assert_eq!(weldfs([verb]).status.code(), Some(2), "{verb} needs to be told what");
    }
}
