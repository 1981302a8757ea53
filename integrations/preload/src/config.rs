//! What `weldfs run` told this process through its environment. Absent means: every hook stays out of the way.
//!
//! The first hook may be called by an allocator that is just setting itself up (jemalloc looks for its settings with
//! readlink and open, under its own lock), before any constructor has run. So reading the settings allocates nothing,
//! waits for nothing and calls nothing that could be hooked: they are copied into static memory.

use crate::{abi, sys};
use std::ops::Deref;
use std::sync::OnceLock;

/// Bytes of the longest path among the settings.
const PATH_BYTES: usize = libc::PATH_MAX as usize;
/// Bytes of a token that are kept: more than any valid one has, so that a long one stays invalid.
const TOKEN_BYTES: usize = 64;
/// Bytes of a number of seconds that are kept: many more than one has whose last digit means anything.
const WAIT_BYTES: usize = 32;

/// Bytes of a list of programs' names.
const LIST_BYTES: usize = 1024;
/// Bytes that are kept of the reason why nothing is mounted.
const REASON_BYTES: usize = 256;

/// At most `N` bytes of text, in place.
#[derive(Clone, PartialEq, Eq)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    const EMPTY: Text<N> = Text { bytes: [0; N], len: 0 };

    /// Adds bytes; `None`, and nothing added, when there is no room for them.
    fn push(&mut self, more: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.len..)?.get_mut(..more.len())?.copy_from_slice(more);
        self.len += more.len();
        Some(())
    }

    /// A copy of `from`; `None` when it is too long.
    fn new(from: &[u8]) -> Option<Text<N>> {
        let mut text = Text::EMPTY;
        text.push(from).map(|()| text)
    }
}

impl<const N: usize> Deref for Text<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Bytes of what was read that a process keeps at most, whatever the variable says, and if it says nothing.
pub const CACHE_MAX: usize = 256 << 20;
pub const CACHE_DEFAULT: usize = 8 << 20;

/// The settings; they do not change while the process lives.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// The device's socket.
    pub socket: Text<PATH_BYTES>,
    /// Who runs that device, as text; one that is too long is kept as the empty text, which is no user.
    pub user: Option<Text<TOKEN_BYTES>>,
    /// Host path under which the device's root appears: absolute, normal form, no slash at the end.
    pub prefix: Text<PATH_BYTES>,
    /// Whether a mount of the device is at `prefix`.
    pub mounted: bool,
    /// Where that mount says which files are mapped.
    pub registry: Option<Text<PATH_BYTES>>,
    /// Why none is there, in words for the user.
    pub unmounted: Option<Text<REASON_BYTES>>,
    /// This library, to be preloaded by programs that this one executes.
    pub library: Option<Text<PATH_BYTES>>,
    /// The token of the tenant that this process belongs to, as text.
    pub token: Option<Text<TOKEN_BYTES>>,
    /// How long to wait for a device that does not answer yet, as text; one that is too long is kept as the empty text,
    /// which is no number either.
    pub wait: Option<Text<WAIT_BYTES>>,
    /// Whether every refusal is worth a line on standard error.
    pub debug: bool,
    /// Whether calls are counted, and the counts told at the end.
    pub counting: bool,
    /// Programs that run without the library's hooks, by name, with commas between them.
    pub bypass: Option<Text<LIST_BYTES>>,
    /// What goes without waiting, as text where it is not the default, and as bits.
    pub automerge: Option<Text<LIST_BYTES>>,
    pub merge: u8,
    /// Bytes that reads may keep, and as text where it is not the default.
    pub cache: usize,
    pub cache_text: Option<Text<TOKEN_BYTES>>,
    /// Below which directory of the device the renames between two syncs are one: absolute, in normal form.
    pub atomic: Option<Text<PATH_BYTES>>,
    /// Whether this program is one of them.
    inert: bool,
    /// Where the last component of `prefix` begins.
    last: usize,
}

impl Config {
    /// Last component of the prefix: a path without it cannot lead under the prefix.
    #[inline]
    pub fn needle(&self) -> &[u8] {
        &self.prefix[self.last..]
    }
}

static CONFIG: OnceLock<Option<Config>> = OnceLock::new();

