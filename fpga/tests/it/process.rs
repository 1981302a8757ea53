//! Kernels that are shared objects: good ones, and every way to be bad.

use crate::rig::{add, catalogue, config, once, until, wait, want};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};
use weldfs_fpga::card::Card;
use weldfs_fpga::config::{CardConfig, Want, WhenFull};
use weldfs_fpga::error::CardError;
use weldfs_fpga::host::{Launch, Stall};
use weldfs_fpga::kernel::{Fault, Kernel, run};
use weldfs_fpga::manifest::{Kind, Manifest, PackageError};
use weldfs_fpga::package::{Catalogue, Package};
use weldfs_fpga::status::SlotState;

/// The process of a kernel in these tests: this program, told to run this "test" only.
#[test]
#[ignore = "not a test: the program that runs kernels for the others"]
fn kernel_host() {
    std::process::exit(weldfs_fpga::host::serve().into());
}

/// How a card starts this program as that one.
pub fn host() -> Vec<PathBuf> {
    let this = std::env::current_exe().expect("this program");
    [this.to_str().expect("UTF-8"), "process::kernel_host", "--exact", "--ignored", "--nocapture"]
        .iter()
        .map(PathBuf::from)
        .collect()
}

/// Compiled kernels, in a folder that lives as long as the tests.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder")).path()
}

/// Compiles `tests/kernels/add.c` with a macro that says how it behaves. None, said, where there is no C compiler.
pub fn compile(behaviour: &str) -> Option<PathBuf> {
    compile_file("add.c", behaviour)
}

