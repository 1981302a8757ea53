//! `docs/TUTORIAL.md` is true: its commands run in their order, and print what the page says they print.

use super::{ok, path, prefix, python, root};
use crate::skips;
use std::process::{Command, Stdio};

/// A block of commands, and the lines that it must print.
pub(super) struct Block {
    pub line: usize,
    pub commands: String,
    pub prints: Option<String>,
}

/// The fenced blocks of a page: `sh` ones, each with the `text` block behind it.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        let body = body.join("\n") + "\n";
        match (kind, all.last_mut()) {
            ("sh", _) => all.push(Block { line: at + 1, commands: body, prints: None }),
            ("text", Some(last)) if last.prints.is_none() => last.prints = Some(body),
            (other, _) => panic!("line {}: a block of {other:?} that no test runs", at + 1),
        }
    }
    all
}

#[test]
fn blocks_are_found_with_their_output() {
    let found = blocks("a\n```sh\nx\ny\n```\nb\n```text\nz\n```\n```sh\nw\n```\n");
    let shown: Vec<_> = found.iter().map(|b| (b.line, b.commands.as_str(), b.prints.as_deref())).collect();
    assert_eq!(shown, [(2, "x\ny\n", Some("z\n")), (10, "w\n", None)]);
}

#[test]
fn every_command_of_the_tutorial_works_and_prints_what_the_page_says() {
    // Without what pip needs from the network the page cannot be followed.
    if let Err(why) = python::environment() {
        skips::skip("every_command_of_the_tutorial_works_and_prints_what_the_page_says", &why);
        return;
    }
    let page = std::fs::read_to_string(root().join("docs/TUTORIAL.md")).expect("the page");
    let blocks = blocks(&page);
    assert!(blocks.len() >= 10, "{} blocks", blocks.len());
    // One shell for all blocks, as for the reader; a mark behind each, by which its output is found.
    let mut script = String::from("set -eu\n");
    for block in &blocks {
        script += &format!("{}echo '== {}'\n", block.commands, block.line);
    }
    let home = tempfile::tempdir().expect("a temporary folder");
    // The checkout, as far as the page uses it: pip builds where the source is.
    let checkout = home.path().join("checkout");
    std::fs::create_dir_all(checkout.join("bindings")).expect("a folder");
    ok(Command::new("cp").arg("-r").arg(root().join("bindings/python")).arg(checkout.join("bindings/python")));
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(&script).current_dir(&checkout).env("HOME", home.path()).env("PATH", path());
    shell.env("WELDFS_LIBRARY", prefix().join("lib/libweldfs.so.0")).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    let output = shell.stdin(Stdio::null()).output().expect("bash runs");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Where it ended early, no device may be left over: bash has ended without its children.
    stop(home.path());
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    let mut rest = said.as_ref();
    for block in &blocks {
        let (printed, behind) = rest.split_once(&format!("== {}\n", block.line)).expect("its mark");
        rest = behind;
        assert_eq!(printed, block.prints.as_deref().unwrap_or_default(), "line {}", block.line);
    }
}

/// Ends the device of a page that did not come to its end: the process that has the image open.
fn stop(home: &std::path::Path) {
    let image = home.join("weldfs-tutorial/disk.img");
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let files = std::fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        if files.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|target| target == image) {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}
