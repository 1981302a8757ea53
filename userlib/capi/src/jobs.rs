//! What the library remembers of a program's submissions until their completions are delivered.

use crate::boundary::put;
use crate::file::weldfs_file;
use crate::types::*;
use libc::c_void;
use weldfs::aio::{Completed, OnDone};
use weldfs::{Errno, Metadata};
use weldfs_ciscops::StatBody;
use weldfs_ciscops::interp::CREATED;
use weldfs_locks::Mutex;
use zerocopy::FromBytes;

/// What a completion needs to know of its job.
pub(crate) struct Job {
    pub(crate) done: weldfs_callback,
    pub(crate) data: usize,
    pub(crate) ticket: u64,
    /// Where the library copies what was read, and how much that is at most; 0: nowhere.
    pub(crate) into: usize,
    pub(crate) len: usize,
    pub(crate) form: Form,
    pub(crate) also: Option<Box<dyn Tell>>,
    pub(crate) forgotten: bool,
}

/// What is told of a completion besides its numbers.
pub(crate) trait Tell: Send {
    /// The jobs' lock is held: the job has not been forgotten. `None`: the device died while the command was in it.
    fn tell(&self, completed: Option<&Completed>);
}

/// How a completion's numbers are to be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// First and second result as they are.
    Plain,
    /// The second one is an offset, with a mark for a new file.
    Placed,
    /// The room is filled even if the command fails with this errno.
    FilledAlsoWith(Errno),
    /// A file was opened; where it goes stands in `into`.
    Opened,
    /// The room is what stat says; where that goes stands in `into`.
    Stat,
    /// A program.
    Ran,
}

/// The jobs of a queue, by number. One table serves all, so that none needs memory of its own.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(crate) table: Mutex<Table>,
}

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) jobs: Vec<Option<Job>>,
    free: Vec<u32>,
}

impl Jobs {
    pub(crate) fn enter(&self, job: Job) -> u64 {
        let mut table = self.table.lock();
        let at = table.free.pop().unwrap_or_else(|| {
            table.jobs.push(None);
            table.jobs.len() as u32 - 1
        });
        table.jobs[at as usize] = Some(job);
        u64::from(at)
    }

    pub(crate) fn leave(&self, number: u64) {
        let mut table = self.table.lock();
        if table.jobs.get_mut(number as usize).and_then(Option::take).is_some() {
            table.free.push(number as u32);
        }
    }

    /// Copies what was read to where the job wants it, and makes the completion; none when the job was forgotten.
    fn finish(&self, number: u64, result: Result<Completed, Errno>) -> Option<(weldfs_callback, weldfs_completion)> {
        let mut table = self.table.lock();
        let job = table.jobs.get_mut(number as usize).and_then(Option::take)?;
        table.free.push(number as u32);
        if job.forgotten {
            drop(table);
            if job.form == Form::Opened {
                // It is not wanted: it is closed again.
                drop(result.and_then(Completed::into_file));
            }
            return None;
        }
        if job.form == Form::Opened {
            return Some((job.done, opened(&job, result)));
        }
        let mut done = weldfs_completion {
            size: size_of::<weldfs_completion>(),
            data: job.data as *mut c_void,
            ticket: job.ticket,
            result: -i64::from(libc::EIO),
            value: 0,
            created: 0,
            reserved0: [0; 7],
            reserved: [0; 3],
        };
        if let Some(also) = &job.also {
            also.tell(result.as_ref().ok());
        }
        if let Ok(completed) = result {
            let Completed { cqe, room } = completed;
            done.result = if cqe.status == 0 { cqe.result as i64 } else { -i64::from(cqe.status) };
            done.value = cqe.result2;
            let filled = match job.form {
                Form::Placed => {
                    done.value &= !CREATED;
                    done.created = u8::from(cqe.result2 & CREATED != 0);
                    cqe.result as usize
                }
                Form::FilledAlsoWith(_) => job.len,
                Form::Plain => cqe.result as usize,
                Form::Stat => {
                    (done.result, done.value) = (done.result.min(0), 0);
                    if cqe.status == 0
                        && let Ok((body, _)) = StatBody::read_from_prefix(room.bytes())
                    {
                        put(job.into as *mut weldfs_stat, Metadata::from(body).into());
                    }
                    0
                }
                Form::Ran => {
                    (done.result, done.value) = (done.result.min(0), cqe.result);
                    0
                }
                Form::Opened => 0,
            };
            let fills = cqe.status == 0 || job.form == Form::FilledAlsoWith(Errno(cqe.status));
            if fills && job.into != 0 {
                let n = filled.min(job.len).min(room.len());
                // SAFETY: by the header `into` has `len` bytes that nothing else uses until the completion is delivered
                // or the job forgotten, and forgetting takes the lock that is held here.
                unsafe { std::ptr::copy_nonoverlapping(room.bytes().as_ptr(), job.into as *mut u8, n) };
            }
        }
        Some((job.done, done))
    }

    pub(crate) fn deliver(&self, number: u64, result: Result<Completed, Errno>) -> Option<weldfs_completion> {
        let (callback, done) = self.finish(number, result)?;
        if let Some(callback) = callback {
            // SAFETY: the function the program gave for this; the completion is valid during the call. No lock is held.
            unsafe { callback(done.data, &done) };
        }
        Some(done)
    }
}

/// The completion of an open; the file goes to where the job wants it.
fn opened(job: &Job, result: Result<Completed, Errno>) -> weldfs_completion {
    let mut done = weldfs_completion {
        size: size_of::<weldfs_completion>(),
        data: job.data as *mut c_void,
        ticket: job.ticket,
        result: 0,
        value: 0,
        created: 0,
        reserved0: [0; 7],
        reserved: [0; 3],
    };
    let into = job.into as *mut *mut weldfs_file;
    match result.and_then(Completed::into_file) {
        Ok(file) => {
            done.created = u8::from(file.was_created());
            put(into, Box::into_raw(Box::new(weldfs_file { file })));
        }
        Err(e) => done.result = -i64::from(e.0),
    }
    done
}

impl OnDone for Jobs {
    fn done(&self, user: u64, result: Result<Completed, Errno>) {
        self.deliver(user, result);
    }
}
