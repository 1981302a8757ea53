//! `docs/KERNELS.md` is true: its commands run in their order, and print what the page says they print.

use super::root;
use super::tutorial::blocks;
use crate::skips;
use std::path::Path;
use std::process::{Command, Stdio};

const NAME: &str = "every_command_of_the_kernels_page_works_and_prints_what_the_page_says";

/// Cycles, and the time that is made of them, are those of one build: the page shows some.
fn without_cycles(text: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    let words: Vec<&str> = text.split_inclusive(char::is_whitespace).collect();
    for (i, word) in words.iter().enumerate() {
        let next = words.get(i + 1).map_or("", |w| w.trim());
        let counted = next.starts_with("cycles") || next == "us";
        out.push(if counted { "N " } else { word });
    }
    out.concat()
}

#[test]
fn cycles_are_not_compared_and_all_else_is() {
    assert_eq!(
        without_cycles("3 bytes in, 12 cycles: 0.048 us at 250 MHz\n"),
        "3 bytes in, N cycles: N us at 250 MHz\n"
    );
}

fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

#[test]
#[ignore = "needs Verilator and a minute: `./test kernel-tutorial`"]
fn every_command_of_the_kernels_page_works_and_prints_what_the_page_says() {
    if let Some(missing) = ["make", "verilator", "c++", "python3", "cargo"].into_iter().find(|tool| !has(tool)) {
        return skips::skip(NAME, &format!("{missing} is not installed"));
    }
    let page = std::fs::read_to_string(root().join("docs/KERNELS.md")).expect("the page");
    let blocks = blocks(&page);
    assert!(blocks.len() >= 10, "{} blocks", blocks.len());
    // One shell for all blocks, as for the reader; a mark behind each, by which its output is found.
    let mut script = String::from("set -eu\nexec 2>&1\n");
    for block in &blocks {
        script += &format!("{}echo '== {}'\n", block.commands, block.line);
    }
    let home = tempfile::tempdir().expect("a temporary folder");
    let bin = home.path().join("bin");
    std::fs::create_dir(&bin).expect("a folder");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weldfs"), bin.join("weldfs")).expect("a link");
    let rest = std::env::var_os("PATH").unwrap_or_default();
    // The system's Python before wrappers of it that take ten times as long to start: it starts for every packet.
    let first = [bin, "/usr/bin".into()];
    let path = std::env::join_paths(first.into_iter().chain(std::env::split_paths(&rest))).expect("a PATH");
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(&script).current_dir(home.path()).env("PATH", path);
    let output = shell.stdin(Stdio::null()).output().expect("bash runs");
    let said = String::from_utf8_lossy(&output.stdout);
    // Where it ended early, no device may be left over: bash has ended without its children.
    stop(home.path());
    assert!(output.status.success(), "{}\n{said}", output.status);
    let mut rest = said.as_ref();
    for block in &blocks {
        let (printed, behind) = rest.split_once(&format!("== {}\n", block.line)).expect("its mark");
        rest = behind;
        let expected = block.prints.as_deref().unwrap_or_default();
        assert_eq!(without_cycles(printed), without_cycles(expected), "line {}", block.line);
    }
}

#[test]
#[ignore = "needs Verilator and a minute: `./test kernel-tutorial`"]
fn a_kernel_that_leaves_the_cards_memory_or_changes_a_request_fails() {
    const NAME: &str = "a_kernel_that_leaves_the_cards_memory_or_changes_a_request_fails";
    if let Some(missing) = ["make", "verilator", "c++", "python3"].into_iter().find(|tool| !has(tool)) {
        return skips::skip(NAME, &format!("{missing} is not installed"));
    }
    let home = tempfile::tempdir().expect("a temporary folder");
    let weldfs = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        command.arg("kernel").args(args).current_dir(home.path()).stdin(Stdio::null()).output().expect("it ran")
    };
    assert!(weldfs(&["new", "keep", "--rtl", "--dram"]).status.success());
    let file = home.path().join("keep/rtl/weld_keep.v");
    let text = std::fs::read_to_string(&file).expect("the kernel");
    for (from, to) in [
        // The first flit behind the 16 MiB of the manifest.
        ("assign q_addr = filling ? kept", "assign q_addr = filling ? kept + FLITS"),
        // Every other cycle it asks for nothing, whether or not its request was taken.
        ("asked != kept);", "asked != kept && odd); reg odd; always @(posedge clk) odd <= !odd && !rst;"),
    ] {
        assert!(text.contains(from));
        std::fs::write(&file, text.replace(from, to)).expect("written");
        let tested = weldfs(&["test", "keep", "--cases", "8"]);
        let said = String::from_utf8_lossy(&tested.stdout).into_owned() + &String::from_utf8_lossy(&tested.stderr);
        assert_eq!(tested.status.code(), Some(1), "{said}");
        assert!(said.contains("it says error 5"), "{said}");
    }
}

/// Ends the device, if it has not ended.
fn stop(home: &Path) {
    let image = home.join("disk.img");
    let _ = Command::new(env!("CARGO_BIN_EXE_weldfs")).arg("stop").arg(image).stderr(Stdio::null()).status();
}
