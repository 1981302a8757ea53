//! Many operations in one crossing: batches, attributes of many names, listings with attributes.

use crate::boundary::{
    Fault, HINTS, array, array_mut, call, count, durability, given, hand_out, hinted, misuse, on, path, put, room,
};
use crate::client::weldfs_client;
use crate::file::{place, weldfs_file};
use crate::fused::{payload, space};
use crate::types::*;
use libc::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use weldfs::{At, Batch, Client, Errno, Handle, Metadata, OpenFlags};
use weldfs_ciscops::interp::CREATED;
use weldfs_ciscops::limits::BATCH_MAX;
use weldfs_ciscops::{Cqe, StatBody};
use zerocopy::FromZeros;

/// Operations that go to the device together, and come back with a result each. One thread uses it at a time.
pub struct weldfs_batch {
    client: Client,
    /// The session of the files that it names; 0: it names none yet.
    session: u64,
    items: Vec<Item>,
}

/// One operation as it was added; addresses are the program's, until it has run.
struct Item {
    path: Vec<u8>,
    what: What,
}

enum What {
    OpenWriteClose { flags: c_int, mode: u32, at: At, from: (usize, usize) },
    OpenReadClose { flags: c_int, offset: u64, into: (usize, usize) },
    OpenReadWriteClose { flags: c_int, mode: u32, old: (u64, usize, usize), at: At, from: (usize, usize) },
    Read { h: Handle, offset: u64, into: (usize, usize) },
    Write { h: Handle, at: At, from: (usize, usize) },
    Stat { nofollow: bool, stat: usize },
    Mkdir { mode: u32 },
    Unlink,
}

/// What one operation of a batch did. 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct weldfs_result {
    /// Negative: -errno. Else what the call of the same name returns (bytes, mostly).
    pub result: i64,
    /// Where a write began.
    pub value: u64,
    /// 1: the operation made the file.
    pub created: u8,
    /// Zero.
    pub reserved: [u8; 15],
}

/// Makes an empty batch. On success *batch is to be given back with weldfs_batch_destroy.
///
/// The weldfs_batch_ functions below add an operation, whose arguments are those of the call that it is named after;
/// they return 0, -EINVAL, -E2BIG, or -EBADF (files of two sessions), and then add nothing. Memory that they name must
/// stay, and belongs to the batch, until it has run or was cleared. Strings are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_batch_create(client: Option<&weldfs_client>, batch: *mut *mut weldfs_batch) -> c_int {
    call("weldfs_batch_create", || {
        hand_out(batch, || Ok(weldfs_batch { client: given(client)?.client.clone(), session: 0, items: Vec::new() }))
    })
}

/// Gives a batch back; NULL does nothing. What it holds is not run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_batch_destroy(batch: Option<Box<weldfs_batch>>) {
    call("weldfs_batch_destroy", || {
        drop(batch);
        Ok(())
    });
}

/// Forgets the operations of a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_batch_clear(batch: Option<&mut weldfs_batch>) -> c_int {
    call("weldfs_batch_clear", || {
        given(batch)?.clear();
        Ok(())
    })
}

/// Operations in a batch; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_batch_len(batch: Option<&weldfs_batch>) -> usize {
    batch.map_or(0, |batch| batch.items.len())
}

impl weldfs_batch {
    fn clear(&mut self) {
        self.items.clear();
        self.session = 0;
    }

    fn add(&mut self, path: &[u8], what: What) {
        self.items.push(Item { path: path.to_vec(), what });
    }

    fn on(&mut self, file: Option<&weldfs_file>) -> Result<Handle, Fault> {
        let file = &given(file)?.file;
        if self.session != 0 && self.session != file.session() {
            return Err(Errno::BADF.into());
        }
        self.session = file.session();
        Ok(file.handle())
    }
}

fn name<'a>(from: *const c_char) -> Result<&'a [u8], Fault> {
    Ok(path(from)?.as_os_str().as_bytes())
}

/// The address of bytes to send, checked as the call does that sends them.
fn source(from: *const c_void, len: usize) -> Result<(usize, usize), Fault> {
    payload(from, len).map(|_| (from as usize, len))
}

fn target(into: *mut c_void, len: usize) -> Result<(usize, usize), Fault> {
    space(into, len).map(|_| (into as usize, len))
}

/// Adds weldfs_open_write_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_batch_open_write_close(
    batch: Option<&mut weldfs_batch>,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    from: *const c_void,
    len: usize,
    offset: u64,
) -> c_int {
    call(on("weldfs_batch_open_write_close", path), || {
        let from = source(from, len)?;
        given(batch)?.add(name(path)?, What::OpenWriteClose { flags, mode, at: place(offset), from });
        Ok(())
    })
}

