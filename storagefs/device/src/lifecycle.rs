//! Sessions and queue pairs: how they come, and how they go.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use weldfs_ciscops::Errno;
use weldfs_session::counters::Totals;
use weldfs_session::rings::QueueParts;
use weldfs_session::tenants::{Identity, Resource};

use super::core::{Core, policy_weight};
use super::message::Message;
use super::session::{QueueState, SessionState};

impl Core {
    /// A new session. EMFILE at the device's limit, ENODEV while it shuts down.
    pub(super) fn attach(
        &self,
        who: Identity,
        client_id: [u8; 16],
        prefix: Vec<u8>,
    ) -> Result<Arc<SessionState>, Errno> {
        self.sessions.enter(|| {
            let tenant = self.tenants.of(&who);
            if !tenant.take(Resource::Sessions, 1) {
                return Err(Errno::MFILE);
            }
            self.board.runq.set_weight(tenant.id, || policy_weight(tenant.weight()));
            if let Err(e) = self.memory.set_share(&tenant)
                && tenant.log.permits()
            {
                tracing::warn!("tenant {} has no guarantee of memory: {e}", tenant.name);
            }
            let id = self.sessions.next_id();
            let shared = (self.pools.clone(), self.io.clone());
            let handles_max = self.config.handles_max;
            let state = SessionState::new((id, client_id), who.cred, tenant.clone(), prefix, handles_max, shared);
            let state = state.map_err(|e| {
                tenant.give(Resource::Sessions, 1);
                Errno(e.raw_os_error().unwrap_or(Errno::MFILE.0))
            })?;
            Ok(Arc::new(state))
        })
    }

    /// A new queue pair of a session, of so many commands and bytes of pool; `shared`: with another process.
    pub(super) fn new_queue(
        &self,
        session: &Arc<SessionState>,
        (depth, pool_bytes, shared): (u32, u32, bool),
    ) -> Result<QueueParts, Errno> {
        session.new_queue((depth, pool_bytes, shared), || self.home_of_next(), |queue| self.place_queue(queue))
    }

    /// A queue pair is dropped: by the device thread that has drained it, or with all of an abandoned device.
    pub(super) fn pair_gone(&self, queue: &Arc<QueueState>) {
        self.queue_gone(queue);
        let session = &queue.session;
        self.watches.end_ring(queue);
        let last = session.queue_gone(queue);
        let (bytes, tenant) = (queue.pair.bytes, session.tenant.clone());
        let (session_left, pools, board) = (Arc::downgrade(session), self.pools.clone(), self.board.clone());
        self.leavings.take(queue.pool.clone(), move |ns| {
            if let Some(session) = session_left.upgrade() {
                session.give_bytes(bytes);
            }
            pools.release(&tenant, bytes);
            board.runq.charge_beside(tenant.id, ns);
        });
        if last {
            self.clean_up(session);
        }
    }

    /// Starts the end of a session: no new queues; the device threads drain what was published, then everything is
    /// given back.
    pub(super) fn close_session(&self, session: &Arc<SessionState>) {
        if session.close(|| self.broadcast(|| Message::CloseSession(session.id))) {
            self.clean_up(session);
        }
    }

    fn clean_up(&self, session: &Arc<SessionState>) {
        if !session.clean_up() {
            return;
        }
        session.keys.clear();
        session.clear_staged();
        self.files.locks.release_session(session.id);
        self.leases.end_session(session.id);
        self.watches.end_session(session.id);
        if session.handles.close_all() {
            self.maintenance.watch_placeholders();
        }
        self.note_reclaim();
        self.session_gone(session, || session.retire());
    }

    fn session_gone(&self, session: &Arc<SessionState>, totals: impl FnOnce() -> Totals) {
        self.trace.abandon(session.id);
        self.sessions.leave(session.id, || {
            session.tenant.retire(&totals());
            session.tenant.give(Resource::Sessions, 1);
            if session.tenant.usage().sessions == 0 {
                self.memory.forget(&session.tenant);
            }
        });
        self.departures.note();
    }

    /// Ends a session whose client broke the protocol of the rings.
    pub(super) fn kill_session(&self, id: u64) {
        if let Some(s) = self.sessions.get(id) {
            self.close_session(&s);
        }
    }

    /// Refuses newcomers, ends all sessions and waits until they are gone.
    pub(super) fn end_sessions(&self) {
        self.refuse_and_close();
        self.sessions.wait_for_none();
    }

    /// Refuses newcomers and begins to end all sessions.
    pub(super) fn refuse_and_close(&self) {
        self.begin_to_end();
        self.sessions.refuse_more().iter().for_each(|s| self.close_session(s));
    }

    /// After the last core of an abandoned device: ends its sessions and queue pairs, whatever was going on in them.
    /// Nothing panics out of here, and nothing waits for a session afterwards.
    pub(super) fn bury(&self) {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            // First the sessions: who is ending makes no new queue pair.
            self.sessions.all().iter().for_each(|s| self.close_session(s));
            for queue in self.all_queues().1 {
                queue.pair.ends().close();
                self.pair_gone(&queue);
            }
        }));
        if ended.is_err() {
            tracing::error!("not everything of the device's sessions was given back");
        }
        self.sessions.clear();
        self.departures.note();
    }
}
