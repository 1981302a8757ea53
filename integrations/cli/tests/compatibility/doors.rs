//! The ways to a device's files, and a script run through each of them.

use crate::rig::{BINARY, Place, ok, until, usable, weldfs};
use crate::skips::skip;
use crate::table::{self, Held};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Lines of a difference that are shown.
const SHOWN: usize = 60;
/// Of a sparse image.
const IMAGE: &str = "1G";

/// A way to the files.
#[derive(Clone, Copy)]
enum Door {
    /// The preload library, and a mount that `weldfs run` makes.
    Run,
    /// The preload library alone.
    Alone,
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
            Door::Alone => row.alone,
            Door::Mount | Door::Exclusive => row.mount,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Door::Run => "weldfs run",
            Door::Alone => "weldfs run --mount never",
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
type Said = (String, Option<i32>);

fn said(output: &Output, dir: &str, outside: &Path) -> Said {
    let outside = outside.display().to_string();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(dir, "D").replace(&outside, "T");
    (format!("{}--- stderr\n{}", text(&output.stdout), text(&output.stderr)), output.status.code())
}

/// A program that runs a script for a limited time: in `$D`, which it makes; `$T` is a folder of the host for this run,
/// and `$C` one for all runs of the script, for what need not be made again.
fn limited(mut command: Command, name: &str, dir: &str, kept: &Path, limit: Duration) -> Said {
    let outside = outside();
    let inner = format!("mkdir \"$D\" && exec sh {}", script(name).display());
    command.args(["timeout", "--signal=KILL", &limit.as_secs().to_string(), "sh", "-c", &inner]);
    command.env("D", dir).env("T", outside.path()).env("C", kept).env_remove("WELDFS_DEBUG");
    let output = command.current_dir("/").stdin(Stdio::null()).output().expect("runs");
    said(&output, dir, outside.path())
}

fn on_host(name: &str, kept: &Path, limit: Duration) -> Said {
    let place = outside();
    let dir = place.path().join("d");
    let mut command = Command::new("env");
    // What it prints does not depend on how long it stresses.
    command.arg("WELDFS_STRESS_SECONDS=3");
    limited(command, name, dir.to_str().expect("text"), kept, limit)
}

/// Under the preload library. The prefix is this script's own: without a mount a program that is not hooked finds
/// nothing there, and may make it on the host.
fn preloaded(place: &Place, name: &str, (mount, kept): (&str, &Path), limit: Duration) -> Said {
    let prefix = format!("/weld-{name}");
    let mut command = Command::new(BINARY);
    // Some scripts start programs of other users.
    command.args(["run", "--mount", mount, "--share", "--prefix", &prefix, "--image"]).arg(place.image()).arg("--");
    let got = limited(command, name, &format!("{prefix}/d"), kept, limit);
    let _ = std::fs::remove_dir_all(prefix);
    got
}

fn through(door: Door, name: &str, kept: &Path, limit: Duration) -> Said {
    let place = Place::new(IMAGE);
    let options: &[&str] = match door {
        Door::Run | Door::Alone => {
            let mount = if matches!(door, Door::Run) { "always" } else { "never" };
            let got = preloaded(&place, name, (mount, kept), limit);
            is_clean(&place);
            return got;
        }
        Door::Mount => &["--allow-other", "-o", "suid"],
        Door::Exclusive => &["--allow-other", "-o", "suid", "--exclusive"],
    };
    let mut mounted = place.mount(options);
    let dir = place.at("d");
    let got = limited(Command::new("env"), name, dir.to_str().expect("text"), kept, limit);
    // What looks at every mount of the machine (another test may) holds it for a moment.
    until("unmounting", || weldfs(["umount"]).arg(place.root()).output().is_ok_and(|out| out.status.success()));
    assert_eq!(mounted.ends(), Some(0), "{name}: the mount's process");
    is_clean(&place);
    got
}

/// The image, data included.
fn is_clean(place: &Place) {
    let said = ok(weldfs(["fsck", "--data"]).arg(place.image()));
    assert!(said.contains("clean"), "{said}");
}

/// What was printed in one place and not in the other.
fn difference(want: &str, got: &str) -> String {
    let (folder, names) = (outside(), ["want", "got"]);
    for (name, text) in names.iter().zip([want, got]) {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let out = Command::new("diff").args(["-U1", "want", "got"]).current_dir(folder.path()).output().expect("diff");
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines().skip(2).take(SHOWN).collect::<Vec<_>>().join("\n")
}

/// Runs a script on the host and through each door, and holds what it prints and its exit code to the table.
pub fn compare(name: &str, limit: Duration) {
    let test = format!("compatibility: {name}");
    let missing = missing(&std::fs::read_to_string(script(name)).expect("a script"));
    if !missing.is_empty() {
        return skip(&test, &format!("needs {missing}"));
    }
    let (row, kept) = (table::row_of(name), outside());
    let start = Instant::now();
    let want = on_host(name, kept.path(), limit);
    println!("{name} on the host: {:.1?}", start.elapsed());
    assert_eq!(want.1, Some(0), "{name} on the host: {}", want.0);
    let mut wrong = Vec::new();
    let mut doors = vec![Door::Alone];
    if usable(&test) {
        doors.extend([Door::Run, Door::Mount]);
        if std::env::var_os("WELDFS_PROGRAM_MOUNTS").is_none_or(|which| which != "shared") {
            doors.push(Door::Exclusive);
        }
    }
    for door in doors {
        let start = Instant::now();
        let got = through(door, name, kept.path(), limit);
        println!("{name} through {}: {:.1?}", door.name(), start.elapsed());
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
