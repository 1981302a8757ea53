//! Programs: any sequence of up to 16 steps as one command, built step by step or read from text.

use crate::boundary::{
    Fault, How, array, array_mut, bytes, call, copy_text, count, given, hand_out, misuse, room, text,
};
use crate::client::weldfs_client;
use crate::fused::payload;
use crate::moves::reference;
use crate::transforms::weldfs_key;
use crate::types::*;
use libc::{c_char, c_int, c_void};
use weldfs::catalogue::Operand;
use weldfs::{Cqe, Errno};
use weldfs_ciscops::limits::*;
use weldfs_ciscops::program::{Body, BufSlot, Builder, FileSlot, Micro, Pool, Reg, Value, text};

/// In place of a register, a range or a mode: none.
pub const WELDFS_NONE: c_int = -1;

/// A fused program: up to 16 steps that the device runs as one command, with 8 files, 8 private buffers, 8 registers of
/// 64 bits, and 16 ranges of the caller's memory. Steps go forward only, so it ends. One thread uses it at a time; it
/// may run any number of times.
pub struct weldfs_program {
    /// What it is made of; none for one that was read from text.
    builder: Builder,
    /// The finished body, until another step is added.
    body: Option<Body>,
    /// Slots given out: files, buffers, registers.
    files: usize,
    buffers: usize,
    registers: usize,
    ranges: usize,
    /// Registers that count the bytes put in a range.
    counts: Vec<(Pool, Reg)>,
    /// Names of a text's ranges and registers.
    names: Vec<(Vec<u8>, c_int)>,
    sealed: bool,
    /// The session of the files and keys that it names; 0: it names none.
    session: u64,
}

/// A number in a step. Make it with weldfs_number, weldfs_held, weldfs_at_end and weldfs_after_last. 16 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct weldfs_value {
    /// The number, or the register's.
    pub number: u64,
    /// What it is.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
}

/// Bytes in a step: where they come from, or go. Make it with weldfs_in_buffer, weldfs_in_range, weldfs_in_register,
/// weldfs_nowhere and weldfs_program_literal. 16 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct weldfs_place {
    /// What it is.
    pub kind: u32,
    /// Number of the buffer, range, register or literal.
    pub index: c_int,
    /// Of a register: bytes of the number.
    pub width: u32,
    /// Of a register: 0 or WELDFS_BIG_ENDIAN.
    pub order: u32,
}

/// Memory that a range of a program stands for in one run. 32 bytes.
#[repr(C)]
pub struct weldfs_operand {
    /// Bytes that the program takes, or room for those it gives.
    pub data: *mut c_void,
    /// Bytes of it: exactly as many as the range has.
    pub len: usize,
    /// Set by weldfs_program_run: bytes that the program put there, where a result counts them (in a text without
    /// being told to, as long as a result is free); else all of the range, with zeros behind them.
    pub filled: usize,
    /// Zero.
    pub reserved: u64,
}

/// What a run of a program did. 40 bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct weldfs_outcome {
    /// The first register that weldfs_program_results, or the text, names. Without: 0, or of a text the bytes in a
    /// range that may be filled in part.
    pub value: u64,
    /// The second one.
    pub value2: u64,
    /// Steps that stand: all of them, or after a failure none (WELDFS_STEP_BY_STEP: those before).
    pub done: u32,
    /// 0, or the number of the step that failed, from 1.
    pub failed: u32,
    /// Zero.
    pub reserved: [u64; 2],
}

/// A name that a program's text uses: `@name` for a range that the caller has bytes for, `key name` for a key. 40
/// bytes.
#[repr(C)]
pub struct weldfs_name {
    /// The name, without `@`.
    pub name: *const c_char,
    /// Of a range: its bytes.
    pub len: usize,
    /// Of a key: the key; NULL: it is a range.
    pub key: *const weldfs_key,
    /// Zero.
    pub reserved: [u64; 2],
}

impl weldfs_program {
    fn new() -> weldfs_program {
        weldfs_program {
            builder: Builder::new(),
            body: None,
            files: 0,
            buffers: 0,
            registers: 0,
            ranges: 0,
            counts: Vec::new(),
            names: Vec::new(),
            sealed: false,
            session: 0,
        }
    }

    /// The builder, to add a step with.
    pub(crate) fn building(&mut self) -> Result<&mut Builder, Fault> {
        if self.sealed {
            return Err(misuse("a program that was read from text takes no more steps"));
        }
        self.body = None;
        Ok(&mut self.builder)
    }

    pub(crate) fn push(&mut self, micro: Micro) -> Result<(), Fault> {
        if self.building()?.len() >= MICRO_OPS_MAX {
            return Err(Errno::TOOBIG.into());
        }
        self.building()?.push(micro);
        Ok(())
    }

