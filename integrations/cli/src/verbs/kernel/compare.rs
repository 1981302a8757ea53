//! A back-end and its reference on one case.

use super::cases::{Case, Cut};
use super::reference::{Outcome, Reference};
use crate::failure::Failure;
use weldfs_fpga::kernel::{CYCLES_PER_FLIT_MAX, Fault, Kernel, cycles_max};

/// Bytes that a back-end may make more than the reference before it is stopped.
const SURPLUS: usize = 1 << 20;

/// Where the two differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Which packet of the case, from 0.
    pub packet: usize,
    /// What the reference says.
    pub expected: Outcome,
    /// What the back-end did.
    pub got: Outcome,
}

/// Runs a case on a kernel that stalls as the case wants. The cycles that it took, or where it differs.
///
/// # Errors
/// The reference itself failed.
pub fn compare(
    kernel: &mut dyn Kernel,
    case: &Case,
    reference: &Reference,
) -> Result<Result<u64, Difference>, Failure> {
    if let Some((params, begun)) = &case.before {
        // Whatever it says to this: the reset that follows ends it.
        let _ = begin(kernel, params, begun, case.cut);
    }
    let mut reset = kernel.reset(&case.params);
    let mut cycles = 0;
    for (at, packet) in case.packets.iter().enumerate() {
        let expected = reference.says(&case.params, packet)?;
        let limit = SURPLUS + if let Outcome::Output(bytes) = &expected { bytes.len() } else { 0 };
        let came = std::mem::replace(&mut reset, Ok(())).and_then(|()| packet_through(kernel, packet, case.cut, limit));
        let got = match came {
            Ok((output, took)) => {
                cycles += took;
                Outcome::Output(output)
            }
            Err(Fault::Params(_)) => Outcome::Params,
            Err(Fault::Data(_)) => Outcome::Data,
            Err(other) => Outcome::Lost(other.to_string()),
        };
        if got != expected {
            return Ok(Err(Difference { packet: at, expected, got }));
        }
        if !matches!(got, Outcome::Output(_)) {
            // What was refused is over; only a reset helps.
            break;
        }
    }
    Ok(Ok(cycles))
}

/// A packet that does not end.
fn begin(kernel: &mut dyn Kernel, params: &[u32], bytes: &[u8], cut: Cut) -> Result<(), Fault> {
    kernel.reset(params)?;
    let (mut at, mut sizes, mut room) = (0, cut.sizes(), vec![0; cut.room]);
    while at < bytes.len() {
        let (piece, out) = sizes();
        let step = kernel.step(&bytes[at..bytes.len().min(at + piece)], false, &mut room[..out])?;
        if step.taken == 0 && step.made == 0 {
            break;
        }
        at += step.taken;
    }
    Ok(())
}

/// One packet, to its end: output and cycles.
fn packet_through(kernel: &mut dyn Kernel, packet: &[u8], cut: Cut, limit: usize) -> Result<(Vec<u8>, u64), Fault> {
    let (mut output, mut at, mut cycles) = (Vec::new(), 0, 0u64);
    let (mut sizes, mut buffer) = (cut.sizes(), vec![0; cut.room]);
    loop {
        let (piece, room) = sizes();
        let end = packet.len().min(at + piece);
        let step = kernel.step(&packet[at..end], end == packet.len(), &mut buffer[..room])?;
        output.extend_from_slice(&buffer[..step.made]);
        (at, cycles) = (at + step.taken, cycles.saturating_add(step.cycles));
        if cycles > cycles_max(at as u64, output.len() as u64) {
            return Err(Fault::Lost(format!("it says that it took over {CYCLES_PER_FLIT_MAX} cycles for each flit")));
        }
        if step.done && at < packet.len() {
            return Err(Fault::Lost(format!("it ended the packet after {at} of {} bytes", packet.len())));
        }
        if step.done {
            return Ok((output, cycles));
        }
        if step.taken == 0 && step.made == 0 {
            return Err(Fault::Lost("it neither takes nor makes anything, and does not end the packet".into()));
        }
        if output.len() > limit {
            return Err(Fault::Lost(format!("it made {} bytes, and the packet does not end", output.len())));
        }
    }
}
