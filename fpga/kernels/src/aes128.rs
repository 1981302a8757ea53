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

use crate::blocks::Blocks;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};
use weldfs_fpga::kernel::{Fault, Stream};

const BLOCK: usize = 16;
/// Blocks that are copied before they are worked on: they are still in the first cache then.
const BATCH: usize = 128;

#[derive(Default)]
pub struct Aes {
    cipher: Option<Aes128>,
    decrypts: bool,
    blocks: Blocks<BLOCK>,
}

impl Stream for Aes {
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

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let Some(cipher) = &self.cipher else { return Err(Fault::Params("no key".into())) };
        let decrypts = self.decrypts;
        self.blocks.each(input, |blocks| {
            for blocks in blocks.chunks(BATCH) {
                let start = out.len();
                out.extend_from_slice(blocks.as_flattened());
                let (blocks, _) = Block::slice_as_chunks_mut(&mut out[start..]);
                if decrypts { cipher.decrypt_blocks(blocks) } else { cipher.encrypt_blocks(blocks) }
            }
        });
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<(), Fault> {
        let partial = self.blocks.partial();
        self.blocks.clear();
        match partial {
            0 => Ok(()),
            n => Err(Fault::Data(format!("the last block has {n} of {BLOCK} bytes"))),
        }
    }
}
