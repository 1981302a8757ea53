//! A program as text.

use super::super::Program;
use super::super::micro::Micro;
use super::super::operand::*;
use super::parse::FLAGS;
use super::steps::{ARITH, CODECS, RELATIONS, SUMS};
use crate::flags::{Access, OpenFlags, RenameFlags};
use crate::{Errno, Handle};
use core::fmt::Write;

pub(super) fn print(p: &Program) -> String {
    let mut out = String::new();
    for i in 0..p.ranges().len() as u8 {
        let verb = if p.micros().iter().any(|m| m.takes(Bytes::Pool(Pool(i)))) { "input" } else { "output" };
        let _ = writeln!(out, "{verb} @p{i} {}", p.range(Pool(i)).len);
    }
    let statements: Vec<String> = p.micros().iter().map(|m| statement(p, m)).collect();
    for i in 0..crate::limits::PROGRAM_BUFFERS as u8 {
        // One without room is named as well: a text that leaves it out has the parser choose a size.
        if p.capacity(BufSlot(i)) > 0 || statements.iter().any(|s| has_word(s, &format!("b{i}"))) {
            let _ = writeln!(out, "buffer b{i} {}", p.capacity(BufSlot(i)));
        }
    }
    for statement in statements {
        let _ = writeln!(out, "{statement}");
    }
    let [a, b] = p.results().map(|r| r.map_or("none".to_owned(), |r| format!("r{}", r.0)));
    let _ = writeln!(out, "result {a} {b}");
    out
}

/// Whether a word stands in a statement; in a literal, too, where it does no harm.
fn has_word(statement: &str, word: &str) -> bool {
    statement.split(|c: char| !c.is_ascii_alphanumeric()).any(|w| w == word)
}

pub(super) fn statement(p: &Program, m: &Micro) -> String {
    match *m {
        Micro::Open { file, base, path, flags, mode, created } => {
            let path = path_of(p, path, base);
            let flags = open_flags(flags);
            format!("open {path}{flags} mode {mode:o} as f{}{}", file.0, option("created", created))
        }
        Micro::Use { file, h, need } => {
            let need = match (need.contains(Access::READ), need.contains(Access::WRITE)) {
                (true, true) => "rw",
                (true, false) => "r",
                _ => "w",
            };
            format!("use {:#x} {need} as f{}", h.to_wire(), file.0)
        }
        Micro::Read { file, off, len, to, whole, pad, fold, count } => {
            let to = match to {
                To::Nowhere => "nowhere".to_owned(),
                To::Buffer(b) => format!("b{}", b.0),
                To::Pool(p) => format!("@p{}", p.0),
            };
            let (whole, pad) = (if whole { " whole" } else { "" }, if pad { " pad" } else { "" });
            let rest = fold_of(fold) + &option("count", count);
            format!("read f{} {} {} -> {to}{whole}{pad}{rest}", file.0, value(off), value(len))
        }
        Micro::Write { file, place, from, fold, at } => {
            let rest = fold_of(fold) + &option("at", at);
            format!("write f{} {} {}{rest}", file.0, place_of(place), bytes(p, from))
        }
        Micro::Size { file, to } => format!("size f{} -> r{}", file.0, to.0),
        Micro::Truncate { file, size } => format!("truncate f{} {}", file.0, value(size)),
        Micro::CopyRange { from, off, len, max, to, place, count } => {
            let max = if max > 0 { format!(" max {max}") } else { String::new() };
            let (place, rest) = (place_of(place), option("count", count));
            format!("copy f{} {} {} -> f{} {place}{max}{rest}", from.0, value(off), value(len), to.0)
        }
        Micro::Scan { file, off, len, record, offsets, count, end, why } => {
            let offsets = offsets.map_or(String::new(), |p| format!(" offsets -> @p{}", p.0));
            let rest = option("count", count) + &option("end", end) + &option("why", why);
            format!("scan f{} {} {} {}{offsets}{rest}", file.0, value(off), value(len), record_of(record))
        }
        Micro::Sync => "sync".to_owned(),
        Micro::Close { file } => format!("close f{}", file.0),
        Micro::Guard { cond, otherwise } => guard(p, cond, otherwise),
        Micro::Unlink { base, path } => format!("unlink {}", path_of(p, path, base)),
        Micro::Rmdir { base, path } => format!("rmdir {}", path_of(p, path, base)),
        Micro::Mkdir { base, path, mode } => format!("mkdir {} mode {mode:o}", path_of(p, path, base)),
        Micro::Rename { from_base, from, to_base, to, flags } => {
            let mut out = format!("rename {} {}", path_of(p, from, from_base), path_of(p, to, to_base));
            out += if flags.contains(RenameFlags::NOREPLACE) { " noreplace" } else { "" };
            out + if flags.contains(RenameFlags::EXCHANGE) { " exchange" } else { "" }
        }
        Micro::Link { from_base, from, to_base, to, follow } => {
            let follow = if follow { " follow" } else { "" };
            format!("link {} {}{follow}", object(p, from, from_base), path_of(p, to, to_base))
        }
        Micro::Symlink { target, base, path } => {
            format!("symlink {} {}", quoted(p.string(target)), path_of(p, path, base))
        }
        Micro::SetAttr { base, path, nofollow, mode, size, atime_now, mtime_now } => {
            let mode = mode.map_or(String::new(), |m| format!(" mode {m:o}"));
            let size = size.map_or(String::new(), |s| format!(" size {}", value(s)));
            let flag = |on: bool, text: &'static str| if on { text } else { "" };
            let times = flag(atime_now, " atime").to_owned() + flag(mtime_now, " mtime");
            format!("set {}{mode}{size}{times}{}", object(p, path, base), flag(nofollow, " nofollow"))
        }
        _ => inner(p, m),
    }
}

