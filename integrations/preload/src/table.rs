//! Descriptors of this process that stand for files in the device, by number. Lookups take no lock.
//!
//! The kernel owns the numbers: each is a placeholder descriptor, so `dup`, CLOEXEC, limits and inheritance are the
//! kernel's. The table only says which open file each number shares. Entries are recycled, never freed: a program
//! that closes a descriptor in one thread while using it in another gets the same race as with the kernel.

use crate::abi::Res;
use crate::place::Place;
use crate::promotion::Promotion;
use crate::reader::Reader;
use std::cell::Cell;
use std::collections::HashSet;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::LocalKey;
use weldfs::{Brought, Lease, Look};
use weldfs_ciscops::Handle;
use weldfs_ciscops::flags::OpenFlags;
use weldfs_locks::{Mutex, MutexGuard};

/// Highest descriptor number plus one that can stand for a device file.
pub const FDS_MAX: usize = 1 << 16;

static TABLE: [AtomicPtr<Open>; FDS_MAX] = [const { AtomicPtr::new(null_mut()) }; FDS_MAX];
static SPARE: Mutex<Vec<&'static Open>> = Mutex::new(Vec::new());
/// Counts processes down a line of forks: a handle is this session's only if it was got in this process.
static PROCESS: AtomicU32 = AtomicU32::new(1);
/// Open files whose descriptors stand for them in this process alone.
static ALONE: AtomicUsize = AtomicUsize::new(0);
/// The highest number that ever stood for a device file.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// Held while what a number of ours means is changed in the table and for the kernel.
static NUMBERS: Mutex<()> = Mutex::new(());
thread_local! {
    static HOLDS_NUMBERS: Cell<bool> = const { Cell::new(false) };
}
/// One claim at a time, so that two threads cannot both turn the same inherited descriptor into a handle.
static CLAIM: Mutex<()> = Mutex::new(());

/// An open file description as this process knows it, shared by the descriptors that dup made.
pub struct Open {
    handle: AtomicU64,
    /// `PROCESS` when `handle` was got; 0 = inherited and not claimed yet.
    owner: AtomicU32,
    /// Descriptors of this process that share it.
    refs: AtomicU32,
    /// Whether its descriptors are its own placeholder, by which other processes find it.
    shared: AtomicBool,
    /// Status and access flags (`OpenFlags`), as last seen by this process.
    pub flags: AtomicU32,
    /// Cursor of raw getdents64 calls.
    pub cursor: AtomicU64,
    /// Name it was opened by, inside the device; empty when unknown.
    name: Mutex<Vec<u8>>,
    /// The right to change it without waiting, and whether there is one.
    lease: Mutex<Option<Arc<Lease>>>,
    leased: AtomicBool,
    /// What came with its open, and whether that may still be of use.
    look: Mutex<Option<Arc<Look>>>,
    looked: AtomicBool,
    /// Whether the device takes its close without an answer that is waited for.
    posts: AtomicBool,
    /// How it is read, and how long it was when it was opened (`u64::MAX`: not known).
    reader: Mutex<Reader>,
    size: AtomicU64,
    /// Its offset.
    pub place: Place,
    /// What is known of it at the mount (`promote`).
    pub kernel: Promotion,
}

impl Open {
    /// Name it was opened by (absolute, inside the device), if known.
    pub fn name(&self) -> Option<Vec<u8>> {
        let name = self.name.lock();
        (!name.is_empty()).then(|| name.clone())
    }

    /// The right to change it without waiting, if this process has it and no other thread is just here: nothing is
    /// waited for, for a handler of a signal may be where its thread was, and a child has what its parent held.
    #[inline]
    pub fn lease(&self) -> Option<Arc<Lease>> {
        if !self.leased.load(Ordering::Acquire) {
            return None;
        }
        self.lease.try_lock()?.clone()
    }

    /// Whether something came with its open that may still be true.
    #[inline]
    pub fn has_look(&self) -> bool {
        self.looked.load(Ordering::Relaxed)
    }

