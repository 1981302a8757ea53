//! fts_open and its kin, for walks that begin in the device: glibc's own call its opendir, readdir and stat by names
//! that cannot be interposed. The structures are glibc's (the fts64 functions have the same, with 64-bit offsets). The
//! walk never changes the working directory, which FTS_NOCHDIR asks for and the rest allow: `fts_accpath` is the path.

use super::directory::{names_in, touches};
use super::stat::{lstat64, stat64};
use crate::abi::{self, Res, fail, hook};
use libc::{c_char, c_int, c_long, c_ushort, c_void, stat as Stat};
use std::ffi::CStr;
use std::ptr::null_mut;

const COMFOLLOW: c_int = 0x01;
const LOGICAL: c_int = 0x02;
const NOSTAT: c_int = 0x08;
const SEEDOT: c_int = 0x20;
const XDEV: c_int = 0x40;
/// Options that a program may give, and the one that fts_children takes.
const OPTIONS: c_int = 0xff;
const NAMEONLY: c_int = 0x100;
/// Set in streams of ours, where glibc's have no such bit.
const OURS: c_int = 1 << 30;

// What an entry is.
const D: c_ushort = 1;
const DC: c_ushort = 2;
const DEFAULT: c_ushort = 3;
const DNR: c_ushort = 4;
const DOT: c_ushort = 5;
const DP: c_ushort = 6;
const ERR: c_ushort = 7;
const F: c_ushort = 8;
const INIT: c_ushort = 9;
const NS: c_ushort = 10;
const NSOK: c_ushort = 11;
const SL: c_ushort = 12;
const SLNONE: c_ushort = 13;

// What fts_set asks for.
const AGAIN: c_ushort = 1;
const FOLLOW: c_ushort = 2;
const NOINSTR: c_ushort = 3;
const SKIP: c_ushort = 4;

const ROOTPARENTLEVEL: i16 = -1;

/// FTSENT. What glibc has after the name is not a program's.
#[repr(C)]
pub struct Entry {
    cycle: *mut Entry,
    parent: *mut Entry,
    link: *mut Entry,
    number: c_long,
    pointer: *mut c_void,
    accpath: *mut c_char,
    path: *mut c_char,
    errno: c_int,
    symfd: c_int,
    pathlen: c_ushort,
    namelen: c_ushort,
    ino: u64,
    dev: u64,
    nlink: u64,
    level: i16,
    info: c_ushort,
    flags: c_ushort,
    instr: c_ushort,
    statp: *mut Stat,
    name: [c_char; 1],
}

type Order = extern "C" fn(*mut *const Entry, *mut *const Entry) -> c_int;

/// FTS, and what only this walk needs.
#[repr(C)]
pub struct Walk {
    cur: *mut Entry,
    child: *mut Entry,
    array: *mut *mut Entry,
    dev: u64,
    path: *mut c_char,
    rfd: c_int,
    pathlen: c_int,
    nitems: c_int,
    compar: Option<Order>,
    options: c_int,
    /// The parent of the roots.
    top: *mut Entry,
}

/// The stream, if it is one of ours.
fn ours<'a>(walk: *mut Walk) -> Option<&'a mut Walk> {
    // SAFETY: glibc's stream has all members up to the options; only ours are marked there.
    unsafe { if !walk.is_null() && (*walk).options & OURS != 0 { Some(&mut *walk) } else { None } }
}

/// A new entry below `parent`, whose path is `path`, and whose name is the path's last `namelen` bytes.
fn entry(parent: *mut Entry, path: &[u8], namelen: usize, level: i16) -> Res<*mut Entry> {
    let (Ok(pathlen), Ok(short)) = (c_ushort::try_from(path.len()), c_ushort::try_from(namelen)) else {
        return Err(libc::ENAMETOOLONG);
    };
    let name_at = std::mem::offset_of!(Entry, name);
    let path_at = name_at + namelen + 1;
    let stat_at = (path_at + path.len() + 1).next_multiple_of(align_of::<Stat>());
    // SAFETY: one zeroed allocation holds the entry, its name, its path and its stat, in this order; each lies within.
    unsafe {
        let p: *mut Entry = libc::calloc(1, stat_at + size_of::<Stat>()).cast();
        if p.is_null() {
            return Err(libc::ENOMEM);
        }
        let bytes = p.cast::<u8>();
        let name = &path[path.len() - namelen..];
        std::ptr::copy_nonoverlapping(name.as_ptr(), bytes.add(name_at), namelen);
        std::ptr::copy_nonoverlapping(path.as_ptr(), bytes.add(path_at), path.len());
        (*p).parent = parent;
        (*p).path = bytes.add(path_at).cast();
        (*p).accpath = (*p).path;
        (*p).statp = bytes.add(stat_at).cast();
        ((*p).pathlen, (*p).namelen, (*p).level) = (pathlen, short, level);
        ((*p).instr, (*p).symfd) = (NOINSTR, -1);
        Ok(p)
    }
}

