//! Which names belong to the device. Pure text work: nothing here asks the kernel or the device.
//!
//! The prefix shadows the host: a path that reaches it lexically is the device's, whether or not the host has such a
//! directory. Below the prefix, `..` is left to the device, which knows its symbolic links, unless it would climb
//! above the device's root.

use std::borrow::Cow;

/// Non-empty components.
fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|p| !p.is_empty())
}

/// Whether `needle` occurs in `path`: the cheap test that sends almost every host path on its way.
pub fn mentions(path: &[u8], needle: &[u8]) -> bool {
    path.len() >= needle.len() && path.windows(needle.len()).any(|w| w == needle)
}

/// What follows the prefix in an absolute path, starting with `/`; `None` when the path stays on the host.
pub fn inside<'p>(prefix: &[u8], path: &'p [u8]) -> Option<Cow<'p, [u8]>> {
    if let Some(rest) = path.strip_prefix(prefix) {
        match rest.first() {
            None => return Some(Cow::Borrowed(b"/")),
            Some(b'/') => return Some(Cow::Borrowed(rest)),
            Some(_) => {}
        }
    }
    // How many components stand so far, and how many of them, from the first on, are those of the prefix. No list of
    // them is kept: an allocator may be the caller, and cannot be asked for memory.
    let (mut depth, mut same) = (0, 0);
    let whole = parts(prefix).count();
    let mut at = 0;
    while at < path.len() {
        let end = path[at..].iter().position(|b| *b == b'/').map_or(path.len(), |n| at + n);
        match &path[at..end] {
            b"" | b"." => {}
            b".." => {
                depth = usize::saturating_sub(depth, 1);
                same = same.min(depth);
            }
            name => {
                if same == depth && parts(prefix).nth(depth) == Some(name) {
                    same += 1;
                }
                depth += 1;
            }
        }
        if depth == whole && same == whole {
            return Some(if end == path.len() { Cow::Borrowed(&b"/"[..]) } else { Cow::Borrowed(&path[end..]) });
        }
        at = end + 1;
    }
    None
}

/// Components of a path in normal form: how often `..` may be said before the root is left.
pub fn depth(path: &[u8]) -> usize {
    parts(path).count()
}

/// Where in `rel` (bytes, behind the component) a `..` climbs above the device's root, starting `depth` below it and
/// taking every other component for a directory; `None` when none does.
pub fn leaves(mut depth: usize, rel: &[u8]) -> Option<usize> {
    if !mentions(rel, b"..") {
        return None;
    }
    let mut at = 0;
    while at < rel.len() {
        let end = rel[at..].iter().position(|b| *b == b'/').map_or(rel.len(), |n| at + n);
        match &rel[at..end] {
            b"" | b"." => {}
            b".." if depth == 0 => return Some(end),
            b".." => depth -= 1,
            _ => depth += 1,
        }
        at = end + 1;
    }
    None
}

/// `rel` seen from `dir`. An empty `rel` stays empty: it names nothing.
pub fn join(dir: &[u8], rel: &[u8]) -> Vec<u8> {
    if rel.is_empty() {
        return Vec::new();
    }
    let mut all = Vec::with_capacity(dir.len() + rel.len() + 1);
    all.extend_from_slice(dir);
    if all.last() != Some(&b'/') {
        all.push(b'/');
    }
    all.extend_from_slice(rel);
    all
}

/// The directory that holds the prefix itself: where `..` at the device's root leads.
pub fn above(prefix: &[u8]) -> &[u8] {
    match prefix.iter().rposition(|b| *b == b'/') {
        Some(0) | None => b"/",
        Some(at) => &prefix[..at],
    }
}

/// The host's name of a path inside the device.
pub fn outside(prefix: &[u8], inner: &[u8]) -> Vec<u8> {
    if inner == b"/" { prefix.to_vec() } else { [prefix, inner].concat() }
}

/// Splits the last component off: (what stands before it, the component, whether a slash follows it).
pub fn split_last(path: &[u8]) -> (&[u8], &[u8], bool) {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |n| n + 1);
    let start = path[..end].iter().rposition(|b| *b == b'/').map_or(0, |n| n + 1);
    (&path[..start], &path[start..end], end < path.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &[u8]) -> Option<Vec<u8>> {
        inside(b"/weld", path).map(Cow::into_owned)
    }

    #[test]
    fn paths_under_the_prefix_are_the_devices_however_they_are_spelt() {
        for (path, rest) in [
            ("/weld", "/"),
            ("/weld/", "/"),
            ("/weld/a/b", "/a/b"),
            ("//weld//a", "//a"),
            ("/./weld/a/", "/a/"),
            ("/tmp/../weld/a", "/a"),
            ("/tmp/x/../../weld", "/"),
            ("/../weld/../x", "/../x"),
            ("/a/b/../../weld/x", "/x"),
            ("/a/../../weld/b", "/b"),
        ] {
            assert_eq!(seen(path.as_bytes()).as_deref(), Some(rest.as_bytes()), "{path}");
        }
        for host in ["/welder/x", "/wel", "/", "/tmp/weld", "/tmp/weld/../x"] {
            assert_eq!(seen(host.as_bytes()), None, "{host}");
        }
        assert_eq!(inside(b"/mnt/weld", b"/mnt/./weld/x").as_deref(), Some(&b"/x"[..]));
        for host in ["/mnt", "/mnt/x/weld", "/mnt/../weld", "/x/mnt/weld", "/weld/mnt/../weld", "/mnt/weld2/../w"] {
            assert_eq!(inside(b"/mnt/weld", host.as_bytes()), None, "{host}");
        }
        assert_eq!(inside(b"/mnt/weld", b"/mnt/x/../weld/y").as_deref(), Some(&b"/y"[..]));
        assert_eq!(inside(b"/a/a", b"/a/b/../a/c").as_deref(), Some(&b"/c"[..]));
    }

    #[test]
    fn dot_dot_leaves_only_above_the_root() {
        assert_eq!(leaves(0, b".."), Some(2));
        assert_eq!(leaves(0, b"a/../../b"), Some(7));
        assert_eq!(leaves(2, b"../../x"), None);
        assert_eq!(leaves(2, b"../../../x"), Some(8));
        assert_eq!(leaves(0, b"a..b/..c/x.."), None);
        assert_eq!(leaves(0, b"/a/./../b"), None);
    }

    #[test]
    fn joining_and_splitting_keep_slashes_that_mean_something() {
        assert_eq!(join(b"/", b"a/"), b"/a/");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!(join(b"/a", b""), b"");
        assert_eq!(split_last(b"/a/b/"), (&b"/a/"[..], &b"b"[..], true));
        assert_eq!(split_last(b"x"), (&b""[..], &b"x"[..], false));
        assert_eq!(above(b"/weld"), b"/");
        assert_eq!(above(b"/mnt/weld"), b"/mnt");
        assert_eq!(outside(b"/weld", b"/"), b"/weld");
        assert_eq!(outside(b"/weld", b"/a"), b"/weld/a");
    }
}