    /// What came with its open, if that is still true; and if no other thread is just here, as with the lease.
    #[inline]
    pub fn look(&self) -> Option<Arc<Look>> {
        if !self.looked.load(Ordering::Acquire) {
            return None;
        }
        let mut place = self.look.try_lock()?;
        let look = place.clone()?;
        if look.is_current() {
            return Some(look);
        }
        self.looked.store(false, Ordering::Release);
        *place = None;
        None
    }

    /// This process changes the file, or is no longer the only one that has it open so.
    pub fn end_look(&self) {
        self.looked.store(false, Ordering::Release);
    }

    fn set_look(&self, look: Option<Arc<Look>>) {
        self.looked.store(false, Ordering::Release);
        let Some(mut place) = self.look.try_lock() else { return };
        let before = std::mem::replace(&mut *place, look);
        self.looked.store(place.is_some(), Ordering::Release);
        drop(place);
        // A thread that reads by it has its own share of it.
        before.inspect(|look| look.end());
    }

    /// How it is read, if no other thread is just here, as with the lease.
    #[inline]
    pub fn reader(&self) -> Option<MutexGuard<'_, Reader>> {
        self.reader.try_lock()
    }

    /// How long it was when it was opened, bytes, if that came along: of an ordinary file, that is.
    pub fn size(&self) -> Option<u64> {
        Some(self.size.load(Ordering::Relaxed)).filter(|size| *size != u64::MAX)
    }

    /// Access and status flags, as last seen by this process.
    pub fn status(&self) -> OpenFlags {
        OpenFlags::from_bits_truncate(self.flags.load(Ordering::Relaxed) as u16)
    }

    fn set_lease(&self, lease: Option<Arc<Lease>>) -> Option<Arc<Lease>> {
        if lease.is_none() && !self.leased.load(Ordering::Relaxed) {
            return None;
        }
        self.leased.store(false, Ordering::Release);
        let mut place = self.lease.try_lock()?;
        let before = std::mem::replace(&mut *place, lease);
        self.leased.store(place.is_some(), Ordering::Release);
        before
    }

    /// The handle, if this process has one already.
    pub fn claimed(&self) -> Option<Handle> {
        let mine = self.owner.load(Ordering::Acquire) == PROCESS.load(Ordering::Relaxed);
        mine.then(|| Handle::from_wire(self.handle.load(Ordering::Acquire)))
    }
}

/// The entry of a descriptor; `None` for the kernel's own files.
#[inline]
pub fn entry(fd: i32) -> Option<&'static Open> {
    let slot = TABLE.get(fd as usize)?;
    // SAFETY: slots hold null or a leaked entry.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

/// Whether a descriptor is one of ours.
#[inline]
pub fn ours(fd: i32) -> bool {
    entry(fd).is_some()
}

/// This session's handle behind a descriptor's entry, claimed by `claim` if it was inherited.
#[inline]
pub fn handle_of(fd: i32, open: &Open, claim: impl FnOnce(i32) -> Res<(Handle, u32)>) -> Res<Handle> {
    match open.claimed() {
        Some(handle) => Ok(handle),
        None => take_over(fd, open, claim),
    }
}

#[cold]
fn take_over(fd: i32, open: &Open, claim: impl FnOnce(i32) -> Res<(Handle, u32)>) -> Res<Handle> {
    let _one = CLAIM.lock();
    if let Some(handle) = open.claimed() {
        return Ok(handle);
    }
    let (handle, flags) = claim(fd)?;
    open.flags.store(flags, Ordering::Relaxed);
    open.handle.store(handle.to_wire(), Ordering::Release);
    open.owner.store(PROCESS.load(Ordering::Relaxed), Ordering::Release);
    Ok(handle)
}

fn fresh() -> &'static Open {
    if let Some(spare) = SPARE.lock().pop() {
        return spare;
    }
    Box::leak(Box::new(Open {
        handle: AtomicU64::new(0),
        owner: AtomicU32::new(0),
        refs: AtomicU32::new(0),
        shared: AtomicBool::new(false),
        flags: AtomicU32::new(0),
        cursor: AtomicU64::new(0),
        name: Mutex::new(Vec::new()),
        lease: Mutex::new(None),
        leased: AtomicBool::new(false),
        look: Mutex::new(None),
        looked: AtomicBool::new(false),
        posts: AtomicBool::new(false),
        reader: Mutex::new(Reader::new()),
        size: AtomicU64::new(u64::MAX),
        place: Place::new(),
        kernel: Promotion::new(),
    }))
}

