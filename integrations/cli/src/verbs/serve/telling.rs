//! Telling a supervisor, or a person, that a device is ready, and that it ends: a line on standard error, a line on a
//! descriptor (`--ready-fd`), messages to systemd (sd_notify(3), where NOTIFY_SOCKET says so).

use crate::failure::{Failure, reason};
use crate::output::say;
use sd_notify::NotifyState;
use std::path::Path;
use weldfs_kernel_shim::Cause;
use weldfs_kernel_shim::ready::ReadyFd;

/// Before the device is ready.
pub struct Telling {
    fd: Option<ReadyFd>,
}

impl Telling {
    /// Takes the descriptor over; nothing may have been opened before.
    pub fn begin(fd: Option<i32>) -> Result<Telling, Failure> {
        let take = |number| {
            ReadyFd::take(number)
                .map_err(|e| Failure::usage(format!("--ready-fd {number}: not an open descriptor: {}", reason(&e))))
        };
        Ok(Telling { fd: fd.map(take).transpose()? })
    }

    /// Clients are served from now on.
    pub fn ready(self, socket: &Path, name: &str) -> Result<Stopping, Failure> {
        if let Some(fd) = self.fd {
            fd.tell(socket).map_err(|e| Failure::new(format!("cannot tell --ready-fd: {}", reason(&e))))?;
        }
        let status = format!("serving {name} at {}", socket.display());
        notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
        Ok(Stopping { name: name.to_owned() })
    }
}

/// Once it is ready.
pub struct Stopping {
    name: String,
}

impl Stopping {
    /// It ends.
    pub fn stopping(&self, cause: Cause) {
        say!("weldfs: {}: ending, because of {cause}", self.name);
        notify(&[NotifyState::Stopping, NotifyState::Status("ending: sessions, checkpoint, clean flag")]);
    }
}

/// Does nothing where NOTIFY_SOCKET is not set.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(false, states) {
        tracing::warn!("systemd could not be notified: {e}");
    }
}
