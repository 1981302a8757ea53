/*
 * WeldFS from C: files that live inside the storage device, and fused operations on them.
 *
 * Made by cbindgen of userlib/capi; do not edit. docs/API.md is the introduction.
 *
 * Errors. A function that can fail returns a negative errno (-ENOENT) on failure, else 0 or a count; `errno` itself is
 * neither set nor kept. weldfs_strerror says it in words; weldfs_last_error says more about the thread's last failure.
 * Besides those of the POSIX call of the same name:
 *   -EIO      the device died while the call was in it (its outcome is unknown), or the medium failed
 *   -ENODEV   the device was gone already (noticed within a second, also by who sleeps); see weldfs_reconnect
 *   -EBADF    also: a file opened before a fork (in the child) or before a reconnect
 *   -E2BIG    a payload above weldfs_info.payload_max in a call that is one command; a structure from a newer header
 *   -EINVAL   also: NULL where it must not be, an unknown flag, a reserved field that is set
 *   -ENOTRECOVERABLE  a bug in the library, reported on stderr; no panic or exception ever leaves it
 *
 * Ownership. Objects (client, file, dir, vfile, virt_walk, queue, buf, batch, txn, key, program) are made through a
 * pointer to a pointer, which is NULL on failure, and given back once, to the function named; that function accepts
 * NULL. A client may be detached before its files are closed. Memory passed to a function is used during the call only, unless it says
 * otherwise; pointers must be valid for the lengths given. Strings end in NUL. Structures that begin with `size` must
 * be zeroed first and have `size` set to their sizeof: programs and libraries of different versions then understand
 * each other. Reserved fields are zero.
 *
 * Units. Sizes and offsets are bytes; times are nanoseconds unless the name says _ms.
 *
 * Durability. See WELDFS_DEFAULT, WELDFS_VOLATILE and WELDFS_DURABLE; calls without such an argument have the client's
 * (weldfs_options.durability). fsync and its kin make persistent what was done before, whatever it asked for.
 *
 * How. The calls of the catalogue and weldfs_program_run take a `how`: a durability, with WELDFS_ON_DEVICE or
 * WELDFS_ON_HOST, WELDFS_ALL_OR_NOTHING or WELDFS_STEP_BY_STEP, WELDFS_AFTER_DURABLE and hints added as wanted; 0 is the
 * client's durability, on the device, all or nothing.
 *
 * Threads. Any object may be used by any number of threads at the same time, except while it is given back; a batch, a
 * program and a virt_walk by one at a time. A thread keeps a queue pair of its own per client; calls take no lock then.
 * Calls are not cancellation points.
 *
 * Fork. The child's first call attaches anew. Files, directories, queues and buffers of the parent (and whatever else
 * was made from a client before the fork) give -EBADF there, keys -ENOKEY; giving them back is allowed. That holds
 * whatever other threads of the parent were doing at the fork. An embedded device does not survive into a child:
 * -ENODEV.
 *
 * Signals. A signal that interrupts a call does no harm: the call goes on, and never gives -EINTR. No function may be
 * called by a signal handler: calls may allocate and take locks, which the interrupted thread may hold. The library's
 * own threads have all signals blocked.
 */


#ifndef WELDFS_H
#define WELDFS_H

#include <stddef.h>
#include <stdint.h>

/*
 Version of this header: what it adds to.
 */
#define WELDFS_VERSION_MAJOR 0

/*
 Version of this header.
 */
#define WELDFS_VERSION_MINOR 1

/*
 Version of this header.
 */
#define WELDFS_VERSION_PATCH 0

/*
 Version of this header as one number, for `#if`: major * 1000000 + minor * 1000 + patch. Compare weldfs_version().
 */
#define WELDFS_VERSION 1000

/*
 Durability: what the device was started with (or the client's, if its options name one), raised by O_SYNC and
 O_DSYNC of the file.
 */
#define WELDFS_DEFAULT 0

/*
 Durability: visible to all when the call returns; persistent with the next fsync of the file, the next durable
 change, or within 5 s.
 */
#define WELDFS_VOLATILE 1

/*
 Durability: persistent when the call returns.
 */
#define WELDFS_DURABLE 2

/*
 Where the compute part of a call (checksum, codec, cipher, arithmetic) runs, added to the durability in a `how`: in
 the device, as one command. Without this or WELDFS_ON_HOST the device chooses; today that is the same.
 */
#define WELDFS_ON_DEVICE 16

/*
 On the caller's processor, before or after plain commands, with the same result: the bytes cross the link, and where
 that takes more than one command (a read and a write) others may come in between, and a crash, too.
 */
#define WELDFS_ON_HOST 32

/*
 In an FPGA slot of the device, with the same result: checksums (not the plain CRC-32) and LZ4 frames; -EOPNOTSUPP
 for what no kernel computes, -EIO when the slot is lost.
 */
#define WELDFS_IN_SLOT 48

/*
 Added to WELDFS_IN_SLOT: a core does what no slot can, or what a slot has lost.
 */
#define WELDFS_OR_CORE 512

/*
 Added to a `how`: after a failure or a crash all of the command is there or nothing. What calls that take a `how` do
 unless they say otherwise.
 */
#define WELDFS_ALL_OR_NOTHING 64

/*
 Added to a `how`: each step of the command commits by itself. When one fails, those before it stay; what a crash
 interrupts the next mount finishes.
 */
#define WELDFS_STEP_BY_STEP 128

/*
 Added to a `how`: the call returns only when everything that it read is persistent.
 */
#define WELDFS_AFTER_DURABLE 256

/*
 Hint, added to a `how`, or given to weldfs_set_hints: a quarter of the share that a command without this has among
 those of its tenant that wait for the device. For what nothing waits for.
 */
#define WELDFS_PRIORITY_LOW 1024

/*
 Hint: half of that share.
 */
#define WELDFS_PRIORITY_MEDIUM 2048

/*
 Hint: twice that share. For what a user waits for.
 */
#define WELDFS_PRIORITY_HIGH 3072

/*
 Hint, added to a `how`, or given to weldfs_set_hints: what is written will be written over or removed soon. What has
 another life is kept elsewhere on the medium.
 */
#define WELDFS_LIFE_SHORT 4096

/*
 Hint: later than what has a short life.
 */
#define WELDFS_LIFE_MEDIUM 8192

/*
 Hint: later than what has a medium one.
 */
#define WELDFS_LIFE_LONG 12288

/*
 Hint: later than what has a long one, perhaps never.
 */
#define WELDFS_LIFE_EXTREME 16384

/*
 An offset that means the end of the file: an append, atomic against every other writer.
 */
#define WELDFS_END 18446744073709551615ull

/*
 weldfs_options.flags: `umask` counts. Without it, the process's own umask (as it is at attach) applies.
 */
#define WELDFS_OPTION_UMASK 1

/*
 weldfs_info.medium: volatile memory.
 */
#define WELDFS_MEDIUM_RAM 0

/*
 weldfs_info.medium: byte-addressable persistent memory.
 */
#define WELDFS_MEDIUM_PMEM 1

/*
 weldfs_info.medium: a block device or file.
 */
#define WELDFS_MEDIUM_BLOCK 2

/*
 weldfs_info.medium: a directory of the host, which promises neither the order nor the atomicity that a device does
 (docs/HOSTDIR.md).
 */
#define WELDFS_MEDIUM_HOSTDIR 3

/*
 weldfs_job.flags: more is to come. The device need not see the command before the next submission without this flag,
 weldfs_queue_flush or weldfs_queue_reap.
 */
#define WELDFS_MORE 1

/*
 weldfs_queue_options.flags: a thread of the library reaps, and runs the callbacks.
 */
#define WELDFS_QUEUE_REAPER 1

/*
 weldfs_virt_spec.flags: what is written to the virtual file goes through the kernel into its one range. Without it,
 reading gives what the kernel makes of the ranges.
 */
#define WELDFS_VIRT_WRITE 1

/*
 weldfs_virt_spec.flags, with WELDFS_VIRT_WRITE: the real file ends where what was written ended.
 */
#define WELDFS_VIRT_TRUNCATE 2

/*
 weldfs_virt_range.length: to the end that the file has when the virtual file is opened.
 */
#define WELDFS_VIRT_TO_END 18446744073709551615ull

/*
 Bytes of room in which every spec fits, for weldfs_virt_describe.
 */
#define WELDFS_VIRT_ROOM 8192

/*
 weldfs_read_modify_write: replaces the field by `operand`.
 */
#define WELDFS_PATCH 0

/*
 weldfs_read_modify_write: adds `operand`, a little-endian number of 1, 2, 4 or 8 bytes, wrapping.
 */
#define WELDFS_ADD 1

/*
 weldfs_read_modify_write: xors the field with `operand`.
 */
#define WELDFS_XOR 2

/*
 weldfs_read_modify_write: replaces the field by `operand` if it holds `expect`, else -ECANCELED.
 */
#define WELDFS_COMPARE_SWAP 3

/*
 Checksum, in a `form`: CRC-32C (Castagnoli). A `form` is one of these three, with WELDFS_BIG_ENDIAN and
 WELDFS_HEADER added as wanted; 0 is what weldfs_append_checksum_write does.
 */
#define WELDFS_CRC32C 0

/*
 Checksum, in a `form`: CRC-32 (IEEE 802.3), as zip and Ethernet have it.
 */
#define WELDFS_CRC32 1

/*
 Checksum, in a `form`: CRC-32C rotated right by 15 bits plus 0xa282ead8, as LevelDB and RocksDB store it.
 */
#define WELDFS_CRC32C_MASKED 2

/*
 Byte order of a number in a file, in a `form` or an `order`: the highest byte first. Without it the lowest.
 */
#define WELDFS_BIG_ENDIAN 16

/*
 Place of a checksum, in a `form`: right before the payload. Without it, right behind.
 */
#define WELDFS_HEADER 32

/*
 weldfs_modify_field and kin: the field and `operand`, bit by bit.
 */
#define WELDFS_AND 4

/*
 weldfs_modify_field and kin: the field or `operand`, bit by bit.
 */
#define WELDFS_OR 5

/*
 weldfs_tree_node.kind: a directory.
 */
#define WELDFS_TREE_DIRECTORY 0

/*
 weldfs_tree_node.kind: a file.
 */
#define WELDFS_TREE_FILE 1

/*
 weldfs_tree_node.kind: a symbolic link.
 */
#define WELDFS_TREE_LINK 2

/*
 Codec: LZ4 frames, as the lz4 tool reads them.
 */
#define WELDFS_LZ4 0

/*
 Codec: Zstandard frames.
 */
#define WELDFS_ZSTD 1

/*
 Codec: the snappy framing format.
 */
#define WELDFS_SNAPPY 2

/*
 Key: AES-128 in XTS mode, 32 bytes: the key of the data, then that of the tweak.
 */
#define WELDFS_XTS128 0

/*
 Key: AES-256 in XTS mode, 64 bytes: the key of the data, then that of the tweak.
 */
#define WELDFS_XTS256 1

/*
 Key: AES-128 in GCM mode, 16 bytes.
 */
#define WELDFS_GCM128 2

/*
 Key: AES-256 in GCM mode, 32 bytes.
 */
#define WELDFS_GCM256 3

/*
 weldfs_log_format.sum_at: the checksum lies right behind the payload.
 */
#define WELDFS_BEHIND 4294967295

/*
 In place of a register, a range or a mode: none.
 */
#define WELDFS_NONE -1

/*
 weldfs_program_read: fewer bytes than asked for are an error, -ENODATA.
 */
#define WELDFS_WHOLE 1

/*
 weldfs_program_read: a buffer gets all the bytes asked for, zeros past the end of the file.
 */
#define WELDFS_PAD 2

/*
 weldfs_program_compute: a + b. All of these are on 64 bits without sign, wrapping.
 */
#define WELDFS_PLUS 0

/*
 weldfs_program_compute: a - b.
 */
#define WELDFS_MINUS 1

/*
 weldfs_program_compute: a * b.
 */
#define WELDFS_TIMES 2

/*
 weldfs_program_compute: a and b, bit by bit.
 */
#define WELDFS_BIT_AND 3

/*
 weldfs_program_compute: a or b, bit by bit.
 */
#define WELDFS_BIT_OR 4

/*
 weldfs_program_compute: a exclusive or b, bit by bit.
 */
#define WELDFS_BIT_XOR 5

/*
 weldfs_program_compute: a shifted left by b bits.
 */
#define WELDFS_SHIFT_LEFT 6

/*
 weldfs_program_compute: a shifted right by b bits.
 */
#define WELDFS_SHIFT_RIGHT 7

/*
 weldfs_program_compute: the smaller.
 */
#define WELDFS_MIN 8

/*
 weldfs_program_compute: the larger.
 */
#define WELDFS_MAX 9

/*
 What weldfs_program_transform does: compress, with `codec`.
 */
#define WELDFS_COMPRESS 0

/*
 What weldfs_program_transform does: decompress, with `codec`; -EBADMSG when the bytes are not of the format.
 */
#define WELDFS_DECOMPRESS 1

/*
 What weldfs_program_cipher does: encrypt.
 */
#define WELDFS_ENCRYPT 0

/*
 What weldfs_program_cipher does: decrypt; of records -EBADMSG when they were changed.
 */
#define WELDFS_DECRYPT 1

/*
 Relation of a guard: a == b, without sign like all of them.
 */
