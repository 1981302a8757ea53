//! Images as differences: a shared base and the pages that differ from it. Copying one costs a pointer per page of the
//! medium, so that thousands of crash states of one run are cheap to make, to compare and to recover.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use weldfs_journal::{BLOCK, FlushMode, Medium, MediumError, MediumInfo, MediumKind};
use weldfs_locks::RwLock;

use super::CrashModel;

/// Bytes that are copied together on the first write.
const PAGE: usize = BLOCK;

/// A page that may differ from the base.
struct Page {
    bytes: [u8; PAGE],
    /// Digest of number and bytes; 0 when the page is as in the base.
    digest: OnceLock<u128>,
}

impl Clone for Page {
    /// Copies are made to be written: the digest is not theirs.
    fn clone(&self) -> Page {
        Page { bytes: self.bytes, digest: OnceLock::new() }
    }
}

/// The content of a medium as a difference to a base. Clones share all that they do not change.
#[derive(Clone)]
pub struct CowImage {
    base: Arc<Vec<u8>>,
    pages: Vec<Option<Arc<Page>>>,
}

impl CowImage {
    /// The base itself, zero-padded to whole blocks.
    pub fn new(mut base: Vec<u8>) -> CowImage {
        base.resize(base.len().next_multiple_of(PAGE), 0);
        let pages = vec![None; base.len() / PAGE];
        CowImage { base: Arc::new(base), pages }
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.base.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.base.is_empty()
    }

    fn page(&self, number: usize) -> &[u8] {
        match &self.pages[number] {
            Some(page) => &page.bytes,
            None => &self.base[number * PAGE..(number + 1) * PAGE],
        }
    }

    /// Fills `buf` from byte `off`.
    ///
    /// # Panics
    /// Outside the image.
    pub fn read(&self, off: u64, buf: &mut [u8]) {
        let (mut at, mut rest) = (off as usize, buf);
        while !rest.is_empty() {
            let (number, skip) = (at / PAGE, at % PAGE);
            let n = rest.len().min(PAGE - skip);
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(&self.page(number)[skip..skip + n]);
            (at, rest) = (at + n, later);
        }
    }

    /// Whether the bytes at `off` are these.
    ///
    /// # Panics
    /// Outside the image.
    pub fn holds(&self, off: u64, bytes: &[u8]) -> bool {
        let (mut at, mut rest) = (off as usize, bytes);
        while !rest.is_empty() {
            let skip = at % PAGE;
            let n = rest.len().min(PAGE - skip);
            if self.page(at / PAGE)[skip..skip + n] != rest[..n] {
                return false;
            }
            (at, rest) = (at + n, &rest[n..]);
        }
        true
    }

    /// Stores `buf` at byte `off`.
    ///
    /// # Panics
    /// Outside the image.
    pub fn write(&mut self, off: u64, buf: &[u8]) {
        let (mut at, mut rest) = (off as usize, buf);
        while !rest.is_empty() {
            let (number, skip) = (at / PAGE, at % PAGE);
            let n = rest.len().min(PAGE - skip);
            let base = &self.base;
            let page = self.pages[number].get_or_insert_with(|| {
                let mut bytes = [0; PAGE];
                bytes.copy_from_slice(&base[number * PAGE..(number + 1) * PAGE]);
                Arc::new(Page { bytes, digest: OnceLock::new() })
            });
            let page = Arc::make_mut(page);
            page.bytes[skip..skip + n].copy_from_slice(&rest[..n]);
            page.digest = OnceLock::new();
            (at, rest) = (at + n, &rest[n..]);
        }
    }

    /// Makes the bytes from `off` on, `len` of them, as they are in `other`, an image of the same base: whole pages are
    /// shared, their digests too.
    ///
    /// # Panics
    /// Outside the image.
    pub fn share(&mut self, other: &CowImage, off: u64, len: u64) {
        let (mut at, end) = (off as usize, (off + len) as usize);
        while at < end {
            let (number, stop) = (at / PAGE, (at / PAGE * PAGE + PAGE).min(end));
            if stop - at == PAGE {
                self.pages[number] = other.pages[number].clone();
            } else {
                let bytes = other.page(number)[at % PAGE..at % PAGE + stop - at].to_vec();
                self.write(at as u64, &bytes);
            }
            at = stop;
        }
    }

    /// 128 bits over all that differs from the base: images of one base with the same digest are the same. (The chance
    /// that it errs among a billion images is below 10^-20. No client that could forge it has a hand in crash states.)
    pub fn digest(&self) -> u128 {
        let each = self.pages.iter().enumerate().filter_map(|(i, p)| Some((i, p.as_ref()?)));
        each.fold(0u128, |sum, (i, page)| sum.wrapping_add(*page.digest.get_or_init(|| self.page_digest(i, page))))
    }

