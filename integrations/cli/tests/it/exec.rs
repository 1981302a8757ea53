//! `weldfs exec` end to end: programs as text run as one command, over an image and over a running device, with inputs,
//! outputs, failures that say which step, and exit codes.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

mod crc {
    /// CRC-32C by its definition, bit by bit.
    pub fn crc32c(bytes: &[u8]) -> u32 {
        let bit = |crc: u32| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        !bytes.iter().fold(u32::MAX, |crc, b| (0..8).fold(crc ^ u32::from(*b), |crc, _| bit(crc)))
    }
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// With an image of its own.
    fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().expect("a temporary folder") };
        place.ok([OsStr::new("mkfs"), place.image().as_ref(), "--size=48M".as_ref()]);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn image(&self) -> PathBuf {
        self.path("a.img")
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("a host file");
        let to = format!("{}:/{name}", self.image().display());
        self.ok([OsStr::new("put"), self.path(name).as_ref(), to.as_ref()]);
    }

    fn cat(&self, name: &str) -> Vec<u8> {
        let from = format!("{}:/{name}", self.image().display());
        let out = weldfs([OsStr::new("cat"), from.as_ref()]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    }

    fn ok<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> String {
        let out = weldfs(args);
        assert!(out.status.success(), "{}: {}", out.status, String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    }

    fn exec(&self, args: &[&str]) -> Output {
        let image = self.image();
        weldfs([OsStr::new("exec"), image.as_ref()].into_iter().chain(args.iter().map(OsStr::new)))
    }
}

fn weldfs<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(args: I) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weldfs")).args(args).output().expect("the command runs")
}

fn text(out: &[u8]) -> String {
    String::from_utf8_lossy(out).into_owned()
}

struct Served(Child);

