//! What one thread does next and on which file: the same numbers for every system, and what its files must hold.

use super::personality::{Personality, Sequence};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Bytes of a file at most: one payload.
pub(super) const FILE_MAX: u64 = 1 << 20;
/// Bytes of an append: below this, any length with equal chance.
pub(super) const APPEND_MAX: u64 = 16 << 10;
/// Bytes of a file at least.
const STAMP: u64 = 8;
/// Shape of the distribution of sizes.
const SHAPE: f64 = 1.5;

/// A normally distributed number (Box and Muller).
fn normal(rng: &mut SmallRng) -> f64 {
    let (u, v): (f64, f64) = (rng.random::<f64>().max(f64::MIN_POSITIVE), rng.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// A number with a gamma distribution of this mean (Marsaglia and Tsang, for shapes above 1).
fn gamma(rng: &mut SmallRng, mean: f64) -> f64 {
    let d = SHAPE - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        let u: f64 = rng.random();
        if v > 0.0 && u.max(f64::MIN_POSITIVE).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v * mean / SHAPE;
        }
    }
}

/// One file's step: what a store is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub what: Sequence,
    /// Number of the file, among all threads' files.
    pub file: u64,
    /// Bytes of the file before.
    pub size: u64,
    /// Bytes written.
    pub len: u64,
}

/// The files of one thread.
pub(super) struct Model {
    rng: SmallRng,
    personality: Personality,
    thread: u64,
    threads: u64,
    /// Sizes of the files that exist.
    files: Vec<Option<u64>>,
    /// Bytes that this thread has appended to the log since it cut it.
    logged: u64,
    /// Whether it ever did.
    cut: bool,
}

impl Model {
    /// The part of thread `thread` of `threads` in a set of `files` files.
    pub(super) fn new(p: Personality, files: u64, seed: u64, thread: u64, threads: u64) -> Model {
        let mut rng = SmallRng::seed_from_u64(seed ^ thread.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mine = files / threads + u64::from(thread < files % threads);
        let exist = |rng: &mut SmallRng, i: u64| (i % 10 < p.exist_percent() / 10).then(|| size(rng, p.mean_bytes()));
        let files = (0..mine).map(|i| exist(&mut rng, i)).collect();
        Model { rng, personality: p, thread, threads, files, logged: 0, cut: false }
    }

    /// A file's number among all threads' files.
    fn number(&self, at: usize) -> u64 {
        at as u64 * self.threads + self.thread
    }

    /// The files that exist, with their sizes.
    pub(super) fn existing(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.files.iter().enumerate().filter_map(|(at, f)| f.map(|size| (self.number(at), size)))
    }

    /// The files that do not.
    pub(super) fn missing(&self) -> impl Iterator<Item = u64> + '_ {
        self.files.iter().enumerate().filter(|(_, f)| f.is_none()).map(|(at, _)| self.number(at))
    }

    /// Bytes that the threads' log must hold, at least and at most. A cut takes away what the others appended before
    /// it, too: all that is certain then is what the thread that cut last has appended since.
    pub(super) fn log_bytes(all: &[Model]) -> (u64, u64) {
        let sum = all.iter().map(|m| m.logged).sum();
        let one_owner = all.len() == 1 || all.iter().all(|m| !m.cut);
        (if one_owner { sum } else { all.iter().map(|m| m.logged).min().unwrap_or(0) }, sum)
    }

    /// A file at random, or the next one behind it that will do.
    fn pick(&mut self, good: impl Fn(&Option<u64>) -> bool) -> Option<usize> {
        let from = self.rng.random_range(0..self.files.len());
        (0..self.files.len()).map(|i| (from + i) % self.files.len()).find(|at| good(&self.files[*at]))
    }

