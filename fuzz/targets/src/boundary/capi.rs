//! The C interface with hostile arguments: NULL wherever a pointer goes, lengths of nothing, structures of any content
//! and size, numbers without meaning, steps of programs that are none. Only what the header's first page makes a
//! caller promise is kept: pointers that are not NULL have as many bytes behind them as is said, strings end, objects
//! are alive. Every call answers; none says that the library has a bug.

mod flight;

use crate::cursor::Cursor;
use crate::{Seed, Target};
use libc::{c_char, c_int, c_void};
use std::cell::Cell;
use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::sync::{Arc, OnceLock};
use weldfs_c::{weldfs_client, weldfs_entry, weldfs_info, weldfs_space, weldfs_stat, weldfs_time, wrap};
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

/// See the module.
pub const TARGET: Target = Target {
    name: "capi",
    about: "calls of the C interface with hostile arguments, over a device in this process",
    run,
    seeds,
    len_max: 1024,
};

/// Bytes of the device, and of the buffer that calls read from and write into.
const DEVICE_BYTES: u64 = 16 << 20;
const BUFFER: usize = 8192;
/// Calls of one input.
const CALLS_MAX: u8 = 24;
/// Names that calls use, when the input does not bring its own.
const NAMES: [&str; 5] = ["/a", "/b", "/d", "/d/x", "/"];

/// An object of the library; an attachment.
type File = *mut c_void;
type Client = *const c_void;

/// A number of a step, as in the header.
#[repr(C)]
#[derive(Clone, Copy)]
struct Value(u64, u32, u32);

/// Bytes of a step, as in the header.
#[repr(C)]
#[derive(Clone, Copy)]
struct Place(u32, c_int, u32, u32);

/// Memory for a range of a program, as in the header.
#[repr(C)]
struct Operand {
    data: *mut c_void,
    len: usize,
    filled: usize,
    reserved: u64,
}