    pub(crate) fn kernel(&mut self, name: &str, params: &[Value], from: BufSlot, buf: BufSlot) -> Result<(), Fault> {
        if self.building()?.len() >= MICRO_OPS_MAX {
            return Err(Errno::TOOBIG.into());
        }
        self.building()?.kernel(name, params, from, buf);
        Ok(())
    }

    /// Everything that it names is of one session.
    pub(crate) fn of_session(&mut self, session: u64) -> Result<(), Fault> {
        if self.session != 0 && self.session != session {
            return Err(Errno::BADF.into());
        }
        self.session = session;
        Ok(())
    }

    pub(crate) fn new_file(&mut self) -> Result<FileSlot, Fault> {
        if self.files >= PROGRAM_FILES {
            return Err(Errno::TOOBIG.into());
        }
        self.files += 1;
        Ok(self.building()?.file())
    }

    pub(crate) fn file(&self, slot: c_int) -> Result<FileSlot, Fault> {
        below(slot, self.files).map(FileSlot).ok_or(misuse("the program has no such file"))
    }

    pub(crate) fn buffer(&self, slot: c_int) -> Result<BufSlot, Fault> {
        below(slot, self.buffers).map(BufSlot).ok_or(misuse("the program has no such buffer"))
    }

    pub(crate) fn register(&self, slot: c_int) -> Result<Reg, Fault> {
        below(slot, self.registers).map(Reg).ok_or(misuse("the program has no such register"))
    }

    /// A register, or WELDFS_NONE.
    pub(crate) fn register_or_none(&self, slot: c_int) -> Result<Option<Reg>, Fault> {
        if slot == WELDFS_NONE { Ok(None) } else { self.register(slot).map(Some) }
    }

    pub(crate) fn range(&self, slot: c_int) -> Result<Pool, Fault> {
        below(slot, self.ranges).map(Pool).ok_or(misuse("the program has no such range"))
    }

    /// Remembers that a register counts what is put in a range.
    pub(crate) fn counts(&mut self, range: Pool, register: Option<Reg>) {
        self.counts.extend(register.map(|register| (range, register)));
    }

    pub(crate) fn body(&mut self) -> Result<&Body, Fault> {
        if self.body.is_none() {
            self.body = Some(self.builder.clone().finish().map_err(Fault::of_program)?);
        }
        self.body.as_ref().ok_or(Errno::INVAL.into())
    }

    /// The registers that count the bytes put in a range.
    pub(crate) fn counted(&self) -> &[(Pool, Reg)] {
        &self.counts
    }

    /// The session of what it names; 0: it names nothing.
    pub(crate) fn session(&self) -> u64 {
        self.session
    }
}

/// Bytes that a program put in a range.
pub(crate) fn filled(counts: &[(Pool, Reg)], body: &Body, cqe: &Cqe, range: usize) -> usize {
    let pool = Pool(range as u8);
    let len = body.pool_len(pool) as usize;
    if cqe.status != 0 || !body.is_output(pool) {
        return if body.is_output(pool) { len } else { 0 };
    }
    let counted = |result: &Option<Reg>| result.is_some_and(|r| counts.contains(&(pool, r)));
    match body.program().results() {
        [first, _] if counted(&first) => len.min(cqe.result as usize),
        [_, second] if counted(&second) => len.min(cqe.result2 as usize),
        _ => len,
    }
}

impl weldfs_outcome {
    pub(crate) fn of(cqe: &Cqe) -> weldfs_outcome {
        let (done, failed) = (cqe.micro_done.into(), cqe.micro_failed.into());
        weldfs_outcome { value: cqe.result, value2: cqe.result2, done, failed, reserved: [0; 2] }
    }
}

/// The operands of a run, if they are those of a body's ranges.
pub(crate) fn operands<'a>(
    body: &Body,
    operands: *mut weldfs_operand,
    count: usize,
) -> Result<&'a mut [weldfs_operand], Fault> {
    let operands = array_mut(operands, count)?;
    if operands.len() != body.pools() {
        return Err(misuse(format!("{count} operands for {} ranges", body.pools())));
    }
    for (i, operand) in operands.iter().enumerate() {
        let (len, want) = (operand.len, body.pool_len(Pool(i as u8)));
        if operand.reserved != 0 || len != want as usize {
            return Err(misuse(format!("operand {i} has {len} bytes, its range {want} (or a reserved field is set)")));
        }
    }
    Ok(operands)
}

fn below(slot: c_int, count: usize) -> Option<u8> {
    u8::try_from(slot).ok().filter(|slot| usize::from(*slot) < count)
}

