//! Verbs that once lost data while they said otherwise, or did what was not asked for.

use crate::images::{Bench, Served, fails, json, ok, weldfs};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// With these bytes on standard input.
fn fed(args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    let mut child =
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    // A verb that refuses reads nothing.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("ends")
}

fn works(out: &Output) {
    assert!(out.status.success(), "{}: {}", out.status, String::from_utf8_lossy(&out.stderr));
}

/// An image with a tree, links to it and to the root.
fn furnished(bench: &Bench) {
    bench.image("a.img", "pmem");
    fs::create_dir_all(bench.path("d/sub")).expect("mkdir");
    fs::write(bench.path("d/sub/f"), b"kept").expect("write");
    ok(["put", text(&bench.path("d")), &bench.inside("a.img", "/")]);
    ok(["put", text(&bench.path("d/sub/f")), &bench.inside("a.img", "/first")]);
    ok(["ln", "-s", "/", &bench.inside("a.img", "/top")]);
    ok(["ln", "-s", "d", &bench.inside("a.img", "/dlink")]);
}

fn root_is_refused(bench: &Bench, image: &str) {
    let first = bench.inside(image, "/first");
    let before = ok(["ls", "-lR", &bench.inside(image, "/")]);
    for path in ["/", "", "//", "/.", "/..", "/d/..", "/d/sub/.", "/top/", "/top/.", "/top/top/", "/dlink/", "/d/../."]
    {
        let place =
            if path.is_empty() { format!("{}:", bench.path(image).display()) } else { bench.inside(image, path) };
        for more in [&["rm", "-r"][..], &["rm", "-rf"], &["rm"]] {
            // What is named before it stays, too.
            let args: Vec<&str> = more.iter().copied().chain([&*first, &*place]).collect();
            let (code, why) = fails(&args);
            assert!(code == 1 && why.lines().count() == 1 && why.contains("refusing"), "{args:?}: {code}: {why}");
        }
        assert_eq!(ok(["ls", "-lR", &bench.inside(image, "/")]), before, "{path}");
    }
}

#[test]
fn rm_refuses_the_root_by_whatever_name_before_anything_is_erased() {
    let bench = Bench::new();
    furnished(&bench);
    root_is_refused(&bench, "a.img");
    let served = Served::start(&bench.path("a.img"));
    root_is_refused(&bench, "a.img.sock");
    // A link itself goes, and nothing behind it.
    ok(["rm", "-r", &bench.inside("a.img", "/top"), &bench.inside("a.img", "/dlink")]);
    assert_eq!(ok(["cat", &bench.inside("a.img", "/d/sub/f")]), "kept");
    // One that cannot be removed does not keep the others back, and is told.
    let (code, why) = fails(["rm", &bench.inside("a.img", "/none"), &bench.inside("a.img", "/first")]);
    assert!(code == 1 && why.contains("/none"), "{why}");
    assert_eq!(fails(["stat", &bench.inside("a.img", "/first")]).0, 1);
    served.term();
}

#[test]
fn a_named_link_is_followed_and_links_in_trees_are_kept() {
    let bench = Bench::new();
    bench.image("a.img", "pmem");
    let inside = |path: &str| bench.inside("a.img", path);
    fs::create_dir(bench.path("t")).expect("mkdir");
    fs::write(bench.path("t/f"), b"content").expect("write");
    symlink("f", bench.path("t/l")).expect("symlink");
    symlink("t/f", bench.path("to-file")).expect("symlink");
    symlink("t", bench.path("to-dir")).expect("symlink");
    symlink("nowhere", bench.path("dangling")).expect("symlink");
    let kind = |path: &str| json(&ok(["stat", "--json", &inside(path)]))[0]["kind"].as_str().map(str::to_owned);
    ok(["put", text(&bench.path("to-file")), &inside("/x")]);
    assert_eq!((kind("/x").as_deref(), &*ok(["cat", &inside("/x")])), (Some("file"), "content"));
    ok(["put", text(&bench.path("to-dir")), &inside("/t")]);
    assert_eq!((kind("/t").as_deref(), kind("/t/l").as_deref()), (Some("directory"), Some("symlink")));
    ok(["put", "-L", text(&bench.path("t")), &inside("/all")]);
    assert_eq!(kind("/all/l").as_deref(), Some("file"));
    ok(["put", "-P", text(&bench.path("to-file")), &inside("/as-link")]);
    assert_eq!(kind("/as-link").as_deref(), Some("symlink"));
    let (code, why) = fails(["put", text(&bench.path("dangling")), &inside("/y")]);
    assert!(code == 1 && why.contains("dangling") && why.contains("No such file"), "{why}");
    // The other way, and inside.
    ok(["cp", &inside("/t/l"), &inside("/copy")]);
    assert_eq!(kind("/copy").as_deref(), Some("file"));
    ok(["get", &inside("/t/l"), text(&bench.path("back"))]);
    assert!(fs::symlink_metadata(bench.path("back")).expect("stat").is_file());
    assert_eq!(fs::read(bench.path("back")).expect("read"), b"content");
}

