//! The device inside the calling process: the same rings and rules, without a socket.
//!
//! One trust domain: the client is this process, its credentials are this process's. Nor is there a hand-over (unless
//! `DeviceConfig::inline` or the number of cores says otherwise): the thread that waits for its command runs it, and
//! the device's own thread sleeps until something is left to do. A signal handler that interrupts a thread there gets
//! EBUSY for its own calls.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weldfs::{AttachOptions, Claimed, Connector, Here, Placeholder, Process, QueueParts, SessionInfo, Transport};
use weldfs_ciscops::attach::{Reply, Request};
use weldfs_ciscops::{Cqe, Errno, Handle, Sqe};
use weldfs_device::{Device, DeviceConfig, Identity, Seated};
use weldfs_fs::Cred;
use weldfs_locks::Mutex;
use weldfs_store::Store;

use crate::ServeError;
use crate::creds;
use crate::image::{Opened, Source, Taken};
use crate::served::{Served, ServedSession};

/// An embedded device. Thread-safe; cloning shares it. Dropping the last clone ends the device cleanly.
#[derive(Clone)]
pub struct Embedded {
    inner: Arc<Inner>,
}

struct Inner {
    device: Arc<Device>,
    /// Whose device it is: a forked child has no part in it.
    process: Process,
    opened: Mutex<Option<Opened>>,
    cred: Cred,
}

impl Embedded {
    /// Opens an image (taking its lock), or makes a fresh one in memory, and starts a device on it.
    pub fn open(source: &Source, config: DeviceConfig) -> Result<Embedded, ServeError> {
        let taken = Taken::take(source)?.modelled(&config.profile);
        Embedded::on(taken.mount(config.memory_bytes)?, config)
    }

    /// Starts a device on what is open already; it is closed with the device.
    pub fn on(opened: Opened, config: DeviceConfig) -> Result<Embedded, ServeError> {
        let device = Device::start(opened.store.clone(), opened.device_config(here(config)))
            .map_err(ServeError::system("device threads"))?;
        Ok(Embedded::assemble(device, Some(opened)))
    }

    /// A device over a store that the caller mounted and will unmount.
    pub fn over(store: Arc<Store>, config: DeviceConfig) -> Result<Embedded, ServeError> {
        let device = Device::start(store, here(config)).map_err(ServeError::system("device threads"))?;
        Ok(Embedded::assemble(device, None))
    }

    fn assemble(device: Device, opened: Option<Opened>) -> Embedded {
        let inner = Inner {
            device: Arc::new(device),
            process: Process::current(),
            opened: Mutex::new(opened),
            cred: creds::of_self(),
        };
        Embedded { inner: Arc::new(inner) }
    }

    /// The same device for sessions with other credentials: tests of permissions. Meaningful only where the caller is
    /// trusted anyway, as all of an embedding process is.
    pub fn acting_as(&self, cred: Cred) -> impl Connector + use<> {
        Acting { inner: self.inner.clone(), cred }
    }

    /// The device, for reports.
    pub fn device(&self) -> &Arc<Device> {
        &self.inner.device
    }

    /// Ends all sessions, checkpoints and unmounts. Idempotent; calls of clients fail from now on.
    pub fn close(&self) -> Result<(), ServeError> {
        self.inner.close()
    }
}

/// Commands run on the threads that call, and what completed survives the process, unless it was said otherwise.
fn here(config: DeviceConfig) -> DeviceConfig {
    let (inline, hand_over) = (config.inline.or(Some(true)), config.hand_over.or(Some(true)));
    DeviceConfig { inline, hand_over, ..config }
}

impl Inner {
    fn attach(self: &Arc<Self>, cred: Cred, options: &AttachOptions) -> io::Result<Box<dyn Transport>> {
        if !self.process.is_current() {
            return Err(Errno::NODEV.into());
        }
        attach(Served::Device(self.device.clone()), self.clone(), cred, options)
    }

    fn close(&self) -> Result<(), ServeError> {
        let opened = self.opened.lock().take();
        self.device.shutdown();
        opened.map_or(Ok(()), Opened::close)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // Of a forked child's copy nothing is ended: it has none of the threads, and the image is the parent's.
            std::mem::forget(self.device.clone());
            std::mem::forget(self.opened.try_lock().and_then(|mut opened| opened.take()));
            return;
        }
        if let Err(e) = self.close() {
            tracing::error!("an embedded device did not end cleanly: {e}");
        }
    }
}

