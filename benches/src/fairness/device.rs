//! A device with tenants, and the processes of its tenants.

use super::load::Load;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use weldfs::{AttachOptions, Client, ClientOptions, SocketConnector, TOKEN_VARIABLE};
use weldfs_device::DeviceStats;
use weldfs_scheduler::PolicyKind;

/// A tenant of an experiment: one process.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// Its weight; 100 is usual.
    pub weight: u32,
    /// What it does.
    pub load: Load,
}

impl Plan {
    /// With the usual weight.
    pub fn new(name: impl Into<String>, load: Load) -> Plan {
        Plan { name: name.into(), weight: 100, load }
    }
}

/// A device to be measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// Which command runs next.
    pub policy: PolicyKind,
    /// Cores.
    pub cores: u32,
    /// Speed of a core, relative to the host's.
    pub speed: f64,
    /// Device time after which a command gives way, microseconds.
    pub quantum_us: u64,
    /// Memory for what commands hold and for changes, as `serve --memory` takes it.
    pub memory: String,
    /// Whether memory is accounted by tenant.
    pub accounting: bool,
    /// Its tenants.
    pub tenants: Vec<Plan>,
}

/// A running device; it ends when dropped.
pub struct Device {
    child: Child,
    folder: tempfile::TempDir,
    client: Client,
    program: PathBuf,
}

impl Device {
    /// Starts one over memory, with `program` (the `weldfs` binary).
    pub fn start(program: &Path, setup: &Setup) -> io::Result<Device> {
        let folder = tempfile::Builder::new().prefix("weldfs-fair-").tempdir()?;
        let (profile, tenants) = (folder.path().join("profile.toml"), folder.path().join("tenants.toml"));
        std::fs::write(&profile, format!("name = \"slowed\"\n[core]\nspeed = {}\n", setup.speed))?;
        let text = |t: &Plan| format!("[[tenant]]\nname = \"{}\"\nweight = {}\ntoken = true\n", t.name, t.weight);
        std::fs::write(&tenants, setup.tenants.iter().map(text).collect::<String>())?;
        let socket = folder.path().join("sock");
        let mut serve = Command::new(program);
        serve
            .env("WELDFS_CONFIG", "")
            .args(["serve", "--ram", "1G", "--socket"])
            .arg(&socket)
            .arg("--profile")
            .arg(&profile);
        serve.arg("--tenants").arg(&tenants).args(["--cores", &setup.cores.to_string(), "--memory", &setup.memory]);
        serve.args(["--policy", setup.policy.name(), "--quantum", &setup.quantum_us.to_string()]);
        let mut child = serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let client = match attach(&mut child, &socket) {
            Ok(client) => client,
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(e);
            }
        };
        let device = Device { child, folder, client, program: program.to_owned() };
        if !setup.accounting {
            device.client.tune("memory.accounting=off")?;
        }
        Ok(device)
    }

    /// Everything it counts.
    pub fn stats(&self) -> io::Result<DeviceStats> {
        serde_json::from_str(&self.client.stats_json()?).map_err(io::Error::other)
    }

    /// Starts a tenant's process; it is ready when this returns, and does nothing yet.
    pub fn process(&self, args: &[String], plan: &Plan) -> io::Result<Process> {
        let token = self.client.tenant_token(&plan.name)?;
        let mut process = Command::new(&self.program);
        process.args(args).arg(self.folder.path().join("sock")).arg(plan.load.to_string()).arg(&plan.name);
        process.env(TOKEN_VARIABLE, token.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = process.spawn()?;
        let out = child.stdout.take().ok_or_else(|| io::Error::other("a client process has no output"))?;
        let mut process = Process { child, lines: BufReader::new(out) };
        match process.line()?.trim() {
            "ready" => Ok(process),
            _ => Err(io::Error::other(format!("the process of {} ended early", plan.name))),
        }
    }
}

/// Without a token: the one who measures is no tenant of the experiment.
fn attach(child: &mut Child, socket: &Path) -> io::Result<Client> {
    let start = Instant::now();
    loop {
        let options = ClientOptions { attach: AttachOptions::default(), ..ClientOptions::default() };
        match Client::with_options(std::sync::Arc::new(SocketConnector::new(socket)), options) {
            Ok(client) => return Ok(client),
            Err(e) if start.elapsed() > Duration::from_secs(30) => return Err(e),
            Err(_) => {}
        }
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("the device ended with {status}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Nothing of it is kept.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A tenant's process; it ends when dropped.
pub struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line)
    }

    /// Gives the word.
    pub fn go(&mut self) -> io::Result<()> {
        self.child.stdin.as_mut().map_or(Ok(()), |to| to.write_all(b"go\n"))
    }

    /// Ends the load; median and 99th percentile of what the client saw, nanoseconds.
    pub fn stop(mut self) -> io::Result<(u64, u64)> {
        drop(self.child.stdin.take());
        let line = self.line()?;
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        match (words.next(), words.next()) {
            (Some(Ok(p50)), Some(Ok(p99))) => Ok((p50, p99)),
            _ => Err(io::Error::other("a client process ended early")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
