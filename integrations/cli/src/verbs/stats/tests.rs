//! Reports over made-up counters.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use weldfs_device::{CoreTotals, TenantStats};
use weldfs_session::latency::Histogram;

/// A report in which every counter of every tenant has another value.
fn sample() -> DeviceStats {
    let histogram = Histogram::default();
    [900, 1024, 1025, 70_000, 1 << 36].into_iter().for_each(|ns| histogram.record(ns));
    let numbers = |specs: &[weldfs_session::counters::CounterSpec], from: u64| {
        let map = specs.iter().enumerate().map(|(at, s)| (s.name.to_owned(), (from + at as u64).into()));
        serde_json::Value::Object(map.collect())
    };
    let tenant = |tenant: u32, name: &str| {
        let mut totals: Totals =
            serde_json::from_value(numbers(Totals::SPECS, 1_000_000 * (u64::from(tenant) + 1))).expect("counters");
        totals.commands_by_opcode = serde_json::from_str(r#"{"read":3,"write":4}"#).expect("operations");
        let mut t = TenantStats {
            tenant,
            name: name.into(),
            weight: 1024,
            lag_ns: -1_500_000_000,
            totals,
            ..Default::default()
        };
        t.latency.queue = histogram.snapshot();
        t
    };
    let text = r#"{"time_ns":5000000000,"device":{"label":"a\"b\\c\nd","medium":"ram","durability":"durable",
        "power_safe":false,"cores":1,"policy":"cfs","profile":{}},"total":{},"crossings":{"commands":0,"doorbells":0,
        "client_wakes":0,"device_sleeps":0},"log":{"flushes":7,"records":0,"bytes":0,"batches":0,"log_writes":0,
        "data_writes":0,"data_bytes":0,"watermark_records":0,"used":0,"checkpoints":0},"usage":{"sessions":0,"queues":0,
        "pool_bytes":0,"handles":0,"open_files":0,"placeholders":0,"locks":0,"inode_queues":0},
        "scheduler":{"policy":"cfs","cost":"measured","quantum_ns":100000,"runnable":0,"min_vruntime_ns":0},
        "cores":[],"tenants":[]}"#;
    let mut stats: DeviceStats = serde_json::from_str(text).expect("a report");
    let core: CoreTotals = serde_json::from_value(numbers(CoreTotals::SPECS, 50)).expect("counters");
    stats.cores = vec![weldfs_device::CoreStats { core: 0, totals: core }];
    stats.tenants = vec![tenant(0, "alice"), tenant(1, "we\"ird\\\n")];
    for t in &stats.tenants {
        stats.total.add(&t.totals);
    }
    stats
}

/// One value of a page: labels in their escaped form, and the value.
type Sample = (String, String);

/// Reads a page by the format's rules: every line is a comment or a sample, HELP and TYPE stand once and before the
/// samples of their metric, samples of a metric follow each other, no sample comes twice.
fn parse(page: &str) -> BTreeMap<String, (String, Vec<Sample>)> {
    let mut metrics: BTreeMap<String, (String, Vec<Sample>)> = BTreeMap::new();
    let (mut current, mut seen) = (String::new(), BTreeSet::new());
    assert!(page.ends_with('\n'), "the last line ends too");
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a name and a text");
            assert!(!text.is_empty() && !metrics.contains_key(name), "{name} begins once");
            name.clone_into(&mut current);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a type");
            assert_eq!(name, current, "TYPE follows HELP");
            assert!(["counter", "gauge", "histogram"].contains(&kind));
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}: what only grows, and only that, says so");
            metrics.insert(name.into(), (kind.into(), Vec::new()));
        } else {
            assert!(seen.insert(line.rsplit_once(' ').expect("a value").0.to_owned()), "twice: {line}");
            let (series, value) = line.rsplit_once(' ').expect("a value");
            value.parse::<f64>().expect("a number");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
            assert!(name.chars().all(good) && !name.starts_with(|c: char| c.is_ascii_digit()), "{name}");
            let (kind, samples) = metrics.get_mut(&current).expect("HELP and TYPE come first");
            let suffix = name.strip_prefix(current.as_str()).expect("samples follow their own TYPE");
            let allowed: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(allowed.contains(&suffix), "{name}");
            samples.push((format!("{suffix}{}", labels.strip_suffix('}').expect("labels end")), value.to_owned()));
        }
    }
    metrics
}

