//! Busy processes.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What a busy process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Computes, and calls nothing.
    Spin,
    /// Runs a C compiler over a generated file, again and again.
    Compile,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 2] = [Kind::Spin, Kind::Compile];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Spin => "spin",
            Kind::Compile => "compile",
        }
    }
}

/// Functions in the file that is compiled: some tenths of a second.
const FUNCTIONS: usize = 300;

/// A busy process's work: until its standard input ends, which it does with the one that started it.
///
/// # Errors
/// The compiler cannot be run.
pub fn keep_busy(kind: Kind) -> io::Result<()> {
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    match kind {
        Kind::Spin => loop {
            std::hint::black_box((0..1_000_000u64).fold(0, |a: u64, b| a.wrapping_mul(31) ^ b));
        },
        Kind::Compile => {
            let folder = tempfile::tempdir()?;
            let source = folder.path().join("busy.c");
            let body =
                "int s = 0; for (int i = 0; i < n; i++) { s += a[i] * (s ^ i); if (s % 7) s -= a[n - i]; } return s;";
            let text: String = (0..FUNCTIONS).map(|i| format!("int f{i}(int *a, int n) {{ {body} }}\n")).collect();
            std::fs::write(&source, text)?;
            loop {
                let mut compiler = Command::new("cc");
                compiler.args(["-O2", "-S", "-o", "/dev/null"]).arg(&source).stdin(Stdio::null());
                if !compiler.status()?.success() {
                    return Err(io::Error::other("cc failed"));
                }
            }
        }
    }
}

/// Busy processes that run; they end when this is dropped.
pub(crate) struct Company(Vec<Child>);

impl Company {
    pub(crate) fn start(program: &Path, args: &[String], kind: Kind, number: u32) -> io::Result<Company> {
        let mut all = Company(Vec::new());
        for _ in 0..number {
            let mut command = Command::new(program);
            command.args(args).arg(kind.name()).stdin(Stdio::piped()).stdout(Stdio::null());
            all.0.push(command.spawn()?);
        }
        if number > 0 {
            std::thread::sleep(Duration::from_millis(200));
        }
        all.check()?;
        Ok(all)
    }

    fn check(&mut self) -> io::Result<()> {
        for child in &mut self.0 {
            if let Some(status) = child.try_wait()? {
                return Err(io::Error::other(format!("a busy process ended with {status}")));
            }
        }
        Ok(())
    }

    /// Ends them. An error if one had ended before: what was measured had less company than it says.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.check()
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.stdin.take());
            // Also one that does not hear it; its compiler ends by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