/// The settings, or `None` outside `weldfs run`, in a program that WELDFS_BYPASS names, and as long as libc itself does
/// not know the environment yet.
#[inline]
pub fn get() -> Option<&'static Config> {
    carried().filter(|config| !config.inert)
}

/// As `get`, but also in a program that WELDFS_BYPASS names: what the programs that it executes must be told.
#[inline]
pub fn carried() -> Option<&'static Config> {
    match CONFIG.get() {
        Some(known) => known.as_ref(),
        None => first(),
    }
}

#[cold]
fn first() -> Option<&'static Config> {
    if abi::environment_is_known() { CONFIG.get_or_init(read).as_ref() } else { None }
}

/// A variable that is set to something.
fn variable(name: &[u8]) -> Option<&'static [u8]> {
    abi::given_env(name).filter(|value| !value.is_empty())
}

fn read() -> Option<Config> {
    let socket = variable(b"WELDFS_SOCKET")?;
    let Some(prefix) = normal(variable(b"WELDFS_PREFIX").unwrap_or(b"/weld")) else {
        crate::report::fatal(&["WELDFS_PREFIX must be an absolute path other than /, shorter than 4096 bytes"]);
    };
    let path = |name: &str, value: &[u8]| {
        Text::new(value).unwrap_or_else(|| crate::report::fatal(&[name, " must be shorter than 4096 bytes"]))
    };
    let automerge = variable(b"WELDFS_AUTOMERGE");
    let Some(merge) = crate::patterns::parse(automerge.unwrap_or(b"on")) else {
        crate::report::fatal(&["WELDFS_AUTOMERGE must be on, off, or some of write,attributes,close,look,names,read"]);
    };
    let cache_text = variable(b"WELDFS_CACHE");
    let Some(cache) = cache_text.map_or(Some(CACHE_DEFAULT), size) else {
        crate::report::fatal(&["WELDFS_CACHE must be 0 or a size from 64K to 256M"]);
    };
    let atomic = variable(b"WELDFS_ATOMIC").map(|dir| {
        let inner = normal(dir).and_then(|dir| Text::new(&crate::path::inside(&prefix, &dir)?));
        inner.unwrap_or_else(|| crate::report::fatal(&["WELDFS_ATOMIC must be a directory under the prefix, absolute"]))
    });
    Some(Config {
        atomic,
        automerge: automerge.and_then(Text::new),
        merge,
        cache,
        cache_text: cache_text.and_then(Text::new),
        socket: path("WELDFS_SOCKET", socket),
        user: variable(b"WELDFS_DEVICE_USER").map(|user| Text::new(user).unwrap_or(Text::EMPTY)),
        last: prefix.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1),
        // What a mount elsewhere has other names for is not looked for there.
        mounted: variable(b"WELDFS_MOUNT").and_then(normal).is_some_and(|mount| mount == prefix),
        prefix,
        registry: variable(b"WELDFS_MAPPED").map(|value| path("WELDFS_MAPPED", value)),
        unmounted: variable(b"WELDFS_UNMOUNTED").and_then(|why| Text::new(&why[..why.len().min(REASON_BYTES)])),
        library: variable(b"WELDFS_PRELOAD").map(|value| path("WELDFS_PRELOAD", value)),
        token: abi::given_env(b"WELDFS_TENANT_TOKEN").map(|token| {
            let kept = token.get(..TOKEN_BYTES).unwrap_or(token);
            Text::new(kept).unwrap_or(Text::EMPTY)
        }),
        wait: abi::given_env(b"WELDFS_WAIT").map(|seconds| Text::new(seconds).unwrap_or(Text::EMPTY)),
        debug: abi::given_env(b"WELDFS_DEBUG") == Some(b"1"),
        counting: abi::given_env(b"WELDFS_REPORT") == Some(b"1"),
        inert: variable(b"WELDFS_BYPASS").is_some_and(bypassed),
        bypass: variable(b"WELDFS_BYPASS").map(|value| {
            Text::new(value).unwrap_or_else(|| crate::report::fatal(&["WELDFS_BYPASS must be shorter than 1024 bytes"]))
        }),
    })
}

fn last_part(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(path, |slash| &path[slash + 1..])
}

