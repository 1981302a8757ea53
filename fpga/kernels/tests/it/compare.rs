//! A shared object against the built-in kernel of the same name: output and faults, however the streams are cut and
//! whoever stalls.

use std::mem::discriminant;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use weldfs_fpga::kernel::{Fault, Kernel, run};

use crate::shared_object::SharedObject;

/// What a kernel is compared on.
pub struct Subject<'a> {
    /// Name of the built-in.
    pub name: &'a str,
    /// File of the shared object.
    pub object: &'a Path,
    /// Parameters that are right: at least one list.
    pub good: Vec<Vec<u32>>,
    /// Parameters that are refused.
    pub bad: Vec<Vec<u32>>,
    /// A packet of so many bytes that says something to the kernel with these parameters.
    pub packet: fn(&mut SmallRng, &[u32], usize) -> Vec<u8>,
    /// Bytes of the longest packet.
    pub longest: usize,
    /// Ports of the debug port that are compared after every packet.
    pub ports: u32,
}

/// Piece of input and room of output that one run goes by.
const CUTS: [(usize, usize); 5] = [(1 << 20, 1 << 20), (1, 1), (7, 3), (64, 64), (100, 129)];
/// Cycles in a thousand at which input and output stall.
const STALLS: [(u32, u32); 4] = [(0, 0), (500, 0), (0, 700), (400, 600)];

type Outcome = Result<Vec<u8>, Fault>;

fn packet(kernel: &mut dyn Kernel, input: &[u8], (piece, room): (usize, usize)) -> Outcome {
    run(kernel, input, piece, room).map(|(out, _)| out)
}

fn brief(outcome: &Outcome) -> String {
    outcome.as_ref().map_or_else(|e| e.to_string(), |out| format!("{} bytes", out.len()))
}

/// The two kernels, reset together.
struct Pair<'a> {
    name: &'a str,
    reference: Box<dyn Kernel>,
    object: SharedObject,
    ports: u32,
}

impl Pair<'_> {
    fn reset(&mut self, params: &[u32]) {
        for (kernel, which) in [(&mut *self.reference, "reference"), (&mut self.object, "shared object")] {
            kernel.reset(params).unwrap_or_else(|e| panic!("{}: {which}, {params:x?}: {e}", self.name));
        }
    }

    /// One packet through both, the object by this cut; a fault ends what the parameters began.
    fn check(&mut self, params: &[u32], input: &[u8], cut: (usize, usize), why: &str) {
        let expected = packet(&mut *self.reference, input, CUTS[0]);
        let found = packet(&mut self.object, input, cut);
        self.same(params, &expected, &found, &format!("{why}: {} bytes, cut {cut:?}", input.len()));
        if expected.is_err() {
            self.reset(params);
        }
    }

    fn same(&mut self, params: &[u32], expected: &Outcome, found: &Outcome, why: &str) {
        let name = self.name;
        match (expected, found) {
            (Ok(expected), Ok(found)) => {
                let at = expected.iter().zip(found).position(|(a, b)| a != b);
                let lens = (expected.len(), found.len());
                assert!(expected == found, "{name} {params:x?}, {why}: first other byte {at:?}, lengths {lens:?}");
                for port in 0..self.ports {
                    let values = (self.reference.peek(port), self.object.peek(port));
                    assert_eq!(values.0, values.1, "{name} {params:x?}, {why}: port {port}");
                }
            }
            (Err(a), Err(b)) => assert_eq!(discriminant(a), discriminant(b), "{name} {params:x?}, {why}: {a}; {b}"),
            _ => panic!("{name} {params:x?}, {why}: reference {}, shared object {}", brief(expected), brief(found)),
        }
    }
}

