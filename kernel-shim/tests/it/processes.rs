//! Real processes over a real socket: killed clients, a killed device, signals, an idle device.
//!
//! The other processes are this test binary again, told by an environment variable to play a part.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weldfs::{Client, OpenOptions, SocketConnector};
use weldfs_device::DeviceConfig;
use weldfs_journal::{SystemClock, SystemRandom};
use weldfs_kernel_shim::{Embedded, ServeConfig, ServeError, Server, Source};
use weldfs_media::{ImageKind, OpenMode};
use weldfs_store::mount::{MkfsOptions, format};

const PART: &str = "WELDFS_TEST_PART";
const SOCKET: &str = "WELDFS_TEST_SOCKET";
const IMAGE: &str = "WELDFS_TEST_IMAGE";

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts this binary in a part; returns once it says that it is ready.
fn play(part: &str, socket: &Path, image: Option<&Path>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::a_part_played_in_another_process", "--nocapture", "--ignored"]);
    command.env(PART, part).env(SOCKET, socket).stdout(Stdio::piped()).stderr(Stdio::inherit());
    if let Some(image) = image {
        command.env(IMAGE, image);
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap().contains("ready")), "{part} gets ready");
    child
}

fn make_image(dir: &Path, kind: ImageKind) -> PathBuf {
    let path = dir.join("image");
    let medium = weldfs_media::create(&path, kind, 64 << 20, false).unwrap();
    format(&medium, &MkfsOptions { label: "test".into(), ..MkfsOptions::default() }, &SystemClock, &SystemRandom)
        .unwrap();
    path
}

#[test]
#[ignore = "not a test: a part that the tests below start as a process of its own"]
fn a_part_played_in_another_process() {
    let Ok(part) = std::env::var(PART) else { return };
    let socket = PathBuf::from(std::env::var(SOCKET).unwrap());
    match part.as_str() {
        "busy client" => {
            let client = Client::connect(&socket).unwrap();
            let dir = format!("/busy{}", std::process::id());
            client.create_dir(&dir).unwrap();
            println!("\nready");
            let options = OpenOptions::new().read(true).write(true).create(true);
            let mut held = Vec::new();
            for i in 0u64.. {
                let file = client.open(format!("{dir}/{}", i % 50), &options).unwrap();
                file.append(&[i as u8; 3000]).unwrap();
                let _ = file.try_lock(weldfs::LockKind::Write);
                held.push(file);
                if held.len() > 20 {
                    held.clear();
                    client.remove_file(format!("{dir}/{}", i % 50)).unwrap();
                }
            }
        }
        "idle client" => {
            let client = Client::connect(&socket).unwrap();
            client.raw().nop().unwrap();
            println!("\nready");
            std::thread::sleep(Duration::from_secs(600));
        }
        "device" => {
            let source = std::env::var(IMAGE).map_or(Source::Ram(64 << 20), |p| Source::Image(p.into()));
            let server = Server::bind(ServeConfig::new(source, &socket)).unwrap();
            println!("\nready");
            server.run().unwrap();
            std::process::exit(0);
        }
        other => panic!("no such part: {other}"),
    }
}

#[test]
fn a_device_that_was_stopped_has_let_go_of_its_image() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let image = make_image(dir.path(), ImageKind::Pmem);
    let mut late = 0;
    for _ in 0..20 {
        let server = Server::bind(ServeConfig::new(Source::Image(image.clone()), &socket)).unwrap();
        let serving = std::thread::spawn(move || server.run());
        let client = Client::connect(&socket).unwrap();
        client.create_dir(format!("/{:?}", Instant::now())).unwrap();
        SocketConnector::new(&socket).stop(Duration::from_secs(20)).unwrap();
        // At once, and for writing. (A process that another test is starting has a copy of every descriptor, and so of
        // the image's lock, until it runs its program: that is rare, and over in a moment.)
        let start = Instant::now();
        while let Err(e) = weldfs_media::open(&image, ImageKind::Pmem, OpenMode::ReadWrite) {
            assert!(start.elapsed() < Duration::from_secs(2), "{e}");
            std::thread::sleep(Duration::from_millis(1));
            late += 1;
        }
        serving.join().unwrap().unwrap();
    }
    assert!(late < 200, "the image was still in use {late} times");
}

