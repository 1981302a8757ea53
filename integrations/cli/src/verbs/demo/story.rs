//! The chapters of the demo, in order.

use super::corpus::Corpus;
use super::device::Device;
use super::measure;
use super::slots::{self, Slots};
use super::table::{self, Gain};
use super::worker::{self, Crew, Verdict};
use crate::failure::{Failure, reason};
use crate::output::{self, say};
use crate::verbs::bench::watch::Watcher;
use serde::Serialize;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use weldfs::{At, Client, OpenFlags};
use weldfs_benches::micro::{MicroReport, Watch};
use weldfs_benches::peers::Ground;

/// Client processes of a crash.
pub const CLIENTS: u32 = 4;
const WRITE_NEW: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE).union(OpenFlags::TRUNC);

/// One medium's chapter.
#[derive(Serialize)]
struct Chapter {
    medium: String,
    place: String,
    power_safe: bool,
    files: usize,
    bytes: u64,
    generated: usize,
    restart_ms: f64,
    files_intact: usize,
    verdict: Verdict,
    fsck_before_mount: bool,
    fsck_after: bool,
}

impl Chapter {
    fn good(&self) -> bool {
        self.verdict.good() && self.files_intact == self.files && self.fsck_before_mount && self.fsck_after
    }

    fn text(&self) -> String {
        let v = &self.verdict;
        format!(
            "kill -9 of the device under {CLIENTS} clients, {} image on {}: {} appends acknowledged as durable, {} \
             lost, {} half; {} of {} files intact; answering again after {:.0} ms; fsck {}, then {}\n",
            self.medium,
            self.place,
            v.acknowledged,
            v.lost,
            v.half,
            self.files_intact,
            self.files,
            self.restart_ms,
            clean(self.fsck_before_mount),
            clean(self.fsck_after),
        )
    }
}

/// What fsck said.
pub fn clean(is: bool) -> &'static str {
    if is { "clean" } else { "PROBLEMS" }
}

/// All that the demo found out.
#[derive(Serialize)]
struct Facts {
    gains: Vec<Gain>,
    /// Why there are no gains.
    #[serde(skip_serializing_if = "Option::is_none")]
    unmeasured: Option<String>,
    /// The command that measures the same.
    command: String,
    measured: Option<MicroReport>,
    chapters: Vec<Chapter>,
    slots: Slots,
    good: bool,
    seconds: f64,
}

/// Whether the image is on a medium that survives a power cut.
pub fn power_safe(client: &Client) -> io::Result<bool> {
    Ok(client.info()?.power_safe)
}

fn make_folders(client: &Client, top: &str, corpus: &Corpus) -> io::Result<()> {
    client.create_dir_all(top)?;
    corpus.folders().iter().try_for_each(|f| client.create_dir_all(format!("{top}/{f}")))
}

fn store(client: &Client, top: &str, corpus: &Corpus) -> io::Result<()> {
    for entry in &corpus.files {
        let path = format!("{top}/{}", entry.name);
        client.open_write_close(path, WRITE_NEW, 0o644, At::Offset(0), &entry.bytes[..])?;
    }
    Ok(())
}

fn intact(client: &Client, top: &str, corpus: &Corpus) -> usize {
    let same = |entry: &&super::corpus::Entry| {
        let mut found = vec![0; entry.bytes.len() + 1];
        let read = client.open_read_close(format!("{top}/{}", entry.name), OpenFlags::READ, 0, &mut found[..]);
        read == Ok(entry.bytes.len()) && found[..entry.bytes.len()] == entry.bytes[..]
    };
    corpus.files.iter().filter(same).count()
}