#define WELDFS_EQUAL 0

/*
 Relation of a guard: a != b.
 */
#define WELDFS_NOT_EQUAL 1

/*
 Relation of a guard: a < b.
 */
#define WELDFS_LESS 2

/*
 Relation of a guard: a <= b.
 */
#define WELDFS_AT_MOST 3

/*
 Relation of a guard: a > b.
 */
#define WELDFS_GREATER 4

/*
 Relation of a guard: a >= b.
 */
#define WELDFS_AT_LEAST 5

/*
 When a guard does not hold: the program fails with the errno given, 1 to 4095.
 */
#define WELDFS_ELSE_FAIL 0

/*
 When a guard does not hold: the program is over, and went well.
 */
#define WELDFS_ELSE_END 1

/*
 When a guard does not hold: so many of the following steps are passed by.
 */
#define WELDFS_ELSE_SKIP 2

/*
 weldfs_program_set: a final symbolic link itself is meant.
 */
#define WELDFS_NOFOLLOW 1

/*
 weldfs_program_set: the size is set.
 */
#define WELDFS_SET_SIZE 2

/*
 weldfs_program_set: the access time is now.
 */
#define WELDFS_ACCESSED_NOW 4

/*
 weldfs_program_set: the time of the last change is now.
 */
#define WELDFS_CHANGED_NOW 8

/*
 Operations that go to the device together, and come back with a result each. One thread uses it at a time.
 */
typedef struct weldfs_batch weldfs_batch;

/*
 A buffer in a queue's pool, which the device reaches by itself. Its bytes are at weldfs_buf_data.
 */
typedef struct weldfs_buf weldfs_buf;

/*
 An attachment to a device. Any number of threads may use it at the same time; each gets a queue pair of its own.

 In a forked child the first call attaches anew; files opened before belong to the parent and give EBADF. After the
 device died every call gives ENODEV until weldfs_reconnect.
 */
typedef struct weldfs_client weldfs_client;

/*
 An open directory being listed. Threads that share one take turns.
 */
typedef struct weldfs_dir weldfs_dir;

/*
 An open file (or directory). Any number of threads may use it at the same time. Reads and writes without an offset
 share the open file description's, which moves atomically.
 */
typedef struct weldfs_file weldfs_file;

/*
 A key that the device keeps for one session. Any number of threads may use it at the same time.
 */
typedef struct weldfs_key weldfs_key;

/*
 A fused program: up to 16 steps that the device runs as one command, with 8 files, 8 private buffers, 8 registers of
 64 bits, and 16 ranges of the caller's memory. Steps go forward only, so it ends. One thread uses it at a time; it
 may run any number of times.
 */
typedef struct weldfs_program weldfs_program;

/*
 A queue of commands in flight, on a queue pair of its own. Any number of threads may use it at the same time.

 Commands on one file run in the order they were submitted to this queue, others in any order. In a forked child
 every call gives -EBADF.
 */
typedef struct weldfs_queue weldfs_queue;

/*
 A transaction that the device collects: writes to any files of one client, which happen together or not at all.

 Nothing of it is seen before the commit, or waited for. It ends with the commit or abort, and with the
 session. Any number of threads may write to it at the same time.
 */
typedef struct weldfs_txn weldfs_txn;

/*
 An open virtual file: a stream, which belongs to the open file description. It gets one of the drive's slots with
 the first read or write. Any number of threads may use it at the same time, and take turns.
 */
typedef struct weldfs_vfile weldfs_vfile;

/*
 The virtual files of a tree, being listed. One thread at a time may use it.
 */
typedef struct weldfs_virt_walk weldfs_virt_walk;

/*
 How to attach. Zero the whole, set `size` to its sizeof, then what is to differ from the default.
 */
typedef struct weldfs_options {
    /*
     sizeof(struct weldfs_options).
     */
    size_t size;
    /*
     128-bit identity of this client, for asking after outcomes; all zero: one is drawn at random.
     */
    uint8_t client_id[16];
    /*
     Commands in flight per thread, a power of two up to 1024; 0: 64.
     */
    uint32_t depth;
    /*
     Bytes of buffers per thread at first, a multiple of 4096; 0: 256 KiB. It grows as needed.
     */
    uint32_t pool_bytes;
    /*
     WELDFS_DEFAULT, WELDFS_VOLATILE or WELDFS_DURABLE for every change whose call does not say.
     */
    uint32_t durability;
    /*
     WELDFS_OPTION_ bits.
     */
    uint32_t flags;
    /*
     Permission bits that new files do not get; counts with WELDFS_OPTION_UMASK.
     */
    uint32_t umask;
    /*
     Zero.
     */
    uint32_t reserved0;
    /*
     A tenant's token, 32 hexadecimal digits; NULL: that of the environment (WELDFS_TENANT_TOKEN), if any.
     */
    const char *token;
    /*
     Bytes of memory that a device may take which weldfs_attach_target starts in this process, at least 1 MiB; 0:
     256 MiB.
     */
    uint64_t memory_bytes;
    /*
     Zero.
     */
    uint64_t reserved[5];
} weldfs_options;

/*
 What the device said at attach. 256 bytes.
 */
typedef struct weldfs_info {
    /*
     The session's number in the device.
     */
    uint64_t session;
    /*
     The file system's UUID.
     */
    uint8_t uuid[16];
    /*
     Its label, NUL-terminated.
     */
    char label[64];
    /*
     The emulated hardware's profile, NUL-terminated.
     */
    char profile[64];
    /*
     Bytes of the largest payload of one command, and of the largest atomic write.
     */
    uint32_t payload_max;
    /*
     What WELDFS_DEFAULT means on this device: WELDFS_VOLATILE or WELDFS_DURABLE.
     */
    uint32_t durability;
    /*
     1: what is durable survives a power cut, too. 0: the end of the device's process only.
     */
    uint8_t power_safe;
    /*
     1: every change fails with EROFS.
     */
    uint8_t read_only;
    /*
     1: the device is in this process (weldfs_attach_target). 0: it is another process.
     */
    uint8_t embedded;
    /*
     What the bytes persist on: WELDFS_MEDIUM_RAM and kin.
     */
    uint8_t medium;
    /*
     Zero.
     */
    uint8_t reserved0[4];
    /*
     Zero.
     */
    uint64_t reserved[11];
} weldfs_info;

/*
 Space and identity of the file system. 128 bytes.
 */
typedef struct weldfs_space {
    /*
     Bytes of a block.
     */
    uint64_t block_bytes;
    /*
     Blocks in all.
     */
    uint64_t blocks;
    /*
     Free blocks.
     */
    uint64_t blocks_free;
    /*
     Free blocks for unprivileged users.
     */
    uint64_t blocks_avail;
    /*
     Inodes in use plus those still possible.
     */
    uint64_t files;
    /*
     Inodes still possible.
     */
    uint64_t files_free;
    /*
     Identifies the file system.
     */
    uint64_t fsid;
    /*
     Longest name, bytes.
     */
    uint32_t name_max;
    /*
     Zero.
     */
    uint32_t reserved0;
    /*
     Its UUID.
     */
    uint8_t uuid[16];
    /*
     Zero.
     */
    uint64_t reserved[6];
} weldfs_space;

/*
 A point in time.
 */
typedef struct weldfs_time {
    /*
     Seconds since 1970, may be negative.
     */
    int64_t sec;
    /*
     Nanoseconds, 0 to 999999999. In weldfs_utimens: UTIME_NOW and UTIME_OMIT, too.
     */
    uint32_t nsec;
    /*
     Zero.
     */
    uint32_t reserved;
} weldfs_time;

/*
 What stat says. 256 bytes.
 */
typedef struct weldfs_stat {
    /*
     Inode number.
     */
    uint64_t ino;
    /*
     Generation of the inode number.
     */
    uint64_t generation;
    /*
     Identifies the file system.
     */
    uint64_t dev;
    /*
     Of a device node: its device number.
     */
    uint64_t rdev;
    /*
     Bytes.
     */
    uint64_t bytes;
    /*
     Units of 512 bytes allocated.
     */
    uint64_t blocks;
    /*
     Type and permission bits, as st_mode.
     */
    uint32_t mode;
    /*
     Hard links.
     */
    uint32_t nlink;
    /*
     Owner.
     */
    uint32_t uid;
    /*
     Group.
     */
    uint32_t gid;
    /*
     Preferred size of reads and writes, bytes.
     */
    uint32_t blksize;
    /*
     Zero.
     */
    uint32_t reserved0;
    /*
     Last access.
     */
    struct weldfs_time atime;
    /*
     Last change of the content.
     */
    struct weldfs_time mtime;
    /*
     Last change of the attributes.
     */
    struct weldfs_time ctime;
    /*
     Birth.
     */
    struct weldfs_time btime;
    /*
     Goes up with every change; for caches.
     */
    uint64_t version;
    /*
     Zero.
     */
    uint64_t reserved[14];
} weldfs_stat;

/*
 One name in a directory.
 */
typedef struct weldfs_entry {
    /*
     Inode number.
     */
    uint64_t ino;
    /*
     Where weldfs_seekdir may go to continue after this entry.
     */
    uint64_t next;
    /*
     Type: DT_REG and kin.
     */
    uint8_t kind;
    /*
     Zero.
     */
    uint8_t reserved[7];
    /*
     The name, NUL-terminated.
     */
    char name[256];
} weldfs_entry;

/*
 What a fused write did.
 */
typedef struct weldfs_written {
    /*
     Where the first byte went in the file.
     */
    uint64_t offset;
    /*
     1: the call made the file.
     */
    uint8_t created;
    /*
     Zero.
     */
    uint8_t reserved[7];
} weldfs_written;

/*
 One thing that weldfs_create_tree makes. 48 bytes.
 */
typedef struct weldfs_tree_node {
    /*
     WELDFS_TREE_ constant.
     */
    uint32_t kind;
    /*
     Permission bits of a directory or file, less the umask.
     */
    uint32_t mode;
    /*
     Its path, from the device's root.
     */
    const char *path;
    /*
     Content of a file, `len` bytes, or what a link says (`len` bytes, no NUL); NULL for a directory.
     */
    const void *content;
    /*
     Bytes of `content`.
     */
    size_t len;
    /*
     Zero.
     */
    uint64_t reserved[2];
} weldfs_tree_node;

/*
 One write of weldfs_multi_write. 40 bytes.
 */
typedef struct weldfs_write_item {
    /*
     The file, opened for writing.
     */
    const struct weldfs_file *file;
    /*
     Bytes to write.
     */
    const void *from;
    /*
     How many; at most the payload limit.
     */
    size_t len;
    /*
     Where, or WELDFS_END.
     */
    uint64_t offset;
    /*
     Zero.
     */
    uint64_t reserved;
} weldfs_write_item;

/*
 A compressed payload in a file.
 */
typedef struct weldfs_frame {
    /*
     Where it begins.
     */
    uint64_t offset;
    /*
     Its bytes, which it does not say itself.
     */
    uint32_t len;
    /*
     Zero.
     */
    uint32_t reserved;
} weldfs_frame;

/*
 How the records of a log lie in a file: a head of fixed length that says how long the payload behind it is, and a
 checksum of four bytes in the head or behind the payload. A head of zeros is no record. 32 bytes.
 */
typedef struct weldfs_log_format {
    /*
     Bytes of the head, 1 to 64.
     */
    uint32_t head;
    /*
     Where in the head the length of the payload is.
     */
    uint32_t length_at;
    /*
     Bytes of that length: 1, 2, 4 or 8.
     */
    uint32_t length_width;
    /*
     Its byte order: 0 or WELDFS_BIG_ENDIAN.
     */
    uint32_t length_order;
    /*
     WELDFS_CRC32C, WELDFS_CRC32 or WELDFS_CRC32C_MASKED; with WELDFS_BIG_ENDIAN if it is stored so.
     */
    uint32_t sum;
    /*
     Where in the head the checksum is, or WELDFS_BEHIND.
     */
    uint32_t sum_at;
    /*
     The checksum covers the head from this byte on, and the payload; the value of `head`: the payload alone.
     */
    uint32_t sum_from;
    /*
     Zero.
     */
    uint32_t reserved;
} weldfs_log_format;

/*
 What one operation of a batch did. 32 bytes.
 */
typedef struct weldfs_result {
    /*
     Negative: -errno. Else what the call of the same name returns (bytes, mostly).
     */
    int64_t result;
    /*
     Where a write began.
     */
    uint64_t value;
    /*
     1: the operation made the file.
     */
    uint8_t created;
    /*
     Zero.
     */
    uint8_t reserved[15];
} weldfs_result;

/*
 A name that a program's text uses: `@name` for a range that the caller has bytes for, `key name` for a key. 40
 bytes.
 */
typedef struct weldfs_name {
    /*
     The name, without `@`.
     */
    const char *name;
    /*
     Of a range: its bytes.
     */
    size_t len;
    /*
     Of a key: the key; NULL: it is a range.
     */
    const struct weldfs_key *key;
    /*
     Zero.
     */
    uint64_t reserved[2];
} weldfs_name;

/*
 Memory that a range of a program stands for in one run. 32 bytes.
 */
