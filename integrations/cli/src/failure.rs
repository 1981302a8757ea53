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
    /// The reader of stdout is gone: no failure, and nothing is said about it.
    reader_gone: bool,
}

/// What every verb returns: the exit code when nothing failed on the way (fsck has several).
pub type Outcome = Result<u8, Failure>;

impl Failure {
    /// With the ordinary exit code.
    pub fn new(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), code: FAILED, reader_gone: false }
    }

    /// The command line asked for something that makes no sense.
    pub fn usage(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), code: USAGE, reader_gone: false }
    }

    /// Nothing reads stdout any more (`| head`): the verb ends here, in order, in silence and with exit code 0.
    pub fn reader_gone() -> Failure {
        Failure { sentence: "nothing reads stdout any more".to_owned(), code: 0, reader_gone: true }
    }

    /// Whether it is [`Failure::reader_gone`].
    pub fn is_reader_gone(&self) -> bool {
        self.reader_gone
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

impl std::error::Error for Failure {}

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
