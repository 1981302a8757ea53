//! Whose command it is: the identity the kernel vouched for.

use smallvec::SmallVec;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Cred {
    /// Effective user id; 0 bypasses permission bits.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: SmallVec<[u32; 8]>,
}

impl Cred {
    /// Without supplementary groups.
    pub fn new(uid: u32, gid: u32) -> Cred {
        Cred { uid, gid, groups: SmallVec::new() }
    }

    /// The superuser.
    pub fn root() -> Cred {
        Cred::new(0, 0)
    }

    /// Whether the caller belongs to `gid`.
    #[inline]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
