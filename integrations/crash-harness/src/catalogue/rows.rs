//! Rows of one file: opened and closed in the command, summed up, changed in place, appended to.

use super::*;
use weldfs_ciscops::catalogue::*;
use weldfs_ciscops::functions::checksum::Kind;
use weldfs_ciscops::interp::CREATED;
use weldfs_ciscops::program::{Builder, Bytes, Micro, Order, Place, SumKind, Value};
use weldfs_ciscops::{Access, ChecksumKind, Modify};

pub(super) fn rows() -> Vec<Row> {
    vec![
        row_of("open_write_close", "", open_write_close),
        row_of("open_pwrite_close", "", open_pwrite_close),
        row_of("open_read_close", "", |g| open_read_close(g, 0)),
        row_of("open_read_close", "pread", |g| open_read_close(g, g.off)),
        row_of("open_read_write_close", "", open_read_write_close),
        row_of("append_checksum_write", "", append_checksum_write),
        on_card("append_checksum_write", "slot", |g| append_checksum_write(g).in_slot()),
        on_card("append_checksum_write", "header_slot", |g| append_record(g, HEADER).in_slot()),
        on_card("kernel", "", kernel),
        row_of("append_checksum_write", "trailer", |g| append_record(g, TRAILER)),
        row_of("append_checksum_write", "header", |g| append_record(g, HEADER)),
        row_of("write_checksum", "trailer", |g| write_record(g, TRAILER)),
        row_of("write_checksum", "header", |g| write_record(g, HEADER)),
        row_of("write_verified", "", |g| write_verified(g, 0)),
        row_of("write_verified", "wrong", |g| write_verified(g, 1)),
        row_of("read_checksum_verify", "", read_checksum_verify),
        on_card("read_checksum_verify", "slot", |g| read_checksum_verify(g).in_slot()),
        row_of("read_checksum_verify", "trailer", |g| verify_record(g, TRAILER)),
        row_of("read_checksum_verify", "header", |g| verify_record(g, HEADER)),
        row_of("read_modify_write", "", |g| modify(g, Fixed::Patch)),
        row_of("read_modify_write", "xor", |g| modify(g, Fixed::Xor)),
        row_of("read_modify_write", "add", |g| modify(g, Fixed::Add)),
        row_of("read_modify_write", "swap", |g| modify(g, Fixed::Swap)),
        row_of("read_modify_write", "refused_swap", |g| modify(g, Fixed::Refused)),
        row_of("read_modify_write", "or", modify_or),
        row_of("read_modify_write", "add_big", modify_add),
        row_of("append_to_record", "", append_to_record),
        row_of("read_modify_append", "", read_modify_append),
        row_of("read_append", "", |g| read_append(g, ReadFrom::Offset(g.off))),
        row_of("read_append", "tail", |g| read_append(g, ReadFrom::Tail)),
        row_of("append_and_sync", "", append_and_sync),
    ]
}

/// What a directory of the host has no card for.
fn on_card(op: &'static str, form: &'static str, plan: fn(&Given) -> Planned) -> Row {
    Row { on_host: false, ..row_of(op, form, plan) }
}

/// Bytes that a kernel gives back as they came, appended, with their checksum from another kernel behind them.
fn kernel(g: &Given) -> Planned {
    let len = g.len();
    let body = move |h: &[Handle]| {
        let mut b = Builder::new();
        let file = b.take(h[0], Access::WRITE);
        let payload = Bytes::Pool(b.pool(len));
        let (given, made, sum) = (b.buffer(len), b.buffer(len), b.buffer(4));
        b.push(Micro::Fill { buf: given, from: payload, append: false });
        b.kernel("pass-through", &[], given, made);
        b.kernel("crc32c", &[Value::Imm(0)], made, sum);
        let at = b.write(file, Place::End, Bytes::Buffer(made));
        b.push(Micro::Write { file, place: Place::After, from: Bytes::Buffer(sum), fold: None, at: None });
        b.results(Some(at), None);
        Ok(b.finish()?)
    };
    let done = program(vec![g.data.clone()], body).opens([(&g.a, OpenFlags::WRITE)]);
    done.effects(record(Summing::default(), &g.data).map(|part| append(&g.a, &part))).gives(g.size(&g.a), 0)
}

const TRAILER: Summing = Summing { kind: SumKind::Crc32, order: Order::Big, place: SumPlace::Trailer };
const HEADER: Summing = Summing { kind: SumKind::Crc32cMasked, order: Order::Little, place: SumPlace::Header };

