/* Virtual files and kernels: made, looked at, listed, read, written and removed; each way to fail has its errno. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static weldfs_client *client;

static void put_file(const char *name, const char *text) {
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    GIVES(strlen(text), weldfs_open_write_close(client, name, flags, 0644, text, strlen(text), 0, WELDFS_DEFAULT, NULL));
}

static void holds(const char *name, const char *text) {
    char room[256];
    GIVES(strlen(text), weldfs_open_read_close(client, name, O_RDONLY, room, sizeof room, 0));
    CHECK(memcmp(room, text, strlen(text)) == 0);
}

/* All of a stream, read in pieces of three bytes. */
static size_t drain(weldfs_vfile *file, char *room, size_t size) {
    size_t all = 0;
    int64_t n;
    while ((n = weldfs_vread(file, room + all, size - all < 3 ? size - all : 3)) > 0)
        all += (size_t)n;
    GIVES(0, n);
    return all;
}

static weldfs_virt_spec of(const char *kernel, const weldfs_virt_range *ranges, size_t count) {
    return (weldfs_virt_spec){.kernel = kernel, .ranges = ranges, .range_count = count};
}

static void made_and_described(void) {
    const uint32_t needle[] = {5, 0x6f727265 /* "erro" */, 'r'};
    const weldfs_virt_range ranges[] = {{.path = "/log", .length = WELDFS_VIRT_TO_END},
                                        {.path = "/more", .offset = 3, .length = 9}};
    weldfs_virt_spec spec = of("grep", ranges, 2), found;
    spec.params = needle;
    spec.param_count = 3;
    GIVES(0, weldfs_mkdir(client, "/v", 0755));
    GIVES(0, weldfs_virt_register(client, "/v/errors", 0666, &spec));
    weldfs_stat st;
    GIVES(0, weldfs_stat_path(client, "/v/errors", &st));
    CHECK(st.bytes == 0 && S_ISREG(st.mode) && (st.mode & 07777) == 0640 && st.uid == getuid()); /* umask 027 */
    _Alignas(8) char room[WELDFS_VIRT_ROOM];
    const int64_t used = weldfs_virt_describe(client, "/v/errors", &found, room, sizeof room);
    CHECK(used > 0 && strcmp(found.kernel, "grep") == 0 && found.flags == 0);
    CHECK(found.param_count == 3 && memcmp(found.params, needle, sizeof needle) == 0 && found.range_count == 2);
    CHECK(strcmp(found.ranges[0].path, "/log") == 0 && found.ranges[0].length == WELDFS_VIRT_TO_END);
    CHECK(strcmp(found.ranges[1].path, "/more") == 0 && found.ranges[1].offset == 3 && found.ranges[1].length == 9);
    /* What was described makes another one. At whatever address the room begins; in no less of it than it takes. */
    GIVES(0, weldfs_virt_register(client, "/v/again", 0600, &found));
    CHECK(weldfs_virt_describe(client, "/v/again", &found, room + 1, sizeof room - 1) > 0);
    CHECK(strcmp(found.ranges[1].path, "/more") == 0 && (uintptr_t)found.ranges % _Alignof(weldfs_virt_range) == 0);
    GIVES(used, weldfs_virt_describe(client, "/v/again", &found, room, (size_t)used));
    GIVES(-ERANGE, weldfs_virt_describe(client, "/v/again", &found, room, (size_t)used - 1));
    GIVES(-ERANGE, weldfs_virt_describe(client, "/v/again", &found, NULL, 0));
    GIVES(-EINVAL, weldfs_virt_describe(client, "/v", &found, room, sizeof room));
    GIVES(-ENOENT, weldfs_virt_describe(client, "/none", &found, room, sizeof room));
    GIVES(-EEXIST, weldfs_virt_register(client, "/v/errors", 0666, &spec));
}

