/* Programs from C: every step once, guards, reads that depend on reads, the text form, and what a wrong one is told. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static weldfs_client *client;

static weldfs_program *empty(void) {
    weldfs_program *program;
    GIVES(0, weldfs_program_create(&program));
    return program;
}

static weldfs_value number(uint64_t n) { return weldfs_number(n); }

static weldfs_place literal(weldfs_program *program, const char *text) {
    weldfs_place place;
    GIVES(0, weldfs_program_literal(program, text, strlen(text), &place));
    return place;
}

static void holds(const char *name, const void *want, int64_t len) {
    static char room[70000];
    GIVES(len, weldfs_open_read_close(client, name, O_RDONLY, room, sizeof room, 0));
    CHECK(memcmp(room, want, (size_t)len) == 0);
}

/* An index says where a record is, and how long: one crossing finds it, counts it, and shows it. */
static void dependent_reads(void) {
    weldfs_file *table;
    GIVES(0, weldfs_open(client, "/table", O_RDWR | O_CREAT | O_TRUNC, 0600, &table));
    GIVES(12, weldfs_pwrite(table, "\x40\0\0\0\0\0\0\0\0\0\0\5", 12, 0, 0, NULL));
    GIVES(5, weldfs_pwrite(table, "found", 5, 0x40, 0, NULL));

    weldfs_program *p = empty();
    int range = weldfs_program_range(p, 64), index = weldfs_program_buffer(p, 12);
    int where = weldfs_program_register(p), len = weldfs_program_register(p), got = weldfs_program_register(p);
    int file = weldfs_program_use(p, table, O_RDWR);
    CHECK(range == 0 && index == 0 && where == 0 && len == 1 && got == 2 && file == 0);
    GIVES(0, weldfs_program_read(p, file, number(0), number(12), weldfs_in_buffer(index), WELDFS_WHOLE, 0,
                                 WELDFS_NONE, WELDFS_NONE));
    GIVES(0, weldfs_program_load(p, index, number(0), 8, 0, where));
    GIVES(0, weldfs_program_load(p, index, number(8), 4, WELDFS_BIG_ENDIAN, len));
    GIVES(0, weldfs_program_guard(p, weldfs_held(len), WELDFS_AT_MOST, number(64), WELDFS_ELSE_FAIL, EMSGSIZE));
    int sum = weldfs_program_register(p);
    GIVES(0, weldfs_program_read(p, file, weldfs_held(where), weldfs_held(len), weldfs_in_range(range), 0,
                                 WELDFS_CRC32C, sum, got));
    GIVES(0, weldfs_program_add(p, index, number(0), 8, 0, number(1)));
    GIVES(0, weldfs_program_write(p, file, number(0), weldfs_in_buffer(index), 0, WELDFS_NONE, WELDFS_NONE));
    GIVES(0, weldfs_program_results(p, got, sum));
    char room[64];
    weldfs_operand operand = {.data = room, .len = sizeof room};
    weldfs_outcome outcome;
    GIVES(0, weldfs_program_run(p, client, &operand, 1, WELDFS_DURABLE, &outcome));
    CHECK(operand.filled == 5 && memcmp(room, "found", 5) == 0 && outcome.value == 5);
    CHECK(outcome.done == 8 && outcome.failed == 0 && outcome.value2 != 0);
    /* It changed what it depends on: the same program finds something else. */
    GIVES(0, weldfs_program_run(p, client, &operand, 1, 0, NULL));
    CHECK(operand.filled == 4 && memcmp(room, "ound", 4) == 0);
    GIVES(1, weldfs_pwrite(table, "\1", 1, 8, 0, NULL));
    GIVES(-EMSGSIZE, weldfs_program_run(p, client, &operand, 1, 0, &outcome));
    CHECK(outcome.failed == 5 && operand.filled == 0);
    weldfs_program_destroy(p);
    GIVES(0, weldfs_close(table));
}

