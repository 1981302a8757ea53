//! Hostile clients: each family of attacks beside a victim of another user, on devices of one and two cores over every
//! medium. What the victim suffers is compared with what it suffers beside an honest neighbour with as many commands in
//! flight; then the attacker is killed, and in a second attack the device is told to end.
//!
//! * `families`: the attacks by name, `attacks`: what they do; `victim`: what suffers, and the honest neighbour;
//!   `ground`: devices and processes; `report`: what a family must hold to, and the table.

mod attacks;
mod families;
mod ground;
mod report;
mod victim;

use families::{FAMILIES, Family, Ground};
use ground::{ATTACKER, Device, Holds, KINDS, Kind, Part, VICTIM};
use report::{Bounds, Row};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use victim::Suffered;
use weldfs::Client;

/// Until what a device holds counts as what it rests at, and at most how long that is waited for after a death.
const SETTLE: Duration = Duration::from_millis(250);
const REST_WAIT: Duration = Duration::from_secs(10);
const DESCRIPTOR_SLACK: u64 = 4;
/// A device is idle that takes at most so many ticks of a hundredth of a second in so long.
const IDLE_TICKS: u64 = 3;
const IDLE_SPAN: Duration = Duration::from_millis(200);

/// Hostile clients beside a victim of another user, on devices of their own
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Only these families (--list names them)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    family: Vec<String>,
    /// Only these kinds of devices: pmem-1, pmem-2, block-1, block-2, hostdir
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    device: Vec<String>,
    /// How long the victim is measured beside each, a round
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// One kind of device, short attacks; times are judged by bounds that a busy machine keeps
    #[arg(long)]
    short: bool,
    /// Times are judged by bounds that a busy machine keeps; everything else as ever
    #[arg(long)]
    busy: bool,
    /// Rounds of a family, neighbour and attacker in turn: the times are the medians. Where these break a bound, three
    /// times as many are run, and up to ten times until the host left the processors alone in three times as many, and
    /// judged together
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Names families and kinds of devices, and runs nothing
    #[arg(long)]
    list: bool,
    /// The weldfs program that serves [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    weldfs: Option<PathBuf>,
    /// Writes the report there
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("from 0.1 to 3600".into()) }
}

/// A part that another process of this program plays
#[derive(clap::Args, Debug)]
pub struct PartArgs {
    /// victim, honest or attacker
    part: String,
    /// The family, or how many commands are in flight
    of: String,
    socket: PathBuf,
}

/// Plays a part; an attacker and an honest neighbour until they are killed.
pub fn part(args: &PartArgs) -> io::Result<u8> {
    // A tester that is killed takes its parts with it.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    match args.part.as_str() {
        "victim" => victim::victim(&args.socket)?,
        "honest" => victim::honest(&args.socket, args.of.parse().map_err(io::Error::other)?)?,
        _ => {
            let family = families::find(&args.of).ok_or_else(|| io::Error::other("no such family"))?;
            let client = Client::connect(&args.socket)?.durability(weldfs::Durability::Volatile);
            let ground = Ground { socket: args.socket.clone(), client };
            (family.prepare)(&ground)?;
            println!("ready");
            (family.attack)(&ground)?;
        }
    }
    Ok(0)
}

struct Tester {
    weldfs: PathBuf,
    span: Duration,
    bounds: Bounds,
    rounds: usize,
}

/// 0 if every family held to its bounds.
pub fn run(args: &Args) -> io::Result<u8> {
    if args.list {
        FAMILIES.iter().for_each(|f| println!("{:16} {}", f.name, f.about));
        println!("{:16} another user listens where an image's socket would be", SQUAT);
        println!("\ndevices: {}", KINDS.iter().map(|k| k.name).collect::<Vec<_>>().join(" "));
        return Ok(0);
    }
    let (families, kinds) = chosen(args)?;
    let beside = || Ok(std::env::current_exe()?.with_file_name("weldfs"));
    let weldfs = args.weldfs.clone().map_or_else(beside, io::Result::Ok)?;
    let span = Duration::from_secs_f64(if args.short { args.seconds.min(0.3) } else { args.seconds });
    let busy = args.short || args.busy;
    let (bounds, rounds) = if busy { (Bounds::BUSY, 1) } else { (Bounds::FULL, args.rounds as usize) };
    let tester = Tester { weldfs, span, bounds, rounds };
    if !ground::is_root() {
        println!("skipped: two users: they need root; victim and attacker are one user, and share a tenant");
    }
    report::heading();
    let mut rows = Vec::new();
    for kind in &kinds {
        for family in &families {
            let row = tester.family(family, *kind);
            println!("{row}");
            rows.push(row);
        }
    }
    if ground::is_root() && (args.family.is_empty() || args.family.iter().any(|f| f == SQUAT)) {
        let row = Row::single(SQUAT, ground::squatted(&tester.weldfs));
        println!("{row}");
        rows.push(row);
    }
    let bad: Vec<&Row> = rows.iter().filter(|r| !r.broken.is_empty()).collect();
    bad.iter().for_each(|row| println!("bad: {}, {}: {}", row.family, row.device, row.broken.join("; ")));
    println!("{} rows, {} bad", rows.len(), bad.len());
    let code = u8::from(!bad.is_empty());
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_string_pretty(&rows)?)?;
    }
    Ok(code)
}

/// The family that is no load.
const SQUAT: &str = "squatting";

