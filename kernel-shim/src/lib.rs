//! The control plane the operating system would own: who may talk to a device, and how the conversation begins.
//!
//! What lives here: `serve` (a device behind a Unix socket: attach, queue pairs, placeholders, claims, clean end),
//! `embedded` (the same device inside the calling process, behind userlib's `Connector`), `hostdir` (a directory of the
//! host in place of a device), `image` (opening what a device runs on), and below them `served` (either of the two),
//! `connection` (one socket),
//! `protocol` (one session's conversation), `creds` (who the kernel says the peer is), `signals`, `listener`,
//! `announce` (how the device of an image is found by the image), `ready` (a descriptor on which readiness is told);
//! `target` reaches an image or a socket by its name, with one device for all of a process;
//! `relay` starts a program beside a device and passes signals on to it, `namespace` keeps its mounts to itself.
//! What may be touched: sockets, descriptors, credentials. Never a file's bytes, a ring entry or a pool.
//! What flows through: attach messages in, replies with descriptors out; identity comes from the kernel, never from a
//! message; every queue pair's memory is made, sealed and sent by the device, none is taken from a client.

pub mod announce;
mod closer;
mod connection;
mod creds;
pub mod embedded;
mod error;
pub mod hostdir;
pub mod image;
mod lanes;
mod listener;
mod namespace;
mod protocol;
pub mod ready;
pub mod relay;
pub mod serve;
mod served;
mod signals;
pub mod target;

pub use embedded::Embedded;
pub use error::ServeError;
pub use hostdir::{EmbeddedDir, HostDirServer};
pub use image::{Opened, Source};
pub use listener::SocketAt;
pub use namespace::separate_mounts;
pub use serve::{Cause, ServeConfig, Server, Stopper};
pub use signals::Signals;
