/* Submission without waiting, from C: callbacks, reaping, epoll, buffers in place, forgetting, fork. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static weldfs_client *client;
static weldfs_file *file;

static void add(void *data, const weldfs_completion *done) {
    CHECK(done->result >= 0 && done->size >= sizeof *done);
    atomic_fetch_add((atomic_int *)data, 1);
}

static void never(void *data, const weldfs_completion *done) {
    (void)data;
    fprintf(stderr, "a forgotten job was called: %lld\n", (long long)done->result);
    exit(1);
}

static void pipelined_with_epoll(void) {
    weldfs_queue *queue;
    weldfs_queue_options options = {.size = sizeof options, .depth = 32};
    GIVES(0, weldfs_queue_create(client, &options, &queue));
    int event = weldfs_queue_eventfd(queue), epoll = epoll_create1(0);
    CHECK(event >= 0 && epoll >= 0);
    struct epoll_event want = {.events = EPOLLIN};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, event, &want) == 0);
    weldfs_completion done[8];
    char out[64][24];
    int sent = 0, heard = 0, full = 0;
    while (heard < 64) {
        for (; sent < 64; sent++) {
            weldfs_job job = {.size = sizeof job, .flags = WELDFS_MORE, .data = out[sent]};
            snprintf(out[sent], sizeof out[sent], "record %d", sent);
            int result = weldfs_submit_pwrite(queue, file, out[sent], 16, (uint64_t)sent * 16, &job);
            if (result == -EAGAIN) {
                full++;
                break;
            }
            GIVES(0, result);
        }
        GIVES(0, weldfs_queue_flush(queue));
        struct epoll_event got;
        int ready;
        do ready = epoll_wait(epoll, &got, 1, 20000);
        while (ready < 0 && errno == EINTR);
        CHECK(ready == 1);
        int64_t n;
        while ((n = weldfs_queue_reap(queue, done, 8, 0)) > 0)
            for (int64_t i = 0; i < n; i++, heard++) {
                GIVES(16, done[i].result);
                CHECK((char *)done[i].data == out[done[i].value / 16]);
            }
        GIVES(0, n);
    }
    CHECK(full > 0);
    struct pollfd quiet = {.fd = event, .events = POLLIN};
    CHECK(poll(&quiet, 1, 0) == 0);
    /* Read back, into ordinary memory and into a buffer in place. */
    char in[16];
    weldfs_buf *buf;
    GIVES(0, weldfs_buf_alloc(queue, 1024, &buf));
    CHECK(weldfs_buf_len(buf) == 1024);
    weldfs_job job = {.size = sizeof job};
    GIVES(0, weldfs_submit_pread(queue, file, in, 16, 16 * 7, &job));
    GIVES(0, weldfs_submit_pread(queue, file, (char *)weldfs_buf_data(buf) + 24, 1000, 0, &job));
    GIVES(1, weldfs_queue_reap(queue, done, 1, -1));
    GIVES(1, weldfs_queue_reap(queue, done + 1, 1, -1));
    CHECK(strcmp(in, "record 7") == 0 && done[0].result + done[1].result == 1016);
    CHECK(strcmp((char *)weldfs_buf_data(buf) + 24 + 16 * 61, "record 61") == 0);
    /* A write out of the buffer, freed while it is in flight. */
    memcpy(weldfs_buf_data(buf), "in place", 8);
    GIVES(0, weldfs_submit_append_checksum_write(queue, file, weldfs_buf_data(buf), 8, &job));
    weldfs_buf_free(buf);
    GIVES(1, weldfs_queue_reap(queue, done, 8, -1));
    GIVES(1024, done[0].result);
    GIVES(0, weldfs_read_checksum_verify(file, in, 8, 1024, NULL));
    CHECK(memcmp(in, "in place", 8) == 0);
    /* "123456789" has CRC-32C's check value. */
    for (uint32_t wrong = 0; wrong < 2; wrong++) {
        GIVES(0, weldfs_submit_pwrite_verified(queue, file, "123456789", 9, 2048, 0xe3069283u + wrong, &job));
        GIVES(1, weldfs_queue_reap(queue, done, 8, -1));
        GIVES(wrong ? -EBADMSG : 9, done[0].result);
    }
    close(epoll);
    weldfs_queue_destroy(queue);
}

