//! Structures and constants that C programs see.

use libc::{c_char, c_void};
use weldfs::Metadata;
use weldfs_ciscops::attach::medium;
use weldfs_ciscops::{StatfsBody, WireTime};
use zerocopy::FromZeros;

/// Version of this header: what it adds to.
pub const WELDFS_VERSION_MAJOR: u32 = 0;
/// Version of this header.
pub const WELDFS_VERSION_MINOR: u32 = 1;
/// Version of this header.
pub const WELDFS_VERSION_PATCH: u32 = 0;
/// Version of this header as one number, for `#if`: major * 1000000 + minor * 1000 + patch. Compare weldfs_version().
pub const WELDFS_VERSION: u32 = 1000;

/// Durability: what the device was started with (or the client's, if its options name one), raised by O_SYNC and
/// O_DSYNC of the file.
pub const WELDFS_DEFAULT: u32 = 0;
/// Durability: visible to all when the call returns; persistent with the next fsync of the file, the next durable
/// change, or within 5 s.
pub const WELDFS_VOLATILE: u32 = 1;
/// Durability: persistent when the call returns.
pub const WELDFS_DURABLE: u32 = 2;

/// Where the compute part of a call (checksum, codec, cipher, arithmetic) runs, added to the durability in a `how`: in
/// the device, as one command. Without this or WELDFS_ON_HOST the device chooses; today that is the same.
pub const WELDFS_ON_DEVICE: u32 = 0x10;
/// On the caller's processor, before or after plain commands, with the same result: the bytes cross the link, and where
/// that takes more than one command (a read and a write) others may come in between, and a crash, too.
pub const WELDFS_ON_HOST: u32 = 0x20;
/// In an FPGA slot of the device, with the same result: checksums (not the plain CRC-32) and LZ4 frames; -EOPNOTSUPP
/// for what no kernel computes, -EIO when the slot is lost.
pub const WELDFS_IN_SLOT: u32 = 0x30;
/// Added to WELDFS_IN_SLOT: a core does what no slot can, or what a slot has lost.
pub const WELDFS_OR_CORE: u32 = 0x200;
/// Added to a `how`: after a failure or a crash all of the command is there or nothing. What calls that take a `how` do
/// unless they say otherwise.
pub const WELDFS_ALL_OR_NOTHING: u32 = 0x40;
/// Added to a `how`: each step of the command commits by itself. When one fails, those before it stay; what a crash
/// interrupts the next mount finishes.
pub const WELDFS_STEP_BY_STEP: u32 = 0x80;
/// Added to a `how`: the call returns only when everything that it read is persistent.
pub const WELDFS_AFTER_DURABLE: u32 = 0x100;

/// Hint, added to a `how`, or given to weldfs_set_hints: a quarter of the share that a command without this has among
/// those of its tenant that wait for the device. For what nothing waits for.
pub const WELDFS_PRIORITY_LOW: u32 = 0x400;
/// Hint: half of that share.
pub const WELDFS_PRIORITY_MEDIUM: u32 = 0x800;
/// Hint: twice that share. For what a user waits for.
pub const WELDFS_PRIORITY_HIGH: u32 = 0xc00;
/// Hint, added to a `how`, or given to weldfs_set_hints: what is written will be written over or removed soon. What has
/// another life is kept elsewhere on the medium.
pub const WELDFS_LIFE_SHORT: u32 = 0x1000;
/// Hint: later than what has a short life.
pub const WELDFS_LIFE_MEDIUM: u32 = 0x2000;
/// Hint: later than what has a medium one.
pub const WELDFS_LIFE_LONG: u32 = 0x3000;
/// Hint: later than what has a long one, perhaps never.
pub const WELDFS_LIFE_EXTREME: u32 = 0x4000;

/// An offset that means the end of the file: an append, atomic against every other writer.
pub const WELDFS_END: u64 = 0xffff_ffff_ffff_ffff;

/// weldfs_options.flags: `umask` counts. Without it, the process's own umask (as it is at attach) applies.
pub const WELDFS_OPTION_UMASK: u32 = 1;

