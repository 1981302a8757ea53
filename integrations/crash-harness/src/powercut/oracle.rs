//! What counts as bad after a power cut.
//!
//! For each client, the recovered folder must equal the folder after one of its steps: at least up to its last step
//! that was acknowledged durable before the cut, at most up to its last step that had started. Its records in the
//! shared log must be those of the same steps. Across clients: if a step is visible, every step of anyone that was
//! acknowledged before that one was submitted is visible too, which is what "a prefix of LSN order" means to clients.

use super::script::{Folder, Script};
use std::ops::RangeInclusive;

/// Bytes before the payload of a log record: magic, client, number, payload length, each a little-endian u32.
pub const LOG_HEADER: usize = 16;
const LOG_MAGIC: u32 = 0x474f_4c57;

/// When one step started and ended, in ticks of one counter that all clients share and in events of the medium.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Tick just before submission.
    pub start: u64,
    /// Tick just after completion; `u64::MAX` when it never completed.
    pub end: u64,
    /// The medium's event count just before submission.
    pub from_event: u64,
    /// The medium's event count just after completion; `u64::MAX` when it never completed.
    pub to_event: u64,
    /// Whether completion promised durability.
    pub durable: bool,
}

/// What one client did: its script and the entries of the steps that it submitted, in order.
pub struct Client {
    /// What it was to do.
    pub script: Script,
    /// What it did.
    pub entries: Vec<Entry>,
}

/// What was found after recovery.
pub struct Found {
    /// Each client's folder.
    pub folders: Vec<Folder>,
    /// The shared log, whole.
    pub log: Vec<u8>,
}

/// Frames a log payload so that its writer and number can be told from the log alone.
pub fn frame(client: usize, number: usize, data: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(LOG_HEADER + data.len());
    for word in [LOG_MAGIC, client as u32, number as u32, data.len() as u32] {
        record.extend_from_slice(&word.to_le_bytes());
    }
    record.extend_from_slice(data);
    record
}

/// Counts each client's records, checking that the log is nothing but whole, intact records in each client's order.
fn parse_log(log: &[u8], clients: &[Client]) -> Result<Vec<usize>, String> {
    let (mut counts, mut at) = (vec![0usize; clients.len()], 0);
    while at < log.len() {
        let word = |i: usize| log.get(at + i * 4..at + i * 4 + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let header = (word(0), word(1), word(2), word(3));
        let (Some(LOG_MAGIC), Some(client), Some(number), Some(len)) = header else {
            return Err(format!("log: no record at byte {at} of {}", log.len()));
        };
        let (client, number, len) = (client as usize, number as usize, len as usize);
        let Some(counted) = counts.get_mut(client).filter(|n| **n == number) else {
            return Err(format!("log: client {client} record {number} out of order at byte {at}"));
        };
        let (body, end) = (at + LOG_HEADER, at + LOG_HEADER + len + 4);
        let Some(record) = log.get(at..end) else { return Err(format!("log: record at byte {at} is cut short")) };
        let (payload, trailer) = record.split_at(LOG_HEADER + len);
        if crc32c::crc32c(payload).to_le_bytes() != trailer {
            return Err(format!("log: client {client} record {number} at byte {at}: checksum"));
        }
        if clients[client].script.log_payload(number) != Some(&log[body..body + len]) {
            return Err(format!("log: client {client} record {number} at byte {at}: foreign content"));
        }
        *counted += 1;
        at = end;
    }
    Ok(counts)
}

/// How many steps of a client may be in effect, given what was found.
fn candidates(client: &Client, cut: u64, folder: &Folder, logged: usize) -> Option<RangeInclusive<usize>> {
    let durable = client.entries.iter().rposition(|e| e.durable && e.to_event <= cut).map_or(0, |i| i + 1);
    let started = client.entries.iter().take_while(|e| e.from_event <= cut).count();
    let fits = |k: &usize| client.script.folders[*k] == *folder && client.script.logged[*k] == logged;
    let first = (durable..=started).find(fits)?;
    let last = (durable..=started).rev().find(fits)?;
    Some(first..=last)
}

fn describe(client: &Client, cut: u64, folder: &Folder, logged: usize) -> String {
    let durable = client.entries.iter().rposition(|e| e.durable && e.to_event <= cut).map_or(0, |i| i + 1);
    let started = client.entries.iter().take_while(|e| e.from_event <= cut).count();
    let anywhere = (0..client.script.folders.len()).find(|&k| client.script.folders[k] == *folder);
    let sizes: Vec<String> = folder.iter().map(|(n, b)| format!("{n}:{}", b.len())).collect();
    let about: Vec<String> = (durable.saturating_sub(2)..started.min(durable + 2))
        .map(|i| {
            format!("{i}{}: {}", if client.entries[i].durable { " durable" } else { "" }, client.script.steps[i].0)
        })
        .collect();
    let about = about.join(", ");
    format!(
        "steps {durable}..={started} were possible ({about}); found [{}], {logged} log records; that folder is {}",
        sizes.join(" "),
        anywhere.map_or("never one of this client's".to_owned(), |k| format!("the one after step {k}")),
    )
}

/// Checks a recovered tree against the clients' logs for a cut after `cut` events of the medium.
pub fn check(clients: &[Client], cut: u64, found: &Found) -> Result<(), String> {
    let counts = parse_log(&found.log, clients)?;
    let mut ranges = Vec::new();
    for (i, client) in clients.iter().enumerate() {
        match candidates(client, cut, &found.folders[i], counts[i]) {
            Some(range) => ranges.push(range),
            None => return Err(format!("client {i}: {}", describe(client, cut, &found.folders[i], counts[i]))),
        }
    }
    // A step surely visible in one client obliges every step that had ended before it began.
    for (b, range) in ranges.iter().enumerate() {
        let Some(last) = range.start().checked_sub(1) else { continue };
        let began = clients[b].entries[last].start;
        for (a, other) in clients.iter().enumerate() {
            let obliged = other.entries.iter().take_while(|e| e.end < began).count();
            if obliged > *ranges[a].end() {
                return Err(format!(
                    "order: client {b}'s step {last} is visible, client {a}'s step {} that ended before it is not",
                    obliged - 1
                ));
            }
        }
    }
    Ok(())
}
