//! Memory of queue pairs that are over, and the thread that gives it back.
//!
//! To unmap a pool of 64 MiB takes the kernel milliseconds, most of all when the client is gone and its pages go with
//! it; and what is small, some hundred microseconds beside a thread that maps another one. No core has that time, nor
//! has the thread that looks at rings: what is shared with a client, or large, is unmapped by a thread of its own,
//! which exists while there is any and for a while after. Until then it is charged to its tenant, so whoever makes and
//! drops queue pairs has no more memory than its share, and no more of the thread than that memory takes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weldfs_ciscops::SharedRegion;
use weldfs_locks::{Condvar, Mutex};

use super::clock::cpu_ns;

/// From so many bytes on it is large.
const LARGE: u64 = 1 << 20;
/// How many that are not large are given back before the next large one, bytes and all: whose are small do not wait for
/// all of those whose are large.
const SMALL_FIRST: u32 = 16;
/// How long it is looked whether the last user of a region has let go of it: cores drop a ring that is over soon.
const IN_USE_MAX: Duration = Duration::from_millis(400);
/// How long it is waited before another look.
const LOOK_AGAIN: Duration = Duration::from_micros(200);
/// How long the thread stays when there is nothing to give back: to start one takes those that serve more time than to
/// unmap what is small.
const STAYS: Duration = if cfg!(test) { Duration::from_secs(30) } else { Duration::from_secs(1) };

/// Memory to be given back.
struct Leaving {
    region: SharedRegion,
    /// What is told when it is gone: the nanoseconds of a processor that it took.
    given: Box<dyn FnOnce(u64) + Send>,
    /// When it was first looked at, and was in use.
    since: Option<Instant>,
}

#[derive(Default)]
struct State {
    small: VecDeque<Leaving>,
    large: VecDeque<Leaving>,
    /// Small ones since the last large one.
    passed: u32,
    /// In use, one after another, when they were looked at.
    in_use: usize,
    /// There is a thread.
    works: bool,
    /// Nothing comes any more.
    over: bool,
}

impl State {
    fn line(&mut self, leaving: &Leaving) -> &mut VecDeque<Leaving> {
        if leaving.region.len() as u64 >= LARGE { &mut self.large } else { &mut self.small }
    }

    fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    fn next(&mut self) -> Option<Leaving> {
        if self.large.is_empty() || self.passed < SMALL_FIRST && !self.small.is_empty() {
            self.passed = self.passed.saturating_add(1);
            return self.small.pop_front();
        }
        self.passed = 0;
        self.large.pop_front()
    }

    /// What is in use comes again. Whether all there is, is.
    fn again(&mut self, leaving: Leaving) -> bool {
        let since = leaving.since.or_else(|| Some(Instant::now()));
        self.line(&leaving).push_back(Leaving { since, ..leaving });
        self.in_use += 1;
        let all = self.in_use >= self.small.len() + self.large.len();
        if all {
            self.in_use = 0;
        }
        all
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
    /// What its thread does first.
    begins: Option<Box<dyn Fn() + Send + Sync>>,
}

/// See the module. Thread-safe.
#[derive(Default)]
pub struct Leavings {
    shared: Arc<Shared>,
}

impl Drop for Leavings {
    fn drop(&mut self) {
        self.shared.state.lock().over = true;
        self.shared.news.notify_one();
    }
}

impl Leavings {
    /// Whose thread does this first: a thread inherits where it may run of the one that starts it.
    pub fn beginning(begins: impl Fn() + Send + Sync + 'static) -> Leavings {
        Leavings { shared: Arc::new(Shared { begins: Some(Box::new(begins)), ..Shared::default() }) }
    }

    /// Gives back the memory of a queue pair that nothing is taken from any more; `given` is called when that is done,
    /// with the nanoseconds of a processor that it took.
    pub fn take(&self, region: SharedRegion, given: impl FnOnce(u64) + Send + 'static) {
        let elsewhere = region.is_mapped() || region.len() as u64 >= LARGE;
        let leaving = Leaving { region, given: Box::new(given), since: None };
        if !elsewhere {
            return leaving.go();
        }
        let mut state = self.shared.state.lock();
        if state.works {
            state.line(&leaving).push_back(leaving);
            drop(state);
            return self.shared.news.notify_one();
        }
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("weldfs-unmap".into());
        state.works = thread.spawn(move || work(&shared)).is_ok();
        if state.works {
            state.line(&leaving).push_back(leaving);
        } else {
            drop(state);
            leaving.go();
        }
    }
}

fn work(shared: &Shared) {
    weldfs_waiting::give_way();
    if let Some(begins) = &shared.begins {
        begins();
    }
    loop {
        let next = {
            let mut state = shared.state.lock();
            if state.is_empty() && !state.over {
                shared.news.wait_for(&mut state, STAYS);
            }
            let next = state.next();
            state.works = next.is_some();
            next
        };
        match next {
            Some(leaving) if !leaving.region.is_last() && leaving.may_be_waited_for() => {
                let all = shared.state.lock().again(leaving);
                if all {
                    std::thread::sleep(LOOK_AGAIN);
                }
            }
            Some(leaving) => {
                shared.state.lock().in_use = 0;
                leaving.go_in_pieces();
            }
            None => return,
        }
    }
}

impl Leaving {
    fn may_be_waited_for(&self) -> bool {
        self.since.is_none_or(|since| since.elapsed() < IN_USE_MAX)
    }

