//! Rows that move bytes between files, transform them, or stand for several operations.

use super::*;
use weldfs_ciscops::catalogue::{
    AppendAndRotate, AtomicReplace, Cipher, CompressWrite, Concat, CopyRange, CreateTree, EncryptWrite, LogRecover,
    Node, ReadDecompress, ReadDecrypt, ReadEncryptWrite, Template, compressed_max,
};
use weldfs_ciscops::dirent::{DirentPlus, DirentsPlus};
use weldfs_ciscops::functions::{codec, crc32c};
use weldfs_ciscops::program::{Builder, Bytes, Codec, Int, Micro, Order, Place, Record, SumKind, Value};
use weldfs_ciscops::{Access, StatBody};
use zerocopy::FromBytes;

pub(super) fn rows() -> Vec<Row> {
    vec![
        row_of("copy_range", "", |g| copy_range(g, None)),
        row_of("copy_range", "inside", |g| copy_range(g, Some(g.off))),
        row_of("concat", "", concat),
        row_of("atomic_replace", "", atomic_replace),
        row_of("append_and_rotate", "fits", |g| append_and_rotate(g, u64::MAX, &g.c)),
        row_of("append_and_rotate", "rotates", |g| append_and_rotate(g, 0, &g.c)),
        row_of("append_and_rotate", "replaces", |g| append_and_rotate(g, g.size(&g.a), &g.b)),
        row_of("create_tree", "", create_tree),
        row_of("compress_write", "lz4", |g| compress_write(g, Codec::Lz4)),
        row_of("compress_write", "zstd", |g| compress_write(g, Codec::Zstd)),
        row_of("compress_write", "snappy", |g| compress_write(g, Codec::Snappy)),
        row_of("read_decompress", "lz4", |g| read_decompress(g, Codec::Lz4)),
        row_of("read_decompress", "zstd", |g| read_decompress(g, Codec::Zstd)),
        row_of("read_decompress", "snappy", |g| read_decompress(g, Codec::Snappy)),
        row_of("encrypt_write", "units", encrypt_units),
        row_of("encrypt_write", "record", encrypt_record),
        row_of("read_decrypt", "units", decrypt_units),
        row_of("read_decrypt", "record", decrypt_record),
        row_of("read_encrypt_write", "units", read_encrypt_units),
        row_of("read_encrypt_write", "in_place", encrypt_in_place),
        row_of("read_encrypt_write", "record", read_encrypt_record),
        row_of("log_recover", "", |g| log_recover(g, false)),
        row_of("log_recover", "copy", |g| log_recover(g, true)),
        row_of("multi_write", "", multi_write),
        Row { elements: true, view: sequences, ..row_of("batch", "", batch) },
        Row { elements: true, view: stats, ..row_of("stat_many", "", stat_many) },
        Row { view: entries, ..row_of("read_dir_plus", "", read_dir_plus) },
        Row { on_host: false, ..row_of("transaction", "commit", |g| transaction(g, true)) },
        Row { on_host: false, ..row_of("transaction", "abort", |g| transaction(g, false)) },
    ]
}

fn copy_range(g: &Given, to: Option<u64>) -> Planned {
    let (offset, len) = (g.off, g.data.len() as u64);
    let at = to.map_or(At::End, At::Offset);
    let body = move |h: &[Handle]| Ok(CopyRange { from: h[0], offset, len: len + 7, to: h[1], at }.body()?);
    let mut content = g.content(&g.a);
    content.resize(content.len().max(offset as usize), 0);
    if !g.data.is_empty() {
        let end = content.len().max(offset as usize + g.data.len());
        content.resize(end, 0);
        content[offset as usize..offset as usize + g.data.len()].copy_from_slice(&g.data);
    } else {
        content.truncate(g.size(&g.a) as usize);
    }
    let found = part(&content, offset, len as usize + 7);
    let effect = to.map_or_else(|| append(&g.b, found), |at| write(&g.b, at, found));
    let done = program(Vec::new(), body).before([write(&g.a, offset, &g.data)]);
    let done = done.opens([(&g.a, OpenFlags::READ), (&g.b, OpenFlags::WRITE)]);
    done.effects([effect]).gives(found.len() as u64, 0)
}