static void every_submission(void) {
    weldfs_queue *queue;
    GIVES(0, weldfs_queue_create(client, NULL, &queue));
    weldfs_completion done;
    weldfs_job job = {.size = sizeof job, .durability = WELDFS_DURABLE};
    char room[16];
#define DOES(expected, call)                               \
    do {                                                   \
        GIVES(0, call);                                    \
        GIVES(1, weldfs_queue_reap(queue, &done, 1, 2000)); \
        GIVES(expected, done.result);                      \
    } while (0)
    DOES(0, weldfs_submit_nop(queue, &job));
    DOES(4, weldfs_submit_open_write_close(queue, "/q", O_RDWR | O_CREAT, 0600, "data", 4, 0, &job));
    CHECK(done.created == 1 && done.value == 0);
    DOES(4, weldfs_submit_open_read_close(queue, "/q", O_RDONLY, room, 16, 0, &job));
    CHECK(memcmp(room, "data", 4) == 0);
    DOES(4, weldfs_submit_open_read_write_close(queue, "/q", O_RDWR, 0, room, 16, 0, "more", 4, WELDFS_END, &job));
    CHECK(done.created == 0 && done.value == 4);
    DOES(0, weldfs_submit_rename(queue, "/q", "/r", 0, &job));
    DOES(-ENOENT, weldfs_submit_unlink(queue, "/q", &job));
    DOES(0, weldfs_submit_unlink(queue, "/r", &job));
    DOES(0, weldfs_submit_ftruncate(queue, file, 0, &job));
    DOES(0, weldfs_submit_append_checksum_write(queue, file, "123456789", 9, &job));
    CHECK(done.value == 0xe3069283u);
    DOES(9, weldfs_submit_checksum_range(queue, file, 0, 9, &job));
    CHECK(done.value == 0xe3069283u);
    GIVES(1, weldfs_pwrite(file, "X", 1, 0, WELDFS_DEFAULT, NULL));
    DOES(-EBADMSG, weldfs_submit_read_checksum_verify(queue, file, room, 9, 0, &job));
    CHECK(memcmp(room, "X23456789", 9) == 0);
    DOES(-ECANCELED, weldfs_submit_read_modify_write(queue, file, 0, WELDFS_COMPARE_SWAP, "1", "Z", 1, room, &job));
    CHECK(room[0] == 'X');
    GIVES(0, weldfs_submit_read_modify_write(queue, file, 0, WELDFS_PATCH, "1", NULL, 1, NULL, &job));
    GIVES(1, weldfs_queue_reap(queue, &done, 1, 2000));
    CHECK(done.result >= 0);
    GIVES(0, weldfs_submit_read_checksum_verify(queue, file, NULL, 9, 0, &job));
    GIVES(1, weldfs_queue_reap(queue, &done, 1, 2000));
    CHECK(done.result >= 0);
    DOES(0, weldfs_submit_fsync(queue, file, &job));
    DOES(0, weldfs_submit_fdatasync(queue, file, &job));
    DOES(0, weldfs_submit_sync(queue, &job));
    GIVES(0, weldfs_queue_reap(queue, &done, 1, -1)); /* nothing in flight: does not wait */
    weldfs_queue_destroy(queue);
}

