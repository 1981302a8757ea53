//! What needs faults, or the server's threads by hand.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use std::future::Future;

use weldfs_ciscops::program::Micro;
use weldfs_ciscops::program::text::parse;
use weldfs_ciscops::ring::SqProducer;
use weldfs_ciscops::{
    At, Command, CqConsumer, Cqe, Durability, Handle, Op, OpenFlags, PoolRange, QueueMemory, SharedRegion,
};

use weldfs_scheduler::{Mode, Token};

use super::long::Job;
use super::polling::REAP_NS;
use super::scratch::Scratch;
use super::txn::HostTxn;
use super::*;
use weldfs_session::rings::QueueParts;
use weldfs_session::sets::members;
use weldfs_store::cred::Cred;

mod turns;

/// What a test lets go wrong.
#[derive(Default)]
pub(super) struct Faults {
    /// Errno of everything that is to be made durable.
    sync: AtomicI32,
    /// The next command panics.
    panic: AtomicBool,
}

impl Faults {
    pub(super) fn sync(&self) -> rustix::io::Result<()> {
        match self.sync.load(Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(rustix::io::Errno::from_raw_os_error(errno)),
        }
    }

    pub(super) fn run(&self) {
        assert!(!self.panic.load(Ordering::Relaxed), "as asked for");
    }
}

fn whoever() -> Cred {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Cred { uid, gid, groups: [].as_slice().into() }
}

/// A client by hand.
struct Client {
    parts: QueueParts,
    pool: SharedRegion,
    sq: SqProducer,
    cq: CqConsumer,
}

impl Client {
    fn new(parts: QueueParts) -> Client {
        let memory = QueueMemory::new(parts.region.clone(), &parts.layout).unwrap();
        let pool = memory.pool(&parts.layout).unwrap();
        Client { parts, pool, sq: SqProducer::new(memory.clone()), cq: CqConsumer::new(memory) }
    }

    fn path(&self, path: &[u8]) -> PoolRange {
        self.pool.bytes(0, path.len()).unwrap().copy_from(path);
        PoolRange::new(0, path.len() as u32)
    }

    fn send(&mut self, cmd: Command) {
        self.sq.push(&cmd.encode()).unwrap();
        self.sq.publish();
        if self.sq.needs_doorbell() {
            rustix::io::write(&self.parts.doorbell, &1u64.to_ne_bytes()).unwrap();
        }
    }

    /// The next completion, or why there is none.
    fn hear(&mut self) -> Result<Cqe, Errno> {
        let start = Instant::now();
        loop {
            if let Some(cqe) = self.cq.pop() {
                return Ok(cqe);
            }
            if let Some(errno) = self.cq.closed() {
                return Err(errno);
            }
            assert!(start.elapsed() < Duration::from_secs(5), "a client is left waiting");
            self.cq.wait(Duration::from_millis(100));
        }
    }
}

fn open(path: PoolRange) -> Op {
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    Op::open(Handle::ROOT, path, flags, 0o600)
}

#[test]
fn a_command_whose_sync_fails_says_what_stands_and_leaves_no_handle() {
    let place = tempfile::tempdir().unwrap();
    let dir = HostDir::start(HostDirConfig::new(place.path())).unwrap();
    let session = dir.attach(whoever(), [0; 16]).unwrap();
    let mut client = Client::new(session.new_queue_local(8, 4096).unwrap());
    dir.core.faults.sync.store(Errno::IO.0, Ordering::Relaxed);
    let path = client.path(b"/f");
    client.send(Command::new(1, open(path)).with_durability(Durability::Durable));
    let cqe = client.hear().unwrap();
    assert_eq!((cqe.status, cqe.micro_done, cqe.result), (Errno::IO.0, 1, 0), "it was created");
    assert!(place.path().join("f").exists());
    assert_eq!((dir.usage().handles, dir.usage().open_files), (0, 0));
    let (flags, src) = (OpenFlags::WRITE, PoolRange::new(100, 50));
    let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0, at: At::Offset(0), src };
    client.send(Command::new(2, op).with_durability(Durability::Durable));
    let cqe = client.hear().unwrap();
    assert_eq!((cqe.status, cqe.micro_done, cqe.micro_failed), (Errno::IO.0, 3, 0));
    assert_eq!(std::fs::metadata(place.path().join("f")).unwrap().len(), 50);
}