    fn go(self) {
        let begin = cpu_ns();
        drop(self.region);
        (self.given)(cpu_ns().saturating_sub(begin));
    }

    /// Other threads run in between.
    fn go_in_pieces(self) {
        let begin = cpu_ns();
        self.region.give_back();
        (self.given)(cpu_ns().saturating_sub(begin));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn shared(len: usize) -> SharedRegion {
        let fd = weldfs_ciscops::private_memfd("of-a-client").unwrap();
        rustix::fs::ftruncate(&fd, len as u64).unwrap();
        SharedRegion::map(&fd, len).unwrap()
    }

    #[test]
    fn what_is_small_does_not_wait_for_all_that_is_large_nor_keeps_it_waiting_without_end() {
        let leavings = Leavings::default();
        let (tell, told) = mpsc::channel();
        // One that its thread waits for while the others come.
        let first = SharedRegion::heap(LARGE as usize);
        let user = first.clone();
        let (began, has_begun) = mpsc::channel();
        leavings.take(first, move |_| began.send(()).unwrap());
        {
            let mut state = leavings.shared.state.lock();
            let mut put = |region: SharedRegion, what: char| {
                let tell = tell.clone();
                let leaving = Leaving { region, given: Box::new(move |_| tell.send(what).unwrap()), since: None };
                state.line(&leaving).push_back(leaving);
            };
            (0..3).for_each(|_| put(SharedRegion::heap(LARGE as usize), 'L'));
            (0..120).for_each(|_| put(shared(4096), 's'));
            state.passed = 0;
        }
        drop((user, tell));
        has_begun.recv_timeout(Duration::from_secs(10)).unwrap();
        let order: String = told.iter().collect();
        let of = |what| order.chars().filter(|c| *c == what).count();
        assert_eq!((of('L'), of('s')), (3, 120));
        let runs: Vec<usize> = order.split('L').map(str::len).collect();
        // (The first one may have a turn and be in use.)
        assert!(runs.iter().take(3).all(|run| *run <= 2 * SMALL_FIRST as usize), "{order}");
        assert!(order.find('s') < order.rfind('L'), "{order}");
        assert!(order.find("LL").is_none(), "{order}");
    }

    /// Sleeps of 1 ns, as they were, ended no turn: the timer was over first, and who waited for the processor went on
    /// waiting.
    #[test]
    fn a_breath_takes_a_thread_that_gives_way_off_its_processor() {
        let switches = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            count.unwrap().trim().parse::<u32>().unwrap()
        };
        let slept = std::thread::spawn(move || {
            weldfs_waiting::give_way();
            let before = switches();
            (0..200).for_each(|_| std::thread::sleep(weldfs_ciscops::pool::BREATH));
            switches() - before
        });
        assert!(slept.join().unwrap() >= 20);
    }

    #[test]
    fn its_thread_goes_with_it_and_begins_with_what_it_is_told() {
        let (tell, told) = mpsc::channel();
        let leavings = Leavings::beginning(move || tell.send(std::thread::current().id()).unwrap());
        let (gone, is_gone) = mpsc::channel();
        leavings.take(shared(4096), move |_| gone.send(std::thread::current().id()).unwrap());
        let thread = is_gone.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(told.recv(), Ok(thread));
        let shared = Arc::downgrade(&leavings.shared);
        let start = std::time::Instant::now();
        drop(leavings);
        while shared.upgrade().is_some() {
            assert!(start.elapsed() < Duration::from_secs(10), "it stays");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(start.elapsed() < STAYS, "it stays as long as if more could come");
    }

    #[test]
    fn large_memory_is_given_back_by_another_thread_once_nothing_uses_it_and_charged_until_then() {
        let leavings = Leavings::default();
        let (tell, told) = mpsc::channel();
        let region = SharedRegion::heap(4 << 20);
        let user = region.clone();
        let here = std::thread::current().id();
        leavings.take(region, move |_| tell.send(std::thread::current().id()).unwrap());
        assert!(told.try_recv().is_err(), "it is in use");
        drop(user);
        assert_ne!(told.recv_timeout(Duration::from_secs(10)).unwrap(), here);
        let (tell, told) = mpsc::channel();
        for i in 0..100 {
            let tell = tell.clone();
            leavings.take(SharedRegion::heap(1 << 20), move |_| tell.send(i).unwrap());
        }
        drop(tell);
        assert_eq!(told.iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>(), "each once, in their order");
    }

    #[test]
    fn small_memory_of_this_process_is_given_back_at_once_and_what_is_shared_with_a_client_elsewhere() {
        let (leavings, given) = (Leavings::default(), Arc::new(Mutex::new(false)));
        let set = given.clone();
        leavings.take(SharedRegion::heap(4096), move |_| *set.lock() = true);
        assert!(*given.lock());
        let (tell, told) = mpsc::channel();
        leavings.take(shared(4096), move |_| tell.send(std::thread::current().id()).unwrap());
        assert_ne!(told.recv_timeout(Duration::from_secs(10)).unwrap(), std::thread::current().id());
    }
}