static void names_and_attributes(void) {
    weldfs_queue *queue;
    GIVES(0, weldfs_queue_create(client, NULL, &queue));
    weldfs_completion done;
    weldfs_job job = {.size = sizeof job};
    weldfs_stat st = {0}, same;
    DOES(0, weldfs_submit_mkdir(queue, "/made", 0750, &job));
    DOES(-EEXIST, weldfs_submit_mkdir(queue, "/made", 0750, &job));
    DOES(0, weldfs_submit_stat_path(queue, "/made", &st, &job));
    GIVES(0, weldfs_stat_path(client, "/made", &same));
    CHECK((st.mode & 07777) == 0750 && memcmp(&st, &same, sizeof st) == 0);
    GIVES(0, weldfs_symlink(client, "made", "/link"));
    DOES(0, weldfs_submit_stat_path(queue, "/link", &st, &job));
    CHECK(st.ino == same.ino);
    DOES(0, weldfs_submit_lstat_path(queue, "/link", &st, &job));
    CHECK(st.ino != same.ino && S_ISLNK(st.mode) && st.bytes == 4);
    DOES(0, weldfs_submit_fstat(queue, file, &st, &job));
    GIVES(0, weldfs_fstat(file, &same));
    CHECK(memcmp(&st, &same, sizeof st) == 0);
    weldfs_stat before = st;
    DOES(-ENOENT, weldfs_submit_stat_path(queue, "/nothing", &st, &job));
    CHECK(memcmp(&st, &before, sizeof st) == 0);
    /* Forgotten: nothing is written to it. */
    uint64_t ticket;
    weldfs_job forgotten = {.size = sizeof forgotten, .ticket = &ticket};
    GIVES(0, weldfs_submit_stat_path(queue, "/made", &st, &forgotten));
    GIVES(0, weldfs_forget(queue, ticket));
    while (weldfs_queue_in_flight(queue) > 0) GIVES(0, weldfs_queue_reap(queue, &done, 1, 100));
    CHECK(memcmp(&st, &before, sizeof st) == 0);
    GIVES(-EINVAL, weldfs_submit_stat_path(queue, "/made", NULL, &job));
    weldfs_buf *buf;
    GIVES(0, weldfs_buf_alloc(queue, sizeof st, &buf));
    GIVES(-EINVAL, weldfs_submit_stat_path(queue, "/made", weldfs_buf_data(buf), &job));
    weldfs_buf_free(buf);
    GIVES(-EINVAL, weldfs_submit_fstat(queue, NULL, &st, &job));
    GIVES(-EINVAL, weldfs_submit_mkdir(queue, NULL, 0, &job));
    GIVES(0, weldfs_queue_in_flight(queue));
    GIVES(0, weldfs_unlink(client, "/link"));
    GIVES(0, weldfs_rmdir(client, "/made"));
    weldfs_queue_destroy(queue);
}