#[test]
fn an_open_that_finds_no_room_for_a_description_keeps_its_file() {
    let place = tempfile::tempdir().unwrap();
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    let files = weldfs_session::ofd::OpenFiles::<u8>::new(1);
    let key = core.key(0, 5);
    let mut taken = 0;
    let first = files.describe_with(key, OpenFlags::READ, || Ok(1)).map(drop);
    assert_eq!((first, files.open()), (Ok(()), 0));
    let held = files.describe(key, OpenFlags::READ, 1).unwrap_or_else(|e| panic!("{e}"));
    let second = files.describe_with(key, OpenFlags::READ, || {
        taken += 1;
        Ok(2)
    });
    assert_eq!((second.map(drop), taken), (Err(Errno::NFILE), 0), "it is not taken from the command");
    drop(held);
    assert_eq!(files.describe_with(key, OpenFlags::READ, || Err(Errno::BADF)).map(drop), Err(Errno::BADF));
    assert_eq!(files.open(), 0);
}

#[test]
fn a_command_that_panics_ends_the_service_for_everybody_and_whoever_serves_it_hears() {
    let place = tempfile::tempdir().unwrap();
    let dir = HostDir::start(HostDirConfig::new(place.path())).unwrap();
    let session = dir.attach(whoever(), [0; 16]).unwrap();
    let mut client = Client::new(session.new_queue_local(8, 4096).unwrap());
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let soon = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
    let mut bell = [rustix::event::PollFd::from_borrowed_fd(dir.failure(), rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut bell, Some(&now)), Ok(0));
    dir.core.faults.panic.store(true, Ordering::Relaxed);
    client.send(Command::new(1, Op::Syncfs));
    assert!(client.hear().is_err());
    assert_eq!(rustix::event::poll(&mut bell, Some(&soon)), Ok(1));
    assert!(dir.is_poisoned());
    if let Ok(parts) = session.new_queue_local(8, 4096) {
        let mut late = Client::new(parts);
        late.send(Command::new(1, Op::Syncfs));
        assert!(late.hear().is_err(), "a queue that came afterwards is closed, too");
    }
    assert!(matches!(dir.attach(whoever(), [1; 16]), Err(Errno::NODEV)));
    dir.shutdown();
}

#[test]
fn a_command_says_once_that_it_has_its_place_and_never_for_the_next_one() {
    let place = tempfile::tempdir().unwrap();
    // Nothing serves it but this test.
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    let session = HostSession::attach(&core, whoever().into(), [0; 16]).unwrap();
    let mut client = Client::new(session.new_queue_local(8, 4096).unwrap());
    (1..=3).for_each(|seq| client.send(Command::new(seq, Op::Syncfs)));
    let mut lookout = core.lookout.lock();
    let me = &core.workers[0];
    let first = lookout.next(&core, me).unwrap();
    assert!(first.queue.pair.is_admitting());
    core.settle(&first);
    let second = lookout.next(&core, me).unwrap();
    assert_eq!((first.cmd.seq, second.cmd.seq), (1, 2));
    core.settle(&first);
    assert!(second.queue.pair.is_admitting(), "the third could overtake the second");
    core.settle(&second);
    assert!(!second.queue.pair.is_admitting());
}

