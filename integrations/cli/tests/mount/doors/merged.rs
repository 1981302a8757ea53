//! What `WELDFS_AUTOMERGE` merges is not seen: random programs with each setting give the answers of the model, and all
//! doors show its files after each; and what is left by a device or a program that is killed is what the model had.

use super::program::{Call, Step, WORKERS, program, program_in_bursts};
use super::worker::{DOORS, Door, Merging, USERS, compiled, door};
use super::world::{Past, World};
use super::{number, trial};
use crate::rig::{Mounted, Place, Served, ok, usable, weldfs};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

/// Programs, over all settings.
const PROGRAMS: u64 = 1_500;
/// Programs on one image: what they leave fills it.
const PER_IMAGE: u64 = 1_000;
/// Of so many programs one ends with the death of its device, and another with that of its process.
const KILLS: u64 = 10;
/// Calls of each pattern at least; in a short run, one for each two programs.
const FIRED: u64 = 500;
/// Programs of one setting among which its pattern may not be found.
const FEW: u64 = 100;
/// What is set, and how many programs of ten run so.
const SETTINGS: [(&str, u64); 8] =
    [("on", 3), ("off", 1), ("write", 1), ("attributes", 1), ("close", 1), ("look", 1), ("names", 1), ("read", 1)];
/// What a report says of posted calls that became part of another's record.
const RECORD: &str = "in one record with others";
/// What the device counts: what was merged, and commands that waited for what was posted.
const COUNTED: [&str; 4] = ["merged_writes", "merged_places", "merged_attributes", "lease_waits"];
/// Deaths of a device that took posted calls with them.
const TAKEN: &str = "crashes that took calls";
const PATTERNS: [&str; 6] = ["write", "attributes", "close", "look", "names", "read"];

/// A device on persistent memory, a mount of it, and workers at all doors.
struct Rig {
    world: World,
    mounted: Option<Mounted>,
    served: Option<Served>,
    program: PathBuf,
    socket: PathBuf,
    merging: Merging,
    place: Place,
    /// What devices before this one had counted.
    counted: [u64; COUNTED.len()],
    /// See `TAKEN`.
    taken: u64,
}

impl Rig {
    fn start(test: &str, setting: &'static str) -> Option<Rig> {
        if !usable(test) {
            return None;
        }
        let place = Place::new("16M");
        ok(weldfs(["mkfs", "--force", "--medium", "pmem", "--size", "256M"]).arg(place.image()));
        let Some(program) = compiled(&place) else {
            crate::skips::skip(test, "needs a C compiler, cc");
            return None;
        };
        let merging = Merging { setting, report: place.path("report") };
        let (served, mounted) = Rig::serve(&place);
        let socket = place.path("a.img.sock");
        let world = World::merging((&place, Some(&merging)), &socket, &program, 0);
        Some(Rig {
            world,
            mounted: Some(mounted),
            served: Some(served),
            program,
            socket,
            merging,
            place,
            counted: Default::default(),
            taken: 0,
        })
    }

    fn serve(place: &Place) -> (Served, Mounted) {
        let served = Served::start(place);
        let mounted = place.mount(&["--allow-other", "-o", "suid"]);
        (served, mounted)
    }

    /// The device is killed; another one follows it, with other workers.
    fn crash(self) -> Rig {
        let Rig { world, mounted, served, program, socket, merging, place, counted, taken } = self;
        served.expect("a device").kill();
        let after = world.programs();
        drop((world, mounted));
        while place.is_mounted() {
            rustix::mount::unmount(place.root(), rustix::mount::UnmountFlags::DETACH).expect("unmount");
        }
        let (served, mounted) = Rig::serve(&place);
        let world = World::merging((&place, Some(&merging)), &socket, &program, after);
        Rig { world, mounted: Some(mounted), served: Some(served), program, socket, merging, place, counted, taken }
    }

    /// Takes what this device has counted, which is about to end.
    fn count(&mut self) {
        let told = ok(weldfs(["stats", "--json"]).arg(&self.socket));
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        for (sum, name) in self.counted.iter_mut().zip(COUNTED) {
            *sum += told["total"][name].as_u64().unwrap_or_else(|| panic!("{name} in {told}"));
        }
    }

