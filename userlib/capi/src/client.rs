//! Attaching, and what concerns the device as a whole.

use crate::boundary::{
    Doing, Fault, call, copy_text, count, durability, give, given, hand_out, last_error, misuse, on, path, sized, text,
};
use crate::types::*;
use libc::{c_char, c_int};
use std::path::Path;
use std::sync::Arc;
use weldfs::{AttachOptions, Client, ClientOptions, Connector, Durability, Errno, SocketConnector};

/// An attachment to a device. Any number of threads may use it at the same time; each gets a queue pair of its own.
///
/// In a forked child the first call attaches anew; files opened before belong to the parent and give EBADF. After the
/// device died every call gives ENODEV until weldfs_reconnect.
pub struct weldfs_client {
    pub(crate) client: Client,
    /// Whether the device is in this process.
    embedded: bool,
}

/// Makes the C interface's client of any connector to a device in this process.
///
/// `options` as for `weldfs_attach`.
pub fn wrap(
    function: &'static str,
    connector: impl FnOnce() -> Result<Arc<dyn Connector>, Errno>,
    options: *const weldfs_options,
    client: *mut *mut weldfs_client,
) -> c_int {
    attach(function.into(), options, client, |wanted| Ok((Client::with_options(connector()?, wanted.client)?, true)))
}

/// What a C program asks of an attachment.
struct Wanted {
    client: ClientOptions,
    durability: Durability,
    #[cfg_attr(not(feature = "embedded"), allow(dead_code))] // there is no device to give it to
    memory_bytes: u64,
}

/// Attaches by `reach`, which says, too, whether the device is in this process.
fn attach(
    doing: Doing,
    options: *const weldfs_options,
    client: *mut *mut weldfs_client,
    reach: impl FnOnce(Wanted) -> Result<(Client, bool), Fault>,
) -> c_int {
    call(doing, || {
        hand_out(client, || {
            let wanted = wanted(options)?;
            let durability = wanted.durability;
            let (client, embedded) = reach(wanted)?;
            Ok(weldfs_client { client: client.durability(durability), embedded })
        })
    })
}

/// The least memory that a device runs with.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

#[cfg(feature = "embedded")]
fn reach_target(target: &Path, wanted: Wanted) -> Result<(Client, bool), Fault> {
    use weldfs_kernel_shim::target;
    let memory_bytes = if wanted.memory_bytes == 0 { target::MEMORY_BYTES } else { wanted.memory_bytes };
    let reached = target::reach(target, wanted.client, memory_bytes).map_err(|e| match e {
        // The names are in the sentence already.
        target::TargetError::System { source, .. } => source.into(),
        e => Fault::new(e.errno(), e.to_string()),
    })?;
    Ok((reached.client, reached.embedded))
}

#[cfg(not(feature = "embedded"))]
fn reach_target(target: &Path, wanted: Wanted) -> Result<(Client, bool), Fault> {
    use std::os::unix::fs::FileTypeExt;
    if !std::fs::metadata(target)?.file_type().is_socket() {
        return Err(Fault::new(Errno::OPNOTSUPP, "this library was built to reach sockets only"));
    }
    Ok((Client::with_options(Arc::new(SocketConnector::from_env(target)?), wanted.client)?, false))
}

fn wanted(from: *const weldfs_options) -> Result<Wanted, Fault> {
    let given: weldfs_options = sized(from, size_of::<usize>())?;
    if given.reserved0 != 0 || given.reserved != [0; 5] || given.flags & !WELDFS_OPTION_UMASK != 0 {
        return Err(misuse("weldfs_options: a reserved field or an unknown flag is set"));
    }
    let mut attach = AttachOptions::from_env()?;
    if !given.token.is_null() {
        let token = text(given.token)?.to_str().ok().and_then(|t| t.parse().ok());
        attach.token = Some(token.ok_or(Errno::ACCES)?);
    }
    attach.client_id = given.client_id;
    let mut options = ClientOptions { attach, ..ClientOptions::default() };
    if given.depth != 0 {
        options.depth = given.depth;
    }
    if given.pool_bytes != 0 {
        options.pool_bytes = given.pool_bytes;
    }
    if given.flags & WELDFS_OPTION_UMASK != 0 {
        options.umask = Some(given.umask & 0o777);
    }
    if given.memory_bytes != 0 && given.memory_bytes < MEMORY_BYTES_MIN {
        return Err(misuse("weldfs_options.memory_bytes: less than 1 MiB"));
    }
    Ok(Wanted { client: options, durability: durability(given.durability)?, memory_bytes: given.memory_bytes })
}

/// The library's version, as WELDFS_VERSION counts: at least that of the header a program was compiled with.
#[unsafe(no_mangle)]
pub extern "C" fn weldfs_version() -> u32 {
    WELDFS_VERSION
}

/// One sentence for an error number, given positive or negative. Static; thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn weldfs_strerror(error: c_int) -> *const c_char {
    crate::fused::sentence(error.unsigned_abs() as i32)
}