typedef struct weldfs_operand {
    /*
     Bytes that the program takes, or room for those it gives.
     */
    void *data;
    /*
     Bytes of it: exactly as many as the range has.
     */
    size_t len;
    /*
     Set by weldfs_program_run: bytes that the program put there, where a result counts them (in a text without
     being told to, as long as a result is free); else all of the range, with zeros behind them.
     */
    size_t filled;
    /*
     Zero.
     */
    uint64_t reserved;
} weldfs_operand;

/*
 What a run of a program did. 40 bytes.
 */
typedef struct weldfs_outcome {
    /*
     The first register that weldfs_program_results, or the text, names. Without: 0, or of a text the bytes in a
     range that may be filled in part.
     */
    uint64_t value;
    /*
     The second one.
     */
    uint64_t value2;
    /*
     Steps that stand: all of them, or after a failure none (WELDFS_STEP_BY_STEP: those before).
     */
    uint32_t done;
    /*
     0, or the number of the step that failed, from 1.
     */
    uint32_t failed;
    /*
     Zero.
     */
    uint64_t reserved[2];
} weldfs_outcome;

/*
 Bytes in a step: where they come from, or go. Make it with weldfs_in_buffer, weldfs_in_range, weldfs_in_register,
 weldfs_nowhere and weldfs_program_literal. 16 bytes.
 */
typedef struct weldfs_place {
    /*
     What it is.
     */
    uint32_t kind;
    /*
     Number of the buffer, range, register or literal.
     */
    int index;
    /*
     Of a register: bytes of the number.
     */
    uint32_t width;
    /*
     Of a register: 0 or WELDFS_BIG_ENDIAN.
     */
    uint32_t order;
} weldfs_place;

/*
 A number in a step. Make it with weldfs_number, weldfs_held, weldfs_at_end and weldfs_after_last. 16 bytes.
 */
typedef struct weldfs_value {
    /*
     The number, or the register's.
     */
    uint64_t number;
    /*
     What it is.
     */
    uint32_t kind;
    /*
     Zero.
     */
    uint32_t reserved;
} weldfs_value;

/*
 A part of a real file. 40 bytes.
 */
typedef struct weldfs_virt_range {
    /*
     The real file: from the device's root, and beginning with `/`. It need not exist when the virtual file is made.
     */
    const char *path;
    /*
     First byte.
     */
    uint64_t offset;
    /*
     Bytes, or WELDFS_VIRT_TO_END; not 0.
     */
    uint64_t length;
    /*
     Zero.
     */
    uint64_t reserved[2];
} weldfs_virt_range;

/*
 What a virtual file streams. 80 bytes.
 */
typedef struct weldfs_virt_spec {
    /*
     The kernel: 1 to 31 of a-z, 0-9 and `-`; then, if it matters, `:` and its back-end (crc32c:rtl).
     */
    const char *kernel;
    /*
     Its parameters.
     */
    const uint32_t *params;
    /*
     How many.
     */
    size_t param_count;
    /*
     Parts of real files, in the order in which they are streamed.
     */
    const struct weldfs_virt_range *ranges;
    /*
     How many: 1 to 64; 1 with WELDFS_VIRT_WRITE.
     */
    size_t range_count;
    /*
     WELDFS_VIRT_ bits.
     */
    uint32_t flags;
    /*
     Zero.
     */
    uint32_t reserved0;
    /*
     Zero.
     */
    uint64_t reserved[4];
} weldfs_virt_spec;

/*
 How large a queue is, and who reaps it. Zero the whole, set `size`.
 */
typedef struct weldfs_queue_options {
    /*
     sizeof(struct weldfs_queue_options).
     */
    size_t size;
    /*
     Commands in flight; 0: 64. Rounded up to a power of two, clipped to the device's limit (1024).
     */
    uint32_t depth;
    /*
     Bytes of its buffers; 0: 1 MiB. Rounded up to pages, clipped to the device's limit (64 MiB).
     */
    uint32_t pool_bytes;
    /*
     WELDFS_QUEUE_ bits.
     */
    uint32_t flags;
    /*
     Zero.
     */
    uint32_t reserved0;
    /*
     Zero.
     */
    uint64_t reserved[4];
} weldfs_queue_options;

/*
 A command that has completed.
 */
typedef struct weldfs_completion {
    /*
     sizeof(struct weldfs_completion), as this library knows it.
     */
    size_t size;
    /*
     What the job said.
     */
    void *data;
    /*
     The command's ticket.
     */
    uint64_t ticket;
    /*
     Negative: -errno, and of the rest only `value` may mean something. Else what the call of the same name without
     "submit" returns (bytes, mostly).
     */
    int64_t result;
    /*
     The second result: see each function. Where a write began, a checksum.
     */
    uint64_t value;
    /*
     1: the command made the file.
     */
    uint8_t created;
    /*
     Zero.
     */
    uint8_t reserved0[7];
    /*
     Zero.
     */
    uint64_t reserved[3];
} weldfs_completion;

/*
 Called when a command has completed, by whichever thread reaps. It may submit, forget and free; it must return (no
 longjmp, no C++ exception out of it). `done` is valid during the call.
 */
typedef void (*weldfs_callback)(void *data, const struct weldfs_completion *done);

/*
 How a command is to be submitted and its end reported. Zero the whole, set `size`. NULL in its place: not reported.
 */
typedef struct weldfs_job {
    /*
     sizeof(struct weldfs_job).
     */
    size_t size;
    /*
     WELDFS_MORE or 0, and hints, which then count in the place of the file's.
     */
    uint32_t flags;
    /*
     WELDFS_DEFAULT, WELDFS_VOLATILE or WELDFS_DURABLE.
     */
    uint32_t durability;
    /*
     Called when it has completed; NULL: weldfs_queue_reap returns it.
     */
    weldfs_callback done;
    /*
     Given to `done`, and in the completion.
     */
    void *data;
    /*
     Where to put the command's ticket before it is sent, or NULL.
     */
    uint64_t *ticket;
    /*
     Zero.
     */
    uint64_t reserved[3];
} weldfs_job;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The library's version, as WELDFS_VERSION counts: at least that of the header a program was compiled with.
 */
uint32_t weldfs_version(void);

/*
 One sentence for an error number, given positive or negative. Static; thread-safe.
 */
const char *weldfs_strerror(int error);

/*
 What went wrong in the last call of this thread that failed, in a sentence of at most 1,023 bytes: the function with
 the paths that it was given, the errno in words and by name, and a detail where there is one (the step of a program,
 the item of a multi_write): `weldfs_open("/f"): no such file or directory (ENOENT)`. Valid until the thread's next
 call of this function. Never NULL.
 */
const char *weldfs_last_error(void);

/*
 Attaches to the device that listens at the Unix socket `socket` (weldfs serve says where). `options` may be NULL.
 On success *client is the attachment, to be given back with weldfs_detach; else NULL.

 Errors: -ENOENT and -ECONNREFUSED (no device serves there), -EACCES (an unknown token, or the socket's permissions),
 -EPROTO (something else listens there), -EMFILE (too many sessions), -EINVAL.
 */
int weldfs_attach(const char *socket,
                  const struct weldfs_options *options,
                  struct weldfs_client **client);

/*
 Attaches to a target: the socket of a device, or an image. An image that a device serves is reached through that
 device. One that none serves is opened in this process, locked against other processes: one device for all clients
 of this process that name the image, closed cleanly by the weldfs_detach of the last one (or of the last file or
 directory that is closed after it). An image that may only be read is opened so. A device that is starting, and an
 image that another process has open, are waited for: WELDFS_WAIT seconds (an environment variable), or 5.
 `options` may be NULL.

 Commands of a device in this process run on the threads that call; in a forked child every call gives -ENODEV.

 Errors: as weldfs_attach, and -EBUSY (another process has the image open, and serves it not), -EACCES, -EISDIR,
 -EUCLEAN (no file system that can be mounted: another kind of file, another version, or damage; weldfs_last_error
 says which), -EOPNOTSUPP (a library that was built without devices).
 */
int weldfs_attach_target(const char *target,
                         const struct weldfs_options *options,
                         struct weldfs_client **client);

/*
 Gives an attachment back; NULL does nothing. The session ends when its files, directories and queues are closed,
 too. No other call may use `client` at the same time or later.
 */
void weldfs_detach(struct weldfs_client *client);

/*
 Ends the session and attaches again, to a device that was restarted for example. Files opened before give EBADF
 afterwards. Errors as weldfs_attach.
 */
int weldfs_reconnect(const struct weldfs_client *client);

/*
 What the device said at attach.
 */
int weldfs_get_info(const struct weldfs_client *client, struct weldfs_info *info);

/*
 The 128-bit id of this client, as given in the options or drawn: 16 bytes.
 */
int weldfs_client_id(const struct weldfs_client *client, uint8_t *id);

/*
 The device's counters as a JSON object: as much of it as fits into `size` bytes, NUL-terminated. Returns the bytes
 that all of it has, without the NUL; `size` 0 asks for that alone.
 */
int64_t weldfs_stats_json(const struct weldfs_client *client,
                          char *json,
                          size_t size);

/*
 Everything completed before, by any client, is persistent on return.
 */
int weldfs_sync(const struct weldfs_client *client);

/*
 Space and identity of the file system.
 */
int weldfs_get_space(const struct weldfs_client *client, struct weldfs_space *space);

/*
 open(2). `flags` are O_ bits of <fcntl.h>; `mode` is what a new file gets, less the umask. `path` is resolved from
 the device's root. On success *file is to be given back with weldfs_close.

 Errors: open(2)'s.
 */
int weldfs_open(const struct weldfs_client *client,
                const char *name,
                int flags,
                uint32_t mode,
                struct weldfs_file **file);

/*
 close(2). The object is gone whatever the result says; NULL does nothing. No other call may use it at the same time
 or later. Nothing becomes persistent by it.
 */
int weldfs_close(struct weldfs_file *file);

/*
 read(2) at the file's offset. Returns the bytes read; fewer than asked for only at the end of the file.
 */
int64_t weldfs_read(const struct weldfs_file *file, void *into, size_t len);

/*
 pread(2). Returns the bytes read; fewer than asked for only at the end of the file.
 */
int64_t weldfs_pread(const struct weldfs_file *file, void *into, size_t len, uint64_t offset);

/*
 weldfs_pread with a `how` of its own; hints of it count in the place of the file's.
 */
int64_t weldfs_pread_how(const struct weldfs_file *file,
                         void *into,
                         size_t len,
                         uint64_t offset,
                         uint32_t how);

/*
 write(2) at the file's offset, or its end with O_APPEND. Atomic up to weldfs_info.payload_max bytes, longer data in
 such pieces. Returns the bytes written; fewer than given only when a later piece failed.
 */
int64_t weldfs_write(const struct weldfs_file *file,
                     const void *from,
                     size_t len,
                     uint32_t durable);

/*
 pwrite(2); at WELDFS_END, an append. As weldfs_write otherwise. *where, unless NULL: where the first byte went.
 */
int64_t weldfs_pwrite(const struct weldfs_file *file,
                      const void *from,
                      size_t len,
                      uint64_t offset,
                      uint32_t durable,
                      uint64_t *where);

/*
 lseek(2), with SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE. Returns the new offset, bytes.
 */
int64_t weldfs_lseek(const struct weldfs_file *file, int64_t offset, int whence);

/*
 Chooses the hints of later calls through `file`, on any thread, and of commands submitted for it: a
 WELDFS_PRIORITY_, a WELDFS_LIFE_, both added, or 0, as at first. They belong to this object and not to the file, and
 change no result: the first says how urgent commands are among those of the same tenant, which gets as much in all
 as it would without; the second is as fcntl(2)'s F_SET_RW_HINT. -EINVAL: other bits.
 */
int weldfs_set_hints(const struct weldfs_file *file,
                     uint32_t hints);

/*
 ftruncate(2).
 */
int weldfs_ftruncate(const struct weldfs_file *file, uint64_t bytes);

/*
 fallocate(2): `mode` is 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE, or
 the last with FALLOC_FL_KEEP_SIZE; else -EOPNOTSUPP. Atomic up to 128 MiB, in such pieces above.
 */
int weldfs_fallocate(const struct weldfs_file *file,
                     int mode,
                     uint64_t offset,
                     uint64_t len);

/*
 fsync(2): content and attributes are persistent on return.
 */
int weldfs_fsync(const struct weldfs_file *file);

/*
 fdatasync(2): content and size are persistent on return.
 */
int weldfs_fdatasync(const struct weldfs_file *file);

/*
 fstat(2).
 */
int weldfs_fstat(const struct weldfs_file *file, struct weldfs_stat *stat);

/*
 fchmod(2).
 */
int weldfs_fchmod(const struct weldfs_file *file, uint32_t mode);

/*
 fchown(2); UINT32_MAX leaves owner or group as it is.
 */
int weldfs_fchown(const struct weldfs_file *file, uint32_t uid, uint32_t gid);

/*
 futimens(2): `times` points to two: last access, and last change of the content. NULL: now, both.
 */
int weldfs_futimens(const struct weldfs_file *file, const struct weldfs_time *times);

/*
 flock(2) without waiting: `kind` is LOCK_SH, LOCK_EX or LOCK_UN. -EAGAIN when another open file holds it.
 */
int weldfs_flock(const struct weldfs_file *file, int kind);

/*
 fgetxattr(2): returns the value's length, bytes; `size` 0 asks for that alone. -ERANGE when it does not fit,
 -ENODATA when there is none.
 */
int64_t weldfs_fgetxattr(const struct weldfs_file *file, const char *name, void *value, size_t size);

