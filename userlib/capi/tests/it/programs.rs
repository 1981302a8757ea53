//! C and C++ programs against the installed library: the recipe works, shared and static; the example in the tree and
//! the tests in `c/` hold over a served device; nothing but `weldfs_*` is exported; valgrind has nothing to say.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::JoinHandle;
use weldfs_journal::{SystemClock, SystemRandom};
use weldfs_kernel_shim::serve::Stopper;
use weldfs_kernel_shim::{Opened, ServeConfig, Server, Source};
use weldfs_media::ImageKind;
use weldfs_store::mount::{MkfsOptions, format};

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output
}

/// Programs that check what they are told, and say one line.
const PROGRAMS: [&str; 8] = [
    "tests/c/fork.c",
    "tests/c/errors.c",
    "tests/c/calls.c",
    "tests/c/misuse.c",
    "tests/c/queues.c",
    "tests/c/catalogue.c",
    "tests/c/steps.c",
    "tests/c/virt.c",
];

/// The one that is given an image, too.
const TARGETS: &str = "tests/c/targets.c";

/// What is around the examples: each is a function, with an attached `client` and a `queue` of it.
const BEFORE: &str = "#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weldfs.h>
static weldfs_client *client;
static weldfs_queue *queue;
";
const AFTER: &str = "int main(int count, char **args) {
    assert(count == 2 && weldfs_attach(args[1], NULL, &client) == 0);
    assert(weldfs_queue_create(client, NULL, &queue) == 0);
    all();
    weldfs_queue_destroy(queue);
    weldfs_detach(client);
    puts(\"the examples work\");
}
";

/// A program of all examples in the header's comments, and how many these are.
fn examples() -> (PathBuf, usize) {
    let header = std::fs::read_to_string(here("../include/weldfs.h")).expect("the header");
    let mut blocks = header.split("```");
    blocks.next();
    let examples: Vec<&str> =
        blocks.step_by(2).map(|block| block.strip_prefix('c').expect("an example in C")).collect();
    let function = |(i, text): (usize, &&str)| format!("static void example_{i}(void) {{{text}}}\n");
    let functions: String = examples.iter().enumerate().map(function).collect();
    let calls: String = (0..examples.len()).map(|i| format!("    example_{i}();\n")).collect();
    static MADE: AtomicU32 = AtomicU32::new(0);
    let source = prefix().join(format!("examples-{}.c", MADE.fetch_add(1, Relaxed)));
    let all = format!("{BEFORE}{functions}static void all(void) {{\n{calls}}}\n{AFTER}");
    std::fs::write(&source, all).expect("written");
    (source, examples.len())
}

#[test]
fn the_examples_of_the_header_do_what_they_say() {
    let (source, count) = examples();
    assert!(count > 0);
    let device = Device::serve();
    assert_eq!(execute(&build(&source, false), &device), "the examples work\n");
}

/// Where this run installed the library; the folder is below the build's own.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        let _ = std::fs::remove_dir_all(&prefix);
        let mut install = Command::new("bash");
        install.arg(here("../../install.sh")).args(["--only", "library", "--profile", "dev", "--prefix"]).arg(&prefix);
        // `./test` has built everything in one go; by hand, the script builds what is missing.
        install.args(std::env::var_os("WELDFS_BUILT").map(|_| "--no-build"));
        run(&mut install);
        prefix
    })
}

fn pkg_config(args: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    let output = run(command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(args).arg("weldfs"));
    String::from_utf8(output.stdout).expect("text").split_whitespace().map(str::to_owned).collect()
}

/// Compiles one source file as a user would.
fn build(source: &Path, is_static: bool) -> PathBuf {
    let plus = source.extension().is_some_and(|e| e == "cpp");
    let stem = source.file_stem().and_then(|s| s.to_str()).expect("a name");
    // Several tests may build the same one at the same time.
    static BUILT: AtomicU32 = AtomicU32::new(0);
    let program = prefix().join(format!("{stem}-{}", BUILT.fetch_add(1, Relaxed)));
    let (compiler, standard) = if plus { ("c++", "-std=c++17") } else { ("cc", "-std=c11") };
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-D_DEFAULT_SOURCE", "-g", standard]).args(pkg_config(&["--cflags"]));
    command.arg(source).arg("-o").arg(&program);
    for flag in pkg_config(if is_static { &["--static", "--libs"] } else { &["--libs"] }) {
        match flag.as_str() {
            "-lweldfs" if is_static => command.arg("-Wl,-Bstatic,-lweldfs,-Bdynamic"),
            flag => command.arg(flag),
        };
    }
    run(&mut command);
    program
}

