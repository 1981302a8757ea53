//! What a process that attaches finds of those that ended before it: their calls over, their locks given back.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use weldfs::{
    At, AttachOptions, Client, Connector, Errno, Handle, LockKind, LockSpace, Op, OpenFlags, OpenOptions, PoolRange,
    Queue, SocketConnector, Transport,
};
use weldfs_device::DeviceConfig;
use weldfs_hostdir::HostDirConfig;
use weldfs_kernel_shim::{Embedded, HostDirServer, ServeConfig, Server, SocketAt, Source};

const SOCKET: &str = "WELDFS_TEST_DEPARTING_SOCKET";
const ROUND: &str = "WELDFS_TEST_DEPARTING_ROUND";
const WRITES: u32 = 48;
const BYTES: u32 = 256 << 10;

#[test]
#[ignore = "not a test: a part that the tests below start as a process of its own"]
fn a_process_with_a_backlog() {
    let Ok(socket) = std::env::var(SOCKET) else { return };
    let round = std::env::var(ROUND).unwrap();
    let client = Client::connect(PathBuf::from(&socket)).unwrap();
    let held = client.open("/lock", &OpenOptions::new().read(true).write(true).create(true)).unwrap();
    held.try_lock(LockKind::Write).unwrap();
    let t: Arc<dyn Transport> = Arc::from(SocketConnector::new(&socket).attach(&AttachOptions::default()).unwrap());
    let mut q = Queue::new(t.new_queue(64, 1 << 20).unwrap(), t.clone()).unwrap();
    let path = q.stage(format!("/log{round}").as_bytes()).unwrap();
    let src = q.stage(&vec![7; BYTES as usize]).unwrap();
    for _ in 0..WRITES {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o600, at: At::End, src };
        q.submit(&weldfs::Command::new(0, op)).unwrap();
    }
    q.flush();
    println!("\nready");
    std::thread::sleep(std::time::Duration::from_secs(600));
}

fn play(socket: &Path, round: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "departures::a_process_with_a_backlog", "--nocapture", "--ignored"]);
    command.env(SOCKET, socket).env(ROUND, round.to_string()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap().contains("ready")), "it gets ready");
    child
}

/// Kills processes in the middle of what they had asked for, and attaches at once.
fn comes_after(socket: &Path) {
    for round in 0..12 {
        let mut child = play(socket, round);
        child.kill().unwrap();
        child.wait().unwrap();
        let client = Client::connect(socket).unwrap();
        let lock = client.open("/lock", &OpenOptions::new().read(true).write(true)).unwrap();
        lock.try_lock(LockKind::Write).unwrap_or_else(|e| panic!("round {round}: the lock of a dead process: {e}"));
        let name = format!("/log{round}");
        assert_eq!(client.metadata(&name).unwrap().len(), u64::from(WRITES * BYTES), "round {round}");
        client.remove_file(&name).unwrap();
    }
}

/// A thread that serves, and the number by which the kernel knows it.
fn served_by(run: impl FnOnce() + Send + 'static) -> (std::thread::JoinHandle<()>, i32) {
    let (tell, told) = std::sync::mpsc::channel();
    let serving = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        run();
    });
    (serving, told.recv().unwrap())
}

/// That a thread sleeps when nothing is asked of it: it was told of those that departed, and nothing waits any more.
fn rests(thread: i32) {
    let used_ns = || -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap();
        stat.split_whitespace().next().unwrap().parse().unwrap()
    };
    let quiet = || {
        let before = used_ns();
        std::thread::sleep(std::time::Duration::from_millis(300));
        used_ns() - before
    };
    // Sessions may still be ending in the first of these spans.
    assert!((0..8).any(|_| quiet() < 20_000_000), "it takes processor time though idle");
}

#[test]
fn a_client_of_a_device_finds_the_calls_of_killed_ones_over() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    for cores in [1, 2] {
        let device = DeviceConfig { cores, ..DeviceConfig::default() };
        let server =
            Server::bind(ServeConfig { device, signals: false, ..ServeConfig::new(Source::Ram(64 << 20), &socket) });
        let server = server.unwrap();
        let stopper = server.stopper();
        let (serving, thread) = served_by(move || server.run().unwrap());
        comes_after(&socket);
        rests(thread);
        stopper.stop();
        serving.join().unwrap();
    }
}

/// In a process of its own: the children of other tests have a copy of each descriptor until their exec.
fn alone(part: &str) {
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", part, "--nocapture", "--ignored"]).stdout(Stdio::piped());
    let ran = alone.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn a_client_of_a_host_directory_finds_the_calls_of_killed_ones_over() {
    alone("departures::a_host_directory_alone");
}

#[test]
#[ignore = "run by a_client_of_a_host_directory_finds_the_calls_of_killed_ones_over"]
fn a_host_directory_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, files) = (dir.path().join("socket"), dir.path().join("files"));
    std::fs::create_dir(&files).unwrap();
    let server = HostDirServer::bind(HostDirConfig::new(files), &SocketAt::open_to_all(&socket), false).unwrap();
    let stopper = server.stopper();
    let (serving, thread) = served_by(move || server.run().unwrap());
    comes_after(&socket);
    rests(thread);
    stopper.stop();
    serving.join().unwrap();
}

#[test]
fn a_lock_goes_with_the_last_descriptor_that_stood_for_its_file() {
    alone("departures::a_descriptor_alone");
}

#[test]
#[ignore = "run by a_lock_goes_with_the_last_descriptor_that_stood_for_its_file"]
fn a_descriptor_alone() {
    let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
    let gone: Arc<dyn Transport> = Arc::from(embedded.attach(&AttachOptions::default()).unwrap());
    let mut q = Queue::new(gone.new_queue(8, 1 << 16).unwrap(), gone.clone()).unwrap();
    let path = q.stage(b"/f").unwrap();
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let placeholder = gone.placeholders(1).unwrap().pop().unwrap();
    let open = Op::Open {
        base: Handle::ROOT,
        path,
        flags,
        mode: 0o600,
        placeholder: placeholder.id,
        look: PoolRange::EMPTY,
        watch: 0,
    };
    let h = Handle::from_wire(q.execute(&weldfs::Command::new(0, open)).unwrap().ok().unwrap().0);
    let other = Client::with(Arc::new(embedded.clone())).unwrap();
    let mine = other.open("/f", &OpenOptions::new().read(true).write(true)).unwrap();
    // Held by its descriptor, which is all that is left of its session.
    let lock = |h| Op::Lock {
        h,
        action: weldfs_ciscops::LockAction::Set,
        kind: LockKind::Write,
        space: LockSpace::Flock,
        start: 0,
        len: 0,
        owner: 0,
        out: weldfs::PoolRange::default(),
    };
    q.execute(&weldfs::Command::new(0, lock(h))).unwrap().ok().unwrap();
    gone.detach();
    drop((q, gone));
    let start = std::time::Instant::now();
    while embedded.device().usage().sessions > 1 {
        assert!(start.elapsed().as_secs() < 20, "the session ends");
        std::thread::yield_now();
    }
    assert_eq!(other.raw().lock_set(mine.handle(), LockSpace::Flock, LockKind::Write, 0, 0, 1), Err(Errno::AGAIN));
    drop(placeholder);
    // Not at the next regular look: at once.
    other.raw().lock_set(mine.handle(), LockSpace::Flock, LockKind::Write, 0, 0, 1).unwrap();
}
