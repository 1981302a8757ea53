//! Submissions of programs, of several writes, of transactions and of names; operations of the catalogue by a call that
//! waits and by one that does not.

use super::super::Operand;
use super::{BUFFER, Calls, Client, File, QUEUES};
use libc::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use weldfs_c::{weldfs_job, weldfs_stat};

/// A write of several, as in the header.
#[repr(C)]
struct Item {
    file: File,
    from: *const c_void,
    len: usize,
    offset: u64,
    reserved: u64,
}

/// Room for what a program did, and more.
pub(super) type Did = [u64; 8];

// As of userlib/include/weldfs.h.
unsafe extern "C" {
    fn weldfs_submit_program(
        queue: File,
        program: File,
        operands: *mut Operand,
        count: usize,
        outcome: *mut Did,
        job: *const weldfs_job,
    ) -> c_int;
    fn weldfs_submit_multi_write(queue: File, writes: *const Item, count: usize, job: *const weldfs_job) -> c_int;
    fn weldfs_multi_write(writes: *const Item, count: usize, how: u32) -> c_int;
    fn weldfs_submit_txn_write(
        queue: File,
        txn: File,
        file: File,
        from: *const c_void,
        len: usize,
        offset: u64,
        job: *const weldfs_job,
    ) -> c_int;
    fn weldfs_submit_txn_commit(queue: File, txn: File, job: *const weldfs_job) -> c_int;
    fn weldfs_submit_mkdir(queue: File, path: *const c_char, mode: u32, job: *const weldfs_job) -> c_int;
    fn weldfs_submit_stat_path(q: File, path: *const c_char, stat: *mut weldfs_stat, job: *const weldfs_job) -> c_int;
    fn weldfs_submit_lstat_path(q: File, path: *const c_char, stat: *mut weldfs_stat, job: *const weldfs_job) -> c_int;
    fn weldfs_submit_fstat(queue: File, file: File, stat: *mut weldfs_stat, job: *const weldfs_job) -> c_int;
    fn weldfs_submit_pwrite_verified(
        queue: File,
        file: File,
        from: *const c_void,
        len: usize,
        offset: u64,
        checksum: u32,
        job: *const weldfs_job,
    ) -> c_int;
    fn weldfs_pwrite_verified(
        file: File,
        from: *const c_void,
        len: usize,
        offset: u64,
        checksum: u32,
        durable: u32,
        place: *mut u64,
    ) -> i64;
    fn weldfs_submit_append_and_sync(
        queue: File,
        file: File,
        from: *const c_void,
        len: usize,
        job: *const weldfs_job,
    ) -> c_int;
    fn weldfs_append_and_rotate(
        client: Client,
        name: *const c_char,
        old: *const c_char,
        limit: u64,
        mode: u32,
        from: *const c_void,
        len: usize,
        how: u32,
        place: *mut u64,
        rotated: *mut c_int,
    ) -> c_int;
    fn weldfs_submit_append_and_rotate(
        queue: File,
        name: *const c_char,
        old: *const c_char,
        limit: u64,
        mode: u32,
        from: *const c_void,
        len: usize,
        job: *const weldfs_job,
    ) -> c_int;
}

