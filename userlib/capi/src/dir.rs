//! Listing directories.

use crate::boundary::{call, count, given, hand_out, path, put};
use crate::client::weldfs_client;
use crate::types::weldfs_entry;
use libc::{c_char, c_int};
use parking_lot::{Mutex, MutexGuard};
use weldfs::{Dir, Errno, Process};
use weldfs_ciscops::dirent::{Dirents, cookie};

/// Bytes of entries fetched per command.
const LISTING_BYTES: usize = 32 << 10;

/// An open directory being listed. Threads that share one take turns.
pub struct weldfs_dir {
    pub(crate) dir: Dir,
    place: Mutex<Place>,
    maker: Process,
}

impl weldfs_dir {
    /// EBADF in a forked child, where a thread of the parent may have left the lock taken.
    fn place(&self) -> Result<MutexGuard<'_, Place>, Errno> {
        if self.maker.is_current() { Ok(self.place.lock()) } else { Err(Errno::BADF) }
    }
}

struct Place {
    cookie: u64,
    batch: Vec<u8>,
    at: usize,
}

/// opendir(3). On success *dir is to be given back with weldfs_closedir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_opendir(
    client: Option<&weldfs_client>,
    name: *const c_char,
    dir: *mut *mut weldfs_dir,
) -> c_int {
    call("weldfs_opendir", || {
        hand_out(dir, || {
            let place = Mutex::new(Place { cookie: cookie::START, batch: Vec::new(), at: 0 });
            let maker = Process::current();
            Ok(weldfs_dir { dir: given(client)?.client.open_dir(path(name)?)?, place, maker })
        })
    })
}

/// readdir(3), `.` and `..` left out: 1 and the next entry, or 0 at the end. Entries that exist throughout the listing
/// are seen exactly once, however many others come and go.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_readdir(dir: Option<&weldfs_dir>, entry: *mut weldfs_entry) -> c_int {
    count("weldfs_readdir", || {
        let dir = given(dir)?;
        if entry.is_null() {
            return Err(Errno::INVAL.into());
        }
        let mut place = dir.place()?;
        loop {
            let at = place.at;
            let mut rest = Dirents(&place.batch[at..]);
            let Some(found) = rest.next() else {
                let mut batch = std::mem::take(&mut place.batch);
                batch.resize(LISTING_BYTES, 0);
                let file = dir.dir.as_file();
                let n = file.raw().read_dir(file.handle(), place.cookie, &mut batch)?;
                batch.truncate(n);
                (place.batch, place.at) = (batch, 0);
                if n == 0 {
                    return Ok(0);
                }
                continue;
            };
            let left = rest.0.len();
            let mut out = weldfs_entry {
                ino: found.ino,
                next: found.next_cookie,
                kind: found.dtype,
                reserved: [0; 7],
                name: [0; 256],
            };
            let dots = matches!(found.name, b"." | b"..");
            for (to, from) in out.name[..255].iter_mut().zip(found.name) {
                *to = *from as c_char;
            }
            place.at = place.batch.len() - left;
            place.cookie = out.next;
            if !dots {
                put(entry, out);
                return Ok(1);
            }
        }
    }) as c_int
}

/// seekdir(3): goes on after the entry whose `next` is given; 0: from the start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_seekdir(dir: Option<&weldfs_dir>, next: u64) -> c_int {
    call("weldfs_seekdir", || {
        *given(dir)?.place()? = Place { cookie: next, batch: Vec::new(), at: 0 };
        Ok(())
    })
}

/// closedir(3). NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_closedir(dir: Option<Box<weldfs_dir>>) {
    call("weldfs_closedir", || {
        if let Some(mut dir) = dir
            && !dir.maker.is_current()
        {
            // A thread of the parent may have been at work on it when the child was made.
            std::mem::forget(std::mem::take(&mut dir.place.get_mut().batch));
        }
        Ok(())
    });
}
