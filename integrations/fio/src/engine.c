/*
 * fio's engine `weldfs`: reads, writes, syncs and trims as commands of a device. docs/engines/FIO.md is the
 * introduction.
 *
 *   options      target, mode
 *   places       where fio's blocks lie in a file: as they are, or each with its checksum behind it
 *   one by one   iodepth=1: a call that returns when the command is over
 *   in flight    iodepth above 1: a queue of the device's
 *   files        opened, laid out, measured and removed
 *   jobs         begin and end; fio's table
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

#include "fio.h"
#include "optgroup.h"
#include "weldfs.h"

/* ---- options ---- */

enum { MODE_PLAIN, MODE_FUSED };

struct options {
    void *pad; /* fio takes an option at offset 0 for none */
    char *target;
    unsigned int mode;
};

static struct fio_option engine_options[] = {
    {
        .name = "weldfs_target",
        .lname = "WeldFS target",
        .type = FIO_OPT_STR_STORE,
        .off1 = offsetof(struct options, target),
        .help = "An image, or the socket of a device",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {
        .name = "weldfs_mode",
        .lname = "WeldFS mode",
        .type = FIO_OPT_STR,
        .off1 = offsetof(struct options, mode),
        .help = "What a block is in the device",
        .def = "plain",
        .posval = {
            { .ival = "plain", .oval = MODE_PLAIN, .help = "Its bytes" },
            { .ival = "fused", .oval = MODE_FUSED, .help = "Its bytes and a checksum, made and verified there" },
        },
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    { .name = NULL },
};

static const struct options *options_of(struct thread_data *td)
{
    return td->eo;
}

/* What a job has between its init and its cleanup. */
struct job {
    weldfs_client *client;
    weldfs_queue *queue; /* NULL: one by one */
    weldfs_completion *done; /* what fio has asked for last */
    weldfs_completion *kept; /* what was reaped before fio asked */
    unsigned int keeps;
    uint32_t durability;
    size_t payload_max;
};

/* What a file has while it is open: fio's engine_data. */
struct open_file {
    weldfs_file *file;
    uint64_t end; /* where the next record goes that is appended, fused */
};

/* ---- places ---- */

#define SUM 4 /* bytes of a CRC-32C */

static bool fused(struct thread_data *td)
{
    return options_of(td)->mode == MODE_FUSED;
}

/* Where the block at an offset of fio's lies. */
static uint64_t place(struct thread_data *td, uint64_t offset)
{
    return fused(td) ? offset / td->o.min_bs[DDIR_WRITE] * (td->o.min_bs[DDIR_WRITE] + SUM) : offset;
}

/* Bytes of fio's in a file of so many. */
static uint64_t content(struct thread_data *td, uint64_t bytes)
{
    return fused(td) ? bytes / (td->o.min_bs[DDIR_WRITE] + SUM) * td->o.min_bs[DDIR_WRITE] : bytes;
}

/* Records are blocks of one size at multiples of it. */
static const char *unfit_for_records(struct thread_data *td)
{
    const unsigned long long bs = td->o.min_bs[DDIR_WRITE];
    enum fio_ddir d;

    for (d = DDIR_READ; d <= DDIR_WRITE; d++)
        if (td->o.min_bs[d] != bs || td->o.max_bs[d] != bs || td->o.ba[d] % bs)
            return "weldfs_mode=fused needs one block size, for reads and writes, and blocks aligned to it";
    if (td->o.start_offset % bs)
        return "weldfs_mode=fused needs an offset that is a multiple of the block size";
    if (td_trim(td))
        return "weldfs_mode=fused has no trims: a hole has no checksum";
    return NULL;
}

/* ---- one by one ---- */

static int64_t sync_done(struct job *job, struct open_file *open, struct io_u *io_u)
{
    (void)job;
    return io_u->ddir == DDIR_DATASYNC ? weldfs_fdatasync(open->file) : weldfs_fsync(open->file);
}

static int64_t plain_done(struct job *job, struct open_file *open, struct io_u *io_u)
{
    if (io_u->ddir == DDIR_READ)
        return weldfs_pread(open->file, io_u->xfer_buf, io_u->xfer_buflen, io_u->offset);
    if (io_u->ddir == DDIR_WRITE)
        return weldfs_pwrite(open->file, io_u->xfer_buf, io_u->xfer_buflen, io_u->offset, job->durability, NULL);
    /* A trim: what it covers reads as zeros, and its space is free. */
    const int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    const int error = weldfs_fallocate(open->file, hole, io_u->offset, io_u->xfer_buflen);
    return error < 0 ? error : (int64_t)io_u->xfer_buflen;
}

static int64_t fused_done(struct job *job, struct open_file *open, struct io_u *io_u, uint64_t at)
{
    const size_t len = io_u->xfer_buflen;
    uint64_t where = at;
    int error;

    if (io_u->ddir == DDIR_READ) {
        error = weldfs_read_checksum_verify(open->file, io_u->xfer_buf, len, at, NULL);
    } else if (at == open->end) {
        error = weldfs_append_checksum_write(open->file, io_u->xfer_buf, len, job->durability, &where, NULL);
        /* Appended by another job, too: what this one reads would be the other's. */
        if (!error && where != at)
            error = -ESTALE;
        if (!error)
            open->end = at + len + SUM;
    } else {
        error = weldfs_write_checksum(open->file, at, WELDFS_CRC32C, io_u->xfer_buf, len, job->durability, NULL, NULL);
        if (!error && at + len + SUM > open->end)
            open->end = at + len + SUM;
    }
    return error < 0 ? error : (int64_t)len;
}

/* The result of a command as fio has it. */
static void report(struct io_u *io_u, int64_t result)
{
    if (result < 0)
        io_u->error = -result;
    else if (ddir_rw(io_u->ddir))
        io_u->resid = io_u->xfer_buflen - result;
}

/* ---- in flight ---- */

static int submit(struct job *job, struct open_file *open, struct io_u *io_u, uint64_t at, bool records)
{
    const weldfs_job how = { .size = sizeof(how), .durability = job->durability, .data = io_u };
    const size_t len = io_u->xfer_buflen;

    switch (io_u->ddir) {
    case DDIR_READ:
        return records ? weldfs_submit_read_checksum_verify(job->queue, open->file, io_u->xfer_buf, len, at, &how)
                   : weldfs_submit_pread(job->queue, open->file, io_u->xfer_buf, len, at, &how);
    case DDIR_WRITE:
        return records ? weldfs_submit_append_checksum_write(job->queue, open->file, io_u->xfer_buf, len, &how)
                   : weldfs_submit_pwrite(job->queue, open->file, io_u->xfer_buf, len, at, &how);
    case DDIR_DATASYNC:
        return weldfs_submit_fdatasync(job->queue, open->file, &how);
    default:
        return weldfs_submit_fsync(job->queue, open->file, &how);
    }
}

/* Notes when a command of a job with a queue was issued: fio itself would do so behind a call that returns when the
 * command is over. */
static void issued(struct thread_data *td, struct io_u *io_u)
{
    if (!fio_fill_issue_time(td))
        return;
    fio_gettime(&io_u->issue_time, NULL);
    if (td->o.read_iolog_file)
        td->last_issue = io_u->issue_time;
}

/* Trims, and records that go into the middle of a file, have no form that can be submitted. */
static bool is_alone(struct thread_data *td, const struct open_file *open, const struct io_u *io_u, uint64_t at)
{
    return io_u->ddir == DDIR_TRIM || (fused(td) && io_u->ddir == DDIR_WRITE && at != open->end);
}

/* Waits for everything in flight; fio gets it when it asks. */
static int drain(struct thread_data *td, struct job *job)
{
    while (weldfs_queue_in_flight(job->queue) > 0) {
        const int64_t n = weldfs_queue_reap(job->queue, job->kept + job->keeps, td->o.iodepth - job->keeps, -1);

        if (n < 0)
            return (int)n;
        job->keeps += n;
    }
    return 0;
}

/*
 * Before a command that goes another way than what is in flight, without order: an append in flight could land behind
 * what follows it. fio reaps, and tries again; but it would draw the content of a write that it is to verify a second
 * time, and then look for the first.
 */
static enum fio_q_status first_what_is_in_flight(struct thread_data *td, struct job *job, struct io_u *io_u)
{
    int error;

