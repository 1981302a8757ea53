//! The public suites once more, under the preload library: what a mount is compared with, and what works without one.

use crate::rig::{Place, usable, weldfs};
use crate::suites::{config, suite};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Operations of fsx, over all of its runs.
const FSX_OPS: u64 = 1_000_000;
/// Operations of the first run, and of every other.
const FSX_FIRST: u64 = 5_000;
const FSX_RUN: u64 = 25_000;

/// Operations of one run where mappings are the kernel's (`FSX_RUN` of the suites), and how many fewer there are.
const FSX_MAPPED_RUN: u64 = 5_000;
const FSX_MAPPED_PART: u64 = 10;

/// `weldfs run --image IMAGE -- ...`; what it says. The image must be clean after it.
fn under_the_library(place: &Place, mount: &str, program: &mut dyn FnMut(&mut Command)) -> Output {
    let mut command = weldfs(["run", "--mount", mount, "--image"]);
    command.arg(place.image()).arg("--").current_dir("/").stdin(Stdio::null()).env_remove("WELDFS_REPORT");
    program(&mut command);
    let output = command.output().expect("runs");
    place.is_clean();
    output
}

/// How much fsx does.
struct Amount {
    total: u64,
    first: u64,
    run: u64,
}

/// The first run is on an image, which must be clean after it; the rest in memory, where fsync(2) waits for no disk.
fn fsx_finds_nothing(program: &Path, mount: &str, settings: &str, amount: &Amount) {
    let place = Place::new("128M");
    let (mut seed, mut done) = (u64::from(std::process::id()), 0);
    while done < amount.total {
        let count = if done == 0 { amount.first } else { amount.run }.min(amount.total - done);
        let mut fsx = |command: &mut Command| {
            command.arg(program).arg("-f").arg(config(settings));
            command
                .args(["-N", &count.to_string(), "-S", &seed.to_string(), "-P"])
                .arg(place.path(""))
                .arg("/weld/file");
        };
        let output = if done == 0 {
            under_the_library(&place, mount, &mut fsx)
        } else {
            let mut command = weldfs(["run", "--mount", mount, "--ram", "128M", "--"]);
            command.current_dir("/").stdin(Stdio::null()).env_remove("WELDFS_REPORT");
            fsx(&mut command);
            command.output().expect("runs")
        };
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&said));
        (seed, done) = (seed + 1, done + count);
    }
}

fn fsx_ops() -> u64 {
    std::env::var("WELDFS_FSX_OPS").map_or(FSX_OPS, |n| n.parse().expect("WELDFS_FSX_OPS is a number"))
}

#[test]
fn fsx_finds_nothing_under_the_preload_library() {
    let Some(program) = suite("fsx_finds_nothing_under_the_preload_library", "fsx") else { return };
    let amount = Amount { total: fsx_ops(), first: FSX_FIRST, run: FSX_RUN };
    fsx_finds_nothing(&program, "never", "fsx-preload.toml", &amount);
}

/// With every operation: what is mapped is read and written through the library's calls, too.
#[test]
fn fsx_finds_nothing_where_the_kernel_maps_what_the_library_reads_and_writes() {
    let test = "fsx_finds_nothing_where_the_kernel_maps_what_the_library_reads_and_writes";
    if !usable(test) {
        return;
    }
    let Some(program) = suite(test, "fsx") else { return };
    let amount = Amount { total: fsx_ops() / FSX_MAPPED_PART, first: FSX_MAPPED_RUN, run: FSX_MAPPED_RUN };
    fsx_finds_nothing(&program, "always", "fsx.toml", &amount);
}

/// The names of a list in a file like pjdfstest.toml.
fn listed(text: &str, list: &str) -> BTreeSet<String> {
    let start = text.find(&format!("\n{list} = [")).expect("the list");
    let names = text[start..].lines().skip(2).take_while(|line| *line != "]");
    let names = names.filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","));
    names.map(str::to_owned).collect()
}

/// The cases that end so.
fn cases(said: &str, end: &str) -> BTreeSet<String> {
    let ends = said.lines().filter(|line| line.ends_with(end));
    ends.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn pjdfstest_holds_under_the_preload_library_but_for_what_is_named() {
    let test = "pjdfstest_holds_under_the_preload_library_but_for_what_is_named";
    if !rustix::process::geteuid().is_root() {
        return crate::skips::skip(test, "pjdfstest needs root");
    }
    let Some(program) = suite(test, "pjdfstest") else { return };
    let read = |name: &str| std::fs::read_to_string(config(name)).expect("read");
    let (mount, own) = (read("pjdfstest.toml"), read("pjdfstest-preload.toml"));
    let skipped = listed(&own, "skipped");
    let mut failing = listed(&mount, "expected_failures");
    failing.retain(|name| !skipped.contains(name));
    failing.extend(listed(&own, "expected_failures"));
    let (head, rest) = mount.split_once("expected_failures = [").expect("the list");
    let (_, tail) = rest.split_once("\n]").expect("its end");
    let place = Place::new("256M");
    let (file, second) = (place.path("pjdfstest.toml"), place.path("second"));
    let head = head.replace("allow_remount = true", "allow_remount = false");
    let names: Vec<String> = failing.into_iter().collect();
    std::fs::write(&file, format!("{head}expected_failures = {names:?}{tail}")).expect("write");
    std::fs::create_dir(&second).expect("mkdir");
    let output = under_the_library(&place, "never", &mut |command| {
        command.args(["sh", "-c", "mkdir -p /weld/suite && exec \"$@\"", "sh"]).arg(&program);
        command.arg("-c").arg(&file).arg("-s").arg(&second).args(["-p", "/weld/suite"]);
    });
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let summary = said.lines().find(|line| line.contains("total")).unwrap_or_default();
    let wrong: Vec<&str> =
        said.lines().filter(|line| line.ends_with("FAILED") || line.contains("UNEXPECTEDLY")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{said}\n{errors}");
    assert!(output.status.success() && summary.contains("Summary: 0 failed"), "{summary}\n{said}\n{errors}");
    assert_eq!(cases(&said, "skipped"), skipped, "what the suite skips by itself");
    println!("{summary}");
}
