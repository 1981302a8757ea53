//! Every bound of the contract, with its unit. Attach tells the client the values in force (`attach::Limits`).

/// Bytes: largest atomic write, and the largest payload of one command.
pub const ATOMIC_WRITE_MAX: u32 = 1 << 20;
/// Bytes of one path component.
pub const NAME_MAX: usize = 255;
/// Bytes of a path, without a terminating NUL (so 4095, as POSIX's PATH_MAX counts the NUL).
pub const PATH_MAX: usize = 4096;
/// Bytes of a symbolic link's target.
pub const SYMLINK_MAX: usize = 4095;
/// Bytes of an extended attribute's name.
pub const XATTR_NAME_MAX: usize = 255;
/// Bytes of an extended attribute's value.
pub const XATTR_VALUE_MAX: usize = 4096;
/// Symbolic links followed in one path walk.
pub const SYMLINK_FOLLOW_MAX: usize = 40;
/// Components that all paths of one command may have, those of the links on their ways included.
pub const PATH_COMPONENTS_MAX: u32 = 4096;
/// Micro-ops of one command.
pub const MICRO_OPS_MAX: usize = 16;
/// Entries of one batch.
pub const BATCH_MAX: usize = 256;
/// Transactions that a session has begun and not ended.
pub const TXNS_MAX: usize = 64;
/// Writes of one of them.
pub const TXN_WRITES_MAX: usize = 256;
/// Bytes of one of them.
pub const TXN_BYTES_MAX: u64 = 4 << 20;
/// Inodes an atomic command may hold.
pub const INODE_SET_MAX: usize = 16;
/// Entries of one queue; a power of two.
pub const QUEUE_DEPTH_MAX: u32 = 1024;
/// Entries of the smallest queue.
pub const QUEUE_DEPTH_MIN: u32 = 2;
/// Queue pairs of one session.
pub const QUEUES_MAX: u32 = 64;
/// Bytes of one queue pair's buffer pool.
pub const POOL_BYTES_MAX: u32 = 64 << 20;
/// Bytes of the smallest pool: one page.
pub const POOL_BYTES_MIN: u32 = 4096;
/// Handles of one session.
pub const HANDLES_MAX: u32 = 65_536;
/// Bytes of the field a ReadModifyWrite may change.
pub const MODIFY_MAX: u32 = 64 << 10;
/// Bytes of a file that a checksum_range sees as of one moment.
pub const SNAPSHOT_MAX: u64 = 8 << 20;
/// Bytes of a program's body.
pub const PROGRAM_BODY_MAX: u32 = 16 << 10;
/// File slots of a program.
pub const PROGRAM_FILES: usize = 8;
/// Buffers of a program.
pub const PROGRAM_BUFFERS: usize = 8;
/// Registers of a program.
pub const PROGRAM_REGISTERS: usize = 8;
/// Pool ranges of a program.
pub const PROGRAM_RANGES_MAX: usize = 16;
/// Strings of a program: paths, targets and literals.
pub const PROGRAM_STRINGS_MAX: usize = 32;
/// Bytes of private memory that a program may hold.
pub const PROGRAM_SCRATCH_MAX: u64 = 4 << 20;
/// Bytes that one micro-op of a program may read to nowhere, for their checksum.
pub const PROGRAM_READ_MAX: u64 = 8 << 20;
/// Bytes of the head of a record that a program scans over.
pub const RECORD_HEAD_MAX: usize = 64;
/// Records that one scan walks over.
pub const SCAN_RECORDS_MAX: u64 = 65_536;
/// Bytes of a kernel's name, with that of a back-end.
pub const KERNEL_NAME_MAX: usize = 40;
/// Bytes that a program may write into files, all its micro-ops together.
pub const PROGRAM_WRITE_MAX: u64 = 16 << 20;
/// Bytes that the codecs and ciphers of a program take and make, where they run before it: on a directory of the host.
pub const PROGRAM_FORESEEN_MAX: u64 = 32 << 20;
/// Keys that a session may keep.
pub const KEYS_MAX: usize = 64;
/// Bytes of the spec of a virtual file.
pub const VIRT_SPEC_MAX: usize = 4096;
/// Bytes of a kernel's name.
pub(crate) const VIRT_KERNEL_MAX: usize = 31;
/// Bytes of the name of a kernel's back-end.
pub(crate) const VIRT_BACKEND_MAX: usize = 15;
/// Parameters (32-bit words) of a virtual file's kernel.
pub const VIRT_PARAMS_MAX: usize = 4096;
/// Ranges of real files behind one virtual file.
pub const VIRT_RANGES_MAX: usize = 64;
/// Bytes last given of a virtual file that can be read again.
pub const VIRT_AGAIN_MAX: usize = 128 << 10;
/// Largest file offset plus one: offsets and sizes fit i64.
pub const FILE_OFFSET_MAX: u64 = i64::MAX as u64;
/// Placeholder descriptors handed out by one request.
pub const PLACEHOLDERS_MAX: usize = 16;
/// Bytes of one attach message.
pub const ATTACH_MESSAGE_MAX: usize = 64 << 10;
/// Blocks of 4096 bytes that a client may have posted under one write lease and not found over: for each write its
/// bytes in whole blocks, and one block more.
pub const LEASE_BLOCKS: u32 = 128;
/// Bytes of the longest write that is posted; a longer one is run as one that is waited for.
pub const POSTED_MAX: u32 = 64 << 10;
/// Write leases of one device at a time.
pub const LEASES_MAX: usize = 1024;
/// Watches of one queue pair at a time: what an open brought along, and is known to be as it was.
pub const WATCHES: u32 = 32;
/// Nanoseconds for which a client relies on a watch after it asked for it. A device that opens an image which was not
/// closed cleanly waits as long before it serves: what a client knows by a device that died is of no use any more then.
pub const WATCH_NS: u64 = 20_000_000;
/// Bytes of the longest answer of an open: attributes (a StatBody), and the content of a file that fits behind them.
pub const LOOK_MAX: u32 = 16 << 10;
/// Nanoseconds that a device sleeps at most when it has told its clients that it naps.
pub const NAP_NS: u64 = 1_000_000;
/// Milliseconds a client sleeps before it looks whether the device still lives.
pub const CLIENT_SLEEP_MS_MAX: u64 = 500;

const _: () = assert!(QUEUE_DEPTH_MAX.is_power_of_two() && QUEUE_DEPTH_MIN.is_power_of_two());
const _: () = assert!(ATOMIC_WRITE_MAX <= POOL_BYTES_MAX);
const _: () = assert!(MODIFY_MAX < 1 << 24, "the length of a modify rides in 24 bits of aux");
const _: () = assert!(PROGRAM_BODY_MAX <= u16::MAX as u32, "strings are named by 16 bits");
const _: () = assert!(PROGRAM_REGISTERS <= 16, "a folded checksum names its register in four bits");
const _: () = assert!(PROGRAM_FILES <= INODE_SET_MAX);
