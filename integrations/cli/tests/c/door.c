/* Makes the calls that a test asks for, one line each, over the socket that is its standard input, and says what came of
 * them: "E errno", "O numbers...", or "B count" and that many bytes. tests/mount/doors/worker.rs is the other side.
 *
 * A name is "/a/b" (from the root that the test set), "a/b" (from the working directory, which is that root), or
 * "@2:a/b" (from the directory open in slot 2). `how` picks one of several functions of libc for the same call. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { SLOTS = 5, WORDS = 12, LINE_MAX_BYTES = 16384, DATA_MAX = 4 << 20 };

static char root[4096];
static int slots[SLOTS] = {-1, -1, -1, -1, -1};
static char *words[WORDS];
static unsigned char data[DATA_MAX];
static char answer[1 << 20];
static size_t filled;

static void die(const char *what) {
    perror(what);
    exit(3);
}

static void send_all(const void *bytes, size_t left) {
    const char *at = bytes;
    while (left > 0) {
        ssize_t n = write(0, at, left);
        if (n <= 0) exit(0);
        at += n;
        left -= (size_t)n;
    }
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = vsnprintf(answer + filled, sizeof answer - filled, format, list);
    va_end(list);
    if (n < 0 || (size_t)n >= sizeof answer - filled) {
        fprintf(stderr, "door: an answer is too long\n");
        exit(3);
    }
    filled += (size_t)n;
}

static int line_in(char *line) {
    static char buffer[LINE_MAX_BYTES];
    static size_t have, at;
    size_t length = 0;
    for (;;) {
        if (at == have) {
            ssize_t n = read(0, buffer, sizeof buffer);
            if (n <= 0) return 0;
            have = (size_t)n;
            at = 0;
        }
        char c = buffer[at++];
        if (c == '\n') {
            line[length] = 0;
            return 1;
        }
        if (length + 1 == LINE_MAX_BYTES) exit(3);
        line[length++] = c;
    }
}

static long long number(int word) { return words[word] ? strtoll(words[word], NULL, 10) : 0; }
static int slot(int word) {
    long long n = number(word);
    return n >= 0 && n < SLOTS ? slots[n] : -1;
}

struct name {
    int base;
    char path[8192];
};

static struct name name(int word) {
    struct name n = {.base = AT_FDCWD};
    const char *text = words[word] ? words[word] : "";
    if (text[0] == '@') {
        n.base = slots[(text[1] - '0') % SLOTS];
        snprintf(n.path, sizeof n.path, "%s", text + 3);
    } else if (text[0] == '/') {
        snprintf(n.path, sizeof n.path, "%s%s", root, text[1] ? text : "");
    } else {
        snprintf(n.path, sizeof n.path, "%s", text);
    }
    return n;
}

/* The bytes of a write: tests/mount/doors/program.rs has the same. */
static void pattern(unsigned seed, size_t length) {
    for (size_t i = 0; i < length; i++) data[i] = (unsigned char)((i * 31) ^ seed) | 1;
}

static void done(long long result) {
    if (result < 0) say("E %d\n", errno);
    else say("O %lld\n", result);
}

static void bytes(ssize_t n, const void *from) {
    if (n < 0) {
        done(n);
        return;
    }
    char head[32];
    int length = snprintf(head, sizeof head, "B %zd\n", n);
    send_all(head, (size_t)length);
    send_all(from, (size_t)n);
}

/* Three parts, of which one may be empty. */
static int parts(struct iovec *vector, size_t length) {
    size_t first = length / 3, second = length / 2 - length / 3;
    vector[0] = (struct iovec){data, first};
    vector[1] = (struct iovec){data + first, second};
    vector[2] = (struct iovec){data + first + second, length - first - second};
    return 3;
}

/* Reads some times: nothing changes meanwhile, and what the first brought may answer the others. */
static ssize_t read_again(int fd, size_t length, off_t at) {
    static unsigned char first[sizeof data];
    ssize_t n = pread(fd, data, length, at);
    if (n <= 0) return n;
    memcpy(first, data, (size_t)n);
    for (int i = 0; i < 3; i++) {
        memset(data, 0, (size_t)n);
        ssize_t again = pread(fd, data, length, at);
        if (again == n && !memcmp(first, data, (size_t)n)) continue;
        fprintf(stderr, "door: read %zd bytes, and then %zd or others\n", n, again);
        exit(3);
    }
    return n;
}

