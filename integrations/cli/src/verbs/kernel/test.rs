//! `weldfs kernel test`: a back-end against its reference.

use super::build::{self, Kind};
use super::cases::{Case, Maker, Stall};
use super::compare::{Difference, compare};
use super::failing::{self, Kept};
use super::host;
use super::reference::{Outcome, Reference};
use crate::failure::{Doing, FAILED, Failure, Outcome as Exit};
use crate::output::{self, even_unread, say};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use weldfs_fpga::kernel::Kernel;
use weldfs_fpga::package::Package;

/// Arguments of `weldfs kernel test`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Builds the back-end (`make KIND` in the folder), then compares it with the program tests/reference:\n\
on the vectors in tests/vectors, on packets of 0 to 130 bytes, and on random ones, with the\n\
parameters of tests/params, cut and stalled at random, with resets in the middle of packets.\n\n\
A case that fails is made as small as it gets and printed; of RTL a waveform is written. The exit\n\
code is then 1."
)]
pub struct Args {
    /// The kernel's folder
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Which back-end; by default the first that kernel.toml has, of model, rtl, hls
    #[arg(long, value_name = "KIND", value_parser = ["model", "rtl", "hls"])]
    back_end: Option<String>,
    /// Chooses the packets: the same number gives the same ones
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many random cases
    #[arg(long, default_value_t = 30)]
    cases: u32,
    /// Print as JSON what came out
    #[arg(long)]
    json: bool,
}

/// What came out.
#[derive(serde::Serialize)]
struct Report {
    name: String,
    backend: &'static str,
    seed: u64,
    /// Cases that were run.
    cases: usize,
    /// Packets in them.
    packets: usize,
    /// Cycles that the back-end counted.
    cycles: u64,
    seconds: f64,
    /// Whether it differs from the reference.
    differs: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    waveform: Option<String>,
}

/// Builds, compares, reports.
pub fn run(args: &Args) -> Exit {
    let start = Instant::now();
    let folder = &args.dir;
    let package = host::package(folder)?;
    let kind = host::kind(&package, args.back_end.as_deref())?;
    build::build(folder, kind)?;
    let reference = Reference::of(folder)?;
    let mut cases = all(folder, args)?;
    if !host::stalls(&package, kind)? {
        // Without a clock there is nothing to stall; the cuts stay.
        cases.iter_mut().for_each(|case| case.stall = None);
    }
    reference.prepare(&questions(&cases))?;
    check_vectors(folder, &reference)?;
    let bench = Bench { folder, package: &package, kind, reference: &reference };
    let found = bench.run(&cases)?;
    let mut report = Report {
        name: package.manifest().name.clone(),
        backend: kind.name(),
        seed: args.seed,
        cases: found.cases,
        packets: cases[..found.cases].iter().map(|c| c.packets.len()).sum(),
        cycles: found.cycles,
        seconds: start.elapsed().as_secs_f64(),
        differs: found.differs.is_some(),
        waveform: None,
    };
    if let Some(difference) = found.differs {
        say!("FAILED: {} of {} differs from tests/reference", kind.name(), report.name);
        report.waveform = bench.explain(&cases[found.cases - 1], difference)?;
        let again = format!("weldfs kernel test {} --back-end {} --seed {}", folder.display(), kind.name(), args.seed);
        say!("  {:<12} {again} --cases {}", "again", args.cases);
    }
    let differs = report.differs;
    even_unread(tell(&report, args.json))?;
    Ok(if differs { FAILED } else { 0 })
}

fn tell(report: &Report, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(report);
    }
    if report.differs {
        return Ok(());
    }
    let Report { name, backend, cases, packets, cycles, seed, .. } = report;
    output::facts(|out| {
        let counted = if *cycles > 0 { format!(", {cycles} cycles") } else { String::new() };
        writeln!(
            out,
            "{name}: {backend} agrees with the reference: {cases} cases, {packets} packets{counted} (seed {seed})"
        )
    })
}

struct Bench<'a> {
    folder: &'a Path,
    package: &'a Package,
    kind: Kind,
    reference: &'a Reference,
}

/// What a run of all cases came to; the last of them differs if one does.
struct Found {
    cases: usize,
    cycles: u64,
    differs: Option<Difference>,
}

