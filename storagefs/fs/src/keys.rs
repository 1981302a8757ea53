//! The keys of a session: brought once, in a command of their own, and named afterwards. They are in the memory of the
//! device only, in no log, trace or statistic; dropped keys, and those of a session that ends, are overwritten.

use std::sync::Arc;

use weldfs_ciscops::limits::KEYS_MAX;
use weldfs_ciscops::{Errno, KeyKind, PoolRange, SharedRegion};
use weldfs_functions::cipher;
use weldfs_locks::Mutex;
use zeroize::Zeroize;

/// A session's keys. Thread-safe.
#[derive(Default)]
pub struct Keys {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Names are never used again in a session.
    last: u64,
    keys: Vec<(u64, Arc<cipher::Key>)>,
}

impl Keys {
    /// Takes a key out of the pool, where its bytes are overwritten, and names it. EMFILE when there are too many,
    /// EINVAL when the halves of an XTS key are the same.
    pub fn set(&self, kind: KeyKind, at: PoolRange, pool: &SharedRegion) -> Result<u64, Errno> {
        let (shared, mut bytes) = (pool.slice(at)?, [0; 64]);
        let private = bytes.get_mut(..shared.len()).ok_or(Errno::INVAL)?;
        shared.copy_to(private);
        shared.zero();
        let key = cipher::Key::new(function(kind), private);
        bytes.zeroize();
        let key = Arc::new(key.map_err(|_| Errno::INVAL)?);
        let mut table = self.table.lock();
        if table.keys.len() >= KEYS_MAX {
            return Err(Errno::MFILE);
        }
        table.last += 1;
        let name = table.last;
        table.keys.push((name, key));
        Ok(name)
    }

    /// Forgets a key; commands that have it already end with it. ENOKEY when there is none of that name.
    pub fn forget(&self, name: u64) -> Result<(), Errno> {
        let mut table = self.table.lock();
        let at = table.keys.iter().position(|(n, _)| *n == name).ok_or(Errno::NOKEY)?;
        table.keys.swap_remove(at);
        Ok(())
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.table.lock().keys.clear();
    }

    /// The key of that name; ENOKEY when there is none.
    pub fn get(&self, name: u64) -> Result<Arc<cipher::Key>, Errno> {
        let table = self.table.lock();
        table.keys.iter().find(|(n, _)| *n == name).map(|(_, key)| key.clone()).ok_or(Errno::NOKEY)
    }
}

/// Bytes that cannot be foreseen, for nonces: the kernel's.
pub fn random(out: &mut [u8]) -> Result<(), Errno> {
    getrandom::fill(out).map_err(|_| Errno::IO)
}

fn function(kind: KeyKind) -> cipher::KeyKind {
    match kind {
        KeyKind::Xts128 => cipher::KeyKind::Xts128,
        KeyKind::Xts256 => cipher::KeyKind::Xts256,
        KeyKind::Gcm128 => cipher::KeyKind::Gcm128,
        KeyKind::Gcm256 => cipher::KeyKind::Gcm256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> (SharedRegion, PoolRange) {
        let (pool, at) = (SharedRegion::heap(4096), PoolRange::new(100, 32));
        pool.slice(at).expect("inside").copy_from(&std::array::from_fn::<u8, 32, _>(|i| i as u8 + 1));
        (pool, at)
    }

    #[test]
    fn a_key_leaves_the_pool_and_goes_by_its_name() {
        let ((pool, at), keys) = (pool(), Keys::default());
        let name = keys.set(KeyKind::Xts128, at, &pool).expect("a sound key");
        assert_eq!(pool.slice(at).expect("inside").to_vec(), [0; 32], "its bytes are nowhere in shared memory");
        assert_eq!(keys.get(name).expect("there").kind(), cipher::KeyKind::Xts128);
        keys.forget(name).expect("there");
        assert_eq!(keys.get(name).err(), Some(Errno::NOKEY));
        assert_eq!(keys.forget(name), Err(Errno::NOKEY));
        // What is in the pool now is no XTS key: its halves are the same.
        assert_eq!(keys.set(KeyKind::Xts128, at, &pool), Err(Errno::INVAL));
        assert_ne!(keys.set(KeyKind::Gcm256, at, &pool), Ok(name), "names are not used again");
    }

    #[test]
    fn keys_are_bounded_in_number() {
        let ((pool, at), keys) = (pool(), Keys::default());
        let names: Vec<u64> = (0..KEYS_MAX).map(|_| keys.set(KeyKind::Gcm256, at, &pool).expect("room")).collect();
        assert_eq!(keys.set(KeyKind::Gcm256, at, &pool), Err(Errno::MFILE));
        keys.forget(names[3]).expect("there");
        keys.set(KeyKind::Gcm256, at, &pool).expect("room again");
        keys.clear();
        assert_eq!(keys.get(names[0]).err(), Some(Errno::NOKEY));
    }
}
