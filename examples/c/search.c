/* A text is searched inside the drive: a virtual file streams it through the kernel `grep`, and only the places of the
 * matches cross to the host.
 *
 *   cc search.c $(pkg-config --cflags --libs weldfs) -o search && ./search SOCKET
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weldfs.h>

enum { LINES = 20000 };

static int64_t check(int64_t result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, weldfs_last_error());
        exit(1);
    }
    return result;
}

/* Lines, of which one in a thousand has an error. */
static void make_text(weldfs_client *client) {
    char *text = malloc(LINES * 32), *at = text;
    for (int line = 0; line < LINES; line++)
        at += sprintf(at, "line %d %s\n", line, line % 1000 == 7 ? "has an error" : "is fine");
    const size_t len = (size_t)(at - text);
    check(weldfs_atomic_replace(client, "/today", NULL, 0644, text, len), "/today");
    free(text);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s SOCKET\n", argv[0]);
        return 2;
    }
    weldfs_client *client;
    check(weldfs_attach(argv[1], NULL, &client), "attach");
    make_text(client);

    /* Made once, and a name like any other from then on: `weldfs cat disk.img:/errors` reads it as well. The kernel's
     * parameters are the length of what is looked for, and its bytes, four to a word. */
    uint32_t needle[3] = {5};
    memcpy(&needle[1], "error", 5); /* on a little-endian machine */
    const weldfs_virt_range range = {.path = "/today", .length = WELDFS_VIRT_TO_END};
    const weldfs_virt_spec spec = {
        .kernel = "grep", .params = needle, .param_count = 3, .ranges = &range, .range_count = 1};
    const int made = weldfs_virt_register(client, "/errors", 0644, &spec);
    if (made != -EEXIST) check(made, "register");

    /* A match is two words: the line and the column, from 0. */
    weldfs_vfile *file;
    uint32_t match[2];
    int matches = 0;
    check(weldfs_vopen(client, "/errors", O_RDONLY, &file), "open");
    for (size_t have = 0;; have %= sizeof match) {
        const int64_t n = check(weldfs_vread(file, (char *)match + have, sizeof match - have), "read");
        if (n == 0) break;
        have += (size_t)n;
        if (have == sizeof match && matches++ == 0) printf("first: line %u, column %u\n", match[0], match[1]);
    }
    check(weldfs_vclose(file), "close");
    printf("%d matches in %d lines\n", matches, LINES);
    weldfs_detach(client);
    return 0;
}