#[test]
fn the_prometheus_page_keeps_the_rules_of_its_format() {
    let page = prometheus::page(&sample());
    let metrics = parse(&page);
    assert!(page.contains(r#"label="a\"b\\c\nd""#), "labels are escaped");
    assert!(page.contains(r#"weldfs_commands_total{tenant="we\"ird\\\n"} 2000000"#));
    assert_eq!(metrics["weldfs_log_flushes_total"].1, [(String::new(), "7".into())]);
    assert_eq!(metrics["weldfs_tenant_lag_seconds"].1[0].1, "-1.5");
    let units = metrics.keys().filter(|n| n.contains("_ns") || n.ends_with("_us") || n.contains("millis"));
    assert_eq!(units.count(), 0, "base units only");
    let help: Vec<&str> = page.lines().filter(|line| line.starts_with("# HELP ")).collect();
    assert!(help.contains(
        &"# HELP weldfs_slot_seconds_total Seconds of slot time used and charged: cycles over the slot's clock."
    ));
    assert!(!help.iter().any(|line| line.to_lowercase().contains("nanosec")), "base units also in words");
}

#[test]
fn what_a_slot_is_and_whose_are_labels() {
    let mut stats = sample();
    let slot = |slot, kernel: Option<&str>, tenant, luts| weldfs_device::SlotStats {
        slot,
        state: "idle".to_owned(),
        kernel: kernel.map(str::to_owned),
        tenant,
        luts,
        ..Default::default()
    };
    stats.slots = vec![
        slot(0, Some("pass-through"), None, None),
        slot(1, Some("grep"), Some(0), Some(70_000)),
        slot(2, None, Some(9), Some(5)),
    ];
    let page = prometheus::page(&stats);
    for line in [
        r#"weldfs_slot_info{slot="0",state="idle",kernel="pass-through",tenant="",luts=""} 1"#,
        r#"weldfs_slot_info{slot="1",state="idle",kernel="grep",tenant="alice",luts="70000"} 1"#,
        r#"weldfs_slot_info{slot="2",state="idle",kernel="",tenant="9",luts="5"} 1"#,
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    let json = serde_json::to_value(&stats.slots).expect("JSON");
    assert!(json[0].get("luts").is_none() && json[1]["luts"] == 70_000, "{json}");
}

#[test]
fn a_device_without_a_label_is_called_so() {
    let mut stats = sample();
    stats.device.label.clear();
    let mut text = Vec::new();
    people::report(&mut text, &stats, None).expect("written to memory");
    assert!(text.starts_with(b"unlabelled: since its start"), "{}", String::from_utf8_lossy(&text));
}

#[test]
fn every_counter_of_the_device_stands_on_the_page_in_base_units() {
    let (stats, metrics) = (sample(), parse(&prometheus::page(&sample())));
    for (at, spec) in Totals::SPECS.iter().enumerate() {
        let (_, samples) = &metrics[&prometheus::counter_name("weldfs", spec.name)];
        let raw = stats.tenants[0].totals.each().nth(at).expect("as many values as names").1;
        let scale = if spec.name.ends_with("_ns") { 1e9 } else { 1.0 };
        let shown: f64 = samples[0].1.parse().expect("a number");
        assert!((shown * scale - raw as f64).abs() < 0.5, "{}: {shown} for {raw}", spec.name);
        assert_eq!(samples.len(), 2, "one per tenant");
    }
    for spec in CoreTotals::SPECS {
        assert_eq!(metrics[&prometheus::counter_name("weldfs_core", spec.name)].1.len(), 1);
    }
    assert_eq!(prometheus::counter_name("weldfs", "queue_ns"), "weldfs_queue_seconds_total");
    assert_eq!(prometheus::counter_name("weldfs", "link_bytes_in"), "weldfs_link_in_bytes_total");
}

#[test]
fn histograms_are_cumulative_and_end_with_infinity() {
    let metrics = parse(&prometheus::page(&sample()));
    let (kind, samples) = &metrics["weldfs_queue_latency_seconds"];
    assert_eq!(kind, "histogram");
    let alice: Vec<&Sample> = samples.iter().filter(|(l, _)| l.contains("alice")).collect();
    let value = |what: &str| alice.iter().find(|(l, _)| l.contains(what)).map(|(_, v)| v.as_str()).expect("a sample");
    assert_eq!((value("le=\"0.000001024\""), value("le=\"0.000002048\"")), ("2", "3"));
    assert_eq!((value("le=\"+Inf\""), value("_count")), ("5", "5"));
    let buckets: Vec<u64> =
        alice.iter().filter(|(l, _)| l.starts_with("_bucket")).map(|(_, v)| v.parse().expect("a count")).collect();
    assert!(buckets.is_sorted() && buckets.len() == 26);
    let sum: f64 = value("_sum").parse().expect("a number");
    assert!((sum - (900.0 + 1024.0 + 1025.0 + 70_000.0 + (1u64 << 36) as f64) / 1e9).abs() < 1e-9);
}

#[test]
fn people_see_every_counter_once() {
    let listed: Vec<&str> = people::GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let there: BTreeSet<&str> = Totals::SPECS.iter().map(|s| s.name).collect();
    assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), there);
    assert_eq!(listed.len(), there.len());
    let mut text = Vec::new();
    people::report(&mut text, &sample(), None).expect("written to memory");
    let text = String::from_utf8(text).expect("text");
    assert!(
        listed.iter().all(|name| text.contains(name)) && text.contains("alice") && text.contains("read 6, write 8")
    );
}

#[test]
fn an_interval_is_the_difference_of_what_grows() {
    let before = sample();
    let mut now = sample();
    now.tenants[0].totals.commands += 5;
    now.total.commands += 5;
    now.log.flushes += 2;
    now.usage.sessions = 3;
    let d = since(&now, &before);
    assert_eq!((d.total.commands, d.tenants[0].totals.commands, d.tenants[1].totals.commands), (5, 5, 0));
    assert_eq!((d.log.flushes, d.usage.sessions, d.tenants[0].latency.queue.count()), (2, 3, 0));
    assert_eq!(d.crossings.commands, 5);
}

#[test]
fn one_tenant_can_be_shown_alone() {
    let mut stats = sample();
    one_tenant(&mut stats, "alice", Path::new("x")).expect("she is there");
    assert_eq!((stats.tenants.len(), stats.total.commands), (1, 1_000_000));
    assert!(one_tenant(&mut stats, "bob", Path::new("x")).is_err());
}

#[test]
fn the_document_has_a_row_for_every_counter_and_names_every_metric() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/OBSERVABILITY.md");
    let text = std::fs::read_to_string(path).expect("the document");
    let unit = |name: &str| match name {
        n if n.ends_with("_ns") => "ns",
        n if n.contains("bytes") => "bytes",
        _ => "",
    };
    let sets = [("weldfs", Totals::SPECS), ("weldfs_core", CoreTotals::SPECS)];
    let rows = sets.iter().flat_map(|(prefix, specs)| specs.iter().map(move |spec| (prefix, spec)));
    let rows = rows.map(|(prefix, s)| {
        let metric = prometheus::counter_name(prefix, s.name);
        format!("| `{}` | {} | {} | `{metric}` |", s.name, unit(s.name), s.help.trim())
    });
    let metrics = parse(&prometheus::page(&sample()));
    let missing: Vec<String> =
        rows.chain(metrics.keys().map(|m| format!("`{m}`"))).filter(|wanted| !text.contains(wanted.as_str())).collect();
    assert!(missing.is_empty(), "docs/OBSERVABILITY.md lacks:\n{}", missing.join("\n"));
}
