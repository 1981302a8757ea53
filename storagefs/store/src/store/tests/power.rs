//! Power cuts at any event of a run, on both media models: the image mounts, fsck is clean before and after, and the
//! state is that after some prefix of the operations which holds every one acknowledged as durable.

use super::model::{Shown, shown};
use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use weldfs_media::{CrashModel, RecordingMedium, Replayer};

/// Runs random acts; returns the recording and, per act, (position after it, durable to there, state).
fn record(model: CrashModel, acts: &[Act], seed: u64) -> (RecordingRun, Arc<RecordingMedium>) {
    let medium = Arc::new(RecordingMedium::new(6 << 20, model));
    let as_medium: Arc<dyn Medium> = medium.clone();
    let geometry = GeometryOptions { log_len: Some(256 << 10), group_blocks: Some(512), ..Default::default() };
    let mkfs = MkfsOptions { geometry, inline_max: Some(600), ..Default::default() };
    format(&as_medium, &mkfs, &ManualClock::default(), &SeededRandom::new(seed)).unwrap();
    let mut w = World::new(mount(&as_medium).0);
    let mut run = RecordingRun { start: medium.position(), steps: vec![(medium.position(), true, w.expected())] };
    let mut rng = SmallRng::seed_from_u64(seed);
    for act in acts {
        match act {
            Act::Checkpoint => {
                w.store().checkpoint().unwrap();
            }
            Act::Reclaim => w.reclaim(),
            Act::Crash => {
                // What a killed process had not handed to a block medium is gone, which the model does not know.
                w.store().journal().wait(w.last()).unwrap();
                w = w.remount(|| mount(&as_medium).0, false);
            }
            Act::Unmount => w = w.remount(|| mount(&as_medium).0, true),
            other => w.run(other),
        }
        let durable = rng.random_bool(0.4);
        if durable {
            w.store().journal().wait(w.last()).unwrap();
        }
        run.steps.push((medium.position(), durable, w.expected()));
    }
    (run, medium)
}

struct RecordingRun {
    start: u64,
    steps: Vec<(u64, bool, Shown)>,
}

impl RecordingRun {
    fn judge(&self, position: u64, image: Vec<u8>) {
        let medium: Arc<dyn Medium> = Arc::new(RamLike::from_image(image));
        assert_fsck(&medium);
        let (store, _) = mount(&medium);
        let state = shown(&store);
        let floor = self.steps.iter().rposition(|(at, durable, _)| *durable && *at <= position).unwrap_or(0);
        let found = self.steps[floor..].iter().any(|(_, _, s)| *s == state);
        assert!(found, "the state at event {position} is none from step {floor} on: {state:?}");
        store.blocking(|| store.reclaim_all()).unwrap();
        store.unmount().unwrap();
        drop(store);
        assert_fsck(&medium);
        assert_eq!(shown(&mount(&medium).0), state);
    }
}

/// A crash state goes on as a RAM medium: recovery does not depend on the kind.
type RamLike = RamMedium;

trait FromImage {
    fn from_image(image: Vec<u8>) -> Self;
}

impl FromImage for RamMedium {
    fn from_image(image: Vec<u8>) -> RamMedium {
        let m = RamMedium::new(image.len() as u64);
        m.write(0, &image).unwrap();
        m
    }
}

fn cut_power(model: CrashModel, runs: u64, cuts: u64) {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for seed in 0..runs {
        let acts = proptest::collection::vec(model::act(), 30..60).new_tree(&mut runner).unwrap().current();
        let (run, medium) = record(model, &acts, seed);
        let recording = medium.recording();
        let mut replayer = Replayer::new(&recording, 64);
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut at: Vec<u64> = (0..cuts).map(|_| rng.random_range(run.start..=recording.len())).collect();
        at.sort_unstable();
        for (i, position) in at.into_iter().enumerate() {
            replayer.goto(position);
            run.judge(position, replayer.image(i as u64 % 8));
        }
    }
}

#[test]
fn a_power_cut_on_pmem_leaves_a_prefix_with_everything_durable() {
    cut_power(CrashModel::Pmem, 5, 30);
}

#[test]
fn a_power_cut_on_block_leaves_a_prefix_with_everything_durable() {
    cut_power(CrashModel::Block, 5, 30);
}
