//! The set of open transactions: those that have a begin record and no end record yet. The same calls keep it at run
//! time and in replay, each inside the gate section of its record's append, so that a checkpoint's cut sees a record's
//! effects and what it says about its transaction together.
//!
//! Transactions open at a cut go along into the tree (keys of kind 8): so the log below the cut can be let go however
//! long a transaction takes. The blocks of inputs that no commit has adopted yet belong to no file; while their
//! transaction is open they count as allocated, and when it ends they come free with the checkpoint that contains its
//! end record, like every other freed block.

use super::{Begin, decode_registers, encode_registers};
use crate::codec::{DecodeError, Reader, Writer};
use crate::effect::Effect;
use crate::outcomes::Identity;
use crate::tree::{Key, kind};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use weldfs_ciscops::Registers;
use weldfs_ciscops::limits::MICRO_OPS_MAX;
use weldfs_journal::Lsn;
use weldfs_locks::Mutex;

/// Version byte of every value of a kind 8 key.
const VERSION: u8 = 1;
/// Bytes of a transaction in one value, at most.
const CHUNK: usize = 7 << 10;
/// Bytes of a value beside the begin record, at most: position, micro-op, registers, inputs, length.
const VALUE_EXTRA: usize = 128;
/// Longest encoded begin record, bytes; no log has room for a longer record.
const BEGIN_MAX: usize = (1 << 20) + (256 << 10);

/// One open transaction.
#[derive(Debug, Clone)]
pub struct OpenTxn {
    /// Its id.
    pub id: u64,
    /// Position of its begin record: under it recovery finishes the transaction.
    pub lsn: Lsn,
    /// What the begin record says.
    pub begin: Arc<Begin>,
    /// Index of the first micro-op that may lack a commit.
    pub next: u16,
    /// Registers after the last commit.
    pub regs: Registers,
    /// A bit per input that a commit has adopted.
    pub adopted: u16,
    /// Bytes of the begin record's payload.
    pub bytes: usize,
}

impl OpenTxn {
    /// Just begun, by a record whose payload has so many bytes.
    pub fn new(id: u64, lsn: Lsn, begin: impl Into<Arc<Begin>>, bytes: usize) -> OpenTxn {
        OpenTxn { id, lsn, begin: begin.into(), next: 0, regs: Registers::default(), adopted: 0, bytes }
    }

    /// Whether a commit has adopted this input.
    pub fn has_adopted(&self, input: usize) -> bool {
        self.adopted >> input & 1 == 1
    }

    /// Runs (first block, count) that its begin record names and no commit has adopted.
    pub(crate) fn loose(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        loose(&self.begin, self.adopted)
    }

    /// The keys and values that carry it over a checkpoint.
    pub fn to_values(&self) -> Vec<(Key, Vec<u8>)> {
        let begin = self.begin.encode();
        let mut w = Writer::with_capacity(begin.len() + 64);
        w.var(self.lsn.0);
        w.var(self.next.into());
        encode_registers(&self.regs, &mut w);
        w.var(self.adopted.into());
        w.bytes(&begin);
        let bytes = w.into_vec();
        let chunk = |(i, part): (usize, &[u8])| {
            let mut value = Vec::with_capacity(part.len() + 1);
            value.push(VERSION);
            value.extend_from_slice(part);
            (Key::new(kind::TXN, self.id, i as u64), value)
        };
        bytes.chunks(CHUNK).enumerate().map(chunk).collect()
    }

    /// Reads what `OpenTxn::to_values` wrote: the values of all keys of `id`, without their version bytes, joined.
    fn from_bytes(id: u64, bytes: &[u8]) -> Result<OpenTxn, DecodeError> {
        let mut r = Reader::new(bytes);
        let lsn = Lsn(r.var()?);
        let known = u16::try_from(r.var()?).ok().filter(|next| usize::from(*next) <= MICRO_OPS_MAX);
        let next = known.ok_or(DecodeError("transaction: micro-op"))?;
        let regs = decode_registers(&mut r)?;
        let adopted = u16::try_from(r.var()?).map_err(|_| DecodeError("transaction: inputs"))?;
        let payload = r.bytes(BEGIN_MAX)?;
        let (begin, bytes) = (Begin::decode(payload)?, payload.len());
        r.end()?;
        Ok(OpenTxn { id, lsn, begin: Arc::new(begin), next, regs, adopted, bytes })
    }
}

