//! Attaching, and what concerns the device as a whole.

use crate::boundary::{
    Doing, Fault, call, copy_text, count, durability, give, given, hand_out, last_error, misuse, on, path, sized, text,
};
use crate::types::*;
use libc::{c_char, c_int};
use std::sync::Arc;
use weldfs::{AttachOptions, Client, ClientOptions, Connector, Durability, Errno, SocketConnector};

/// An attachment to a device. Any number of threads may use it at the same time; each gets a queue pair of its own.
///
/// In a forked child the first call attaches anew; files opened before belong to the parent and give EBADF. After the
/// device died every call gives ENODEV until weldfs_reconnect.
pub struct weldfs_client {
    pub(crate) client: Client,
}

/// Makes the C interface's client of any connector; the embedded library's way in.
///
/// `options` as for `weldfs_attach`.
pub fn wrap(
    function: &'static str,
    connector: impl FnOnce() -> Result<Arc<dyn Connector>, Errno>,
    options: *const weldfs_options,
    client: *mut *mut weldfs_client,
) -> c_int {
    attach(function.into(), || Ok(connector()?), options, client)
}

fn attach(
    doing: Doing,
    connector: impl FnOnce() -> Result<Arc<dyn Connector>, Fault>,
    options: *const weldfs_options,
    client: *mut *mut weldfs_client,
) -> c_int {
    call(doing, || {
        hand_out(client, || {
            let options = client_options(options)?;
            let (options, default) = options;
            let client = Client::with_options(connector()?, options)?.durability(default);
            Ok(weldfs_client { client })
        })
    })
}

fn client_options(from: *const weldfs_options) -> Result<(ClientOptions, Durability), Fault> {
    let given: weldfs_options = sized(from, size_of::<usize>())?;
    if given.reserved0 != 0 || given.reserved != [0; 6] || given.flags & !WELDFS_OPTION_UMASK != 0 {
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
    Ok((options, durability(given.durability)?))
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
    let connector = || Ok(Arc::new(SocketConnector::new(path(socket)?)) as Arc<dyn Connector>);
    attach(on("weldfs_attach", socket), connector, options, client)
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
                reserved0: [0; 6],
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
