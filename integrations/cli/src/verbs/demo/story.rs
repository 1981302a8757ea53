//! The chapters of the demo, in order.

use super::corpus::Corpus;
use super::device::Device;
use super::host;
use super::table::{self, Row};
use super::worker::{self, Crew, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use weldfs::{At, Client, Durability, OpenFlags, OpenOptions};

/// The story goes to stderr: stdout belongs to the facts, as JSON or as the table.
macro_rules! say {
    ($($arg:tt)*) => { eprintln!($($arg)*) };
}

const CLIENTS: u32 = 4;
const WRITE_NEW: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE).union(OpenFlags::TRUNC);

/// One medium's chapter.
#[derive(Serialize)]
struct Chapter {
    medium: String,
    power_safe: bool,
    files: usize,
    bytes: u64,
    generated: usize,
    restart_ms: f64,
    files_intact: usize,
    verdict: Verdict,
    fsck_before_mount: bool,
    fsck_after: bool,
    rows: Vec<Row>,
}

impl Chapter {
    fn good(&self) -> bool {
        let v = &self.verdict;
        v.lost == 0
            && v.half == 0
            && v.acknowledged > 0
            && self.files_intact == self.files
            && self.fsck_before_mount
            && self.fsck_after
    }
}

/// Counters of the device that the table needs.
#[derive(Clone, Copy)]
struct Counted {
    commands: f64,
    copies: f64,
    flushes: f64,
    power_safe: bool,
}

fn counted(client: &Client) -> io::Result<Counted> {
    let stats: serde_json::Value = serde_json::from_str(&client.stats_json()?)?;
    let number = |path: &str| stats.pointer(path).and_then(serde_json::Value::as_f64);
    let get = |path: &str| number(path).ok_or_else(|| io::Error::other(format!("the device's report has no {path}")));
    Ok(Counted {
        commands: get("/total/commands")?,
        copies: get("/total/payload_copies")?,
        flushes: get("/log/flushes")?,
        power_safe: stats.pointer("/device/power_safe").and_then(serde_json::Value::as_bool).unwrap_or(false),
    })
}

/// Where a piece of work is measured.
struct Bench<'a> {
    client: &'a Client,
    medium: &'a str,
    durability: Durability,
}

impl Bench<'_> {
    fn measure(
        &self,
        work: &str,
        system: &str,
        ops: usize,
        run: impl FnOnce(&Client) -> io::Result<()>,
    ) -> io::Result<Row> {
        let client = self.client.durability(self.durability);
        let before = counted(&client)?;
        let start = Instant::now();
        run(&client)?;
        let took = start.elapsed();
        let after = counted(&client)?;
        let (durable, per) = (self.durability == Durability::Durable, |v: f64| v / ops as f64);
        Ok(Row {
            work: work.to_owned(),
            system: system.to_owned(),
            medium: self.medium.to_owned(),
            durability: if durable { "durable" } else { "volatile" }.to_owned(),
            power_safe: durable && after.power_safe,
            ops: ops as u64,
            us_per_op: took.as_secs_f64() * 1e6 / ops as f64,
            commands: per(after.commands - before.commands),
            crossings: per(after.commands - before.commands),
            copies: Some(per(after.copies - before.copies)),
            flushes: Some(per(after.flushes - before.flushes)),
        })
    }
}

fn make_folders(client: &Client, top: &str, corpus: &Corpus) -> io::Result<()> {
    client.create_dir_all(top)?;
    corpus.folders().iter().try_for_each(|f| client.create_dir_all(format!("{top}/{f}")))
}

fn store_fused(client: &Client, top: &str, corpus: &Corpus) -> io::Result<()> {
    for entry in &corpus.files {
        let path = format!("{top}/{}", entry.name);
        client.open_write_close(path, WRITE_NEW, 0o644, At::Offset(0), &entry.bytes[..])?;
    }
    Ok(())
}

fn store_unfused(client: &Client, top: &str, corpus: &Corpus) -> io::Result<()> {
    for entry in &corpus.files {
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let file = client.open(format!("{top}/{}", entry.name), &options)?;
        file.write_all_at(&entry.bytes, 0)?;
        file.close()?;
    }
    Ok(())
}