#[test]
fn a_tenant_with_many_rings_has_one_command_between_two_of_another_s() {
    let place = tempfile::tempdir().unwrap();
    // Nothing serves it but this test.
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    let client = |uid| {
        let session = HostSession::attach(&core, Cred { uid, ..whoever() }.into(), [0; 16]).unwrap();
        let mut client = Client::new(session.new_queue_local(8, 4096).unwrap());
        (1..=3).for_each(|seq| client.send(Command::new(seq, Op::Syncfs)));
        (session, client)
    };
    let mine = whoever().uid;
    if !core.for_others {
        println!("skipped: this process has the rights of one user only");
        return;
    }
    let _clients = [client(mine), client(mine), client(mine), client(mine + 1)];
    let (mut lookout, me) = (core.lookout.lock(), &core.workers[0]);
    let mut next = || {
        let work = lookout.next(&core, me).unwrap();
        core.settle(&work);
        (work.client(), work.cmd.seq)
    };
    let order: Vec<_> = (0..12).map(|_| next()).collect();
    let few = order.iter().map(|((tenant, _), _)| *tenant).find(|t| *t != order[0].0.0).unwrap();
    let places: Vec<usize> = (0..12).filter(|at| order[*at].0.0 == few).collect();
    assert_eq!(places, [1, 3, 5], "{order:?}");
    // Its rings have its turns one after the other, and each its commands in order.
    let many: Vec<_> = order.iter().filter(|(client, _)| client.0 != few).collect();
    assert_eq!(many.iter().map(|(_, seq)| *seq).collect::<Vec<_>>(), [1, 1, 1, 2, 2, 2, 3, 3, 3]);
}

/// Its user's next process waits at the door for that, and what it had is had by no other until then.
#[test]
fn a_session_that_has_ended_is_gone_though_others_always_have_commands() {
    let place = tempfile::tempdir().unwrap();
    // Nothing serves it but this test.
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    let attach = || HostSession::attach(&core, whoever().into(), [0; 16]).unwrap();
    let (busy, ended) = (attach(), attach());
    let mut client = Client::new(busy.new_queue_local(8, 4096).unwrap());
    let gone = Client::new(ended.new_queue_local(8, 4096).unwrap());
    let (mut lookout, me) = (core.lookout.lock(), &core.workers[0]);
    let mut sessions = |seq| {
        // There is a command whenever it looks.
        (0..2).for_each(|n: u64| client.send(Command::new(seq + n, Op::Syncfs)));
        for _ in 0..2 {
            core.settle(&lookout.next(&core, me).unwrap());
        }
        core.with_sessions(|all| all.count())
    };
    assert_eq!(sessions(1), 2);
    drop((gone, ended));
    std::thread::sleep(Duration::from_nanos(2 * REAP_NS));
    assert_eq!(sessions(3), 1);
}

