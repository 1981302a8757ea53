//! The lookout: what the thread that looks at the rings knows. One at a time has it; `polling` is what it does with it.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll;

use super::rings::Rings;
use super::session::QueueState;
use super::work::Work;
use weldfs_session::clock::now_ns;
use weldfs_session::inbox::Inbox;
use weldfs_session::limits::PUBLISH_NS;

/// What is left for the thread that looks at the rings.
pub(super) enum Message {
    /// Serve this queue pair from now on.
    Queue(Arc<QueueState>),
    /// Drain and drop the queues of this session.
    CloseSession(u64),
    /// End when no queue is left.
    Stop,
}

/// See the module.
pub struct Lookout {
    pub(super) queues: Rings,
    /// Pairs with completions that are posted and not published, and when the first of them was posted.
    pub(super) dirty: Vec<Arc<QueueState>>,
    pub(super) dirty_since: u64,
    pub(super) epoll: OwnedFd,
    pub(super) watched: HashMap<u64, usize>,
    pub(super) spin_ns: u64,
    pub(super) spin_ns_max: u64,
    pub(super) last_work: u64,
    /// Some queue is draining.
    pub(super) ending: bool,
    /// When those that had been drained were looked for last.
    pub(super) reaped: u64,
    /// Some queue holds commands but its completion ring is full.
    pub(super) unreaped: bool,
    pub(super) reap_wait_ns: u64,
    /// When placeholders were last looked at.
    pub(super) swept: u64,
    /// Commands taken so far, modulo 2^32.
    pub(super) taken: u32,
    /// What was set aside has its turn now.
    pub(super) aside: bool,
    pub(super) stop: bool,
    /// Some ring may still say that nothing looks.
    pub(super) announced: bool,
    /// Some ring has not been looked at, for another thread was at it: who lets go of it tells nothing.
    pub(super) missed: bool,
}

fn edge() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::ET
}

impl Lookout {
    pub(super) fn new(inbox: &Inbox<Message>, spin_ns_max: u64) -> std::io::Result<Lookout> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Edge-triggered and never read, as the device's cores have it: no wake-up can be stolen or lost.
        epoll::add(&epoll, inbox.bell(), epoll::EventData::new_u64(0), edge())?;
        Ok(Lookout {
            queues: Rings::default(),
            dirty: Vec::new(),
            dirty_since: 0,
            epoll,
            watched: HashMap::new(),
            spin_ns: spin_ns_max,
            spin_ns_max,
            last_work: now_ns(),
            ending: false,
            reaped: 0,
            unreaped: false,
            reap_wait_ns: 0,
            swept: 0,
            taken: 0,
            aside: false,
            stop: false,
            announced: false,
            missed: false,
        })
    }

    /// Whether another thread should look while this command, which may take long, is run.
    pub(super) fn is_needed(&self, work: &Work) -> bool {
        self.queues.len() > 1 || work.queue.pair.has_entries()
    }

    pub(super) fn add_queue(&mut self, new: Arc<QueueState>) {
        let session = &new.session;
        let watchers = self.watched.entry(session.id).or_insert(0);
        *watchers += 1;
        if *watchers == 1
            && let Err(e) = epoll::add(&self.epoll, &*session.doorbell, epoll::EventData::new_u64(session.id), edge())
        {
            tracing::error!("cannot watch a doorbell: {e}");
        }
        if session.closing() {
            new.pair.ends().start_drain();
            self.ending = true;
        }
        self.queues.add(new.session.tenant.id.0, new);
    }

    /// A completion waits for others of its ring that follow, not for long.
    pub(super) fn note_dirty(&mut self, queue: &Arc<QueueState>) {
        let now = now_ns();
        if self.dirty.is_empty() {
            self.dirty_since = now;
        }
        if self.dirty.last().is_none_or(|last| !Arc::ptr_eq(last, queue)) {
            self.dirty.push(queue.clone());
        }
        if now.saturating_sub(self.dirty_since) > PUBLISH_NS {
            self.publish();
        }
    }

    /// Makes every completion visible.
    pub(super) fn publish_all(&mut self) {
        for queue in self.dirty.drain(..) {
            let mut ends = queue.pair.ends();
            queue.counters.client_wakes.add(ends.publish());
        }
    }

    /// The same, but for rings that another thread is at: they have their turn soon, by whoever looks then.
    pub(super) fn publish(&mut self) {
        self.dirty.retain(|queue| match queue.pair.try_ends() {
            Some(mut ends) => {
                queue.counters.client_wakes.add(ends.publish());
                false
            }
            None => true,
        });
    }

    /// Withdraws the announcements; false where another thread is at a ring, whose client rings meanwhile.
    pub(super) fn withdraw(&self) -> bool {
        let one = |q: &Arc<QueueState>| q.pair.try_ends().map(|mut ends| ends.awake()).is_some();
        self.queues.iter().filter(|q| !one(q)).count() == 0
    }
}
