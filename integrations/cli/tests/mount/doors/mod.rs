//! One file, three doors: programs under `weldfs run`, on a mount, and with the crate `weldfs`, each as several users,
//! at once on the same files of one device; and a model of POSIX beside them, asked the same after each call.
//!
//! `program`: random calls from a seed; `worker`: the processes that make them (`tests/c/door.c` twice, and `api`);
//! `locks`: what locks must answer; `world`: one run, and the comparison; `merged`: the same with each setting of
//! `WELDFS_AUTOMERGE`, and with devices and programs that are killed.

mod api;
mod locks;
mod merged;
mod program;
mod worker;
mod world;

use crate::rig::{Mounted, Place, Served, usable};
use program::{Step, program};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use worker::{DOORS, USERS, shown};
use world::World;

/// Programs that are run.
const PROGRAMS: u64 = 300;
/// The seed of the first.
const SEED: u64 = 1;
/// How long a failing program may be made shorter.
const SHRINK: Duration = Duration::from_secs(40);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// A device with a mount, and workers at all doors.
struct Rig {
    world: World,
    mounted: Mounted,
    served: Served,
    place: Place,
}

impl Rig {
    fn start(test: &str, options: &[&str]) -> Option<Rig> {
        if !usable(test) {
            return None;
        }
        let place = Place::new("256M");
        let Some(program) = worker::compiled(&place) else {
            crate::skips::skip(test, "needs a C compiler, cc");
            return None;
        };
        let served = Served::start(&place);
        let mounted = place.mount(&[&["--allow-other", "-o", "suid"], options].concat());
        let world = World::start(&place, &place.path("a.img.sock"), &program);
        Some(Rig { world, mounted, served, place })
    }

    /// Ends all of it, in order; the image must be clean.
    fn end(self) {
        let Rig { world, mounted, served, place } = self;
        drop(world);
        mounted.unmount();
        served.stop();
        place.is_clean();
    }
}

/// Fewer steps that fail as well: pieces are left out, halves first, as long as there is time.
fn shrink(world: &mut World, steps: Vec<Step>) -> (Vec<Step>, String) {
    let until = Instant::now() + SHRINK;
    let (mut steps, mut what) = (steps, String::new());
    let mut piece = steps.len() / 2;
    while piece > 0 {
        let (mut at, mut shorter) = (0, false);
        while at < steps.len() && Instant::now() < until {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + piece).min(steps.len()));
            match world.run(&fewer) {
                Ok(()) => at += piece,
                Err(failure) => {
                    fewer.truncate(failure.step + 1);
                    (steps, what, shorter) = (fewer, failure.what, true);
                }
            }
        }
        if !shorter || piece > 1 {
            piece /= 2;
        }
    }
    (steps, what)
}

/// Runs a program; what failed, if anything, with the shortest program that shows it.
fn trial(world: &mut World, seed: u64, steps: Vec<Step>, again: &str) -> Result<(), String> {
    let mut steps = steps;
    let Err(failure) = world.run(&steps) else { return Ok(()) };
    let mut told = format!("seed {seed}, step {}: {}\n", failure.step, failure.what);
    let _ = writeln!(told, "  {}", shown(&steps[failure.step]));
    let _ = writeln!(told, "again: {again}; made shorter:");
    steps.truncate(failure.step + 1);
    let (steps, what) = shrink(world, steps);
    for step in &steps {
        let _ = writeln!(told, "  {}", shown(step));
    }
    let _ = writeln!(
        told,
        "  {}",
        if what.is_empty() { "(no shorter one fails: it may be a matter of time)" } else { &what }
    );
    Err(told)
}

#[test]
fn one_file_is_the_same_through_all_doors() {
    let Some(mut rig) = Rig::start("one_file_is_the_same_through_all_doors", &[]) else { return };
    let (first, programs) = (number("WELDFS_DOORS_SEED", SEED), number("WELDFS_DOORS_PROGRAMS", PROGRAMS));
    println!("seeds {first} to {}", first + programs - 1);
    for seed in first..first + programs {
        if let Err(told) = trial(&mut rig.world, seed, program(seed), "WELDFS_DOORS_SEED and WELDFS_DOORS_PROGRAMS=1") {
            panic!("{told}");
        }
    }
    rig.end();
}

