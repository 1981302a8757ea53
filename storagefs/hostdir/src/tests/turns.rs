//! Which thread runs what, and when.

use super::*;

#[test]
fn whoever_looks_waits_for_no_ring_that_another_thread_is_at() {
    let place = tempfile::tempdir().unwrap();
    // Nothing serves it but this test.
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    let session = HostSession::attach(&core, whoever().into(), [0; 16]).unwrap();
    let client = || Client::new(session.new_queue_local(8, 4096).unwrap());
    let (mut one, mut other) = (client(), client());
    let (mut lookout, me) = (core.lookout.lock(), &core.workers[0]);
    one.send(Command::new(1, Op::Syncfs));
    let work = lookout.next(&core, me).unwrap();
    let queue = work.queue.clone();
    core.settle(&work);
    lookout.note_dirty(&queue);
    one.send(Command::new(2, Op::Syncfs));
    other.send(Command::new(3, Op::Syncfs));
    let ((ready, is_ready), (end, over)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A thread that was taken its processor between two completions.
            let ends = queue.pair.ends();
            ready.send(()).unwrap();
            let _ = over.recv_timeout(Duration::from_secs(5));
            drop(ends);
        });
        is_ready.recv().unwrap();
        let mut next = || {
            let work = lookout.next(&core, me).unwrap();
            core.settle(&work);
            work.cmd.seq
        };
        let begun = Instant::now();
        assert_eq!(next(), 3);
        assert!(begun.elapsed() < Duration::from_secs(4), "it waited for the other one");
        end.send(()).unwrap();
        assert_eq!(next(), 2);
    });
}

#[test]
fn commands_that_take_long_take_turns_at_the_processors_and_short_ones_of_others_do_not() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("f"), vec![1; 1 << 20]).unwrap();
    let served = HostDir::start(HostDirConfig::new(place.path())).unwrap();
    let session = served.attach(whoever(), [0; 16]).unwrap();
    let client = || Client::new(session.new_queue_local(8, 1 << 20).unwrap());
    let (mut one, mut other) = (client(), client());
    let path = one.path(b"f");
    one.send(Command::new(1, open(path)));
    let handle = Handle::from_wire(one.hear().unwrap().result);
    // As if another user were there.
    served.core.several.store(true, Ordering::Relaxed);
    let turns = all_turns(&served.core);
    let out = PoolRange::new(0, 256 << 10);
    one.send(Command::new(2, Op::Read { h: handle, at: At::Offset(0), out, watch: 0 }));
    wait_until("it asks for a turn", || served.core.computing.waiting() > 0);
    other.send(Command::new(3, Op::Stat { h: handle, out: PoolRange::new(0, 256) }));
    assert_eq!(other.hear().unwrap().status, 0);
    assert!(one.cq.pop().is_none());
    drop(turns);
    let read = one.hear().unwrap();
    assert_eq!((read.status, read.result), (0, 256 << 10));
}

#[test]
fn whoever_looks_gives_long_commands_away_and_leaves_the_lookout_for_one_that_sleeps() {
    let place = tempfile::tempdir().unwrap();
    // Nothing serves it but this test.
    let core = Core::new(HostDirConfig { threads: 2, ..HostDirConfig::new(place.path()) }).unwrap();
    let session = HostSession::attach(&core, whoever().into(), [0; 16]).unwrap();
    let mut client = Client::new(session.new_queue_local(8, 4096).unwrap());
    let (mut lookout, me) = (core.lookout.lock(), &core.workers[0]);
    let mut next = |seq| {
        client.send(Command::new(seq, Op::Syncfs));
        let work = lookout.next(&core, me).unwrap();
        core.settle(&work);
        work
    };
    assert!(matches!(core.long.job(), Some(Job::Look)));
    core.long.give(next(1));
    let Some(Job::Run(first)) = core.long.job() else { panic!("there is something to run") };
    assert!(first.away && first.cmd.seq == 1);
    // The other thread is inside it: a second one has to wait, and this one goes on looking.
    assert!(core.long.begin(next(2), || panic!("it leaves")).is_none());
    assert!(core.long.is_waiting());
    let second = core.long.over(first.client()).unwrap();
    assert!(core.long.over(second.client()).is_none());
    let mut left = false;
    let third = core.long.begin(next(3), || left = true).unwrap();
    assert!(left && third.away);
    assert!(matches!(core.long.job(), Some(Job::Look)), "the other one looks");
    core.long.end();
    assert!(core.long.job().is_none());
}