fn place(fd: i32, open: &'static Open) -> Res<()> {
    let slot = TABLE.get(fd as usize).ok_or(libc::EMFILE)?;
    HIGHEST.fetch_max(fd as usize, Ordering::Relaxed);
    open.refs.fetch_add(1, Ordering::Relaxed);
    let before = slot.swap(std::ptr::from_ref(open).cast_mut(), Ordering::AcqRel);
    // SAFETY: slots hold null or a leaked entry.
    if let Some(before) = unsafe { before.as_ref() } {
        release(before);
    }
    Ok(())
}

/// Notes that `fd` stands for `handle` (`None`: inherited, to be claimed at first use).
pub fn insert(fd: i32, handle: Option<(Handle, u32)>, name: &[u8]) -> Res<()> {
    insert_with(fd, handle, name, None)
}

/// The same of one that was just opened, with what came along.
pub fn insert_opened(fd: i32, brought: &Brought, flags: u32, name: &[u8]) -> Res<()> {
    insert_with(fd, Some((brought.opened.handle, flags)), name, Some(brought))
}

fn insert_with(fd: i32, handle: Option<(Handle, u32)>, name: &[u8], brought: Option<&Brought>) -> Res<()> {
    let open = fresh();
    drop(open.set_lease(brought.and_then(|b| b.lease.clone())));
    let look = brought.and_then(|b| b.look.clone());
    open.posts.store(look.is_some() && brought.is_some_and(|b| b.lease.is_none()), Ordering::Relaxed);
    let regular = |look: &&Arc<Look>| look.attributes().mode & libc::S_IFMT == libc::S_IFREG;
    let file = look.as_ref().filter(regular);
    open.size.store(file.map_or(u64::MAX, |look| look.attributes().size), Ordering::Relaxed);
    open.place.begin(file.is_some() && reads_only(handle));
    open.set_look(look);
    let (handle, flags) = (handle.map(|h| h.0), handle.map_or(0, |h| h.1));
    open.flags.store(flags, Ordering::Relaxed);
    open.handle.store(handle.map_or(0, Handle::to_wire), Ordering::Relaxed);
    open.owner.store(handle.map_or(0, |_| PROCESS.load(Ordering::Relaxed)), Ordering::Release);
    open.cursor.store(0, Ordering::Relaxed);
    // An inherited one is a placeholder.
    open.shared.store(true, Ordering::Relaxed);
    open.kernel.begin(handle.is_none());
    let mut place_name = open.name.lock();
    place_name.clear();
    place_name.extend_from_slice(name);
    drop(place_name);
    if handle.is_some() {
        ALONE.fetch_add(1, Ordering::Relaxed);
        open.shared.store(false, Ordering::Release);
    }
    place(fd, open).inspect_err(|_| {
        if !open.shared.swap(true, Ordering::AcqRel) {
            ALONE.fetch_sub(1, Ordering::Relaxed);
        }
        SPARE.lock().push(open);
    })
}

/// Whether what is opened so is only read: then its offset is moved by reads and seeks alone.
fn reads_only(handle: Option<(Handle, u32)>) -> bool {
    handle.is_some_and(|(_, flags)| !OpenFlags::from_bits_truncate(flags as u16).contains(OpenFlags::WRITE))
}

/// Notes that `new` is a duplicate of `old`.
pub fn share(old: i32, new: i32) -> Res<()> {
    match entry(old) {
        Some(open) => place(new, open),
        None => Ok(()),
    }
}

/// Drops one descriptor's share; the handle to close at the device when it was the last and this process has one.
fn release(open: &'static Open) -> Option<Last> {
    if open.refs.fetch_sub(1, Ordering::AcqRel) != 1 {
        return None;
    }
    let handle = open.claimed();
    open.owner.store(0, Ordering::Release);
    let alone = !open.shared.swap(true, Ordering::Relaxed);
    if alone {
        ALONE.fetch_sub(1, Ordering::Relaxed);
    }
    // What other processes may have is closed when it is closed.
    let lease = open.set_lease(None).filter(|_| alone);
    let posts = open.posts.swap(false, Ordering::Relaxed) && alone;
    open.place.begin(false);
    open.set_look(None);
    let handle = handle.map(|handle| Last { handle, lease, posts });
    open.kernel.end();
    SPARE.lock().push(open);
    handle
}

