//! The life of a device process: it is started by hand or by a supervisor, waited for, found by its image, stopped; and
//! whatever ends it in order leaves a clean image.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const BINARY: &str = env!("CARGO_BIN_EXE_weldfs");
/// What a test does when it is not root, and needs another user.
const NOBODY: &str = "65534";

pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
        Place { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn image(&self) -> PathBuf {
        let image = self.path("a.img");
        ok(weldfs(["mkfs", "--size=48M"]).arg(&image));
        image
    }
}

pub fn weldfs<const N: usize>(args: [&str; N]) -> Command {
    // Where the tests run under nohup, a device would go on ignoring hang-ups, as it should.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=HUP", BINARY])
        .args(args)
        .env("WELDFS_CONFIG", "")
        .env_remove("WELDFS_WAIT")
        .env_remove("NOTIFY_SOCKET");
    command
}

pub fn ok(command: &mut Command) -> String {
    let out = command.output().expect("runs");
    assert!(out.status.success(), "{command:?}: {}: {}", out.status, String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

/// Exit code and what is said.
pub fn refused(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().expect("runs");
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success() && !said.contains("panicked"), "{command:?}: {said}");
    (status.code(), said)
}

/// A process that does not outlive its test.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Running {
        Running(command.spawn().expect("starts"))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("signal");
    }

    /// Its exit code; fails when it does not end.
    pub fn ends(&mut self) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if let Some(status) = self.0.try_wait().expect("waits") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A device that answers.
pub fn serve(image: &Path, more: &[&str]) -> Running {
    let device = Running::start(weldfs(["serve"]).arg(image).args(more).stderr(Stdio::null()));
    ok(weldfs(["wait"]).arg(image));
    device
}

fn info(image: &Path) -> serde_json::Value {
    serde_json::from_str(&ok(weldfs(["info", "--json"]).arg(image))).expect("JSON")
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The command, as a user who has nothing.
pub fn as_nobody(command: &Command) -> Command {
    let mut other = Command::new("setpriv");
    let to = format!("--reuid={NOBODY}");
    other.args([&to, "--regid=65534", "--clear-groups", "--"]).arg(command.get_program()).args(command.get_args());
    other.env("WELDFS_CONFIG", "");
    other
}

#[test]
fn hangup_interrupt_and_terminate_leave_a_clean_image() {
    let place = Place::new();
    let image = place.image();
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        let mut device = serve(&image, &[]);
        ok(weldfs(["mkdir"]).arg(format!("{}:/{}", image.display(), signal.as_raw())));
        assert_eq!(info(&image)["clean"], false, "while it is served");
        // Twice, as a terminal or timeout(1) sends it.
        device.signal(signal);
        device.signal(signal);
        assert_eq!((device.ends(), &info(&image)["clean"]), (Some(0), &true.into()), "{signal:?}");
        assert!(!place.path("a.img.sock").exists());
    }
    assert_eq!(ok(weldfs(["ls"]).arg(format!("{}:/", image.display()))).lines().count(), 3);
}

