//! Cores by hand: their turns come when a test says so.

use weldfs_ciscops::ring::SqProducer;
use weldfs_ciscops::{Command, InodeNo, Op, OpenFlags, QueueMemory};
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_scheduler::{Mode, Token};

use super::*;
use crate::DeviceConfig;
use crate::open::OpenInode;
pub use crate::session::{QueueParts, SessionState};
use weldfs_fs::Cred;
use weldfs_media::RamMedium;
use weldfs_session::sets::members;
use weldfs_session::tenants::{Identity, TenantsConfig};
use weldfs_store::MountOptions;
use weldfs_store::mount::{MkfsOptions, format};

/// Holds tickets from a slot that no command gets.
const NOBODY: Token = Token(255);

fn core(tenants: &str) -> Arc<Core> {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(64 << 20));
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(1)));
    format(&medium, &MkfsOptions::default(), &*clock, &*random).unwrap();
    let options = MountOptions { memory: 16 << 20, ..MountOptions::new(clock, random) };
    let (store, _) = weldfs_fs::mount(medium, options).unwrap();
    let tenants = TenantsConfig::parse(tenants).unwrap();
    Core::new(store, DeviceConfig { tenants, ..DeviceConfig::default() }).unwrap()
}

fn attach(core: &Arc<Core>, uid: u32) -> Arc<SessionState> {
    let who = Identity::from(Cred { uid, gid: 0, groups: [].as_slice().into() });
    core.attach(who, [0; 16], Vec::new()).unwrap()
}

/// A client by hand, which never rings.
struct Client {
    _parts: QueueParts,
    sq: SqProducer,
}

impl Client {
    fn new(core: &Core, session: &Arc<SessionState>, depth: u32) -> Client {
        let parts = core.new_queue(session, (depth, 4096, false)).unwrap();
        let memory = QueueMemory::new(parts.region.clone(), &parts.layout).unwrap();
        Client { _parts: parts, sq: SqProducer::new(memory) }
    }

    fn send(&mut self, op: Op) {
        self.sq.push(&Command::new(0, op).encode()).unwrap();
        self.sq.publish();
    }
}

/// A handle of the session on the root directory's inode.
fn handle(core: &Arc<Core>, session: &SessionState) -> (Handle, InodeNo) {
    let ino = InodeNo(1);
    let held = OpenInode::new(&core.store, ino);
    let description = core.files.describe(ino, OpenFlags::READ | OpenFlags::WRITE, held).unwrap();
    let handle = session.handles.reserve().unwrap();
    session.handles.fill(handle, description);
    (handle, ino)
}

#[test]
fn what_a_client_had_published_before_it_went_is_executed_beside_a_flood() {
    let core = core("");
    let slots = Slots::new(&core.board, serve::serve);
    let mut me = Loop::new(&core, 0, &slots).unwrap();
    let (flooder, other) = (attach(&core, 1), attach(&core, 2));
    let (h, ino) = handle(&core, &flooder);
    // All that the flooder wants has to wait.
    let sets = &core.sets;
    let _busy = sets.place(sets.arrive(), NOBODY, members([(ino.0, Mode::Exclusive)]));
    let mut flood: Vec<_> = (0..4).map(|_| Client::new(&core, &flooder, 64)).collect();
    flood.iter_mut().for_each(|c| (0..64).for_each(|_| c.send(Op::Fsync { h })));
    let mut gone = Client::new(&core, &other, 64);
    (0..2000).for_each(|_| {
        me.turn();
    });
    let taken = slots.free();
    assert!(taken * 2 < core.board.len(), "{taken} slots are free: no flood");
    (0..60).for_each(|_| gone.send(Op::Syncfs));
    core.close_session(&other);
    (0..2000).for_each(|_| {
        me.turn();
    });
    let used = other.tenant.usage();
    assert_eq!((used.sessions, used.queue_pairs), (0, 0), "it is still there");
    assert_eq!(other.totals().of(Opcode::Syncfs as u16), 0, "counted with its tenant by now");
    assert_eq!(other.tenant.retired().of(Opcode::Syncfs as u16), 60);
}