/// weldfs_info.medium: volatile memory.
pub const WELDFS_MEDIUM_RAM: u8 = 0;
/// weldfs_info.medium: byte-addressable persistent memory.
pub const WELDFS_MEDIUM_PMEM: u8 = 1;
/// weldfs_info.medium: a block device or file.
pub const WELDFS_MEDIUM_BLOCK: u8 = 2;
/// weldfs_info.medium: a directory of the host, which promises neither the order nor the atomicity that a device does
/// (docs/HOSTDIR.md).
pub const WELDFS_MEDIUM_HOSTDIR: u8 = 3;

/// How to attach. Zero the whole, set `size` to its sizeof, then what is to differ from the default.
#[repr(C)]
#[derive(FromZeros)]
pub struct weldfs_options {
    /// sizeof(struct weldfs_options).
    pub size: usize,
    /// 128-bit identity of this client, for asking after outcomes; all zero: one is drawn at random.
    pub client_id: [u8; 16],
    /// Commands in flight per thread, a power of two up to 1024; 0: 64.
    pub depth: u32,
    /// Bytes of buffers per thread at first, a multiple of 4096; 0: 256 KiB. It grows as needed.
    pub pool_bytes: u32,
    /// WELDFS_DEFAULT, WELDFS_VOLATILE or WELDFS_DURABLE for every change whose call does not say.
    pub durability: u32,
    /// WELDFS_OPTION_ bits.
    pub flags: u32,
    /// Permission bits that new files do not get; counts with WELDFS_OPTION_UMASK.
    pub umask: u32,
    /// Zero.
    pub reserved0: u32,
    /// A tenant's token, 32 hexadecimal digits; NULL: that of the environment (WELDFS_TENANT_TOKEN), if any.
    pub token: *const c_char,
    /// Bytes of memory that a device may take which weldfs_attach_target starts in this process, at least 1 MiB; 0:
    /// 256 MiB.
    pub memory_bytes: u64,
    /// Zero.
    pub reserved: [u64; 5],
}

/// A point in time.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct weldfs_time {
    /// Seconds since 1970, may be negative.
    pub sec: i64,
    /// Nanoseconds, 0 to 999999999. In weldfs_utimens: UTIME_NOW and UTIME_OMIT, too.
    pub nsec: u32,
    /// Zero.
    pub reserved: u32,
}

impl From<WireTime> for weldfs_time {
    fn from(t: WireTime) -> weldfs_time {
        weldfs_time { sec: t.sec, nsec: t.nsec, reserved: 0 }
    }
}

/// What stat says. 256 bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct weldfs_stat {
    /// Inode number.
    pub ino: u64,
    /// Generation of the inode number.
    pub generation: u64,
    /// Identifies the file system.
    pub dev: u64,
    /// Of a device node: its device number.
    pub rdev: u64,
    /// Bytes.
    pub bytes: u64,
    /// Units of 512 bytes allocated.
    pub blocks: u64,
    /// Type and permission bits, as st_mode.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Preferred size of reads and writes, bytes.
    pub blksize: u32,
    /// Zero.
    pub reserved0: u32,
    /// Last access.
    pub atime: weldfs_time,
    /// Last change of the content.
    pub mtime: weldfs_time,
    /// Last change of the attributes.
    pub ctime: weldfs_time,
    /// Birth.
    pub btime: weldfs_time,
    /// Goes up with every change; for caches.
    pub version: u64,
    /// Zero.
    pub reserved: [u64; 14],
}

impl From<Metadata> for weldfs_stat {
    fn from(m: Metadata) -> weldfs_stat {
        let b = m.body();
        weldfs_stat {
            ino: b.ino,
            generation: b.generation,
            dev: b.dev,
            rdev: b.rdev,
            bytes: b.size,
            blocks: b.blocks512,
            mode: b.mode,
            nlink: b.nlink,
            uid: b.uid,
            gid: b.gid,
            blksize: b.blksize,
            atime: b.atime.into(),
            mtime: b.mtime.into(),
            ctime: b.ctime.into(),
            btime: b.btime.into(),
            version: b.version,
            ..weldfs_stat::default()
        }
    }
}