#[test]
fn a_ring_is_slow_by_what_its_commands_usually_take_of_a_thread() {
    let pace = pace::Pace::default();
    (0..100).for_each(|_| pace.note(15_000, None));
    assert!(!pace.is_suspect());
    pace.note(u64::MAX, None);
    assert!(pace.is_suspect() && !pace.is_slow(), "it may have been interrupted");
    pace.note(u64::MAX, Some(u64::MAX));
    assert!(pace.is_slow(), "the third one is left to another thread");
    // By the clock they take long: for want of a processor, as is seen when they are looked at.
    (0..20).for_each(|_| pace.note(120_000, pace.is_suspect().then_some(10_000)));
    assert!(pace.is_suspect() && !pace.is_slow());
    (0..20).for_each(|_| pace.note(120_000, Some(120_000)));
    assert!(pace.is_slow() && pace.is_brief(), "no half of the processors is set apart for such");
    (0..20).for_each(|_| pace.note(900_000, Some(900_000)));
    assert!(pace.is_slow() && !pace.is_brief());
    (0..20).for_each(|_| pace.note(15_000, pace.is_suspect().then_some(15_000)));
    assert!(!pace.is_suspect() && !pace.is_slow());
}

#[test]
fn what_is_slow_and_brief_has_no_half_of_the_processors_set_apart_for_it() {
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        println!("skipped: there is but one processor");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let begin = |pace: u64, cut: bool, scratch: &mut Scratch, core: &Arc<Core>| {
        let session = HostSession::attach(core, whoever().into(), [0; 16]).unwrap();
        let mut client = Client::new(session.new_queue_local(8, 4096).unwrap());
        client.send(Command::new(1, Op::Stat { h: Handle::ROOT, out: PoolRange::new(0, 256) }));
        core.several.store(true, Ordering::Relaxed);
        let mut work = core.lookout.lock().next(core, &core.workers[0]).unwrap();
        (0..20).for_each(|_| work.queue.pace.note(pace, Some(pace)));
        work.begun = u64::from(cut);
        core.settle(&work);
        scratch.begin_long(core, &work, false);
        scratch.apart
    };
    // (Each sees which processors this thread may use, before it is put to some of them.)
    let core = || Core::new(HostDirConfig::new(place.path())).unwrap();
    let (first, second, mut scratch) = (core(), core(), Scratch::default());
    assert!(!begin(120_000, false, &mut scratch, &first), "the one that looks would be kept to the other half");
    assert!(begin(900_000, false, &mut scratch, &first));
    assert!(begin(120_000, false, &mut scratch, &first), "it would be where the one that looks is kept");
    assert!(begin(120_000, true, &mut Scratch::default(), &second), "it has taken long already");
}