    if (weldfs_queue_in_flight(job->queue) <= 0)
        return FIO_Q_COMPLETED;
    if (io_u->ddir != DDIR_WRITE || !(td->flags & TD_F_DO_VERIFY))
        return FIO_Q_BUSY;
    error = drain(td, job);
    io_u->error = -error;
    return FIO_Q_COMPLETED;
}

/* A call that returns when the command is over. */
static enum fio_q_status one_by_one(struct thread_data *td, struct io_u *io_u, uint64_t at)
{
    struct job *job = td->io_ops_data;
    struct open_file *open = FILE_ENG_DATA(io_u->file);

    if (job->queue) {
        const enum fio_q_status status = first_what_is_in_flight(td, job, io_u);

        if (status != FIO_Q_COMPLETED || io_u->error)
            return status;
        issued(td, io_u);
    }
    if (!ddir_rw(io_u->ddir))
        report(io_u, sync_done(job, open, io_u));
    else
        report(io_u, fused(td) ? fused_done(job, open, io_u, at) : plain_done(job, open, io_u));
    return FIO_Q_COMPLETED;
}

static enum fio_q_status engine_queue(struct thread_data *td, struct io_u *io_u)
{
    struct job *job = td->io_ops_data;
    struct open_file *open = FILE_ENG_DATA(io_u->file);
    const uint64_t at = place(td, io_u->offset);
    int error;