static void bytes_and_numbers(void) {
    weldfs_program *p = empty();
    int in = weldfs_program_range(p, 8), out = weldfs_program_range(p, 64);
    int a = weldfs_program_buffer(p, 64), b = weldfs_program_buffer(p, 64);
    int x = weldfs_program_register(p), y = weldfs_program_register(p), made = weldfs_program_register(p);
    int file = weldfs_program_open(p, "/bytes", O_RDWR | O_CREAT | O_EXCL, 0600, made);
    GIVES(0, weldfs_program_fill(p, a, weldfs_in_range(in), 0));
    GIVES(0, weldfs_program_fill(p, a, literal(p, " and more"), 1));
    GIVES(0, weldfs_program_change(p, a, number(0), WELDFS_XOR, literal(p, "    "), weldfs_nowhere()));
    GIVES(0, weldfs_program_change(p, a, number(4), WELDFS_COMPARE_SWAP, literal(p, "FOUR"), literal(p, "four")));
    GIVES(0, weldfs_program_slice(p, b, a, number(4), number(8)));
    GIVES(0, weldfs_program_length(p, a, x));
    GIVES(0, weldfs_program_compute(p, y, weldfs_held(x), WELDFS_TIMES, number(3)));
    GIVES(0, weldfs_program_checksum(p, WELDFS_CRC32C, weldfs_in_buffer(a), x));
    GIVES(0, weldfs_program_write(p, file, weldfs_at_end(), weldfs_in_buffer(a), 0, WELDFS_NONE, WELDFS_NONE));
    GIVES(0, weldfs_program_write(p, file, weldfs_after_last(), weldfs_in_register(x, 4, 0), 0, WELDFS_NONE,
                                  WELDFS_NONE));
    GIVES(0, weldfs_program_guard_holds(p, b, number(0), literal(p, "FOUR and"), WELDFS_ELSE_FAIL, EPROTO));
    GIVES(0, weldfs_program_give(p, b, out, WELDFS_NONE));
    GIVES(0, weldfs_program_size(p, file, x));
    GIVES(0, weldfs_program_sync(p));
    GIVES(0, weldfs_program_close(p, file));
    GIVES(0, weldfs_program_results(p, x, y));
    char room[64] = {0}, data[8] = {'w', 'o', 'r', 'd', 'f', 'o', 'u', 'r'};
    weldfs_operand operands[] = {{.data = data, .len = 8}, {.data = room, .len = 64}};
    weldfs_outcome outcome;
    GIVES(0, weldfs_program_run(p, client, operands, 2, WELDFS_VOLATILE, &outcome));
    CHECK(outcome.value == 21 && outcome.value2 == 51 && outcome.done == 16);
    CHECK(memcmp(room, "FOUR and", 8) == 0);
    CHECK(weldfs_open_read_close(client, "/bytes", O_RDONLY, room, 17, 0) == 17 && !memcmp(room, "WORDFOUR and more", 17));
    /* It makes the file, or fails whole. */
    GIVES(-EEXIST, weldfs_program_run(p, client, operands, 2, 0, &outcome));
    CHECK(outcome.done == 0 && outcome.failed == 1);
    /* Operands that are not those of its ranges. */
    operands[0].len = 7;
    GIVES(-EINVAL, weldfs_program_run(p, client, operands, 2, 0, NULL));
    GIVES(-EINVAL, weldfs_program_run(p, client, operands, 1, 0, NULL));
    GIVES(-EOPNOTSUPP, weldfs_program_run(p, client, operands, 2, WELDFS_ON_HOST, NULL));
    weldfs_program_destroy(p);
}

static void kernels(void) {
    weldfs_program *p = empty();
    int out = weldfs_program_range(p, 16), x = weldfs_program_register(p);
    int a = weldfs_program_buffer(p, 16), b = weldfs_program_buffer(p, 16);
    GIVES(0, weldfs_program_fill(p, a, literal(p, "123456789"), 0));
    weldfs_value seed = number(0);
    GIVES(0, weldfs_program_kernel(p, b, a, "crc32c", &seed, 1));
    GIVES(0, weldfs_program_load(p, b, number(0), 4, 0, x));
    GIVES(0, weldfs_program_kernel(p, b, a, "pass-through", NULL, 0));
    GIVES(0, weldfs_program_give(p, b, out, WELDFS_NONE));
    GIVES(0, weldfs_program_results(p, x, WELDFS_NONE));
    char room[16] = {0};
    weldfs_operand operand = {.data = room, .len = 16};
    weldfs_outcome outcome;
    GIVES(0, weldfs_program_run(p, client, &operand, 1, WELDFS_IN_SLOT, &outcome));
    CHECK(outcome.value == 0xe3069283 && memcmp(room, "123456789", 9) == 0);
    GIVES(0, weldfs_program_run(p, client, &operand, 1, WELDFS_IN_SLOT | WELDFS_OR_CORE, &outcome));
    GIVES(-EINVAL, weldfs_program_run(p, client, &operand, 1, WELDFS_OR_CORE, &outcome));
    weldfs_program_destroy(p);
    p = empty();
    a = weldfs_program_buffer(p, 16), b = weldfs_program_buffer(p, 16);
    GIVES(0, weldfs_program_fill(p, a, literal(p, "x"), 0));
    GIVES(0, weldfs_program_kernel(p, b, a, "no-such-kernel", NULL, 0));
    GIVES(-ENOENT, weldfs_program_run(p, client, NULL, 0, 0, &outcome));
    CHECK(outcome.failed == 2);
    weldfs_program_destroy(p);
}

