//! What should cost nothing: mounting a clean image with many files, and a device without commands.

use super::drive::Driver;
use super::{Options, start};
use crate::report::{Ratio, median};
use std::io;
use std::time::Duration;
use weldfs::{At, Command, Durability, Handle, Op, OpenFlags, PoolRange};

const FILES: u64 = 100_000;

/// User plus system time of a process, in clock ticks.
fn ticks(pid: u32) -> io::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |i: usize| after.split_whitespace().nth(i).and_then(|f| f.parse::<f64>().ok());
    // Fields 14 and 15 of proc(5), counted from 3 behind the name.
    match (field(11), field(12)) {
        (Some(user), Some(system)) => Ok(user + system),
        _ => Err(io::Error::other("cannot read the device's CPU time")),
    }
}

/// Both figures as ratios against their bound.
pub(super) fn quiet(options: &Options) -> io::Result<Vec<Ratio>> {
    let mut served = start(options, "on", "2G")?;
    let client = served.connect()?;
    client.create_dir("/many")?;
    let mut driver = Driver::new(&client, &[])?;
    let queue = driver.queue();
    let names = (0..64).map(|_| queue.alloc(18)).collect::<Result<Vec<_>, _>>()?;
    let pool = queue.pool().clone();
    driver.run(FILES, 32, |i, _| {
        let path = names[(i % 64) as usize];
        if let Ok(room) = pool.slice(path) {
            room.copy_from(format!("/many/{i:012}").as_bytes());
        }
        let (flags, src) = (OpenFlags::WRITE | OpenFlags::CREATE, PoolRange::EMPTY);
        let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o644, at: At::Offset(0), src };
        Command::new(0, op).with_durability(Durability::Volatile)
    })?;
    drop((driver, client));
    let mounts = (0..5).map(|_| served.restart().map(|d| d.as_secs_f64())).collect::<io::Result<Vec<_>>>()?;
    let idle: Vec<_> = (0..4).map(|_| served.connect()).collect::<io::Result<_>>()?;
    for client in &idle {
        client.raw().nop()?;
    }
    // Past the adaptive spin and anything that the last command left to do.
    std::thread::sleep(Duration::from_secs(7));
    let before = ticks(served.pid())?;
    std::thread::sleep(Duration::from_secs(10));
    let used = ticks(served.pid())? - before;
    Ok(vec![
        Ratio::at_most("start of a clean image with 100,000 files, seconds", median(&mounts), 1.0, 0.3),
        Ratio::at_most("CPU of an idle device in 10 s, four clients, ticks", used, 1.0, 1.0),
    ])
}
