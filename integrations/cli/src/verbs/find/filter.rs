//! What `find` can ask of a file.

use crate::entry::kind;
use crate::failure::{Doing, Failure};
use crate::output;
use crate::verbs::chown;
use crate::walk::Step;
use globset::{GlobBuilder, GlobMatcher};
use std::path::Path;
use std::str::FromStr;
use weldfs::Client;

/// What must hold of what is found.
#[derive(clap::Args, Debug)]
pub struct Filter {
    /// Its name, with * ? [a-z] {a,b}
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    name: Option<GlobMatcher>,
    /// The same, capitals or not
    #[arg(long, value_name = "GLOB", value_parser = glob_of_any_case)]
    iname: Option<GlobMatcher>,
    /// Its whole path; * goes over slashes
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    path: Option<GlobMatcher>,
    /// What it is
    #[arg(long, value_enum)]
    r#type: Option<Type>,
    /// Its size: bytes, or with K, M, G (powers of 1024)
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true, value_parser = sizes)]
    size: Option<Number>,
    /// A file of no bytes, or a directory without names
    #[arg(long)]
    empty: bool,
    /// Days since its content changed
    #[arg(long, value_name = "[+-]DAYS", allow_hyphen_values = true)]
    mtime: Option<Number>,
    /// Its inode number (scrub and fsck name files so)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    inode: Option<u64>,
    /// Its names
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    links: Option<Number>,
    /// Its owner: a number, or a name of this machine
    #[arg(long, value_name = "USER", allow_hyphen_values = true, value_parser = user)]
    uid: Option<u32>,
    /// Its group: a number, or a name of this machine
    #[arg(long, value_name = "GROUP", allow_hyphen_values = true, value_parser = group)]
    gid: Option<u32>,
}

/// What `--type` takes.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    /// A regular file
    #[value(name = "f", alias = "file")]
    File,
    /// A directory
    #[value(name = "d", alias = "directory")]
    Directory,
    /// A symbolic link
    #[value(name = "l", alias = "symlink")]
    Symlink,
}

/// N, more than N, or less than N.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Is(u64),
    More(u64),
    Less(u64),
}

impl Number {
    fn parse(text: &str, number: impl Fn(&str) -> Result<u64, String>) -> Result<Number, String> {
        match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(rest), _) => number(rest).map(Number::More),
            (_, Some(rest)) => number(rest).map(Number::Less),
            _ => number(text).map(Number::Is),
        }
    }

    fn holds(self, n: u64) -> bool {
        match self {
            Number::Is(is) => n == is,
            Number::More(than) => n > than,
            Number::Less(than) => n < than,
        }
    }
}

impl FromStr for Number {
    type Err = String;

    fn from_str(text: &str) -> Result<Number, String> {
        Number::parse(text, |digits| digits.parse().map_err(|_| format!("'{text}' is no number: say 7, +7 or -7")))
    }
}

fn user(text: &str) -> Result<u32, String> {
    chown::user(text).map(|(uid, _)| uid)
}

fn group(text: &str) -> Result<u32, String> {
    chown::group(text)
}

fn sizes(text: &str) -> Result<Number, String> {
    Number::parse(text, output::parse_bytes)
}

fn matcher(text: &str, any_case: bool) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(text).case_insensitive(any_case).literal_separator(false).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|e| e.to_string())
}

fn glob(text: &str) -> Result<GlobMatcher, String> {
    matcher(text, false)
}

fn glob_of_any_case(text: &str) -> Result<GlobMatcher, String> {
    matcher(text, true)
}

impl Filter {
    /// Whether all that is asked for holds; `now` in seconds since 1970.
    pub fn holds(&self, client: &Client, step: &Step<'_>, now: i64) -> Result<bool, Failure> {
        let (meta, name) = (step.meta, step.path.file_name().map_or(step.path, Path::new));
        let body = meta.body();
        let days = u64::try_from(now.saturating_sub(body.mtime.sec)).unwrap_or(0) / 86_400;
        let plain = self.name.as_ref().is_none_or(|glob| glob.is_match(name))
            && self.iname.as_ref().is_none_or(|glob| glob.is_match(name))
            && self.path.as_ref().is_none_or(|glob| glob.is_match(step.path))
            && self.r#type.is_none_or(|wanted| {
                kind(meta)
                    == match wanted {
                        Type::File => "file",
                        Type::Directory => "directory",
                        Type::Symlink => "symlink",
                    }
            })
            && self.size.is_none_or(|size| size.holds(body.size))
            && self.mtime.is_none_or(|mtime| mtime.holds(days))
            && self.inode.is_none_or(|ino| ino == body.ino)
            && self.links.is_none_or(|links| links.holds(body.nlink.into()))
            && self.uid.is_none_or(|uid| uid == body.uid)
            && self.gid.is_none_or(|gid| gid == body.gid);
        Ok(plain && (!self.empty || is_empty(client, step)?))
    }
}

fn is_empty(client: &Client, step: &Step<'_>) -> Result<bool, Failure> {
    match kind(step.meta) {
        "file" => Ok(step.meta.is_empty()),
        "directory" => {
            let open = client.open_dir(step.path).doing("list", step.path)?;
            Ok(open.entries().next().transpose().doing("list", step.path)?.is_none())
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_or_bounds() {
        assert!(sizes("1K").is_ok_and(|n| n.holds(1024) && !n.holds(1025)));
        assert!(sizes("+1K").is_ok_and(|n| !n.holds(1024) && n.holds(1025)));
        assert!("-2".parse::<Number>().is_ok_and(|n| n.holds(1) && !n.holds(2)));
        assert!("x".parse::<Number>().is_err() && sizes("+").is_err());
    }

    #[test]
    fn globs_are_for_names_and_paths_of_any_bytes() {
        use std::os::unix::ffi::OsStrExt;
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"a\xff.log"));
        assert!(glob("*.log").is_ok_and(|g| g.is_match(odd) && !g.is_match("x.LOG")));
        assert!(glob_of_any_case("*.log").is_ok_and(|g| g.is_match("x.LOG")));
        assert!(glob("/a/*").is_ok_and(|g| g.is_match("/a/b/c")));
        assert!(glob("[").is_err());
    }
}