fn concat(g: &Given) -> Planned {
    let (first, second) = (g.content(&g.a), g.content(&g.b));
    let body = |h: &[Handle]| Ok(Concat { from: &h[..2], to: h[2] }.body()?);
    let done = program(Vec::new(), body).before([whole(&g.c, How::New, &g.data)]);
    let done = done.opens([(&g.a, OpenFlags::READ), (&g.b, OpenFlags::READ), (&g.c, RW)]);
    let after = g.data.len() + first.len() + second.len();
    done.effects([append(&g.c, &first), append(&g.c, &second)]).gives(g.len().into(), after as u64)
}

fn atomic_replace(g: &Given) -> Planned {
    let (path, temporary, len) = (g.a.clone(), g.c.clone(), g.len());
    let body = move |_: &[Handle]| {
        let (path, temporary) = (path.as_bytes(), temporary.as_bytes());
        Ok(AtomicReplace { base: Handle::ROOT, path, temporary, mode: MODE, len }.body()?)
    };
    let effects = [whole(&g.c, How::New, &g.data), Effect::Rename { from: g.c.clone(), to: g.a.clone() }];
    program(vec![g.data.clone()], body).effects(effects)
}

fn append_and_rotate(g: &Given, limit: u64, old: &str) -> Planned {
    let (path, to, len, size) = (g.a.clone(), old.to_owned(), g.len(), g.size(&g.a));
    let body = move |_: &[Handle]| {
        let (base, path, old, mode) = (Handle::ROOT, path.as_bytes(), to.as_bytes(), MODE);
        Ok(AppendAndRotate { base, path, old, limit, mode, len }.body()?)
    };
    let done = program(vec![g.data.clone()], body);
    if size == 0 || size.checked_add(len.into()).is_some_and(|end| end <= limit) {
        return done.effects([append(&g.a, &g.data)]).gives(size, 0);
    }
    let aside = Effect::Rename { from: g.a.clone(), to: old.to_owned() };
    done.effects([aside, whole(&g.a, How::New, &g.data)]).gives(0, 1)
}

fn create_tree(g: &Given) -> Planned {
    let (dir, len) = (g.c.clone(), g.len());
    let body = move |_: &[Handle]| {
        let [file, link, empty] = ["f", "l", "e"].map(|name| format!("{dir}/{name}"));
        let nodes = [
            Node::Directory { path: dir.as_bytes(), mode: MODE },
            Node::File { path: file.as_bytes(), mode: MODE, len },
            Node::Link { path: link.as_bytes(), target: b"f" },
            Node::File { path: empty.as_bytes(), mode: MODE, len: 0 },
        ];
        Ok(CreateTree { base: Handle::ROOT, nodes: &nodes }.body()?)
    };
    let ins = if g.data.is_empty() { Vec::new() } else { vec![g.data.clone()] };
    program(ins, body).effects([
        Effect::Mkdir { path: g.c.clone() },
        whole(&format!("{}/f", g.c), How::New, &g.data),
        Effect::Symlink { target: "f".into(), path: format!("{}/l", g.c) },
        whole(&format!("{}/e", g.c), How::New, b""),
    ])
}

fn frame(codec: Codec, data: &[u8]) -> Vec<u8> {
    let function = match codec {
        Codec::Lz4 => codec::Codec::Lz4,
        Codec::Zstd => codec::Codec::Zstd,
        Codec::Snappy => codec::Codec::Snappy,
    };
    function.compress(data, compressed_max(data.len() as u32) as usize).unwrap_or_default()
}

fn compress_write(g: &Given, codec: Codec) -> Planned {
    let (len, frame) = (g.len(), frame(codec, &g.data));
    let body = move |h: &[Handle]| Ok(CompressWrite { h: h[0], at: At::End, codec, len }.body()?);
    let done = program(vec![g.data.clone()], body).opens([(&g.a, OpenFlags::WRITE)]);
    done.effects([append(&g.a, &frame)]).gives(g.size(&g.a), frame.len() as u64)
}

fn read_decompress(g: &Given, codec: Codec) -> Planned {
    let (offset, frame, room) = (g.off, frame(codec, &g.data), g.len() + 3);
    let len = frame.len() as u32;
    let body = move |h: &[Handle]| Ok(ReadDecompress { h: h[0], offset, len, codec, room }.body()?);
    let done = program(Vec::new(), body).before([write(&g.a, offset, &frame)]).opens([(&g.a, OpenFlags::READ)]);
    done.gives(g.len().into(), 0).shows(&g.data, room as usize)
}

