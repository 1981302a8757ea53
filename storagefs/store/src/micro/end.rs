//! The end record's payload.

use super::VERSION;
use crate::codec::{DecodeError, Reader, Writer};
use weldfs_ciscops::Outcome;

/// How a transaction came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// All of its micro-ops stand.
    Done = 1,
    /// A micro-op failed; those before it stand.
    Failed = 2,
    /// Recovery could not go on; what was committed stands.
    Cut = 3,
}

/// The last record of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// How it came out.
    pub verdict: Verdict,
    /// What the client was told, or would have been.
    pub outcome: Outcome,
}

impl End {
    /// As an outcome says: done or failed.
    pub fn of(outcome: &Outcome) -> End {
        let verdict = if outcome.is_ok() { Verdict::Done } else { Verdict::Failed };
        End { verdict, outcome: *outcome }
    }

    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(40);
        self.encode_into(&mut w);
        w.into_vec()
    }

    /// Appends the payload to `w`.
    pub(crate) fn encode_into(&self, w: &mut Writer) {
        let o = &self.outcome;
        w.u8(VERSION);
        w.u8(self.verdict as u8);
        for v in [o.micro_done.into(), o.micro_failed.into(), o.status.max(0) as u64, o.result, o.result2] {
            w.var(v);
        }
    }

    /// Reads a payload back.
    ///
    /// # Errors
    /// Bytes that no writer produces.
    pub fn decode(bytes: &[u8]) -> Result<End, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(DecodeError("end of an unknown version"));
        }
        let verdict = match r.u8()? {
            1 => Verdict::Done,
            2 => Verdict::Failed,
            3 => Verdict::Cut,
            _ => return Err(DecodeError("end: verdict")),
        };
        let small = |r: &mut Reader<'_>| u16::try_from(r.var()?).map_err(|_| DecodeError("end: micro-op"));
        let (micro_done, micro_failed) = (small(&mut r)?, small(&mut r)?);
        let status = i32::try_from(r.var()?).map_err(|_| DecodeError("end: errno"))?;
        let (result, result2) = (r.var()?, r.var()?);
        r.end()?;
        if (verdict == Verdict::Done) != (status == 0) {
            return Err(DecodeError("end: errno"));
        }
        Ok(End { verdict, outcome: Outcome { status, micro_done, micro_failed, result, result2 } })
    }
}
