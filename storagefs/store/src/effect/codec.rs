//! Effects as bytes: a version byte, then per effect a tag and its fields (variable-length integers). Total decoder:
//! whatever it accepts obeys every bound that `apply` relies on.

use super::*;
use crate::codec::{DecodeError, Reader, Writer};
use crate::limits::{BLOCK, COUNTER_MAX, WINDOW_BLOCKS};

/// First byte of every record's effects.
const VERSION: u8 = 1;

const PUT_INODE: u8 = 1;
const SET_ATTR: u8 = 2;
const DROP_INODE: u8 = 3;
const PUT_DIRENT: u8 = 4;
const DEL_DIRENT: u8 = 5;
const PUT_XATTR: u8 = 6;
const DEL_XATTR: u8 = 7;
const MAP: u8 = 8;
const PATCH: u8 = 9;
const ZERO: u8 = 10;
const UNMAP: u8 = 11;
const CUT: u8 = 12;
const ORPHAN: u8 = 13;
const ADOPT: u8 = 14;
const RECLAIM_STEP: u8 = 15;
const RECLAIM_DONE: u8 = 16;
const INPUT: u8 = 17;
const OUTCOME: u8 = 18;

/// Encodes the effects of one record.
pub fn encode(effects: &[Effect]) -> Vec<u8> {
    encode_over(Vec::new(), effects)
}

/// The same in a list that is there already, and empty.
pub(crate) fn encode_over(mut list: Vec<u8>, effects: &[Effect]) -> Vec<u8> {
    list.reserve(encoded_len_max(effects));
    let mut w = Writer::over(list);
    encode_into(effects, &mut w);
    w.into_vec()
}

/// Appends the encoded effects of one record to `w`.
pub(crate) fn encode_into(effects: &[Effect], w: &mut Writer) {
    w.u8(VERSION);
    for e in effects {
        encode_one(e, w);
    }
}

/// An upper bound of the encoded length of `effects`, bytes; cheap, for reserving log space.
pub fn encoded_len_max(effects: &[Effect]) -> usize {
    1 + effects.iter().map(one_len_max).sum::<usize>()
}

fn one_len_max(e: &Effect) -> usize {
    match e {
        Effect::PutInode(r) => 200 + r.target.as_ref().map_or(0, |t| t.len()),
        Effect::SetAttr(_) => 110,
        Effect::PutDirent { name, .. } => 40 + name.len(),
        Effect::PutXattr { name, value, .. } => 40 + name.len() + value.len(),
        Effect::Map { crcs, .. } => 40 + 4 * crcs.len(),
        Effect::Patch { bytes, .. } => 30 + bytes.len(),
        Effect::Outcome(_) => 2 + OutcomeRec::BYTES_MAX,
        _ => 44,
    }
}

fn encode_one(e: &Effect, w: &mut Writer) {
    match e {
        Effect::PutInode(r) => {
            w.u8(PUT_INODE);
            w.var(r.ino.0);
            r.encode_fields(w);
        }
        Effect::SetAttr(d) => encode_attr(d, w),
        Effect::DropInode(ino) => fields(w, DROP_INODE, &[ino.0]),
        Effect::PutDirent { dir, cookie, ino, ftype, mark, name } => {
            fields(w, PUT_DIRENT, &[dir.0, *cookie, ino.0, (*mark).into()]);
            w.u8(*ftype);
            w.bytes(name);
        }
        Effect::DelDirent { dir, cookie } => fields(w, DEL_DIRENT, &[dir.0, *cookie]),
        Effect::PutXattr { ino, slot, name, value } => {
            fields(w, PUT_XATTR, &[ino.0, *slot]);
            w.bytes(name);
            w.bytes(value);
        }
        Effect::DelXattr { ino, slot } => fields(w, DEL_XATTR, &[ino.0, *slot]),
        Effect::Map { ino, blk, addr, count, state, crcs } => {
            fields(w, MAP, &[ino.0, *blk, addr.0, (*count).into()]);
            w.u8(*state as u8);
            for c in crcs {
                w.u32(*c);
            }
        }
        Effect::Patch { ino, off, bytes } => {
            fields(w, PATCH, &[ino.0, *off]);
            w.bytes(bytes);
        }
        Effect::Zero { ino, off, len } => fields(w, ZERO, &[ino.0, *off, (*len).into()]),
        Effect::Unmap { ino, blk, count } => fields(w, UNMAP, &[ino.0, *blk, (*count).into()]),
        Effect::Cut { ino, blk, end } => fields(w, CUT, &[ino.0, *blk, *end]),
        Effect::Orphan { ino } => fields(w, ORPHAN, &[ino.0]),
        Effect::Adopt { ino } => fields(w, ADOPT, &[ino.0]),
        Effect::ReclaimStep { ino, cut, blk, count } => {
            fields(w, RECLAIM_STEP, &[ino.0, *cut, *blk, (*count).into()]);
        }
        Effect::ReclaimDone { ino, cut } => fields(w, RECLAIM_DONE, &[ino.0, *cut]),
        Effect::Input { ino, input } => fields(w, INPUT, &[ino.0, (*input).into()]),
        Effect::Outcome(rec) => {
            fields(w, OUTCOME, &[InodeNo::ROOT.0]);
            rec.encode(w);
        }
    }
}

