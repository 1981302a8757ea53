//! How a verb fails: one clear sentence, and an exit code.

use std::fmt;
use std::io;
use std::path::Path;

/// Exit code of a failure.
pub const FAILED: u8 = 1;
/// Exit code of a wrong command line.
pub const USAGE: u8 = 2;

/// One sentence that names what and where, with the exit code it ends in.
#[derive(Debug)]
pub struct Failure {
    sentence: String,
    /// Exit code of the process.
    pub code: u8,
}

/// What every verb returns: the exit code when nothing failed on the way (fsck has several).
pub type Outcome = Result<u8, Failure>;

impl Failure {
    /// With the ordinary exit code.
    pub fn new(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), code: FAILED }
    }

    /// The command line asked for something that makes no sense.
    pub fn usage(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), code: USAGE }
    }

    /// The same with another exit code.
    pub fn code(mut self, code: u8) -> Failure {
        self.code = code;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// Says of an I/O error what was being done, and to what.
pub trait Doing<T> {
    /// `doing("read", path)` gives "cannot read PATH: No such file or directory".
    fn doing(self, what: &str, path: impl AsRef<Path>) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: &str, path: impl AsRef<Path>) -> Result<T, Failure> {
        self.map_err(|e| Failure::new(format!("cannot {what} {}: {}", path.as_ref().display(), reason(&e.into()))))
    }
}

/// The error's own words, without the number that Rust adds.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}
