/* Descriptors, data, and memory that is not there. */
#include "show.h"
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <sys/file.h>
#include <linux/close_range.h>

static void open_errors(void) {
    char name[300];
    memset(name, 'n', sizeof name);
    name[255] = 0;
    R(close(open(in(name), O_CREAT | O_WRONLY, 0600)));
    name[255] = 'n';
    name[256] = 0;
    R(open(in(name), O_CREAT | O_WRONLY, 0600));
    static char path[2 * PATH_MAX];
    int at = snprintf(path, sizeof path, "%s", dir);
    while (at < PATH_MAX - 2) {
        path[at++] = '/';
    }
    path[at] = 'f';
    for (int n = PATH_MAX - 1; n <= PATH_MAX + 1; n++) {
        path[n - 1] = 'f';
        path[n] = 0;
        printf("%d bytes: ", n);
        R(close(open(path, O_CREAT | O_WRONLY, 0600)));
        R(mkdir(path, 0700));
        R(access(path, F_OK));
        R(unlink(path));
        path[n - 1] = '/';
    }
    R(symlink("loop", in("loop")));
    R(symlink("b", in("a")));
    R(symlink("a", in("b")));
    R(open(in("loop"), O_RDONLY));
    R(open(in("a/x"), O_RDONLY));
    R(open(in("loop"), O_RDONLY | O_NOFOLLOW));
    R(close(open(in("loop"), O_PATH | O_NOFOLLOW)));
    R(open(in(""), O_WRONLY));
    R(open("", O_RDONLY));
    R(open(in("file/x"), O_RDONLY));
    R(open(in("file/"), O_RDONLY));
    R(open(in("file"), O_RDONLY | O_DIRECTORY));
    R(open(in("file"), O_CREAT | O_EXCL | O_RDONLY, 0600));
    R(open(in("none"), O_RDONLY));
    R(open(in("none/x"), O_CREAT | O_RDONLY, 0600));
    R(open(in("new/"), O_CREAT | O_RDONLY, 0600));
    R(openat(-1, "file", O_RDONLY));
    R(openat(12345, "file", O_RDONLY));
    int f = open(in("file"), O_RDONLY);
    R(openat(f, "x", O_RDONLY));
    close(f);
    R(unlink(in("loop")) | unlink(in("a")) | unlink(in("b")));
}

static void exhaustion(void) {
    struct rlimit old, few = {24, 24};
    getrlimit(RLIMIT_NOFILE, &old);
    few.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_NOFILE, &few);
    int fds[64], n = 0, last = 0;
    while (n < 64 && (fds[n] = open(in("file"), O_RDONLY)) >= 0) {
        last = fds[n++];
    }
    printf("opened up to %d, then %s\n", last, strerrorname_np(errno));
    R(opendir(in("")) == NULL ? -1 : 0);
    R(fopen(in("file"), "r") == NULL ? -1 : 0);
    R(dup(fds[0]));
    R(fcntl(fds[0], F_DUPFD, 3));
    R(dup2(fds[0], 24));
    R(fcntl(fds[0], F_DUPFD, 24));
    close(fds[n - 1]);
    R(open(in("none"), O_RDONLY));
    fds[n - 1] = open(in("file"), O_RDONLY);
    printf("again %s\n", fds[n - 1] == last ? "the last one" : "another");
    while (n > 0) {
        close(fds[--n]);
    }
    setrlimit(RLIMIT_NOFILE, &old);
}

void descriptors(void) {
    make("file", "0123456789");
    open_errors();
    int a = open(in("file"), O_RDWR), b;
    R(read(a, (char[4]){0}, 4));
    b = dup(a);
    R(lseek(b, 0, SEEK_CUR));
    R(close(b));
    R(close(b));
    R(read(b, (char[4]){0}, 4));
    R(dup(b));
    R(dup2(b, a));
    R(dup2(a, -1));
    R(dup3(a, a, 0));
    R(dup2(a, a) == a);
    R(fcntl(a, F_DUPFD, -1));
    R(fcntl(a, F_GETFD));
    R(fcntl(a, F_SETFD, FD_CLOEXEC));
    R(fcntl(a, F_GETFD));
    R(fcntl(a, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK));
    R(fcntl(a, F_SETFL, O_APPEND));
    R(fcntl(a, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK));
    R(fcntl(a, 9999));
    R(lseek(a, -1, SEEK_SET));
    R(lseek(a, 0, 77));
    R(lseek(a, 3, SEEK_END));
    R(lseek(a, 0, SEEK_HOLE));
    R(lseek(a, 100, SEEK_DATA));
    R(ftruncate(a, -1));
    R(isatty(a));
    R(close(-1));
    R(close(9999));
    R(fsync(9999));
    R(fdatasync(a));
    R(sync_file_range(a, 0, 0, SYNC_FILE_RANGE_WRITE));
    int left;
    R(lseek(a, 4, SEEK_SET));
    R(ioctl(a, FIONREAD, &left));
    printf("%d left\n", left);
    R(ioctl(a, 0x12345678, &left));
    b = dup(a);
    int c = dup(a);
    R(close_range(c, b, 0));
    R(close_range(b, c, 1u << 20));
    R(fcntl(b, F_GETFD));
    R(close_range(b, c, CLOSE_RANGE_CLOEXEC));
    R(fcntl(b, F_GETFD));
    R(close_range(b, c, 0));
    R(fcntl(b, F_GETFD));
    R(fcntl(c, F_GETFD));
    R(fcntl(a, F_GETFD));
    R(flock(a, LOCK_EX | LOCK_NB));
    R(flock(a, 77));
    R(flock(9999, LOCK_SH));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 3};
    R(fcntl(a, F_SETLK, &lock));
    lock.l_type = 77;
    R(fcntl(a, F_SETLK, &lock));
    R(lockf(a, F_TEST, 0));
    R(lockf(a, 77, 0));
    int r = open(in("file"), O_RDONLY);
    lock.l_type = F_WRLCK;
    R(fcntl(r, F_SETLK, &lock));
    close(r);
    close(a);
    exhaustion();
}

