//! PCIe links: what a generation and a number of lanes come to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Megatransfers per second of one lane, and the bits of payload among those of a line code's block (of 128b/130b from
/// the third generation on; the sixth has 236 bytes of packets in a flit of 256): PCI Express Base Specification 6.0.
const LINES: [(u64, u64, u64); 6] =
    [(2_500, 8, 10), (5_000, 8, 10), (8_000, 128, 130), (16_000, 128, 130), (32_000, 128, 130), (64_000, 236, 256)];

/// Payload of a packet, and what goes with it: header, sequence number, checksum, framing; bytes. EISC measured 840
/// MB/s on one lane of the third generation, which is 128 of 150.
const PACKET: (u64, u64) = (128, 22);

/// A PCIe link, `3x8`: its generation and its lanes. The default is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pcie {
    generation: u8,
    lanes: u8,
}

impl Pcie {
    /// What data gets of it each way, bytes per second; 0 of no link.
    pub fn bytes_per_s(self) -> u64 {
        let Some((mega, of, all)) = usize::from(self.generation).checked_sub(1).map(|n| LINES[n]) else { return 0 };
        let bits = mega * 1_000_000 * u64::from(self.lanes) * of / all;
        bits / 8 * PACKET.0 / (PACKET.0 + PACKET.1)
    }
}

impl fmt::Display for Pcie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.generation == 0 { Ok(()) } else { write!(f, "{}x{}", self.generation, self.lanes) }
    }
}

impl From<Pcie> for String {
    fn from(p: Pcie) -> String {
        p.to_string()
    }
}

impl FromStr for Pcie {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Pcie, Self::Err> {
        if text.is_empty() {
            return Ok(Pcie::default());
        }
        let parts = text.split_once('x').and_then(|(g, l)| Some((g.parse().ok()?, l.parse().ok()?)));
        match parts {
            Some((generation @ 1..=6, lanes @ (1 | 2 | 4 | 8 | 12 | 16))) => Ok(Pcie { generation, lanes }),
            _ => Err("a PCIe link is GENERATIONxLANES: generation 1 to 6, lanes 1, 2, 4, 8, 12 or 16"),
        }
    }
}

impl TryFrom<String> for Pcie {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Pcie, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_of_the_third_generation_carries_what_eisc_measured() {
        let one: Pcie = "3x1".parse().unwrap();
        assert!(one.bytes_per_s().abs_diff(840_000_000) < 1_000_000, "{}", one.bytes_per_s());
        let all: Pcie = "3x16".parse().unwrap();
        assert!(all.bytes_per_s().abs_diff(16 * one.bytes_per_s()) < 100);
        assert_eq!(Pcie::default().bytes_per_s(), 0);
    }

    #[test]
    fn text_and_link_are_the_same() {
        for text in ["", "1x1", "3x8", "5x4", "6x16"] {
            assert_eq!(text.parse::<Pcie>().unwrap().to_string(), text);
        }
        for text in ["3", "x", "0x4", "7x4", "3x3", "3x32", "3x-1", "3 x 8", "256x1"] {
            assert!(text.parse::<Pcie>().is_err(), "{text}");
        }
    }
}
