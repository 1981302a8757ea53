//! Commands whose compute stages run in slots, and programs that name a kernel.
//!
//! A stage is a packet: its bytes go to a kernel, what comes back is what a core would have computed, to the last bit.
//! The op waits for it as for a cold page, and its core does others meanwhile. It holds no file while it waits: an
//! append is summed up before it asks for its tickets, what is verified is read under the tickets and summed up without
//! them, and a program lends what it holds. So whoever holds a slot waits for nothing but the slot, and slots and
//! tickets cannot wait for each other. A slot that is lost is EIO to the one command that had it, or, where the command
//! allows that, the stage runs on a core, and is counted.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use weldfs_ciscops::program::CRC32C;
use weldfs_ciscops::{
    Access, ChecksumState, Command, Errno, Handle, Kernel, Op, OpenFlags, Outcome, Placement, SharedRegion, Sink,
    Taken, Target,
};
use weldfs_fpga::config::{Want, WhenFull};
use weldfs_fpga::error::CardError;
use weldfs_fpga::kernel::Fault;
use weldfs_fpga::quick::Packet;
use weldfs_fpga::status::Usage;
use weldfs_scheduler::{Cost, Mode};

use super::done::Done;
use super::lost;
use super::opcx::{OpCx, durable, failed};
pub use weldfs_fs::{FileRef, Hold, InodeSet, ROOT, Txn};
use weldfs_session::clock::now_ns;
use weldfs_store::scratch;

/// Bytes of a checksum.
const CRC_BYTES: usize = 4;
/// How often a command that waits for a slot looks whether it is to be gone on with: its client may be gone.
const LOOK_NS: u64 = 50_000_000;
/// Bytes that a core takes between two looks at whether others should run, where it does what no slot could.
const CORE_PIECE: usize = 16 << 10;

/// Whether the compute stages of a command run in a slot.
#[inline]
pub(super) fn is_placed(cmd: &Command) -> bool {
    matches!(cmd.placement, Placement::Slot { .. })
}

/// The payload that a slot has summed up, once it has; its memory is used again.
#[derive(Default)]
pub(super) struct TakenOnce(OnceLock<Taken>);

impl TakenOnce {
    /// What is there.
    pub(super) fn get(&self) -> Option<&Taken> {
        self.0.get()
    }
}

impl Drop for TakenOnce {
    fn drop(&mut self) {
        if let Some((bytes, _)) = self.0.take().and_then(Arc::into_inner) {
            scratch::keep(bytes);
        }
    }
}

/// Why a stage did not run in a slot.
enum Why {
    /// Its own fault: a core would say the same.
    Own(Errno),
    /// There is none for it, or it was lost.
    Slot(Errno),
}

impl From<CardError> for Why {
    fn from(e: CardError) -> Why {
        match e {
            CardError::Fault(fault) => fault.into(),
            other => Why::Slot(other.errno()),
        }
    }
}

impl From<Fault> for Why {
    fn from(fault: Fault) -> Why {
        match fault {
            Fault::Lost(_) => Why::Slot(fault.errno()),
            _ => Why::Own(fault.errno()),
        }
    }
}

/// Runs one packet through a kernel.
///
/// # Errors
/// Those of `Target::kernel`; EINTR when the client is gone and the command is not to be gone on with.
pub(super) async fn kernel(
    cx: &OpCx<'_>,
    kernel: Kernel<'_>,
    input: Cow<'_, [u8]>,
    out_max: usize,
) -> Result<Vec<u8>, Errno> {
    let or_core = kernel.or_core;
    let (ran, spare) = match at_once(cx, &kernel, &input, out_max) {
        Some(ran) => (ran, or_core.then_some(input)),
        None => {
            let spare = or_core.then(|| input.clone());
            let waits = Box::pin(still(cx, in_slot(cx, &kernel, input.into_owned(), out_max)));
            (waits.await?, spare)
        }
    };
    match (ran, spare) {
        (Ok(output), _) => Ok(output),
        (Err(Why::Slot(errno)), Some(input)) => Box::pin(on_core(cx, &kernel, &input, out_max, errno)).await,
        (Err(Why::Own(errno) | Why::Slot(errno)), _) => Err(errno),
    }
}

