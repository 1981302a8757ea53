//! Intervals over made-up counters, and the screen drawn on a terminal in memory.

use super::*;
use interval::TenantRow;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use weldfs_device::{CoreStats, InodeQueueStats, TenantStats};
use weldfs_session::latency::Latency;

const EMPTY: &str = r#"{"time_ns":1000000000,"device":{"label":"disk","medium":"ram","durability":"durable",
    "power_safe":false,"cores":2,"policy":"cfs","profile":{}},"total":{},"crossings":{"commands":0,"doorbells":0,
    "client_wakes":0,"device_sleeps":0},"log":{"flushes":0,"records":0,"bytes":0,"batches":0,"log_writes":0,
    "data_writes":0,"data_bytes":0,"watermark_records":0,"used":0,"checkpoints":0},"usage":{"sessions":0,"queues":0,
    "pool_bytes":0,"handles":0,"open_files":0,"placeholders":0,"locks":0,"inode_queues":0},
    "scheduler":{"policy":"cfs","cost":"measured","quantum_ns":100000,"runnable":3,"min_vruntime_ns":1000},
    "cores":[],"tenants":[]}"#;

/// Two looks, two seconds apart: alice used three quarters of the time, bob came in between.
fn looks() -> (DeviceStats, DeviceStats) {
    let mut before: DeviceStats = serde_json::from_str(EMPTY).expect("a report");
    let latency = Latency::default();
    latency.record(1_000_000, 1_000_000);
    let mut alice = TenantStats { tenant: 0, name: "alice".into(), weight: 300, ..TenantStats::default() };
    (alice.totals.commands, alice.totals.used_ns, alice.latency) = (100, 5_000, latency.snapshot());
    before.cores = (0..2).map(|core| CoreStats { core, ..CoreStats::default() }).collect();
    before.tenants = vec![alice.clone()];
    before.total = alice.totals.clone();

    let mut now = before.clone();
    now.time_ns += 2_000_000_000;
    (0..100).for_each(|_| latency.record(2_000, 50_000));
    alice.totals.commands += 2_000;
    alice.totals.used_ns += 1_500_000_000;
    alice.totals.depth_ns += 64_000_000_000;
    alice.backlogged_ns = 2_000_000_000;
    (alice.latency, alice.vruntime_ns) = (latency.snapshot(), 400);
    let mut bob = TenantStats { tenant: 1, name: "bob".into(), weight: 100, ..TenantStats::default() };
    (bob.totals.commands, bob.totals.used_ns, bob.vruntime_ns) = (10, 500_000_000, 5_000);
    now.total.add(&bob.totals);
    now.total.commands += 2_000;
    now.total.used_ns += 1_500_000_000;
    now.tenants = vec![alice, bob];
    now.cores[0].totals.busy_ns = 1_000_000_000;
    (now.cores[0].totals.slices, now.cores[0].totals.last_tenant) = (5_000, Some(1));
    now.inode_queues = Some(vec![InodeQueueStats {
        inode: 77,
        tenant: Some(0),
        tickets: 9,
        waiting: 8,
        ..InodeQueueStats::default()
    }]);
    (before, now)
}

fn between() -> Interval {
    let (before, now) = looks();
    Interval::between(&before, &now)
}

#[test]
fn rates_shares_and_percentiles_are_the_intervals_alone() {
    let i = between();
    assert_eq!((i.seconds, i.ops_per_s), (2.0, 1005.0));
    let (alice, bob) = (&i.tenants[0], &i.tenants[1]);
    assert_eq!((alice.ops_per_s, alice.share, alice.depth, alice.backlogged), (1000.0, 0.75, 32.0, 1.0));
    assert_eq!((bob.ops_per_s, bob.share), (5.0, 0.25), "who came in between counts from nothing");
    assert!(alice.queue_p99_ns.abs_diff(2_000) <= 32 && alice.service_p50_ns.abs_diff(50_000) <= 800);
    assert_eq!((alice.vruntime_ahead_ns, bob.vruntime_ahead_ns), (-600, 4_000));
    assert_eq!((i.cores[0].busy, i.cores[0].slices_per_s), (0.5, 2500.0));
    assert_eq!((i.cores[0].last_tenant.as_deref(), i.cores[1].last_tenant.as_deref()), (Some("bob"), None));
}

#[test]
fn an_interval_of_nothing_has_no_nan() {
    let (before, _) = looks();
    let json = serde_json::to_string(&Interval::between(&before, &before)).expect("JSON");
    assert!(!json.contains("null,") || json.contains("\"last_tenant\":null"));
    let i = Interval::between(&before, &before);
    assert!(i.tenants.iter().all(|t| t.share == 0.0 && t.ops_per_s == 0.0) && i.cores.iter().all(|c| c.busy == 0.0));
}

#[test]
fn every_order_puts_the_largest_first_and_is_reached_by_its_key() {
    let row = |name: &str, n: u64| TenantRow {
        name: name.into(),
        share: n as f64,
        ops_per_s: 10.0 - n as f64,
        queue_p99_ns: n,
        service_p99_ns: 10 - n,
        memory_bytes: n,
        ..TenantRow::default()
    };
    let (mut screen, mut first) = (Screen::default(), Vec::new());
    for _ in 0..6 {
        let mut rows = [row("b", 1), row("a", 5), row("c", 5)];
        screen.sort.apply(&mut rows);
        first.push((format!("{:?}", screen.sort), rows[0].name.clone()));
        screen.key(KeyEvent::from(KeyCode::Char('s')));
    }
    let first: Vec<(&str, &str)> = first.iter().map(|(s, n)| (s.as_str(), n.as_str())).collect();
    let want = [("Share", "a"), ("Ops", "b"), ("Queue", "a"), ("Service", "b"), ("Memory", "a"), ("Name", "a")];
    assert_eq!(first, want);
    assert_eq!(screen.sort, Sort::Share, "round");
}

