//! docs/PROFILES.md is what the code reads: every key is on the page with its default, its bounds are the code's, and
//! the samples of `profiles/` load.

use std::path::{Path, PathBuf};
use weldfs_device::{DeviceConfig, Profile};
use weldfs_kernel_shim::{Embedded, Source};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every key of a profile, as TOML writes it down, with its default.
fn keys() -> Vec<(String, serde_json::Value)> {
    fn walk(prefix: &str, value: &serde_json::Value, into: &mut Vec<(String, serde_json::Value)>) {
        match value {
            serde_json::Value::Object(map) => map.iter().for_each(|(key, value)| {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                walk(&name, value, into);
            }),
            other => into.push((prefix.to_owned(), other.clone())),
        }
    }
    let mut keys = Vec::new();
    walk("", &serde_json::to_value(Profile::default()).expect("a profile is plain data"), &mut keys);
    keys
}

/// The page's table: key, and the cells behind it.
fn table() -> Vec<(String, Vec<String>)> {
    let page = std::fs::read_to_string(root().join("docs/PROFILES.md")).expect("the page");
    let keys = page.split("\n## ").find(|section| section.starts_with("Keys")).expect("its section on keys");
    let rows = keys.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells: Vec<String> = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        (cells[0].trim_matches('`').to_owned(), cells[1..].to_vec())
    })
    .collect()
}

#[test]
fn the_page_names_every_key_with_unit_range_default_and_meaning_and_no_other() {
    let (keys, table) = (keys(), table());
    assert!(keys.len() >= 6, "{keys:?}");
    for (key, default) in &keys {
        let (_, cells) = table.iter().find(|(k, _)| k == key).unwrap_or_else(|| panic!("the page lacks {key}"));
        assert_eq!(cells.len(), 5, "{key}: unit, range, default, setting, meaning");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{key}: {cells:?}");
        let default = match default {
            serde_json::Value::String(text) => format!("`{text}`"),
            serde_json::Value::Number(n) if n.is_f64() => format!("{}", n.as_f64().expect("a float")),
            other => other.to_string(),
        };
        let said = cells[2].split(':').next().unwrap_or_default().trim();
        assert_eq!(said, default, "{key}: its default");
    }
    for (key, _) in &table {
        assert!(keys.iter().any(|(k, _)| k == key), "the page has {key}, the code has not");
    }
}

/// A profile in which one key has this value.
fn with(key: &str, value: &str) -> Result<Profile, weldfs_device::ProfileError> {
    match key.split_once('.') {
        Some((table, key)) => Profile::parse(&format!("[{table}]\n{key} = {value}\n")),
        None => Profile::parse(&format!("{key} = {value}\n")),
    }
}

#[test]
fn the_ranges_of_the_page_are_those_that_are_taken() {
    for (key, cells) in table() {
        let numbers: Vec<&str> =
            cells[1].split(|c: char| !c.is_ascii_digit() && c != '.').filter(|word| !word.is_empty()).collect();
        let (inside, outside): (Vec<&str>, Vec<&str>) = match key.as_str() {
            "name" => continue,
            "memory_bytes" => (vec![numbers[0], numbers[1]], vec!["1048575", "-1"]),
            "link.latency_ns" => (vec![numbers[0], numbers[1]], vec!["1000000001", "-1"]),
            // Above its upper end there is no number that TOML has.
            "link.bandwidth_bytes_per_s"
            | "link.to_device_bytes_per_s"
            | "link.to_host_bytes_per_s"
            | "media.bandwidth_bytes_per_s"
            | "media.iops" => (vec![numbers[0], "9223372036854775807"], vec!["-1"]),
            "link.pcie" => {
                let good = vec!["\"1x1\"", "\"6x16\"", "\"\"", "\"3x12\""];
                (good, vec!["\"0x1\"", "\"7x1\"", "\"3x3\"", "\"3x32\"", "3"])
            }
            "media.channels" => (vec![numbers[0], numbers[1]], vec!["0", "257", "-1"]),
            "media.latency_ns" => (vec![numbers[0], numbers[1]], vec!["1000000001", "-1"]),
            "slots.count" => (vec![numbers[0], numbers[1]], vec!["0", "65", "-1"]),
            "slots.clock_mhz" => (vec![numbers[0], numbers[1]], vec!["0", "2001"]),
            "slots.timed" => (vec!["\"auto\"", "\"on\"", "\"off\""], vec!["\"yes\"", "true", "1"]),
            // Of as many slots as there are.
            "slots.regions" => {
                let one = "{ luts = 1, ffs = 0, brams = 0, dsps = 4294967295 }";
                let good = format!("[{one}, {one}, {one}]");
                assert!(with(&key, &good).is_ok(), "{:?}", with(&key, &good));
                let none = good.replacen("luts = 1", "luts = 0", 1);
                assert!(with(&key, &none).is_err() && with(&key, &format!("[{one}]")).is_err());
                (vec!["[]"], vec!["[1]", "3"])
            }
            "slots.luts" => (vec![numbers[0], numbers[1]], vec!["0", "4294967296"]),
            "slots.ffs" | "slots.brams" | "slots.dsps" => (vec![numbers[0], numbers[1]], vec!["-1", "4294967296"]),
            "slots.dram_bytes" => (vec![numbers[0], numbers[1]], vec!["-1", "1099511627777"]),
            "slots.credits" => (vec![numbers[0], numbers[1]], vec!["0", "4097"]),
            "slots.credit_bytes" => (vec![numbers[0], numbers[1]], vec!["63", "16777217"]),
            "slots.reconfigure_ns" => (vec![numbers[0], numbers[1]], vec!["-1", "60000000001"]),
            "slots.reconfigure_lut_ns" => (vec![numbers[0], numbers[1]], vec!["-1", "1000001"]),
            "core.speed" => (vec![numbers[0], "1.0"], vec!["0.0009", "1.001", "0.0", "-0.5", "nan"]),
            "core.count" => (vec![numbers[0], numbers[1]], vec!["257", "-1"]),
            other => panic!("{other}: no bounds in this test"),
        };
        for value in inside {
            assert!(with(&key, value).is_ok(), "{key} = {value}: {:?}", with(&key, value));
        }
        for value in outside {
            assert!(with(&key, value).is_err(), "{key} = {value}");
        }
    }
}

