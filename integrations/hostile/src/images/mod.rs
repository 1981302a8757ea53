//! Damaged and forged images: each mounted, listed, read, checked, scrubbed and worked with, by processes of their own
//! with little memory, so that an abort, a hang or an allocation without bound is a finding like any other.
//!
//! * `pristine`: sound images and what each may show; `harm`: image `n` of a seed; `look`: what an image shows;
//!   `tree`, `log`: readers of its own; `names`: what is listed against what they find; `judge`: what may become of it;
//!   `verbs`: the same through the command line program, and `expected`: what that must show.

mod expected;
mod harm;
mod judge;
mod log;
mod look;
mod names;
mod pristine;
#[cfg(test)]
mod tests;
mod tree;
mod verbs;

use judge::Verdict;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Bytes of data that a process may have which looks at images.
const MEMORY: u64 = 512 << 20;
/// What one image may take: far above what any takes on a busy machine.
const HANG: Duration = Duration::from_secs(30);
/// Findings that are printed one by one.
const SHOWN: usize = 20;

/// Damaged images through the library, and some of them through the command line program
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How many images
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: u64,
    /// What the images are drawn by
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only image N of the seed, in this process, saying what it is
    #[arg(long, value_name = "N")]
    only: Option<u64>,
    /// With --only: writes the image there
    #[arg(long, value_name = "FILE", requires = "only")]
    keep: Option<PathBuf>,
    /// Processes that look at images [default: one per processor]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=64))]
    jobs: Option<u64>,
    /// The weldfs program that some images of each kind go through [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    weldfs: Option<PathBuf>,
    /// Writes the report there
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Looks at the images FIRST, FIRST+STEP, ...: a line before each and one after it
    #[arg(long, hide = true, num_args = 2, value_names = ["FIRST", "STEP"])]
    worker: Option<Vec<u64>>,
}

/// What a run comes to.
#[derive(Default, serde::Serialize)]
struct Report {
    seed: u64,
    images: u64,
    refused: u64,
    errors: u64,
    cut: u64,
    whole: u64,
    by_program: u64,
    /// Images of each kind among them.
    program_kinds: BTreeMap<&'static str, u64>,
    /// Verbs of the program that ended with success, and without.
    verbs_well: u64,
    verbs_failed: u64,
    seconds: f64,
    bad: BTreeMap<u64, String>,
}

impl Report {
    fn count(&mut self, verdict: &str) {
        self.images += 1;
        let of = match verdict {
            "Refused" => &mut self.refused,
            "Errors" => &mut self.errors,
            "Cut" => &mut self.cut,
            _ => &mut self.whole,
        };
        *of += 1;
    }

    fn bad(&mut self, n: u64, why: String) {
        if self.bad.len() < SHOWN {
            println!("bad: image {n}: {why}\n  again: weldfs-hostile images --seed {} --only {n}", self.seed);
        }
        self.bad.insert(n, why);
    }
}

/// 0 if every image was judged and none is bad.
pub fn run(args: &Args) -> std::io::Result<u8> {
    if let Some(worker) = &args.worker {
        return work(args, worker[0], worker[1]);
    }
    if let Some(n) = args.only {
        return one(args, n);
    }
    let start = Instant::now();
    let mut report = Report { seed: args.seed, ..Report::default() };
    let program = program(args)?;
    verbs::sound(&program).map_err(std::io::Error::other)?;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let jobs = args.jobs.unwrap_or(cores).min(args.count);
    // All at once; each is read by a thread of its own, and a silent one is killed.
    let parts: Vec<Part> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..jobs).map(|first| scope.spawn(move || part(args, first, jobs))).collect();
        all.into_iter().filter_map(|t| t.join().ok()).collect::<std::io::Result<_>>()
    })?;
    for (verdicts, bad) in parts {
        verdicts.iter().for_each(|v| report.count(v));
        bad.into_iter().for_each(|(n, why)| {
            report.images += 1;
            report.bad(n, why);
        });
    }
    for (n, done) in through(args, &program, jobs)? {
        report.by_program += 1;
        *report.program_kinds.entry(harm::kind(n)).or_default() += 1;
        match done {
            Ok(ended) => {
                report.verbs_well += ended.well;
                report.verbs_failed += ended.failed;
            }
            Err(why) => report.bad(n, format!("through the program: {why}")),
        }
    }
    report.seconds = start.elapsed().as_secs_f64();
    println!(
        "seed {}: {} images: {} refused, {} with errors, {} cut back, {} whole, {} bad; {} by the program, of {} \
         kinds: {} verbs ended well, {} not; {:.0} s",
        report.seed,
        report.images,
        report.refused,
        report.errors,
        report.cut,
        report.whole,
        report.bad.len(),
        report.by_program,
        report.program_kinds.len(),
        report.verbs_well,
        report.verbs_failed,
        report.seconds
    );
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    let all = report.images == args.count;
    if !all {
        println!("bad: {} images were to be judged", args.count);
    }
    Ok(u8::from(!all || !report.bad.is_empty()))
}

