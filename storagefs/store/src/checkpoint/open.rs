//! Open transactions in a checkpoint: their keys, and the blocks that belong to no file but to them.

use super::Built;
use super::build::add;
use crate::error::{FsError, FsResult, Place};
use crate::micro::open::{Gather, OpenTxn, TxnCut};
use crate::overlay::Base;
use crate::tree::{Key, Pages, Tree, kind};
use std::collections::{BTreeMap, BTreeSet};

/// The transactions that were open at a tree's cut.
///
/// # Errors
/// The medium, damage.
pub(crate) fn load(tree: &Tree, pages: &Pages) -> FsResult<(Vec<Key>, Vec<OpenTxn>)> {
    let (from, to) = (Key::new(kind::TXN, 0, 0), Key::new(kind::TXN, u64::MAX, u64::MAX));
    let (mut keys, mut gather, mut bad) = (Vec::new(), Gather::default(), None);
    tree.scan(pages, from, to, &mut |key, value| {
        keys.push(key);
        bad = gather.add(key, value).err().map(|e| (key, e));
        bad.is_none()
    })?;
    let last = keys.last().copied().unwrap_or(from);
    let gathered = match bad {
        None => gather.finish().map_err(|e| (last, e)),
        Some(bad) => Err(bad),
    };
    let txns = gathered.map_err(|(key, e)| FsError::corrupt(e.0, Place::Key(key), 0, 0))?;
    Ok((keys, txns))
}

fn blocks(runs: impl Iterator<Item = (u64, u64)>) -> impl Iterator<Item = u64> {
    runs.flat_map(|(first, n)| first..first + n)
}

/// Adds the open transactions of a cut to the batch that replaces the tree of `base`.
///
/// Blocks that the old keys named were allocated in the old tree on their account. Each of them now belongs to a
/// transaction still, or to a file that adopted it (both: nothing changes for the bitmaps), or to nothing: then it is
/// freed, even if it came to a file and went again within this generation.
///
/// # Errors
/// The medium, damage.
pub(crate) fn add_open(built: &mut Built, cut: &TxnCut, base: &Base) -> FsResult<()> {
    let (old_keys, old) = load(&base.tree, &base.slow)?;
    built.dead.extend_from_slice(&cut.gone);
    if old.is_empty() && cut.open.is_empty() {
        return Ok(());
    }
    let mut changes: BTreeMap<Key, Option<Vec<u8>>> = old_keys.into_iter().map(|k| (k, None)).collect();
    for txn in &cut.open {
        changes.extend(txn.to_values().into_iter().map(|(k, v)| (k, Some(v))));
    }
    built.changes.extend(changes);
    built.changes.sort_unstable_by_key(|(k, _)| *k);

    let mut named: BTreeSet<u64> = blocks(old.iter().flat_map(OpenTxn::loose)).collect();
    let mut taken = Vec::new();
    let loose = cut.open.iter().flat_map(OpenTxn::loose);
    for b in blocks(built.taken.iter().copied().chain(loose)) {
        if !named.remove(&b) {
            add(&mut taken, b);
        }
    }
    built.taken = taken;
    if !named.is_empty() {
        let mut dead = Vec::new();
        blocks(built.dead.iter().copied()).filter(|b| !named.contains(b)).for_each(|b| add(&mut dead, b));
        built.dead = dead;
        named.into_iter().for_each(|b| add(&mut built.freed, b));
    }
    Ok(())
}
