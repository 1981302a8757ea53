//! What is said of a case that fails: the smallest that still does.

use super::cases::{Case, Cut};
use super::compare::Difference;
use super::reference::Outcome;
use crate::failure::{Doing, Failure};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a smaller case is looked for.
const PATIENCE: Duration = Duration::from_secs(15);
/// Bytes of a packet or output that are shown.
const SHOWN: usize = 64;

/// Looks for a smaller case that `fails` says fails, too; it returns the difference if it does.
///
/// # Errors
/// Those of `fails`: it could not be found out.
pub fn smallest(
    case: &Case,
    first: Difference,
    mut fails: impl FnMut(&Case) -> Result<Option<Difference>, Failure>,
) -> Result<(Case, Difference), Failure> {
    let until = Instant::now() + PATIENCE;
    let (mut best, mut difference) = (case.clone(), first);
    loop {
        let mut smaller = None;
        for candidate in candidates(&best, &difference) {
            if Instant::now() > until {
                return Ok((best, difference));
            }
            if let Some(found) = fails(&candidate)? {
                smaller = Some((candidate, found));
                break;
            }
        }
        match smaller {
            Some(found) => (best, difference) = found,
            None => return Ok((best, difference)),
        }
    }
}

/// Simpler cases, the simplest first.
fn candidates(case: &Case, difference: &Difference) -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Case)| {
        let mut changed = case.clone();
        change(&mut changed);
        if changed != *case {
            all.push(changed);
        }
    };
    let at = difference.packet;
    add(&|c| *c = Case::plain(&c.params, c.packets[at].clone()));
    add(&|c| c.before = None);
    add(&|c| c.stall = None);
    add(&|c| c.cut = Cut::WHOLE);
    add(&|c| c.cut = Cut { seed: 0, ..c.cut });
    add(&|c| c.packets.truncate(at + 1));
    for i in 0..case.packets.len().saturating_sub(1) {
        add(&|c| drop(c.packets.remove(i)));
    }
    for i in 0..case.packets.len() {
        shorter(&case.packets[i], |packet| add(&|c| c.packets[i] = packet.clone()));
    }
    if let Some((_, begun)) = &case.before {
        shorter(begun, |packet| add(&|c| c.before.as_mut().into_iter().for_each(|b| b.1 = packet.clone())));
    }
    all
}

/// Shorter packets: without parts, from halves to bytes; then the same length with plainer bytes.
fn shorter(packet: &[u8], mut give: impl FnMut(Vec<u8>)) {
    let mut part = packet.len();
    while part > 0 {
        // Many small cuts of a long packet would take for ever; halves have made it short by then. Both ends are tried:
        // what a kernel does wrong is often at a flit's beginning, with the rest of the packet behind.
        let count = packet.len().div_ceil(part);
        for start in (0..count).filter(|i| *i < 20 || i + 20 >= count).map(|i| i * part) {
            let end = packet.len().min(start + part);
            give([&packet[..start], &packet[end..]].concat());
        }
        part /= 2;
    }
    if packet.len() <= 32 {
        for at in 0..packet.len() {
            for plain in [0, b'a'] {
                // In this order, so that it ends: 0 is plainer than `a`, which is plainer than all others.
                if packet[at] != 0 && packet[at] != plain {
                    let mut changed = packet.to_vec();
                    changed[at] = plain;
                    give(changed);
                }
            }
        }
    }
}

/// Where the parts of a failing case were written.
pub struct Kept {
    /// The folder.
    folder: PathBuf,
}

impl Kept {
    /// Writes the packet that differs, its parameters, what was expected and what came, as `failure.*` in `build`.
    pub fn write(folder: &Path, case: &Case, difference: &Difference) -> Result<Kept, Failure> {
        let folder = folder.join("build");
        fs::create_dir_all(&folder).doing("make the folder", &folder)?;
        let put = |end: &str, bytes: &[u8]| {
            let path = folder.join(format!("failure.{end}"));
            fs::write(&path, bytes).doing("write", &path)
        };
        put("params", format!("{}\n", words(&case.params)).as_bytes())?;
        put("in", &case.packets[difference.packet])?;
        for (end, outcome) in [("expected", &difference.expected), ("got", &difference.got)] {
            let bytes = if let Outcome::Output(bytes) = outcome { bytes.as_slice() } else { &[] };
            put(end, bytes)?;
        }
        Ok(Kept { folder })
    }