/// A short packet to a kernel that is there already: this core computes it in the slot's place, and nothing is waited
/// for. None: it has to go the whole way.
fn at_once(cx: &OpCx<'_>, kernel: &Kernel<'_>, input: &[u8], out_max: usize) -> Option<Result<Vec<u8>, Why>> {
    let tenant = &cx.queue.tenant;
    let packet = Packet {
        kernel: std::str::from_utf8(kernel.name).ok()?,
        params: kernel.params,
        tenant: u64::from(tenant.id.0),
        weight: tenant.weight(),
        input,
        out_max,
    };
    let ran = cx.core.card.at_once(&packet)?;
    ran.output.as_ref().err().into_iter().for_each(|fault| lost::note(tenant, packet.kernel, Some(ran.slot), fault));
    ran.usage.iter().for_each(|usage| charge(cx, usage));
    Some(ran.output.map_err(Why::from))
}

async fn in_slot(cx: &OpCx<'_>, kernel: &Kernel<'_>, input: Vec<u8>, out_max: usize) -> Result<Vec<u8>, Why> {
    let tenant = &cx.queue.tenant;
    let name = String::from_utf8_lossy(kernel.name).into_owned();
    let want = Want {
        kernel: name.clone(),
        params: kernel.params.to_vec(),
        tenant: u64::from(tenant.id.0),
        weight: tenant.weight(),
        when_full: WhenFull::Wait,
        keeps: false,
    };
    let session = cx.core.card.open(want).await.inspect_err(|e| lost::note_opening(tenant, &name, e))?;
    let ran = session.run(input, out_max).await;
    ran.as_ref().err().into_iter().for_each(|fault| lost::note(tenant, &name, Some(session.slot()), fault));
    // What it computed is charged, whatever came of it.
    charge(cx, &session.usage());
    Ok(ran?.output)
}

/// Charges slot time to the tenant of a command, as time of a core is.
fn charge(cx: &OpCx<'_>, usage: &Usage) {
    let counters = &cx.queue.counters;
    counters.slot_packets.add(1);
    counters.slot_ns.add(usage.slot_ns);
    counters.slot_bytes_in.add(usage.bytes_in);
    counters.slot_bytes_out.add(usage.bytes_out);
    let inode = cx.slot.primary.load(Ordering::Relaxed);
    let cost = Cost { time_ns: usage.slot_ns, lender: None, weight: cx.cmd.hints.priority.weight() };
    cx.core.board.runq.account(cx.queue.tenant.id, inode, cost);
}

/// Awaits what waits for a slot, and looks from time to time whether that is still wanted.
async fn still<T>(cx: &OpCx<'_>, work: impl Future<Output = T>) -> Result<T, Errno> {
    let mut work = pin!(work);
    poll_fn(|task| {
        if let Poll::Ready(done) = work.as_mut().poll(task) {
            return Poll::Ready(Ok(done));
        }
        if let Err(errno) = cx.still() {
            return Poll::Ready(Err(errno));
        }
        cx.slot.pause.store(now_ns() + LOOK_NS, Ordering::Relaxed);
        Poll::Pending
    })
    .await
}