impl Bench<'_> {
    fn kernel(&self, stall: Option<Stall>, wave: Option<&Path>) -> Result<Box<dyn Kernel>, Failure> {
        host::start(self.package, self.kind, stall, wave)
    }

    fn run(&self, cases: &[Case]) -> Result<Found, Failure> {
        let mut kernels: HashMap<Option<Stall>, Box<dyn Kernel>> = HashMap::new();
        let (mut cycles, bar) = (0, output::progress(Some(cases.len() as u64)));
        for (i, case) in cases.iter().enumerate() {
            bar.set_position(i as u64);
            let kernel = match kernels.entry(case.stall) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(place) => place.insert(self.kernel(case.stall, None)?),
            };
            match compare(&mut **kernel, case, self.reference)? {
                Ok(took) => cycles += took,
                Err(difference) => {
                    bar.finish_and_clear();
                    return Ok(Found { cases: i + 1, cycles, differs: Some(difference) });
                }
            }
        }
        bar.finish_and_clear();
        Ok(Found { cases: cases.len(), cycles, differs: None })
    }

    /// Prints the smallest case that fails; where its waveform is, if there is one.
    fn explain(&self, case: &Case, first: Difference) -> Result<Option<String>, Failure> {
        // Each time a kernel that has just begun: what an earlier case left behind must not decide.
        let fails = |case: &Case| Ok(compare(&mut *self.kernel(case.stall, None)?, case, self.reference)?.err());
        let again = fails(case)?;
        let alone = again.is_some();
        let (case, difference) = match again {
            Some(difference) => failing::smallest(case, difference, fails)?,
            None => (case.clone(), first),
        };
        let kept = Kept::write(self.folder, &case, &difference)?;
        let lines = failing::report(&case, &difference, &kept);
        lines.lines().for_each(|line| say!("{line}"));
        if !alone {
            say!("  {:<12} only behind other cases: does something stay that a reset should clear?", "fails");
            return Ok(None);
        }
        if self.kind != Kind::Rtl {
            return Ok(None);
        }
        let wave = kept.wave();
        let _ = fs::remove_file(&wave);
        compare(&mut *self.kernel(case.stall, Some(&wave))?, &case, self.reference)?.err();
        if fs::metadata(&wave).map_or(0, |file| file.len()) == 0 {
            return Err(Failure::new(format!("{}: the back-end wrote no waveform", wave.display())));
        }
        say!("  {:<12} {} (gtkwave shows it)", "waveform", wave.display());
        Ok(Some(wave.display().to_string()))
    }
}

/// Vectors, tails, random cases.
fn all(folder: &Path, args: &Args) -> Result<Vec<Case>, Failure> {
    let vectors = vectors(folder)?;
    let samples: Vec<Vec<u8>> = vectors.iter().map(|v| v.packet.clone()).collect();
    let mut lists = lists(&folder.join("tests/params"))?;
    if lists.is_empty() {
        lists = vectors.iter().map(|v| v.params.clone()).collect();
    }
    if lists.is_empty() {
        return Err(Failure::new(format!("{}: tests/params has no list of parameters", folder.display())));
    }
    let mut maker = Maker::new(args.seed, &lists, &samples);
    let mut cases: Vec<Case> = vectors.iter().map(|v| Case::plain(&v.params, v.packet.clone())).collect();
    cases.extend(maker.tails());
    cases.extend((0..args.cases).map(|_| maker.random()));
    Ok(cases)
}

fn questions(cases: &[Case]) -> Vec<(Vec<u32>, Vec<u8>)> {
    let of = |case: &Case| case.packets.iter().map(|p| (case.params.clone(), p.clone())).collect::<Vec<_>>();
    cases.iter().flat_map(of).collect()
}

/// A packet with parameters, and what it comes to.
struct Vector {
    name: String,
    params: Vec<u32>,
    packet: Vec<u8>,
    output: Vec<u8>,
}

/// `tests/vectors`: of each name `NAME.params`, `NAME.in`, `NAME.out`.
fn vectors(folder: &Path) -> Result<Vec<Vector>, Failure> {
    let at = folder.join("tests/vectors");
    if !at.is_dir() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(&at).doing("read", &at)? {
        let path = entry.doing("read", &at)?.path();
        if path.extension().is_some_and(|e| e == "in") {
            names.push(path);
        }
    }
    names.sort();
    let read = |path: PathBuf| fs::read(&path).doing("read", &path);
    let vector = |path: PathBuf| {
        let mut params = lists(&path.with_extension("params"))?;
        let params = if params.len() == 1 { params.remove(0) } else { Vec::new() };
        let (output, name) = (read(path.with_extension("out"))?, path.display().to_string());
        Ok(Vector { name, params, output, packet: read(path)? })
    };
    names.into_iter().map(vector).collect()
}

/// A reference that contradicts the vectors would make every back-end look wrong, or a wrong one right.
fn check_vectors(folder: &Path, reference: &Reference) -> Result<(), Failure> {
    for Vector { name, params, packet, output } in vectors(folder)? {
        if reference.says(&params, &packet)? != Outcome::Output(output) {
            return Err(Failure::new(format!("tests/reference does not make of {name} what its .out file has")));
        }
    }
    Ok(())
}

/// The lists of parameters of a file, one a line.
fn lists(file: &Path) -> Result<Vec<Vec<u32>>, Failure> {
    let text = match fs::read_to_string(file) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.doing("read", file)?,
    };
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).filter(|l| !l.is_empty());
    let list = |line: &str| match line {
        "none" => Ok(Vec::new()),
        line => line.split_whitespace().map(|word| word_of(word, file)).collect(),
    };
    lines.map(list).collect()
}

fn word_of(word: &str, file: &Path) -> Result<u32, Failure> {
    crate::words::word(word).map_err(|why| Failure::new(format!("{}: {why}", file.display())))
}
