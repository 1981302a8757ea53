//! Listing directories.

use crate::boundary::{call, count, given, hand_out, on, path, put};
use crate::client::weldfs_client;
use crate::types::{weldfs_entry, weldfs_stat};
use libc::{c_char, c_int};
use weldfs::{Dir, Errno, Metadata, Process, StatBody};
use weldfs_ciscops::dirent::{Dirents, DirentsPlus, cookie};
use weldfs_locks::{Mutex, MutexGuard};

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
    /// Whether the entries of the batch come with attributes.
    plus: bool,
}

/// An entry, and its attributes where they were asked for.
type Found = (weldfs_entry, Option<Result<StatBody, Errno>>);

impl Place {
    fn new(cookie: u64) -> Place {
        Place { cookie, batch: Vec::new(), at: 0, plus: false }
    }

    /// The next entry but for `.` and `..`, of a batch fetched by `fetch` where there is none left.
    fn next(
        &mut self,
        plus: bool,
        fetch: impl Fn(u64, &mut [u8]) -> Result<usize, Errno>,
    ) -> Result<Option<Found>, Errno> {
        if std::mem::replace(&mut self.plus, plus) != plus {
            (self.batch, self.at) = (Vec::new(), 0);
        }
        loop {
            let rest = &self.batch[self.at..];
            let (found, stat, left) = if plus {
                let mut entries = DirentsPlus(rest);
                let found = entries.next();
                (found.map(|f| f.entry), found.map(|f| f.stat), entries.0.len())
            } else {
                let mut entries = Dirents(rest);
                (entries.next(), None, entries.0.len())
            };
            let Some(found) = found else {
                let mut batch = std::mem::take(&mut self.batch);
                batch.resize(LISTING_BYTES, 0);
                let n = fetch(self.cookie, &mut batch)?;
                batch.truncate(n);
                (self.batch, self.at) = (batch, 0);
                if n == 0 {
                    return Ok(None);
                }
                continue;
            };
            let mut entry = weldfs_entry {
                ino: found.ino,
                next: found.next_cookie,
                kind: found.dtype,
                reserved: [0; 7],
                name: [0; 256],
            };
            let dots = matches!(found.name, b"." | b"..");
            for (to, from) in entry.name[..255].iter_mut().zip(found.name) {
                *to = *from as c_char;
            }
            self.at = self.batch.len() - left;
            self.cookie = entry.next;
            if !dots {
                return Ok(Some((entry, stat)));
            }
        }
    }
}

/// opendir(3). On success *dir is to be given back with weldfs_closedir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_opendir(
    client: Option<&weldfs_client>,
    name: *const c_char,
    dir: *mut *mut weldfs_dir,
) -> c_int {
    call(on("weldfs_opendir", name), || {
        hand_out(dir, || {
            let place = Mutex::new(Place::new(cookie::START));
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
        let file = dir.dir.as_file();
        let fetch = |cookie, room: &mut [u8]| file.raw().read_dir(file.handle(), cookie, room);
        let found = dir.place()?.next(false, fetch)?;
        Ok(found.map_or(0, |(found, _)| {
            put(entry, found);
            1
        }))
    }) as c_int
}

/// As weldfs_readdir, with the attributes of each entry (of a symbolic link itself): many of them in one crossing. 1
/// and the next entry in *entry and *stat, or 0 at the end. *error is 0, or -errno of this entry's attributes (-ENOENT
/// when it has gone meanwhile): *stat is zero then. Entry and attributes are not of one moment; the directory is not
/// locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_readdir_plus(
    dir: Option<&weldfs_dir>,
    entry: *mut weldfs_entry,
    stat: *mut weldfs_stat,
    error: *mut c_int,
) -> c_int {
    count("weldfs_readdir_plus", || {
        let dir = given(dir)?;
        if entry.is_null() || stat.is_null() || error.is_null() {
            return Err(Errno::INVAL.into());
        }
        let file = dir.dir.as_file();
        let fetch = |cookie, room: &mut [u8]| file.raw().read_dir_plus(file.handle(), cookie, room).map(|(n, _)| n);
        let Some((found, attributes)) = dir.place()?.next(true, fetch)? else { return Ok(0) };
        put(entry, found);
        match attributes.unwrap_or(Err(Errno::PROTO)) {
            Ok(body) => {
                put(stat, Metadata::from(body).into());
                put(error, 0);
            }
            Err(e) => {
                put(stat, weldfs_stat::default());
                put(error, -e.0);
            }
        }
        Ok(1)
    }) as c_int
}

/// seekdir(3): goes on after the entry whose `next` is given; 0: from the start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_seekdir(dir: Option<&weldfs_dir>, next: u64) -> c_int {
    call("weldfs_seekdir", || {
        *given(dir)?.place()? = Place::new(next);
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
