//! Counts the directory entries of an image's tree, by this file's own reading of docs/MEDIA-FORMAT.md.

use super::pristine::{BLOCK, PAGE};
use weldfs_fuzz_targets::media::number;
use weldfs_storagefs::media::CowImage;

/// Bytes of a page's header, of a key, of a leaf's slot and of an interior page's entry.
const HEADER: usize = 64;
const KEY: usize = 17;
const SLOT: usize = KEY + 4;
const BRANCH: usize = KEY + 20;
/// The kind of a directory entry's key.
const DIRENT: u8 = 2;
/// Where the superblock names flags and root.
const FLAGS: usize = 160;
const ROOT: usize = 712;
/// Pages looked at.
const PAGES_MAX: usize = 256;

/// How many there are; `None` where the log may hold more, or pages cannot be followed.
pub fn entries(image: &CowImage) -> Option<usize> {
    let mut sb = [0; BLOCK as usize];
    image.read(0, &mut sb);
    let clean = number(&sb, FLAGS, 4) & 1 == 1;
    let (mut todo, mut seen, mut found) = (vec![number(&sb, ROOT, 8)], 0, 0);
    while let Some(addr) = clean.then(|| todo.pop()).flatten() {
        seen += 1;
        let at = addr.checked_mul(BLOCK).filter(|at| at.checked_add(PAGE).is_some_and(|end| end <= image.len()))?;
        let mut page = vec![0; PAGE as usize];
        image.read(at, &mut page);
        let count = number(&page, 6, 2) as usize;
        match page[4] {
            1 if HEADER + count * SLOT <= page.len() => {
                found += (0..count).filter(|i| page[HEADER + i * SLOT] == DIRENT).count();
            }
            2 if HEADER + count * BRANCH <= page.len() && seen < PAGES_MAX => {
                todo.extend((0..count).map(|i| number(&page, HEADER + i * BRANCH + KEY, 8)));
            }
            _ => return None,
        }
    }
    clean.then_some(found)
}