/// Runs a kernel that comes with the device on this core; `why` there is no slot for it, if it is none of those.
async fn on_core(
    cx: &OpCx<'_>,
    kernel: &Kernel<'_>,
    input: &[u8],
    out_max: usize,
    why: Errno,
) -> Result<Vec<u8>, Errno> {
    let name = kernel.name.split(|b| *b == b':').next().unwrap_or(kernel.name);
    let mut run = std::str::from_utf8(name).ok().and_then(weldfs_kernels::make).ok_or(why)?;
    cx.queue.counters.slot_fallbacks.add(1);
    run.reset(kernel.params).map_err(|e| e.errno())?;
    let (mut out, mut room, mut at) = (Vec::new(), vec![0; CORE_PIECE], 0);
    loop {
        let end = input.len().min(at + CORE_PIECE);
        let step = run.step(&input[at..end], end == input.len(), &mut room).map_err(|e| e.errno())?;
        if out.len() + step.made > out_max {
            return Err(Errno::TOOBIG);
        }
        out.extend_from_slice(&room[..step.made]);
        at += step.taken;
        if step.done {
            return Ok(out);
        }
        if step.taken == 0 && step.made == 0 {
            return Err(Errno::IO);
        }
        cx.boundary().await;
        cx.still()?;
    }
}

/// The CRC-32C of bytes, in a slot, going on from `from`. What makes anything else of them than four bytes is lost.
pub(super) async fn crc32c(cx: &OpCx<'_>, from: u32, bytes: &[u8]) -> Result<u32, Errno> {
    let or_core = cx.cmd.placement == (Placement::Slot { or_core: true });
    let stage = Kernel { name: CRC32C, params: &[from], or_core };
    let output = match kernel(cx, stage, Cow::Borrowed(bytes), CRC_BYTES).await {
        Err(Errno::TOOBIG) => Vec::new(),
        output => output?,
    };
    let output = match (output.len() == CRC_BYTES, or_core) {
        (true, _) => output,
        (false, true) => Box::pin(on_core(cx, &stage, bytes, CRC_BYTES, Errno::IO)).await?,
        (false, false) => return Err(Errno::IO),
    };
    output.try_into().map(u32::from_le_bytes).map_err(|_| Errno::IO)
}

/// What [`begin`] would do for an append whose checksum this core computes in the slot's place, without its future:
/// whether that is done.
pub(super) fn begin_at_once(cx: &OpCx<'_>) -> bool {
    let Op::AppendChecksumWrite { h, src, .. } = cx.cmd.op else { return false };
    if src.len as usize > cx.core.card.at_once_max() {
        return false;
    }
    let (Ok(_), Ok(bytes)) = (cx.description(h), cx.queue.pool.slice(src)) else { return false };
    let mut taken = scratch::list();
    bytes.append_to(&mut taken);
    let stage = Kernel { name: CRC32C, params: &[0], or_core: false };
    let Some(Ok(output)) = at_once(cx, &stage, &taken, CRC_BYTES) else {
        scratch::keep(taken);
        return false;
    };
    let Ok(crc) = output.try_into().map(u32::from_le_bytes) else { return false };
    let len = taken.len() as u64;
    cx.taken.0.set(Arc::new((taken, ChecksumState::resume(crc, len)))).is_ok()
}

/// Before a command that is placed in a slot asks for anything: takes the payload of an append, and has it summed up.
/// Answers a command that is over with that.
pub(super) async fn begin(cx: &OpCx<'_>) -> Option<Done> {
    match cx.cmd.op {
        Op::AppendChecksumWrite { h, src, .. } => {
            // What has no file fails as it does on a core.
            cx.description(h).ok()?;
            let taken = match cx.queue.pool.slice(src) {
                Ok(bytes) => {
                    let mut list = scratch::list();
                    bytes.append_to(&mut list);
                    list
                }
                Err(errno) => return Some(failed(errno)),
            };
            let len = taken.len() as u64;
            match crc32c(cx, 0, &taken).await {
                Ok(crc) => {
                    let _ = cx.taken.0.set(Arc::new((taken, ChecksumState::resume(crc, len))));
                    None
                }
                Err(errno) => Some(stage_failed(cx, errno, 1)),
            }
        }
        Op::ReadChecksumVerify { h, offset, len, .. } => {
            let mut done = Done::from(Outcome::default());
            done.outcome = match verify(cx, h, (offset, len), &mut done).await {
                Ok(outcome) => outcome,
                Err((index, errno)) => {
                    Outcome { status: errno.0, micro_done: 0, micro_failed: index + 1, ..Outcome::default() }
                }
            };
            Some(done)
        }
        _ => None,
    }
}

