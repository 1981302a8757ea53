//! Sessions come and go: a client attaches, has queue pairs, and gives everything back at its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weldfs_ciscops::Errno;

use super::core::{Core, Sessions};
use super::lookout::Message;
use super::session::{QueueState, SessionState};
use weldfs_session::clock::now_ns;
use weldfs_session::counters::Totals;
use weldfs_session::rings::QueueParts;
use weldfs_session::tenants::{Identity, Resource};

impl Core {
    /// A new session. EACCES for another user where this process has its own rights only.
    pub(super) fn attach(&self, who: Identity, client_id: [u8; 16]) -> Result<Arc<SessionState>, Errno> {
        if !self.for_others && who.cred.uid != self.uid {
            return Err(Errno::ACCES);
        }
        let mut sessions = self.sessions.lock();
        if sessions.refuse {
            return Err(Errno::NODEV);
        }
        let tenant = self.tenants.of(&who);
        if !tenant.take(Resource::Sessions, 1) {
            return Err(Errno::MFILE);
        }
        let id = self.next_session.fetch_add(1, Ordering::Relaxed);
        let state =
            SessionState::new(id, (who.cred, client_id), tenant.clone(), self.config.handles_max, self.budget.clone());
        let state = Arc::new(state.inspect_err(|_| tenant.give(Resource::Sessions, 1))?);
        sessions.live.insert(id, state.clone());
        *sessions.of_tenants.entry(state.tenant.id.0).or_default() += 1;
        self.note_tenants(&sessions);
        Ok(state)
    }

    /// A queue pair of a session, in memory that can be shared or of this process.
    pub(super) fn open_queue(
        &self,
        session: &Arc<SessionState>,
        depth: u32,
        pool_bytes: u32,
        shared: bool,
    ) -> Result<QueueParts, Errno> {
        session.new_queue((depth, pool_bytes, shared), |queue| {
            self.inbox.send(Message::Queue(queue.clone()));
            if self.is_poisoned() {
                // It may have come too late to be closed with the others.
                queue.pair.ends().close();
            }
        })
    }

    /// A queue pair has been drained and dropped.
    pub(super) fn queue_gone(&self, queue: &Arc<QueueState>) {
        let session = &queue.session;
        let last = session.rings.gone(queue);
        self.leavings.take(queue.pool.clone(), session.refund(queue.pair.bytes));
        if last {
            self.clean_up(session);
        }
    }

    /// Starts the end of a session: no new queues; what was published is executed, then everything is given back.
    pub(super) fn close(&self, session: &Arc<SessionState>) {
        if session.rings.close(|| self.inbox.send(Message::CloseSession(session.id))) {
            self.clean_up(session);
        }
    }

    fn clean_up(&self, session: &Arc<SessionState>) {
        if !session.rings.clean_up() {
            return;
        }
        session.keys.clear();
        self.files.locks.release_session(session.id);
        if session.handles.close_all() {
            self.watch_placeholders();
        }
        self.session_gone(session, || session.rings.retire());
    }

    fn session_gone(&self, session: &Arc<SessionState>, totals: impl FnOnce() -> Totals) {
        let mut sessions = self.sessions.lock();
        session.tenant.retire(&totals());
        session.tenant.give(Resource::Sessions, 1);
        if sessions.live.remove(&session.id).is_some()
            && let Some(n) = sessions.of_tenants.get_mut(&session.tenant.id.0)
        {
            *n -= 1;
            if *n == 0 {
                sessions.of_tenants.remove(&session.tenant.id.0);
            }
        }
        self.note_tenants(&sessions);
        if sessions.live.is_empty() {
            self.no_sessions.notify_all();
        }
        drop(sessions);
        self.departures.note();
    }

    fn note_tenants(&self, sessions: &Sessions) {
        self.several.store(sessions.of_tenants.len() > 1, Ordering::Relaxed);
    }

    pub(super) fn with_sessions<R>(&self, f: impl FnOnce(&mut dyn Iterator<Item = &Arc<SessionState>>) -> R) -> R {
        f(&mut self.sessions.lock().live.values())
    }

    /// The sessions of a user that are ending.
    pub(super) fn departing(&self, uid: u32) -> Vec<u64> {
        let sessions = self.sessions.lock();
        sessions.live.values().filter(|s| s.cred.uid == uid && s.closing()).map(|s| s.id).collect()
    }

    /// Whether a session is there.
    pub(super) fn has_session(&self, id: u64) -> bool {
        self.sessions.lock().live.contains_key(&id)
    }

    /// Ends this session: its client lied about a ring.
    pub(super) fn kill_session(&self, id: u64) {
        let session = self.sessions.lock().live.get(&id).cloned();
        if let Some(session) = session {
            self.close(&session);
        }
    }

    /// No new sessions; those there are end, then the threads do.
    pub(super) fn end(&self) {
        let mut sessions = self.sessions.lock();
        sessions.refuse = true;
        self.ending_since.store(now_ns().max(1), Ordering::Relaxed);
        let live: Vec<_> = sessions.live.values().cloned().collect();
        weldfs_locks::MutexGuard::unlocked(&mut sessions, &self.sessions, || live.iter().for_each(|s| self.close(s)));
        while !sessions.live.is_empty() && !self.is_poisoned() {
            self.no_sessions.wait_for(&mut sessions, Duration::from_millis(100));
        }
        drop(sessions);
        self.inbox.send(Message::Stop);
    }
}
