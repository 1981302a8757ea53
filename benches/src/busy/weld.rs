//! WeldFS through a device process and through an embedded device, waiting as the library does.

use super::{Op, ROUND, SIZE, Sample, System, cpu_of};
use crate::served::{ServeOptions, Served, wait_settled};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weldfs::{At, ChecksumKind, Client, Command, Errno, Handle, OpenFlags, PoolRange, Queue, Ticket};
use weldfs_ciscops::Op as Fused;
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

/// Operations in flight at most.
const DEPTH_MAX: usize = 32;
/// Bytes of the pool: payload, room for what is read, and a name for each.
const POOL: u32 = 1 << 20;
/// Bytes of a name.
const NAME: usize = 8;
/// Room for attributes.
const STAT: u32 = 256;

pub(super) struct WeldFs {
    name: &'static str,
    /// Processes whose time counts.
    pids: Vec<u32>,
    queue: Queue,
    client: Client,
    places: Vec<Place>,
    folder: Handle,
    log: Handle,
    records: Handle,
    /// What goes at last: the device, and its image.
    _device: Box<dyn std::any::Any>,
}

/// One operation's room in the pool.
#[derive(Clone, Copy)]
struct Place {
    src: PoolRange,
    out: PoolRange,
    path: PoolRange,
}

pub(super) fn served(program: &Path) -> io::Result<WeldFs> {
    let options = ServeOptions { size: "512M".into(), ..ServeOptions::default() };
    let served = Served::start(program, &options)?;
    let (client, pid) = (served.connect()?, served.pid());
    WeldFs::new("served", vec![std::process::id(), pid], client, Box::new(served))
}

/// `inline`: the calling thread runs its commands itself.
pub(super) fn embedded(program: &Path, inline: bool) -> io::Result<WeldFs> {
    let folder = tempfile::Builder::new().prefix("weldfs-bench-").tempdir_in("/dev/shm")?;
    let image = folder.path().join("image");
    let mut mkfs = Process::new(program);
    mkfs.arg("mkfs").arg(&image).args(["--size", "512M", "--medium", "pmem"]);
    let out = mkfs.stdin(Stdio::null()).output()?;
    if !out.status.success() {
        return Err(io::Error::other(format!("mkfs: {}", String::from_utf8_lossy(&out.stderr).trim())));
    }
    let config = DeviceConfig { inline: Some(inline), ..DeviceConfig::default() };
    let device = Embedded::open(&Source::Image(image), config).map_err(io::Error::other)?;
    let client = Client::with(Arc::new(device.clone()))?;
    wait_settled(std::process::id());
    WeldFs::new(
        if inline { "inline" } else { "embedded" },
        vec![std::process::id()],
        client,
        Box::new((device, folder)),
    )
}

impl WeldFs {
    fn new(name: &'static str, pids: Vec<u32>, client: Client, device: Box<dyn std::any::Any>) -> io::Result<WeldFs> {
        let mut queue = client.queue(2 * DEPTH_MAX as u32, POOL)?;
        let mut place = || -> Result<Place, Errno> {
            let src = queue.stage(&[0x5a; SIZE])?;
            Ok(Place { src, out: queue.alloc(SIZE as u32)?, path: queue.alloc(NAME as u32)? })
        };
        let places = (0..DEPTH_MAX).map(|_| place()).collect::<Result<Vec<_>, _>>()?;
        client.create_dir("/busy")?;
        let raw = client.raw();
        let open =
            |path: &str, flags| raw.openat(Handle::ROOT, path.as_bytes(), flags, 0o644, 0).map(|opened| opened.handle);
        let folder = open("/busy", OpenFlags::READ | OpenFlags::DIRECTORY)?;
        let new = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let (log, records) = (open("/busy/log", new)?, open("/busy/records0", new)?);
        for n in 0..ROUND {
            raw.write(records, At::Offset(n * SIZE as u64), &[0x5a; SIZE][..])?;
        }
        Ok(WeldFs { name, pids, queue, client, places, folder, log, records, _device: device })
    }

    fn command(&self, op: Op, n: u64, place: Place) -> io::Result<Command> {
        let Place { src, out, path } = place;
        if op == Op::OpenWriteClose {
            self.queue.pool().slice(path)?.copy_from(format!("{:0NAME$}", n % ROUND).as_bytes());
        }
        if op == Op::Stat {
            self.queue.pool().slice(path)?.copy_from(b"records0");
        }
        if op == Op::AppendChecksumWrite {
            self.queue.pool().slice(src)?.sub(0, 8).copy_from(&n.to_le_bytes());
        }
        let (flags, mode) = (OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL, 0o644);
        Ok(Command::new(
            0,
            match op {
                Op::AppendChecksumWrite => Fused::AppendChecksumWrite { h: self.log, kind: ChecksumKind::Crc32c, src },
                Op::OpenWriteClose => {
                    Fused::OpenWriteClose { base: self.folder, path, flags, mode, at: At::Offset(0), src }
                }
                Op::Read => Fused::Read { h: self.records, at: At::Offset(n % ROUND * SIZE as u64), out, watch: 0 },
                Op::Stat => {
                    Fused::StatPath { base: self.folder, path, nofollow: false, out: PoolRange { len: STAT, ..out } }
                }
            },
        ))
    }

    /// One round of operations, or as many as there is time for.
    fn round(&mut self, op: Op, depth: usize, end: Instant, latencies: &mut Vec<u32>) -> io::Result<()> {
        let mut flying: VecDeque<(Ticket, Instant)> = VecDeque::new();
        let (mut sent, mut over) = (0, false);
        loop {
            while !over && sent < ROUND && flying.len() < depth {
                let command = self.command(op, sent, self.places[sent as usize % depth])?;
                let begun = Instant::now();
                flying.push_back((self.queue.submit(&command)?, begun));
                sent += 1;
            }
            let Some((ticket, begun)) = flying.pop_front() else { return Ok(()) };
            let cqe = self.queue.wait(ticket)?;
            let now = Instant::now();
            if cqe.status != 0 {
                return Err(io::Error::from_raw_os_error(cqe.status));
            }
            latencies.push((now - begun).as_nanos().min(u32::MAX.into()) as u32);
            over = now >= end;
        }
    }

    fn clear(&self, op: Op) -> io::Result<()> {
        match op {
            Op::AppendChecksumWrite => Ok(self.client.raw().truncate(self.log, 0)?),
            Op::OpenWriteClose => {
                (0..ROUND).try_for_each(|n| match self.client.remove_file(format!("/busy/{n:0NAME$}")) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                    _ => Ok(()),
                })
            }
            Op::Read | Op::Stat => Ok(()),
        }
    }
}

impl System for WeldFs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn takes(&self, depth: u32) -> bool {
        depth as usize <= DEPTH_MAX
    }

    fn run(&mut self, op: Op, depth: u32, time: Duration) -> io::Result<Sample> {
        let mut sample = Sample::default();
        let cpu = |pids: &[u32]| pids.iter().map(|pid| cpu_of(*pid)).sum::<Duration>();
        let end = Instant::now() + time;
        while Instant::now() < end {
            let before = cpu(&self.pids);
            self.round(op, depth as usize, end, &mut sample.latencies)?;
            sample.cpu += cpu(&self.pids).saturating_sub(before);
            self.clear(op)?;
        }
        Ok(sample)
    }
}