static void read_to_the_end(void) {
    put_file("/log", "one error\nnone\n");
    put_file("/more", "xx\nan error\n");
    weldfs_vfile *file;
    uint32_t words[8];
    GIVES(0, weldfs_vopen(client, "/v/errors", O_RDONLY | O_NONBLOCK, &file));
    GIVES(0, weldfs_vsync(file));
    GIVES(16, drain(file, (char *)words, sizeof words));
    CHECK(words[0] == 0 && words[1] == 4 && words[2] == 2 && words[3] == 3);
    /* Other parameters between two streams, not amid one. */
    const uint32_t other[] = {4, 0x656e6f6e /* "none" */};
    GIVES(0, weldfs_vrewind(file));
    GIVES(0, weldfs_send_params(file, other, 2));
    GIVES(8, weldfs_vread(file, words, 8));
    CHECK(words[0] == 1 && words[1] == 0);
    GIVES(0, weldfs_vrewind(file));
    GIVES(0, weldfs_send_params(file, NULL, 0));
    GIVES(-EINVAL, weldfs_vread(file, words, 8)); /* grep wants a needle */
    GIVES(0, weldfs_send_params(file, other, 2));
    GIVES(4, weldfs_vread(file, words, 4));
    GIVES(-EBUSY, weldfs_send_params(file, other, 2));
    GIVES(-EBADF, weldfs_vwrite(file, "x", 1));
    /* Pinned while it is open. */
    GIVES(-ETXTBSY, weldfs_truncate(client, "/log", 0));
    uint32_t value = 77;
    /* It computes ahead of its reader, and is busy as long. */
    int peeked = -EBUSY;
    for (int tries = 0; peeked == -EBUSY && tries < 20000; tries++) {
        peeked = weldfs_kernel_peek(client, "grep", 1, &value);
        if (peeked == -EBUSY) {
            usleep(1000);
        }
    }
    GIVES(0, peeked);
    CHECK(value == 1);
    GIVES(-ENOENT, weldfs_kernel_peek(client, "grep", 99, &value));
    GIVES(-EBUSY, weldfs_kernel_deactivate(client, "grep"));
    GIVES(0, weldfs_vclose(file));
    GIVES(0, weldfs_truncate(client, "/log", 4));
    GIVES(0, weldfs_vclose(NULL));
    /* Any other file is one that is read and written as such. */
    GIVES(0, weldfs_vopen(client, "/more", O_RDWR, &file));
    GIVES(2, weldfs_vread(file, words, 2));
    GIVES(1, weldfs_vwrite(file, "!", 1));
    GIVES(-EINVAL, weldfs_send_params(file, other, 2));
    GIVES(0, weldfs_vclose(file));
    holds("/more", "xx!an error\n");
}

static void written_through(void) {
    put_file("/out", "0123456789abcdef");
    const weldfs_virt_range whole = {.path = "/out", .length = WELDFS_VIRT_TO_END};
    weldfs_virt_spec spec = of("rle", &whole, 1);
    spec.flags = WELDFS_VIRT_WRITE | WELDFS_VIRT_TRUNCATE;
    GIVES(0, weldfs_virt_register(client, "/v/in", 0600, &spec));
    weldfs_vfile *file;
    GIVES(-EPERM, weldfs_vopen(client, "/v/in", O_RDONLY, &file));
    CHECK(file == NULL);
    GIVES(-EPERM, weldfs_vopen(client, "/v/in", O_RDWR, &file));
    GIVES(0, weldfs_vopen(client, "/v/in", O_WRONLY, &file));
    GIVES(4, weldfs_vwrite(file, "\x03" "a\x02" "b", 4));
    GIVES(5, weldfs_vsync(file));
    holds("/out", "aaabb");
    GIVES(-EBADF, weldfs_vread(file, &(char){0}, 1));
    GIVES(2, weldfs_vwrite(file, "\x01" "c", 2));
    GIVES(6, weldfs_vclose(file));
    holds("/out", "aaabbc");
    GIVES(0, weldfs_virt_remove(client, "/v/in"));
    /* Into a part of it, without cutting it. */
    const weldfs_virt_range part = {.path = "/out", .offset = 1, .length = 2};
    spec = of("rle", &part, 1);
    spec.flags = WELDFS_VIRT_WRITE;
    GIVES(0, weldfs_virt_register(client, "/v/in", 0600, &spec));
    GIVES(0, weldfs_vopen(client, "/v/in", O_WRONLY, &file));
    GIVES(2, weldfs_vwrite(file, "\x02X", 2));
    GIVES(2, weldfs_vclose(file));
    holds("/out", "aXXbbc");
    GIVES(0, weldfs_vopen(client, "/v/in", O_WRONLY, &file));
    GIVES(2, weldfs_vwrite(file, "\x03Y", 2));
    GIVES(-EFBIG, weldfs_vclose(file));
}

