//! Attach protocol: one message per packet of a SOCK_SEQPACKET socket; a 16-byte header, then a fixed body, then bytes.

use crate::Errno;
use crate::limits::ATTACH_MESSAGE_MAX;
use crate::ring::QueueLayout;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Magic of every message: "WELD".
pub const ATTACH_MAGIC: u32 = u32::from_le_bytes(*b"WELD");
/// The protocol version this code speaks.
pub const PROTOCOL_VERSION: u16 = 1;

/// Feature bits of the protocol. None is defined yet beyond the base, so all words are zero.
pub mod feature {
    /// Features this code knows.
    pub const KNOWN: u64 = 0;
}

/// Message kinds. A reply has the request's kind plus `REPLY`.
pub mod kind {
    /// Attach.
    pub const HELLO: u16 = 1;
    /// Make a queue pair.
    pub const NEW_QUEUE: u16 = 2;
    /// Make placeholder descriptors.
    pub const PLACEHOLDERS: u16 = 3;
    /// Turn a placeholder descriptor into a handle.
    pub const CLAIM: u16 = 4;
    /// Counters as JSON.
    pub const STATS: u16 = 5;
    /// Change a setting, or list all; for root and the device's owner.
    pub const TUNE: u16 = 6;
    /// End the session.
    pub const DETACH: u16 = 7;
    /// Become a member of a tenant; before Hello.
    pub const JOIN: u16 = 8;
    /// Start or end the recording of slices; only for root and for who runs the device.
    pub const TRACE: u16 = 9;
    /// The tenants as JSON.
    pub const TENANTS: u16 = 10;
    /// A tenant's token; only for root and for who runs the device.
    pub const TOKEN: u16 = 11;
    /// End the device cleanly; only for root, the user that runs it and the image's owner. Before Hello, too.
    pub const STOP: u16 = 12;
    /// The card's kernels as JSON; or, only for root and the device's owner: load, unload, activate, deactivate one, or
    /// read a debug port.
    pub const KERNELS: u16 = 13;
    /// Make placeholder descriptors of files that are open.
    pub const SHARE: u16 = 14;
    /// Set in every reply.
    pub const REPLY: u16 = 0x8000;
}

/// What a report of counters is to hold beside them (bits of the number that may follow the head of Stats).
pub mod detail {
    /// The inode queues that hold tickets.
    pub const INODE_QUEUES: u32 = 1;
    /// All bits.
    pub const KNOWN: u32 = INODE_QUEUES;
}

/// Head of every message, 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// `ATTACH_MAGIC`.
    pub magic: u32,
    /// Version the sender speaks (in Hello: its highest).
    pub version: u16,
    /// `kind`.
    pub kind: u16,
    /// Bytes after the header.
    pub length: u32,
    /// In replies: 0 or a positive errno (then no body follows). In requests: 0.
    pub errno: i32,
}

/// Opens a session, 48 bytes, followed by `prefix_len` bytes: where the client shows the files (for reports only).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hello {
    /// Lowest version the client can speak.
    pub version_min: u16,
    /// Highest version the client can speak.
    pub version_max: u16,
    /// Bytes of the prefix that follows.
    pub prefix_len: u32,
    /// Features without which the client cannot work; an unknown bit here is EOPNOTSUPP.
    pub features_required: u64,
    /// Features the client would like; unknown bits are ignored.
    pub features_wanted: u64,
    /// The client's own 128-bit id, stable over re-attach.
    pub client_id: [u8; 16],
    /// Zero.
    pub reserved: u64,
}

/// Bounds in force for the session, 48 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Limits {
    /// Entries of a queue.
    pub queue_depth_max: u32,
    /// Bytes of a pool.
    pub pool_bytes_max: u32,
    /// Queue pairs of the session.
    pub queues_max: u32,
    /// Handles of the session.
    pub handles_max: u32,
    /// Bytes of one atomic write, and of one command's payload.
    pub atomic_write_max: u32,
    /// Bytes up to which payload is inline in the log record (for tuning only).
    pub inline_max: u32,
    /// Bytes of a ReadModifyWrite field.
    pub modify_max: u32,
    /// Placeholders per request.
    pub placeholders_max: u32,
    /// Zero.
    pub reserved: [u32; 4],
}

