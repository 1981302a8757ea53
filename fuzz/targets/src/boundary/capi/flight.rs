//! Calls whose work outlives them, and what it needs: queues with their jobs and buffers, batches, keys and ciphers.
//!
//! What a command may still write into is memory of its own here, which stays until all queues are gone: it is the
//! command's until then.

mod gather;

use super::{BUFFER, Calls, Client, File, Operand, Place, Value};
use libc::{c_char, c_int, c_void};
use std::mem::{replace, take};
use std::ptr::{null, null_mut};
use weldfs_c::{weldfs_completion, weldfs_job, weldfs_queue_options, weldfs_stat};

/// Objects of one input at a time.
const QUEUES: usize = 2;
const BUFFERS: usize = 2;
const KEYS: usize = 3;
/// The most that a structure may say of its size: so much is behind each.
const STRUCTURE: usize = 4096;

/// A result of a batch, as in the header.
type Outcome = [u64; 4];

// As of userlib/include/weldfs.h.
unsafe extern "C" {
    fn weldfs_queue_create(client: Client, options: *const weldfs_queue_options, queue: *mut File) -> c_int;
    fn weldfs_queue_destroy(queue: File);
    fn weldfs_queue_flush(queue: File) -> c_int;
    fn weldfs_queue_reap(queue: File, done: *mut weldfs_completion, max: usize, timeout_ms: c_int) -> i64;
    fn weldfs_queue_eventfd(queue: File) -> c_int;
    fn weldfs_queue_in_flight(queue: File) -> i64;
    fn weldfs_forget(queue: File, ticket: u64) -> c_int;
    fn weldfs_buf_alloc(queue: File, len: usize, buf: *mut File) -> c_int;
    fn weldfs_buf_data(buf: File) -> *mut c_void;
    fn weldfs_buf_len(buf: File) -> usize;
    fn weldfs_buf_free(buf: File);
    fn weldfs_submit_nop(queue: File, job: *const weldfs_job) -> c_int;
    fn weldfs_submit_pread(q: File, f: File, into: *mut c_void, n: usize, at: u64, job: *const weldfs_job) -> c_int;
    fn weldfs_submit_pwrite(q: File, f: File, from: *const c_void, n: usize, at: u64, job: *const weldfs_job) -> c_int;
    fn weldfs_submit_open(
        queue: File,
        name: *const c_char,
        flags: c_int,
        mode: u32,
        file: *mut File,
        job: *const weldfs_job,
    ) -> c_int;
    fn weldfs_submit_close(queue: File, file: File, job: *const weldfs_job) -> c_int;
    fn weldfs_submit_fsync(queue: File, file: File, job: *const weldfs_job) -> c_int;
    fn weldfs_submit_ftruncate(queue: File, file: File, bytes: u64, job: *const weldfs_job) -> c_int;
    fn weldfs_submit_unlink(queue: File, name: *const c_char, job: *const weldfs_job) -> c_int;
    fn weldfs_submit_rename(
        queue: File,
        from: *const c_char,
        to: *const c_char,
        flags: u32,
        job: *const weldfs_job,
    ) -> c_int;
    fn weldfs_submit_open_read_write_close(
        queue: File,
        name: *const c_char,
        flags: c_int,
        mode: u32,
        old: *mut c_void,
        old_len: usize,
        old_at: u64,
        from: *const c_void,
        len: usize,
        at: u64,
        job: *const weldfs_job,
    ) -> c_int;
    fn weldfs_submit_append_checksum_write(
        queue: File,
        file: File,
        from: *const c_void,
        len: usize,
        job: *const weldfs_job,
    ) -> c_int;
    fn weldfs_submit_read_modify_write(
        queue: File,
        file: File,
        at: u64,
        kind: c_int,
        operand: *const c_void,
        expect: *const c_void,
        len: usize,
        old: *mut c_void,
        job: *const weldfs_job,
    ) -> c_int;
    fn weldfs_submit_checksum_range(queue: File, file: File, at: u64, len: u64, job: *const weldfs_job) -> c_int;
    fn weldfs_batch_create(client: Client, batch: *mut File) -> c_int;
    fn weldfs_batch_destroy(batch: File);
    fn weldfs_batch_clear(batch: File) -> c_int;
    fn weldfs_batch_len(batch: File) -> usize;
    fn weldfs_batch_open_write_close(
        batch: File,
        name: *const c_char,
        flags: c_int,
        mode: u32,
        from: *const c_void,
        len: usize,
        at: u64,
    ) -> c_int;
    fn weldfs_batch_open_read_close(
        batch: File,
        name: *const c_char,
        flags: c_int,
        into: *mut c_void,
        len: usize,
        at: u64,
    ) -> c_int;
    fn weldfs_batch_pread(batch: File, file: File, into: *mut c_void, len: usize, at: u64) -> c_int;
    fn weldfs_batch_pwrite(batch: File, file: File, from: *const c_void, len: usize, at: u64) -> c_int;
    fn weldfs_batch_stat(batch: File, name: *const c_char, nofollow: c_int, stat: *mut weldfs_stat) -> c_int;
    fn weldfs_batch_mkdir(batch: File, name: *const c_char, mode: u32) -> c_int;
    fn weldfs_batch_unlink(batch: File, name: *const c_char) -> c_int;
    fn weldfs_batch_run(batch: File, durable: u32, results: *mut Outcome, max: usize) -> i64;
    fn weldfs_set_key(client: Client, kind: u32, from: *const c_void, len: usize, key: *mut File) -> c_int;
    fn weldfs_forget_key(key: File);
    fn weldfs_encrypt_write(
        file: File,
        at: u64,
        key: File,
        unit: u32,
        from: *const c_void,
        len: usize,
        how: u32,
        place: *mut u64,
    ) -> c_int;
    fn weldfs_read_decrypt(file: File, at: u64, key: File, unit: u32, into: *mut c_void, len: usize, how: u32) -> i64;
    fn weldfs_read_encrypt_write(
        from: File,
        offset: u64,
        len: u32,
        to: File,
        at: u64,
        key: File,
        unit: u32,
        how: u32,
        place: *mut u64,
    ) -> i64;
    fn weldfs_program_cipher(
        program: File,
        buffer: c_int,
        from: c_int,
        what: c_int,
        key: File,
        unit: u32,
        first: Value,
        bound: Place,
    ) -> c_int;
}

