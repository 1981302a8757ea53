//! What a virtual file is made of: the kernel that its bytes stream through, its parameters, and the real files behind
//! it. The record of it travels in `virt_register` and `virt_spec`, and an image keeps the same bytes
//! (docs/MEDIA-FORMAT.md).
//!
//! ```text
//! version u8 (1), flags u8, kernel bytes u8, zero u8, parameters u16, ranges u16,
//! kernel, parameters (u32 each), then per range: offset u64, length u64, path bytes u16, path
//! ```

use crate::Errno;
use crate::limits::{
    FILE_OFFSET_MAX, VIRT_BACKEND_MAX, VIRT_KERNEL_MAX, VIRT_PARAMS_MAX, VIRT_RANGES_MAX, VIRT_SPEC_MAX,
};
use crate::paths::check_path;

/// Version byte of the record.
const VERSION: u8 = 1;
/// Flag: what is written to the file streams into the range.
const WRITE: u8 = 1;
/// Flag: the real file ends where the stream did.
const CUT: u8 = 2;
/// Bytes before the kernel's name.
const HEAD: usize = 8;

/// A length that says: to the end of the file.
pub const TO_END: u64 = u64::MAX;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Reading the virtual file gives what the kernel makes of the ranges, one after the other as one stream.
    Read,
    /// What the kernel makes of the bytes written to the virtual file goes to the one range.
    Write {
        /// When the stream ends, the real file is cut behind the last byte it got.
        cut: bool,
    },
}

/// A part of a real file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VirtRange {
    /// From the root: begins with `/`.
    pub path: Vec<u8>,
    /// First byte.
    pub offset: u64,
    /// Bytes; [`TO_END`]: as many as there are when the virtual file is opened.
    pub length: u64,
}

/// The spec of a virtual file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VirtSpec {
    /// Name of the kernel: 1 to 31 of `a`-`z`, `0`-`9`, `-`; then, if it matters, `:` and its back-end.
    pub kernel: String,
    /// Its parameters.
    pub params: Vec<u32>,
    /// Which way the bytes go.
    pub direction: Direction,
    /// Where they come from, or the one place where they go to.
    pub ranges: Vec<VirtRange>,
}

impl VirtSpec {
    /// The record.
    ///
    /// # Errors
    /// EINVAL for what [`VirtSpec::decode`] would refuse, E2BIG when it has more than `VIRT_SPEC_MAX` bytes.
    pub fn encode(&self) -> Result<Vec<u8>, Errno> {
        let flags = match self.direction {
            Direction::Read => 0,
            Direction::Write { cut: false } => WRITE,
            Direction::Write { cut: true } => WRITE | CUT,
        };
        if self.params.len() > VIRT_PARAMS_MAX || self.ranges.len() > VIRT_RANGES_MAX {
            return Err(Errno::TOOBIG);
        }
        let kernel = u8::try_from(self.kernel.len()).map_err(|_| Errno::INVAL)?;
        let mut out = vec![VERSION, flags, kernel, 0];
        out.extend((self.params.len() as u16).to_le_bytes());
        out.extend((self.ranges.len() as u16).to_le_bytes());
        out.extend(self.kernel.as_bytes());
        self.params.iter().for_each(|p| out.extend(p.to_le_bytes()));
        for r in &self.ranges {
            out.extend(r.offset.to_le_bytes());
            out.extend(r.length.to_le_bytes());
            out.extend(u16::try_from(r.path.len()).map_err(|_| Errno::NAMETOOLONG)?.to_le_bytes());
            out.extend(&r.path);
        }
        if out.len() > VIRT_SPEC_MAX {
            return Err(Errno::TOOBIG);
        }
        VirtSpec::decode(&out).map(|_| out)
    }

    /// Believes a record, or says why not. Total on arbitrary bytes.
    ///
    /// # Errors
    /// E2BIG above `VIRT_SPEC_MAX` bytes, ENAMETOOLONG for a path or a component that no path may have, EINVAL for
    /// everything else that is not of the form above: a version or flag that is not known, a kernel's name of other
    /// letters, no range, more than one to write to, a path that does not begin with `/` or holds NUL, a range of no
    /// bytes or beyond 2^63 - 1, bytes left over.
    pub fn decode(bytes: &[u8]) -> Result<VirtSpec, Errno> {
        if bytes.len() > VIRT_SPEC_MAX {
            return Err(Errno::TOOBIG);
        }
        let mut r = Take(bytes);
        let head = r.bytes(HEAD)?;
        let (version, flags, zero) = (head[0], head[1], head[3]);
        let direction = match flags {
            0 => Direction::Read,
            WRITE => Direction::Write { cut: false },
            f if f == WRITE | CUT => Direction::Write { cut: true },
            _ => return Err(Errno::INVAL),
        };
        let word = |at| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let (params, ranges) = (word(4), word(6));
        let one = direction == Direction::Read || ranges == 1;
        if version != VERSION
            || zero != 0
            || ranges == 0
            || ranges > VIRT_RANGES_MAX
            || !one
            || params > VIRT_PARAMS_MAX
        {
            return Err(Errno::INVAL);
        }
        let kernel = name(r.bytes(head[2].into())?)?;
        let words = r.bytes(4 * params)?.chunks_exact(4);
        let params = words.map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect();
        let ranges = (0..ranges).map(|_| range(&mut r)).collect::<Result<_, _>>()?;
        if !r.0.is_empty() {
            return Err(Errno::INVAL);
        }
        Ok(VirtSpec { kernel, params, direction, ranges })
    }
}

