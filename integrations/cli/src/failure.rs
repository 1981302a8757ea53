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
        Failure { sentence: without_numbers(sentence.into()), code: FAILED, reader_gone: false }
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
    without_numbers(error.to_string())
}

/// Without the ` (os error 2)` that Rust puts behind the system's words.
pub fn without_numbers(mut text: String) -> String {
    const FRONT: &str = " (os error ";
    while let Some(at) = text.find(FRONT) {
        let rest = &text[at + FRONT.len()..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if !rest[digits..].starts_with(')') {
            break;
        }
        text.replace_range(at..at + FRONT.len() + digits + 1, "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_words_come_without_their_number() {
        let said = Failure::new("a: cannot open: No such file or directory (os error 2), and (os error x)").to_string();
        assert_eq!(said, "a: cannot open: No such file or directory, and (os error x)");
        assert_eq!(reason(&io::Error::from_raw_os_error(libc::ENOENT)), "No such file or directory");
    }
}
