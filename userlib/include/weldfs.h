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
 * Ownership. Objects (client, file, dir, queue, buf) are made through a pointer to a pointer, which is NULL on failure,
 * and given back once, to the function named; that function accepts NULL. A client may be detached before its files are
 * closed. Memory passed to a function is used during the call only, unless it says otherwise; pointers must be valid for
 * the lengths given. Strings end in NUL. Structures that begin with `size` must be zeroed first and have `size` set to
 * their sizeof: programs and libraries of different versions then understand each other. Reserved fields are zero.
 *
 * Units. Sizes and offsets are bytes; times are nanoseconds unless the name says _ms.
 *
 * Durability. See WELDFS_DEFAULT, WELDFS_VOLATILE and WELDFS_DURABLE; calls without such an argument have the client's
 * (weldfs_options.durability). fsync and its kin make persistent what was done before, whatever it asked for.
 *
 * Threads. Any object may be used by any number of threads at the same time, except while it is given back. A thread
 * keeps a queue pair of its own per client; calls take no lock then. Calls are not cancellation points.
 *
 * Fork. The child's first call attaches anew. Files, directories, queues and buffers of the parent (and whatever else was
 * made from a client before the fork) give -EBADF there; giving them back is allowed. That holds whatever other threads
 * of the parent were doing at the fork. An embedded device does not survive into a child: -ENODEV.
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
 Durability: visible to everybody when the call returns; persistent with the next fsync of the file, the next durable
 change, or within 5 s.
 */
#define WELDFS_VOLATILE 1

/*
 Durability: persistent when the call returns.
 */
#define WELDFS_DURABLE 2

/*
 An offset that means the end of the file: an append, atomic against every other writer.
 */
#define WELDFS_END 18446744073709551615ull

/*
 weldfs_options.flags: `umask` counts. Without it, the process's own umask (as it is at attach) applies.
 */
#define WELDFS_OPTION_UMASK 1

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
 A queue of commands in flight, on a queue pair of its own. Any number of threads may use it at the same time.

 Commands on one file run in the order they were submitted to this queue, others in any order. In a forked child
 every call gives -EBADF.
 */
typedef struct weldfs_queue weldfs_queue;

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
     Zero.
     */
    uint64_t reserved[6];
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
     Zero.
     */
    uint8_t reserved0[6];
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
 How a command is to be submitted, and who hears of it. Zero the whole, set `size`. NULL in its place: nobody hears.
 */
typedef struct weldfs_job {
    /*
     sizeof(struct weldfs_job).
     */
    size_t size;
    /*
     WELDFS_MORE or 0.
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
 What went wrong in the last call of this thread that failed: its name, the errno, and a detail where there is one.
 Valid until the thread's next call of this function. Never NULL.
 */
const char *weldfs_last_error(void);

/*
 Attaches to the device that listens at the Unix socket `socket` (weldfs serve says where). `options` may be NULL.
 On success *client is the attachment, to be given back with weldfs_detach; else NULL.

 Errors: -ENOENT and -ECONNREFUSED (nobody serves there), -EACCES (nobody's token, or the socket's permissions),
 -EPROTO (something else listens there), -EMFILE (too many sessions), -EINVAL.
 */
int weldfs_attach(const char *socket,
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
 Everything completed before, by anybody, is persistent on return.
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
 unlink(2). The file lives on while somebody has it open.
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
 WELDFS_END), closes, as one command: nobody gets in between. `flags` with O_RDWR. Returns the bytes read.
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
 Makes a queue. `options` may be NULL. On success *queue is to be given back with weldfs_queue_destroy.

 With WELDFS_QUEUE_REAPER a thread of the library waits for completions and runs the callbacks; a job without a
 callback is then heard of by nobody. Without it, callbacks run in weldfs_queue_reap.

 Errors: -EMFILE (a session has 64 queue pairs), -ENODEV, -EAGAIN (no more threads), -EINVAL.
 */
int weldfs_queue_create(const struct weldfs_client *client,
                        const struct weldfs_queue_options *options,
                        struct weldfs_queue **queue);

/*
 Gives a queue back; NULL does nothing. Commands in flight run all the same, but nobody hears of them: no callback
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
 -ENOMEM (it never fits the queue's pool), -ENODEV (the device is gone); then nothing was sent and nobody is called.
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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WELDFS_H */
