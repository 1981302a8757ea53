//! A real device process over an image, real clients that note what was acknowledged as durable, and the check of what
//! is there after a kill.
#![allow(dead_code)] // each test uses its part

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weldfs::{At, Client, Durability, Errno, File, Handle, OpenFlags, OpenOptions, Placement, TxnMode};

/// Payload bytes of each client's records: within a record, around a block, and over several.
pub const SIZES: [usize; 4] = [100, 1000, 4092, 9000];
const TRAILER: u64 = weldfs::fused::TRAILER_BYTES;
const PATIENCE: Duration = Duration::from_secs(60);
/// One step in so many replaces a whole file instead of appending a record.
const STORE_ONE_IN: u64 = 4;

/// Makes an image.
pub fn mkfs(image: &Path, medium: &str, bytes: &str) {
    let mut mkfs = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    mkfs.arg("mkfs").arg(image).args(["--size", bytes, "--medium", medium]).stdout(Stdio::null());
    assert!(mkfs.status().unwrap().success());
}

/// The image as `weldfs fsck` sees it.
pub fn fsck(image: &Path) {
    let out = Command::new(env!("CARGO_BIN_EXE_weldfs")).arg("fsck").arg(image).output().unwrap();
    assert!(out.status.success(), "fsck: {}", String::from_utf8_lossy(&out.stdout));
}

/// A device process.
pub struct Device {
    image: PathBuf,
    socket: PathBuf,
    child: Child,
}

impl Device {
    /// Starts one that dies at a crash point, if the build has them; it may be dead before a client connects. The time
    /// that loading a kernel takes is modelled: it is left out, or no kernel would be there before the death.
    pub fn spawn(image: &Path, point: Option<&str>) -> Device {
        let (socket, profile) = (image.with_extension("sock"), image.with_extension("toml"));
        std::fs::write(&profile, "[slots]\nreconfigure_ns = 0\nreconfigure_lut_ns = 0\n").unwrap();
        let mut serve = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        serve.arg("serve").arg(image).arg("--socket").arg(&socket).arg("--profile").arg(&profile);
        if let Some(point) = point {
            serve.env("WELDFS_CRASH_POINT", point);
        }
        let child = serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Device { image: image.to_owned(), socket, child }
    }

    /// Starts one and waits until it answers.
    pub fn start(image: &Path) -> Device {
        let mut device = Device::spawn(image, None);
        device.connect();
        device
    }

