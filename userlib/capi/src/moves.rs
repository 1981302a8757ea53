//! The catalogue: whole files copied, put together, replaced, made.

use crate::boundary::{Fault, HINTS, How, array, bytes, call, count, durability, given, hinted, misuse, on, path, put};
use crate::client::weldfs_client;
use crate::file::{place, weldfs_file};
use crate::fused::payload;
use crate::sums::{meet, raw};
use libc::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weldfs::catalogue::TreeNode;
use weldfs::{At, Durability, Errno, Handle};

/// Copies `len` bytes from `offset` of `from` to `at` (or WELDFS_END) of `to`, perhaps the same file, inside the
/// device: nothing crosses the link. Returns the bytes copied; fewer than asked for only where the source ends, or
/// where a later piece failed. Up to 16 MiB are one atomic command; more are several, in order, and others may come in
/// between.
///
/// Errors: -EINVAL when the two ranges are of one file and meet, -EBADF, -ENOSPC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_copy_range(
    from: Option<&weldfs_file>,
    offset: u64,
    len: u64,
    to: Option<&weldfs_file>,
    at: u64,
    how: u32,
) -> i64 {
    count("weldfs_copy_range", || {
        let (from, to) = (given(from)?, given(to)?);
        meet(from, to)?;
        let copied = raw(from, how)?.copy_range(from.file.handle(), offset, len, to.file.handle(), place(at))?;
        Ok(copied as i64)
    })
}

/// Appends `count` whole files, at most 4, in order, to `to`, as one command: all or nothing. *before and *after,
/// unless NULL: the size of `to`. The files have 16 MiB together at most, each its equal share of that (-E2BIG).
///
/// Errors: -EINVAL (none, or more than 4), -EBADF (`to` must be opened for both, the others for reading), -ENOSPC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_concat(
    from: *const *const weldfs_file,
    count: usize,
    to: Option<&weldfs_file>,
    how: u32,
    before: *mut u64,
    after: *mut u64,
) -> c_int {
    call("weldfs_concat", || {
        let to = given(to)?;
        let mut handles = Vec::new();
        for (i, file) in array(from, count)?.iter().enumerate() {
            let file = given(reference(*file)).and_then(|file| meet(file, to).map(|()| file));
            handles.push(file.map_err(|fault| fault.of_one("file", i))?.file.handle());
        }
        let (old, new) = raw(to, how)?.concat(&handles, to.file.handle())?;
        put(before, old);
        put(after, new);
        Ok(())
    })
}

/// An object that stands in an array of the caller's.
pub(crate) fn reference<'a, T>(object: *const T) -> Option<&'a T> {
    // SAFETY: NULL, or by the header an object of this library's that is not given back during the call.
    unsafe { object.as_ref() }
}

/// Gives `name` new content, durably and as a whole, as one command: after a crash the old content is there or the new,
/// and nothing else. What takes create, write, fsync, rename and an fsync of the directory elsewhere. `mode` is what
/// the file gets, less the umask; it is another inode afterwards. `temporary` is a name in the same directory that
/// nothing has, and that no client will ever see; NULL: the library finds one.
///
/// ```c
/// assert(weldfs_atomic_replace(client, "/motd", NULL, 0644, "today", 5) == 0);
/// ```
///
/// Errors: those of open and rename; -EEXIST when `temporary` exists, -E2BIG above the payload limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_atomic_replace(
    client: Option<&weldfs_client>,
    name: *const c_char,
    temporary: *const c_char,
    mode: u32,
    from: *const c_void,
    len: usize,
) -> c_int {
    call(on("weldfs_atomic_replace", name), || {
        let (client, name) = (&given(client)?.client, path(name)?);
        let (mode, data) = (client.masked(mode), payload(from, len)?);
        if !temporary.is_null() {
            let temporary = path(temporary)?.as_os_str().as_bytes();
            return Ok(client.raw().atomic_replace(Handle::ROOT, bytes_of(name), temporary, mode, data)?);
        }
        for attempt in 0u32.. {
            let temporary = beside(name, attempt);
            match client.raw().atomic_replace(Handle::ROOT, bytes_of(name), &temporary, mode, data) {
                Err(Errno::EXIST) if attempt < 100 => {}
                done => return Ok(done?),
            }
        }
        Ok(())
    })
}

fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// A name in the same directory. No other client ever sees it, so any that does not exist is good.
fn beside(name: &Path, attempt: u32) -> Vec<u8> {
    let name = bytes_of(name);
    let base = name.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    [&name[..base], format!(".weldfs-{attempt:x}").as_bytes()].concat()
}

/// weldfs_tree_node.kind: a directory.
pub const WELDFS_TREE_DIRECTORY: u32 = 0;
/// weldfs_tree_node.kind: a file.
pub const WELDFS_TREE_FILE: u32 = 1;
/// weldfs_tree_node.kind: a symbolic link.
pub const WELDFS_TREE_LINK: u32 = 2;

/// One thing that weldfs_create_tree makes. 48 bytes.
#[repr(C)]
pub struct weldfs_tree_node {
    /// WELDFS_TREE_ constant.
    pub kind: u32,
    /// Permission bits of a directory or file, less the umask.
    pub mode: u32,
    /// Its path, from the device's root.
    pub path: *const c_char,
    /// Content of a file, `len` bytes, or what a link says (`len` bytes, no NUL); NULL for a directory.
    pub content: *const c_void,
    /// Bytes of `content`.
    pub len: usize,
    /// Zero.
    pub reserved: [u64; 2],
}

/// Makes `count` directories, files with content and symbolic links, in the order given, as one command: all of them or
/// none. A small tree: a directory or link counts 1, a file 2, or 3 with content, up to 16 (-E2BIG above; then a
/// weldfs_batch makes it, not atomically).
///
/// Errors: -EEXIST when one exists; those of mkdir, symlink, open and write. weldfs_last_error names the node (from 0)
/// that cannot be one; the device does not say which node it failed at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_create_tree(
    client: Option<&weldfs_client>,
    nodes: *const weldfs_tree_node,
    count: usize,
    how: u32,
) -> c_int {
    call("weldfs_create_tree", || {
        let client = &given(client)?.client;
        let mut tree = Vec::new();
        for (i, node) in array(nodes, count)?.iter().enumerate() {
            tree.push(tree_node(node, client).map_err(|fault| fault.of_one("node", i))?);
        }
        Ok(How::new(how)?.of(client.raw()).create_tree(Handle::ROOT, &tree)?)
    })
}

fn tree_node<'a>(node: &weldfs_tree_node, client: &weldfs::Client) -> Result<TreeNode<'a>, Fault> {
    if node.reserved != [0; 2] {
        return Err(misuse("weldfs_tree_node: a reserved field is set"));
    }
    let (path, mode) = (path(node.path)?.as_os_str().as_bytes(), client.masked(node.mode));
    match node.kind {
        WELDFS_TREE_DIRECTORY if node.len == 0 => Ok(TreeNode::Directory { path, mode }),
        WELDFS_TREE_FILE => Ok(TreeNode::File { path, mode, content: payload(node.content, node.len)? }),
        WELDFS_TREE_LINK => Ok(TreeNode::Link { path, target: bytes(node.content, node.len)? }),
        _ => Err(misuse("weldfs_tree_node: no such kind, or a directory with content")),
    }
}

/// One write of weldfs_multi_write. 40 bytes.
#[repr(C)]
pub struct weldfs_write_item {
    /// The file, opened for writing.
    pub file: *const weldfs_file,
    /// Bytes to write.
    pub from: *const c_void,
    /// How many; at most the payload limit.
    pub len: usize,
    /// Where, or WELDFS_END.
    pub offset: u64,
    /// Zero.
    pub reserved: u64,
}

