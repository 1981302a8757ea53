//! The chapter of the slots: questions to stored files that the drive answers, beside what the host moves for the same
//! answers; then the log of the other chapters with its checksums from a kernel, killed and recovered.

use super::corpus::Corpus;
use super::device::Device;
use super::story::{self, clean};
use super::worker::{self, Verdict};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;
use weldfs::{Client, Direction, Errno, OpenFlags, OpenOptions, VirtRange, VirtSpec};
use weldfs_benches::peers::Ground;

/// Bytes of a read or write of this chapter.
const PIECE: usize = 1 << 20;
/// Bytes of a record of the table: round, player, and two digits each of score, month, day, year.
const RECORD: usize = 32;
/// The years that are asked for.
const YEARS: std::ops::RangeInclusive<u32> = 10..=12;

/// What the device counts.
#[derive(Clone, Copy, Serialize)]
struct Counts {
    link_bytes_in: u64,
    link_bytes_out: u64,
    /// Modelled: cycles over the slot's clock.
    slot_ns: u64,
    slot_packets: u64,
    slot_bytes_in: u64,
    slot_fallbacks: u64,
}

impl Counts {
    fn of(client: &Client) -> io::Result<Counts> {
        let stats: serde_json::Value = serde_json::from_str(&client.stats_json()?)?;
        let count = |name: &str| {
            stats["total"][name].as_u64().ok_or_else(|| io::Error::other(format!("the device does not count {name}")))
        };
        Ok(Counts {
            link_bytes_in: count("link_bytes_in")?,
            link_bytes_out: count("link_bytes_out")?,
            slot_ns: count("slot_ns")?,
            slot_packets: count("slot_packets")?,
            slot_bytes_in: count("slot_bytes_in")?,
            slot_fallbacks: count("slot_fallbacks")?,
        })
    }

    fn since(self, before: Counts) -> Counts {
        Counts {
            link_bytes_in: self.link_bytes_in - before.link_bytes_in,
            link_bytes_out: self.link_bytes_out - before.link_bytes_out,
            slot_ns: self.slot_ns - before.slot_ns,
            slot_packets: self.slot_packets - before.slot_packets,
            slot_bytes_in: self.slot_bytes_in - before.slot_bytes_in,
            slot_fallbacks: self.slot_fallbacks - before.slot_fallbacks,
        }
    }

    fn link(&self) -> u64 {
        self.link_bytes_in + self.link_bytes_out
    }
}

/// A question, asked twice.
#[derive(Serialize)]
struct Question {
    kernel: &'static str,
    question: String,
    /// Rows or records of the answer.
    found: u64,
    /// Bytes of the files that it is asked of.
    bytes: u64,
    /// The host reads and computes.
    host: Counts,
    /// The drive computes, and the host reads its answer.
    drive: Counts,
    /// Whether both answers are the same, byte for byte.
    same: bool,
    /// Modelled: loading the kernel into its slot, before it was asked.
    reconfigure_ms: f64,
    /// Of the drive's answer, on this machine, where kernels are software.
    wall_ms: f64,
}

impl Question {
    fn good(&self) -> bool {
        // A kernel took all of it, and a host that reads moves all of it.
        self.same && self.drive.slot_bytes_in == self.bytes && self.host.link() > self.bytes && self.found > 0
    }

    fn text(&self) -> String {
        format!(
            "{}, kernel {}: {} found, {} as by the host; over the link {} bytes, {} when a host reads and \
             computes ({:.1} %)\n    modelled: {:.1} us in the slot, after {:.0} ms to load the kernel; wall, with the \
             kernel as software: {:.0} ms\n",
            self.question,
            self.kernel,
            self.found,
            if self.same { "the same" } else { "NOT THE SAME" },
            self.drive.link(),
            self.host.link(),
            self.drive.link() as f64 * 100.0 / self.host.link() as f64,
            self.drive.slot_ns as f64 / 1e3,
            self.reconfigure_ms,
            self.wall_ms,
        )
    }
}

/// The log whose checksums a kernel computed.
#[derive(Serialize)]
struct Log {
    medium: &'static str,
    place: String,
    power_safe: bool,
    /// The back-end of the kernel, as the device says: `rtl` or `model`.
    backend: String,
    /// The shared object of RTL, if one was built.
    library: Option<PathBuf>,
    /// Why that was not used.
    unused: Option<String>,
    /// Appends that had been acknowledged when the device was asked what it had counted.
    acknowledged_before: u64,
    counted: Counts,
    restart_ms: f64,
    /// After recovery, with every checksum computed on a core.
    verdict: Verdict,
    fsck_before_mount: bool,
    fsck_after: bool,
}