    /// Where its waveform is to be.
    pub fn wave(&self) -> PathBuf {
        self.folder.join("failure.vcd")
    }
}

/// Parameters as they are typed.
pub fn words(params: &[u32]) -> String {
    let words: Vec<String> = params.iter().map(u32::to_string).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(" ") }
}

/// The lines that describe a failure.
pub fn report(case: &Case, difference: &Difference, kept: &Kept) -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        let _ = writeln!(text, "  {name:<12} {what}");
    };
    if let Some((params, begun)) = &case.before {
        line("before", format!("parameters {}, {} of a packet, a reset", words(params), bytes(begun)));
    }
    line("parameters", words(&case.params));
    for (i, packet) in case.packets.iter().enumerate() {
        let which = if case.packets.len() == 1 { "packet".to_owned() } else { format!("packet {}", i + 1) };
        line(&which, bytes(packet));
    }
    if case.cut != Cut::WHOLE {
        let up_to = if case.cut.seed == 0 { "" } else { "up to " };
        let (piece, room) = (case.cut.piece, case.cut.room);
        line("cut", format!("given in pieces of {up_to}{piece} bytes, taken in pieces of {up_to}{room} bytes"));
    }
    if let Some(stall) = case.stall {
        let (input, output) = (stall.input, stall.output);
        line("stalls", format!("input in {input}, output in {output} of 1000 cycles, seed {}", stall.seed));
    }
    line("expected", shown(&difference.expected));
    line("got", shown(&difference.got));
    if let (Outcome::Output(a), Outcome::Output(b)) = (&difference.expected, &difference.got) {
        let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
        line("differ from", format!("byte {at}"));
    }
    line("kept as", format!("{}/failure.params, .in, .expected, .got", kept.folder.display()));
    text
}

fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Output(output) => bytes(output),
        Outcome::Params => "the parameters refused (EINVAL)".to_owned(),
        Outcome::Data => "the packet refused (EBADMSG)".to_owned(),
        Outcome::Lost(why) => why.clone(),
    }
}

/// `3 bytes: "abc"`, and in hexadecimal where it is not text.
fn bytes(all: &[u8]) -> String {
    let count = if all.len() == 1 { "1 byte".to_owned() } else { format!("{} bytes", all.len()) };
    if all.is_empty() {
        return count;
    }
    let part = &all[..all.len().min(SHOWN)];
    let more = if part.len() < all.len() { " ..." } else { "" };
    if part.iter().all(|b| (b' '..=b'~').contains(b)) {
        return format!("{count}: \"{}\"{more}", String::from_utf8_lossy(part));
    }
    let hex: Vec<String> = part.iter().map(|b| format!("{b:02x}")).collect();
    format!("{count}: {}{more}", hex.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::kernel::cases::Stall;

    /// A kernel that fails on packets with an `x` behind a full flit, whatever else there is.
    fn fails(case: &Case) -> Result<Option<Difference>, Failure> {
        let packet = case.packets.iter().position(|p| p.len() > 64 && p[64..].contains(&b'x'));
        let (expected, got) = (Outcome::Data, Outcome::Params);
        Ok(packet.map(|packet| Difference { packet, expected, got }))
    }

    #[test]
    fn what_has_nothing_to_do_with_the_failure_goes() {
        let mut long = vec![7; 1000];
        long[700] = b'x';
        let case = Case {
            before: Some((vec![], vec![1; 50])),
            params: vec![1],
            packets: vec![vec![2; 90], long, vec![3]],
            cut: Cut { seed: 4, piece: 9, room: 9 },
            stall: Some(Stall { seed: 5, input: 100, output: 100 }),
        };
        let first = fails(&case).unwrap().unwrap();
        let (small, difference) = smallest(&case, first, fails).unwrap();
        assert_eq!((small.before, small.stall, small.cut, difference.packet), (None, None, Cut::WHOLE, 0));
        assert_eq!((small.packets.len(), small.packets[0].len()), (1, 65), "one byte behind a flit");
    }
}
