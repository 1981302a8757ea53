//! The data operations: NOP, durable append, open_write_close, append_checksum_write.

use super::drive::Driver;
use super::{Options, Samples, row, start};
use std::io;
use weldfs::{At, Client, Command, Durability, Handle, Op, OpenFlags, OpenOptions, PoolRange};

const WRITE_NEW: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE).union(OpenFlags::TRUNC);
/// Files of one open_write_close round; each takes a name, an inode and a block of the log's budget.
const NEW_FILES: u64 = 20_000;

/// One kind of work against a device.
pub(super) struct Work {
    client: Client,
    driver: Driver,
    /// Distinguishes the files of one call from those of another.
    serial: u64,
}

fn append(h: Handle, src: PoolRange) -> Command {
    Command::new(0, Op::Write { h, at: At::End, src }).with_durability(Durability::Durable)
}

impl Work {
    pub(super) fn new(client: Client) -> io::Result<Work> {
        let driver = Driver::new(&client, &[0x5a; 4096])?;
        Ok(Work { client, driver, serial: 0 })
    }

    pub(super) fn nop(&mut self, depth: u64, count: u64) -> io::Result<f64> {
        let mut driver = Driver::new(&self.client, &[])?;
        driver.run(count, depth, |_, _| Command::new(0, Op::Nop))
    }

    /// Durable appends of 4 KiB to a fresh file, which is removed at the end.
    pub(super) fn append(&mut self, depth: u64, count: u64) -> io::Result<f64> {
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let file = self.client.open("/append", &options)?;
        let h = file.handle();
        let ns = self.driver.run(count, depth, |_, src| append(h, src))?;
        drop(file);
        self.client.remove_file("/append")?;
        Ok(ns)
    }

    /// Durable append_checksum_writes of 4 KiB to a fresh file, which is removed at the end.
    pub(super) fn append_checksum(&mut self, depth: u64, count: u64) -> io::Result<f64> {
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let file = self.client.open("/sums", &options)?;
        let (h, kind) = (file.handle(), weldfs_ciscops::flags::ChecksumKind::Crc32c);
        let make =
            |_, src| Command::new(0, Op::AppendChecksumWrite { h, kind, src }).with_durability(Durability::Durable);
        let ns = self.driver.run(count, depth, make)?;
        drop(file);
        self.client.remove_file("/sums")?;
        Ok(ns)
    }

    /// Volatile open_write_closes of new 4 KiB files in a fresh folder; the folder stays unless `remove`.
    pub(super) fn open_write_close(&mut self, depth: u64, count: u64, remove: bool) -> io::Result<f64> {
        self.serial += 1;
        let folder = format!("/new-{}-{}", std::process::id(), self.serial);
        self.client.create_dir(&folder)?;
        let width = folder.len() + 10;
        let queue = self.driver.queue();
        let names = (0..64).map(|_| queue.alloc(width as u32)).collect::<Result<Vec<_>, _>>()?;
        let pool = queue.pool().clone();
        let ns = self.driver.run(count, depth, |i, src| {
            let path = names[(i % 64) as usize];
            if let Ok(room) = pool.slice(path) {
                room.copy_from(format!("{folder}/f{i:08}").as_bytes());
            }
            let op =
                Op::OpenWriteClose { base: Handle::ROOT, path, flags: WRITE_NEW, mode: 0o644, at: At::Offset(0), src };
            Command::new(0, op).with_durability(Durability::Volatile)
        })?;
        names.into_iter().for_each(|n| self.driver.queue().free(n));
        if remove {
            self.client.remove_all(&folder)?;
        }
        Ok(ns)
    }
}

/// One interleaved round on a fresh device.
pub(super) fn burst_round(options: &Options, _round: usize, flush: &str, samples: &mut Samples) -> io::Result<()> {
    let served = start(options, flush, "1G")?;
    let mut work = Work::new(served.connect()?)?;
    let system = if flush == "none" { "flush=none" } else { "weldfs" };
    let pmem = if flush == "none" { "pmem, flush=none" } else { "emulated pmem" };
    // Without flush instructions nothing is durable, whatever a command asks for: the row must not say otherwise.
    let class = if flush == "none" { "volatile" } else { "durable" };
    for depth in [1u32, 32] {
        let d = u64::from(depth);
        samples.add(row("NOP", system, depth, "-", "-"), work.nop(d, 300_000)?);
        samples.add(row("append 4 KiB", system, depth, pmem, class), work.append(d, 50_000)?);
        let ns = work.append_checksum(d, 50_000)?;
        samples.add(row("append_checksum_write 4 KiB", system, depth, pmem, class), ns);
        let ns = work.open_write_close(d, NEW_FILES, true)?;
        samples.add(row("open_write_close 4 KiB new", system, depth, pmem, "volatile"), ns);
    }
    Ok(())
}

/// Over ten log lengths: an append logs about 192 bytes, a new file about 512, the log is 64 MiB.
pub(super) fn steady(options: &Options, samples: &mut Samples) -> io::Result<()> {
    let log_lengths = 10 * (64 << 20);
    let served = start(options, "on", "6G")?;
    let mut work = Work::new(served.connect()?)?;
    let steady = |bench: &str, class: &str| {
        let mut r = row(bench, "weldfs", 1, "emulated pmem", class);
        r.phase = "steady".to_owned();
        r
    };
    // Files of at most 256 MiB, removed in between, so that the image need not hold ten logs' worth of data.
    let (each, mut left) = (65_536u64, log_lengths / 192);
    while left > 0 {
        let count = each.min(left);
        samples.add(steady("append 4 KiB", "durable"), work.append(1, count)?);
        left -= count;
    }
    let mut left = log_lengths / 512;
    while left > 0 {
        let count = 50_000u64.min(left);
        let ns = work.open_write_close(1, count, true)?;
        samples.add(steady("open_write_close 4 KiB new", "volatile"), ns);
        left -= count;
    }
    Ok(())
}