/// A kernel's name.
fn name(bytes: &[u8]) -> Result<String, Errno> {
    let text = std::str::from_utf8(bytes).map_err(|_| Errno::INVAL)?;
    let (kernel, backend) = text.split_once(':').unwrap_or((text, "model"));
    let word =
        |s: &str, max| (1..=max).contains(&s.len()) && s.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    let good = word(kernel, VIRT_KERNEL_MAX) && word(backend, VIRT_BACKEND_MAX);
    if good { Ok(text.to_owned()) } else { Err(Errno::INVAL) }
}

fn range(r: &mut Take<'_>) -> Result<VirtRange, Errno> {
    let (offset, length) = (r.u64()?, r.u64()?);
    let len = r.bytes(2)?;
    let path = r.bytes(u16::from_le_bytes([len[0], len[1]]).into())?;
    let end = if length == TO_END { Some(offset) } else { offset.checked_add(length) };
    if path.first() != Some(&b'/') || length == 0 || end.is_none_or(|end| end > FILE_OFFSET_MAX) {
        return Err(Errno::INVAL);
    }
    check_path(path)?;
    Ok(VirtRange { path: path.to_vec(), offset, length })
}

/// What is left of a record.
struct Take<'a>(&'a [u8]);

impl<'a> Take<'a> {
    fn bytes(&mut self, n: usize) -> Result<&'a [u8], Errno> {
        let (taken, left) = self.0.split_at_checked(n).ok_or(Errno::INVAL)?;
        self.0 = left;
        Ok(taken)
    }

    fn u64(&mut self) -> Result<u64, Errno> {
        let bytes = self.bytes(8)?;
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        Ok(u64::from_le_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> VirtSpec {
        let range = |path: &[u8], offset, length| VirtRange { path: path.to_vec(), offset, length };
        VirtSpec {
            kernel: "grep".into(),
            params: vec![3, 0x6f_6f66],
            direction: Direction::Read,
            ranges: vec![range(b"/logs/a", 0, TO_END), range(b"/b", 4096, 100)],
        }
    }

    #[test]
    fn a_record_is_these_bytes_and_gives_the_spec_back() {
        let bytes = spec().encode().unwrap();
        let expected = b"\x01\x00\x04\x00\x02\x00\x02\x00grep\x03\x00\x00\x00foo\x00\
            \x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\x07\x00/logs/a\
            \x00\x10\x00\x00\x00\x00\x00\x00\x64\x00\x00\x00\x00\x00\x00\x00\x02\x00/b";
        assert_eq!(bytes, expected);
        assert_eq!(VirtSpec::decode(&bytes), Ok(spec()));
        let cut = VirtSpec { direction: Direction::Write { cut: true }, ranges: spec().ranges[..1].to_vec(), ..spec() };
        assert_eq!(VirtSpec::decode(&cut.encode().unwrap()), Ok(cut));
    }

    #[test]
    fn each_way_of_being_no_spec_has_its_errno() {
        let refused = |change: fn(&mut VirtSpec)| {
            let mut s = spec();
            change(&mut s);
            s.encode().unwrap_err()
        };
        assert_eq!(refused(|s| s.kernel = "Grep".into()), Errno::INVAL);
        assert_eq!(refused(|s| s.kernel.clear()), Errno::INVAL);
        assert_eq!(refused(|s| s.kernel = "a".repeat(32)), Errno::INVAL);
        assert_eq!(refused(|s| s.kernel = "grep:".into()), Errno::INVAL);
        assert_eq!(refused(|s| s.kernel = "grep:a:b".into()), Errno::INVAL);
        assert_eq!(refused(|s| s.ranges.clear()), Errno::INVAL);
        assert_eq!(refused(|s| s.direction = Direction::Write { cut: false }), Errno::INVAL, "two ranges to write to");
        assert_eq!(refused(|s| s.ranges[0].path = b"logs/a".to_vec()), Errno::INVAL);
        assert_eq!(refused(|s| s.ranges[0].path = b"/a\0".to_vec()), Errno::INVAL);
        assert_eq!(refused(|s| s.ranges[0].path = [b"/", &[b'n'; 256][..]].concat()), Errno::NAMETOOLONG);
        assert_eq!(refused(|s| s.ranges[1].length = 0), Errno::INVAL);
        assert_eq!(refused(|s| s.ranges[1].offset = FILE_OFFSET_MAX), Errno::INVAL);
        assert_eq!(refused(|s| s.params = vec![0; VIRT_PARAMS_MAX]), Errno::TOOBIG);
        assert_eq!(refused(|s| s.params = vec![0; VIRT_PARAMS_MAX + 1]), Errno::TOOBIG);
    }

    #[test]
    fn any_bytes_give_a_spec_or_an_errno() {
        let good = spec().encode().unwrap();
        for len in 0..good.len() {
            assert_eq!(VirtSpec::decode(&good[..len]), Err(Errno::INVAL), "cut at {len}");
        }
        assert_eq!(VirtSpec::decode(&[&good[..], b"x"].concat()), Err(Errno::INVAL));
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                if let Ok(other) = VirtSpec::decode(&bad) {
                    assert_eq!(other.encode().as_deref(), Ok(&bad[..]), "one form for one spec");
                }
            }
        }
        assert_eq!(VirtSpec::decode(&[0; VIRT_SPEC_MAX + 1]), Err(Errno::TOOBIG));
    }
}
