//! Which systems a run of `micro` or `macro` measures, and which of its cells failed.

use serde::Serialize;
use std::io;

/// Every kind of system; `micro` has them all, `macro` those of [`MACRO`].
pub const MICRO: [&str; 6] = ["weldfs-fused", "weldfs-unfused", "weldfs-embedded", "hostdir", "posix", "uring"];
/// Those that run servers.
pub const MACRO: [&str; 4] = ["weldfs-fused", "weldfs-unfused", "posix", "uring"];
/// File systems that `--prepare` makes.
pub const PREPARED: [&str; 3] = ["ext4", "xfs", "tmpfs"];

/// What is asked for; nothing named means all.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Kinds of systems, as in [`MICRO`].
    pub systems: Vec<String>,
    /// File systems to prepare, as in [`PREPARED`].
    pub prepared: Vec<String>,
}

impl Chosen {
    /// Whether systems of this kind are measured.
    pub fn system(&self, kind: &str) -> bool {
        self.systems.is_empty() || self.systems.iter().any(|s| s == kind)
    }

    /// Whether any of these kinds is.
    pub(crate) fn any(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| self.system(kind))
    }

    /// The file systems to make, in the order of [`PREPARED`].
    pub(crate) fn prepared(&self) -> impl Iterator<Item = &'static str> + '_ {
        PREPARED.into_iter().filter(|fs| self.prepared.is_empty() || self.prepared.iter().any(|p| p == fs))
    }
}

/// A cell that a system could not do. Nothing of it is in the rows; the other cells are.
#[derive(Clone, Debug, Serialize)]
pub struct Failed {
    /// The system.
    pub system: String,
    /// The cell, in words.
    pub cell: String,
    /// Why.
    pub error: String,
}

impl Failed {
    /// A line for people.
    pub(crate) fn line(&self) -> String {
        format!("FAILED: {}: {}: {}\n", self.system, self.cell, self.error)
    }
}

pub(crate) fn nothing_chosen() -> io::Error {
    io::Error::other("none of the systems that were chosen can be measured here: there is nothing to do")
}

/// "an ext4", "a tmpfs".
pub(crate) fn with_article(fs: &str) -> String {
    // An x is spoken "ex".
    let vowel = fs.starts_with(['a', 'e', 'i', 'o', 'u', 'x']);
    format!("{} {fs}", if vowel { "an" } else { "a" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_named_means_all_and_names_leave_out_the_others() {
        let all = Chosen::default();
        assert!(MICRO.iter().all(|kind| all.system(kind)));
        assert_eq!(all.prepared().collect::<Vec<_>>(), PREPARED);
        let some = Chosen { systems: vec!["posix".into()], prepared: vec!["tmpfs".into(), "ext4".into()] };
        assert!(some.any(&["uring", "posix"]) && !some.any(&["weldfs-fused", "uring"]));
        assert_eq!(some.prepared().collect::<Vec<_>>(), ["ext4", "tmpfs"]);
    }

    #[test]
    fn file_systems_have_their_article() {
        assert_eq!(PREPARED.map(with_article), ["an ext4", "an xfs", "a tmpfs"]);
    }
}