static void programs(void) {
    weldfs_queue *queue;
    GIVES(0, weldfs_queue_create(client, NULL, &queue));
    weldfs_completion done;
    weldfs_job job = {.size = sizeof job, .durability = WELDFS_DURABLE};
    char why[200], room[64] = "untouched";
    weldfs_name in = {.name = "@in", .len = 5};
    weldfs_program *program;
    const char *text = "open /p rw create; fill a @in; append a; give a -> @out count -> n; result n";
    GIVES(0, weldfs_program_parse(text, &in, 1, &program, why, sizeof why));
    CHECK(weldfs_program_find(program, "@in") == 0 && weldfs_program_find(program, "@out") == 1);
    weldfs_operand operands[2] = {{.data = "hello", .len = 5}, {.data = room, .len = 5}};
    weldfs_outcome outcome;
    DOES(0, weldfs_submit_program(queue, program, operands, 2, &outcome, &job));
    CHECK(done.value == 5 && outcome.value == 5 && outcome.failed == 0 && outcome.done == 4);
    CHECK(operands[1].filled == 5 && operands[0].filled == 0 && memcmp(room, "hello", 5) == 0 && room[5] == 'c');
    /* Several under way, and the program given back meanwhile; each has its own memory. */
    char rooms[4][5];
    weldfs_operand each[4][2];
    for (int i = 0; i < 4; i++) {
        each[i][0] = (weldfs_operand){.data = "abcdefgh" + i, .len = 5};
        each[i][1] = (weldfs_operand){.data = rooms[i], .len = 5};
        GIVES(0, weldfs_submit_program(queue, program, each[i], 2, NULL, &job));
    }
    GIVES(-EINVAL, weldfs_submit_program(queue, program, operands, 1, NULL, &job));
    operands[0].len = 4;
    GIVES(-EINVAL, weldfs_submit_program(queue, program, operands, 2, NULL, &job));
    GIVES(-EINVAL, weldfs_submit_program(queue, NULL, operands, 2, NULL, &job));
    GIVES(-EINVAL, weldfs_submit_program(queue, program, NULL, 2, NULL, &job));
    weldfs_program_destroy(program);
    for (int i = 0; i < 4; i++) GIVES(1, weldfs_queue_reap(queue, &done, 1, 2000));
    for (int i = 0; i < 4; i++) CHECK(memcmp(rooms[i], "abcdefgh" + i, 5) == 0 && each[i][1].filled == 5);
    weldfs_stat st;
    GIVES(0, weldfs_stat_path(client, "/p", &st));
    CHECK(st.bytes == 25);
    /* Which step failed, and that nothing of it is there. */
    GIVES(0, weldfs_program_parse("open /p2 rw create; open /missing r", NULL, 0, &program, why, sizeof why));
    DOES(-ENOENT, weldfs_submit_program(queue, program, NULL, 0, &outcome, &job));
    CHECK(outcome.failed == 2 && outcome.done == 0);
    GIVES(-ENOENT, weldfs_stat_path(client, "/p2", &st));
    weldfs_program_destroy(program);
    /* Forgotten: its memory is the program's again. */
    GIVES(0, weldfs_program_parse(text, &in, 1, &program, why, sizeof why));
    uint64_t ticket;
    weldfs_job forgotten = {.size = sizeof forgotten, .ticket = &ticket};
    operands[0].len = 5;
    operands[1].filled = 77;
    memset(room, '-', sizeof room);
    GIVES(0, weldfs_submit_program(queue, program, operands, 2, &outcome, &forgotten));
    GIVES(0, weldfs_forget(queue, ticket));
    while (weldfs_queue_in_flight(queue) > 0) GIVES(0, weldfs_queue_reap(queue, &done, 1, 100));
    CHECK(room[0] == '-' && operands[1].filled == 77 && outcome.failed == 2);
    weldfs_program_destroy(program);
    /* One that never fits the pool. */
    weldfs_queue *small;
    weldfs_queue_options options = {.size = sizeof options, .pool_bytes = 4096};
    GIVES(0, weldfs_queue_create(client, &options, &small));
    static char big[70000];
    in.len = sizeof big;
    GIVES(0, weldfs_program_parse("open /p rw; fill a @in; append a", &in, 1, &program, why, sizeof why));
    weldfs_operand all = {.data = big, .len = sizeof big};
    int fits = weldfs_submit_program(small, program, &all, 1, NULL, &job);
    CHECK(fits == -ENOMEM || fits == 0);
    weldfs_program_destroy(program);
    weldfs_queue_destroy(small);
    GIVES(0, weldfs_unlink(client, "/p"));
    weldfs_queue_destroy(queue);
}