#[test]
fn a_client_killed_at_any_point_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let mut device = play("device", &socket, None);
    let fds = || std::fs::read_dir(format!("/proc/{}/fd", device.id())).unwrap().count();
    let watcher = Client::connect(&socket).unwrap();
    let in_use = || {
        let stats: serde_json::Value = serde_json::from_str(&watcher.stats_json().unwrap()).unwrap();
        stats["usage"].clone()
    };
    // The watcher's own queue pair is made by its first call.
    watcher.raw().nop().unwrap();
    let (fds_before, before) = (fds(), in_use());
    for round in 0..30 {
        let mut child = play("busy client", &socket, None);
        std::thread::sleep(Duration::from_micros(round * 1700));
        child.kill().unwrap();
        child.wait().unwrap();
        wait_for("the session ends", || in_use() == before);
    }
    wait_for("its descriptors are closed", || fds() <= fds_before);
    assert_eq!(watcher.open_dir("/").unwrap().entries().count(), 30);
    drop(watcher);
    device.kill().unwrap();
    device.wait().unwrap();
}

#[test]
fn sigterm_ends_a_device_cleanly_and_kill_minus_nine_does_not_lose_what_was_durable() {
    for kind in [ImageKind::Pmem, ImageKind::Block] {
        let dir = tempfile::tempdir().unwrap();
        let (image, socket) = (make_image(dir.path(), kind), dir.path().join("socket"));
        let mut device = play("device", &socket, Some(&image));
        let client = Client::connect(&socket).unwrap();
        client.durability(weldfs::Durability::Durable).write("/kept", b"durable").unwrap();
        // A second device on the same image, or on the same socket, is refused.
        let second = Server::bind(ServeConfig::new(Source::Image(image.clone()), dir.path().join("other")));
        assert!(
            matches!(second, Err(ServeError::InUse(text)) if text.contains("in use") && text.contains("serves it at"))
        );
        let same = Server::bind(ServeConfig::new(Source::Ram(32 << 20), &socket));
        assert!(matches!(same, Err(ServeError::AlreadyServed(_))));
        device.kill().unwrap();
        device.wait().unwrap();
        let start = Instant::now();
        let error = client.write("/lost", b"").unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::EIO | libc::ENODEV)), "{error}");
        assert!(start.elapsed() < Duration::from_secs(1), "a dead device is noticed within a second");

        // The stale socket is taken over; the image recovers.
        let mut device = play("device", &socket, Some(&image));
        let client = Client::connect(&socket).unwrap();
        assert_eq!(client.read("/kept").unwrap(), b"durable");
        client.write("/volatile", b"until the clean end").unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&device), rustix::process::Signal::TERM)
            .unwrap();
        assert_eq!(device.wait().unwrap().code(), Some(0));
        assert!(!socket.exists());

        let embedded = Embedded::open(&Source::Image(image), DeviceConfig::default()).unwrap();
        let client = Client::with(Arc::new(embedded.clone())).unwrap();
        assert_eq!(client.read("/volatile").unwrap(), b"until the clean end");
        drop(client);
        embedded.close().unwrap();
    }
}

/// Clock ticks of CPU a process has used.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after: Vec<&str> = stat[stat.rfind(')').unwrap()..].split_whitespace().collect();
    after[12].parse::<u64>().unwrap() + after[13].parse::<u64>().unwrap()
}

#[test]
fn an_idle_device_with_idle_clients_uses_no_processor() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let mut device = play("device", &socket, None);
    let mut clients: Vec<Child> = (0..4).map(|_| play("idle client", &socket, None)).collect();
    std::thread::sleep(Duration::from_millis(300));
    let before = ticks(device.id());
    std::thread::sleep(Duration::from_secs(3));
    let used = ticks(device.id()) - before;
    for c in clients.iter_mut().chain([&mut device]) {
        c.kill().unwrap();
        c.wait().unwrap();
    }
    assert!(used <= 1, "{used} ticks in three seconds");
}