impl Log {
    fn good(&self) -> bool {
        self.verdict.good()
            && self.counted.slot_packets >= self.acknowledged_before
            && self.counted.slot_fallbacks == 0
            && self.fsck_before_mount
            && self.fsck_after
    }

    fn text(&self) -> String {
        let backend = match (self.backend.as_str(), &self.library, &self.unused) {
            ("rtl", Some(library), _) => format!("RTL, simulated cycle by cycle ({})", library.display()),
            (_, Some(library), Some(why)) => format!("model ({} cannot be used: {why})", library.display()),
            _ => "model (RTL is not built here: fpga/rtl/build.py)".to_owned(),
        };
        let v = &self.verdict;
        format!(
            "append_checksum_write with its checksum from a slot, kernel crc32c, back-end {backend}; kill -9 under {} \
             clients, {} image on {}: {} appends acknowledged as durable, {} lost or with a wrong checksum by a core, \
             {} half; answering again after {:.0} ms; fsck {}, then {}\n    modelled: {:.1} us in slots for {} \
             packets\n",
            story::CLIENTS,
            self.medium,
            self.place,
            v.acknowledged,
            v.lost,
            v.half,
            self.restart_ms,
            clean(self.fsck_before_mount),
            clean(self.fsck_after),
            self.counted.slot_ns as f64 / 1e3,
            self.counted.slot_packets,
        )
    }
}

/// All of the chapter.
#[derive(Serialize)]
pub struct Slots {
    questions: Vec<Question>,
    log: Log,
}

impl Slots {
    /// Whether every answer was right and nothing acknowledged was lost.
    pub fn good(&self) -> bool {
        self.questions.iter().all(Question::good) && self.log.good()
    }

    /// As lines for people.
    pub fn text(&self) -> String {
        let questions: String = self.questions.iter().map(Question::text).collect();
        format!("{questions}{}", self.log.text())
    }
}

/// How much of everything.
pub struct Plan {
    /// Size of the image.
    pub size: &'static str,
    /// Records of the table.
    pub records: usize,
    /// Appends of each client at most.
    pub appends: u64,
}

/// What a virtual file gives.
fn through(client: &Client, name: &str, spec: &VirtSpec, into: &mut Vec<u8>) -> io::Result<()> {
    client.virt_register(name, 0o600, spec)?;
    let file = client.vopen(name, OpenFlags::READ)?;
    let mut room = vec![0; PIECE];
    loop {
        match file.vread(&mut room[..])? {
            0 => return file.vclose().map(drop),
            n => into.extend_from_slice(&room[..n]),
        }
    }
}

/// A file as the host reads it: one command a piece.
fn read(client: &Client, path: &str, into: &mut Vec<u8>) -> io::Result<()> {
    let (mut room, mut at) = (vec![0; PIECE], 0);
    loop {
        let n = client.open_read_close(path, OpenFlags::READ, at, &mut room[..])?;
        into.extend_from_slice(&room[..n]);
        at += n as u64;
        if n < PIECE {
            return Ok(());
        }
    }
}