/*
 fsetxattr(2); `flags` 0, XATTR_CREATE or XATTR_REPLACE.
 */
int weldfs_fsetxattr(const struct weldfs_file *file,
                     const char *name,
                     const void *value,
                     size_t size,
                     int flags);

/*
 flistxattr(2): names, each ended by NUL. Returns their length in all, bytes; `size` 0 asks for that alone.
 */
int64_t weldfs_flistxattr(const struct weldfs_file *file, void *names, size_t size);

/*
 fremovexattr(2).
 */
int weldfs_fremovexattr(const struct weldfs_file *file, const char *name);

/*
 stat(2): of what a final symbolic link names.
 */
int weldfs_stat_path(const struct weldfs_client *client, const char *name, struct weldfs_stat *stat);

/*
 lstat(2): of a final symbolic link itself.
 */
int weldfs_lstat_path(const struct weldfs_client *client, const char *name, struct weldfs_stat *stat);

/*
 access(2), with F_OK, R_OK, W_OK, X_OK.
 */
int weldfs_access(const struct weldfs_client *client, const char *name, int mask);

/*
 truncate(2).
 */
int weldfs_truncate(const struct weldfs_client *client, const char *name, uint64_t bytes);

/*
 chmod(2).
 */
int weldfs_chmod(const struct weldfs_client *client, const char *name, uint32_t mode);

/*
 lchown(2): of a final symbolic link itself. UINT32_MAX leaves owner or group as it is.
 */
int weldfs_lchown(const struct weldfs_client *client, const char *name, uint32_t uid, uint32_t gid);

/*
 utimensat(2): `times` points to two: last access, and last change of the content. NULL: now, both.
 */
int weldfs_utimens(const struct weldfs_client *client, const char *name, const struct weldfs_time *times);

/*
 mkdir(2); `mode` less the umask.
 */
int weldfs_mkdir(const struct weldfs_client *client, const char *name, uint32_t mode);

/*
 rmdir(2).
 */
int weldfs_rmdir(const struct weldfs_client *client, const char *name);

/*
 unlink(2). The file lives on while it is open.
 */
int weldfs_unlink(const struct weldfs_client *client, const char *name);

/*
 renameat2(2): `flags` 0, RENAME_NOREPLACE or RENAME_EXCHANGE. Atomic.
 */
int weldfs_rename(const struct weldfs_client *client, const char *from, const char *to, uint32_t flags);

/*
 link(2).
 */
int weldfs_link(const struct weldfs_client *client, const char *from, const char *to);

/*
 symlink(2): makes `name` a symbolic link that says `target`.
 */
int weldfs_symlink(const struct weldfs_client *client, const char *target, const char *name);

/*
 readlink(2): returns the bytes put into `target`, cut to `size`, without a NUL.
 */
int64_t weldfs_readlink(const struct weldfs_client *client, const char *name, void *target, size_t size);

/*
 opendir(3). On success *dir is to be given back with weldfs_closedir.
 */
int weldfs_opendir(const struct weldfs_client *client, const char *name, struct weldfs_dir **dir);

/*
 readdir(3), `.` and `..` left out: 1 and the next entry, or 0 at the end. Entries that exist throughout the listing
 are seen exactly once, however many others come and go.
 */
int weldfs_readdir(const struct weldfs_dir *dir,
                   struct weldfs_entry *entry);

/*
 As weldfs_readdir, with the attributes of each entry (of a symbolic link itself): many of them in one crossing. 1
 and the next entry in *entry and *stat, or 0 at the end. *error is 0, or -errno of this entry's attributes (-ENOENT
 when it has gone meanwhile): *stat is zero then. Entry and attributes are not of one moment; the directory is not
 locked.
 */
int weldfs_readdir_plus(const struct weldfs_dir *dir,
                        struct weldfs_entry *entry,
                        struct weldfs_stat *stat,
                        int *error);

/*
 seekdir(3): goes on after the entry whose `next` is given; 0: from the start.
 */
int weldfs_seekdir(const struct weldfs_dir *dir, uint64_t next);

/*
 closedir(3). NULL does nothing.
 */
void weldfs_closedir(struct weldfs_dir *dir);

/*
 Opens or creates a file, writes at `offset` (or WELDFS_END), closes, as one command. `flags` are O_ bits with
 O_WRONLY or O_RDWR; `mode` is what a new file gets, less the umask. Returns the bytes written: all of them.
 *written, unless NULL: where, and whether the file is new.

 Errors: those of open and write; -E2BIG above the payload limit.
 */
int64_t weldfs_open_write_close(const struct weldfs_client *client,
                                const char *name,
                                int flags,
                                uint32_t mode,
                                const void *from,
                                size_t len,
                                uint64_t offset,
                                uint32_t durable,
                                struct weldfs_written *written);

/*
 Opens a file, reads from `offset`, closes, as one command. `flags` are O_ bits with O_RDONLY or O_RDWR, none that
 creates or truncates. Returns the bytes read; fewer than asked for only at the end of the file.
 */
int64_t weldfs_open_read_close(const struct weldfs_client *client,
                               const char *name,
                               int flags,
                               void *into,
                               size_t len,
                               uint64_t offset);

/*
 Opens or creates a file, reads `old_len` bytes of its old content from `old_offset`, writes at `offset` (or
 WELDFS_END), closes, as one command: no other client gets in between. `flags` with O_RDWR. Returns the bytes read.
 */
int64_t weldfs_open_read_write_close(const struct weldfs_client *client,
                                     const char *name,
                                     int flags,
                                     uint32_t mode,
                                     void *old,
                                     size_t old_len,
                                     uint64_t old_offset,
                                     const void *from,
                                     size_t len,
                                     uint64_t offset,
                                     uint32_t durable,
                                     struct weldfs_written *written);

/*
 Appends `len` bytes and, right behind them, their CRC-32C (4 bytes, little-endian), as one command. *offset and
 *checksum, unless NULL: where the first byte went, and the checksum.

 Errors: -EBADF when the file was not opened for writing, -E2BIG above the payload limit less 4, -ENOSPC.
 */
int weldfs_append_checksum_write(const struct weldfs_file *file,
                                 const void *from,
                                 size_t len,
                                 uint32_t durable,
                                 uint64_t *offset,
                                 uint32_t *checksum);

/*
 weldfs_pwrite (WELDFS_END: an append) of at most weldfs_info.payload_max bytes, if their CRC-32C is `checksum`: the
 device sums up the bytes that it stores, and else nothing has happened. Returns the bytes written. *where, unless
 NULL: where the first byte went.

 Errors: -EBADMSG when the checksum is another one, -EBADF when the file was not opened for writing, -E2BIG, -ENOSPC,
 -EOPNOTSUPP on a virtual file.
 */
int64_t weldfs_pwrite_verified(const struct weldfs_file *file,
                               const void *from,
                               size_t len,
                               uint64_t offset,
                               uint32_t checksum,
                               uint32_t durable,
                               uint64_t *where);

/*
 Reads `len` bytes at `offset` and the CRC-32C behind them, and compares, as one command. With `into` NULL only the
 verdict crosses the link. *checksum, unless NULL: that of the bytes that are there.

 Errors: -EBADMSG when they do not match (`into` holds them all the same), -ENODATA when the file ends too early.
 */
int weldfs_read_checksum_verify(const struct weldfs_file *file,
                                void *into,
                                uint32_t len,
                                uint64_t offset,
                                uint32_t *checksum);

/*
 The CRC-32C of `len` bytes from `offset` (UINT64_MAX: to the end of the file), summed up by the device: not a byte
 crosses the link. Returns how many bytes there were. Ranges above 8 MiB are those of several moments.
 */
int64_t weldfs_checksum_range(const struct weldfs_file *file,
                              uint64_t offset,
                              uint64_t len,
                              uint32_t *checksum);

/*
 Reads `len` bytes at `offset`, changes them, writes them back, as one command. `change` is a WELDFS_ constant above;
 `operand` (and for WELDFS_COMPARE_SWAP `expect`, else NULL) has `len` bytes. With `old`, of `len` bytes, what was
 there comes back, also with -ECANCELED. Bytes past the end of the file count as zero. At most 64 KiB, else -E2BIG.
 */
int weldfs_read_modify_write(const struct weldfs_file *file,
                             uint64_t offset,
                             int change,
                             const void *operand,
                             const void *expect,
                             size_t len,
                             void *old,
                             uint32_t durable);

/*
 Appends `len` bytes and their checksum, as `form` says, as one command. *where and *checksum, unless NULL: where the
 record begins (at its checksum if that is the header), and the checksum. For `form` 0 weldfs_append_checksum_write
 is faster.

 Errors: -EBADF when the file was not opened for writing, -E2BIG above the payload limit, -ENOSPC.
 */
int weldfs_append_checksum(const struct weldfs_file *file,
                           uint32_t form,
                           const void *from,
                           size_t len,
                           uint32_t how,
                           uint64_t *where,
                           uint32_t *checksum);

/*
 Writes `len` bytes and their checksum, as `form` says, as one command: the record begins at `offset`, or at the end
 of a file that was opened with O_APPEND. *where and *checksum, and errors, as weldfs_append_checksum.
 */
int weldfs_write_checksum(const struct weldfs_file *file,
                          uint64_t offset,
                          uint32_t form,
                          const void *from,
                          size_t len,
                          uint32_t how,
                          uint64_t *where,
                          uint32_t *checksum);

/*
 Reads the record of `len` payload bytes that begins at `offset`, and compares its checksum, as `form` says. With
 `into` NULL only the verdict crosses the link. *checksum, unless NULL: that of the bytes that are there.
 weldfs_read_checksum_verify is the same for `form` 0, and faster.

 Errors: -EBADMSG when they do not match (`into` holds the bytes all the same), -ENODATA when the file ends within
 the record, -EBADF when it was not opened for reading.
 */
int weldfs_verify_checksum(const struct weldfs_file *file,
                           uint64_t offset,
                           uint32_t form,
                           void *into,
                           uint32_t len,
                           uint32_t how,
                           uint32_t *checksum);

/*
 Reads `len` bytes at `offset`, changes them, writes them back, as one command: as weldfs_read_modify_write, with
 WELDFS_AND and WELDFS_OR besides, numbers of either byte order (`order` is WELDFS_BIG_ENDIAN or 0 and counts for
 WELDFS_ADD, of field and `operand`), and fields of up to 1 MiB. Returns how many of the bytes were there; those past
 the end of the file count as zeros. `old`, unless NULL, has `len` bytes and gets what was there, also with
 -ECANCELED.

 Errors: -ECANCELED when WELDFS_COMPARE_SWAP finds something else, -EBADF when the file was not opened for both,
 -E2BIG, -EINVAL (a number of another width). With WELDFS_ON_HOST others may come in between.
 */
int64_t weldfs_modify_field(const struct weldfs_file *file,
                            uint64_t offset,
                            int change,
                            uint32_t order,
                            const void *operand,
                            const void *expect,
                            size_t len,
                            void *old,
                            uint32_t how);

/*
 Adds `by`, wrapping, to the number of `width` bytes (1, 2, 4 or 8) at `offset`; `order` is 0 or WELDFS_BIG_ENDIAN.
 *before, unless NULL: what it was. Errors as weldfs_modify_field.
 */
int weldfs_fetch_add(const struct weldfs_file *file,
                     uint64_t offset,
                     uint64_t by,
                     uint32_t width,
                     uint32_t order,
                     uint32_t how,
                     uint64_t *before);

/*
 Appends `len` bytes to a record in place: the length of its content is the number of `width` bytes at `offset`
 (`order` is 0 or WELDFS_BIG_ENDIAN), the content lies right behind it, and there is room for `room` bytes of that.
 *before, unless NULL: the length that the content had.

 Errors: -EFBIG when it does not fit (nothing is written), -EINVAL when `width` cannot say `room`, -EBADF, -E2BIG.
 */
int weldfs_append_to_record(const struct weldfs_file *file,
                            uint64_t offset,
                            uint32_t width,
                            uint32_t order,
                            uint64_t room,
                            const void *from,
                            size_t len,
                            uint32_t how,
                            uint64_t *before);

/*
 Reads the record of `len` bytes at `offset` of `file`, changes `field_len` bytes of the copy from its byte `field`
 on, and appends the copy to `to` (perhaps the same file); the old record stays. `change`, `order`, `operand` and
 `expect` as weldfs_modify_field. *where, unless NULL: where the new record begins.

 Errors: -ENODATA when the file ends within the record, -ERANGE when the field is not inside it, -ECANCELED, -EBADF,
 -E2BIG.
 */
int weldfs_read_modify_append(const struct weldfs_file *file,
                              uint64_t offset,
                              uint32_t len,
                              uint32_t field,
                              int change,
                              uint32_t order,
                              const void *operand,
                              const void *expect,
                              size_t field_len,
                              const struct weldfs_file *to,
                              uint32_t how,
                              uint64_t *where);

/*
 Reads `into_len` bytes of the file as it is, from `offset` (WELDFS_END: its last ones), then appends `len` bytes, as
 one command. Returns the bytes read; fewer than asked for only where the file ends. *where, unless NULL: where the
 payload went. There is nothing to compute: with WELDFS_ON_HOST it is a read and a write, others in between.

 Errors: -EBADF when the file was not opened for both, -E2BIG, -ENOSPC.
 */
