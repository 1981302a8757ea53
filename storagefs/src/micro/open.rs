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
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use weldfs_ciscops::Registers;
use weldfs_journal::Lsn;

/// Version byte of every value of a kind 8 key.
const VERSION: u8 = 1;
/// Bytes of a transaction in one value, at most.
const CHUNK: usize = 7 << 10;
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
}

impl OpenTxn {
    /// Just begun.
    pub fn new(id: u64, lsn: Lsn, begin: impl Into<Arc<Begin>>) -> OpenTxn {
        OpenTxn { id, lsn, begin: begin.into(), next: 0, regs: Registers::default(), adopted: 0 }
    }

    /// Whether a commit has adopted this input.
    pub fn has_adopted(&self, input: usize) -> bool {
        self.adopted >> input & 1 == 1
    }

    /// Runs (first block, count) that its begin record names and no commit has adopted.
    pub fn loose(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let free = self.begin.inputs.iter().enumerate().filter(|(i, _)| !self.has_adopted(*i));
        free.flat_map(|(_, input)| runs(&input.effects))
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

    /// Reads what [`OpenTxn::to_values`] wrote: the values of all keys of `id`, without their version bytes, joined.
    fn from_bytes(id: u64, bytes: &[u8]) -> Result<OpenTxn, DecodeError> {
        let mut r = Reader::new(bytes);
        let lsn = Lsn(r.var()?);
        let next = u16::try_from(r.var()?).map_err(|_| DecodeError("transaction: micro-op"))?;
        let regs = decode_registers(&mut r)?;
        let adopted = u16::try_from(r.var()?).map_err(|_| DecodeError("transaction: inputs"))?;
        let begin = Begin::decode(r.bytes(BEGIN_MAX)?)?;
        r.end()?;
        Ok(OpenTxn { id, lsn, begin: Arc::new(begin), next, regs, adopted })
    }
}

/// Runs of blocks that effects map.
pub(crate) fn runs(effects: &[Effect]) -> impl Iterator<Item = (u64, u64)> + '_ {
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
pub struct TxnCut {
    /// Open at the cut, by begin position.
    pub open: Vec<OpenTxn>,
    /// Runs (first block, count) of inputs that no commit adopted before their transaction ended.
    pub gone: Vec<(u64, u64)>,
}

#[derive(Debug, Default)]
struct Inner {
    open: BTreeMap<u64, OpenTxn>,
    gone: Vec<(u64, u64)>,
}

/// The open transactions of a store. Thread-safe.
#[derive(Debug, Default)]
pub struct OpenTxns {
    inner: Mutex<Inner>,
}

impl OpenTxns {
    /// A begin record stands at `lsn`. False if the id is taken.
    pub fn begin(&self, id: u64, lsn: Lsn, begin: impl Into<Arc<Begin>>) -> bool {
        self.insert(OpenTxn::new(id, lsn, begin))
    }

    /// A transaction that is open already. False if the id is taken.
    pub fn insert(&self, txn: OpenTxn) -> bool {
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

    /// An end record is in the log: the transaction is over. What its begin record named and nobody adopted comes free
    /// with the checkpoint that contains this. False if no such transaction is open.
    pub fn end(&self, id: u64) -> bool {
        let mut inner = self.inner.lock();
        let Some(txn) = inner.open.remove(&id) else { return false };
        inner.gone.extend(txn.loose());
        true
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

    /// What a checkpoint's cut takes along. The caller keeps appends out.
    pub(crate) fn cut(&self) -> TxnCut {
        let gone = std::mem::take(&mut self.inner.lock().gone);
        TxnCut { open: self.list(), gone }
    }
}
