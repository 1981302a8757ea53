//! `weldfs bench virtual-cat`: a text in the drive, read by the host, and read through the kernel grep.
//!
//! Hypothesis: who reads a virtual file moves what the kernel makes and what commands cost, not what it is made of. The
//! device runs with a profile, so that its link carries every byte of both; bytes are the device's counters.

use super::BESIDE;
use super::apps::grep;
use super::count::Counted;
use crate::micro::Watch;
use crate::report::Machine;
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;
use weldfs::{Client, Direction, OpenFlags, VirtRange, VirtSpec};
use weldfs_device::{DeviceConfig, Profile};
use weldfs_kernel_shim::{Embedded, Source};

/// What may cross the link, of the file's bytes.
const WITHIN: f64 = 0.02;
/// The smallest text: below it, what commands cost says more than what a kernel saves.
pub const LEAST: u64 = 1 << 20;
/// Bytes of a read, as of cat(1).
const READ: usize = 128 << 10;
/// Bytes that are made at a time.
const PIECE: usize = 16 << 20;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the text: whole rows of 64 KiB; from [`LEAST`] on.
    pub bytes: u64,
    /// The modelled drive.
    pub profile: Profile,
    /// The command line, for the report.
    pub command: String,
}

/// A profile that is shipped: INSIDER's drive on eight lanes.
pub fn insider_x8() -> io::Result<Profile> {
    Profile::parse(include_str!("../../../profiles/insider-x8.toml")).map_err(|e| io::Error::other(e.to_string()))
}

/// One way of reading.
#[derive(Clone, Debug, Serialize)]
pub struct Way {
    /// What the device counted.
    pub counted: Counted,
    /// Bytes over the link, both ways.
    pub link_bytes: u64,
    /// The same over the size of the text.
    pub part: f64,
    /// Modelled: those bytes over the link's bandwidth, each way on its own; 0 where it has no limit.
    pub modelled_link_ms: f64,
    /// What passed on this machine, on which the kernel is a program on a processor.
    pub wall_ms: f64,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct CatReport {
    /// Which machine.
    pub machine: Machine,
    /// The command line.
    pub command: String,
    /// The modelled drive.
    pub profile: String,
    /// Bytes of the text.
    pub bytes: u64,
    /// Rows with the needle, and their checksum: by the host, and by the drive.
    pub answer: [String; 2],
    /// The host reads and looks.
    pub host: Way,
    /// The drive looks, and the host reads what it found.
    pub drive: Way,
}

impl CatReport {
    /// Prints it for people. Errors: those of the output.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let m = &self.machine;
        writeln!(out, "{} ({} cores), kernel {}, {} build", m.cpu, m.cores, m.kernel, m.build)?;
        writeln!(out, "{} bytes of text in rows of 64 KiB, profile {}", self.bytes, self.profile)?;
        writeln!(out, "host: {}\ndrive: {}", self.answer[0], self.answer[1])?;
        for (name, way) in [("host", &self.host), ("drive", &self.drive)] {
            let c = &way.counted;
            writeln!(
                out,
                "{name:<6} {:>12} bytes over the link ({:.4} %): {} in, {} out, {} commands",
                way.link_bytes,
                way.part * 100.0,
                c.link_bytes_in,
                c.link_bytes_out,
                c.commands
            )?;
            writeln!(
                out,
                "       modelled: the link {:.3} ms, slots {:.3} ms",
                way.modelled_link_ms,
                c.slot_ns as f64 / 1e6
            )?;
            writeln!(out, "       wall, with the kernel as a program: {:.1} ms", way.wall_ms)?;
        }
        Ok(())
    }

    /// Whether both answers are the same and so little crossed the link.
    ///
    /// # Errors
    /// What does not hold.
    pub fn holds(&self) -> io::Result<()> {
        if self.answer[0] != self.answer[1] {
            let [host, drive] = &self.answer;
            return Err(io::Error::other(format!("answers differ: '{host}' by the host, '{drive}' by the drive")));
        }
        if self.drive.part >= WITHIN {
            let (part, most) = (self.drive.part * 100.0, WITHIN * 100.0);
            return Err(io::Error::other(format!("{part:.2} % of the bytes crossed the link, not less than {most} %")));
        }
        if self.drive.counted.slot_bytes_in != self.bytes {
            return Err(io::Error::other(format!("the kernel took {} bytes", self.drive.counted.slot_bytes_in)));
        }
        Ok(())
    }
}