/// Space and identity of the file system. 128 bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct weldfs_space {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for unprivileged users.
    pub blocks_avail: u64,
    /// Inodes in use plus those still possible.
    pub files: u64,
    /// Inodes still possible.
    pub files_free: u64,
    /// Identifies the file system.
    pub fsid: u64,
    /// Longest name, bytes.
    pub name_max: u32,
    /// Zero.
    pub reserved0: u32,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Zero.
    pub reserved: [u64; 6],
}

impl From<StatfsBody> for weldfs_space {
    fn from(b: StatfsBody) -> weldfs_space {
        weldfs_space {
            block_bytes: b.bsize,
            blocks: b.blocks,
            blocks_free: b.bfree,
            blocks_avail: b.bavail,
            files: b.files,
            files_free: b.ffree,
            fsid: b.fsid,
            name_max: b.name_max,
            reserved0: 0,
            uuid: b.uuid,
            reserved: [0; 6],
        }
    }
}

/// What the device said at attach. 256 bytes.
#[repr(C)]
pub struct weldfs_info {
    /// The session's number in the device.
    pub session: u64,
    /// The file system's UUID.
    pub uuid: [u8; 16],
    /// Its label, NUL-terminated.
    pub label: [c_char; 64],
    /// The emulated hardware's profile, NUL-terminated.
    pub profile: [c_char; 64],
    /// Bytes of the largest payload of one command, and of the largest atomic write.
    pub payload_max: u32,
    /// What WELDFS_DEFAULT means on this device: WELDFS_VOLATILE or WELDFS_DURABLE.
    pub durability: u32,
    /// 1: what is durable survives a power cut, too. 0: the end of the device's process only.
    pub power_safe: u8,
    /// 1: every change fails with EROFS.
    pub read_only: u8,
    /// 1: the device is in this process (weldfs_attach_target). 0: it is another process.
    pub embedded: u8,
    /// What the bytes persist on: WELDFS_MEDIUM_RAM and kin.
    pub medium: u8,
    /// Zero.
    pub reserved0: [u8; 4],
    /// Zero.
    pub reserved: [u64; 11],
}

/// One name in a directory.
#[repr(C)]
pub struct weldfs_entry {
    /// Inode number.
    pub ino: u64,
    /// Where weldfs_seekdir may go to continue after this entry.
    pub next: u64,
    /// Type: DT_REG and kin.
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 7],
    /// The name, NUL-terminated.
    pub name: [c_char; 256],
}

/// What a fused write did.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct weldfs_written {
    /// Where the first byte went in the file.
    pub offset: u64,
    /// 1: the call made the file.
    pub created: u8,
    /// Zero.
    pub reserved: [u8; 7],
}

/// A command that has completed.
#[repr(C)]
pub struct weldfs_completion {
    /// sizeof(struct weldfs_completion), as this library knows it.
    pub size: usize,
    /// What the job said.
    pub data: *mut c_void,
    /// The command's ticket.
    pub ticket: u64,
    /// Negative: -errno, and of the rest only `value` may mean something. Else what the call of the same name without
    /// "submit" returns (bytes, mostly).
    pub result: i64,
    /// The second result: see each function. Where a write began, a checksum.
    pub value: u64,
    /// 1: the command made the file.
    pub created: u8,
    /// Zero.
    pub reserved0: [u8; 7],
    /// Zero.
    pub reserved: [u64; 3],
}

/// Called when a command has completed, by whichever thread reaps. It may submit, forget and free; it must return (no
/// longjmp, no C++ exception out of it). `done` is valid during the call.
pub type weldfs_callback = Option<unsafe extern "C" fn(data: *mut c_void, done: *const weldfs_completion)>;

/// weldfs_job.flags: more is to come. The device need not see the command before the next submission without this flag,
/// weldfs_queue_flush or weldfs_queue_reap.
pub const WELDFS_MORE: u32 = 1;