fn inner(p: &Program, m: &Micro) -> String {
    match *m {
        Micro::Checksum { kind, of, to } => format!("{} {} -> r{}", name(&SUMS, kind), bytes(p, of), to.0),
        Micro::Change { buf, off, change } => {
            let (verb, with) = match change {
                Change::Patch(b) => ("patch", bytes(p, b)),
                Change::Add(i, by) => ("add", format!("{} {}", int(i), value(by))),
                Change::And(b) => ("and", bytes(p, b)),
                Change::Or(b) => ("or", bytes(p, b)),
                Change::Xor(b) => ("xor", bytes(p, b)),
                Change::CompareSwap { expect, new } => ("cas", format!("{} {}", bytes(p, expect), bytes(p, new))),
            };
            format!("{verb} b{} {} {with}", buf.0, value(off))
        }
        Micro::Load { to, buf, off, int: i } => format!("load b{} {} {} -> r{}", buf.0, value(off), int(i), to.0),
        Micro::Length { buf, to } => format!("length b{} -> r{}", buf.0, to.0),
        Micro::Arith { to, a, op, b } => {
            let op = match op {
                Arith::Min => "min",
                Arith::Max => "max",
                op => name(&ARITH, op),
            };
            format!("let r{} = {} {op} {}", to.0, value(a), value(b))
        }
        Micro::Fill { buf, from, append } => {
            format!("{} b{} {}", if append { "extend" } else { "fill" }, buf.0, bytes(p, from))
        }
        Micro::Slice { buf, from, off, len } => {
            format!("slice b{} {} {} -> b{}", from.0, value(off), value(len), buf.0)
        }
        Micro::Give { buf, to, count } => format!("give b{} -> @p{}{}", buf.0, to.0, option("count", count)),
        Micro::Transform { buf, from, how } => {
            let names = format!("b{} -> b{}", from.0, buf.0);
            let units = |verb, key: u64, log: u8, first| {
                format!("{verb} {names} key {key} unit {} first {}", 1u64 << log, value(first))
            };
            let bound = |bound: Option<Bytes>| bound.map_or(String::new(), |b| format!(" bound {}", bytes(p, b)));
            match how {
                Transform::Compress(c) => format!("compress {} {names}", name(&CODECS, c)),
                Transform::Decompress(c) => format!("decompress {} {names}", name(&CODECS, c)),
                Transform::EncryptUnits { key, unit_log, first } => units("encrypt", key, unit_log, first),
                Transform::DecryptUnits { key, unit_log, first } => units("decrypt", key, unit_log, first),
                Transform::Seal { key, bound: b } => format!("seal {names} key {key}{}", bound(b)),
                Transform::Open { key, bound: b } => format!("unseal {names} key {key}{}", bound(b)),
            }
        }
        Micro::Kernel { buf, from, name, params, registers } => {
            let word = |(i, word): (usize, &[u8])| {
                let word = word.iter().rev().fold(0u32, |word, b| word << 8 | u32::from(*b));
                let register = i < 64 && registers >> i & 1 == 1;
                if register { format!("r{word}") } else { word.to_string() }
            };
            let params: Vec<String> = p.string(params).chunks(4).enumerate().map(word).collect();
            let name = String::from_utf8_lossy(p.string(name));
            format!("kernel {name}({}) b{} -> b{}", params.join(", "), from.0, buf.0)
        }
        // Every other kind is one of `statement`'s.
        _ => String::new(),
    }
}

