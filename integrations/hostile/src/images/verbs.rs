//! A damaged image through the command line program: every verb ends in time by a code of its own, what `ls` lists with
//! success is complete, and what `get` copies with success is the truth.

use super::harm::{Case, Harmed, image};
use super::look::Look;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weldfs_ciscops::dirent::dtype;

/// Every how many images.
pub const EVERY: usize = 100;
/// What one verb may take.
const HANG: Duration = Duration::from_secs(60);
/// Code of a Rust program that panicked.
const PANIC: i32 = 101;

/// Judges one image.
///
/// # Errors
/// What must not be.
pub fn judge(weldfs: &Path, case: &Case) -> Result<(), String> {
    let broken = |e: std::io::Error| format!("the test's own files: {e}");
    let work = tempfile::tempdir().map_err(broken)?;
    let (file, target) = (work.path().join("image"), work.path().join("out"));
    std::fs::write(&file, image(&case.harmed).to_bytes()).map_err(broken)?;
    let root = format!("{}:/", file.display());
    let run = |args: &[&str]| verb(weldfs, args);
    let fsck = run(&["fsck", "-n", &file.to_string_lossy()])?.0;
    let scrub = run(&["scrub", &file.to_string_lossy()])?.0;
    let (listed, names) = run(&["ls", &root])?;
    let copied = run(&["get", &root, &target.to_string_lossy()])?.0;
    run(&["info", &file.to_string_lossy()])?;
    run(&["info", "--log", &file.to_string_lossy()])?;
    if (listed != 0 || copied != 0) && fsck == 0 && scrub == 0 {
        return Err("fsck and scrub find nothing, and ls or get fails".into());
    }
    let Harmed::Plain { of, image } = &case.harmed else { return Ok(()) };
    let may = of.allowed(image);
    let names: BTreeSet<Vec<u8>> = names.lines().map(|l| l.as_bytes().to_vec()).collect();
    let complete = |look: &&Look| look.listed.get(&b""[..]) == Some(&Ok(names.clone()));
    if listed == 0 && !may.iter().any(complete) {
        return Err(format!("ls ends well and lists {} names, none of the sets that there were", names.len()));
    }
    if copied == 0 && !may.iter().any(|look| equal(look, &target)) {
        return Err("get ends well and copies another tree".into());
    }
    Ok(())
}

/// Exit code and output of a verb.
fn verb(weldfs: &Path, args: &[&str]) -> Result<(i32, String), String> {
    let what = args[0];
    let mut command = Command::new(weldfs);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| format!("{}: {e}", weldfs.display()))?;
    let out = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        out.map(|mut out| out.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() > HANG => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{what}: nothing after {} s", HANG.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(e) => return Err(format!("{what}: {e}")),
        }
    };
    let text = reader.join().unwrap_or_default();
    match status.code() {
        Some(PANIC) => Err(format!("{what}: a panic")),
        Some(code) => Ok((code, text)),
        None => Err(format!("{what}: {status}")),
    }
}

/// Whether a folder of the host holds what an image showed.
fn equal(look: &Look, folder: &Path) -> bool {
    look.entries.iter().all(|(path, entry)| {
        let at = folder.join(String::from_utf8_lossy(path).as_ref());
        let content: Option<Vec<u8>> =
            entry.pieces.iter().map(|p| p.clone().ok()).collect::<Option<Vec<_>>>().map(|p| p.concat());
        match entry.dtype {
            dtype::DIR => at.is_dir(),
            dtype::REG => std::fs::read(&at).ok() == content,
            _ => at.symlink_metadata().is_ok(),
        }
    })
}
