//! exec and posix_spawn: the environment that carries us over, and programs that lie inside the device.
//!
//! Where there is a mount, the kernel executes the file there. It cannot execute a file it cannot see: without one, a
//! script (`#!`) is run by its interpreter, which reads it through us; a binary is copied to a memfd and executed from
//! there (so `/proc/self/exe` names the memfd). A link that leads out of the device is followed.

use crate::abi::{self, Res, fail, hook};
use crate::names::{self, Place, Spot, locate};
use crate::{config, cwd, device, mount, path, promotion, report, sys};
use libc::{c_char, c_int, c_void, pid_t};
use std::ffi::{CStr, CString};
use weldfs_ciscops::Handle;
use weldfs_ciscops::command::At;
use weldfs_ciscops::flags::{AccessMask, OpenFlags};

/// Bytes of a script's first line that count, as in the kernel.
const SHEBANG_MAX: usize = 256;
/// Bytes copied per step of a binary.
const STEP: usize = 1 << 20;

/// A NULL-terminated array of C strings with what keeps them alive.
struct Strings {
    pointers: Vec<*const c_char>,
    _kept: Vec<CString>,
}

impl Strings {
    fn new(given: &[&CStr], made: Vec<CString>) -> Strings {
        let mut pointers: Vec<_> = made.iter().map(|s| s.as_ptr()).collect();
        pointers.extend(given.iter().map(|s| s.as_ptr()));
        pointers.push(std::ptr::null());
        Strings { pointers, _kept: made }
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

fn variable(name: &[u8], value: &[u8]) -> Option<CString> {
    CString::new([name, b"=", value].concat()).ok()
}

/// Variables that say where the device is.
const OF_RUN: [&[u8]; 6] =
    [b"WELDFS_SOCKET", b"WELDFS_DEVICE_USER", b"WELDFS_PREFIX", b"WELDFS_MOUNT", b"WELDFS_MAPPED", b"WELDFS_UNMOUNTED"];

/// The environment for a new program: the caller's, plus what it needs to find the device, even if it was cleared.
fn environment(envp: *const *const c_char) -> Strings {
    crate::hooks::before_others();
    promotion::born();
    let given = abi::strings(envp);
    // Also what a program that WELDFS_BYPASS names executes.
    let Some(config) = config::carried() else { return Strings::new(&given, Vec::new()) };
    let value = |name: &[u8]| given.iter().find_map(|v| v.to_bytes().strip_prefix(name)?.strip_prefix(b"="));
    let given_socket = value(b"WELDFS_SOCKET");
    let other_mount = value(b"WELDFS_MAPPED") != config.registry.as_deref();
    if given_socket.is_some_and(|socket| socket != &config.socket[..] || other_mount) {
        // Another device, or another mount of it, was chosen for that program (`weldfs run` within `weldfs run`), and
        // everything else with it.
        return Strings::new(&given, Vec::new());
    }
    let mut made = Vec::new();
    made.extend(super::spawn::directory_inside().and_then(|name| variable(b"WELDFS_CWD", &name)));
    if let Some(library) = &config.library {
        let list = value(b"LD_PRELOAD").unwrap_or_default();
        let there = list.split(|b| matches!(b, b':' | b' ')).any(|part| part == &library[..]);
        let all = if there { list.to_vec() } else { [&library[..], b":", list].concat() };
        made.extend(variable(b"LD_PRELOAD", all.strip_suffix(b":").unwrap_or(&all)));
        made.extend(variable(b"WELDFS_PRELOAD", library));
    }
    made.extend(variable(b"WELDFS_SOCKET", &config.socket));
    made.extend(config.user.as_ref().and_then(|user| variable(b"WELDFS_DEVICE_USER", user)));
    made.extend(variable(b"WELDFS_PREFIX", &config.prefix));
    made.extend(config.mounted.then(|| variable(b"WELDFS_MOUNT", &config.prefix)).flatten());
    made.extend(config.registry.as_ref().and_then(|registry| variable(b"WELDFS_MAPPED", registry)));
    made.extend(config.unmounted.as_ref().and_then(|why| variable(b"WELDFS_UNMOUNTED", why)));
    // Another token is the program's own business, and so is another wait; without one it stays who its parent is, and
    // as patient.
    if let Some(token) = config.token.as_ref().filter(|_| value(b"WELDFS_TENANT_TOKEN").is_none()) {
        made.extend(variable(b"WELDFS_TENANT_TOKEN", token));
    }
    if let Some(wait) = config.wait.as_ref().filter(|_| value(b"WELDFS_WAIT").is_none()) {
        made.extend(variable(b"WELDFS_WAIT", wait));
    }
    for (name, on) in [(&b"WELDFS_REPORT"[..], config.counting), (b"WELDFS_DEBUG", config.debug)] {
        if on && value(name).is_none() {
            made.extend(variable(name, b"1"));
        }
    }
    if let Some(bypass) = config.bypass.as_ref().filter(|_| value(b"WELDFS_BYPASS").is_none()) {
        made.extend(variable(b"WELDFS_BYPASS", bypass));
    }
    if let Some(dir) = config.atomic.as_ref().filter(|_| value(b"WELDFS_ATOMIC").is_none()) {
        made.extend(variable(b"WELDFS_ATOMIC", &path::outside(&config.prefix, dir)));
    }
    if let Some(merge) = config.automerge.as_ref().filter(|_| value(b"WELDFS_AUTOMERGE").is_none()) {
        made.extend(variable(b"WELDFS_AUTOMERGE", merge));
    }
    if let Some(cache) = config.cache_text.as_ref().filter(|_| value(b"WELDFS_CACHE").is_none()) {
        made.extend(variable(b"WELDFS_CACHE", cache));
    }
    let ours = |v: &&CStr| {
        let v = v.to_bytes();
        let named = |name: &[u8]| v.strip_prefix(name).is_some_and(|r| r.first() == Some(&b'='));
        let stands = named(b"WELDFS_CWD") && config::get().is_some();
        stands
            || OF_RUN.into_iter().any(named)
            || (config.library.is_some() && (named(b"LD_PRELOAD") || named(b"WELDFS_PRELOAD")))
    };
    let rest: Vec<&CStr> = given.iter().copied().filter(|v| !ours(v)).collect();
    Strings::new(&rest, made)
}

/// How the kernel can run a file of ours.
struct Runnable {
    path: CString,
    /// Stands for argv[0].
    lead: Vec<CString>,
    /// Descriptor of the copy, to be closed when the program could not be started.
    copy: Option<c_int>,
}

impl Drop for Runnable {
    fn drop(&mut self) {
        if let Some(fd) = self.copy {
            let _ = sys::close(fd);
        }
    }
}

/// `name` is what a script's interpreter is told to open.
fn runnable(spot: &Spot<'_>, name: Option<&[u8]>) -> Res<Runnable> {
    let inner = spot.absolute();
    if let Some(inner) = inner.as_deref().filter(|inner| !inner.is_empty()) {
        if mount::at_prefix() {
            let path = mount::kernel_name(inner).ok_or(libc::EINVAL)?;
            report::promoted();
            return Ok(Runnable { path, lead: Vec::new(), copy: None });
        }
        if let Ok(names::Walked::Host(outer)) = names::walk(inner, true) {
            let path = CString::new(outer).map_err(|_| libc::EINVAL)?;
            return Ok(Runnable { path, lead: Vec::new(), copy: None });
        }
    }
    device::on(|d| d.accessat(spot.base, &spot.path, AccessMask::EXEC, false))?;
    let body = device::on(|d| d.statat(spot.base, &spot.path, false))?;
    if body.mode & libc::S_IFMT != libc::S_IFREG {
        return Err(libc::EACCES);
    }
    let h = device::on(|d| d.openat(spot.base, &spot.path, OpenFlags::READ, 0, 0))?.handle;
    let answer = runnable_handle(h, spot, name);
    let _ = device::on(|d| d.close(h));
    answer
}

fn runnable_handle(h: Handle, spot: &Spot<'_>, name: Option<&[u8]>) -> Res<Runnable> {
    let mut head = [0u8; SHEBANG_MAX];
    let n = device::on(|d| d.read(h, At::Offset(0), &mut head))?;
    let head = &head[..n];
    if head.starts_with(b"#!") {
        if let Some(name) = name {
            return script(head, name);
        }
        let config = config::get().ok_or(libc::ENODEV)?;
        let inner = spot.absolute().ok_or(libc::ENOENT)?;
        return script(head, &path::outside(&config.prefix, &inner));
    }
    if !head.starts_with(b"\x7fELF") {
        return Err(libc::ENOEXEC);
    }
    let flags = libc::MFD_CLOEXEC as usize;
    let copy = sys::checked(libc::SYS_memfd_create, [c"weldfs-program".as_ptr() as usize, flags, 0, 0, 0, 0])? as c_int;
    let name = CString::new(format!("/proc/self/fd/{copy}")).map_err(|_| libc::EINVAL)?;
    let made = Runnable { path: name, lead: Vec::new(), copy: Some(copy) };
    let (mut room, mut off) = (vec![0u8; STEP], 0u64);
    loop {
        let n = device::on(|d| d.read(h, At::Offset(off), &mut room[..]))?;
        if n == 0 {
            return Ok(made);
        }
        let args = [copy as usize, room.as_ptr() as usize, n, off as usize, 0, 0];
        if sys::checked(libc::SYS_pwrite64, args)? != n {
            return Err(libc::EIO);
        }
        off += n as u64;
    }
}

/// A script's first line: interpreter, and at most one argument.
fn script(head: &[u8], name: &[u8]) -> Res<Runnable> {
    let line = head[2..].split(|b| *b == b'\n').next().unwrap_or_default();
    let line = line.trim_ascii();
    let cut = line.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(line.len());
    let (interpreter, argument) = (&line[..cut], line[cut..].trim_ascii());
    if interpreter.is_empty() {
        return Err(libc::ENOEXEC);
    }
    if !matches!(locate(libc::AT_FDCWD, interpreter)?, Place::Host | Place::HostAt(_)) {
        return Err(report::refuse_unmounted(libc::EACCES, "a script whose interpreter lies under the prefix"));
    }
    let make = |b: &[u8]| CString::new(b).map_err(|_| libc::ENOEXEC);
    let mut lead = vec![make(interpreter)?];
    if !argument.is_empty() {
        lead.push(make(argument)?);
    }
    lead.push(make(name)?);
    Ok(Runnable { path: make(interpreter)?, lead, copy: None })
}

/// Runs `go(path, argv, envp)` with what the kernel can execute for `name`.
fn with_program(
    (dirfd, name): (c_int, &[u8]),
    argv: *const *const c_char,
    envp: *const *const c_char,
    go: impl FnOnce(Option<&CStr>, *const *const c_char, *const *const c_char) -> c_int,
) -> Res<c_int> {
    let env = environment(envp);
    match locate(dirfd, name)? {
        Place::Host => Ok(go(None, argv, env.as_ptr())),
        Place::HostAt(path) => Ok(go(Some(&path), argv, env.as_ptr())),
        Place::Device(_) if as_said(dirfd, name) => {
            report::promoted();
            Ok(go(None, argv, env.as_ptr()))
        }
        Place::Device(spot) => {
            let mut program = runnable(&spot, (dirfd == libc::AT_FDCWD).then_some(name))?;
            let args = abi::strings(argv);
            let lead = std::mem::take(&mut program.lead);
            let skip = usize::from(!lead.is_empty());
            let args = Strings::new(args.get(skip..).unwrap_or_default(), lead);
            Ok(go(Some(&program.path), args.as_ptr(), env.as_ptr()))
        }
    }
}

/// Whether the kernel finds a name under the prefix just as the caller said it, which scripts are told.
fn as_said(dirfd: c_int, name: &[u8]) -> bool {
    let relative = name.first() != Some(&b'/');
    mount::at_prefix() && !name.is_empty() && (!relative || (dirfd == libc::AT_FDCWD && cwd::kernel_stands_there()))
}

type Exec<'a> = &'a dyn Fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;

fn exec(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char, real: Exec<'_>) -> c_int {
    if config::carried().is_none() {
        return real(path, argv, envp);
    }
    if let Err(code) = abi::check_strings(argv).and(abi::check_strings(envp)) {
        return if super::directory::touches(path) { fail(code) } else { real(path, argv, envp) };
    }
    super::ending::tell();
    let Ok(name) = abi::text(path) else { return real(path, argv, envp) };
    let go = |found: Option<&CStr>, argv, envp| real(found.map_or(path, CStr::as_ptr), argv, envp);
    with_program((libc::AT_FDCWD, name), argv, envp, go).unwrap_or_else(fail)
}

/// execvp where PATH leads into the device: libc's search, with our exec.
fn search(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char, dirs: &[u8]) -> c_int {
    let Ok(name) = abi::text(file) else { return fail(libc::EFAULT) };
    let mut answer = libc::ENOENT;
    for dir in dirs.split(|b| *b == b':') {
        let dir = if dir.is_empty() { b"." } else { dir };
        let Ok(full) = CString::new(path::join(dir, name)) else { continue };
        execve(full.as_ptr(), argv, envp);
        match abi::errno() {
            libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG => {}
            libc::EACCES => answer = libc::EACCES,
            libc::ENOEXEC => {
                let lead = vec![c"/bin/sh".to_owned(), full];
                let args = abi::strings(argv);
                let args = Strings::new(args.get(1..).unwrap_or_default(), lead);
                return execve(c"/bin/sh".as_ptr(), args.as_ptr(), envp);
            }
            code => return fail(code),
        }
    }
    fail(answer)
}

/// PATH, if a bare name must be looked for in the device, too.
fn path_into_device(file: *const c_char) -> Option<&'static [u8]> {
    let config = config::get()?;
    let name = abi::text(file).ok()?;
    if name.contains(&b'/') {
        return None;
    }
    abi::env(c"PATH").filter(|dirs| path::mentions(dirs, config.needle()))
}

fn exec_found(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char, real: Exec<'_>) -> c_int {
    if abi::text(file).is_ok_and(|f| f.contains(&b'/')) {
        // libc's answer to ENOEXEC is a shell; so is ours.
        let answer = execve(file, argv, envp);
        if abi::errno() != libc::ENOEXEC {
            return answer;
        }
    }
    match path_into_device(file) {
        Some(dirs) => search(file, argv, envp, dirs),
        None => {
            super::ending::tell();
            real(file, argv, environment(envp).as_ptr())
        }
    }
}

/// A descriptor of ours, executed.
fn exec_fd(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> Res<c_int> {
    let name = crate::table::entry(fd).and_then(crate::table::Open::name).ok_or(libc::ENOENT)?;
    let config = config::get().ok_or(libc::ENODEV)?;
    let full = CString::new(path::outside(&config.prefix, &name)).map_err(|_| libc::EINVAL)?;
    Ok(execve(full.as_ptr(), argv, envp))
}

type Spawn = *const c_void;
type SpawnArgs = (*mut pid_t, *const c_char, Spawn, Spawn);

/// posix_spawn returns its error.
fn spawn(
    (path, argv, envp): (*const c_char, *const *const c_char, *const *const c_char),
    real: impl FnOnce(*const c_char, *const *const c_char, *const *const c_char) -> c_int,
) -> c_int {
    if config::carried().is_none() || abi::check_strings(argv).and(abi::check_strings(envp)).is_err() {
        return real(path, argv, envp);
    }
    let Ok(name) = abi::text(path) else { return real(path, argv, envp) };
    let moved = super::spawn::seen(name);
    let (path, name) = moved.as_ref().map_or((path, name), |full| (full.as_ptr(), full.to_bytes()));
    let go = |found: Option<&CStr>, argv, envp| real(found.map_or(path, CStr::as_ptr), argv, envp);
    with_program((libc::AT_FDCWD, name), argv, envp, go).unwrap_or_else(|code| code)
}

hook! { real;
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        exec(path, argv, envp, &real)
    }
    fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
        execve(path, argv, abi::environment())
    }
    fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        exec_found(file, argv, envp, &real)
    }
    fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
        execvpe(file, argv, abi::environment())
    }
    fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        if crate::table::ours(fd) {
            return exec_fd(fd, argv, envp).unwrap_or_else(fail);
        }
        super::ending::tell();
        real(fd, argv, environment(envp).as_ptr())
    }
    fn execveat(
        dirfd: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char, flags: c_int,
    ) -> c_int {
        let Ok(name) = abi::text(path) else { return fail(libc::EFAULT) };
        if name.is_empty() && crate::table::ours(dirfd) {
            return exec_fd(dirfd, argv, envp).unwrap_or_else(fail);
        }
        super::ending::tell();
        let go = |found: Option<&CStr>, argv, envp| match found {
            Some(found) => real(libc::AT_FDCWD, found.as_ptr(), argv, envp, flags),
            None => real(dirfd, path, argv, envp, flags),
        };
        with_program((dirfd, name), argv, envp, go).unwrap_or_else(fail)
    }
    fn posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: Spawn, attributes: Spawn,
        argv: *const *const c_char, envp: *const *const c_char,
    ) -> c_int {
        super::spawn::with_list(actions, |actions| {
            spawn((path, argv, envp), |path, argv, envp| real(pid, path, actions, attributes, argv, envp))
        })
    }
    fn posix_spawnp(
        pid: *mut pid_t, file: *const c_char, actions: Spawn, attributes: Spawn,
        argv: *const *const c_char, envp: *const *const c_char,
    ) -> c_int {
        let bare = abi::text(file).is_ok_and(|f| !f.contains(&b'/'));
        match path_into_device(file).filter(|_| bare) {
            Some(dirs) => spawn_found((pid, file, actions, attributes), argv, envp, dirs),
            None => super::spawn::with_list(actions, |actions| match bare {
                true => {
                    real(pid, file, actions, attributes, argv, environment(envp).as_ptr())
                }
                false => {
                    spawn((file, argv, envp), |path, argv, envp| real(pid, path, actions, attributes, argv, envp))
                }
            }),
        }
    }
}

/// posix_spawnp where PATH leads into the device.
fn spawn_found(
    (pid, file, actions, attributes): SpawnArgs,
    argv: *const *const c_char,
    envp: *const *const c_char,
    dirs: &[u8],
) -> c_int {
    let Ok(name) = abi::text(file) else { return libc::EFAULT };
    let mut answer = libc::ENOENT;
    for dir in dirs.split(|b| *b == b':').filter(|d| !d.is_empty()) {
        let Ok(full) = CString::new(path::join(dir, name)) else { continue };
        match posix_spawn(pid, full.as_ptr(), actions, attributes, argv, envp) {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => answer = libc::EACCES,
            code => return code,
        }
    }
    answer
}