// As of userlib/include/weldfs.h.
unsafe extern "C" {
    fn weldfs_last_error() -> *const c_char;
    fn weldfs_strerror(error: c_int) -> *const c_char;
    fn weldfs_get_info(client: Client, info: *mut weldfs_info) -> c_int;
    fn weldfs_get_space(client: Client, space: *mut weldfs_space) -> c_int;
    fn weldfs_stats_json(client: Client, json: *mut c_char, size: usize) -> i64;
    fn weldfs_open(c: Client, name: *const c_char, flags: c_int, mode: u32, file: *mut File) -> c_int;
    fn weldfs_close(file: File) -> c_int;
    fn weldfs_read(file: File, into: *mut c_void, len: usize) -> i64;
    fn weldfs_pread(file: File, into: *mut c_void, len: usize, offset: u64) -> i64;
    fn weldfs_write(file: File, from: *const c_void, len: usize, durable: u32) -> i64;
    fn weldfs_pwrite(f: File, from: *const c_void, len: usize, offset: u64, durable: u32, at: *mut u64) -> i64;
    fn weldfs_lseek(file: File, offset: i64, whence: c_int) -> i64;
    fn weldfs_ftruncate(file: File, bytes: u64) -> c_int;
    fn weldfs_fallocate(file: File, mode: c_int, offset: u64, len: u64) -> c_int;
    fn weldfs_fstat(file: File, stat: *mut weldfs_stat) -> c_int;
    fn weldfs_futimens(file: File, times: *const weldfs_time) -> c_int;
    fn weldfs_fgetxattr(file: File, name: *const c_char, value: *mut c_void, size: usize) -> i64;
    fn weldfs_fsetxattr(file: File, name: *const c_char, value: *const c_void, size: usize, flags: c_int) -> c_int;
    fn weldfs_flistxattr(file: File, names: *mut c_void, size: usize) -> i64;
    fn weldfs_stat_path(c: Client, name: *const c_char, stat: *mut weldfs_stat) -> c_int;
    fn weldfs_access(c: Client, name: *const c_char, mask: c_int) -> c_int;
    fn weldfs_truncate(c: Client, name: *const c_char, bytes: u64) -> c_int;
    fn weldfs_mkdir(c: Client, name: *const c_char, mode: u32) -> c_int;
    fn weldfs_rmdir(c: Client, name: *const c_char) -> c_int;
    fn weldfs_unlink(c: Client, name: *const c_char) -> c_int;
    fn weldfs_rename(c: Client, from: *const c_char, to: *const c_char, flags: u32) -> c_int;
    fn weldfs_link(c: Client, from: *const c_char, to: *const c_char) -> c_int;
    fn weldfs_symlink(c: Client, target: *const c_char, name: *const c_char) -> c_int;
    fn weldfs_readlink(c: Client, name: *const c_char, target: *mut c_void, size: usize) -> i64;
    fn weldfs_opendir(c: Client, name: *const c_char, dir: *mut File) -> c_int;
    fn weldfs_readdir(dir: File, entry: *mut weldfs_entry) -> c_int;
    fn weldfs_seekdir(dir: File, next: u64) -> c_int;
    fn weldfs_closedir(dir: File);
    fn weldfs_append_checksum(
        f: File,
        form: u32,
        from: *const c_void,
        len: usize,
        how: u32,
        at: *mut u64,
        sum: *mut u32,
    ) -> c_int;
    fn weldfs_txn_begin(client: Client, txn: *mut File) -> c_int;
    fn weldfs_txn_write(txn: File, file: File, from: *const c_void, len: usize, offset: u64) -> i64;
    fn weldfs_txn_commit(txn: File, durable: u32) -> i64;
    fn weldfs_program_create(program: *mut File) -> c_int;
    fn weldfs_program_destroy(program: File);
    fn weldfs_program_parse(
        source: *const c_char,
        names: *const c_void,
        count: usize,
        program: *mut File,
        why: *mut c_char,
        size: usize,
    ) -> c_int;
    fn weldfs_program_find(program: File, name: *const c_char) -> c_int;
    fn weldfs_program_text(program: File, into: *mut c_char, size: usize) -> i64;
    fn weldfs_program_run(
        program: File,
        client: Client,
        operands: *mut Operand,
        count: usize,
        how: u32,
        outcome: *mut c_void,
    ) -> c_int;
    fn weldfs_program_buffer(program: File, capacity: u32) -> c_int;
    fn weldfs_program_register(program: File) -> c_int;
    fn weldfs_program_range(program: File, len: u32) -> c_int;
    fn weldfs_program_literal(program: File, from: *const c_void, len: usize, literal: *mut Place) -> c_int;
    fn weldfs_program_results(program: File, first: c_int, second: c_int) -> c_int;
    fn weldfs_program_open(p: File, name: *const c_char, flags: c_int, mode: u32, created: c_int) -> c_int;
    fn weldfs_program_use(program: File, file: File, access: c_int) -> c_int;
    fn weldfs_program_read(
        program: File,
        file: c_int,
        offset: Value,
        len: Value,
        into: Place,
        flags: u32,
        sum: u32,
        sum_to: c_int,
        count_to: c_int,
    ) -> c_int;
    fn weldfs_program_write(
        program: File,
        file: c_int,
        offset: Value,
        from: Place,
        sum: u32,
        sum_to: c_int,
        at: c_int,
    ) -> c_int;
    fn weldfs_program_truncate(program: File, file: c_int, bytes: Value) -> c_int;
    fn weldfs_program_mkdir(program: File, path: *const c_char, mode: u32) -> c_int;
}

/// The device, made once; inputs leave nothing in it that matters to the next one.
fn device() -> &'static Embedded {
    static DEVICE: OnceLock<Embedded> = OnceLock::new();
    DEVICE.get_or_init(|| {
        let config = DeviceConfig { cores: 1, ..DeviceConfig::default() };
        Embedded::open(&Source::Ram(DEVICE_BYTES), config).expect("a device in memory")
    })
}