/// Asks both ways. `specs`: what streams of the drive are made of; `answer`: what the host computes of each stream.
fn ask(
    client: &Client,
    (kernel, question): (&'static str, String),
    specs: &[VirtSpec],
    answer: impl Fn(&[u8]) -> Vec<u8>,
) -> io::Result<Question> {
    let before = Counts::of(client)?;
    let (mut expected, mut bytes) = (Vec::new(), 0);
    for spec in specs {
        let mut stream = Vec::new();
        for range in &spec.ranges {
            let path = std::str::from_utf8(&range.path).map_err(io::Error::other)?;
            read(client, path, &mut stream)?;
        }
        bytes += stream.len() as u64;
        expected.extend(answer(&stream));
    }
    let host = Counts::of(client)?.since(before);
    // The kernel is in its slot before a clock starts: loading it takes modelled time.
    through(client, &format!("/.virt/{kernel}"), &specs[0], &mut Vec::new())?;
    let slot = slot(client, kernel)?;
    let reconfigure_ns = slot["reconfigure_ns"].as_u64().unwrap_or_default();
    let primed = Counts::of(client)?;
    let (start, mut got) = (Instant::now(), Vec::new());
    for (number, spec) in specs.iter().enumerate() {
        through(client, &format!("/.virt/{kernel}-{number}"), spec, &mut got)?;
    }
    let wall = start.elapsed();
    let drive = Counts::of(client)?.since(primed);
    let unit = if kernel == "sql" { RECORD } else { 8 };
    Ok(Question {
        kernel,
        question,
        found: (got.len() / unit) as u64,
        bytes,
        host,
        drive,
        same: got == expected,
        reconfigure_ms: reconfigure_ns as f64 / 1e6,
        wall_ms: wall.as_secs_f64() * 1e3,
    })
}

/// What the kernel grep says of rows, written the short way.
fn grep(text: &[u8], needle: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (row, line) in text.split(|b| *b == b'\n').enumerate() {
        if let Some(column) = line.windows(needle.len()).position(|w| w == needle) {
            out.extend((row as u32).to_le_bytes());
            out.extend((column as u32).to_le_bytes());
        }
    }
    out
}

/// The records of a table whose year is asked for.
fn select(table: &[u8]) -> Vec<u8> {
    let year = |r: &&[u8]| std::str::from_utf8(&r[30..]).ok().and_then(|y| y.parse().ok());
    table.chunks_exact(RECORD).filter(|r| year(r).is_some_and(|y| YEARS.contains(&y))).flatten().copied().collect()
}

fn whole(path: String) -> VirtRange {
    VirtRange { path: path.into_bytes(), offset: 0, length: u64::MAX }
}

/// The files of the tree, as many to a stream as a virtual file can name.
fn streams(top: &str, corpus: &Corpus, params: &[u32]) -> Result<Vec<VirtSpec>, Errno> {
    let of = |ranges| VirtSpec { kernel: "grep".into(), params: params.to_vec(), direction: Direction::Read, ranges };
    let (mut all, mut ranges) = (Vec::new(), Vec::new());
    for entry in corpus.files.iter().filter(|e| !e.bytes.is_empty()) {
        ranges.push(whole(format!("{top}/{}", entry.name)));
        let spec = of(ranges.clone());
        if spec.encode() == Err(Errno::TOOBIG) {
            let last = ranges.pop();
            all.push(of(std::mem::replace(&mut ranges, last.into_iter().collect())));
        }
    }
    all.push(of(ranges));
    Ok(all)
}

fn ask_tree(client: &Client, top: &str, corpus: &Corpus) -> io::Result<Question> {
    // Generated files are noise, in which two letters are found now and then, and a word never.
    let needle = if corpus.generated < corpus.files.len() { "unsafe" } else { "we" };
    let words = needle.as_bytes().chunks(4).map(|c| c.iter().rev().fold(0, |w, b| w << 8 | u32::from(*b)));
    let params: Vec<u32> = std::iter::once(needle.len() as u32).chain(words).collect();
    let specs = streams(top, corpus, &params)?;
    let question = format!("rows with \"{needle}\" in {} files", corpus.files.len());
    ask(client, ("grep", question), &specs, |text| grep(text, needle.as_bytes()))
}

/// Games, the same at each run.
fn table(records: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut record = |_| {
        let (round, player, score) = (next(1000), next(5000), next(100));
        format!("{round:012}{player:012}{score:02}{:02}{:02}{:02}", 1 + next(12), 1 + next(28), next(100)).into_bytes()
    };
    (0..records).flat_map(&mut record).collect()
}

fn ask_table(client: &Client, records: usize) -> io::Result<Question> {
    let file = client.open("/games", &OpenOptions::new().write(true).create(true))?;
    for (number, piece) in table(records).chunks(PIECE).enumerate() {
        file.write_all_at(piece, (number * PIECE) as u64)?;
    }
    drop(file);
    let (params, ranges) = (vec![*YEARS.start(), *YEARS.end()], vec![whole("/games".to_owned())]);
    let spec = VirtSpec { kernel: "sql".into(), params, direction: Direction::Read, ranges };
    let question = format!("select * from {records} games where year between {} and {}", YEARS.start(), YEARS.end());
    ask(client, ("sql", question), &[spec], select)
}

/// The shared object of the kernel as RTL, where one was built: in the folder that WELDFS_KERNELS names, in that of the
/// checkout, or in the kernel's package.
fn library() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = std::env::var_os("WELDFS_KERNELS").map(PathBuf::from);
    let folders = match named {
        Some(folder) => vec![folder],
        None => vec![root.join("target/kernels"), root.join("fpga/packages/crc32c")],
    };
    folders.iter().find_map(|folder| folder.join("librtl_crc32c.so").canonicalize().ok())
}

