//! SQLite on WeldFS: a VFS called `weldfs`, as a loadable extension and as a library.
//!
//! What lives here, from SQLite down to the device:
//! * `extension`: the entry points; `vfs`, `io`: SQLite's two tables of functions; `told`: what comes of a call; `api`,
//!   `abi`, `code`: SQLite's side.
//! * `files`: what is asked by name; `name`: `TARGET:/path`; `making`: how a file there is opened; `device`: the
//!   attachment to a target; `commits`: what goes on with its databases.
//! * `stored`: a file in a device; `locks`: its locking levels; `atomic`: a commit as one command; `pages`: those of a
//!   database that wait with its journal; `rollback`, `journal`: that; `frame`: a frame of a log; `shared`, `ofd`: the
//!   shared memory of a log; `temp`: files without a name.
//!
//! What flows through: pages to and from the device as commands of the client library. What may be touched: that
//! library, a device embedded in this process where none serves the image, and one file of the host per database with
//! a write-ahead log. docs/engines/SQLITE.md is for its users, and says which syncs are folded, and why that is safe.

mod abi;
mod api;
mod atomic;
mod code;
mod commits;
mod device;
mod extension;
mod fault;
mod files;
mod frame;
mod io;
mod journal;
mod locks;
mod making;
mod name;
mod ofd;
mod open;
mod pages;
mod rollback;
mod shared;
mod stored;
mod temp;
mod told;
mod vfs;

pub use abi::{File, IoMethods, Log, Malloc64, Vfs, VfsFind, VfsRegister};
pub use api::{Api, LOG_VARIABLE};
pub use device::Way;
pub use name::TARGET_VARIABLE;
pub use shared::DIRECTORY_VARIABLE;

/// Makes the VFS `weldfs` known to the SQLite of `api`, and perhaps its default one. Errors: SQLite's code.
pub fn register(api: Api, default: bool) -> Result<(), i32> {
    match vfs::register(api, default) {
        code::OK => Ok(()),
        code => Err(code),
    }
}

/// Lets databases of a target be found in a device that this program runs or is attached to by itself: every name with
/// that target (which must be a file; which one does not matter) leads to `client`, for as long as what is returned
/// lives and while databases in it are open. `way` is how their commits get there.
pub fn provide(target: &std::path::Path, client: weldfs::Client, way: Way) -> std::io::Result<Provided> {
    let device = std::sync::Arc::new(device::Device::over(client, way)?);
    device::keep(target, &device)?;
    Ok(Provided { _device: device })
}

/// See [`provide`].
pub struct Provided {
    _device: std::sync::Arc<device::Device>,
}
