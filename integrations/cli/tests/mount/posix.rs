//! What programs may expect of a file system, by scripts that run in a mount and beside it.

use crate::rig::{Place, ok, usable, weldfs};
use std::path::Path;
use std::process::Command;

/// Runs a script in a mount of each kind; it says what is wrong, and fails.
fn everywhere(test: &str, program: &str, script: &str, must_have: &[&str]) {
    if !usable(test) {
        return;
    }
    for tool in must_have {
        if Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().is_ok_and(|o| !o.status.success()) {
            return crate::skips::skip(test, &format!("needs {tool}"));
        }
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mount/scripts").join(script);
    for options in [&["--allow-other", "-o", "suid"][..], &["--allow-other", "--exclusive", "-o", "suid"]] {
        let place = Place::new("512M");
        let mounted = place.mount(options);
        ok(Command::new(program).arg(&script).arg(place.root()).current_dir(place.path("")));
        mounted.unmount();
        place.is_clean();
        ok(weldfs(["fsck", "--data"]).arg(place.image()));
    }
}

#[test]
fn calls() {
    everywhere("calls", "python3", "calls.py", &["python3"]);
}

#[test]
fn locks() {
    everywhere("locks", "python3", "locks.py", &["python3"]);
}