#[test]
fn a_device_whose_log_nobody_reads_ends_cleanly() {
    let place = Place::new();
    let image = place.image();
    let mut device = Running::start(weldfs(["serve"]).arg(&image).env("WELDFS_LOG", "trace").stderr(Stdio::piped()));
    // The reader goes after one line, as with `serve 2>&1 | head -1`, or as a terminal that closes.
    let mut line = String::new();
    BufReader::new(device.0.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    ok(weldfs(["wait"]).arg(&image));
    ok(weldfs(["mkdir"]).arg(format!("{}:/d", image.display())));
    device.signal(Signal::HUP);
    assert_eq!((device.ends(), &info(&image)["clean"]), (Some(0), &true.into()));
}

#[test]
fn readiness_is_told_on_a_descriptor() {
    let place = Place::new();
    let image = place.image();
    // Standard output is a descriptor that is handed over as any other.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" serve \"$1\" --ready-fd 7 7>&1 >/dev/null", BINARY]).arg(&image);
    let mut device = Running::start(shell.env("WELDFS_CONFIG", "").stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut told = String::new();
    device.0.stdout.take().expect("a pipe").read_to_string(&mut told).expect("it is closed after the line");
    assert_eq!(told, format!("{}.sock\n", image.display()));
    // One connect: it listens by then, whenever it comes to answer.
    drop(weldfs::Client::connect(place.path("a.img.sock")).expect("it is ready"));
    device.signal(Signal::TERM);
    assert_eq!(device.ends(), Some(0));
    let (code, said) = refused(weldfs(["serve", "--ready-fd=977"]).arg(&image));
    assert!(code == Some(2) && said.contains("--ready-fd 977: not an open descriptor"), "{said}");
}

#[test]
fn systemd_is_told_when_it_is_ready_and_when_it_ends() {
    let place = Place::new();
    let image = place.image();
    let manager = UnixDatagram::bind(place.path("notify")).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let heard = || {
        let mut message = [0; 4096];
        let n = manager.recv(&mut message).expect("a message");
        String::from_utf8(message[..n].to_vec()).expect("text")
    };
    let mut serve = weldfs(["serve"]);
    let mut device = Running::start(serve.arg(&image).env("NOTIFY_SOCKET", place.path("notify")).stderr(Stdio::null()));
    let ready = heard();
    assert!(ready.lines().any(|l| l == "READY=1") && ready.contains("STATUS=serving"), "{ready}");
    drop(weldfs::Client::connect(place.path("a.img.sock")).expect("it is ready"));
    device.signal(Signal::HUP);
    let stopping = heard();
    assert!(stopping.lines().any(|l| l == "STOPPING=1"), "{stopping}");
    assert_eq!(device.ends(), Some(0));
}

#[test]
fn wait_ends_when_the_device_answers_or_its_time_is_over() {
    let place = Place::new();
    let image = place.image();
    let start = Instant::now();
    let (code, said) = refused(weldfs(["wait", "--timeout=0.3"]).arg(&image));
    assert!(code == Some(1) && said.contains("no device answers within 0.3 s"), "{said}");
    assert!(start.elapsed() >= Duration::from_millis(300));
    let (code, _) = refused(weldfs(["wait", "--timeout=0"]).arg(place.path("none.sock")));
    assert_eq!(code, Some(1));
    assert_eq!(refused(weldfs(["wait", "--timeout=soon"]).arg(&image)).0, Some(2));
    // Before there is anything: by the socket that will be there, and by the image whose device listens elsewhere.
    let socket = place.path("elsewhere");
    let mut waiting: Vec<Running> =
        [&socket, &image].into_iter().map(|device| Running::start(weldfs(["wait"]).arg(device))).collect();
    std::thread::sleep(Duration::from_millis(100));
    assert!(waiting.iter_mut().all(|w| w.0.try_wait().expect("waits").is_none()), "they wait");
    let _device = serve(&image, &["--socket", socket.to_str().expect("text")]);
    assert!(waiting.iter_mut().all(|w| w.ends() == Some(0)));
}

#[test]
fn stop_returns_when_the_image_is_clean_and_free() {
    let place = Place::new();
    let image = place.image();
    let socket = place.path("elsewhere");
    // By the image, whatever socket; by the socket.
    for name in [&image, &socket] {
        let mut device = serve(&image, &["--socket", socket.to_str().expect("text")]);
        ok(weldfs(["mkdir", "-p"]).arg(format!("{}:/d", image.display())));
        ok(weldfs(["stop"]).arg(name));
        // At once, without waiting for anything.
        ok(weldfs(["fsck"]).arg(&image));
        assert_eq!(info(&image)["clean"], true);
        assert_eq!(device.ends(), Some(0));
        assert!(!socket.exists());
    }
    let (code, said) = refused(weldfs(["stop"]).arg(&image));
    assert!(code == Some(1) && said.contains("no device serves"), "{said}");
    // A directory, by its own name.
    fs::create_dir(place.path("dir")).expect("mkdir");
    let mut dir = Running::start(weldfs(["serve", "--hostdir"]).arg(place.path("dir")).stderr(Stdio::null()));
    ok(weldfs(["wait"]).arg(place.path("dir")));
    ok(weldfs(["stop"]).arg(place.path("dir/")));
    assert_eq!(dir.ends(), Some(0));
}

/// What takes no connections was asked nothing; what has a request that it does not answer was.
#[test]
fn stop_tells_a_device_that_was_not_reached_from_one_that_does_not_answer() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
    let place = Place::new();
    let path = place.path("a.sock");
    let address = SocketAddrUnix::new(&path).expect("an address");
    let socket = |flags| socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
    let listener = socket(SocketFlags::CLOEXEC);
    bind(&listener, &address).expect("binds");
    listen(&listener, 2).expect("listens");
    let stop = || refused(weldfs(["stop", "--timeout", "0.2"]).arg(&path));
    let (code, said) = stop();
    let why = "has not ended within 0.2 s; the request is with it, and stands";
    assert!(code == Some(1) && said.contains(why), "{said}");
    let waiting = std::iter::repeat_with(|| socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK));
    let waiting: Vec<_> = waiting.take_while(|s| connect(s, &address).is_ok()).collect();
    let (code, said) = stop();
    let why = "was not reached within 0.2 s: it takes no connections, and was asked nothing";
    assert!(code == Some(1) && said.contains(why), "{} wait: {said}", waiting.len());
}