fn append_fused(client: &Client, path: &str, count: usize, data: &[u8]) -> io::Result<()> {
    let file = client.open(path, &OpenOptions::new().write(true).create(true))?;
    for _ in 0..count {
        file.append_checksum_write(data)?;
    }
    file.close()
}

fn append_unfused(client: &Client, path: &str, count: usize, data: &[u8]) -> io::Result<()> {
    let file = client.open(path, &OpenOptions::new().append(true).create(true))?;
    for _ in 0..count {
        file.append(data)?;
        file.append(&crc32c::crc32c(data).to_le_bytes()[..])?;
    }
    file.close()
}

fn intact(client: &Client, top: &str, corpus: &Corpus) -> usize {
    let same = |entry: &&super::corpus::Entry| {
        let mut found = vec![0; entry.bytes.len() + 1];
        let read = client.open_read_close(format!("{top}/{}", entry.name), OpenFlags::READ, 0, &mut found[..]);
        read == Ok(entry.bytes.len()) && found[..entry.bytes.len()] == entry.bytes[..]
    };
    corpus.files.iter().filter(same).count()
}

fn weldfs(args: &[&std::ffi::OsStr]) -> io::Result<bool> {
    let out = Command::new(std::env::current_exe()?).args(args).output()?;
    if !out.status.success() {
        eprintln!("weldfs {args:?}: {}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    }
    Ok(out.status.success())
}

fn measure(client: &Client, medium: &str, corpus: &Corpus, appends: usize) -> io::Result<Vec<Row>> {
    let (mut rows, data, n) = (Vec::new(), vec![0x5a; worker::PAYLOAD], corpus.files.len());
    for durability in [Durability::Volatile, Durability::Durable] {
        let bench = Bench { client, medium, durability };
        let tag = if durability == Durability::Durable { "durable" } else { "volatile" };
        let (fused, unfused) = (format!("/fused-{tag}"), format!("/unfused-{tag}"));
        make_folders(client, &fused, corpus)?;
        make_folders(client, &unfused, corpus)?;
        rows.push(bench.measure("store a file", "weldfs fused", n, |c| store_fused(c, &fused, corpus))?);
        rows.push(bench.measure("store a file", "weldfs unfused", n, |c| store_unfused(c, &unfused, corpus))?);
        let (a, b) = (format!("/log-fused-{tag}"), format!("/log-unfused-{tag}"));
        rows.push(
            bench.measure("append + checksum", "weldfs fused", appends, |c| append_fused(c, &a, appends, &data))?,
        );
        rows.push(
            bench.measure("append + checksum", "weldfs unfused", appends, |c| append_unfused(c, &b, appends, &data))?,
        );
        client.remove_all(&unfused)?;
        client.remove_all(&fused)?;
    }
    Ok(rows)
}

fn crash(device: &mut Device, folder: &Path, most: u64) -> io::Result<(Crew, Duration)> {
    device.connect()?.create_dir_all("/logs")?;
    let mut crew = Crew::start(device.socket(), folder, CLIENTS, most)?;
    let (start, enough) = (Instant::now(), most * u64::from(CLIENTS) / 2);
    while crew.acknowledged() < enough && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(2));
    }
    device.kill()?;
    crew.join()?;
    Ok((crew, start.elapsed()))
}