/// The checksum, and its four bytes as they lie in a file.
fn sum(sum: Summing, data: &[u8]) -> (u64, [u8; 4]) {
    let kind = match sum.kind {
        SumKind::Crc32c => Kind::Crc32c,
        SumKind::Crc32 => Kind::Crc32,
        SumKind::Crc32cMasked => Kind::Crc32cMasked,
    };
    let value = kind.of(data);
    (value.into(), if sum.order == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() })
}

/// Payload and checksum in the order in which they lie.
fn record(how: Summing, data: &[u8]) -> [Vec<u8>; 2] {
    let stored = sum(how, data).1.to_vec();
    if how.place == SumPlace::Header { [stored, data.to_vec()] } else { [data.to_vec(), stored] }
}

fn open_write_close(g: &Given) -> Planned {
    let ranges = vec![Range::In(g.c.clone().into()), Range::In(g.data.clone())];
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
    let op = move |_: &[Handle], r: &[PoolRange]| Op::OpenWriteClose {
        base: Handle::ROOT,
        path: r[0],
        flags,
        mode: MODE.into(),
        at: At::Offset(0),
        src: r[1],
    };
    one(ranges, op).effects([whole(&g.c, How::New, &g.data)]).gives(g.len().into(), CREATED)
}

fn open_pwrite_close(g: &Given) -> Planned {
    let (ranges, off) = (vec![Range::In(g.a.clone().into()), Range::In(g.data.clone())], g.off);
    let op = move |_: &[Handle], r: &[PoolRange]| Op::OpenWriteClose {
        base: Handle::ROOT,
        path: r[0],
        flags: OpenFlags::WRITE,
        mode: 0,
        at: At::Offset(off),
        src: r[1],
    };
    one(ranges, op).effects([write(&g.a, off, &g.data)]).gives(g.len().into(), off)
}

fn open_read_close(g: &Given, offset: u64) -> Planned {
    let content = g.content(&g.a);
    let found = part(&content, offset, g.data.len());
    let ranges = vec![Range::In(g.a.clone().into()), Range::Out(g.len())];
    let op = move |_: &[Handle], r: &[PoolRange]| Op::OpenReadClose {
        base: Handle::ROOT,
        path: r[0],
        flags: OpenFlags::READ,
        offset,
        out: r[1],
    };
    one(ranges, op).gives(found.len() as u64, 0).shows(found, g.data.len())
}

fn open_read_write_close(g: &Given) -> Planned {
    let (content, read_off) = (g.content(&g.a), g.off);
    let found = part(&content, read_off, 100);
    let ranges = vec![Range::In(g.a.clone().into()), Range::Out(100), Range::In(g.data.clone())];
    let op = move |_: &[Handle], r: &[PoolRange]| Op::OpenReadWriteClose {
        base: Handle::ROOT,
        path: r[0],
        flags: RW,
        mode: 0,
        read_off,
        out: r[1],
        at: At::End,
        src: r[2],
    };
    let done = one(ranges, op).effects([append(&g.a, &g.data)]);
    done.gives(found.len() as u64, content.len() as u64).shows(found, 100)
}

fn append_checksum_write(g: &Given) -> Planned {
    let how = Summing::default();
    let op = |h: &[Handle], r: &[PoolRange]| Op::AppendChecksumWrite { h: h[0], kind: ChecksumKind::Crc32c, src: r[0] };
    let done = one(vec![Range::In(g.data.clone())], op).opens([(&g.a, OpenFlags::WRITE)]);
    done.effects(record(how, &g.data).map(|part| append(&g.a, &part))).gives(g.size(&g.a), sum(how, &g.data).0)
}

/// With its checksum, or with another one.
fn write_verified(g: &Given, change: u32) -> Planned {
    let (off, sum) = (g.off, sum(Summing::default(), &g.data).0 as u32 ^ change);
    let op = move |h: &[Handle], r: &[PoolRange]| {
        let (at, kind) = (At::Offset(off), ChecksumKind::Crc32c);
        Op::WriteVerified { h: h[0], at, src: r[0], kind, sum }
    };
    let done = one(vec![Range::In(g.data.clone())], op).opens([(&g.a, OpenFlags::WRITE)]);
    let done = done.effects([write(&g.a, off, &g.data)]).gives(g.data.len() as u64, off);
    done.fails((change != 0).then_some(Errno::BADMSG))
}