#[test]
fn sessions_that_end_have_their_part_of_the_slots_and_no_more() {
    let core = core("");
    let slots = Slots::new(&core.board, serve::serve);
    let mut me = Loop::new(&core, 0, &slots).unwrap();
    let sets = &core.sets;
    let _busy = sets.place(sets.arrive(), NOBODY, members([(1, Mode::Exclusive)]));
    // Whatever they had published waits.
    for uid in 0..16 {
        let session = attach(&core, uid);
        let (h, _) = handle(&core, &session);
        let mut client = Client::new(&core, &session, 64);
        (0..64).for_each(|_| client.send(Op::Fsync { h }));
        core.close_session(&session);
    }
    (0..4000).for_each(|_| {
        me.turn();
    });
    let taken = core.board.len() - slots.free() - me.at_hand.len();
    assert_eq!(taken, core.board.len() / 8);
}

#[test]
fn of_many_rings_with_commands_that_may_not_be_taken_a_turn_looks_at_some_and_charges_them() {
    const RINGS: usize = 200;
    let core = core("[default.limits]\nin_flight = 1\n");
    let slots = Slots::new(&core.board, serve::serve);
    let mut me = Loop::new(&core, 0, &slots).unwrap();
    let sets = &core.sets;
    let _busy = sets.place(sets.arrive(), NOBODY, members([(1, Mode::Exclusive)]));
    let sessions: Vec<_> = (0..RINGS / 50).map(|_| attach(&core, 1)).collect();
    let mut clients = Vec::new();
    for session in &sessions {
        let (h, _) = handle(&core, session);
        let mut rings: Vec<_> = (0..50).map(|_| Client::new(&core, session, 4)).collect();
        rings.iter_mut().for_each(|c| c.send(Op::Fsync { h }));
        clients.append(&mut rings);
    }
    me.read_mail();
    assert!(me.sweep(), "one command is all that the tenant may have");
    let held = |me: &Loop<'_, '_, _, _>| me.queues.iter().filter(|q| q.pair.ends().held().is_some()).count();
    assert!((1..=SWEEP_VAIN_MAX).contains(&held(&me)), "{} of {RINGS} were looked at", held(&me));
    // Another waits: now it costs.
    core.board.fill(200, weldfs_scheduler::TenantId(7), 9);
    core.board.queue(200);
    let owed = |me: &Loop<'_, '_, _, _>| me.queues.iter().map(|q| q.pair.take_owed()).sum::<u64>();
    owed(&me);
    me.sweep();
    assert_eq!(owed(&me), SWEEP_VAIN_MAX as u64 * VAIN_LOOK_NS);
    (0..RINGS).for_each(|_| {
        me.sweep();
    });
    assert_eq!(held(&me), RINGS - 1, "in the end at all of them");
}

/// It used to be charged as it passed by the clock: a ring that was being looked at while the host ran something else
/// for 80 ms paid for them, or its tenant's neighbours waited until it had.
#[test]
fn taking_and_answering_costs_a_ring_no_time_in_which_the_host_ran_something_else() {
    let (passed, owed) = crate::slice::tests::in_company(|| {
        let core = core("");
        let slots = Slots::new(&core.board, serve::serve);
        let mut me = Loop::new(&core, 0, &slots).unwrap();
        let session = attach(&core, 1);
        let _client = Client::new(&core, &session, 4);
        me.read_mail();
        // Another waits.
        core.board.fill(200, weldfs_scheduler::TenantId(7), 9);
        core.board.queue(200);
        let queue = me.queues[0].clone();
        let taken = now_ns();
        me.meter.note(taken);
        crate::slice::tests::compute(20_000_000);
        me.owe(&queue, taken);
        (now_ns() - taken, queue.pair.take_owed())
    });
    assert!(passed > 30_000_000, "the others did run: {passed} ns");
    assert!(owed >= 19_000_000 && owed < passed * 6 / 10, "{owed} of {passed} ns");
}