/// Keys and bytes of values that a transaction takes in a tree, at most, whose begin record has so many bytes.
pub(crate) fn weight(begin_bytes: usize) -> (i64, i64) {
    let bytes = begin_bytes + VALUE_EXTRA;
    (bytes.div_ceil(CHUNK) as i64, bytes as i64)
}

/// What the open transactions make the next checkpoint write: its keys of kind 8, those that it only takes away
/// included. Counted from the promise of a plan that will begin one until a cut that knows its end.
#[derive(Debug, Default)]
pub struct TxnRoom {
    keys: AtomicI64,
    bytes: AtomicI64,
}

impl TxnRoom {
    /// Keys, and bytes of their values.
    pub fn get(&self) -> (i64, i64) {
        (self.keys.load(Relaxed), self.bytes.load(Relaxed))
    }

    /// Counts more of them, or less.
    pub(crate) fn add(&self, (keys, bytes): (i64, i64)) {
        if (keys, bytes) != (0, 0) {
            self.keys.fetch_add(keys, Relaxed);
            self.bytes.fetch_add(bytes, Relaxed);
        }
    }
}

/// Runs that a begin record names beside the inputs whose bits are set.
fn loose(begin: &Begin, adopted: u16) -> impl Iterator<Item = (u64, u64)> + '_ {
    let free = begin.inputs.iter().enumerate().filter(move |(i, _)| adopted >> i & 1 == 0);
    free.flat_map(|(_, input)| runs(&input.effects))
}

/// Runs of blocks that effects map.
pub fn runs(effects: &[Effect]) -> impl Iterator<Item = (u64, u64)> + '_ {
    effects.iter().filter_map(|e| match e {
        Effect::Map { addr, count, .. } => Some((addr.0, u64::from(*count))),
        _ => None,
    })
}

/// Puts transactions together from the keys of kind 8, which come in order.
#[derive(Debug, Default)]
pub struct Gather {
    done: Vec<OpenTxn>,
    at: Option<(u64, u64)>,
    bytes: Vec<u8>,
}

impl Gather {
    /// The next key and its value.
    ///
    /// # Errors
    /// Values that no writer produces; a chunk that is missing.
    pub fn add(&mut self, key: Key, value: &[u8]) -> Result<(), DecodeError> {
        let expected = match self.at {
            Some((id, next)) if id == key.a => next,
            _ => {
                self.flush()?;
                0
            }
        };
        let (version, part) = value.split_first().ok_or(DecodeError("transaction: empty value"))?;
        if *version != VERSION || key.b != expected || self.bytes.len() > BEGIN_MAX + CHUNK {
            return Err(DecodeError("transaction: chunk"));
        }
        self.bytes.extend_from_slice(part);
        self.at = Some((key.a, expected + 1));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DecodeError> {
        if let Some((id, _)) = self.at.take() {
            self.done.push(OpenTxn::from_bytes(id, &std::mem::take(&mut self.bytes))?);
        }
        Ok(())
    }

    /// All of them.
    ///
    /// # Errors
    /// As [`Gather::add`].
    pub fn finish(mut self) -> Result<Vec<OpenTxn>, DecodeError> {
        self.flush()?;
        Ok(self.done)
    }
}

/// What a cut takes along: the transactions open there, and what became of earlier ones since the cut before.
#[derive(Debug, Default)]
pub(crate) struct TxnCut {
    /// Open at the cut, by begin position.
    pub open: Vec<OpenTxn>,
    /// Runs (first block, count) of inputs that no commit adopted before their transaction ended.
    pub gone: Vec<(u64, u64)>,
}

#[derive(Debug, Default)]
struct Inner {
    open: BTreeMap<u64, OpenTxn>,
    gone: Vec<(u64, u64)>,
    /// A transaction began or ended since the last cut.
    changed: bool,
    /// Position of the last cut: transactions that began below it have keys in the tree.
    cut: Lsn,
    /// Keys in the tree of transactions that ended since.
    stale: i64,
}

/// The open transactions of a store. Thread-safe.
#[derive(Debug, Default)]
pub struct OpenTxns {
    inner: Mutex<Inner>,
    room: Arc<TxnRoom>,
}

impl OpenTxns {
    /// None yet; what they take is counted in `room`.
    pub fn new(room: Arc<TxnRoom>) -> OpenTxns {
        OpenTxns { inner: Mutex::default(), room }
    }

    /// A begin record whose payload has `bytes` stands at `lsn`. False if the id is taken.
    pub fn begin(&self, id: u64, lsn: Lsn, begin: impl Into<Arc<Begin>>, bytes: usize) -> bool {
        self.inner.lock().changed = true;
        self.insert(OpenTxn::new(id, lsn, begin, bytes))
    }

