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

use crossbeam::channel::{Receiver, Sender, bounded, select, unbounded};
use weldfs_ciscops::Errno;
use weldfs_locks::Mutex;
use weldfs_scheduler::TenantId;

use crate::limits::IO_THREADS;
use weldfs_store::Store;
use weldfs_store::error::{FsResult, Miss};

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
    /// To each thread: it is to give back what was freed of what it allocated.
    rests: Vec<Sender<()>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl IoPool {
    /// Starts the threads if the medium can miss. `at_rest`: gives back what the calling thread has freed.
    pub fn start(store: Arc<Store>, at_rest: Option<fn()>) -> std::io::Result<IoPool> {
        if store.medium().info().byte_addressable {
            return Ok(IoPool { jobs: None, rests: Vec::new(), threads: Mutex::default() });
        }
        let (tx, rx) = unbounded::<Job>();
        let (mut threads, mut rests) = (Vec::new(), Vec::new());
        for n in 0..IO_THREADS {
            let (rest, told) = bounded(1);
            let (rx, store) = (rx.clone(), store.clone());
            let body = move || serve(&store, &rx, &told, at_rest);
            threads.push(std::thread::Builder::new().name(format!("weld-io-{n}")).spawn(body)?);
            rests.push(rest);
        }
        Ok(IoPool { jobs: Some(tx), rests, threads: Mutex::new(threads) })
    }

    /// The device is at rest: what these threads allocated for its caches and others have dropped since lies in their
    /// heaps until they look.
    pub fn give_back(&self) {
        for rest in &self.rests {
            // Full: it has not looked since it was told last, and will.
            let _ = rest.try_send(());
        }
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

/// The body of a thread.
fn serve(store: &Store, jobs: &Receiver<Job>, told: &Receiver<()>, at_rest: Option<fn()>) {
    loop {
        select! {
            recv(jobs) -> job => match job {
                Ok(job) => fetch(store, &job),
                Err(_) => return,
            },
            recv(told) -> told => match (told, at_rest) {
                (Ok(()), Some(give_back)) => give_back(),
                (Ok(()), None) => {}
                (Err(_), _) => return,
            },
        }
    }
}

fn fetch(store: &Store, job: &Job) {
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