#[test]
fn the_page_says_of_each_key_which_setting_changes_it_and_names_all_of_those() {
    let profile = Profile::parse("[media]\nlatency_ns = 1").expect("good");
    let config = DeviceConfig { profile, ..DeviceConfig::default() };
    let embedded = Embedded::open(&Source::Ram(64 << 20), config).expect("a device");
    let device = embedded.device();
    let settings: Vec<String> = device.settings().into_iter().map(|s| s.key).collect();
    let table = table();
    for (key, cells) in &table {
        match cells[3].trim_matches('`').replace('N', "1") {
            none if none == "no" => assert!(!settings.contains(key), "{key}"),
            setting => assert!(settings.contains(&setting), "{key}: there is no {setting}: {settings:?}"),
        }
    }
    let hardware = |key: &&String| ["link.", "media.", "core.", "slots."].iter().any(|of| key.starts_with(of));
    for setting in settings.iter().filter(hardware) {
        let number = |c: char| c.is_ascii_digit();
        let plain = setting.trim_end_matches(number);
        let named = if plain == setting { format!("`{plain}`") } else { format!("`{plain}N`") };
        assert!(table.iter().any(|(_, cells)| cells[3] == named), "the page lacks {setting}");
    }
}

#[test]
fn the_samples_load_and_stand_on_the_page_with_their_numbers() {
    let page = std::fs::read_to_string(root().join("docs/PROFILES.md")).expect("the page");
    let mut samples = 0;
    for entry in std::fs::read_dir(root().join("profiles")).expect("profiles/") {
        let path = entry.expect("an entry").path();
        let profile = Profile::load(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let name = path.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();
        assert_eq!(format!("{}.toml", profile.name), name);
        assert!(!profile.is_free(), "{name} models something");
        let row = page.lines().find(|line| line.contains(&format!("`profiles/{name}`")));
        let row = row.unwrap_or_else(|| panic!("the page lacks {name}"));
        let (link, media, core) = (profile.link, profile.media, profile.core);
        let gigabytes = |bytes: u64| format!("{} GB/s", bytes as f64 / 1e9);
        let mut says = Vec::new();
        match core.count {
            0 => says.push("as `--cores`".to_owned()),
            count => says.push(format!("{count} at {}", core.speed)),
        }
        match link.bandwidth_bytes_per_s {
            0 => says.push(format!("PCIe {}", link.pcie)),
            bytes => says.push(gigabytes(bytes)),
        }
        if profile.models_media() {
            says.extend([format!("{} channels", media.channels), gigabytes(media.bandwidth_bytes_per_s)]);
        }
        if media.iops != 0 {
            says.push(format!("{} M/s", media.iops as f64 / 1e6));
        }
        for what in says {
            assert!(row.contains(&what), "{name}: {what}");
        }
        samples += 1;
    }
    assert!(samples >= 8, "{samples} samples");
}