/// The same of another file in that folder.
pub fn compile_file(file: &str, behaviour: &str) -> Option<PathBuf> {
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = LOCK.lock();
    let library = folder().join(format!("lib{behaviour}.so"));
    if library.exists() {
        return Some(library);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = Command::new("cc")
        .args(["-std=gnu11", "-O3", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o"])
        .arg(&library)
        .arg(format!("-D{behaviour}"))
        .arg("-I")
        .arg(root.join("include"))
        .arg(root.join("tests/kernels").join(file))
        .status();
    match built {
        Ok(status) => assert!(status.success(), "{behaviour}: cc says {status}"),
        Err(e) => {
            println!("SKIP: kernels in C are not tested: cc: {e}");
            return None;
        }
    }
    Some(library)
}

/// Compiles a program of that folder. None, said, where there is no C compiler.
pub fn compile_program(file: &str) -> Option<PathBuf> {
    let program = folder().join(file.trim_end_matches(".c"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels").join(file);
    match Command::new("cc").args(["-O1", "-Wall", "-Werror", "-o"]).arg(&program).arg(source).status() {
        Ok(status) => assert!(status.success(), "{file}: cc says {status}"),
        Err(e) => {
            println!("SKIP: cc: {e}");
            return None;
        }
    }
    Some(program)
}

pub fn launch(library: &Path) -> Launch {
    Launch { program: host(), watchdog: Duration::from_secs(2), ..Launch::of(library) }
}

/// A package with a shared object that behaves in some way.
pub fn package(behaviour: &str) -> Option<Package> {
    Some(package_of(behaviour, &compile(behaviour)?))
}

/// A package of its own with that shared object.
pub fn package_of(behaviour: &str, library: &Path) -> Package {
    let folder = folder().join(behaviour);
    // Another test may be loading it: it is there from one moment to the next, and written once.
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = LOCK.lock();
    std::fs::create_dir_all(&folder).expect("a folder");
    if !folder.join("lib.so").exists() {
        std::fs::copy(library, folder.join("lib.so.new")).expect("copied");
        std::fs::rename(folder.join("lib.so.new"), folder.join("lib.so")).expect("renamed");
    }
    let name = behaviour.to_lowercase().replace('_', "-");
    let id: String = name.bytes().chain(std::iter::repeat(9)).take(16).map(|b| format!("{b:02x}")).collect();
    let text = format!(
        "name = \"{name}\"\nid = \"{id}\"\nversion = \"1.0.0\"\nlicence = \"Apache-2.0\"\nabout = \"A test\"\n\
         clock_mhz = 250\ncycles_per_flit = 3.0\nregion = {{ lut = 1, ff = 1, bram = 0, dsp = 0 }}\n\
         [params]\nmin = 1\nmax = 1\n[backend.model]\nlibrary = \"lib.so\"\n"
    );
    std::fs::write(folder.join("kernel.toml"), text).expect("written");
    Package::open(&folder).expect("a package")
}

fn card(behaviours: &[&str]) -> Option<Arc<Card>> {
    watched(behaviours, Duration::from_millis(500))
}

fn watched(behaviours: &[&str], watchdog: Duration) -> Option<Arc<Card>> {
    let config = CardConfig { host: host(), watchdog, ..config(2) };
    let card = Card::new(config, Catalogue::new()).expect("a card");
    for behaviour in behaviours {
        let package = package(behaviour)?;
        let name = package.manifest().name.clone();
        card.load(package).expect("loaded");
        card.activate(&name).expect("activated");
    }
    Some(card)
}

fn plus(bytes: &[u8], n: u8) -> Vec<u8> {
    bytes.iter().map(|b| b.wrapping_add(n)).collect()
}

#[test]
fn a_shared_object_computes_as_a_kernel_does_however_its_input_and_output_are_cut() {
    let Some(library) = compile("GOOD") else { return };
    let mut kernel = launch(&library).start().expect("started");
    for len in (0..=130).chain([100_000, 262_143, 262_144, 262_145, 1_000_000]) {
        let input: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        kernel.reset(&[5]).expect("reset");
        for (piece, room) in [(64, 64), (usize::MAX / 2, 1 << 20), (70_000, 1000), (300_000, 300_000)] {
            if len > 1000 && piece == 64 {
                continue;
            }
            let (out, cycles) = run(&mut kernel, &input, piece, room).expect("ran");
            assert!(out == plus(&input, 5), "{len} bytes in pieces of {piece}, room of {room}");
            assert_eq!(cycles, (len as u64).div_ceil(64).max(1), "as the manifest says: one a flit");
        }
    }
    assert_eq!(kernel.reset(&[256]), Err(Fault::Params("the kernel refuses them".into())));
    assert_eq!(kernel.reset(&[1]), Ok(()));
    assert_eq!(run(&mut kernel, &[254], 1, 1), Err(Fault::Data("the kernel does not take it".into())));
    kernel.reset(&[2]).expect("it begins anew");
    run(&mut kernel, b"abc", 3, 3).expect("ran");
    assert_eq!((kernel.peek(0), kernel.peek(1)), (Some(3), None));
}

/// Steps are asked for ahead. One that leaves something, as its output has no room or time is up, goes on before them.
#[test]
fn what_a_step_leaves_is_gone_on_with_before_what_was_asked_for_ahead() {
    for (behaviour, times) in [("DOUBLES", 2), ("SLOW", 1)] {
        let Some(library) = compile(behaviour) else { return };
        let mut kernel = launch(&library).start().expect("started");
        for len in [0, 1, 262_144, 700_000, 1_500_001] {
            let input: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let expected: Vec<u8> = plus(&input, 5).iter().flat_map(|b| std::iter::repeat_n(*b, times)).collect();
            for (piece, room) in [(usize::MAX / 2, 1 << 20), (300_000, 77_777)] {
                kernel.reset(&[5]).expect("reset");
                let (out, _) = run(&mut kernel, &input, piece, room).expect("ran");
                assert!(out == expected, "{behaviour}: {len} bytes in pieces of {piece}, room of {room}");
            }
        }
        // What was asked for ahead of a fault, or is given up in the middle, is nothing to the next packet.
        let mut input = vec![1; 1_500_000];
        kernel.reset(&[1]).expect("reset");
        kernel.step(&input, false, &mut [0; 10]).expect("a step");
        kernel.reset(&[1]).expect("reset");
        assert_eq!(run(&mut kernel, b"ab", 9, 9).expect("ran").0.len(), 2 * times);
        input[300_000] = 254;
        assert!(matches!(run(&mut kernel, &input, 1 << 20, 1 << 20), Err(Fault::Data(_))), "{behaviour}");
        kernel.reset(&[1]).expect("reset");
        assert_eq!(run(&mut kernel, b"ab", 9, 9).expect("ran").0.len(), 2 * times);
    }
}

#[test]
fn the_folder_of_a_built_in_kernel_adds_back_ends_to_it() {
    let Some(library) = compile("GOOD") else { return };
    let text = "name = \"add\"\nid = \"77777777777777777777777777777777\"\nversion = \"1.0.0\"\n\
         licence = \"Apache-2.0\"\nabout = \"A test\"\nclock_mhz = 250\ncycles_per_flit = 2.0\n\
         region = { lut = 1, ff = 1, bram = 0, dsp = 0 }\n[params]\nmin = 1\nmax = 1\n\
         [backend.model]\nbuiltin = \"add\"\n[backend.rtl]\ntop = \"add\"\nsources = [\"a.v\"]\nlibrary = \"lib.so\"\n";
    let mut catalogue = Catalogue::new();
    catalogue.add_builtin(Manifest::parse(text).expect("good"), add).expect("added");
    let card = Card::new(CardConfig { host: host(), ..config(1) }, catalogue).expect("a card");
    let folder = folder().join("built-in");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::copy(&library, folder.join("lib.so")).expect("copied");
    let load = |text: &str| {
        std::fs::write(folder.join("kernel.toml"), text).expect("written");
        card.load(Package::open(&folder).expect("a package"))
    };
    let ran = || {
        let session = wait(card.open(want("add", 5, 1))).expect("open");
        let output = wait(session.run(b"abc".to_vec(), 10)).expect("ran").output;
        (output, card.status().slots[1].backend)
    };
    let taken = |done| matches!(done, Err(CardError::Package(PackageError::Taken(_))));
    // Another manifest is another kernel, whatever its name and id.
    assert!(taken(load(&text.replace("clock_mhz = 250", "clock_mhz = 251"))));
    load(text).expect("the same manifest");
    assert_eq!(ran(), (plus(b"abc", 5), Some(Kind::Model)), "nothing has changed yet");
    card.prefer("add", Kind::Rtl).expect("it has one");
    assert_eq!(ran(), (plus(b"abc", 5), Some(Kind::Rtl)));
    assert!(taken(load(text)), "it has a folder already");
    assert_eq!(card.deactivate("add"), Ok(()));
    assert!(matches!(card.unload("add"), Err(CardError::DeviceDefined(_))));
}

#[test]
fn files_that_are_no_kernel_are_told_apart() {
    let Some(old) = compile("OLD_ABI") else { return };
    let Some(lacking) = compile("NO_STEP") else { return };
    let Some(good) = compile("GOOD") else { return };
    let error = |library: &Path| launch(library).start().err();
    assert!(matches!(error(&old), Some(CardError::Package(PackageError::Abi { found: 77, expected: 1, .. }))));
    let symbol = "weldfs_kernel_step_run";
    assert!(matches!(error(&lacking), Some(CardError::Package(PackageError::Symbol { symbol: s, .. })) if s == symbol));
    let text = folder().join("text.so");
    std::fs::write(&text, "no object").expect("written");
    assert!(matches!(error(&text), Some(CardError::Package(PackageError::Object { .. }))));
    let stalled = Launch { stall: Some(Stall { seed: 1, in_permille: 1, out_permille: 1 }), ..launch(&good) };
    assert!(matches!(stalled.start().err(), Some(CardError::Package(PackageError::Symbol { .. }))));
    let nothing = Launch { program: vec!["/nonexistent/program".into()], ..launch(&good) };
    assert!(matches!(nothing.start().err(), Some(CardError::Fault(Fault::Lost(_)))));
    let other = Launch { program: vec!["true".into()], ..launch(&good) };
    assert!(matches!(other.start().err(), Some(CardError::Fault(Fault::Lost(why))) if why.contains("ended")));
}

#[test]
fn a_bad_kernel_is_lost_with_its_session_and_the_others_are_unharmed() {
    let bad = ["HANGS", "CRASHES", "NEVER_ENDS", "TAKES_TOO_MUCH", "MAKES_TOO_MUCH", "ENDS_EARLY", "EXITS", "OVERRUNS"];
    let Some(card) = card(&[&bad[..], &["GOOD"]].concat()) else { return };
    let good = wait(card.open(want("good", 5, 1))).expect("open");
    for (i, behaviour) in bad.iter().enumerate() {
        let name = behaviour.to_lowercase().replace('_', "-");
        for len in [100, 400_000] {
            let session = wait(card.open(want(&name, 1, 2))).expect("open");
            let result = wait(session.run(vec![1; len], 1 << 20));
            assert!(matches!(result, Err(Fault::Lost(_))), "{behaviour}: {result:?}");
            assert!(wait(session.run(vec![1; len], 1 << 20)).is_err(), "{behaviour}: again");
            drop(session);
        }
        assert_eq!(card.status().slots[2].faults, 4 * (i as u64 + 1), "{behaviour}");
        assert!(wait(good.run(vec![1; 100_000], 100_000)).expect("unharmed").output == [6; 100_000]);
    }
}

#[test]
fn endless_output_ends_with_the_callers_limit() {
    let Some(card) = card(&["ENDLESS"]) else { return };
    let session = wait(card.open(want("endless", 1, 2))).expect("open");
    assert_eq!(wait(session.run(vec![1; 100], 1_000_000)), Err(Fault::TooLong(1_000_000)));
}

/// What a kernel tries, and is refused: each is a bit of what its debug port says went through.
#[test]
fn a_kernel_can_do_nothing_but_compute() {
    let Some(library) = compile("CURIOUS") else { return };
    let mut kernel = launch(&library).start().expect("started");
    kernel.reset(&[1]).expect("reset");
    run(&mut kernel, b"abc", 3, 3).expect("ran");
    assert_eq!(
        kernel.peek(0),
        Some(0),
        "bits of: open, socket, fork, exec, kill, executable memory, a descriptor, write, a signal"
    );
}

/// The same of what runs while the shared object is loaded: it may read files, and do nothing to them.
#[test]
fn a_constructor_can_read_files_and_change_nothing() {
    let Some(library) = compile("CONSTRUCTS") else { return };
    let beside = |end: &str| PathBuf::from(format!("{}.{end}", library.display()));
    std::fs::write(beside("victim"), "whole").expect("written");
    let mut kernel = launch(&library).start().expect("started");
    kernel.reset(&[1]).expect("reset");
    let bits = "bits of: no path, a file cut off, a file made, no death signal, another's limits, a signal";
    assert_eq!(kernel.peek(0), Some(0), "{bits}");
    assert_eq!(std::fs::read(beside("victim")).expect("read"), b"whole");
    assert!(!beside("made").exists());
}

/// The card's lock is not held while a kernel is asked for a port, whatever it does then.
#[test]
fn a_kernel_that_hangs_at_its_debug_port_holds_no_other_up() {
    let Some(card) = watched(&["HANGS_AT_PEEK", "GOOD"], Duration::from_secs(5)) else { return };
    drop(wait(card.open(want("hangs-at-peek", 1, 1))).expect("open"));
    let slots = card.status().slots;
    let slot = slots.iter().position(|s| s.kernel.as_deref() == Some("hangs-at-peek")).expect("it is in a slot");
    std::thread::scope(|scope| {
        let peeked = scope.spawn(|| card.peek(slot, 0));
        // Until it computes: another look at the port finds that out, and does not wait.
        while card.status().slots[slot].state != SlotState::Held {
            assert!(!peeked.is_finished(), "the card answered nothing meanwhile");
            std::thread::yield_now();
        }
        assert!(matches!(card.peek(slot, 0), Err(CardError::Busy(_))), "it computes, and its port is there");
        let good = wait(card.open(want("good", 5, 1))).expect("open");
        assert_eq!(wait(good.run(b"ab".to_vec(), 2)).expect("ran").output, b"fg"[..]);
        assert_eq!(peeked.join().expect("no panic"), Ok(None));
    });
}

/// One that ended while it was idle is started anew for the session that comes; one that the watchdog ended is not.
#[test]
fn a_kernel_that_hangs_when_it_is_reset_is_waited_for_once() {
    let watchdog = Duration::from_secs(2);
    let Some(card) = watched(&["HANGS_AT_RESET"], watchdog) else { return };
    let begun = Instant::now();
    let opened = wait(card.open(want("hangs-at-reset", 1, 1)));
    assert!(matches!(opened, Err(CardError::Fault(Fault::Lost(_)))), "{:?}", opened.err());
    assert!((watchdog..watchdog * 7 / 4).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

/// All slots of a card, for as long as a packet of little steps takes: another tenant does not wait for it.
#[test]
fn packets_of_a_slow_kernel_keep_no_other_tenant_from_the_slots() {
    let Some(card) = watched(&["TRICKLES", "GOOD"], Duration::from_secs(1)) else { return };
    // Four seconds each.
    let waiting = |kernel, n, tenant| Want { when_full: WhenFull::Wait, ..want(kernel, n, tenant) };
    let slow = || {
        let session = wait(card.open(waiting("trickles", 1, 1)))?;
        wait(session.run(vec![0; 40], 40)).map_err(CardError::Fault)
    };
    std::thread::scope(|scope| {
        let holders: Vec<_> = (0..3).map(|_| scope.spawn(slow)).collect();
        let slots = || card.status().slots;
        while slots().iter().filter(|s| s.kernel.as_deref() == Some("trickles") && s.state != SlotState::Idle).count()
            < 2
        {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        let good = wait(card.open(waiting("good", 5, 2))).expect("open");
        assert_eq!(wait(good.run(b"ab".to_vec(), 2)).expect("ran").output, b"fg"[..]);
        assert!(begun.elapsed() < Duration::from_millis(3500), "{:?}", begun.elapsed());
        let ends = holders.into_iter().map(|holder| holder.join().expect("no panic"));
        let lost = ends.filter_map(Result::err).map(|e| e.to_string()).collect::<Vec<_>>();
        assert!(lost.len() == 1 && lost[0].contains("while others waited"), "{lost:?}");
    });
}

/// A card that goes does not wait for what hangs: with a watchdog of an hour this would not end.
#[test]
fn a_card_goes_at_once_though_a_kernel_hangs() {
    let Some(card) = watched(&["HANGS"], Duration::from_secs(3600)) else { return };
    let session = wait(card.open(want("hangs", 1, 1))).expect("open");
    let mut packet = Box::pin(session.run(vec![1; 100], 100));
    assert!(once(&mut packet).is_pending());
    drop(card);
    assert!(matches!(wait(packet), Err(Fault::Lost(_))));
}

#[test]
fn a_process_is_gone_with_its_session_card_and_watchdog() {
    let Some(library) = compile("HANGS") else { return };
    let mut kernel = Launch { watchdog: Duration::from_millis(50), ..launch(&library) }.start().expect("started");
    let id = kernel.id();
    kernel.reset(&[1]).expect("reset");
    assert!(matches!(run(&mut kernel, b"abc", 3, 3), Err(Fault::Lost(why)) if why.contains("no progress")));
    assert!(!Path::new(&format!("/proc/{id}")).exists(), "killed and reaped");
    let Some(card) = card(&["GOOD"]) else { return };
    let session = wait(card.open(want("good", 5, 1))).expect("open");
    drop(card);
    assert!(matches!(wait(session.run(vec![1; 100_000], 100_000)), Err(Fault::Lost(_))));
}

/// The process that has mapped this file.
pub fn process_of(library: &Path) -> Option<String> {
    let library = library.to_str().expect("UTF-8");
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let has = |maps: String| maps.lines().any(|l| l.ends_with(library));
    let ids = processes.map(|p| p.file_name().to_string_lossy().into_owned());
    ids.filter(|id| id.parse::<u32>().is_ok_and(|id| id != std::process::id()))
        .find(|id| std::fs::read_to_string(format!("/proc/{id}/maps")).is_ok_and(has))
}

#[test]
fn a_process_that_ended_while_idle_is_no_fault_of_the_next_session() {
    // A folder of its own: other tests have processes of the same kernel.
    let Some(library) = compile("GOOD") else { return };
    let package = package_of("ENDED", &library);
    let folder = folder().join("ENDED");
    let card = Card::new(CardConfig { host: host(), ..config(1) }, Catalogue::new()).expect("a card");
    card.load(package).expect("loaded");
    card.activate("ended").expect("activated");
    let ran = || {
        let session = wait(card.open(want("ended", 1, 1))).expect("open");
        wait(session.run(b"ab".to_vec(), 2)).expect("ran").output
    };
    assert_eq!(ran(), b"bc");
    let library = folder.join("lib.so").canonicalize().expect("a path");
    let id = process_of(&library).expect("it waits for its next session");
    assert!(Command::new("kill").args(["-KILL", &id]).status().expect("kill").success());
    assert_eq!(ran(), b"bc", "in a new process");
    assert_ne!(process_of(&library), Some(id));
}

#[test]
fn a_hanging_session_can_be_left_and_its_slot_comes_back() {
    let Some(card) = card(&["HANGS", "GOOD"]) else { return };
    let session = wait(card.open(want("hangs", 1, 1))).expect("open");
    let mut packet = Box::pin(session.run(vec![1; 100], 100));
    assert!(once(&mut packet).is_pending());
    drop(packet);
    drop(session);
    let good: Vec<_> = (0..2)
        .map(|_| wait(card.open(Want { when_full: WhenFull::Wait, ..want("good", 1, 1) })).expect("open"))
        .collect();
    for session in good {
        assert_eq!(wait(session.run(b"ab".to_vec(), 2)).expect("ran").output, b"bc");
    }
}

fn ready<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match once(future) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// With a watchdog of an hour none of this would end.
#[test]
fn a_process_that_hangs_is_killed_as_soon_as_nothing_waits_for_it() {
    let Some(library) = compile("HANGS") else { return };
    let config = CardConfig { host: host(), watchdog: Duration::from_secs(3600), ..config(1) };
    let card = Card::new(config, catalogue()).expect("a card");
    card.load(package_of("HANGS_LEFT", &library)).expect("loaded");
    card.activate("hangs-left").expect("activated");
    let library = folder().join("HANGS_LEFT/lib.so").canonicalize().expect("a path");
    let session = wait(card.open(want("hangs-left", 1, 1))).expect("open");
    let hanging = || {
        let mut packet = Box::pin(session.run(vec![1; 100], 100));
        assert!(once(&mut packet).is_pending());
        drop(until(|| process_of(&library)));
        std::thread::sleep(Duration::from_millis(50));
        assert!(once(&mut packet).is_pending(), "it hangs");
        drop(packet);
    };
    // A packet that is given up: the session goes on, with another process.
    hanging();
    let first = process_of(&library);
    let mut anew = Box::pin(session.send_params(vec![2]));
    until(|| ready(&mut anew)).expect("it begins anew");
    assert_ne!(process_of(&library), first);
    // A session that ends: the slot is another's.
    hanging();
    drop(anew);
    drop(session);
    let mut opening = card.open(Want { when_full: WhenFull::Wait, ..want("add", 1, 2) });
    let other = until(|| ready(&mut opening)).expect("open");
    assert_eq!(wait(other.run(b"ab".to_vec(), 2)).expect("ran").output, b"bc");
    assert_eq!((process_of(&library), card.status().slots[1].faults), (None, 0), "that is no fault of the kernel");
}

/// Runs a packet of so many bytes, piece by piece, and looks at no output: GB/s.
fn speed(kernel: &mut dyn Kernel, bytes: usize) -> f64 {
    let (piece, mut out) = (vec![7u8; 1 << 20], vec![0u8; 1 << 20]);
    kernel.reset(&[3]).expect("reset");
    let (start, mut taken, mut made) = (std::time::Instant::now(), 0, 0);
    loop {
        let at = taken % piece.len();
        let end = if taken == bytes { at } else { piece.len() };
        let eop = taken + end - at == bytes;
        let step = kernel.step(&piece[at..end], eop, &mut out).expect("a step");
        (taken, made) = (taken + step.taken, made + step.made);
        if step.done {
            assert_eq!((taken, made), (bytes, bytes));
            assert!(out[..step.made].iter().all(|b| *b == 10));
            return bytes as f64 / start.elapsed().as_secs_f64() / 1e9;
        }
    }
}

/// `cargo test -p weldfs-fpga --release --test it -- --ignored --exact process::throughput --nocapture`
#[test]
#[ignore = "a measurement"]
fn throughput() {
    let Some(library) = compile("FAST") else { return };
    let mut process = launch(&library).start().expect("started");
    let mut here = add();
    let mut best = [0f64; 2];
    for _ in 0..5 {
        best[0] = best[0].max(speed(&mut process, 1 << 30));
        best[1] = best[1].max(speed(here.as_mut(), 1 << 30));
    }
    println!("a byte adder in its own process: {:.2} GB/s; built in: {:.2} GB/s", best[0], best[1]);
}
