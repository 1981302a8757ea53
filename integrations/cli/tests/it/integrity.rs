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
        assert_eq!(text.matches("data at byte 307200").count(), 1, "{text}");
        let aside = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!aside.contains("307200"), "it is told once: {aside}");
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
    assert_eq!(code(&weldfs(&["scrub", "--rate", "0", path.to_str().expect("text")])), 16, "it would never end");
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

/// A device over an image, in a process of its own.
struct Served(std::process::Child, weldfs::Client);

fn serve(path: &str) -> Served {
    let device = Command::new(env!("CARGO_BIN_EXE_weldfs")).args(["serve", path]).spawn().expect("the device starts");
    let socket = PathBuf::from(format!("{path}.sock"));
    loop {
        match weldfs::Client::connect(&socket) {
            Ok(client) => break Served(device, client),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
}

impl Served {
    fn kill(mut self) {
        self.0.kill().expect("signal");
        self.0.wait().expect("ends");
    }
}

/// Flips a byte of each place.
fn flip(image: &Path, places: impl IntoIterator<Item = u64>) {
    let file = fs::OpenOptions::new().read(true).write(true).open(image).expect("writable");
    for at in places {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("reads");
        file.write_all_at(&[byte[0] ^ 0x40], at).expect("writes");
    }
}

/// What all three say of damage that keeps the image from being mounted.
fn assert_damaged(path: &str, what: &str) {
    let before = fs::read(path).expect("readable");
    let out = weldfs(&["scrub", "--json", path]);
    let report = json(&out);
    assert_eq!((code(&out), report["exit_code"].as_u64()), (4, Some(4)));
    assert_eq!((report["clean"].as_bool(), report["mountable"].as_bool()), (Some(false), Some(false)));
    assert_eq!((report["finding_count"].as_u64(), report["findings"][0]["what"].as_str()), (Some(1), Some(what)));
    let out = weldfs(&["scrub", path]);
    assert!(code(&out) == 4 && String::from_utf8_lossy(&out.stdout).contains("DAMAGED: it cannot be mounted"));
    for verb in [&["fsck", "--json", path][..], &["fsck", "-y", "--json", path]] {
        let out = weldfs(verb);
        let report = json(&out);
        assert_eq!((code(&out), report["mountable"].as_bool()), (4, Some(false)));
        assert_eq!(report["problem_count"].as_u64(), Some(1));
    }
    assert!(fs::read(path).expect("readable") == before, "nothing was written");
}

#[test]
fn a_damaged_tree_page_that_prevents_the_mount_is_a_finding() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = image(dir.path(), "pmem");
    let bytes = fs::read(&image).expect("readable");
    let pages = (0..bytes.len() as u64).step_by(4096).filter(|at| bytes[*at as usize..].starts_with(b"WFpg"));
    flip(&image, pages.map(|at| at + 700));
    assert_damaged(image.to_str().expect("text"), "tree_page");
}

#[test]
fn a_damaged_log_record_that_prevents_the_mount_is_a_finding_and_info_says_corrupt() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = image(dir.path(), "pmem");
    let path = image.to_str().expect("text");
    let device = serve(path);
    for name in ["/one", "/two", "/three"] {
        device.1.create_dir(name).expect("makes");
    }
    device.1.sync().expect("durable");
    device.kill();
    let info = json(&weldfs(&["info", "--json", path]));
    let (start, len) = (info["log_start_bytes"].as_u64().expect("a number"), info["log_bytes"].as_u64().expect("one"));
    let out = weldfs(&["info", "--log", "--json", path]);
    let log = json(&out);
    assert_eq!((code(&out), log["tail"]["ending"].as_str()), (0, Some("whole")));
    let first = log["records"][0]["lsn"].as_u64().expect("a number");
    flip(&image, [start + first % len + 70]);
    let out = weldfs(&["info", "--log", "--json", path]);
    let log = json(&out);
    assert_eq!(code(&out), 4);
    assert!(log["tail"]["ending"]["corrupt"].is_string(), "{log}");
    let out = weldfs(&["info", "--log", path]);
    assert!(code(&out) == 4 && String::from_utf8_lossy(&out.stdout).contains("CORRUPT"));
    assert_damaged(path, "log");
}

