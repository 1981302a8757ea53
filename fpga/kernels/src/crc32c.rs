//! crc32c: the CRC-32C of a packet, as iSCSI has it (RFC 3720, appendix B.4).
//!
//! Of this project: what `append_checksum_write` and the records of files compute.
//!
//! * **Parameters.** None, or word 0: the CRC (final value) of bytes before the packet, to go on from; 0 is that of no
//!   bytes. More words are `Fault::Params`.
//! * **Input.** Any bytes.
//! * **Output.** 4 bytes, little-endian: the CRC, once, at the end of the packet. An empty packet gives the seed.
//! * **Tails.** Every length counts; nothing is padded.
//! * **Errors.** None in the data.
//! * **Peek.** 0: the CRC of what has come so far.
//! * **Cycles.** 1 per flit: the CRC of 64 bytes is one matrix product over GF(2), a tree of exclusive-ors.

use weldfs_fpga::kernel::{Fault, Stream};

#[derive(Default)]
pub struct Crc32c {
    seed: u32,
    crc: u32,
    /// The packet has ended: the next byte is of another one.
    ended: bool,
}

impl Crc32c {
    fn begin(&mut self) {
        if std::mem::take(&mut self.ended) {
            self.crc = self.seed;
        }
    }
}

impl Stream for Crc32c {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        let seed = match params {
            [] => 0,
            [seed] => *seed,
            _ => return Err(Fault::Params("crc32c takes at most one, the CRC to go on from".into())),
        };
        (self.seed, self.crc, self.ended) = (seed, seed, false);
        Ok(())
    }

    fn chunk(&mut self, input: &[u8], _: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin();
        self.crc = weldfs_functions::crc32c_append(self.crc, input);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.begin();
        out.extend_from_slice(&self.crc.to_le_bytes());
        self.ended = true;
        Ok(())
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        (port == 0).then_some(self.crc)
    }
}
