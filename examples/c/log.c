/* A log of checksummed records: written one by one, then 64 of them in flight at a time, then verified.
 *
 *   cc log.c $(pkg-config --cflags --libs weldfs) -o log && ./log SOCKET
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weldfs.h>

enum { RECORDS = 1000, BYTES = 100 };

static void check(int64_t result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, weldfs_last_error());
        exit(1);
    }
}

/* Called for each record that the device has written. */
static void written(void *data, const weldfs_completion *done) {
    check(done->result, "record");
    ++*(int *)data;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s SOCKET\n", argv[0]);
        return 2;
    }
    weldfs_client *client;
    weldfs_file *log;
    weldfs_queue *queue;
    check(weldfs_attach(argv[1], NULL, &client), "attach");
    check(weldfs_open(client, "/log", O_RDWR | O_CREAT | O_TRUNC, 0644, &log), "open");
    check(weldfs_queue_create(client, NULL, &queue), "queue");

    /* One command: append the record and its CRC-32C, persistent when it returns. */
    char record[BYTES];
    memset(record, 'a', sizeof record);
    uint64_t first;
    check(weldfs_append_checksum_write(log, record, sizeof record, WELDFS_DURABLE, &first, NULL), "append");

    /* The same without waiting: each record is copied at once, and `written` called when the device has it. */
    int count = 0;
    weldfs_job job = {.size = sizeof job, .flags = WELDFS_MORE, .done = written, .data = &count};
    for (int i = 1; i < RECORDS;) {
        memset(record, 'a' + i % 26, sizeof record);
        int result = weldfs_submit_append_checksum_write(queue, log, record, sizeof record, &job);
        if (result == -EAGAIN)
            check(weldfs_queue_reap(queue, NULL, 64, -1), "reap"); /* the queue is full: hear of some first */
        else
            check(result, "submit"), i++;
    }
    while (count < RECORDS - 1) check(weldfs_queue_reap(queue, NULL, 64, -1), "reap");
    check(weldfs_fsync(log), "fsync");

    /* Verified inside the device: only the verdicts cross the link. */
    for (int i = 0; i < RECORDS; i++)
        check(weldfs_read_checksum_verify(log, NULL, BYTES, first + (uint64_t)i * (BYTES + 4), NULL), "verify");
    printf("%d records, all sound\n", RECORDS);
    weldfs_queue_destroy(queue);
    check(weldfs_close(log), "close");
    weldfs_detach(client);
    return 0;
}
