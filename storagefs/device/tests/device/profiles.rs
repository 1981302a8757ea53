//! What a profile holds back: traffic of link and medium, over a socket and inside the process; changed while it runs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weldfs::{Client, Errno};
use weldfs_device::{DeviceConfig, Profile};
use weldfs_kernel_shim::{Embedded, ServeConfig, Server, Source};

fn config(toml: &str) -> DeviceConfig {
    DeviceConfig { profile: Profile::parse(toml).unwrap(), ..DeviceConfig::default() }
}

/// Runs `body` with a client of a device that is served by another thread.
fn served(config: DeviceConfig, body: impl FnOnce(&Client)) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let mut serve = ServeConfig::new(Source::Ram(64 << 20), &socket);
    (serve.device, serve.signals) = (config, false);
    let server = Server::bind(serve).unwrap();
    let stopper = server.stopper();
    let thread = std::thread::spawn(move || server.run().unwrap());
    body(&Client::connect(&socket).unwrap());
    stopper.stop();
    thread.join().unwrap();
}

fn took(body: impl FnOnce()) -> Duration {
    let start = Instant::now();
    body();
    start.elapsed()
}

fn code<T>(result: std::io::Result<T>) -> Option<Errno> {
    result.err().and_then(|e| e.raw_os_error()).map(Errno)
}

#[test]
fn reads_writes_and_the_log_take_the_mediums_time() {
    let embedded = Embedded::open(&Source::Ram(64 << 20), config("[media]\nlatency_ns = 2000000")).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    let data: Vec<u8> = (0..40_000u32).map(|n| n as u8).collect();
    // Data and its record are durable when it is answered (whoever flushes them waits for the medium).
    assert!(took(|| client.write("/f", &data).unwrap()) >= Duration::from_millis(2));
    let mut read = Vec::new();
    assert!(took(|| read = client.read("/f").unwrap()) >= Duration::from_millis(2));
    assert_eq!(read, data);
    // What asks nothing of the medium waits for none of it.
    let quick = (0..20).map(|_| took(|| client.raw().nop().unwrap())).min().unwrap();
    assert!(quick < Duration::from_millis(2), "{quick:?}");
    assert!(embedded.device().stats().total.modelled_ns >= 1_500_000);
}

#[test]
fn a_mediums_bandwidth_bounds_what_commands_read_together() {
    const BYTES: usize = 8 << 20;
    let toml = "[media]\nchannels = 4\nbandwidth_bytes_per_s = 100000000";
    let embedded = Embedded::open(&Source::Ram(64 << 20), config(toml)).unwrap();
    let client = Client::with(Arc::new(embedded)).unwrap();
    client.write("/f", &vec![7; BYTES]).unwrap();
    let ideal = Duration::from_secs_f64(BYTES as f64 / 1e8);
    let read = took(|| assert_eq!(client.read("/f").unwrap().len(), BYTES));
    assert!(read >= ideal.mul_f64(0.99), "{read:?}, ideally {ideal:?}");
}

#[test]
fn every_sample_is_served() {
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles")).unwrap() {
        let profile = Profile::load(&entry.unwrap().path()).unwrap();
        let name = profile.name.clone();
        let cores = profile.core.count.max(1) as usize;
        served(DeviceConfig { profile, cores, ..DeviceConfig::default() }, |client| {
            client.write("/f", &[5; 10_000]).unwrap();
            assert_eq!(client.read("/f").unwrap(), [5; 10_000], "{name}");
            let stats: serde_json::Value = serde_json::from_str(&client.stats_json().unwrap()).unwrap();
            assert_eq!(stats["device"]["profile"]["name"], name.as_str());
            assert!(stats["total"]["modelled_ns"].as_u64().unwrap() > 0, "{name}");
        });
    }
}

#[test]
fn the_link_is_tuned_while_it_runs() {
    served(DeviceConfig::default(), |client| {
        let name = |client: &Client| {
            let stats: serde_json::Value = serde_json::from_str(&client.stats_json().unwrap()).unwrap();
            stats["device"]["profile"]["name"].as_str().unwrap().to_owned()
        };
        assert_eq!(name(client), "none");
        client.tune("link.latency=2ms").unwrap();
        assert!(took(|| client.raw().nop().unwrap()) >= Duration::from_millis(4));
        client.tune("link.latency=0").unwrap();
        let quick = (0..20).map(|_| took(|| client.raw().nop().unwrap())).min().unwrap();
        assert!(quick < Duration::from_millis(4), "{quick:?}");
        client.tune("link.bandwidth=100MB/s").unwrap();
        let write = took(|| client.write("/f", &vec![1; 4 << 20]).unwrap());
        assert!(write >= Duration::from_millis(41), "{write:?}");
        assert_eq!(name(client), "none+tuned");
        for (bad, errno) in [
            ("link.latency=5", Errno::RANGE),
            ("link.latency=2s", Errno::RANGE),
            ("link.bandwidth=fast", Errno::RANGE),
            ("link.pcie=9x9", Errno::RANGE),
            ("core.speed=0", Errno::RANGE),
            ("core.speed=nan", Errno::RANGE),
            ("media.latency=5us", Errno::NOENT),
            ("link.colour=1", Errno::NOENT),
        ] {
            assert_eq!(code(client.tune(bad)), Some(errno), "{bad}");
        }
        // Each says the bandwidth: the last one holds.
        client.tune("link.pcie=3x8").unwrap();
        let list = client.settings_json().unwrap();
        assert!(list.contains(r#""key":"link.bandwidth","value":"0""#) && list.contains(r#""3x8""#), "{list}");
    });
}

#[test]
fn a_modelled_medium_is_tuned_while_it_runs_and_another_is_not_there() {
    served(config("[media]\nlatency_ns = 1000"), |client| {
        client.write("/f", &[1; 8192]).unwrap();
        for setting in ["media.latency=3ms", "media.channels=4", "media.iops=1.2M", "media.bandwidth=16GB/s"] {
            client.tune(setting).unwrap();
        }
        assert!(took(|| drop(client.read("/f").unwrap())) >= Duration::from_millis(3));
        assert_eq!(code(client.tune("media.channels=0")), Some(Errno::RANGE));
    });
    // The threads that call an embedded device without a profile run it: none of them waits.
    let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
    let keys: Vec<String> = embedded.device().settings().into_iter().map(|s| s.key).collect();
    assert!(embedded.device().is_inline() && !keys.iter().any(|k| k.starts_with("link.")), "{keys:?}");
    assert!(embedded.device().tune("link.latency=1ms").is_err());
}

#[test]
fn the_slots_of_a_profile_are_those_of_the_card() {
    let toml = "[slots]\ncount = 2\nclock_mhz = 100\nluts = 50000\nreconfigure_ns = 0\nreconfigure_lut_ns = 0";
    let embedded = Embedded::open(&Source::Ram(64 << 20), config(toml)).unwrap();
    let other = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
    let slots = |e: &Embedded| e.device().card().status().slots.len();
    assert_eq!(slots(&other) - slots(&embedded), 1, "two in place of three");
}