fn guard(p: &Program, cond: Cond, otherwise: Else) -> String {
    let cond = match cond {
        Cond::Compare(a, relation, b) => format!("{} {} {}", value(a), name(&RELATIONS, relation), value(b)),
        Cond::Holds { buf, off, bytes: b } => format!("holds b{} {} {}", buf.0, value(off), bytes(p, b)),
    };
    let otherwise = match otherwise {
        // (The first number without a name is the first that is called so, too.)
        Else::Fail(e) if e.name() != "E?" && (1..=4095).map(Errno).find(|o| o.name() == e.name()) == Some(e) => {
            format!("fail {}", e.name())
        }
        Else::Fail(e) => format!("fail {}", e.0),
        Else::End => "end".to_owned(),
        Else::Skip(n) => format!("skip {n}"),
    };
    format!("if {cond} else {otherwise}")
}

fn record_of(r: Record) -> String {
    let sum_at = r.sum_at.map_or("behind".to_owned(), |at| at.to_string());
    let order = if r.sum_order == Order::Big { " be" } else { "" };
    let sum = name(&SUMS, r.sum);
    format!("head {} length {} {} {sum} {sum_at}{order} from {}", r.head, r.len_at, int(r.len), r.covers)
}

fn name<T: Copy + PartialEq>(table: &[(&'static str, T)], v: T) -> &'static str {
    table.iter().find(|(_, t)| *t == v).map_or("?", |(name, _)| name)
}

fn value(v: Value) -> String {
    match v {
        Value::Imm(v) => v.to_string(),
        Value::Reg(r) => format!("r{}", r.0),
    }
}

fn int(i: Int) -> String {
    format!("u{}{}", 8 * i.width.bytes(), if i.order == Order::Big { "be" } else { "le" })
}

fn bytes(p: &Program, b: Bytes) -> String {
    match b {
        Bytes::Buffer(b) => format!("b{}", b.0),
        Bytes::Pool(p) => format!("@p{}", p.0),
        Bytes::Literal(s) => quoted(p.string(s)),
        Bytes::Int(r, i) => format!("r{}:{}", r.0, int(i)),
    }
}

fn place_of(place: Place) -> String {
    match place {
        Place::At(v) => value(v),
        Place::End => "end".to_owned(),
        Place::After => "after".to_owned(),
    }
}

fn option(word: &str, r: Option<Reg>) -> String {
    r.map_or(String::new(), |r| format!(" {word} -> r{}", r.0))
}

fn fold_of(f: Option<Fold>) -> String {
    f.map_or(String::new(), |f| format!(" {} -> r{}", name(&SUMS, f.kind), f.to.0))
}

fn open_flags(flags: OpenFlags) -> String {
    let access = match (flags.contains(OpenFlags::READ), flags.contains(OpenFlags::WRITE)) {
        (true, true) => " rw",
        (true, false) => " r",
        _ => " w",
    };
    let named = FLAGS.iter().filter(|(_, f)| flags.contains(*f));
    named.fold(access.to_owned(), |out, (name, _)| out + " " + name)
}

fn object(p: &Program, path: Option<Str>, base: Handle) -> String {
    path.map_or_else(|| format!("handle {:#x}", base.to_wire()), |path| path_of(p, path, base))
}

fn path_of(p: &Program, path: Str, base: Handle) -> String {
    let from = if base == Handle::ROOT { String::new() } else { format!(" in {:#x}", base.to_wire()) };
    quoted(p.string(path)) + &from
}

fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for b in bytes {
        match b {
            b'"' | b'\\' => out.extend(['\\', char::from(*b)]),
            b' '..=b'~' => out.push(char::from(*b)),
            _ => {
                let _ = write!(out, "\\x{b:02x}");
            }
        }
    }
    out + "\""
}
