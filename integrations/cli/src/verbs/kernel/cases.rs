//! What a kernel is tried with: parameters, packets, and how both sides of it are cut and stalled.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Bytes of the longest packet.
const LONGEST: usize = 2000;
/// The tails: packets of every length up to two flits and a bit.
const TAILS: usize = 130;

/// How the packet is handed over, and its output taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Chooses the sizes of pieces, 1 to `piece` and 1 to `room` bytes; 0: they always have these sizes.
    pub seed: u64,
    /// Input comes in pieces of so many bytes.
    pub piece: usize,
    /// Output is taken in pieces of so many bytes.
    pub room: usize,
}

impl Cut {
    /// Everything at once.
    pub const WHOLE: Cut = Cut { seed: 0, piece: 1 << 20, room: 1 << 20 };

    /// The sizes, step by step.
    pub fn sizes(self) -> impl FnMut() -> (usize, usize) {
        let mut rng = SmallRng::seed_from_u64(self.seed);
        move || match self.seed {
            0 => (self.piece, self.room),
            _ => (rng.random_range(1..=self.piece), rng.random_range(1..=self.room)),
        }
    }
}

/// Cycles in a thousand at which each side stalls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stall {
    /// Chooses the cycles; not 0.
    pub seed: u64,
    /// Of the input.
    pub input: u32,
    /// Of the output.
    pub output: u32,
}

/// From one reset to the last packet before the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Other parameters, and the beginning of a packet that a reset cuts off.
    pub before: Option<(Vec<u32>, Vec<u8>)>,
    /// The parameters.
    pub params: Vec<u32>,
    /// The packets, one after the other.
    pub packets: Vec<Vec<u8>>,
    /// How they are cut.
    pub cut: Cut,
    /// Stalls, where the back-end can.
    pub stall: Option<Stall>,
}

impl Case {
    /// One packet, at once.
    pub fn plain(params: &[u32], packet: Vec<u8>) -> Case {
        Case { before: None, params: params.to_vec(), packets: vec![packet], cut: Cut::WHOLE, stall: None }
    }
}

/// Makes cases; the same seed gives the same ones.
pub struct Maker<'a> {
    rng: SmallRng,
    lists: &'a [Vec<u32>],
    samples: &'a [Vec<u8>],
    stalls: [Option<Stall>; 4],
}

impl<'a> Maker<'a> {
    /// `lists`: parameters, at least one list. `samples`: packets that mean something to the kernel.
    pub fn new(seed: u64, lists: &'a [Vec<u32>], samples: &'a [Vec<u8>]) -> Maker<'a> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut stall = |input, output| Some(Stall { seed: rng.random_range(1..u64::MAX), input, output });
        // Few: each is a process of its own.
        let stalls = [None, stall(500, 0), stall(0, 700), stall(400, 600)];
        Maker { rng, lists, samples, stalls }
    }

    /// Every length from nothing to two flits and a bit.
    pub fn tails(&mut self) -> Vec<Case> {
        (0..=TAILS)
            .map(|len| {
                let packet = self.packet(len);
                let mut case = Case::plain(&self.lists[len % self.lists.len()], packet);
                (case.cut, case.stall) = (self.cut(), self.stall());
                case
            })
            .collect()
    }

    /// Anything.
    pub fn random(&mut self) -> Case {
        let params = self.params();
        let packets = (0..self.rng.random_range(1..=3)).map(|_| self.some()).collect();
        let before = self.rng.random_bool(0.3).then(|| (self.params(), self.some()));
        Case { before, params, packets, cut: self.cut(), stall: self.stall() }
    }

    fn params(&mut self) -> Vec<u32> {
        self.lists[self.rng.random_range(0..self.lists.len())].clone()
    }

    fn some(&mut self) -> Vec<u8> {
        let longest = LONGEST >> self.rng.random_range(0..5);
        let len = self.rng.random_range(0..=longest);
        self.packet(len)
    }

    fn cut(&mut self) -> Cut {
        let seed = self.rng.random_range(1..u64::MAX);
        match self.rng.random_range(0..4) {
            0 => Cut::WHOLE,
            1 => Cut { seed: 0, piece: 64, room: 64 },
            2 => Cut { seed, piece: 9, room: 9 },
            _ => Cut { seed, piece: 200, room: 200 },
        }
    }

    fn stall(&mut self) -> Option<Stall> {
        self.stalls[self.rng.random_range(0..self.stalls.len())]
    }

    /// A packet of so many bytes: noise, text, bytes of few values, or something like a sample.
    fn packet(&mut self, len: usize) -> Vec<u8> {
        const TEXT: &[u8] = b"abcdefghijklmnopqrstuvwxyz ABCDEFGHIJ0123456789,.\n";
        let rng = &mut self.rng;
        match rng.random_range(0..6) {
            0 => (0..len).map(|_| rng.random()).collect(),
            1 => (0..len).map(|_| [0, 1, 10, 255][rng.random_range(0..4)]).collect(),
            2 => (0..len).map(|_| TEXT[rng.random_range(0..TEXT.len())]).collect(),
            kind => {
                let samples: Vec<_> = self.samples.iter().filter(|s| !s.is_empty()).collect();
                if samples.is_empty() {
                    return (0..len).map(|_| TEXT[rng.random_range(0..TEXT.len())]).collect();
                }
                let sample = samples[rng.random_range(0..samples.len())];
                let start = rng.random_range(0..sample.len());
                let mut bytes: Vec<u8> = sample.iter().copied().cycle().skip(start).take(len).collect();
                if kind == 5 && len > 0 {
                    bytes[rng.random_range(0..len)] = rng.random();
                }
                bytes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_cases_and_the_tails_have_every_length() {
        let (lists, samples) = (vec![vec![0], vec![]], vec![b"sample".to_vec()]);
        let make = |seed| {
            let mut maker = Maker::new(seed, &lists, &samples);
            (maker.tails(), (0..50).map(|_| maker.random()).collect::<Vec<_>>())
        };
        assert_eq!(make(7), make(7));
        assert_ne!(make(7), make(8));
        let (tails, random) = make(7);
        assert!(tails.iter().map(|c| c.packets[0].len()).eq(0..=130));
        assert!(random.iter().any(|c| c.before.is_some()) && random.iter().any(|c| c.packets.len() == 3));
        assert!(random.iter().any(|c| c.stall.is_some()) && random.iter().any(|c| c.cut == Cut::WHOLE));
    }
}
