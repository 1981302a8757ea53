//! A device as a user would start it, and the other processes: victim, neighbour, attacker, each a user of its own.

use super::families::{Family, HOME};
use super::victim::{self, Suffered};
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use weldfs::Client;

/// User ids of victim and attacker: none that a system gives away.
pub const VICTIM: u32 = 61_001;
pub const ATTACKER: u32 = 61_002;
/// Another attacker, where a family has two.
pub const SECOND: u32 = 61_003;
/// Descriptors that the device of such a family may have.
const FEW: &str = "--nofile=1024:1024";
/// How large an image is: soon full.
const SIZE: &str = "96M";
/// How long the device may take to answer at first, and any process to get ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// A kind of device.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    /// "pmem" or "block"; none for a directory of the host.
    medium: Option<&'static str>,
    cores: u32,
}

/// All of them; the first is that of a short run.
pub const KINDS: &[Kind] = &[
    Kind { name: "pmem-1", medium: Some("pmem"), cores: 1 },
    Kind { name: "pmem-2", medium: Some("pmem"), cores: 2 },
    Kind { name: "block-1", medium: Some("block"), cores: 1 },
    Kind { name: "block-2", medium: Some("block"), cores: 2 },
    Kind { name: "hostdir", medium: None, cores: 1 },
];

/// A running device; gone when dropped.
pub struct Device {
    child: Child,
    folder: tempfile::TempDir,
    kind: Kind,
    weldfs: PathBuf,
}

/// What a device holds at a moment.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Holds {
    /// Anonymous memory and shared memory of queue pairs, KiB.
    pub memory_kib: u64,
    /// What of it are caches, by the device's own account; they grow with use, within its budget.
    pub cached_kib: u64,
    pub descriptors: u64,
    /// Processor time so far, in ticks of a hundredth of a second.
    pub cpu_ticks: u64,
}

impl Holds {
    /// Memory that is not caches, KiB.
    pub fn own_kib(&self) -> u64 {
        self.memory_kib.saturating_sub(self.cached_kib)
    }
}

