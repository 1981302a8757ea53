//! Payloads of begin, micro-op and end records, as the section "Transactions" says.

use crate::effects::{self, Effect, Time};
use crate::fields::{Bad, Fields, Name};
use serde::Serialize;

/// Groups of one user at most.
const GROUPS_MAX: u64 = 64;
/// Inputs of one command at most.
const INPUTS_MAX: u64 = 16;

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Who asked, for detectable execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// Client id, 32 hexadecimal digits.
    pub client: String,
    /// Queue.
    pub queue: u16,
}

/// A command as it came, 64 bytes; the words as docs/COMMANDS.md names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Sqe {
    pub opcode: u16,
    pub flags: u16,
    pub aux: u32,
    pub sequence: u64,
    pub handle: u64,
    pub offset: u64,
    pub length: u32,
    pub pool_off: u32,
    pub pool_off2: u32,
    pub length2: u32,
    pub imm: String,
}

impl Sqe {
    fn read(f: &mut Fields<'_>) -> Result<Sqe, Bad> {
        Ok(Sqe {
            opcode: f.u16()?,
            flags: f.u16()?,
            aux: f.u32()?,
            sequence: f.u64()?,
            handle: f.u64()?,
            offset: f.u64()?,
            length: f.u32()?,
            pool_off: f.u32()?,
            pool_off2: f.u32()?,
            length2: f.u32()?,
            imm: hex(f.take(16)?),
        })
    }
}

/// Bytes that the client supplied for one micro-op, as the effects that hold them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Input {
    /// The micro-op.
    pub micro: u16,
    /// Where in the file.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Where they are.
    pub effects: Vec<Effect>,
}

/// What a begin record holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Begin {
    /// The command.
    pub command: Sqe,
    /// The time it uses.
    pub now: Time,
    /// Whose it is.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Directory of the final name, 0 for none.
    pub directory: u64,
    /// The final name.
    pub name: Name,
    /// The file.
    pub file: u64,
    /// Its generation.
    pub generation: u32,
    /// Open flags of the handle.
    pub open_flags: u32,
    /// For detectable execution.
    pub detect: Option<Identity>,
    /// What the client supplied; of a planned transaction its groups.
    pub inputs: Vec<Input>,
    /// Of a planned transaction: its micro-ops, and what its end record will say.
    pub planned: Option<(u16, End)>,
}

/// What flows from micro-op to micro-op.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Registers {
    pub file: u64,
    pub created: bool,
    pub read: Option<u64>,
    /// Offset and length of the first write, if there was one.
    pub first: Option<(u64, u64)>,
    /// Of the last.
    pub last: Option<(u64, u64)>,
    pub checksum: u32,
    pub checksum_bytes: u64,
}

/// What a micro-op's record holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Commit {
    /// State behind the micro-op.
    pub registers: Registers,
    /// Its effects.
    pub effects: Vec<Effect>,
}

/// What an end record holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct End {
    /// "done", "failed" or "cut".
    pub verdict: &'static str,
    /// Micro-ops done.
    pub micro_done: u16,
    /// The one that failed.
    pub micro_failed: u16,
    /// Why, or 0.
    pub errno: u32,
    /// First result.
    pub result: u64,
    /// Second result.
    pub result2: u64,
}