/* read SLOT AT LENGTH HOW; AT is "c" for the file's own offset. */
static ssize_t do_read(void) {
    int fd = slot(1), own = strcmp(words[2], "c") == 0;
    size_t length = (size_t)number(3);
    off_t at = own ? -1 : (off_t)number(2);
    struct iovec vector[3];
    switch (number(4)) {
    case 0: return own ? read(fd, data, length) : read_again(fd, length, at);
    case 1: {
        int count = parts(vector, length);
        return own ? readv(fd, vector, count) : preadv(fd, vector, count, at);
    }
    default: {
        int count = parts(vector, length);
        return preadv2(fd, vector, count, at, 0);
    }
    }
}

/* write SLOT AT LENGTH SEED HOW */
static ssize_t do_write(void) {
    int fd = slot(1), own = strcmp(words[2], "c") == 0;
    size_t length = (size_t)number(3);
    off_t at = own ? -1 : (off_t)number(2);
    struct iovec vector[3];
    pattern((unsigned)number(4), length);
    switch (number(5)) {
    case 0: return own ? write(fd, data, length) : pwrite(fd, data, length, at);
    case 1: {
        int count = parts(vector, length);
        return own ? writev(fd, vector, count) : pwritev(fd, vector, count, at);
    }
    default: {
        int count = parts(vector, length);
        return pwritev2(fd, vector, count, at, 0);
    }
    }
}

/* mode uid gid nlink size ino, then times as seconds and nanoseconds: mtime ctime; btime, or -1 0 */
static void told(const struct stat *s) {
    say("O %u %u %u %llu %llu %llu %lld %ld %lld %ld -1 0\n", s->st_mode, s->st_uid, s->st_gid,
        (unsigned long long)s->st_nlink, (unsigned long long)s->st_size, (unsigned long long)s->st_ino,
        (long long)s->st_mtim.tv_sec, s->st_mtim.tv_nsec, (long long)s->st_ctim.tv_sec, s->st_ctim.tv_nsec);
}

static void told_x(const struct statx *s) {
    say("O %u %u %u %u %llu %llu %lld %u %lld %u %lld %u\n", s->stx_mode, s->stx_uid, s->stx_gid, s->stx_nlink,
        (unsigned long long)s->stx_size, (unsigned long long)s->stx_ino, (long long)s->stx_mtime.tv_sec,
        s->stx_mtime.tv_nsec, (long long)s->stx_ctime.tv_sec, s->stx_ctime.tv_nsec, (long long)s->stx_btime.tv_sec,
        s->stx_btime.tv_nsec);
}

/* stat NAME NOFOLLOW HOW */
static void do_stat(void) {
    struct name n = name(1);
    int flags = number(2) ? AT_SYMLINK_NOFOLLOW : 0;
    struct stat s;
    struct statx x;
    int failed;
    if (number(3) == 0) {
        if ((failed = fstatat(n.base, n.path, &s, flags)) == 0) told(&s);
    } else if (number(3) == 1 && n.base == AT_FDCWD) {
        if ((failed = flags ? lstat(n.path, &s) : stat(n.path, &s)) == 0) told(&s);
    } else if ((failed = statx(n.base, n.path, flags, STATX_BASIC_STATS | STATX_BTIME, &x)) == 0) {
        told_x(&x);
    }
    if (failed) done(-1);
}