impl Default for Limits {
    fn default() -> Self {
        use crate::limits as l;
        Limits {
            queue_depth_max: l::QUEUE_DEPTH_MAX,
            pool_bytes_max: l::POOL_BYTES_MAX,
            queues_max: l::QUEUES_MAX,
            handles_max: l::HANDLES_MAX,
            atomic_write_max: l::ATOMIC_WRITE_MAX,
            inline_max: 0,
            modify_max: l::MODIFY_MAX,
            placeholders_max: l::PLACEHOLDERS_MAX as u32,
            reserved: [0; 4],
        }
    }
}

/// Medium kinds as reported in `Welcome`.
pub mod medium {
    /// Volatile memory.
    pub const RAM: u8 = 0;
    /// Byte-addressable persistent memory.
    pub const PMEM: u8 = 1;
    /// Block device or file.
    pub const BLOCK: u8 = 2;
    /// A directory of the host.
    pub const HOSTDIR: u8 = 3;
}

/// Answer to Hello, 256 bytes; one descriptor is attached: the session's doorbell (eventfd).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Welcome {
    /// Names the session within this run of the device.
    pub session: u64,
    /// Features in force: required and wanted ones that the device has.
    pub features: u64,
    /// 128-bit credential id minted for this attach (names, grants nothing).
    pub credential: [u8; 16],
    /// UUID of the file system.
    pub uuid: [u8; 16],
    /// Bounds in force.
    pub limits: Limits,
    /// Label of the file system, zero-padded.
    pub label: [u8; 64],
    /// Name of the device profile, zero-padded.
    pub profile: [u8; 32],
    /// Version in force.
    pub version: u16,
    /// `medium`.
    pub medium: u8,
    /// 1 when the medium keeps what is durable over a power cut.
    pub power_safe: u8,
    /// Default durability: 1 volatile, 2 durable.
    pub durability: u8,
    /// 1 when the file system is read-only.
    pub read_only: u8,
    /// Zero.
    pub reserved: [u8; 58],
}

impl Default for Welcome {
    fn default() -> Self {
        use zerocopy::FromZeros;
        let mut w = Welcome::new_zeroed();
        w.limits = Limits::default();
        w.version = PROTOCOL_VERSION;
        w
    }
}

/// Asks for a queue pair, 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NewQueue {
    /// Entries; a power of two.
    pub depth: u32,
    /// Bytes of pool; a multiple of 4096.
    pub pool_bytes: u32,
}

/// Answer to NewQueue, 40 bytes; one descriptor is attached: the sealed memfd of the region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QueueReply {
    /// Index of the queue in the session.
    pub index: u32,
    /// Zero.
    pub reserved: u32,
    /// Where things are.
    pub layout: QueueLayout,
}

/// Asks for placeholder descriptors, 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Placeholders {
    /// How many, 1..=16.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
}

/// Answer to Placeholders, 72 bytes; `count` descriptors are attached, in the order of `ids`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PlaceholdersReply {
    /// How many.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
    /// Non-zero ids, to be named in Open.
    pub ids: [u32; 16],
}

/// Asks for placeholder descriptors of files that are open, 136 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Share {
    /// How many, 1..=16.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
    /// Handles in wire form; zero behind the last one.
    pub handles: [u64; 16],
}

/// Body of a Claim, 8 bytes; none where the description is to be shared. The request carries the placeholder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Claim {
    /// 1: an open file description of its own.
    pub anew: u32,
    /// Zero.
    pub reserved: u32,
}

