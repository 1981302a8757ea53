//! Cold reads: what a device thread must not do itself, because it blocks.
//!
//! A miss goes over a channel to a few I/O threads, which fetch it into the store's caches and wake the op. Only
//! `block` media miss, and only there are the threads started.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use crossbeam::channel::{Sender, unbounded};
use weldfs_ciscops::Errno;
use weldfs_locks::Mutex;
use weldfs_scheduler::TenantId;

use super::limits::IO_THREADS;
use crate::error::{FsResult, Miss};
use crate::store::Store;

struct Job {
    miss: Miss,
    /// The tenant for whom it is.
    owner: u32,
    done: Arc<Mutex<Answer>>,
}

#[derive(Default)]
struct Answer {
    result: Option<FsResult<()>>,
    waker: Option<Waker>,
}

/// The I/O threads of one device. Thread-safe; dropping it ends them.
pub struct IoPool {
    jobs: Option<Sender<Job>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl IoPool {
    /// Starts the threads if the medium can miss.
    pub fn start(store: Arc<Store>) -> std::io::Result<IoPool> {
        if store.medium().info().byte_addressable {
            return Ok(IoPool { jobs: None, threads: Mutex::default() });
        }
        let (tx, rx) = unbounded::<Job>();
        let mut threads = Vec::new();
        for n in 0..IO_THREADS {
            let (rx, store) = (rx.clone(), store.clone());
            threads.push(std::thread::Builder::new().name(format!("weld-io-{n}")).spawn(move || {
                for job in rx {
                    // Whatever happens to this thread's fetch, its op must be told.
                    let fetched = catch_unwind(AssertUnwindSafe(|| store.fetch_for(&job.miss, job.owner)));
                    let result = fetched.unwrap_or_else(|_| Err(Errno::IO.into()));
                    let waker = {
                        let mut answer = job.done.lock();
                        answer.result = Some(result);
                        answer.waker.take()
                    };
                    if let Some(w) = waker {
                        w.wake();
                    }
                }
            })?);
        }
        Ok(IoPool { jobs: Some(tx), threads: Mutex::new(threads) })
    }

    /// Fetches something cold for a tenant.
    pub fn fetch(&self, miss: Miss, owner: TenantId) -> Fetch {
        let done = Arc::new(Mutex::new(Answer::default()));
        let sent =
            self.jobs.as_ref().is_some_and(|tx| tx.send(Job { miss, owner: owner.0, done: done.clone() }).is_ok());
        if !sent {
            done.lock().result = Some(Err(Errno::IO.into()));
        }
        Fetch { done }
    }
}

impl Drop for IoPool {
    fn drop(&mut self) {
        self.jobs.take();
        for t in self.threads.lock().drain(..) {
            // The last reference may be dropped on one of the threads themselves.
            if t.thread().id() != std::thread::current().id() && t.join().is_err() {
                tracing::error!("an I/O thread panicked");
            }
        }
    }
}

/// Future of [`IoPool::fetch`].
pub struct Fetch {
    done: Arc<Mutex<Answer>>,
}

impl Future for Fetch {
    type Output = FsResult<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<FsResult<()>> {
        let mut answer = self.done.lock();
        match answer.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                answer.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
