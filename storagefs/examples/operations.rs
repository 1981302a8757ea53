//! Runs COUNT operations of one KIND on a device in memory, on the calling thread, for a tool that counts instructions;
//! fused ones in a MODE (default, macro, micro).
//!
//! The difference between two counts is the cost of the operations between them, free of start-up:
//! `valgrind --tool=callgrind --toggle-collect='*drill*work*' target/release/examples/operations append 3000`,
//! then the same with 1000. KIND: append, append_checksum_write, open_write_close, read_modify_write, read.
#![allow(missing_docs)]

#[path = "../tests/drill/mod.rs"]
mod drill;

use drill::{Drill, KINDS};
use weldfs_ciscops::TxnMode;

fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or_else(|| "append".into());
    let count: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let mode = match args.next().as_deref() {
        Some("macro") => TxnMode::Macro,
        Some("micro") => TxnMode::Micro,
        _ => TxnMode::Default,
    };
    assert!(KINDS.contains(&kind.as_str()), "KIND is one of {KINDS:?}");
    Drill::new().work(&kind, 0..count, mode);
}
