//! Building the back-end of a package: `make KIND` in its folder.

use crate::failure::{Doing, Failure};
use crate::output::say;
use std::path::Path;
use std::process::{Command, Stdio};

pub use weldfs_fpga::manifest::Kind;

/// Builds, if the folder has a Makefile. What make prints is shown only if it fails.
pub fn build(folder: &Path, kind: Kind) -> Result<(), Failure> {
    if !folder.join("Makefile").is_file() {
        return Ok(());
    }
    let make = |option: &str| {
        let mut make = Command::new("make");
        make.args(["--silent", option, "-C"]).arg(folder).arg(kind.name()).stdin(Stdio::null());
        // What a make above this program tells its own children is not meant for this one.
        make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        make.output().doing("run", "make")
    };
    if make("--question")?.status.success() {
        return Ok(());
    }
    say!("building: make {} in {}", kind.name(), folder.display());
    let done = make("--keep-going")?;
    if done.status.success() {
        return Ok(());
    }
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let last: Vec<&str> = said.lines().rev().take(40).collect();
    last.iter().rev().for_each(|line| say!("  {line}"));
    let missing = match kind {
        Kind::Rtl => "make, verilator, a C++ compiler",
        Kind::Hls => "make, a C++ compiler",
        _ => "make, cargo",
    };
    let which = kind.name();
    Err(Failure::new(format!("{}: make {which} failed ({}); it needs {missing}", folder.display(), done.status)))
}