/// Adds weldfs_open_read_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_batch_open_read_close(
    batch: Option<&mut weldfs_batch>,
    path: *const c_char,
    flags: c_int,
    into: *mut c_void,
    len: usize,
    offset: u64,
) -> c_int {
    call(on("weldfs_batch_open_read_close", path), || {
        let into = target(into, len)?;
        given(batch)?.add(name(path)?, What::OpenReadClose { flags, offset, into });
        Ok(())
    })
}

/// Adds weldfs_open_read_write_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_batch_open_read_write_close(
    batch: Option<&mut weldfs_batch>,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    old: *mut c_void,
    old_len: usize,
    old_offset: u64,
    from: *const c_void,
    len: usize,
    offset: u64,
) -> c_int {
    call(on("weldfs_batch_open_read_write_close", path), || {
        let ((old, old_len), from) = (target(old, old_len)?, source(from, len)?);
        let old = (old_offset, old, old_len);
        given(batch)?.add(name(path)?, What::OpenReadWriteClose { flags, mode, old, at: place(offset), from });
        Ok(())
    })
}

/// Adds weldfs_pread of at most one payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_batch_pread(
    batch: Option<&mut weldfs_batch>,
    file: Option<&weldfs_file>,
    into: *mut c_void,
    len: usize,
    offset: u64,
) -> c_int {
    call("weldfs_batch_pread", || {
        let (batch, into) = (given(batch)?, target(into, len)?);
        let h = batch.on(file)?;
        batch.add(b"", What::Read { h, offset, into });
        Ok(())
    })
}

/// Adds weldfs_pwrite (WELDFS_END: an append) of at most one payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_batch_pwrite(
    batch: Option<&mut weldfs_batch>,
    file: Option<&weldfs_file>,
    from: *const c_void,
    len: usize,
    offset: u64,
) -> c_int {
    call("weldfs_batch_pwrite", || {
        let (batch, from) = (given(batch)?, source(from, len)?);
        let h = batch.on(file)?;
        batch.add(b"", What::Write { h, at: place(offset), from });
        Ok(())
    })
}

/// Adds weldfs_stat_path, or with `nofollow` other than 0 weldfs_lstat_path: result 0, and *stat is filled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_batch_stat(
    batch: Option<&mut weldfs_batch>,
    path: *const c_char,
    nofollow: c_int,
    stat: *mut weldfs_stat,
) -> c_int {
    call(on("weldfs_batch_stat", path), || {
        if stat.is_null() {
            return Err(misuse("where to put the attributes is NULL"));
        }
        given(batch)?.add(name(path)?, What::Stat { nofollow: nofollow != 0, stat: stat as usize });
        Ok(())
    })
}

/// Adds weldfs_mkdir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_batch_mkdir(batch: Option<&mut weldfs_batch>, path: *const c_char, mode: u32) -> c_int {
    call(on("weldfs_batch_mkdir", path), || {
        given(batch)?.add(name(path)?, What::Mkdir { mode });
        Ok(())
    })
}

/// Adds weldfs_unlink.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_batch_unlink(batch: Option<&mut weldfs_batch>, path: *const c_char) -> c_int {
    call(on("weldfs_batch_unlink", path), || {
        given(batch)?.add(name(path)?, What::Unlink);
        Ok(())
    })
}

/// Runs the operations in order, and empties the batch. At most 256 of them, and a MiB of operands, are one command;
/// more are several. Nothing is atomic about it: each operation is a command of its own, with its own result in
/// `results` (an array of `max`, at least as many as there are operations), and others may come in between. `durable`
/// is WELDFS_DEFAULT, WELDFS_VOLATILE or WELDFS_DURABLE for all, and hints for all added to that; those of the files do
/// not count. Durable operations wait for the medium once, together. Returns how many operations failed.
///
/// Errors, for the whole: -EIO (the device died: some may have run), -ENODEV, -ENOMEM, -EINVAL (`max` is too small:
/// none has run, and the batch is as it was).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_batch_run(
    batch: Option<&mut weldfs_batch>,
    durable: u32,
    results: *mut weldfs_result,
    max: usize,
) -> i64 {
    count("weldfs_batch_run", || {
        let batch = given(batch)?;
        let (durability, hints) = (durability(durable & !HINTS)?, hinted(durable & HINTS)?);
        if max < batch.items.len() {
            return Err(misuse("there is room for fewer results than there are operations"));
        }
        let results = array_mut(results, batch.items.len())?;
        let (client, items) = (batch.client.clone(), std::mem::take(&mut batch.items));
        let session = std::mem::take(&mut batch.session);
        let raw = match durability {
            weldfs::Durability::Default => client.raw().hints(hints),
            chosen => client.raw().durability(chosen).hints(hints),
        };
        let mut bodies = vec![StatBody::new_zeroed(); items.len()];
        let mut sent = raw.of_session(session).batch();
        for (item, body) in items.iter().zip(&mut bodies) {
            item.add_to(&mut sent, &client, body)?;
        }
        let done = sent.run()?;
        let mut failed = 0;
        for (((cqe, item), body), result) in done.iter().zip(&items).zip(bodies).zip(results) {
            *result = item.result(cqe, body);
            failed += i64::from(result.result < 0);
        }
        Ok(failed)
    })
}

