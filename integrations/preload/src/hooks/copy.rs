//! Calls that move data between two descriptors inside the kernel. With one of ours they are a read and write loop,
//! or a refusal that makes programs fall back to one.

use crate::abi::{self, Res, count, fail, hook};
use crate::{device, promote, report, table};
use libc::{c_int, c_uint, off_t};
use weldfs_ciscops::Handle;
use weldfs_ciscops::flags::{OpenFlags, Whence};

/// Bytes moved per step.
const STEP: usize = 256 << 10;
/// Bytes at most per call, as the kernel's own limit.
const CALL_MAX: usize = 0x7fff_f000;

/// One side of a copy: a descriptor and, unless its own offset is used, the offset.
struct Side {
    fd: c_int,
    at: Option<off_t>,
}

impl Side {
    fn new(fd: c_int, at: *mut off_t) -> Res<Side> {
        let at = if at.is_null() { None } else { Some(abi::get(at)?) };
        if at.is_some_and(|at| at < 0) { Err(libc::EINVAL) } else { Ok(Side { fd, at }) }
    }

    fn read(&self, room: &mut [u8], done: usize) -> Res<usize> {
        let (p, n) = (room.as_mut_ptr().cast(), room.len());
        checked(match self.at {
            Some(at) => super::rw::pread64(self.fd, p, n, at + done as off_t),
            None => super::rw::read(self.fd, p, n),
        })
    }

    fn write(&self, bytes: &[u8], done: usize) -> Res<usize> {
        let (p, n) = (bytes.as_ptr().cast(), bytes.len());
        checked(match self.at {
            Some(at) => super::rw::pwrite64(self.fd, p, n, at + done as off_t),
            None => super::rw::write(self.fd, p, n),
        })
    }
}

fn checked(n: isize) -> Res<usize> {
    usize::try_from(n).map_err(|_| abi::errno())
}

/// Gives unread bytes back to the source's own offset.
fn unread(from: &Side, n: usize) {
    if from.at.is_none()
        && let Some(Ok(h)) = device::handle(from.fd)
    {
        let _ = device::on(|d| d.seek(h, Whence::Cur, -(n as i64)));
    }
}

fn copy(from: &Side, to: &Side, n: usize) -> Res<usize> {
    let n = n.min(CALL_MAX);
    let mut room = vec![0; n.min(STEP)];
    let mut done = 0;
    while done < n {
        let want = room.len().min(n - done);
        let got = match from.read(&mut room[..want], done) {
            Ok(0) => break,
            Ok(got) => got,
            Err(code) if done == 0 => return Err(code),
            Err(_) => break,
        };
        match to.write(&room[..got], done) {
            Ok(put) => {
                done += put;
                if put < got {
                    unread(from, got - put);
                    break;
                }
            }
            Err(code) => {
                unread(from, got);
                return if done == 0 { Err(code) } else { Ok(done) };
            }
        }
    }
    Ok(done)
}

fn advance(at: *mut off_t, n: usize) {
    if let Ok(old) = abi::get(at) {
        let _ = abi::put(at, old + n as off_t);
    }
}

fn copy_range(from: (c_int, *mut off_t), to: (c_int, *mut off_t), n: usize) -> isize {
    let go = || -> Res<usize> {
        let (a, b) = (Side::new(from.0, from.1)?, Side::new(to.0, to.1)?);
        let done = copy(&a, &b, n)?;
        advance(from.1, done);
        advance(to.1, done);
        Ok(done)
    };
    count(go())
}

/// One end of a splice: where the kernel moves bytes, and at which offset.
struct End {
    fd: c_int,
    given: *mut off_t,
    /// The device's offset, where the program says none.
    own: Option<(Handle, std::cell::Cell<off_t>)>,
}

impl End {
    fn new(fd: c_int, given: *mut off_t) -> Res<End> {
        if !table::ours(fd) {
            return Ok(End { fd, given, own: None });
        }
        let (file, handle) = promote::beside(fd)?;
        let own = match given.is_null() {
            true => Some((handle, std::cell::Cell::new(device::on(|d| d.seek(handle, Whence::Cur, 0))? as off_t))),
            false => None,
        };
        Ok(End { fd: file, given, own })
    }

    fn offset(&self) -> *mut off_t {
        self.own.as_ref().map_or(self.given, |(_, at)| at.as_ptr())
    }

    fn moved(&self) {
        if let Some((handle, at)) = &self.own {
            let _ = device::on(|d| d.seek(*handle, Whence::Set, at.get()));
        }
    }
}

/// copy_file_range's check of the two descriptors.
fn may_copy(input: c_int, out: c_int) -> bool {
    // An inherited one is claimed first: its flags are known then.
    let there = [input, out].iter().all(|fd| matches!(device::handle(*fd), Some(Ok(_))));
    let (from, to) = (super::flags_of(input), super::flags_of(out));
    there && from.contains(OpenFlags::READ) && to.contains(OpenFlags::WRITE) && !to.contains(OpenFlags::APPEND)
}

hook! { real;
    fn sendfile(out: c_int, input: c_int, off: *mut off_t, n: usize) -> isize {
        if !table::ours(out) && !table::ours(input) {
            return real(out, input, off, n);
        }
        copy_range((input, off), (out, std::ptr::null_mut()), n)
    }
    fn sendfile64(out: c_int, input: c_int, off: *mut off_t, n: usize) -> isize {
        if !table::ours(out) && !table::ours(input) {
            return real(out, input, off, n);
        }
        copy_range((input, off), (out, std::ptr::null_mut()), n)
    }
    fn copy_file_range(
        input: c_int, in_off: *mut off_t, out: c_int, out_off: *mut off_t, n: usize, flags: c_uint,
    ) -> isize {
        match (table::ours(input), table::ours(out)) {
            (false, false) => real(input, in_off, out, out_off, n, flags),
            (true, true) if flags == 0 && !may_copy(input, out) => fail(libc::EBADF),
            (true, true) if flags == 0 => copy_range((input, in_off), (out, out_off), n),
            (true, true) => fail(libc::EINVAL),
            // Two file systems: programs know this answer and fall back to read and write.
            _ => fail(report::decline(libc::EXDEV, "copy_file_range between the host and the device")),
        }
    }
    fn splice(
        input: c_int, in_off: *mut off_t, out: c_int, out_off: *mut off_t, n: usize, flags: c_uint,
    ) -> isize {
        if !table::ours(input) && !table::ours(out) {
            return real(input, in_off, out, out_off, n, flags);
        }
        // Between a pipe and the kernel's own file, where there is a mount; without, programs know this answer.
        let (Ok(from), Ok(to)) = (End::new(input, in_off), End::new(out, out_off)) else {
            return fail(report::decline(libc::EINVAL, "splice"));
        };
        report::promoted();
        let n = real(from.fd, from.offset(), to.fd, to.offset(), n, flags);
        let code = abi::errno();
        if n > 0 {
            from.moved();
            to.moved();
        }
        abi::set_errno(code);
        n
    }
    fn tee(input: c_int, out: c_int, n: usize, flags: c_uint) -> isize {
        if table::ours(input) || table::ours(out) {
            return fail(report::decline(libc::EINVAL, "tee"));
        }
        real(input, out, n, flags)
    }
    fn vmsplice(fd: c_int, iov: *const libc::iovec, n: usize, flags: c_uint) -> isize {
        if table::ours(fd) { fail(report::decline(libc::EBADF, "vmsplice")) } else { real(fd, iov, n, flags) }
    }
}