/// Makes a program without steps. On success *program is to be given back with weldfs_program_destroy.
///
/// The functions below that add a step take numbers of files, buffers, registers and ranges that others gave, and
/// return 0 (or the number of the file they open), -EINVAL (no such number), -E2BIG (more than 16 steps, or more slots
/// than there are). What is wrong with the program as a whole, weldfs_program_run says, and weldfs_last_error in words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_create(program: *mut *mut weldfs_program) -> c_int {
    call("weldfs_program_create", || hand_out(program, || Ok(weldfs_program::new())))
}

/// Gives a program back; NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_destroy(program: Option<Box<weldfs_program>>) {
    call("weldfs_program_destroy", || {
        drop(program);
        Ok(())
    });
}

/// Makes a program of text, as `weldfs exec` takes it (docs/COMMANDS.md has the grammar): `open /f rw; append "x"`.
/// `names`, of `count` elements, says how long the ranges are that the caller has bytes for, and which keys the text
/// means. A read or give without `whole` is counted in a result that the text leaves free, so that
/// weldfs_operand.filled tells how much it gave; a text that takes both results itself is to say `count` for that.
/// On success *program is to be given back with weldfs_program_destroy; it takes no further steps. `why`, of
/// `size` bytes, gets what is wrong and where, or nothing; NULL with 0: it is not wanted.
///
/// Errors: -EINVAL (`why` tells), -ENOKEY never: a key that does not exist is found out by the run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_parse(
    source: *const c_char,
    names: *const weldfs_name,
    count: usize,
    program: *mut *mut weldfs_program,
    why: *mut c_char,
    size: usize,
) -> c_int {
    call("weldfs_program_parse", || {
        copy_text(b"", why, size)?;
        hand_out(program, || {
            let utf8 = |from| self::text(from)?.to_str().map_err(|_| misuse("a text is not UTF-8"));
            let (mut inputs, mut keys, mut session) = (Vec::new(), Vec::new(), 0);
            for entry in array(names, count)? {
                let name = utf8(entry.name)?.trim_start_matches('@');
                match reference(entry.key) {
                    Some(key) => {
                        keys.push((name, key.name()));
                        session = key.session();
                    }
                    None => inputs.push((name, u32::try_from(entry.len).map_err(|_| Errno::TOOBIG)?)),
                }
            }
            let parsed = text::parse_counting(utf8(source)?, &inputs, &keys).or_else(|error| {
                copy_text(error.to_string().as_bytes(), why, size)?;
                Err(misuse(format!("the text is no program: {error}")))
            })?;
            let named = |name: &str, number| (name.as_bytes().to_vec(), c_int::from(number));
            let ranges = parsed.ranges.iter().map(|r| named(&format!("@{}", r.name), r.pool.0));
            let registers = parsed.registers.iter().map(|(name, r)| named(name, r.0));
            Ok(weldfs_program {
                counts: parsed.ranges.iter().filter_map(|r| Some((r.pool, r.count?))).collect(),
                names: ranges.chain(registers).collect(),
                body: Some(parsed.body),
                sealed: true,
                session,
                ..weldfs_program::new()
            })
        })
    })
}

/// The number of what a program's text calls `name`: with `@` a range, else a register. -ENOENT when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_find(program: Option<&weldfs_program>, name: *const c_char) -> c_int {
    count("weldfs_program_find", || {
        let (names, name) = (&given(program)?.names, text(name)?.to_bytes());
        let found = names.iter().find(|(known, _)| known == name);
        Ok(found.ok_or(Errno::NOENT)?.1.into())
    }) as c_int
}

/// The program as text, one step a line, with numbers for names: as much of it as fits into `size` bytes,
/// NUL-terminated. Returns the bytes that all of it has. Errors: those of a program that is none, as
/// weldfs_program_run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_text(
    program: Option<&mut weldfs_program>,
    into: *mut c_char,
    size: usize,
) -> i64 {
    count("weldfs_program_text", || {
        let printed = text::print(given(program)?.body()?.program());
        copy_text(printed.as_bytes(), into, size)
    })
}