/// Gives the device the RTL of its kernel crc32c, and has it used.
fn use_rtl(client: &Client, folder: &Path, library: &Path) -> io::Result<()> {
    let package = folder.join("crc32c");
    std::fs::create_dir_all(&package)?;
    let manifest = weldfs_kernels::packages().iter().find(|(name, _)| *name == "crc32c").map(|(_, text)| *text);
    std::fs::write(package.join("kernel.toml"), manifest.ok_or(io::ErrorKind::NotFound)?)?;
    std::fs::copy(library, package.join("librtl_crc32c.so"))?;
    client.load_kernel(package.canonicalize()?)?;
    client.prefer_kernel("crc32c", "rtl")
}

/// The slot that holds a kernel.
fn slot(client: &Client, kernel: &str) -> io::Result<serde_json::Value> {
    let card: serde_json::Value = serde_json::from_str(&client.kernels_json()?)?;
    let slots = card["slots"].as_array().map(Vec::as_slice).unwrap_or_default();
    let holds = |slot: &&serde_json::Value| slot["kernel"] == kernel;
    slots.iter().find(holds).cloned().ok_or_else(|| io::Error::other(format!("no slot of the device holds {kernel}")))
}

fn log(mut device: Device, folder: &Path, image: &Path, appends: u64) -> io::Result<Log> {
    let (library, client) = (library(), device.connect()?);
    let package = folder.join("slots-package");
    let unused = library.as_ref().and_then(|l| use_rtl(&client, &package, l).err()).map(|e| crate::failure::reason(&e));
    let before = Counts::of(&client)?;
    let power_safe = story::power_safe(&client)?;
    let mut crew = story::crew(&device, &folder.join("slots-notes"), appends, true)?;
    let acknowledged_before = crew.acknowledged();
    let counted = Counts::of(&client)?.since(before);
    let backend = slot(&client, "crc32c")?["backend"].as_str().unwrap_or_default().to_owned();
    device.kill()?;
    drop(client);
    crew.join()?;
    let fsck_before_mount = story::fsck(image)?;
    let restart = device.restart()?;
    let client = device.connect()?;
    let verdict = worker::verify(&client, &crew)?;
    drop(client);
    device.stop()?;
    Ok(Log {
        medium: "pmem",
        place: Ground::of(folder)?.describe(),
        power_safe,
        backend,
        library,
        unused,
        acknowledged_before,
        counted,
        restart_ms: restart.as_secs_f64() * 1e3,
        verdict,
        fsck_before_mount,
        fsck_after: story::fsck(image)?,
    })
}

/// Tells the chapter, with its image in `folder`.
pub fn chapter(folder: &Path, corpus: &Corpus, plan: &Plan) -> io::Result<Slots> {
    crate::output::say!(
        "slots: the tree and a table in a drive with kernels; grep and SQL by the host, and in the drive"
    );
    let image = folder.join("slots.img");
    story::mkfs(&image, plan.size, "pmem")?;
    let device = Device::start(&image)?;
    let client = device.connect()?;
    story::load(&client, "/tree", corpus)?;
    client.create_dir_all("/.virt")?;
    let questions = vec![ask_tree(&client, "/tree", corpus)?, ask_table(&client, plan.records)?];
    drop(client);
    crate::output::say!("slots: {} client processes append, checksums by a kernel; then SIGKILL", story::CLIENTS);
    let log = log(device, folder, &image, plan.appends)?;
    std::fs::remove_file(&image)?;
    Ok(Slots { questions, log })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(kernel: &str, params: &[u32], packet: &[u8]) -> Vec<u8> {
        let mut kernel = (weldfs_kernels::find(kernel).unwrap().make)();
        kernel.reset(params).unwrap();
        weldfs_fpga::kernel::run(&mut *kernel, packet, 100, 100).unwrap().0
    }

    #[test]
    fn the_host_computes_what_kernels_do() {
        let text = b"no\nwe, and we\n\nwe";
        assert_eq!(grep(text, b"we"), [1, 0, 3, 0].map(u32::to_le_bytes).concat());
        assert_eq!(grep(text, b"we"), asked("grep", &[2, 0x6577], text));
        let table = table(1000);
        assert_eq!(table.len(), 1000 * RECORD);
        let kept = select(&table);
        assert!((RECORD * 10..RECORD * 60).contains(&kept.len()), "{}", kept.len());
        assert_eq!(kept, asked("sql", &[*YEARS.start(), *YEARS.end()], &table));
    }
}
