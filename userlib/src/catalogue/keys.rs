//! Keys: given to the device once, named afterwards.

use crate::client::Client;
use crate::raw::Raw;
use weldfs_ciscops::{Cqe, Errno, KeyKind, Op, PoolRange};

/// A key of this client's session in the device. Dropping it makes the device forget it. It is of one session: after a
/// reconnect or in a forked child, calls with it give ENOKEY. `Send` and `Sync`.
///
/// With the feature `compute` it is kept on the caller's side, too (expanded, overwritten with zeros when dropped), for
/// calls with [`Placement::Host`](super::Placement::Host).
pub struct Key {
    client: Client,
    epoch: u64,
    name: u64,
    kind: KeyKind,
    #[cfg(feature = "compute")]
    own: weldfs_ciscops::functions::cipher::Key,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({:?})", self.kind)
    }
}

impl Client {
    /// Gives the device a key; overwrite `bytes` afterwards. EINVAL for another number of bytes than the kind has, or
    /// when the halves of an XTS key are the same; EMFILE when the session has 64 of them.
    pub fn key(&self, kind: KeyKind, bytes: &[u8]) -> Result<Key, Errno> {
        if bytes.len() != kind.bytes() as usize {
            return Err(Errno::INVAL);
        }
        // Of this session and no other, also if it ends while the device answers.
        let raw = self.raw().of_session(self.epoch()?);
        let build = |[bytes]: [PoolRange; 1], []: [PoolRange; 0]| Op::SetKey { kind, bytes };
        let none = |_: &Cqe| [];
        let (name, _) = raw.call([bytes.into()], [], build, none)?.ok()?;
        Ok(Key {
            client: self.clone(),
            epoch: raw.parts().1,
            name,
            kind,
            #[cfg(feature = "compute")]
            own: weldfs_ciscops::functions::cipher::Key::new(function(kind), bytes).map_err(|_| Errno::INVAL)?,
        })
    }
}

impl Key {
    /// What it is for.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The session it is of, as [`File::session`](crate::File::session).
    pub fn session(&self) -> u64 {
        self.epoch
    }

    /// What the session calls it, for programs of one's own.
    pub fn name(&self) -> u64 {
        self.name
    }

    #[cfg(feature = "compute")]
    pub(super) fn own(&self) -> &weldfs_ciscops::functions::cipher::Key {
        &self.own
    }

    fn raw(&self) -> Raw<'_> {
        Raw::new(&self.client, self.epoch, self.client.default_durability())
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let key = self.name;
        // A session that has gone has forgotten it already.
        let _ = self.raw().call([], [], |[]: [PoolRange; 0], []: [PoolRange; 0]| Op::DropKey { key }, |_| []);
    }
}

#[cfg(feature = "compute")]
fn function(kind: KeyKind) -> weldfs_ciscops::functions::cipher::KeyKind {
    use weldfs_ciscops::functions::cipher;
    match kind {
        KeyKind::Xts128 => cipher::KeyKind::Xts128,
        KeyKind::Xts256 => cipher::KeyKind::Xts256,
        KeyKind::Gcm128 => cipher::KeyKind::Gcm128,
        KeyKind::Gcm256 => cipher::KeyKind::Gcm256,
    }
}