    fio_ro_check(td, io_u);
    if (!ddir_rw(io_u->ddir) && io_u->ddir != DDIR_SYNC && io_u->ddir != DDIR_DATASYNC) {
        io_u->error = EOPNOTSUPP; /* sync_file_range */
        return FIO_Q_COMPLETED;
    }
    if (!job->queue || is_alone(td, open, io_u, at))
        return one_by_one(td, io_u, at);
    error = submit(job, open, io_u, at, fused(td));
    if (error == -EAGAIN)
        return FIO_Q_BUSY;
    issued(td, io_u);
    if (error < 0) {
        io_u->error = -error;
        return FIO_Q_COMPLETED;
    }
    if (fused(td) && io_u->ddir == DDIR_WRITE)
        open->end = at + io_u->xfer_buflen + SUM;
    return FIO_Q_QUEUED;
}

static void completed(struct thread_data *td, const weldfs_completion *done)
{
    struct io_u *io_u = done->data;

    if (done->result < 0 || !fused(td) || !ddir_rw(io_u->ddir))
        report(io_u, done->result);
    else if (io_u->ddir == DDIR_READ)
        report(io_u, io_u->xfer_buflen);
    else /* an append says where it went */
        report(io_u, (uint64_t)done->result == place(td, io_u->offset) ? (int64_t)io_u->xfer_buflen : -ESTALE);
}

static unsigned int hand_out_kept(struct thread_data *td, struct job *job, unsigned int max)
{
    const unsigned int got = job->keeps < max ? job->keeps : max;

    for (unsigned int i = 0; i < got; i++) {
        job->done[i] = job->kept[i];
        completed(td, &job->done[i]);
    }
    job->keeps -= got;
    memmove(job->kept, job->kept + got, job->keeps * sizeof(*job->kept));
    return got;
}

static int engine_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
    struct job *job = td->io_ops_data;
    const int wait = t ? (int)(t->tv_sec * 1000 + (t->tv_nsec + 999999) / 1000000) : -1;
    unsigned int got = hand_out_kept(td, job, max);

    while (got < max) {
        const int64_t n = weldfs_queue_reap(job->queue, job->done + got, max - got, got < min ? wait : 0);
        if (n < 0)
            return (int)n;
        for (int64_t i = 0; i < n; i++)
            completed(td, &job->done[got + i]);
        got += n;
        if (n == 0 && (got >= min || t || weldfs_queue_in_flight(job->queue) == 0))
            break;
    }
    return got;
}

static struct io_u *engine_event(struct thread_data *td, int event)
{
    struct job *job = td->io_ops_data;