thread_local! {
    /// The thread's attachment.
    static CLIENT: Cell<*mut weldfs_client> = const { Cell::new(null_mut()) };
}

fn client() -> *mut weldfs_client {
    let mut client = CLIENT.get();
    if client.is_null() {
        let made = wrap("attach", || Ok(Arc::new(device().clone())), null(), &mut client);
        assert_eq!(made, 0, "a device in this process can be attached to");
        CLIENT.set(client);
    }
    client
}

/// What one input has: objects that calls made, and memory.
struct Calls<'a> {
    data: Cursor<'a>,
    client: Client,
    files: [File; 3],
    dir: File,
    txn: File,
    program: File,
    flight: flight::Flight,
    room: Vec<u8>,
    names: Vec<CString>,
}

fn run(data: &[u8]) {
    let mut calls = Calls {
        data: Cursor(data),
        client: client().cast_const().cast(),
        files: [null_mut(); 3],
        dir: null_mut(),
        txn: null_mut(),
        program: null_mut(),
        flight: flight::Flight::default(),
        room: vec![7; BUFFER],
        names: Vec::new(),
    };
    for _ in 0..calls.data.u8().min(CALLS_MAX) {
        let before = calls.data.0.len();
        let answer = calls.call();
        assert!(answer != -i64::from(libc::ENOTRECOVERABLE), "a panic was caught at the boundary, {before} bytes left");
    }
    calls.end();
}