/// Answer to Claim, 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Claimed {
    /// Handle in wire form.
    pub handle: u64,
    /// `OpenFlags` of the description.
    pub flags: u32,
    /// st_mode of the file.
    pub mode: u32,
    /// The placeholder's id.
    pub placeholder: u32,
    /// Zero.
    pub reserved: u32,
}

/// Starts or ends a recording, 8 bytes. Its end is answered by an empty body; a memfd with the recording (`trace`)
/// is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Trace {
    /// 1: start; 0: end.
    pub start: u32,
    /// Slices to record at most (start only).
    pub limit: u32,
}

/// A secret of 128 bits that the device minted: whoever shows it belongs to the tenant it was minted for. Its `Debug`
/// does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token(pub [u8; 16]);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// 32 hexadecimal digits.
impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl std::str::FromStr for Token {
    type Err = Errno;

    /// EINVAL for anything but 32 hexadecimal digits.
    fn from_str(text: &str) -> Result<Token, Errno> {
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Errno::INVAL);
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| Errno::INVAL)?;
        Ok(Token(number.to_be_bytes()))
    }
}

/// A request, believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Open a session.
    Hello {
        /// Fixed part (`prefix_len` is set by `encode`).
        hello: Hello,
        /// The prefix.
        prefix: Vec<u8>,
    },
    /// Make a queue pair.
    NewQueue(NewQueue),
    /// Make placeholders.
    Placeholders {
        /// How many.
        count: u32,
    },
    /// Make placeholders of files that are open.
    Share(Share),
    /// Turn the descriptor that is attached into a handle.
    Claim {
        /// On an open file description of its own, and not on the one that the descriptor stands for.
        anew: bool,
    },
    /// Counters.
    Stats {
        /// `detail` bits; 0: counters only (then the message has no body).
        detail: u32,
    },
    /// Starts a recording of at most so many slices, or ends it (`None`).
    Trace {
        /// The limit.
        start: Option<u32>,
    },
    /// `key=value` to set; empty to list all settings.
    Tune(Vec<u8>),
    /// What to do with the kernels of the card, `verb argument`; empty to list them.
    Kernels(Vec<u8>),
    /// Show a token.
    Join(Token),
    /// List tenants.
    Tenants,
    /// The token of the tenant of this name.
    Token(Vec<u8>),
    /// End the device; answered when its image is closed.
    Stop,
    /// End.
    Detach,
}

/// A successful reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Attached.
    Welcome(Box<Welcome>),
    /// A queue pair.
    Queue(QueueReply),
    /// Placeholders.
    Placeholders(PlaceholdersReply),
    /// A handle.
    Claimed(Claimed),
    /// Text (JSON: Stats, Tenants, Tune without a key, Kernels; nothing: Tune with one). Empty also when it was too
    /// long for a message: then it is attached as a memfd.
    Text(Vec<u8>),
    /// A token.
    Token(Token),
    /// Done (Join, Trace, Stop, Detach).
    Done,
}

fn message(kind: u16, errno: i32, body: &[u8], tail: &[u8]) -> Vec<u8> {
    let length = (body.len() + tail.len()) as u32;
    let header = Header { magic: ATTACH_MAGIC, version: PROTOCOL_VERSION, kind, length, errno };
    [header.as_bytes(), body, tail].concat()
}

fn open(bytes: &[u8]) -> Result<(Header, &[u8]), Errno> {
    let (header, body) = Header::read_from_prefix(bytes).map_err(|_| Errno::PROTO)?;
    let sound = header.magic == ATTACH_MAGIC && header.length as usize == body.len();
    if !sound || bytes.len() > ATTACH_MESSAGE_MAX { Err(Errno::PROTO) } else { Ok((header, body)) }
}

fn exact<T: FromBytes>(body: &[u8]) -> Result<T, Errno> {
    T::read_from_bytes(body).map_err(|_| Errno::PROTO)
}