impl Served {
    fn start(image: &Path) -> Served {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        let child = serve.arg("serve").arg(image).stderr(Stdio::null()).spawn().expect("the device starts");
        let served = Served(child);
        let socket = PathBuf::from(format!("{}.sock", image.display()));
        let start = Instant::now();
        while weldfs::Client::connect(&socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "the device answers");
            std::thread::sleep(Duration::from_millis(5));
        }
        served
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The same record, its checksum from a core and from a slot. What no kernel computes is refused, or done by a core.
#[test]
fn a_checksum_is_computed_where_it_is_asked_for() {
    let place = Place::new();
    fs::write(place.path("record"), [7; 5000]).expect("a host file");
    let input = format!("R={}", place.path("record").display());
    let served = Served::start(&place.image());
    let counts = || -> (u64, u64) {
        let out = weldfs([OsStr::new("stats"), "--json".as_ref(), place.image().as_ref()]);
        let stats: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let count = |name: &str| stats["total"][name].as_u64().expect("a count");
        (count("slot_packets"), count("slot_fallbacks"))
    };
    let append = |file: &str, sum: &str, placement: &[&str]| {
        let program = format!("open /{file} rw create; write end @R {sum} -> c; append c");
        place.exec(&[&["--input", &input, &program], placement].concat())
    };
    let good = |out: Output| assert!(out.status.success(), "{}", text(&out.stderr));
    good(append("core", "crc32c", &["--placement", "device"]));
    good(append("auto", "crc32c", &[]));
    assert_eq!(counts(), (0, 0));
    good(append("slot", "crc32c", &["--placement", "slot"]));
    assert_eq!(counts(), (1, 0));
    let record = [&[7; 5000][..], &crc::crc32c(&[7; 5000]).to_le_bytes()].concat();
    assert!(["core", "auto", "slot"].iter().all(|file| place.cat(file) == record));
    let refused = append("slot", "crc32", &["--placement", "slot"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert_eq!(place.cat("slot"), record, "nothing happened");
    good(append("slot", "crc32", &["--placement", "slot-or-core"]));
    assert_eq!((counts(), place.cat("slot").len()), ((1, 1), 2 * record.len()));
    drop(served);
}

#[test]
fn the_example_of_the_help_text_works_over_an_image_and_over_a_device() {
    let place = Place::new();
    place.put("f", b"0123456789");
    let program = "open /f rw; read 0 4k -> a; crc32c a -> c; append c; close";
    let out = place.exec(&[program]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let first = crc::crc32c(b"0123456789");
    assert_eq!(text(&out.stdout), format!("5 of 5 micro-ops\nc = {first} ({first:#x})\n"));
    let content = [&b"0123456789"[..], &first.to_le_bytes()].concat();
    assert_eq!(place.cat("f"), content);

    let served = Served::start(&place.image());
    let out = place.exec(&["--json", program]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let second = crc::crc32c(&content);
    assert_eq!((json["status"].as_i64(), json["registers"]["c"].as_u64()), (Some(0), Some(second.into())));
    drop(served);
    assert_eq!(place.cat("f"), [&content[..], &second.to_le_bytes()].concat());
}

#[test]
fn bytes_come_from_files_and_go_to_files() {
    let place = Place::new();
    let payload: Vec<u8> = (0..100_000u32).map(|i| (i * 31 % 251) as u8).collect();
    fs::write(place.path("in"), &payload).expect("a host file");
    let input = format!("src={}", place.path("in").display());
    let program = "open /log w create append as f; write f end @src crc32c -> c at -> n; sync; close f";
    for expected in [0, payload.len()] {
        let out = place.exec(&["--input", &input, "--json", program]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        assert_eq!(json["registers"]["n"].as_u64(), Some(expected as u64));
        assert_eq!(json["registers"]["c"].as_u64(), Some(crc::crc32c(&payload).into()));
    }
    assert_eq!(place.cat("log"), [&payload[..], &payload].concat());
    let output = format!("dst={}", place.path("out").display());
    let source = place.path("program");
    fs::write(&source, "open /log r  # what was written\nread 150000 256k -> @dst count -> n\n").expect("a host file");
    let out = place.exec(&["-f", source.to_str().expect("a path"), "--output", &output]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(fs::read(place.path("out")).expect("the output"), payload[50_000..], "as long as what was there");
}

#[test]
fn a_failure_names_its_step_and_leaves_nothing_or_the_steps_before() {
    let place = Place::new();
    place.put("f", b"abc");
    let program = "open /f rw; append \"def\"; read 0 6 -> a; if holds a 0 \"xyz\" else fail EBADMSG; truncate 0";
    let out = place.exec(&[program]);
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(
        said.contains("micro-op 4 (if holds b0 0 \"xyz\" else fail EBADMSG)") && said.contains("EBADMSG"),
        "{said}"
    );
    assert_eq!(place.cat("f"), b"abc", "all or nothing");
    let out = place.exec(&["--mode", "micro", "--json", program]);
    assert_eq!(out.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!((json["errno"].as_str(), json["micro_done"].as_u64()), (Some("EBADMSG"), Some(3)));
    assert_eq!(place.cat("f"), b"abcdef", "the steps before stand");
}

#[test]
fn files_move_as_one() {
    let place = Place::new();
    place.put("f", b"old");
    let program =
        "open /f.new w create excl; append \"new content\"; sync; close; rename /f.new /f; mkdir /d; link /f /d/g";
    let out = place.exec(&[program]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!((place.cat("f"), place.cat("d/g")), (b"new content".to_vec(), b"new content".to_vec()));
    let out = place.exec(&["open /f r as a; open /d/h w create as b; size a -> n; copy a 0 n -> b end max 64k"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(place.cat("d/h"), b"new content");
}

#[test]
fn what_cannot_be_a_program_is_said_before_anything_is_opened() {
    let image = Path::new("/no/such/image");
    let fails = |args: &[&str]| {
        let out = weldfs([OsStr::new("exec"), image.as_ref()].into_iter().chain(args.iter().map(OsStr::new)));
        (out.status.code(), text(&out.stderr))
    };
    let (code, said) = fails(&["open /f rw; reed 0 4k -> a"]);
    assert_eq!((code, said.contains("line 1, column 13: no statement is called 'reed'")), (Some(2), true), "{said}");
    let (code, said) = fails(&["open /f r; read 0 4 -> @x"]);
    assert_eq!((code, said.contains("--output x=FILE")), (Some(2), true), "{said}");
    let (code, said) = fails(&["--output", "y=/dev/null", "sync"]);
    assert_eq!((code, said.contains("the program has no @y")), (Some(2), true), "{said}");
    assert_eq!(fails(&[]).0, Some(2));
    assert_eq!(fails(&["sync"]).0, Some(1), "there is no such image");
}

#[test]
fn explaining_shows_the_micro_ops_and_runs_nothing() {
    let image = Path::new("/no/such/image");
    let program = "open /f rw create; read 0 4k -> a; crc32c a -> c; append c; close";
    let out = weldfs([OsStr::new("exec"), image.as_ref(), "--explain".as_ref(), program.as_ref()]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let said = text(&out.stdout);
    for line in
        ["# 5 micro-ops; body 230 bytes", "# r0 is c", "buffer b0 4096", "crc32c b0 -> r0", "write f0 end r0:u32le"]
    {
        assert!(said.lines().any(|l| l == line), "{line} in {said}");
    }
}

#[test]
fn keys_come_from_files_and_are_never_shown() {
    let place = Place::new();
    place.put("plain", b"forty-two bytes that nobody else shall read");
    let digits = "00112233445566778899aabbccddeeff".repeat(2);
    fs::write(place.path("hex"), format!("{digits}\n")).expect("a key in digits");
    let raw: Vec<u8> = (0..32u8).map(|i| i % 16 * 0x11).collect();
    fs::write(place.path("raw"), &raw).expect("the same key as bytes");
    fs::write(place.path("other"), [7; 32]).expect("another key");
    let key = |kind: &str, file: &str| format!("--key=k={kind}:{}", place.path(file).display());
    let seal = "open /plain r; read 0 4k -> a; open /sealed w create excl; seal a -> b key k; append b";
    let out = place.exec(&[&key("gcm256", "hex"), seal]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(place.cat("sealed").len(), 43 + 28);
    let unseal = "open /sealed r; read 0 4k -> a; unseal a -> b key k; give b -> @out count -> n; result n";
    let run = |file: &str| place.exec(&[&key("gcm256", file), "--output=out=-", unseal]);
    let out = run("raw");
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout), "forty-two bytes that nobody else shall read");
    let out = run("other");
    assert!(!out.status.success() && text(&out.stderr).contains("EBADMSG"), "{}", text(&out.stderr));
    // Neither messages nor explanations have more of a key than its name or number.
    let shown = [
        place.exec(&[&key("gcm256", "hex"), "--explain", seal]),
        place.exec(&[&key("gcm256", "hex"), "open /plain r; read 0 4k -> a; seal a -> b key nobody"]),
        place.exec(&[&key("xts256", "hex"), seal]),
    ];
    for (out, code) in shown.iter().zip([0, 2, 2]) {
        assert_eq!(out.status.code(), Some(code), "{}", text(&out.stderr));
        let said = format!("{}{}", text(&out.stdout), text(&out.stderr));
        assert!(!said.contains("00112233") && !said.contains("\u{11}"), "{said}");
    }
    assert_eq!(place.exec(&["--key=k=des:x", seal]).status.code(), Some(2));
}