    /// A transaction that is open at the last cut, in the tree of which it has keys. False if the id is taken.
    pub fn adopt(&self, txn: OpenTxn, cut: Lsn) -> bool {
        self.inner.lock().cut = cut;
        self.insert(txn)
    }

    fn insert(&self, txn: OpenTxn) -> bool {
        self.room.add(weight(txn.bytes));
        self.inner.lock().open.insert(txn.id, txn).is_none()
    }

    /// A commit of micro-op `index` is in the log; it adopted the inputs whose bits are set. False if no such
    /// transaction is open.
    pub fn committed(&self, id: u64, index: u16, regs: Registers, adopted: u16) -> bool {
        let mut inner = self.inner.lock();
        let Some(txn) = inner.open.get_mut(&id) else { return false };
        txn.next = index + 1;
        txn.regs = regs;
        txn.adopted |= adopted;
        true
    }

    /// How far a transaction is: the first micro-op that may lack a commit, and the inputs that are adopted.
    pub fn progress(&self, id: u64) -> Option<(u16, u16)> {
        self.inner.lock().open.get(&id).map(|txn| (txn.next, txn.adopted))
    }

    /// An end record is in the log: the transaction is over. What its begin record named and was not adopted comes free
    /// with the checkpoint that contains this. False if no such transaction is open.
    pub fn end(&self, id: u64) -> bool {
        let mut inner = self.inner.lock();
        let Some(txn) = inner.open.remove(&id) else { return false };
        inner.gone.extend(txn.loose());
        let (keys, bytes) = weight(txn.bytes);
        // The next checkpoint must take its keys out of the tree.
        let stale = if txn.lsn < inner.cut { keys } else { 0 };
        inner.stale += stale;
        self.room.add((stale - keys, -bytes));
        inner.changed = true;
        true
    }

    /// A transaction began and ended between two cuts; it adopted the inputs whose bits are set.
    pub(crate) fn passed(&self, begin: &Begin, adopted: u16) {
        let mut inner = self.inner.lock();
        inner.changed = true;
        inner.gone.extend(loose(begin, adopted));
    }

    /// A copy of one of them.
    pub fn get(&self, id: u64) -> Option<OpenTxn> {
        self.inner.lock().open.get(&id).cloned()
    }

    /// A copy of the youngest that runs this detectable command.
    pub fn running(&self, id: &Identity) -> Option<OpenTxn> {
        let inner = self.inner.lock();
        inner.open.values().filter(|t| t.begin.identity().as_ref() == Some(id)).max_by_key(|t| t.lsn).cloned()
    }

