//! The programs in `examples/`, as their page says to run them. Those in Rust are tested where they are built, the log
//! in C with the C library.

use super::{Device, ok, path, prefix, root, text};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What every `transfer` prints, but for the step that the shell is not told.
fn transferred(said: &str) {
    let lines: Vec<&str> = said.lines().map(|line| line.split(',').next().unwrap_or_default()).collect();
    assert_eq!(lines, ["40: 60 left", "60: 0 left", "80: not enough", "alice 0"], "{said}");
    assert!(said.ends_with("alice 0, bob 120\n"), "{said}");
}

/// Compiles an example in C as the page says.
fn compile(name: &str) -> PathBuf {
    let program = prefix().join(name);
    let mut config = Command::new("pkg-config");
    config.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(["--cflags", "--libs", "weldfs"]);
    let flags = text(&ok(&mut config));
    let source = root().join("examples/c").join(format!("{name}.c"));
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-std=c11"]).arg(source).arg("-o").arg(&program);
    ok(cc.args(flags.split_whitespace()));
    program
}

#[test]
fn the_transfer_in_c_moves_all_or_nothing() {
    let device = Device::in_memory(&[]);
    let mut run = Command::new(compile("transfer"));
    run.env("LD_LIBRARY_PATH", prefix().join("lib")).arg(device.socket());
    transferred(&text(&ok(run.arg(root().join("examples/programs/transfer.txt")))));
}

/// Twice: the second time finds what the first one made.
#[test]
fn the_search_in_c_reads_matches_from_a_virtual_file() {
    let device = Device::in_memory(&[]);
    let search = compile("search");
    for _ in 0..2 {
        let mut run = Command::new(&search);
        run.env("LD_LIBRARY_PATH", prefix().join("lib")).arg(device.socket());
        assert_eq!(text(&ok(&mut run)), "first: line 7, column 14\n20 matches in 20000 lines\n");
    }
}

fn shell(name: &str, device: &Path, arguments: &[&str]) -> Command {
    let mut run = Command::new("sh");
    run.arg(root().join("examples/shell").join(name)).arg(device).args(arguments).env("PATH", path());
    run
}

#[test]
fn the_transfer_in_shell_runs_on_a_device_and_on_an_image() {
    let device = Device::in_memory(&[]);
    transferred(&text(&ok(&mut shell("transfer.sh", &device.socket(), &[]))));
    let dir = tempfile::tempdir().expect("a temporary folder");
    let image = dir.path().join("disk.img");
    ok(Command::new(env!("CARGO_BIN_EXE_weldfs")).arg("mkfs").arg(&image).args(["--size", "48M"]));
    transferred(&text(&ok(&mut shell("transfer.sh", &image, &[]))));
}

#[test]
fn the_log_in_shell_appends_and_finds_what_was_damaged() {
    let device = Device::in_memory(&[]);
    let socket = device.socket();
    let records = ["the first record", "another one", "x"];
    let append = |record: &str| text(&ok(&mut shell("log.sh", &socket, &["append", record]))).trim().to_owned();
    let places = records.map(append);
    assert_eq!(places, ["0", "20", "35"]);
    let sound = |at: &str, record: &str| {
        let length = record.len().to_string();
        shell("log.sh", &socket, &["check", at, &length]).output().expect("runs").status.success()
    };
    for (at, record) in places.iter().zip(records) {
        assert!(sound(at, record), "{record}");
    }
    let client = weldfs::Client::connect(&socket).expect("attaches");
    let log = client.open("/log", &weldfs::OpenOptions::new().write(true)).expect("opens");
    log.write_all_at(b"?", 22).expect("writes");
    let verdicts: Vec<bool> = places.iter().zip(records).map(|(at, record)| sound(at, record)).collect();
    assert_eq!(verdicts, [true, false, true]);
}

#[test]
fn every_example_is_on_its_page_and_every_name_of_the_page_is_there() {
    let examples = root().join("examples");
    let page = std::fs::read_to_string(examples.join("README.md")).expect("the page");
    for folder in ["c", "rust/src/bin", "python", "shell", "programs"] {
        for entry in std::fs::read_dir(examples.join(folder)).expect(folder) {
            let name = entry.expect("an entry").file_name();
            let name = format!("{folder}/{}", name.to_str().expect("a name"));
            assert!(name.contains("__pycache__") || page.contains(&format!("({name})")), "{name} is not on the page");
        }
    }
    for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(examples.join(link).exists(), "{link} is not there");
    }
}

/// Rows that Python's examples print; called by the test that has made the environment.
pub(super) fn python(interpreter: &Path, environment: &[(&str, PathBuf)]) {
    let device = Device::in_memory(&[]);
    let run = |name: &str, arguments: &[&Path]| {
        let mut run = Command::new(interpreter);
        run.arg(root().join("examples/python").join(name)).arg(device.socket()).args(arguments);
        run.env("PYTHONDONTWRITEBYTECODE", "1").envs(environment.iter().map(|(key, value)| (key, value)));
        text(&ok(&mut run))
    };
    assert_eq!(run("log.py", &[]), "1000 records, all sound\ndamaged: [500]\n");
    transferred(&run("transfer.py", &[&root().join("examples/programs/transfer.txt")]));
    let said =
        "first: line 7, column 14\n20 matches in 20000 lines\nless than 1 % of the text crossed the link: True\n";
    assert_eq!(run("search.py", &[]), said);
    assert_eq!(run("table.py", &[]), "found: /tables/rain.csv.gz\nrain: 193 mm\n");
}
