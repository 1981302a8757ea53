//! The Grafana board and the device's Prometheus page: no panel asks for what does not exist.

use super::{Device, ok, root, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// Every `expr` and every query of a variable, with the title of the panel.
fn queries(value: &Value, title: &str, into: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            let title = map.get("title").and_then(Value::as_str).unwrap_or(title);
            for (key, inner) in map {
                match inner {
                    Value::String(text) if matches!(key.as_str(), "expr" | "definition") => {
                        into.push((title.to_owned(), text.clone()));
                    }
                    inner => queries(inner, title, into),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| queries(inner, title, into)),
        _ => {}
    }
}

/// Names of metrics in a query.
fn metrics(query: &str) -> BTreeSet<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("weldfs_")).map(str::to_owned).collect()
}

#[test]
fn every_metric_of_the_grafana_board_is_in_a_devices_output() {
    let board = std::fs::read_to_string(root().join("packaging/grafana/weldfs.json")).expect("the board");
    let board: Value = serde_json::from_str(&board).expect("the board is JSON");
    let mut asked = Vec::new();
    queries(&board, "", &mut asked);
    assert!(asked.len() > 30, "{} queries", asked.len());

    let device = Device::in_memory(&[]);
    let client = weldfs::Client::connect(device.socket()).expect("attaches");
    client.write("/f", b"so that there is something to count").expect("writes");
    let mut stats = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    let page = text(&ok(stats.arg("stats").arg(device.socket()).arg("--prometheus")));
    let there: BTreeSet<&str> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(['{', ' ']).next().unwrap_or_default())
        .collect();
    let mut seen = BTreeSet::new();
    for (title, query) in asked {
        let named = metrics(&query);
        assert!(!named.is_empty(), "{title}: {query} asks for nothing");
        for metric in named {
            assert!(there.contains(metric.as_str()), "{title}: no device has {metric}");
            seen.insert(metric);
        }
    }
    assert!(seen.len() > 25, "{seen:?}");
}

#[test]
fn every_panel_has_a_place_a_unit_and_an_explanation() {
    let board = std::fs::read_to_string(root().join("packaging/grafana/weldfs.json")).expect("the board");
    let board: Value = serde_json::from_str(&board).expect("the board is JSON");
    let panels = board["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id is another's");
        let place = &panel["gridPos"];
        let right = place["x"].as_u64().expect("x") + place["w"].as_u64().expect("w");
        assert!(right <= 24, "{title}: out of the grid");
        if panel["type"] != "row" {
            assert!(panel["description"].as_str().is_some_and(|d| d.len() > 10), "{title}: says nothing");
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}: has no unit");
        }
    }
    assert!(panels.len() > 15);
}
