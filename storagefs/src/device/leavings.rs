//! Memory of queue pairs that are over, and the thread that gives it back.
//!
//! To unmap a pool of 64 MiB takes the kernel milliseconds, most of all when the client is gone and its pages go with
//! it; and what is small, some hundred microseconds beside a thread that maps another one. No core has that time, nor
//! has the thread that looks at rings: what is shared with a client, or large, is unmapped by a thread of its own,
//! which exists while there is any and for a while after. Until then it is charged to its tenant, so whoever makes and
//! drops queue pairs has no more memory than its share, and no more of the thread than that memory takes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use weldfs_ciscops::SharedRegion;
use weldfs_locks::{Condvar, Mutex};

use super::clock::now_ns;

/// What is smaller, and of this process only, is given back where it is let go of, bytes.
const AT_ONCE_MAX: u64 = 1 << 20;
/// How often it is looked whether the last user of a region has let go of it: cores drop a ring that is over soon.
const LOOKS: u32 = 2000;
/// How long it is waited before another look.
const LOOK_AGAIN: Duration = Duration::from_micros(200);
/// How long the thread stays when there is nothing to give back: to start one takes those that serve more time than to
/// unmap what is small.
const STAYS: Duration = Duration::from_secs(1);

/// Memory to be given back.
struct Leaving {
    region: SharedRegion,
    /// What is told when it is gone: the nanoseconds that it took.
    given: Box<dyn FnOnce(u64) + Send>,
    /// How often it was looked at, and was in use.
    looks: u32,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Leaving>,
    /// There is a thread.
    works: bool,
    /// Nothing comes any more.
    over: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

/// See the module. Thread-safe.
#[derive(Default)]
pub(crate) struct Leavings {
    shared: Arc<Shared>,
}

impl Drop for Leavings {
    fn drop(&mut self) {
        self.shared.state.lock().over = true;
        self.shared.news.notify_one();
    }
}

/// Whether the memory of a queue pair is given back by a thread of its own.
pub(crate) fn is_given_back_elsewhere(region: &SharedRegion, bytes: u64) -> bool {
    region.is_mapped() || bytes >= AT_ONCE_MAX
}

impl Leavings {
    /// Gives back the memory of a queue pair that nothing is taken from any more; `given` is called when that is done.
    pub fn take(&self, region: SharedRegion, bytes: u64, given: impl FnOnce(u64) + Send + 'static) {
        let elsewhere = is_given_back_elsewhere(&region, bytes);
        let leaving = Leaving { region, given: Box::new(given), looks: 0 };
        if !elsewhere {
            return unmap(leaving);
        }
        let mut state = self.shared.state.lock();
        state.waiting.push_back(leaving);
        if state.works {
            self.shared.news.notify_one();
        } else {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("weldfs-unmap".into());
            state.works = thread.spawn(move || work(&shared)).is_ok();
        }
        if !state.works
            && let Some(leaving) = state.waiting.pop_back()
        {
            drop(state);
            unmap(leaving);
        }
    }
}

fn work(shared: &Shared) {
    weldfs_waiting::give_way();
    run_where_the_process_does();
    loop {
        let next = {
            let mut state = shared.state.lock();
            if state.waiting.is_empty() && !state.over {
                shared.news.wait_for(&mut state, STAYS);
            }
            let next = state.waiting.pop_front();
            state.works = next.is_some();
            next
        };
        match next {
            Some(leaving) if leaving.looks < LOOKS && !leaving.region.is_last() => {
                shared.state.lock().waiting.push_back(Leaving { looks: leaving.looks + 1, ..leaving });
                std::thread::sleep(LOOK_AGAIN);
            }
            Some(leaving) => unmap(leaving),
            None => return,
        }
    }
}

/// A thread inherits where it may run of the one that started it, which may be kept to some processors for a while.
fn run_where_the_process_does() {
    if let Ok(all) = rustix::thread::sched_getaffinity(Some(rustix::process::getpid())) {
        let _ = rustix::thread::sched_setaffinity(None, &all);
    }
}

fn unmap(leaving: Leaving) {
    let begin = now_ns();
    leaving.region.give_back();
    (leaving.given)(now_ns().saturating_sub(begin));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn large_memory_is_given_back_by_another_thread_once_nothing_uses_it_and_charged_until_then() {
        let leavings = Leavings::default();
        let (tell, told) = mpsc::channel();
        let region = SharedRegion::heap(4 << 20);
        let user = region.clone();
        let here = std::thread::current().id();
        leavings.take(region, 4 << 20, move |_| tell.send(std::thread::current().id()).unwrap());
        assert!(told.try_recv().is_err(), "it is in use");
        drop(user);
        assert_ne!(told.recv_timeout(Duration::from_secs(10)).unwrap(), here);
        let (tell, told) = mpsc::channel();
        for i in 0..100 {
            let tell = tell.clone();
            leavings.take(SharedRegion::heap(1 << 20), 1 << 20, move |_| tell.send(i).unwrap());
        }
        drop(tell);
        assert_eq!(told.iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>(), "each once, in their order");
    }

    #[test]
    fn small_memory_of_this_process_is_given_back_at_once_and_what_is_shared_with_a_client_elsewhere() {
        let (leavings, given) = (Leavings::default(), Arc::new(Mutex::new(false)));
        let set = given.clone();
        leavings.take(SharedRegion::heap(4096), 4096, move |_| *set.lock() = true);
        assert!(*given.lock());
        let fd = weldfs_ciscops::private_memfd("of-a-client").unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        let (tell, told) = mpsc::channel();
        let region = SharedRegion::map(&fd, 4096).unwrap();
        leavings.take(region, 4096, move |_| tell.send(std::thread::current().id()).unwrap());
        assert_ne!(told.recv_timeout(Duration::from_secs(10)).unwrap(), std::thread::current().id());
    }
}