    /// A copy of all, by begin position.
    pub fn list(&self) -> Vec<OpenTxn> {
        let mut all: Vec<OpenTxn> = self.inner.lock().open.values().cloned().collect();
        all.sort_by_key(|t| t.lsn);
        all
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.inner.lock().open.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether none is open and the last cut knows it: an end record above the cut would be needed by the next mount.
    pub(crate) fn is_settled(&self) -> bool {
        let inner = self.inner.lock();
        inner.open.is_empty() && !inner.changed
    }

    /// What a checkpoint's cut takes along. The caller keeps appends out.
    pub(crate) fn cut(&self, at: Lsn) -> TxnCut {
        let gone = {
            let mut inner = self.inner.lock();
            inner.changed = false;
            inner.cut = at;
            self.room.add((-std::mem::take(&mut inner.stale), 0));
            std::mem::take(&mut inner.gone)
        };
        TxnCut { open: self.list(), gone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cred::Cred;
    use crate::effect::BlockState;
    use crate::micro::Input;
    use crate::record::Time;
    use smallvec::smallvec;
    use weldfs_ciscops::{ChecksumKind, Command, Handle, InodeNo, Op, OpenFlags, PoolRange};
    use weldfs_journal::BlockNo;

    #[test]
    fn an_end_above_the_cut_is_not_settled_before_the_next_cut() {
        let txns = OpenTxns::default();
        assert!(txns.is_settled());
        assert!(txns.begin(7, Lsn(4096), txn(0).begin, 100));
        assert_eq!(txns.cut(Lsn(8192)).open.len(), 1);
        assert!(txns.end(7) && txns.is_empty());
        // The cut says that it is open: a mount that does not read the log would finish it again.
        assert!(!txns.is_settled());
        assert!(!txns.cut(Lsn(9000)).gone.is_empty());
        assert!(txns.is_settled());
    }

    fn txn(payload: usize) -> OpenTxn {
        let ino = InodeNo(9);
        let h = Handle { index: 1, generation: 1 };
        let op = Op::AppendChecksumWrite { h, src: PoolRange::new(0, 8192), kind: ChecksumKind::Crc32c };
        let map =
            |addr, crcs| Effect::Map { ino, blk: 0, addr: BlockNo(addr), count: 2, state: BlockState::Written, crcs };
        let patch = |i: usize| Effect::Patch { ino, off: i as u64 * 4096, bytes: smallvec![7; 4096] };
        let effects = |addr| [vec![map(addr, smallvec![1, 2])], (0..payload / 4096).map(patch).collect()].concat();
        let input = |micro, addr| Input { micro, off: 0, len: 8192, effects: effects(addr) };
        let begin = Begin {
            sqe: Command::new(1, op).encode(),
            now: Time { sec: 5, nsec: 6 },
            cred: Cred::new(1, 2),
            dir: InodeNo(0),
            name: Box::default(),
            file: ino,
            generation: 3,
            flags: OpenFlags::WRITE,
            detect: None,
            inputs: smallvec![input(1, 500), input(2, 600)],
            plan: None,
        };
        let bytes = begin.encode().len();
        let mut txn = OpenTxn::new(4, Lsn(300), begin, bytes);
        (txn.next, txn.adopted, txn.regs.file) = (2, 1, 9);
        txn
    }

    fn gather(values: &[(Key, Vec<u8>)]) -> Result<Vec<OpenTxn>, DecodeError> {
        let mut gather = Gather::default();
        values.iter().try_for_each(|(k, v)| gather.add(*k, v))?;
        gather.finish()
    }

    #[test]
    fn a_transaction_comes_back_from_its_keys_however_long_it_is() {
        for payload in [0, 4096, 100_000] {
            let txn = txn(payload);
            let values = txn.to_values();
            assert_eq!(values.len() > 1, payload > 0, "longer ones are split");
            let other = OpenTxn { id: 5, ..txn.clone() };
            let back = gather(&[values.clone(), other.to_values()].concat()).unwrap();
            assert_eq!(back.iter().map(|t| t.id).collect::<Vec<_>>(), [4, 5]);
            assert_eq!((back[0].lsn, back[0].next, back[0].adopted, back[0].regs), (Lsn(300), 2, 1, txn.regs));
            assert_eq!(back[0].begin, txn.begin);
            assert_eq!(back[0].loose().collect::<Vec<_>>(), [(600, 2)], "the first input is adopted");
        }
    }

    #[test]
    fn a_micro_op_or_a_checksummed_length_that_no_command_has_is_damage() {
        let good = txn(0);
        let late = OpenTxn { next: MICRO_OPS_MAX as u16 + 1, ..good.clone() };
        let mut long = good.clone();
        long.regs.sum = weldfs_ciscops::ChecksumState::resume(7, 1 << 63);
        assert!(gather(&good.to_values()).is_ok());
        assert!(gather(&late.to_values()).is_err());
        assert!(gather(&long.to_values()).is_err());
    }

    #[test]
    fn golden_bytes_of_a_chunk() {
        let (key, value) = txn(0).to_values().remove(0);
        assert_eq!((key.kind, key.a, key.b), (8, 4, 0));
        let begin = txn(0).begin.encode();
        // Version, LSN, next micro-op; registers: file, nothing yet; inputs adopted; length of the begin record.
        let mut want = vec![1, 0xac, 0x02, 2, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        want.push(begin.len() as u8);
        want.extend(&begin);
        assert_eq!(value, want);
    }

    #[test]
    fn chunks_that_are_missing_or_damaged_are_errors() {
        let values = txn(20_000).to_values();
        assert!(values.len() > 2);
        for gone in 0..values.len() {
            let mut some = values.clone();
            some.remove(gone);
            assert!(gather(&some).is_err(), "without chunk {gone}");
        }
        for (at, bits) in [(0, 1u8), (1, 0x80), (3, 0xff)] {
            let mut bad = values.clone();
            bad[0].1[at] ^= bits;
            assert!(gather(&bad).map_or(true, |t| t[0].lsn != Lsn(300) || t[0].next != 2), "byte {at}");
        }
        assert!(gather(&[(Key::new(kind::TXN, 1, 0), vec![])]).is_err());
        assert!(gather(&[(Key::new(kind::TXN, 1, 0), vec![1; 60])]).is_err());
    }
}