#[test]
fn a_socket_is_named_as_it_is_when_an_image_is_refused_for_being_served() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = image(dir.path(), "pmem");
    let path = image.to_str().expect("text");
    let device = serve(path);
    let socket = format!("{path}.sock");
    for verb in ["scrub", "fsck"] {
        for place in [path, &socket] {
            let out = weldfs(&[verb, place]);
            let text = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(code(&out) == 8 && text.contains(&format!("being served at {socket};")), "{text}");
        }
    }
    device.kill();
}

#[test]
fn fsck_repairs_superblock_copies_of_an_image_that_is_sound_otherwise() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = image(dir.path(), "pmem");
    let path = image.to_str().expect("text");
    let end = fs::metadata(&image).expect("there").len();
    for copy in [0, 8 * 4096, end - 4096] {
        flip(&image, [copy + 130]);
        let before = fs::read(&image).expect("readable");
        assert_eq!(code(&weldfs(&["scrub", path])), 4);
        let out = weldfs(&["fsck", path]);
        assert!(code(&out) == 0 && String::from_utf8_lossy(&out.stdout).contains("warning: superblock copy"));
        assert!(fs::read(&image).expect("readable") == before, "not unless told to");
        let out = weldfs(&["fsck", "-y", "--json", path]);
        assert_eq!((code(&out), json(&out)["repaired_superblock_copies"].as_u64()), (1, Some(1)));
        assert_eq!((code(&weldfs(&["scrub", path])), code(&weldfs(&["fsck", "-y", path]))), (0, 0));
    }
    damage(&image);
    flip(&image, [8 * 4096 + 130]);
    let before = fs::read(&image).expect("readable");
    assert_eq!(code(&weldfs(&["fsck", "-y", "--data", path])), 4);
    assert!(fs::read(&image).expect("readable") == before, "of a damaged image nothing is overwritten");
}

#[test]
fn fsck_prints_how_many_transactions_were_seen_and_replayed() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = image(dir.path(), "pmem");
    let path = image.to_str().expect("text");
    let device = serve(path);
    let file = weldfs::OpenOptions::new().write(true).create(true).open(&device.1, "/fused").expect("opens");
    let steps = file.raw().mode(weldfs::TxnMode::Micro);
    steps.append_checksum_write(file.handle(), &[7; 9000][..]).expect("appends");
    device.1.sync().expect("durable");
    device.kill();
    let out = weldfs(&["fsck", path]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let report = json(&weldfs(&["fsck", "--json", path]));
    assert_eq!(
        (report["recovery"]["txns_seen"].as_u64(), report["recovery"]["txns_replayed"].as_u64()),
        (Some(1), Some(1))
    );
    assert!(text.contains("1 transactions of several records seen: 1 replayed to their end, 0 finished"), "{text}");
}

#[test]
fn cat_prints_what_is_before_the_damage_and_says_at_which_byte_it_is() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = image(dir.path(), "pmem");
    let path = image.to_str().expect("text");
    damage(&image);
    let check = || {
        let out = weldfs(&["cat", &format!("{path}:/d/file")]);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(text.contains(&format!("cannot read {path}:/d/file at byte 307200: ")), "{text}");
        assert!(code(&out) == 1 && out.stdout == content()[..300 * 1024]);
    };
    check();
    let device = serve(path);
    check();
    device.kill();
}

#[test]
fn superblock_copies_that_are_gone_are_damage_to_fsck_and_scrub_alike_until_fsck_puts_them_right() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = image(dir.path(), "block");
    let path = image.to_str().expect("text");
    let end = fs::metadata(&image).expect("there").len();
    let file = fs::OpenOptions::new().write(true).open(&image).expect("writable");
    for copy in [8 * 4096, end - 4096] {
        file.write_all_at(&[0; 4096], copy).expect("writes");
    }
    assert_eq!((code(&weldfs(&["fsck", path])), code(&weldfs(&["scrub", path]))), (4, 4));
    let out = weldfs(&["fsck", "-y", "--json", path]);
    assert_eq!((code(&out), json(&out)["repaired_superblock_copies"].as_u64()), (1, Some(2)));
    assert_eq!((code(&weldfs(&["fsck", path])), code(&weldfs(&["scrub", path]))), (0, 0));
}

