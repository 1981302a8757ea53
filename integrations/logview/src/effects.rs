//! Effects, as the section "Effects: the payload of an operation's record" lists them by tag.

use crate::fields::{Bad, Data, Fields, Name};
use crate::transaction::Identity;
use serde::Serialize;

/// Effects in one record at most.
const EFFECTS_MAX: usize = 8192;
/// First block number that no file has.
const BLOCKS_END: u64 = 1 << 51;
/// Blocks in a window.
const WINDOW: u64 = 256;

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanoseconds: u32,
}

/// The fields of an inode record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // one line in docs/MEDIA-FORMAT.md
pub struct Inode {
    pub generation: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub project: u32,
    pub tenant: u32,
    pub flags: u32,
    pub size: u64,
    pub blocks: u64,
    pub rdev: u64,
    pub parent: u64,
    pub birth: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub btime: Time,
    pub target: Name,
}

/// The attributes that an effect sets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // as in docs/MEDIA-FORMAT.md
pub struct Attributes {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atime: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ctime: Option<Time>,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Entry {
    pub cookie: u64,
    pub names: u64,
    pub mark: u16,
    pub file_type: u8,
    pub name: Name,
}

/// Blocks of a file and their place on the medium.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Block {
    /// First block in the file.
    pub block: u64,
    /// First block on the medium.
    pub address: u64,
    /// How many.
    pub blocks: u32,
    /// Whether they hold data (else zeros).
    pub written: bool,
    /// CRC32C of each, if written.
    pub crc32c: Vec<u32>,
}

/// One effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
#[allow(missing_docs)] // the table of tags in docs/MEDIA-FORMAT.md
pub enum Effect {
    InodeMade { inode: u64, fields: Box<Inode> },
    AttributesSet { inode: u64, set: Box<Attributes> },
    InodeGone { inode: u64 },
    EntrySet { inode: u64, entry: Entry },
    EntryGone { inode: u64, cookie: u64 },
    XattrSet { inode: u64, slot: u64, name: Name, value: Data },
    XattrGone { inode: u64, slot: u64 },
    Mapped { inode: u64, run: Block },
    Bytes { inode: u64, offset: u64, bytes: Data },
    Zeros { inode: u64, offset: u64, length: u32 },
    Hole { inode: u64, block: u64, blocks: u32 },
    Cut { inode: u64, block: u64, end: u64 },
    LastNameGone { inode: u64 },
    NameAgain { inode: u64 },
    ReclaimStep { inode: u64, stamp: u64, block: u64, blocks: u32 },
    ReclaimDone { inode: u64, stamp: u64 },
    Adopted { inode: u64, input: u16 },
    Outcome { inode: u64, outcome: Box<Outcome> },
}

/// What became of a detectable command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Outcome {
    #[serde(flatten)]
    pub identity: Identity,
    pub sequence: u64,
    pub uid: u32,
    pub status: u32,
    pub micro_done: u16,
    pub micro_failed: u16,
    pub result: u64,
    pub result2: u64,
}

impl Outcome {
    fn read(f: &mut Fields<'_>) -> Result<Outcome, Bad> {
        Ok(Outcome {
            identity: Identity { client: crate::transaction::hex(&f.id()?), queue: f.var16()? },
            sequence: f.var()?,
            uid: f.var32()?,
            status: f.var32()?,
            micro_done: f.var16()?,
            micro_failed: f.var16()?,
            result: f.var()?,
            result2: f.var()?,
        })
    }
}

/// Reads a version byte and effects to the end.
pub(crate) fn list(f: &mut Fields<'_>) -> Result<Vec<Effect>, Bad> {
    f.version()?;
    let mut out = Vec::new();
    while !f.is_empty() {
        if out.len() == EFFECTS_MAX {
            return Err(Bad("number of effects"));
        }
        out.push(one(f)?);
    }
    Ok(out)
}

fn inode_number(f: &mut Fields<'_>) -> Result<u64, Bad> {
    match f.var()? {
        0 => Err(Bad("inode number")),
        n => Ok(n),
    }
}

/// 63 bits; 0 to 2 are never given away.
fn cookie(f: &mut Fields<'_>) -> Result<u64, Bad> {
    let cookie = f.var()?;
    if (3..1 << 63).contains(&cookie) { Ok(cookie) } else { Err(Bad("cookie")) }
}

fn in_one_block(offset: u64, length: u64) -> Result<(), Bad> {
    let fits = length > 0 && offset % 4096 + length <= 4096 && offset / 4096 < BLOCKS_END;
    if fits { Ok(()) } else { Err(Bad("range of bytes")) }
}

fn blocks(block: u64, count: u32) -> Result<(), Bad> {
    let fits = (1..=32768).contains(&count) && block < BLOCKS_END && u64::from(count) <= BLOCKS_END - block;
    if fits { Ok(()) } else { Err(Bad("range of blocks")) }
}

/// Blocks in at most 16 windows.
fn windows(f: &mut Fields<'_>) -> Result<(u64, u32), Bad> {
    let (block, count) = (f.var()?, f.var32()?);
    blocks(block, count)?;
    let last = block + u64::from(count) - 1;
    if last / WINDOW - block / WINDOW >= 16 { Err(Bad("range of blocks")) } else { Ok((block, count)) }
}