static void files_and_names(void) {
    weldfs_program *p = empty();
    weldfs_stat st;
    GIVES(0, weldfs_program_mkdir(p, "/p", 0700));
    int f = weldfs_program_open(p, "/p/f", O_RDWR | O_CREAT, 0600, WELDFS_NONE);
    GIVES(0, weldfs_program_write(p, f, number(0), literal(p, "0123456789"), 0, WELDFS_NONE, WELDFS_NONE));
    int g = weldfs_program_open(p, "/p/g", O_RDWR | O_CREAT, 0600, WELDFS_NONE);
    int n = weldfs_program_register(p);
    GIVES(0, weldfs_program_copy(p, f, number(2), number(5), 0, g, weldfs_at_end(), n));
    GIVES(0, weldfs_program_truncate(p, f, number(4)));
    GIVES(0, weldfs_program_symlink(p, "f", "/p/s"));
    GIVES(0, weldfs_program_link(p, "/p/f", "/p/l", 0));
    GIVES(0, weldfs_program_rename(p, "/p/g", "/p/h", 0));
    GIVES(0, weldfs_program_set(p, "/p/h", 0640, number(3), WELDFS_SET_SIZE | WELDFS_CHANGED_NOW));
    GIVES(0, weldfs_program_mkdir(p, "/p/d", 0700));
    GIVES(0, weldfs_program_rmdir(p, "/p/d"));
    GIVES(0, weldfs_program_unlink(p, "/p/l"));
    GIVES(0, weldfs_program_results(p, n, WELDFS_NONE));
    weldfs_outcome outcome;
    GIVES(0, weldfs_program_run(p, client, NULL, 0, WELDFS_ALL_OR_NOTHING, &outcome));
    GIVES(5, outcome.value);
    holds("/p/s", "0123", 4);
    holds("/p/h", "234", 3);
    GIVES(0, weldfs_stat_path(client, "/p/h", &st));
    GIVES(0640, st.mode & 07777);
    GIVES(-ENOENT, weldfs_stat_path(client, "/p/l", &st));
    weldfs_program_destroy(p);
    /* Step by step, what came before the failure stays. */
    p = empty();
    GIVES(0, weldfs_program_mkdir(p, "/p/stays", 0700));
    GIVES(0, weldfs_program_rmdir(p, "/p/missing"));
    GIVES(-ENOENT, weldfs_program_run(p, client, NULL, 0, WELDFS_STEP_BY_STEP, &outcome));
    CHECK(outcome.done == 1 && outcome.failed == 2);
    GIVES(0, weldfs_stat_path(client, "/p/stays", &st));
    weldfs_program_destroy(p);
}