/// The lines of the screen.
fn drawn(screen: &Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
    terminal.draw(|frame| screen.draw(frame)).expect("drawn in memory");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

#[test]
fn eighty_columns_show_what_matters_whole() {
    let mut screen = Screen { interval: Some(between()), ..Screen::default() };
    let lines = drawn(&screen, 80, 24);
    assert!(lines[0].starts_with("disk  ram  policy cfs (measured, 100us)"), "{lines:#?}");
    assert!(lines[1].contains("1.00k ops/s") && lines[1].contains("3 runnable"), "{lines:#?}");
    assert!(lines[2].starts_with("core  0 [") && lines[2].contains(" 50%") && lines[2].ends_with("last bob"));
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (head, alice, bob) = (words(&lines[4]), words(&lines[5]), words(&lines[6]));
    for title in ["TENANT", "SHARE", "OPS/S", "RUN", "MEM", "QUEUE99", "SERV99"] {
        assert!(head.contains(&title.to_owned()), "{title} in {lines:#?}");
    }
    assert_eq!((alice[0].as_str(), alice.len(), bob[0].as_str()), ("alice", head.len(), "bob"));
    let at = |title: &str| head.iter().position(|h| h == title).expect("a column");
    assert_eq!((alice[at("SHARE")].as_str(), alice[at("OPS/S")].as_str()), ("75.0%", "1.00k"));
    assert!(alice[at("QUEUE99")].starts_with("2.0") && alice[at("QUEUE99")].ends_with("us"));
    assert!(lines[23].starts_with("q quit  s sort: Share  p pause"));
    assert!(drawn(&screen, 200, 50)[4].contains("VRUN"), "more room, more columns");

    screen.key(KeyEvent::from(KeyCode::Char('i')));
    screen.key(KeyEvent::from(KeyCode::Char('p')));
    let lines = drawn(&screen, 80, 24);
    assert!(lines.iter().any(|l| words(l).starts_with(&["77".into(), "alice".into(), "9".into(), "8".into()])));
    assert!(lines[23].contains("PAUSED"));
}

#[test]
fn any_size_of_the_terminal_and_many_tenants_can_be_drawn() {
    let mut i = between();
    i.tenants = (0..300)
        .map(|n| TenantRow { name: format!("tenant-with-a-long-name-{n:03}"), ..TenantRow::default() })
        .collect();
    i.cores = (0..64).map(|core| interval::CoreRow { core, ..i.cores[0].clone() }).collect();
    let mut screen = Screen { interval: Some(i), inodes: true, ..Screen::default() };
    for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 80)] {
        drawn(&screen, width, height);
    }
    let lines = drawn(&screen, 80, 24);
    assert!(lines[10].starts_with("56 more cores, 50% busy"), "{lines:#?}");
    for _ in 0..1000 {
        screen.key(KeyEvent::from(KeyCode::PageDown));
    }
    screen.inodes = false;
    assert!(
        drawn(&screen, 120, 24).iter().any(|l| l.starts_with("tenant-with-a-long-name-299")),
        "the end can be seen"
    );
    screen.key(KeyEvent::from(KeyCode::Home));
    assert!(drawn(&screen, 120, 24)[12].starts_with("tenant-with-a-long-name-000"));
    assert_eq!(drawn(&Screen::default(), 80, 24)[0], "the first interval is not over yet");
}

#[test]
fn keys_end_it_and_unknown_ones_do_nothing() {
    let mut screen = Screen::default();
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.key(KeyEvent::from(KeyCode::Char('q'))), Asked::Quit);
    assert_eq!(screen.key(control_c), Asked::Quit);
    assert_eq!(screen.key(KeyEvent::from(KeyCode::Char('c'))), Asked::Nothing);
    assert_eq!(screen.key(KeyEvent::from(KeyCode::Down)), Asked::Draw);
}

#[test]
fn plain_text_has_a_line_per_core_tenant_and_inode_queue() {
    let mut out = Vec::new();
    table::plain(&mut out, &between(), Sort::Name).expect("written to memory");
    let text = String::from_utf8(out).expect("text");
    let starts: Vec<&str> = text.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(starts, ["disk", "1.00k", "core", "core", "TENANT", "alice", "bob", "INODE", "77"]);
    let width = text.lines().nth(4).expect("the table's head").len();
    assert!(text.lines().skip(5).take(2).all(|l| l.len() == width), "columns stand under their heads");
}

#[test]
fn a_narrow_table_keeps_the_columns_that_say_most() {
    let titles = |width| table::columns(width).iter().map(|c| c.title).collect::<Vec<_>>();
    assert_eq!(titles(0), ["TENANT", "SHARE", "OPS/S", "QUEUE99", "SERV99"]);
    assert_eq!(titles(usize::MAX).len(), 13);
    for width in 45..120 {
        assert!(table::columns(width).iter().map(|c| c.width + 1).sum::<usize>() <= width + 1, "{width} columns");
    }
}