/// Bytes of a data unit in this table.
const UNIT: u32 = 512;

/// Data units as they lie in a file from its beginning on.
fn units(first: u64, data: &[u8]) -> Option<Vec<u8>> {
    let mut cipher = data.to_vec();
    unit_key().encrypt_units(first, UNIT, &mut cipher).ok().map(|()| cipher)
}

/// Why `len` bytes of data units are refused at `off` in a file of `size` bytes: a short last unit is the end of its
/// file, and stays it.
fn misfit(size: u64, off: u64, len: u64) -> Option<Errno> {
    let unit = u64::from(UNIT);
    let tail = len % unit;
    let inside = tail != 0 && off + len < size;
    let behind_short = size < off && !size.is_multiple_of(unit);
    (inside || behind_short || (1..16).contains(&tail)).then_some(Errno::INVAL)
}

fn encrypt_units(g: &Given) -> Planned {
    let (off, len, size) = (g.off - g.off % u64::from(UNIT), g.len(), g.size(&g.a));
    let cipher = Cipher::Units { key: g.keys[0], unit: UNIT };
    let body = move |h: &[Handle]| Ok(EncryptWrite { h: h[0], at: At::Offset(off), len, cipher }.body()?);
    let stored = units(off / u64::from(UNIT), &g.data).unwrap_or_default();
    let done = program(vec![g.data.clone()], body).opens([(&g.a, OpenFlags::WRITE)]);
    done.effects([write(&g.a, off, &stored)]).gives(off, 0).fails(misfit(size, off, len.into()))
}

fn encrypt_record(g: &Given) -> Planned {
    let (len, cipher) = (g.len(), Cipher::Record { key: g.keys[1] });
    let body = move |h: &[Handle]| Ok(EncryptWrite { h: h[0], at: At::End, len, cipher }.body()?);
    let done = program(vec![g.data.clone()], body).opens([(&g.a, OpenFlags::WRITE)]);
    done.effects([Effect::Sealed { path: g.a.clone(), plain: g.data.clone() }]).gives(g.size(&g.a), 0)
}

fn decrypt_units(g: &Given) -> Planned {
    // Of a length that encrypts.
    let data = padded(&g.data, 0, g.data.len().next_multiple_of(16));
    let (offset, room) = (data.len().min(3) as u64, data.len() as u32);
    let cipher = Cipher::Units { key: g.keys[0], unit: UNIT };
    let body = move |h: &[Handle]| Ok(ReadDecrypt { h: h[0], offset, len: room, cipher }.body()?);
    let stored = units(0, &data).unwrap_or_default();
    let done = program(Vec::new(), body).before([whole(&g.a, How::Trunc, &stored)]).opens([(&g.a, OpenFlags::READ)]);
    let found = part(&data, offset, data.len());
    done.gives(found.len() as u64, 0).shows(found, room as usize)
}

fn decrypt_record(g: &Given) -> Planned {
    let (offset, len, cipher) = (g.off, g.len(), Cipher::Record { key: g.keys[1] });
    let body = move |h: &[Handle]| Ok(ReadDecrypt { h: h[0], offset, len, cipher }.body()?);
    let mut record = Vec::new();
    let _ = record_key().seal([7; 12], b"", &g.data, &mut record);
    let done = program(Vec::new(), body).before([write(&g.a, offset, &record)]).opens([(&g.a, OpenFlags::READ)]);
    done.gives(len.into(), 0).shows(&g.data, g.data.len())
}

fn read_encrypt_units(g: &Given) -> Planned {
    let (offset, len, content) = (g.off, g.len(), g.content(&g.a));
    let cipher = Cipher::Units { key: g.keys[0], unit: UNIT };
    let body = move |h: &[Handle]| {
        Ok(ReadEncryptWrite { from: h[0], offset, len, to: h[1], at: At::Offset(512), cipher }.body()?)
    };
    let plain = part(&content, offset, len as usize);
    let stored = units(1, plain).unwrap_or_default();
    let done = program(Vec::new(), body).opens([(&g.a, OpenFlags::READ), (&g.b, OpenFlags::WRITE)]);
    let errno = misfit(g.size(&g.b), 512, plain.len() as u64);
    done.effects([write(&g.b, 512, &stored)]).gives(plain.len() as u64, 512).fails(errno)
}

