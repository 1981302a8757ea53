//! The sample profiles: a device runs with each, and says so.

use super::{Device, ok, root, text};
use serde_json::Value;
use std::ffi::OsStr;
use std::process::Command;

#[test]
fn a_device_runs_with_each_sample_profile_and_its_reports_name_it() {
    for name in ["nvme-controller", "smart-nic", "memory-module"] {
        let file = root().join("profiles").join(format!("{name}.toml"));
        let device = Device::in_memory(&[OsStr::new("--profile"), file.as_ref()]);
        let client = weldfs::Client::connect(device.socket()).expect("attaches");
        client.write("/f", b"through the modelled link").expect("writes");
        let mut stats = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        let stats: Value =
            serde_json::from_str(&text(&ok(stats.arg("stats").arg(device.socket()).arg("--json")))).expect("JSON");
        assert_eq!(stats["device"]["profile"]["name"], name, "{}", stats["device"]);
        assert_eq!(client.read("/f").expect("reads"), b"through the modelled link");
        // The link alone holds each completion back: time that nothing else accounts for.
        assert!(stats["total"]["modelled_ns"].as_u64() > Some(0), "{name}: nothing was modelled");
    }
}