/* fstat SLOT HOW */
static void do_fstat(void) {
    struct stat s;
    struct statx x;
    if (number(2) == 0) {
        if (fstat(slot(1), &s) == 0) told(&s);
        else done(-1);
    } else if (statx(slot(1), "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &x) == 0) {
        told_x(&x);
    } else {
        done(-1);
    }
}

/* list SLOT: "name:type" for each entry, types as those of st_mode */
static void do_list(void) {
    int copy = dup(slot(1));
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (!dir) {
        int why = errno;
        if (copy >= 0) close(copy);
        errno = why;
        done(-1);
        return;
    }
    rewinddir(dir);
    say("O");
    struct dirent *entry;
    for (errno = 0; (entry = readdir(dir)) != NULL; errno = 0) say(" %s:%u", entry->d_name, DTTOIF(entry->d_type));
    int why = errno;
    closedir(dir);
    if (why) {
        filled = 0;
        errno = why;
        done(-1);
        return;
    }
    say("\n");
}

/* open SLOT NAME FLAGS MODE HOW: the inode's number */
static void do_open(void) {
    struct name n = name(2);
    int flags = (int)number(3), fd;
    mode_t mode = (mode_t)number(4);
    fd = number(5) == 0 && n.base == AT_FDCWD ? open(n.path, flags | O_CLOEXEC, mode)
                                               : openat(n.base, n.path, flags | O_CLOEXEC, mode);
    struct stat s;
    if (fd < 0 || fstat(fd, &s) != 0) {
        done(-1);
        return;
    }
    long long at = number(1) % SLOTS;
    if (slots[at] >= 0) close(slots[at]);
    slots[at] = fd;
    done((long long)s.st_ino);
}

/* times NAME|SLOT ... as "utimes NAME NOFOLLOW asec ansec msec mnsec"; nanoseconds may be UTIME_NOW and UTIME_OMIT */
static void times(int first, struct timespec *t) {
    for (int i = 0; i < 2; i++) t[i] = (struct timespec){number(first + 2 * i), (long)number(first + 2 * i + 1)};
}

/* lock SLOT SPACE(posix|ofd) KIND START LENGTH GET */
static void do_lock(void) {
    int ofd = strcmp(words[2], "ofd") == 0, get = (int)number(6);
    struct flock lock = {.l_whence = SEEK_SET, .l_start = number(4), .l_len = number(5)};
    lock.l_type = (short)number(3);
    int command = get ? (ofd ? F_OFD_GETLK : F_GETLK) : (ofd ? F_OFD_SETLK : F_SETLK);
    if (fcntl(slot(1), command, &lock) != 0) done(-1);
    else if (get) say("O %d %lld %lld\n", lock.l_type, (long long)lock.l_start, (long long)lock.l_len);
    else done(0);
}

/* add SLOT COUNT: a counter in the file's first eight bytes, under a POSIX lock that is waited for */
static long long do_add(void) {
    for (long long i = 0; i < number(2); i++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 8};
        uint64_t value = 0;
        if (fcntl(slot(1), F_SETLKW, &lock) != 0) return -1;
        if (pread(slot(1), &value, 8, 0) < 0) return -1;
        value++;
        if (pwrite(slot(1), &value, 8, 0) != 8) return -1;
        lock.l_type = F_UNLCK;
        if (fcntl(slot(1), F_SETLK, &lock) != 0) return -1;
    }
    return 0;
}

/* append SLOT COUNT NUMBER: records of a line each */
static long long do_append(void) {
    for (long long i = 0; i < number(2); i++) {
        static char record[4096];
        int length = snprintf(record, sizeof record, "%lld %lld ", number(3), i);
        /* Of all lengths up to some that meet several pages. */
        for (long long dots = i * 131 % 3000; dots > 0; dots--) record[length++] = '.';
        record[length++] = '\n';
        if (write(slot(1), record, (size_t)length) != length) return -1;
    }
    return 0;
}

/* claim NAME COUNT: how many of COUNT new names this process made */
static long long do_claim(void) {
    long long mine = 0;
    for (long long i = 0; i < number(2); i++) {
        char path[9000];
        snprintf(path, sizeof path, "%s/n%lld", name(1).path, i);
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);
        if (fd >= 0) {
            mine++;
            close(fd);
        } else if (errno != EEXIST) {
            return -1;
        }
    }
    return mine;
}

static int closed(long long at) {
    int fd = slots[at % SLOTS];
    slots[at % SLOTS] = -1;
    return close(fd);
}

static int on_names(const char *verb, struct name *a, struct name *b) {
    if (!strcmp(verb, "mkdir")) return mkdirat(a->base, a->path, (mode_t)number(2));
    if (!strcmp(verb, "rmdir")) return unlinkat(a->base, a->path, AT_REMOVEDIR);
    if (!strcmp(verb, "unlink")) return a->base == AT_FDCWD ? unlink(a->path) : unlinkat(a->base, a->path, 0);
    if (!strcmp(verb, "rename")) {
        unsigned flags = (unsigned)number(3);
        return flags ? renameat2(a->base, a->path, b->base, b->path, flags)
                     : renameat(a->base, a->path, b->base, b->path);
    }
    if (!strcmp(verb, "link")) return linkat(a->base, a->path, b->base, b->path, number(3) ? 0 : AT_SYMLINK_FOLLOW);
    if (!strcmp(verb, "access")) return faccessat(a->base, a->path, (int)number(2), 0);
    if (!strcmp(verb, "chmod")) return fchmodat(a->base, a->path, (mode_t)number(2), 0);
    if (!strcmp(verb, "chown"))
        return fchownat(a->base, a->path, (uid_t)number(3), (gid_t)number(4), number(2) ? AT_SYMLINK_NOFOLLOW : 0);
    if (!strcmp(verb, "utimes")) {
        struct timespec t[2];
        times(3, t);
        return utimensat(a->base, a->path, t, number(2) ? AT_SYMLINK_NOFOLLOW : 0);
    }
    if (!strcmp(verb, "resize")) return truncate(a->path, (off_t)number(2));
    if (!strcmp(verb, "setx")) {
        size_t length = (size_t)number(3);
        pattern(7, length);
        return setxattr(a->path, words[2], data, length, (int)number(4));
    }
    if (!strcmp(verb, "rmx")) return removexattr(a->path, words[2]);
    return 1;
}

