//! atomic_replace: a file gets new content as a whole, durably, under its old name.

use super::template::Template;
use crate::Handle;
use crate::flags::{OpenFlags, RenameFlags};
use crate::program::{Body, Builder, Bytes, Fault, Micro, Place, Value};

/// Makes a new file, writes the payload, renames it over `path`, and makes all of that durable: what takes a create, a
/// write, an fsync, a rename and an fsync of the directory elsewhere. Pool ranges: the payload. Results: none.
///
/// A MacroTx: after a crash the old content is there, or the new, and no temporary name. The new file is another inode:
/// handles on the old one keep the old content. EEXIST when the temporary name is taken; else the errors of open, write
/// and rename.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicReplace<'a> {
    /// Directory to start from.
    pub base: Handle,
    /// The name that gets the content; it need not exist.
    pub path: &'a [u8],
    /// A name in the same directory that nothing has.
    pub temporary: &'a [u8],
    /// Permission bits of the new file, after the umask.
    pub mode: u16,
    /// Bytes of the payload.
    pub len: u32,
}

impl Template for AtomicReplace<'_> {
    /// Nothing.
    type Answer = ();

    fn body(&self) -> Result<Body, Fault> {
        let mut b = Builder::new();
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
        let file = b.open(self.base, self.temporary, flags, self.mode);
        let from = Bytes::Pool(b.pool(self.len));
        b.push(Micro::Write { file, place: Place::At(Value::Imm(0)), from, fold: None, at: None });
        let (from, to) = (b.string(self.temporary), b.string(self.path));
        let (from_base, to_base, flags) = (self.base, self.base, RenameFlags::empty());
        b.push(Micro::Rename { from_base, from, to_base, to, flags });
        b.push(Micro::Sync);
        b.finish()
    }

    fn answer(_: (u64, u64)) {}
}