    fn page_digest(&self, number: usize, page: &Page) -> u128 {
        if page.bytes[..] == self.base[number * PAGE..(number + 1) * PAGE] {
            return 0;
        }
        let seed = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (mut a, mut b) = (seed ^ 0xA076_1D64_78BD_642F, seed ^ 0xE703_7ED1_A0B4_28DB);
        for pair in page.bytes.chunks_exact(16) {
            let word = |at: usize| u64::from_le_bytes(pair[at..at + 8].try_into().expect("eight bytes"));
            let (x, y) = (word(0), word(8));
            a = fold(a ^ x, y ^ 0x8EBC_6AF0_9C88_C6E3);
            b = fold(b.rotate_left(29) ^ y, x ^ 0x5899_65CC_7537_4CC3);
        }
        u128::from(fold(a, b ^ seed)) << 64 | u128::from(fold(b, a ^ 0x1D8E_4E27_C47D_124F))
    }

    /// The whole content.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all = self.base.to_vec();
        for (i, page) in self.pages.iter().enumerate() {
            if let Some(page) = page {
                all[i * PAGE..(i + 1) * PAGE].copy_from_slice(&page.bytes);
            }
        }
        all
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64 ^ a.rotate_left(32)
}

/// A medium over a [`CowImage`]: what it stores is its own, whatever else the image is shared with. Thread-safe.
pub struct CowMedium {
    image: RwLock<CowImage>,
    info: MediumInfo,
    poisoned: AtomicBool,
}

impl CowMedium {
    /// A medium of the kind whose crashes `model` describes.
    pub fn new(image: CowImage, model: CrashModel) -> CowMedium {
        let info = info_of(image.len(), model);
        CowMedium { image: RwLock::new(image), info, poisoned: AtomicBool::new(false) }
    }

    /// The present content.
    pub fn image(&self) -> CowImage {
        self.image.read().clone()
    }

    fn check(&self, off: u64, len: usize) -> Result<(), MediumError> {
        if self.is_poisoned() {
            return Err(MediumError::Poisoned);
        }
        let end = off.checked_add(len as u64).filter(|end| *end <= self.info.len);
        end.map(drop).ok_or(MediumError::OutOfRange { off, len: len as u64 })
    }
}

/// What a medium under a crash model says of itself.
pub(super) fn info_of(len: u64, model: CrashModel) -> MediumInfo {
    let block = model == CrashModel::Block;
    MediumInfo {
        len,
        kind: if block { MediumKind::Block } else { MediumKind::Pmem },
        unit: if block { 512 } else { 8 },
        log_align: if block { 512 } else { 64 },
        power_safe: false,
        flush: if block { FlushMode::Sync } else { FlushMode::Instructions },
        byte_addressable: !block,
        read_only: false,
    }
}

impl Medium for CowMedium {
    fn info(&self) -> MediumInfo {
        self.info
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> Result<(), MediumError> {
        self.check(off, buf.len())?;
        self.image.read().read(off, buf);
        Ok(())
    }

    fn write(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        self.check(off, buf.len())?;
        self.image.write().write(off, buf);
        Ok(())
    }

    fn barrier(&self) -> Result<(), MediumError> {
        self.check(0, 0)
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_content_not_history() {
        let base = CowImage::new(vec![7; 3 * PAGE]);
        let (mut a, mut b) = (base.clone(), base.clone());
        assert_eq!(a.digest(), 0);
        a.write(PAGE as u64 - 4, &[1; 8]);
        b.write(0, &[9; 8]);
        b.write(PAGE as u64 - 4, &[2; 8]);
        assert_ne!(a.digest(), b.digest());
        b.write(PAGE as u64 - 4, &[1; 8]);
        b.write(0, &[7; 8]);
        assert_eq!((a.digest(), a.to_bytes()), (b.digest(), b.to_bytes()));
        a.write(PAGE as u64 - 4, &[7; 8]);
        assert_eq!(a.digest(), 0, "as the base again");
        let mut moved = base.clone();
        moved.write(2 * PAGE as u64 - 4, &[1; 8]);
        assert_ne!(moved.digest(), b.digest(), "the same bytes elsewhere");
    }

    #[test]
    fn shared_ranges_are_copies() {
        let base = CowImage::new(vec![3; 4 * PAGE]);
        let mut from = base.clone();
        from.write(0, &[8; 4 * PAGE]);
        let mut to = base.clone();
        to.share(&from, 100, 2 * PAGE as u64);
        let mut expected = base.clone();
        expected.write(100, &[8; 2 * PAGE]);
        assert_eq!((to.to_bytes(), to.digest()), (expected.to_bytes(), expected.digest()));
    }

    #[test]
    fn clones_share_and_part_on_write() {
        let mut a = CowImage::new(vec![0; 2 * PAGE]);
        a.write(10, b"shared");
        let mut b = a.clone();
        b.write(10, b"parted");
        let mut buf = [0; 6];
        a.read(10, &mut buf);
        assert_eq!(&buf, b"shared");
        assert!(b.holds(10, b"parted") && !a.holds(10, b"parted"));
    }
}
