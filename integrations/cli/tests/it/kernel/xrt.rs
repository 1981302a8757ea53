//! The back-end for cards: a library that works, and every way in which one can take its process with it.

use crate::skips;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use weldfs_fpga::error::CardError;
use weldfs_fpga::kernel::{Fault, Kernel, run};
use weldfs_fpga::xrt::{Config, Remote, library_file};

/// A library made for these tests, from `fpga/tests/kernels/fake_xrt.c`; `None` without a C compiler.
fn fake() -> Option<&'static Path> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libfake_xrt.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fpga/tests/kernels/fake_xrt.c");
        let made = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&at).arg(source).status().ok()?;
        assert!(made.success(), "the library for tests compiles");
        Some(at)
    };
    MADE.get_or_init(make).as_deref()
}

fn config(library: &Path, image: &str) -> Config {
    Config {
        program: vec![env!("CARGO_BIN_EXE_weldfs").into(), "kernel-host".into()],
        library: library.to_owned(),
        card: 0,
        image: Path::new("/nowhere").join(image),
        kernel: "weld_shout".into(),
        cycles_per_flit: 2.0,
        opening: Duration::from_secs(30),
        watchdog: Duration::from_secs(30),
        given_up: Arc::default(),
        left: Arc::default(),
    }
}

/// What opening says, and running a packet if it opens.
fn outcome(config: &Config, params: &[u32]) -> Result<Vec<u8>, CardError> {
    let mut remote = Remote::open(config)?;
    remote.reset(params)?;
    Ok(run(&mut remote, b"shout", 2, 3)?.0)
}

fn lost(config: &Config, says: &str) {
    match outcome(config, &[0]) {
        Err(CardError::Fault(Fault::Lost(why)) | CardError::NoCard(why)) => assert!(why.contains(says), "{why}"),
        other => panic!("{config:?}: {other:?}"),
    }
}

#[test]
fn a_packet_goes_through_a_library_that_works() {
    let Some(library) = fake() else { return skips::skip("a_packet_goes_through_a_library_that_works", "no cc") };
    let mut remote = Remote::open(&config(library, "good.xclbin")).expect("it opens");
    remote.reset(&[0]).expect("it takes the parameters");
    for len in [0, 1, 63, 64, 65, 130, 100_000] {
        let packet: Vec<u8> = (0..len).map(|i: u32| b'a' + (i % 26) as u8).collect();
        let (output, cycles) = run(&mut remote, &packet, 777, 999).expect("it runs");
        assert_eq!(output, packet.to_ascii_uppercase());
        assert_eq!(cycles, u64::from((2 * len.div_ceil(64)).max(1)));
    }
    // A reset throws away what has not ended.
    remote.step(b"begun", false, &mut [0; 10]).expect("it takes it");
    remote.reset(&[0]).expect("it takes the parameters");
    assert_eq!(run(&mut remote, b"new", 9, 9).expect("it runs").0, b"NEW");
}

#[test]
fn what_the_kernel_refuses_is_its_errno() {
    let Some(library) = fake() else { return skips::skip("what_the_kernel_refuses_is_its_errno", "no cc") };
    let refused = outcome(&config(library, "good.xclbin"), &[1]);
    assert!(matches!(refused, Err(CardError::Fault(Fault::Params(_)))), "{refused:?}");
    let refused = outcome(&config(library, "refuse.xclbin"), &[0]);
    assert!(matches!(refused, Err(CardError::Fault(Fault::Params(_)))), "{refused:?}");
}

#[test]
fn a_library_that_ends_or_hangs_its_process_is_a_sentence() {
    let name = "a_library_that_ends_or_hangs_its_process_is_a_sentence";
    let Some(library) = fake() else { return skips::skip(name, "no cc") };
    let with = |image| config(library, image);
    lost(&with("abort.xclbin"), "was ended by signal 6; it said: XRT_CORE: no shim was found");
    lost(&with("abortrun.xclbin"), "was ended by signal 6");
    lost(&with("exit.xclbin"), "exited with code 3");
    lost(&with("crash.xclbin"), "was ended by signal 11");
    lost(&with("noload.xclbin"), "XRT does not load /nowhere/noload.xclbin (-22)");
    lost(&with("other.xclbin"), "has no kernel weld_shout");
    lost(&with("long.xclbin"), "made more than the 1048576 bytes of room");
    lost(&Config { card: 1, ..with("good.xclbin") }, "XRT opens no card number 1");
    let begun = Instant::now();
    lost(&Config { opening: Duration::from_millis(300), ..with("hang.xclbin") }, "took more than 0.3 s");
    assert!(begun.elapsed() < Duration::from_secs(20), "a helper that hangs is not waited for");
}

#[test]
fn what_is_no_library_of_xrts_is_a_sentence() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("lib.so");
    std::fs::write(&file, "no library").expect("written");
    lost(&config(&file, "good.xclbin"), "lib.so");
    lost(&config(&dir.path().join("none/lib.so"), "good.xclbin"), "XRT's helper does not start");
    let program = vec![dir.path().join("none")];
    lost(&Config { program, ..config(&file, "good.xclbin") }, "XRT's helper does not start");
    // Another program that does not know the verb.
    let program = vec!["/bin/false".into()];
    lost(&Config { program, ..config(&file, "good.xclbin") }, "XRT's helper exited with code 1");
}

#[test]
fn the_library_of_the_system_says_that_there_is_no_card() {
    let name = "the_library_of_the_system_says_that_there_is_no_card";
    let Some(library) = library_file() else { return skips::skip(name, "XRT is not installed (libxrt-dev)") };
    let cards = weldfs_fpga::xrt::cards(Path::new("/sys")).expect("sysfs");
    if !cards.is_empty() {
        return skips::skip(name, "this machine has a card");
    }
    lost(&config(&library, "none.xclbin"), "XRT opens no card number 0");
}
