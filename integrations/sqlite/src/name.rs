//! `TARGET:/path`: how a file in a device is named to SQLite.
//!
//! The target is part of the name, for SQLite deletes and looks for files (journals, super-journals) by their name
//! alone: a parameter of the URI would not be there then.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The environment variable with the target of names that have none.
pub const TARGET_VARIABLE: &str = "WELDFS_SQLITE_TARGET";

/// A file in a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    /// The image, or the socket of a device.
    pub target: PathBuf,
    /// The path in it, absolute.
    pub path: Vec<u8>,
}

impl Name {
    /// Splits at the first `:/`, as the command line does. A name without a target has the default one, and without a
    /// slash in front it starts at the device's root. `Err` says what is missing.
    pub fn parse(text: &[u8], default: Option<&OsStr>) -> Result<Name, &'static str> {
        let (target, path) = match text.windows(2).position(|pair| pair == b":/") {
            Some(at) => (OsStr::from_bytes(&text[..at]), &text[at + 1..]),
            None => (default.unwrap_or_default(), text),
        };
        if target.is_empty() {
            return Err("a name is of the form TARGET:/path, or WELDFS_SQLITE_TARGET says the target");
        }
        let inside = &path[path.iter().position(|b| *b != b'/').unwrap_or(path.len())..];
        if inside.is_empty() {
            return Err("the path in the device is missing");
        }
        Ok(Name { target: target.into(), path: [b"/", inside].concat() })
    }

    /// The same with the target's name made absolute: what SQLite compares and hands back.
    pub fn absolute(self) -> Name {
        Name { target: std::path::absolute(&self.target).unwrap_or(self.target), path: self.path }
    }

    /// As SQLite shall see it.
    pub fn bytes(&self) -> Vec<u8> {
        [self.target.as_os_str().as_bytes(), b":", &self.path].concat()
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.target.display(), String::from_utf8_lossy(&self.path))
    }
}

/// A path of the device as the host would print it.
pub fn shown(path: &[u8]) -> PathBuf {
    std::ffi::OsString::from_vec(path.to_vec()).into()
}

/// The database that a journal or log belongs to.
pub fn database_of(path: &[u8]) -> Option<&[u8]> {
    path.strip_suffix(b"-journal").or_else(|| path.strip_suffix(b"-wal"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on has failed
mod tests {
    use super::*;

    fn parsed(text: &str, default: Option<&str>) -> Option<String> {
        Name::parse(text.as_bytes(), default.map(OsStr::new)).ok().map(|name| name.to_string())
    }

    #[test]
    fn a_name_is_a_target_and_a_path() {
        assert_eq!(parsed("disk.img:/a/b.db", None).unwrap(), "disk.img:/a/b.db");
        assert_eq!(parsed("/t/disk.img://b.db", None).unwrap(), "/t/disk.img:/b.db");
        assert_eq!(parsed("disk.img:/b.db", Some("other")).unwrap(), "disk.img:/b.db");
        assert_eq!(parsed("/b.db", Some("d.img")).unwrap(), "d.img:/b.db");
        assert_eq!(parsed("b.db", Some("d.img")).unwrap(), "d.img:/b.db");
        for nothing in ["/b.db", "b.db", "", ":/b.db"] {
            assert_eq!(parsed(nothing, None), None, "{nothing}");
        }
        assert_eq!(parsed("disk.img:/", None), None);
    }

    #[test]
    fn a_journal_names_its_database() {
        assert_eq!(database_of(b"/a.db-journal"), Some(&b"/a.db"[..]));
        assert_eq!(database_of(b"/a.db-wal"), Some(&b"/a.db"[..]));
        assert_eq!(database_of(b"/a.db-mj12345678"), None);
    }
}
