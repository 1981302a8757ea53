//! One file as every verb shows it that shows files (`ls`, `stat`, `find`): the same fields, under the same names.

use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weldfs::{Client, Metadata, WireTime};

/// A file, as JSON has it; docs/CLI.md names each field.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// Its path, with a replacement character for what is no text.
    pub path: String,
    /// The bytes of a path that is no text, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
    /// "file", "directory", "symlink", ...
    pub kind: &'static str,
    /// Inode number.
    pub inode: u64,
    /// Generation of the inode number.
    pub generation: u64,
    /// Permission bits, four octal digits.
    pub mode: String,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size.
    pub size_bytes: u64,
    /// Space it takes.
    pub allocated_bytes: u64,
    /// Last access.
    pub atime: String,
    /// Last change of the content.
    pub mtime: String,
    /// Last change of the attributes.
    pub ctime: String,
    /// Birth.
    pub btime: String,
    /// What a symbolic link says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The bytes of that where it is no text, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_hex: Option<String>,
    /// The same as it is, for people.
    #[serde(skip)]
    pub target_path: Option<PathBuf>,
}

/// What a report is about, as JSON has it.
#[derive(Debug, Serialize)]
pub struct ImageName {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_hex: Option<String>,
}

impl ImageName {
    /// Under the name that was given.
    pub fn new(image: &Path) -> ImageName {
        let (image, image_hex) = path_text(image);
        ImageName { image, image_hex }
    }
}

/// Seconds since 1970 with nine decimals, as JSON has times: exact, unlike a number.
pub fn seconds(t: WireTime) -> String {
    // Times before 1970 count backwards in seconds and forwards in nanoseconds.
    match (t.sec, t.nsec) {
        (-1, nsec @ 1..) => format!("-0.{:09}", 1_000_000_000 - nsec),
        (sec @ ..0, nsec @ 1..) => format!("{}.{:09}", sec + 1, 1_000_000_000 - nsec),
        (sec, nsec) => format!("{sec}.{nsec:09}"),
    }
}

/// A path as JSON can have it, and its bytes where that loses any.
pub fn path_text(path: &Path) -> (String, Option<String>) {
    let bytes = path.as_os_str().as_bytes();
    let hex = || bytes.iter().map(|b| format!("{b:02x}")).collect();
    (path.to_string_lossy().into_owned(), std::str::from_utf8(bytes).err().map(|_| hex()))
}

impl Entry {
    /// Of what was found at `at`, under the name that is shown.
    pub fn new(client: &Client, at: &Path, shown: &Path, meta: &Metadata) -> Entry {
        let body = meta.body();
        let target_path = meta.is_symlink().then(|| client.read_link(at).ok()).flatten();
        let (target, target_hex) = target_path.as_deref().map(path_text).unzip();
        let (path, path_hex) = path_text(shown);
        Entry {
            path,
            path_hex,
            kind: kind(meta),
            inode: body.ino,
            generation: body.generation,
            mode: format!("{:04o}", meta.permissions()),
            nlink: body.nlink,
            uid: body.uid,
            gid: body.gid,
            size_bytes: body.size,
            allocated_bytes: allocated(meta),
            atime: seconds(body.atime),
            mtime: seconds(body.mtime),
            ctime: seconds(body.ctime),
            btime: seconds(body.btime),
            target,
            target_hex: target_hex.flatten(),
            target_path,
        }
    }
}

/// Bytes that a file takes.
pub fn allocated(meta: &Metadata) -> u64 {
    meta.body().blocks512.saturating_mul(512)
}

/// The type in one word.
pub fn kind(meta: &Metadata) -> &'static str {
    match meta.mode() & 0o170000 {
        0o040000 => "directory",
        0o100000 => "file",
        0o120000 => "symlink",
        0o010000 => "fifo",
        0o140000 => "socket",
        0o020000 => "character device",
        0o060000 => "block device",
        _ => "unknown",
    }
}

/// Type and permissions as `ls -l` has them: `drwxr-xr-x`.
pub fn letters(meta: &Metadata) -> String {
    let mode = meta.mode();
    let first = match kind(meta) {
        "directory" => 'd',
        "file" => '-',
        "symlink" => 'l',
        "fifo" => 'p',
        "socket" => 's',
        "character device" => 'c',
        "block device" => 'b',
        _ => '?',
    };
    // A set-id or sticky bit is shown in the place of the x beside it.
    let triple = |shift: u32, special: bool, set: char| {
        let bits = mode >> shift;
        let x = match (bits & 1 != 0, special) {
            (true, true) => set,
            (false, true) => set.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        };
        [if bits & 4 != 0 { 'r' } else { '-' }, if bits & 2 != 0 { 'w' } else { '-' }, x]
    };
    let user = triple(6, mode & 0o4000 != 0, 's');
    let group = triple(3, mode & 0o2000 != 0, 's');
    let others = triple(0, mode & 0o1000 != 0, 't');
    std::iter::once(first).chain(user).chain(group).chain(others).collect()
}

/// Writes a name as it is; on a terminal without what would move its cursor.
pub fn write_name(out: &mut dyn Write, name: &Path) -> io::Result<()> {
    let bytes = name.as_os_str().as_bytes();
    if !io::stdout().is_terminal() {
        return out.write_all(bytes);
    }
    let shown: String = name.to_string_lossy().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    out.write_all(shown.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_ciscops::StatBody;

    #[test]
    fn types_and_permissions_read_as_in_ls() {
        let shown = |mode| letters(&Metadata::from(StatBody { mode, ..StatBody::default() }));
        assert_eq!(shown(0o100644), "-rw-r--r--");
        assert_eq!(shown(0o041777), "drwxrwxrwt");
        assert_eq!(shown(0o104755), "-rwsr-xr-x");
        assert_eq!(shown(0o102644), "-rw-r-Sr--");
        assert_eq!(shown(0o120777), "lrwxrwxrwx");
    }

    #[test]
    fn times_are_exact_on_both_sides_of_1970() {
        let shown = |sec, nsec| seconds(WireTime::new(sec, nsec));
        assert_eq!(shown(1_700_000_000, 5), "1700000000.000000005");
        assert_eq!(shown(-1, 250_000_000), "-0.750000000");
        assert_eq!(shown(-3, 250_000_000), "-2.750000000");
        assert_eq!(shown(-3, 0), "-3.000000000");
    }
}
