//! Open file descriptions, the handles that point to them, and the placeholder descriptors that carry them between
//! processes.
//!
//! A description is device-wide and reference-counted: {inode, flags, offset}. It lives while a handle or a living
//! placeholder names it. A placeholder is a sealed memfd, re-opened write-only and flock()ed on that second
//! description, which is then sent to the client and closed here: read, write and mmap on it fail; possession shows
//! by sending it back (matched by st_dev/st_ino); and whether any process still holds a copy shows by trying the
//! lock.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags, SealFlags};
use weldfs_ciscops::limits::PLACEHOLDERS_MAX;
use weldfs_ciscops::{Errno, Handle, InodeNo, OpenFlags, private_memfd};
use weldfs_locks::{Mutex, RwLock};

use super::limits::PLACEHOLDERS_UNBOUND_MAX;
use super::locks::{Held, LockTable, Owner, Payer, Space};
use super::tenants::{Charge, Resource, Tenant};

/// What descriptions need of the device when they come and go. `B` is what a description holds open.
pub struct OpenFiles<B> {
    /// Advisory locks of the device.
    pub locks: LockTable,
    next: AtomicU64,
    open: AtomicUsize,
    most: usize,
    bound: Mutex<HashMap<FileId, Arc<Placeholder<B>>>>,
    /// Descriptions, by number, that a placeholder alone held when their last handle went. What has a handle again is
    /// found by the next look.
    alone: Mutex<HashMap<u64, Arc<Placeholder<B>>>>,
    /// Held while what a description held open is closed, after it was let go of.
    ending: Mutex<()>,
}

/// What no placeholder lets be done to it.
const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// Identity of a placeholder's memfd: st_dev and st_ino.
type FileId = (u64, u64);

impl<B> OpenFiles<B> {
    /// None open; at most so many at a time.
    pub fn new(most: usize) -> Arc<OpenFiles<B>> {
        Arc::new(OpenFiles {
            locks: LockTable::default(),
            next: AtomicU64::new(1),
            open: AtomicUsize::new(0),
            most,
            bound: Mutex::default(),
            alone: Mutex::default(),
            ending: Mutex::default(),
        })
    }

    /// Open file descriptions alive.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Placeholders that stand for a description.
    pub fn bound(&self) -> usize {
        self.bound.lock().len()
    }

    /// A new description of `ino`, at offset 0, which keeps `body`. ENFILE at the device's limit.
    pub fn describe(self: &Arc<Self>, ino: InodeNo, flags: OpenFlags, body: B) -> Result<Arc<Description<B>>, Errno> {
        self.describe_with(ino, flags, || Ok(body))
    }