/// How a command is to be submitted and its end reported. Zero the whole, set `size`. NULL in its place: not reported.
#[repr(C)]
#[derive(FromZeros)]
pub struct weldfs_job {
    /// sizeof(struct weldfs_job).
    pub size: usize,
    /// WELDFS_MORE or 0, and hints, which then count in the place of the file's.
    pub flags: u32,
    /// WELDFS_DEFAULT, WELDFS_VOLATILE or WELDFS_DURABLE.
    pub durability: u32,
    /// Called when it has completed; NULL: weldfs_queue_reap returns it.
    pub done: weldfs_callback,
    /// Given to `done`, and in the completion.
    pub data: *mut c_void,
    /// Where to put the command's ticket before it is sent, or NULL.
    pub ticket: *mut u64,
    /// Zero.
    pub reserved: [u64; 3],
}

/// weldfs_queue_options.flags: a thread of the library reaps, and runs the callbacks.
pub const WELDFS_QUEUE_REAPER: u32 = 1;

/// How large a queue is, and who reaps it. Zero the whole, set `size`.
#[repr(C)]
#[derive(FromZeros)]
pub struct weldfs_queue_options {
    /// sizeof(struct weldfs_queue_options).
    pub size: usize,
    /// Commands in flight; 0: 64. Rounded up to a power of two, clipped to the device's limit (1024).
    pub depth: u32,
    /// Bytes of its buffers; 0: 1 MiB. Rounded up to pages, clipped to the device's limit (64 MiB).
    pub pool_bytes: u32,
    /// WELDFS_QUEUE_ bits.
    pub flags: u32,
    /// Zero.
    pub reserved0: u32,
    /// Zero.
    pub reserved: [u64; 4],
}

const _: () = assert!(size_of::<weldfs_stat>() == 256 && size_of::<weldfs_space>() == 128);
const _: () = assert!(size_of::<weldfs_info>() == 256 && size_of::<weldfs_options>() == 104);
const _: () = assert!(size_of::<weldfs_job>() == 64 && size_of::<weldfs_completion>() == 72);
const _: () = assert!(WELDFS_MEDIUM_RAM == medium::RAM && WELDFS_MEDIUM_PMEM == medium::PMEM);
const _: () = assert!(WELDFS_MEDIUM_BLOCK == medium::BLOCK && WELDFS_MEDIUM_HOSTDIR == medium::HOSTDIR);

/// weldfs_virt_spec.flags: what is written to the virtual file goes through the kernel into its one range. Without it,
/// reading gives what the kernel makes of the ranges.
pub const WELDFS_VIRT_WRITE: u32 = 1;
/// weldfs_virt_spec.flags, with WELDFS_VIRT_WRITE: the real file ends where what was written ended.
pub const WELDFS_VIRT_TRUNCATE: u32 = 2;
/// weldfs_virt_range.length: to the end that the file has when the virtual file is opened.
pub const WELDFS_VIRT_TO_END: u64 = 0xffff_ffff_ffff_ffff;
/// Bytes of room in which every spec fits, for weldfs_virt_describe.
pub const WELDFS_VIRT_ROOM: usize = 8192;

/// A part of a real file. 40 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct weldfs_virt_range {
    /// The real file: from the device's root, and beginning with `/`. It need not exist when the virtual file is made.
    pub path: *const c_char,
    /// First byte.
    pub offset: u64,
    /// Bytes, or WELDFS_VIRT_TO_END; not 0.
    pub length: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

/// What a virtual file streams. 80 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct weldfs_virt_spec {
    /// The kernel: 1 to 31 of a-z, 0-9 and `-`; then, if it matters, `:` and its back-end (crc32c:rtl).
    pub kernel: *const c_char,
    /// Its parameters.
    pub params: *const u32,
    /// How many.
    pub param_count: usize,
    /// Parts of real files, in the order in which they are streamed.
    pub ranges: *const weldfs_virt_range,
    /// How many: 1 to 64; 1 with WELDFS_VIRT_WRITE.
    pub range_count: usize,
    /// WELDFS_VIRT_ bits.
    pub flags: u32,
    /// Zero.
    pub reserved0: u32,
    /// Zero.
    pub reserved: [u64; 4],
}