/// Has a program of that text taken from a ring, as whoever looks would, and prepares it: `check` gets it, and whether
/// it has its turn.
fn prepared(core: &Arc<Core>, text: &str, check: impl FnOnce(&mut HostTxn<'_>, bool)) {
    prepared_by(core, text, false, check);
}

/// The same, `away`: by a thread that does not look.
fn prepared_by(core: &Arc<Core>, text: &str, away: bool, check: impl FnOnce(&mut HostTxn<'_>, bool)) {
    prepared_after(core, text, away, None, check);
}

/// The same, if it has to wait for its turn at first: `meanwhile` is what others do then.
fn prepared_after(
    core: &Arc<Core>,
    text: &str,
    away: bool,
    meanwhile: Option<&mut dyn FnMut()>,
    check: impl FnOnce(&mut HostTxn<'_>, bool),
) {
    let session = HostSession::attach(core, whoever().into(), [0; 16]).unwrap();
    let mut client = Client::new(session.new_queue_local(8, 1 << 16).unwrap());
    let body = parse(text, &[]).unwrap().body.bind(&[]).unwrap();
    let body = client.path(&body);
    client.send(Command::new(1, Op::Program { body }));
    let mut work = core.lookout.lock().next(core, &core.workers[0]).unwrap();
    work.away = away;
    let mut scratch = Scratch::default();
    let mut txn = HostTxn::new(core, &work, &mut scratch, false);
    let program = work.paths.program.as_ref().unwrap();
    let mut preparing = Box::pin(txn.prepare_program(program));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut ready = preparing.as_mut().poll(&mut cx).is_ready();
    if let Some(meanwhile) = meanwhile {
        assert!(!ready, "it waits for nothing");
        meanwhile();
        ready = preparing.as_mut().poll(&mut cx).is_ready();
    }
    drop(preparing);
    check(&mut txn, ready);
}

/// Waits for what another thread does.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether names can be had now.
fn has_names(core: &Core, alone: bool) -> bool {
    core.names.try_take_for(0, alone, Duration::ZERO).is_some()
}

fn key_of(core: &Core, path: &std::path::Path) -> u64 {
    let stat = rustix::fs::stat(path).unwrap();
    core.key(stat.st_dev, stat.st_ino).0
}

#[test]
fn what_a_program_may_not_change_is_not_held_alone_for_it() {
    let place = tempfile::tempdir().unwrap();
    let (theirs, file) = (place.path().join("theirs"), place.path().join("theirs/file"));
    std::fs::create_dir(&theirs).unwrap();
    std::fs::write(&file, b"theirs").unwrap();
    let mode = |path: &std::path::Path, bits| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(bits)).unwrap();
    };
    let own = place.path().join("own");
    std::fs::write(&own, b"its own").unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&own, Some(65_534), None).unwrap();
    }
    mode(&file, 0o444);
    mode(&theirs, 0o555);
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    let key = key_of(&core, &file);
    let changes = "mkdir theirs/mine; open theirs/file rw as f; append f x\"00\"; unlink theirs/file; \
                   rename theirs/file theirs/other; open theirs/new rw create; set theirs/file mtime";
    // What it may do with its own is no matter of what belongs to others.
    let remodes = format!("set own mode 644; {changes}");
    let shared = |held: bool, changes: &str| {
        let (core, place, changes) = (core.clone(), place.path().to_owned(), changes.to_owned());
        // The rights of a thread of its own are given up.
        let looked = std::thread::spawn(move || {
            rustix::fs::chmod(place, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
            if rustix::process::geteuid().is_root() && held {
                let nobody = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(None, nobody, None).unwrap();
            }
            let mut looked = (false, false);
            prepared(&core, &changes, |_, ready| {
                assert!(ready);
                let beside = core.sets.place(core.sets.arrive(), Token(1), members([(key, Mode::Shared)]));
                looked = (has_names(&core, false), beside.running());
            });
            looked
        });
        looked.join().unwrap()
    };
    assert_eq!(shared(true, changes), (true, true), "names and the file are there for others");
    if rustix::process::geteuid().is_root() {
        assert_eq!(shared(true, &remodes), (true, true), "they are none of its own");
        assert_eq!(shared(false, changes), (false, false), "whoever may change them holds them alone");
    }
    mode(&theirs, 0o755);
}

#[test]
fn a_program_that_waits_for_its_turn_keeps_no_names_from_others() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("f"), b"").unwrap();
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    let key = key_of(&core, &place.path().join("f"));
    let change = "open f rw; append x\"00\"; mkdir d";
    let held = core.sets.place(core.sets.arrive(), Token(1), members([(key, Mode::Exclusive)]));
    prepared(&core, change, |_, ready| assert!(!ready && has_names(&core, true)));
    drop(held);
    prepared(&core, change, |_, ready| assert!(ready && !has_names(&core, false)));
    assert!(has_names(&core, true));
}

