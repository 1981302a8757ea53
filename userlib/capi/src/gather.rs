//! Submissions of several pieces: programs, several writes as one, transactions.

use crate::boundary::{array, call, given, put};
use crate::file::{place, weldfs_file};
use crate::fused::{payload, space};
use crate::jobs::{Form, Tell};
use crate::moves::{weldfs_txn, weldfs_write_item, write_item};
use crate::program::{filled, operands as operands_of, weldfs_operand, weldfs_outcome, weldfs_program};
use crate::queue::weldfs_queue;
use crate::submit::Start;
use crate::types::weldfs_job;
use libc::{c_int, c_void};
use weldfs::aio::{Completed, Rooms};
use weldfs::{Errno, Op};
use weldfs_ciscops::program::{Body, Pool, Reg};

/// What the completion of a program needs to know of it.
struct Ran {
    rooms: Rooms,
    body: Body,
    /// Registers that count the bytes put in a range.
    counts: Vec<(Pool, Reg)>,
    /// The caller's operands, and where each wants its bytes.
    operands: usize,
    data: Vec<usize>,
    /// Where the caller wants the outcome; 0: nowhere.
    outcome: usize,
}

impl Tell for Ran {
    /// Gives the caller what the program put in its ranges, and what it did.
    fn tell(&self, ran: Option<&Completed>) {
        for (i, into) in self.data.iter().enumerate() {
            let filled = ran.map_or(0, |ran| filled(&self.counts, &self.body, &ran.cqe, i));
            let bytes = ran.map_or(&[][..], |ran| self.rooms.bytes(ran, i));
            let n = filled.min(bytes.len());
            if n > 0 {
                // SAFETY: by the header an operand's memory has the bytes of its range, which `bytes` has, and nothing
                // else uses it until the completion is delivered or the job forgotten; forgetting takes the lock that
                // is held here.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), *into as *mut u8, n) };
            }
            let told = if ran.is_some_and(|ran| ran.cqe.status == 0) { filled } else { 0 };
            // SAFETY: by the header the operands stay as long, so many as the program has ranges.
            unsafe { (*(self.operands as *mut weldfs_operand).add(i)).filled = told };
        }
        put(self.outcome as *mut weldfs_outcome, ran.map(|ran| weldfs_outcome::of(&ran.cqe)).unwrap_or_default());
    }
}

/// Submits weldfs_program_run, as all or nothing and where the device thinks best: result 0, value that of the outcome.
/// `operands` and what they point to are the command's until it completes or is forgotten, and so is `outcome`, unless
/// NULL; they are filled when the completion is delivered (with zeros where the device died: -EIO). None of them may
/// lie in a weldfs_buf. The program is the caller's at once. Its ranges and steps must fit one piece of the queue's
/// pool, else -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_program(
    queue: Option<&weldfs_queue>,
    program: Option<&mut weldfs_program>,
    operands: *mut weldfs_operand,
    count: usize,
    outcome: *mut weldfs_outcome,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_program", || {
        let (start, program) = (Start::new(queue, job)?, given(program)?);
        if program.session() != 0 && !start.with.is_of(program.session()) {
            return Err(Errno::BADF.into());
        }
        let body = program.body()?.clone();
        let given = operands_of(&body, operands, count)?;
        let (mut inputs, mut data) = (Vec::with_capacity(count), Vec::with_capacity(count));
        start.not_in_the_pool(operands.cast(), size_of_val(given))?;
        start.not_in_the_pool(outcome.cast(), size_of::<weldfs_outcome>())?;
        for (i, operand) in given.iter().enumerate() {
            if body.is_output(Pool(i as u8)) {
                start.not_in_the_pool(operand.data, operand.len)?;
            }
            inputs.push(match body.is_output(Pool(i as u8)) {
                true => space(operand.data, operand.len).map(|_| None)?,
                false => Some(payload(operand.data, operand.len)?),
            });
            data.push(operand.data as usize);
        }
        let (pending, rooms) = start.with.program(&body, &inputs)?;
        let counts = program.counted().to_vec();
        let ran = Ran { rooms, body, counts, operands: operands as usize, data, outcome: outcome as usize };
        start.follow(pending, (0, 0), Form::Ran, Some(Box::new(ran)))
    })
}

/// Submits weldfs_multi_write: result 0. The bytes are copied at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_multi_write(
    queue: Option<&weldfs_queue>,
    writes: *const weldfs_write_item,
    count: usize,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_multi_write", || {
        let (mut start, mut all, mut first) = (Start::new(queue, job)?, Vec::new(), None);
        for (i, item) in array(writes, count)?.iter().enumerate() {
            all.push(write_item(item, &mut first).map_err(|fault| fault.of_one("item", i))?);
        }
        if first.is_some() {
            start.on(first)?;
        }
        let pending = start.with.multi_write(&all)?;
        start.follow(pending, (0, 0), Form::Plain, None)
    })
}

/// Submits weldfs_txn_write: result is the bytes logged, value how many writes are. At most weldfs_info.payload_max
/// bytes, else -E2BIG. A transaction's writes run in any order; submit its commit when they have completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_txn_write(
    queue: Option<&weldfs_queue>,
    txn: Option<&weldfs_txn>,
    file: Option<&weldfs_file>,
    from: *const c_void,
    len: usize,
    offset: u64,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_txn_write", || {
        let mut start = Start::new(queue, job)?;
        let (txn, h) = (start.with.on(&given(txn)?.txn)?, start.on(file)?);
        let (data, at) = (start.input(from, len)?, place(offset));
        start.plain([data], |[src]| Op::TxnWrite { txn, h, at, src })
    })
}

/// Submits weldfs_txn_commit: result is the bytes written. When this returns 0 the object is gone, and no other call
/// may use it at the same time or later; else it is the program's still.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_submit_txn_commit(
    queue: Option<&weldfs_queue>,
    txn: *mut weldfs_txn,
    job: *const weldfs_job,
) -> c_int {
    call("weldfs_submit_txn_commit", || {
        let start = Start::new(queue, job)?;
        // SAFETY: NULL, or by the header a transaction that nothing else uses.
        let handle = start.with.on(&given(unsafe { txn.as_ref() })?.txn)?;
        start.plain([], |[]| Op::TxnCommit { txn: handle })?;
        // SAFETY: not NULL, and made by `Box` as every object; the caller has given it up. The command ends it.
        unsafe { Box::from_raw(txn) }.txn.into_handle();
        Ok(())
    })
}
