//! The unit of a kernel's FIFOs, as INSIDER has it: 64 bytes of data, how many of them count, end of packet.

/// Bytes of data in a flit: a 512-bit word.
pub const FLIT_BYTES: usize = 64;

/// One beat of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flit {
    /// The bytes; those past `len` are zero.
    pub data: [u8; FLIT_BYTES],
    /// How many count, 0 to 64. Fewer than 64 only in the last flit of a packet; 0 only in that of an empty one, or
    /// where the end was not known when the last bytes were sent.
    pub len: u8,
    /// The packet ends here.
    pub eop: bool,
}

/// Flits that so many bytes take: at least one, which says where the packet ends.
pub const fn flits(bytes: u64) -> u64 {
    if bytes == 0 { 1 } else { bytes.div_ceil(FLIT_BYTES as u64) }
}

/// The flits of a whole packet.
pub fn of_packet(bytes: &[u8]) -> impl Iterator<Item = Flit> + '_ {
    let count = flits(bytes.len() as u64) as usize;
    (0..count).map(move |i| {
        let part = &bytes[i * FLIT_BYTES..bytes.len().min((i + 1) * FLIT_BYTES)];
        let mut data = [0; FLIT_BYTES];
        data[..part.len()].copy_from_slice(part);
        Flit { data, len: part.len() as u8, eop: i + 1 == count }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_every_length_around_a_flit_come_back_whole() {
        for len in 0..=130usize {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8 | 1).collect();
            let packet: Vec<Flit> = of_packet(&bytes).collect();
            assert_eq!(packet.len() as u64, flits(len as u64));
            assert!(packet.iter().enumerate().all(|(i, f)| f.eop == (i + 1 == packet.len())));
            let back: Vec<u8> = packet.iter().flat_map(|f| f.data[..usize::from(f.len)].to_vec()).collect();
            assert_eq!(back, bytes);
        }
    }
}
