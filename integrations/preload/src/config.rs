//! What `weldfs run` told this process through its environment. Absent means: every hook stays out of the way.
//!
//! The first hook may be called by an allocator that is just setting itself up (jemalloc looks for its settings with
//! readlink and open, under its own lock), before any constructor has run. So reading the settings allocates nothing,
//! waits for nothing and calls nothing that could be hooked: they are copied into static memory.

use crate::abi;
use std::ops::Deref;
use std::sync::OnceLock;

/// Bytes of the longest path among the settings.
const PATH_BYTES: usize = libc::PATH_MAX as usize;
/// Bytes of a token that are kept: more than any valid one has, so that a long one stays invalid.
const TOKEN_BYTES: usize = 64;
/// Bytes of a number of seconds that are kept: many more than one has whose last digit means anything.
const WAIT_BYTES: usize = 32;

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

/// The settings; they do not change while the process lives.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// The device's socket.
    pub socket: Text<PATH_BYTES>,
    /// Host path under which the device's root appears: absolute, normal form, no slash at the end.
    pub prefix: Text<PATH_BYTES>,
    /// Where the kernel has the device's files, through a mount: absolute, normal form, no slash at the end.
    pub mount: Option<Text<PATH_BYTES>>,
    /// This library, to be preloaded by programs that this one executes.
    pub library: Option<Text<PATH_BYTES>>,
    /// The token of the tenant that this process belongs to, as text.
    pub token: Option<Text<TOKEN_BYTES>>,
    /// How long to wait for a device that does not answer yet, as text; one that is too long is kept as the empty text,
    /// which is no number either.
    pub wait: Option<Text<WAIT_BYTES>>,
    /// Whether refusals are worth a line on standard error.
    pub debug: bool,
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

/// The settings, or `None` outside `weldfs run`, and as long as libc itself does not know the environment yet.
#[inline]
pub fn get() -> Option<&'static Config> {
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
    Some(Config {
        socket: path("WELDFS_SOCKET", socket),
        last: prefix.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1),
        prefix,
        mount: variable(b"WELDFS_MOUNT").map(|mount| {
            normal(mount).unwrap_or_else(|| {
                crate::report::fatal(&["WELDFS_MOUNT must be an absolute path other than /, shorter than 4096 bytes"])
            })
        }),
        library: variable(b"WELDFS_PRELOAD").map(|value| path("WELDFS_PRELOAD", value)),
        token: abi::given_env(b"WELDFS_TENANT_TOKEN").map(|token| {
            let kept = token.get(..TOKEN_BYTES).unwrap_or(token);
            Text::new(kept).unwrap_or(Text::EMPTY)
        }),
        wait: abi::given_env(b"WELDFS_WAIT").map(|seconds| Text::new(seconds).unwrap_or(Text::EMPTY)),
        debug: abi::given_env(b"WELDFS_DEBUG") == Some(b"1"),
    })
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
    fn a_text_takes_what_fits_and_nothing_of_what_does_not() {
        let mut text = Text::<4>::new(b"ab").unwrap();
        assert_eq!(text.push(b"cde"), None);
        assert_eq!(text.push(b"cd"), Some(()));
        assert_eq!(text.push(b""), Some(()));
        assert_eq!(&text[..], b"abcd");
        assert!(Text::<4>::new(b"abcde").is_none());
    }
}
