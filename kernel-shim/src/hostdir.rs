//! A directory of the host behind a Unix socket, or inside the calling process, in place of a device.
//!
//! Rights: a process of root acts for each session with that session's user and groups. Any other process can act with
//! its own rights only, so it serves its own user only.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use weldfs::{AttachOptions, Connector, Transport};
use weldfs_fs::Cred;
use weldfs_hostdir::{HostDir, HostDirConfig};

use crate::ServeError;
use crate::creds::{self, StopRight};
use crate::embedded;
use crate::listener::{Listener, SocketAt};
use crate::serve::{Cause, Reception, Stopper, raise_fd_limit};
use crate::served::Served;
use crate::signals::Signals;

fn start(config: HostDirConfig) -> Result<Arc<HostDir>, ServeError> {
    let refused = ServeError::Image;
    let name = config.dir.display().to_string();
    HostDir::start(config).map(Arc::new).map_err(|e| refused(format!("{name}: cannot be served: {e}")))
}

/// A directory that is served at a socket. Nothing is served before `run`.
pub struct HostDirServer {
    reception: Reception,
    dir: Arc<HostDir>,
}

impl HostDirServer {
    /// Opens the directory, starts its threads and binds the socket. `signals`: SIGHUP, SIGTERM and SIGINT end `run`,
    /// else only a [`Stopper`] does, and a request of root or of the user that runs it.
    pub fn bind(config: HostDirConfig, socket: &SocketAt, signals: bool) -> Result<HostDirServer, ServeError> {
        raise_fd_limit();
        let signals = signals.then(Signals::install).transpose().map_err(ServeError::system("signals"))?;
        let dir = start(config)?;
        let listener = Listener::bind(socket)?;
        let stop = StopRight::Governors { owner: None };
        let reception = Reception::new(listener, Served::HostDir(dir.clone()), stop, signals)?;
        Ok(HostDirServer { reception, dir })
    }

    /// What is served, for reports.
    pub fn dir(&self) -> &Arc<HostDir> {
        &self.dir
    }

    /// A way to end `run`.
    pub fn stopper(&self) -> Stopper {
        self.reception.stopper()
    }

    /// Serves until a signal, a request or the stopper; then what was published is executed, and all sessions end. An
    /// error also when a command panics meanwhile: all clients have been told by then.
    pub fn run(self) -> Result<(), ServeError> {
        self.run_telling(|_| {})
    }

    /// As `run`; `ending` is told why it ends before anything is ended.
    pub fn run_telling(self, ending: impl FnOnce(Cause)) -> Result<(), ServeError> {
        let HostDirServer { reception, dir } = self;
        reception.run(ending, || {
            dir.shutdown();
            if dir.is_poisoned() { Err(ServeError::DirFailed) } else { Ok(()) }
        })
    }
}

/// A directory of the host as a device inside this process: the same threads, rings and rules, without a socket.
/// Thread-safe; cloning shares it, dropping the last clone ends it.
#[derive(Clone)]
pub struct EmbeddedDir {
    dir: Arc<HostDir>,
    cred: Cred,
}

impl EmbeddedDir {
    /// With defaults for everything but the directory.
    pub fn open(dir: impl Into<PathBuf>) -> Result<EmbeddedDir, ServeError> {
        EmbeddedDir::with(HostDirConfig::new(dir))
    }

    /// As configured.
    pub fn with(config: HostDirConfig) -> Result<EmbeddedDir, ServeError> {
        Ok(EmbeddedDir { dir: start(config)?, cred: creds::of_self() })
    }

    /// The same for sessions with other credentials; to be had only where this process is root's.
    pub fn acting_as(&self, cred: Cred) -> EmbeddedDir {
        EmbeddedDir { dir: self.dir.clone(), cred }
    }

    /// What is served, for reports.
    pub fn dir(&self) -> &Arc<HostDir> {
        &self.dir
    }
}

impl Connector for EmbeddedDir {
    fn attach(&self, options: &AttachOptions) -> io::Result<Box<dyn Transport>> {
        let served = Served::HostDir(self.dir.clone());
        embedded::attach(served, self.dir.clone(), self.cred.clone(), options)
    }
}
