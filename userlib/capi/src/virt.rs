//! Virtual files.

use crate::boundary::{Fault, array, bytes, call, count, given, hand_out, misuse, on, path, put, room, text};
use crate::client::weldfs_client;
use crate::types::*;
use libc::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use weldfs::{Direction, Errno, OpenFlags, Process, VirtFile, VirtFound, VirtList, VirtRange, VirtSpec};
use weldfs_ciscops::limits::{VIRT_PARAMS_MAX, VIRT_RANGES_MAX};
use weldfs_locks::{Mutex, MutexGuard};

/// An open virtual file: a stream, which belongs to the open file description. It gets one of the drive's slots with
/// the first read or write. Any number of threads may use it at the same time, and take turns.
pub struct weldfs_vfile {
    file: VirtFile,
}

/// The virtual files of a tree, being listed. One thread at a time may use it.
pub struct weldfs_virt_walk {
    list: Mutex<Listing>,
    maker: Process,
}

struct Listing {
    found: VirtList,
    /// What the last entry's pointers point into.
    name: Vec<u8>,
    room: Vec<u64>,
}

fn spec(from: &weldfs_virt_spec) -> Result<VirtSpec, Fault> {
    if from.reserved0 != 0 || from.reserved != [0; 4] {
        return Err(misuse("weldfs_virt_spec: a reserved field is set"));
    }
    let direction = match from.flags {
        0 => Direction::Read,
        WELDFS_VIRT_WRITE => Direction::Write { cut: false },
        f if f == WELDFS_VIRT_WRITE | WELDFS_VIRT_TRUNCATE => Direction::Write { cut: true },
        _ => return Err(misuse("weldfs_virt_spec.flags: WELDFS_VIRT_WRITE, and with it WELDFS_VIRT_TRUNCATE")),
    };
    if from.param_count > VIRT_PARAMS_MAX || from.range_count > VIRT_RANGES_MAX {
        return Err(Fault::new(Errno::TOOBIG, "a spec has 4096 bytes at most, and 64 ranges"));
    }
    let kernel = text(from.kernel)?.to_str().map_err(|_| misuse("no kernel has such a name"))?.to_owned();
    let params = array(from.params, from.param_count)?.to_vec();
    let ranges = array(from.ranges, from.range_count)?.iter().enumerate();
    let ranges = ranges.map(|(i, r)| range(r).map_err(|fault| fault.of_one("range", i)));
    Ok(VirtSpec { kernel, params, direction, ranges: ranges.collect::<Result<_, _>>()? })
}

fn range(from: &weldfs_virt_range) -> Result<VirtRange, Fault> {
    if from.reserved != [0; 2] {
        return Err(misuse("weldfs_virt_range: a reserved field is set"));
    }
    let name = path(from.path)?.as_os_str().as_bytes();
    if name.first() != Some(&b'/') {
        return Err(misuse("the path does not begin with /"));
    }
    if from.length == 0 {
        return Err(misuse("no bytes"));
    }
    Ok(VirtRange { path: name.to_vec(), offset: from.offset, length: from.length })
}

/// Makes a virtual file: a name whose bytes a kernel makes in one of the drive's slots. It has an owner (who makes it;
/// weldfs_lchown changes it), permission bits (`mode`, less the umask) and times like any file, and stays over a
/// remount. The real files are looked for when it is opened, with the rights of who opens it.
///
/// Errors: -EEXIST; those of making a file; -EINVAL (a kernel's name of other letters, no range, a path that is not
/// absolute, several ranges with WELDFS_VIRT_WRITE), -E2BIG (more than 4096 bytes of spec, or 64 ranges), -EOPNOTSUPP
/// on a directory of the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_virt_register(
    client: Option<&weldfs_client>,
    name: *const c_char,
    mode: u32,
    wanted: Option<&weldfs_virt_spec>,
) -> c_int {
    call(on("weldfs_virt_register", name), || {
        let client = &given(client)?.client;
        Ok(client.virt_register(path(name)?, mode, &spec(given(wanted)?)?)?)
    })
}

/// What a virtual file streams. Its strings and arrays are put into `size` bytes at `memory`, to which *found points
/// then. Returns the bytes used. WELDFS_VIRT_ROOM bytes are always enough.
///
/// Errors: -EINVAL when it is no virtual file, -ERANGE when they do not fit, -EIO when the spec in the image is
/// damaged, -EACCES, those of paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_virt_describe(
    client: Option<&weldfs_client>,
    name: *const c_char,
    found: *mut weldfs_virt_spec,
    memory: *mut c_void,
    size: usize,
) -> i64 {
    count(on("weldfs_virt_describe", name), || {
        if found.is_null() {
            return Err(misuse("where to put the result is NULL"));
        }
        let said = given(client)?.client.virt_spec(path(name)?)?;
        let room = room(memory, size)?;
        let (described, used) = lay_out(&said, room)?;
        put(found, described);
        Ok(used as i64)
    })
}