#[test]
fn what_comes_through_a_pipe_is_stored_or_refused_and_never_lost() {
    let bench = Bench::new();
    bench.image("a.img", "pmem");
    let inside = |path: &str| bench.inside("a.img", path);
    let big: Vec<u8> = (0..2_500_000u32).map(|i| (i % 251) as u8).collect();
    works(&fed(&["put", "/dev/stdin", &inside("/a")], b"x\n"));
    assert_eq!(ok(["cat", &inside("/a")]), "x\n");
    works(&fed(&["put", "-", &inside("/b")], &big));
    works(&fed(&["cp", "-", &inside("/c")], b""));
    works(&fed(&["put", "/dev/fd/0", &inside("/")], b"by its number"));
    assert_eq!(ok(["cat", &inside("/0")]), "by its number");
    assert_eq!(ok(["cat", &inside("/c")]), "");
    let out = weldfs(["get", &inside("/b"), "-"]);
    works(&out);
    assert!(out.stdout == big, "all of it, and nothing else");
    let out = fed(&["cat", &inside("/a"), "-", &inside("/a")], b"between\n");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "x\nbetween\nx\n");
    // A stream has no name to get in a directory.
    let out = fed(&["put", "-", &inside("/")], b"x");
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(2) && why.contains("NAME"), "{why}");
    let fifo = bench.path("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).expect("a FIFO");
    for named in [text(&fifo), "/dev/null", "/dev/zero"] {
        for verb in ["put", "cp"] {
            let (code, why) = fails([verb, named, &inside("/lost")]);
            assert!(code == 1 && why.contains(named) && why.contains("neither a file"), "{verb} {named}: {why}");
        }
    }
    assert_eq!(fails(["stat", &inside("/lost")]).0, 1);
}

#[test]
fn exec_gives_the_bytes_that_were_read_and_no_padding() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    works(&fed(&["put", "-", &bench.inside("a.img", "/f")], b"hello world"));
    let out = bench.path("out");
    let to = format!("--output=OUT={}", out.display());
    let run = |program: &str| weldfs([OsStr::new("exec"), image.as_ref(), to.as_ref(), program.as_ref()]);
    let programs = [
        "open /f r; read 0 100 -> @OUT",
        "open /f r; read 0 100 -> @OUT crc32c -> c",
        "open /f r; read 0 100 -> a; give a -> @OUT",
        "open /f r; size -> n; read 0 100 -> @OUT count -> m; result m",
    ];
    for program in programs {
        works(&run(program));
        assert_eq!(fs::read(&out).expect("read"), b"hello world", "{program}");
    }
    works(&run("open /f r; read 0 16 -> a pad; give a -> @OUT"));
    assert_eq!(fs::read(&out).expect("read"), b"hello world\0\0\0\0\0", "as it was asked for");
    // Where it cannot be known it is not guessed.
    let refused = run("open /f r; size -> n; read 0 100 -> @OUT crc32c -> c");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && why.contains("@OUT"), "{why}");
}

#[test]
fn errors_of_profile_and_tenants_name_the_file() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    for (option, content) in [
        ("--profile", "colour = 1"),
        ("--profile", "[core]\nspeed = 7.0"),
        ("--tenants", "a ="),
        ("--tenants", "b = 1"),
    ] {
        let file = bench.path("settings.toml");
        fs::write(&file, content).expect("write");
        let (code, why) = fails([OsStr::new("serve"), image.as_ref(), option.as_ref(), file.as_ref()]);
        assert!(code == 1 && why.contains(text(&file)), "{option} {content}: {why}");
    }
}

