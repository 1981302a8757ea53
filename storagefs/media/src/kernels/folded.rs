//! Copies of a block that checksum it in the same pass, a vector at a time, where the processor multiplies vectors
//! without carry: CRC-32C by folding (Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//! Instruction", Intel, 2009). Eight vectors are under way at once, because a product is there only after some cycles.

use core::arch::x86_64::{
    __m256i, __m512i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_extract_epi64, _mm_set_epi64x,
    _mm_xor_si128, _mm256_castsi256_si128, _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_set_epi64x,
    _mm256_storeu_si256, _mm256_stream_si256, _mm256_xor_si256, _mm256_zextsi128_si256, _mm512_castsi512_si256,
    _mm512_clmulepi64_epi128, _mm512_extracti64x4_epi64, _mm512_set4_epi64, _mm512_storeu_si512, _mm512_stream_si512,
    _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::x_to_the;
use weldfs_journal::BLOCK;

/// Vectors that are under way at once.
const LANES: usize = 8;

/// What the two halves of 128 bits are multiplied by to stand so many bits further on: low, high.
const fn keys(bits: u32) -> [i64; 2] {
    [(x_to_the(bits + 32) as i64) << 1, (x_to_the(bits - 32) as i64) << 1]
}

/// A vector in memory, wherever it begins.
#[repr(C, packed)]
struct Loose<V>(V);

#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold_512(x: __m512i, [low, high]: [i64; 2], with: __m512i) -> __m512i {
    let by = _mm512_set4_epi64(high, low, high, low);
    let (low, high) = (_mm512_clmulepi64_epi128::<0x00>(x, by), _mm512_clmulepi64_epi128::<0x11>(x, by));
    _mm512_ternarylogic_epi64::<0x96>(low, high, with)
}

#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn fold_256(x: __m256i, [low, high]: [i64; 2], with: __m256i) -> __m256i {
    let by = _mm256_set_epi64x(high, low, high, low);
    let (low, high) = (_mm256_clmulepi64_epi128::<0x00>(x, by), _mm256_clmulepi64_epi128::<0x11>(x, by));
    _mm256_xor_si256(_mm256_xor_si256(low, high), with)
}

/// The checksum of what was folded into 256 bits.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq,sse4.2,pclmulqdq")]
fn reduced(x: __m256i) -> u32 {
    let [low, high] = const { keys(128) };
    let (first, by) = (_mm256_castsi256_si128(x), _mm_set_epi64x(high, low));
    let moved = _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(first, by), _mm_clmulepi64_si128::<0x11>(first, by));
    let last = _mm_xor_si128(moved, _mm256_extracti128_si256::<1>(x));
    let sum = _mm_crc32_u64(0, _mm_extract_epi64::<0>(last) as u64);
    !(_mm_crc32_u64(sum, _mm_extract_epi64::<1>(last) as u64) as u32)
}

#[inline]
#[target_feature(enable = "avx512f,avx2,vpclmulqdq")]
fn narrow_512(x: __m512i) -> __m256i {
    fold_256(_mm512_castsi512_si256(x), const { keys(256) }, _mm512_extracti64x4_epi64::<1>(x))
}

#[inline]
#[target_feature(enable = "avx2")]
fn narrow_256(x: __m256i) -> __m256i {
    x
}

macro_rules! kernel {
    ($name:ident, $features:literal, $vector:ty, $bits:literal, $fold:ident, $narrow:ident, $xor:ident, $extend:ident,
     $store:ident, $stream:ident) => {
        /// Copies one block and gives the CRC-32C of the bytes stored. `THROUGH`: non-temporal stores, not fenced. Each
        /// byte of `src` is loaded once.
        ///
        /// # Safety
        /// Both ranges are valid for a block and do not overlap; with `THROUGH`, `dst` is aligned to a vector. Another
        /// party may be changing `src`. The processor has these features.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name<const THROUGH: bool>(dst: *mut u8, src: *const u8) -> u32 {
            const VECTORS: usize = BLOCK * 8 / $bits;
            const { assert!(LANES == 8 && VECTORS.is_multiple_of(LANES)) };
            let (from, to) = (src.cast::<Loose<$vector>>(), dst.cast::<$vector>());
            let pass = |i: usize| -> $vector {
                // SAFETY: i < VECTORS, so this lies in both ranges; loads and plain stores need no alignment, and the
                // others have it (the caller's promise). Volatile: one load, into a register.
                unsafe {
                    let v = from.add(i).read_volatile().0;
                    if THROUGH {
                        $stream(to.add(i), v)
                    } else {
                        $store(to.add(i), v)
                    }
                    v
                }
            };
            let mut x = [pass(0), pass(1), pass(2), pass(3), pass(4), pass(5), pass(6), pass(7)];
            // The checksum's register begins with all ones.
            x[0] = $xor(x[0], $extend(_mm_cvtsi32_si128(-1)));
            for i in (LANES..VECTORS).step_by(LANES) {
                for (lane, x) in x.iter_mut().enumerate() {
                    *x = $fold(*x, const { keys(LANES as u32 * $bits) }, pass(i + lane));
                }
            }
            for lane in 0..4 {
                x[lane] = $fold(x[lane], const { keys(4 * $bits) }, x[lane + 4]);
            }
            for lane in 0..2 {
                x[lane] = $fold(x[lane], const { keys(2 * $bits) }, x[lane + 2]);
            }
            reduced($narrow($fold(x[0], const { keys($bits) }, x[1])))
        }
    };
}

kernel!(
    copy_block_512,
    "avx512f,avx2,vpclmulqdq,sse4.2,pclmulqdq",
    __m512i,
    512,
    fold_512,
    narrow_512,
    _mm512_xor_si512,
    _mm512_zextsi128_si512,
    _mm512_storeu_si512,
    _mm512_stream_si512
);

kernel!(
    copy_block_256,
    "avx2,vpclmulqdq,sse4.2,pclmulqdq",
    __m256i,
    256,
    fold_256,
    narrow_256,
    _mm256_xor_si256,
    _mm256_zextsi128_si256,
    _mm256_storeu_si256,
    _mm256_stream_si256
);