#[test]
fn info_says_of_a_truncated_log_image_what_all_say_and_the_last_copy_alone_is_enough_for_all() {
    let dir = tempfile::tempdir().expect("a folder");
    let image = image(dir.path(), "block");
    let path = image.to_str().expect("text");
    let end = fs::metadata(&image).expect("there").len();
    let file = fs::OpenOptions::new().write(true).open(&image).expect("writable");
    file.set_len(end - 4096).expect("shorter");
    let said = |args: &[&str]| String::from_utf8_lossy(&weldfs(args).stderr).into_owned();
    let truncated = "truncated image: the file system has 50331648 bytes, the medium only 50327552";
    for args in [&["info", path][..], &["info", "--log", path], &["fsck", path], &["scrub", path]] {
        assert!(said(args).contains(truncated), "{args:?}: {}", said(args));
    }
    file.set_len(end).expect("longer");
    assert_eq!(code(&weldfs(&["fsck", "-y", path])), 1);
    file.set_len(end + (1 << 20)).expect("longer");
    for copy in [0, 8 * 4096] {
        file.write_all_at(&[0; 4096], copy).expect("writes");
    }
    let inside = format!("{path}:/d");
    for args in [&["info", path][..], &["info", "--log", path], &["ls", &inside]] {
        assert_eq!(code(&weldfs(args)), 0, "{args:?}: {}", said(args));
    }
}

#[test]
fn a_fifo_is_no_image_and_keeps_no_verb_waiting() {
    let dir = tempfile::tempdir().expect("a folder");
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let path = fifo.to_str().expect("text");
    let inside = format!("{path}:/");
    let verbs = [&["info", path][..], &["info", "--log", path], &["fsck", path], &["scrub", path], &["ls", &inside]];
    for args in verbs.into_iter().chain([&["serve", path][..], &["mkfs", "--force", "--size=4M", path]]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        let mut child = command.args(args).stderr(std::process::Stdio::piped()).spawn().expect("runs");
        let start = std::time::Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            if start.elapsed().as_secs() > 20 {
                let _ = child.kill();
                panic!("{args:?} waits for a writer");
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        let mut text = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().expect("a pipe"), &mut text).expect("text");
        assert!(!status.success() && text.contains("neither a file nor a block device"), "{args:?}: {text}");
    }
}

#[test]
fn no_damaged_page_of_a_tree_hides_a_name_from_a_verb_that_ends_well() {
    let dir = tempfile::tempdir().expect("a folder");
    let (image, bad, tree) = (dir.path().join("a.img"), dir.path().join("b.img"), dir.path().join("d"));
    fs::create_dir(&tree).expect("a folder");
    for i in 0..300 {
        fs::write(tree.join(format!("{i}-{}", "x".repeat(60))), b"content").expect("a file");
    }
    let (path, at_bad) = (image.to_str().expect("text"), format!("{}:/d", bad.display()));
    assert!(weldfs(&["mkfs", path, "--size=8M"]).status.success());
    assert!(weldfs(&["put", tree.to_str().expect("text"), &format!("{path}:/")]).status.success());
    let bytes = fs::read(&image).expect("readable");
    let to = dir.path().join("out");
    let verbs = [
        &["ls", &at_bad][..],
        &["find", &at_bad],
        &["du", "-a", &at_bad],
        &["get", &at_bad, to.to_str().expect("text")],
        &["rm", "-r", &at_bad],
    ];
    fs::write(&bad, &bytes).expect("a copy");
    let whole: Vec<Output> = verbs.iter().map(|args| weldfs(args)).collect();
    assert!(whole.iter().all(|out| code(out) == 0), "{whole:?}");
    let (mut refused, mut named) = (0, 0);
    for page in (0..bytes.len()).step_by(4096).filter(|at| bytes[*at..].starts_with(b"WFpg")) {
        let mut damaged = bytes.clone();
        damaged[page + 100] ^= 1;
        for (args, whole) in verbs.iter().zip(&whole) {
            fs::write(&bad, &damaged).expect("a copy");
            let _ = fs::remove_dir_all(&to);
            let out = weldfs(args);
            if code(&out) == 0 {
                assert!(out.stdout == whole.stdout, "{args:?}, page at {page}: names are missing");
                let got = || fs::read_dir(&to).expect("it was copied").count();
                assert!(args[0] != "get" || got() == 300, "{args:?}, page at {page}");
                continue;
            }
            refused += 1;
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(said.contains("b.img"), "{args:?}: {said}");
            named += usize::from(said.contains("b.img:/d"));
        }
    }
    assert!(refused > 8 && named > 4, "{refused} refused, {named} named");
}
