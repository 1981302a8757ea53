//! A client that goes while a kernel computes for its stream: one that is slow, one that never comes back.

use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::{Duration, Instant};

use weldfs_ciscops::virt::TO_END;
use weldfs_ciscops::{At, Command, Direction, Handle, Op, OpenFlags, PoolRange, VirtRange, VirtSpec};
use weldfs_fpga::config::{CardConfig, Reconfigure};
use weldfs_fpga::package::Package;
use weldfs_fpga::status::SlotState;

use super::super::placed::tests::{Client, with_card};
use crate::Device;
use weldfs_fs::Cred;

/// A client reads a stream of 2 MiB through the kernel, and goes once `at_work`: the slot is free soon after that.
fn leave(device: &Device, kernel: &str, params: Vec<u32>, at_work: impl Fn(&Device) -> bool) {
    let session = device.attach(Cred::root(), [0; 16], b"").unwrap();
    let mut client = Client::new(&session);
    let h = client.open("real");
    let src = client.put(0, &[7; 128 << 10]);
    for block in 0..16 {
        client.send(&Command::new(0, Op::Write { h, at: At::Offset(block * (128 << 10)), src }));
        client.listen().ok().unwrap();
    }
    let range = VirtRange { path: b"/real".to_vec(), offset: 0, length: TO_END };
    let spec = VirtSpec { kernel: kernel.into(), params, direction: Direction::Read, ranges: vec![range] };
    let (path, spec) = (client.put(0, b"virtual"), client.put(4096, &spec.encode().unwrap()));
    client.send(&Command::new(0, Op::VirtRegister { base: Handle::ROOT, path, mode: 0o600, spec }));
    client.listen().ok().unwrap();
    let flags = OpenFlags::READ;
    client.send(&Command::new(0, Op::open(Handle::ROOT, path, flags, 0)));
    let h = Handle::from_wire(client.listen().ok().unwrap().0);
    client.send(&Command::new(0, Op::Read { h, at: At::Current, out: PoolRange::new(0, 4096), watch: 0 }));
    let held = || device.card().status().slots.iter().any(|s| s.state == SlotState::Held && s.slot > 0);
    let start = Instant::now();
    while !at_work(device) {
        assert!(start.elapsed() < Duration::from_secs(20), "the slot is not used");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(held());
    drop((session, client));
    let start = Instant::now();
    while held() {
        assert!(start.elapsed() < Duration::from_secs(10), "the slot is not given back");
        std::thread::sleep(Duration::from_millis(5));
    }
    device.shutdown();
}

#[test]
fn a_client_that_goes_amid_a_read_of_a_slow_kernel_leaves_the_slot_at_once() {
    // The kernel gets 4 KiB at a time and takes 300 ms for them: a piece of the file would take a minute and more.
    let card =
        CardConfig { credits: 1, credit_bytes: 4096, reconfigure: Reconfigure::NONE, ..CardConfig::with_slots(1) };
    // It has taken some, and waits in the middle of a piece.
    leave(&with_card(card), "test-slow", vec![], |device| device.card().status().slots[1].bytes_in > 0);
}

/// The process of the kernel in the next test: this program, told to run this "test" only.
#[test]
#[ignore = "not a test: the program that runs a kernel for the next one"]
fn kernel_host() {
    std::process::exit(weldfs_fpga::host::serve().into());
}

/// A package whose kernel never returns from a step. None, said, where there is no C compiler.
fn hanging(folder: &Path) -> Option<Package> {
    let fpga = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fpga");
    let mut cc = Program::new("cc");
    cc.args(["-std=gnu11", "-O1", "-fPIC", "-shared", "-DHANGS", "-o"]).arg(folder.join("lib.so"));
    match cc.arg("-I").arg(fpga.join("include")).arg(fpga.join("tests/kernels/add.c")).status() {
        Ok(status) => assert!(status.success(), "cc says {status}"),
        Err(e) => {
            println!("SKIP: a kernel that hangs is not tested: cc: {e}");
            return None;
        }
    }
    let text = "name = \"hangs\"\nid = \"abababababababababababababababab\"\nversion = \"1.0.0\"\n\
         licence = \"Apache-2.0\"\nabout = \"A test\"\nclock_mhz = 250\ncycles_per_flit = 1.0\n\
         region = { lut = 1, ff = 1, bram = 0, dsp = 0 }\n[params]\nmin = 1\nmax = 1\n\
         [backend.model]\nlibrary = \"lib.so\"\n";
    std::fs::write(folder.join("kernel.toml"), text).unwrap();
    Some(Package::open(folder).unwrap())
}

#[test]
fn a_client_that_goes_amid_a_read_of_a_kernel_that_hangs_leaves_the_slot_long_before_the_watchdog() {
    let folder = tempfile::tempdir().unwrap();
    let Some(package) = hanging(folder.path()) else { return };
    let this = std::env::current_exe().unwrap();
    let host = [this.to_str().unwrap(), "virt::tests::kernel_host", "--exact", "--ignored", "--nocapture"];
    let device = with_card(CardConfig {
        reconfigure: Reconfigure::NONE,
        host: host.iter().map(PathBuf::from).collect(),
        watchdog: Duration::from_secs(3600),
        ..CardConfig::with_slots(1)
    });
    device.card().load(package).unwrap();
    device.card().activate("hangs").unwrap();
    let since = std::cell::Cell::new(None);
    leave(&device, "hangs", vec![1], |device| {
        let held = device.card().status().slots[1].state == SlotState::Held;
        let start = since.get().or(held.then(Instant::now));
        since.set(start);
        // It has been in its step for long.
        start.is_some_and(|start| start.elapsed() > Duration::from_millis(300))
    });
}
