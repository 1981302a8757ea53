//! Data in and out: read, write, their positioned, vectored and fortified forms, and lseek.

use super::{ours, ours_alone};
use crate::abi::{self, Res, count, fail, give, hook};
use crate::{device, limit, look, memory, merge, promote, registry, report, sys};
use libc::{c_int, c_void, iovec, off_t};
use std::io::{IoSlice, IoSliceMut};
use weldfs::Written;
use weldfs_ciscops::Handle;
use weldfs_ciscops::command::At;
use weldfs_ciscops::flags::{OpenFlags, Whence};

fn offset(off: off_t) -> Res<At> {
    u64::try_from(off).map(At::Offset).map_err(|_| libc::EINVAL)
}

/// Bytes at most per call, as the kernel's own limit.
const CALL_MAX: usize = 0x7fff_f000;
/// Bytes of a read that are asked for at once: a buffer is looked at only as far as the file may fill it.
const PIECE: usize = 1 << 20;

/// A call of the kernel's own file, where the device's file is mapped by a program: its number, and its arguments
/// between the descriptor and the position, and behind that.
type Call = (i64, [usize; 3]);

fn at_offset(file: c_int, (number, [buffers, n, flags]): Call, off: u64) -> Res<usize> {
    // The position as two halves of a long, as the vectored calls take it: the upper one counts on small machines only.
    sys::checked(number, [file as usize, buffers, n, off as usize, 0, flags])
}

#[cold]
fn kernel_read(file: c_int, h: Handle, at: At, (call, n): (Call, usize)) -> Res<usize> {
    promote::read(h, at, n, |off| at_offset(file, call, off))
}

fn appends(fd: c_int) -> bool {
    super::flags_of(fd).contains(OpenFlags::APPEND)
}

/// How a write goes: through the kernel's file, or as the device's command.
enum Way {
    /// With the registry's stamp from before the file was found mapped; 0: it is about to be.
    Kernel(c_int, u64),
    /// To the end of a mapped file.
    Append(c_int),
    /// With the registry's stamp as of which the file is not mapped.
    Device(u64),
}

/// Which one: of a write that appends, or does not.
#[inline]
fn way(fd: c_int, appends: impl FnOnce() -> bool) -> Res<Way> {
    let before = registry::stamp();
    Ok(match promote::found(fd)? {
        None => Way::Device(before),
        Some((file, _)) if appends() => Way::Append(file),
        Some((file, begins)) => Way::Kernel(file, if begins { 0 } else { before }),
    })
}

/// A write through the kernel. Where a mapping of the file began meanwhile, the kernel may have dropped a page that had
/// it, and read that anew before the device had it.
#[cold]
fn kernel_write((file, before): (c_int, u64), fd: c_int, (h, at): (Handle, At), to: (Call, usize)) -> Res<usize> {
    let (call, n) = to;
    promote::write(h, at, n, |off| {
        let done = at_offset(file, call, off)?;
        promote::once_more((fd, h), before, |file| {
            let again = at_offset(file, call, off)?;
            if again < done { Err(libc::EIO) } else { Ok(()) }
        });
        Ok(done)
    })
}

/// An append to a mapped file. `moves`: the offset goes to the end.
#[cold]
fn kernel_append(file: c_int, h: Handle, moves: bool, call: Call) -> Res<usize> {
    let done = at_offset(file, call, 0)?;
    if done > 0 && moves {
        device::on(|d| d.seek(h, Whence::End, 0))?;
    }
    Ok(done)
}

