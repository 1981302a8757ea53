//! What can keep a device from being served.

use std::path::PathBuf;

use weldfs_device::ProfileError;

/// Why a device could not be served or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another device listens there.
    #[error("{}: already being served", .0.display())]
    AlreadyServed(PathBuf),
    /// Something that is no socket of ours is in the way.
    #[error("{}: in the way, and not a socket", .0.display())]
    InTheWay(PathBuf),
    /// The socket could not be made there.
    #[error("{}: {what}: {source}", path.display())]
    Socket {
        /// Where it was to be.
        path: PathBuf,
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The image could not be opened or mounted; the text names what and where.
    #[error("{0}")]
    Image(String),
    /// Another process has the image open; the text names both.
    #[error("{0}")]
    InUse(String),
    /// A signal asked for the end before anything was served.
    #[error("ended by {0} before anything was served")]
    Interrupted(&'static str),
    /// The profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A core of the device failed: its clients have been told, and the image is recovered at its next mount.
    #[error("the device failed and is out of service; its image is recovered when it is served again")]
    Failed,
    /// A command panicked: the clients have been told.
    #[error("a command failed unexpectedly and the directory is out of service; what was done in it stands")]
    DirFailed,
    /// The operating system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// What it said.
        source: std::io::Error,
    },
}

impl ServeError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> ServeError {
        move |source| ServeError::System { what, source }
    }
}