/// Room that is handed out from the front.
struct Space {
    at: *mut u8,
    left: usize,
    used: usize,
}

impl Space {
    /// The next `len` bytes, at a multiple of `align`.
    fn take(&mut self, len: usize, align: usize) -> Result<*mut u8, Fault> {
        let skip = self.at.align_offset(align);
        let all = skip.saturating_add(len);
        if all > self.left {
            return Err(Errno::RANGE.into());
        }
        let at = self.at.wrapping_add(skip);
        (self.at, self.left, self.used) = (at.wrapping_add(len), self.left - all, self.used + all);
        Ok(at)
    }

    /// A copy of some `T`s.
    fn put<T: Copy>(&mut self, from: &[T]) -> Result<*const T, Fault> {
        let to = self.take(size_of_val(from), align_of::<T>())?.cast::<T>();
        // SAFETY: `take` gives as many bytes, inside the room and aligned, which nothing else has.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        Ok(to)
    }

    /// A copy of a string, with its NUL.
    fn put_text(&mut self, from: &[u8]) -> Result<*const c_char, Fault> {
        Ok(self.put(&[from, b"\0"].concat())?.cast())
    }
}

/// A spec as C has it, its strings and arrays in `room`; and the bytes used of that.
fn lay_out(spec: &VirtSpec, room: &mut [u8]) -> Result<(weldfs_virt_spec, usize), Fault> {
    let mut space = Space { at: room.as_mut_ptr(), left: room.len(), used: 0 };
    let paths = spec.ranges.iter().map(|r| space.put_text(&r.path)).collect::<Result<Vec<_>, _>>()?;
    let range = |(r, path): (&VirtRange, _)| {
        let (offset, length) = (r.offset, r.length);
        weldfs_virt_range { path, offset, length, reserved: [0; 2] }
    };
    let ranges: Vec<_> = spec.ranges.iter().zip(paths).map(range).collect();
    let described = weldfs_virt_spec {
        kernel: space.put_text(spec.kernel.as_bytes())?,
        params: space.put(&spec.params)?,
        param_count: spec.params.len(),
        ranges: space.put(&ranges)?,
        range_count: ranges.len(),
        flags: match spec.direction {
            Direction::Read => 0,
            Direction::Write { cut: false } => WELDFS_VIRT_WRITE,
            Direction::Write { cut: true } => WELDFS_VIRT_WRITE | WELDFS_VIRT_TRUNCATE,
        },
        reserved0: 0,
        reserved: [0; 4],
    };
    Ok((described, space.used))
}

/// Removes a virtual file, and nothing else. Its real files stay. The look at it and its removal are two commands.
///
/// Errors: -EINVAL for what is no virtual file (a symbolic link to one is none), those of unlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_virt_remove(client: Option<&weldfs_client>, name: *const c_char) -> c_int {
    call(on("weldfs_virt_remove", name), || Ok(given(client)?.client.virt_remove(path(name)?)?))
}

/// Begins to list the virtual files of a tree, or that one file itself. Symbolic links are followed at the top only.
/// On success *walk is to be given back with weldfs_virt_end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_virt_list(
    client: Option<&weldfs_client>,
    top: *const c_char,
    walk: *mut *mut weldfs_virt_walk,
) -> c_int {
    call(on("weldfs_virt_list", top), || {
        hand_out(walk, || {
            let found = given(client)?.client.virt_list(path(top)?);
            let list = Mutex::new(Listing { found, name: Vec::new(), room: Vec::new() });
            Ok(weldfs_virt_walk { list, maker: Process::current() })
        })
    })
}

/// The next virtual file: 1, with its path in *name and what it streams in *found, or 0 at the end. What they point to
/// is the walk's, until the next call. A negative result is that of one name, which *name is, and the walk goes on:
/// -EACCES (what that virtual file streams, or what is in that directory, may not be known), -EIO. *name is NULL at the
/// end, and where the walk itself is misused (-EINVAL, and in a forked child -EBADF).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_virt_next(
    walk: Option<&weldfs_virt_walk>,
    name: *mut *const c_char,
    found: *mut weldfs_virt_spec,
) -> c_int {
    count("weldfs_virt_next", || {
        if name.is_null() || found.is_null() {
            return Err(misuse("where to put the result is NULL"));
        }
        put(name, std::ptr::null());
        let mut listing = given(walk)?.listing()?;
        let Listing { found: list, name: kept, room } = &mut *listing;
        let Some(VirtFound { path, spec }) = list.next() else { return Ok(0) };
        *kept = path.into_os_string().into_encoded_bytes();
        kept.push(0);
        put(name, kept.as_ptr().cast());
        room.resize(WELDFS_VIRT_ROOM / size_of::<u64>(), 0);
        let (described, _) = lay_out(&spec?, zerocopy::IntoBytes::as_mut_bytes(&mut room[..]))?;
        put(found, described);
        Ok(1)
    }) as c_int
}