int64_t weldfs_read_append(const struct weldfs_file *file,
                           uint64_t offset,
                           void *into,
                           size_t into_len,
                           const void *from,
                           size_t len,
                           uint32_t how,
                           uint64_t *where);

/*
 Copies `len` bytes from `offset` of `from` to `at` (or WELDFS_END) of `to`, perhaps the same file, inside the
 device: nothing crosses the link. Returns the bytes copied; fewer than asked for only where the source ends, or
 where a later piece failed. Up to 16 MiB are one atomic command; more are several, in order, and others may come in
 between.

 Errors: -EINVAL when the two ranges are of one file and meet, -EBADF, -ENOSPC.
 */
int64_t weldfs_copy_range(const struct weldfs_file *from,
                          uint64_t offset,
                          uint64_t len,
                          const struct weldfs_file *to,
                          uint64_t at,
                          uint32_t how);

/*
 Appends `count` whole files, at most 4, in order, to `to`, as one command: all or nothing. *before and *after,
 unless NULL: the size of `to`. The files have 16 MiB together at most, each its equal share of that (-E2BIG).

 Errors: -EINVAL (none, or more than 4), -EBADF (`to` must be opened for both, the others for reading), -ENOSPC.
 */
int weldfs_concat(const struct weldfs_file *const *from,
                  size_t count,
                  const struct weldfs_file *to,
                  uint32_t how,
                  uint64_t *before,
                  uint64_t *after);

/*
 Gives `name` new content, durably and as a whole, as one command: after a crash the old content is there or the new,
 and nothing else. What takes create, write, fsync, rename and an fsync of the directory elsewhere. `mode` is what
 the file gets, less the umask; it is another inode afterwards. `temporary` is a name in the same directory that
 nothing has, and that no client will ever see; NULL: the library finds one.

 ```c
 assert(weldfs_atomic_replace(client, "/motd", NULL, 0644, "today", 5) == 0);
 ```

 Errors: those of open and rename; -EEXIST when `temporary` exists, -E2BIG above the payload limit.
 */
int weldfs_atomic_replace(const struct weldfs_client *client,
                          const char *name,
                          const char *temporary,
                          uint32_t mode,
                          const void *from,
                          size_t len);

/*
 Makes `count` directories, files with content and symbolic links, in the order given, as one command: all of them or
 none. A small tree: a directory or link counts 1, a file 2, or 3 with content, up to 16 (-E2BIG above; then a
 weldfs_batch makes it, not atomically).

 Errors: -EEXIST when one exists; those of mkdir, symlink, open and write. weldfs_last_error names the node (from 0)
 that cannot be one; the device does not say which node it failed at.
 */
int weldfs_create_tree(const struct weldfs_client *client,
                       const struct weldfs_tree_node *nodes,
                       size_t count,
                       uint32_t how);

/*
 Writes to several files of one client as one command: after a failure or a crash all of it is there or nothing, and
 others see it together. Files (at most 8) and writes together are at most 16, else -E2BIG: then use
 weldfs_txn_begin. All files must be of one client.

 Errors: those of write, which leave nothing; weldfs_last_error names the item (from 0) where one is to blame.
 */
int weldfs_multi_write(const struct weldfs_write_item *writes,
                       size_t count,
                       uint32_t how);

/*
 Begins a transaction. On success *txn is to be given to weldfs_txn_commit or weldfs_txn_abort.

 Errors: -EMFILE when the session has 64 of them.
 */
int weldfs_txn_begin(const struct weldfs_client *client, struct weldfs_txn **txn);

/*
 Logs a write of `len` bytes to `file` at `offset` (or WELDFS_END: as it is at the commit): the bytes are the
 device's now, and the file may be closed before the commit. To edit what was logged, write over it: the later write
 counts. Returns how many writes are logged; above 1 MiB the data is several.

 Errors: -EBADF (not opened for writing; of another session), -E2BIG (256 writes, 4 MiB in all), -ENOMEM.
 */
int64_t weldfs_txn_write(const struct weldfs_txn *txn,
                         const struct weldfs_file *file,
                         const void *from,
                         size_t len,
                         uint64_t offset);

/*
 Makes all of it happen, in the order in which it was written, visible at once. `durable` is WELDFS_DEFAULT,
 WELDFS_VOLATILE or WELDFS_DURABLE, with hints for all that is written added. Returns the bytes written. `txn` is
 given back, whatever comes of it; no other call may use it at the same time or later.

 Errors: those of write; -E2BIG (more than 16 files, or more than fits the log). An error leaves nothing, except for
 -EIO (the device died: all of it or nothing).
 */
int64_t weldfs_txn_commit(struct weldfs_txn *txn,
                          uint32_t durable);

/*
 Gives a transaction back and forgets what it logged; NULL does nothing. No other call may use it at the same time or
 later.
 */
int weldfs_txn_abort(struct weldfs_txn *txn);

/*
 Compresses `len` bytes into one frame of `codec` and writes that at `offset` (or WELDFS_END), as one command.
 *frame: where it lies.

 Errors: -E2BIG from some 1,040,000 bytes on, -EBADF, -ENOSPC.
 */
int weldfs_compress_write(const struct weldfs_file *file,
                          uint64_t offset,
                          uint32_t codec,
                          const void *from,
                          size_t len,
                          uint32_t how,
                          struct weldfs_frame *frame);

/*
 Reads a frame of `codec` that has `frame_len` bytes from `offset` on, and decompresses it. Returns the bytes of
 content put into `into`, of `size` bytes.

 Errors: -E2BIG when there are more, -EBADMSG when the frame is damaged or of another format, -ENODATA when the file
 ends within it.
 */
int64_t weldfs_read_decompress(const struct weldfs_file *file,
                               uint64_t offset,
                               uint32_t frame_len,
                               uint32_t codec,
                               void *into,
                               size_t size,
                               uint32_t how);

/*
 Gives the device a key of `len` bytes; `kind` is a WELDFS_ constant above. Overwrite the bytes afterwards: the
 device and the library keep copies in memory only (never in a log, a trace or on the medium), and overwrite them
 when the key is forgotten. On success *key is to be given back with weldfs_forget_key. It works in the session it
 was given in: after a reconnect or in a forked child calls with it give -ENOKEY.

 Errors: -EINVAL for another number of bytes than the kind has, or when the halves of an XTS key are the same;
 -EMFILE when the session has 64 of them.
 */
int weldfs_set_key(const struct weldfs_client *client,
                   uint32_t kind,
                   const void *from,
                   size_t len,
                   struct weldfs_key **key);

/*
 Gives a key back, and has the device forget it; NULL does nothing. Commands in flight end with it. No other call may
 use it at the same time or later.
 */
void weldfs_forget_key(struct weldfs_key *key);

/*
 Encrypts `len` bytes and writes the ciphertext at `offset` (or WELDFS_END), as one command; plaintext and key are
 never on the medium. *where, unless NULL: where it went.

 `unit` 0: a record of its own, with a GCM key; 28 bytes longer than its plaintext, and refused when it was changed.
 A key seals 2^32 of them, then -EKEYEXPIRED. `unit` 512, 1024, 2048 or 4096: data units of so many bytes, with an
 XTS key; as long as the plaintext, at an offset that is a multiple of the unit, and not in a file opened with
 O_APPEND; the last unit has 16 bytes at least. XTS hides content; it does not tell whether it was changed.

 Errors: -ENOKEY (a key of another session), -EINVAL (a key for the other cipher, an offset or length as above),
 -E2BIG, -EBADF, -ENOSPC.
 */
int weldfs_encrypt_write(const struct weldfs_file *file,
                         uint64_t offset,
                         const struct weldfs_key *key,
                         uint32_t unit,
                         const void *from,
                         size_t len,
                         uint32_t how,
                         uint64_t *where);

/*
 Reads what weldfs_encrypt_write wrote, with the same `key` and `unit`; returns the bytes of plaintext put into
 `into`. A record (`unit` 0): from where it begins, `len` is the plaintext's length. Data units: any bytes from any
 offset, fewer than asked for only where the file ends.

 Errors: -EBADMSG when the record was changed or the key is another, -ENODATA when the file ends within it, -ENOKEY,
 -EINVAL, -EBADF.
 */
int64_t weldfs_read_decrypt(const struct weldfs_file *file,
                            uint64_t offset,
                            const struct weldfs_key *key,
                            uint32_t unit,
                            void *into,
                            size_t len,
                            uint32_t how);

/*
 Reads up to `len` bytes of plaintext from `offset` of `from`, encrypts them, and writes the ciphertext at `at` (or
 WELDFS_END) of `to`, or with data units in the same place, as one command. Returns the bytes of plaintext. *where,
 unless NULL: where the ciphertext went. `key`, `unit` and errors as weldfs_encrypt_write.
 */
int64_t weldfs_read_encrypt_write(const struct weldfs_file *from,
                                  uint64_t offset,
                                  uint32_t len,
                                  const struct weldfs_file *to,
                                  uint64_t at,
                                  const struct weldfs_key *key,
                                  uint32_t unit,
                                  uint32_t how,
                                  uint64_t *where);

/*
 Walks over the records of a log from `offset` on, over `len` bytes (at most 8 MiB, else -E2BIG) and 65,536 records,
 and stops at the first that is cut, empty or does not match its checksum. Returns the number of good records. *end,
 unless NULL: where the last of them ends. `offsets`, of `max` elements, gets where they begin; when it is full the
 walk ends; NULL with `max` 0: nowhere.

 With `copy` the good records are then written, one behind the other, to that file at `at` (or WELDFS_END), in the
 same command. Errors: -EINVAL when `format` describes no record, -EBADF, -ENOSPC; -EOPNOTSUPP with WELDFS_ON_HOST.
 */
int64_t weldfs_log_recover(const struct weldfs_file *file,
                           uint64_t offset,
                           uint64_t len,
                           const struct weldfs_log_format *format,
                           uint64_t *offsets,
                           size_t max,
                           const struct weldfs_file *copy,
                           uint64_t at,
                           uint32_t how,
                           uint64_t *end);

/*
 Makes an empty batch. On success *batch is to be given back with weldfs_batch_destroy.

 The weldfs_batch_ functions below add an operation, whose arguments are those of the call that it is named after;
 they return 0, -EINVAL, -E2BIG, or -EBADF (files of two sessions), and then add nothing. Memory that they name must
 stay, and belongs to the batch, until it has run or was cleared. Strings are copied.
 */
int weldfs_batch_create(const struct weldfs_client *client,
                        struct weldfs_batch **batch);

/*
 Gives a batch back; NULL does nothing. What it holds is not run.
 */
void weldfs_batch_destroy(struct weldfs_batch *batch);

/*
 Forgets the operations of a batch.
 */
int weldfs_batch_clear(struct weldfs_batch *batch);

/*
 Operations in a batch; 0 for NULL.
 */
size_t weldfs_batch_len(const struct weldfs_batch *batch);

/*
 Adds weldfs_open_write_close.
 */
int weldfs_batch_open_write_close(struct weldfs_batch *batch,
                                  const char *path,
                                  int flags,
                                  uint32_t mode,
                                  const void *from,
                                  size_t len,
                                  uint64_t offset);

/*
 Adds weldfs_open_read_close.
 */
int weldfs_batch_open_read_close(struct weldfs_batch *batch,
                                 const char *path,
                                 int flags,
                                 void *into,
                                 size_t len,
                                 uint64_t offset);

/*
 Adds weldfs_open_read_write_close.
 */
int weldfs_batch_open_read_write_close(struct weldfs_batch *batch,
                                       const char *path,
                                       int flags,
                                       uint32_t mode,
                                       void *old,
                                       size_t old_len,
                                       uint64_t old_offset,
                                       const void *from,
                                       size_t len,
                                       uint64_t offset);

/*
 Adds weldfs_pread of at most one payload.
 */
int weldfs_batch_pread(struct weldfs_batch *batch,
                       const struct weldfs_file *file,
                       void *into,
                       size_t len,
                       uint64_t offset);

/*
 Adds weldfs_pwrite (WELDFS_END: an append) of at most one payload.
 */
int weldfs_batch_pwrite(struct weldfs_batch *batch,
                        const struct weldfs_file *file,
                        const void *from,
                        size_t len,
                        uint64_t offset);

/*
 Adds weldfs_stat_path, or with `nofollow` other than 0 weldfs_lstat_path: result 0, and *stat is filled.
 */
int weldfs_batch_stat(struct weldfs_batch *batch, const char *path, int nofollow, struct weldfs_stat *stat);

/*
 Adds weldfs_mkdir.
 */
int weldfs_batch_mkdir(struct weldfs_batch *batch, const char *path, uint32_t mode);

/*
 Adds weldfs_unlink.
 */
int weldfs_batch_unlink(struct weldfs_batch *batch, const char *path);

/*
 Runs the operations in order, and empties the batch. At most 256 of them, and a MiB of operands, are one command;
 more are several. Nothing is atomic about it: each operation is a command of its own, with its own result in
 `results` (an array of `max`, at least as many as there are operations), and others may come in between. `durable`
 is WELDFS_DEFAULT, WELDFS_VOLATILE or WELDFS_DURABLE for all, and hints for all added to that; those of the files do
 not count. Durable operations wait for the medium once, together. Returns how many operations failed.

 Errors, for the whole: -EIO (the device died: some may have run), -ENODEV, -ENOMEM, -EINVAL (`max` is too small:
 none has run, and the batch is as it was).
 */