static void many_writes_as_one(void) {
    weldfs_queue *queue;
    GIVES(0, weldfs_queue_create(client, NULL, &queue));
    weldfs_completion done;
    weldfs_job job = {.size = sizeof job, .durability = WELDFS_DURABLE};
    weldfs_file *a, *b;
    char room[32];
    GIVES(0, weldfs_open(client, "/a", O_RDWR | O_CREAT, 0600, &a));
    GIVES(0, weldfs_open(client, "/b", O_RDWR | O_CREAT, 0600, &b));
    weldfs_write_item writes[] = {{.file = a, .from = "first", .len = 5}, {.file = b, .from = "second", .len = 6},
                                  {.file = a, .from = "?", .len = 1, .offset = WELDFS_END}};
    DOES(0, weldfs_submit_multi_write(queue, writes, 3, &job));
    GIVES(6, weldfs_pread(a, room, sizeof room, 0));
    CHECK(memcmp(room, "first?", 6) == 0);
    GIVES(6, weldfs_pread(b, room, sizeof room, 0));
    DOES(0, weldfs_submit_multi_write(queue, NULL, 0, &job));
    writes[2].file = NULL;
    GIVES(-EINVAL, weldfs_submit_multi_write(queue, writes, 3, &job));
    weldfs_write_item many[16];
    for (int i = 0; i < 16; i++) many[i] = writes[0];
    GIVES(-E2BIG, weldfs_submit_multi_write(queue, many, 16, &job));
    /* A transaction, whose writes are under way together. */
    weldfs_txn *txn;
    GIVES(0, weldfs_txn_begin(client, &txn));
    GIVES(0, weldfs_submit_txn_write(queue, txn, a, "LOGGED", 6, 0, &job));
    GIVES(0, weldfs_submit_txn_write(queue, txn, b, "too", 3, WELDFS_END, &job));
    uint64_t most = 0;
    for (int i = 0; i < 2; i++) {
        GIVES(1, weldfs_queue_reap(queue, &done, 1, 2000));
        CHECK(done.result == 6 || done.result == 3);
        most = done.value > most ? done.value : most;
    }
    CHECK(most == 2);
    GIVES(6, weldfs_pread(a, room, sizeof room, 0));
    CHECK(memcmp(room, "first?", 6) == 0);
    GIVES(-EINVAL, weldfs_submit_txn_commit(queue, NULL, &job));
    GIVES(-EINVAL, weldfs_submit_txn_write(queue, NULL, a, "x", 1, 0, &job));
    DOES(9, weldfs_submit_txn_commit(queue, txn, &job));
    GIVES(6, weldfs_pread(a, room, sizeof room, 0));
    CHECK(memcmp(room, "LOGGED", 6) == 0);
    GIVES(9, weldfs_pread(b, room, sizeof room, 0));
    CHECK(memcmp(room, "secondtoo", 9) == 0);
    GIVES(0, weldfs_close(a));
    GIVES(0, weldfs_close(b));
    GIVES(0, weldfs_unlink(client, "/a"));
    GIVES(0, weldfs_unlink(client, "/b"));
    weldfs_queue_destroy(queue);
}

#define DOES_NOT_FAIL(expected)                             \
    do {                                                    \
        GIVES(1, weldfs_queue_reap(queue, &done, 1, 2000)); \
        GIVES(expected, done.result);                       \
    } while (0)

static void opened_and_closed(void) {
    weldfs_queue *queue;
    weldfs_completion done;
    weldfs_file *opened = (weldfs_file *)1, *other;
    uint64_t ticket = 0;
    weldfs_job job = {.size = sizeof job, .ticket = &ticket};
    GIVES(0, weldfs_queue_create(client, NULL, &queue));
    GIVES(0, weldfs_submit_open(queue, "/opened", O_RDWR | O_CREAT, 0640, &opened, &job));
    CHECK(opened == NULL);
    DOES_NOT_FAIL(0);
    CHECK(opened != NULL && done.created == 1);
    GIVES(2, weldfs_pwrite(opened, "ok", 2, 0, WELDFS_DEFAULT, NULL));
    GIVES(0, weldfs_submit_close(queue, opened, &job));
    DOES_NOT_FAIL(0);
    GIVES(0, weldfs_submit_open(queue, "/missing", O_RDWR, 0, &other, &job));
    GIVES(1, weldfs_queue_reap(queue, &done, 1, 2000));
    CHECK(done.result == -ENOENT && other == NULL);
    /* Forgotten, and never reaped: both are closed by the library. */
    GIVES(0, weldfs_submit_open(queue, "/opened", O_RDWR, 0, &other, &job));
    GIVES(0, weldfs_forget(queue, ticket));
    GIVES(0, weldfs_queue_reap(queue, NULL, 8, 500));
    CHECK(other == NULL);
    GIVES(0, weldfs_submit_open(queue, "/opened", O_RDWR, 0, &other, &job));
    weldfs_queue_destroy(queue);
    CHECK(other == NULL);
    GIVES(-EINVAL, weldfs_submit_close(NULL, NULL, NULL));
}