static void listed_and_removed(void) {
    GIVES(0, weldfs_mkdir(client, "/v/deep", 0755));
    GIVES(0, weldfs_rename(client, "/v/again", "/v/deep/again", 0));
    put_file("/v/empty", "");
    GIVES(0, weldfs_symlink(client, "errors", "/v/link"));
    weldfs_virt_walk *walk;
    weldfs_virt_spec found;
    const char *name;
    int seen = 0, next;
    GIVES(0, weldfs_virt_list(client, "/", &walk));
    while ((next = weldfs_virt_next(walk, &name, &found)) == 1) {
        if (strcmp(name, "/v/errors") == 0 || strcmp(name, "/v/deep/again") == 0) {
            CHECK(strcmp(found.kernel, "grep") == 0 && found.param_count == 3 && found.range_count == 2);
            CHECK(strcmp(found.ranges[0].path, "/log") == 0);
        } else {
            CHECK(strcmp(name, "/v/in") == 0 && strcmp(found.kernel, "rle") == 0 && found.flags == WELDFS_VIRT_WRITE);
        }
        seen++;
    }
    CHECK(next == 0 && name == NULL && seen == 3);
    GIVES(0, weldfs_virt_next(walk, &name, &found));
    weldfs_virt_end(walk);
    /* One by its name, also through a link; what is none; what is not there. */
    GIVES(0, weldfs_virt_list(client, "/v/link", &walk));
    GIVES(1, weldfs_virt_next(walk, &name, &found));
    GIVES(0, weldfs_virt_next(walk, &name, &found));
    weldfs_virt_end(walk);
    GIVES(0, weldfs_virt_list(client, "/v/empty", &walk));
    GIVES(0, weldfs_virt_next(walk, &name, &found));
    weldfs_virt_end(walk);
    GIVES(0, weldfs_virt_list(client, "/none", &walk));
    GIVES(-ENOENT, weldfs_virt_next(walk, &name, &found));
    CHECK(strcmp(name, "/none") == 0);
    GIVES(0, weldfs_virt_next(walk, &name, &found));
    weldfs_virt_end(walk);
    /* Only a virtual file is removed: not its link, and what it names stays. */
    GIVES(-EINVAL, weldfs_virt_remove(client, "/v/link"));
    GIVES(-EINVAL, weldfs_virt_remove(client, "/v/empty"));
    GIVES(-EINVAL, weldfs_virt_remove(client, "/v/deep"));
    GIVES(-ENOENT, weldfs_virt_remove(client, "/v/none"));
    GIVES(0, weldfs_virt_remove(client, "/v/errors"));
    GIVES(-ENOENT, weldfs_virt_remove(client, "/v/errors"));
    GIVES(0, weldfs_stat_path(client, "/log", &(weldfs_stat){0}));
}

/* What cannot be opened, by what is the matter with what it streams. */
static void what_it_streams_is_wrong(void) {
    weldfs_vfile *file;
    const struct {
        const char *kernel, *path;
        uint64_t length;
        int error;
    } cases[] = {{"no-such-kernel", "/out", 1, -ENOENT}, {"grep", "/none", 1, -ENOENT},
                 {"pass-through", "/out", 99, -ENODATA}, {"pass-through", "/v", 1, -EISDIR},
                 {"pass-through", "/v/in", 1, -ELOOP}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const weldfs_virt_range range = {.path = cases[i].path, .length = cases[i].length};
        const weldfs_virt_spec spec = of(cases[i].kernel, &range, 1);
        GIVES(0, weldfs_virt_register(client, "/v/bad", 0600, &spec));
        GIVES(cases[i].error, weldfs_vopen(client, "/v/bad", O_RDONLY, &file));
        GIVES(0, weldfs_virt_remove(client, "/v/bad"));
    }
}