int64_t weldfs_batch_run(struct weldfs_batch *batch,
                         uint32_t durable,
                         struct weldfs_result *results,
                         size_t max);

/*
 Attributes of `count` names, 256 in a command: of what a final symbolic link names, or with `nofollow` other than 0
 of itself. `stats` and `errors` are arrays of `count`: errors[i] is 0 and stats[i] filled, or errors[i] is -errno.
 Returns how many failed.
 */
int64_t weldfs_stat_many(const struct weldfs_client *client,
                         const char *const *paths,
                         size_t count,
                         int nofollow,
                         struct weldfs_stat *stats,
                         int *errors);

/*
 Makes a program without steps. On success *program is to be given back with weldfs_program_destroy.

 The functions below that add a step take numbers of files, buffers, registers and ranges that others gave, and
 return 0 (or the number of the file they open), -EINVAL (no such number), -E2BIG (more than 16 steps, or more slots
 than there are). What is wrong with the program as a whole, weldfs_program_run says, and weldfs_last_error in words.
 */
int weldfs_program_create(struct weldfs_program **program);

/*
 Gives a program back; NULL does nothing.
 */
void weldfs_program_destroy(struct weldfs_program *program);

/*
 Makes a program of text, as `weldfs exec` takes it (docs/COMMANDS.md has the grammar): `open /f rw; append "x"`.
 `names`, of `count` elements, says how long the ranges are that the caller has bytes for, and which keys the text
 means. A read or give without `whole` is counted in a result that the text leaves free, so that
 weldfs_operand.filled tells how much it gave; a text that takes both results itself is to say `count` for that.
 On success *program is to be given back with weldfs_program_destroy; it takes no further steps. `why`, of
 `size` bytes, gets what is wrong and where, or nothing; NULL with 0: it is not wanted.

 Errors: -EINVAL (`why` tells), -ENOKEY never: a key that does not exist is found out by the run.
 */
int weldfs_program_parse(const char *source,
                         const struct weldfs_name *names,
                         size_t count,
                         struct weldfs_program **program,
                         char *why,
                         size_t size);

/*
 The number of what a program's text calls `name`: with `@` a range, else a register. -ENOENT when there is none.
 */
int weldfs_program_find(const struct weldfs_program *program,
                        const char *name);

/*
 The program as text, one step a line, with numbers for names: as much of it as fits into `size` bytes,
 NUL-terminated. Returns the bytes that all of it has. Errors: those of a program that is none, as
 weldfs_program_run.
 */
int64_t weldfs_program_text(struct weldfs_program *program, char *into, size_t size);

/*
 Runs a program as one command, atomic as a whole unless `how` says WELDFS_STEP_BY_STEP. `operands`, of `count`
 elements, is memory for its ranges, in the order of their numbers. *outcome, unless NULL, is filled whether it
 succeeds or not. Files and keys that it names must be of the client's session, and must not have been given back.

 Errors: that of the step that failed (weldfs_last_error names it), or of a guard; before anything runs -EINVAL,
 -E2BIG, -EBADF (not a program that a device takes, weldfs_last_error says why; operands that are not those of its
 ranges), -ENOKEY, -EOPNOTSUPP with WELDFS_ON_HOST. After a failure the bytes in rooms mean something only if a step
 had given them.
 */
int weldfs_program_run(struct weldfs_program *program,
                       const struct weldfs_client *client,
                       struct weldfs_operand *operands,
                       size_t count,
                       uint32_t how,
                       struct weldfs_outcome *outcome);

/*
 A buffer of the program's own, for up to `capacity` bytes. Returns its number.
 */
int weldfs_program_buffer(struct weldfs_program *program, uint32_t capacity);

/*
 A register. Returns its number.
 */
int weldfs_program_register(struct weldfs_program *program);

/*
 A range of the caller's memory of `len` bytes; which memory, each run says. Returns its number.
 */
int weldfs_program_range(struct weldfs_program *program, uint32_t len);

/*
 Bytes that are part of the program: *literal stands for them in steps. -E2BIG when they are too long for a program.
 */
int weldfs_program_literal(struct weldfs_program *program,
                           const void *from,
                           size_t len,
                           struct weldfs_place *literal);

/*
 Which registers weldfs_outcome reports, as they stand at the end or at the failure: two, or WELDFS_NONE.
 */
int weldfs_program_results(struct weldfs_program *program, int first, int second);

/*
 A constant.
 */
struct weldfs_value weldfs_number(uint64_t number);

/*
 What a register holds when the step runs: an offset or length that an earlier step found out.
 */
struct weldfs_value weldfs_held(int register_);

/*
 Where to write: at the end of the file.
 */
struct weldfs_value weldfs_at_end(void);

/*
 Where to write: right behind the last write of the program to that file.
 */
struct weldfs_value weldfs_after_last(void);

/*
 What a buffer holds, or the buffer as a place to read into.
 */
struct weldfs_place weldfs_in_buffer(int buffer);

/*
 A range of the caller's memory.
 */
struct weldfs_place weldfs_in_range(int range);

/*
 A register as `width` bytes (1, 2, 4 or 8); `order` is 0 or WELDFS_BIG_ENDIAN.
 */
struct weldfs_place weldfs_in_register(int register_, uint32_t width, uint32_t order);

/*
 For weldfs_program_read: the bytes are wanted for their number or checksum only.
 */
struct weldfs_place weldfs_nowhere(void);

/*
 Step: opens, perhaps creates, `name` for the rest of the program. `flags` are O_ bits; `mode` is what a new file
 gets, with no umask applied. `created`, unless WELDFS_NONE, gets 1 if this step made the file, else 0. Returns the
 file's number.
 */
int weldfs_program_open(struct weldfs_program *program,
                        const char *name,
                        int flags,
                        uint32_t mode,
                        int created);

/*
 Step: takes an open file; `access` is O_RDONLY, O_WRONLY or O_RDWR, which it must have been opened for. Returns its
 number in the program.
 */
int weldfs_program_use(struct weldfs_program *program,
                       const struct weldfs_file *file,
                       int access);

/*
 Step: reads `len` bytes from `offset` into a buffer, a range or nowhere; fewer at the end of the file. `flags` is
 WELDFS_WHOLE, WELDFS_PAD or 0. `sum_to`, unless WELDFS_NONE, gets the checksum `sum` (WELDFS_CRC32C and kin) of the
 bytes read; `count_to`, unless WELDFS_NONE, their number.
 */
int weldfs_program_read(struct weldfs_program *program,
                        int file,
                        struct weldfs_value offset,
                        struct weldfs_value len,
                        struct weldfs_place into,
                        uint32_t flags,
                        uint32_t sum,
                        int sum_to,
                        int count_to);

/*
 Step: writes bytes at `offset` (a number or register, weldfs_at_end, weldfs_after_last). `sum_to`, unless
 WELDFS_NONE, gets the checksum `sum` of the bytes stored; `where_to`, unless WELDFS_NONE, where the first of them
 went.
 */
int weldfs_program_write(struct weldfs_program *program,
                         int file,
                         struct weldfs_value offset,
                         struct weldfs_place from,
                         uint32_t sum,
                         int sum_to,
                         int where_to);

/*
 Step: puts the size of a file, bytes, in a register.
 */
int weldfs_program_size(struct weldfs_program *program, int file, int register_);

/*
 Step: sets the size of a file.
 */
int weldfs_program_truncate(struct weldfs_program *program, int file, struct weldfs_value bytes);

/*
 Step: gives a file up; its number means nothing afterwards. The end of the program does that, too.
 */
int weldfs_program_close(struct weldfs_program *program, int file);

/*
 Step: makes the whole command durable, whatever the run says.
 */
int weldfs_program_sync(struct weldfs_program *program);

/*
 Step: copies `len` bytes from `offset` of one file to another; fewer where the source ends. `to_offset` as for
 weldfs_program_write. `max`: 0 when `len` is a number; else at most so many bytes, a multiple of 64 KiB, and -E2BIG
 when the register holds more. `count_to`, unless WELDFS_NONE, gets the bytes copied.
 */
int weldfs_program_copy(struct weldfs_program *program,
                        int from,
                        struct weldfs_value offset,
                        struct weldfs_value len,
                        uint32_t max,
                        int to,
                        struct weldfs_value to_offset,
                        int count_to);

/*
 Step: walks over the records of a log as weldfs_log_recover does. `offsets`, unless WELDFS_NONE, is a range for
 where the good ones begin, 8 bytes each, little-endian. The registers, unless WELDFS_NONE, get the number of good
 records, where the last ends, and why the walk ended: 0 at the end, 1 a record that is cut, 2 a wrong checksum, 3 no
 more room for offsets, 4 a head of zeros.
 */
int weldfs_program_scan(struct weldfs_program *program,
                        int file,
                        struct weldfs_value offset,
                        struct weldfs_value len,
                        const struct weldfs_log_format *format,
                        int offsets,
                        int count_to,
                        int end_to,
                        int why_to);

/*
 Step: puts the checksum `sum` (WELDFS_CRC32C and kin) of bytes in a register.
 */
int weldfs_program_checksum(struct weldfs_program *program,
                            uint32_t sum,
                            struct weldfs_place of,
                            int register_);

/*
 Step: changes what a buffer holds from `offset` on: WELDFS_PATCH, WELDFS_AND, WELDFS_OR, WELDFS_XOR with `operand`,
 or WELDFS_COMPARE_SWAP: `operand` in place of `expect`, else -ECANCELED (`expect` is weldfs_nowhere() for the
 others). -ERANGE when the buffer ends before.
 */
int weldfs_program_change(struct weldfs_program *program,
                          int buffer,
                          struct weldfs_value offset,
                          int change,
                          struct weldfs_place operand,
                          struct weldfs_place expect);

/*
 Step: adds, wrapping, to the number of `width` bytes (1, 2, 4 or 8) that lies in a buffer at `offset`; `order` is 0
 or WELDFS_BIG_ENDIAN.
 */
int weldfs_program_add(struct weldfs_program *program,
                       int buffer,
                       struct weldfs_value offset,
                       uint32_t width,
                       uint32_t order,
                       struct weldfs_value by);

/*
 Step: puts the number of `width` bytes that lies in a buffer at `offset` in a register. `order` as above.
 */
int weldfs_program_load(struct weldfs_program *program,
                        int buffer,
                        struct weldfs_value offset,
                        uint32_t width,
                        uint32_t order,
                        int register_);

/*
 Step: puts a number computed of two others in a register.
 */
int weldfs_program_compute(struct weldfs_program *program,
                           int register_,
                           struct weldfs_value a,
                           int operation,
                           struct weldfs_value b);

/*
 Step: puts bytes in a buffer; with `append` other than 0 behind what it holds, else in its place.
 */
int weldfs_program_fill(struct weldfs_program *program, int buffer, struct weldfs_place from, int append);

/*
 Step: puts `len` bytes from `offset` of what `from` holds in `buffer` (perhaps the same). -ERANGE when there are
 fewer.
 */
int weldfs_program_slice(struct weldfs_program *program,
                         int buffer,
                         int from,
                         struct weldfs_value offset,
                         struct weldfs_value len);

/*
 Step: hands what a buffer holds to the caller, in a range. -ERANGE when that is too short. `count_to`, unless
 WELDFS_NONE, gets the number of bytes.
 */
int weldfs_program_give(struct weldfs_program *program, int buffer, int range, int count_to);

/*
 Step: puts the number of bytes that a buffer holds in a register.
 */
int weldfs_program_length(struct weldfs_program *program, int buffer, int register_);

/*
 Step: puts in `buffer` what a codec makes of what `from` holds; -E2BIG when it has no room for that.
 */
int weldfs_program_transform(struct weldfs_program *program, int buffer, int from, int what, uint32_t codec);

/*
 Step: puts in `buffer` what the kernel `name` makes of what `from` holds, in an FPGA slot. `params`, of `count`
 elements, are its parameters: numbers of 32 bits, or registers, of which the low 32 bits are meant (among the first
 64). The buffer's size says how long the output may be.

 Errors of the step when it runs: -ENOENT (no kernel is called so), -EINVAL (its parameters), -EBADMSG (the bytes are
 not what it takes), -E2BIG (more output than there is room for), -EIO (the slot was lost), -EOPNOTSUPP (no slots).
 */
int weldfs_program_kernel(struct weldfs_program *program,
                          int buffer,
                          int from,
                          const char *name,
                          const struct weldfs_value *params,
                          size_t count);

/*
 Step: puts in `buffer` the ciphertext (or plaintext) of what `from` holds, which may not be the same buffer. `unit`
 0: a record, with a GCM key; `bound` are bytes that its tag covers besides (no range; weldfs_nowhere(): none), and
 `first` is weldfs_number(0). Else data units of `unit` bytes, with an XTS key; `first` is the number of the first of
 them: its offset divided by `unit`. The key must not be given back before the last run.
 */
int weldfs_program_cipher(struct weldfs_program *program,
                          int buffer,
                          int from,
                          int what,
                          const struct weldfs_key *key,
                          uint32_t unit,
                          struct weldfs_value first,
                          struct weldfs_place bound);

/*
 Step, a guard: goes on if `a` stands in `relation` to `b`: a checksum, a number of bytes read, whether a file was
 created. Else what `otherwise` says, with its errno or number of steps.
 */