/// Frees a list.
fn free_list(mut at: *mut Entry) {
    while !at.is_null() {
        // SAFETY: entries made by `entry`, each in one list only.
        unsafe {
            let next = (*at).link;
            libc::free(at.cast());
            at = next;
        }
    }
}

fn path_of(e: &Entry) -> &CStr {
    // SAFETY: the path that `entry` copied, with the NUL of zeroed memory behind it.
    unsafe { CStr::from_ptr(e.path) }
}

fn name_of(e: &Entry) -> &[u8] {
    // SAFETY: as above.
    unsafe { CStr::from_ptr((&raw const e.name).cast()) }.to_bytes()
}

/// Looks at an entry: its stat, and what it is.
fn look(walk: &Walk, e: &mut Entry, follow: bool) -> c_ushort {
    let follow = follow || walk.options & LOGICAL != 0 || (walk.options & COMFOLLOW != 0 && e.level == 0);
    let path = path_of(e).as_ptr();
    let answer = if follow { stat64(path, e.statp) } else { lstat64(path, e.statp) };
    if answer != 0 {
        let code = abi::errno();
        if follow && lstat64(path, e.statp) == 0 {
            abi::set_errno(0);
            return SLNONE;
        }
        e.errno = code;
        // SAFETY: the entry's own stat.
        unsafe { *e.statp = abi::zeroed() };
        return NS;
    }
    // SAFETY: filled just now.
    let st = unsafe { &*e.statp };
    match st.st_mode & libc::S_IFMT {
        libc::S_IFDIR => {
            (e.dev, e.ino, e.nlink) = (st.st_dev as _, st.st_ino as _, st.st_nlink as _);
            if e.level > 0 && matches!(name_of(e), b"." | b"..") {
                return DOT;
            }
            let mut up = e.parent;
            // SAFETY: parents live as long as their children.
            while let Some(above) = unsafe { up.as_mut() }.filter(|above| above.level >= 0) {
                if (above.ino, above.dev) == (e.ino, e.dev) {
                    e.cycle = above;
                    return DC;
                }
                up = above.parent;
            }
            D
        }
        libc::S_IFLNK => SL,
        libc::S_IFREG => F,
        _ => DEFAULT,
    }
}

/// Puts entries in the program's order, and links them.
fn in_order(walk: &Walk, mut all: Vec<*mut Entry>) -> *mut Entry {
    if let Some(compare) = walk.compar {
        all.sort_by(|a, b| {
            let (mut a, mut b): (*const Entry, *const Entry) = (*a, *b);
            compare(&raw mut a, &raw mut b).cmp(&0)
        });
    }
    let mut next = null_mut();
    for e in all.into_iter().rev() {
        // SAFETY: entries made by `entry`.
        unsafe { (*e).link = next };
        next = e;
    }
    next
}

/// The entries of the directory `walk.cur`; NULL when it has none, and with `fts_info` DNR when it cannot be read.
fn build(walk: &Walk, name_only: bool) -> *mut Entry {
    // SAFETY: the current entry.
    let cur = unsafe { &mut *walk.cur };
    let names = match names_in(path_of(cur)) {
        Ok(names) => names,
        Err(code) => {
            (cur.info, cur.errno) = (DNR, code);
            return null_mut();
        }
    };
    let dots = if walk.options & SEEDOT != 0 { vec![b".".to_vec(), b"..".to_vec()] } else { Vec::new() };
    let mut all = Vec::new();
    for name in dots.into_iter().chain(names) {
        let path = crate::path::join(path_of(cur).to_bytes(), &name);
        let made = match entry(walk.cur, &path, name.len(), cur.level + 1) {
            Ok(made) => made,
            Err(code) => {
                (cur.info, cur.errno) = (ERR, code);
                all.iter().for_each(|e: &*mut Entry| free_one(*e));
                return null_mut();
            }
        };
        // SAFETY: just made.
        let e = unsafe { &mut *made };
        e.info = if name_only || (walk.options & NOSTAT != 0 && walk.options & LOGICAL == 0) {
            // A directory must be known to be one, or its entries would be left out.
            let info = look(walk, e, false);
            if info == D || info == DC || info == DOT { info } else { NSOK }
        } else {
            look(walk, e, false)
        };
        all.push(made);
    }
    in_order(walk, all)
}