static void logs_codecs_and_keys(void) {
    weldfs_file *log;
    GIVES(0, weldfs_open(client, "/plog", O_RDWR | O_CREAT | O_TRUNC, 0600, &log));
    for (int i = 0; i < 3; i++)
        GIVES(0, weldfs_append_checksum(log, WELDFS_CRC32C, "\4\0\0\0data", 8, 0, NULL, NULL));
    weldfs_log_format format = {.head = 4, .length_width = 4, .sum_at = WELDFS_BEHIND};
    weldfs_program *p = empty();
    int offsets = weldfs_program_range(p, 64), count = weldfs_program_register(p), why = weldfs_program_register(p);
    int f = weldfs_program_use(p, log, O_RDONLY);
    GIVES(0, weldfs_program_scan(p, f, number(0), number(1 << 20), &format, offsets, count, WELDFS_NONE, why));
    GIVES(0, weldfs_program_results(p, count, why));
    uint64_t found[8];
    memset(found, 0xee, sizeof found);
    weldfs_operand operand = {.data = found, .len = 64};
    weldfs_outcome outcome;
    /* What earlier commands left in the pool is none of it: zeros are behind what was found. */
    for (int i = 0; i < 8; i++) GIVES(64, weldfs_pwrite(log, found, 64, 1 << 20, 0, NULL));
    GIVES(0, weldfs_ftruncate(log, 36));
    GIVES(0, weldfs_program_run(p, client, &operand, 1, 0, &outcome));
    CHECK(outcome.value == 3 && outcome.value2 == 0 && found[2] == 24);
    CHECK(operand.filled == 64 && found[3] == 0 && found[7] == 0);
    weldfs_program_destroy(p);

    weldfs_key *gcm, *xts;
    unsigned char bytes[64];
    for (int i = 0; i < 64; i++) bytes[i] = (unsigned char)(255 - 3 * i);
    GIVES(0, weldfs_set_key(client, WELDFS_GCM128, bytes, 16, &gcm));
    GIVES(0, weldfs_set_key(client, WELDFS_XTS128, bytes, 32, &xts));
    p = empty();
    int plain = weldfs_program_buffer(p, 4096), packed = weldfs_program_buffer(p, 8192);
    int sealed = weldfs_program_buffer(p, 8300), opened = weldfs_program_buffer(p, 8192);
    int back = weldfs_program_buffer(p, 4096), units = weldfs_program_buffer(p, 4096);
    int out = weldfs_program_range(p, 4096), in = weldfs_program_range(p, 512);
    GIVES(0, weldfs_program_fill(p, plain, weldfs_in_range(in), 0));
    GIVES(0, weldfs_program_transform(p, packed, plain, WELDFS_COMPRESS, WELDFS_ZSTD));
    GIVES(0, weldfs_program_cipher(p, sealed, packed, WELDFS_ENCRYPT, gcm, 0, number(0), literal(p, "bound")));
    GIVES(0, weldfs_program_cipher(p, opened, sealed, WELDFS_DECRYPT, gcm, 0, number(0), literal(p, "bound")));
    GIVES(0, weldfs_program_transform(p, back, opened, WELDFS_DECOMPRESS, WELDFS_ZSTD));
    GIVES(0, weldfs_program_cipher(p, units, back, WELDFS_ENCRYPT, xts, 512, number(7), weldfs_nowhere()));
    GIVES(0, weldfs_program_cipher(p, back, units, WELDFS_DECRYPT, xts, 512, number(7), weldfs_nowhere()));
    int len = weldfs_program_register(p);
    GIVES(0, weldfs_program_give(p, back, out, len));
    GIVES(0, weldfs_program_results(p, len, WELDFS_NONE));
    char data[512], room[4096];
    memset(data, 'z', sizeof data);
    weldfs_operand operands[] = {{.data = room, .len = 4096}, {.data = data, .len = 512}};
    GIVES(0, weldfs_program_run(p, client, operands, 2, 0, &outcome));
    CHECK(outcome.value == 512 && operands[0].filled == 512 && memcmp(room, data, 512) == 0);
    /* The key is gone: the program says so. */
    weldfs_forget_key(gcm);
    GIVES(-ENOKEY, weldfs_program_run(p, client, operands, 2, 0, &outcome));
    weldfs_program_destroy(p);
    weldfs_forget_key(xts);
    GIVES(0, weldfs_close(log));
}

static void text_form(void) {
    weldfs_program *p;
    char why[200], printed[2000];
    unsigned char bytes[32] = {5};
    weldfs_key *key;
    GIVES(0, weldfs_set_key(client, WELDFS_GCM256, bytes, 32, &key));
    weldfs_name names[] = {{.name = "@in", .len = 5}, {.name = "secret", .key = key}};
    const char *text = "open /text rw create; fill a @in; seal a -> b key secret; append b\n"
                       "unseal b -> c key secret; give c -> @out count -> n; result n";
    GIVES(0, weldfs_program_parse(text, names, 2, &p, why, sizeof why));
    CHECK(why[0] == 0);
    int in = weldfs_program_find(p, "@in"), out = weldfs_program_find(p, "@out");
    CHECK(in == 0 && out == 1 && weldfs_program_find(p, "n") >= 0);
    GIVES(-ENOENT, weldfs_program_find(p, "nothing"));
    int64_t len = weldfs_program_text(p, printed, sizeof printed);
    CHECK(len > 0 && strstr(printed, "seal b0 -> b1 key "));
    char room[64];
    weldfs_operand operands[2] = {{.data = "hello", .len = 5}, {.data = room, .len = 33}};
    CHECK(strstr(printed, "output @p1 33"));
    weldfs_outcome outcome;
    GIVES(0, weldfs_program_run(p, client, operands, 2, 0, &outcome));
    CHECK(operands[1].filled == 5 && memcmp(room, "hello", 5) == 0 && outcome.value == 5);
    GIVES(-EINVAL, weldfs_program_sync(p)); /* it takes no more steps */
    weldfs_program_destroy(p);
    weldfs_forget_key(key);
    GIVES(-EINVAL, weldfs_program_parse("open /f rw\nfrobnicate", NULL, 0, &p, why, sizeof why));
    CHECK(p == NULL && strstr(why, "line 2"));
    GIVES(-EINVAL, weldfs_program_parse("seal", NULL, 0, &p, NULL, 0));
}