static void run(void) {
    const char *verb = words[0];
    struct name a = name(1), b = name(2);
    struct timespec t[2];
    loff_t from, to;
    if (!strcmp(verb, "read")) bytes(do_read(), data);
    else if (!strcmp(verb, "write")) done(do_write());
    else if (!strcmp(verb, "open")) do_open();
    else if (!strcmp(verb, "close")) done(closed(number(1)));
    else if (!strcmp(verb, "stat")) do_stat();
    else if (!strcmp(verb, "fstat")) do_fstat();
    else if (!strcmp(verb, "list")) do_list();
    else if (!strcmp(verb, "truncate")) done(ftruncate(slot(1), (off_t)number(2)));
    else if (!strcmp(verb, "allocate")) done(fallocate(slot(1), (int)number(2), (off_t)number(3), (off_t)number(4)));
    else if (!strcmp(verb, "seek")) done(lseek(slot(1), (off_t)number(3), (int)number(2)));
    else if (!strcmp(verb, "copy")) {
        from = number(3), to = number(4);
        done(copy_file_range(slot(1), &from, slot(2), &to, (size_t)number(5), 0));
    } else if (!strcmp(verb, "fchmod")) done(fchmod(slot(1), (mode_t)number(2)));
    else if (!strcmp(verb, "fchown")) done(fchown(slot(1), (uid_t)number(2), (gid_t)number(3)));
    else if (!strcmp(verb, "futimes")) {
        times(2, t);
        done(futimens(slot(1), t));
    } else if (!strcmp(verb, "symlink")) done(symlinkat(words[1], b.base, b.path));
    else if (!strcmp(verb, "readlink")) bytes(readlinkat(a.base, a.path, (char *)data, 4096), data);
    else if (!strcmp(verb, "getx")) bytes(getxattr(a.path, words[2], data, 4096), data);
    else if (!strcmp(verb, "listx")) bytes(listxattr(a.path, (char *)data, 4096), data);
    else if (!strcmp(verb, "flock")) done(flock(slot(1), (int)number(2) | LOCK_NB));
    else if (!strcmp(verb, "lock")) do_lock();
    else if (!strcmp(verb, "add")) done(do_add());
    else if (!strcmp(verb, "append")) done(do_append());
    else if (!strcmp(verb, "claim")) done(do_claim());
    else if (!strcmp(verb, "pid")) done(getpid());
    else if (!strcmp(verb, "root")) {
        for (int i = 0; i < SLOTS; i++)
            if (slots[i] >= 0) closed(i);
        snprintf(root, sizeof root, "%s", words[1]);
        done(chdir(root));
    } else {
        int result = on_names(verb, &a, &b);
        if (result > 0) {
            fprintf(stderr, "door: %s is no call\n", verb);
            exit(3);
        }
        done(result);
    }
}

/* door UID GID GROUPS, the last separated by commas or "-" */
int main(int argc, char **argv) {
    static char line[LINE_MAX_BYTES];
    if (argc != 4) return 2;
    gid_t groups[16];
    size_t count = 0;
    for (char *g = strtok(argv[3], ","); g && *g != '-' && count < 16; g = strtok(NULL, ",")) groups[count++] = (gid_t)atoi(g);
    if (setgroups(count, groups) != 0) die("setgroups");
    if (setresgid((gid_t)atoi(argv[2]), (gid_t)atoi(argv[2]), (gid_t)atoi(argv[2])) != 0) die("setresgid");
    if (setresuid((uid_t)atoi(argv[1]), (uid_t)atoi(argv[1]), (uid_t)atoi(argv[1])) != 0) die("setresuid");
    umask(0);
    while (line_in(line)) {
        int count = 0;
        memset(words, 0, sizeof words);
        for (char *word = strtok(line, " "); word && count < WORDS; word = strtok(NULL, " ")) words[count++] = word;
        if (count == 0) continue;
        filled = 0;
        run();
        send_all(answer, filled);
    }
    return 0;
}
