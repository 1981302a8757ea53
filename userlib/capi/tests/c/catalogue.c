/* The catalogue, transactions, batches and listings with attributes: every call once, and what it did. A timer interrupts
 * the calls all the while: a signal does no harm. */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>

static weldfs_client *client;
static volatile sig_atomic_t rings;

static void ring(int signal) {
    (void)signal;
    rings++;
}

static weldfs_file *fresh(const char *name) {
    weldfs_file *file;
    GIVES(0, weldfs_open(client, name, O_RDWR | O_CREAT | O_TRUNC, 0600, &file));
    return file;
}

/* What the file holds is exactly this. */
static void holds(const char *name, const void *want, int64_t len) {
    static char room[1 << 20];
    GIVES(len, weldfs_open_read_close(client, name, O_RDONLY, room, sizeof room, 0));
    CHECK(memcmp(room, want, (size_t)len) == 0);
}

static void checksums(uint32_t how) {
    weldfs_file *file = fresh("/sums");
    uint64_t where = 99;
    uint32_t sum = 0;
    char room[16];
    GIVES(0, weldfs_append_checksum(file, WELDFS_CRC32C, "123456789", 9, how, &where, &sum));
    CHECK(where == 0 && sum == 0xe3069283u);
    GIVES(0, weldfs_append_checksum(file, WELDFS_CRC32 | WELDFS_BIG_ENDIAN | WELDFS_HEADER, "123456789", 9,
                                    how | WELDFS_DURABLE, &where, &sum));
    CHECK(where == 13 && sum == 0xcbf43926u);
    holds("/sums", "123456789\x83\x92\x06\xe3\xcb\xf4\x39\x26" "123456789", 26);
    GIVES(0, weldfs_write_checksum(file, 100, WELDFS_CRC32C_MASKED, "x", 1, how, &where, NULL));
    GIVES(100, where);
    GIVES(0, weldfs_verify_checksum(file, 100, WELDFS_CRC32C_MASKED, room, 1, how, NULL));
    CHECK(room[0] == 'x');
    GIVES(0, weldfs_verify_checksum(file, 13, WELDFS_CRC32 | WELDFS_BIG_ENDIAN | WELDFS_HEADER, NULL, 9, how, &sum));
    CHECK(sum == 0xcbf43926u);
    GIVES(-EBADMSG, weldfs_verify_checksum(file, 13, WELDFS_CRC32 | WELDFS_HEADER, room, 9, how, NULL));
    CHECK(memcmp(room, "123456789", 9) == 0);
    GIVES(-ENODATA, weldfs_verify_checksum(file, 101, 0, NULL, 9, how, NULL));
    GIVES(-EINVAL, weldfs_append_checksum(file, 3, "x", 1, how, NULL, NULL));
    GIVES(-EINVAL, weldfs_append_checksum(file, 0, "x", 1, WELDFS_ON_DEVICE | WELDFS_OR_CORE, NULL, NULL));
    GIVES(-E2BIG, weldfs_append_checksum(file, 0, room, SIZE_MAX, how, NULL, NULL));
    GIVES(0, weldfs_close(file));
}

