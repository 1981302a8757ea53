//! A stage in a slot: a packet goes to a kernel of the card, its slot time is charged; where the command allows it, a
//! core takes the place of a slot that there is none of, or that was lost.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;

use weldfs_ciscops::program::CRC32C;
use weldfs_ciscops::{Errno, Kernel, Placement};
use weldfs_fpga::config::{Want, WhenFull};
use weldfs_fpga::error::CardError;
use weldfs_fpga::kernel::Fault;
use weldfs_fpga::quick::Packet;
use weldfs_fpga::status::Usage;
use weldfs_scheduler::Cost;

use super::lost;
use super::opcx::OpCx;
use weldfs_session::clock::now_ns;

/// Bytes of a checksum.
pub(super) const CRC_BYTES: usize = 4;
/// How often a command that waits for a slot looks whether it is to be gone on with: its client may be gone.
const LOOK_NS: u64 = 50_000_000;
/// Bytes that a core takes between two looks at whether others should run, where it does what no slot could.
const CORE_PIECE: usize = 16 << 10;

/// Why a stage did not run in a slot.
pub(super) enum Why {
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
pub(super) fn at_once(
    cx: &OpCx<'_>,
    kernel: &Kernel<'_>,
    input: &[u8],
    out_max: usize,
) -> Option<Result<Vec<u8>, Why>> {
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