fn program(args: &Args) -> std::io::Result<verbs::Program> {
    let beside = || Ok(std::env::current_exe()?.with_file_name("weldfs"));
    verbs::Program::new(&args.weldfs.clone().map_or_else(beside, Ok::<_, std::io::Error>)?)
}

/// What is said of an image that went through the program.
type Through = (u64, Result<verbs::Ended, String>);

/// Images of each kind through the program, as many at once as there are processes that look at images.
fn through(args: &Args, program: &verbs::Program, jobs: u64) -> std::io::Result<Vec<Through>> {
    let every = verbs::every(args.count) as usize;
    let share = |first: u64| -> Vec<Through> {
        let mine = (0..args.count).step_by(every).skip(first as usize).step_by(jobs as usize);
        mine.map(|n| (n, verbs::judge(program, &harm::case(args.seed, n)))).collect()
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..jobs).map(|first| scope.spawn(move || share(first))).collect();
        let joined = all.into_iter().map(|t| t.join().map_err(|_| std::io::Error::other("the test's own panic")));
        let shares: Vec<Vec<Through>> = joined.collect::<std::io::Result<_>>()?;
        Ok(shares.into_iter().flatten().collect())
    })
}

/// Verdicts by name, and findings by image.
type Part = (Vec<String>, Vec<(u64, String)>);

/// One share of the images, by as many processes as it takes: a dead or silent one is followed by the next.
fn part(args: &Args, first: u64, step: u64) -> std::io::Result<Part> {
    let (mut verdicts, mut bad, mut next) = (Vec::new(), Vec::new(), first);
    while next < args.count {
        let mut child = worker(args, next, step)?;
        let lines = lines(&mut child);
        let died = loop {
            match lines.recv_timeout(HANG) {
                Ok(line) => match line.split_once(' ') {
                    Some(("ok", verdict)) => {
                        verdicts.push(verdict.to_owned());
                        next += step;
                    }
                    Some(("bad", why)) => {
                        bad.push((next, why.to_owned()));
                        next += step;
                    }
                    _ => {}
                },
                Err(RecvTimeoutError::Timeout) => {
                    child.kill()?;
                    break Some(format!("nothing after {} s", HANG.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        let status = child.wait()?;
        if next < args.count {
            bad.push((next, died.unwrap_or_else(|| format!("the process that looked at it ended: {status}"))));
            next += step;
        }
    }
    Ok((verdicts, bad))
}

fn worker(args: &Args, first: u64, step: u64) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["images", "--count", &args.count.to_string(), "--seed", &args.seed.to_string()]);
    command.args(["--worker", &first.to_string(), &step.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
}

fn lines(child: &mut Child) -> Receiver<String> {
    let (send, receive) = channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
    }
    receive
}

/// Judges one image; a panic is a finding.
fn judged(case: &harm::Case) -> Result<Verdict, String> {
    let done = catch_unwind(AssertUnwindSafe(|| judge::judge(&case.harmed)));
    done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(format!("a panic: {}", text.unwrap_or_default()))
    })
}

fn work(args: &Args, first: u64, step: u64) -> std::io::Result<u8> {
    bound()?;
    std::panic::set_hook(Box::new(|_| ()));
    let mut out = std::io::stdout();
    for n in (first..args.count).step_by(step as usize) {
        let case = harm::case(args.seed, n);
        match judged(&case) {
            Ok(verdict) => writeln!(out, "ok {verdict:?}")?,
            Err(why) => writeln!(out, "bad {}: {}", case.what, why.replace('\n', " "))?,
        }
        out.flush()?;
    }
    Ok(0)
}

/// Beyond this much memory an allocation fails, and the process with it.
fn bound() -> std::io::Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    Ok(setrlimit(Resource::Data, Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) })?)
}

fn one(args: &Args, n: u64) -> std::io::Result<u8> {
    bound()?;
    let case = harm::case(args.seed, n);
    println!("image {n} of seed {}: {}", args.seed, case.what);
    if let Some(path) = &args.keep {
        std::fs::write(path, harm::image(&case.harmed).to_bytes())?;
    }
    let program = program(args)?;
    let judged = judged(&case).and_then(|v| {
        let ended = verbs::judge(&program, &case).map_err(|why| format!("through the program: {why}"))?;
        println!("{} verbs ended well, {} not", ended.well, ended.failed);
        Ok(v)
    });
    println!("{}", judged.as_ref().map_or_else(Clone::clone, |v| format!("{v:?}")));
    Ok(u8::from(judged.is_err()))
}