int weldfs_program_guard(struct weldfs_program *program,
                         struct weldfs_value a,
                         int relation,
                         struct weldfs_value b,
                         int otherwise,
                         int number);

/*
 Step, a guard: goes on if a buffer holds these bytes at `offset`. Else as weldfs_program_guard.
 */
int weldfs_program_guard_holds(struct weldfs_program *program,
                               int buffer,
                               struct weldfs_value offset,
                               struct weldfs_place bytes,
                               int otherwise,
                               int number);

/*
 Step: unlink(2).
 */
int weldfs_program_unlink(struct weldfs_program *program, const char *path);

/*
 Step: rmdir(2).
 */
int weldfs_program_rmdir(struct weldfs_program *program, const char *path);

/*
 Step: mkdir(2); no umask is applied to `mode`.
 */
int weldfs_program_mkdir(struct weldfs_program *program, const char *path, uint32_t mode);

/*
 Step: renameat2(2), with `flags` as for weldfs_rename.
 */
int weldfs_program_rename(struct weldfs_program *program, const char *from, const char *to, uint32_t flags);

/*
 Step: link(2); with `follow` other than 0 a final symbolic link of `from` is followed.
 */
int weldfs_program_link(struct weldfs_program *program, const char *from, const char *to, int follow);

/*
 Step: symlink(2): makes `path` a symbolic link that says `target`.
 */
int weldfs_program_symlink(struct weldfs_program *program, const char *target, const char *path);

/*
 Step: changes permission bits (`mode`, unless WELDFS_NONE), size (with WELDFS_SET_SIZE) and times of what is at
 `path`.
 */
int weldfs_program_set(struct weldfs_program *program,
                       const char *path,
                       int mode,
                       struct weldfs_value size,
                       uint32_t flags);

/*
 Makes a virtual file: a name whose bytes a kernel makes in one of the drive's slots. It has an owner (who makes it;
 weldfs_lchown changes it), permission bits (`mode`, less the umask) and times like any file, and stays over a
 remount. The real files are looked for when it is opened, with the rights of who opens it.

 Errors: -EEXIST; those of making a file; -EINVAL (a kernel's name of other letters, no range, a path that is not
 absolute, several ranges with WELDFS_VIRT_WRITE), -E2BIG (more than 4096 bytes of spec, or 64 ranges), -EOPNOTSUPP
 on a directory of the host.
 */
int weldfs_virt_register(const struct weldfs_client *client,
                         const char *name,
                         uint32_t mode,
                         const struct weldfs_virt_spec *wanted);

/*
 What a virtual file streams. Its strings and arrays are put into `size` bytes at `memory`, to which *found points
 then. Returns the bytes used. WELDFS_VIRT_ROOM bytes are always enough.

 Errors: -EINVAL when it is no virtual file, -ERANGE when they do not fit, -EIO when the spec in the image is
 damaged, -EACCES, those of paths.
 */
int64_t weldfs_virt_describe(const struct weldfs_client *client,
                             const char *name,
                             struct weldfs_virt_spec *found,
                             void *memory,
                             size_t size);

/*
 Removes a virtual file, and nothing else. Its real files stay. The look at it and its removal are two commands.

 Errors: -EINVAL for what is no virtual file (a symbolic link to one is none), those of unlink(2).
 */
int weldfs_virt_remove(const struct weldfs_client *client,
                       const char *name);

/*
 Begins to list the virtual files of a tree, or that one file itself. Symbolic links are followed at the top only.
 On success *walk is to be given back with weldfs_virt_end.
 */
int weldfs_virt_list(const struct weldfs_client *client,
                     const char *top,
                     struct weldfs_virt_walk **walk);

/*
 The next virtual file: 1, with its path in *name and what it streams in *found, or 0 at the end. What they point to
 is the walk's, until the next call. A negative result is that of one name, which *name is, and the walk goes on:
 -EACCES (what that virtual file streams, or what is in that directory, may not be known), -EIO. *name is NULL at the
 end, and where the walk itself is misused (-EINVAL, and in a forked child -EBADF).
 */
int weldfs_virt_next(const struct weldfs_virt_walk *walk,
                     const char **name,
                     struct weldfs_virt_spec *found);

/*
 Ends a listing. NULL does nothing.
 */
void weldfs_virt_end(struct weldfs_virt_walk *walk);

/*
 Opens a virtual file: `flags` are O_RDONLY or O_WRONLY, as its spec has it, with O_NONBLOCK reads and writes are
 -EBUSY while no slot is free, else they wait. The ranges of the real files are pinned until it is closed: what would
 cut them off is -ETXTBSY. Any other file opens, too, and is read and written as such. On success *file is to be
 given back with weldfs_vclose.

 Errors: -EINVAL (O_CREAT, O_TMPFILE), -ENOENT (the name, a real file, or the kernel is not there), -ENODEV (the
 kernel is not active), -EACCES (also: a real file is not for who opens this), -EPERM (the other direction), -ENODATA
 (a real file ends before its range does), -EISDIR, -ELOOP (a real file is a virtual one), -EROFS, -EIO.
 */
int weldfs_vopen(const struct weldfs_client *client,
                 const char *name,
                 int flags,
                 struct weldfs_vfile **file);

/*
 The next bytes that the kernel makes, at most `len`: as many as there are without much delay. Returns them; 0 at
 the end of the stream.

 Errors: -EBUSY (no slot is free, with O_NONBLOCK), -ENOMEM (the tenant may have no more memory for the slot),
 -EINVAL (the kernel refuses its parameters), -ENOSPC (it is too large for every slot), -EBADMSG (it refuses the
 data), -EIO (it was lost), -ESTALE (a slot that others needed meanwhile is had again, and what was read before would
 be other bytes now). After an error weldfs_vrewind begins anew.
 */
int64_t weldfs_vread(const struct weldfs_vfile *file,
                     void *into,
                     size_t len);

/*
 Hands bytes to the kernel; what that makes goes to the real file, in pieces of at most 1 MiB. Returns the bytes
 taken: all of them. What has got to the file is persistent with weldfs_vsync.

 Errors: as weldfs_vread, and those of writing the real file; -EFBIG (the range has no more room), -ETIMEDOUT (the
 slot went to others after 2 s without a write). An error ends the stream: each later write, vsync and the vclose
 have it again.
 */
int64_t weldfs_vwrite(const struct weldfs_vfile *file,
                      const void *from,
                      size_t len);

/*
 Ends the packet that was written: what the kernel makes of it is in the real file, and persistent. Returns the bytes
 that have got to the range since the open; of a file that is read 0. What is written afterwards is another packet.
 Errors as weldfs_vwrite.
 */
int64_t weldfs_vsync(const struct weldfs_vfile *file);

/*
 Ends the packet as weldfs_vsync does, but for making it persistent, and closes. Returns the bytes that have got to
 the range since the open; of a file that is read, and of NULL, 0. The object is gone whatever the result says. No
 other call may use it at the same time or later. Errors as weldfs_vwrite.
 */
int64_t weldfs_vclose(struct weldfs_vfile *file);

/*
 Begins to read anew: the slot is given back, and the next read is of a new stream. -ESPIPE for one
 that has been written to.
 */
int weldfs_vrewind(const struct weldfs_vfile *file);

/*
 Gives the next stream other parameters than the spec's; up to 4096 of them.

 Errors: -EBUSY while a stream is under way (weldfs_vrewind or weldfs_vsync ends it), -E2BIG, -EINVAL for a file that
 is no virtual one. Whether the kernel takes them the next read or write says.
 */
int weldfs_send_params(const struct weldfs_vfile *file,
                       const uint32_t *params,
                       size_t param_count);

/*
 The device's slots, kernels and what tenants used of them, as a JSON object: as much of it as fits into `size`
 bytes, NUL-terminated. Returns the bytes that all of it has, without the NUL; `size` 0 asks for that alone.
 docs/SLOTS.md has the fields.

 Errors: -EOPNOTSUPP on a directory of the host, which has no kernels.
 */
int64_t weldfs_kernels_json(const struct weldfs_client *client,
                            char *json,
                            size_t size);

/*
 Loads a kernel's package: `folder` is a folder of the host with a kernel.toml, given by its absolute path, that the
 device's process can read. Its name is put into `size` bytes at `name`, NUL-terminated, as much of it as fits (32
 bytes are enough). Returns the name's length. It cannot be used before weldfs_kernel_activate.

 Errors: -EPERM (only root and the user that runs the device may), -EINVAL (it is no package), -ENOENT (a file is
 missing), -EACCES, -EEXIST (the device has another kernel of that name, or of that id), -EOPNOTSUPP.
 */
int64_t weldfs_kernel_load(const struct weldfs_client *client,
                           const char *folder,
                           char *name,
                           size_t size);

/*
 From now on the kernel can be used.

 Errors: -ENOENT (the device has no such kernel), -EPERM, -EOPNOTSUPP.
 */
int weldfs_kernel_activate(const struct weldfs_client *client, const char *name);

/*
 From now on the kernel cannot be used.

 Errors: -EBUSY (a stream or command has it in a slot), -ENOENT, -EPERM, -EOPNOTSUPP.
 */
int weldfs_kernel_deactivate(const struct weldfs_client *client, const char *name);

/*
 Takes a kernel that was loaded, and is not active, out of the device's list.

 Errors: -EBUSY (it is active), -ENOENT, -EPERM (also: the device brings it), -EOPNOTSUPP.
 */
int weldfs_kernel_unload(const struct weldfs_client *client, const char *name);

/*
 Chooses the back-end (model, rtl, hls, xrt) of a kernel that runs where none is named.

 Errors: -ENOENT (no such kernel; nothing is called a back-end so), -EINVAL (the kernel has none of that kind),
 -EPERM, -EOPNOTSUPP.
 */
int weldfs_kernel_prefer(const struct weldfs_client *client,
                         const char *name,
                         const char *backend);

/*
 The value of a debug port, by its number, of a kernel that is in a slot: that of the last packet.

 Errors: -ENOENT (it is in no slot, or has no such port), -EPERM, -EOPNOTSUPP.
 */
int weldfs_kernel_peek(const struct weldfs_client *client, const char *name, uint32_t port, uint32_t *value);

/*
 Makes a queue. `options` may be NULL. On success *queue is to be given back with weldfs_queue_destroy.

 With WELDFS_QUEUE_REAPER a thread of the library waits for completions and runs the callbacks; a job without a
 callback is then not reported. Without it, callbacks run in weldfs_queue_reap.

 Errors: -EMFILE (a session has 64 queue pairs), -ENODEV, -EAGAIN (no more threads), -EINVAL.
 */
int weldfs_queue_create(const struct weldfs_client *client,
                        const struct weldfs_queue_options *options,
                        struct weldfs_queue **queue);

/*
 Gives a queue back; NULL does nothing. Commands in flight run all the same, but are not reported: no callback
 starts and no memory of the program's is written to after this returns (a callback that runs on another thread at
 this moment finishes there). With commands in flight it may take half a second. Buffers of the queue stay valid
 until they are freed. No other call may use `queue` at the same time or later, and no callback that is still
 running.
 */
void weldfs_queue_destroy(struct weldfs_queue *queue);

/*
 Makes submitted commands visible to the device: for those submitted with WELDFS_MORE.
 */
int weldfs_queue_flush(const struct weldfs_queue *queue);

/*
 Delivers at most `max` completions that are there: runs their callbacks, and copies each into `done` (an array of
 `max`, or NULL if only callbacks count). Waits for the first up to `timeout_ms` milliseconds, 0: not at all, -1: as
 long as it takes; not at all when nothing is in flight. Returns how many it delivered. When it finds none, the
 eventfd stops being readable.

 Completions of jobs without a callback that are delivered into NULL are lost. When the device died, what was in
 flight is delivered with -EIO (its outcome is unknown) within a second.
 */
int64_t weldfs_queue_reap(const struct weldfs_queue *queue,
                          struct weldfs_completion *done,
                          size_t max,
                          int timeout_ms);

/*
 The descriptor that is readable while completions wait, for epoll and poll: from when something completed until a
 weldfs_queue_reap found nothing. Reap until 0, then wait for it again (level- or edge-triggered). It may also be
 readable for nothing. It belongs to the queue; do not close or read it.

 The device wakes its clients by a futex, so the first call starts a thread of the library that turns this into the
 descriptor; it sleeps while nothing is in flight. -EBUSY for a queue made with WELDFS_QUEUE_REAPER.
 */
int weldfs_queue_eventfd(const struct weldfs_queue *queue);

/*
 Commands submitted and not yet completed.
 */
int64_t weldfs_queue_in_flight(const struct weldfs_queue *queue);

/*
 Forgets a job by its ticket. The command runs all the same (a command cannot be recalled), but its callback is not
 called, no reap returns it, and memory of the program's that it named is the program's again at once. Memory in a
 weldfs_buf stays the command's until it completes.

 -ENOENT when there is no such job (any more): its completion has been delivered, or is being delivered by another
 thread at this moment.
 */
int weldfs_forget(const struct weldfs_queue *queue,
                  uint64_t ticket);

/*
 A buffer of `len` bytes of the queue's pool. On success *buf is to be given back with weldfs_buf_free. A submission
 that names memory inside it copies nothing. -EAGAIN when the pool has no room now, -ENOMEM when it never will.
 */