/// Whether a list names `program`.
fn lists(list: &[u8], program: &[u8]) -> bool {
    !program.is_empty() && list.split(|b| *b == b',').any(|name| name == program)
}

/// Whether a list names this program: by the file that runs, or by what it was called.
fn bypassed(list: &[u8]) -> bool {
    let mut room = [0u8; PATH_BYTES];
    if let Ok(n) = sys::readlink(c"/proc/self/exe", &mut room)
        && lists(list, last_part(&room[..n]))
    {
        return true;
    }
    let n = sys::read_file(c"/proc/self/cmdline", &mut room);
    let called = room[..n].split(|b| *b == 0).next().unwrap_or_default();
    lists(list, last_part(called))
}

/// The name of the program that runs, as far as `room` has space for it; empty where there is no /proc.
pub fn program(room: &mut [u8]) -> &[u8] {
    let n = sys::read_file(c"/proc/self/comm", room);
    room[..n].trim_ascii_end()
}

/// The prefix in normal form; `None` for a relative path, `/`, one with `.` or `..` in it, or one that is too long.
fn normal(path: &[u8]) -> Option<Text<PATH_BYTES>> {
    if path.first() != Some(&b'/') {
        return None;
    }
    let mut out = Text::EMPTY;
    for part in path.split(|b| *b == b'/').filter(|p| !p.is_empty()) {
        if part == b"." || part == b".." {
            return None;
        }
        out.push(b"/")?;
        out.push(part)?;
    }
    (!out.is_empty()).then_some(out)
}

/// What the variable says: bytes, or so many K, M or G (of 1,024); 0, or 64 KiB to `CACHE_MAX`.
fn size(value: &[u8]) -> Option<usize> {
    let (digits, unit) = match value.split_last()? {
        (b'K' | b'k', digits) => (digits, 1 << 10),
        (b'M' | b'm', digits) => (digits, 1 << 20),
        (b'G' | b'g', digits) => (digits, 1 << 30),
        _ => (value, 1),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let bytes = std::str::from_utf8(digits).ok()?.parse::<usize>().ok()?.checked_mul(unit)?;
    (bytes == 0 || (64 << 10..=CACHE_MAX).contains(&bytes)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_brought_to_normal_form_or_refused() {
        let seen = |path: &[u8]| normal(path).map(|text| text.to_vec());
        assert_eq!(seen(b"//weld//"), Some(b"/weld".to_vec()));
        assert_eq!(seen(b"/mnt/weld"), Some(b"/mnt/weld".to_vec()));
        for bad in [&b"weld"[..], b"/", b"/a/../b", b"", &[b'/'; 1], &[&b"/"[..], &[b'x'; PATH_BYTES]].concat()] {
            assert_eq!(seen(bad), None);
        }
    }

    #[test]
    fn a_list_names_programs_by_the_last_part_of_their_path() {
        assert!(lists(b"gdb,java", last_part(b"/usr/bin/java")) && lists(b"java", last_part(b"java")));
        for other in [&b"/usr/bin/javac"[..], b"/java/x", b"", b"/", b"gdb,java"] {
            assert!(!lists(b"gdb,java", last_part(other)), "{other:?}");
        }
        assert!(!lists(b",", last_part(b"")) && !lists(b"", b"java"));
    }

    #[test]
    fn a_text_takes_what_fits_and_nothing_of_what_does_not() {
        let mut text = Text::<4>::new(b"ab").unwrap();
        assert_eq!(text.push(b"cde"), None);
        assert_eq!(text.push(b"cd"), Some(()));
        assert_eq!(text.push(b""), Some(()));
        assert_eq!(&text[..], b"abcd");
        assert!(Text::<4>::new(b"abcde").is_none());
    }

    #[test]
    fn a_cache_is_a_size_in_its_range() {
        for (text, bytes) in [("0", 0), ("65536", 65536), ("64K", 65536), ("8M", 8 << 20), ("256m", CACHE_MAX)] {
            assert_eq!(size(text.as_bytes()), Some(bytes), "{text}");
        }
        for odd in ["", "M", "63K", "257M", "1G", "-1", "8MB", "1.5M", "99999999999999999999", "8 M", "+8M"] {
            assert_eq!(size(odd.as_bytes()), None, "{odd}");
        }
    }
}
