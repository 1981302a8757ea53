//! The device behind a mount: one that serves already, one of this process that listens beside the image, or one of
//! this process that nothing else reaches.

use super::Options;
use crate::device::{self, socket_at, socket_of};
use crate::failure::{Doing, Failure};
use crate::find;
use crate::output::say;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weldfs::Connector;
use weldfs::SocketConnector;
use weldfs_device::DeviceConfig;
use weldfs_fs::Cred;
use weldfs_kernel_shim::{Embedded, Opened, ServeConfig, ServeError, Server, Source, Stopper};
use weldfs_media::{ImageKind, OpenMode};
use weldfs_mount::{Door, SocketDoor, Who};

/// Memory of a device that only this mount uses, bytes.
const MEMORY: u64 = 512 << 20;

/// A device that serves in this process.
struct Served {
    stopper: Stopper,
    thread: JoinHandle<Result<(), ServeError>>,
    /// Readable when it has ended.
    over: Arc<OwnedFd>,
}

/// The device behind a mount.
pub enum Behind {
    /// Another process has it, and listens there.
    Other(PathBuf, Arc<dyn Door>),
    /// It listens, for other sessions, too.
    Own(Box<OwnServed>),
    /// No other session gets at it.
    Alone(Embedded),
}

/// A device of this process, and the door to it.
pub struct OwnServed {
    served: Served,
    door: Arc<dyn Door>,
}

/// Sessions of a device in this process.
struct Inside(Embedded);

impl Door for Inside {
    fn acting_as(&self, who: &Who) -> Arc<dyn Connector> {
        Arc::new(self.0.acting_as(Cred { uid: who.uid, gid: who.gid, groups: (&*who.groups).into() }))
    }
}

impl Behind {
    /// Finds the device of `source`, or starts one. A process that has the image open in passing, and a device that is
    /// starting, are waited for.
    pub fn start(source: &Path, options: &Options) -> Result<Behind, Failure> {
        let until = Instant::now() + find::wait()?;
        let over = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).doing("make", "an event")?;
        let over = Arc::new(over);
        loop {
            if let Some(client) = find::client_of(source, until)? {
                if options.exclusive {
                    let source = source.display();
                    return Err(Failure::new(format!("{source}: a device serves it, so it is not exclusive")));
                }
                drop(client);
                let socket = socket_at(source).canonicalize().doing("attach to", source)?;
                let connector = find::connector(source, &socket).doing("attach to", source)?;
                let door = Arc::new(SocketDoor::new(Arc::new(connector)));
                return Ok(Behind::Other(socket, door));
            }
            let started = match (options.read_only, options.exclusive) {
                (true, _) => Behind::looking(source),
                (false, true) => Behind::alone(source),
                (false, false) => Behind::serving(source, &over),
            };
            match started {
                Err(ServeError::InUse(_)) if Instant::now() < until => std::thread::sleep(find::PAUSE),
                started => {
                    return started.map_err(|e| device::refused(source, super::want(options), &e));
                }
            }
        }
    }

    fn config() -> DeviceConfig {
        DeviceConfig {
            cores: 1,
            memory_bytes: MEMORY,
            at_rest: Some(crate::allocator::give_back),
            ..DeviceConfig::default()
        }
    }

    fn looking(image: &Path) -> Result<Behind, ServeError> {
        let opened = Opened::open_read_only(image, MEMORY)?;
        device::say_what_is_shown(image, &opened.recovery);
        Ok(Behind::Alone(Embedded::on(opened, Behind::config())?))
    }

    fn alone(image: &Path) -> Result<Behind, ServeError> {
        let opened = Opened::open(&Source::Image(image.to_owned()), MEMORY)?;
        device::say_what_is_gone(image, &opened.recovery);
        Ok(Behind::Alone(Embedded::on(opened, Behind::config())?))
    }

    fn serving(image: &Path, over: &Arc<OwnedFd>) -> Result<Behind, ServeError> {
        let socket: PathBuf = socket_of(image);
        let mut config = ServeConfig::new(Source::Image(image.to_owned()), &socket);
        config.signals = false;
        // It ends with the mount.
        config.stoppable = false;
        config.device.at_rest = Some(crate::allocator::give_back);
        let server = Server::bind(config)?;
        let recovery = &server.opened().recovery;
        if !recovery.clean {
            say!("weldfs: {} was not closed cleanly; recovered", image.display());
        }
        device::say_what_is_gone(image, recovery);
        let stopper = server.stopper();
        let rings = over.clone();
        let thread = std::thread::spawn(move || {
            let ended = server.run();
            // A counter that is full has been rung already.
            let _ = rustix::io::write(&*rings, &1u64.to_ne_bytes());
            ended
        });
        let door = Arc::new(SocketDoor::new(Arc::new(SocketConnector::new(socket))));
        Ok(Behind::Own(Box::new(OwnServed { served: Served { stopper, thread, over: over.clone() }, door })))
    }

    /// The way to its sessions.
    pub fn door(&self) -> Arc<dyn Door> {
        match self {
            Behind::Other(_, door) => door.clone(),
            Behind::Own(own) => own.door.clone(),
            Behind::Alone(embedded) => Arc::new(Inside(embedded.clone())),
        }
    }

    /// What the list of mounts is to show: the socket of another process's device, else the image.
    pub fn shown<'p>(&'p self, image: &'p Path) -> &'p Path {
        if let Behind::Other(socket, _) = self { socket } else { image }
    }

    /// Whether what it holds changes through this mount alone.
    pub fn is_alone(&self) -> bool {
        matches!(self, Behind::Alone(_))
    }

    /// Readable when a device of this process has ended by itself.
    pub fn over(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Behind::Own(own) => Some(own.served.over.as_fd()),
            Behind::Alone(embedded) => Some(embedded.device().failure()),
            Behind::Other(..) => None,
        }
    }

    /// Ends a device of this process: checkpoint, clean flag.
    pub fn end(self) -> Result<(), Failure> {
        let failed = |e: ServeError| Failure::new(e.to_string());
        match self {
            Behind::Other(..) => Ok(()),
            Behind::Alone(embedded) => embedded.close().map_err(failed),
            Behind::Own(own) => {
                own.served.stopper.stop();
                match own.served.thread.join() {
                    Ok(ended) => ended.map_err(failed),
                    Err(_) => Err(Failure::new("the device ended in a panic")),
                }
            }
        }
    }
}

/// Waits until the process of a mount has let go of its image, if it was its own: whether it has.
pub fn wait_until_closed(source: &Path, most: Duration) -> bool {
    if find::is_socket(source) {
        return true;
    }
    let until = Instant::now() + most;
    loop {
        match weldfs_media::open(source, ImageKind::Block, OpenMode::ReadOnly) {
            Err(weldfs_media::OpenError::InUse { .. }) if Instant::now() < until => {
                std::thread::sleep(find::PAUSE);
            }
            Err(weldfs_media::OpenError::InUse { .. }) => return false,
            _ => return true,
        }
    }
}
