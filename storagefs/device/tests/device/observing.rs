//! Counters and recordings as a client gets them, over a socket and inside the process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weldfs::{
    At, AttachOptions, Client, Command, Connector, Direction, Errno, Handle, Op, OpenFlags, OpenOptions, Placement,
    Queue, Transport, VirtRange, VirtSpec,
};
use weldfs_ciscops::attach::detail;
use weldfs_ciscops::trace::{self, SlotSpan, slot_kind};
use weldfs_device::trace::TraceFacts;
use weldfs_device::{DeviceConfig, DeviceStats, Profile, TenantsConfig};
use weldfs_fpga::config::{CardConfig, Reconfigure};
use weldfs_fs::Cred;
use weldfs_kernel_shim::{Embedded, ServeConfig, Server, Source};

/// Runs `body` with the socket of a device that is served by another thread.
fn served(config: DeviceConfig, body: impl FnOnce(&std::path::Path)) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let mut serve = ServeConfig::new(Source::Ram(64 << 20), &socket);
    (serve.device, serve.signals) = (config, false);
    let server = Server::bind(serve).unwrap();
    let stopper = server.stopper();
    let thread = std::thread::spawn(move || server.run().unwrap());
    body(&socket);
    stopper.stop();
    thread.join().unwrap();
}

fn stats(client: &Client, details: u32) -> DeviceStats {
    serde_json::from_str(&client.stats_json_with(details).unwrap()).unwrap()
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

#[test]
fn a_report_too_long_for_a_message_comes_whole() {
    let tenants: String =
        (0..200).map(|n| format!("[[tenant]]\nname = \"tenant-{n}\"\nuids = [{}]\n", n + 1)).collect();
    let config = DeviceConfig { tenants: TenantsConfig::parse(&tenants).unwrap(), ..DeviceConfig::default() };
    served(config, |socket| {
        let client = Client::connect(socket).unwrap();
        client.write("/f", &[1; 5000]).unwrap();
        let text = client.stats_json().unwrap();
        assert!(text.len() > weldfs_ciscops::limits::ATTACH_MESSAGE_MAX, "{} bytes", text.len());
        let report = stats(&client, 0);
        assert!((0..200).all(|n| report.tenants[n].name == format!("tenant-{n}")));
        let mine = report.session.unwrap().totals;
        assert!(mine.commands > 0 && mine.payload_bytes_in == 5000);
        assert_eq!(report.total.payload_bytes_in, 5000);
    });
}

#[test]
fn whole_blocks_are_counted_as_data_and_small_changes_as_log() {
    let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
    let client = Client::with(Arc::new(embedded)).unwrap();
    client.write("/f", &[1; 3 * 4096]).unwrap();
    let blocks = stats(&client, 0);
    assert_eq!(blocks.total.data_bytes, 3 * 4096);
    client.open("/f", &OpenOptions::new().write(true)).unwrap().write_all_at(&[2; 100], 50).unwrap();
    let small = stats(&client, 0);
    assert_eq!(small.total.data_bytes, 3 * 4096);
    assert!(small.log.bytes >= blocks.log.bytes + 100, "{} after {}", small.log.bytes, blocks.log.bytes);
}

#[test]
fn counters_survive_their_session_and_are_counted_once() {
    let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
    let watcher = Client::with(Arc::new(embedded.clone())).unwrap();
    let mut seen = 0;
    for round in 1..20u64 {
        let client = Client::with(Arc::new(embedded.clone())).unwrap();
        client.write(format!("/{round}"), &[1; 100]).unwrap();
        drop(client);
        let now = stats(&watcher, 0).total.payload_bytes_in;
        assert!(now >= seen, "never backwards");
        assert!(now <= round * 100, "never twice");
        seen = now;
    }
    assert_eq!(seen, 1900);
}

#[test]
fn inode_queues_are_listed_when_asked_for() {
    let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    assert!(stats(&client, 0).inode_queues.is_none());
    assert_eq!(stats(&client, detail::INODE_QUEUES).inode_queues, Some(Vec::new()), "nothing holds a ticket");
}

#[test]
fn a_recording_is_one_sessions_and_ends_with_it() {
    served(DeviceConfig::default(), |socket| {
        let (a, b) = (Client::connect(socket).unwrap(), Client::connect(socket).unwrap());
        assert_eq!(errno(a.trace_stop()), Some(Errno::INVAL.0), "none runs");
        assert_eq!(errno(a.trace_start(0)), Some(Errno::INVAL.0));
        a.trace_start(100).unwrap();
        assert_eq!(errno(b.trace_start(100)), Some(Errno::BUSY.0));
        assert_eq!(errno(b.trace_stop()), Some(Errno::INVAL.0));
        a.write("/f", &[1; 5000]).unwrap();
        let bytes = a.trace_stop().unwrap();
        let facts: TraceFacts = serde_json::from_str(trace::decode(&bytes).unwrap().facts).unwrap();
        assert!(facts.start_ns < facts.end_ns && facts.cores.len() == 1 && !facts.tenants.is_empty());
        a.trace_start(100).unwrap();
        drop(a);
        // The device notices the end of a session in its own time.
        let start = std::time::Instant::now();
        while let Some(code) = errno(b.trace_start(100)) {
            assert_eq!(code, Errno::BUSY.0);
            assert!(start.elapsed().as_secs() < 10, "the recording of a session that ended is over");
            std::thread::yield_now();
        }
    });
}

#[test]
fn only_root_and_who_runs_the_device_may_record() {
    let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
    let other = embedded.acting_as(Cred { uid: 4711, gid: 4711, groups: Vec::new().into() });
    let client = Client::with(Arc::new(other)).unwrap();
    assert_eq!(errno(client.trace_start(10)), Some(Errno::PERM.0));
    Client::with(Arc::new(embedded.clone())).unwrap().trace_start(10).unwrap();
}

#[test]
fn a_recording_and_the_counters_tell_the_same() {
    let config = DeviceConfig { cores: 2, ..DeviceConfig::default() };
    let embedded = Embedded::open(&Source::Ram(128 << 20), config).unwrap();
    let watcher = Client::with(Arc::new(embedded.clone())).unwrap();
    watcher.write("/warm", &[1; 100]).unwrap();
    let before = stats(&watcher, 0);
    watcher.trace_start(100_000).unwrap();
    std::thread::scope(|s| {
        for t in 0..4 {
            let embedded = embedded.clone();
            s.spawn(move || {
                let client = Client::with(Arc::new(embedded)).unwrap();
                (0..50).for_each(|n| client.write(format!("/{t}-{n}"), &vec![7; 200_000]).unwrap());
            });
        }
    });
    let bytes = watcher.trace_stop().unwrap();
    let after = stats(&watcher, 0);
    let trace::Decoded { facts, slices, .. } = trace::decode(&bytes).unwrap();
    let facts: TraceFacts = serde_json::from_str(facts).unwrap();
    let mut by_core = vec![Vec::new(); 2];
    for s in &slices {
        assert!(facts.start_ns <= s.start_ns && s.start_ns <= s.end_ns && s.end_ns <= facts.end_ns, "{s:?}");
        by_core[usize::from(s.core)].push(*s);
    }
    for (core, spans) in by_core.iter().enumerate() {
        assert!(spans.windows(2).all(|w| w[0].end_ns <= w[1].start_ns), "slices of core {core} overlap");
        let (recorded, counted) = (facts.cores[core], after.cores[core].totals.since(&before.cores[core].totals));
        assert_eq!(spans.len() as u64, recorded.slices);
        assert_eq!(spans.iter().map(|s| s.end_ns - s.start_ns).sum::<u64>(), recorded.busy_ns);
        assert_eq!((recorded.slices, recorded.busy_ns, recorded.cost_ns, recorded.dropped), {
            (counted.slices, counted.busy_ns, counted.device_ns, 0)
        });
    }
    let total = after.total.since(&before.total);
    assert_eq!(total.slices, slices.len() as u64);
    assert!(total.payload_bytes_in == 4 * 50 * 200_000 && total.commands >= 200);
    let now = &after.tenants[0];
    assert_eq!(now.latency.total.count() - before.tenants[0].latency.total.count(), total.commands);
    assert!(now.backlogged_ns > before.tenants[0].backlogged_ns && total.depth_ns >= total.outstanding_ns);
    assert!(total.used_ns > 0 && now.vruntime_ns >= before.tenants[0].vruntime_ns);
}

#[test]
fn a_recording_has_what_went_on_in_slots_as_the_counters_do() {
    let card = CardConfig { reconfigure: Reconfigure::NONE, ..CardConfig::default() };
    let embedded = Embedded::open(&Source::Ram(128 << 20), DeviceConfig { card, ..DeviceConfig::default() }).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    let log = client.open("/log", &OpenOptions::new().read(true).write(true).create(true)).unwrap();
    client.write("/text", &b"one\nan error\nthree\n".repeat(100_000)).unwrap();
    let length = VirtRange { path: b"/text".to_vec(), offset: 0, length: u64::MAX };
    let params = vec![5, u32::from_le_bytes(*b"erro"), u32::from_le_bytes(*b"r\0\0\0")];
    let spec = VirtSpec { kernel: "grep".into(), params, direction: Direction::Read, ranges: vec![length] };
    client.virt_register("/errors", 0o600, &spec).unwrap();
    let before = stats(&client, 0);
    client.trace_start(10_000).unwrap();
    let raw = log.raw().placement(Placement::Slot);
    // Short ones are computed at once, the last one in the slot.
    let lens = [4096, 100, 4096, 60_000];
    for len in lens {
        raw.append_checksum_write(log.handle(), &vec![7; len][..]).unwrap();
    }
    let hits = client.read("/errors").unwrap();
    let bytes = client.trace_stop().unwrap();
    let after = stats(&client, 0);
    let trace::Decoded { facts, spans, slices } = trace::decode(&bytes).unwrap();
    let facts: TraceFacts = serde_json::from_str(facts).unwrap();
    assert!(!hits.is_empty() && !slices.is_empty() && facts.kernels == ["crc32c", "grep"], "{facts:?}");
    let within = |s: &SlotSpan| facts.start_ns <= s.start_ns && s.start_ns <= s.end_ns && s.end_ns <= facts.end_ns;
    assert!(spans.iter().all(within));
    let sessions: Vec<_> = spans.iter().filter(|s| s.kind == slot_kind::SESSION).collect();
    let sums: Vec<u64> = sessions.iter().filter(|s| s.kernel == 0).map(|s| s.bytes_in).collect();
    assert_eq!(sums, lens.map(|len| len as u64));
    let grep: Vec<_> = sessions.iter().filter(|s| s.kernel == 1).collect();
    assert_eq!((grep.len(), grep[0].bytes_in, grep[0].bytes_out), (1, 1_900_000, hits.len() as u64));
    let total = after.total.since(&before.total);
    assert_eq!(sessions.iter().map(|s| s.slot_ns).sum::<u64>(), total.slot_ns);
    let counted = |s: &DeviceStats| s.slots.iter().map(|s| (s.busy_ns, s.sessions)).collect::<Vec<_>>();
    assert_eq!(facts.slots.iter().map(|s| (s.slot_ns, s.sessions)).collect::<Vec<_>>(), counted(&after));
    let steps = spans.iter().filter(|s| s.kind == slot_kind::STEP && s.kernel == 1);
    assert_eq!(steps.map(|s| s.bytes_in).sum::<u64>(), 1_900_000);
    assert!(spans.iter().all(|s| facts.tenants.contains_key(&s.tenant)), "{:?}", facts.tenants);
}

#[test]
fn a_client_that_keeps_sixteen_commands_queued_is_seen_to_do_so() {
    const DEPTH: usize = 16;
    let profile = Profile::parse("[core]\nspeed = 0.002").unwrap();
    let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig { profile, ..DeviceConfig::default() }).unwrap();
    let watcher = Client::with(Arc::new(embedded.clone())).unwrap();
    watcher.write("/f", &[1; 8192]).unwrap();
    let transport: Arc<dyn Transport> = Arc::from(embedded.attach(&AttachOptions::default()).unwrap());
    let mut queue = Queue::new(transport.new_queue(32, 1 << 16).unwrap(), transport.clone()).unwrap();
    let path = queue.stage(b"/f").unwrap();
    let open = Op::open(Handle::ROOT, path, OpenFlags::READ, 0);
    let h = Handle::from_wire(queue.execute(&Command::new(0, open)).unwrap().ok().unwrap().0);
    let out = queue.alloc(4096).unwrap();
    let read = Command::new(0, Op::Read { h, at: At::Offset(0), out, watch: 0 });
    let mut open: VecDeque<_> = (0..DEPTH).map(|_| queue.submit(&read).unwrap()).collect();
    queue.flush();
    let mut turn = || {
        queue.wait(open.pop_front().unwrap()).unwrap().ok().unwrap();
        open.push_back(queue.submit(&read).unwrap());
        queue.flush();
    };
    // The first ones have not waited for a full ring.
    (0..DEPTH).for_each(|_| turn());
    let before = stats(&watcher, 0);
    // Of a busy machine's 400 ms one command can have most: the means are of so many that those that are under way at
    // either end are few of them.
    let (start, mut turns) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(400) || turns < 8 * DEPTH {
        turn();
        turns += 1;
    }
    let after = stats(&watcher, 0);
    let interval = (after.time_ns - before.time_ns) as f64;
    let of = |now: u64, then: u64| (now - then) as f64 / interval;
    let (a, b) = (&after.tenants[0], &before.tenants[0]);
    let depth = of(a.totals.depth_ns, b.totals.depth_ns);
    // On a busy machine the client is late with the next command, so the depth is less than it wants; never more.
    assert!((DEPTH as f64 / 4.0..=DEPTH as f64 * 1.05).contains(&depth), "mean depth {depth}");
    let backlogged = of(a.backlogged_ns, b.backlogged_ns);
    assert!((0.5..=1.05).contains(&backlogged), "backlogged {backlogged}");
    let pair = of(a.totals.outstanding_ns, b.totals.outstanding_ns);
    assert!((backlogged - pair).abs() < 0.05, "one queue pair is the tenant: {pair} {backlogged}");
    let latency = a.latency.since(&b.latency);
    let (waited, served) = (latency.queue.mean_ns(), latency.service.mean_ns());
    assert!(waited > 2 * served, "the wait in the ring is a part of the latency: {waited} ns, then {served} ns");
    let (core, then) = (&after.cores[0].totals, &before.cores[0].totals);
    let busy = of(core.busy_ns + core.stretched_ns, then.busy_ns + then.stretched_ns);
    // The last slice is counted whole when it begins, and one of up to 100 us is charged as it was measured, even if
    // the host ran something else in it.
    let last = 100_000.0 / 0.002 / interval;
    assert!((0.3..=1.05 + last).contains(&busy), "the emulated core is the bottleneck: busy {busy}");
    open.into_iter().for_each(|t| assert_eq!(queue.wait(t).unwrap().status, 0));
    drop(queue);
    transport.detach();
    let idle = stats(&watcher, 0).tenants[0].backlogged_ns;
    std::thread::sleep(Duration::from_millis(20));
    let later = stats(&watcher, 0).tenants[0].backlogged_ns;
    assert_eq!(later, idle, "nothing is outstanding any more");
}
