//! Who is charged: by token, cgroup and user, decided by the device and the kernel; and who may change what.
//!
//! Other processes are this test binary again, told by an environment variable to play a part.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use weldfs::{AttachOptions, Client, ClientOptions, Errno, SocketConnector, TOKEN_VARIABLE};
use weldfs_ciscops::ChecksumKind;
use weldfs_ciscops::attach::{Hello, Reply, Request, Token, kind};
use weldfs_device::{DeviceConfig, TenantReport, TenantsConfig};
use weldfs_fs::Cred;
use weldfs_kernel_shim::{Embedded, ServeConfig, ServeError, Server, Source, Stopper};

const PART: &str = "WELDFS_TEST_TENANT_PART";
const SOCKET: &str = "WELDFS_TEST_TENANT_SOCKET";

/// A device behind a socket, in a thread of this process.
struct Served {
    path: PathBuf,
    stop: Stopper,
    thread: Option<std::thread::JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Served {
    fn start(tenants: &str) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        // Other users come through the folder, too.
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), all).unwrap();
        let mut config = ServeConfig::new(Source::Ram(64 << 20), &path);
        config.signals = false;
        config.device.tenants = TenantsConfig::parse(tenants).unwrap();
        let server = Server::bind(config).unwrap();
        let stop = server.stopper();
        let thread = Some(std::thread::spawn(move || server.run().unwrap()));
        Served { path, stop, thread, _dir: dir }
    }

    fn connect(&self, token: Option<Token>) -> std::io::Result<Client> {
        let attach = AttachOptions { token, ..AttachOptions::default() };
        let options = ClientOptions { attach, ..ClientOptions::default() };
        Client::with_options(Arc::new(SocketConnector::new(&self.path)), options)
    }

    /// Plays the part in another process, started by the program `by`, if any.
    fn play_by(&self, by: &[&str], part: &str, set: impl FnOnce(&mut Command)) -> Output {
        let own = std::env::current_exe().unwrap();
        let all: Vec<&str> = by.iter().copied().chain([own.to_str().unwrap()]).collect();
        let mut command = Command::new(all[0]);
        command.args(&all[1..]).args([
            "--exact",
            "tenants::a_part_played_in_another_process",
            "--nocapture",
            "--ignored",
        ]);
        command.env(PART, part).env(SOCKET, &self.path).env_remove(TOKEN_VARIABLE);
        set(&mut command);
        command.output().unwrap()
    }

    fn play(&self, part: &str, set: impl FnOnce(&mut Command)) -> Output {
        self.play_by(&[], part, set)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// The names of the tenants that have a session now.
fn attached(client: &Client) -> Vec<String> {
    let all: Vec<TenantReport> = serde_json::from_str(&client.tenants_json().unwrap()).unwrap();
    all.into_iter().filter(|t| t.usage.sessions > 0).map(|t| t.name).collect()
}

fn code<T>(result: std::io::Result<T>) -> Option<Errno> {
    result.err().and_then(|e| e.raw_os_error()).map(Errno)
}

#[test]
#[ignore = "not a test: a part that the tests below start as a process of its own"]
fn a_part_played_in_another_process() {
    let (Ok(part), Ok(socket)) = (std::env::var(PART), std::env::var(SOCKET)) else { return };
    let client = match Client::connect(&socket) {
        Ok(client) => client,
        Err(e) => return println!("\nrefused {}", e.raw_os_error().unwrap()),
    };
    match part.as_str() {
        "who" => println!("\nis {}", attached(&client).join(" ")),
        "govern" => {
            let errnos = [
                code(client.tune("tenant.web.weight=7")),
                code(client.tenant_token("web")),
                code(client.trace_start(10)),
                code(client.settings_json()),
                code(client.tenants_json()),
            ];
            println!("\ngot {:?}", errnos.map(|e| e.map_or(0, |e| e.0)));
        }
        other => panic!("no such part: {other}"),
    }
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answer = text.lines().find(|l| ["is ", "got ", "refused "].iter().any(|word| l.starts_with(word)));
    answer.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr))).to_owned()
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn a_process_with_a_token_belongs_to_its_tenant_and_one_with_a_wrong_token_to_none() {
    let served = Served::start("[[tenant]]\nname = \"web\"\ntoken = true\n[[tenant]]\nname = \"db\"\ntoken = true\n");
    let own = format!("uid:{}", own_uid());
    let token = served.connect(None).unwrap().tenant_token("db").unwrap();
    let with = |value: String| {
        said(&served.play("who", |c| {
            c.env(TOKEN_VARIABLE, value);
        }))
    };
    assert_eq!(said(&served.play("who", |_| ())), format!("is {own}"));
    assert_eq!(with(token.to_string()), "is db");
    let refused = format!("refused {}", Errno::ACCES.0);
    assert_eq!(with(Token([0; 16]).to_string()), refused);
    for nonsense in ["", "db", "zz", &token.to_string()[1..]] {
        assert_eq!(with(nonsense.into()), refused, "{nonsense:?}");
    }
    let member = served.connect(Some(token)).unwrap();
    assert_eq!(attached(&member), ["db"]);
    // A forked child's and a reconnected client's session is the same tenant's.
    member.reconnect().unwrap();
    assert_eq!(attached(&member), ["db"]);
    assert_eq!(code(served.connect(Some(Token([7; 16])))), Some(Errno::ACCES));
    assert_eq!(attached(&member), ["db"], "nobody was let in as somebody else");
}