impl Calls<'_> {
    /// Where a submission puts attributes: memory that stays, or NULL.
    fn stat_room(&mut self) -> *mut weldfs_stat {
        if self.data.u8() == 0 {
            return null_mut();
        }
        self.flight.stats.push(Box::new([weldfs_stat::default()]));
        self.flight.stats.last_mut().expect("one was added").as_mut_ptr()
    }

    /// A program's ranges, which are the command's as long as it lasts.
    fn operands(&mut self, queue: usize) -> (*mut Operand, usize) {
        let count = usize::from(self.data.u8() % 4);
        let all = (0..count).map(|_| {
            let (data, len) = self.target(Some(queue));
            Operand { data, len, filled: 0, reserved: u64::from(self.data.u8() == 255) }
        });
        let mut all: Box<[Operand]> = all.collect();
        let at = all.as_mut_ptr();
        self.flight.operands.push(all);
        if self.data.u8() == 0 { (null_mut(), self.data.u16().into()) } else { (at, count) }
    }

    /// A few writes to files that may be none; or none, and a number of them.
    fn items(&mut self) -> (Vec<Item>, usize) {
        let count = self.data.u8() % 5;
        let mut all = Vec::new();
        for _ in 0..count {
            let (from, len) = self.sound();
            let (file, offset) = (self.file(), self.number());
            all.push(Item { file, from, len, offset, reserved: u64::from(self.data.u8() == 255) });
        }
        let says = if all.is_empty() { self.data.u8().into() } else { all.len() };
        (all, says)
    }

    pub(in super::super) fn submit_gathered(&mut self) -> i64 {
        let what = self.data.u8() % 15;
        let (which, slot) = (usize::from(self.data.u8()) % QUEUES, usize::from(self.data.u8()) % 3);
        let (queue, file) = (self.flight.queues[which].0, self.files[slot]);
        let (n, (at, len), job) = (self.number(), self.target(Some(which)), self.job());
        let job = job.as_ref().map_or(null(), |job| (&raw const *job).cast());
        let list = |items: &[Item]| if items.is_empty() { null() } else { items.as_ptr() };
        // SAFETY: as in `on_queues`; what a command may write into is in no other use and stays until the queues are
        // gone; a transaction that was given up is not used again.
        let answer = unsafe {
            match what {
                0 | 1 => {
                    let (operands, count) = self.operands(which);
                    self.flight.did.push(Box::new([Did::default()]));
                    let did = self.flight.did.last_mut().expect("one was added").as_mut_ptr();
                    let did = if n == 0 { null_mut() } else { did };
                    weldfs_submit_program(queue, self.program, operands, count, did, job)
                }
                2 => {
                    let (items, says) = self.items();
                    weldfs_submit_multi_write(queue, list(&items), says, job)
                }
                3 => {
                    let (items, says) = self.items();
                    weldfs_multi_write(list(&items), says, n as u32)
                }
                4 => weldfs_submit_txn_write(queue, self.txn, file, at, len, n, job),
                5 => {
                    let answer = weldfs_submit_txn_commit(queue, self.txn, job);
                    if answer == 0 {
                        self.txn = null_mut();
                    }
                    answer
                }
                6 => weldfs_submit_mkdir(queue, self.name(), n as u32, job),
                7 => weldfs_submit_stat_path(queue, self.name(), self.stat_room(), job),
                8 => weldfs_submit_lstat_path(queue, self.name(), self.stat_room(), job),
                9 => weldfs_submit_fstat(queue, file, self.stat_room(), job),
                10 => {
                    let (from, len, sum) = self.summed();
                    weldfs_submit_pwrite_verified(queue, file, from, len, n, sum, job)
                }
                11 => {
                    let ((from, len, sum), mut place) = (self.summed(), 0);
                    weldfs_pwrite_verified(file, from, len, n, sum, self.data.u8().into(), &mut place) as c_int
                }
                12 => weldfs_submit_append_and_sync(queue, file, at, len, job),
                13 => {
                    let (client, name, old, how) = (self.client(), self.name(), self.name(), self.data.u16());
                    let (mut place, mut rotated) = (0, 7);
                    let room = (&raw mut place, if how & 1 == 0 { &raw mut rotated } else { null_mut() });
                    let (mode, how) = (n as u32 >> 3, how.into());
                    let answer = weldfs_append_and_rotate(client, name, old, n, mode, at, len, how, room.0, room.1);
                    assert!(answer != 0 || room.1.is_null() || rotated == 0 || rotated == 1);
                    answer
                }
                _ => {
                    let (name, old) = (self.name(), self.name());
                    weldfs_submit_append_and_rotate(queue, name, old, n, 0o600, at, len, job)
                }
            }
        };
        answer.into()
    }

    /// Bytes that are written, and their checksum or another number.
    fn summed(&mut self) -> (*const c_void, usize, u32) {
        let (from, len) = self.sound();
        let right = self.data.u8() & 1 == 1 && !from.is_null();
        let sum = if right { weldfs_functions::crc32c(&self.room[..len.min(BUFFER)]) } else { self.data.u16().into() };
        (from, len, sum)
    }
}