/// What a program's first name led to may have been moved while another client had the names, which a walk lets go.
#[test]
fn a_program_holds_what_its_names_lead_to_though_others_had_the_names_on_its_way() {
    let place = tempfile::tempdir().unwrap();
    ["a", "d"].iter().for_each(|dir| std::fs::create_dir(place.path().join(dir)).unwrap());
    ["a/f", "a/other", "d/g"].iter().for_each(|file| std::fs::write(place.path().join(file), b"").unwrap());
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    let at = |name: &str| place.path().join(name);
    let text = format!("open a/f r; open {}d/g r", "d/../".repeat(50));
    let others = |n: usize| wait_until("so many wait for names", || core.names.waiting() >= n);
    let names = core.names.take(0, true);
    std::thread::scope(|scope| {
        let program = scope.spawn(|| {
            let mut held = None;
            prepared(&core, &text, |txn, ready| {
                let beside = members([(key_of(&core, &at("a/f")), Mode::Exclusive)]);
                let beside = core.sets.place(core.sets.arrive(), Token(1), beside);
                held = Some((ready, txn.way.left, beside.running()));
            });
            held
        });
        others(1);
        // Next in line: it has names when the walk lets them go.
        let mover = scope.spawn(|| {
            let _names = core.names.take(0, true);
            std::fs::rename(at("a/other"), at("a/f")).unwrap();
        });
        others(2);
        drop(names);
        mover.join().unwrap();
        let held = program.join().unwrap();
        assert_eq!(held, Some((true, false, false)), "it holds another file than its name leads to");
    });
}

#[test]
fn a_long_walk_is_left_to_a_thread_that_does_not_look_at_rings() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("d")).unwrap();
    std::os::unix::fs::symlink("d/../".repeat(500) + "d", place.path().join("l")).unwrap();
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    prepared(&core, "mkdir d/../d/x", |txn, ready| assert!(ready && !txn.way.left));
    // Nor does it wait for a turn at the processors, which others have.
    let turns = all_turns(&core);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            prepared(&core, "mkdir l/x", |txn, ready| {
                tell.send((ready, txn.way.left, txn.is_placed())).unwrap();
            });
        });
        let left = told.recv_timeout(Duration::from_secs(20));
        drop(turns);
        assert_eq!(left, Ok((true, true, false)), "it holds nothing, and begins anew");
    });
}

/// As many as compute at a time.
fn all_turns(core: &Core) -> Vec<computing::Turn> {
    let half = (std::thread::available_parallelism().map_or(1, usize::from) / 2).max(1);
    (0..half).map(|_| core.computing.turn(u32::MAX, false)).collect()
}

/// Whether all turns can be had soon.
fn turns_are_free(core: &Arc<Core>) -> bool {
    let (tell, told) = std::sync::mpsc::channel();
    let core = core.clone();
    let taken = std::thread::spawn(move || drop((all_turns(&core), tell.send(()))));
    let free = told.recv_timeout(Duration::from_secs(5)).is_ok();
    if free {
        taken.join().unwrap();
    }
    free
}

#[test]
fn a_long_walk_keeps_neither_names_from_others_nor_its_turn_from_those_that_walk() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("d")).unwrap();
    std::os::unix::fs::symlink("d/../".repeat(500) + "d", place.path().join("l")).unwrap();
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    let turns = all_turns(&core);
    std::thread::scope(|scope| {
        let walk = scope.spawn(|| {
            let mut left = None;
            prepared_by(&core, "mkdir l/x", true, |txn, ready| left = Some((ready, txn.way.left)));
            left
        });
        wait_until("it asks for a turn", || core.computing.waiting() > 0);
        let names = core.names.take(0, true);
        drop(turns);
        wait_until("it waits for names", || core.names.waiting() > 0);
        assert!(turns_are_free(&core), "it waits for names with a turn in hand");
        drop(names);
        assert_eq!(walk.join().unwrap(), Some((true, false)));
    });
}

