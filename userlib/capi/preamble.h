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
