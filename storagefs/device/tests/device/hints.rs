//! What clients say of their commands: priorities, within one tenant and never beyond it.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::greedy_client::{Pump, device, experiment, read};
use weldfs::{Client, Hints, Life, OpenOptions, Priority};
use weldfs_kernel_shim::Embedded;

const USER: u32 = 2001;
const OTHER: u32 = 2002;
const INTERVAL: Duration = Duration::from_millis(1200);

/// Commands of each pump that were over within an interval in which all had some queued.
fn served(pumps: &mut [Pump]) -> Vec<f64> {
    let stir = |pumps: &mut [Pump], time: Duration| {
        let until = Instant::now() + time;
        while Instant::now() < until {
            pumps.iter_mut().for_each(Pump::stir);
            sleep(Duration::from_micros(200));
        }
    };
    stir(pumps, Duration::from_millis(200));
    let before: Vec<u64> = pumps.iter().map(|p| p.over).collect();
    stir(pumps, INTERVAL);
    pumps.iter().zip(before).map(|(p, before)| (p.over - before) as f64).collect()
}

/// A pump of reads of a file of its own, which have this priority.
fn pump(embedded: &Embedded, uid: u32, path: &str, priority: Priority) -> Pump {
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    let options = OpenOptions::new().read(true).write(true).create(true).mode(0o666);
    client.open(path, &options).unwrap().write_all_at(&[7; 64 << 10], 0).unwrap();
    client.set_permissions(path, 0o666).unwrap();
    let mut pump = Pump::on(embedded, uid, path, 32, read);
    pump.command.hints = Hints { priority, life: Life::Unknown };
    pump
}

/// Right where `got` lies in a range, else what to say.
fn within(got: f64, from: f64, to: f64, what: &str) -> Result<(), String> {
    (from..to).contains(&got).then_some(()).ok_or_else(|| format!("{what}: {got}"))
}

#[test]
fn a_tenants_own_priorities_divide_its_share_and_do_not_change_it() {
    // A pump that gets no processor for some milliseconds has nothing queued, and gets less than it is due.
    experiment(|| {
        let embedded = device("");
        let mut pumps = [
            pump(&embedded, USER, "/low", Priority::Low),
            pump(&embedded, USER, "/high", Priority::High),
            pump(&embedded, OTHER, "/other", Priority::Low),
        ];
        let [low, high, other] = served(&mut pumps)[..] else { panic!("three pumps") };
        within(high / low, 4.0, 14.0, "eight times as urgent")?;
        within((low + high) / other, 0.8, 1.25, "both users alike")?;
        for pump in &mut pumps[..2] {
            pump.command.hints = Hints { priority: Priority::Low, life: Life::Unknown };
        }
        let [one, two, _] = served(&mut pumps)[..] else { panic!("three pumps") };
        within(one / two, 0.7, 1.4, "equally urgent")
    });
}

#[test]
fn what_is_said_is_counted_and_changes_no_answer() {
    let embedded = weldfs_kernel_shim::Embedded::open(
        &weldfs_kernel_shim::Source::Ram(64 << 20),
        weldfs_device::DeviceConfig::default(),
    )
    .unwrap();
    let client = Client::with(Arc::new(embedded)).unwrap();
    let counted = || {
        let stats: serde_json::Value = serde_json::from_str(&client.stats_json().unwrap()).unwrap();
        ["prioritized", "lives"].map(|name| stats["total"][name].as_u64().unwrap())
    };
    let file = client.create("/f").unwrap();
    file.write_all_at(b"plain", 0).unwrap();
    assert_eq!(counted(), [0, 0]);
    for (life, bytes) in Life::ALL.into_iter().zip([b"a", b"b", b"c", b"d", b"e"]) {
        file.set_hints(Hints { priority: Priority::Normal, life });
        assert_eq!(file.append(bytes).unwrap().len, 1);
    }
    assert_eq!(counted(), [0, 4]);
    file.set_hints(Hints { priority: Priority::Medium, life: Life::Short });
    let mut room = [0; 10];
    assert_eq!(file.read_at(&mut room, 0).unwrap(), 10);
    assert_eq!((&room, counted()), (b"plainabcde", [1, 5]));
    assert_eq!(file.raw().hints(Hints::NONE).stat(file.handle()).unwrap().size, 10);
    assert_eq!(counted(), [1, 5]);
}
