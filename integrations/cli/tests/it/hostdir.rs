//! `weldfs serve --hostdir` end to end: a directory of the host is served, used by the verbs, and stopped; nothing that
//! a client names leads out of it; and what has no meaning for it is said in one sentence.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn weldfs<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(args: I) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weldfs")).args(args).output().expect("the command runs")
}

fn ok<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(args: I) -> String {
    let out = weldfs(args);
    assert!(out.status.success(), "{}: {}", out.status, String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

fn fails<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(args: I) -> (i32, String) {
    let out = weldfs(args);
    assert!(!out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    (out.status.code().expect("no signal"), String::from_utf8_lossy(&out.stderr).into_owned())
}

struct Served {
    child: Child,
    outside: tempfile::TempDir,
}

impl Served {
    /// Serves `outside/dir`, beside which there is a secret.
    fn start(more: &[&str]) -> Served {
        let outside = tempfile::tempdir().expect("a temporary folder");
        fs::write(outside.path().join("secret"), b"secret").expect("write");
        fs::set_permissions(outside.path().join("secret"), PermissionsExt::from_mode(0o644)).expect("chmod");
        let dir = outside.path().join("dir");
        fs::create_dir(&dir).expect("mkdir");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        serve.args(["serve", "--hostdir"]).arg(&dir).args(more).stderr(Stdio::null());
        let served = Served { child: serve.spawn().expect("it starts"), outside };
        let start = Instant::now();
        while weldfs::Client::connect(served.socket()).is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "it answers");
            std::thread::sleep(Duration::from_millis(5));
        }
        served
    }

    fn dir(&self) -> PathBuf {
        self.outside.path().join("dir")
    }

    fn socket(&self) -> PathBuf {
        self.outside.path().join("dir.sock")
    }

    fn inside(&self, path: &str) -> String {
        format!("{}:{path}", self.socket().display())
    }

    fn term(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signal");
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_directory_is_served_used_and_stopped() {
    let mut served = Served::start(&["--threads", "2"]);
    let socket = served.socket();
    fs::write(served.outside.path().join("in"), b"some text").expect("write");
    ok(["mkdir", &served.inside("/d")]);
    ok([OsStr::new("put"), served.outside.path().join("in").as_ref(), served.inside("/d/f").as_ref()]);
    assert_eq!(fs::read(served.dir().join("d/f")).expect("read"), b"some text");
    assert_eq!(ok(["cat", &served.inside("/d/f")]), "some text");
    assert_eq!(ok(["ls", &served.inside("/")]), "d\n");
    assert!(ok([OsStr::new("stats"), socket.as_ref()]).contains("hostdir"));
    // What it is, and what it is not.
    let text = ok([OsStr::new("info"), socket.as_ref()]);
    assert!(text.contains("hostdir") && text.contains("being served") && text.contains("no image"), "{text}");
    let json = ok([OsStr::new("info"), "--json".as_ref(), socket.as_ref()]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["medium"], &json["served"]), (&"hostdir".into(), &true.into()));
    let (code, why) = fails([OsStr::new("info"), "--log".as_ref(), socket.as_ref()]);
    assert!(code == 2 && why.lines().count() == 1 && why.contains("socket"), "{why}");
    let program = "open /d/f rw; write 0 \"S\"; close";
    let (code, why) = fails([OsStr::new("exec"), socket.as_ref(), program.as_ref()]);
    assert!(code == 1 && why.contains("--mode micro"), "{why}");
    assert_eq!(fs::read(served.dir().join("d/f")).expect("read"), b"some text");
    ok([OsStr::new("exec"), "--mode=micro".as_ref(), socket.as_ref(), program.as_ref()]);
    assert_eq!(fs::read(served.dir().join("d/f")).expect("read"), b"Some text");
    served.term();
    assert!(!socket.exists());
    assert_eq!(fs::read(served.dir().join("d/f")).expect("read"), b"Some text", "what was done stands");
    assert_eq!(fails(["ls", &served.inside("/")]).0, 1);
}

#[test]
fn threads_without_a_directory_are_refused() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let (image, socket) = (place.path().join("a.img"), place.path().join("s"));
    ok([OsStr::new("mkfs"), image.as_ref(), "--size=48M".as_ref()]);
    let of_image = fails([OsStr::new("serve"), image.as_ref(), "--threads=2".as_ref()]);
    let memory = ["serve", "--ram=64M", "--threads=2", "--socket"].map(OsStr::new);
    let of_memory = fails(memory.into_iter().chain([socket.as_ref()]));
    for (code, why) in [of_image, of_memory] {
        assert!(code == 2 && why.contains("--threads") && why.contains("--hostdir"), "{code}: {why}");
    }
    assert!(!socket.exists());
}

/// All ways to name what is beside the directory.
fn escapes(served: &Served) -> Vec<String> {
    let outside = served.outside.path();
    symlink(outside.join("secret"), served.dir().join("absolute")).expect("symlink");
    symlink("../secret", served.dir().join("relative")).expect("symlink");
    symlink(outside, served.dir().join("above")).expect("symlink");
    symlink("/proc/self/cwd", served.dir().join("magic")).expect("symlink");
    fs::create_dir(served.dir().join("d")).expect("mkdir");
    symlink("../..", served.dir().join("d/up")).expect("symlink");
    let names = ["/../secret", "/d/../../secret", "/absolute", "/relative", "/above/secret", "/d/up/secret"];
    let more = [format!("/magic/{}", outside.join("secret").display()), outside.join("secret").display().to_string()];
    names.map(String::from).into_iter().chain(more).collect()
}

#[test]
fn no_path_on_a_command_line_leads_out_of_the_directory() {
    let served = Served::start(&[]);
    for path in escapes(&served) {
        let (code, why) = fails(["cat", &served.inside(&path)]);
        assert!(code == 1 && !why.contains("panicked"), "{path}: {why}");
        weldfs(["cp", &served.inside(&path), &served.inside("/stolen")]);
        if let Ok(copy) = fs::symlink_metadata(served.dir().join("stolen")) {
            assert!(copy.is_symlink(), "{path}: a link is copied as one");
            fs::remove_file(served.dir().join("stolen")).expect("remove");
        }
        weldfs(["rm", &served.inside(&path)]);
    }
    let mine = served.outside.path().join("mine");
    fs::write(&mine, b"mine").expect("write");
    for path in ["/../new", "/above/new", "/d/up/new"] {
        weldfs([OsStr::new("put"), mine.as_ref(), served.inside(path).as_ref()]);
    }
    assert_eq!(fs::read(served.outside.path().join("secret")).expect("it is there"), b"secret");
    assert!(!served.outside.path().join("new").exists());
}

#[test]
fn a_name_that_changes_between_file_and_link_all_the_time_leads_nowhere_else() {
    let served = Served::start(&["--threads", "3"]);
    let (dir, outside) = (served.dir(), served.outside.path().to_owned());
    fs::create_dir(dir.join("real")).expect("mkdir");
    fs::write(dir.join("real/secret"), b"inside").expect("write");
    let over = AtomicBool::new(false);
    let client = weldfs::Client::connect(served.socket()).expect("attaches");
    let swap = |name: &Path, target: &Path| {
        let fresh = dir.join("fresh");
        symlink(target, &fresh).expect("symlink");
        fs::rename(&fresh, name).expect("rename");
    };
    std::thread::scope(|s| {
        s.spawn(|| {
            let name = dir.join("name");
            while !over.load(Ordering::Relaxed) {
                swap(&name, &outside);
                swap(&name, Path::new("real"));
                swap(&name, Path::new(".."));
            }
        });
        for _ in 0..400 {
            if let Ok(bytes) = client.read("/name/secret") {
                assert_eq!(bytes, b"inside");
            }
            let _ = client.set_permissions("/name/secret", 0o600);
            let _ = client.write("/name/made", b"x");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read(outside.join("secret")).expect("read"), b"secret");
    assert!(!outside.join("made").exists());
    let mode = fs::metadata(outside.join("secret")).expect("stat").permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "set on what is outside");
}
