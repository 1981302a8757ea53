//! The four clients of the crash part: each appends checksummed records to a log of its own and notes, outside the
//! device, every append that was acknowledged as durable. After the crash the notes are held against the recovered
//! logs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use weldfs::{Client, Durability, Errno, OpenOptions, Placement};

/// Payload bytes of one record: with its four-byte checksum one block.
pub const PAYLOAD: usize = 4092;
/// Bytes of one note: record number and offset, each a little-endian u64.
const NOTE: usize = 16;

fn payload(worker: u32, number: u64, into: &mut [u8]) {
    let mut state = (u64::from(worker) << 40 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in into.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

fn log_name(worker: u32) -> String {
    format!("/logs/{worker}")
}

/// The hidden role: appends until the device dies, or until `most` records are in; with `slot` their checksums come
/// from a kernel in a slot.
pub fn run(socket: &Path, worker: u32, most: u64, notes: &Path, slot: bool) -> io::Result<()> {
    // Notes first: a client that finds no device has none.
    let mut notes = File::create(notes)?;
    let client = Client::connect(socket)?.durability(Durability::Durable);
    let file = match client.open(log_name(worker), &OpenOptions::new().write(true).create(true)) {
        Err(e) if matches!(e.raw_os_error().map(Errno), Some(Errno::NODEV | Errno::IO)) => return Ok(()),
        opened => opened?,
    };
    let raw = if slot { file.raw().placement(Placement::Slot) } else { file.raw() };
    let mut data = vec![0; PAYLOAD];
    for number in 0..most {
        payload(worker, number, &mut data);
        match raw.append_checksum_write(file.handle(), &data[..]) {
            Ok(sealed) => {
                let mut note = [0; NOTE];
                note[..8].copy_from_slice(&number.to_le_bytes());
                note[8..].copy_from_slice(&sealed.offset.to_le_bytes());
                // One write call: a note is there whole or not at all.
                notes.write_all(&note)?;
            }
            // The device is gone, which is what this part of the demo is about.
            Err(Errno::NODEV | Errno::IO) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// The client processes, and where their notes are.
pub struct Crew {
    children: Vec<Child>,
    notes: Vec<PathBuf>,
}

impl Crew {
    /// Starts `count` clients against `socket`; with `slot` they have their checksums computed there.
    pub fn start(socket: &Path, folder: &Path, count: u32, most: u64, slot: bool) -> io::Result<Crew> {
        fs::create_dir_all(folder)?;
        let (mut children, mut notes) = (Vec::new(), Vec::new());
        for worker in 0..count {
            let path = folder.join(format!("notes-{worker}"));
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["demo", "--worker", &worker.to_string(), "--most", &most.to_string()]);
            command.arg("--socket").arg(socket).arg("--notes").arg(&path);
            command.args(slot.then_some("--slot"));
            children.push(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
            notes.push(path);
        }
        Ok(Crew { children, notes })
    }

    /// Appends acknowledged so far, of each client.
    fn each(&self) -> impl Iterator<Item = u64> {
        self.notes.iter().map(|p| fs::metadata(p).map_or(0, |m| m.len() / NOTE as u64))
    }

    /// Appends acknowledged so far, all clients together.
    pub fn acknowledged(&self) -> u64 {
        self.each().sum()
    }

    /// Whether `enough` is acknowledged, and something of each client: a device killed before one of them has its file
    /// would be killed under fewer clients than the demo says.
    pub fn under_way(&self, enough: u64) -> bool {
        self.each().all(|one| one > 0) && self.acknowledged() >= enough
    }

    /// Whether a client has ended, and not well.
    pub fn has_failed(&mut self) -> io::Result<bool> {
        for child in &mut self.children {
            if child.try_wait()?.is_some_and(|status| !status.success()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for all clients; an error if one of them failed for another reason than the device's death.
    pub fn join(&mut self) -> io::Result<()> {
        for (i, child) in self.children.iter_mut().enumerate() {
            let status = child.wait()?;
            if !status.success() {
                return Err(io::Error::other(format!("client process {i} ended with {status}")));
            }
        }
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Reaped already in every good end.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What holding the notes against the recovered logs gave.
#[derive(Debug, Default, Clone, Copy, serde::Serialize)]
pub struct Verdict {
    /// Appends that had been acknowledged as durable.
    pub acknowledged: u64,
    /// Of those, missing or different after recovery.
    pub lost: u64,
    /// Appends found whole whose client had no answer yet.
    pub unacknowledged_whole: u64,
    /// Anything in a log that is not a whole, intact record.
    pub half: u64,
}

impl Verdict {
    /// Whether something had been acknowledged, and all of it is there.
    pub fn good(&self) -> bool {
        self.lost == 0 && self.half == 0 && self.acknowledged > 0
    }
}

/// Verifies each log: every noted record is there and intact, and nothing but whole records is.
pub fn verify(client: &Client, crew: &Crew) -> io::Result<Verdict> {
    let (mut verdict, record) = (Verdict::default(), PAYLOAD as u64 + weldfs::fused::TRAILER_BYTES);
    let (mut expected, mut found) = (vec![0; PAYLOAD], vec![0; PAYLOAD]);
    for (worker, path) in crew.notes.iter().enumerate() {
        let notes = fs::read(path)?;
        let noted = (notes.len() / NOTE) as u64;
        verdict.acknowledged += noted;
        let file = match client.open(log_name(worker as u32), &OpenOptions::new().read(true)) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                verdict.lost += noted;
                continue;
            }
            Err(e) => return Err(e),
        };
        let size = file.metadata()?.len();
        verdict.half += u64::from(size % record != 0);
        let whole = size / record;
        verdict.lost += noted.saturating_sub(whole);
        verdict.unacknowledged_whole += whole.saturating_sub(noted);
        for number in 0..whole {
            payload(worker as u32, number, &mut expected);
            let intact = file.read_checksum_verify(number * record, &mut found[..]).is_ok() && found == expected;
            match (intact, number < noted) {
                (true, _) => {}
                (false, true) => verdict.lost += 1,
                (false, false) => verdict.half += 1,
            }
        }
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crew_is_under_way_when_each_client_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let notes: Vec<PathBuf> = (0..2).map(|i| dir.path().join(i.to_string())).collect();
        let crew = Crew { children: Vec::new(), notes: notes.clone() };
        fs::write(&notes[0], [0; 10 * NOTE]).expect("notes");
        assert!(!crew.under_way(10), "the second client has not begun");
        fs::write(&notes[1], [0; NOTE]).expect("notes");
        assert_eq!((crew.under_way(11), crew.under_way(12)), (true, false));
    }
}