impl Connector for Embedded {
    fn attach(&self, options: &AttachOptions) -> io::Result<Box<dyn Transport>> {
        self.inner.attach(self.inner.cred.clone(), options)
    }
}

struct Acting {
    inner: Arc<Inner>,
    cred: Cred,
}

impl Connector for Acting {
    fn attach(&self, options: &AttachOptions) -> io::Result<Box<dyn Transport>> {
        self.inner.attach(self.cred.clone(), options)
    }
}

/// A session in this process; `owner` lives as long as it.
pub(crate) fn attach(
    served: Served,
    owner: Arc<dyn Send + Sync>,
    cred: Cred,
    options: &AttachOptions,
) -> io::Result<Box<dyn Transport>> {
    let governs = creds::governs(cred.uid);
    let mut who = Identity::from(cred);
    if let Some(token) = options.token {
        served.join(&mut who, &token.0)?;
    }
    let session = served.attach(who, options.client_id, &options.prefix)?;
    let info = SessionInfo::from(&served.welcome(&session));
    Ok(Box::new(Local {
        info,
        process: Process::current(),
        session: Mutex::new(Some(session)),
        governs,
        served,
        _owner: owner,
    }))
}

/// A session in this process.
struct Local {
    info: SessionInfo,
    process: Process,
    /// None after detach (or, in a child, abandon).
    session: Mutex<Option<ServedSession>>,
    governs: bool,
    served: Served,
    _owner: Arc<dyn Send + Sync>,
}

impl Local {
    fn with<T>(&self, f: impl FnOnce(&ServedSession) -> Result<T, Errno>) -> Result<T, Errno> {
        f(self.session.lock().as_ref().ok_or(Errno::NODEV)?)
    }
}

impl Transport for Local {
    fn info(&self) -> &SessionInfo {
        &self.info
    }

    fn new_queue(&self, depth: u32, pool_bytes: u32) -> io::Result<QueueParts> {
        let q = self.with(|s| s.new_queue_local(depth, pool_bytes))?;
        Ok(QueueParts { index: q.index, layout: q.layout, region: q.region, doorbell: q.doorbell })
    }

    fn placeholders(&self, count: u32) -> Result<Vec<Placeholder>, Errno> {
        let made = self.with(|s| s.placeholders(count))?;
        Ok(made.into_iter().map(|(id, fd)| Placeholder::new(id, fd)).collect())
    }

    fn share(&self, open: &[Handle]) -> Result<Vec<Placeholder>, Errno> {
        let made = self.with(|s| s.share(open))?;
        Ok(made.into_iter().map(|(id, fd)| Placeholder::new(id, fd)).collect())
    }

    fn claim(&self, fd: BorrowedFd<'_>, anew: bool) -> Result<Claimed, Errno> {
        let c = self.with(|s| s.claim(fd, anew))?;
        Ok(Claimed { handle: c.handle, flags: c.flags, mode: c.mode, placeholder: c.placeholder })
    }

    fn stats_json(&self, detail: u32) -> Result<String, Errno> {
        self.with(|s| Ok(s.stats_json(detail)))
    }

    fn trace(&self, start: Option<u32>) -> Result<Vec<u8>, Errno> {
        self.with(|s| match start {
            Some(limit) => s.trace_start(limit).map(|()| Vec::new()),
            None => s.trace_stop(),
        })
    }

    fn control(&self, request: &Request) -> Result<Reply, Errno> {
        self.with(|s| self.served.control(s, self.governs, request))
    }

    fn is_inline(&self) -> bool {
        self.served.is_inline()
    }

    fn is_inside(&self) -> bool {
        Device::is_inside()
    }

    fn run_here(&self, done: &mut dyn FnMut() -> bool) -> Here {
        if !self.process.is_current() {
            return Here::Elsewhere;
        }
        match self.served.run_here(done) {
            Seated::Ran => Here::Ran,
            Seated::Taken => Here::Taken,
            Seated::None => Here::Elsewhere,
        }
    }

    fn call_here(&self, queue: u32, entry: &Sqe) -> Option<Cqe> {
        if !self.process.is_current() {
            return None;
        }
        self.served.call_here((self.info.session, queue), entry)
    }

    fn hung_up(&self) -> bool {
        self.session.try_lock().is_some_and(|s| s.as_ref().is_none_or(ServedSession::is_closing))
    }

    fn detach(&self) {
        self.session.lock().take();
    }

    fn abandon(&self) {
        // A forked child has none of the device's threads: whatever it did here would wait for ever.
        if let Some(mut session) = self.session.try_lock() {
            std::mem::forget(session.take());
        }
    }
}