/// Runs a program as one command, atomic as a whole unless `how` says WELDFS_STEP_BY_STEP. `operands`, of `count`
/// elements, is memory for its ranges, in the order of their numbers. *outcome, unless NULL, is filled whether it
/// succeeds or not. Files and keys that it names must be of the client's session, and must not have been given back.
///
/// Errors: that of the step that failed (weldfs_last_error names it), or of a guard; before anything runs -EINVAL,
/// -E2BIG, -EBADF (not a program that a device takes, weldfs_last_error says why; operands that are not those of its
/// ranges), -ENOKEY, -EOPNOTSUPP with WELDFS_ON_HOST. After a failure the bytes in rooms mean something only if a step
/// had given them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_run(
    program: Option<&mut weldfs_program>,
    client: Option<&weldfs_client>,
    operands: *mut weldfs_operand,
    count: usize,
    how: u32,
    outcome: *mut weldfs_outcome,
) -> c_int {
    call("weldfs_program_run", || {
        let (program, client) = (given(program)?, &given(client)?.client);
        if how & WELDFS_IN_SLOT == WELDFS_ON_HOST {
            return Err(Errno::OPNOTSUPP.into());
        }
        let raw = How::new(how)?.of(client.raw()).of_session(program.session);
        let body = program.body()?.clone();
        let operands = self::operands(&body, operands, count)?;
        let mut bound = Vec::with_capacity(operands.len());
        for (i, operand) in operands.iter().enumerate() {
            bound.push(match body.is_output(Pool(i as u8)) {
                true => Operand::Out(room(operand.data, operand.len)?.into()),
                false => Operand::In(payload(operand.data, operand.len)?.into()),
            });
        }
        let filled = |cqe: &Cqe, i| filled(program.counted(), &body, cqe, i);
        let cqe = raw.program(&body, &mut bound, filled)?;
        drop(bound);
        for (i, operand) in operands.iter_mut().enumerate() {
            operand.filled = if cqe.status == 0 { filled(&cqe, i) } else { 0 };
        }
        crate::boundary::put(outcome, weldfs_outcome::of(&cqe));
        cqe.ok().map(drop).map_err(|errno| Fault::new(errno, failed_step(&body, &cqe)))
    })
}

/// Which step a completion says has failed. The first is also told of what went wrong before it, such as a file that
/// is not there any more.
fn failed_step(body: &Body, cqe: &Cqe) -> String {
    let index = usize::from(cqe.micro_failed.saturating_sub(1));
    match body.program().micros().get(index) {
        None => String::new(),
        Some(micro) => {
            let before = if index == 0 { "before or in " } else { "" };
            format!("{before}step {}, {}", index + 1, text::statement(body.program(), micro))
        }
    }
}

/// A buffer of the program's own, for up to `capacity` bytes. Returns its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_buffer(program: Option<&mut weldfs_program>, capacity: u32) -> c_int {
    count("weldfs_program_buffer", || {
        let program = given(program)?;
        if program.buffers >= PROGRAM_BUFFERS {
            return Err(Errno::TOOBIG.into());
        }
        let slot = program.building()?.buffer(capacity);
        program.buffers += 1;
        Ok(slot.0.into())
    }) as c_int
}

/// A register. Returns its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_register(program: Option<&mut weldfs_program>) -> c_int {
    count("weldfs_program_register", || {
        let program = given(program)?;
        if program.registers >= PROGRAM_REGISTERS {
            return Err(Errno::TOOBIG.into());
        }
        let slot = program.building()?.register();
        program.registers += 1;
        Ok(slot.0.into())
    }) as c_int
}

/// A range of the caller's memory of `len` bytes; which memory, each run says. Returns its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_range(program: Option<&mut weldfs_program>, len: u32) -> c_int {
    count("weldfs_program_range", || {
        let program = given(program)?;
        if program.ranges >= PROGRAM_RANGES_MAX {
            return Err(Errno::TOOBIG.into());
        }
        let slot = program.building()?.pool(len);
        program.ranges += 1;
        Ok(slot.0.into())
    }) as c_int
}

/// Bytes that are part of the program: *literal stands for them in steps. -E2BIG when they are too long for a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_literal(
    program: Option<&mut weldfs_program>,
    from: *const c_void,
    len: usize,
    literal: *mut weldfs_place,
) -> c_int {
    call("weldfs_program_literal", || {
        crate::boundary::give(literal, || {
            let index = given(program)?.building()?.string(bytes(from, len)?).0.into();
            Ok(weldfs_place { kind: crate::steps::LITERAL, index, width: 0, order: 0 })
        })
    })
}

/// Which registers weldfs_outcome reports, as they stand at the end or at the failure: two, or WELDFS_NONE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_results(
    program: Option<&mut weldfs_program>,
    first: c_int,
    second: c_int,
) -> c_int {
    call("weldfs_program_results", || {
        let program = given(program)?;
        let (first, second) = (program.register_or_none(first)?, program.register_or_none(second)?);
        program.building()?.results(first, second);
        Ok(())
    })
}

const _: () = assert!(size_of::<weldfs_value>() == 16 && size_of::<weldfs_place>() == 16);
const _: () = assert!(size_of::<weldfs_operand>() == 32 && size_of::<weldfs_outcome>() == 40);