/// A structure that begins with its size, and so many bytes behind it as it may say it has.
#[repr(C)]
struct Long<T> {
    it: T,
    behind: [u64; STRUCTURE / 8],
}

/// Objects that stay between calls, and memory that commands under way may write into.
#[derive(Default)]
pub(super) struct Flight {
    queues: [Object; QUEUES],
    /// Those of each queue, and those of queues that are gone.
    buffers: [[Object; BUFFERS]; QUEUES],
    left: Vec<Object>,
    batch: Object,
    keys: [Object; KEYS],
    /// A program has a step that uses a key: keys stay until the program is gone.
    keyed: bool,
    memory: Vec<Box<[u64]>>,
    stats: Vec<Box<[weldfs_stat]>>,
    /// Where submitted opens put their files.
    opened: Vec<Box<[File]>>,
    /// Ranges of submitted programs, and where these say what they did.
    operands: Vec<Box<[Operand]>>,
    did: Vec<Box<[gather::Did]>>,
}

/// An object of the library, or NULL.
struct Object(File);

impl Default for Object {
    fn default() -> Object {
        Object(null_mut())
    }
}

/// Called when a job has completed, by whichever thread.
unsafe extern "C" fn done(data: *mut c_void, done: *const weldfs_completion) {
    assert!(data.is_null() && !done.is_null());
    // SAFETY: valid during the call.
    answered(unsafe { &*done });
}

/// An errno or a number, and no panic of the device's or the library's.
fn answered(done: &weldfs_completion) {
    assert!(done.result > -4096 && done.result != -i64::from(libc::ENOTRECOVERABLE), "a job says {}", done.result);
}