/// What the device has written, to the kernel's file.
fn again(file: c_int, written: Written, parts: &[IoSlice<'_>]) -> Res<()> {
    let (mut at, mut left) = (written.offset, written.len);
    for part in parts {
        let bytes = &part[..part.len().min(left)];
        left -= bytes.len();
        merge::write_all(file, at, bytes)?;
        at += bytes.len() as u64;
    }
    Ok(())
}

/// After a write by the device's command.
#[inline]
fn written((fd, h): (c_int, Handle), before: u64, written: Written, parts: &[IoSlice<'_>]) -> usize {
    promote::once_more((fd, h), before, |file| again(file, written, parts));
    written.len
}

/// Reads into a C buffer.
#[inline]
fn read_at(fd: c_int, h: Handle, at: Res<At>, buf: *mut c_void, n: usize) -> isize {
    count(at.and_then(|at| {
        if let Some(file) = promote::mapped(fd)? {
            return kernel_read(file, h, at, ((libc::SYS_pread64, [buf as usize, n, 0]), n.min(CALL_MAX)));
        }
        if !memory::is_range(buf, n) {
            return nowhere_to_read(h, at).and(Err(libc::EFAULT));
        }
        if n <= PIECE { read_piece(h, at, buf, n) } else { read_pieces(fd, h, at, buf, n) }
    }))
}

#[inline]
fn read_piece(h: Handle, at: At, buf: *mut c_void, n: usize) -> Res<usize> {
    match abi::room(buf, n) {
        Ok(room) => device::on(|d| d.read(h, at, room)),
        Err(_) => nowhere_to_read(h, at),
    }
}

fn read_pieces(fd: c_int, h: Handle, at: At, buf: *mut c_void, n: usize) -> Res<usize> {
    let (n, mut done) = (n.min(CALL_MAX), 0);
    while done < n {
        let at = if let At::Offset(off) = at { At::Offset(off + done as u64) } else { at };
        let want = PIECE.min(n - done);
        // Mapped meanwhile: what is there so far is a read's answer.
        if done > 0 && promote::mapped(fd)?.is_some() {
            break;
        }
        match read_piece(h, at, buf.wrapping_byte_add(done), want) {
            Ok(got) => {
                done += got;
                if got < want {
                    break;
                }
            }
            Err(code) if done == 0 => return Err(code),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// A read without a place for what it finds: fine where there is nothing to find.
#[cold]
fn nowhere_to_read(h: Handle, at: At) -> Res<usize> {
    let mut byte = [0u8];
    let found = device::on(|d| {
        let at = if at == At::Current { At::Offset(d.seek(h, Whence::Cur, 0)?) } else { at };
        d.read(h, at, &mut byte)
    });
    match found {
        Ok(0) => Ok(0),
        Ok(_) => Err(libc::EFAULT),
        Err(code) => Err(code),
    }
}

/// Writes from a C buffer.
#[inline]
fn write_at(fd: c_int, h: Handle, at: Res<At>, buf: *const c_void, n: usize) -> isize {
    count(at.and_then(|at| match way(fd, || appends(fd))? {
        Way::Kernel(file, before) => {
            let call = (libc::SYS_pwrite64, [buf as usize, n, 0]);
            kernel_write((file, before), fd, (h, at), (call, n.min(CALL_MAX)))
        }
        Way::Append(file) => {
            let call = (libc::SYS_pwrite64, [buf as usize, n, 0]);
            kernel_append(file, h, at == At::Current, call)
        }
        Way::Device(before) => write_device(fd, before, (h, at), buf, n),
    }))
}

#[inline]
fn write_device(fd: c_int, before: u64, (h, at): (Handle, At), buf: *const c_void, n: usize) -> Res<usize> {
    match abi::bytes(buf, n.min(CALL_MAX)) {
        Ok(_) if !memory::is_range(buf, n) => Err(nothing_to_write(h, at, libc::EFAULT)),
        Ok(bytes) => {
            let bytes = &bytes[..limit::writable(h, at, super::flags_of(fd), bytes.len())?];
            if let Some(n) = merge::write(fd, before, (h, at), &[IoSlice::new(bytes)])? {
                return Ok(n);
            }
            let done = device::on(|d| d.write(h, at, bytes))?;
            Ok(written((fd, h), before, done, &[IoSlice::new(bytes)]))
        }
        Err(code) => Err(nothing_to_write(h, at, code)),
    }
}

/// The errno of a write from memory that is not there: a descriptor that cannot write comes first.
#[cold]
fn nothing_to_write(h: Handle, at: At, code: c_int) -> c_int {
    device::on(|d| d.write(h, at, &[])).err().unwrap_or(code)
}

fn readv_at(fd: c_int, h: Handle, at: Res<At>, iov: *const iovec, n: c_int) -> isize {
    let go = || -> Res<usize> {
        let (at, mut parts, mut short) = (at?, Vec::new(), false);
        if let Some(file) = promote::mapped(fd)? {
            let call = (libc::SYS_preadv2, [iov as usize, n as usize, 0]);
            return kernel_read(file, h, at, (call, bytes_in(iov, n)?));
        }
        for part in abi::vector(iov, n)?.iter().filter(|part| part.iov_len > 0) {
            match abi::room(part.iov_base, part.iov_len) {
                Ok(room) => {
                    short = room.len() < part.iov_len;
                    parts.push(IoSliceMut::new(room));
                }
                Err(_) => short = true,
            }
            if short {
                break;
            }
        }
        if short && parts.is_empty() {
            return nowhere_to_read(h, at);
        }
        device::on(|d| d.read(h, at, &mut parts[..]))
    };
    count(go())
}

/// How many bytes the kernel would write at most of a vector.
fn bytes_in(iov: *const iovec, n: c_int) -> Res<usize> {
    let all = abi::vector(iov, n)?.iter().try_fold(0usize, |sum, part| sum.checked_add(part.iov_len));
    Ok(all.ok_or(libc::EINVAL)?.min(CALL_MAX))
}

/// The buffers of a write, as far as they are there and a limit of sizes lets them be written.
fn gather<'a>(fd: c_int, h: Handle, at: At, (iov, n): (*const iovec, c_int)) -> Res<Vec<IoSlice<'a>>> {
    let parts = buffers(iov, n, usize::MAX)?;
    let all = parts.iter().map(|part| part.len()).sum();
    let may = limit::writable(h, at, super::flags_of(fd), all)?;
    if may < all { buffers(iov, n, may) } else { Ok(parts) }
}

/// The first `most` bytes of a vector.
fn buffers<'a>(iov: *const iovec, n: c_int, most: usize) -> Res<Vec<IoSlice<'a>>> {
    let (mut parts, mut left) = (Vec::new(), most);
    for part in abi::vector(iov, n)?.iter().filter(|part| part.iov_len > 0) {
        let len = part.iov_len.min(left);
        match abi::bytes(part.iov_base, len) {
            Ok(bytes) => {
                left -= bytes.len();
                parts.push(IoSlice::new(bytes));
                if bytes.len() < part.iov_len {
                    break;
                }
            }
            Err(code) if parts.is_empty() => return Err(code),
            Err(_) => break,
        }
    }
    Ok(parts)
}

fn writev_at(fd: c_int, h: Handle, at: Res<At>, iov: *const iovec, n: c_int) -> isize {
    let go = || -> Res<usize> {
        let at = at?;
        let before = match way(fd, || appends(fd))? {
            Way::Device(before) => before,
            Way::Append(file) => {
                let call = (libc::SYS_pwritev2, [iov as usize, n as usize, 0]);
                return kernel_append(file, h, at == At::Current, call);
            }
            Way::Kernel(file, before) => {
                let call = (libc::SYS_pwritev2, [iov as usize, n as usize, 0]);
                return kernel_write((file, before), fd, (h, at), (call, bytes_in(iov, n)?));
            }
        };
        match gather(fd, h, at, (iov, n)) {
            Ok(parts) => {
                if let Some(n) = merge::write(fd, before, (h, at), &parts)? {
                    return Ok(n);
                }
                let done = device::on(|d| d.write(h, at, &parts[..]))?;
                Ok(written((fd, h), before, done, &parts))
            }
            Err(libc::EFAULT) => Err(nothing_to_write(h, at, libc::EFAULT)),
            Err(code) => Err(code),
        }
    };
    count(go())
}

/// preadv2 and pwritev2: -1 means the current offset.
fn offset_or_current(off: off_t) -> Res<At> {
    if off == -1 { Ok(At::Current) } else { offset(off) }
}

/// Flags of preadv2 and pwritev2 that libc's Rust binding may not know yet.
const RWF_NOAPPEND: c_int = 0x20;
const RWF_ALL: c_int =
    libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_NOWAIT | libc::RWF_APPEND | RWF_NOAPPEND;

fn check_flags(flags: c_int) -> Res<()> {
    if flags & !RWF_ALL != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let both = libc::RWF_APPEND | RWF_NOAPPEND;
    if flags & both == both { Err(libc::EINVAL) } else { Ok(()) }
}

/// A read with flags: none of them changes what a read of a device file does, which never waits for a medium longer
/// than a page of a file does.
fn readv_with(fd: c_int, h: Handle, (off, flags): (off_t, c_int), iov: *const iovec, n: c_int) -> isize {
    match check_flags(flags) {
        Ok(()) => readv_at(fd, h, offset_or_current(off), iov, n),
        Err(code) => fail(code),
    }
}

/// A write with flags. RWF_NOWAIT is what ext4 says to it; RWF_APPEND leaves the offset alone unless that is used.
fn writev_with(fd: c_int, h: Handle, (off, flags): (off_t, c_int), iov: *const iovec, n: c_int) -> isize {
    let go = || -> Res<usize> {
        check_flags(flags)?;
        if flags & libc::RWF_NOWAIT != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if flags & RWF_NOAPPEND != 0 && super::flags_of(fd).contains(OpenFlags::APPEND) {
            return Err(report::refuse(libc::EOPNOTSUPP, "RWF_NOAPPEND on a descriptor that appends"));
        }
        let to_end = flags & libc::RWF_APPEND != 0;
        let said = offset_or_current(off)?;
        let at = if to_end { At::End } else { said };
        let kept = flags & (libc::RWF_DSYNC | libc::RWF_SYNC);
        let call = (libc::SYS_pwritev2, [iov as usize, n as usize, kept as usize]);
        let before = match way(fd, || to_end || appends(fd))? {
            Way::Device(before) => before,
            Way::Append(file) => {
                // The end is the one that the kernel knows.
                promote::refresh(file);
                let [at, n, kept] = call.1;
                let call = (call.0, [at, n, kept | (flags & libc::RWF_APPEND) as usize]);
                return kernel_append(file, h, said == At::Current, call);
            }
            Way::Kernel(file, before) => {
                return kernel_write((file, before), fd, (h, at), (call, bytes_in(iov, n)?));
            }
        };
        let parts = gather(fd, h, at, (iov, n)).map_err(|code| match code {
            libc::EFAULT => nothing_to_write(h, at, code),
            code => code,
        })?;
        let done = device::on(|d| d.write(h, at, &parts[..]))?;
        let len = written((fd, h), before, done, &parts);
        if at == At::End && off == -1 {
            let end = done.offset as i64 + len as i64;
            device::on(|d| d.seek(h, Whence::Set, end))?;
        }
        match flags & (libc::RWF_DSYNC | libc::RWF_SYNC) {
            _ if len == 0 => {}
            0 => {}
            libc::RWF_DSYNC => device::on(|d| d.fdatasync(h))?,
            _ => device::on(|d| d.fsync(h))?,
        }
        Ok(len)
    };
    count(go())
}

/// A fortified call whose buffer is too small for what was asked: libc's own would abort, and so do we.
fn fortified(n: usize, size: usize) {
    if n > size {
        crate::report::fatal(&["buffer overflow detected"]);
    }
}

fn seek(fd: c_int, h: Handle, off: off_t, whence: c_int) -> off_t {
    let Some(whence) = u64::try_from(whence).ok().and_then(Whence::from_wire) else { return fail(libc::EINVAL) };
    // What is a hole to the device may be filled in a mapping.
    if matches!(whence, Whence::Data | Whence::Hole)
        && let Err(code) = promote::write_back(fd)
    {
        return fail(code);
    }
    let at = device::on(|d| d.seek(h, whence, off));
    if let Ok(at) = at {
        merge::note_place(fd, at);
    }
    if let (Ok(at), Some(open)) = (at, crate::table::entry(fd)) {
        // Where raw getdents64 goes on.
        open.cursor.store(at, std::sync::atomic::Ordering::Relaxed);
    }
    give(at.map(|n| n as off_t))
}

hook! { real;
    fn read(fd: c_int, buf: *mut c_void, n: usize) -> isize {
        if let Some(got) = look::read(fd, buf, n) {
            return got;
        }
        let h = ours!(fd, else real(fd, buf, n));
        read_at(fd, h, Ok(At::Current), buf, n)
    }
    fn __read(fd: c_int, buf: *mut c_void, n: usize) -> isize {
        if let Some(got) = look::read(fd, buf, n) {
            return got;
        }
        let h = ours!(fd, else real(fd, buf, n));
        read_at(fd, h, Ok(At::Current), buf, n)
    }
    fn __read_chk(fd: c_int, buf: *mut c_void, n: usize, size: usize) -> isize {
        if n <= size
            && let Some(got) = look::read(fd, buf, n)
        {
            return got;
        }
        let h = ours!(fd, else real(fd, buf, n, size));
        fortified(n, size);
        read_at(fd, h, Ok(At::Current), buf, n)
    }
    fn pread(fd: c_int, buf: *mut c_void, n: usize, off: off_t) -> isize {
        if let Some(got) = look::read_at(fd, buf, n, off) {
            return got;
        }
        let h = ours_alone!(fd, else real(fd, buf, n, off));
        read_at(fd, h, offset(off), buf, n)
    }
    fn pread64(fd: c_int, buf: *mut c_void, n: usize, off: off_t) -> isize {
        if let Some(got) = look::read_at(fd, buf, n, off) {
            return got;
        }
        let h = ours_alone!(fd, else real(fd, buf, n, off));
        read_at(fd, h, offset(off), buf, n)
    }
    fn __pread64(fd: c_int, buf: *mut c_void, n: usize, off: off_t) -> isize {
        if let Some(got) = look::read_at(fd, buf, n, off) {
            return got;
        }
        let h = ours_alone!(fd, else real(fd, buf, n, off));
        read_at(fd, h, offset(off), buf, n)
    }
    fn __pread_chk(fd: c_int, buf: *mut c_void, n: usize, off: off_t, size: usize) -> isize {
        if n <= size
            && let Some(got) = look::read_at(fd, buf, n, off)
        {
            return got;
        }
        let h = ours_alone!(fd, else real(fd, buf, n, off, size));
        fortified(n, size);
        read_at(fd, h, offset(off), buf, n)
    }
    fn __pread64_chk(fd: c_int, buf: *mut c_void, n: usize, off: off_t, size: usize) -> isize {
        if n <= size
            && let Some(got) = look::read_at(fd, buf, n, off)
        {
            return got;
        }
        let h = ours_alone!(fd, else real(fd, buf, n, off, size));
        fortified(n, size);
        read_at(fd, h, offset(off), buf, n)
    }
    fn __libc_pread(fd: c_int, buf: *mut c_void, n: usize, off: off_t) -> isize {
        if let Some(got) = look::read_at(fd, buf, n, off) {
            return got;
        }
        let h = ours_alone!(fd, else real(fd, buf, n, off));
        read_at(fd, h, offset(off), buf, n)
    }
    fn __libc_pwrite(fd: c_int, buf: *const c_void, n: usize, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, buf, n, off));
        write_at(fd, h, offset(off), buf, n)
    }
    fn readv(fd: c_int, iov: *const iovec, n: c_int) -> isize {
        let h = ours!(fd, else real(fd, iov, n));
        readv_at(fd, h, Ok(At::Current), iov, n)
    }
    fn preadv(fd: c_int, iov: *const iovec, n: c_int, off: off_t) -> isize {
        let h = ours_alone!(fd, else real(fd, iov, n, off));
        readv_at(fd, h, offset(off), iov, n)
    }
    fn preadv64(fd: c_int, iov: *const iovec, n: c_int, off: off_t) -> isize {
        let h = ours_alone!(fd, else real(fd, iov, n, off));
        readv_at(fd, h, offset(off), iov, n)
    }
    fn preadv2(fd: c_int, iov: *const iovec, n: c_int, off: off_t, flags: c_int) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off, flags));
        readv_with(fd, h, (off, flags), iov, n)
    }
    fn preadv64v2(fd: c_int, iov: *const iovec, n: c_int, off: off_t, flags: c_int) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off, flags));
        readv_with(fd, h, (off, flags), iov, n)
    }
    fn write(fd: c_int, buf: *const c_void, n: usize) -> isize {
        let h = ours!(fd, else real(fd, buf, n));
        write_at(fd, h, Ok(At::Current), buf, n)
    }
    fn __write(fd: c_int, buf: *const c_void, n: usize) -> isize {
        let h = ours!(fd, else real(fd, buf, n));
        write_at(fd, h, Ok(At::Current), buf, n)
    }
    fn pwrite(fd: c_int, buf: *const c_void, n: usize, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, buf, n, off));
        write_at(fd, h, offset(off), buf, n)
    }
    fn pwrite64(fd: c_int, buf: *const c_void, n: usize, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, buf, n, off));
        write_at(fd, h, offset(off), buf, n)
    }
    fn __pwrite64(fd: c_int, buf: *const c_void, n: usize, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, buf, n, off));
        write_at(fd, h, offset(off), buf, n)
    }
    fn writev(fd: c_int, iov: *const iovec, n: c_int) -> isize {
        let h = ours!(fd, else real(fd, iov, n));
        writev_at(fd, h, Ok(At::Current), iov, n)
    }
    fn pwritev(fd: c_int, iov: *const iovec, n: c_int, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off));
        writev_at(fd, h, offset(off), iov, n)
    }
    fn pwritev64(fd: c_int, iov: *const iovec, n: c_int, off: off_t) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off));
        writev_at(fd, h, offset(off), iov, n)
    }
    fn pwritev2(fd: c_int, iov: *const iovec, n: c_int, off: off_t, flags: c_int) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off, flags));
        writev_with(fd, h, (off, flags), iov, n)
    }
    fn pwritev64v2(fd: c_int, iov: *const iovec, n: c_int, off: off_t, flags: c_int) -> isize {
        let h = ours!(fd, else real(fd, iov, n, off, flags));
        writev_with(fd, h, (off, flags), iov, n)
    }
    fn lseek(fd: c_int, off: off_t, whence: c_int) -> off_t {
        if let Some(at) = look::seek(fd, off, whence) {
            return at;
        }
        let h = ours!(fd, else real(fd, off, whence));
        seek(fd, h, off, whence)
    }
    fn lseek64(fd: c_int, off: off_t, whence: c_int) -> off_t {
        if let Some(at) = look::seek(fd, off, whence) {
            return at;
        }
        let h = ours!(fd, else real(fd, off, whence));
        seek(fd, h, off, whence)
    }
    fn __lseek(fd: c_int, off: off_t, whence: c_int) -> off_t {
        if let Some(at) = look::seek(fd, off, whence) {
            return at;
        }
        let h = ours!(fd, else real(fd, off, whence));
        seek(fd, h, off, whence)
    }
}