impl Request {
    /// The message's kind.
    pub fn kind(&self) -> u16 {
        match self {
            Request::Hello { .. } => kind::HELLO,
            Request::NewQueue(_) => kind::NEW_QUEUE,
            Request::Placeholders { .. } => kind::PLACEHOLDERS,
            Request::Claim { .. } => kind::CLAIM,
            Request::Share(_) => kind::SHARE,
            Request::Stats { .. } => kind::STATS,
            Request::Trace { .. } => kind::TRACE,
            Request::Tune(_) => kind::TUNE,
            Request::Detach => kind::DETACH,
            Request::Join(_) => kind::JOIN,
            Request::Tenants => kind::TENANTS,
            Request::Token(_) => kind::TOKEN,
            Request::Stop => kind::STOP,
            Request::Kernels(_) => kind::KERNELS,
        }
    }

    /// The packet to send.
    pub fn encode(&self) -> Vec<u8> {
        let k = self.kind();
        match self {
            Request::Hello { hello, prefix } => {
                let hello = Hello { prefix_len: prefix.len() as u32, ..*hello };
                message(k, 0, hello.as_bytes(), prefix)
            }
            Request::NewQueue(b) => message(k, 0, b.as_bytes(), &[]),
            Request::Share(b) => message(k, 0, b.as_bytes(), &[]),
            Request::Placeholders { count } => {
                message(k, 0, Placeholders { count: *count, reserved: 0 }.as_bytes(), &[])
            }
            Request::Tune(text) | Request::Token(text) | Request::Kernels(text) => message(k, 0, text, &[]),
            Request::Join(token) => message(k, 0, &token.0, &[]),
            Request::Stats { detail } if *detail != 0 => message(k, 0, detail.as_bytes(), &[]),
            Request::Trace { start } => {
                message(k, 0, Trace { start: start.is_some().into(), limit: start.unwrap_or(0) }.as_bytes(), &[])
            }
            Request::Claim { anew: true } => message(k, 0, Claim { anew: 1, reserved: 0 }.as_bytes(), &[]),
            Request::Claim { anew: false }
            | Request::Stats { .. }
            | Request::Tenants
            | Request::Stop
            | Request::Detach => message(k, 0, &[], &[]),
        }
    }

    /// From a packet. EPROTO: not this protocol, close the connection. Any other errno: answer with it.
    pub fn decode(bytes: &[u8]) -> Result<Request, Errno> {
        let (header, body) = open(bytes)?;
        if header.errno != 0 {
            return Err(Errno::PROTO);
        }
        match header.kind {
            kind::HELLO => decode_hello(body),
            kind::NEW_QUEUE => Ok(Request::NewQueue(exact(body)?)),
            kind::PLACEHOLDERS => {
                let b: Placeholders = exact(body)?;
                if b.reserved != 0 || b.count == 0 || b.count as usize > crate::limits::PLACEHOLDERS_MAX {
                    return Err(Errno::INVAL);
                }
                Ok(Request::Placeholders { count: b.count })
            }
            kind::SHARE => {
                let b: Share = exact(body)?;
                let count = b.count as usize;
                let known = b.reserved == 0 && (1..=b.handles.len()).contains(&count);
                if !known || b.handles[count..].iter().any(|handle| *handle != 0) {
                    return Err(Errno::INVAL);
                }
                Ok(Request::Share(b))
            }
            kind::CLAIM if body.is_empty() => Ok(Request::Claim { anew: false }),
            kind::CLAIM => match exact(body)? {
                Claim { anew: 1, reserved: 0 } => Ok(Request::Claim { anew: true }),
                _ => Err(Errno::INVAL),
            },
            kind::STATS if body.is_empty() => Ok(Request::Stats { detail: 0 }),
            kind::STATS => match exact(body)? {
                detail if detail & !detail::KNOWN == 0 => Ok(Request::Stats { detail }),
                _ => Err(Errno::INVAL),
            },
            kind::TRACE => match exact(body)? {
                Trace { start: 0, limit: 0 } => Ok(Request::Trace { start: None }),
                Trace { start: 1, limit } => Ok(Request::Trace { start: Some(limit) }),
                _ => Err(Errno::INVAL),
            },
            kind::TUNE => Ok(Request::Tune(body.to_vec())),
            kind::DETACH if body.is_empty() => Ok(Request::Detach),
            kind::JOIN => Ok(Request::Join(Token(exact(body)?))),
            kind::TENANTS if body.is_empty() => Ok(Request::Tenants),
            kind::TOKEN => Ok(Request::Token(body.to_vec())),
            kind::KERNELS => Ok(Request::Kernels(body.to_vec())),
            kind::STOP if body.is_empty() => Ok(Request::Stop),
            kind::DETACH | kind::TENANTS | kind::STOP => Err(Errno::PROTO),
            _ => Err(Errno::NOSYS),
        }
    }
}