/// What went wrong in the last call of this thread that failed, in a sentence of at most 1,023 bytes: the function with
/// the paths that it was given, the errno in words and by name, and a detail where there is one (the step of a program,
/// the item of a multi_write): `weldfs_open("/f"): no such file or directory (ENOENT)`. Valid until the thread's next
/// call of this function. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn weldfs_last_error() -> *const c_char {
    last_error()
}

/// Attaches to the device that listens at the Unix socket `socket` (weldfs serve says where). `options` may be NULL.
/// On success *client is the attachment, to be given back with weldfs_detach; else NULL.
///
/// Errors: -ENOENT and -ECONNREFUSED (no device serves there), -EACCES (an unknown token, or the socket's permissions),
/// -EPROTO (something else listens there), -EMFILE (too many sessions), -EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_attach(
    socket: *const c_char,
    options: *const weldfs_options,
    client: *mut *mut weldfs_client,
) -> c_int {
    attach(on("weldfs_attach", socket), options, client, |wanted| {
        let connector = Arc::new(SocketConnector::from_env(path(socket)?)?);
        Ok((Client::with_options(connector, wanted.client)?, false))
    })
}

/// Attaches to a target: the socket of a device, or an image. An image that a device serves is reached through that
/// device. One that none serves is opened in this process, locked against other processes: one device for all clients
/// of this process that name the image, closed cleanly by the weldfs_detach of the last one (or of the last file or
/// directory that is closed after it). An image that may only be read is opened so. A device that is starting, and an
/// image that another process has open, are waited for: WELDFS_WAIT seconds (an environment variable), or 5.
/// `options` may be NULL.
///
/// Commands of a device in this process run on the threads that call; in a forked child every call gives -ENODEV.
///
/// Errors: as weldfs_attach, and -EBUSY (another process has the image open, and serves it not), -EACCES, -EISDIR,
/// -EUCLEAN (no file system that can be mounted: another kind of file, another version, or damage; weldfs_last_error
/// says which), -EOPNOTSUPP (a library that was built without devices).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_attach_target(
    target: *const c_char,
    options: *const weldfs_options,
    client: *mut *mut weldfs_client,
) -> c_int {
    attach(on("weldfs_attach_target", target), options, client, |wanted| reach_target(path(target)?, wanted))
}

/// Gives an attachment back; NULL does nothing. The session ends when its files, directories and queues are closed,
/// too. No other call may use `client` at the same time or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_detach(client: Option<Box<weldfs_client>>) {
    call("weldfs_detach", || {
        drop(client);
        Ok(())
    });
}

/// Ends the session and attaches again, to a device that was restarted for example. Files opened before give EBADF
/// afterwards. Errors as weldfs_attach.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_reconnect(client: Option<&weldfs_client>) -> c_int {
    call("weldfs_reconnect", || Ok(given(client)?.client.reconnect()?))
}

/// What the device said at attach.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_get_info(client: Option<&weldfs_client>, info: *mut weldfs_info) -> c_int {
    call("weldfs_get_info", || {
        give(info, || {
            let said = given(client)?.client.info()?;
            Ok(weldfs_info {
                session: said.session,
                uuid: said.uuid,
                label: padded(&said.label),
                profile: padded(&said.profile),
                payload_max: said.limits.atomic_write_max,
                durability: if said.durability == Durability::Durable { WELDFS_DURABLE } else { WELDFS_VOLATILE },
                power_safe: said.power_safe.into(),
                read_only: said.read_only.into(),
                embedded: given(client)?.embedded.into(),
                medium: said.medium,
                reserved0: [0; 4],
                reserved: [0; 11],
            })
        })
    })
}

fn padded(text: &str) -> [c_char; 64] {
    let mut bytes = [0; 64];
    for (to, from) in bytes[..63].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    bytes
}

/// The 128-bit id of this client, as given in the options or drawn: 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_client_id(client: Option<&weldfs_client>, id: *mut u8) -> c_int {
    call("weldfs_client_id", || give(id.cast::<[u8; 16]>(), || Ok(given(client)?.client.id())))
}

/// The device's counters as a JSON object: as much of it as fits into `size` bytes, NUL-terminated. Returns the bytes
/// that all of it has, without the NUL; `size` 0 asks for that alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_stats_json(client: Option<&weldfs_client>, json: *mut c_char, size: usize) -> i64 {
    count("weldfs_stats_json", || copy_text(given(client)?.client.stats_json()?.as_bytes(), json, size))
}

/// Everything completed before, by any client, is persistent on return.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_sync(client: Option<&weldfs_client>) -> c_int {
    call("weldfs_sync", || Ok(given(client)?.client.sync()?))
}

/// Space and identity of the file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_get_space(client: Option<&weldfs_client>, space: *mut weldfs_space) -> c_int {
    call("weldfs_get_space", || give(space, || Ok(given(client)?.client.statfs()?.into())))
}
