/* Goes through every family of calls that name a file or a descriptor, with good and with bad input, and prints what
 * each gave. Run in a directory of the host and in one of a device, the outputs must be equal.
 *
 *     families DIRECTORY [PART...] */
#include "show.h"

const char *dir;
char *edge, *fixed, *closed;

const char *in(const char *name) {
    static char room[8][2 * PATH_MAX];
    static unsigned at;
    char *to = room[at++ % 8];
    snprintf(to, sizeof room[0], "%s/%s", dir, name);
    return to;
}

void said(const char *call, long value) {
    printf("%s = %ld%s%s\n", call, value, value < 0 ? " " : "", value < 0 ? strerrorname_np(errno) : "");
}

void text(const char *label, const char *value) {
    printf("%s: ", label);
    if (value == NULL) {
        printf("NULL %s\n", strerrorname_np(errno));
        return;
    }
    size_t n = strlen(dir);
    for (const char *at = value; *at != 0;) {
        if (strncmp(at, dir, n) == 0) {
            printf("DIR");
            at += n;
        } else {
            putchar(*at++);
        }
    }
    putchar('\n');
}

void make(const char *name, const char *content) {
    int fd = open(in(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, content, strlen(content)) != (ssize_t)strlen(content) || close(fd) != 0) {
        printf("make %s: %s\n", name, strerrorname_np(errno));
    }
}

void show(const char *name) {
    char bytes[4096];
    int fd = open(in(name), O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
    printf("%s: %zd bytes: ", name, n);
    for (ssize_t i = 0; i < n; i++) {
        printf(bytes[i] >= ' ' && bytes[i] <= '~' ? "%c" : "<%02x>", bytes[i] & 0xff);
    }
    putchar('\n');
    if (fd >= 0) {
        close(fd);
    }
}

static char *map(int pages, int prot) {
    char *p = mmap(NULL, pages * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        abort();
    }
    return p;
}

/* Each part has a directory of its own. */
static void begin(const char *root, const char *part) {
    static char room[PATH_MAX];
    snprintf(room, sizeof room, "%s/%s", root, part);
    printf("== %s\n", part);
    if (mkdir(room, 0755) != 0) {
        printf("mkdir: %s\n", strerrorname_np(errno));
    }
    dir = room;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        return 2;
    }
    dir = argv[1];
    /* Lines that a forked child prints must not be printed again by its parent. */
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    edge = map(2, PROT_READ | PROT_WRITE);
    mprotect(edge + PAGE, PAGE, PROT_NONE);
    memset(edge, 'e', PAGE);
    fixed = map(1, PROT_READ);
    closed = map(1, PROT_NONE);
    umask(022);
    if (argc > 2 && strcmp(argv[2], "arguments") == 0) {
        printf("%d arguments, the last %s, X=%s\n", argc, argv[argc - 1], getenv("X") ? getenv("X") : "(none)");
        return 0;
    }
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {
        {"descriptors", descriptors}, {"data", data},   {"memory", memory},   {"names", names},
        {"attributes", attributes},   {"directories", directories}, {"trees", trees}, {"streams", streams},
        {"temporary", temporary},     {"numbers", numbers}, {"others", others},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        int wanted = argc == 2;
        for (int a = 2; a < argc; a++) {
            wanted |= strcmp(argv[a], parts[i].name) == 0;
        }
        if (wanted) {
            begin(argv[1], parts[i].name);
            parts[i].run();
        }
    }
    if (argc == 2 || strcmp(argv[argc - 1], "programs") == 0) {
        begin(argv[1], "programs");
        programs(argv[0]);
    }
    return 0;
}