type Read<T> = fn(&mut Fields<'_>) -> Result<T, Bad>;

fn list<T>(f: &mut Fields<'_>, max: u64, read: Read<T>) -> Result<Vec<T>, Bad> {
    let n = f.var()?;
    if n > max {
        return Err(Bad("length of a list"));
    }
    (0..n).map(|_| read(f)).collect()
}

impl Input {
    fn read(f: &mut Fields<'_>) -> Result<Input, Bad> {
        let (micro, offset, bytes) = (f.var16()?, f.var()?, f.var()?);
        let encoded = f.bytes(usize::MAX)?;
        let effects = effects::list(&mut Fields(encoded))?;
        Ok(Input { micro, offset, bytes, effects })
    }

    fn read_group(f: &mut Fields<'_>) -> Result<Input, Bad> {
        let (micro, encoded) = (f.var16()?, f.bytes(usize::MAX)?);
        let effects = effects::list(&mut Fields(encoded))?;
        Ok(Input { micro, offset: 0, bytes: 0, effects })
    }
}

impl Identity {
    fn read(f: &mut Fields<'_>) -> Result<Option<Identity>, Bad> {
        match f.u8()? {
            0 => Ok(None),
            1 => Ok(Some(Identity { client: hex(&f.id()?), queue: f.u16()? })),
            _ => Err(Bad("mark of detectable execution")),
        }
    }
}

impl Begin {
    pub(crate) fn read(f: &mut Fields<'_>) -> Result<Begin, Bad> {
        let begin = match f.u8()? {
            1 => Begin::resolved(f)?,
            2 => Begin::planned(f)?,
            _ => return Err(Bad("version")),
        };
        f.end()?;
        Ok(begin)
    }

    /// Version 1: the command and what it was resolved to.
    fn resolved(f: &mut Fields<'_>) -> Result<Begin, Bad> {
        Ok(Begin {
            command: Sqe::read(f)?,
            now: f.time()?.into(),
            uid: f.var32()?,
            gid: f.var32()?,
            groups: list(f, GROUPS_MAX, |f| f.var32())?,
            directory: f.var()?,
            name: Name(f.bytes(255)?.to_vec()),
            file: f.var()?,
            generation: f.var32()?,
            open_flags: f.var32()?,
            detect: Identity::read(f)?,
            inputs: list(f, INPUTS_MAX, Input::read)?,
            planned: None,
        })
    }

    /// Version 2: all that will change.
    fn planned(f: &mut Fields<'_>) -> Result<Begin, Bad> {
        let (command, now) = (Sqe::read(f)?, f.time()?.into());
        let (uid, gid) = (f.var32()?, f.var32()?);
        let (detect, steps) = (Identity::read(f)?, f.var16()?);
        let end = End::read(&mut Fields(f.bytes(usize::MAX)?))?;
        let inputs = list(f, INPUTS_MAX, Input::read_group)?;
        let (groups, name) = (Vec::new(), Name(Vec::new()));
        let (directory, file, generation, open_flags, planned) = (0, 0, 0, 0, Some((steps, end)));
        Ok(Begin {
            command,
            now,
            uid,
            gid,
            groups,
            directory,
            name,
            file,
            generation,
            open_flags,
            detect,
            inputs,
            planned,
        })
    }
}

impl Commit {
    pub(crate) fn read(f: &mut Fields<'_>) -> Result<Commit, Bad> {
        f.version()?;
        let (file, bits, read) = (f.var()?, f.u8()?, f.var()?);
        if bits > 3 {
            return Err(Bad("bits of the registers"));
        }
        let writes = [(f.var()?, f.var()?), (f.var()?, f.var()?)];
        let wrote = bits & 2 != 0;
        if !wrote && writes != [(0, 0); 2] {
            return Err(Bad("writes in the registers"));
        }
        let [first, last] = writes.map(|w| wrote.then_some(w));
        let (checksum, checksum_bytes) = (f.u32()?, f.var()?);
        let (created, read) = (bits & 1 != 0, read.checked_sub(1));
        let registers = Registers { file, created, read, first, last, checksum, checksum_bytes };
        Ok(Commit { registers, effects: effects::list(f)? })
    }
}

impl End {
    pub(crate) fn read(f: &mut Fields<'_>) -> Result<End, Bad> {
        f.version()?;
        let verdict = match f.u8()? {
            1 => "done",
            2 => "failed",
            3 => "cut",
            _ => return Err(Bad("verdict")),
        };
        let end = End {
            verdict,
            micro_done: f.var16()?,
            micro_failed: f.var16()?,
            errno: f.var32()?,
            result: f.var()?,
            result2: f.var()?,
        };
        f.end()?;
        Ok(end)
    }
}
