//! The unit of a kernel's FIFOs, as INSIDER has it (section 3.4): 64 bytes of data, how many of them count, end of
//! packet. Fewer than 64 count only in the last flit of a packet; 0 in that of an empty one, or where the end was not
//! known when the last bytes were sent. Streams are bytes everywhere in this crate, and flits only where time is
//! counted: hardware sees them (`fpga/rtl`, `fpga/hls`).

/// Bytes of data in a flit: a 512-bit word.
pub const FLIT_BYTES: usize = 64;

/// Clock cycles that a kernel may say a packet took, for each flit that went in or came out: 64 for each byte. What it
/// says is charged, and time passes by it where time is modelled.
pub const CYCLES_PER_FLIT_MAX: u64 = 4096;

/// The most that counts of a packet of which so many bytes went in and came out, cycles.
pub const fn cycles_max(taken: u64, made: u64) -> u64 {
    CYCLES_PER_FLIT_MAX.saturating_mul(flits(taken) + flits(made))
}

/// Clock cycles that a flit of input takes at least: a kernel's FIFO gives one word a cycle, and a kernel may have as
/// many beside each other as a word has bytes.
pub const CYCLES_PER_FLIT_MIN: f64 = 1.0 / FLIT_BYTES as f64;

/// Flits that so many bytes take: at least one, which says where the packet ends.
pub const fn flits(bytes: u64) -> u64 {
    if bytes == 0 { 1 } else { bytes.div_ceil(FLIT_BYTES as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_a_flit_for_its_end() {
        let counted: Vec<u64> = [0, 1, 63, 64, 65, 128, 130].into_iter().map(flits).collect();
        assert_eq!(counted, [1, 1, 1, 1, 2, 2, 3]);
    }
}