int weldfs_buf_alloc(const struct weldfs_queue *queue,
                     size_t len,
                     struct weldfs_buf **buf);

/*
 Where the buffer's bytes are; NULL for no buffer, and in a forked child. Aligned to its length rounded up to a power
 of two, at most a page.
 */
void *weldfs_buf_data(const struct weldfs_buf *buf);

/*
 Bytes it holds; 0 for NULL.
 */
size_t weldfs_buf_len(const struct weldfs_buf *buf);

/*
 Gives a buffer back; NULL does nothing. While commands in flight use it, its memory stays theirs; the program must
 no longer touch it all the same.
 */
void weldfs_buf_free(struct weldfs_buf *buf);

/*
 Submits a command that does nothing.

 All weldfs_submit_ functions return 0 when the command is on its way, and its result comes with the completion; or
 at once -EAGAIN (the ring or the pool is full: reap, then try again), -EINVAL, -EBADF (also in a forked child),
 -ENOMEM (it never fits the queue's pool), -ENODEV (the device is gone); then nothing was sent and nothing is called.
 `job` may be NULL. Memory to read from is copied at once, unless it lies in a weldfs_buf of the same queue; memory
 to read into, and any memory in a weldfs_buf, is the command's until it completes or is forgotten. Strings are
 copied.
 */
int weldfs_submit_nop(const struct weldfs_queue *queue,
                      const struct weldfs_job *job);

/*
 Submits weldfs_pread: result is the bytes read. At most weldfs_info.payload_max bytes, else -E2BIG.
 */
int weldfs_submit_pread(const struct weldfs_queue *queue,
                        const struct weldfs_file *file,
                        void *into,
                        size_t len,
                        uint64_t offset,
                        const struct weldfs_job *job);

/*
 Submits weldfs_pwrite (WELDFS_END: an append): result is the bytes written, value where the first went. At most
 weldfs_info.payload_max bytes, else -E2BIG.
 */
int weldfs_submit_pwrite(const struct weldfs_queue *queue,
                         const struct weldfs_file *file,
                         const void *from,
                         size_t len,
                         uint64_t offset,
                         const struct weldfs_job *job);

/*
 Submits weldfs_pwrite_verified: result and value as of weldfs_submit_pwrite, -EBADMSG when the checksum is another.
 */
int weldfs_submit_pwrite_verified(const struct weldfs_queue *queue,
                                  const struct weldfs_file *file,
                                  const void *from,
                                  size_t len,
                                  uint64_t offset,
                                  uint32_t checksum,
                                  const struct weldfs_job *job);

/*
 Submits weldfs_open: result 0, created says whether the file is new. *file is NULL at once, and the open file when
 the completion is delivered (not before: not in a callback of another job); it is to be given back as ever. `file`
 must stay until then. When the job is forgotten, the file is closed again and *file stays NULL.
 */
int weldfs_submit_open(const struct weldfs_queue *queue,
                       const char *name,
                       int flags,
                       uint32_t mode,
                       struct weldfs_file **file,
                       const struct weldfs_job *job);

/*
 Submits weldfs_close: result 0. When this returns 0 the object is gone, and no other call may use it at the same
 time or later; else it is the program's still. Commands on it that are in flight on other queues may be overtaken.
 */
int weldfs_submit_close(const struct weldfs_queue *queue,
                        struct weldfs_file *file,
                        const struct weldfs_job *job);

/*
 Submits weldfs_fsync: result 0.
 */
int weldfs_submit_fsync(const struct weldfs_queue *queue,
                        const struct weldfs_file *file,
                        const struct weldfs_job *job);

/*
 Submits weldfs_fdatasync: result 0.
 */
int weldfs_submit_fdatasync(const struct weldfs_queue *queue,
                            const struct weldfs_file *file,
                            const struct weldfs_job *job);

/*
 Submits weldfs_sync: result 0.
 */
int weldfs_submit_sync(const struct weldfs_queue *queue, const struct weldfs_job *job);

/*
 Submits weldfs_ftruncate: result 0.
 */
int weldfs_submit_ftruncate(const struct weldfs_queue *queue,
                            const struct weldfs_file *file,
                            uint64_t bytes,
                            const struct weldfs_job *job);

/*
 Submits weldfs_unlink: result 0.
 */
int weldfs_submit_unlink(const struct weldfs_queue *queue, const char *path, const struct weldfs_job *job);

/*
 Submits weldfs_mkdir: result 0.
 */
int weldfs_submit_mkdir(const struct weldfs_queue *queue,
                        const char *path,
                        uint32_t mode,
                        const struct weldfs_job *job);

/*
 Submits weldfs_stat_path: result 0, and then *stat is filled when the completion is delivered. It may not lie in a
 weldfs_buf.
 */
int weldfs_submit_stat_path(const struct weldfs_queue *queue,
                            const char *path,
                            struct weldfs_stat *stat,
                            const struct weldfs_job *job);

/*
 Submits weldfs_lstat_path: as weldfs_submit_stat_path.
 */
int weldfs_submit_lstat_path(const struct weldfs_queue *queue,
                             const char *path,
                             struct weldfs_stat *stat,
                             const struct weldfs_job *job);

/*
 Submits weldfs_fstat: as weldfs_submit_stat_path.
 */
int weldfs_submit_fstat(const struct weldfs_queue *queue,
                        const struct weldfs_file *file,
                        struct weldfs_stat *stat,
                        const struct weldfs_job *job);

/*
 Submits weldfs_rename: result 0.
 */
int weldfs_submit_rename(const struct weldfs_queue *queue,
                         const char *from,
                         const char *to,
                         uint32_t flags,
                         const struct weldfs_job *job);

/*
 Submits weldfs_open_write_close: result is the bytes written, value where the first went, `created` whether the file
 is new.
 */
int weldfs_submit_open_write_close(const struct weldfs_queue *queue,
                                   const char *path,
                                   int flags,
                                   uint32_t mode,
                                   const void *from,
                                   size_t len,
                                   uint64_t offset,
                                   const struct weldfs_job *job);

/*
 Submits weldfs_open_read_close: result is the bytes read.
 */
int weldfs_submit_open_read_close(const struct weldfs_queue *queue,
                                  const char *path,
                                  int flags,
                                  void *into,
                                  size_t len,
                                  uint64_t offset,
                                  const struct weldfs_job *job);

/*
 Submits weldfs_open_read_write_close: result is the bytes read, value where the write went, `created` whether the
 file is new.
 */
int weldfs_submit_open_read_write_close(const struct weldfs_queue *queue,
                                        const char *path,
                                        int flags,
                                        uint32_t mode,
                                        void *old,
                                        size_t old_len,
                                        uint64_t old_offset,
                                        const void *from,
                                        size_t len,
                                        uint64_t offset,
                                        const struct weldfs_job *job);

/*
 Submits weldfs_append_checksum_write: result is where the first byte went, value the checksum.
 */
int weldfs_submit_append_checksum_write(const struct weldfs_queue *queue,
                                        const struct weldfs_file *file,
                                        const void *from,
                                        size_t len,
                                        const struct weldfs_job *job);

/*
 Submits weldfs_read_checksum_verify: result is not negative when the bytes match, -EBADMSG when they do not; value
 is the checksum of those that are there.
 */
int weldfs_submit_read_checksum_verify(const struct weldfs_queue *queue,
                                       const struct weldfs_file *file,
                                       void *into,
                                       uint32_t len,
                                       uint64_t offset,
                                       const struct weldfs_job *job);

/*
 Submits weldfs_read_modify_write: result is not negative when the field was changed, -ECANCELED when a
 compare-and-swap found something else.
 */
int weldfs_submit_read_modify_write(const struct weldfs_queue *queue,
                                    const struct weldfs_file *file,
                                    uint64_t offset,
                                    int kind,
                                    const void *operand,
                                    const void *expect,
                                    size_t len,
                                    void *old,
                                    const struct weldfs_job *job);

/*
 Submits weldfs_checksum_range: result is the bytes there were, value their checksum.
 */
int weldfs_submit_checksum_range(const struct weldfs_queue *queue,
                                 const struct weldfs_file *file,
                                 uint64_t offset,
                                 uint64_t len,
                                 const struct weldfs_job *job);

/*
 Submits weldfs_program_run, as all or nothing and where the device thinks best: result 0, value that of the outcome.
 `operands` and what they point to are the command's until it completes or is forgotten, and so is `outcome`, unless
 NULL; they are filled when the completion is delivered (with zeros where the device died: -EIO). None of them may
 lie in a weldfs_buf. The program is the caller's at once. Its ranges and steps must fit one piece of the queue's
 pool, else -ENOMEM.
 */
int weldfs_submit_program(const struct weldfs_queue *queue,
                          struct weldfs_program *program,
                          struct weldfs_operand *operands,
                          size_t count,
                          struct weldfs_outcome *outcome,
                          const struct weldfs_job *job);

/*
 Submits weldfs_multi_write: result 0. The bytes are copied at once.
 */
int weldfs_submit_multi_write(const struct weldfs_queue *queue,
                              const struct weldfs_write_item *writes,
                              size_t count,
                              const struct weldfs_job *job);

/*
 Submits weldfs_txn_write: result is the bytes logged, value how many writes are. At most weldfs_info.payload_max
 bytes, else -E2BIG. A transaction's writes run in any order; submit its commit when they have completed.
 */
int weldfs_submit_txn_write(const struct weldfs_queue *queue,
                            const struct weldfs_txn *txn,
                            const struct weldfs_file *file,
                            const void *from,
                            size_t len,
                            uint64_t offset,
                            const struct weldfs_job *job);

/*
 Submits weldfs_txn_commit: result is the bytes written. When this returns 0 the object is gone, and no other call
 may use it at the same time or later; else it is the program's still.
 */
int weldfs_submit_txn_commit(const struct weldfs_queue *queue,
                             struct weldfs_txn *txn,
                             const struct weldfs_job *job);

/*
 Appends `len` bytes durably, whatever the client's durability: a write and an fdatasync as one command. *where,
 unless NULL: where the first byte went. Errors: -EBADF, -E2BIG, -ENOSPC.
 */
int weldfs_append_and_sync(const struct weldfs_file *file,
                           const void *from,
                           size_t len,
                           uint64_t *where);

/*
 Submits weldfs_append_and_sync: result is where the first byte went. The bytes are copied at once.

 ```c
 weldfs_file *file;
 assert(weldfs_open(client, "/kept", O_WRONLY | O_CREAT, 0600, &file) == 0);
 weldfs_job job = {.size = sizeof job};
 weldfs_completion done;
 assert(weldfs_submit_append_and_sync(queue, file, "one", 3, &job) == 0);
 assert(weldfs_queue_reap(queue, &done, 1, -1) == 1 && done.result == 0);
 assert(weldfs_submit_append_and_sync(queue, file, "two", 3, &job) == 0);
 assert(weldfs_queue_reap(queue, &done, 1, -1) == 1 && done.result == 3);
 assert(weldfs_close(file) == 0);
 ```
 */
int weldfs_submit_append_and_sync(const struct weldfs_queue *queue,
                                  const struct weldfs_file *file,
                                  const void *from,
                                  size_t len,
                                  const struct weldfs_job *job);

/*
 Appends `len` bytes to the log `name`, as one command. A log that has bytes, and would have more than `limit`
 afterwards, is renamed to `old` first (what was called so is gone), and the bytes are the beginning of a new file. A
 file that is made gets `mode`, less the umask. Any number of processes may append to one log so: others, and what is
 found after a crash, see all of a call or nothing (unless `how` has WELDFS_STEP_BY_STEP, and not on a directory of
 the host). *where and *rotated, unless NULL: where the first byte went, and 1 if the log was renamed, else 0.

 ```c
 uint64_t where;
 int rotated;
 assert(weldfs_append_and_rotate(client, "/log", "/log.1", 10, 0640, "one two", 7, 0, &where, &rotated) == 0);
 assert(where == 0 && rotated == 0);
 assert(weldfs_append_and_rotate(client, "/log", "/log.1", 10, 0640, "!!!!", 4, 0, &where, &rotated) == 0);
 assert(where == 0 && rotated == 1);
 ```

 Errors: those of open, write and rename; -ELOOP when `name` is a symbolic link, -E2BIG above the payload limit; when
 the log is to be renamed, -EEXIST if both names are the same file's.
 */
int weldfs_append_and_rotate(const struct weldfs_client *client,
                             const char *name,
                             const char *old,
                             uint64_t limit,
                             uint32_t mode,
                             const void *from,
                             size_t len,
                             uint32_t how,
                             uint64_t *where,
                             int *rotated);

/*
 Submits weldfs_append_and_rotate, with no `how`: result is where the first byte went, value 1 if the log was
 renamed, else 0. The bytes are copied at once.

 ```c
 weldfs_job job = {.size = sizeof job};
 weldfs_completion done;
 assert(weldfs_submit_append_and_rotate(queue, "/log", "/log.1", 10, 0640, "?", 1, &job) == 0);
 assert(weldfs_queue_reap(queue, &done, 1, -1) == 1 && done.result == 4 && done.value == 0);
 ```
 */
int weldfs_submit_append_and_rotate(const struct weldfs_queue *queue,
                                    const char *name,
                                    const char *old,
                                    uint64_t limit,
                                    uint32_t mode,
                                    const void *from,
                                    size_t len,
                                    const struct weldfs_job *job);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WELDFS_H */