#[test]
fn run_on_a_dead_socket_starts_nothing() {
    let bench = Bench::new();
    let (dead, mark) = (bench.path("dead.sock"), bench.path("mark"));
    drop(std::os::unix::net::UnixListener::bind(&dead).expect("a socket"));
    for socket in [&dead, &bench.path("none.sock")] {
        let args =
            [OsStr::new("run"), "--socket".as_ref(), socket.as_ref(), "--".as_ref(), "touch".as_ref(), mark.as_ref()];
        let (code, why) = fails(args);
        assert!(code == 1 && why.contains(text(socket)), "{why}");
        assert!(!mark.exists(), "the program was started");
    }
}

fn free(place: &Path) -> u64 {
    let facts = json(&ok([OsStr::new("df"), "--json".as_ref(), place.as_ref()]));
    facts[0]["free_bytes"].as_u64().expect("a number")
}

/// Metadata that the removal itself may leave, bytes.
const METADATA: u64 = 4 << 20;

#[test]
fn what_rm_frees_is_free_at_once() {
    for medium in ["pmem", "block"] {
        let bench = Bench::new();
        let image = bench.image("a.img", medium);
        let before = free(&image);
        let big = vec![7; 20 << 20];
        works(&fed(&["put", "-", &bench.inside("a.img", "/big")], &big));
        assert!(free(&image) < before - (19 << 20));
        ok(["rm", &bench.inside("a.img", "/big")]);
        let after = free(&image);
        assert!(after + METADATA > before, "{medium}, offline: {before} before, {after} after");
        let served = Served::start(&image);
        works(&fed(&["put", "-", &bench.inside("a.img", "/big")], &big));
        ok(["rm", &bench.inside("a.img", "/big")]);
        let start = Instant::now();
        while free(&image) + METADATA <= before {
            assert!(start.elapsed() < Duration::from_secs(2), "{medium}, served: {before} before, {}", free(&image));
            std::thread::sleep(Duration::from_millis(20));
        }
        served.term();
    }
}

/// Bytes of a file, and bytes that it takes.
fn sizes(path: &Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(path).expect("there");
    (meta.len(), meta.blocks() * 512)
}

#[test]
fn holes_stay_holes_both_ways_and_within_an_image() {
    use std::os::unix::fs::FileExt;
    const SIZE: u64 = 300 << 20;
    let bench = Bench::new();
    bench.image("a.img", "block");
    let sparse = bench.path("sparse");
    let file = fs::File::create(&sparse).expect("create");
    file.write_all_at(b"in the middle", 100 << 20).expect("write");
    file.set_len(SIZE).expect("longer");
    assert!(sizes(&sparse).1 < 1 << 20, "the host keeps holes");
    // Begins with data, ends with data.
    let other = bench.path("other");
    let file = fs::File::create(&other).expect("create");
    file.write_all_at(b"at the beginning", 0).expect("write");
    file.write_all_at(b"at the end", SIZE).expect("write");
    for from in [&sparse, &other] {
        let (inside, copy) = (bench.inside("a.img", "/file"), bench.inside("a.img", "/copy"));
        ok(["put", text(from), &inside]);
        ok(["cp", &inside, &copy]);
        for place in [&inside, &copy] {
            let stat = json(&ok(["stat", "--json", place]))[0].clone();
            assert_eq!(stat["size_bytes"].as_u64(), Some(sizes(from).0), "{stat}");
            let back = bench.path("back");
            ok(["get", place, text(&back)]);
            assert_eq!(sizes(&back).0, sizes(from).0);
            assert!(sizes(&back).1 < 4 << 20, "{:?}", sizes(&back));
            assert!(fs::read(&back).expect("read") == fs::read(from).expect("read"));
            fs::remove_file(&back).expect("gone");
        }
        ok(["rm", &inside, &copy]);
    }
}

#[test]
fn a_file_that_does_not_fit_is_said_to_be_partial() {
    let bench = Bench::new();
    bench.image("a.img", "block");
    let large = bench.path("large");
    fs::write(&large, vec![7; 60 << 20]).expect("write");
    let out = weldfs(["put", text(&large), &bench.inside("a.img", "/large")]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains("a.img:/large is partial"), "{said}");
}
