//! What a posix_spawn is to do in the new process, where that concerns the device. libc does it there by calls of its
//! own, so before the spawn names under the prefix are opened here, and the new process is given the descriptors; a
//! directory under the prefix is handed over as exec hands over the working directory.

use crate::abi::{self, Res, hook};
use crate::names::{Place, Walked, locate};
use crate::{config, cwd, fdname, mount, names, path, report, table};
use libc::{c_char, c_int, c_void, mode_t, posix_spawn_file_actions_t as Actions};
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::mem::ManuallyDrop;
use weldfs_locks::{Mutex, MutexGuard};

/// A directory of the kernel's in which no name can be made, for the time before the new program starts.
const PARKING: &CStr = c"/proc/self/fdinfo";

/// One action, as it was added.
#[derive(Clone)]
pub enum Step {
    Open { fd: c_int, path: CString, flags: c_int, mode: mode_t },
    Close(c_int),
    Dup(c_int, c_int),
    Enter(CString),
    EnterOpen(c_int),
    CloseFrom(c_int),
    Terminal(c_int),
}

/// The lists that programs have made, by their address.
static LISTS: Mutex<Vec<(usize, Vec<Step>)>> = Mutex::new(Vec::new());

/// This module's lock while the process forks.
pub type Held = MutexGuard<'static, Vec<(usize, Vec<Step>)>>;

/// Takes this module's lock before a fork; both sides give it back after it.
pub fn before_fork() -> Held {
    LISTS.lock()
}

/// Notes an action that libc has taken.
fn noted(answer: c_int, list: *mut Actions, step: impl FnOnce() -> Option<Step>) -> c_int {
    if answer == 0
        && config::get().is_some()
        && let Some(step) = step()
    {
        let mut lists = LISTS.lock();
        let known = lists.iter().position(|(at, _)| *at == list as usize);
        let at = known.unwrap_or_else(|| {
            lists.push((list as usize, Vec::new()));
            lists.len() - 1
        });
        lists[at].1.push(step);
    }
    answer
}

fn forget(list: *mut Actions) {
    if config::get().is_some() {
        LISTS.lock().retain(|(at, _)| *at != list as usize);
    }
}

fn name(path: *const c_char) -> Option<CString> {
    abi::text(path).ok().and_then(|text| CString::new(text).ok())
}

/// Where the new process stands.
#[derive(Clone, PartialEq, Eq)]
enum Stand {
    /// Where this one does.
    Here,
    /// On the host, at a name if that is known.
    Host(Option<Vec<u8>>),
    /// At a host name under the prefix.
    Device(Vec<u8>),
}

thread_local! {
    /// For the environment of the program that this thread spawns. Without a destructor.
    static STAND: Cell<ManuallyDrop<Option<Stand>>> = const { Cell::new(ManuallyDrop::new(None)) };
}

fn stand() -> Option<Stand> {
    let now = ManuallyDrop::into_inner(STAND.replace(ManuallyDrop::new(None)));
    STAND.set(ManuallyDrop::new(now.clone()));
    now
}

/// The working directory inside the device, if any, of the program that is executed or spawned.
pub fn directory_inside() -> Option<Vec<u8>> {
    match stand() {
        None | Some(Stand::Here) => cwd::inside(),
        Some(Stand::Host(_)) => None,
        Some(Stand::Device(name)) => Some(path::inside(&config::get()?.prefix, &name)?.into_owned()),
    }
}

/// A program's name as it is seen from where the new process stands.
pub fn seen(name: &[u8]) -> Option<CString> {
    if name.first() == Some(&b'/') {
        return None;
    }
    match stand()? {
        Stand::Host(Some(dir)) | Stand::Device(dir) => CString::new(path::join(&dir, name)).ok(),
        Stand::Here | Stand::Host(None) => None,
    }
}

/// A list for libc in which nothing concerns the device, with what it needs.
struct Plain {
    list: Box<Actions>,
    opened: Vec<c_int>,
    stand: Stand,
}

impl Drop for Plain {
    fn drop(&mut self) {
        posix_spawn_file_actions_destroy(&raw mut *self.list);
        for fd in &self.opened {
            super::close(*fd);
        }
    }
}

/// The absolute name of what a step names.
fn full(stand: &Stand, path: &CStr) -> Vec<u8> {
    let given = path.to_bytes();
    match stand {
        Stand::Host(Some(dir)) | Stand::Device(dir) if given.first() != Some(&b'/') => path::join(dir, given),
        _ => given.to_vec(),
    }
}