impl Subject<'_> {
    /// Everything below; `seed` chooses the packets.
    pub fn compare(&self, seed: u64, packets: usize) {
        let builtin = weldfs_kernels::find(self.name).unwrap_or_else(|| panic!("no built-in {}", self.name));
        let object = SharedObject::open(self.object).unwrap_or_else(|e| panic!("{e}"));
        let mut pair = Pair { name: self.name, reference: (builtin.make)(), object, ports: self.ports };
        let mut rng = SmallRng::seed_from_u64(seed);
        self.refused(&mut pair);
        self.tails(&mut pair, &mut rng);
        self.random(&mut pair, &mut rng, packets);
        self.cut_anywhere(&mut pair, &mut rng);
        self.no_end(&mut pair, &mut rng);
    }

    /// Wrong parameters are refused, and leave nothing that hinders right ones.
    fn refused(&self, pair: &mut Pair) {
        for params in &self.bad {
            for (kernel, which) in [(&mut *pair.reference, "reference"), (&mut pair.object, "shared object")] {
                let found = kernel.reset(params);
                assert!(matches!(found, Err(Fault::Params(_))), "{} {which}, {params:x?}: {found:?}", self.name);
            }
            pair.reset(&self.good[0]);
            pair.check(&self.good[0], &[], CUTS[0], "after wrong parameters");
        }
    }

    /// Every length around a flit, one packet after the other without a reset, then the next parameters.
    fn tails(&self, pair: &mut Pair, rng: &mut SmallRng) {
        for (i, params) in self.good.iter().enumerate() {
            let (input, output) = STALLS[i % STALLS.len()];
            pair.object.stall(1 + i as u64, input, output);
            pair.reset(params);
            for len in 0..=130 {
                let bytes = (self.packet)(rng, params, len);
                assert_eq!(bytes.len(), len, "{}: the packet's length", self.name);
                pair.check(params, &bytes, CUTS[(len + i) % CUTS.len()], "tails");
            }
        }
        pair.object.stall(0, 0, 0);
    }

    /// Random lengths, cuts and stalls; parameters change between packets, or stay.
    fn random(&self, pair: &mut Pair, rng: &mut SmallRng, packets: usize) {
        let mut params = &self.good[0];
        pair.reset(params);
        for i in 0..packets {
            if rng.random_bool(0.5) {
                params = &self.good[rng.random_range(0..self.good.len())];
                pair.reset(params);
            }
            let (input, output) = STALLS[i % STALLS.len()];
            pair.object.stall(rng.random_range(1..u64::MAX), input, output);
            let longest = self.longest >> rng.random_range(0..4);
            let len = rng.random_range(0..=longest);
            let bytes = (self.packet)(rng, params, len);
            let cut = match i % 3 {
                0 => CUTS[0],
                _ => (rng.random_range(1..=200), rng.random_range(1..=200)),
            };
            pair.check(params, &bytes, cut, "random");
        }
        pair.object.stall(0, 0, 0);
    }

    /// A packet in two pieces, cut at each byte; and cycles do not depend on where.
    fn cut_anywhere(&self, pair: &mut Pair, rng: &mut SmallRng) {
        let params = &self.good[self.good.len() - 1];
        let bytes = (self.packet)(rng, params, 130);
        let mut cycles = None;
        for cut in 0..=bytes.len() {
            pair.reset(params);
            let expected = packet(&mut *pair.reference, &bytes, CUTS[0]);
            let found = two_pieces(&mut pair.object, &bytes, cut);
            let counted = found.as_ref().ok().map(|(_, cycles)| *cycles);
            assert_eq!(*cycles.get_or_insert(counted), counted, "{}: cycles, cut at {cut}", self.name);
            pair.same(params, &expected, &found.map(|(out, _)| out), &format!("cut at {cut}"));
        }
    }

    /// A packet that never ends, then a reset: nothing of it is in the next one.
    fn no_end(&self, pair: &mut Pair, rng: &mut SmallRng) {
        for (i, params) in self.good.iter().enumerate() {
            pair.reset(params);
            let bytes = (self.packet)(rng, params, 64 * i + 100);
            let mut out = vec![0; 1 << 16];
            let step = pair.object.step(&bytes, false, &mut out).unwrap_or_else(|e| panic!("{}: {e}", self.name));
            assert!(!step.done, "{}: done without an end", self.name);
            let params = &self.good[(i + 1) % self.good.len()];
            pair.reset(params);
            let bytes = (self.packet)(rng, params, 130);
            pair.check(params, &bytes, CUTS[0], "after a packet without an end");
        }
    }
}

/// The whole packet in two pieces: output and cycles.
fn two_pieces(kernel: &mut dyn Kernel, bytes: &[u8], cut: usize) -> Result<(Vec<u8>, u64), Fault> {
    let (mut out, mut room, mut at, mut cycles) = (Vec::new(), vec![0; 1 << 16], 0, 0);
    while at < cut {
        let step = kernel.step(&bytes[at..cut], false, &mut room)?;
        out.extend_from_slice(&room[..step.made]);
        (at, cycles) = (at + step.taken, cycles + step.cycles);
    }
    loop {
        let step = kernel.step(&bytes[at..], true, &mut room)?;
        out.extend_from_slice(&room[..step.made]);
        (at, cycles) = (at + step.taken, cycles + step.cycles);
        if step.done {
            return Ok((out, cycles));
        }
    }
}
