//! Slots in modelled time, as a device's clients see it: rates, shares by weight, and what is changed while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::virt::{READ, drain, errno, put, spec, user};
use weldfs::{Client, Direction, Errno, OpenOptions, Placement};
use weldfs_ciscops::virt::TO_END;
use weldfs_device::{DeviceConfig, Profile, TuneError};
use weldfs_kernel_shim::{Embedded, Source};

/// One million cycles of 64 bytes a second, and no time to load a kernel.
const SLOW: &str = "[slots]\nclock_mhz = 1\nreconfigure_ns = 0\nreconfigure_lut_ns = 0\n";
const RATE: u64 = 64_000_000;

fn device(profile: &str) -> (Embedded, Client) {
    let config = DeviceConfig { profile: Profile::parse(profile).unwrap(), ..DeviceConfig::default() };
    let embedded = Embedded::open(&Source::Ram(96 << 20), config).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    client.set_permissions("/", 0o777).unwrap();
    (embedded, client)
}

/// A virtual file over so many bytes, of a kernel that takes 64 of them a cycle. (The pass-through has a slot of its
/// own.)
fn through(client: &Client, path: &str, kernel: &str, params: &[u32], bytes: usize) {
    let real = format!("{path}-real");
    put(client, &real, &vec![7; bytes]);
    let spec = spec(kernel, params.to_vec(), Direction::Read, &[(&real, 0, TO_END)]);
    client.virt_register(path, 0o644, &spec).unwrap();
}

fn took(body: impl FnOnce()) -> Duration {
    let start = Instant::now();
    body();
    start.elapsed()
}

/// As long as the model says, and not much longer.
fn assert_modelled(took: Duration, bytes: u64) {
    let ideal = Duration::from_nanos(bytes * 1_000_000_000 / RATE);
    assert!(took >= ideal, "{took:?}: faster than the modelled slot, which takes {ideal:?}");
    assert!(took < 4 * ideal + Duration::from_secs(2), "{took:?}: the modelled slot takes {ideal:?}");
}

#[test]
fn streams_and_stages_of_commands_have_the_rate_of_the_profiles_slots() {
    let (embedded, client) = device(SLOW);
    through(&client, "/v", "pass-through", &[], 16 << 20);
    let stream = client.vopen("/v", READ).unwrap();
    let read = took(|| assert_eq!(drain(&stream, 1 << 20).unwrap().len(), 16 << 20));
    assert_modelled(read, 16 << 20);
    let log = client.open("/log", &OpenOptions::new().write(true).create(true)).unwrap();
    let raw = log.raw().placement(Placement::Slot);
    for (bytes, times) in [(1 << 19, 8), (4096, 50)] {
        let payload = vec![1; bytes];
        let all = took(|| (0..times).for_each(|_| _ = raw.append_checksum_write(log.handle(), &payload).unwrap()));
        assert_modelled(all, (bytes * times) as u64);
    }
    let total = embedded.device().stats().total;
    assert_eq!(total.slot_ns, total.slot_bytes_in.div_ceil(64) * 1000, "what is charged is what it took");
    assert!(!device("").0.device().card().pace().timed, "nothing is modelled without a profile");
    assert!(device("[link]\nlatency_ns = 100").0.device().card().pace().timed);
}

