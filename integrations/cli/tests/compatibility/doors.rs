//! The ways to a device's files, and a script run through each of them.

use crate::rig::{BINARY, Place, ok, usable, weldfs};
use crate::skips::skip;
use crate::table::{self, Held};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Where `weldfs run` shows the device.
const PREFIX: &str = "/weld";
/// Of a sparse image.
const IMAGE: &str = "2G";

/// A way to the files.
#[derive(Clone, Copy)]
enum Door {
    /// The preload library.
    Run,
    /// A mount that others may use, too.
    Mount,
    /// A mount whose kernel keeps what it has seen.
    Exclusive,
}

impl Door {
    /// What the table says of this door.
    fn held(self, row: &table::Row) -> Held {
        match self {
            Door::Run => row.run,
            Door::Mount | Door::Exclusive => row.mount,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Door::Run => "weldfs run",
            Door::Mount => "a mount",
            Door::Exclusive => "an exclusive mount",
        }
    }
}

pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(name).with_extension("sh")
}

/// Programs that a script needs and that are not here: the words of its line `# needs:`, names or patterns of files.
fn missing(text: &str) -> String {
    let needs: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# needs: ")).collect();
    let words = needs.join(" ");
    let look =
        r#"for w in $1; do case $w in /*) ls $w ;; *) command -v "$w" ;; esac > /dev/null 2>&1 || echo "$w"; done"#;
    // $1 is split and expanded where it stands.
    let out = ok(Command::new("sh").args(["-c", look, "sh", &words]));
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Its own folder of the host, for what no file system but the host's can have (sockets), and for what stays outside.
fn outside() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
    folder
}

/// What a run printed, with the names of its folders taken out, and its exit code.
fn said(output: &Output, dir: &str, outside: &Path) -> (String, Option<i32>) {
    let outside = outside.display().to_string();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(dir, "D").replace(&outside, "T");
    (format!("{}--- stderr\n{}", text(&output.stdout), text(&output.stderr)), output.status.code())
}

/// A program that runs a script for a limited time, in a folder that it makes.
fn limited(mut command: Command, name: &str, dir: &str, outside: &Path, limit: Duration) -> (String, Option<i32>) {
    let inner = format!("mkdir \"$D\" && exec sh {}", script(name).display());
    command.args(["timeout", "--signal=KILL", &limit.as_secs().to_string(), "sh", "-c", &inner]);
    command.env("D", dir).env("T", outside).env_remove("WELDFS_DEBUG").current_dir("/").stdin(Stdio::null());
    let output = command.output().expect("runs");
    said(&output, dir, outside)
}

fn on_host(name: &str, limit: Duration) -> (String, Option<i32>) {
    let (place, outside) = (outside(), outside());
    let dir = place.path().join("d");
    let mut command = Command::new("env");
    // What it prints does not depend on how long it stresses.
    command.arg("WELDFS_STRESS_SECONDS=3");
    limited(command, name, dir.to_str().expect("text"), outside.path(), limit)
}

fn through(door: Door, name: &str, limit: Duration) -> (String, Option<i32>) {
    let (place, outside) = (Place::new(IMAGE), outside());
    let options = match door {
        Door::Run => {
            let mut command = Command::new(BINARY);
            // Some scripts start programs of other users.
            command.args(["run", "--share", "--image"]).arg(place.image()).arg("--");
            let got = limited(command, name, &format!("{PREFIX}/d"), outside.path(), limit);
            place.is_clean();
            return got;
        }
        Door::Mount => &["--allow-other", "-o", "suid"][..],
        Door::Exclusive => &["--allow-other", "-o", "suid", "--exclusive"],
    };
    let mounted = place.mount(options);
    let dir = place.at("d");
    let got = limited(Command::new("env"), name, dir.to_str().expect("text"), outside.path(), limit);
    mounted.unmount();
    place.is_clean();
    ok(weldfs(["fsck", "--data"]).arg(place.image()));
    got
}

/// What was printed in one place and not in the other.
fn difference(want: &str, got: &str) -> String {
    let (folder, names) = (outside(), ["want", "got"]);
    for (name, text) in names.iter().zip([want, got]) {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let out = Command::new("diff").args(["-U1", "want", "got"]).current_dir(folder.path()).output().expect("diff");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Runs a script on the host and through each door, and holds what it prints and its exit code to the table.
pub fn compare(name: &str, limit: Duration) {
    let test = format!("compatibility: {name}");
    let missing = missing(&std::fs::read_to_string(script(name)).expect("a script"));
    if !missing.is_empty() {
        return skip(&test, &format!("needs {missing}"));
    }
    let row = table::row_of(name);
    let want = on_host(name, limit);
    assert_eq!(want.1, Some(0), "{name} on the host: {}", want.0);
    let mut wrong = Vec::new();
    for door in [Door::Run, Door::Mount, Door::Exclusive] {
        if !matches!(door, Door::Run) && !usable(&test) {
            break;
        }
        let got = through(door, name, limit);
        match (door.held(&row), got == want) {
            (Held::Yes, true) | (Held::No, false) => {}
            (Held::Yes, false) => wrong.push(format!(
                "{name} through {} (exit {:?}; +) is not as on the host (-):\n{}",
                door.name(),
                got.1,
                difference(&want.0, &got.0)
            )),
            (Held::No, true) => wrong
                .push(format!("{name} works through {}, and docs/COMPATIBILITY.md says that it does not", door.name())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