fn free_one(e: *mut Entry) {
    // SAFETY: made by `entry`, in no list.
    unsafe { libc::free(e.cast()) };
}

fn open(paths: *const *const c_char, options: c_int, compar: Option<Order>) -> Res<*mut Walk> {
    let names = abi::strings(paths);
    if options & !OPTIONS != 0 || names.is_empty() {
        return Err(libc::EINVAL);
    }
    let top = entry(null_mut(), b"", 0, ROOTPARENTLEVEL)?;
    let mut walk = Walk {
        cur: null_mut(),
        child: null_mut(),
        array: null_mut(),
        dev: 0,
        path: null_mut(),
        rfd: -1,
        pathlen: 0,
        nitems: 0,
        compar,
        options: options | OURS,
        top,
    };
    let mut roots = Vec::new();
    let add = || -> Res<*mut Entry> {
        for name in names {
            let path = name.to_bytes();
            if path.is_empty() {
                return Err(libc::ENOENT);
            }
            let made = entry(top, path, path.len(), 0)?;
            roots.push(made);
            // SAFETY: just made.
            let e = unsafe { &mut *made };
            e.info = match look(&walk, e, false) {
                DOT => D,
                info => info,
            };
        }
        let first = entry(top, b"", 0, 0)?;
        // SAFETY: just made; the roots follow it.
        unsafe {
            (*first).info = INIT;
            (*first).link = in_order(&walk, std::mem::take(&mut roots));
        }
        Ok(first)
    };
    match add() {
        Ok(first) => walk.cur = first,
        Err(code) => {
            roots.into_iter().chain([top]).for_each(free_one);
            return Err(code);
        }
    }
    Ok(Box::into_raw(Box::new(walk)))
}

/// Moves on to `next`, and frees what was left.
fn go_to(walk: &mut Walk, next: *mut Entry, free: *mut Entry) {
    walk.cur = next;
    if !free.is_null() {
        free_one(free);
    }
}

fn read(walk: &mut Walk) -> *mut Entry {
    // SAFETY: the current entry, NULL after the end; entries that it names are alive (see `go_to`).
    let Some(cur) = (unsafe { walk.cur.as_mut() }) else { return null_mut() };
    let instr = std::mem::replace(&mut cur.instr, NOINSTR);
    if instr == AGAIN {
        cur.info = look(walk, cur, false);
        return walk.cur;
    }
    if instr == FOLLOW && matches!(cur.info, SL | SLNONE) {
        cur.info = look(walk, cur, true);
        return walk.cur;
    }
    if cur.info == D {
        if instr == SKIP || (walk.options & XDEV != 0 && cur.dev != walk.dev) {
            free_list(std::mem::replace(&mut walk.child, null_mut()));
            cur.info = DP;
            return walk.cur;
        }
        let children = std::mem::replace(&mut walk.child, null_mut());
        let children = if children.is_null() || walk.options & NAMEONLY != 0 {
            free_list(children);
            build(walk, false)
        } else {
            children
        };
        walk.options &= !NAMEONLY;
        if children.is_null() {
            if cur.info == D {
                cur.info = DP;
            }
            return walk.cur;
        }
        walk.cur = children;
        return arrive(walk);
    }
    next(walk)
}

/// The current entry as it is given out, unless the program has it skipped.
fn arrive(walk: &mut Walk) -> *mut Entry {
    // SAFETY: as in `read`.
    let cur = unsafe { &mut *walk.cur };
    match std::mem::replace(&mut cur.instr, NOINSTR) {
        SKIP => return next(walk),
        FOLLOW => cur.info = look(walk, cur, true),
        _ => {}
    }
    if cur.level == 0 {
        walk.dev = cur.dev;
        shorten(cur);
    }
    walk.cur
}

/// From here on the name of a root is what follows its last slash.
fn shorten(root: &mut Entry) {
    let name = name_of(root);
    let Some(slash) = name.iter().rposition(|b| *b == b'/').filter(|_| name != b"/") else { return };
    let (from, len) = (slash + 1, name.len() - slash - 1);
    let start = (&raw mut root.name).cast::<c_char>();
    // SAFETY: both lie in the name that `entry` copied, with the NUL behind it.
    unsafe { std::ptr::copy(start.add(from), start, len + 1) };
    root.namelen = len as c_ushort;
}

