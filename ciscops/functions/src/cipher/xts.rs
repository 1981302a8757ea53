//! XTS over any cipher with 16-byte blocks: NIST SP 800-38E, IEEE 1619 with ciphertext stealing.

use crate::Error;
use aes::Block;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit, consts::U16};

const BLOCK: usize = 16;
/// Blocks that the cipher is given at once, enough to keep the AES units of a core busy.
const LANES: usize = 8;

/// The two expanded keys.
pub(super) struct Xts<C> {
    data: C,
    tweak: C,
}

impl<C> Xts<C>
where
    C: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + BlockCipherDecrypt + KeyInit,
{
    pub(super) fn new(data: &[u8], tweak: &[u8]) -> Result<Xts<C>, Error> {
        let wrong = |_| Error::Invalid;
        Ok(Xts { data: C::new_from_slice(data).map_err(wrong)?, tweak: C::new_from_slice(tweak).map_err(wrong)? })
    }

    /// One data unit, of 16 bytes at least.
    pub(super) fn encrypt(&self, tweak: [u8; 16], unit: &mut [u8]) {
        let (whole, tail) = unit.split_at_mut(unit.len() / BLOCK * BLOCK);
        let next = self.blocks(whole, self.first(tweak), |blocks| self.data.encrypt_blocks(blocks));
        if !tail.is_empty() {
            // The tail takes the place of the last whole block's beginning, which becomes the tail.
            let last = whole.len() - BLOCK;
            whole[last..last + tail.len()].swap_with_slice(tail);
            self.blocks(&mut whole[last..], next, |blocks| self.data.encrypt_blocks(blocks));
        }
    }

    /// One data unit, of 16 bytes at least.
    pub(super) fn decrypt(&self, tweak: [u8; 16], unit: &mut [u8]) {
        let (whole, tail) = unit.split_at_mut(unit.len() / BLOCK * BLOCK);
        let plain = whole.len() - if tail.is_empty() { 0 } else { BLOCK };
        let (body, last) = whole.split_at_mut(plain);
        let next = self.blocks(body, self.first(tweak), |blocks| self.data.decrypt_blocks(blocks));
        if !tail.is_empty() {
            // Encryption went over the last whole block twice, the second time with the later tweak.
            self.blocks(last, double(next), |blocks| self.data.decrypt_blocks(blocks));
            last[..tail.len()].swap_with_slice(tail);
            self.blocks(last, next, |blocks| self.data.decrypt_blocks(blocks));
        }
    }

    /// The tweak of a data unit's first block.
    fn first(&self, tweak: [u8; 16]) -> u128 {
        let mut block = Block::from(tweak);
        self.tweak.encrypt_block(&mut block);
        u128::from_le_bytes(block.into())
    }

    /// Runs whole blocks through the cipher, each between two additions of its tweak; gives the tweak behind them.
    fn blocks(&self, bytes: &mut [u8], mut tweak: u128, cipher: impl Fn(&mut [Block])) -> u128 {
        for chunk in bytes.chunks_mut(BLOCK * LANES) {
            let (mut blocks, mut tweaks) = ([Block::default(); LANES], [0u128; LANES]);
            let n = chunk.len() / BLOCK;
            for ((bytes, block), t) in chunk.chunks_exact(BLOCK).zip(&mut blocks).zip(&mut tweaks) {
                (*t, tweak) = (tweak, double(tweak));
                block.copy_from_slice(bytes);
                add(block, *t);
            }
            cipher(&mut blocks[..n]);
            for ((bytes, block), t) in chunk.chunks_exact_mut(BLOCK).zip(&mut blocks).zip(tweaks) {
                add(block, t);
                bytes.copy_from_slice(block);
            }
        }
        tweak
    }
}

fn add(block: &mut Block, tweak: u128) {
    block.iter_mut().zip(tweak.to_le_bytes()).for_each(|(b, t)| *b ^= t);
}