/// Writes to several files of one client as one command: after a failure or a crash all of it is there or nothing, and
/// others see it together. Files (at most 8) and writes together are at most 16, else -E2BIG: then use
/// weldfs_txn_begin. All files must be of one client.
///
/// Errors: those of write, which leave nothing; weldfs_last_error names the item (from 0) where one is to blame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_multi_write(writes: *const weldfs_write_item, count: usize, how: u32) -> c_int {
    call("weldfs_multi_write", || {
        let (mut all, mut first) = (Vec::new(), None);
        for (i, item) in array(writes, count)?.iter().enumerate() {
            all.push(write_item(item, &mut first).map_err(|fault| fault.of_one("item", i))?);
        }
        let Some(first) = first else { return Ok(()) };
        raw(first, how)?.multi_write_by_item(&all).map_err(|fault| match fault.item {
            Some(i) => Fault::from(fault.errno).of_one("item", i),
            None => fault.errno.into(),
        })
    })
}

pub(crate) type WriteItem<'a> = (Handle, At, &'a [u8]);

/// One write of several, to a file of the same client as the first one's.
pub(crate) fn write_item<'a>(
    item: &weldfs_write_item,
    first: &mut Option<&'a weldfs_file>,
) -> Result<WriteItem<'a>, Fault> {
    let file = given(reference(item.file))?;
    if item.reserved != 0 {
        return Err(misuse("weldfs_write_item: a reserved field is set"));
    }
    meet(first.get_or_insert(file), file)?;
    Ok((file.file.handle(), place(item.offset), payload(item.from, item.len)?))
}

/// A transaction that the device collects: writes to any files of one client, which happen together or not at all.
///
/// Nothing of it is seen before the commit, or waited for. It ends with the commit or abort, and with the
/// session. Any number of threads may write to it at the same time.
pub struct weldfs_txn {
    pub(crate) txn: weldfs::Transaction,
}

/// Begins a transaction. On success *txn is to be given to weldfs_txn_commit or weldfs_txn_abort.
///
/// Errors: -EMFILE when the session has 64 of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_txn_begin(client: Option<&weldfs_client>, txn: *mut *mut weldfs_txn) -> c_int {
    call("weldfs_txn_begin", || {
        crate::boundary::hand_out(txn, || Ok(weldfs_txn { txn: given(client)?.client.transaction()? }))
    })
}

/// Logs a write of `len` bytes to `file` at `offset` (or WELDFS_END: as it is at the commit): the bytes are the
/// device's now, and the file may be closed before the commit. To edit what was logged, write over it: the later write
/// counts. Returns how many writes are logged; above 1 MiB the data is several.
///
/// Errors: -EBADF (not opened for writing; of another session), -E2BIG (256 writes, 4 MiB in all), -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_txn_write(
    txn: Option<&weldfs_txn>,
    file: Option<&weldfs_file>,
    from: *const c_void,
    len: usize,
    offset: u64,
) -> i64 {
    count("weldfs_txn_write", || {
        let (txn, file) = (given(txn)?, given(file)?);
        Ok(txn.txn.write(&file.file, place(offset), bytes(from, len)?)? as i64)
    })
}

/// Makes all of it happen, in the order in which it was written, visible at once. `durable` is WELDFS_DEFAULT,
/// WELDFS_VOLATILE or WELDFS_DURABLE, with hints for all that is written added. Returns the bytes written. `txn` is
/// given back, whatever comes of it; no other call may use it at the same time or later.
///
/// Errors: those of write; -E2BIG (more than 16 files, or more than fits the log). An error leaves nothing, except for
/// -EIO (the device died: all of it or nothing).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_txn_commit(txn: Option<Box<weldfs_txn>>, durable: u32) -> i64 {
    count("weldfs_txn_commit", || {
        let txn = given(txn)?.txn.hints(hinted(durable & HINTS)?);
        Ok(match durability(durable & !HINTS)? {
            Durability::Default => txn.commit()?,
            chosen => txn.commit_with(chosen)?,
        } as i64)
    })
}

/// Gives a transaction back and forgets what it logged; NULL does nothing. No other call may use it at the same time or
/// later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_txn_abort(txn: Option<Box<weldfs_txn>>) -> c_int {
    call("weldfs_txn_abort", || match txn {
        Some(txn) => Ok(txn.txn.abort()?),
        None => Ok(()),
    })
}