/// The comparison finds a door that shows what was there before.
#[test]
fn a_mount_that_keeps_attributes_is_found_out() {
    let Some(mut rig) = Rig::start("a_mount_that_keeps_attributes_is_found_out", &["-o", "keep=1"]) else { return };
    let found = (1..=20).any(|seed| rig.world.run(&program(seed)).is_err());
    assert!(found, "20 programs do not notice that a mount shows attributes of a second ago");
    rig.end();
}

/// Has one call made by all workers at the same time, and gives their answers.
fn all(world: &mut World, call: impl Fn(usize) -> String) -> Vec<i64> {
    let workers = world.workers();
    for (at, worker) in workers.iter_mut().enumerate() {
        worker.send(&call(at));
    }
    let answers = workers
        .iter_mut()
        .enumerate()
        .map(|(at, worker)| worker.answer().unwrap_or_else(|e| panic!("{:?}: errno {e}", worker::door(at))).number());
    answers.collect()
}

fn open_all(world: &mut World, name: &str, flags: i32) {
    all(world, |_| format!("open 0 {name} {} 438 0", flags | libc::O_CREAT));
}

fn read_all(world: &mut World, len: u64) -> Vec<u8> {
    match world.workers()[0].ask(&format!("read 0 0 {len} 0")) {
        Ok(worker::Answer::Bytes(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn appends_through_all_doors_at_once_are_all_there_and_whole() {
    let test = "appends_through_all_doors_at_once_are_all_there_and_whole";
    const RECORDS: usize = 150;
    let Some(mut rig) = Rig::start(test, &[]) else { return };
    rig.world.fresh();
    open_all(&mut rig.world, "/log", libc::O_RDWR | libc::O_APPEND);
    all(&mut rig.world, |at| format!("append 0 {RECORDS} {at}"));
    let text = String::from_utf8(read_all(&mut rig.world, 4 << 20)).expect("text");
    let mut next: BTreeMap<usize, usize> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split(' ').map(str::to_owned);
        let mut number = || words.next().and_then(|n| n.parse::<usize>().ok()).unwrap_or_else(|| panic!("{line:?}"));
        let (writer, record) = (number(), number());
        let expected = next.entry(writer).or_insert(0);
        assert_eq!(record, *expected, "of worker {writer}: {line:?}");
        assert_eq!(words.next().unwrap_or_default().len(), record * 131 % 3000, "{line:?} is not whole");
        *expected += 1;
    }
    let workers = DOORS.len() * USERS.len();
    assert_eq!(next, (0..workers).map(|writer| (writer, RECORDS)).collect());
    rig.end();
}

#[test]
fn a_lock_shuts_out_the_other_doors() {
    const TURNS: u64 = 60;
    let Some(mut rig) = Rig::start("a_lock_shuts_out_the_other_doors", &[]) else { return };
    rig.world.fresh();
    open_all(&mut rig.world, "/counter", libc::O_RDWR);
    all(&mut rig.world, |_| format!("add 0 {TURNS}"));
    let value = u64::from_le_bytes(read_all(&mut rig.world, 8).try_into().expect("eight bytes"));
    assert_eq!(value, TURNS * (DOORS.len() * USERS.len()) as u64);
    rig.end();
}

#[test]
fn a_name_is_made_through_one_door_only() {
    const NAMES: i64 = 150;
    let Some(mut rig) = Rig::start("a_name_is_made_through_one_door_only", &[]) else { return };
    rig.world.fresh();
    let made = all(&mut rig.world, |_| format!("claim / {NAMES}"));
    assert_eq!(made.iter().sum::<i64>(), NAMES, "{made:?}");
    rig.end();
}
