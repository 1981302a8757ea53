//! MicroTx on the log: a begin record, one commit per micro-op that changes something, an end record.
//!
//! What lives here: the payloads of the three records. The begin record holds all that recovery needs to run the rest
//! of the command without its client; a commit holds the registers after its micro-op and what that changed; the end
//! record says how it came out. `open` keeps the set of transactions between begin and end; `weldfs-fs` ends those that
//! a crash left open. What flows through: `weldfs-fs` makes the payloads, `store` appends and applies them, `mount`
//! reads them back.
//!
//! Specification of the bytes: docs/MEDIA-FORMAT.md, "Transactions of several records".

mod begin;
mod commit;
mod end;
pub mod open;
mod planned;
#[cfg(test)]
mod tests;

pub use begin::{Begin, Detect, Input, Planned};
pub use commit::{Commit, Group, expand};
pub(crate) use commit::{decode_registers, encode_registers};
pub use end::{End, Verdict};

/// First byte of each of the three payloads.
const VERSION: u8 = 1;
/// First byte of a begin record that holds all that the transaction will change.
const PLANNED: u8 = 2;
/// Effects of one planned group; a program with a longer one commits as one record. With this bound a commit that
/// adopts a group is still longer than the number of its effects, so that stamps stay unique.
pub const PLAN_EFFECTS_MAX: usize = 64;
/// Supplementary groups in a begin record; a caller in more commits as one record.
pub const GROUPS_MAX: usize = 64;
/// Effects of one input; a write of more pieces commits as one record. With this bound a commit that adopts is still
/// longer than the number of its effects, so that stamps stay unique.
pub const INPUT_EFFECTS_MAX: usize = 32;