impl weldfs_virt_walk {
    /// EBADF in a forked child, where a thread of the parent may have left the lock taken.
    fn listing(&self) -> Result<MutexGuard<'_, Listing>, Errno> {
        if self.maker.is_current() { Ok(self.list.lock()) } else { Err(Errno::BADF) }
    }
}

/// Ends a listing. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_virt_end(walk: Option<Box<weldfs_virt_walk>>) {
    call("weldfs_virt_end", || {
        drop(walk);
        Ok(())
    });
}

/// Opens a virtual file: `flags` are O_RDONLY or O_WRONLY, as its spec has it, with O_NONBLOCK reads and writes are
/// -EBUSY while no slot is free, else they wait. The ranges of the real files are pinned until it is closed: what would
/// cut them off is -ETXTBSY. Any other file opens, too, and is read and written as such. On success *file is to be
/// given back with weldfs_vclose.
///
/// Errors: -EINVAL (O_CREAT, O_TMPFILE), -ENOENT (the name, a real file, or the kernel is not there), -ENODEV (the
/// kernel is not active), -EACCES (also: a real file is not for who opens this), -EPERM (the other direction), -ENODATA
/// (a real file ends before its range does), -EISDIR, -ELOOP (a real file is a virtual one), -EROFS, -EIO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_vopen(
    client: Option<&weldfs_client>,
    name: *const c_char,
    flags: c_int,
    file: *mut *mut weldfs_vfile,
) -> c_int {
    call(on("weldfs_vopen", name), || {
        hand_out(file, || {
            let client = &given(client)?.client;
            Ok(weldfs_vfile { file: client.vopen(path(name)?, OpenFlags::from_linux(flags))? })
        })
    })
}

/// The next bytes that the kernel makes, at most `len`: as many as there are without much delay. Returns them; 0 at
/// the end of the stream.
///
/// Errors: -EBUSY (no slot is free, with O_NONBLOCK), -ENOMEM (the tenant may have no more memory for the slot),
/// -EINVAL (the kernel refuses its parameters), -ENOSPC (it is too large for every slot), -EBADMSG (it refuses the
/// data), -EIO (it was lost), -ESTALE (a slot that others needed meanwhile is had again, and what was read before would
/// be other bytes now). After an error weldfs_vrewind begins anew.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_vread(file: Option<&weldfs_vfile>, into: *mut c_void, len: usize) -> i64 {
    count("weldfs_vread", || Ok(given(file)?.file.vread(room(into, len)?)? as i64))
}

/// Hands bytes to the kernel; what that makes goes to the real file, in pieces of at most 1 MiB. Returns the bytes
/// taken: all of them. What has got to the file is persistent with weldfs_vsync.
///
/// Errors: as weldfs_vread, and those of writing the real file; -EFBIG (the range has no more room), -ETIMEDOUT (the
/// slot went to others after 2 s without a write). An error ends the stream: each later write, vsync and the vclose
/// have it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_vwrite(file: Option<&weldfs_vfile>, from: *const c_void, len: usize) -> i64 {
    count("weldfs_vwrite", || Ok(given(file)?.file.vwrite(bytes(from, len)?)? as i64))
}

/// Ends the packet that was written: what the kernel makes of it is in the real file, and persistent. Returns the bytes
/// that have got to the range since the open; of a file that is read 0. What is written afterwards is another packet.
/// Errors as weldfs_vwrite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_vsync(file: Option<&weldfs_vfile>) -> i64 {
    count("weldfs_vsync", || counted(given(file)?.file.vsync()?))
}

/// Ends the packet as weldfs_vsync does, but for making it persistent, and closes. Returns the bytes that have got to
/// the range since the open; of a file that is read, and of NULL, 0. The object is gone whatever the result says. No
/// other call may use it at the same time or later. Errors as weldfs_vwrite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_vclose(file: Option<Box<weldfs_vfile>>) -> i64 {
    count("weldfs_vclose", || match file {
        Some(file) => counted(file.file.vclose()?),
        None => Ok(0),
    })
}

fn counted(bytes: u64) -> Result<i64, Fault> {
    Ok(i64::try_from(bytes).map_err(|_| Errno::OVERFLOW)?)
}

/// Begins to read anew: the slot is given back, and the next read is of a new stream. -ESPIPE for one
/// that has been written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_vrewind(file: Option<&weldfs_vfile>) -> c_int {
    call("weldfs_vrewind", || Ok(given(file)?.file.rewind()?))
}

/// Gives the next stream other parameters than the spec's; up to 4096 of them.
///
/// Errors: -EBUSY while a stream is under way (weldfs_vrewind or weldfs_vsync ends it), -E2BIG, -EINVAL for a file that
/// is no virtual one. Whether the kernel takes them the next read or write says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_send_params(
    file: Option<&weldfs_vfile>,
    params: *const u32,
    param_count: usize,
) -> c_int {
    call("weldfs_send_params", || Ok(given(file)?.file.send_params(array(params, param_count)?)?))
}