fn chosen(args: &Args) -> io::Result<(Vec<&'static Family>, Vec<Kind>)> {
    let unknown = args.family.iter().find(|name| families::find(name).is_none() && *name != SQUAT);
    if let Some(name) = unknown {
        return Err(io::Error::other(format!("no such family: {name} (see --list)")));
    }
    let unknown = args.device.iter().find(|name| KINDS.iter().all(|k| k.name != *name));
    if let Some(name) = unknown {
        return Err(io::Error::other(format!("no such device: {name} (see --list)")));
    }
    let named = |list: &[String], name: &str| list.is_empty() || list.iter().any(|n| n == name);
    let families = FAMILIES.iter().filter(|f| named(&args.family, f.name)).collect();
    let kinds = KINDS.iter().filter(|k| named(&args.device, k.name)).copied();
    let some = if args.short && args.device.is_empty() { 1 } else { KINDS.len() };
    Ok((families, kinds.take(some).collect()))
}

impl Tester {
    /// A family's row: of so many rounds, or, where the times of these break a bound, of three times as many, and of
    /// more until as many were calm (within limits). What these show does not decide how many there are.
    fn family(&self, family: &'static Family, kind: Kind) -> Row {
        let mut rows = Vec::new();
        let add = |rows: &mut Vec<Row>| {
            let mut row = Row { family: family.name.into(), device: kind.name.into(), ..Row::default() };
            let done = self.round(family, kind, rows.is_empty(), &mut row);
            row.broken.extend(done.err().map(|e| e.to_string()));
            rows.push(row);
        };
        (0..self.rounds).for_each(|_| add(&mut rows));
        let mut row = Row::of_rounds(&rows);
        if !self.bounds.judge(&mut row) || !self.bounds.compares() {
            return row;
        }
        let few = |rows: &[Row]| rows.len() < 3 * self.rounds;
        let noisy = |rows: &[Row]| Row::calm(rows) < 3 * self.rounds && rows.len() < 10 * self.rounds;
        while (few(&rows) || noisy(&rows)) && !rows.iter().any(Row::is_decided) {
            add(&mut rows);
        }
        let mut row = Row::of_rounds(&rows);
        self.bounds.judge(&mut row);
        row
    }

    /// The victim beside an honest neighbour, and beside the attacker; what becomes of the device after that once for
    /// all rounds.
    fn round(&self, family: &'static Family, kind: Kind, first: bool, row: &mut Row) -> io::Result<()> {
        if self.bounds.compares() {
            let device = Device::start(&self.weldfs, kind, family.two)?;
            let honest = || Part::start(&device, "honest", &family.depth.to_string(), ATTACKER);
            (row.fair, _) = self.suffer(&device, honest, self.span)?;
        }
        let mut device = Device::start(&self.weldfs, kind, family.two)?;
        // What the device rests at once it has been used.
        self.suffer(&device, || Part::start(&device, "honest", "4", ATTACKER), self.span / 4)?;
        std::thread::sleep(SETTLE);
        let before = device.holds();
        let logged = device.log_bytes();
        let (suffered, attacker) = self.suffer(&device, || Part::attack(&device, family), self.span)?;
        row.suffered = suffered;
        row.log_bytes = device.log_bytes() - logged;
        row.peak = device.holds();
        row.died = !device.is_running();
        if !first {
            return Ok(());
        }
        drop(attacker);
        row.before = before;
        row.rest_ms = at_rest(&device, before, &self.bounds);
        row.after = device.holds();
        row.died |= !device.is_running();
        let attacker = restart(&device, family)?;
        std::thread::sleep(self.span / 4);
        match device.terminate() {
            Ok(took) => row.term_ms = Some(took.as_millis() as u64),
            Err(why) => row.broken.push(why),
        }
        drop(attacker);
        Ok(())
    }

    /// What a victim suffers in a span beside a neighbour, and the neighbour, which goes on.
    fn suffer(
        &self,
        device: &Device,
        neighbour: impl FnOnce() -> io::Result<Part>,
        span: Duration,
    ) -> io::Result<(Suffered, Part)> {
        let neighbour = neighbour()?;
        let victim = Part::start(device, "victim", "all", VICTIM)?;
        let before = ground::stolen_ticks();
        std::thread::sleep(span);
        let taken = ground::stolen_ticks().saturating_sub(before);
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get()) as f64;
        let mut suffered = victim.suffered()?;
        suffered.stolen = (taken as f64 * 1000.0 / (span.as_secs_f64() * 100.0 * processors)) as u64;
        Ok((suffered, neighbour))
    }
}

/// A second attack. What the first one made is in its way.
fn restart(device: &Device, family: &Family) -> io::Result<Part> {
    Client::connect(device.socket())?.remove_all(families::HOME).and_then(|()| {
        let client = Client::connect(device.socket())?;
        client.create_dir(families::HOME)?;
        client.set_owner(families::HOME, ATTACKER, ATTACKER)
    })?;
    Part::attack(device, family)
}

/// Milliseconds until a device holds what it held, and is idle.
fn at_rest(device: &Device, before: Holds, bounds: &Bounds) -> Option<u64> {
    let start = Instant::now();
    while start.elapsed() < REST_WAIT {
        let began = start.elapsed();
        let ticks = device.holds().cpu_ticks;
        std::thread::sleep(IDLE_SPAN);
        let now = device.holds();
        if now.cpu_ticks - ticks <= IDLE_TICKS
            && now.descriptors <= before.descriptors + DESCRIPTOR_SLACK
            && now.own_kib() <= before.own_kib() + bounds.memory_slack_kib
        {
            return Some(began.as_millis() as u64);
        }
    }
    None
}