#[test]
fn a_checksum_that_waits_for_its_file_leaves_its_turn_to_others() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("f");
    std::fs::write(&file, vec![1; 1 << 20]).unwrap();
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    let session = HostSession::attach(&core, whoever().into(), [0; 16]).unwrap();
    let mut client = Client::new(session.new_queue_local(8, 1 << 16).unwrap());
    let mut scratch = Scratch::default();
    let next = |client: &mut Client, cmd: Command| {
        client.send(cmd);
        let mut work = core.lookout.lock().next(&core, &core.workers[0]).unwrap();
        work.away = true;
        work
    };
    let path = client.path(b"f");
    let opened = next(&mut client, Command::new(1, open(path)));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let done = match Box::pin(command::run(&core, &opened, &mut scratch)).as_mut().poll(&mut cx) {
        std::task::Poll::Ready(Some(done)) => done.outcome,
        _ => panic!("an open waits"),
    };
    let (h, kind) = (Handle::from_wire(done.result), weldfs_ciscops::ChecksumKind::Crc32c);
    let sum = Op::ChecksumRange { h, kind, offset: 0, len: 1 << 20 };
    let summing = next(&mut client, Command::new(2, sum));
    let key = members([(key_of(&core, &file), Mode::Exclusive)]);
    let held = core.sets.place(core.sets.arrive(), Token(1), key);
    let mut run = Box::pin(command::run(&core, &summing, &mut scratch));
    assert!(run.as_mut().poll(&mut cx).is_pending());
    assert!(turns_are_free(&core));
    drop(held);
    assert!(run.as_mut().poll(&mut cx).is_ready());
    assert!(turns_are_free(&core));
}

#[test]
fn a_thread_that_computes_beside_other_users_yields_to_others_and_has_its_share_again_afterwards() {
    let nice = || rustix::process::getpriority_process(None).unwrap();
    let place = tempfile::tempdir().unwrap();
    let core = Core::new(HostDirConfig::new(place.path())).unwrap();
    let may = rustix::thread::capabilities(None).unwrap().permitted;
    if !core.for_others || !may.contains(rustix::thread::CapabilitySet::SYS_NICE) {
        println!("skipped: a thread that yields to other users, for which this must be root with CAP_SYS_NICE");
        return;
    }
    let attach = |uid| {
        let cred = Cred { uid, gid: uid, groups: [].as_slice().into() };
        HostSession::attach(&core, cred.into(), [0; 16]).unwrap()
    };
    // A thread of its own: what it becomes is forgotten with it.
    let look = || {
        std::thread::scope(|scope| {
            let act = || {
                let usual = nice();
                // As a command's thread does, which has the rights of its client.
                rustix::thread::set_thread_res_uid(None, rustix::process::Uid::from_raw(65_534), None).unwrap();
                let mut scratch = Scratch::default();
                scratch.turn = Some(core.computing.turn(0, core.has_several()));
                let inside = nice();
                scratch.turn = None;
                let rights = rustix::thread::capabilities(None).unwrap().effective;
                (usual, inside, nice(), rights.is_empty())
            };
            scope.spawn(act).join().unwrap()
        })
    };
    let one = attach(65_534);
    let (usual, inside, after, none) = look();
    assert_eq!((inside, after, none), (usual, usual, true), "there is no other user");
    let other = attach(65_533);
    let (usual, inside, after, none) = look();
    assert!(inside > usual, "{inside}");
    assert_eq!((after, none), (usual, true), "it acts with its client's rights");
    drop((one, other));
}

#[test]
fn a_dead_clients_ring_is_taken_to_its_end_however_soon_whoever_looks_would_sleep() {
    let place = tempfile::tempdir().unwrap();
    // Nothing serves it but this test.
    let core = Core::new(HostDirConfig { spin_ns_max: 0, ..HostDirConfig::new(place.path()) }).unwrap();
    let session = HostSession::attach(&core, whoever().into(), [0; 16]).unwrap();
    let mut client = Client::new(session.new_queue_local(1024, 4096).unwrap());
    (0..1000).for_each(|n| client.sq.push(&Command::new(n, Op::Nop).encode()).unwrap());
    client.sq.publish();
    session.end();
    let (tell, told) = std::sync::mpsc::channel();
    let looks = core.clone();
    std::thread::spawn(move || {
        let ended = looks.lookout.lock().next(&looks, &looks.workers[0]).is_none();
        tell.send(ended).unwrap();
    });
    std::thread::spawn(move || core.end());
    assert_eq!(told.recv_timeout(Duration::from_secs(5)), Ok(true));
}