fn append_record(g: &Given, how: Summing) -> Planned {
    let len = g.len();
    let body = move |h: &[Handle]| Ok(AppendChecksum { h: h[0], len, sum: how }.body()?);
    let done = program(vec![g.data.clone()], body).opens([(&g.a, OpenFlags::WRITE)]);
    done.effects(record(how, &g.data).map(|part| append(&g.a, &part))).gives(g.size(&g.a), sum(how, &g.data).0)
}

fn write_record(g: &Given, how: Summing) -> Planned {
    let (len, offset) = (g.len(), g.off);
    let body = move |h: &[Handle]| Ok(WriteChecksum { h: h[0], offset, len, sum: how }.body()?);
    let [first, second] = record(how, &g.data);
    let effects = [write(&g.a, offset, &first), write(&g.a, offset + first.len() as u64, &second)];
    let done = program(vec![g.data.clone()], body).opens([(&g.a, OpenFlags::WRITE)]);
    done.effects(effects).gives(offset, sum(how, &g.data).0)
}

fn read_checksum_verify(g: &Given) -> Planned {
    let (how, offset, len) = (Summing::default(), g.off, g.len());
    let op = move |h: &[Handle], r: &[PoolRange]| Op::ReadChecksumVerify {
        h: h[0],
        kind: ChecksumKind::Crc32c,
        offset,
        len,
        out: r[0],
    };
    let done = one(vec![Range::Out(len)], op).before([write(&g.a, offset, &record(how, &g.data).concat())]);
    let done = done.opens([(&g.a, OpenFlags::READ)]);
    done.gives(len.into(), sum(how, &g.data).0).shows(&g.data, g.data.len())
}

