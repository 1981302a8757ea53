//! POSIX asynchronous I/O. libc's threads use calls that cannot be interposed, so a request on a device file is carried
//! out when it is made: it is over before the call returns, and then announced as its `sigevent` asks. What asks about
//! requests (aio_error, aio_return, aio_suspend, aio_cancel) is libc's own, and finds it over.

use crate::abi::{self, fail, hook};
use crate::table;
use libc::{c_int, c_void, sigevent};
use std::ptr::null_mut;

/// `struct aiocb` of glibc. The members after the event are libc's own.
#[repr(C)]
pub struct Request {
    fd: c_int,
    opcode: c_int,
    priority: c_int,
    buffer: *mut c_void,
    n: usize,
    event: sigevent,
    next: *mut c_void,
    absolute_priority: c_int,
    policy: c_int,
    error: c_int,
    value: isize,
    offset: i64,
    reserved: [u8; 32],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::aiocb>());

/// SIGEV_THREAD's function and its argument, in libc's union behind the signal.
#[repr(C)]
struct Threaded {
    value: *mut c_void,
    signal: c_int,
    notify: c_int,
    function: Option<extern "C" fn(*mut c_void)>,
    attributes: *mut libc::pthread_attr_t,
}

fn announce(event: &sigevent) {
    match event.sigev_notify {
        libc::SIGEV_SIGNAL => {
            // SAFETY: a signal to this process, with the value that it asked for.
            unsafe { libc::sigqueue(libc::getpid(), event.sigev_signo, event.sigev_value) };
        }
        libc::SIGEV_THREAD => {
            // SAFETY: glibc's layout of the structure for this kind of event.
            let asked = unsafe { &*std::ptr::from_ref(event).cast::<Threaded>() };
            let Some(function) = asked.function else { return };
            let pair = Box::into_raw(Box::new((function, asked.value as usize)));
            let mut thread: libc::pthread_t = 0;
            // SAFETY: a function of the right type; the pair is its own from here on, or ours again if there is no
            // thread.
            unsafe {
                if libc::pthread_create(&raw mut thread, null_mut(), run, pair.cast()) == 0 {
                    libc::pthread_detach(thread);
                } else {
                    drop(Box::from_raw(pair));
                }
            }
        }
        _ => {}
    }
}

extern "C" fn run(pair: *mut c_void) -> *mut c_void {
    // SAFETY: made by `announce` for this thread.
    let pair = unsafe { Box::from_raw(pair.cast::<(extern "C" fn(*mut c_void), usize)>()) };
    (pair.0)(pair.1 as *mut c_void);
    null_mut()
}

fn over(request: &mut Request, value: isize) {
    (request.error, request.value) = (if value < 0 { abi::errno() } else { 0 }, value);
}

/// The request, if it is on a file of ours.
fn ours<'a>(request: *mut Request) -> Option<&'a mut Request> {
    crate::config::get()?;
    // SAFETY: the caller's request, of the size asserted above.
    let request = unsafe { request.as_mut() }?;
    table::ours(request.fd).then_some(request)
}

fn read(request: &mut Request) {
    over(request, super::rw::pread64(request.fd, request.buffer, request.n, request.offset));
}

fn write(request: &mut Request) {
    over(request, super::rw::pwrite64(request.fd, request.buffer, request.n, request.offset));
}

fn alone(request: &mut Request, go: fn(&mut Request)) -> c_int {
    go(request);
    announce(&request.event);
    0
}

fn sync(operation: c_int, request: &mut Request) -> c_int {
    let answer = match operation {
        libc::O_DSYNC => super::sync::fdatasync(request.fd),
        libc::O_SYNC => super::sync::fsync(request.fd),
        _ => return fail(libc::EINVAL),
    };
    over(request, answer as isize);
    announce(&request.event);
    0
}

/// A list with requests of ours in it: those are carried out, the rest is libc's.
fn list(mode: c_int, all: &[*mut Request], event: *mut sigevent, real: impl FnOnce(&[*mut Request]) -> c_int) -> c_int {
    if mode != libc::LIO_WAIT && mode != libc::LIO_NOWAIT {
        return fail(libc::EINVAL);
    }
    let (mut rest, mut failed) = (Vec::new(), false);
    for one in all {
        let Some(request) = ours(*one) else {
            rest.push(*one);
            continue;
        };
        match request.opcode {
            libc::LIO_READ => read(request),
            libc::LIO_WRITE => write(request),
            libc::LIO_NOP => continue,
            _ => {
                abi::set_errno(libc::EINVAL);
                over(request, -1);
            }
        }
        failed |= request.error != 0;
        announce(&request.event);
    }
    let any = rest.iter().any(|one| !one.is_null());
    let answer = if any { real(&rest) } else { 0 };
    if !any
        && mode == libc::LIO_NOWAIT
        && let Ok(event) = abi::array(event, usize::from(!event.is_null()))
    {
        event.iter().for_each(announce);
    }
    if answer == 0 && failed { fail(libc::EIO) } else { answer }
}

fn any_ours(all: *const *mut Request, n: c_int) -> Option<&'static [*mut Request]> {
    let all = abi::array(all, usize::try_from(n).ok()?).ok()?;
    all.iter().any(|one| ours(*one).is_some()).then_some(all)
}

hook! { real;
    fn aio_read(request: *mut Request) -> c_int {
        match ours(request) { Some(request) => alone(request, read), None => real(request) }
    }
    fn aio_read64(request: *mut Request) -> c_int {
        match ours(request) { Some(request) => alone(request, read), None => real(request) }
    }
    fn aio_write(request: *mut Request) -> c_int {
        match ours(request) { Some(request) => alone(request, write), None => real(request) }
    }
    fn aio_write64(request: *mut Request) -> c_int {
        match ours(request) { Some(request) => alone(request, write), None => real(request) }
    }
    fn aio_fsync(operation: c_int, request: *mut Request) -> c_int {
        match ours(request) { Some(request) => sync(operation, request), None => real(operation, request) }
    }
    fn aio_fsync64(operation: c_int, request: *mut Request) -> c_int {
        match ours(request) { Some(request) => sync(operation, request), None => real(operation, request) }
    }
    fn lio_listio(mode: c_int, all: *const *mut Request, n: c_int, event: *mut sigevent) -> c_int {
        match any_ours(all, n) {
            Some(all) => list(mode, all, event, |rest| real(mode, rest.as_ptr(), rest.len() as c_int, event)),
            None => real(mode, all, n, event),
        }
    }
    fn lio_listio64(mode: c_int, all: *const *mut Request, n: c_int, event: *mut sigevent) -> c_int {
        match any_ours(all, n) {
            Some(all) => list(mode, all, event, |rest| real(mode, rest.as_ptr(), rest.len() as c_int, event)),
            None => real(mode, all, n, event),
        }
    }
}