/// A connection on which anything can be said.
struct Line(std::os::fd::OwnedFd);

impl Line {
    fn to(path: &Path) -> Line {
        let fd =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::connect(&fd, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Line(fd)
    }

    /// The answer; nothing when the device hung up.
    fn say(&self, request: &Request) -> Option<Vec<u8>> {
        rustix::net::send(&self.0, &request.encode(), SendFlags::NOSIGNAL).ok()?;
        self.hear()
    }

    fn hear(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 65_536];
        let (n, _) = rustix::net::recv(&self.0, &mut bytes[..], RecvFlags::empty()).ok()?;
        (n > 0).then(|| bytes[..n].to_vec())
    }
}

fn hello() -> Request {
    Request::Hello { hello: Hello { version_min: 1, version_max: 1, ..Hello::default() }, prefix: Vec::new() }
}

#[test]
fn one_guess_per_connection_and_nobody_joins_after_attaching() {
    let served = Served::start("[[tenant]]\nname = \"web\"\ntoken = true\n");
    let token = served.connect(None).unwrap().tenant_token("web").unwrap();
    let guess = Line::to(&served.path);
    let answer = guess.say(&Request::Join(Token([1; 16]))).unwrap();
    assert_eq!(Reply::decode(&answer, kind::JOIN), Err(Errno::ACCES));
    assert_eq!(guess.say(&hello()), None, "the connection is over");
    let late = Line::to(&served.path);
    assert!(matches!(Reply::decode(&late.say(&hello()).unwrap(), kind::HELLO), Ok(Reply::Welcome(_))));
    assert_eq!(late.say(&Request::Join(token)), None, "a session stays whose it is");
    let member = Line::to(&served.path);
    assert_eq!(Reply::decode(&member.say(&Request::Join(token)).unwrap(), kind::JOIN), Ok(Reply::Done));
    assert_eq!(member.say(&Request::Tenants), None, "only hello comes after join");
}

#[test]
fn settings_and_tokens_are_for_root_and_the_devices_owner() {
    let served = Served::start("[[tenant]]\nname = \"web\"\ntoken = true\n");
    assert_eq!(said(&served.play("govern", |_| ())), "got [0, 0, 0, 0, 0]");
    if own_uid() != 0 {
        crate::skips::skip(
            "tenants: settings_and_tokens_are_for_root_and_the_devices_owner",
            "another user's part needs root",
        );
        return;
    }
    // The test binary may lie where another user cannot reach it; this process's own file can be executed by all.
    let copy = served.path.with_file_name("part");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut command = Command::new(&copy);
    command.args(["--exact", "tenants::a_part_played_in_another_process", "--nocapture", "--ignored"]);
    command.env(PART, "govern").env(SOCKET, &served.path).env_remove(TOKEN_VARIABLE).uid(2001).gid(2001);
    let eperm = Errno::PERM.0;
    assert_eq!(said(&command.output().unwrap()), format!("got [{eperm}, {eperm}, {eperm}, 0, 0]"));
    let weight = |c: &Client| {
        let all: Vec<TenantReport> = serde_json::from_str(&c.tenants_json().unwrap()).unwrap();
        all.into_iter().find(|t| t.name == "web").unwrap().weight
    };
    assert_eq!(weight(&served.connect(None).unwrap()), 7, "what root set stayed");
}

#[test]
fn a_process_in_a_cgroup_that_is_named_belongs_to_its_tenant() {
    // The unified hierarchy, wherever it is mounted here; without it, or without the right to use it, nothing can be
    // shown.
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let skip = |why| crate::skips::skip("tenants: a_process_in_a_cgroup_that_is_named_belongs_to_its_tenant", why);
    let Some(root) = roots.into_iter().find(|r| r.join("cgroup.controllers").exists()) else {
        return skip("no unified cgroup hierarchy");
    };
    let name = format!("weldfs-test-{}", std::process::id());
    let group = root.join(&name);
    if std::fs::create_dir(&group).is_err() {
        return skip("needs the right to make a cgroup");
    }
    let served = Served::start(&format!("[[tenant]]\nname = \"grouped\"\ncgroups = [\"/{name}\"]\n"));
    let procs = group.join("cgroup.procs");
    let output =
        served.play_by(&["sh", "-c", "echo 0 > \"$0\" && exec \"$@\"", procs.to_str().unwrap()], "who", |_| ());
    let answer = said(&output);
    let start = Instant::now();
    while std::fs::remove_dir(&group).is_err() && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(answer, "is grouped");
    assert_eq!(said(&served.play("who", |_| ())), format!("is uid:{}", own_uid()));
}

