//! Items as lines for people.

use crate::effects::{Effect, Inode, Outcome, Time};
use crate::transaction::{Begin, Registers};
use crate::view::{Content, DataState, Ending, Item, Record, Tail};
use std::io::{self, Write};

/// Prints one item.
///
/// # Errors
/// Those of `out`.
pub fn print(out: &mut dyn Write, item: &Item<'_>) -> io::Result<()> {
    match item {
        Item::Superblock(sb) => {
            let state =
                if sb.clean { "clean: nothing above the cut is replayed" } else { "in use or not closed cleanly" };
            writeln!(out, "superblock  in block {}, sequence {}, {state}", sb.copy, sb.sequence)?;
            writeln!(
                out,
                "log         {} bytes from byte {}, records at multiples of {}, cut at LSN {}",
                sb.log_len, sb.log_start, sb.log_align, sb.cut
            )?;
            sb.segments.iter().try_for_each(|s| writeln!(out, "segment     from LSN {}, at byte {}", s.first, s.offset))
        }
        Item::Record(record) => print_record(out, record),
        Item::Above(above) => writeln!(
            out,
            "above       LSN {}..{} {:?}, transaction {}, watermark {}: dropped",
            above.header.lsn, above.end, above.header.kind, above.header.transaction, above.header.watermark
        ),
        Item::Tail(tail) => print_tail(out, tail),
    }
}

fn print_tail(out: &mut dyn Write, tail: &Tail) -> io::Result<()> {
    let Tail { tail: at, watermark, records, dropped_records, dropped_bytes, torn_records, ending, bad } = tail;
    writeln!(out, "tail        at LSN {at} after {records} records, recorded watermark {watermark}")?;
    let dropped = format!("{dropped_records} records, {dropped_bytes} bytes, are dropped");
    match ending {
        Ending::Whole => Ok(()),
        Ending::Torn => writeln!(
            out,
            "torn tail   from LSN {bad}: {dropped}, and {torn_records} records that are not whole; no record says that \
             these were durable"
        ),
        Ending::DataMissing => writeln!(out, "torn tail   from LSN {at}: data it points to is not there; {dropped}"),
        Ending::Corrupt(why) => writeln!(out, "CORRUPT     at LSN {bad}: {why}"),
    }
}

fn print_record(out: &mut dyn Write, record: &Record) -> io::Result<()> {
    let h = &record.header;
    let kind = format!("{:?}", h.kind).to_lowercase();
    write!(out, "{kind:<11} LSN {}..{} {} bytes, watermark {}", h.lsn, record.end, h.length, h.watermark)?;
    if h.transaction != 0 {
        write!(out, ", {} transaction {}, micro-op {}", h.mode, h.transaction, h.micro_index)?;
    }
    match &record.data {
        DataState::Vouched | DataState::Unchecked => writeln!(out)?,
        DataState::Verified => writeln!(out, ", data verified")?,
        DataState::Missing { block, expected, actual } => {
            let actual = actual.map_or("outside the medium".to_owned(), |a| format!("found {a:#010x}"));
            writeln!(out, ", DATA MISSING in block {block}: expected {expected:#010x}, {actual}")?;
        }
    }
    match &record.content {
        Content::None => Ok(()),
        Content::Effects(effects) => print_effects(out, effects),
        Content::Begin(begin) => print_begin(out, begin),
        Content::Micro(commit) => {
            print_registers(out, &commit.registers)?;
            print_effects(out, &commit.effects)
        }
        Content::End(end) => writeln!(
            out,
            "    {}, {} micro-ops done, failed {} with errno {}, results {} and {}",
            end.verdict, end.micro_done, end.micro_failed, end.errno, end.result, end.result2
        ),
        Content::Invalid(what) => writeln!(out, "    INVALID: no valid {what}"),
    }
}

fn print_registers(out: &mut dyn Write, r: &Registers) -> io::Result<()> {
    write!(out, "    registers: file {}{}", r.file, if r.created { " (made)" } else { "" })?;
    if let Some(read) = r.read {
        write!(out, ", read {read}")?;
    }
    for (name, write) in [("first", r.first), ("last", r.last)] {
        write.map_or(Ok(()), |(offset, bytes)| write!(out, ", {name} write {bytes} bytes at {offset}"))?;
    }
    writeln!(out, ", checksum {:#010x} of {} bytes", r.checksum, r.checksum_bytes)
}

fn print_begin(out: &mut dyn Write, b: &Begin) -> io::Result<()> {
    let c = &b.command;
    writeln!(
        out,
        "    command: opcode {}, flags {:#x}, sequence {}, aux {:#x}, offset {}, length {}, length2 {}, imm {}",
        c.opcode, c.flags, c.sequence, c.aux, c.offset, c.length, c.length2, c.imm
    )?;
    writeln!(
        out,
        "    by uid {} gid {} (and {} groups) at {}, open flags {:#x}",
        b.uid,
        b.gid,
        b.groups.len(),
        time(&b.now),
        b.open_flags
    )?;
    if let Some((steps, end)) = &b.planned {
        writeln!(out, "    planned: {steps} micro-ops, {} at {}", end.verdict, end.micro_done)?;
        return b.inputs.iter().enumerate().try_for_each(|(n, group)| {
            writeln!(out, "    group {n}: of micro-op {}", group.micro)?;
            print_effects(out, &group.effects)
        });
    }
    writeln!(out, "    on \"{}\" in directory {}: inode {} generation {}", b.name, b.directory, b.file, b.generation)?;
    if let Some(id) = &b.detect {
        writeln!(out, "    detectable: client {}, queue {}", id.client, id.queue)?;
    }
    for (n, input) in b.inputs.iter().enumerate() {
        writeln!(out, "    input {n}: for micro-op {}, {} bytes at {}", input.micro, input.bytes, input.offset)?;
        print_effects(out, &input.effects)?;
    }
    Ok(())
}

