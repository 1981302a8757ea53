//! Work for one user that may take long, away from every thread that serves others: each user has a thread for it,
//! which exists while there is any. It takes half of a processor at most, and gives way to the device's cores.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weldfs_locks::Mutex;

/// Users with a thread of their own; further ones share one.
const LANES_MAX: usize = 64;
/// The lane of those: no user has this number.
const SHARED: u32 = u32::MAX;
/// No user has this one, either: what is done for none of them never waits behind what is done for one.
pub(crate) const OF_NONE: u32 = u32::MAX - 1;

/// A lane rests after a piece of work as long as that took, and so long at most.
const REST_MAX: Duration = Duration::from_millis(5);

/// What waits for one user.
struct Lane<T> {
    /// Each with its user.
    waiting: VecDeque<(u32, T)>,
    works: bool,
}

impl<T> Lane<T> {
    fn of(&self, uid: u32) -> usize {
        self.waiting.iter().filter(|(user, _)| *user == uid).count()
    }
}

type All<T> = Mutex<HashMap<u32, Lane<T>>>;

/// Does pieces of work elsewhere, those of one user in their order. Thread-safe. What is not done when it goes, its
/// threads go on with, or the end of the process does.
pub(crate) struct Lanes<T> {
    name: &'static str,
    lanes: Arc<All<T>>,
    work: fn(T),
}

impl<T: Send + 'static> Lanes<T> {
    /// Whose threads are called so, and do this with each piece.
    pub fn new(name: &'static str, work: fn(T)) -> Lanes<T> {
        Lanes { name, lanes: Arc::default(), work }
    }

    /// Takes pieces of work of a user's; how many of this user's wait then. Where no thread is to be had they wait for
    /// one that the next piece gets.
    pub fn take(&self, uid: u32, pieces: impl IntoIterator<Item = T>) -> usize {
        let mut lanes = self.lanes.lock();
        let own = uid == OF_NONE || lanes.contains_key(&uid) || lanes.len() < LANES_MAX;
        let key = if own { uid } else { SHARED };
        let lane = lanes.entry(key).or_insert_with(|| Lane { waiting: VecDeque::new(), works: false });
        lane.waiting.extend(pieces.into_iter().map(|piece| (uid, piece)));
        if !lane.works {
            let (all, work) = (self.lanes.clone(), self.work);
            let thread = std::thread::Builder::new().name(self.name.into());
            lane.works = thread.spawn(move || run(&all, key, work)).is_ok();
        }
        lane.of(uid)
    }

    /// How many of a user's wait, in a lane of its own or in the one that several share.
    pub fn waiting(&self, uid: u32) -> usize {
        let lanes = self.lanes.lock();
        [uid, SHARED].iter().filter_map(|key| lanes.get(key)).map(|lane| lane.of(uid)).sum()
    }

    /// How many wait of all users'.
    pub fn total(&self) -> usize {
        self.lanes.lock().values().map(|lane| lane.waiting.len()).sum()
    }

    /// Whether everything is done.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.lanes.lock().is_empty()
    }
}

fn run<T>(lanes: &All<T>, key: u32, work: fn(T)) {
    weldfs_waiting::give_way();
    loop {
        let next = {
            let mut lanes = lanes.lock();
            let next = lanes.get_mut(&key).and_then(|lane| lane.waiting.pop_front());
            if next.is_none() {
                lanes.remove(&key);
            }
            next
        };
        // Not under the lock: this is what takes long.
        match next {
            Some((_, piece)) => {
                let begun = Instant::now();
                work(piece);
                std::thread::sleep(begun.elapsed().min(REST_MAX));
            }
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    #[test]
    fn what_waits_for_users_without_a_lane_of_their_own_is_counted() {
        let lanes: Lanes<Arc<Mutex<Receiver<()>>>> = Lanes::new("test", |until| {
            // Until the other end goes.
            let _ = until.lock().recv();
        });
        let (end, until) = channel();
        let until = Arc::new(Mutex::new(until));
        let users = LANES_MAX as u32 + 3;
        for uid in 0..users {
            // One is at work, or about to be.
            lanes.take(uid, (0..3).map(|_| until.clone()));
        }
        assert!((0..users).all(|uid| (2..=3).contains(&lanes.waiting(uid))), "each has some that wait");
        assert_eq!(lanes.take(users - 1, [until.clone()]), lanes.waiting(users - 1), "and hears of its own");
        assert!((3..=4).contains(&lanes.waiting(users - 1)));
        assert_eq!(lanes.waiting(users), 0, "one that has sent nothing has nothing to do with it");
        assert!(lanes.total() >= 2 * users as usize);
        assert!(lanes.take(OF_NONE, (0..2).map(|_| until.clone())) >= 1);
        assert!(lanes.lanes.lock().contains_key(&OF_NONE), "it shares no lane");
        drop(end);
        let start = Instant::now();
        while !lanes.is_idle() {
            assert!(start.elapsed() < Duration::from_secs(20), "all is done in the end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
