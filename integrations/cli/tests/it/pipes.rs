//! Who reads may have seen enough: a closed pipe ends every verb at once, in silence, and no image is worse for it.

use crate::demo;
use crate::images::{Bench, Served, json, ok, tree};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A verb whose stdout nothing reads.
fn unread(args: &[&str]) -> (Option<i32>, String) {
    // Not for children of other tests: a device that has the reader is one that reads.
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    let out = command.args(args).stdout(writer).stderr(Stdio::piped()).spawn().expect("runs").wait_with_output();
    let out = out.expect("ends");
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

fn ends(child: &mut Child, within: Duration) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("status") {
            return status.code();
        }
        if start.elapsed() > within {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_verb_ends_quietly_when_nothing_reads_it() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    tree(&bench.path("tree"));
    ok(["put", bench.path("tree").to_str().expect("text"), &bench.inside("a.img", "/")]);
    let (root, big) = (bench.inside("a.img", "/"), bench.inside("a.img", "/tree/sub/deep/big"));
    let image_text = image.to_str().expect("text");
    let alone: [&[&str]; 16] = [
        &["ls", "-R", &root],
        &["ls", "--json", &root],
        &["stat", &root],
        &["find", &root],
        &["find", "--json", &root],
        &["du", "-a", &root],
        &["df", image_text],
        &["cat", &big],
        &["get", &big, "-"],
        &["info", image_text],
        &["info", "--log", image_text],
        &["fsck", image_text],
        &["scrub", image_text],
        &["exec", image_text, "open /tree/empty r; close"],
        &["--help"],
        &["--version"],
    ];
    for args in alone {
        assert_eq!(unread(args), (Some(0), String::new()), "{args:?}");
        assert_eq!(json(&ok(["info", "--json", image_text]))["clean"], true, "{args:?} left the image as it was");
    }
    // What was changed stands, though nothing read that it was.
    let source = bench.path("tree/sub/small");
    let put = ["put", "--json", source.to_str().expect("text"), &bench.inside("a.img", "/small")];
    assert_eq!(unread(&put), (Some(0), String::new()));
    assert_eq!(ok(["cat", &bench.inside("a.img", "/small")]), "some text\n");
    let served = Served::start(&image);
    let attached: [&[&str]; 8] = [
        &["stats", image_text],
        &["stats", "--json", image_text],
        &["stats", "--prometheus", image_text],
        &["top", "--once", image_text],
        &["tenants", image_text],
        &["tune", image_text],
        &["ls", "-l", &root],
        &["cat", &big],
    ];
    for args in attached {
        assert_eq!(unread(args), (Some(0), String::new()), "{args:?}");
    }
    served.term();
}

#[test]
fn a_verdict_is_in_the_exit_code_even_if_nothing_reads_it() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let content = vec![0x5a; 64 << 10];
    fs::write(bench.path("f"), &content).expect("write");
    ok(["put", bench.path("f").to_str().expect("text"), &bench.inside("a.img", "/")]);
    let mut bytes = fs::read(&image).expect("read");
    let hit = (0..bytes.len() / 4096).find(|i| bytes[i * 4096..][..4096] == content[..4096]).expect("it is there");
    bytes[hit * 4096 + 7] ^= 0xff;
    fs::write(&image, &bytes).expect("write");
    let image = image.to_str().expect("text");
    assert_eq!(unread(&["scrub", image]).0, Some(4));
    assert_eq!(unread(&["fsck", "--data", "--json", image]).0, Some(4));
}

/// Reads one line, then goes.
fn head(socket: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    command.args(args).arg(socket).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(!line.is_empty(), "{args:?} prints");
    let code = ends(&mut child, Duration::from_secs(5));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("a pipe"), &mut said).expect("text");
    (code, said)
}

/// `weldfs demo --quick | head -1`: nothing more is begun, and nothing is left. Where there is no room for a
/// measurement the first line comes at once; it says so.
#[test]
fn the_demo_ends_when_its_reader_goes() {
    let Some(mut command) = demo::unmeasured("pipes::the_demo_ends_when_its_reader_goes", "--quick") else { return };
    let bench = Bench::new();
    let folder = bench.path("tmp");
    fs::create_dir(&folder).expect("mkdir");
    command.env("TMPDIR", &folder);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("Nothing was measured: "), "{line}");
    // It may look for files first, which takes long where there are many; an image it does not begin.
    let start = Instant::now();
    let code = loop {
        if let Some(status) = child.try_wait().expect("status") {
            break status.code();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it goes on");
        for made in fs::read_dir(&folder).expect("it is there").flatten() {
            let images = fs::read_dir(made.path()).into_iter().flatten().flatten();
            let names: Vec<_> =
                images.map(|e| e.file_name()).filter(|n| n.as_encoded_bytes().ends_with(b".img")).collect();
            assert!(names.is_empty(), "it has begun {names:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("a pipe"), &mut said).expect("text");
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 0, "it cleans up behind itself");
}

#[test]
fn verbs_that_watch_end_when_their_reader_goes() {
    let bench = Bench::new();
    let served = Served::start(&bench.image("a.img", "pmem"));
    let socket = bench.path("a.img.sock");
    let watching: [&[&str]; 4] = [
        &["top", "--json", "--interval=0.2"],
        &["top", "--interval=0.2"],
        &["stats", "--watch=0.2"],
        &["stats", "--json", "--watch=0.2"],
    ];
    for args in watching {
        assert_eq!(head(&socket, args), (Some(0), String::new()), "{args:?}");
    }
    // Noticed while it sleeps, not only when it writes.
    // The child itself must not hold the end that reads.
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    let mut child = command.args(["stats", "--watch=3600"]).arg(&socket).stdout(writer).spawn().expect("runs");
    drop(command);
    std::thread::sleep(Duration::from_millis(200));
    drop(reader);
    assert_eq!(ends(&mut child, Duration::from_secs(5)), Some(0));
    served.term();
}