/// What closing a descriptor leaves to do.
#[derive(Debug)]
pub enum Gone {
    /// It was the kernel's own.
    NotOurs,
    /// Other descriptors share the open file, or this process never had a handle on it.
    Shared,
    /// The last one: close its handle at the device.
    Last(Last),
}

/// An open file whose last descriptor is gone.
#[derive(Debug, Clone)]
pub struct Last {
    /// To be closed.
    pub handle: Handle,
    /// The right to do so without waiting, and to change it before.
    pub lease: Option<Arc<Lease>>,
    /// The right to do so without waiting, where there is no lease.
    pub posts: bool,
}

/// Forgets a descriptor.
pub fn remove(fd: i32) -> Gone {
    let Some(slot) = TABLE.get(fd as usize) else { return Gone::NotOurs };
    if slot.load(Ordering::Relaxed).is_null() {
        return Gone::NotOurs;
    }
    // SAFETY: slots hold null or a leaked entry.
    match unsafe { slot.swap(null_mut(), Ordering::AcqRel).as_ref() } {
        None => Gone::NotOurs,
        Some(open) => release(open).map_or(Gone::Shared, Gone::Last),
    }
}

/// Every descriptor of ours from `first` to `last`.
pub fn each(first: u32, last: u32, mut visit: impl FnMut(i32)) {
    let last = (last as usize).min(FDS_MAX - 1);
    let last = last.min(HIGHEST.load(Ordering::Relaxed));
    for (fd, slot) in TABLE.iter().enumerate().take(last + 1).skip(first as usize) {
        if !slot.load(Ordering::Relaxed).is_null() {
            visit(fd as i32);
        }
    }
}

/// Whether any open file is this process's alone.
pub fn any_alone() -> bool {
    ALONE.load(Ordering::Relaxed) != 0
}

/// Whether a descriptor's file is.
pub fn is_alone(fd: i32) -> bool {
    entry(fd).is_some_and(|open| !open.shared.load(Ordering::Relaxed))
}

/// Those that are, by one descriptor each, with their handles.
pub fn alone() -> Vec<(&'static Open, Handle)> {
    let (mut all, mut seen) = (Vec::new(), HashSet::new());
    let mut left = ALONE.load(Ordering::Relaxed);
    for slot in TABLE.iter().take(HIGHEST.load(Ordering::Relaxed) + 1) {
        if left == 0 {
            break;
        }
        // SAFETY: slots hold null or a leaked entry.
        let Some(open) = (unsafe { slot.load(Ordering::Acquire).as_ref() }) else { continue };
        if !open.shared.load(Ordering::Acquire)
            && seen.insert(std::ptr::from_ref(open))
            && let Some(handle) = open.claimed()
        {
            all.push((open, handle));
            left -= 1;
        }
    }
    all
}

/// Whether a number can stand for a device file at all.
pub fn has_room_for(fd: i32) -> bool {
    (fd as usize) < FDS_MAX
}

/// Keeps numbers of ours from changing their meaning.
pub fn numbers() -> Option<Once> {
    Once::enter(&NUMBERS, &HOLDS_NUMBERS)
}

/// A lock that a thread takes once: a handler of a signal that came while it held it goes on without.
pub struct Once {
    held: Option<MutexGuard<'static, ()>>,
    flag: &'static LocalKey<Cell<bool>>,
}

impl Once {
    /// None: this thread has it.
    pub fn enter(lock: &'static Mutex<()>, flag: &'static LocalKey<Cell<bool>>) -> Option<Once> {
        if flag.replace(true) { None } else { Some(Once { held: Some(lock.lock()), flag }) }
    }
}

impl Drop for Once {
    fn drop(&mut self) {
        drop(self.held.take());
        self.flag.set(false);
    }
}