    /// Ends all of it. How many calls of each pattern its programs reported, but for those that were killed.
    fn end(mut self) -> BTreeMap<String, u64> {
        self.count();
        let Rig { world, mounted, served, merging, place, counted, taken, .. } = self;
        drop(world);
        mounted.expect("a mount").unmount();
        served.expect("a device").stop();
        place.is_clean();
        let report = std::fs::read_to_string(&merging.report).expect("a report");
        let mut fired = BTreeMap::new();
        for line in report.lines().filter(|line| line.contains("not waited for")) {
            let mut words = line.split_whitespace().rev();
            let n: u64 = words.next().and_then(|n| n.parse().ok()).expect("a number");
            *fired.entry(words.next().expect("a pattern").to_owned()).or_insert(0) += n;
        }
        let in_record =
            |line: &str| line.contains(RECORD).then(|| line.split_whitespace().last()?.parse::<u64>().ok())?;
        fired.insert(RECORD.to_owned(), report.lines().filter_map(in_record).sum());
        fired.extend(COUNTED.iter().map(|name| (*name).to_owned()).zip(counted));
        fired.insert(TAKEN.to_owned(), taken);
        fired
    }
}

/// The first of those under `weldfs run`: it is root.
fn preloaded() -> usize {
    DOORS.iter().position(|door| *door == Door::Preload).expect("a program under weldfs run") * USERS.len()
}

/// The program of a seed: what may be merged, and everything else besides. A process that has asked for a lock posts
/// no close any more, and most of them run on through many programs: in most of these nothing asks for one there.
fn mixed(seed: u64) -> Vec<Step> {
    let mut steps = any(seed);
    if seed % KILLS > 2 {
        let locks = |step: &Step| matches!(step.call, Call::Lock { .. } | Call::Flock { .. });
        steps.retain(|step| !(locks(step) && door(step.worker) == Door::Preload));
    }
    steps
}

fn any(seed: u64) -> Vec<Step> {
    if seed.is_multiple_of(4) {
        return program(seed);
    }
    let (first, all) = (preloaded(), (0..WORKERS).collect::<Vec<_>>());
    let mut steps = program_in_bursts(seed, &[first, first, first + 1, first + 2], &all);
    steps.push(Step { worker: first, call: Call::Compare, how: 0 });
    steps
}

/// A program of one process, which is stopped after some of its calls; and how many of them are surely over then.
fn cut(world: &mut World, setting: &str, seed: u64) -> Result<(Past, usize), String> {
    let actor = preloaded();
    let mut steps = program_in_bursts(seed, &[actor], &[actor]);
    // The comparison at the end would wait for all that is posted.
    steps.truncate(steps.len() / 4 + (seed * 31) as usize % (steps.len() / 2));
    // What is waited for comes behind all that was posted before.
    let posts = ["on", "write", "attributes"].contains(&setting);
    let waited = steps.iter().rposition(|step| !posts || step.waits()).map_or(0, |at| at + 1);
    let past =
        world.record(&steps).map_err(|failure| format!("seed {seed}, step {}: {}", failure.step, failure.what))?;
    Ok((past, waited))
}

/// The process is killed: what its calls said is done, all of it.
fn kill_the_program(rig: &mut Rig, seed: u64) -> Result<(), String> {
    let (past, _) = cut(&mut rig.world, rig.merging.setting, seed)?;
    rig.world.kill(0, &rig.place, &rig.socket, &rig.program);
    let told = |what| format!("seed {seed}: its process was killed: {what}");
    rig.world.shows(&past, past.steps()).map_err(told)
}