fn fields(w: &mut Writer, tag: u8, values: &[u64]) {
    w.u8(tag);
    for v in values {
        w.var(*v);
    }
}

fn encode_attr(d: &AttrDelta, w: &mut Writer) {
    fields(w, SET_ATTR, &[d.ino.0, d.mask.into()]);
    let has = |bit: u16| d.mask & bit != 0;
    if has(attr::SIZE) {
        w.var(d.size);
    }
    if d.mask & !(attr::SIZE | attr::ATIME | attr::MTIME | attr::CTIME) != 0 {
        encode_rights(d, w);
    }
    for (bit, t) in [(attr::ATIME, d.atime), (attr::MTIME, d.mtime), (attr::CTIME, d.ctime)] {
        if has(bit) {
            w.time(t);
        }
    }
}

/// The attributes that a change of content leaves alone.
fn encode_rights(d: &AttrDelta, w: &mut Writer) {
    let has = |bit: u16| d.mask & bit != 0;
    for (bit, v) in
        [(attr::MODE, d.mode), (attr::UID, d.uid), (attr::GID, d.gid), (attr::NLINK, d.nlink), (attr::FLAGS, d.flags)]
    {
        if has(bit) {
            w.var(v.into());
        }
    }
    if has(attr::PARENT) {
        w.var(d.parent.0);
    }
}

/// Decodes the effects of one record.
///
/// # Errors
/// Anything that [`encode`] does not produce, or that breaks a bound (`limits.rs`).
pub fn decode(bytes: &[u8]) -> Result<Effects, DecodeError> {
    let effects = decode_commit(bytes)?;
    if effects.iter().any(|e| matches!(e, Effect::Input { .. })) {
        return Err(DecodeError("effect: an input outside a transaction"));
    }
    Ok(effects)
}

/// Decodes the effects of a transaction's commit, which may stand for inputs.
///
/// # Errors
/// As [`decode`].
pub fn decode_commit(bytes: &[u8]) -> Result<Effects, DecodeError> {
    let mut r = Reader::new(bytes);
    if r.u8()? != VERSION {
        return Err(DecodeError("effects of an unknown version"));
    }
    let mut out = Effects::new();
    while !r.is_empty() {
        if out.len() == EFFECTS_MAX {
            return Err(DecodeError("effects: too many"));
        }
        out.push(decode_one(&mut r)?);
    }
    Ok(out)
}

fn ino(r: &mut Reader<'_>) -> Result<InodeNo, DecodeError> {
    match r.var()? {
        0 => Err(DecodeError("inode number 0")),
        n if n >= COUNTER_MAX => Err(DecodeError("inode number that no counter reaches")),
        n => Ok(InodeNo(n)),
    }
}

fn decode_one(r: &mut Reader<'_>) -> Result<Effect, DecodeError> {
    let tag = r.u8()?;
    let ino = ino(r)?;
    Ok(match tag {
        PUT_INODE => Effect::PutInode(Box::new(InodeRec::decode_fields(ino, r)?)),
        SET_ATTR => Effect::SetAttr(decode_attr(ino, r)?),
        DROP_INODE => Effect::DropInode(ino),
        PUT_DIRENT => {
            let (cookie, target, mark) = (cookie(r)?, self::ino(r)?, r.var()?);
            let mark = u16::try_from(mark).map_err(|_| DecodeError("dirent: mark"))?;
            Effect::PutDirent { dir: ino, cookie, ino: target, mark, ftype: r.u8()?, name: Arc::from(r.name()?) }
        }
        DEL_DIRENT => Effect::DelDirent { dir: ino, cookie: cookie(r)? },
        PUT_XATTR => Effect::PutXattr {
            ino,
            slot: cookie(r)?,
            name: Arc::from(r.name()?),
            value: Arc::from(r.bytes(XATTR_VALUE_MAX)?),
        },
        DEL_XATTR => Effect::DelXattr { ino, slot: cookie(r)? },
        MAP => decode_map(ino, r)?,
        PATCH => {
            let (off, bytes) = (r.var()?, r.bytes(BLOCK)?);
            in_block(off, bytes.len() as u64)?;
            Effect::Patch { ino, off, bytes: SmallVec::from_slice(bytes) }
        }
        ZERO => {
            let (off, len) = (r.var()?, r.var32()?);
            in_block(off, len.into())?;
            Effect::Zero { ino, off, len }
        }
        UNMAP => {
            let (blk, count) = windows(r)?;
            Effect::Unmap { ino, blk, count }
        }
        CUT => {
            let (blk, end) = (r.var()?, r.var()?);
            if blk >= end || end > FILE_BLOCKS_MAX {
                return Err(DecodeError("cut: range"));
            }
            Effect::Cut { ino, blk, end }
        }
        ORPHAN => Effect::Orphan { ino },
        ADOPT => Effect::Adopt { ino },
        RECLAIM_STEP => {
            let cut = r.var()?;
            let (blk, count) = windows(r)?;
            Effect::ReclaimStep { ino, cut, blk, count }
        }
        RECLAIM_DONE => Effect::ReclaimDone { ino, cut: r.var()? },
        INPUT => {
            let input = u16::try_from(r.var()?).map_err(|_| DecodeError("effect: input"))?;
            Effect::Input { ino, input }
        }
        OUTCOME if ino == InodeNo::ROOT => Effect::Outcome(Box::new(OutcomeRec::decode(r)?)),
        OUTCOME => return Err(DecodeError("outcome: inode")),
        _ => return Err(DecodeError("effect: unknown tag")),
    })
}