impl Calls<'_> {
    /// NULL, a name of the input's own, or one of the few.
    fn name(&mut self) -> *const c_char {
        let name = match self.data.u8() {
            0 => return null(),
            255 => self.data.short().to_vec(),
            n => NAMES[usize::from(n) % NAMES.len()].as_bytes().to_vec(),
        };
        let name = CString::new(name.split(|b| *b == 0).next().unwrap_or_default()).unwrap_or_default();
        self.names.push(name);
        self.names[self.names.len() - 1].as_ptr()
    }

    /// A buffer and its length: NULL with any length, or some of the room with what it has.
    fn buffer(&mut self) -> (*mut c_void, usize) {
        match self.data.u8() {
            0 => (null_mut(), self.data.u64() as usize),
            1 => (self.room.as_mut_ptr().cast(), 0),
            2 => (self.room.as_mut_ptr().cast(), usize::MAX - usize::from(self.data.u8())),
            _ => (self.room.as_mut_ptr().cast(), usize::from(self.data.u16()) % BUFFER),
        }
    }

    /// The same where a length without a meaning would be believed.
    fn sound(&mut self) -> (*mut c_void, usize) {
        let (at, len) = self.buffer();
        if len > BUFFER { (null_mut(), len) } else { (at, len) }
    }

    fn file(&mut self) -> File {
        self.files[usize::from(self.data.u8()) % 3]
    }

    fn client(&mut self) -> Client {
        if self.data.u8() == 0 { null() } else { self.client }
    }

    /// A number of any size.
    fn number(&mut self) -> u64 {
        match self.data.u8() {
            0 => self.data.u64(),
            1 => u64::MAX - u64::from(self.data.u8()),
            _ => self.data.u16().into(),
        }
    }

    fn value(&mut self) -> Value {
        Value(self.number(), u32::from(self.data.u8() % 6), u32::from(self.data.u8() == 255))
    }

    fn place(&mut self) -> Place {
        let index = i32::from(self.data.u8() as i8);
        Place(u32::from(self.data.u8() % 7), index, u32::from(self.data.u8() % 10), u32::from(self.data.u8() % 3))
    }

    fn small(&mut self) -> c_int {
        i32::from(self.data.u8() as i8)
    }

    fn call(&mut self) -> i64 {
        match self.data.u8() % 13 {
            0 | 1 => self.on_files(),
            2 => self.on_attributes(),
            3 => self.on_names(),
            4 => self.on_directories(),
            5 => self.on_transactions(),
            6 => self.on_programs(),
            7 => self.steps(),
            8 => self.on_queues(),
            9 => self.submit(),
            10 => self.on_batches(),
            11 => self.on_keys(),
            _ => self.submit_gathered(),
        }
    }

    fn on_files(&mut self) -> i64 {
        let what = self.data.u8() % 9;
        let slot = usize::from(self.data.u8()) % 3;
        let file = self.files[slot];
        let (sound, len) = self.sound();
        let n = self.number();
        // SAFETY: as the header has it: the buffer has `len` bytes or is NULL, names end, the file is open or NULL,
        // results have room or are NULL.
        unsafe {
            match what {
                0 | 1 => {
                    let (client, name) = (self.client(), self.name());
                    let flags = if what == 0 { libc::O_RDWR | libc::O_CREAT } else { self.data.u32() as c_int };
                    let mut opened = null_mut();
                    let answer = weldfs_open(client, name, flags, n as u32, &mut opened);
                    assert_eq!(answer == 0, !opened.is_null(), "an object if and only if it went well");
                    if answer == 0 {
                        weldfs_close(std::mem::replace(&mut self.files[slot], opened));
                    }
                    answer.into()
                }
                2 => weldfs_read(file, sound, len),
                3 => weldfs_pread(file, sound, len, n),
                4 => weldfs_write(file, sound, len, self.data.u8().into()),
                5 => weldfs_pwrite(file, sound, len, n, self.data.u8().into(), null_mut()),
                6 => weldfs_lseek(file, n as i64, self.small()),
                7 => weldfs_ftruncate(file, n).into(),
                _ => {
                    let (mut at, mut sum) = (0, 0);
                    let how = self.data.u16().into();
                    weldfs_append_checksum(file, n as u32, sound, len, how, &mut at, &mut sum).into()
                }
            }
        }
    }

    fn on_attributes(&mut self) -> i64 {
        let what = self.data.u8() % 9;
        let file = self.file();
        let (at, len) = self.sound();
        let n = self.number();
        let name = self.name();
        // SAFETY: as in `on_files`; times are two.
        unsafe {
            match what {
                0 => weldfs_fgetxattr(file, name, at, len),
                1 => weldfs_fsetxattr(file, name, at, len, self.small()).into(),
                2 => weldfs_flistxattr(file, at, len),
                3 => {
                    let mut stat = weldfs_stat::default();
                    weldfs_fstat(file, if n == 0 { null_mut() } else { &mut stat }).into()
                }
                4 => {
                    let time = weldfs_time { sec: n as i64, nsec: self.data.u32(), reserved: self.data.u8().into() };
                    weldfs_futimens(file, [time; 2].as_ptr()).into()
                }
                5 => weldfs_fallocate(file, self.small(), n, self.number()).into(),
                6 => weldfs_stats_json(self.client(), at.cast(), len),
                7 => {
                    let mut space: weldfs_space = Default::default();
                    weldfs_get_space(self.client(), &mut space).into()
                }
                _ => {
                    assert!(!weldfs_strerror(n as c_int).is_null() && !weldfs_last_error().is_null());
                    weldfs_get_info(self.client(), null_mut()).into()
                }
            }
        }
    }

    fn on_names(&mut self) -> i64 {
        let what = self.data.u8() % 11;
        let (client, name) = (self.client(), self.name());
        let n = self.number();
        // SAFETY: as in `on_files`.
        let answer = unsafe {
            match what {
                0 => {
                    let mut stat = weldfs_stat::default();
                    weldfs_stat_path(client, name, &mut stat)
                }
                1 => weldfs_access(client, name, n as c_int),
                2 => weldfs_truncate(client, name, n),
                3 => weldfs_mkdir(client, name, n as u32 | 0o700),
                4 => weldfs_rmdir(client, name),
                5 => weldfs_unlink(client, name),
                6 => weldfs_rename(client, name, self.name(), n as u32 & 7),
                7 => weldfs_link(client, name, self.name()),
                8 => weldfs_symlink(client, self.name(), name),
                9 => {
                    let (at, len) = self.sound();
                    weldfs_readlink(client, name, at, len) as c_int
                }
                _ => weldfs_stat_path(client, name, null_mut()),
            }
        };
        answer.into()
    }

    fn on_directories(&mut self) -> i64 {
        let what = self.data.u8() % 4;
        // SAFETY: as in `on_files`; the entry has room, every bit pattern is one.
        unsafe {
            match what {
                0 => {
                    let (client, name) = (self.client(), self.name());
                    let mut dir = null_mut();
                    let answer = weldfs_opendir(client, name, &mut dir);
                    if answer == 0 {
                        weldfs_closedir(std::mem::replace(&mut self.dir, dir));
                    }
                    answer.into()
                }
                1 => {
                    let mut entry = std::mem::MaybeUninit::<weldfs_entry>::zeroed();
                    let null = self.data.u8() == 0;
                    weldfs_readdir(self.dir, if null { null_mut() } else { entry.as_mut_ptr() }).into()
                }
                2 => weldfs_seekdir(self.dir, self.number()).into(),
                _ => {
                    weldfs_closedir(std::mem::replace(&mut self.dir, null_mut()));
                    0
                }
            }
        }
    }

    fn on_transactions(&mut self) -> i64 {
        let what = self.data.u8() % 3;
        // SAFETY: as in `on_files`; a transaction that is ended is not used again.
        unsafe {
            match what {
                0 if self.txn.is_null() => weldfs_txn_begin(self.client(), &mut self.txn).into(),
                1 => {
                    let (file, (at, len)) = (self.file(), self.sound());
                    weldfs_txn_write(self.txn, file, at, len, self.number())
                }
                _ => weldfs_txn_commit(std::mem::replace(&mut self.txn, null_mut()), self.data.u8().into()),
            }
        }
    }

    fn on_programs(&mut self) -> i64 {
        let what = self.data.u8() % 5;
        // SAFETY: as in `on_files`; operands have the bytes they say, or NULL.
        unsafe {
            match what {
                0 => {
                    weldfs_program_destroy(std::mem::replace(&mut self.program, null_mut()));
                    weldfs_program_create(&mut self.program).into()
                }
                1 => {
                    weldfs_program_destroy(std::mem::replace(&mut self.program, null_mut()));
                    let text = CString::new(self.data.long().split(|b| *b == 0).next().unwrap_or_default());
                    let text = text.unwrap_or_default();
                    let (why, size) = self.sound();
                    weldfs_program_parse(text.as_ptr(), null(), 0, &mut self.program, why.cast(), size).into()
                }
                2 => {
                    let (into, size) = self.sound();
                    weldfs_program_text(self.program, into.cast(), size)
                }
                3 => weldfs_program_find(self.program, self.name()).into(),
                _ => {
                    let count = usize::from(self.data.u8() % 4);
                    let mut operands = Vec::new();
                    for _ in 0..count {
                        let (data, len) = self.sound();
                        operands.push(Operand { data, len, filled: 0, reserved: u64::from(self.data.u8() == 255) });
                    }
                    let (client, how) = (self.client(), self.data.u16().into());
                    let null = self.data.u8() == 0;
                    let list = if null { null_mut() } else { operands.as_mut_ptr() };
                    weldfs_program_run(self.program, client, list, count, how, null_mut()).into()
                }
            }
        }
    }

    fn steps(&mut self) -> i64 {
        let what = self.data.u8() % 11;
        let (program, n) = (self.program, self.number());
        let (a, b, c) = (self.small(), self.small(), self.small());
        // SAFETY: as in `on_files`.
        let answer = unsafe {
            match what {
                0 => weldfs_program_buffer(program, n as u32),
                1 => weldfs_program_register(program),
                2 => weldfs_program_range(program, n as u32),
                3 => {
                    let (from, len) = self.sound();
                    weldfs_program_literal(program, from, len, &mut Place(0, 0, 0, 0))
                }
                4 => weldfs_program_results(program, a, b),
                5 => {
                    let name = self.name();
                    weldfs_program_open(program, name, libc::O_RDWR | libc::O_CREAT | n as c_int, 0o600, a)
                }
                6 => weldfs_program_use(program, self.file(), a),
                7 => {
                    let (offset, len, into) = (self.value(), self.value(), self.place());
                    weldfs_program_read(program, a, offset, len, into, n as u32 & 7, n as u32 >> 4, b, c)
                }
                8 => {
                    let (offset, from) = (self.value(), self.place());
                    weldfs_program_write(program, a, offset, from, n as u32 & 7, b, c)
                }
                9 => weldfs_program_truncate(program, a, self.value()),
                _ => weldfs_program_mkdir(program, self.name(), n as u32),
            }
        };
        answer.into()
    }

    /// Gives everything back, and removes what the few names hold.
    fn end(mut self) {
        // SAFETY: objects are alive or NULL and not used again.
        unsafe {
            weldfs_program_destroy(self.program);
            self.land();
            weldfs_txn_commit(self.txn, 0);
            weldfs_closedir(self.dir);
            self.files.into_iter().for_each(|file| assert_ne!(weldfs_close(file), -libc::ENOTRECOVERABLE));
            for name in [c"/d/x", c"/d", c"/a", c"/b"] {
                weldfs_unlink(self.client, name.as_ptr());
                weldfs_rmdir(self.client, name.as_ptr());
            }
        }
    }
}

