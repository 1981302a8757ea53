//! Temporary files without a name: sorters, statement journals, databases that are never seen again. They are of the
//! host, for nothing of them is to survive, and a device has better uses for its log.

use crate::code;
use crate::fault::{Done, Fault};
use crate::open::Io;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A file of the host without a name.
pub struct Temp(File);

impl Temp {
    /// A fresh one, where SQLite's own VFS would put it.
    pub fn new() -> Done<Temp> {
        let said = |name| std::env::var_os(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let dir = said("SQLITE_TMPDIR").or_else(|| said("TMPDIR")).unwrap_or_else(std::env::temp_dir);
        let bad = |e| Fault::of(code::CANTOPEN_NOTEMPDIR, e, || format!("a temporary file in {}", dir.display()));
        tempfile::tempfile_in(&dir).map(Temp).map_err(bad)
    }
}

impl Io for Temp {
    fn read(&mut self, room: &mut [u8], at: u64) -> Done<usize> {
        let mut done = 0;
        while done < room.len() {
            match self.0.read_at(&mut room[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Fault::of(code::IOERR_READ, e, || "read a temporary file".into())),
            }
        }
        Ok(done)
    }

    fn write(&mut self, data: &[u8], at: u64) -> Done {
        let bad = |e| Fault::of(code::IOERR_WRITE, e, || "write a temporary file".into());
        self.0.write_all_at(data, at).map_err(bad)
    }

    fn truncate(&mut self, size: u64) -> Done {
        self.0.set_len(size).map_err(|e| Fault::of(code::IOERR_TRUNCATE, e, || "cut a temporary file".into()))
    }

    fn size(&mut self) -> Done<u64> {
        let bad = |e| Fault::of(code::IOERR_FSTAT, e, || "the size of a temporary file".into());
        self.0.metadata().map(|meta| meta.len()).map_err(bad)
    }

    fn sync(&mut self) -> Done {
        Ok(())
    }

    fn close(self: Box<Self>) -> Done {
        Ok(())
    }
}
