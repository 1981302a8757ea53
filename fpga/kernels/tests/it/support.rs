//! Drives any back-end of a kernel through packets of awkward lengths, cut in awkward places, and compares it with what
//! is expected. It needs nothing but `weldfs-fpga`: a kernel here may be a model or a shared object.

use weldfs_fpga::kernel::{Fault, Kernel, run};

/// How a packet ends: its output, or the fault without its sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The output.
    Out(Vec<u8>),
    /// `Fault::Params`.
    Params,
    /// `Fault::Data`.
    Data,
    /// `Fault::Lost`, or a fault that is not known here.
    Lost,
}

impl End {
    /// What a call came to.
    pub fn of(result: Result<Vec<u8>, Fault>) -> End {
        match result {
            Ok(out) => End::Out(out),
            Err(Fault::Params(_)) => End::Params,
            Err(Fault::Data(_)) => End::Data,
            Err(_) => End::Lost,
        }
    }
}

/// Pieces that the input comes in, and room for output in each step: bytes, primes and flits.
pub const CUTS: [(usize, usize); 9] =
    [(1, 1), (1, 64), (3, 7), (7, 3), (63, 65), (64, 64), (65, 1), (4096, 4096), (usize::MAX, 1 << 20)];

/// The longest packet of `tails`: two flits and two bytes.
pub const TAIL_MAX: usize = 130;

/// Resets the kernel, runs a packet through it, and says what came of it.
pub fn packet(kernel: &mut dyn Kernel, params: &[u32], input: &[u8], (piece, room): (usize, usize)) -> End {
    End::of(kernel.reset(params).and_then(|()| Ok(run(kernel, input, piece.min(input.len().max(1)), room)?.0)))
}

/// A packet with every cut of [`CUTS`].
pub fn agrees(kernel: &mut dyn Kernel, params: &[u32], input: &[u8], expected: &End) {
    for cut in CUTS {
        let got = packet(kernel, params, input, cut);
        assert!(
            got == *expected,
            "params {params:x?}, {} bytes {:x?}.., (piece, room) {cut:?}\n     got {}\nexpected {}",
            input.len(),
            &input[..input.len().min(TAIL_MAX)],
            brief(&got),
            brief(expected)
        );
    }
}

fn brief(end: &End) -> String {
    match end {
        End::Out(out) => format!("{} bytes {:x?}", out.len(), &out[..out.len().min(256)]),
        fault => format!("{fault:?}"),
    }
}

/// Packets of every length from 0 to [`TAIL_MAX`], the bytes of each from `content`.
pub fn tails(
    kernel: &mut dyn Kernel,
    params: &[u32],
    mut content: impl FnMut(usize) -> Vec<u8>,
    oracle: impl Fn(&[u32], &[u8]) -> End,
) {
    for len in 0..=TAIL_MAX {
        let input = content(len);
        agrees(kernel, params, &input, &oracle(params, &input));
    }
}

/// Packets one after the other without a reset: nothing of one is left in the next.
pub fn in_a_row(kernel: &mut dyn Kernel, params: &[u32], packets: &[Vec<u8>], oracle: impl Fn(&[u32], &[u8]) -> End) {
    kernel.reset(params).expect("parameters that the kernel takes");
    for (i, input) in packets.iter().enumerate() {
        let got = End::of(run(kernel, input, 1 + i * 37, 1 + i * 11).map(|(out, _)| out));
        assert_eq!(got, oracle(params, input), "packet {i} of {} bytes", input.len());
    }
}

/// A packet whose end never comes, then a reset with other parameters and another packet: nothing of the first is left.
pub fn reset_in_the_middle(
    kernel: &mut dyn Kernel,
    (before, begun): (&[u32], &[u8]),
    (params, input): (&[u32], &[u8]),
    oracle: impl Fn(&[u32], &[u8]) -> End,
) {
    let mut room = [0; 4];
    for taken in 0..=begun.len() {
        kernel.reset(before).expect("parameters that the kernel takes");
        // One step with little room: output may be left inside as well.
        let _ = kernel.step(&begun[..taken], false, &mut room);
        assert_eq!(
            packet(kernel, params, input, (64, 64)),
            oracle(params, input),
            "after {taken} bytes without an end"
        );
    }
}

/// Parameters that are not taken; the kernel takes `good` ones after that.
pub fn refuses(kernel: &mut dyn Kernel, bad: &[&[u32]], good: &[u32]) {
    for params in bad {
        let got = kernel.reset(params);
        assert!(matches!(got, Err(Fault::Params(_))), "{params:x?}: {got:?}");
    }
    kernel.reset(good).expect("parameters that the kernel takes");
}

/// Bytes of a small generator (xorshift64*), the same for the same seed.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Bytes of few values, so that what a kernel looks for occurs.
pub fn of_few(values: &[u8], seed: u64, len: usize) -> Vec<u8> {
    bytes(seed, len).into_iter().map(|b| values[usize::from(b) % values.len()]).collect()
}