fn cookie(r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    match r.var()? {
        c if (3..1 << 63).contains(&c) => Ok(c),
        _ => Err(DecodeError("cookie")),
    }
}

/// A non-empty byte range inside one block of a file.
fn in_block(off: u64, len: u64) -> Result<(), DecodeError> {
    let block = BLOCK as u64;
    if len == 0 || len > block - off % block || off / block >= FILE_BLOCKS_MAX {
        return Err(DecodeError("byte range"));
    }
    Ok(())
}

/// A non-empty block range of at most `UNMAP_WINDOWS_MAX` windows.
fn windows(r: &mut Reader<'_>) -> Result<(u64, u32), DecodeError> {
    let (blk, count) = (r.var()?, r.var32()?);
    block_range(blk, count, MAP_BLOCKS_MAX)?;
    if (blk + u64::from(count) - 1) / WINDOW_BLOCKS - blk / WINDOW_BLOCKS >= UNMAP_WINDOWS_MAX {
        return Err(DecodeError("block range: too many windows"));
    }
    Ok((blk, count))
}

fn block_range(blk: u64, count: u32, max: u32) -> Result<(), DecodeError> {
    if count == 0 || count > max || blk >= FILE_BLOCKS_MAX || FILE_BLOCKS_MAX - blk < count.into() {
        return Err(DecodeError("block range"));
    }
    Ok(())
}

fn decode_map(ino: InodeNo, r: &mut Reader<'_>) -> Result<Effect, DecodeError> {
    let (blk, addr, count) = (r.var()?, r.var()?, r.var32()?);
    block_range(blk, count, MAP_BLOCKS_MAX)?;
    if addr == 0 || addr >= 1 << 48 || (1 << 48) - addr < count.into() {
        return Err(DecodeError("map: address"));
    }
    let mut crcs = SmallVec::new();
    let state = match r.u8()? {
        1 => {
            let raw = r.take(count as usize * 4)?;
            crcs.extend(raw.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])));
            BlockState::Written
        }
        2 => BlockState::Unwritten,
        _ => return Err(DecodeError("map: state")),
    };
    Ok(Effect::Map { ino, blk, addr: BlockNo(addr), count, state, crcs })
}

fn decode_attr(ino: InodeNo, r: &mut Reader<'_>) -> Result<AttrDelta, DecodeError> {
    let mask = u16::try_from(r.var()?).ok().filter(|m| m & !attr::ALL == 0).ok_or(DecodeError("attributes: mask"))?;
    let mut d = AttrDelta { mask, ..AttrDelta::new(ino) };
    let has = |bit: u16| mask & bit != 0;
    if has(attr::SIZE) {
        d.size = r.var()?;
    }
    for (bit, v) in [
        (attr::MODE, &mut d.mode),
        (attr::UID, &mut d.uid),
        (attr::GID, &mut d.gid),
        (attr::NLINK, &mut d.nlink),
        (attr::FLAGS, &mut d.flags),
    ] {
        if has(bit) {
            *v = r.var32()?;
        }
    }
    if has(attr::PARENT) {
        d.parent = InodeNo(r.var()?);
    }
    for (bit, t) in [(attr::ATIME, &mut d.atime), (attr::MTIME, &mut d.mtime), (attr::CTIME, &mut d.ctime)] {
        if has(bit) {
            *t = r.time()?;
        }
    }
    InodeRec::bounded(d.size, 0, d.nlink)?;
    Ok(d)
}