static void fields(uint32_t how) {
    weldfs_file *file = fresh("/fields"), *log = fresh("/versions");
    char old[4] = "";
    uint64_t before = 0, where = 99;
    GIVES(0, weldfs_modify_field(file, 0, WELDFS_PATCH, 0, "\x0f\xf0\x01\x02", NULL, 4, NULL, how));
    GIVES(4, weldfs_modify_field(file, 0, WELDFS_AND, 0, "\x3c\x3c\xff\xff", NULL, 4, old, how));
    CHECK(memcmp(old, "\x0f\xf0\x01\x02", 4) == 0);
    GIVES(4, weldfs_modify_field(file, 0, WELDFS_OR, 0, "\x01\0\0\0", NULL, 4, NULL, how));
    GIVES(4, weldfs_modify_field(file, 0, WELDFS_XOR, 0, "\0\0\xff\0", NULL, 4, NULL, how));
    GIVES(2, weldfs_modify_field(file, 2, WELDFS_ADD, WELDFS_BIG_ENDIAN, "\x00\xff", NULL, 2, NULL, how));
    holds("/fields", "\x0d\x30\xff\x01", 4);
    GIVES(-ECANCELED, weldfs_modify_field(file, 0, WELDFS_COMPARE_SWAP, 0, "new!", "none", 4, old, how));
    CHECK(memcmp(old, "\x0d\x30\xff\x01", 4) == 0);
    GIVES(4, weldfs_modify_field(file, 0, WELDFS_COMPARE_SWAP, 0, "new!", old, 4, NULL, how));
    GIVES(-EINVAL, weldfs_modify_field(file, 0, WELDFS_ADD, 0, "xxx", NULL, 3, NULL, how));
    GIVES(0, weldfs_fetch_add(file, 8, 7, 8, WELDFS_BIG_ENDIAN, how, &before));
    GIVES(0, before);
    GIVES(0, weldfs_fetch_add(file, 8, UINT64_MAX, 8, WELDFS_BIG_ENDIAN, how, &before));
    GIVES(7, before);
    holds("/fields", "new!\0\0\0\0\0\0\0\0\0\0\0\x06", 16);
    /* A record of 16 bytes at 32, its length in two bytes. */
    GIVES(0, weldfs_append_to_record(file, 32, 2, 0, 16, "abc", 3, how, &before));
    GIVES(0, before);
    GIVES(0, weldfs_append_to_record(file, 32, 2, 0, 16, "de", 2, how, &before));
    GIVES(3, before);
    GIVES(-EFBIG, weldfs_append_to_record(file, 32, 2, 0, 16, "123456789012", 12, how, NULL));
    GIVES(0, weldfs_read_modify_append(file, 34, 5, 1, WELDFS_PATCH, 0, "X", NULL, 1, log, how, &where));
    GIVES(0, where);
    GIVES(0, weldfs_read_modify_append(log, 0, 5, 0, WELDFS_ADD, 0, "\x01", NULL, 1, log, how, &where));
    GIVES(5, where);
    holds("/versions", "aXcdebXcde", 10);
    GIVES(-ERANGE, weldfs_read_modify_append(log, 0, 5, 4, WELDFS_PATCH, 0, "XX", NULL, 2, log, how, NULL));
    char last[3];
    GIVES(3, weldfs_read_append(log, WELDFS_END, last, 3, "tail", 4, how, &where));
    CHECK(memcmp(last, "cde", 3) == 0 && where == 10);
    GIVES(3, weldfs_read_append(log, 1, last, 3, "!", 1, how, NULL));
    CHECK(memcmp(last, "Xcd", 3) == 0);
    GIVES(0, weldfs_append_and_sync(log, "kept", 4, &where));
    GIVES(15, where);
    GIVES(0, weldfs_close(file));
    GIVES(0, weldfs_close(log));
}