/// What each of two tenants used of slots while both wanted more than there is, ns.
fn shares(weights: [u32; 2], slots: usize) -> [u64; 2] {
    // 4 ms of a slot.
    const BYTES: usize = 256 << 10;
    let (embedded, client) = device(&format!("{SLOW}count = {slots}"));
    through(&client, "/v", "crc32c", &[], BYTES);
    let users = [user(&embedded, 1001), user(&embedded, 1002)];
    for (uid, weight) in [1001, 1002].into_iter().zip(weights) {
        client.tune(&format!("tenant.uid:{uid}.weight={weight}")).unwrap();
    }
    let stop = AtomicBool::new(false);
    let used = || {
        let stats = embedded.device().stats();
        let of = |name: &str| stats.tenants.iter().find(|t| t.name == name).map_or(0, |t| t.totals.slot_ns);
        [of("uid:1001"), of("uid:1002")]
    };
    let mut counted = [[0; 2]; 2];
    std::thread::scope(|scope| {
        // So many that both always have some that wait, though the host keeps a few of them from running.
        for i in 0..24 {
            let (user, stop) = (&users[i % 2], &stop);
            scope.spawn(move || {
                let log = user.open(format!("/log-{i}"), &OpenOptions::new().write(true).create(true)).unwrap();
                let (raw, payload) = (log.raw().placement(Placement::Slot), vec![1; BYTES]);
                while !stop.load(Ordering::Acquire) {
                    // Half of them are streams, half are stages of commands.
                    if i < 12 {
                        assert_eq!(drain(&user.vopen("/v", READ).unwrap(), 100).unwrap().len(), 4);
                    } else {
                        raw.append_checksum_write(log.handle(), &payload).unwrap();
                        log.set_len(0).unwrap();
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        counted[0] = used();
        std::thread::sleep(Duration::from_millis(2500));
        counted[1] = used();
        stop.store(true, Ordering::Release);
    });
    // All that slots computed is some tenant's.
    let card = embedded.device().card().status();
    let busy = card.slots.iter().map(|s| s.busy_ns).sum::<u64>();
    assert_eq!(used().iter().sum::<u64>(), busy, "slot time is charged to who used it");
    [0, 1].map(|tenant: usize| counted[1][tenant] - counted[0][tenant])
}

#[test]
fn two_tenants_with_streams_and_commands_share_slots_by_their_weights() {
    for (weights, slots) in [([100, 300], 1), ([200, 100], 2)] {
        let [a, b] = shares(weights, slots);
        let ideal = f64::from(weights[1]) / f64::from(weights[0]);
        let got = b as f64 / a as f64;
        println!("weights {weights:?}, {slots} slots: {a} and {b} ns, {got:.3} for {ideal:.3}");
        assert!((got / ideal - 1.0).abs() < 0.05, "weights {weights:?}, {slots} slots: {a} and {b} ns");
    }
}

#[test]
fn slots_are_tuned_while_they_work() {
    let (embedded, client) = device("");
    through(&client, "/v", "pass-through", &[], 4 << 20);
    let card = embedded.device().card();
    let value = |key: &str| {
        let all = embedded.device().settings();
        all.into_iter().find(|s| s.key == key).unwrap_or_else(|| panic!("no {key}")).value
    };
    let read = || took(|| assert_eq!(drain(&client.vopen("/v", READ).unwrap(), 1 << 20).unwrap().len(), 4 << 20));
    for (key, is) in [
        ("slots.count", "3"),
        ("slots.timed", "auto"),
        ("slots.clock", "250MHz"),
        ("slots.dram_bytes", "1G"),
        ("slots.credits", "16"),
        ("slots.credit_bytes", "64K"),
        ("slots.reconfigure", "100ms"),
        ("slots.reconfigure_lut", "1500ns"),
        ("slots.region.3", "131072,262144,240,760"),
    ] {
        assert_eq!(value(key), is, "{key}");
    }
    client.tune("slots.reconfigure=0").unwrap();
    client.tune("slots.reconfigure_lut=0").unwrap();
    client.tune("slots.clock=1MHz").unwrap();
    assert!(card.pace().timed, "a key of [slots] is another than it was");
    assert_modelled(read(), 4 << 20);
    assert_eq!(card.status().slots.iter().map(|s| s.reconfigure_ns).sum::<u64>(), 0);
    client.tune("slots.timed=off").unwrap();
    read();
    assert_eq!((card.pace().timed, value("slots.timed").as_str()), (false, "off"));
    client.tune("slots.dram_bytes=4096").unwrap();
    assert_eq!(card.pace().dram_bytes, 4096);
    client.tune("slots.timed=on").unwrap();
    client.tune("slots.credits=1").unwrap();
    client.tune("slots.credit_bytes=4096").unwrap();
    assert_eq!(card.fifo_bytes(), 4096);
    assert_modelled(read(), 4 << 20);
    // The memory that a stream is charged is that of the FIFOs that it has.
    let held = |client: &Client| -> u64 {
        let all: serde_json::Value = serde_json::from_str(&client.tenants_json().unwrap()).unwrap();
        all.as_array().unwrap().iter().map(|t| t["usage"]["pool_bytes"].as_u64().unwrap()).sum()
    };
    let (stream, before) = (client.vopen("/v", READ).unwrap(), held(&client));
    stream.vread(&mut [0; 100][..]).unwrap();
    let few = held(&client) - before;
    client.tune("slots.credits=16").unwrap();
    let (other, before) = (client.vopen("/v", READ).unwrap(), held(&client));
    other.vread(&mut [0; 100][..]).unwrap();
    assert_eq!(held(&client) - before, few + 2 * 15 * 4096);
    drop((stream, other));
    assert!(value("slots.clock") == "1MHz" && embedded.device().stats().device.profile.name == "none+tuned");
}

#[test]
fn slots_come_go_and_change_their_size_while_they_are_idle_and_not_else() {
    let (embedded, client) = device("[slots]\nreconfigure_ns = 0\nreconfigure_lut_ns = 0\ntimed = \"off\"");
    // Twice as much comes out.
    through(&client, "/v", "statistics", &[2], 8 << 20);
    let sizes = || embedded.device().card().slots().iter().map(|r| r.lut).collect::<Vec<_>>();
    let streams: Vec<_> = (0..3).map(|_| client.vopen("/v", READ).unwrap()).collect();
    streams.iter().for_each(|s| assert!(s.vread(&mut [0; 100][..]).unwrap() > 0));
    client.tune("slots.count=5").unwrap();
    client.tune("slots.region.5=200000,1,2,3").unwrap();
    assert_eq!(sizes(), [131_072, 131_072, 131_072, 131_072, 200_000]);
    for setting in ["slots.count=2", "slots.region.2=9,9,9,9"] {
        assert_eq!(errno(client.tune(setting)), Some(Errno::BUSY), "{setting}");
        let refused = embedded.device().tune(setting).unwrap_err();
        let text = refused.to_string();
        assert!(matches!(refused, TuneError::Busy { .. }) && text.contains(" is in use: it cannot "), "{text}");
    }
    assert_eq!(sizes().len(), 5);
    assert!(!embedded.device().stats().device.profile.slots.regions.is_empty());
    drop(streams);
    // Their sessions end with them, if not at once.
    let start = Instant::now();
    while errno(client.tune("slots.count=2")) == Some(Errno::BUSY) {
        assert!(start.elapsed() < Duration::from_secs(20), "they are still in use");
        std::thread::sleep(Duration::from_millis(5));
    }
    client.tune("slots.region.2=70000, 90000, 9, 9").unwrap();
    assert_eq!(sizes(), [131_072, 70_000]);
    let stats = embedded.device().stats();
    assert_eq!(stats.slots.iter().map(|s| s.luts).collect::<Vec<_>>(), [None, Some(131_072), Some(70_000)]);
    assert_eq!(drain(&client.vopen("/v", READ).unwrap(), 1 << 20).unwrap().len(), 16 << 20);
    for (bad, errno_of) in [
        ("slots.count=0", Errno::RANGE),
        ("slots.count=65", Errno::RANGE),
        ("slots.clock=0", Errno::RANGE),
        ("slots.clock=3GHz", Errno::RANGE),
        ("slots.clock=250", Errno::RANGE),
        ("slots.dram_bytes=1099511627777", Errno::RANGE),
        ("slots.dram_bytes=2T", Errno::RANGE),
        ("slots.dram_bytes=1GB/s", Errno::RANGE),
        ("slots.clock=0.5MHz", Errno::RANGE),
        ("slots.clock=1.5MHz", Errno::RANGE),
        ("slots.region.01=1,1,1,1", Errno::NOENT),
        ("slots.region. 1=1,1,1,1", Errno::NOENT),
        ("slots.region.+1=1,1,1,1", Errno::NOENT),
        ("slots.credits=1 6", Errno::RANGE),
        ("slots.credits=+16", Errno::RANGE),
        ("slots.credits=0", Errno::RANGE),
        ("slots.credit_bytes=63", Errno::RANGE),
        ("slots.reconfigure=61s", Errno::RANGE),
        ("slots.reconfigure_lut=2ms", Errno::RANGE),
        ("slots.timed=maybe", Errno::RANGE),
        ("slots.region.1=0,1,1,1", Errno::RANGE),
        ("slots.region.1=1,1,1", Errno::RANGE),
        ("slots.region.1=1,1,1,1,1", Errno::RANGE),
        ("slots.region.3=1,1,1,1", Errno::NOENT),
        ("slots.region.0=1,1,1,1", Errno::NOENT),
        ("slots.luts=5", Errno::NOENT),
    ] {
        assert_eq!(errno(client.tune(bad)), Some(errno_of), "{bad}");
    }
    assert_eq!(sizes(), [131_072, 70_000]);
    // Spaces around keys, values and the numbers of a size are none of them.
    client.tune(" slots.region.1 = 131072 ,262144, 240,760 ").unwrap();
    // All credits together are the FIFO: each may be as large as it may, and both not.
    client.tune("slots.credit_bytes=16M").unwrap();
    let refused = embedded.device().tune("slots.credits=17").unwrap_err().to_string();
    assert!(refused.contains("1..=4096, times slots.credit_bytes at most 256M"), "{refused}");
    client.tune("slots.credits=1").unwrap();
    client.tune("slots.credit_bytes=64K").unwrap();
    client.tune("slots.credits=4096").unwrap();
    let refused = embedded.device().tune("slots.credit_bytes=65537").unwrap_err().to_string();
    assert!(refused.contains("64 to 16M bytes, e.g. 64K; times slots.credits at most 256M"), "{refused}");
}