fn weldfs(args: &[&OsStr]) -> io::Result<bool> {
    let out = Command::new(std::env::current_exe()?).args(args).output()?;
    if !out.status.success() {
        say!("weldfs {args:?}: {}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    }
    Ok(out.status.success())
}

/// Whether fsck finds an image clean.
pub fn fsck(image: &Path) -> io::Result<bool> {
    weldfs(&["fsck".as_ref(), "-n".as_ref(), image.as_ref()])
}

/// A new image.
pub fn mkfs(image: &Path, size: &str, medium: &str) -> io::Result<()> {
    let options = ["--size", size, "--medium", medium, "--force"].map(OsStr::new);
    let all: Vec<&OsStr> = [OsStr::new("mkfs"), image.as_os_str()].into_iter().chain(options).collect();
    if weldfs(&all)? { Ok(()) } else { Err(io::Error::other("mkfs failed")) }
}

/// The tree in a folder of the device, synced.
pub fn load(client: &Client, top: &str, corpus: &Corpus) -> io::Result<()> {
    make_folders(client, top, corpus)?;
    store(client, top, corpus)?;
    client.sync()
}

/// Client processes that have done half of what they shall do at most, each of them a part, and go on.
pub fn crew(device: &Device, notes: &Path, most: u64, slot: bool) -> io::Result<Crew> {
    device.connect()?.create_dir_all("/logs")?;
    let mut crew = Crew::start(device.socket(), notes, CLIENTS, most, slot)?;
    let (start, enough) = (Instant::now(), most * u64::from(CLIENTS) / 2);
    while !crew.under_way(enough) {
        let waited = start.elapsed();
        if waited > Duration::from_secs(20) && crew.under_way(0) {
            // A slow medium: something of each client has to be kept, and that is what counts.
            break;
        }
        if crew.has_failed()? {
            // `join` says which, and how it ended.
            break;
        }
        if waited > Duration::from_secs(120) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a client has not begun within two minutes"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(crew)
}

fn chapter(folder: &Path, medium: &str, corpus: &Corpus, plan: &Plan) -> io::Result<Chapter> {
    let image = folder.join(format!("{medium}.img"));
    say!("{medium}: an image, a device process, {} files by one command each", corpus.files.len());
    mkfs(&image, plan.size, medium)?;
    let mut device = Device::start(&image)?;
    let client = device.connect()?;
    load(&client, "/tree", corpus)?;
    let power_safe = power_safe(&client)?;
    drop(client);
    say!("{medium}: {CLIENTS} client processes append checksummed records, durable; then SIGKILL of the device");
    let mut crew = crew(&device, &folder.join(format!("{medium}-notes")), plan.most(medium), false)?;
    device.kill()?;
    crew.join()?;
    let fsck_before_mount = fsck(&image)?;
    let restart = device.restart()?;
    let client = device.connect()?;
    let verdict = worker::verify(&client, &crew)?;
    let files_intact = intact(&client, "/tree", corpus);
    drop(client);
    device.stop()?;
    let fsck_after = fsck(&image)?;
    std::fs::remove_file(&image)?;
    Ok(Chapter {
        medium: medium.to_owned(),
        place: Ground::of(folder)?.describe(),
        power_safe,
        files: corpus.files.len(),
        bytes: corpus.bytes(),
        generated: corpus.generated,
        restart_ms: restart.as_secs_f64() * 1e3,
        files_intact,
        verdict,
        fsck_before_mount,
        fsck_after,
    })
}

/// How much of everything.
struct Plan {
    size: &'static str,
    /// Appends of each client at most, on a medium in memory and on a disk.
    appends: (u64, u64),
}

impl Plan {
    fn most(&self, medium: &str) -> u64 {
        if medium == "block" { self.appends.1 } else { self.appends.0 }
    }

    fn slots(quick: bool) -> slots::Plan {
        match quick {
            true => slots::Plan { size: "256M", records: 200_000, appends: 1000 },
            false => slots::Plan { size: "1G", records: 2_000_000, appends: 5000 },
        }
    }
}

/// Nothing of the next chapter is begun after a signal, or when nothing reads the story any more.
fn goes_on(watch: &Watcher) -> io::Result<()> {
    if watch.stop() {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
    }
    // `| head -1` has its line, and is about to end.
    if output::wait_or_reader_gone(Duration::from_millis(100)) {
        return Err(io::Error::other(Failure::reader_gone()));
    }
    Ok(())
}

/// Facts as text, as soon as they are known; nothing with `--json`.
fn show(json: bool, text: &str) -> io::Result<()> {
    if json {
        return Ok(());
    }
    output::facts(|out| out.write_all(text.as_bytes())).map_err(io::Error::other)
}

/// Tells the whole story, with its files in `folder`, somewhere on the file system of `place`; `Ok(false)` when a
/// promise was found broken, or a measurement failed.
pub fn tell(folder: &Path, place: &Path, quick: bool, json: bool) -> io::Result<bool> {
    let (start, mut watch) = (Instant::now(), Watcher::new("demo")?);
    let measured = measure::measure(folder, quick, &mut watch);
    watch.clear();
    goes_on(&watch)?;
    let command = measure::command(place);
    // What cannot be measured is said; what survives a crash is shown all the same.
    let (measured, unmeasured, failed) = match measured {
        Ok(Ok(report)) => {
            let failed = !report.failed.is_empty();
            (Some(report), None, failed)
        }
        Ok(Err(why)) => (None, Some(why), false),
        Err(e) => (None, Some(reason(&e)), true),
    };
    let gains = measured.as_ref().map(table::gains).unwrap_or_default();
    match (&measured, &unmeasured) {
        (Some(report), _) => show(json, &format!("{}The same by: {command}\n\n", table::text(report, &gains)))?,
        (None, why) => show(json, &format!("Nothing was measured: {}\n\n", why.as_deref().unwrap_or_default()))?,
    }
    let corpus = if quick { Corpus::collect(1000, 1000) } else { Corpus::collect(5000, 8000) };
    let plan =
        Plan { size: if quick { "512M" } else { "1G" }, appends: if quick { (5000, 300) } else { (20000, 2500) } };
    let mut chapters = Vec::new();
    for medium in ["pmem", "block"] {
        goes_on(&watch)?;
        let chapter = chapter(folder, medium, &corpus, &plan)?;
        show(json, &chapter.text())?;
        chapters.push(chapter);
    }
    goes_on(&watch)?;
    let slots = slots::chapter(folder, &corpus, &Plan::slots(quick))?;
    show(json, &slots.text())?;
    let kept = chapters.iter().all(Chapter::good) && slots.good();
    let seconds = start.elapsed().as_secs_f64();
    let verdict = match (kept, failed) {
        (true, false) => "nothing promised was lost",
        (true, true) => "nothing promised was lost; a measurement FAILED, see above",
        (false, _) => "A PROMISE WAS BROKEN",
    };
    show(json, &format!("{verdict}; {seconds:.0} s\n"))?;
    if json {
        let good = kept && !failed;
        let facts = Facts { gains, unmeasured, command, measured, chapters, slots, good, seconds };
        output::json(&facts).map_err(io::Error::other)?;
    }
    Ok(kept && !failed)
}
