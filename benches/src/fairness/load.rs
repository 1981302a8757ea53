//! What a tenant's process does.

use std::fmt;
use std::str::FromStr;

/// Commands that a busy tenant keeps outstanding: more than [`DEPTH_MIN`], for it looks at completions now and then
/// only.
pub const DEPTH: u32 = 56;
/// Commands that a busy tenant has queued at all times, on average over a round, or nothing is said about it.
pub const DEPTH_MIN: f64 = 32.0;

/// Kind of command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Reads and writes, half and half, at random aligned places.
    Random,
    /// Reads at random aligned places.
    Read,
    /// append_checksum_write.
    Append,
    /// checksum_range of the file.
    Sum,
}

const KINDS: [(Kind, &str); 4] =
    [(Kind::Random, "random"), (Kind::Read, "read"), (Kind::Append, "append"), (Kind::Sum, "sum")];

/// A load; as text `kind,bytes,files,depth`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Load {
    /// Kind of command.
    pub kind: Kind,
    /// Bytes of one.
    pub bytes: u32,
    /// Files that commands go to, at random.
    pub files: u32,
    /// Commands outstanding.
    pub depth: u32,
}

impl Load {
    /// A busy tenant's load on one file.
    pub fn busy(kind: Kind, bytes: u32) -> Load {
        Load { kind, bytes, files: 1, depth: DEPTH }
    }

    /// Whether it keeps commands queued all the time.
    pub fn is_busy(&self) -> bool {
        f64::from(self.depth) >= DEPTH_MIN
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or("", |(_, name)| name);
        write!(f, "{name},{},{},{}", self.bytes, self.files, self.depth)
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Load, String> {
        let bad = || format!("no load: {text:?}");
        let mut words = text.split(',');
        let name = words.next().ok_or_else(bad)?;
        let kind = KINDS.iter().find(|(_, n)| *n == name).ok_or_else(bad)?.0;
        let mut number = || words.next().and_then(|w| w.parse::<u32>().ok()).filter(|n| *n > 0).ok_or_else(bad);
        Ok(Load { kind, bytes: number()?, files: number()?, depth: number()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_read_back_as_it_is_written() {
        for (kind, _) in KINDS {
            let load = Load { kind, bytes: 4096, files: 256, depth: 1 };
            assert_eq!(load.to_string().parse(), Ok(load));
        }
        for bad in ["", "random", "random,0,1,1", "odd,1,1,1", "sum,1,1"] {
            assert!(bad.parse::<Load>().is_err(), "{bad}");
        }
    }
}