fn one(f: &mut Fields<'_>) -> Result<Effect, Bad> {
    let tag = f.u8()?;
    let inode = inode_number(f)?;
    Ok(match tag {
        1 => Effect::InodeMade { inode, fields: Box::new(Inode::read(f)?) },
        2 => Effect::AttributesSet { inode, set: Box::new(Attributes::read(f)?) },
        3 => Effect::InodeGone { inode },
        4 => Effect::EntrySet {
            inode,
            entry: Entry {
                cookie: cookie(f)?,
                names: inode_number(f)?,
                mark: f.var16()?,
                file_type: f.u8()?,
                name: f.name()?,
            },
        },
        5 => Effect::EntryGone { inode, cookie: cookie(f)? },
        6 => {
            let (slot, name) = (cookie(f)?, f.name()?);
            Effect::XattrSet { inode, slot, name, value: Data(f.bytes(4096)?.to_vec()) }
        }
        7 => Effect::XattrGone { inode, slot: cookie(f)? },
        8 => Effect::Mapped { inode, run: Block::read(f)? },
        9 => {
            let (offset, bytes) = (f.var()?, f.bytes(4096)?);
            in_one_block(offset, bytes.len() as u64)?;
            Effect::Bytes { inode, offset, bytes: Data(bytes.to_vec()) }
        }
        10 => {
            let (offset, length) = (f.var()?, f.var32()?);
            in_one_block(offset, length.into())?;
            Effect::Zeros { inode, offset, length }
        }
        11 => {
            let (block, blocks) = windows(f)?;
            Effect::Hole { inode, block, blocks }
        }
        12 => match (f.var()?, f.var()?) {
            (block, end) if block < end && end <= BLOCKS_END => Effect::Cut { inode, block, end },
            _ => return Err(Bad("range of blocks")),
        },
        13 => Effect::LastNameGone { inode },
        14 => Effect::NameAgain { inode },
        15 => {
            let stamp = f.var()?;
            let (block, blocks) = windows(f)?;
            Effect::ReclaimStep { inode, stamp, block, blocks }
        }
        16 => Effect::ReclaimDone { inode, stamp: f.var()? },
        17 => Effect::Adopted { inode, input: f.var16()? },
        18 if inode == 1 => Effect::Outcome { inode, outcome: Box::new(Outcome::read(f)?) },
        _ => return Err(Bad("tag of an effect")),
    })
}

fn time(f: &mut Fields<'_>) -> Result<Time, Bad> {
    f.time().map(Time::from)
}

impl From<(i64, u32)> for Time {
    fn from((seconds, nanoseconds): (i64, u32)) -> Time {
        Time { seconds, nanoseconds }
    }
}

impl Inode {
    fn read(f: &mut Fields<'_>) -> Result<Inode, Bad> {
        let inode = Inode {
            generation: f.var32()?,
            mode: f.var32()?,
            uid: f.var32()?,
            gid: f.var32()?,
            links: f.var32()?,
            project: f.var32()?,
            tenant: f.var32()?,
            flags: f.var32()?,
            size: f.var()?,
            blocks: f.var()?,
            rdev: f.var()?,
            parent: f.var()?,
            birth: f.var()?,
            atime: time(f)?,
            mtime: time(f)?,
            ctime: time(f)?,
            btime: time(f)?,
            target: Name(f.bytes(4095)?.to_vec()),
        };
        if f.var()? == 0 { Ok(inode) } else { Err(Bad("reserved field of an inode")) }
    }
}

impl Attributes {
    fn read(f: &mut Fields<'_>) -> Result<Attributes, Bad> {
        let mask = f.var()?;
        if mask >= 1 << 10 {
            return Err(Bad("mask of attributes"));
        }
        let has = |bit: u32| mask >> bit & 1 == 1;
        let mut set = Attributes { size: has(0).then(|| f.var()).transpose()?, ..Attributes::default() };
        set.mode = has(1).then(|| f.var32()).transpose()?;
        set.uid = has(2).then(|| f.var32()).transpose()?;
        set.gid = has(3).then(|| f.var32()).transpose()?;
        set.links = has(4).then(|| f.var32()).transpose()?;
        set.flags = has(8).then(|| f.var32()).transpose()?;
        set.parent = has(9).then(|| f.var()).transpose()?;
        set.atime = has(5).then(|| time(f)).transpose()?;
        set.mtime = has(6).then(|| time(f)).transpose()?;
        set.ctime = has(7).then(|| time(f)).transpose()?;
        Ok(set)
    }
}

impl Block {
    fn read(f: &mut Fields<'_>) -> Result<Block, Bad> {
        let (block, address, count) = (f.var()?, f.var()?, f.var32()?);
        blocks(block, count)?;
        // 48 bits of block; the device in the upper 16 is 0 today.
        if address == 0 || address >= 1 << 48 || u64::from(count) > (1 << 48) - address {
            return Err(Bad("block address"));
        }
        let written = match f.u8()? {
            1 => true,
            2 => false,
            _ => return Err(Bad("state of blocks")),
        };
        let stored = if written { count } else { 0 };
        let sums = f.take(stored as usize * 4)?;
        let crc32c = sums.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
        Ok(Block { block, address, blocks: count, written, crc32c })
    }
}
