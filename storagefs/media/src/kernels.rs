//! Copy kernels on raw memory: non-temporal stores, cache-line write-back, and copies that checksum in the same pass.
//!
//! One pass matters for safety, not only for speed: each word of memory that a client can change is loaded once, into
//! a register, and both the checksum and the store use that register.

#[cfg(target_arch = "x86_64")]
mod folded;

use std::sync::OnceLock;
use weldfs_journal::BLOCK;

/// A cache line, bytes.
const LINE: usize = 64;

/// How dirty lines reach the persistence domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriteBack {
    Clwb,
    ClflushOpt,
    Clflush,
    /// Not an x86-64: a full fence is all there is.
    #[cfg_attr(target_arch = "x86_64", allow(dead_code))]
    None,
}

/// How a checksum is computed while bytes are copied; each one needs what the one before it needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
enum Summing {
    /// In a pass of its own.
    Apart,
    /// crc32 and carry-less multiplication instructions.
    Words,
    /// Carry-less multiplication of vectors of 256 bits,
    Vectors256,
    /// and of 512.
    Vectors512,
}

#[derive(Clone, Copy)]
struct Cpu {
    write_back: WriteBack,
    summing: Summing,
}

fn cpu() -> Cpu {
    static CPU: OnceLock<Cpu> = OnceLock::new();
    *CPU.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Cpu {
    let max_leaf = core::arch::x86_64::__cpuid(0).eax;
    let ebx = if max_leaf >= 7 { core::arch::x86_64::__cpuid_count(7, 0).ebx } else { 0 };
    let write_back = match (ebx >> 24 & 1, ebx >> 23 & 1) {
        (1, _) => WriteBack::Clwb,
        (0, 1) => WriteBack::ClflushOpt,
        _ => WriteBack::Clflush,
    };
    let words = is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq");
    let vectors = words && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vpclmulqdq");
    let summing = match (words, vectors, is_x86_feature_detected!("avx512f")) {
        (_, true, true) => Summing::Vectors512,
        (_, true, false) => Summing::Vectors256,
        (true, false, _) => Summing::Words,
        (false, ..) => Summing::Apart,
    };
    Cpu { write_back, summing }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Cpu {
    Cpu { write_back: WriteBack::None, summing: Summing::Apart }
}

/// Name of the write-back instruction in use, for reports.
pub fn write_back_name() -> &'static str {
    match cpu().write_back {
        WriteBack::Clwb => "clwb",
        WriteBack::ClflushOpt => "clflushopt",
        WriteBack::Clflush => "clflush",
        WriteBack::None => "fence",
    }
}

/// Store fence: write-backs and non-temporal stores before it are complete after it.
#[inline]
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of the x86-64 baseline; the instruction touches no memory of ours.
    unsafe {
        core::arch::x86_64::_mm_sfence()
    };
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Starts the write-back of every line that `[at, at + len)` touches.
///
/// # Safety
/// The range is mapped.
#[inline]
pub(super) unsafe fn write_back(at: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    let how = cpu().write_back;
    let skew = at as usize % LINE;
    let lines = (skew + len).div_ceil(LINE);
    #[cfg(target_arch = "x86_64")]
    for i in 0..lines {
        // SAFETY: every line touched holds a byte of the mapped range, and lines do not cross pages; the instructions
        // change no data. Which of them exist was asked of the processor.
        unsafe {
            let line = at.wrapping_sub(skew).wrapping_add(i * LINE);
            match how {
                WriteBack::Clwb => core::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                WriteBack::ClflushOpt => {
                    core::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                _ => core::arch::x86_64::_mm_clflush(line),
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (how, lines);
}

/// Copies with non-temporal stores where the alignment allows it, else with regular stores and write-back. Nothing is
/// fenced.
///
/// # Safety
/// Both ranges are valid for `len` bytes and do not overlap.
pub(super) unsafe fn copy_through(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if (dst as usize).is_multiple_of(16) && len.is_multiple_of(16) {
        use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        for i in 0..len / 16 {
            // SAFETY: inside both ranges; the destination is 16-byte aligned; SSE2 is baseline.
            unsafe { _mm_stream_si128(dst.cast::<__m128i>().add(i), _mm_loadu_si128(src.cast::<__m128i>().add(i))) };
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        core::ptr::copy_nonoverlapping(src, dst, len);
        write_back(dst, len);
    }
}

/// Copies one block and gives the CRC-32C of the bytes stored: one pass when the processor can, else through a
/// private copy. `THROUGH`: non-temporal stores (not fenced). Each byte of `src` is loaded once.
///
/// # Safety
/// Both ranges are valid for a block and do not overlap. Another party may be changing `src`.
#[inline]
pub(super) unsafe fn copy_block_summed<const THROUGH: bool>(dst: *mut u8, src: *const u8) -> u32 {
    // SAFETY: the caller's promise, and the processor does this.
    unsafe { copy_block_by::<THROUGH>(cpu().summing, dst, src) }
}

/// The same in a way that the processor has.
///
/// # Safety
/// As there; the processor has what `summing` needs.
#[inline]
unsafe fn copy_block_by<const THROUGH: bool>(summing: Summing, dst: *mut u8, src: *const u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; what is stored past the caches is aligned.
    unsafe {
        let aligned = |to: usize| !THROUGH || (dst as usize).is_multiple_of(to);
        if summing == Summing::Vectors512 && aligned(64) {
            return folded::copy_block_512::<THROUGH>(dst, src);
        }
        if summing >= Summing::Vectors256 && aligned(32) {
            return folded::copy_block_256::<THROUGH>(dst, src);
        }
        if summing >= Summing::Words && (src as usize).is_multiple_of(8) && (dst as usize).is_multiple_of(8) {
            return copy_block_crc32::<THROUGH>(dst, src);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = summing;
    let mut private = [0u8; BLOCK];
    // SAFETY: the caller's promise; `private` is ours. A racing writer only decides which bytes we got.
    unsafe {
        core::ptr::copy_nonoverlapping(src, private.as_mut_ptr(), BLOCK);
        let sum = weldfs_functions::crc32c(&private);
        if THROUGH {
            copy_through(dst, private.as_ptr(), BLOCK);
        } else {
            core::ptr::copy_nonoverlapping(private.as_ptr(), dst, BLOCK);
        }
        sum
    }
}

/// Words of 8 bytes per stream: three streams of 21 lines and one line left over make a block.
#[cfg(target_arch = "x86_64")]
const STREAM: usize = 168;

/// Words of a line; and how many words before they are loaded they are asked for.
#[cfg(target_arch = "x86_64")]
const WORDS: usize = LINE / 8;
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 2 * WORDS;

/// x^n modulo the Castagnoli polynomial, bit-reflected.
#[cfg(target_arch = "x86_64")]
const fn x_to_the(n: u32) -> u32 {
    let mut acc = 0x8000_0000u32;
    let mut i = 0;
    while i < n {
        acc = (acc >> 1) ^ (0x82F6_3B78 & (acc & 1).wrapping_neg());
        i += 1;
    }
    acc
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn copy_block_crc32<const THROUGH: bool>(dst: *mut u8, src: *const u8) -> u32 {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch, _mm_set_epi64x, _mm_stream_si64};
    use core::arch::x86_64::{_mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64};
    const { assert!(3 * STREAM + 8 == BLOCK / 8 && STREAM.is_multiple_of(WORDS)) };
    // Multiplying by it and reducing moves a checksum over one stream's length.
    const SHIFT: i64 = x_to_the(STREAM as u32 * 64 - 33) as i64;
    let (from, to) = (src.cast::<u64>(), dst.cast::<i64>());
    let pass = |i: usize, sum: u64| -> u64 {
        // SAFETY: i < BLOCK / 8, both ranges are a block long and 8-byte aligned. Volatile: one load, into a register.
        unsafe {
            let word = from.add(i).read_volatile();
            if THROUGH {
                _mm_stream_si64(to.add(i), word as i64);
            } else {
                to.add(i).write(word as i64);
            }
            _mm_crc32_u64(sum, word)
        }
    };
    let (mut a, mut b, mut c) = (0xFFFF_FFFFu64, 0u64, 0u64);
    for line in (0..STREAM).step_by(WORDS) {
        if !THROUGH {
            // From a medium: three short streams are over before the processor sees that they are streams.
            for stream in [0, STREAM, 2 * STREAM] {
                let ahead = from.wrapping_add(stream + line + AHEAD);
                #[allow(unused_unsafe, reason = "older compilers have it as unsafe")]
                // SAFETY: a hint, which touches nothing wherever it points.
                unsafe {
                    _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                }
            }
        }
        for i in line..line + WORDS {
            a = pass(i, a);
            b = pass(STREAM + i, b);
            c = pass(2 * STREAM + i, c);
        }
    }
    let shift = |sum: u64| {
        let product = _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(sum as i64), _mm_set_epi64x(0, SHIFT));
        _mm_crc32_u64(0, _mm_cvtsi128_si64(product) as u64)
    };
    let mut sum = shift(shift(a) ^ b) ^ c;
    for i in 3 * STREAM..BLOCK / 8 {
        sum = pass(i, sum);
    }
    !(sum as u32)
}

/// Bytes over which a checksum is carried one by one.
const FEW: usize = 5;

/// x^(8 n - 33) for each number of bytes from [`FEW`] on, modulo the Castagnoli polynomial, bit-reflected.
#[cfg(target_arch = "x86_64")]
static PAST: [u32; BLOCK + 1] = {
    let mut table = [0; BLOCK + 1];
    table[FEW] = x_to_the(8 * FEW as u32 - 33);
    let mut n = FEW + 1;
    while n <= BLOCK {
        table[n] = zeros(table[n - 1], 1);
        n += 1;
    }
    table
};

/// What zero bytes make of the register of a checksum.
const fn zeros(mut register: u32, bytes: usize) -> u32 {
    let mut bits = 8 * bytes;
    while bits > 0 {
        register = (register >> 1) ^ (0x82F6_3B78 & (register & 1).wrapping_neg());
        bits -= 1;
    }
    register
}

/// The register of a checksum after so many zero bytes, at most a block of them.
#[inline]
fn past(register: u32, bytes: usize) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes <= BLOCK && cpu().summing >= Summing::Words {
        // SAFETY: the instructions exist.
        return unsafe { if bytes < FEW { past_few(register, bytes) } else { past_by_product(register, PAST[bytes]) } };
    }
    if bytes < FEW { zeros(register, bytes) } else { weldfs_functions::crc32c_combine(register, 0, bytes) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn past_few(register: u32, bytes: usize) -> u32 {
    (0..bytes).fold(register, |register, _| core::arch::x86_64::_mm_crc32_u8(register, 0))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn past_by_product(register: u32, power: u32) -> u32 {
    use core::arch::x86_64::{_mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64};
    let product =
        _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(i64::from(register)), _mm_cvtsi64_si128(i64::from(power)));
    _mm_crc32_u64(0, _mm_cvtsi128_si64(product) as u64) as u32
}

/// CRC-32C of `a ++ b` from the two checksums and the length of `b`: a few instructions for at most a block.
#[inline]
pub fn crc32c_join(a: u32, b: u32, b_len: usize) -> u32 {
    past(a, b_len) ^ b
}

/// CRC-32C of `a` and so many zero bytes after it.
#[inline]
pub fn crc32c_then_zeros(a: u32, bytes: usize) -> u32 {
    !past(!a, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Room([u8; BLOCK + 64]);

    fn ways() -> [Summing; 4] {
        [Summing::Apart, Summing::Words, Summing::Vectors256, Summing::Vectors512]
    }

    #[test]
    fn one_pass_copies_store_the_bytes_and_give_their_checksum_at_any_alignment() {
        let mut x = 1u32;
        for skew in [0usize, 8, 1, 3, 16] {
            let mut src = Room([0; BLOCK + 64]);
            src.0.iter_mut().for_each(|b| {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *b = (x >> 24) as u8;
            });
            let mut dst = Room([0; BLOCK + 64]);
            let bytes = &src.0[skew..skew + BLOCK];
            for way in ways().into_iter().filter(|way| *way <= cpu().summing) {
                for (through, at) in [true, false].into_iter().flat_map(|t| [0, 32, 8, 5].map(|at| (t, at))) {
                    dst.0.fill(0xEE);
                    // SAFETY: both rooms have space for a block behind these, they are distinct, the processor has it.
                    let sum = unsafe {
                        let (from, to) = (bytes.as_ptr(), dst.0.as_mut_ptr().add(at));
                        if through {
                            copy_block_by::<true>(way, to, from)
                        } else {
                            copy_block_by::<false>(way, to, from)
                        }
                    };
                    fence();
                    assert_eq!(&dst.0[at..at + BLOCK], bytes, "{way:?} through {through} to {at}");
                    assert_eq!(sum, weldfs_functions::crc32c(bytes), "{way:?} through {through} to {at}");
                    let beside = dst.0[..at].iter().chain(&dst.0[at + BLOCK..]);
                    assert!(beside.copied().all(|b| b == 0xEE), "{way:?} through {through} to {at}");
                }
            }
        }
    }

    #[test]
    fn joined_checksums_are_those_of_the_whole() {
        let bytes: Vec<u8> = (0..2 * BLOCK as u32).map(|i| (i * 7 + i / 13) as u8).collect();
        for n in (0..70).chain((70..BLOCK).step_by(61)).chain([BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 9]) {
            let (a, b) = (&bytes[..9], &bytes[9..9 + n]);
            let sum = weldfs_functions::crc32c(a);
            assert_eq!(crc32c_join(sum, weldfs_functions::crc32c(b), n), weldfs_functions::crc32c(&bytes[..9 + n]));
            let zeros = [a, &vec![0; n]].concat();
            assert_eq!(crc32c_then_zeros(sum, n), weldfs_functions::crc32c(&zeros), "{n} zeros");
        }
    }

    #[test]
    fn copies_through_the_cache_cover_odd_ranges() {
        let src: Vec<u8> = (0..300u32).map(|i| i as u8).collect();
        let mut dst = Room([0; BLOCK + 64]);
        for (off, len) in [(0usize, 256usize), (1, 200), (60, 8), (64, 64), (0, 0)] {
            // SAFETY: in bounds of both, distinct.
            unsafe { copy_through(dst.0.as_mut_ptr().add(off), src.as_ptr(), len) };
            fence();
            assert_eq!(dst.0[off..off + len], src[..len]);
        }
    }
}
