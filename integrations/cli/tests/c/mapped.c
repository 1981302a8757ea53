// What a program may expect of a file that it maps shared: the file named, in whatever directory; one file, whichever
// way it is looked at, offsets and locks as before.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *name;

// Another process tries to lock byte `at`; whether it may.
static int other_may_lock(off_t at) {
    pid_t child = fork();
    if (child == 0) {
        int fd = open(name, O_RDWR);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
        _exit(fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0 ? 0 : 1);
    }
    int status;
    assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status) == 0;
}

static int other_may_flock(void) {
    pid_t child = fork();
    if (child == 0) {
        int fd = open(name, O_RDWR);
        _exit(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : 1);
    }
    int status;
    assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv) {
    assert(argc == 2);
    name = argv[1];
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert(fd >= 0);
    char page[4096];
    memset(page, 'a', sizeof page);
    for (int i = 0; i < 4; i++)
        assert(write(fd, page, sizeof page) == sizeof page);
    assert(lseek(fd, 100, SEEK_SET) == 100);
    int twin = dup(fd), reader = open(name, O_RDONLY), appender = open(name, O_WRONLY | O_APPEND);
    assert(twin >= 0 && reader >= 0 && appender >= 0);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 7, .l_len = 1};
    assert(fcntl(fd, F_SETLK, &lock) == 0 && !other_may_lock(7) && other_may_lock(8));
    struct stat before, after;
    assert(fstat(fd, &before) == 0);

    char *map = mmap(NULL, sizeof page * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        printf("mmap: %s\n", strerror(errno));
        return errno == ENODEV ? 3 : 1;
    }
    // What is written through the mapping is read, through every descriptor; and the other way round.
    memcpy(map + 4096, "mapped", 6);
    assert(pread(reader, page, 6, 4096) == 6 && memcmp(page, "mapped", 6) == 0);
    assert(pread(twin, page, 6, 4096) == 6 && memcmp(page, "mapped", 6) == 0);
    assert(pwrite(twin, "written", 7, 8192) == 7 && memcmp(map + 8192, "written", 7) == 0);
    int later = open(name, O_RDONLY);
    map[0] = 'z';
    assert(later >= 0 && pread(later, page, 1, 0) == 1 && page[0] == 'z');
    // Offsets and flags are those from before, and duplicates share theirs.
    assert(lseek(twin, 0, SEEK_CUR) == 100 && lseek(fd, 3, SEEK_CUR) == 103 && lseek(twin, 0, SEEK_CUR) == 103);
    assert(write(appender, "end", 3) == 3 && fstat(fd, &after) == 0 && after.st_size == 4 * 4096 + 3);
    assert(after.st_ino == before.st_ino && after.st_dev == before.st_dev);
    assert(stat(name, &after) == 0 && after.st_ino == before.st_ino && after.st_dev == before.st_dev);
    assert(fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(twin, F_GETFD) == 0);
    assert((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR && fcntl(appender, F_GETFL) & O_APPEND);
    // Locks from before hold, and new ones do.
    assert(!other_may_lock(7) && other_may_lock(8));
    lock.l_start = 8;
    assert(fcntl(twin, F_SETLK, &lock) == 0 && !other_may_lock(8));
    lock.l_type = F_UNLCK, lock.l_start = 7;
    assert(fcntl(twin, F_SETLK, &lock) == 0 && other_may_lock(7));
    // Closing any descriptor of the file drops the process's locks on it.
    assert(close(later) == 0 && other_may_lock(8));
    assert(flock(fd, LOCK_EX) == 0 && !other_may_flock() && flock(twin, LOCK_UN) == 0 && other_may_flock());
    // Duplicates, and its number given to another file.
    int third = fcntl(fd, F_DUPFD_CLOEXEC, 40), fourth = dup2(fd, 50);
    assert(third >= 40 && fourth == 50 && lseek(third, 5, SEEK_SET) == 5 && lseek(fourth, 0, SEEK_CUR) == 5);
    int elsewhere = open("/dev/null", O_RDONLY);
    assert(dup2(elsewhere, third) == third && read(third, page, 1) == 0);
    // A forked child has the same mapping and the same offset.
    pid_t child = fork();
    if (child == 0) {
        memcpy(map + 12288, "child", 5);
        _exit(lseek(fd, 9, SEEK_SET) == 9 && pread(fd, page, 1, 0) == 1 && page[0] == 'z' ? 0 : 1);
    }
    int status;
    assert(waitpid(child, &status, 0) == child && status == 0);
    assert(memcmp(map + 12288, "child", 5) == 0 && lseek(fd, 0, SEEK_CUR) == 9);
    // The kernel's own way between files and pipes.
    int pipes[2];
    loff_t at = 4096;
    assert(pipe(pipes) == 0 && splice(reader, &at, pipes[1], NULL, 6, 0) == 6);
    assert(read(pipes[0], page, 6) == 6 && memcmp(page, "mapped", 6) == 0);
    // A file of which nothing is mapped stays where it was.
    char beside[4096];
    snprintf(beside, sizeof beside, "%s.beside", name);
    int other = open(beside, O_RDWR | O_CREAT, 0600);
    assert(other >= 0 && write(other, "b", 1) == 1 && close(other) == 0);
    assert(ftruncate(fd, 5 * 4096) == 0 && fstat(fd, &after) == 0 && after.st_size == 5 * 4096);
    assert(msync(map, 4 * 4096, MS_SYNC) == 0 && munmap(map, 4 * 4096) == 0 && fsync(fd) == 0);
    assert(close(fd) == 0 && close(twin) == 0 && close(reader) == 0 && close(appender) == 0 && close(fourth) == 0);
    // Everything that is open now is new, and still one file.
    fd = open(name, O_RDWR);
    assert(fd >= 0 && pread(fd, page, 6, 4096) == 6 && memcmp(page, "mapped", 6) == 0);
    assert(pread(fd, page, 5, 12288) == 5 && memcmp(page, "child", 5) == 0);
    // What has lost its name cannot be found by the kernel.
    int nameless = open(".", O_TMPFILE | O_RDWR, 0600);
    if (nameless >= 0 && ftruncate(nameless, 4096) == 0) {
        map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, nameless, 0);
        printf("nameless: %s\n", map == MAP_FAILED ? strerror(errno) : "mapped");
    }
    puts("well");
    return 0;
}