void data(void) {
    char bytes[64] = {0};
    int fd = open(in("data"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct iovec two[2] = {{"abc", 3}, {"defgh", 5}};
    R(writev(fd, two, 2));
    R(pwritev(fd, two, 1, 20));
    R(pwritev2(fd, two, 1, -1, RWF_DSYNC));
    R(pwritev2(fd, two, 1, 0, RWF_SYNC));
    R(pwritev2(fd, two, 2, 3, RWF_APPEND));
    R(lseek(fd, 0, SEEK_CUR));
    R(pwritev2(fd, two, 2, -1, RWF_APPEND));
    R(lseek(fd, 0, SEEK_CUR));
    R(pwritev2(fd, two, 2, 0, RWF_NOWAIT));
    R(pwritev2(fd, two, 2, 0, 1 << 20));
    R(pwritev2(fd, two, 2, -2, 0));
    struct iovec to[2] = {{bytes, 4}, {bytes + 4, 8}};
    R(preadv(fd, to, 2, 0));
    R(preadv2(fd, to, 2, 0, RWF_HIPRI));
    R(preadv2(fd, to, 2, 0, RWF_NOWAIT));
    R(preadv2(fd, to, 2, 0, RWF_DSYNC));
    R(preadv2(fd, to, 2, 0, 1 << 20));
    R(preadv2(fd, to, 2, -2, 0));
    R(readv(fd, to, 0));
    R(readv(fd, to, -1));
    R(readv(fd, to, 1025));
    struct iovec huge[2] = {{bytes, SIZE_MAX / 2}, {bytes, SIZE_MAX / 2}};
    R(readv(fd, huge, 2));
    R(writev(fd, huge, 2));
    R(pread(fd, bytes, 10, -1));
    R(pwrite(fd, bytes, 10, -1));
    R(pread(fd, bytes, 10, 1000));
    R(read(fd, bytes, 0));
    R(write(fd, bytes, 0));
    show("data");
    int r = open(in("data"), O_RDONLY), w = open(in("data"), O_WRONLY), d = open(in("."), O_RDONLY), p;
    p = open(in("data"), O_PATH);
    R(write(r, "x", 1));
    R(read(w, bytes, 1));
    R(read(d, bytes, 1));
    R(write(d, bytes, 1));
    R(read(p, bytes, 1));
    R(fsync(p));
    R(fchmod(p, 0600));
    R(ftruncate(r, 0));
    R(ftruncate(d, 0));
    R(fallocate(fd, 0, 100, 100));
    R(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 10));
    R(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 10));
    R(fallocate(fd, 0, 0, 0));
    R(fallocate(fd, 0, -1, 10));
    R(fallocate(r, 0, 0, 10));
    R(posix_fallocate(fd, 0, 300));
    R(posix_fallocate(fd, 0, 0));
    R(posix_fallocate(9999, 0, 10));
    R(lseek(fd, 0, SEEK_END));
    int out = open(in("copy"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    off_t at = 20;
    R(copy_file_range(fd, &at, out, NULL, 8, 0));
    R((long)at);
    R(copy_file_range(fd, &at, out, NULL, 8, 1));
    R(copy_file_range(w, NULL, out, NULL, 8, 0));
    R(copy_file_range(fd, NULL, r, NULL, 8, 0));
    at = 0;
    R(sendfile(out, fd, &at, 30));
    R((long)at);
    R(sendfile(out, w, NULL, 30));
    show("copy");
    R(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    R(readahead(r, 0, 100));
    close(r);
    close(w);
    close(d);
    close(p);
    close(fd);
    close(out);
    int ap = open(in("append"), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    R(write(ap, "one", 3));
    R(pwrite(ap, "two", 3, 0));
    R(lseek(ap, 0, SEEK_CUR));
    show("append");
    close(ap);
}

/* Every argument that is an address, where there is nothing. */
void memory(void) {
    make("m", "0123456789");
    int fd = open(in("m"), O_RDWR), w = open(in("m"), O_WRONLY), r = open(in("m"), O_RDONLY);
    void *bad[] = {NULL, (void *)1, GONE, WILD, (void *)-1, closed};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        void *p = bad[i];
        printf("bad memory %zu\n", i);
        R(read(fd, p, 4));
        R(pread(fd, p, 4, 0));
        R(pread(fd, p, 0, 0));
        R(pwrite(fd, p, 4, 0));
        R(write(fd, p, 0));
        R(read(w, p, 4));
        R(write(r, p, 4));
        R(readv(fd, p, 1));
        R(writev(fd, p, 1));
        struct iovec v[2] = {{edge, 3}, {p, 3}};
        R(pwritev(fd, v, 2, 0));
        R(preadv(fd, v, 2, 0));
        R(preadv(fd, v + 1, 1, 0));
        R(pwritev(fd, v + 1, 1, 0));
        R(open(p, O_RDONLY));
        R(openat(AT_FDCWD, p, O_RDONLY));
        R(access(p, F_OK));
        R(mkdir(p, 0700));
        R(unlink(p));
        R(rename(p, in("x")));
        R(rename(in("m"), p));
        R(link(in("m"), p));
        R(symlink(p, in("x")));
        R(symlink("x", p));
        R(readlink(p, edge, 4));
        R(truncate(p, 0));
        R(chmod(p, 0600));
        R(chown(p, -1, -1));
        R(chdir(p));
        R(statfs(p, (void *)edge));
        R(getxattr(p, "user.x", edge, 4));
        if (p != NULL) {
            R(stat(in("m"), p));
            R(fstat(fd, p));
            R(lstat(in("m"), p));
            R(fstatat(AT_FDCWD, in("m"), p, 0));
            R(statx(AT_FDCWD, in("m"), 0, STATX_SIZE, p));
            R(statfs(in("m"), p));
            R(fstatfs(fd, p));
            R(utimensat(AT_FDCWD, in("m"), p, 0));
            R(futimens(fd, p));
        }
        int d = open(in("."), O_RDONLY | O_DIRECTORY);
        R(syscall(SYS_getdents64, d, p, 400));
        close(d);
        R(fcntl(fd, F_SETLK, p));
        R(fcntl(fd, F_GETLK, p));
        R(ioctl(fd, FIONREAD, p));
        R(copy_file_range(fd, (void *)1, w, NULL, 4, 0));
    }
    show("m");
    R(read(fd, fixed, 4));
    R(write(fd, fixed, 0));
    R(stat(in("m"), (void *)fixed));
    /* What lies at the end of what is there. */
    R(lseek(fd, 0, SEEK_SET));
    R(read(fd, edge + PAGE - 4, 4));
    R(pread(fd, edge + PAGE - 4, 8, 0));
    R(pread(fd, edge + PAGE - 4, 8, 8));
    R(pread(fd, GONE, 8, 10));
    R(pread(fd, edge + PAGE - 40, 4096, 0));
    R(pwrite(fd, edge + PAGE - 4, 8, 0));
    R(pwrite(fd, edge + PAGE - 4, 4, 4));
    show("m");
    memset(edge, 'x', PAGE);
    R(open(edge, O_RDONLY));
    R(open(edge + PAGE - 4, O_RDONLY));
    edge[PAGE - 1] = 0;
    R(open(edge + PAGE - 4, O_RDONLY));
    R(symlink("0123456789", in("ml")));
    R(readlink(in("ml"), edge + PAGE - 10, 100));
    R(readlink(in("ml"), edge + PAGE - 9, 100));
    R(readlink(in("ml"), edge + PAGE - 4, 4));
    R(readlink(in("ml"), edge, 0));
    /* A long buffer with a hole in it, and one whose end is not there. */
    char *big = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(big, 'b', 4 << 20);
    R(pwrite(fd, big, 3 << 20, 0));
    munmap(big + (2 << 20), 1 << 20);
    R(pread(fd, big, 2 << 20, 0));
    R(pread(fd, big, 3 << 20, 0));
    R(pwrite(fd, big, 3 << 20, 0));
    R(pread(fd, big, 3 << 20, (3 << 20) - 10));
    munmap(big + (3 << 20), 1 << 20);
    munmap(big, 2 << 20);
    R(pread(fd, big, 10, 0));
    R(pwrite(fd, big, 10, 0));
    R(open(big, O_RDONLY));
    R(fstat(fd, (void *)big));
    close(fd);
    close(w);
    close(r);
}