    return job->done[event].data;
}

/* ---- files ---- */

/* Attaches to the job's target; says why not. */
static int attach(struct thread_data *td, weldfs_client **client)
{
    const char *target = options_of(td)->target;
    int error;

    if (!target) {
        log_err("fio: weldfs: weldfs_target=IMAGE or SOCKET is missing\n");
        return EINVAL;
    }
    error = weldfs_attach_target(target, NULL, client);
    if (error < 0)
        log_err("fio: weldfs: %s\n", weldfs_last_error());
    return -error;
}

/* Before the job begins, and in another process than the job's: the attachment ends with the call. */
static int engine_get_file_size(struct thread_data *td, struct fio_file *f)
{
    weldfs_client *client = NULL;
    weldfs_stat stat;
    int error = attach(td, &client);

    if (error) {
        td_verror(td, error, "weldfs: attach");
        return error;
    }
    error = weldfs_stat_path(client, f->file_name, &stat);
    weldfs_detach(client);
    if (error < 0 && error != -ENOENT) {
        log_err("fio: weldfs: %s\n", weldfs_last_error());
        td_verror(td, -error, "weldfs: stat");
        return -error;
    }
    f->filetype = FIO_TYPE_FILE;
    /* What there is counts where the job does not say how much: else it is made, or written. */
    f->real_file_size = error || td->o.size ? -1ULL : content(td, stat.bytes);
    return 0;
}

/* Fills what the job is to read and what is not there. */
static int fill(struct thread_data *td, const weldfs_file *file, uint64_t from, uint64_t to)
{
    const uint64_t bs = td->o.min_bs[DDIR_WRITE];
    uint64_t step = fused(td) ? bs : 1 << 20;
    char *bytes = malloc(step);
    int64_t error = 0;

    if (!bytes)
        return ENOMEM;
    for (; from < to && error >= 0; from += step) {
        if (step > to - from)
            step = to - from;
        fill_random_buf(&td->buf_state, bytes, step);
        if (fused(td))
            error = weldfs_write_checksum(file, place(td, from), WELDFS_CRC32C, bytes, step,
                              WELDFS_VOLATILE, NULL, NULL);
        else
            error = weldfs_pwrite(file, bytes, step, from, WELDFS_VOLATILE, NULL);
    }
    free(bytes);
    if (error >= 0)
        error = weldfs_fsync(file);
    return error < 0 ? -(int)error : 0;
}

static int engine_prepopulate(struct thread_data *td, struct fio_file *f)
{
    const uint64_t bs = td->o.min_bs[DDIR_WRITE], wanted = f->file_offset + f->io_size;
    weldfs_client *client = NULL;
    weldfs_file *file = NULL;
    weldfs_stat stat;
    int error;

    if (f->io_size == -1ULL)
        return 0;
    /* fio takes size= alone for the file's, whatever the job's offset is; and moves within the file's. */
    if (f->real_file_size < wanted)
        f->real_file_size = wanted;
    if (!td_read(td))
        return 0;
    error = attach(td, &client);
    if (error)
        goto out;
    error = -weldfs_open(client, f->file_name, O_RDONLY, 0, &file);
    if (!error)
        error = -weldfs_fstat(file, &stat);
    if ((!error && content(td, stat.bytes) < wanted) || (error == ENOENT && td->o.allow_create)) {
        const uint64_t from = error ? 0 : content(td, stat.bytes) / bs * bs;

        weldfs_close(file);
        file = NULL;
        if (read_only) {
            log_err("fio: weldfs: %s is shorter than what is to be read, and --readonly was said\n", f->file_name);
            error = EROFS;
            goto out;
        }
        error = -weldfs_open(client, f->file_name, O_WRONLY | O_CREAT, 0644, &file);
        if (!error)
            error = fill(td, file, from, wanted);
    }
    if (error)
        log_err("fio: weldfs: %s\n", weldfs_last_error());
out:
    weldfs_close(file);
    weldfs_detach(client);
    if (error)
        td_verror(td, error, "weldfs: laying out");
    return error;
}

static int engine_open(struct thread_data *td, struct fio_file *f)
{
    struct job *job = td->io_ops_data;
    struct open_file *open = calloc(1, sizeof(*open));
    const bool writes = td_write(td) || td_trim(td);
    int flags = writes && !read_only ? O_RDWR : O_RDONLY;
    weldfs_stat stat;
    int error;

    if (!open)
        return ENOMEM;
    if (writes && !read_only && td->o.allow_create)
        flags |= O_CREAT;
    error = weldfs_open(job->client, f->file_name, flags, 0644, &open->file);
    if (!error)
        error = weldfs_fstat(open->file, &stat);
    if (error < 0) {
        log_err("fio: weldfs: %s\n", weldfs_last_error());
        td_verror(td, -error, "weldfs: open");
        weldfs_close(open->file);
        free(open);
        return -error;
    }
    open->end = stat.bytes;
    FILE_SET_ENG_DATA(f, open);
    return 0;
}

static int engine_close(struct thread_data *td, struct fio_file *f)
{
    struct open_file *open = FILE_ENG_DATA(f);
    int error = 0;

    (void)td;
    if (open)
        error = weldfs_close(open->file);
    free(open);
    FILE_SET_ENG_DATA(f, NULL);
    return -error;
}

static int engine_unlink(struct thread_data *td, struct fio_file *f)
{
    struct job *job = td->io_ops_data;

    /* A job that did not begin made nothing. */
    if (!job)
        return 0;
    return -weldfs_unlink(job->client, f->file_name);
}

/* Nothing of a file is cached on this side of the device. */
static int engine_invalidate(struct thread_data *td, struct fio_file *f)
{
    (void)td;
    (void)f;
    return 0;
}

/* ---- jobs ---- */

static void engine_cleanup(struct thread_data *td)
{
    struct job *job = td->io_ops_data;

    if (!job)
        return;
    weldfs_queue_destroy(job->queue);
    weldfs_detach(job->client);
    free(job->done);
    free(job->kept);
    free(job);
    td->io_ops_data = NULL;
}

#define DEPTH_MAX 1024 /* of a queue of the device's */
#define POOL_MAX (64u << 20)

/* Bytes of the buffer of a command: the library hands out powers of two. */
static uint64_t buffer_bytes(struct thread_data *td)
{
    uint64_t bytes = 4096;

    while (bytes < td_max_bs(td))
        bytes *= 2;
    return bytes;
}

/* Fewer commands in flight than iodepth says would be measured as if they were as many. */
static const char *unfit_for_queue(struct thread_data *td)
{
    if (td->o.iodepth > DEPTH_MAX)
        return "iodepth is at most 1024";
    if (buffer_bytes(td) * td->o.iodepth > POOL_MAX)
        return "iodepth times the block size, rounded up to a power of two, is at most 64 MiB";
    return NULL;
}

static int begin_queue(struct thread_data *td, struct job *job)
{
    weldfs_queue_options queue = { .size = sizeof(queue), .depth = td->o.iodepth };
    const uint64_t pool = buffer_bytes(td) * td->o.iodepth;

    queue.pool_bytes = pool < (1 << 20) ? 1 << 20 : pool;
    job->done = calloc(td->o.iodepth, sizeof(*job->done));
    job->kept = calloc(td->o.iodepth, sizeof(*job->kept));
    return job->done && job->kept ? weldfs_queue_create(job->client, &queue, &job->queue) : -ENOMEM;
}

/* Why the options do not go together. */
static const char *unfit(struct thread_data *td)
{
    const char *why = fused(td) ? unfit_for_records(td) : NULL;

    return why || td->o.iodepth == 1 ? why : unfit_for_queue(td);
}

static int engine_init(struct thread_data *td)
{
    const char *why = unfit(td);
    struct job *job;
    weldfs_info info = { 0 };
    int error;

    if (why) {
        log_err("fio: weldfs: %s\n", why);
        return EINVAL;
    }
    job = calloc(1, sizeof(*job));
    if (!job)
        return ENOMEM;
    td->io_ops_data = job;
    error = attach(td, &job->client);
    if (error)
        goto failed;
    error = -weldfs_get_info(job->client, &info);
    if (error)
        goto failed;
    job->payload_max = info.payload_max;
    /* Volatile until it is synced, as on a file system; durable, write by write, with sync= (O_SYNC). */
    job->durability = td->o.sync_io ? WELDFS_DURABLE : WELDFS_VOLATILE;
    if ((td->o.iodepth > 1 || fused(td)) && td_max_bs(td) + SUM > job->payload_max) {
        log_err("fio: weldfs: a block is one command here, of at most %zu bytes\n", job->payload_max - SUM);
        error = E2BIG;
        goto failed;
    }
    if (td->o.iodepth > 1) {
        error = -begin_queue(td, job);
        if (error) {
            log_err("fio: weldfs: %s\n", weldfs_last_error());
            goto failed;
        }
    } else {
        /* fio then takes the time before the call, not after it. */
        td->flags |= (unsigned long long)FIO_SYNCIO << TD_ENG_FLAG_SHIFT;
    }
    return 0;
failed:
    engine_cleanup(td);
    return error;
}

struct ioengine_ops ioengine = {
    .name = "weldfs",
    .version = FIO_IOOPS_VERSION,
    .flags = FIO_DISKLESSIO | FIO_NODISKUTIL | FIO_ASYNCIO_SYNC_TRIM | FIO_ASYNCIO_SETS_ISSUE_TIME,
    .init = engine_init,
    .cleanup = engine_cleanup,
    .queue = engine_queue,
    .getevents = engine_getevents,
    .event = engine_event,
    .get_file_size = engine_get_file_size,
    .prepopulate_file = engine_prepopulate,
    .open_file = engine_open,
    .close_file = engine_close,
    .unlink_file = engine_unlink,
    .invalidate = engine_invalidate,
    .options = engine_options,
    .option_struct_size = sizeof(struct options),
};