static void misused(void) {
    weldfs_vfile *file;
    weldfs_virt_walk *walk;
    weldfs_virt_range range = {.path = "/log", .length = 1}, two[2] = {range, range};
    weldfs_virt_spec spec = of("grep", &range, 1), wrong = spec;
    const char *name;
    GIVES(-EINVAL, weldfs_virt_register(NULL, "/unmade", 0600, &spec));
    GIVES(-EINVAL, weldfs_virt_register(client, NULL, 0600, &spec));
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, NULL));
    wrong.kernel = NULL;
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    wrong.kernel = "Grep";
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    wrong = spec, wrong.range_count = 0;
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    wrong = spec, wrong.ranges = NULL;
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    wrong = spec, wrong.range_count = SIZE_MAX;
    GIVES(-E2BIG, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    wrong = spec, wrong.param_count = 1;
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    wrong.param_count = SIZE_MAX;
    GIVES(-E2BIG, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    uint32_t many[2000] = {0};
    wrong.params = many, wrong.param_count = 2000;
    GIVES(-E2BIG, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    wrong = spec, wrong.flags = WELDFS_VIRT_TRUNCATE;
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    wrong.flags = 4;
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    wrong = of("rle", two, 2), wrong.flags = WELDFS_VIRT_WRITE;
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    wrong = spec, wrong.reserved[3] = 1;
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    two[1].reserved[0] = 1;
    wrong = of("grep", two, 2);
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    CHECK(strstr(weldfs_last_error(), "range 1: "));
    two[1] = (weldfs_virt_range){.path = "log", .length = 1};
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    CHECK(strstr(weldfs_last_error(), "range 1: the path does not begin with /"));
    two[1] = (weldfs_virt_range){.path = "/log"};
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    two[1].length = 2, two[1].offset = UINT64_MAX - 1;
    GIVES(-EINVAL, weldfs_virt_register(client, "/unmade", 0600, &wrong));
    GIVES(-EINVAL, weldfs_virt_describe(client, "/v/in", NULL, NULL, 0));
    GIVES(-EINVAL, weldfs_vopen(client, "/v/in", O_WRONLY, NULL));
    GIVES(-EINVAL, weldfs_vopen(client, "/unmade", O_WRONLY | O_CREAT, &file));
    GIVES(-ENOENT, weldfs_stat_path(client, "/unmade", &(weldfs_stat){0}));
    GIVES(-ENOENT, weldfs_vopen(client, "/unmade", O_RDONLY, &file));
    GIVES(-EINVAL, weldfs_vread(NULL, NULL, 0));
    GIVES(-EINVAL, weldfs_vwrite(NULL, NULL, 0));
    GIVES(-EINVAL, weldfs_vsync(NULL));
    GIVES(-EINVAL, weldfs_vrewind(NULL));
    GIVES(-EINVAL, weldfs_send_params(NULL, NULL, 0));
    GIVES(0, weldfs_vopen(client, "/v/in", O_WRONLY, &file));
    GIVES(-EINVAL, weldfs_vwrite(file, NULL, 1));
    GIVES(-EINVAL, weldfs_send_params(file, NULL, 1));
    static uint32_t words[4097];
    GIVES(-E2BIG, weldfs_send_params(file, words, 4097));
    GIVES(2, weldfs_vwrite(file, "\x01Z", 2));
    GIVES(-ESPIPE, weldfs_vrewind(file));
    GIVES(0, weldfs_virt_list(client, "/", &walk));
    GIVES(-EINVAL, weldfs_virt_next(walk, NULL, &spec));
    GIVES(-EINVAL, weldfs_virt_next(walk, &name, NULL));
    GIVES(-EINVAL, weldfs_virt_next(NULL, &name, &spec));
    CHECK(name == NULL);
    /* Both outlive the attachment that they were made with. */
    GIVES(0, weldfs_reconnect(client));
    GIVES(-EBADF, weldfs_vwrite(file, "x", 1));
    GIVES(-EBADF, weldfs_vclose(file));
    weldfs_virt_end(walk);
    weldfs_virt_end(NULL);
}

static void kernels(void) {
    const int64_t size = weldfs_kernels_json(client, NULL, 0);
    CHECK(size > 2);
    char *json = malloc((size_t)size + 4096), name[32];
    CHECK(weldfs_kernels_json(client, json, (size_t)size + 4096) > 0 && strstr(json, "\"pass-through\""));
    free(json);
    /* A package of a chain needs no file but its manifest. */
    char folder[] = "/tmp/weldfs-kernel-XXXXXX", manifest[64];
    CHECK(mkdtemp(folder));
    GIVES(-ENOENT, weldfs_kernel_load(client, folder, name, sizeof name));
    snprintf(manifest, sizeof manifest, "%s/kernel.toml", folder);
    FILE *out = fopen(manifest, "w");
    CHECK(out);
    fputs("name = \"twice\"\nid = \"0123456789abcdef0123456789abcde0\"\nversion = \"1.0.0\"\n"
          "licence = \"Apache-2.0\"\nabout = \"Runs of runs\"\nclock_mhz = 250\ncycles_per_flit = 1.0\n"
          "region = { lut = 130000, ff = 30000, bram = 0, dsp = 0 }\n[params]\nmin = 0\nmax = 0\n"
          "[backend.model]\nchain = [{ kernel = \"rle\", params = [] }, { kernel = \"rle\" }]\n", out);
    CHECK(fclose(out) == 0);
    GIVES(5, weldfs_kernel_load(client, folder, name, sizeof name));
    CHECK(strcmp(name, "twice") == 0);
    GIVES(-EEXIST, weldfs_kernel_load(client, folder, NULL, 0));
    GIVES(-EINVAL, weldfs_kernel_load(client, "not/absolute", name, sizeof name));
    unlink(manifest);
    rmdir(folder);
    put_file("/pairs", "\x01\x02\x01z");
    const weldfs_virt_range range = {.path = "/pairs", .length = WELDFS_VIRT_TO_END};
    const weldfs_virt_spec spec = of("twice", &range, 1);
    weldfs_vfile *file;
    char room[8];
    GIVES(0, weldfs_virt_register(client, "/v/twice", 0600, &spec));
    GIVES(-ENODEV, weldfs_vopen(client, "/v/twice", O_RDONLY, &file));
    GIVES(0, weldfs_kernel_activate(client, "twice"));
    GIVES(0, weldfs_vopen(client, "/v/twice", O_RDONLY, &file));
    GIVES(2, drain(file, room, sizeof room));
    CHECK(memcmp(room, "zz", 2) == 0);
    GIVES(0, weldfs_vclose(file));
    GIVES(0, weldfs_kernel_prefer(client, "twice", "model"));
    GIVES(-EINVAL, weldfs_kernel_prefer(client, "twice", "xrt"));
    GIVES(-ENOENT, weldfs_kernel_prefer(client, "twice", "none"));
    GIVES(-EBUSY, weldfs_kernel_unload(client, "twice"));
    GIVES(0, weldfs_kernel_deactivate(client, "twice"));
    GIVES(0, weldfs_kernel_unload(client, "twice"));
    GIVES(-ENOENT, weldfs_kernel_unload(client, "twice"));
    GIVES(-EINVAL, weldfs_kernel_activate(client, "\xff"));
    GIVES(-EPERM, weldfs_kernel_unload(client, "grep"));
    GIVES(-EINVAL, weldfs_kernel_activate(client, NULL));
    GIVES(-EINVAL, weldfs_kernel_peek(client, "grep", 0, NULL));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    weldfs_options options = {.size = sizeof options, .flags = WELDFS_OPTION_UMASK, .umask = 027};
    GIVES(0, weldfs_attach_target(argv[1], &options, &client));
    made_and_described();
    read_to_the_end();
    written_through();
    listed_and_removed();
    what_it_streams_is_wrong();
    kernels();
    misused();
    weldfs_detach(client);
    puts("virtual files work");
    return 0;
}
