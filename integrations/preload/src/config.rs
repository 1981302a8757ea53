//! What `weldfs run` told this process through its environment. Absent means: every hook stays out of the way.

use crate::abi;
use std::sync::OnceLock;

/// The settings; they do not change while the process lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The device's socket.
    pub socket: Vec<u8>,
    /// Host path under which the device's root appears: absolute, normal form, no slash at the end.
    pub prefix: Vec<u8>,
    /// Last component of the prefix: a path without it cannot lead under the prefix.
    pub needle: Vec<u8>,
    /// This library, to be preloaded by programs that this one executes.
    pub library: Option<Vec<u8>>,
    /// The token of the tenant that this process belongs to, as text.
    pub token: Option<Vec<u8>>,
    /// Whether refusals are worth a line on standard error.
    pub debug: bool,
}

static CONFIG: OnceLock<Option<Config>> = OnceLock::new();

/// The settings, or `None` outside `weldfs run`.
#[inline]
pub fn get() -> Option<&'static Config> {
    CONFIG.get_or_init(read).as_ref()
}

fn read() -> Option<Config> {
    let socket = abi::env(c"WELDFS_SOCKET").filter(|s| !s.is_empty())?.to_vec();
    let prefix = abi::env(c"WELDFS_PREFIX").filter(|p| !p.is_empty()).unwrap_or(b"/weld");
    let library = abi::env(c"WELDFS_PRELOAD").filter(|l| !l.is_empty()).map(<[u8]>::to_vec);
    let debug = abi::env(c"WELDFS_DEBUG").is_some_and(|d| d == b"1");
    let Some(prefix) = normal(prefix) else {
        crate::report::fatal(&["WELDFS_PREFIX must be an absolute path other than /"]);
    };
    let needle = prefix.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec();
    let token = abi::env(c"WELDFS_TENANT_TOKEN").map(<[u8]>::to_vec);
    Some(Config { socket, prefix, needle, library, token, debug })
}

/// The prefix in normal form; `None` for a relative path, `/`, or one with `.` or `..` in it.
fn normal(path: &[u8]) -> Option<Vec<u8>> {
    if path.first() != Some(&b'/') {
        return None;
    }
    let mut out = Vec::new();
    for part in path.split(|b| *b == b'/').filter(|p| !p.is_empty()) {
        if part == b"." || part == b".." {
            return None;
        }
        out.push(b'/');
        out.extend_from_slice(part);
    }
    (!out.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::normal;

    #[test]
    fn a_prefix_is_brought_to_normal_form_or_refused() {
        assert_eq!(normal(b"//weld//"), Some(b"/weld".to_vec()));
        assert_eq!(normal(b"/mnt/weld"), Some(b"/mnt/weld".to_vec()));
        for bad in [&b"weld"[..], b"/", b"/a/../b", b""] {
            assert_eq!(normal(bad), None);
        }
    }
}