static void moves(void) {
    weldfs_file *a = fresh("/a"), *b = fresh("/b"), *to = fresh("/to");
    uint64_t before = 0, after = 0;
    GIVES(5, weldfs_pwrite(a, "first", 5, 0, 0, NULL));
    GIVES(6, weldfs_pwrite(b, "second", 6, 0, 0, NULL));
    GIVES(3, weldfs_copy_range(a, 2, 100, to, WELDFS_END, 0));
    GIVES(2, weldfs_copy_range(b, 0, 2, to, 0, WELDFS_VOLATILE));
    const weldfs_file *both[] = {a, b};
    GIVES(0, weldfs_concat(both, 2, to, 0, &before, &after));
    CHECK(before == 3 && after == 14);
    holds("/to", "setfirstsecond", 14);
    GIVES(-EINVAL, weldfs_concat(NULL, 0, to, 0, NULL, NULL));
    GIVES(-EINVAL, weldfs_concat((const weldfs_file *[]){NULL}, 1, to, 0, NULL, NULL));

    GIVES(0, weldfs_atomic_replace(client, "/config", NULL, 0640, "new content", 11));
    GIVES(0, weldfs_atomic_replace(client, "/config", "/config.new", 0600, "newer", 5));
    GIVES(-EEXIST, weldfs_atomic_replace(client, "/config", "/a", 0600, "newest", 6));
    holds("/config", "newer", 5);

    int rotated = 7;
    GIVES(0, weldfs_append_and_rotate(client, "/log", "/log.1", 10, 0640, "one two", 7, 0, &before, &rotated));
    CHECK(before == 0 && rotated == 0);
    GIVES(0, weldfs_append_and_rotate(client, "/log", "/log.1", 10, 0640, "!!!", 3, WELDFS_DURABLE, &before, &rotated));
    CHECK(before == 7 && rotated == 0);
    GIVES(0, weldfs_append_and_rotate(client, "/log", "/log.1", 10, 0640, "3", 1, 0, &before, &rotated));
    CHECK(before == 0 && rotated == 1);
    holds("/log", "3", 1);
    holds("/log.1", "one two!!!", 10);
    GIVES(0, weldfs_append_and_rotate(client, "/log", "/log.1", 0, 0640, "all", 3, 0, NULL, NULL));
    holds("/log.1", "3", 1);
    GIVES(-EEXIST, weldfs_append_and_rotate(client, "/log", "/log", 0, 0640, "lost", 4, 0, NULL, NULL));
    GIVES(-EINVAL, weldfs_append_and_rotate(client, "/log", NULL, 0, 0640, "lost", 4, 0, NULL, NULL));
    holds("/log", "all", 3);

    weldfs_tree_node tree[] = {
        {.kind = WELDFS_TREE_DIRECTORY, .mode = 0750, .path = "/tree"},
        {.kind = WELDFS_TREE_FILE, .mode = 0640, .path = "/tree/file", .content = "leaf", .len = 4},
        {.kind = WELDFS_TREE_LINK, .path = "/tree/link", .content = "file", .len = 4},
    };
    GIVES(0, weldfs_create_tree(client, tree, 3, WELDFS_DURABLE));
    holds("/tree/link", "leaf", 4);
    tree[0].path = "/other";
    GIVES(-EEXIST, weldfs_create_tree(client, tree, 3, 0));
    weldfs_stat st;
    GIVES(-ENOENT, weldfs_stat_path(client, "/other", &st));
    tree[0].kind = 9;
    GIVES(-EINVAL, weldfs_create_tree(client, tree, 1, 0));

    weldfs_write_item writes[] = {{.file = a, .from = "F", .len = 1, .offset = 0},
                                  {.file = b, .from = "!", .len = 1, .offset = WELDFS_END},
                                  {.file = a, .from = "?", .len = 1, .offset = WELDFS_END}};
    GIVES(0, weldfs_multi_write(writes, 3, WELDFS_DURABLE));
    holds("/a", "First?", 6);
    holds("/b", "second!", 7);
    writes[2].file = NULL;
    GIVES(-EINVAL, weldfs_multi_write(writes, 3, 0));
    weldfs_write_item many[16];
    for (int i = 0; i < 16; i++) many[i] = writes[0];
    GIVES(-E2BIG, weldfs_multi_write(many, 16, 0));

    weldfs_txn *txn;
    GIVES(0, weldfs_txn_begin(client, &txn));
    GIVES(1, weldfs_txn_write(txn, a, "logged", 6, 0));
    GIVES(2, weldfs_txn_write(txn, b, "too", 3, WELDFS_END));
    GIVES(3, weldfs_txn_write(txn, a, "edited", 6, 0));
    holds("/a", "First?", 6);
    GIVES(15, weldfs_txn_commit(txn, WELDFS_DURABLE));
    holds("/a", "edited", 6);
    holds("/b", "second!too", 10);
    GIVES(0, weldfs_txn_begin(client, &txn));
    GIVES(1, weldfs_txn_write(txn, a, "never", 5, 0));
    GIVES(0, weldfs_txn_abort(txn));
    GIVES(0, weldfs_txn_abort(NULL));
    GIVES(-EINVAL, weldfs_txn_commit(NULL, 0));
    holds("/a", "edited", 6);
    GIVES(0, weldfs_close(a));
    GIVES(0, weldfs_close(b));
    GIVES(0, weldfs_close(to));
}