#[test]
fn only_root_who_runs_it_and_the_owner_of_the_image_may_stop_a_device() {
    if !is_root() {
        return super::skips::skip("life::only_root_who_runs_it_and_the_owner", "needs root, to be another user");
    }
    let place = Place::new();
    let image = place.image();
    let mut device = serve(&image, &[]);
    let mut stop = weldfs(["stop"]);
    stop.arg(place.path("a.img.sock"));
    let (code, said) = refused(&mut as_nobody(&stop));
    assert!(code == Some(1) && said.contains("the owner of the image may stop it"), "{said}");
    assert!(device.0.try_wait().expect("waits").is_none(), "it goes on");
    ok(weldfs(["stop"]).arg(&image));
    assert_eq!(device.ends(), Some(0));
    std::os::unix::fs::chown(&image, Some(65534), None).expect("chown");
    let mut device = serve(&image, &[]);
    ok(&mut as_nobody(&stop));
    assert_eq!((device.ends(), &info(&image)["clean"]), (Some(0), &true.into()));
}

#[test]
fn a_socket_has_the_mode_and_the_group_it_was_given() {
    let place = Place::new();
    let image = place.image();
    let group = if is_root() { "65534".to_owned() } else { rustix::process::getegid().as_raw().to_string() };
    let mut device = serve(&image, &["--socket-mode", "0620", "--socket-group", &group]);
    let meta = fs::metadata(place.path("a.img.sock")).expect("there");
    assert_eq!((meta.mode() & 0o7777, meta.gid().to_string()), (0o620, group));
    if is_root() {
        // In the group: served. Not in it: not.
        let image_name = format!("{}:/", image.display());
        let mut ls = weldfs(["ls"]);
        ls.arg(&image_name);
        ok(&mut as_nobody(&ls));
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=12345", "--clear-groups", "--", BINARY, "ls", &image_name]);
        assert!(refused(&mut other).1.contains("Permission denied"));
    } else {
        super::skips::skip("life::a_socket_has_the_mode (connecting as others)", "needs root");
    }
    device.signal(Signal::TERM);
    assert_eq!(device.ends(), Some(0));
    for wrong in [["--socket-mode", "0777"], ["--socket-mode", "rw"], ["--socket-group", "no such group"]] {
        assert_eq!(refused(weldfs(["serve"]).arg(&image).args(wrong)).0, Some(2), "{wrong:?}");
    }
}

#[test]
fn whoever_races_a_starting_device_is_served_and_the_device_stays() {
    let place = Place::new();
    let image = place.image();
    let program = ["open /a rw create; append \"x\"; close"];
    for round in 0..12u64 {
        let mut serve = weldfs(["serve"]);
        serve.arg(&image).stderr(Stdio::null());
        let mut exec = weldfs(["exec"]);
        exec.arg(&image).args(program).stdout(Stdio::null());
        // Both orders, and everything between.
        let (mut device, mut client);
        if round % 2 == 0 {
            device = Running::start(&mut serve);
            std::thread::sleep(Duration::from_millis(round));
            client = Running::start(&mut exec);
        } else {
            client = Running::start(&mut exec);
            std::thread::sleep(Duration::from_millis(round));
            device = Running::start(&mut serve);
        }
        assert_eq!(client.ends(), Some(0), "round {round}: the client is served");
        ok(weldfs(["wait"]).arg(&image));
        assert!(device.0.try_wait().expect("waits").is_none(), "round {round}: the device lives");
        if round % 3 == 0 {
            // An unclean end makes the next start a recovery, with a dead socket in the way.
            device.signal(Signal::KILL);
            device.ends();
        } else {
            ok(weldfs(["stop"]).arg(&image));
            assert_eq!(device.ends(), Some(0));
        }
    }
    assert_eq!(ok(weldfs(["cat"]).arg(format!("{}:/a", image.display()))), "x".repeat(12));
}