/// The device is killed: there is what some of the calls left, in their order, and all that were waited for: on
/// persistent memory each change is durable when its call is answered.
fn kill_the_device(rig: Rig, seed: u64) -> (Rig, Result<(), String>) {
    let mut rig = rig;
    let (past, first) = match cut(&mut rig.world, rig.merging.setting, seed) {
        Ok(found) => found,
        Err(told) => return (rig, Err(told)),
    };
    let mut rig = rig.crash();
    let mut told = String::new();
    for steps in (first..=past.steps()).rev() {
        match rig.world.shows(&past, steps) {
            Ok(()) => {
                rig.taken += u64::from(steps < past.steps());
                return (rig, Ok(()));
            }
            Err(what) if told.is_empty() => told = what,
            Err(_) => {}
        }
    }
    (rig, Err(format!("seed {seed}: the device was killed, and shows what no part of the calls left: {told}")))
}

/// Runs programs on one image, and reports how many of their calls did not wait, by pattern; none where that cannot be.
fn run(setting: &'static str, programs: Range<u64>, seed: &mut u64) -> Option<BTreeMap<String, u64>> {
    let mut rig = Rig::start("no_program_finds_out_what_is_merged", setting)?;
    for _ in programs {
        // By the seed alone, so that it can be asked for again.
        let ended = match *seed % KILLS {
            1 => kill_the_program(&mut rig, *seed),
            3 => {
                // Before its program, and not behind it: looking gives the device time.
                rig.count();
                let (next, ended) = kill_the_device(rig, *seed);
                rig = next;
                ended
            }
            _ => trial(&mut rig.world, *seed, mixed(*seed), "WELDFS_MERGED_SETTING and WELDFS_MERGED_SEED"),
        };
        if let Err(told) = ended {
            panic!("WELDFS_AUTOMERGE={setting}: {told}");
        }
        *seed += 1;
    }
    Some(rig.end())
}

#[test]
fn no_program_finds_out_what_is_merged() {
    let all = number("WELDFS_MERGED_PROGRAMS", PROGRAMS);
    let parts: u64 = SETTINGS.iter().map(|(_, part)| part).sum();
    let mut fired: BTreeMap<String, u64> = BTreeMap::new();
    let asked = std::env::var_os("WELDFS_MERGED_SEED").is_some();
    let mut seed = number("WELDFS_MERGED_SEED", 1);
    let only = std::env::var("WELDFS_MERGED_SETTING").ok();
    for (setting, part) in SETTINGS {
        if only.as_ref().is_some_and(|only| only != setting) {
            continue;
        }
        let programs = (all * part / parts).max(KILLS / 2);
        if !asked {
            // Each of them has both kills in its first programs.
            seed = seed.next_multiple_of(KILLS) + 1;
        }
        println!("{setting}: seeds {seed} to {}", seed + programs - 1);
        for n in (0..programs).step_by(PER_IMAGE as usize) {
            let some = PER_IMAGE.min(programs - n);
            let Some(told) = run(setting, n..n + some, &mut seed) else { return };
            for (pattern, n) in told {
                let posts = ["write", "attributes"].contains(&setting);
                let may = match &*pattern {
                    "merged_writes" | "merged_places" => setting == "write",
                    "merged_attributes" => setting == "attributes",
                    "lease_waits" | TAKEN => posts || setting == "close",
                    RECORD => posts,
                    pattern => setting == pattern,
                };
                assert!(may || setting == "on" || n == 0, "WELDFS_AUTOMERGE={setting}: {n} calls of {pattern}");
                assert!(n > 0 || setting != pattern || some < FEW, "WELDFS_AUTOMERGE={setting}: no call");
                *fired.entry(pattern).or_insert(0) += n;
            }
        }
    }
    println!("not waited for: {fired:?}");
    // How much is merged depends on who is faster: some in any long run.
    let bounds = PATTERNS.into_iter().map(|pattern| (pattern, FIRED.min(all / 2)));
    let least = if all >= 20_000 { FIRED } else { 1 };
    let merged = COUNTED.into_iter().chain([RECORD]).map(|pattern| (pattern, least));
    for (pattern, least) in bounds.chain(merged.filter(|_| all >= PROGRAMS)).filter(|_| only.is_none()) {
        let n = fired.get(pattern).copied().unwrap_or(0);
        assert!(n >= least, "{pattern}: only {n} calls");
    }
}