    /// The same of a body that is had only when there is room for it.
    pub fn describe_with(
        self: &Arc<Self>,
        ino: InodeNo,
        flags: OpenFlags,
        body: impl FnOnce() -> Result<B, Errno>,
    ) -> Result<Arc<Description<B>>, Errno> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::NFILE);
        }
        let body = body().inspect_err(|_| {
            self.open.fetch_sub(1, Ordering::Relaxed);
        })?;
        Ok(Arc::new(Description {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            ino,
            flags: AtomicU16::new(flags.bits()),
            offset: AtomicU64::new(0),
            failed: AtomicI32::new(0),
            granted: AtomicBool::new(false),
            handles: AtomicUsize::new(0),
            placeholder: Mutex::new(None),
            over: AtomicBool::new(false),
            files: self.clone(),
            body,
        }))
    }

    /// The description that a descriptor sent by a client stands for; EBADF when it is none of ours.
    pub fn claimed(&self, fd: impl AsFd) -> Result<(Arc<Description<B>>, u32), Errno> {
        // Its seals first, which only memory has: asking anything else for its number can take as long as the file
        // system behind it likes, and that may be the client's own.
        if !rustix::fs::fcntl_get_seals(&fd).is_ok_and(|seals| seals.contains(SEALS)) {
            return Err(Errno::BADF);
        }
        let id = file_id(fd).map_err(|_| Errno::BADF)?;
        let found = self.bound.lock().get(&id).cloned().ok_or(Errno::BADF)?;
        let description = found.description.lock().clone().ok_or(Errno::BADF)?;
        Ok((description, found.id))
    }

    /// Placeholders of files that are open in the session of these handles, for it to give away. `make` makes them;
    /// `watch` is called where one is all that holds its file by now. EINVAL, EBADF, EEXIST (it came with one), ENODEV
    /// (the session ends), and what `make` says.
    pub fn share(
        &self,
        handles: &Handles<B>,
        open: &[Handle],
        make: impl FnOnce(u32) -> Result<Vec<(u32, OwnedFd)>, Errno>,
        watch: impl Fn(),
    ) -> Result<Vec<(u32, OwnedFd)>, Errno> {
        if open.is_empty() || open.len() > PLACEHOLDERS_MAX {
            return Err(Errno::INVAL);
        }
        let descriptions = open.iter().map(|h| handles.get(*h)).collect::<Result<Vec<_>, _>>()?;
        if descriptions.iter().any(|d| d.has_placeholder()) {
            return Err(Errno::EXIST);
        }
        let made = make(open.len() as u32)?;
        for ((id, _), description) in made.iter().zip(&descriptions) {
            let placeholder = handles.take_placeholder(*id).ok_or(Errno::NODEV)?;
            if self.bind_open(placeholder, description)? {
                watch();
            }
        }
        Ok(made)
    }

    /// Binds one to a description that is open already, and has none that any process holds; whether it is all that
    /// holds the description, whose last handle went meanwhile. EEXIST: it has one. EBADF: it was let go of.
    fn bind_open(&self, placeholder: Placeholder<B>, description: &Arc<Description<B>>) -> Result<bool, Errno> {
        let placeholder = Arc::new(placeholder);
        let lost = {
            let mut place = description.placeholder.lock();
            if place.as_ref().is_some_and(|other| !other.dead()) {
                return Err(Errno::EXIST);
            }
            if description.over.load(Ordering::Relaxed) {
                return Err(Errno::BADF);
            }
            *placeholder.description.lock() = Some(description.clone());
            place.replace(placeholder.clone())
        };
        // One that got lost on its way to a client, or with every copy of it.
        if let Some(lost) = lost {
            self.bound.lock().remove(&lost.file);
            let held = lost.description.lock().take();
            drop(held);
        }
        self.bound.lock().insert(placeholder.file, placeholder.clone());
        let alone = description.handles.load(Ordering::Acquire) == 0;
        if alone {
            self.alone.lock().insert(description.id, placeholder);
        }
        Ok(alone)
    }

    /// Binds a placeholder to a description.
    pub fn bind(&self, placeholder: Placeholder<B>, description: &Arc<Description<B>>) {
        let placeholder = Arc::new(placeholder);
        *placeholder.description.lock() = Some(description.clone());
        *description.placeholder.lock() = Some(placeholder.clone());
        self.bound.lock().insert(placeholder.file, placeholder);
    }

    /// Lets go of descriptions without a name: no handle, and no process holds the placeholder. Returns how
    /// many are still held by placeholders alone (while above zero, it has to be asked again).
    pub fn sweep(&self) -> usize {
        let suspects: Vec<u64> = self.alone.lock().keys().copied().collect();
        suspects.into_iter().filter(|id| self.look_at(*id) == Looked::Held).count()
    }

    /// Lets go of a description, by number, if a placeholder alone holds it and no process has that: whether it did.
    /// What another thread lets go of at this moment is gone when it returns.
    pub fn let_go(&self, description: u64) -> bool {
        let gone = self.look_at(description) == Looked::Gone;
        if !gone {
            self.settle();
        }
        gone
    }

    /// Lets go of everything that only placeholders name: the device ends.
    pub fn forget(&self) {
        self.alone.lock().clear();
        let bound = std::mem::take(&mut *self.bound.lock());
        for p in bound.into_values() {
            // With none of the two locks held while the other is taken.
            let description = p.description.lock().take();
            let own = description.and_then(|d| d.placeholder.lock().take());
            drop(own);
        }
    }

    /// The first lock in the way of `want` whose owner is still there. The regular look for placeholders that no
    /// process holds any more comes a while after a process has died, and its descriptors are closed in the order of
    /// their numbers: its session may have ended before its placeholders had.
    pub fn in_the_way(&self, ino: InodeNo, space: Space, want: &Held) -> Option<Held> {
        loop {
            let found = self.locks.test(ino, space, want)?;
            match found.owner {
                Owner::File(id) if self.look_at(id) == Looked::Gone => {}
                // Another thread may have let go of its owner since it was found: locks go before their owner does.
                _ => {
                    let again = self.locks.test(ino, space, want)?;
                    if again.owner == found.owner {
                        return Some(again);
                    }
                }
            }
        }
    }

    /// Takes a lock, or changes its kind. EAGAIN when another owner's stands in the way that is still there, ENOLCK.
    pub fn lock(&self, ino: InodeNo, space: Space, want: Held, payer: &Arc<dyn Payer>) -> Result<(), Errno> {
        match self.locks.set(ino, space, want, payer) {
            Err(Errno::AGAIN) if self.in_the_way(ino, space, &want).is_none() => {
                self.locks.set(ino, space, want, payer)
            }
            other => other,
        }
    }

    /// What `lock` would answer now.
    pub fn may_lock(&self, ino: InodeNo, space: Space, want: &Held) -> Result<(), Errno> {
        match self.locks.may_set(ino, space, want) {
            Err(Errno::AGAIN) if self.in_the_way(ino, space, want).is_none() => self.locks.may_set(ino, space, want),
            other => other,
        }
    }

    /// Looks whether a process still holds the placeholder of this description, if that alone holds it.
    fn look_at(&self, description: u64) -> Looked {
        let mut alone = self.alone.lock();
        let Some(p) = alone.get(&description).cloned() else { return Looked::Other };
        // Under the lock: whoever gives up the last handle meanwhile enters it again afterwards.
        if !p.unclaimed() {
            alone.remove(&description);
            return Looked::Other;
        }
        drop(alone);
        self.look_at_lone(description, &p)
    }

    /// The same of a placeholder that is entered in `alone`, where another may have taken its place.
    fn look_at_lone(&self, description: u64, p: &Arc<Placeholder<B>>) -> Looked {
        let looked = self.drop_if_dead(p);
        let mut alone = self.alone.lock();
        if looked == Looked::Gone && alone.get(&description).is_some_and(|entered| Arc::ptr_eq(entered, p)) {
            // Another thread may have let go of it before this one entered it.
            alone.remove(&description);
        }
        looked
    }

    fn drop_if_dead(&self, p: &Arc<Placeholder<B>>) -> Looked {
        if !p.dead() {
            return Looked::Held;
        }
        let mut bound = self.bound.lock();
        // Claims take this lock too: no session can gain a handle between the look and the removal.
        if !p.unclaimed() {
            return Looked::Other;
        }
        let description = p.description.lock().clone();
        if let Some(d) = &description {
            let mut place = d.placeholder.lock();
            if !place.as_ref().is_some_and(|own| Arc::ptr_eq(own, p)) {
                // It got lost, and another has taken its place, which holds the description now.
                return Looked::Other;
            }
            place.take();
            // Under the lock of its place: none is bound to it any more.
            d.over.store(true, Ordering::Relaxed);
        }
        bound.remove(&p.file);
        p.description.lock().take();
        if let Some(d) = description {
            // Its locks under `bound`: another thread in whose way one of them stands at this moment finds the
            // placeholder in `alone`, and waits here, or finds no lock.
            let ending = self.ending.lock();
            self.release_locks_of(&d);
            self.alone.lock().remove(&d.id);
            // What it holds open may take long to close: a host's file, say. Claims do not wait for that, unless a
            // second one ends meanwhile; those that want what it held do.
            drop(bound);
            drop(d);
            drop(ending);
        }
        Looked::Gone
    }

    /// Waits until no other thread is letting go of a description that it alone had: what that held on the host is free
    /// then.
    pub fn settle(&self) {
        drop(self.ending.lock());
    }

    fn release_locks_of(&self, d: &Description<B>) {
        let owner = Owner::File(d.id);
        self.locks.release(d.ino, |o| *o == owner);
    }
}