#[test]
fn a_long_way_is_gone_once_and_a_short_one_each_time() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    ["d", "e"].iter().for_each(|dir| std::fs::create_dir(at(dir)).unwrap());
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    for (turns, long) in [(2, false), (300, true)] {
        std::os::unix::fs::symlink("d/../".repeat(turns) + "d", at("l")).unwrap();
        prepared_by(&core, "mkdir l/x; mkdir l/y", true, |txn, ready| {
            assert!(ready);
            std::fs::remove_file(at("l")).unwrap();
            std::os::unix::fs::symlink("e", at("l")).unwrap();
            let program = txn.work.paths.program.as_ref().unwrap();
            txn.way.forget_short();
            let leads = |txn: &mut HostTxn<'_>, n: usize| {
                let Micro::Mkdir { base, path, .. } = program.micros()[n] else { panic!("{n} makes none") };
                rustix::fs::fstat(txn.parent(base, program.string(path)).unwrap().dir()).unwrap().st_ino
            };
            let inode = |name| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(at(name)).unwrap());
            assert_eq!(leads(txn, 0), inode(if long { "d" } else { "e" }));
            // What it has done itself to directories and links counts.
            txn.way.forget();
            assert_eq!(leads(txn, 1), inode("e"));
        });
        std::fs::remove_file(at("l")).unwrap();
    }
}

#[test]
fn a_program_that_changes_no_names_keeps_what_they_led_to_and_not_the_names() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    ["a", "b", "own"].iter().for_each(|name| std::fs::write(at(name), name).unwrap());
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    let text = "open a r; open own rw create as o; append o x\"00\"; open gone r";
    prepared(&core, text, |txn, ready| {
        assert!(ready && has_names(&core, true), "others wait for names");
        // Others change all of them before it runs.
        std::fs::rename(at("b"), at("a")).unwrap();
        std::fs::remove_file(at("own")).unwrap();
        std::fs::write(at("gone"), b"come").unwrap();
        let program = txn.work.paths.program.as_ref().unwrap();
        let open = |n: usize| {
            let Micro::Open { base, path, flags, .. } = program.micros()[n] else { panic!("{n} opens nothing") };
            let found = txn.open_found(base, program.string(path), flags).expect("it keeps what it led to");
            found.map(|fd| std::io::read_to_string(std::fs::File::from(fd)).unwrap())
        };
        assert_eq!(open(0).as_deref(), Ok("a"));
        assert_eq!(open(1).as_deref(), Ok("own"));
        assert_eq!(open(3), Err(Errno::NOENT));
    });
    for change in ["open new rw create", "open a rw create excl", "open a r; unlink a", "open a r; set a mode 600"] {
        prepared(&core, change, |txn, ready| {
            assert!(ready && !txn.settled && !has_names(&core, true), "{change}: names go on leading where they do");
        });
    }
}

#[test]
fn a_program_whose_file_is_gone_when_its_turn_comes_holds_names_alone_to_make_it() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("f");
    std::fs::write(&file, b"").unwrap();
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    let key = members([(key_of(&core, &file), Mode::Exclusive)]);
    let mut held = Some(core.sets.place(core.sets.arrive(), Token(1), key));
    let mut meanwhile = || {
        assert!(has_names(&core, true), "it keeps names while it waits");
        std::fs::remove_file(&file).unwrap();
        held = None;
    };
    prepared_after(&core, "open f rw create as f; append f x\"00\"", false, Some(&mut meanwhile), |txn, ready| {
        assert!(ready && !txn.settled);
        assert!(!has_names(&core, false), "another could make it meanwhile");
    });
}

#[test]
fn what_a_link_leads_to_is_not_what_an_open_finds_that_does_not_follow_it() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("f"), b"f").unwrap();
    std::os::unix::fs::symlink("f", place.path().join("l")).unwrap();
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    prepared(&core, "open l r; open l r nofollow", |txn, ready| {
        assert!(ready && txn.settled);
        let program = txn.work.paths.program.as_ref().unwrap();
        let open = |n: usize, more: OpenFlags| {
            let Micro::Open { base, path, flags, .. } = program.micros()[n] else { panic!("{n} opens nothing") };
            txn.open_found(base, program.string(path), flags | more).map(|found| found.map(drop))
        };
        assert_eq!(open(0, OpenFlags::empty()), Some(Ok(())));
        assert_eq!(open(1, OpenFlags::empty()), Some(Err(Errno::LOOP)));
        assert_eq!(open(0, OpenFlags::CREATE | OpenFlags::EXCL), None, "that is for the host to refuse");
    });
}
