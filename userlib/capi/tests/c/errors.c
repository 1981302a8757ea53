/* What weldfs_last_error and weldfs_strerror say: every errno has its name, and a failure its path, step or item. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The last error is exactly this. */
#define SAYS(sentence)                                                                              \
    do {                                                                                            \
        if (strcmp(weldfs_last_error(), sentence)) {                                                \
            fprintf(stderr, "%s:%d: \"%s\", not \"%s\"\n", __FILE__, __LINE__, weldfs_last_error(), \
                    sentence);                                                                      \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)
#define MENTIONS(word) CHECK(strstr(weldfs_last_error(), word) != NULL)

static void every_errno_has_its_name(void) {
    int known = 0;
    for (int e = 1; e < 200; e++) {
        const char *name = strerrorname_np(e), *said = weldfs_strerror(-e);
        CHECK(!strstr(said, "E?") && (name == NULL) == (strstr(said, "unknown error") != NULL));
        if (!name)
            continue;
        known++;
        /* libc's other names for a number. */
        if (!strcmp(name, "ENOTSUP"))
            name = "EOPNOTSUPP";
        if (!strcmp(name, "EDEADLOCK"))
            name = "EDEADLK";
        CHECK(strstr(said, name) != NULL);
    }
    CHECK(known > 130);
}

/* A socket of a device that has gone. */
static void a_socket_without_a_device(void) {
    char folder[] = "/tmp/weldfs-errors-XXXXXX", sentence[200];
    CHECK(mkdtemp(folder) != NULL);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s/s", folder);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(fd, (struct sockaddr *)&name, sizeof name) == 0);
    CHECK(close(fd) == 0);
    weldfs_client *client;
    GIVES(-ECONNREFUSED, weldfs_attach(name.sun_path, NULL, &client));
    snprintf(sentence, sizeof sentence,
             "weldfs_attach(\"%s\"): connection refused: no device listens there (ECONNREFUSED)", name.sun_path);
    SAYS(sentence);
    CHECK(unlink(name.sun_path) == 0 && rmdir(folder) == 0);
}

static void paths_are_named(weldfs_client *client) {
    weldfs_file *f;
    GIVES(-ENOENT, weldfs_open(client, "/nothing/here", O_RDONLY, 0, &f));
    SAYS("weldfs_open(\"/nothing/here\"): no such file or directory (ENOENT)");
    GIVES(-ENOENT, weldfs_rename(client, "/a", "/b\n", 0));
    SAYS("weldfs_rename(\"/a\", \"/b\\n\"): no such file or directory (ENOENT)");
    GIVES(-ENOENT, weldfs_open_read_close(client, "/none", O_RDONLY, &(char){0}, 1, 0));
    MENTIONS("(\"/none\")");
    GIVES(-EINVAL, weldfs_unlink(client, NULL));
    SAYS("weldfs_unlink: invalid argument (EINVAL): a string is NULL");
    /* A long one is cut, also between the bytes of a character. */
    char longest[5000] = "/";
    while (strlen(longest) < 4990)
        strcat(longest, "\xc3\xa4");
    GIVES(-ENAMETOOLONG, weldfs_rmdir(client, longest));
    MENTIONS("...): name too long (ENAMETOOLONG)");
    CHECK(strlen(weldfs_last_error()) < 1024);
    const char *many[] = {"/", NULL};
    weldfs_stat stats[2];
    int errors[2];
    GIVES(-EINVAL, weldfs_stat_many(client, many, 2, 0, stats, errors));
    MENTIONS("path 1: a string is NULL");
}

static void steps_are_named(weldfs_client *client) {
    weldfs_program *p;
    char why[200];
    weldfs_outcome outcome;
    const char *second = "open /made w create; open /missing r";
    GIVES(0, weldfs_program_parse(second, NULL, 0, &p, why, sizeof why));
    GIVES(-ENOENT, weldfs_program_run(p, client, NULL, 0, WELDFS_DEFAULT, &outcome));
    CHECK(outcome.failed == 2);
    MENTIONS("weldfs_program_run: no such file or directory (ENOENT): step 2, open \"/missing\" r");
    weldfs_program_destroy(p);
    GIVES(-EINVAL, weldfs_program_parse("open /f r; jump", NULL, 0, &p, why, sizeof why));
    MENTIONS("the text is no program: ");
    MENTIONS(why);
    /* A step that no device takes. */
    GIVES(0, weldfs_program_create(&p));
    int file = weldfs_program_open(p, "/made", O_RDWR, 0, WELDFS_NONE), held = weldfs_program_register(p);
    CHECK(file >= 0 && held >= 0);
    GIVES(0, weldfs_program_truncate(p, file, weldfs_held(held)));
    GIVES(-EINVAL, weldfs_program_run(p, client, NULL, 0, WELDFS_DEFAULT, NULL));
    MENTIONS(": step 2: ");
    weldfs_program_destroy(p);
    /* Operands. */
    GIVES(0, weldfs_program_create(&p));
    GIVES(0, weldfs_program_range(p, 8));
    file = weldfs_program_open(p, "/made", O_RDWR, 0, WELDFS_NONE);
    CHECK(file >= 0);
    GIVES(0, weldfs_program_read(p, file, weldfs_number(0), weldfs_number(8), weldfs_in_range(0), 0, 0, WELDFS_NONE,
                                 WELDFS_NONE));
    char room[8];
    weldfs_operand operand = {.data = room, .len = 7};
    GIVES(-EINVAL, weldfs_program_run(p, client, &operand, 1, WELDFS_DEFAULT, NULL));
    MENTIONS("operand 0 has 7 bytes, its range 8");
    weldfs_program_destroy(p);
}

static void items_are_named(weldfs_client *client) {
    weldfs_file *writer, *reader;
    GIVES(0, weldfs_open(client, "/items", O_RDWR | O_CREAT, 0600, &writer));
    GIVES(0, weldfs_open(client, "/items", O_RDONLY, 0, &reader));
    weldfs_write_item items[3] = {{.file = writer, .from = "a", .len = 1},
                                  {.file = writer, .from = "b", .len = 1, .offset = 1},
                                  {.file = reader, .from = "c", .len = 1, .offset = 2}};
    GIVES(-EBADF, weldfs_multi_write(items, 3, WELDFS_DEFAULT));
    SAYS("weldfs_multi_write: bad handle (EBADF): item 2");
    items[1].file = NULL;
    GIVES(-EINVAL, weldfs_multi_write(items, 3, WELDFS_DEFAULT));
    MENTIONS("item 1: an argument is NULL");
    items[1].file = writer;
    items[1].len = 9 << 20;
    GIVES(-E2BIG, weldfs_multi_write(items, 3, WELDFS_DEFAULT));
    MENTIONS("item 1");
    weldfs_stat stat;
    GIVES(0, weldfs_fstat(writer, &stat));
    CHECK(stat.bytes == 0);
    const weldfs_file *from[2] = {reader, NULL};
    GIVES(-EINVAL, weldfs_concat(from, 2, writer, WELDFS_DEFAULT, NULL, NULL));
    MENTIONS("file 1: ");
    weldfs_tree_node nodes[2] = {{.kind = WELDFS_TREE_DIRECTORY, .path = "/tree", .mode = 0700},
                                 {.kind = 77, .path = "/tree/x"}};
    GIVES(-EINVAL, weldfs_create_tree(client, nodes, 2, WELDFS_DEFAULT));
    MENTIONS("node 1: weldfs_tree_node");
    weldfs_close(reader);
    weldfs_close(writer);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    every_errno_has_its_name();
    a_socket_without_a_device();
    weldfs_client *client;
    GIVES(0, weldfs_attach(argv[1], NULL, &client));
    paths_are_named(client);
    steps_are_named(client);
    items_are_named(client);
    weldfs_detach(client);
    puts("errors are named");
    return 0;
}