fn encrypt_in_place(g: &Given) -> Planned {
    let (offset, len, content) = (g.off - g.off % u64::from(UNIT), g.len(), g.content(&g.a));
    let cipher = Cipher::Units { key: g.keys[0], unit: UNIT };
    let at = At::Offset(offset);
    let body = move |h: &[Handle]| Ok(ReadEncryptWrite { from: h[0], offset, len, to: h[1], at, cipher }.body()?);
    let plain = part(&content, offset, len as usize);
    let stored = units(offset / u64::from(UNIT), plain).unwrap_or_default();
    let done = program(Vec::new(), body).opens([(&g.a, OpenFlags::READ), (&g.a, OpenFlags::WRITE)]);
    let errno = misfit(content.len() as u64, offset, plain.len() as u64);
    done.effects([write(&g.a, offset, &stored)]).gives(plain.len() as u64, offset).fails(errno)
}

fn read_encrypt_record(g: &Given) -> Planned {
    let (offset, len, content) = (g.off, g.len(), g.content(&g.a));
    let cipher = Cipher::Record { key: g.keys[1] };
    let body =
        move |h: &[Handle]| Ok(ReadEncryptWrite { from: h[0], offset, len, to: h[1], at: At::End, cipher }.body()?);
    let plain = part(&content, offset, len as usize).to_vec();
    let done = program(Vec::new(), body).opens([(&g.a, OpenFlags::READ), (&g.b, OpenFlags::WRITE)]);
    let read = plain.len() as u64;
    done.effects([Effect::Sealed { path: g.b.clone(), plain }]).gives(read, g.size(&g.b))
}

/// Eight bytes of head: length and checksum, both little-endian; the checksum is that of the payload.
const LOG: Record = Record {
    head: 8,
    len_at: 0,
    len: Int::U32_LE,
    sum_at: Some(4),
    sum_order: Order::Little,
    sum: SumKind::Crc32c,
    covers: 8,
};

fn log_recover(g: &Given, copy: bool) -> Planned {
    let record = |data: &[u8]| [&(data.len() as u32).to_le_bytes()[..], &crc32c(data).to_le_bytes(), data].concat();
    let good = [record(b"one"), record(&padded(&g.data, 0, g.data.len().max(1)))];
    let mut third = record(b"damaged");
    third[9] ^= 1;
    let end = good.concat().len() as u64;
    let starts = [0, good[0].len() as u64].map(u64::to_le_bytes).concat();
    let body = move |h: &[Handle]| {
        let copy = copy.then(|| (h[1], At::End));
        Ok(LogRecover { h: h[0], offset: 0, len: 2 << 20, record: LOG, offsets: 4, copy }.body()?)
    };
    let log = [&good.concat()[..], &third].concat();
    let done = program(Vec::new(), body).before([whole(&g.a, How::Trunc, &log)]);
    let done = done.opens([(&g.a, OpenFlags::READ), (&g.b, OpenFlags::WRITE)]);
    let effects = copy.then(|| append(&g.b, &good.concat()));
    done.effects(effects).gives(2, end).shows(&starts, 32)
}

fn multi_write(g: &Given) -> Planned {
    let (off, len) = (g.off, g.len());
    let body = move |h: &[Handle]| {
        let mut b = Builder::new();
        let (first, second) = (b.take(h[0], Access::WRITE), b.take(h[1], Access::WRITE));
        let (one, two) = (Bytes::Pool(b.pool(len)), Bytes::Pool(b.pool(4)));
        b.write(first, Place::At(Value::Imm(off)), one);
        let at = b.write(second, Place::End, two);
        b.push(Micro::Write { file: first, place: Place::After, from: two, fold: None, at: None });
        b.results(Some(at), None);
        Ok(b.finish()?)
    };
    let done = program(vec![g.data.clone(), b"both".to_vec()], body);
    let done = done.opens([(&g.a, OpenFlags::WRITE), (&g.b, OpenFlags::WRITE)]);
    let effects = [write(&g.a, off, &g.data), append(&g.b, b"both"), write(&g.a, off + u64::from(len), b"both")];
    done.effects(effects).gives(g.size(&g.b), 0)
}

