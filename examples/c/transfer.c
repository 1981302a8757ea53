/* A fused program from its text: money goes from one file to the other, or nothing happens.
 *
 *   cc transfer.c $(pkg-config --cflags --libs weldfs) -o transfer && ./transfer SOCKET ../programs/transfer.txt
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <weldfs.h>

static void check(int64_t result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, weldfs_last_error());
        exit(1);
    }
}

/* Numbers in files are little-endian here, as on every machine that WeldFS runs on. */
static void account(weldfs_client *client, const char *path, uint64_t balance) {
    int flags = O_WRONLY | O_CREAT | O_TRUNC;
    check(weldfs_open_write_close(client, path, flags, 0600, &balance, 8, 0, WELDFS_DURABLE, NULL), path);
}

static uint64_t balance(weldfs_client *client, const char *path) {
    uint64_t balance = 0;
    check(weldfs_open_read_close(client, path, O_RDONLY, &balance, 8, 0), path);
    return balance;
}

static char *text_of(const char *path) {
    static char text[4096];
    FILE *file = fopen(path, "r");
    size_t len = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (len == 0) {
        fprintf(stderr, "%s: no program\n", path);
        exit(1);
    }
    fclose(file);
    return text;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s SOCKET PROGRAM\n", argv[0]);
        return 2;
    }
    weldfs_client *client;
    weldfs_program *program;
    weldfs_name amount_is = {.name = "AMOUNT", .len = 8};
    char why[200];
    check(weldfs_attach(argv[1], NULL, &client), "attach");
    if (weldfs_program_parse(text_of(argv[2]), &amount_is, 1, &program, why, sizeof why) < 0) {
        fprintf(stderr, "%s: %s\n", argv[2], why);
        return 1;
    }
    account(client, "/alice", 100);
    account(client, "/bob", 20);
    for (uint64_t amount = 40; amount <= 80; amount += 20) {
        weldfs_operand operand = {.data = &amount, .len = 8};
        weldfs_outcome outcome;
        int result = weldfs_program_run(program, client, &operand, 1, WELDFS_DURABLE, &outcome);
        if (result == -EDQUOT)
            printf("%" PRIu64 ": not enough, step %u\n", amount, outcome.failed);
        else
            check(result, "transfer"), printf("%" PRIu64 ": %" PRIu64 " left\n", amount, outcome.value);
    }
    printf("alice %" PRIu64 ", bob %" PRIu64 "\n", balance(client, "/alice"), balance(client, "/bob"));
    weldfs_program_destroy(program);
    weldfs_detach(client);
    return 0;
}