static void make(const char *path, const char *content) {
    weldfs_file *f;
    GIVES(0, weldfs_open(client, path, O_WRONLY | O_CREAT, 0600, &f));
    GIVES((int64_t)strlen(content), weldfs_pwrite(f, content, strlen(content), 0, 0, NULL));
    GIVES(0, weldfs_close(f));
}

/* What a text reads is as long as what was there, not as long as the room: by a result that it leaves free, whether it
 * names none, one, or counts by itself. */
static void text_outputs_are_as_long_as_what_was_read(void) {
    static const struct {
        const char *text, *holds;
        size_t len, filled;
        uint64_t value;
    } texts[] = {
        /* The next rooms lie in the pool where this one did. */
        {"open /long r; read 0 16 -> @out whole", "a longer content", 16, 16, 0},
        {"open /short r; read 0 16 -> @out", "short", 16, 5, 5},
        {"open /short r; read 2 16 -> a; give a -> @out", "ort", 16, 3, 3},
        {"open /short r; read 0 16 -> @out; size -> n; result n", "short", 16, 5, 5},
        {"open /short r; read 9 16 -> @out", "", 16, 0, 0},
        {"open /short r; size -> n; read 1 16 -> @out count -> m; result n m", "hort", 16, 4, 5},
        {"open /short r; read 0 5 -> @out whole", "short", 5, 5, 0},
        /* Both results are taken by others: all of the range, with zeros behind what was read. */
        {"open /short r; size -> n; size -> m; read 0 16 -> @out; result n m", "short", 16, 16, 5},
    };
    make("/short", "short");
    make("/long", "a longer content");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        weldfs_program *p;
        weldfs_outcome outcome;
        char why[200], room[16], want[17] = {0};
        GIVES(0, weldfs_program_parse(texts[i].text, NULL, 0, &p, why, sizeof why));
        weldfs_operand out = {.data = room, .len = texts[i].len};
        GIVES(0, weldfs_program_run(p, client, &out, 1, 0, &outcome));
        GIVES((int64_t)texts[i].filled, (int64_t)out.filled);
        CHECK(memcmp(room, strcpy(want, texts[i].holds), out.filled) == 0);
        GIVES((int64_t)texts[i].value, (int64_t)outcome.value);
        weldfs_program_destroy(p);
    }
}

static void refused(void) {
    weldfs_program *p = empty();
    char text[8];
    GIVES(-EINVAL, weldfs_program_run(p, client, NULL, 0, 0, NULL)); /* without steps it is none */
    CHECK(strstr(weldfs_last_error(), "weldfs_program_run"));
    GIVES(-EINVAL, weldfs_program_text(p, text, sizeof text));
    GIVES(-EINVAL, weldfs_program_size(p, 0, 0));
    GIVES(-EINVAL, weldfs_program_close(p, -1));
    GIVES(-EINVAL, weldfs_program_unlink(p, NULL));
    GIVES(-EINVAL, weldfs_program_guard(p, number(0), 77, number(0), WELDFS_ELSE_END, 0));
    GIVES(-EINVAL, weldfs_program_guard(p, number(0), WELDFS_EQUAL, number(0), WELDFS_ELSE_FAIL, 0));
    GIVES(-EINVAL, weldfs_program_guard(p, weldfs_held(3), WELDFS_EQUAL, number(0), WELDFS_ELSE_END, 0));
    for (int i = 0; i < 8; i++) GIVES(i, weldfs_program_register(p));
    GIVES(-E2BIG, weldfs_program_register(p));
    for (int i = 0; i < 16; i++) GIVES(0, weldfs_program_sync(p));
    GIVES(-E2BIG, weldfs_program_sync(p));
    weldfs_program_destroy(p);
    weldfs_program_destroy(NULL);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    GIVES(0, weldfs_attach_target(argv[1], NULL, &client));
    dependent_reads();
    bytes_and_numbers();
    kernels();
    files_and_names();
    logs_codecs_and_keys();
    text_form();
    text_outputs_are_as_long_as_what_was_read();
    refused();
    weldfs_detach(client);
    puts("programs work");
    return 0;
}