static void transforms(uint32_t how) {
    weldfs_file *file = fresh("/packed"), *plain = fresh("/plain"), *sealed = fresh("/sealed");
    static char text[60000], room[60000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)("weldfs "[i % 7] + (i / 5000));
    weldfs_frame frame;
    for (uint32_t codec = WELDFS_LZ4; codec <= WELDFS_SNAPPY; codec++) {
        GIVES(0, weldfs_compress_write(file, WELDFS_END, codec, text, sizeof text, how, &frame));
        CHECK(frame.len > 0 && frame.len < sizeof text / 4);
        memset(room, 0, sizeof room);
        GIVES(sizeof text, weldfs_read_decompress(file, frame.offset, frame.len, codec, room, sizeof room, how));
        CHECK(memcmp(text, room, sizeof room) == 0);
        GIVES(-E2BIG, weldfs_read_decompress(file, frame.offset, frame.len, codec, room, 100, how));
    }
    GIVES(-EBADMSG, weldfs_read_decompress(file, frame.offset, frame.len, WELDFS_ZSTD, room, sizeof room, how));
    GIVES(-EINVAL, weldfs_compress_write(file, 0, 77, text, 1, how, &frame));

    unsigned char bytes[64];
    for (int i = 0; i < 64; i++) bytes[i] = (unsigned char)(i * 7 + 1);
    weldfs_key *record, *units;
    GIVES(0, weldfs_set_key(client, WELDFS_GCM256, bytes, 32, &record));
    GIVES(0, weldfs_set_key(client, WELDFS_XTS256, bytes, 64, &units));
    weldfs_key *none;
    GIVES(-EINVAL, weldfs_set_key(client, WELDFS_GCM128, bytes, 15, &none));
    CHECK(none == NULL);
    uint64_t where = 0;
    GIVES(0, weldfs_encrypt_write(sealed, WELDFS_END, record, 0, "secret", 6, how, &where));
    GIVES(0, weldfs_encrypt_write(sealed, WELDFS_END, record, 0, "another", 7, how, &where));
    GIVES(34, where);
    GIVES(7, weldfs_read_decrypt(sealed, 34, record, 0, room, 7, how));
    CHECK(memcmp(room, "another", 7) == 0);
    // Any constant byte would be the one that stands there already once in 256 runs.
    char flipped;
    GIVES(1, weldfs_pread(sealed, &flipped, 1, 40));
    flipped ^= 1;
    GIVES(1, weldfs_pwrite(sealed, &flipped, 1, 40, 0, NULL));
    GIVES(-EBADMSG, weldfs_read_decrypt(sealed, 34, record, 0, room, 7, how));
    GIVES(-EINVAL, weldfs_encrypt_write(sealed, WELDFS_END, units, 0, "secret", 6, how, &where));
    GIVES(0, weldfs_encrypt_write(plain, 4096, units, 512, text, 1024, how, NULL));
    GIVES(1024, weldfs_pread(plain, room, 1024, 4096));
    CHECK(memcmp(room, text, 1024) != 0);
    GIVES(100, weldfs_read_decrypt(plain, 4096 + 500, units, 512, room, 100, how));
    CHECK(memcmp(room, text + 500, 100) == 0);
    GIVES(9, weldfs_pwrite(plain, "plaintext", 9, 0, 0, NULL));
    GIVES(9, weldfs_read_encrypt_write(plain, 0, 9, sealed, WELDFS_END, record, 0, how, &where));
    GIVES(9, weldfs_read_decrypt(sealed, where, record, 0, room, 9, how));
    CHECK(memcmp(room, "plaintext", 9) == 0);
    weldfs_forget_key(record);
    weldfs_forget_key(units);
    weldfs_forget_key(NULL);
    GIVES(0, weldfs_close(file));
    GIVES(0, weldfs_close(plain));
    GIVES(0, weldfs_close(sealed));
}

static void logs(void) {
    weldfs_file *log = fresh("/log"), *good = fresh("/good");
    for (int i = 0; i < 5; i++) {
        uint64_t where;
        /* length, payload, checksum: the head is the length alone, and the checksum covers it */
        GIVES(0, weldfs_append_checksum(log, WELDFS_CRC32C, "\4\0\0\0data", 8, 0, &where, NULL));
        GIVES(i * 12, where);
    }
    GIVES(1, weldfs_pwrite(log, "D", 1, 3 * 12 + 4, 0, NULL));
    weldfs_log_format format = {.head = 4, .length_width = 4, .sum = WELDFS_CRC32C, .sum_at = WELDFS_BEHIND};
    uint64_t offsets[8] = {0}, end = 0;
    GIVES(3, weldfs_log_recover(log, 0, 1 << 20, &format, offsets, 8, good, WELDFS_END, WELDFS_DURABLE, &end));
    CHECK(end == 36 && offsets[0] == 0 && offsets[2] == 24);
    weldfs_stat st;
    GIVES(0, weldfs_fstat(good, &st));
    GIVES(36, st.bytes);
    GIVES(3, weldfs_log_recover(log, 0, 1 << 20, &format, NULL, 0, NULL, 0, 0, NULL));
    GIVES(-EOPNOTSUPP, weldfs_log_recover(log, 0, 1 << 20, &format, NULL, 0, NULL, 0, WELDFS_ON_HOST, NULL));
    format.sum_at = 300;
    GIVES(-EINVAL, weldfs_log_recover(log, 0, 1 << 20, &format, NULL, 0, NULL, 0, 0, NULL));
    GIVES(0, weldfs_close(log));
    GIVES(0, weldfs_close(good));
}