/// The entry after the current one: beside it, or above.
fn next(walk: &mut Walk) -> *mut Entry {
    let left = walk.cur;
    // SAFETY: as in `read`.
    let (beside, above) = unsafe { ((*left).link, (*left).parent) };
    if !beside.is_null() {
        go_to(walk, beside, left);
        return arrive(walk);
    }
    // SAFETY: as in `read`.
    let up = unsafe { &mut *above };
    if up.level == ROOTPARENTLEVEL {
        go_to(walk, null_mut(), left);
        abi::set_errno(0);
        return null_mut();
    }
    go_to(walk, above, left);
    if up.errno != 0 && up.info != DNR {
        up.info = ERR;
    } else if up.info != DNR {
        up.info = DP;
    }
    walk.cur
}

fn children(walk: &mut Walk, instr: c_int) -> Res<*mut Entry> {
    if instr != 0 && instr != NAMEONLY {
        return Err(libc::EINVAL);
    }
    abi::set_errno(0);
    // SAFETY: as in `read`.
    let Some(cur) = (unsafe { walk.cur.as_mut() }) else { return Ok(null_mut()) };
    if cur.info == INIT {
        return Ok(cur.link);
    }
    if cur.info != D {
        return Ok(null_mut());
    }
    free_list(std::mem::replace(&mut walk.child, null_mut()));
    walk.options = (walk.options & !NAMEONLY) | instr;
    walk.child = build(walk, instr == NAMEONLY);
    Ok(walk.child)
}

/// Frees what is left of a walk: the entries beside and above the current one.
fn close(walk: *mut Walk) -> c_int {
    // SAFETY: made by `open`, and the program must not use it after this.
    let walk = unsafe { Box::from_raw(walk) };
    free_list(walk.child);
    let mut at = walk.cur;
    while !at.is_null() && at != walk.top {
        // SAFETY: as in `read`.
        let above = unsafe { (*at).parent };
        free_list(at);
        at = above;
    }
    free_one(walk.top);
    0
}

fn set(e: *mut Entry, instr: c_int) -> c_int {
    match c_ushort::try_from(instr) {
        Ok(instr @ (0 | AGAIN | FOLLOW | NOINSTR | SKIP)) => {
            // SAFETY: an entry that fts_read gave out.
            unsafe { (*e).instr = instr };
            0
        }
        _ => {
            abi::set_errno(libc::EINVAL);
            1
        }
    }
}

fn concerns(paths: *const *const c_char) -> bool {
    crate::config::get().is_some() && abi::strings(paths).iter().any(|path: &&CStr| touches(path.as_ptr()))
}

fn opened(made: Res<*mut Walk>) -> *mut Walk {
    match made {
        Ok(walk) => walk,
        Err(code) => fail(code),
    }
}

hook! { real;
    fn fts_open(paths: *const *const c_char, options: c_int, compar: Option<Order>) -> *mut Walk {
        if concerns(paths) { opened(open(paths, options, compar)) } else { real(paths, options, compar) }
    }
    fn fts64_open(paths: *const *const c_char, options: c_int, compar: Option<Order>) -> *mut Walk {
        if concerns(paths) { opened(open(paths, options, compar)) } else { real(paths, options, compar) }
    }
    fn fts_read(walk: *mut Walk) -> *mut Entry {
        match ours(walk) { Some(walk) => read(walk), None => real(walk) }
    }
    fn fts64_read(walk: *mut Walk) -> *mut Entry {
        match ours(walk) { Some(walk) => read(walk), None => real(walk) }
    }
    fn fts_children(walk: *mut Walk, instr: c_int) -> *mut Entry {
        match ours(walk) { Some(walk) => abi::give(children(walk, instr)), None => real(walk, instr) }
    }
    fn fts64_children(walk: *mut Walk, instr: c_int) -> *mut Entry {
        match ours(walk) { Some(walk) => abi::give(children(walk, instr)), None => real(walk, instr) }
    }
    fn fts_set(walk: *mut Walk, e: *mut Entry, instr: c_int) -> c_int {
        match ours(walk) { Some(_) => set(e, instr), None => real(walk, e, instr) }
    }
    fn fts64_set(walk: *mut Walk, e: *mut Entry, instr: c_int) -> c_int {
        match ours(walk) { Some(_) => set(e, instr), None => real(walk, e, instr) }
    }
    fn fts_close(walk: *mut Walk) -> c_int {
        match ours(walk) { Some(walk) => close(walk), None => real(walk) }
    }
    fn fts64_close(walk: *mut Walk) -> c_int {
        match ours(walk) { Some(walk) => close(walk), None => real(walk) }
    }
}