/// Opens /a into slot 0.
const OPEN: &[u8] = &[0, 0, 0, 1, 2, 180, 1, 1, 5];
/// A queue of 8.
const QUEUE: &[u8] = &[8, 1, 0, 8, 0, 0, 16, 0, 2, 1];

fn named(name: &str, calls: u8, bytes: &[&[u8]]) -> Seed {
    (name.to_owned(), [&[calls][..], &bytes.concat()].concat())
}

/// A program from its text.
fn parse() -> Vec<u8> {
    let text = b"open /a rw create; write 0 \"hello\"; read 0 4 -> b; length b -> n";
    [&[6, 1][..], &(text.len() as u16).to_le_bytes(), text, &[3, 64, 0]].concat()
}

fn seeds() -> Vec<Seed> {
    let (open, queue, parse) = (OPEN, QUEUE, parse());
    let mut all = vec![
        named("write-and-read", 3, &[open, &[0, 4, 0, 3, 100, 0, 2, 0, 0, 0], &[0, 3, 0, 3, 50, 0, 2, 0, 0]]),
        named("nothing-given", 6, &[&[0, 2, 0, 0, 0], &[2, 0, 0, 0], &[3, 0, 0, 0], &[4, 0, 0, 0], &[5, 2], &[6, 2]]),
        named("attributes", 2, &[open, &[2, 5, 0, 1, 2, 1, 0, 2, 0, 1, 9]]),
        named("names", 3, &[&[3, 3, 1, 3, 2, 192, 1], &[3, 6, 1, 1, 2, 0, 0, 2], &[3, 0, 1, 255, 3, b'/', b'.', b'.']]),
        named("directory", 3, &[&[4, 0, 1, 4], &[4, 1, 1], &[4, 2, 1, 9]]),
        named("transaction", 3, &[open, &[5, 0, 1], &[5, 1, 0, 3, 9, 0, 2, 0, 0], &[5, 2, 2]]),
        named("program", 3, &[&parse, &[6, 2, 3, 200, 0], &[6, 4, 0, 1, 0, 0, 1]]),
        named(
            "steps",
            4,
            &[&[6, 0], &[7, 1, 2, 0, 0, 0, 0, 0], &[7, 5, 2, 0, 0, 255, 0, 0, 1], &[6, 4, 0, 1, 0, 0, 1]],
        ),
        // A queue of 8 with buffers, then commands on it and their completions.
        named("queue", 4, &[queue, &[9, 0, 0, 0, 2, 0, 0, 9, 0, 9, 1, 9, 2], &[8, 3, 0, 1, 4], &[8, 6, 0]]),
        named(
            "jobs",
            7,
            &[
                open,
                queue,
                &[8, 8, 0, 2, 0, 4],
                // A write from the queue's own buffer, a read into memory, an open: one with a callback.
                &[9, 2, 0, 0, 2, 0, 0, 100, 0, 2, 13, 2],
                &[9, 1, 0, 0, 2, 0, 0, 50, 0, 9, 4, 2],
                &[9, 3, 0, 0, 2, 0, 0, 0, 0, 9, 4, 2, 2],
                &[8, 3, 0, 2, 3],
            ],
        ),
        named(
            "batch",
            5,
            &[
                &[10, 0, 0, 0, 9, 2, 0, 0, 1],
                &[10, 2, 100, 0, 9, 2, 0, 0, 1],
                &[10, 3, 50, 0, 9, 2, 0, 0, 1],
                &[10, 6, 0, 0, 9, 2, 1, 0, 1, 0],
                &[10, 9, 0, 0, 9, 2, 2, 0, 1, 1],
            ],
        ),
        // A record sealed with a GCM key at the file's beginning, and opened again.
        named(
            "ciphers",
            4,
            &[
                open,
                &[11, 0, 0, 0, 1, 2, 3, 0, 0, 1],
                &[11, 3, 0, 0, 3, 100, 0, 2, 0, 0, 0, 0, 0],
                &[11, 4, 0, 0, 3, 100, 0, 2, 0, 0, 0, 0, 0],
            ],
        ),
    ];
    all.extend(gathered_seeds());
    all
}

