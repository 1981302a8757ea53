//! What a library says of the libraries that it needs: their names, and where they are to be looked for.

use crate::abi::Res;
use crate::sys;
use libc::c_int;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
/// Bytes of a header of the file, of a program header, and of an entry of the dynamic section (64-bit ELF).
const FILE_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const ENTRY: usize = 16;
/// Bytes of the dynamic section that are looked at, and of one text.
const DYNAMIC_MAX: usize = 16 << 10;
const TEXT_MAX: usize = 4096;

/// Names of libraries, and folders to look in, with `$ORIGIN` as it stands in the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// Libraries by the names that they are to have.
    pub names: Vec<Vec<u8>>,
    /// Folders.
    pub folders: Vec<Vec<u8>>,
}

/// Up to `n` bytes of a file.
fn bytes(fd: c_int, off: u64, n: usize) -> Res<Vec<u8>> {
    let mut room = vec![0u8; n];
    let got = sys::checked(libc::SYS_pread64, [fd as usize, room.as_mut_ptr() as usize, n, off as usize, 0, 0])?;
    room.truncate(got);
    Ok(room)
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.get(..N)?.try_into().ok()
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    word(bytes, at).map(u64::from_le_bytes)
}

/// Reads them from a library's file; nothing where that is no 64-bit ELF file of this machine's byte order.
pub fn of(fd: c_int) -> Option<Needed> {
    let head = bytes(fd, 0, FILE_HEADER).ok()?;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (at, count) = (long(&head, 32)?, usize::from(u16::from_le_bytes(word(&head, 56)?)));
    let table = bytes(fd, at, count * PROGRAM_HEADER).ok()?;
    // Of each part: its kind, where it lies in the file and in memory, and how long it is.
    let parts: Vec<(u32, u64, u64, u64)> = table
        .chunks_exact(PROGRAM_HEADER)
        .filter_map(|h| Some((u32::from_le_bytes(word(h, 0)?), long(h, 8)?, long(h, 16)?, long(h, 32)?)))
        .collect();
    let in_file = |address: u64| {
        let mut loaded = parts.iter().filter(|part| part.0 == PT_LOAD);
        loaded.find_map(|&(_, off, start, n)| (address.checked_sub(start)? < n).then(|| off + (address - start)))
    };
    let &(_, off, _, n) = parts.iter().find(|part| part.0 == PT_DYNAMIC)?;
    let dynamic = bytes(fd, off, DYNAMIC_MAX.min(usize::try_from(n).ok()?)).ok()?;
    let entries: Vec<(u64, u64)> =
        dynamic.chunks_exact(ENTRY).filter_map(|e| Some((long(e, 0)?, long(e, 8)?))).collect();
    let texts = in_file(entries.iter().find(|e| e.0 == DT_STRTAB)?.1)?;
    let text = |at: u64| {
        let found = bytes(fd, texts.checked_add(at)?, TEXT_MAX).ok()?;
        Some(found[..found.iter().position(|b| *b == 0)?].to_vec())
    };
    let all = |kind: u64| entries.iter().filter(move |e| e.0 == kind).filter_map(|e| text(e.1));
    let folders =
        |kind: u64| all(kind).flat_map(|list| list.split(|b| *b == b':').map(<[u8]>::to_vec).collect::<Vec<_>>());
    let mut found = Needed { names: all(DT_NEEDED).collect(), folders: folders(DT_RUNPATH).collect() };
    if found.folders.is_empty() {
        found.folders = folders(DT_RPATH).collect();
    }
    Some(found)
}

/// A folder with `$ORIGIN` put in; `None` where it has none, and so is no neighbour of the library.
pub fn placed(folder: &[u8], origin: &[u8]) -> Option<Vec<u8>> {
    for mark in [&b"$ORIGIN"[..], b"${ORIGIN}"] {
        if let Some(at) = folder.windows(mark.len()).position(|w| w == mark) {
            return Some([&folder[..at], origin, &folder[at + mark.len()..]].concat());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_this_program_needs_is_read_and_other_files_need_nothing() {
        let me = std::fs::File::open("/proc/self/exe").unwrap();
        let names = of(me.as_raw_fd()).unwrap().names;
        assert!(names.contains(&b"libc.so.6".to_vec()), "{names:?}");
        let other = std::fs::File::open("/proc/self/maps").unwrap();
        assert_eq!(of(other.as_raw_fd()), None);
        assert_eq!(of(-1), None);
    }

    #[test]
    fn origin_is_the_folder_of_the_library() {
        assert_eq!(placed(b"$ORIGIN/../lib", b"/weld/a").unwrap(), b"/weld/a/../lib");
        assert_eq!(placed(b"${ORIGIN}", b"/weld").unwrap(), b"/weld");
        assert_eq!(placed(b"/usr/lib", b"/weld"), None);
    }
}
