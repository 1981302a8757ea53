//! `weldfs.toml`: what `serve` takes from a file, where it looks for one, and what it says of a wrong one; and the
//! systemd unit that uses one.

use super::life::{Place, Running, ok, refused, weldfs};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_device_is_what_its_file_says_and_flags_win() {
    let place = Place::new();
    place.image();
    // Seen from the file, which is not where the program was started.
    let file = place.path("weldfs.toml");
    let text = "[serve]\nimage = 'a.img'\nsocket = 's'\nsocket-mode = '0600'\npolicy = 'rr'\nquantum = 33\n";
    fs::write(&file, text).expect("write");
    let socket = place.path("s");
    let mut serve = weldfs(["serve", "--policy=eevdf", "--config"]);
    let mut device = Running::start(serve.arg(&file).current_dir("/").stderr(Stdio::null()));
    ok(weldfs(["wait"]).arg(&socket));
    let settings = ok(weldfs(["tune"]).arg(&socket));
    let has = |key: &str, value: &str| {
        settings.lines().any(|l| l.split_whitespace().take(3).eq([key, "=", value])) || panic!("{key}: {settings}")
    };
    assert!(has("scheduler.policy", "eevdf") && has("scheduler.quantum_us", "33"));
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&socket).expect("there"));
    assert_eq!(mode & 0o777, 0o600);
    ok(weldfs(["stop"]).arg(&socket));
    assert_eq!(device.ends(), Some(0));
    let mut serve = weldfs(["serve", "--print-config", "--cores=3", "--config"]);
    let printed = ok(serve.arg(&file));
    let folder = place.path("");
    let want = format!("image = \"{}a.img\"", folder.display());
    assert!(printed.contains(&want) && printed.contains("cores = 3") && printed.contains("quantum = 33"), "{printed}");
    // What is printed is such a file.
    let again = place.path("again.toml");
    fs::write(&again, &printed).expect("write");
    assert_eq!(ok(weldfs(["serve", "--print-config", "--config"]).arg(&again)), printed);
}

#[test]
fn a_wrong_file_is_named_with_the_key_and_nothing_is_served() {
    let place = Place::new();
    let image = place.image();
    let file = place.path("weldfs.toml");
    for (text, what) in [
        ("[serve]\ncorse = 2\n", "corse"),
        ("[serve]\ncores = 0\n", "serve.cores: '0' is not a number from 1 to 256"),
        ("[serve]\nram = '64M'\nhostdir = 'd'\n", "serve.ram (line 2) and serve.hostdir (line 3) exclude each other"),
        ("[serve]\nhostdir = 'd'\ncores = 2\n", "serve.cores (line 3) is for a device"),
        ("serve.ram = '64M'\n\nserve.no-flush = true\n", "serve.no-flush (line 3) is for an image"),
        ("[serve]\ncores = 2\ncores = 3\n", "line 3: cores: given twice"),
        ("[serve]\nimage = ''\n", "serve.image (line 2) is empty"),
        ("[serve]\nmemory = '4000T'\n", "serve.memory (line 2): 3.9P is more than this machine has"),
        ("[serve]\nsocket-mode = '1777'\n", "line 2: serve.socket-mode: '1777' is not a mode"),
    ] {
        fs::write(&file, text).expect("write");
        let (code, said) = refused(weldfs(["serve"]).arg(&image).arg("--config").arg(&file));
        let sound = said.lines().count() == 1 && said.contains(&file.display().to_string()) && said.contains(what);
        assert!(code == Some(2) && sound, "{text}: {code:?}: {said}");
    }
    fs::write(&file, b"[serve]\ncores = 2\nsocket = 'x\xff'\n").expect("write");
    let (code, said) = refused(weldfs(["serve"]).arg(&image).arg("--config").arg(&file));
    assert!(code == Some(2) && said.contains("weldfs.toml (--config): line 3: socket: not UTF-8"), "{said}");
    let none = place.path("none.toml");
    let (code, said) = refused(weldfs(["serve"]).arg(&image).arg("--config").arg(&none));
    assert!(code == Some(2) && said.contains("none.toml (--config): the settings cannot be read: No such"), "{said}");
    let (code, said) = refused(weldfs(["serve"]).arg(&image).env("WELDFS_CONFIG", &none));
    assert!(code == Some(2) && said.contains("none.toml (WELDFS_CONFIG): the settings cannot"), "{said}");
    assert!(!place.path("a.img.sock").exists());
}

#[test]
fn the_file_is_looked_for_where_the_manual_says() {
    let place = Place::new();
    let at = |folder: &Path, cores: u32| {
        fs::create_dir_all(folder.join("weldfs")).expect("mkdir");
        fs::write(folder.join("weldfs/weldfs.toml"), format!("[serve]\ncores = {cores}\n")).expect("write");
    };
    let (xdg, home) = (place.path("xdg"), place.path("home"));
    at(&xdg, 5);
    at(&home.join(".config"), 6);
    fs::write(place.path("named.toml"), "[serve]\ncores = 7\n").expect("write");
    let print = |set: &[(&str, &Path)]| {
        let mut serve = weldfs(["serve", "--print-config"]);
        serve.env_remove("WELDFS_CONFIG").env_remove("XDG_CONFIG_HOME").env("HOME", &home);
        ok(serve.envs(set.iter().copied()))
    };
    assert!(print(&[]).contains("cores = 6"));
    assert!(print(&[("XDG_CONFIG_HOME", &xdg)]).contains("cores = 5"));
    let named = place.path("named.toml");
    assert!(print(&[("XDG_CONFIG_HOME", &xdg), ("WELDFS_CONFIG", &named)]).contains("cores = 7"));
    assert!(!print(&[("WELDFS_CONFIG", Path::new(""))]).contains("cores"));
}

/// The unit, with this build in the place of the installed one.
#[test]
fn systemd_takes_the_unit() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/weldfs@.service");
    let text = fs::read_to_string(unit).expect("the unit");
    for promise in ["Type=notify", "NoNewPrivileges=yes", "ProtectSystem=strict", "--config /etc/weldfs/%i.toml"] {
        assert!(text.contains(promise), "{promise}");
    }
    let name = "serve_config::systemd_takes_the_unit";
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return super::skips::skip(name, "systemd-analyze is not installed (package systemd)");
    }
    let place = Place::new();
    let here = place.path("weldfs@.service");
    fs::write(&here, text.replace("/usr/bin/weldfs", env!("CARGO_BIN_EXE_weldfs"))).expect("write");
    let out = Command::new("systemd-analyze").arg("verify").arg(place.path("weldfs@disk.service")).output();
    let out = out.expect("runs");
    let said = String::from_utf8_lossy(&out.stderr);
    // Some say it with a warning only.
    assert!(out.status.success() && !said.contains("weldfs@"), "{said}");
}