static void callbacks_on_the_librarys_thread(void) {
    weldfs_queue *queue;
    atomic_int count = 0;
    weldfs_queue_options options = {.size = sizeof options, .depth = 16, .flags = WELDFS_QUEUE_REAPER};
    GIVES(0, weldfs_queue_create(client, &options, &queue));
    GIVES(-EBUSY, weldfs_queue_eventfd(queue));
    weldfs_job job = {.size = sizeof job, .done = add, .data = &count};
    for (int i = 0; i < 500; i++)
        while (weldfs_submit_nop(queue, &job) == -EAGAIN) usleep(100);
    for (int tries = 0; atomic_load(&count) < 500; tries++) {
        CHECK(tries < 5000);
        usleep(1000);
    }
    weldfs_queue_destroy(queue);
}

static void forgotten(void) {
    weldfs_queue *queue;
    GIVES(0, weldfs_queue_create(client, NULL, &queue));
    uint64_t ticket = 0;
    char *room = malloc(16);
    weldfs_job job = {.size = sizeof job, .flags = WELDFS_MORE, .done = never, .ticket = &ticket};
    GIVES(0, weldfs_submit_pread(queue, file, room, 16, 0, &job));
    CHECK(ticket != 0);
    GIVES(0, weldfs_forget(queue, ticket));
    GIVES(-ENOENT, weldfs_forget(queue, ticket));
    free(room); /* the program's again, though the command has not even been sent */
    GIVES(0, weldfs_queue_reap(queue, NULL, 8, 200));
    GIVES(0, weldfs_queue_in_flight(queue));
    room = malloc(16);
    GIVES(0, weldfs_submit_pread(queue, file, room, 16, 0, &job));
    weldfs_queue_destroy(queue);
    free(room);
}

static void forked(void) {
    weldfs_info info;
    GIVES(0, weldfs_get_info(client, &info));
    const int embedded = info.embedded;
    weldfs_queue *queue;
    weldfs_buf *buf;
    GIVES(0, weldfs_queue_create(client, NULL, &queue));
    GIVES(0, weldfs_buf_alloc(queue, 100, &buf));
    pid_t child = fork();
    if (child == 0) {
        GIVES(-EBADF, weldfs_submit_nop(queue, NULL));
        GIVES(-EBADF, weldfs_queue_reap(queue, NULL, 1, -1));
        GIVES(embedded ? -ENODEV : -EBADF, weldfs_fsync(file));
        CHECK(weldfs_buf_data(buf) == NULL);
        weldfs_buf_free(buf);
        weldfs_queue_destroy(queue);
        weldfs_queue *own;
        /* A device in the parent is not one in the child. */
        GIVES(embedded ? -ENODEV : 0, weldfs_queue_create(client, NULL, &own));
        if (embedded) execlp("true", "true", (char *)NULL);
        weldfs_completion done;
        GIVES(0, weldfs_submit_nop(own, NULL));
        GIVES(1, weldfs_queue_reap(own, &done, 1, 2000));
        /* What it inherited stays in its memory on purpose; another program's memory is free of it. */
        execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    weldfs_buf_free(buf);
    weldfs_queue_destroy(queue);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    GIVES(0, weldfs_attach_target(argv[1], NULL, &client));
    GIVES(0, weldfs_open(client, "/queues", O_RDWR | O_CREAT | O_TRUNC, 0600, &file));
    pipelined_with_epoll();
    every_submission();
    names_and_attributes();
    programs();
    many_writes_as_one();
    opened_and_closed();
    callbacks_on_the_librarys_thread();
    forgotten();
    forked();
    GIVES(0, weldfs_close(file));
    weldfs_detach(client);
    puts("queues work");
    return 0;
}