    /// The next step for a sequence, taken as done; none where no file will do (a small set that is all there or gone).
    pub(super) fn next(&mut self, what: Sequence) -> Option<Step> {
        use Sequence::*;
        let len = match what {
            // A new file holds at least its stamp.
            CreateAppend { .. } => self.rng.random_range(STAMP..APPEND_MAX),
            OpenAppend | ReadAppendSync | Log => self.rng.random_range(1..APPEND_MAX),
            CreateWhole => size(&mut self.rng, self.personality.mean_bytes()),
            Delete | ReadWhole | Stat => 0,
        };
        if what == Log {
            self.logged += len;
            return Some(Step { what, file: 0, size: 0, len });
        }
        let at = match what {
            CreateAppend { .. } | CreateWhole => self.pick(Option::is_none)?,
            OpenAppend | ReadAppendSync => self.pick(|f| f.is_some_and(|size| size + len <= FILE_MAX))?,
            _ => self.pick(Option::is_some)?,
        };
        let size = self.files[at].unwrap_or(0);
        self.files[at] = if what == Delete { None } else { Some(size + len) };
        Some(Step { what, file: self.number(at), size, len })
    }

    /// Whether this thread has appended its part of the log's greatest length, and so has to cut it now.
    pub(super) fn log_is_long(&mut self, most: u64) -> bool {
        let long = self.logged > most / self.threads;
        if long {
            (self.logged, self.cut) = (0, true);
        }
        long
    }
}

fn size(rng: &mut SmallRng, mean: f64) -> u64 {
    (gamma(rng, mean) as u64).clamp(STAMP, FILE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_mean_and_spread_of_their_distribution() {
        let mut rng = SmallRng::seed_from_u64(1);
        let all: Vec<f64> = (0..200_000).map(|_| gamma(&mut rng, 16_384.0)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / all.len() as f64;
        assert!((mean / 16_384.0 - 1.0).abs() < 0.01, "{mean}");
        // Shape 1.5: the variance is the mean squared over the shape.
        assert!((variance / (16_384.0f64.powi(2) / SHAPE) - 1.0).abs() < 0.03, "{variance}");
    }

    #[test]
    fn what_a_log_must_hold_is_exact_until_one_of_several_threads_cuts_it() {
        let log = |threads| -> Vec<Model> {
            let model = |t| Model::new(Personality::WebServer, 100, 5, t, threads);
            let mut all: Vec<Model> = (0..threads).map(model).collect();
            all.iter_mut().for_each(|m| (0..50).for_each(|_| assert!(m.next(Sequence::Log).is_some())));
            all
        };
        for threads in [1, 3] {
            let mut all = log(threads);
            let (least, most) = Model::log_bytes(&all);
            assert!(least == most && most > 0);
            assert!(all[0].log_is_long(0) && !all[0].log_is_long(1 << 30));
            assert!(all[0].next(Sequence::Log).is_some());
            let (least, sum) = Model::log_bytes(&all);
            assert!(sum < most && least > 0 && (least == sum) == (threads == 1));
        }
    }

    #[test]
    fn a_seed_gives_the_same_steps_and_threads_share_no_file() {
        let steps = |thread| {
            let mut model = Model::new(Personality::MailServer, 1000, 7, thread, 3);
            let turn = Personality::MailServer.turn();
            (0..400).filter_map(|i| model.next(turn[i % turn.len()])).collect::<Vec<Step>>()
        };
        assert_eq!(steps(0), steps(0));
        assert_ne!(steps(0), steps(1));
        assert!(steps(2).iter().all(|s| s.file % 3 == 2 && s.file < 1000));
    }

    #[test]
    fn what_is_read_exists_and_what_is_created_does_not() {
        let mut model = Model::new(Personality::FileServer, 200, 3, 0, 1);
        let mut now: std::collections::HashMap<u64, u64> = model.existing().collect();
        for i in 0..5_000 {
            let turn = Personality::FileServer.turn();
            let Some(step) = model.next(turn[i % turn.len()]) else { panic!("a file for every step") };
            match step.what {
                Sequence::CreateWhole => assert!(now.insert(step.file, step.len).is_none()),
                Sequence::Delete => assert_eq!(now.remove(&step.file), Some(step.size)),
                _ => {
                    assert_eq!(now.get(&step.file), Some(&step.size));
                    now.insert(step.file, step.size + step.len);
                }
            }
            assert!(step.size + step.len <= FILE_MAX);
        }
        let end: std::collections::HashMap<u64, u64> = model.existing().collect();
        assert_eq!(end, now);
        assert!(model.missing().count() + end.len() == 200 && model.missing().all(|f| !end.contains_key(&f)));
    }
}