fn verify_record(g: &Given, how: Summing) -> Planned {
    let (offset, len) = (g.off, g.len());
    let body = move |h: &[Handle]| Ok(VerifyChecksum { h: h[0], offset, len, sum: how, show: true }.body()?);
    let done = program(Vec::new(), body).before([write(&g.a, offset, &record(how, &g.data).concat())]);
    let done = done.opens([(&g.a, OpenFlags::READ)]);
    done.gives(len.into(), sum(how, &g.data).0).shows(&g.data, g.data.len())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fixed {
    Patch,
    Xor,
    Add,
    Swap,
    Refused,
}

/// A field: eight bytes for additions, else as the payload, which must not be empty nor above 64 KiB.
fn field(g: &Given, how: Fixed) -> Vec<u8> {
    let len = if how == Fixed::Add { 8 } else { g.data.len().clamp(1, 1 << 16) };
    padded(&g.data, 0, len)
}

fn modify(g: &Given, how: Fixed) -> Planned {
    let (new, offset, content) = (field(g, how), g.off, g.content(&g.a));
    let len = new.len() as u32;
    let (there, old) = (part(&content, offset, new.len()).len(), padded(&content, offset, new.len()));
    let zip = |f: fn(u8, u8) -> u8| old.iter().zip(&new).map(|(a, b)| f(*a, *b)).collect::<Vec<u8>>();
    let by = u64::from_le_bytes(padded(&new, 0, 8).try_into().unwrap_or_default());
    let number = u64::from_le_bytes(padded(&old, 0, 8).try_into().unwrap_or_default());
    let (ins, changed) = match how {
        Fixed::Patch => (vec![new.clone()], new.clone()),
        Fixed::Xor => (vec![new.clone()], zip(|a, b| a ^ b)),
        Fixed::Add => (Vec::new(), number.wrapping_add(by).to_le_bytes().to_vec()),
        Fixed::Swap => (vec![old.clone(), new.clone()], new.clone()),
        Fixed::Refused => (vec![zip(|a, _| a ^ 0x55), new.clone()], Vec::new()),
    };
    let ranges = std::iter::once(Range::Out(len)).chain(ins.into_iter().map(Range::In)).collect();
    let op = move |h: &[Handle], r: &[PoolRange]| {
        let modify = match how {
            Fixed::Patch => Modify::Patch(r[1]),
            Fixed::Xor => Modify::Xor(r[1]),
            Fixed::Add => Modify::Add(by),
            Fixed::Swap | Fixed::Refused => Modify::CompareSwap { expect: r[1], new: r[2] },
        };
        Op::ReadModifyWrite { h: h[0], offset, len, modify, out: r[0] }
    };
    let done = one(ranges, op).opens([(&g.a, RW)]).effects([write(&g.a, offset, &changed)]);
    let done = done.gives(there as u64, 0).shows(&old, old.len());
    if how != Fixed::Refused {
        return done;
    }
    let refused = done.fails(Some(Errno::CANCELED));
    refused.gives(there as u64, 0)
}

fn modify_or(g: &Given) -> Planned {
    let (new, offset, content) = (field(g, Fixed::Patch), g.off, g.content(&g.a));
    let len = new.len() as u32;
    let (there, old) = (part(&content, offset, new.len()).len(), padded(&content, offset, new.len()));
    let changed: Vec<u8> = old.iter().zip(&new).map(|(a, b)| a | b).collect();
    let body =
        move |h: &[Handle]| Ok(ModifyField { h: h[0], offset, len, change: FieldChange::Or, show: true }.body()?);
    let done = program(vec![new], body).opens([(&g.a, RW)]).effects([write(&g.a, offset, &changed)]);
    done.gives(there as u64, 0).shows(&old, old.len())
}

fn modify_add(g: &Given) -> Planned {
    let (offset, content, by) = (g.off, g.content(&g.a), 0x0102_0304);
    let (there, old) = (part(&content, offset, 4).len(), padded(&content, offset, 4));
    let number = u32::from_be_bytes(padded(&old, 0, 4).try_into().unwrap_or_default());
    let change = FieldChange::Add(Order::Big, by);
    let body = move |h: &[Handle]| Ok(ModifyField { h: h[0], offset, len: 4, change, show: false }.body()?);
    let changed = number.wrapping_add(by as u32).to_be_bytes();
    let done = program(Vec::new(), body).opens([(&g.a, RW)]).effects([write(&g.a, offset, &changed)]);
    done.gives(there as u64, number.into())
}

fn append_to_record(g: &Given) -> Planned {
    let (offset, len, first) = (g.off, g.len(), b"first");
    let head = |n: u32| n.to_be_bytes();
    let template = move |h| AppendToRecord { h, offset, width: 4, order: Order::Big, room: 2 << 20, len };
    let body = move |h: &[Handle]| Ok(template(h[0]).body()?);
    let content = offset + 4;
    let effects = [write(&g.a, content + 5, &g.data), write(&g.a, offset, &head(5 + len))];
    let done = program(vec![g.data.clone()], body).opens([(&g.a, RW)]);
    let done = done.before([write(&g.a, offset, &[&head(5)[..], first].concat())]);
    done.effects(effects).gives(5, u64::from(len) + 5)
}

fn read_modify_append(g: &Given) -> Planned {
    let (offset, old) = (g.off, padded(&g.data, 0, g.data.len().clamp(8, 1 << 20)));
    let len = old.len() as u32;
    let body = move |h: &[Handle]| {
        let template =
            ModifyAppend { h: h[0], to: h[1], offset, len, field: 2, field_len: 4, change: FieldChange::Patch };
        Ok(template.body()?)
    };
    let mut new = old.clone();
    new[2..6].copy_from_slice(b"edit");
    let done = program(vec![b"edit".to_vec()], body).before([write(&g.a, offset, &old)]);
    let done = done.opens([(&g.a, OpenFlags::READ), (&g.b, OpenFlags::WRITE)]);
    done.effects([append(&g.b, &new)]).gives(g.size(&g.b), len.into())
}

fn read_append(g: &Given, from: ReadFrom) -> Planned {
    let (len, content) = (g.len(), g.content(&g.a));
    let start = if let ReadFrom::Offset(off) = from { off } else { (content.len() as u64).saturating_sub(64) };
    let found = part(&content, start, 64);
    let body = move |h: &[Handle]| Ok(ReadAppend { h: h[0], from, read: 64, len }.body()?);
    let done = program(vec![g.data.clone()], body).opens([(&g.a, RW)]).effects([append(&g.a, &g.data)]);
    done.gives(found.len() as u64, content.len() as u64).shows(found, 64)
}

fn append_and_sync(g: &Given) -> Planned {
    let len = g.len();
    let body = move |h: &[Handle]| Ok(AppendAndSync { h: h[0], len }.body()?);
    let done = program(vec![g.data.clone()], body).opens([(&g.a, OpenFlags::WRITE)]);
    done.effects([append(&g.a, &g.data)]).gives(g.size(&g.a), 0)
}