fn batch(g: &Given) -> Planned {
    let make = |path: &str, data: &[u8]| Single {
        ranges: vec![Range::In(path.into()), Range::In(data.to_vec())],
        op: Box::new(|_, r| Op::OpenWriteClose {
            base: Handle::ROOT,
            path: r[0],
            flags: OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL,
            mode: MODE.into(),
            at: At::Offset(0),
            src: r[1],
        }),
    };
    let appended = Single {
        ranges: vec![Range::In(g.data.clone())],
        op: Box::new(|h, r| Op::Write { h: h[0], at: At::End, src: r[0] }),
    };
    let items = vec![make(&g.c, b"new"), make(&g.c, b"again"), appended];
    let done = planned(Form::Batch(items)).opens([(&g.a, OpenFlags::WRITE)]);
    let shown = [(0, 3), (Errno::EXIST.0, 0), (0, g.data.len() as u64)];
    let lines: String = shown.iter().map(|(status, n)| format!("{status} {n};")).collect();
    done.effects([whole(&g.c, How::New, b"new"), append(&g.a, &g.data)])
        .gives(3, 1)
        .shows(lines.as_bytes(), lines.len())
}

/// What each element of a batch said, without its room.
fn sequences(bytes: &[u8]) -> Vec<u8> {
    let each = |cqe: &[u8]| {
        let word = |at: u64| u64::from_le_bytes(padded(cqe, at, 8).try_into().unwrap_or_default());
        format!("{} {};", word(8) as i32, word(16))
    };
    bytes.chunks_exact(32).map(each).collect::<String>().into_bytes()
}

fn stat_many(g: &Given) -> Planned {
    let stat = |path: &str| Single {
        ranges: vec![Range::In(path.into()), Range::Out(size_of::<StatBody>() as u32)],
        op: Box::new(|_, r| Op::StatPath { base: Handle::ROOT, path: r[0], nofollow: true, out: r[1] }),
    };
    let lines = format!("{};{};0;", g.size(&g.a), g.size(&g.b));
    let done = planned(Form::Batch([&g.a, &g.b, &g.c].map(|path| stat(path)).into()));
    done.gives(3, 1).shows(lines.as_bytes(), lines.len())
}

/// Sizes out of the answers of several stats, whose completions come first.
fn stats(bytes: &[u8]) -> Vec<u8> {
    let bodies = bytes.get(3 * 32..).unwrap_or_default().chunks_exact(size_of::<StatBody>());
    let size = |body: &[u8]| StatBody::read_from_bytes(body).map_or(0, |s| s.size);
    bodies.map(|body| format!("{};", size(body))).collect::<String>().into_bytes()
}

fn read_dir_plus(g: &Given) -> Planned {
    let dir = g.a.rsplit_once('/').map_or("", |(dir, _)| dir);
    let op = |h: &[Handle], r: &[PoolRange]| Op::ReadDirPlus { h: h[0], cookie: 0, out: r[0], watch: 0 };
    let below = |path: &String| match path.strip_prefix(dir)?.trim_start_matches('/') {
        name if name.is_empty() || name.contains('/') => None,
        name => Some(name.to_owned()),
    };
    let lines: String = g.world.keys().filter_map(|path| Some(format!("{} {};", below(path)?, g.size(path)))).collect();
    let open = if dir.is_empty() { "/".to_owned() } else { dir.to_owned() };
    let done = one(vec![Range::Out(8192)], op).opens([(&open, OpenFlags::READ | OpenFlags::DIRECTORY)]);
    done.shows(lines.as_bytes(), lines.len())
}

/// Names in order, with the sizes of files.
fn entries(bytes: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for DirentPlus { entry, stat } in DirentsPlus(bytes) {
        let size = stat.map_or(0, |s| if s.mode & 0o170_000 == 0o100_000 { s.size } else { 0 });
        if entry.name != b"." && entry.name != b".." {
            lines.push(format!("{} {size};", String::from_utf8_lossy(entry.name)));
        }
    }
    lines.sort();
    lines.concat().into_bytes()
}

fn transaction(g: &Given, commit: bool) -> Planned {
    let writes = vec![
        (0, At::Offset(g.off), g.data.clone()),
        (1, At::End, g.data.clone()),
        (0, At::Offset(g.off + 1), b"edit".to_vec()),
    ];
    let effects = [write(&g.a, g.off, &g.data), append(&g.b, &g.data), write(&g.a, g.off + 1, b"edit")];
    let done = planned(Form::Transaction(writes, commit)).opens([(&g.a, RW), (&g.b, RW)]);
    if commit { done.effects(effects).gives(2 * u64::from(g.len()) + 4, 0) } else { done }
}