fn chapter(folder: &Path, medium: &str, corpus: &Corpus, plan: &Plan) -> io::Result<Chapter> {
    let image = folder.join(format!("{medium}.img"));
    say!("\n== {medium}: make an image, start a device process");
    let made = weldfs(&[
        "mkfs".as_ref(),
        image.as_ref(),
        "--size".as_ref(),
        plan.size.as_ref(),
        "--medium".as_ref(),
        medium.as_ref(),
        "--force".as_ref(),
    ])?;
    if !made {
        return Err(io::Error::other("mkfs failed"));
    }
    let mut device = Device::start(&image)?;
    let client = device.connect()?;
    say!("   load {} files, {:.1} MB, one command each", corpus.files.len(), corpus.bytes() as f64 / 1e6);
    make_folders(&client, "/tree", corpus)?;
    store_fused(&client, "/tree", corpus)?;
    client.sync()?;
    let rows = measure(&client, medium, plan.sample, plan.appends)?;
    let power_safe = counted(&client)?.power_safe;
    drop(client);
    say!("   {CLIENTS} client processes append checksummed records, durable; then SIGKILL of the device");
    let (crew, _) = crash(&mut device, &folder.join(format!("{medium}-notes")), plan.most)?;
    let fsck_before_mount = weldfs(&["fsck".as_ref(), "-n".as_ref(), image.as_ref()])?;
    let restart = device.restart()?;
    let client = device.connect()?;
    let verdict = worker::verify(&client, &crew)?;
    let files_intact = intact(&client, "/tree", corpus);
    say!(
        "   recovered and answering after {:.0} ms: {} appends were durable, {} lost, {} half; {} of {} files intact",
        restart.as_secs_f64() * 1e3,
        verdict.acknowledged,
        verdict.lost,
        verdict.half,
        files_intact,
        corpus.files.len()
    );
    drop(client);
    device.stop()?;
    let fsck_after = weldfs(&["fsck".as_ref(), "-n".as_ref(), image.as_ref()])?;
    say!(
        "   fsck: {} before the mount, {} after",
        if fsck_before_mount { "clean" } else { "PROBLEMS" },
        if fsck_after { "clean" } else { "PROBLEMS" }
    );
    std::fs::remove_file(&image)?;
    Ok(Chapter {
        medium: medium.to_owned(),
        power_safe,
        files: corpus.files.len(),
        bytes: corpus.bytes(),
        generated: corpus.generated,
        restart_ms: restart.as_secs_f64() * 1e3,
        files_intact,
        verdict,
        fsck_before_mount,
        fsck_after,
        rows,
    })
}

/// How much of everything.
struct Plan<'a> {
    size: &'static str,
    appends: usize,
    most: u64,
    sample: &'a Corpus,
}

/// Tells the whole story; `Ok(false)` when a promise was found broken.
pub fn tell(folder: &Path, quick: bool, json: bool) -> io::Result<bool> {
    let start = Instant::now();
    let corpus = if quick { Corpus::collect(1000, 1000) } else { Corpus::collect(5000, 8000) };
    // Each durable file costs the disk a flush of its own: a sample is enough for the comparison.
    let few = if quick { 200 } else { 1000 };
    let sample = Corpus::collect(few, few);
    let (place, _) = host::kind(folder);
    say!(
        "weldfs demo: {} files ({} generated); images and host files on {place}",
        corpus.files.len(),
        corpus.generated
    );
    let mut chapters = Vec::new();
    for medium in ["pmem", "block"] {
        let slow = medium == "block";
        let plan = Plan {
            size: if quick { "512M" } else { "1G" },
            appends: if quick { 500 } else { 2000 },
            most: if slow {
                if quick { 300 } else { 2500 }
            } else if quick {
                5000
            } else {
                20000
            },
            sample: &sample,
        };
        chapters.push(chapter(folder, medium, &corpus, &plan)?);
    }
    let host_dir = folder.join("host");
    let mut rows: Vec<Row> = chapters.iter().flat_map(|c| c.rows.clone()).collect();
    for durable in [false, true] {
        std::fs::create_dir_all(&host_dir)?;
        rows.push(host::store_tree(&host_dir, &sample, durable)?);
        rows.push(host::append_log(&host_dir, if quick { 500 } else { 2000 }, worker::PAYLOAD, durable)?);
        std::fs::remove_dir_all(&host_dir)?;
    }
    rows.sort_by_key(|r| (r.work.clone(), r.durability.clone()));
    let good = chapters.iter().all(Chapter::good);
    if !json {
        table::print(&rows);
    }
    say!("profile: default (no modelled delay); pmem here is a mapped file: it survives the process, not the power");
    say!(
        "{} in {:.0} s",
        if good { "nothing promised was lost" } else { "A PROMISE WAS BROKEN" },
        start.elapsed().as_secs_f64()
    );
    if json {
        let facts =
            BTreeMap::from([("chapters", serde_json::to_value(&chapters)?), ("rows", serde_json::to_value(&rows)?)]);
        println!("{}", serde_json::to_string(&facts)?);
    }
    Ok(good)
}