/// A device in memory, served in this process.
struct Device {
    dir: tempfile::TempDir,
    stop: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Device {
    fn serve() -> Device {
        Device::of(Source::Ram(64 << 20))
    }

    fn of(source: Source) -> Device {
        let dir = tempfile::tempdir().expect("folder");
        let config = ServeConfig { signals: false, ..ServeConfig::new(source, dir.path().join("s")) };
        let server = Server::bind(config).expect("serves");
        let stop = server.stopper();
        let thread = std::thread::spawn(move || server.run().expect("a clean end"));
        Device { dir, stop, thread: Some(thread) }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn execute(program: &Path, device: &Device) -> String {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", prefix().join("lib")).arg(device.socket());
    String::from_utf8(run(&mut command).stdout).expect("text")
}

fn example() -> PathBuf {
    here("../../examples/c/log.c")
}

#[test]
fn the_example_builds_and_runs_shared_and_static() {
    let device = Device::serve();
    for is_static in [false, true] {
        let program = build(&example(), is_static);
        assert_eq!(execute(&program, &device), "1000 records, all sound\n");
        let needs = run(Command::new("readelf").arg("-d").arg(&program)).stdout;
        let names_it = String::from_utf8_lossy(&needs).contains("libweldfs.so.0");
        assert_eq!(names_it, !is_static, "{}", program.display());
    }
}

#[test]
fn every_call_works_and_misuse_is_refused() {
    let device = Device::serve();
    assert_eq!(execute(&build(&here("tests/c/calls.c"), false), &device), "every call works\n");
    assert_eq!(execute(&build(&here("tests/c/misuse.c"), false), &device), "misuse is refused\n");
}

/// ECONNREFUSED and others were "unknown error (E?)"; nothing said which path, step or item a failure was about.
#[test]
fn errors_name_the_errno_the_path_the_step_and_the_item() {
    let device = Device::serve();
    assert_eq!(execute(&build(&here("tests/c/errors.c"), false), &device), "errors are named\n");
}

/// A program linked against the library where cargo builds it looked for a name that only install.sh made.
#[test]
fn a_program_linked_against_the_built_library_finds_it_there_and_where_it_is_installed() {
    let (device, installed) = (Device::serve(), prefix().join("lib"));
    let built = prefix().ancestors().nth(2).expect("target").join("debug");
    for (i, name) in ["-lweldfs_c", "-lweldfs"].into_iter().enumerate() {
        let program = prefix().join(format!("linked-to-built-{i}"));
        let mut command = Command::new("cc");
        command.arg("-D_DEFAULT_SOURCE").arg("-I").arg(here("../include")).arg(example()).arg("-o").arg(&program);
        run(command.arg("-L").arg(&built).arg(name));
        for place in [&built, &installed] {
            let mut command = Command::new(&program);
            command.env("LD_LIBRARY_PATH", place).arg(device.socket());
            let out = String::from_utf8(run(&mut command).stdout).expect("text");
            assert_eq!(out, "1000 records, all sound\n", "{name} in {}", place.display());
        }
    }
}

/// Images of either kind that no device serves; the second run is over what the first one left.
#[test]
fn images_are_opened_in_the_process() {
    let (device, program) = (Device::serve(), build(&here(TARGETS), false));
    for kind in [ImageKind::Block, ImageKind::Pmem] {
        let image = device.dir.path().join(format!("{kind:?}.img"));
        let behind = device.dir.path().join(format!("{kind:?}-behind.img"));
        for image in [&image, &behind] {
            let made = weldfs_media::create(image, kind, 32 << 20, false).expect("made");
            format(&made, &MkfsOptions::default(), &SystemClock, &SystemRandom).expect("formatted");
        }
        for _ in 0..2 {
            let mut command = Command::new(&program);
            command.env("LD_LIBRARY_PATH", prefix().join("lib")).arg(&image).arg(device.socket()).arg(&behind);
            assert_eq!(String::from_utf8_lossy(&run(&mut command).stdout), "targets are reached\n");
            // Closed, and cleanly: nothing is left to recover.
            let opened = Opened::open_read_only(&image, 64 << 20).expect("free");
            assert!(opened.recovery.clean, "{:?}", opened.recovery);
        }
    }
}

/// The device that serves an image is found by the image.
#[test]
fn an_image_that_is_served_is_reached_through_its_device() {
    let dir = tempfile::tempdir().expect("folder");
    let image = dir.path().join("d.img");
    let made = weldfs_media::create(&image, ImageKind::Pmem, 32 << 20, false).expect("made");
    format(&made, &MkfsOptions::default(), &SystemClock, &SystemRandom).expect("formatted");
    // Children of other tests have the image's lock, too, until their exec.
    made.let_go();
    drop(made);
    let device = Device::of(Source::Image(image.clone()));
    let mut command = Command::new(build(&here("tests/c/calls.c"), false));
    command.env("LD_LIBRARY_PATH", prefix().join("lib")).arg(&image);
    assert_eq!(String::from_utf8_lossy(&run(&mut command).stdout), "every call works\n");
    drop(device);
}

/// Every call works on a device in the process as it does on one that is served.
#[test]
fn every_call_works_on_an_image_in_the_process() {
    let dir = tempfile::tempdir().expect("folder");
    let image = dir.path().join("d.img");
    for (source, says) in [
        ("calls", "every call works\n"),
        ("catalogue", "the catalogue works\n"),
        ("steps", "programs work\n"),
        ("queues", "queues work\n"),
        ("virt", "virtual files work\n"),
    ] {
        let made = weldfs_media::create(&image, ImageKind::Pmem, 64 << 20, true).expect("made");
        format(&made, &MkfsOptions::default(), &SystemClock, &SystemRandom).expect("formatted");
        drop(made);
        let mut command = Command::new(build(&here(&format!("tests/c/{source}.c")), false));
        command.env("LD_LIBRARY_PATH", prefix().join("lib")).arg(&image);
        assert_eq!(String::from_utf8_lossy(&run(&mut command).stdout), says, "{source}");
    }
}

#[test]
fn the_catalogue_batches_and_transactions_work() {
    let device = Device::serve();
    assert_eq!(execute(&build(&here("tests/c/catalogue.c"), false), &device), "the catalogue works\n");
}

#[test]
fn programs_of_every_step_run() {
    let device = Device::serve();
    assert_eq!(execute(&build(&here("tests/c/steps.c"), true), &device), "programs work\n");
}

#[test]
fn virtual_files_are_made_streamed_listed_and_removed_and_kernels_loaded() {
    let device = Device::serve();
    assert_eq!(execute(&build(&here("tests/c/virt.c"), false), &device), "virtual files work\n");
}

/// The programs above are the proof of the interface: a function that none of them calls has none.
#[test]
fn every_function_of_the_header_is_called_by_a_test() {
    let mut called = std::collections::HashSet::new();
    for source in PROGRAMS.iter().chain([&TARGETS]).map(|p| here(p)).chain([examples().0]) {
        let listing = run(Command::new("nm").arg("-uD").arg(build(&source, false))).stdout;
        let listing = String::from_utf8(listing).expect("text");
        called.extend(listing.split_whitespace().filter(|word| word.starts_with("weldfs_")).map(str::to_owned));
    }
    let exported = run(Command::new("nm").args(["-D", "--defined-only"]).arg(prefix().join("lib/libweldfs.so"))).stdout;
    let exported = String::from_utf8(exported).expect("text");
    let missing: Vec<_> =
        exported.lines().filter_map(|line| line.split_whitespace().nth(2)).filter(|f| !called.contains(*f)).collect();
    assert!(called.len() >= 160, "{}", called.len());
    assert!(missing.is_empty(), "no test calls {missing:?}");
}

#[test]
fn submissions_reach_callbacks_reapers_and_epoll() {
    let device = Device::serve();
    assert_eq!(execute(&build(&here("tests/c/queues.c"), true), &device), "queues work\n");
}

#[test]
fn a_child_of_a_busy_parent_waits_for_nobody() {
    let device = Device::serve();
    assert_eq!(execute(&build(&here("tests/c/fork.c"), false), &device), "children wait for nobody\n");
}

#[test]
fn the_header_is_good_cpp() {
    let device = Device::serve();
    assert!(execute(&build(&here("tests/c/plus.cpp"), false), &device).starts_with("session "));
}

#[test]
fn nothing_but_the_interface_is_exported() {
    let header = std::fs::read_to_string(here("../include/weldfs.h")).expect("header");
    for (library, args) in [("libweldfs.so", ["-D", "--defined-only"]), ("libweldfs.a", ["-g", "--defined-only"])] {
        let listing = run(Command::new("nm").args(args).arg(prefix().join("lib").join(library))).stdout;
        let listing = String::from_utf8(listing).expect("text");
        let names: Vec<_> = listing.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
        assert!(names.len() >= 160, "{library}: {}", names.len());
        for name in names {
            assert!(name.starts_with("weldfs_") && header.contains(&format!("{name}(")), "{library} exports {name}");
        }
    }
}

/// Wrong reads and writes, uses of memory that was given back, and leaks.
#[test]
fn valgrind_has_nothing_to_say() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        crate::skips::skip("capi programs: valgrind_has_nothing_to_say", "valgrind is not installed");
        return;
    }
    let device = Device::serve();
    // All but the one that forks while it is at work, which is about time.
    for source in PROGRAMS[1..].iter().map(|p| here(p)).chain([example()]) {
        let program = build(&source, false);
        let mut command = Command::new("valgrind");
        command.args(["-q", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        command.arg(concat!("--suppressions=", env!("CARGO_MANIFEST_DIR"), "/../../testing/valgrind.supp"));
        command.args(["--fair-sched=yes", "--trace-children=no"]);
        command.env("LD_LIBRARY_PATH", prefix().join("lib")).arg(program).arg(device.socket());
        run(&mut command);
    }
}
