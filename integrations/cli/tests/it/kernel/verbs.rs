//! `new`, `test` and `run`: what they write, find and say.

use crate::images::{json, weldfs};
use crate::skips;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `weldfs kernel` in a folder, with standard input.
fn kernel(dir: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    command.arg("kernel").args(args).current_dir(dir);
    // The system's Python before wrappers of it that take ten times as long to start: it starts for every packet.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("/usr/bin:{path}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut to = child.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        // It need not read what it refuses; and it writes before it has read everything.
        scope.spawn(move || {
            let _ = to.write_all(input);
        });
        child.wait_with_output().expect("it ends")
    })
}

fn code(out: &Output) -> (Option<i32>, String) {
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

fn good(out: &Output) -> String {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Whether what a kernel in C++ is built with is here; else the test is skipped.
fn cpp(test: &str) -> bool {
    let has = |tool: &str| Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok();
    let missing = ["make", "c++", "python3"].into_iter().find(|tool| !has(tool));
    if let Some(missing) = missing {
        skips::skip(test, &format!("{missing} is not installed"));
    }
    missing.is_none()
}

/// A new kernel in C++ in which `from` has become `to`.
fn changed(dir: &Path, from: &str, to: &str) {
    good(&kernel(dir, &["new", "k", "--hls"], b""));
    let file = dir.join("k/hls/weld_k.cpp");
    let text = fs::read_to_string(&file).expect("the kernel");
    assert!(text.contains(from), "{from}");
    fs::write(&file, text.replace(from, to)).expect("written");
}

#[test]
fn a_new_kernel_is_a_folder_of_its_own_and_nothing_is_overwritten() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    for (kind, source) in [("--rtl", "rtl/weld_a_b.v"), ("--hls", "hls/weld_a_b.cpp"), ("--rust", "src/lib.rs")] {
        let made = json(&good(&kernel(at, &["new", "a-b", kind, "--dir", "x/y", "--json"], b"")));
        assert_eq!((&made["name"], &made["path"]), (&"a-b".into(), &"x/y/a-b".into()));
        let folder = at.join("x/y/a-b");
        for file in [source, "kernel.toml", "Makefile", "README.md", "tests/reference", "tests/vectors/hello.in"] {
            let text = fs::read_to_string(folder.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
            assert!(!["@NAME@", "@TOP@", "@ID@", "@BACKEND@"].iter().any(|mark| text.contains(mark)), "{file}");
        }
        let manifest = fs::read_to_string(folder.join("kernel.toml")).expect("a manifest");
        assert!(manifest.contains(made["kernel_id"].as_str().expect("an id")), "{manifest}");
        let (exit, said) = code(&kernel(at, &["new", "a-b", kind, "--dir", "x/y"], b""));
        assert!(exit == Some(1) && said.contains("File exists"), "{said}");
        fs::remove_dir_all(&folder).expect("removed");
    }
    for name in ["A", "1a", "-a", "a_b", "a-", "", &"a".repeat(32)] {
        let (exit, _) = code(&weldfs(["kernel", "new", "--rtl", "--dir", at.to_str().expect("text"), "--", name]));
        assert_eq!(exit, Some(2), "{name}");
    }
    assert_eq!(code(&kernel(at, &["new", "a"], b"")).0, Some(2), "a language is needed");
    assert_eq!(code(&kernel(at, &["new", "a", "--rtl", "--hls"], b"")).0, Some(2), "one language");
}

#[test]
fn a_kernel_that_comes_with_the_program_runs_on_standard_input() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = kernel(dir.path(), &["run", "grep", "--param", "text:error"], b"fine\nan error\nerror\n");
    assert_eq!(good(&out).len(), 16, "a row and a column of each of two lines");
    assert_eq!(out.stdout, [1, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(code(&out).1, "20 bytes in, 16 bytes out, 1 cycles: 0.004 us at 250 MHz\n");
    let packet: Vec<u8> = (0..1_000_000).map(|i: u32| (i % 251) as u8).collect();
    assert!(kernel(dir.path(), &["run", "pass-through"], &packet).stdout == packet);
    let (exit, said) = code(&kernel(dir.path(), &["run", "grep"], b"x"));
    assert!(exit == Some(1) && said.contains("parameters"), "{said}");
    let (exit, said) = code(&kernel(dir.path(), &["run", "no-such"], b""));
    assert!(exit == Some(1) && said.contains("no kernel of this name"), "{said}");
    let (exit, said) = code(&kernel(dir.path(), &["run", "grep", "--back-end", "rtl"], b""));
    assert!(exit == Some(1) && said.contains("as a model alone"), "{said}");
    // A chain of the catalogue, and one of a folder: of kernels that come with the program, and of others.
    let text: String = (0..5_000).map(|row| if row % 1_000 == 7 { "needle\n" } else { "nothing\n" }).collect();
    let frame = kernel(dir.path(), &["run", "lz4", "--param", "0"], text.as_bytes()).stdout;
    assert!(!frame.is_empty() && frame.len() * 10 < text.len());
    let found = kernel(dir.path(), &["run", "lz4-grep", "--param", "text:needle"], &frame);
    let rows = [7u32, 1007, 2007, 3007, 4007].into_iter().flat_map(|row| [row.to_le_bytes(), [0; 4]].concat());
    assert!(found.status.success() && found.stdout == rows.collect::<Vec<u8>>(), "{}", code(&found).1);
    let manifest = "name = \"twice\"\nid = \"0123456789abcdef0123456789abcde1\"\nversion = \"1.0.0\"\n\
         licence = \"Apache-2.0\"\nabout = \"Runs of runs\"\nclock_mhz = 250\ncycles_per_flit = 1.0\n\
         region = { lut = 130000, ff = 30000, bram = 0, dsp = 0 }\n[backend.model]\n\
         chain = [{ kernel = \"rle\", params = [] }, { kernel = \"rle:model\" }]\n";
    std::fs::create_dir(dir.path().join("twice")).expect("a folder");
    std::fs::write(dir.path().join("twice/kernel.toml"), manifest).expect("written");
    assert_eq!(good(&kernel(dir.path(), &["run", "twice"], b"\x01\x03\x01z")), "zzz");
    let (exit, said) = code(&kernel(dir.path(), &["test", "twice"], b""));
    assert!(exit == Some(1) && said.contains("twice is a chain of other kernels"), "{said}");
    std::fs::write(dir.path().join("twice/kernel.toml"), manifest.replace("rle:model", "mine")).expect("written");
    let (exit, said) = code(&kernel(dir.path(), &["run", "twice"], b""));
    assert!(exit == Some(1) && said.contains("its stage mine does not come with this program"), "{said}");
    assert_eq!(code(&kernel(dir.path(), &["run", "grep", "--param", "x"], b"")).0, Some(2));
}

#[test]
fn a_kernel_in_cpp_agrees_with_its_reference_and_runs() {
    if !cpp("a_kernel_in_cpp_agrees_with_its_reference_and_runs") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    good(&kernel(dir.path(), &["new", "k", "--hls"], b""));
    let report = json(&good(&kernel(dir.path(), &["test", "k", "--json", "--cases", "10", "--seed", "3"], b"")));
    assert_eq!((&report["cases"], &report["differs"]), (&142.into(), &false.into()), "{report}");
    let out = kernel(dir.path(), &["run", "k", "--param", "1"], b"LOUD and 1 Quiet");
    assert_eq!(good(&out), "loud and 1 quiet");
    assert!(code(&out).1.ends_with("changed = 5\n"), "{}", code(&out).1);
    let (exit, said) = code(&kernel(dir.path(), &["run", "k", "--param", "7"], b""));
    assert!(exit == Some(1) && said.contains("parameters"), "{said}");
    let (exit, said) = code(&kernel(dir.path(), &["test", "k", "--back-end", "rtl"], b""));
    assert!(exit == Some(1) && said.contains("does not have the back-end rtl"), "{said}");
}

#[test]
fn the_smallest_case_that_fails_is_shown_and_kept() {
    if !cpp("the_smallest_case_that_fails_is_shown_and_kept") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    // The 66th byte of a packet comes out wrong.
    changed(
        dir.path(),
        "        pack(bytes, f.data);",
        "        if (flits_++ == 1 && f.len > 1)\n            bytes[1] = '!';\n\
             if (f.eop)\n            flits_ = 0;\n        pack(bytes, f.data);",
    );
    let file = dir.path().join("k/hls/weld_k.cpp");
    let text = fs::read_to_string(&file).expect("the kernel");
    fs::write(&file, text.replace("  private:", "  private:\n    unsigned flits_ = 0;")).expect("written");
    let out = kernel(dir.path(), &["test", "k", "--json"], b"");
    let (exit, said) = code(&out);
    assert_eq!(exit, Some(1), "{said}");
    assert_eq!(json(&String::from_utf8_lossy(&out.stdout))["differs"], true);
    assert!(said.contains("  packet       66 bytes") && said.contains("  differ from  byte 65"), "{said}");
    assert!(!said.contains("  stalls") && !said.contains("  cut") && !said.contains("  before"), "{said}");
    assert_eq!(fs::read(dir.path().join("k/build/failure.in")).expect("kept").len(), 66);
    assert_eq!(fs::read(dir.path().join("k/build/failure.got")).expect("kept")[65], b'!');
}

#[test]
fn what_a_reset_does_not_clear_is_found() {
    if !cpp("what_a_reset_does_not_clear_is_found") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    // Statics live as long as the process: a packet of a hundred bytes spoils all that follow it.
    changed(
        dir.path(),
        "        pack(bytes, f.data);",
        "        static bool spoilt = false;\n        if (spoilt && f.len > 0)\n\
             bytes[0] = '?';\n        spoilt |= f.eop && f.len == 100 - 64;\n        pack(bytes, f.data);",
    );
    let (exit, said) = code(&kernel(dir.path(), &["test", "k"], b""));
    assert!(exit == Some(1) && said.contains("does something stay that a reset should clear?"), "{said}");
}

#[test]
fn kernels_that_crash_or_hang_are_sentences() {
    if !cpp("kernels_that_crash_or_hang_are_sentences") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let bad = "        if (bytes[0] == 'C')\n            __builtin_trap();\n        while (bytes[0] == 'H')\n\
               asm volatile(\"\");\n        pack(bytes, f.data);";
    changed(dir.path(), "        pack(bytes, f.data);", bad);
    for (input, says) in [(&b"Crash"[..], "its process ended: signal: 4"), (b"Hang", "no progress")] {
        let (exit, said) = code(&kernel(dir.path(), &["run", "k", "--param", "0"], input));
        assert!(exit == Some(1) && said.contains(says), "{said}");
    }
    assert_eq!(good(&kernel(dir.path(), &["run", "k", "--param", "0"], b"fine")), "FINE");
}

#[test]
fn what_is_wrong_with_a_package_is_a_sentence() {
    if !cpp("what_is_wrong_with_a_package_is_a_sentence") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    let says = |says: &str| {
        let (exit, said) = code(&kernel(at, &["test", "k"], b""));
        assert!(exit == Some(1) && said.contains(says), "{said}");
    };
    says("k");
    changed(at, "f.len", "f.length");
    says("make hls failed");
    fs::remove_dir_all(at.join("k")).expect("removed");
    good(&kernel(at, &["new", "k", "--hls"], b""));
    let reference = at.join("k/tests/reference");
    fs::write(&reference, "#!/bin/sh\necho no idea >&2; exit 1\n").expect("written");
    says("no idea");
    fs::write(&reference, "#!/bin/sh\ncat\n").expect("written");
    says("hello.in");
    fs::write(&reference, "#!/nowhere\n").expect("written");
    says("is the interpreter of its first line installed?");
    fs::remove_file(&reference).expect("removed");
    says("cannot find the reference");
    fs::write(at.join("k/tests/params"), "1 x\n").expect("written");
    fs::write(&reference, "").expect("written");
    says("'x' is no parameter");
    fs::write(at.join("k/kernel.toml"), "name = 1\n").expect("written");
    says("kernel.toml");
}

#[test]
fn cards_are_listed_where_there_are_none() {
    let found = json(&good(&weldfs(["kernel", "cards", "--json"])));
    let cards = found["cards"].as_array().expect("a list");
    let said = good(&weldfs(["kernel", "cards"]));
    assert_eq!(cards.is_empty(), said.contains("no card"), "{said}");
}