impl Calls<'_> {
    /// Memory that no other call gets while commands are under way: NULL of any length, some of a buffer of the queue
    /// (if it is for one), or new.
    fn target(&mut self, queue: Option<usize>) -> (*mut c_void, usize) {
        let len = usize::from(self.data.u16());
        match (self.data.u8(), queue) {
            (0, _) => (null_mut(), len),
            (n @ 1..=3, Some(queue)) => {
                let buf = self.flight.buffers[queue][usize::from(n) % BUFFERS].0;
                // SAFETY: a buffer or NULL.
                let (at, most) = unsafe { (weldfs_buf_data(buf), weldfs_buf_len(buf)) };
                (at, if at.is_null() { 0 } else { len.min(most) })
            }
            _ => {
                let len = len % BUFFER;
                let mut memory = vec![0; len.div_ceil(8).max(1)].into_boxed_slice();
                let at = memory.as_mut_ptr().cast();
                self.flight.memory.push(memory);
                (at, len)
            }
        }
    }

    /// Of small sizes as they are, of sizes that are none, and with things behind it that the library does not know.
    fn long<T>(&mut self, it: T) -> Long<T> {
        let mut long = Long { it, behind: [0; STRUCTURE / 8] };
        let size = match self.data.u8() {
            0 => usize::from(self.data.u16()),
            1 => {
                long.behind[usize::from(self.data.u8())] = 1;
                size_of::<T>() + usize::from(self.data.u16()) % (STRUCTURE - size_of::<T>())
            }
            _ => size_of::<T>(),
        };
        // SAFETY: every structure given begins with its size.
        unsafe { (&raw mut long).cast::<usize>().write(size) };
        long
    }

    fn job(&mut self) -> Option<Long<weldfs_job>> {
        let what = self.data.u8();
        let job = weldfs_job {
            size: 0,
            flags: u32::from(what & 1) | if what & 0xf0 == 0xf0 { self.data.u32() } else { 0 },
            durability: u32::from(what >> 1 & 3),
            done: (what & 8 != 0).then_some(done),
            data: null_mut(),
            ticket: null_mut(),
            reserved: [u64::from(what == 255), 0, 0],
        };
        (what != 0).then(|| self.long(job))
    }

    /// Makes, flushes, reaps, forgets, gives back.
    pub(super) fn on_queues(&mut self) -> i64 {
        let what = self.data.u8() % 10;
        let which = usize::from(self.data.u8());
        let (which, slot) = (which % QUEUES, which / QUEUES % BUFFERS);
        let queue = self.flight.queues[which].0;
        // SAFETY: as the header has it: objects are alive or NULL and not used after they are given back, results
        // have room or are NULL, structures have as many bytes as they say.
        unsafe {
            match what {
                0 | 1 => {
                    let options = weldfs_queue_options {
                        size: 0,
                        depth: self.data.u16().into(),
                        pool_bytes: self.data.u16().into(),
                        flags: u32::from(self.data.u8() == 1),
                        reserved0: 0,
                        reserved: [0; 4],
                    };
                    let (long, client) = (self.long(options), self.client());
                    let options = if what == 0 { null() } else { (&raw const long).cast() };
                    let mut made = null_mut();
                    let answer = weldfs_queue_create(client, options, &mut made);
                    assert_eq!(answer == 0, !made.is_null(), "an object if and only if it went well");
                    if answer == 0 {
                        self.destroy_queue(which);
                        self.flight.queues[which].0 = made;
                    }
                    answer.into()
                }
                2 => weldfs_queue_flush(queue).into(),
                3 | 4 => {
                    let wait = [0, 1, -1][usize::from(self.data.u8()) % 3];
                    let mut room = [const { std::mem::MaybeUninit::<weldfs_completion>::uninit() }; 4];
                    let (into, max) = match self.data.u8() {
                        0 => (null_mut(), self.data.u64() as usize),
                        n => (room.as_mut_ptr().cast::<weldfs_completion>(), usize::from(n) % (room.len() + 1)),
                    };
                    let n = weldfs_queue_reap(queue, into, max, wait);
                    assert!(n <= 0 || n as usize <= max, "more than there is room for");
                    for i in (0..n).filter(|_| !into.is_null()) {
                        answered(&*into.add(i as usize));
                    }
                    n
                }
                5 => weldfs_queue_eventfd(queue).min(0).into(),
                6 => weldfs_queue_in_flight(queue),
                // Tickets are counted.
                7 => weldfs_forget(queue, self.number()).into(),
                8 => {
                    let mut made = null_mut();
                    let answer = weldfs_buf_alloc(queue, self.number() as usize, &mut made);
                    if answer == 0 {
                        weldfs_buf_free(replace(&mut self.flight.buffers[which][slot].0, made));
                    }
                    answer.into()
                }
                _ => {
                    self.destroy_queue(which);
                    0
                }
            }
        }
    }

    /// Its buffers stay: commands on the next queue do not know them for their own.
    fn destroy_queue(&mut self, which: usize) {
        self.flight.left.extend(take(&mut self.flight.buffers[which]));
        // SAFETY: alive or NULL, and not used again.
        unsafe { weldfs_queue_destroy(take(&mut self.flight.queues[which]).0) };
    }

    pub(super) fn submit(&mut self) -> i64 {
        let what = self.data.u8() % 14;
        let (which, slot) = (usize::from(self.data.u8()) % QUEUES, usize::from(self.data.u8()) % 3);
        let queue = self.flight.queues[which].0;
        let file = self.files[slot];
        let (n, (at, len), job) = (self.number(), self.target(Some(which)), self.job());
        let job = job.as_ref().map_or(null(), |job| (&raw const *job).cast());
        // SAFETY: as in `on_queues`; what a command may write into is in no other use.
        let answer = unsafe {
            match what {
                0 => weldfs_submit_nop(queue, job),
                1 => weldfs_submit_pread(queue, file, at, len, n, job),
                2 => weldfs_submit_pwrite(queue, file, at, len, n, job),
                3 => {
                    self.flight.opened.push(Box::new([null_mut()]));
                    let place = self.flight.opened.last_mut().expect("one was added").as_mut_ptr();
                    let flags = libc::O_RDWR | libc::O_CREAT | n as c_int;
                    weldfs_submit_open(queue, self.name(), flags, 0o600, place, job)
                }
                4 => {
                    let answer = weldfs_submit_close(queue, file, job);
                    if answer == 0 {
                        self.files[slot] = null_mut();
                    }
                    answer
                }
                5 => weldfs_submit_fsync(queue, file, job),
                6 => weldfs_submit_ftruncate(queue, file, n, job),
                7 => weldfs_submit_unlink(queue, self.name(), job),
                8 => weldfs_submit_rename(queue, self.name(), self.name(), n as u32 & 7, job),
                9 | 10 => {
                    let (name, (old, old_len)) = (self.name(), self.target(Some(which)));
                    let flags = libc::O_RDWR | libc::O_CREAT;
                    weldfs_submit_open_read_write_close(queue, name, flags, 0o600, old, old_len, 0, at, len, n, job)
                }
                11 => weldfs_submit_append_checksum_write(queue, file, at, len, job),
                12 => {
                    let ((operand, a), (old, b)) = (self.target(Some(which)), self.target(Some(which)));
                    let len = len.min(a).min(b);
                    let kind = self.small();
                    weldfs_submit_read_modify_write(queue, file, n, kind, operand, at, len, old, job)
                }
                _ => weldfs_submit_checksum_range(queue, file, n, self.number(), job),
            }
        };
        answer.into()
    }

    pub(super) fn on_batches(&mut self) -> i64 {
        let what = self.data.u8() % 11;
        let batch = self.flight.batch.0;
        let ((at, len), n) = (self.target(None), self.number());
        // SAFETY: as in `on_queues`; what a batch names stays until the input's end.
        unsafe {
            match what {
                0 => {
                    let mut made = null_mut();
                    let answer = weldfs_batch_create(self.client(), &mut made);
                    if answer == 0 {
                        weldfs_batch_destroy(replace(&mut self.flight.batch.0, made));
                    }
                    answer.into()
                }
                1 => weldfs_batch_clear(batch).into(),
                2 => {
                    let flags = libc::O_RDWR | libc::O_CREAT | n as c_int;
                    weldfs_batch_open_write_close(batch, self.name(), flags, 0o600, at, len, n).into()
                }
                3 => weldfs_batch_open_read_close(batch, self.name(), n as c_int, at, len, n).into(),
                4 => weldfs_batch_pread(batch, self.file(), at, len, n).into(),
                5 => weldfs_batch_pwrite(batch, self.file(), at, len, n).into(),
                6 => {
                    self.flight.stats.push(Box::new([weldfs_stat::default()]));
                    let stat = self.flight.stats.last_mut().expect("one was added").as_mut_ptr();
                    let stat = if n == 0 { null_mut() } else { stat };
                    weldfs_batch_stat(batch, self.name(), self.small(), stat).into()
                }
                7 => weldfs_batch_mkdir(batch, self.name(), n as u32).into(),
                8 => weldfs_batch_unlink(batch, self.name()).into(),
                _ => {
                    let mut results = vec![Outcome::default(); weldfs_batch_len(batch)];
                    let short = usize::from(self.data.u8() == 0);
                    let into = if self.data.u8() == 0 { null_mut() } else { results.as_mut_ptr() };
                    weldfs_batch_run(batch, n as u32, into, results.len().saturating_sub(short))
                }
            }
        }
    }

    pub(super) fn on_keys(&mut self) -> i64 {
        let what = self.data.u8() % 7;
        let which = usize::from(self.data.u8()) % KEYS;
        let (key, file) = (self.flight.keys[which].0, self.file());
        let (sound, len) = self.sound();
        let n = self.number();
        let unit = [0, 512, 1024, 4096, n as u32][usize::from(self.data.u8()) % 5];
        // SAFETY: as in `on_queues`; keys that a program uses stay as long as it does.
        unsafe {
            match what {
                0 | 1 => {
                    let bytes: Vec<u8> = (0..64).collect();
                    let kind = n as u32 % 5;
                    let right = [32, 64, 16, 32, 0][kind as usize];
                    let (from, len) =
                        if what == 0 { (bytes.as_ptr().cast(), right) } else { (sound.cast_const(), len) };
                    let mut made = null_mut();
                    let answer = weldfs_set_key(self.client(), kind, from, len, &mut made);
                    if answer == 0 {
                        let stays = self.flight.keyed && !key.is_null();
                        let gone = if stays { made } else { replace(&mut self.flight.keys[which].0, made) };
                        weldfs_forget_key(gone);
                    }
                    answer.into()
                }
                2 => {
                    if !self.flight.keyed {
                        weldfs_forget_key(take(&mut self.flight.keys[which]).0);
                    }
                    0
                }
                3 => weldfs_encrypt_write(file, n, key, unit, sound, len, self.data.u16().into(), null_mut()).into(),
                4 => weldfs_read_decrypt(file, n, key, unit, sound, len, self.data.u16().into()),
                5 => {
                    let (to, at, how, mut place) = (self.file(), self.number(), self.data.u16(), 0);
                    weldfs_read_encrypt_write(file, n, len as u32, to, at, key, unit, how.into(), &mut place)
                }
                _ => {
                    let (a, b, c, first, bound) =
                        (self.small(), self.small(), self.small(), self.value(), self.place());
                    self.flight.keyed = true;
                    weldfs_program_cipher(self.program, a, b, c, key, unit, first, bound).into()
                }
            }
        }
    }

    /// Gives all of it back; the program is gone already.
    pub(super) fn land(&mut self) {
        let flight = take(&mut self.flight);
        // SAFETY: objects are alive or NULL and not used again; memory goes after the queues.
        unsafe {
            weldfs_batch_destroy(flight.batch.0);
            for queue in flight.queues.iter().map(|queue| queue.0) {
                // Ends sooner with nothing in flight.
                for _ in 0..100 {
                    if weldfs_queue_in_flight(queue) <= 0 {
                        break;
                    }
                    weldfs_queue_reap(queue, null_mut(), usize::MAX, 10);
                }
                weldfs_queue_destroy(queue);
            }
            flight.buffers.into_iter().flatten().chain(flight.left).for_each(|buf| weldfs_buf_free(buf.0));
            flight.keys.into_iter().for_each(|key| weldfs_forget_key(key.0));
            for file in flight.opened.iter().flatten() {
                assert_ne!(super::weldfs_close(*file), -libc::ENOTRECOVERABLE);
            }
        }
    }
}