/// Times x in GF(2^128) with the polynomial x^128 + x^7 + x^2 + x + 1.
const fn double(t: u128) -> u128 {
    (t << 1) ^ ((t >> 127) * 0x87)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::{Aes128, Aes256};

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex")).collect()
    }

    /// Key, tweak, plaintext, ciphertext.
    fn check(key: &str, tweak: &str, plain: &str, cipher: &str) {
        let (key, plain, cipher) = (unhex(key), unhex(plain), unhex(cipher));
        let tweak: [u8; 16] = unhex(tweak).try_into().expect("16 bytes");
        let (a, b) = key.split_at(key.len() / 2);
        let mut data = plain.clone();
        if key.len() == 32 {
            let xts = Xts::<Aes128>::new(a, b).expect("a key");
            xts.encrypt(tweak, &mut data);
            assert_eq!(data, cipher);
            xts.decrypt(tweak, &mut data);
        } else {
            let xts = Xts::<Aes256>::new(a, b).expect("a key");
            xts.encrypt(tweak, &mut data);
            assert_eq!(data, cipher);
            xts.decrypt(tweak, &mut data);
        }
        assert_eq!(data, plain);
    }

    /// NIST CAVS 11.0, XTSGenAES128 and XTSGenAES256.
    #[test]
    fn nist_vectors() {
        check(
            "a1b90cba3f06ac353b2c343876081762090923026e91771815f29dab01932f2f",
            "4faef7117cda59c66e4b92013e768ad5",
            "ebabce95b14d3c8d6fb350390790311c",
            "778ae8b43cb98d5a825081d5be471c63",
        );
        check(
            "750372c3d82f63382867be6662acfa4a259be3fa9bc662a1154ffaaed8b448a5",
            "93a29254c47e4260669621307d4f5cd3",
            "d8e3a56559a436ce0d8b212c80a88b23af62b0e598f208e03c1f2e9fa563a54b",
            "495f7855535efd133464dc9a9abf8a0f28facbce21bd3c22178ec489b799e491",
        );
        check(
            "394c97881abd989d29c703e48a72b397a7acf51b59649eeea9b33274d8541df4",
            "4b15c684a152d485fe9937d39b168c29",
            "2f3b9dcfbae729583b1d1ffdd16bb6fe2757329435662a78f0",
            "f3473802e38a3ffef4d4fb8e6aa266ebde553a64528a06463e",
        );
        check(
            "1ea661c58d943a0e4801e42f4b0947149e7f9f8e3e68d0c7505210bd311a0e7c\
             d6e13ffdf2418d8d1911c004cda58da3d619b7e2b9141e58318eea392cf41b08",
            "adf8d92627464ad2f0428e84a9f87564",
            "2eedea52cd8215e1acc647e810bbc3642e87287f8d2e57e36c0a24fbc12a202e",
            "cbaad0e2f6cea3f50b37f934d46a9b130b9d54f07e34f36af793e86f73c6d7db",
        );
        check(
            "266c336b3b01489f3267f52835fd92f674374b88b4e1ebd2d36a5f457581d9d0\
             42c3eef7b0b7e5137b086496b4d9e6ac658d7196a23f23f036172fdb8faee527",
            "06b209a7a22f486ecbfadb0f3137ba42",
            "ca7d65ef8d3dfad345b61ccddca1ad81de830b9e86c7b426d76cb7db766852d981c6b21409399d78f42cc0b33a7bbb06",
            "c73256870cc2f4dd57acc74b5456dbd776912a128bc1f77d72cdebbf270044b7a43ceed29025e1e8be211fa3c3ed002d",
        );
    }

    /// IEEE 1619-2007, annex B: whole blocks (2, 3) and ciphertext stealing of 1 to 4 bytes (15 to 18).
    #[test]
    fn ieee_vectors() {
        let (two, number) = ("22222222222222222222222222222222", "33333333330000000000000000000000");
        let plain = "44".repeat(32);
        check(
            &format!("11111111111111111111111111111111{two}"),
            number,
            &plain,
            "c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0",
        );
        check(
            &format!("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0{two}"),
            number,
            &plain,
            "af85336b597afc1a900b2eb21ec949d292df4c047e0b21532186a5971a227a89",
        );
        let key = "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0bfbebdbcbbbab9b8b7b6b5b4b3b2b1b0";
        let rising = "000102030405060708090a0b0c0d0e0f10111213";
        for cipher in [
            "6c1625db4671522d3d7599601de7ca09ed",
            "d069444b7a7e0cab09e24447d24deb1fedbf",
            "e5df1351c0544ba1350b3363cd8ef4beedbf9d",
            "9d84c813f719aa2c7be3f66171c7c5c2edbf9dac",
        ] {
            check(key, "9a785634120000000000000000000000", &rising[..cipher.len()], cipher);
        }
    }
}
