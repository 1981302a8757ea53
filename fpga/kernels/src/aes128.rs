//! aes128: AES with a key of 128 bits, block by block (FIPS 197; the mode is ECB of SP 800-38A).
//!
//! From EISC (ICCAD'19, section V), which streams 30 GiB through it to show what does *not* gain in the drive: as many
//! bytes go out as come in.
//!
//! * **Parameters.** Word 0: 0 encrypts, 1 decrypts. Words 1 to 4: the key, its bytes packed little-endian. Anything
//!   else is `Fault::Params`.
//! * **Input.** Blocks of 16 bytes.
//! * **Output.** As many blocks.
//! * **Tails.** An empty packet gives nothing. Nothing is padded.
//! * **Errors.** A last part of a block is `Fault::Data` at the end of the packet; the blocks before it have been put
//!   out.
//! * **Peek.** None.
//! * **Cycles.** 1 per flit: four pipelines with a round in each stage, as EISC has it.
//! * **Use.** ECB shows which blocks are equal, and protects nothing from being changed: it is here because the paper
//!   measures it. The volume's and files' encryption use XTS and GCM.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};
use weldfs_fpga::kernel::{Fault, Kernel, Step};

const BLOCK: usize = 16;
const FLIT: u64 = 64;

/// A kernel, not a stream: blocks go from the input straight to where the output is wanted, since a copy takes a fourth
/// of the cipher's time.
#[derive(Default)]
pub struct Aes {
    cipher: Option<Aes128>,
    decrypts: bool,
    /// A block that the input's cut went through, and how much of it is here.
    part: [u8; BLOCK],
    filled: usize,
    /// A block that there was no room for, and how much of its end is to be put out yet.
    tail: [u8; BLOCK],
    left: usize,
    /// Of this packet.
    bytes: u64,
    counted: u64,
}

impl Aes {
    /// As many blocks as fit in both.
    fn blocks(&self, input: &[u8], out: &mut [u8]) -> Result<usize, Fault> {
        let Some(cipher) = &self.cipher else { return Err(Fault::Params("no key".into())) };
        let n = input.len().min(out.len()) / BLOCK * BLOCK;
        let ((from, _), (to, _)) = (Block::slice_as_chunks(&input[..n]), Block::slice_as_chunks_mut(&mut out[..n]));
        let done =
            if self.decrypts { cipher.decrypt_blocks_b2b(from, to) } else { cipher.encrypt_blocks_b2b(from, to) };
        done.map(|()| n).map_err(|e| Fault::Lost(e.to_string()))
    }

    fn packet_ends(&mut self) -> Result<(), Fault> {
        let partial = std::mem::take(&mut self.filled);
        match partial {
            0 => Ok(()),
            n => Err(Fault::Data(format!("the last block has {n} of {BLOCK} bytes"))),
        }
    }

    /// Cycles since the last time: as many flits come in as go out, one a cycle.
    fn cycles(&mut self) -> u64 {
        let all = self.bytes.div_ceil(FLIT);
        all - std::mem::replace(&mut self.counted, all)
    }
}

impl Kernel for Aes {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        *self = Aes::default();
        let [direction @ 0..=1, key @ ..] = params else {
            return Err(Fault::Params("the first is 0 to encrypt or 1 to decrypt".into()));
        };
        if key.len() != 4 {
            return Err(Fault::Params("a key has four words".into()));
        }
        let key: Vec<u8> = key.iter().flat_map(|w| w.to_le_bytes()).collect();
        let cipher = Aes128::new_from_slice(&key).map_err(|e| Fault::Params(e.to_string()))?;
        (self.cipher, self.decrypts) = (Some(cipher), *direction == 1);
        Ok(())
    }

    fn step(&mut self, input: &[u8], eop: bool, out: &mut [u8]) -> Result<Step, Fault> {
        let mut step = Step::default();
        loop {
            let room = &mut out[step.made..];
            let n = room.len().min(self.left);
            room[..n].copy_from_slice(&self.tail[BLOCK - self.left..][..n]);
            (self.left, step.made) = (self.left - n, step.made + n);
            let (rest, room) = (&input[step.taken..], &mut out[step.made..]);
            // A fault is for the next step, if there is output in this one.
            let ends = rest.is_empty() && eop && self.left == 0 && (self.filled == 0 || step.made == 0);
            if ends {
                self.packet_ends()?;
                step.done = true;
                break;
            }
            if rest.is_empty() || room.is_empty() {
                break;
            }
            let n = if self.filled == 0 { self.blocks(rest, room)? } else { 0 };
            (step.taken, step.made) = (step.taken + n, step.made + n);
            if n == 0 {
                let n = rest.len().min(BLOCK - self.filled);
                self.part[self.filled..self.filled + n].copy_from_slice(&rest[..n]);
                (self.filled, step.taken) = (self.filled + n, step.taken + n);
                if self.filled == BLOCK {
                    let mut tail = [0; BLOCK];
                    self.blocks(&self.part, &mut tail)?;
                    (self.tail, self.filled, self.left) = (tail, 0, BLOCK);
                }
            }
        }
        self.bytes += step.taken as u64;
        step.cycles = self.cycles();
        if step.done {
            (self.bytes, self.counted) = (0, 0);
        }
        Ok(step)
    }
}
