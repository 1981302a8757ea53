//! `serve --tenants`, `tenants` and `tune` on the command line.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

struct Served {
    child: Child,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

const TENANTS: &str = "[[tenant]]\nname = \"web\"\ntoken = true\nweight = 400\nlimits = { sessions = 9 }\n";

impl Served {
    fn start(args: &[&str]) -> Served {
        let dir = tempfile::tempdir().expect("a folder");
        let (socket, tenants) = (dir.path().join("s"), dir.path().join("t.toml"));
        std::fs::write(&tenants, TENANTS).expect("written");
        let child = Command::new(env!("CARGO_BIN_EXE_weldfs"))
            .args(["serve", "--ram=64M", "--socket"])
            .arg(&socket)
            .args([Path::new("--tenants"), &tenants])
            .args(args)
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("the device starts");
        let start = Instant::now();
        while weldfs::Client::connect(&socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "the device answers");
            std::thread::sleep(Duration::from_millis(5));
        }
        Served { child, socket, _dir: dir }
    }

    fn run(&self, verb: &str, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        command.arg(verb).arg(&self.socket).args(args).env_remove(weldfs::TOKEN_VARIABLE);
        command.output().expect("the command runs")
    }

    fn ok(&self, verb: &str, args: &[&str]) -> String {
        let out = self.run(verb, args);
        assert!(out.status.success(), "{verb} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    }

    /// What it says when it fails, and its exit code.
    fn refused(&self, verb: &str, args: &[&str]) -> (Option<i32>, String) {
        let out = self.run(verb, args);
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    }

    fn setting(&self, key: &str) -> String {
        let all: Value = serde_json::from_str(&self.ok("tune", &["--json"])).expect("JSON");
        let found = all.as_array().expect("a list").iter().find(|s| s["key"] == key).expect("the setting");
        found["value"].as_str().expect("text").to_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_serve_is_told_is_what_tune_lists_and_changes() {
    let served = Served::start(&["--policy=rr", "--quantum=33", "--cost=constant", "--cores=5"]);
    assert_eq!(
        (served.setting("scheduler.policy"), served.setting("scheduler.quantum_us")),
        ("rr".into(), "33".into())
    );
    assert_eq!(served.setting("scheduler.cost"), "constant");
    served.ok("tune", &["scheduler.policy=eevdf", "tenant.web.weight=7"]);
    assert_eq!((served.setting("scheduler.policy"), served.setting("tenant.web.weight")), ("eevdf".into(), "7".into()));
    let text = served.ok("tune", &[]);
    assert!(text.contains("scheduler.policy") && text.contains("1..=10000"), "{text}");
    let (code, said) = served.refused("tune", &["tenant.web.weight=0"]);
    assert!(code == Some(1) && said.contains("tenant.web.weight cannot be '0': it is 1..=10000"), "{said}");
    let (code, said) = served.refused("tune", &["colour=blue"]);
    assert!(code == Some(1) && said.contains("there is no setting 'colour'"), "{said}");
    assert_eq!(served.refused("tune", &["colour"]).0, Some(2));
    assert_eq!(served.setting("tenant.web.weight"), "7");
}

#[test]
fn tenants_are_listed_and_their_tokens_printed() {
    let served = Served::start(&[]);
    let all: Value = serde_json::from_str(&served.ok("tenants", &["--json"])).expect("JSON");
    let web = &all[0];
    assert_eq!(
        (web["name"].as_str(), web["weight"].as_u64(), web["token"].as_bool()),
        (Some("web"), Some(400), Some(true))
    );
    assert_eq!((web["limits"]["sessions"].as_u64(), web["usage"]["sessions"].as_u64()), (Some(9), Some(0)));
    let token = served.ok("tenants", &["--token", "web"]);
    assert_eq!(token.trim_end().len(), 32);
    let mut member = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    member.args(["tenants", "--json"]).arg(&served.socket).env(weldfs::TOKEN_VARIABLE, token.trim_end());
    let all: Value = serde_json::from_slice(&member.output().expect("runs").stdout).expect("JSON");
    assert_eq!(all[0]["usage"]["sessions"].as_u64(), Some(1), "the command itself is a member");
    member.env(weldfs::TOKEN_VARIABLE, "0".repeat(32));
    let out = member.output().expect("runs");
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("Permission denied"));
    let text = served.ok("tenants", &[]);
    assert!(text.lines().any(|l| l.starts_with("web ") && l.contains("yes")), "{text}");
    let (code, said) = served.refused("tenants", &["--token", "nobody"]);
    assert!(code == Some(1) && said.contains("there is no such tenant"), "{said}");
}

#[test]
fn a_wrong_tenants_file_keeps_the_device_from_starting_and_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("t.toml");
    let wrong = [
        ("[[tenant]]\nname = \"a\"\nuids = [1]\nwieght = 3\n", "wieght"),
        ("[[tenant]]\nname = \"a\"\nuids = [1]\nweight = 0\n", "weight 0"),
        ("[[tenant]]\nname = \"a\"\n", "nobody can belong"),
    ];
    for (text, names) in wrong {
        std::fs::write(&file, text).expect("written");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        serve.args(["serve", "--ram=16M", "--socket"]).arg(dir.path().join("s")).arg("--tenants").arg(&file);
        let out = serve.output().expect("runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains(names), "{said}");
    }
}