/// Gives every number of an open file, as long as it has this handle, to `place`; then it is not this process's alone
/// any more. Where `place` finds that a number is another file's by now (closed where no hook sees it), it is left out.
pub fn share_out(open: &'static Open, handle: Handle, mut place: impl FnMut(i32) -> bool) {
    let _numbers = numbers();
    if open.claimed() != Some(handle) || open.shared.load(Ordering::Relaxed) {
        return;
    }
    let mut left = open.refs.load(Ordering::Relaxed);
    for (fd, slot) in TABLE.iter().enumerate().take(HIGHEST.load(Ordering::Relaxed) + 1) {
        if left == 0 {
            break;
        }
        if std::ptr::eq(slot.load(Ordering::Acquire), open) {
            left -= 1;
            if !place(fd as i32) {
                // Its share in the entry stays: the handle is closed with the process.
                slot.store(null_mut(), Ordering::Release);
            }
        }
    }
    if !open.shared.swap(true, Ordering::AcqRel) {
        ALONE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// This module's locks while the process forks.
pub type Held = (Option<Once>, MutexGuard<'static, ()>, MutexGuard<'static, Vec<&'static Open>>);

/// Takes this module's locks before a fork, so that the child finds them free; `after_fork` gives them back.
pub fn before_fork() -> Held {
    (numbers(), CLAIM.lock(), SPARE.lock())
}

/// See `before_fork`. In the child no handle is this process's any more; each is claimed again at its next use.
pub fn after_fork(held: Held, child: bool) {
    if child {
        PROCESS.fetch_add(1, Ordering::Relaxed);
        // What was opened by another thread while this one forked has no placeholder: EBADF at its first use here.
        for slot in TABLE.iter().take(HIGHEST.load(Ordering::Relaxed) + 1) {
            // SAFETY: slots hold null or a leaked entry.
            if let Some(open) = unsafe { slot.load(Ordering::Acquire).as_ref() } {
                open.shared.store(true, Ordering::Relaxed);
                open.leased.store(false, Ordering::Relaxed);
                open.looked.store(false, Ordering::Relaxed);
                open.place.begin(false);
            }
        }
        ALONE.store(0, Ordering::Relaxed);
    }
    drop(held);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle_of(n: u32) -> Handle {
        Handle { index: n, generation: 1 }
    }

    fn handle(fd: i32, claim: impl FnOnce(i32) -> Res<(Handle, u32)>) -> Option<Res<Handle>> {
        entry(fd).map(|open| super::handle_of(fd, open, claim))
    }

    fn never(_: i32) -> Res<(Handle, u32)> {
        Err(libc::EIO)
    }

    #[test]
    fn duplicates_share_one_open_file_and_the_last_one_closes_it() {
        insert(40_001, Some((handle_of(7), 0)), b"/f").unwrap();
        share(40_001, 40_002).unwrap();
        assert_eq!(handle(40_002, never), Some(Ok(handle_of(7))));
        assert_eq!(entry(40_002).unwrap().name().as_deref(), Some(&b"/f"[..]));
        assert!(matches!(remove(40_001), Gone::Shared));
        assert!(matches!(remove(40_001), Gone::NotOurs));
        assert!(matches!(remove(40_002), Gone::Last(last) if last.handle == handle_of(7)));
        assert_eq!(handle(40_002, never), None);
    }

    #[test]
    fn an_inherited_descriptor_is_claimed_once_for_all_its_duplicates() {
        insert(40_011, None, b"").unwrap();
        share(40_011, 40_012).unwrap();
        assert_eq!(handle(40_011, |fd| Ok((handle_of(fd as u32), 3))), Some(Ok(handle_of(40_011))));
        assert_eq!(handle(40_012, never), Some(Ok(handle_of(40_011))));
        insert(40_013, None, b"").unwrap();
        assert_eq!(handle(40_013, never), Some(Err(libc::EIO)));
        assert!(matches!(remove(40_013), Gone::Shared), "never claimed: nothing to close");
        remove(40_011);
        remove(40_012);
    }

    #[test]
    fn a_number_out_of_range_is_refused_and_negative_ones_are_nobodys() {
        assert_eq!(insert(FDS_MAX as i32, Some((handle_of(1), 0)), b""), Err(libc::EMFILE));
        assert!(!ours(-1));
        assert!(!ours(i32::MAX));
    }
}