impl Device {
    /// Formats, serves (`few`: with few descriptors), and makes a home for each of the two users.
    pub fn start(weldfs: &Path, kind: Kind, few: bool) -> io::Result<Device> {
        let folder = tempfile::Builder::new().prefix("weldfs-hostile-").tempdir()?;
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))?;
        let target = folder.path().join("image");
        if let Some(medium) = kind.medium {
            let mut mkfs = Command::new(weldfs);
            mkfs.arg("mkfs").arg(&target).args(["--size", SIZE, "--medium", medium]).stdout(Stdio::null());
            ended_well("mkfs", mkfs.status()?)?;
        } else {
            std::fs::create_dir(&target)?;
        }
        let limited = ["prlimit".as_ref(), FEW.as_ref(), weldfs.as_os_str()];
        let program = if few { &limited[..] } else { &limited[2..] };
        let mut serve = match kind.medium {
            Some(_) => command(program),
            None => in_small(&target, program),
        };
        serve.env("WELDFS_CONFIG", "").arg("serve").arg("--socket").arg(folder.path().join("sock"));
        match kind.medium {
            Some(_) => serve.arg(&target).args(["--cores", &kind.cores.to_string()]),
            None => serve.arg("--hostdir").arg(&target),
        };
        let log = std::fs::File::create(folder.path().join("log"))?;
        let child = serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        let mut device = Device { child, folder, kind, weldfs: weldfs.to_owned() };
        let client = device.wait_ready()?;
        client.set_permissions("/", 0o755)?;
        for (home, uid) in [(victim::HOME, VICTIM), (HOME, ATTACKER)] {
            client.create_dir(home)?;
            client.set_owner(home, uid, uid)?;
        }
        Ok(device)
    }

    fn wait_ready(&mut self) -> io::Result<Client> {
        let start = Instant::now();
        loop {
            if let Ok(client) = Client::connect(self.socket()) {
                return Ok(client);
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("the device ended with {status}")));
            }
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other("the device does not answer"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    /// Bytes of what it has written to its log.
    pub fn log_bytes(&self) -> u64 {
        self.folder.path().join("log").metadata().map_or(0, |m| m.len())
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub fn holds(&self) -> Holds {
        let of = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).unwrap_or_default();
        let status = of("status");
        let line = |key: &str| {
            let found = status.lines().find_map(|l| l.strip_prefix(key)?.split_whitespace().next()?.parse().ok());
            found.unwrap_or(0u64)
        };
        let stat = of("stat");
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
        let fds = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, |d| d.count() as u64);
        Holds {
            memory_kib: line("RssAnon:") + self.queue_pairs_kib(),
            cached_kib: self.cached_kib(),
            descriptors: fds,
            cpu_ticks: ticks(11) + ticks(12),
        }
    }

    /// 0 when it does not say.
    fn cached_kib(&self) -> u64 {
        let stats = Client::connect(self.socket()).and_then(|client| client.stats_json()).unwrap_or_default();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap_or_default();
        stats["memory"]["cached"].as_u64().unwrap_or(0) >> 10
    }

    /// Resident shared memory that is no file with a name: the queue pairs'.
    fn queue_pairs_kib(&self) -> u64 {
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", self.child.id())).unwrap_or_default();
        let (mut ours, mut sum) = (false, 0);
        for line in smaps.lines() {
            let heading = line.split_whitespace().next().is_some_and(|word| !word.ends_with(':'));
            if heading {
                ours = line.contains("memfd:");
            } else if let (true, Some(rss)) = (ours, line.strip_prefix("Rss:")) {
                sum += rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
            }
        }
        sum
    }

    /// SIGTERM; how long it takes to end, by itself and with success, and whether the image is clean then.
    pub fn terminate(mut self) -> Result<Duration, String> {
        let words = |e: io::Error| e.to_string();
        let start = Instant::now();
        let pid = Pid::from_raw(self.child.id() as i32).ok_or("no process")?;
        kill_process(pid, Signal::TERM).map_err(|e| e.to_string())?;
        let status = loop {
            match self.child.try_wait().map_err(words)? {
                Some(status) => break status,
                None if start.elapsed() > Duration::from_secs(20) => return Err("not ended 20 s after SIGTERM".into()),
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let took = start.elapsed();
        if !status.success() {
            return Err(format!("after SIGTERM: {status}"));
        }
        if self.kind.medium.is_some() {
            let image = self.folder.path().join("image");
            let mut fsck = Command::new(&self.weldfs);
            let fsck = fsck.args(["fsck", "-n"]).arg(&image).stdout(Stdio::null()).stderr(Stdio::null());
            ended_well("fsck", fsck.status().map_err(words)?).map_err(words)?;
            let info = Command::new(&self.weldfs).args(["info", "--json"]).arg(&image).output().map_err(words)?;
            let info: serde_json::Value = serde_json::from_slice(&info.stdout).map_err(|e| e.to_string())?;
            if info.get("clean") != Some(&serde_json::Value::Bool(true)) {
                return Err("the image is not clean".into());
            }
        }
        Ok(took)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ended_well(what: &str, status: std::process::ExitStatus) -> io::Result<()> {
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{what}: {status}"))) }
}

/// A program over a directory as large as an image, a file system of the host's in memory, which is gone with the
/// program, where this process may mount one: an attacker's writes come to their end there as in an image, and what the
/// host does for a disk is no matter of who serves the directory.
fn in_small(dir: &Path, program: &[&OsStr]) -> Command {
    const MOUNT: &str = r#"mount -t tmpfs -o "size=$1,mode=755" weldfs-hostile "$2" && shift 2 && exec "$@""#;
    let mut try_it = Command::new("unshare");
    try_it.args(["--mount", "mount", "-t", "tmpfs", "weldfs-hostile"]).arg(dir);
    if try_it.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        let mut small = Command::new("unshare");
        small.args(["--mount", "sh", "-c", MOUNT, "sh", SIZE]).arg(dir).args(program);
        return small;
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| println!("skipped: a host directory of {SIZE} in memory (mounts are refused here)"));
    command(program)
}

fn command(words: &[&OsStr]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// The part that suffers.
const VICTIM_PART: &str = "victim";

/// One of the other processes: this program again, in a part.
pub struct Part {
    child: Child,
    out: BufReader<ChildStdout>,
    /// Whoever attacks beside it.
    second: Option<Box<Part>>,
}

/// Has a process's first thread run as soon as it is woken, where this process may say so: what it waits for is the
/// device then, and no processor. (By its nice value. A real-time class is worse: such a thread is woken where it ran
/// last, though another processor has nothing to do, and a kernel without preemption first ends whatever call it is in
/// there.)
fn at_once(pid: u32) {
    let thread = Pid::from_raw(pid as i32);
    if thread.is_none() || setpriority_process(thread, -20).is_err() {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| println!("skipped: a victim that waits for no processor (no nice value of -20 here)"));
    }
}

impl Part {
    /// Starts it as a user, where this process may; waits until it is ready. All but the victim have the host's idle
    /// class of scheduling, and the victim's first thread comes before all others: a process that burns processor time
    /// keeps others from it, and that is the host's to divide.
    pub fn start(device: &Device, name: &str, of: &str, uid: u32) -> io::Result<Part> {
        let own = std::env::current_exe()?;
        let mut command = Command::new(if name == VICTIM_PART { own.as_os_str() } else { "chrt".as_ref() });
        if name != VICTIM_PART {
            command.args(["--idle", "0"]).arg(own);
        }
        command.args(["part", name, of]).arg(device.socket()).env("WELDFS_WAIT", "120");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if is_root() {
            command.uid(uid).gid(uid);
        }
        let mut child = command.spawn()?;
        let out = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let mut part = Part { child, out: BufReader::new(out), second: None };
        let mut line = String::new();
        part.out.read_line(&mut line)?;
        if line.trim() != "ready" {
            return Err(io::Error::other(format!("{of} did not get ready")));
        }
        if name == VICTIM_PART && is_root() {
            at_once(part.child.id());
        }
        Ok(part)
    }

    /// The attackers of a family.
    pub fn attack(device: &Device, family: &Family) -> io::Result<Part> {
        let mut first = Part::start(device, "attacker", family.name, ATTACKER)?;
        if family.two {
            first.second = Some(Box::new(Part::start(device, "attacker", family.name, SECOND)?));
        }
        Ok(first)
    }

    /// Ends its input; what it says then.
    pub fn suffered(mut self) -> io::Result<Suffered> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.out.read_to_string(&mut text)?;
        self.child.wait()?;
        Ok(serde_json::from_str(&text)?)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.second = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hundredths of seconds that all processors together were ready and their host ran something else (proc_stat(5)); 0 on
/// a machine that has none.
pub fn stolen_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = stat.lines().next().and_then(|line| line.split_ascii_whitespace().nth(8));
    all.and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A folder like /tmp in which another user listens where the socket of an image's device would be: nothing that is put
/// into the image may go there. What went wrong, if anything.
pub fn squatted(weldfs: &Path) -> io::Result<Option<String>> {
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777))?;
    let [image, socket, secret] = ["mine.img", "mine.img.sock", "secret"].map(|name| folder.path().join(name));
    let mut mkfs = Command::new(weldfs);
    mkfs.args(["mkfs", "--size", "32M"]).arg(&image).stdout(Stdio::null()).uid(VICTIM).gid(VICTIM);
    ended_well("mkfs", mkfs.status()?)?;
    std::fs::write(&secret, b"hunter2")?;
    let mut squat = Command::new(weldfs);
    squat.env("WELDFS_CONFIG", "").args(["serve", "--ram", "32M", "--socket"]).arg(&socket).uid(ATTACKER).gid(ATTACKER);
    let mut squatter = squat.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let start = Instant::now();
    while !socket.exists() && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut put = Command::new(weldfs);
    put.arg("put").arg(&secret).arg(format!("{}:/s", image.display())).uid(VICTIM).gid(VICTIM);
    let put = put.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let mut ls = Command::new(weldfs);
    ls.arg("ls").arg(format!("{}:/", socket.display())).uid(ATTACKER).gid(ATTACKER);
    let stolen = ls.stderr(Stdio::null()).output()?;
    let got = Command::new(weldfs).arg("cat").arg(format!("{}:/s", image.display())).output()?;
    squatter.kill()?;
    squatter.wait()?;
    Ok(if !stolen.stdout.is_empty() {
        Some("a file went to the other user".into())
    } else if !put.success() || got.stdout != b"hunter2" {
        Some("the file is not in the image".into())
    } else {
        None
    })
}