/// The parts of a run that a way of reading is made of.
struct Rig {
    embedded: Embedded,
    client: Client,
    options: Options,
}

impl Rig {
    fn way(&self, read: impl FnOnce() -> io::Result<()>) -> io::Result<Way> {
        let (before, start) = (Counted::of(self.embedded.device()), Instant::now());
        read()?;
        let wall_ms = start.elapsed().as_secs_f64() * 1e3;
        let counted = Counted::of(self.embedded.device()).since(&before);
        let link = &self.options.profile.link;
        let ms = |bytes: u64, rate: u64| if rate == 0 { 0.0 } else { bytes as f64 / rate as f64 * 1e3 };
        let both = [ms(counted.link_bytes_in, link.to_device()), ms(counted.link_bytes_out, link.to_host())];
        Ok(Way {
            counted,
            link_bytes: counted.link_bytes(),
            part: counted.link_bytes() as f64 / self.options.bytes as f64,
            modelled_link_ms: both[0].max(both[1]),
            wall_ms,
        })
    }
}

/// Runs it; `None` when it was interrupted. Errors: what a device says.
pub fn run(options: &Options, watch: &mut dyn Watch) -> io::Result<Option<CatReport>> {
    let bytes = (options.bytes / grep::ROW as u64).max(1) * grep::ROW as u64;
    let options = Options { bytes, ..options.clone() };
    let config = DeviceConfig { profile: options.profile.clone(), ..DeviceConfig::default() };
    let embedded = Embedded::open(&Source::Ram(bytes + bytes / 8 + BESIDE), config)
        .map_err(|e| io::Error::other(e.to_string()))?;
    let client = Client::with(Arc::new(embedded.clone()))?;
    let rig = Rig { embedded, client, options };
    watch.plan(3, bytes as f64 / 1e9);
    watch.at("the text", true);
    let file = rig.client.create("/text")?;
    let (mut maker, mut at, mut piece) = (grep::Maker::new(), 0, vec![0; PIECE]);
    while at < bytes {
        if watch.stop() {
            return Ok(None);
        }
        let n = (bytes - at).min(PIECE as u64) as usize;
        maker.fill(&mut piece[..n]);
        file.write_all_at(&piece[..n], at)?;
        at += n as u64;
    }
    watch.at("the host reads", true);
    let mut work = grep::host();
    let mut room = vec![0; READ];
    let host = rig.way(|| {
        let mut at = 0;
        while at < bytes {
            file.read_exact_at(&mut room[..(bytes - at).min(READ as u64) as usize], at)?;
            work.piece(&room[..(bytes - at).min(READ as u64) as usize]);
            at += READ as u64;
        }
        Ok(())
    })?;
    if watch.stop() {
        return Ok(None);
    }
    watch.at("the drive reads", true);
    let mut found = Vec::new();
    let range = VirtRange { path: b"/text".to_vec(), offset: 0, length: u64::MAX };
    let spec =
        VirtSpec { kernel: "grep".into(), params: grep::params(), direction: Direction::Read, ranges: vec![range] };
    let drive = rig.way(|| {
        rig.client.virt_register("/found", 0o600, &spec)?;
        let file = rig.client.vopen("/found", OpenFlags::READ)?;
        loop {
            match file.vread(&mut room[..])? {
                0 => return file.vclose().map(drop),
                n => found.extend_from_slice(&room[..n]),
            }
        }
    })?;
    let mut rest = grep::rest();
    rest.piece(&found);
    let (machine, command, profile) = (Machine::here(), rig.options.command, rig.options.profile.name);
    Ok(Some(CatReport { machine, command, profile, bytes, answer: [work.end(), rest.end()], host, drive }))
}