fn decode_hello(body: &[u8]) -> Result<Request, Errno> {
    let (hello, prefix) = Hello::read_from_prefix(body).map_err(|_| Errno::PROTO)?;
    if hello.prefix_len as usize != prefix.len() {
        return Err(Errno::PROTO);
    }
    if hello.reserved != 0 || prefix.len() >= crate::limits::PATH_MAX || prefix.contains(&0) {
        return Err(Errno::INVAL);
    }
    Ok(Request::Hello { hello, prefix: prefix.to_vec() })
}

/// The version and features in force, or why there can be no session: no common version is EPROTO... of a newer
/// version both sides can speak, the highest is taken; an unknown *required* feature is EOPNOTSUPP.
pub fn negotiate(hello: &Hello, known: u64) -> Result<(u16, u64), Errno> {
    if !(hello.version_min..=hello.version_max).contains(&PROTOCOL_VERSION) {
        return Err(Errno::PROTO);
    }
    if hello.features_required & !known != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    Ok((PROTOCOL_VERSION, (hello.features_required | hello.features_wanted) & known))
}

impl Reply {
    /// The packet to send in answer to a request of kind `request`.
    pub fn encode(&self, request: u16) -> Vec<u8> {
        let k = request | kind::REPLY;
        match self {
            Reply::Welcome(b) => message(k, 0, b.as_bytes(), &[]),
            Reply::Queue(b) => message(k, 0, b.as_bytes(), &[]),
            Reply::Placeholders(b) => message(k, 0, b.as_bytes(), &[]),
            Reply::Claimed(b) => message(k, 0, b.as_bytes(), &[]),
            Reply::Text(text) => message(k, 0, text, &[]),
            Reply::Token(token) => message(k, 0, &token.0, &[]),
            Reply::Done => message(k, 0, &[], &[]),
        }
    }

    /// The packet that reports a failure.
    pub fn encode_error(request: u16, errno: Errno) -> Vec<u8> {
        message(request | kind::REPLY, errno.0, &[], &[])
    }

    /// From a packet that answers a request of kind `request`. The device's errno, or EPROTO when it makes no sense.
    pub fn decode(bytes: &[u8], request: u16) -> Result<Reply, Errno> {
        let (header, body) = open(bytes)?;
        if header.kind != request | kind::REPLY {
            return Err(Errno::PROTO);
        }
        if header.errno != 0 {
            return Err(Errno(header.errno));
        }
        Ok(match request {
            kind::HELLO => Reply::Welcome(Box::new(exact(body)?)),
            kind::NEW_QUEUE => {
                let b: QueueReply = exact(body)?;
                b.layout.validate()?;
                Reply::Queue(b)
            }
            kind::PLACEHOLDERS | kind::SHARE => Reply::Placeholders(exact(body)?),
            kind::CLAIM => Reply::Claimed(exact(body)?),
            kind::STATS | kind::TENANTS | kind::TUNE | kind::KERNELS => Reply::Text(body.to_vec()),
            kind::TOKEN => Reply::Token(Token(exact(body)?)),
            _ if body.is_empty() => Reply::Done,
            _ => return Err(Errno::PROTO),
        })
    }
}
