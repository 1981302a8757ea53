//! What there is to run. `benches/tests/rows.rs` has this file as well: what is counted is measured.

/// From ring to completion. What ends with `_slot` has its checksum from a slot, by the kernel that is built in.
pub const RING: [&str; 15] = [
    "nop",
    "read",
    "append",
    "append_checksum_write",
    "append_checksum_write_slot",
    "read_checksum_verify",
    "read_checksum_verify_slot",
    "open_write_close",
    "open_read_close",
    "read_modify_write",
    "stat",
    "stat_many",
    "readdir_plus",
    "index_walk",
    "log_recover",
];

/// Calls of an embedded device.
pub const INLINE: [&str; 6] = ["nop", "read", "append", "append_checksum_write", "open_write_close", "stat"];
