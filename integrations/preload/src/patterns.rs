//! Names of the calls that may go without waiting, and how many did; and what is counted beside them.

use std::sync::atomic::{AtomicU64, Ordering};

/// What may go without waiting, by the name that switches it on, and its bit.
const PATTERNS: [(&[u8], u8); 6] = [
    (b"write", WRITE),
    (b"attributes", ATTRIBUTES),
    (b"close", CLOSE),
    (b"look", LOOK),
    (b"names", NAMES),
    (b"read", READ),
];
/// Writes.
pub const WRITE: u8 = 1;
/// Changes of mode, owner and times.
pub const ATTRIBUTES: u8 = 2;
/// Closes.
pub const CLOSE: u8 = 4;
/// Calls that are answered by what their open brought along.
pub const LOOK: u8 = 8;
/// Looks at names that are answered by what is known of their directory.
pub const NAMES: u8 = 16;
/// Reads that are answered by what earlier ones brought.
pub const READ: u8 = 32;
/// Calls that did not wait, in the order of `PATTERNS`.
static POSTED: [AtomicU64; PATTERNS.len()] = [const { AtomicU64::new(0) }; PATTERNS.len()];

/// What the variable says: `on`, `off`, or names of patterns. `None`: neither.
pub fn parse(value: &[u8]) -> Option<u8> {
    match value {
        b"on" => Some(PATTERNS.iter().fold(0, |all, (_, bit)| all | bit)),
        b"off" => Some(0),
        names => names.split(|b| *b == b',').try_fold(0, |all, name| {
            let pattern = PATTERNS.iter().find(|(known, _)| *known == name)?;
            Some(all | pattern.1)
        }),
    }
}

/// Renames that were kept for transactions, and transactions that made them.
static KEPT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// So many renames are to be made.
pub fn note_renames(n: usize) {
    KEPT[0].fetch_add(n as u64, Ordering::Relaxed);
}

/// They were made by one transaction.
pub fn note_transaction() {
    KEPT[1].fetch_add(1, Ordering::Relaxed);
}

/// Renames that were kept for transactions, and transactions that made them; they are counted from zero again.
pub fn take_kept() -> [u64; 2] {
    [&KEPT[0], &KEPT[1]].map(|count| count.swap(0, Ordering::Relaxed))
}

/// One more call of a pattern did not wait.
pub fn note(pattern: u8) {
    POSTED[pattern.trailing_zeros() as usize].fetch_add(1, Ordering::Relaxed);
}

/// Calls that did not wait, by pattern; they are counted from zero again.
pub fn take_counts() -> [(&'static [u8], u64); PATTERNS.len()] {
    let mut at = 0;
    PATTERNS.map(|(name, _)| {
        at += 1;
        (name, POSTED[at - 1].swap(0, Ordering::Relaxed))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_patterns_or_all_or_none_of_them() {
        assert_eq!(parse(b"on"), Some(WRITE | ATTRIBUTES | CLOSE | LOOK | NAMES | READ));
        assert_eq!(parse(b"off"), Some(0));
        assert_eq!(parse(b"close,write"), Some(WRITE | CLOSE));
        for odd in [&b""[..], b"yes", b"write,", b"write,,close", b"Write"] {
            assert_eq!(parse(odd), None, "{odd:?}");
        }
    }
}