impl Item {
    fn add_to<'d>(&'d self, batch: &mut Batch<'_, 'd>, client: &Client, body: &'d mut StatBody) -> Result<(), Fault> {
        let (root, path) = (Handle::ROOT, &self.path[..]);
        let bytes = |(at, len): (usize, usize)| payload(at as *const c_void, len);
        let room = |(at, len): (usize, usize)| room(at as *mut c_void, len);
        match self.what {
            What::OpenWriteClose { flags, mode, at, from } => {
                let flags = OpenFlags::from_linux(flags);
                batch.open_write_close(root, path, flags, client.masked(mode), at, bytes(from)?)
            }
            What::OpenReadClose { flags, offset, into } => {
                batch.open_read_close(root, path, OpenFlags::from_linux(flags), offset, room(into)?)
            }
            What::OpenReadWriteClose { flags, mode, old: (offset, old, len), at, from } => {
                let (flags, old) = (OpenFlags::from_linux(flags), (offset, room((old, len))?));
                batch.open_read_write_close(root, path, flags, client.masked(mode), old, (at, bytes(from)?))
            }
            What::Read { h, offset, into } => batch.read(h, At::Offset(offset), room(into)?),
            What::Write { h, at, from } => batch.write(h, at, bytes(from)?),
            What::Stat { nofollow, .. } => batch.stat(root, path, nofollow, body),
            What::Mkdir { mode } => batch.mkdir(root, path, client.masked(mode)),
            What::Unlink => batch.unlink(root, path),
        };
        Ok(())
    }

    fn result(&self, cqe: &Cqe, body: StatBody) -> weldfs_result {
        let failed = cqe.status != 0;
        let mut result = weldfs_result { result: -i64::from(cqe.status), ..weldfs_result::default() };
        match self.what {
            _ if failed => {}
            What::Stat { stat, .. } => {
                put(stat as *mut weldfs_stat, Metadata::from(body).into());
                result.result = 0;
            }
            What::Mkdir { .. } | What::Unlink => result.result = 0,
            What::OpenWriteClose { .. } | What::OpenReadWriteClose { .. } => {
                result.result = cqe.result as i64;
                result.value = cqe.result2 & !CREATED;
                result.created = u8::from(cqe.result2 & CREATED != 0);
            }
            What::Read { .. } | What::OpenReadClose { .. } => result.result = cqe.result as i64,
            What::Write { .. } => (result.result, result.value) = (cqe.result as i64, cqe.result2),
        }
        result
    }
}

/// Attributes of `count` names, 256 in a command: of what a final symbolic link names, or with `nofollow` other than 0
/// of itself. `stats` and `errors` are arrays of `count`: errors[i] is 0 and stats[i] filled, or errors[i] is -errno.
/// Returns how many failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_stat_many(
    client: Option<&weldfs_client>,
    paths: *const *const c_char,
    count: usize,
    nofollow: c_int,
    stats: *mut weldfs_stat,
    errors: *mut c_int,
) -> i64 {
    crate::boundary::count("weldfs_stat_many", || {
        let client = &given(client)?.client;
        let each = array(paths, count)?.iter().enumerate();
        let names = each.map(|(i, from)| name(*from).map_err(|fault| fault.of_one("path", i)));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let (stats, errors) = (array_mut(stats, count)?, array_mut(errors, count)?);
        let mut failed = 0;
        for (found, (stat, error)) in
            client.raw().stat_many(Handle::ROOT, &names, nofollow != 0)?.into_iter().zip(stats.iter_mut().zip(errors))
        {
            *error = 0;
            match found {
                Ok(body) => *stat = Metadata::from(body).into(),
                Err(e) => (*error, failed) = (-e.0, failed + 1),
            }
        }
        Ok(failed)
    })
}
const _: () = assert!(BATCH_MAX == 256 && size_of::<weldfs_result>() == 32);