#[test]
fn each_setting_is_listed_with_its_range_and_a_wrong_one_changes_nothing() {
    let served = Served::start("[[tenant]]\nname = \"web.api\"\ntoken = true\nweight = 300\n");
    let client = served.connect(None).unwrap();
    let list = || -> Vec<(String, String, String)> {
        let all: Vec<serde_json::Value> = serde_json::from_str(&client.settings_json().unwrap()).unwrap();
        let text = |v: &serde_json::Value, key| v[key].as_str().unwrap().to_owned();
        all.iter().map(|s| (text(s, "key"), text(s, "value"), text(s, "range"))).collect()
    };
    let before = list();
    let of = |key: &str| list().into_iter().find(|s| s.0 == key).unwrap().1;
    for (key, value) in before.iter().map(|s| (&s.0, &s.1)) {
        client.tune(&format!("{key}={value}")).unwrap();
    }
    assert_eq!(list(), before, "what is listed can be set");
    let good = [
        ("scheduler.policy", "rr"),
        ("scheduler.policy", "eevdf"),
        ("scheduler.quantum_us", "17"),
        ("scheduler.cost", "constant"),
        ("memory.accounting", "off"),
        ("tenant.web.api.weight", "10000"),
    ];
    for (key, value) in good {
        client.tune(&format!("{key}={value}")).unwrap();
        assert_eq!(of(key), value);
    }
    let now = list();
    let bad = [
        ("scheduler.policy=best", Errno::RANGE),
        ("scheduler.quantum_us=0", Errno::RANGE),
        ("scheduler.quantum_us=1000001", Errno::RANGE),
        ("scheduler.quantum_us=+5", Errno::RANGE),
        ("scheduler.cost=free", Errno::RANGE),
        ("memory.accounting=maybe", Errno::RANGE),
        ("tenant.web.api.weight=0", Errno::RANGE),
        ("tenant.web.api.weight=10001", Errno::RANGE),
        ("tenant.web.weight=5", Errno::NOENT),
        ("scheduler.colour=blue", Errno::NOENT),
        ("scheduler.policy", Errno::INVAL),
        ("", Errno::INVAL),
    ];
    for (setting, errno) in bad {
        assert_eq!(code(client.tune(setting)), Some(errno), "{setting}");
    }
    assert_eq!(list(), now);
}

#[test]
fn connections_that_never_attach_keep_nobody_out() {
    let served = Served::start("");
    let silent: Vec<Line> = (0..200).map(|_| Line::to(&served.path)).collect();
    let client = served.connect(None).unwrap();
    client.raw().nop().unwrap();
    let hung_up = || {
        let none = RecvFlags::DONTWAIT;
        silent.iter().filter(|l| rustix::net::recv(&l.0, &mut [0u8; 8][..], none).is_ok_and(|(n, _)| n == 0)).count()
    };
    let start = Instant::now();
    while hung_up() < 200 - 64 {
        assert!(start.elapsed() < Duration::from_secs(20), "{} were let go", hung_up());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(hung_up() <= 200 - 63, "the youngest may still attach");
}

#[test]
fn a_device_whose_tenants_were_promised_more_memory_than_there_is_does_not_start() {
    let promise = |name: &str| {
        format!("[[tenant]]\nname = \"{name}\"\ntoken = true\nmemory = {{ guarantee_bytes = 41943040 }}\n")
    };
    let tenants = TenantsConfig::parse(&(promise("a") + &promise("b"))).unwrap();
    let config = DeviceConfig { tenants, memory_bytes: 128 << 20, ..DeviceConfig::default() };
    let refused = Embedded::open(&Source::Ram(64 << 20), config.clone()).err().map(|e| e.to_string());
    assert!(refused.as_ref().is_some_and(|e| e.contains("tenant b") && e.contains("memory")), "{refused:?}");
    let enough = DeviceConfig { memory_bytes: 256 << 20, ..config };
    Embedded::open(&Source::Ram(64 << 20), enough).map(drop).map_err(|e: ServeError| e.to_string()).unwrap();
}

#[test]
fn a_command_that_needs_more_memory_than_its_tenant_can_have_is_told_so() {
    let tenants = TenantsConfig::parse("[default.memory]\ncap_bytes = 2097152\n").unwrap();
    let config = DeviceConfig { tenants, ..DeviceConfig::default() };
    let embedded = Embedded::open(&Source::Ram(64 << 20), config).unwrap();
    let cred = Cred { uid: 0, gid: 0, groups: [].as_slice().into() };
    let client = Client::with(Arc::new(embedded.acting_as(cred))).unwrap();
    let options = weldfs::OpenOptions::new().read(true).write(true).create(true);
    let file = client.open("/f", &options).unwrap();
    file.write_all_at(&[3; 1 << 20], 0).unwrap();
    let sum = |len| file.checksum(0..len, ChecksumKind::Crc32c).map(|s| s.len);
    assert_eq!(sum(2 << 20), Ok(1 << 20));
    assert_eq!(sum(3 << 20), Err(Errno::NOMEM));
}