    /// A client whose operations are durable; `None` when the device has died.
    pub fn try_connect(&mut self) -> Option<Client> {
        let start = Instant::now();
        loop {
            match Client::connect(&self.socket) {
                Ok(client) => return Some(client.durability(Durability::Durable)),
                Err(e) if start.elapsed() > PATIENCE => panic!("no device after {PATIENCE:?}: {e}"),
                Err(_) if self.is_dead() => return None,
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// The same of a device that must live.
    pub fn connect(&mut self) -> Client {
        self.try_connect().expect("the device ended")
    }

    /// Packets that slots have computed since it started.
    pub fn slot_packets(&mut self) -> u64 {
        let stats = self.connect().stats_json().unwrap();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        stats["total"]["slot_packets"].as_u64().unwrap()
    }

    /// Whether the process has ended.
    pub fn is_dead(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Asks it to unmount and end.
    pub fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }

    /// Waits for its end; whether SIGKILL ended it.
    pub fn was_killed(&mut self) -> bool {
        let start = Instant::now();
        while !self.is_dead() {
            assert!(start.elapsed() < PATIENCE, "the device does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
        self.child.wait().unwrap().signal() == Some(9)
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How far one client got: all of it acknowledged as durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Records in its log.
    pub records: u64,
    /// Generations of its file; 0: there is none.
    pub stored: u64,
}

fn fill(client: usize, number: u64, into: &mut [u8]) {
    let mut state = ((client as u64) << 48 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for byte in into {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state as u8;
    }
}

/// Content of a client's file: its generation, then noise of a length that goes up and down.
fn content(client: usize, generation: u64) -> Vec<u8> {
    let mut data = vec![0; 8 + SIZES[client] / 2 + (generation % 3) as usize * SIZES[client] / 2];
    fill(client + 8, generation, &mut data);
    data[..8].copy_from_slice(&generation.to_le_bytes());
    data
}

fn open(client: &Client, number: usize) -> io::Result<File> {
    client.open(format!("/log{number}"), &OpenOptions::new().read(true).write(true).create(true))
}

/// Works on from `from` until the device dies: appends with checksums, some of them from an FPGA slot, and whole files
/// (both fused; every other one in steps, else as the device likes). Says how far it got.
pub fn work(client: &Client, number: usize, from: Progress, acknowledged: &AtomicU64) -> Progress {
    let mut at = from;
    let Ok(file) = open(client, number) else { return at };
    let mut data = vec![0; SIZES[number]];
    loop {
        let replace = (at.records + at.stored) % STORE_ONE_IN == STORE_ONE_IN - 1;
        let turn = if replace { at.stored } else { at.records };
        let steps = if turn.is_multiple_of(2) { TxnMode::Micro } else { TxnMode::Default };
        let raw = client.raw().mode(steps);
        let done = if replace {
            let new = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
            let data = content(number, at.stored + 1);
            let name = format!("/file{number}");
            raw.open_write_close(Handle::ROOT, name.as_bytes(), new, 0o644, At::Offset(0), &data[..]).map(drop)
        } else {
            fill(number, at.records, &mut data);
            let raw = raw.placement(if at.records % 3 == 1 { Placement::Slot } else { Placement::Auto });
            raw.append_checksum_write(file.handle(), &data[..]).map(drop)
        };
        match done {
            Ok(()) => {}
            Err(Errno::IO | Errno::NODEV) => return at,
            Err(e) => panic!("client {number}: {e}"),
        }
        at.stored += u64::from(replace);
        at.records += u64::from(!replace);
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

/// Checks what a client left: everything that was acknowledged, and of the one step that was under way all or nothing.
/// Records below `from` were checked before. Says what is there.
pub fn check(client: &Client, number: usize, from: u64, acknowledged: Progress) -> Progress {
    let record = SIZES[number] as u64 + TRAILER;
    let file = open(client, number).unwrap();
    let size = file.metadata().unwrap().len();
    assert_eq!(size % record, 0, "client {number}: half a record at the end of {size} bytes");
    let records = size / record;
    let stored = match client.read(format!("/file{number}")) {
        Ok(bytes) => {
            let generation = bytes.get(..8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
            assert!(bytes == content(number, generation), "client {number}: its file is of no generation");
            generation
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
        Err(e) => panic!("client {number}: {e}"),
    };
    let there = Progress { records, stored };
    let more = (records + stored).checked_sub(acknowledged.records + acknowledged.stored);
    let kept = records >= acknowledged.records && stored >= acknowledged.stored;
    assert!(kept && more.is_some_and(|n| n <= 1), "client {number}: {acknowledged:?} acknowledged, {there:?} found");
    let (mut expected, mut found) = (vec![0; SIZES[number]], vec![0; SIZES[number]]);
    for at in from..records {
        fill(number, at, &mut expected);
        file.read_checksum_verify(at * record, &mut found[..]).unwrap();
        assert!(found == expected, "client {number}: record {at} is not what was written");
    }
    there
}

/// Lets four clients work on a device until `end` says so (it is told the acknowledgements so far), which must see to
/// it that the device ends. Returns how far they got, and the acknowledgements.
pub fn live(
    device: &mut Device,
    there: &[Progress; SIZES.len()],
    end: impl FnOnce(&mut Device, &AtomicU64),
) -> ([Progress; SIZES.len()], u64) {
    let acknowledged = AtomicU64::new(0);
    let clients: Vec<Client> = SIZES.iter().map_while(|_| device.try_connect()).collect();
    let mut reached = *there;
    std::thread::scope(|scope| {
        let spawn = |(n, c)| {
            let (from, acknowledged) = (there[n], &acknowledged);
            scope.spawn(move || work(c, n, from, acknowledged))
        };
        let handles: Vec<_> = clients.iter().enumerate().map(spawn).collect();
        end(device, &acknowledged);
        for (n, h) in handles.into_iter().enumerate() {
            reached[n] = h.join().unwrap();
        }
    });
    (reached, acknowledged.into_inner())
}

/// Checks all clients' work on a fresh device, which is then killed: the next life starts from a second crash.
pub fn check_all(image: &Path, there: &mut [Progress; SIZES.len()], reached: &[Progress; SIZES.len()]) {
    let mut device = Device::start(image);
    let client = device.connect();
    for (n, &reached) in reached.iter().enumerate() {
        there[n] = check(&client, n, there[n].records, reached);
    }
    drop(client);
    device.kill();
}