static void batches(void) {
    weldfs_file *file = fresh("/many");
    weldfs_batch *batch;
    weldfs_result results[9];
    weldfs_stat st = {0};
    char read[8], old[8], whole[8];
    GIVES(0, weldfs_batch_create(client, &batch));
    GIVES(0, weldfs_batch_mkdir(batch, "/batch", 0700));
    GIVES(0, weldfs_batch_open_write_close(batch, "/batch/f", O_WRONLY | O_CREAT, 0640, "content", 7, 0));
    GIVES(0, weldfs_batch_open_read_close(batch, "/batch/f", O_RDONLY, whole, sizeof whole, 0));
    GIVES(0, weldfs_batch_open_read_write_close(batch, "/batch/f", O_RDWR, 0, old, 4, 0, "new", 3, WELDFS_END));
    GIVES(0, weldfs_batch_pwrite(batch, file, "in place", 8, 4));
    GIVES(0, weldfs_batch_pread(batch, file, read, 8, 4));
    GIVES(0, weldfs_batch_stat(batch, "/batch/f", 0, &st));
    GIVES(0, weldfs_batch_unlink(batch, "/batch/f"));
    GIVES(0, weldfs_batch_unlink(batch, "/batch/f"));
    GIVES(9, weldfs_batch_len(batch));
    GIVES(-EINVAL, weldfs_batch_run(batch, 0, results, 8));
    GIVES(1, weldfs_batch_run(batch, WELDFS_DURABLE, results, 9));
    const int64_t expected[] = {0, 7, 7, 4, 8, 8, 0, 0, -ENOENT};
    for (int i = 0; i < 9; i++) GIVES(expected[i], results[i].result);
    CHECK(results[1].created == 1 && results[1].value == 0 && results[3].created == 0 && results[3].value == 7);
    CHECK(results[4].value == 4 && memcmp(read, "in place", 8) == 0 && memcmp(whole, "content", 7) == 0);
    CHECK(memcmp(old, "cont", 4) == 0 && st.bytes == 10 && (st.mode & 07777) == 0640);
    GIVES(0, weldfs_batch_len(batch));
    GIVES(0, weldfs_batch_mkdir(batch, "/never", 0700));
    GIVES(0, weldfs_batch_clear(batch));
    GIVES(0, weldfs_batch_run(batch, 0, NULL, 0));
    weldfs_batch_destroy(batch);
    weldfs_batch_destroy(NULL);
    GIVES(0, weldfs_close(file));

    const char *names[] = {"/config", "/missing", "/tree/link"};
    weldfs_stat stats[3];
    int errors[3];
    GIVES(1, weldfs_stat_many(client, names, 3, 1, stats, errors));
    CHECK(errors[0] == 0 && stats[0].bytes == 5 && errors[1] == -ENOENT && S_ISLNK(stats[2].mode));
    GIVES(1, weldfs_stat_many(client, names, 3, 0, stats, errors));
    CHECK(errors[2] == 0 && S_ISREG(stats[2].mode));

    weldfs_dir *dir;
    weldfs_entry entry;
    int error, seen = 0;
    GIVES(0, weldfs_opendir(client, "/tree", &dir));
    while (weldfs_readdir_plus(dir, &entry, &st, &error) == 1) {
        GIVES(0, error);
        CHECK(st.ino == entry.ino && (entry.kind == DT_LNK) == !strcmp(entry.name, "link"));
        seen++;
    }
    GIVES(2, seen);
    GIVES(0, weldfs_seekdir(dir, 0));
    /* The two ways of listing share the place. */
    GIVES(1, weldfs_readdir(dir, &entry));
    GIVES(1, weldfs_readdir_plus(dir, &entry, &st, &error));
    GIVES(0, weldfs_readdir(dir, &entry));
    GIVES(-EINVAL, weldfs_readdir_plus(dir, &entry, NULL, &error));
    weldfs_closedir(dir);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    struct sigaction action = {.sa_handler = ring};
    struct itimerval often = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    GIVES(0, weldfs_attach_target(argv[1], NULL, &client));
    const uint32_t both[] = {0, WELDFS_ON_HOST, WELDFS_ON_DEVICE | WELDFS_AFTER_DURABLE};
    for (int i = 0; i < 3; i++) {
        checksums(both[i]);
        fields(both[i]);
        transforms(both[i]);
    }
    moves();
    logs();
    batches();
    while (rings < 2) weldfs_sync(client);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    weldfs_detach(client);
    puts("the catalogue works");
    return 0;
}