/// What a look at a placeholder found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Looked {
    /// A process holds it.
    Held,
    /// None did: its description is let go of.
    Gone,
    /// It is not what holds the description.
    Other,
}

/// An open file description. Thread-safe.
pub struct Description<B> {
    /// Number, never reused in this run of the device.
    pub id: u64,
    /// The file.
    pub ino: InodeNo,
    flags: AtomicU16,
    offset: AtomicU64,
    /// The errno of a write that was posted and failed, until a call has said so; or 0.
    failed: AtomicI32,
    /// Something was granted with it: its close may be posted.
    granted: AtomicBool,
    handles: AtomicUsize,
    placeholder: Mutex<Option<Arc<Placeholder<B>>>>,
    /// It was let go of: no handle, and no placeholder that a process held.
    over: AtomicBool,
    files: Arc<OpenFiles<B>>,
    /// What it holds open.
    pub body: B,
}

impl<B> Description<B> {
    /// Grant and status flags now.
    pub fn flags(&self) -> OpenFlags {
        OpenFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Changes the status flags that may change.
    pub fn set_flags(&self, to: OpenFlags) {
        let kept = self.flags().difference(OpenFlags::SETTABLE);
        self.flags.store((kept | to.intersection(OpenFlags::SETTABLE)).bits(), Ordering::Relaxed);
    }

    /// Its close may be posted from now on.
    pub fn grant(&self) {
        self.granted.store(true, Ordering::Relaxed);
    }

    /// Whether its close may be posted.
    pub fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Relaxed)
    }

    /// Offset in bytes. Stable while the caller holds the inode's queue exclusively.
    pub fn offset(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// Moves the offset.
    pub fn set_offset(&self, to: u64) {
        self.offset.store(to, Ordering::Relaxed);
    }

    /// A write that no client waited for has failed: the first one is kept.
    pub fn fail(&self, errno: Errno) {
        let _ = self.failed.compare_exchange(0, errno.0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// How such writes went, since this was asked last.
    pub fn written(&self) -> Result<(), Errno> {
        if self.failed.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        match self.failed.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(Errno(code)),
        }
    }

    /// Whether it has one handle.
    pub fn is_last_handle(&self) -> bool {
        self.handles.load(Ordering::Acquire) == 1
    }

    /// Whether a placeholder stands for it that a process holds.
    pub fn has_placeholder(&self) -> bool {
        self.placeholder.lock().as_ref().is_some_and(|p| !p.dead())
    }

    fn handle_added(&self) {
        self.handles.fetch_add(1, Ordering::AcqRel);
    }

    /// True when this was the last handle and a placeholder may still be held by some process.
    fn handle_removed(self: &Arc<Self>) -> bool {
        if self.handles.fetch_sub(1, Ordering::AcqRel) != 1 {
            return false;
        }
        // Entered before the look, not after it: a placeholder that dies between the two is found by those in whose
        // way its locks stand. Under the lock of its place: what takes the place enters itself afterwards.
        let p = {
            let place = self.placeholder.lock();
            let Some(p) = place.clone() else { return false };
            self.files.alone.lock().insert(self.id, p.clone());
            p
        };
        self.files.look_at_lone(self.id, &p) == Looked::Held
    }
}

impl<B> Drop for Description<B> {
    fn drop(&mut self) {
        self.files.release_locks_of(self);
        self.files.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A placeholder as the device keeps it: its own descriptor of the memfd, never the locked one.
pub struct Placeholder<B> {
    /// Number by which the session names it in Open.
    pub id: u32,
    file: FileId,
    own: OwnedFd,
    description: Mutex<Option<Arc<Description<B>>>>,
    _charge: Charge,
}

fn file_id(fd: impl AsFd) -> rustix::io::Result<FileId> {
    let s = rustix::fs::fstat(fd)?;
    Ok((s.st_dev, s.st_ino))
}

impl<B> Placeholder<B> {
    /// Makes one; the second value goes to the client and must be closed here.
    fn create(id: u32, charge: Charge) -> std::io::Result<(Placeholder<B>, OwnedFd)> {
        let own = private_memfd("weldfs-file")?;
        rustix::fs::fcntl_add_seals(&own, SEALS)?;
        let path = format!("/proc/self/fd/{}", own.as_raw_fd());
        let sent = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::fs::flock(&sent, FlockOperation::NonBlockingLockExclusive)?;
        let file = file_id(&own)?;
        Ok((Placeholder { id, file, own, description: Mutex::new(None), _charge: charge }, sent))
    }

    /// True when no process holds a copy: the lock on the copies' description is gone.
    fn dead(&self) -> bool {
        if rustix::fs::flock(&self.own, FlockOperation::NonBlockingLockExclusive).is_err() {
            return false;
        }
        let _ = rustix::fs::flock(&self.own, FlockOperation::Unlock);
        true
    }

    fn unclaimed(&self) -> bool {
        self.description.lock().as_ref().is_none_or(|d| d.handles.load(Ordering::Acquire) == 0)
    }
}

enum Entry<B> {
    Free,
    Reserved,
    Open(Arc<Description<B>>),
}

struct HandleSlot<B> {
    generation: u32,
    entry: Entry<B>,
}

struct Table<B> {
    slots: Vec<HandleSlot<B>>,
    free: Vec<u32>,
    used: u32,
    /// The session is over: nothing is handed out any more.
    closed: bool,
}

impl<B> Table<B> {
    fn new(closed: bool) -> Table<B> {
        Table { slots: Vec::new(), free: Vec::new(), used: 0, closed }
    }
}

/// The handles of one session. Index 0 is the root directory and never in the table. Thread-safe.
pub struct Handles<B> {
    table: RwLock<Table<B>>,
    limit: u32,
    tenant: Arc<Tenant>,
    unbound: Mutex<HashMap<u32, Placeholder<B>>>,
    next_placeholder: AtomicU32,
}

impl<B> Handles<B> {
    /// At most `limit` handles at a time, all of them `tenant`'s.
    pub fn new(limit: u32, tenant: Arc<Tenant>) -> Handles<B> {
        Handles {
            table: RwLock::new(Table::new(false)),
            limit,
            tenant,
            unbound: Mutex::new(HashMap::new()),
            next_placeholder: AtomicU32::new(1),
        }
    }

    /// Handles in use, reserved ones included.
    pub fn count(&self) -> usize {
        self.table.read().used as usize
    }

    /// What a handle names; EBADF for stale, foreign and reserved ones, and for the root handle.
    #[inline]
    pub fn get(&self, h: Handle) -> Result<Arc<Description<B>>, Errno> {
        let table = self.table.read();
        match h.index.checked_sub(1).and_then(|i| table.slots.get(i as usize)) {
            Some(HandleSlot { generation, entry: Entry::Open(d) }) if *generation == h.generation => Ok(d.clone()),
            _ => Err(Errno::BADF),
        }
    }

    /// Like `get`, without keeping the description.
    #[inline]
    pub fn with<R>(&self, h: Handle, f: impl FnOnce(&Description<B>) -> R) -> Result<R, Errno> {
        let table = self.table.read();
        match h.index.checked_sub(1).and_then(|i| table.slots.get(i as usize)) {
            Some(HandleSlot { generation, entry: Entry::Open(d) }) if *generation == h.generation => Ok(f(d)),
            _ => Err(Errno::BADF),
        }
    }

    /// Sets a handle aside. EMFILE at the limit, ENODEV after the end.
    pub fn reserve(&self) -> Result<Handle, Errno> {
        let mut table = self.table.write();
        if table.closed {
            return Err(Errno::NODEV);
        }
        if table.used >= self.limit || !self.tenant.take(Resource::Handles, 1) {
            return Err(Errno::MFILE);
        }
        table.used += 1;
        let i = match table.free.pop() {
            Some(i) => i,
            None => {
                table.slots.push(HandleSlot { generation: 0, entry: Entry::Free });
                table.slots.len() as u32 - 1
            }
        };
        let slot = &mut table.slots[i as usize];
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.entry = Entry::Reserved;
        Ok(Handle { index: i + 1, generation: slot.generation })
    }

    /// Makes a reserved handle name `description`.
    pub fn fill(&self, h: Handle, description: Arc<Description<B>>) {
        description.handle_added();
        let mut table = self.table.write();
        let slot = h.index.checked_sub(1).and_then(|i| table.slots.get_mut(i as usize));
        match slot.filter(|s| s.generation == h.generation && matches!(s.entry, Entry::Reserved)) {
            Some(slot) => slot.entry = Entry::Open(description),
            None => {
                // The session ended while a description was being claimed for it.
                drop(table);
                description.handle_removed();
            }
        }
    }

    /// Takes a handle (reserved or open) away. `Ok(true)` when a placeholder alone holds the description now.
    pub fn close(&self, h: Handle) -> Result<bool, Errno> {
        let gone = {
            let mut table = self.table.write();
            let table = &mut *table;
            let slot = h.index.checked_sub(1).and_then(|i| table.slots.get_mut(i as usize)).ok_or(Errno::BADF)?;
            if slot.generation != h.generation || matches!(slot.entry, Entry::Free) {
                return Err(Errno::BADF);
            }
            table.free.push(h.index - 1);
            table.used -= 1;
            self.tenant.give(Resource::Handles, 1);
            std::mem::replace(&mut slot.entry, Entry::Free)
        };
        Ok(matches!(gone, Entry::Open(d) if d.handle_removed()))
    }

    /// Takes every handle and unused placeholder away. True when placeholders alone hold descriptions now.
    pub fn close_all(&self) -> bool {
        self.unbound.lock().clear();
        let Table { slots, used, .. } = std::mem::replace(&mut *self.table.write(), Table::new(true));
        self.tenant.give(Resource::Handles, used.into());
        let mut held = false;
        for slot in slots {
            if let Entry::Open(d) = slot.entry {
                held |= d.handle_removed();
            }
        }
        held
    }

    /// Makes placeholders for this session; EMFILE at its limit.
    pub fn placeholders(&self, count: u32) -> Result<Vec<(u32, OwnedFd)>, Errno> {
        let mut unbound = self.unbound.lock();
        if unbound.len() + count as usize > PLACEHOLDERS_UNBOUND_MAX {
            return Err(Errno::MFILE);
        }
        let mut made = Vec::new();
        for _ in 0..count {
            let id = self.next_placeholder.fetch_add(1, Ordering::Relaxed).max(1);
            let charge = Charge::take(&self.tenant, Resource::Placeholders).ok_or(Errno::MFILE)?;
            let (placeholder, fd) =
                Placeholder::create(id, charge).map_err(|e| Errno(e.raw_os_error().unwrap_or(Errno::MFILE.0)))?;
            made.push((id, placeholder, fd));
        }
        // All or none: of those that the client never got nothing could say when they are done with.
        Ok(made
            .into_iter()
            .map(|(id, placeholder, fd)| {
                unbound.insert(id, placeholder);
                (id, fd)
            })
            .collect())
    }

    /// True when the session has this placeholder and nothing is open on it.
    pub fn has_placeholder(&self, id: u32) -> bool {
        self.unbound.lock().contains_key(&id)
    }

    /// Takes a placeholder to bind it.
    pub fn take_placeholder(&self, id: u32) -> Option<Placeholder<B>> {
        self.unbound.lock().remove(&id)
    }
}

#[cfg(test)]
mod tests;