/// The micro-op at `index` failed in its slot: those before it stand, where each stands by itself.
fn stage_failed(cx: &OpCx<'_>, errno: Errno, index: u16) -> Done {
    let micro_done = if cx.cmd.commits_in_steps() { index } else { 0 };
    Outcome { status: errno.0, micro_done, micro_failed: index + 1, result: 0, result2: 0 }.into()
}

/// The micro-ops of `read_checksum_verify`: which one failed.
type Verified<T> = Result<T, (u16, Errno)>;

/// Reads payload and trailer under a shared ticket, gives that back, sums up, compares.
async fn verify(cx: &OpCx<'_>, h: Handle, (offset, len): (u64, u32), done: &mut Done) -> Verified<Outcome> {
    let Op::ReadChecksumVerify { out, .. } = cx.cmd.op else { return Err((0, Errno::INVAL)) };
    let (payload, trailer) = read_record(cx, h, offset, len).await?;
    if !out.is_empty() {
        hand_over(&cx.queue.pool, out, &payload).map_err(|e| (1, e))?;
        done.gave(len.into());
    }
    let crc = crc32c(cx, 0, &payload).await.map_err(|e| (1, e))?;
    scratch::keep(payload);
    let trailer = trailer.map_err(|e| (2, e))?;
    if cx.cmd.after_durable {
        durable(cx, cx.core.store.journal().owned_end()).await.map_err(|e| (0, e))?;
    }
    let (result, result2) = (len.into(), crc.into());
    if trailer == crc.to_le_bytes() {
        return Ok(Outcome { status: 0, micro_done: 4, micro_failed: 0, result, result2 });
    }
    Ok(Outcome { status: Errno::BADMSG.0, micro_done: 0, micro_failed: 4, result, result2 })
}

fn hand_over(pool: &SharedRegion, out: weldfs_ciscops::PoolRange, payload: &[u8]) -> Result<(), Errno> {
    pool.slice(out)?.copy_from(payload);
    Ok(())
}

/// Payload, and the trailer if the file has it.
async fn read_record(cx: &OpCx<'_>, h: Handle, offset: u64, len: u32) -> Verified<(Vec<u8>, Result<[u8; 4], Errno>)> {
    let access = Access::READ;
    let open = match h {
        Handle::ROOT => None,
        h => Some(cx.description(h).map_err(|e| (0, e))?),
    };
    let ino = open.as_ref().map_or(ROOT, |d| d.ino);
    let readable = |flags: OpenFlags| !flags.contains(OpenFlags::PATH) && flags.access().contains(access);
    if open.as_ref().is_some_and(|d| !readable(d.flags())) {
        return Err((0, Errno::BADF));
    }
    let held = cx.hold(ino, Mode::Shared).await;
    let mut set = InodeSet::new();
    set.add(ino, Hold::Shared);
    let core = cx.core;
    let mut txn = Txn::new(&core.store, &*cx.queue.session, &set, None, 0, core.clock.wall());
    txn.in_slices(cx);
    let (file, mut payload, mut trailer) = (FileRef { ino, access }, scratch::list_of(len as usize), [0; 4]);
    let n = txn.read(file, offset, len.into(), Sink::Private(&mut payload), None).await.map_err(|e| (1, e))?;
    if n < u64::from(len) {
        return Err((1, Errno::NODATA));
    }
    let behind = offset + u64::from(len);
    let trailer = match txn.read(file, behind, 4, Sink::Private(&mut trailer), None).await {
        Ok(4) => Ok(trailer),
        Ok(_) => Err(Errno::NODATA),
        Err(e) => Err(e),
    };
    drop(held);
    core.board.unboost(cx.at);
    Ok((payload, trailer))
}

#[cfg(test)]
pub(super) mod tests;
