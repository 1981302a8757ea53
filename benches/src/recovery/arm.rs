//! What one arm's process does.

use super::{DATA, RECORD, RECORDS};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use weldfs::{Client, Durability, OpenOptions};
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Opened, Source};

/// Who recovers. See the module above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Arm {
    Micro,
    Redo,
    App,
    Host,
    Tail,
}

impl Arm {
    /// All of them.
    pub const ALL: [Arm; 5] = [Arm::Micro, Arm::Redo, Arm::App, Arm::Host, Arm::Tail];

    /// As arguments and tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Arm::Micro => "micro",
            Arm::Redo => "redo",
            Arm::App => "app",
            Arm::Host => "host",
            Arm::Tail => "tail",
        }
    }

    fn from_name(name: &str) -> Option<Arm> {
        Arm::ALL.into_iter().find(|a| a.name() == name)
    }
}

/// What a process of an arm reports.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Done {
    #[serde(default)]
    pub total_ms: f64,
    pub mount_ms: f64,
    pub replay_ms: f64,
    pub finish_ms: f64,
    pub app_ms: f64,
    pub finished: u64,
    pub written: u64,
}

/// Runs an arm in this process and prints what it did as one line once all files are verified and durable.
///
/// # Errors
/// A file that is not what it must be; those of the file system.
pub fn run_arm(name: &str, target: &Path, sources: &Path, files: usize) -> io::Result<()> {
    let arm = Arm::from_name(name).ok_or_else(|| io::Error::other("no such arm"))?;
    let say = |done: &Done| {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, done)?;
        out.write_all(b"\n")?;
        out.flush()
    };
    if arm == Arm::Host {
        let start = Instant::now();
        let written = each(files, &|i| plain(&Host::open(target, i)?, i, sources, true))?;
        return say(&Done { app_ms: ms(start), written, ..Done::default() });
    }
    let start = Instant::now();
    let config = DeviceConfig { cores: 1, memory_bytes: 512 << 20, ..DeviceConfig::default() };
    let other = |e: &dyn std::fmt::Display| io::Error::other(e.to_string());
    let opened = Opened::open(&Source::Image(target.to_owned()), config.memory_bytes).map_err(|e| other(&e))?;
    let report = opened.recovery.clone();
    let embedded = Embedded::over(opened.store.clone(), config).map_err(|e| other(&e))?;
    let client = Client::with(Arc::new(embedded.clone()))?;
    let mount_ms = ms(start);
    let start = Instant::now();
    let written = each(files, &|i| match arm {
        Arm::Micro | Arm::Redo => fused(&client, i, sources),
        Arm::App | Arm::Host | Arm::Tail => plain(&Inside::open(&client, i)?, i, sources, arm != Arm::Tail),
    })?;
    let ns = |ns: u64| ns as f64 / 1e6;
    say(&Done {
        total_ms: 0.0,
        mount_ms,
        replay_ms: ns(report.replay_ns),
        finish_ms: ns(report.finish_ns),
        app_ms: ms(start),
        finished: report.txns_finished,
        written,
    })?;
    drop(client);
    embedded.close().map_err(|e| other(&e))?;
    opened.close().map_err(|e| other(&e))
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

/// Does the files on all processors; counts those for which `f` says that it wrote.
fn each(files: usize, f: &(dyn Fn(usize) -> io::Result<bool> + Sync)) -> io::Result<u64> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let written = AtomicU64::new(0);
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..threads)
            .map(|t| {
                let written = &written;
                s.spawn(move || -> io::Result<()> {
                    for i in (t..files).step_by(threads) {
                        written.fetch_add(u64::from(f(i)?), Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|w| w.join().map_err(|_| io::Error::other("a worker panicked"))?)
    })?;
    Ok(written.load(Relaxed))
}

/// The data of the interrupted record, from where the application keeps it.
fn source(sources: &Path, i: usize) -> io::Result<Vec<u8>> {
    std::fs::read(sources.join(i.to_string()))
}

pub(super) fn name(i: usize) -> PathBuf {
    PathBuf::from(format!("/f{i}"))
}

/// The application over fused operations: is the last record whole? Else append it again.
fn fused(client: &Client, i: usize, sources: &Path) -> io::Result<bool> {
    let mut file = OpenOptions::new().read(true).append(true).open(client, name(i))?;
    let (len, last) = (file.metadata()?.len(), (RECORDS - 1) * RECORD);
    if len == RECORDS * RECORD {
        file.checksum_verify(last, DATA as u32)?;
        return Ok(false);
    }
    if len != last {
        return Err(io::Error::other(format!("file {i} has {len} bytes: half of an operation is visible")));
    }
    file.set_durability(Durability::Durable);
    file.append_checksum_write(&source(sources, i)?[..])?;
    Ok(true)
}

/// A file as the application that does everything itself sees it.
trait Plain {
    fn len(&self) -> io::Result<u64>;
    fn read(&self, buf: &mut [u8], at: u64) -> io::Result<()>;
    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
}

/// Reads records (`all`, or the last), recomputes their checksums, writes what is missing of the last one.
fn plain(file: &dyn Plain, i: usize, sources: &Path, all: bool) -> io::Result<bool> {
    let len = file.len()?;
    let mut buf = vec![0; RECORD as usize];
    let last = (RECORDS - 1) * RECORD;
    for at in (if all { 0 } else { last }..len).step_by(RECORD as usize) {
        let have = (len - at).min(RECORD) as usize;
        file.read(&mut buf[..have], at)?;
        if have < DATA {
            return Err(io::Error::other(format!("file {i}: data of {have} bytes")));
        }
        let sum = weldfs_functions::crc32c(&buf[..DATA]).to_le_bytes();
        if have == RECORD as usize && buf[DATA..] == sum {
            continue;
        }
        if at != last {
            return Err(io::Error::other(format!("file {i}: a record at {at} is wrong")));
        }
        file.write(&sum, at + DATA as u64)?;
        file.sync()?;
        return Ok(true);
    }
    if len == last {
        let data = source(sources, i)?;
        let sum = weldfs_functions::crc32c(&data).to_le_bytes();
        file.write(&data, last)?;
        file.write(&sum, last + DATA as u64)?;
        file.sync()?;
        return Ok(true);
    }
    Ok(false)
}

struct Inside {
    file: weldfs::File,
}

impl Inside {
    fn open(client: &Client, i: usize) -> io::Result<Inside> {
        Ok(Inside { file: OpenOptions::new().read(true).write(true).open(client, name(i))? })
    }
}

impl Plain for Inside {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
    fn read(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, at)
    }
    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

struct Host {
    file: std::fs::File,
}

impl Host {
    fn open(folder: &Path, i: usize) -> io::Result<Host> {
        let path = folder.join(format!("f{i}"));
        Ok(Host { file: std::fs::OpenOptions::new().read(true).write(true).open(path)? })
    }
}

impl Plain for Host {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
    fn read(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, at)
    }
    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