/// What is submitted in several pieces, and logs.
fn gathered_seeds() -> [Seed; 3] {
    let (open, queue, parse) = (OPEN, QUEUE, parse());
    [
        // A program with its ranges, writes to two files, a transaction, names: none of it is waited for.
        named(
            "gathered",
            10,
            &[
                open,
                queue,
                &parse,
                &[12, 0, 0, 0, 2, 1, 0, 0, 0, 9, 13, 2, 0, 1],
                &[12, 2, 0, 0, 2, 0, 0, 0, 0, 9, 13, 2, 2, 3, 10, 0, 0, 2, 0, 0, 1, 3, 20, 0, 0, 2, 50, 0, 1],
                &[5, 0, 1],
                &[12, 4, 0, 0, 2, 0, 0, 30, 0, 9, 13, 2],
                &[12, 5, 0, 0, 2, 0, 0, 0, 0, 9, 13, 2],
                &[12, 7, 0, 0, 2, 0, 0, 0, 0, 9, 13, 2, 5, 1],
                &[8, 3, 0, 2, 4],
            ],
        ),
        named(
            "logs",
            5,
            &[
                open,
                queue,
                &[12, 13, 0, 0, 2, 40, 0, 30, 0, 9, 0, 1, 5, 6, 0, 0],
                &[12, 13, 0, 0, 2, 40, 0, 30, 0, 9, 0, 1, 5, 6, 0, 0],
                &[12, 14, 0, 0, 2, 40, 0, 30, 0, 9, 13, 2, 5, 6],
            ],
        ),
        named(
            "verified",
            3,
            &[
                open,
                &[12, 11, 0, 0, 2, 0, 0, 30, 0, 9, 0, 3, 30, 0, 1, 1],
                &[12, 11, 0, 0, 2, 0, 0, 30, 0, 9, 0, 3, 30, 0, 0, 3, 0, 1],
            ],
        ),
    ]
}