#[test]
fn verbs_wait_for_a_device_that_ends_and_for_one_another() {
    let place = Place::new();
    let image = place.image();
    let root = format!("{}:/", image.display());
    let mut device = serve(&image, &[]);
    let mut stop = Running::start(weldfs(["stop"]).arg(&image));
    // What attached before would fail with its device: from here on nothing can attach to it.
    while place.path("a.img.sock").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    for n in 0..4 {
        ok(weldfs(["mkdir"]).arg(format!("{root}{n}")));
    }
    assert_eq!((stop.ends(), device.ends()), (Some(0), Some(0)));
    let mut many: Vec<Running> = (4..8).map(|n| Running::start(weldfs(["mkdir"]).arg(format!("{root}{n}")))).collect();
    assert!(many.iter_mut().all(|verb| verb.ends() == Some(0)));
    assert_eq!(ok(weldfs(["ls"]).arg(&root)).lines().count(), 8);
    // The bound: a process that has it open for long is named.
    let mut holder = Running::start(
        Command::new("flock")
            .args(["--no-fork", "--exclusive"])
            .arg(&image)
            .args(["sh", "-c", "echo held; exec sleep 60"])
            .stdout(Stdio::piped()),
    );
    let mut held = String::new();
    BufReader::new(holder.0.stdout.take().expect("a pipe")).read_line(&mut held).expect("a line");
    comes(&holder, "comm", |name| name == "sleep\n");
    let start = Instant::now();
    let (code, said) = refused(weldfs(["ls", &root]).env("WELDFS_WAIT", "0.2"));
    assert!(code == Some(1) && said.contains("in use by sleep"), "{said}");
    let (code, said) = refused(weldfs(["serve"]).arg(&image).env("WELDFS_WAIT", "0.2"));
    assert!(code == Some(1) && said.contains("in use by sleep"), "{said}");
    assert!(start.elapsed() >= Duration::from_millis(400));
    assert_eq!(refused(weldfs(["ls", &root]).env("WELDFS_WAIT", "soon")).0, Some(2));
    // A signal ends a device that waits.
    let mut waiting = Running::start(weldfs(["serve"]).arg(&image).stderr(Stdio::null()));
    // It has been told what to do about one.
    comes(&waiting, "status", |status| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 << 14 != 0))
    });
    std::thread::sleep(Duration::from_millis(300));
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.ends(), Some(1));
}

/// Waits until a process's file in /proc is so.
fn comes(process: &Running, file: &str, so: impl Fn(&str) -> bool) {
    let (path, start) = (format!("/proc/{}/{file}", process.0.id()), Instant::now());
    while !so(&std::fs::read_to_string(&path).expect("it runs")) {
        assert!(start.elapsed() < Duration::from_secs(60), "{path} does not become so");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_device_of_an_image_is_found_whatever_socket_it_listens_at() {
    let place = Place::new();
    let image = place.image();
    let socket = place.path("elsewhere");
    let text = socket.to_str().expect("text");
    let mut device = serve(&image, &["--socket", text]);
    let facts = info(&image);
    assert_eq!((&facts["served"], facts["socket"].as_str()), (&true.into(), Some(text)));
    assert!(ok(weldfs(["info"]).arg(&image)).contains(&format!("being served at {text}")));
    assert!(!ok(weldfs(["stats"]).arg(&image)).is_empty());
    ok(weldfs(["mkdir"]).arg(format!("{}:/d", image.display())));
    assert_eq!(ok(weldfs(["ls"]).arg(format!("{text}:/"))), "d\n", "one device by two names");
    for verb in ["tune", "tenants"] {
        ok(weldfs([verb]).arg(&image));
    }
    // Another name of the same image.
    fs::hard_link(&image, place.path("b.img")).expect("link");
    assert_eq!(ok(weldfs(["ls"]).arg(format!("{}:/", place.path("b.img").display()))), "d\n");
    let (code, said) = refused(weldfs(["fsck"]).arg(&image));
    assert!(code == Some(8) && said.contains(&format!("being served at {text}")), "{code:?}: {said}");
    let (code, said) = refused(weldfs(["serve"]).arg(&image));
    assert!(code == Some(1) && said.contains(&format!("which serves it at {text}")), "{said}");
    device.signal(Signal::KILL);
    device.ends();
    let facts = info(&image);
    assert_eq!((&facts["served"], &facts["clean"]), (&false.into(), &false.into()));
    assert!(refused(weldfs(["stats"]).arg(&image)).1.contains("no device serves"));
    assert_eq!(ok(weldfs(["ls"]).arg(format!("{}:/", image.display()))), "d\n");
}

#[test]
fn the_device_of_a_program_is_its_users_alone_unless_shared() {
    let place = Place::new();
    let image = place.image();
    let look = "stat -c %a $(dirname $WELDFS_SOCKET); stat -c %a $WELDFS_SOCKET";
    let run = |share: &[&str]| ok(weldfs(["run", "--image"]).arg(&image).args(share).args(["--", "sh", "-c", look]));
    assert_eq!(run(&[]), "700\n600\n");
    assert_eq!(run(&["--share"]), "711\n666\n");
    // It is found by its image while the program runs, and ends with it only.
    let inner = "\"$0\" ls \"$1:/\" && \"$0\" info \"$1\" | grep 'being served' >/dev/null && ! \"$0\" stop \"$1\"";
    let mut run = weldfs(["run", "--image"]);
    let out = run.arg(&image).args(["--", "sh", "-c", inner, BINARY]).arg(&image).output().expect("runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("belongs to a program"), "{}: {said}", out.status);
    assert_eq!(info(&image)["clean"], true);
}
