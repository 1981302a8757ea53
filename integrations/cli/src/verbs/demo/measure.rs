//! What one command in place of several gains: measured by `bench micro`, under its rules. The device's threads and the
//! client have cores of their own, images are touched before a clock starts, systems take turns, medians are taken, and
//! what was written is read back.

use std::io;
use std::path::Path;
use weldfs_benches::chosen::Chosen;
use weldfs_benches::micro::cell::{Class, Matrix, MicroOp, Phase};
use weldfs_benches::micro::{self, MicroReport, Watch};
use weldfs_benches::peers::{Ground, Peer};

/// What is measured, and the command that measures the same.
pub const OPS: [MicroOp; 2] = [MicroOp::AppendChecksumWrite, MicroOp::OpenWriteClose];
/// Bytes of payload.
pub const SIZE: u32 = 4096;
/// Where emulated pmem and its equal on the host live.
const RAM: &str = "/dev/shm";

/// Image sizes, largest first: the first that fits twice into what is free is taken.
const IMAGES: [(&str, u64); 3] = [("2G", 2 << 30), ("1G", 1 << 30), ("256M", 256 << 20)];

fn free(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize))
}

/// The measured report; or, where this host has no room for it, why not.
///
/// # Errors
/// `Interrupted` when `watch` says so; those of devices that do not start.
pub fn measure(folder: &Path, quick: bool, watch: &mut dyn Watch) -> io::Result<Result<MicroReport, String>> {
    let mut peers = Vec::new();
    let ground = Ground::of(folder)?;
    let mut room = free(Path::new(RAM));
    if Path::new(RAM).is_dir() {
        peers.push(Peer { name: "ram".into(), dir: RAM.into(), medium: "tmpfs".into() });
    }
    if ground.on_disk() {
        room = room.min(free(folder));
        peers.push(Peer { name: "disk".into(), dir: folder.to_owned(), medium: ground.describe() });
    }
    let Some((image, _)) = IMAGES.into_iter().find(|(_, bytes)| bytes * 2 <= room) else {
        return Ok(Err(format!("there are {} MiB free in {RAM} and {}", room >> 20, folder.display())));
    };
    let options = micro::Options {
        program: std::env::current_exe()?,
        matrix: Matrix {
            ops: OPS.to_vec(),
            sizes: vec![SIZE],
            steady_sizes: Vec::new(),
            depths: vec![1],
            threads: vec![1],
            phases: vec![Phase::Burst],
            classes: vec![Class::Volatile, Class::Durable],
        },
        peers,
        prepare: false,
        chosen: Chosen {
            systems: ["weldfs-fused", "weldfs-unfused", "posix"].map(String::from).to_vec(),
            prepared: vec![],
        },
        rounds: if quick { 3 } else { 5 },
        millis: if quick { 30 } else { 100 },
        quick: false,
        image: image.to_owned(),
    };
    micro::run(&options, watch).map(Ok)
}

/// The command that measures the same, for a closer look.
pub fn command(folder: &Path) -> String {
    let names = OPS.map(MicroOp::name).join(",");
    format!(
        "weldfs bench micro --only {names} --sizes 4K --depths 1 --threads 1 --phases burst --peer disk={}",
        folder.display()
    )
}