fn print_effects(out: &mut dyn Write, effects: &[Effect]) -> io::Result<()> {
    effects.iter().try_for_each(|e| {
        write!(out, "    ")?;
        print_effect(out, e)
    })
}

fn print_effect(out: &mut dyn Write, effect: &Effect) -> io::Result<()> {
    match effect {
        Effect::InodeMade { inode, fields } => print_inode(out, *inode, fields),
        Effect::AttributesSet { inode, set } => {
            write!(out, "inode {inode}: attributes")?;
            let numbers = [
                ("size", set.size),
                ("uid", set.uid.map(u64::from)),
                ("gid", set.gid.map(u64::from)),
                ("links", set.links.map(u64::from)),
                ("flags", set.flags.map(u64::from)),
                ("parent", set.parent),
            ];
            for (name, value) in numbers {
                value.map_or(Ok(()), |v| write!(out, " {name} {v}"))?;
            }
            set.mode.map_or(Ok(()), |mode| write!(out, " mode {mode:o}"))?;
            for (name, value) in [("atime", set.atime), ("mtime", set.mtime), ("ctime", set.ctime)] {
                value.map_or(Ok(()), |t| write!(out, " {name} {}", time(&t)))?;
            }
            writeln!(out)
        }
        Effect::InodeGone { inode } => writeln!(out, "inode {inode}: gone"),
        Effect::EntrySet { inode, entry: e } => writeln!(
            out,
            "directory {inode}: \"{}\" is inode {}, type {}, cookie {:#x}, mark {}",
            e.name, e.names, e.file_type, e.cookie, e.mark
        ),
        Effect::EntryGone { inode, cookie } => writeln!(out, "directory {inode}: entry {cookie:#x} gone"),
        Effect::XattrSet { inode, slot, name, value } => {
            writeln!(out, "inode {inode}: attribute \"{name}\" in slot {slot:#x}: {value}")
        }
        Effect::XattrGone { inode, slot } => writeln!(out, "inode {inode}: attribute in slot {slot:#x} gone"),
        Effect::Mapped { inode, run } => {
            let state = if run.written { "written" } else { "unwritten" };
            let (file, medium) = (run.block, run.address);
            writeln!(out, "inode {inode}: {} blocks from {file} on at block {medium}, {state}", run.blocks)
        }
        Effect::Bytes { inode, offset, bytes } => writeln!(out, "inode {inode}: at {offset}: {bytes}"),
        Effect::Zeros { inode, offset, length } => writeln!(out, "inode {inode}: at {offset}: {length} zeros"),
        Effect::Hole { inode, block, blocks } => writeln!(out, "inode {inode}: {blocks} blocks from {block} on: hole"),
        Effect::Cut { inode, block, end } => writeln!(out, "inode {inode}: blocks {block}..{end} cut, freed later"),
        Effect::LastNameGone { inode } => writeln!(out, "inode {inode}: the last name is gone"),
        Effect::NameAgain { inode } => writeln!(out, "inode {inode}: a name again"),
        Effect::ReclaimStep { inode, stamp, block, blocks } => {
            writeln!(out, "inode {inode}: {blocks} blocks from {block} on freed, of the cut {stamp}")
        }
        Effect::ReclaimDone { inode, stamp: 0 } => writeln!(out, "inode {inode}: freed, and gone"),
        Effect::ReclaimDone { inode, stamp } => writeln!(out, "inode {inode}: the cut {stamp} is freed"),
        Effect::Adopted { inode, input } => writeln!(out, "inode {inode}: input {input} of the begin record adopted"),
        Effect::Outcome { outcome, .. } => print_outcome(out, outcome),
    }
}

fn print_outcome(out: &mut dyn Write, o: &Outcome) -> io::Result<()> {
    writeln!(
        out,
        "outcome of client {}, queue {}, sequence {}, uid {}: status {}, {} done, failed {}, results {} and {}",
        o.identity.client,
        o.identity.queue,
        o.sequence,
        o.uid,
        o.status,
        o.micro_done,
        o.micro_failed,
        o.result,
        o.result2
    )
}

fn print_inode(out: &mut dyn Write, inode: u64, f: &Inode) -> io::Result<()> {
    write!(
        out,
        "inode {inode}: made, mode {:o}, uid {}, gid {}, {} links, size {}, generation {}, at {}",
        f.mode,
        f.uid,
        f.gid,
        f.links,
        f.size,
        f.generation,
        time(&f.btime)
    )?;
    if !f.target.0.is_empty() {
        write!(out, ", target \"{}\"", f.target)?;
    }
    writeln!(out)
}

fn time(t: &Time) -> String {
    format!("{}.{:09}", t.seconds, t.nanoseconds)
}
