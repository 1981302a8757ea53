//! The examples in Rust, run over a device in this process.

use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use weldfs_kernel_shim::serve::Stopper;
use weldfs_kernel_shim::{ServeConfig, Server, Source};

struct Device {
    dir: tempfile::TempDir,
    stop: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Device {
    fn serve() -> Device {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let config = ServeConfig { signals: false, ..ServeConfig::new(Source::Ram(64 << 20), dir.path().join("s")) };
        let server = Server::bind(config).expect("serves");
        let stop = server.stopper();
        let thread = std::thread::spawn(move || server.run().expect("a clean end"));
        Device { dir, stop, thread: Some(thread) }
    }

    fn run(&self, program: &str, arguments: &[&Path]) -> String {
        let mut command = Command::new(program);
        let output = command.arg(self.dir.path().join("s")).args(arguments).output().expect("runs");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
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

#[test]
fn the_log_is_sound() {
    let device = Device::serve();
    let said = device.run(env!("CARGO_BIN_EXE_log"), &[]);
    // The checksum of "record 999", by another implementation.
    assert_eq!(said, format!("1000 records, all sound; the last one's checksum is {:#010x}\n", crc32c(b"record 999")));
}

/// CRC-32C by its definition, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |crc: u32| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !bytes.iter().fold(u32::MAX, |crc, b| (0..8).fold(crc ^ u32::from(*b), |crc, _| bit(crc)))
}

#[test]
fn the_transfer_moves_all_or_nothing() {
    let device = Device::serve();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../programs/transfer.txt");
    let said = device.run(env!("CARGO_BIN_EXE_transfer"), &[&program]);
    assert_eq!(said, "40: 60 left\n60: 0 left\n80: not enough\nalice 0, bob 120\n");
}
