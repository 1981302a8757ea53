//! `scrub`, `info --log` and `fsck` end to end: damage is found and named, nothing is changed, exit codes are those of
//! fsck(8).

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn weldfs(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weldfs")).args(args).output().expect("the command runs")
}

fn code(out: &Output) -> i32 {
    out.status.code().expect("an exit code")
}

fn json(out: &Output) -> serde_json::Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)))
}

/// No two blocks are equal.
fn content() -> Vec<u8> {
    (0..1u32 << 18).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect()
}

/// An image with "/d/file" of 1 MiB.
fn image(dir: &Path, medium: &str) -> PathBuf {
    let (image, tree) = (dir.join("image"), dir.join("d"));
    fs::create_dir(&tree).expect("a folder");
    fs::write(tree.join("file"), content()).expect("a file");
    let path = image.to_str().expect("text");
    assert!(weldfs(&["mkfs", path, "--size=48M", "--medium", medium]).status.success());
    assert!(weldfs(&["put", tree.to_str().expect("text"), &format!("{path}:/")]).status.success());
    image
}

/// Flips a byte in the middle of the file's data.
fn damage(image: &Path) {
    let wanted = content()[300 * 1024..300 * 1024 + 4096].to_vec();
    let bytes = fs::read(image).expect("readable");
    let at = bytes.chunks(4096).position(|b| b == wanted).expect("the block is somewhere") * 4096 + 99;
    let file = fs::OpenOptions::new().write(true).open(image).expect("writable");
    file.write_all_at(&[bytes[at] ^ 0x80], at as u64).expect("writes");
}

#[test]
fn scrub_names_the_damaged_file_on_both_media_and_changes_nothing() {
    for medium in ["pmem", "block"] {
        let dir = tempfile::tempdir().expect("a folder");
        let image = image(dir.path(), medium);
        let path = image.to_str().expect("text");
        let out = weldfs(&["scrub", path, "--json"]);
        assert_eq!((code(&out), json(&out)["clean"].as_bool()), (0, Some(true)));
        assert!(out.stderr.is_empty(), "no bar and no talk where stderr is no terminal");
        damage(&image);
        let before = fs::read(&image).expect("readable");
        let out = weldfs(&["scrub", path, "--json"]);
        let report = json(&out);
        assert_eq!((code(&out), report["exit_code"].as_u64()), (4, Some(4)));
        let found = &report["findings"][0];
        assert_eq!(found["path"].as_str(), Some("/d/file"));
        assert_eq!(found["offset"].as_u64(), Some(300 * 1024));
        assert_ne!(found["expected"], found["actual"]);
        let out = weldfs(&["scrub", path, "--rate", "64M"]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            code(&out) == 4 && text.contains(":/d/file: data at byte 307200") && text.contains("DAMAGED"),
            "{text}"
        );
        assert!(fs::read(&image).expect("readable") == before, "scrub only reads");
        // What scrub found is what a reader is refused, and what fsck finds when it is told to look at data.
        let out = weldfs(&["cat", &format!("{path}:/d/file")]);
        assert!(!out.status.success());
        assert_eq!(code(&weldfs(&["fsck", path])), 0);
        assert_eq!(code(&weldfs(&["fsck", "--data", path])), 4);
    }
}

#[test]
fn what_is_no_image_cannot_be_scrubbed_and_a_wrong_command_line_is_16() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("noise");
    fs::write(&path, vec![7; 4 << 20]).expect("writes");
    let out = weldfs(&["scrub", path.to_str().expect("text")]);
    assert_eq!(code(&out), 8);
    assert_eq!(String::from_utf8_lossy(&out.stderr).lines().count(), 1);
    assert_eq!(code(&weldfs(&["scrub"])), 16);
    assert_eq!(code(&weldfs(&["fsck", "--bogus", "x"])), 16);
    assert_eq!(code(&weldfs(&["ls", "--bogus"])), 2);
    assert_eq!(code(&weldfs(&["scrub", "--help"])), 0);
}

#[test]
fn the_log_of_an_image_that_was_not_closed_is_printed_by_record() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = image(dir.path(), "pmem");
    let path = image.to_str().expect("text");
    let mut device =
        Command::new(env!("CARGO_BIN_EXE_weldfs")).args(["serve", path]).spawn().expect("the device starts");
    let socket = PathBuf::from(format!("{path}.sock"));
    let client = loop {
        match weldfs::Client::connect(&socket) {
            Ok(client) => break client,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    };
    let mut file = weldfs::OpenOptions::new().write(true).create(true).open(&client, "/log").expect("opens");
    std::io::Write::write_all(&mut file, b"hello").expect("writes");
    client.sync().expect("durable");
    device.kill().expect("signal");
    device.wait().expect("ends");
    let out = weldfs(&["info", "--log", "--json", path]);
    let log = json(&out);
    let records = log["records"].as_array().expect("a list");
    let text = log.to_string();
    assert!(records.len() >= 2 && text.contains("\"name\":\"log\"") && text.contains("68656c6c6f"), "{text}");
    assert_eq!(log["tail"]["ending"].as_str(), Some("whole"));
    assert!(!text.contains("salt"));
    let out = weldfs(&["info", "--log", path]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("\"log\" is inode"));
    let out = weldfs(&["fsck", "--json", path]);
    let report = json(&out);
    let own = |r: &&serde_json::Value| r["kind"] != "watermark" && r["kind"] != "pad";
    let count = records.iter().filter(own).count() as u64;
    assert_eq!(report["recovery"]["records"].as_u64(), Some(count), "as recovery counts them");
    assert_eq!(report["recovered"].as_bool(), Some(false));
    assert_eq!(code(&weldfs(&["fsck", "-y", path])), 1);
    assert_eq!(code(&weldfs(&["fsck", "-y", path])), 0);
    let info = json(&weldfs(&["info", "--json", path]));
    assert!(info["sequence"].as_u64() > Some(3) && info["clean"].as_bool() == Some(true), "{info}");
}