fn is_inside(name: &[u8]) -> Res<bool> {
    Ok(fdname::of(name).is_some() || matches!(locate(libc::AT_FDCWD, name)?, Place::Device(_)))
}

/// A directory of the device by any name, as its host name without links.
fn directory(name: &[u8]) -> Res<Vec<u8>> {
    let Place::Device(spot) = locate(libc::AT_FDCWD, name)? else { return Err(libc::ENOENT) };
    let Walked::Inside(real) = names::walk(&spot.absolute().ok_or(libc::ENOENT)?, true)? else {
        return Err(report::refuse(libc::ENOTSUP, "a posix_spawn action through a link that leaves the device"));
    };
    super::cwd::check(&real)?;
    Ok(path::outside(&config::get().ok_or(libc::ENODEV)?.prefix, &real))
}

/// Where the kernel stands for a directory under the prefix: in the mount, if there is one.
fn place(outer: &[u8]) -> CString {
    let inner = config::get().and_then(|config| path::inside(&config.prefix, outer));
    inner.and_then(|inner| mount::kernel_name(&inner)).unwrap_or_else(|| PARKING.to_owned())
}

fn answer(code: c_int) -> Res<()> {
    if code == 0 { Ok(()) } else { Err(code) }
}

impl Plain {
    fn new() -> Res<Plain> {
        let mut list: Box<Actions> = Box::new(abi::zeroed());
        answer(posix_spawn_file_actions_init(&raw mut *list))?;
        Ok(Plain { list, opened: Vec::new(), stand: Stand::Here })
    }

    /// Opens a name of the device out of the way of every number that the steps use.
    fn open(&mut self, name: &[u8], (flags, mode): (c_int, mode_t), above: c_int) -> Res<c_int> {
        let name = CString::new(name).map_err(|_| libc::EINVAL)?;
        let fd = super::open::open64(name.as_ptr(), flags | libc::O_CLOEXEC, mode);
        if fd < 0 {
            return Err(abi::errno());
        }
        let high = super::open::dup_from(fd, above, true);
        let code = abi::errno();
        super::close(fd);
        if high < 0 {
            return Err(code);
        }
        self.opened.push(high);
        Ok(high)
    }

    fn add(&mut self, step: &Step, above: c_int) -> Res<()> {
        let list = &raw mut *self.list;
        match step {
            Step::Open { fd, path, flags, mode } => {
                let name = full(&self.stand, path);
                if !is_inside(&name)? {
                    let name = CString::new(name).map_err(|_| libc::EINVAL)?;
                    return answer(posix_spawn_file_actions_addopen(list, *fd, name.as_ptr(), *flags, *mode));
                }
                let given = self.open(&name, (*flags, *mode), above)?;
                answer(posix_spawn_file_actions_adddup2(list, given, *fd))
            }
            Step::Close(fd) => answer(posix_spawn_file_actions_addclose(list, *fd)),
            Step::Dup(from, to) => answer(posix_spawn_file_actions_adddup2(list, *from, *to)),
            Step::Enter(path) => {
                let name = full(&self.stand, path);
                if is_inside(&name)? {
                    let outer = directory(&name)?;
                    let place = place(&outer);
                    self.stand = Stand::Device(outer);
                    return answer(posix_spawn_file_actions_addchdir_np(list, place.as_ptr()));
                }
                self.stand = Stand::Host(Some(name.clone()).filter(|name| name.first() == Some(&b'/')));
                let name = CString::new(name).map_err(|_| libc::EINVAL)?;
                answer(posix_spawn_file_actions_addchdir_np(list, name.as_ptr()))
            }
            Step::EnterOpen(fd) if table::ours(*fd) => {
                let inner = names::directory(*fd)?;
                super::cwd::check(&inner)?;
                let place = mount::kernel_name(&inner).unwrap_or_else(|| PARKING.to_owned());
                self.stand = Stand::Device(path::outside(&config::get().ok_or(libc::ENODEV)?.prefix, &inner));
                answer(posix_spawn_file_actions_addchdir_np(list, place.as_ptr()))
            }
            Step::EnterOpen(fd) => {
                self.stand = Stand::Host(None);
                answer(posix_spawn_file_actions_addfchdir_np(list, *fd))
            }
            Step::CloseFrom(fd) => answer(posix_spawn_file_actions_addclosefrom_np(list, *fd)),
            Step::Terminal(fd) => answer(posix_spawn_file_actions_addtcsetpgrp_np(list, *fd)),
        }
    }
}

/// The numbers that a step uses.
fn numbers(step: &Step) -> [c_int; 2] {
    match step {
        Step::Open { fd, .. } | Step::Close(fd) | Step::EnterOpen(fd) | Step::Terminal(fd) => [*fd, 0],
        Step::Dup(from, to) => [*from, *to],
        Step::CloseFrom(_) | Step::Enter(_) => [0, 0],
    }
}

/// Whether a list as it is would miss the device.
fn concerns(steps: &[Step]) -> bool {
    let named = |path: &CStr| is_inside(path.to_bytes()).unwrap_or(true);
    steps.iter().any(|step| match step {
        Step::Open { path, .. } | Step::Enter(path) => named(path),
        Step::EnterOpen(fd) => table::ours(*fd),
        _ => false,
    }) || (cwd::is_inside() && steps.iter().any(|step| matches!(step, Step::Enter(_) | Step::EnterOpen(_))))
}

/// Spawns by `go(list)` with a list that libc can do, and says meanwhile where the new program stands.
pub fn with_list(list: *const c_void, go: impl FnOnce(*const c_void) -> c_int) -> c_int {
    if list.is_null() || config::get().is_none() {
        return go(list);
    }
    let steps = LISTS.lock().iter().find(|(at, _)| *at == list as usize).map(|(_, steps)| steps.clone());
    let Some(steps) = steps.filter(|steps| concerns(steps)) else { return go(list) };
    let above = 1 + steps.iter().flat_map(numbers).max().unwrap_or(2).max(9);
    let make = || -> Res<Plain> {
        let mut plain = Plain::new()?;
        let mut closed = false;
        for step in &steps {
            // A descriptor that is opened here would be closed there before it is used.
            let late = closed && matches!(step, Step::Open { path, .. } if is_inside(&full(&plain.stand, path))?);
            if late {
                return Err(report::refuse(libc::ENOTSUP, "posix_spawn: a file opened after closefrom"));
            }
            closed |= matches!(step, Step::CloseFrom(_));
            plain.add(step, above)?;
        }
        Ok(plain)
    };
    match make() {
        Ok(plain) => {
            STAND.set(ManuallyDrop::new(Some(plain.stand.clone())));
            let answer = go((&raw const *plain.list).cast());
            drop(ManuallyDrop::into_inner(STAND.replace(ManuallyDrop::new(None))));
            answer
        }
        Err(code) => code,
    }
}

hook! { real;
    fn posix_spawn_file_actions_init(list: *mut Actions) -> c_int {
        forget(list);
        real(list)
    }
    fn posix_spawn_file_actions_destroy(list: *mut Actions) -> c_int {
        forget(list);
        real(list)
    }
    fn posix_spawn_file_actions_addopen(
        list: *mut Actions, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t,
    ) -> c_int {
        let step = || Some(Step::Open { fd, path: name(path)?, flags, mode });
        noted(real(list, fd, path, flags, mode), list, step)
    }
    fn posix_spawn_file_actions_addclose(list: *mut Actions, fd: c_int) -> c_int {
        noted(real(list, fd), list, || Some(Step::Close(fd)))
    }
    fn posix_spawn_file_actions_adddup2(list: *mut Actions, from: c_int, to: c_int) -> c_int {
        noted(real(list, from, to), list, || Some(Step::Dup(from, to)))
    }
    fn posix_spawn_file_actions_addchdir_np(list: *mut Actions, path: *const c_char) -> c_int {
        noted(real(list, path), list, || name(path).map(Step::Enter))
    }
    fn posix_spawn_file_actions_addfchdir_np(list: *mut Actions, fd: c_int) -> c_int {
        noted(real(list, fd), list, || Some(Step::EnterOpen(fd)))
    }
    fn posix_spawn_file_actions_addclosefrom_np(list: *mut Actions, from: c_int) -> c_int {
        noted(real(list, from), list, || Some(Step::CloseFrom(from)))
    }
    fn posix_spawn_file_actions_addtcsetpgrp_np(list: *mut Actions, fd: c_int) -> c_int {
        noted(real(list, fd), list, || Some(Step::Terminal(fd)))
    }
}
