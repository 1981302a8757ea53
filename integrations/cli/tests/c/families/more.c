/* Streams, temporary names, numbers of system calls, programs, and what is left. */
#include "show.h"
#include <aio.h>
#include <dlfcn.h>
#include <ftw.h>
#include <linux/openat2.h>
#include <spawn.h>
#include <sys/ipc.h>
#include <sys/socket.h>
#include <sys/un.h>

static void lines(FILE *f) {
    char line[200];
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        printf("| %s", line);
    }
}

static int print_list(int fd, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = vdprintf(fd, format, list);
    va_end(list);
    return n;
}

void streams(void) {
    char room[64];
    FILE *f = fopen(in("s"), "w");
    R(fprintf(f, "one\ntwo\n"));
    R(fputs("three\n", f) >= 0);
    R(ftell(f));
    R(fseek(f, 4, SEEK_SET));
    R(fputc('T', f));
    R(fclose(f));
    show("s");
    RP(fopen(in("s"), "wx"));
    RP(fopen(in("s"), "q"));
    RP(fopen(in("s"), ""));
    RP(fopen(in("none/x"), "w"));
    RP(fopen(in("none"), "r"));
    RP(fopen(in("."), "w"));
    f = fopen(in("s"), "a+");
    R(fputs("four\n", f) >= 0);
    R(fseek(f, 0, SEEK_SET));
    lines(f);
    R(feof(f) != 0);
    R(fseek(f, -1, SEEK_SET));
    R(fclose(f));
    f = fopen(in("s"), "r+");
    R(fread(room, 1, 3, f));
    R(ungetc('X', f));
    R(fgetc(f));
    R(fileno(f) > 2);
    R(fcntl(fileno(f), F_GETFD));
    R(fclose(f));
    f = fopen(in("s"), "re");
    R(fputc('x', f));
    R(ferror(f) != 0);
    R(fcntl(fileno(f), F_GETFD));
    R(fclose(f));
    f = fopen(in("s"), "w");
    R(fgetc(f));
    R(fclose(f));
    make("s", "content");
    int fd = open(in("s"), O_RDONLY);
    RP(fdopen(fd, "w"));
    RP(fdopen(fd, "q"));
    RP(fdopen(9999, "r"));
    f = fdopen(fd, "r");
    R(fread(room, 1, sizeof room, f));
    R(fclose(f));
    R(fcntl(fd, F_GETFD));
    fd = open(in("s"), O_RDWR);
    f = fdopen(fd, "a");
    R(fputs("+", f) >= 0);
    R(fflush(f));
    R(fcntl(fd, F_GETFL) & O_APPEND);
    R(fclose(f));
    show("s");
    /* dprintf with arguments in registers of both kinds, and on the stack. */
    fd = open(in("p"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    R(dprintf(fd, "plain\n"));
    R(dprintf(fd, "%d %s %c %.2f %d %d %d %g %g %g %g %g %g %g %g %s\n", 1, "two", '3', 4.5, 5, 6, 7, 8., 9., 10., 11.,
              12., 13., 14., 15., "end"));
    R(print_list(fd, "%s %d %.1f\n", "list", 7, 2.5));
    R(dprintf(9999, "x"));
    R(close(fd));
    show("p");
    fd = open(in("p"), O_RDONLY);
    R(dprintf(fd, "x"));
    close(fd);
    /* freopen of a stream over a file of the host, and back. */
    make("new", "");
    f = fopen("/etc/hostname", "r");
    FILE *same = freopen(in("new"), "w+", f);
    R(same == f);
    R(fputs("written anew\n", f) >= 0);
    R(fileno(f) > 2);
    R(fflush(f));
    rewind(f);
    lines(f);
    same = freopen("/dev/null", "w", f);
    R(same == f);
    R(fputs("lost\n", f) >= 0);
    R(fclose(f));
    show("new");
    f = fopen("/etc/hostname", "r");
    RP(freopen(in("none/x"), "r", f));
    f = fopen(in("new"), "r");
    f = freopen(in("s"), "r", f);
    lines(f);
    printf("\n");
    f = freopen(NULL, "r", f);
    lines(f);
    printf("\n");
    R(fclose(f));
    /* Standard output, in a process of its own. */
    if (fork() == 0) {
        freopen(in("out"), "w", stdout);
        printf("to the file\n");
        exit(0);
    }
    wait(NULL);
    show("out");
}

/* A name whose end is not known. */
static void kind(const char *name) {
    struct stat st;
    if (name == NULL || stat(name, &st) != 0) {
        printf("%s\n", strerrorname_np(errno));
        return;
    }
    printf("%o, %zu bytes of name\n", st.st_mode, strlen(name) - strlen(dir));
}

void temporary(void) {
    char name[PATH_MAX];
    int fd;
    strcpy(name, in("tXXXXXX"));
    R((fd = mkstemp(name)) >= 0);
    kind(name);
    R(fcntl(fd, F_GETFL) & O_ACCMODE);
    close(fd);
    strcpy(name, in("tXXXXXX"));
    R((fd = mkostemp(name, O_CLOEXEC | O_APPEND)) >= 0);
    R(fcntl(fd, F_GETFL) & O_APPEND);
    R(fcntl(fd, F_GETFD));
    close(fd);
    strcpy(name, in("tXXXXXX.txt"));
    R((fd = mkstemps(name, 4)) >= 0);
    R(strcmp(name + strlen(name) - 4, ".txt"));
    close(fd);
    strcpy(name, in("tXXXXXX.txt"));
    R((fd = mkostemps(name, 4, O_CLOEXEC)) >= 0);
    close(fd);
    strcpy(name, in("tXXXXX"));
    R(mkstemp(name));
    strcpy(name, in("tXXXXXX.txt"));
    R(mkstemps(name, 5));
    R(mkstemps(name, -1));
    R(mkstemps(name, 5000));
    strcpy(name, in("none/tXXXXXX"));
    R(mkstemp(name));
    strcpy(name, in("dXXXXXX"));
    R(mkdtemp(name) == name);
    kind(name);
    strcpy(name, in("none/dXXXXXX"));
    RP(mkdtemp(name));
    strcpy(name, in("XXXXX"));
    RP(mkdtemp(name));
    strcpy(name, in("mXXXXXX"));
    R(mktemp(name) == name && strcmp(name + strlen(name) - 6, "XXXXXX") != 0);
    kind(name);
    R(mkdir(in("tmp"), 0755));
    unsetenv("TMPDIR");
    char *made = tempnam(in("tmp"), "abcdefgh");
    R(strncmp(made, in("tmp/abcde"), strlen(in("tmp/abcde"))));
    printf("%zu\n", strlen(made) - strlen(dir));
    free(made);
    setenv("TMPDIR", in("tmp"), 1);
    made = tempnam("/etc", "x");
    R(strncmp(made, in("tmp/x"), strlen(in("tmp/x"))));
    free(made);
    made = tempnam(NULL, NULL);
    R(strncmp(made, in("tmp/file"), strlen(in("tmp/file"))));
    free(made);
    unsetenv("TMPDIR");
    FILE *f = tmpfile();
    R(fputs("held\n", f) >= 0);
    rewind(f);
    lines(f);
    R(fclose(f));
    R(tmpnam(name) == name);
    R(tmpnam_r(NULL) == NULL);
}

static long opened(int at, const char *name, unsigned long long flags, unsigned long long mode, unsigned long long resolve) {
    struct open_how how = {.flags = flags, .mode = mode, .resolve = resolve};
    long fd = syscall(SYS_openat2, at, name, &how, sizeof how);
    if (fd >= 0) {
        char byte = '-';
        if (read(fd, &byte, 1) < 0) {
            byte = '!';
        }
        close(fd);
        return byte;
    }
    return fd;
}

void numbers(void) {
    R(mkdir(in("n"), 0755) | mkdir(in("n/sub"), 0755));
    make("n/f", "f");
    make("out", "o");
    R(symlink("f", in("n/in")) | symlink("../out", in("n/out")) | symlink(in("n/f"), in("n/abs")));
    R(symlink("/etc/hostname", in("n/host")) | symlink("round", in("n/round")) | symlink("/f", in("n/root")));
    int d = open(in("n"), O_RDONLY | O_DIRECTORY);
    R(opened(d, "f", O_RDONLY, 0, 0));
    R(opened(d, "f", O_RDONLY, 0600, 0));
    R(opened(d, "made", O_RDWR | O_CREAT, 0600, 0));
    R(opened(d, "made", O_RDWR | O_CREAT, 010000, 0));
    R(opened(d, "f", 1u << 30, 0, 0));
    R(opened(d, "f", O_RDONLY, 0, 1 << 20));
    R(opened(d, "f", O_RDONLY, 0, RESOLVE_BENEATH | RESOLVE_IN_ROOT));
    static const unsigned long long ways[] = {
        RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_XDEV,
    };
    static const char *const ones[] = {
        "f", "./f", "sub/../f", "../out", "in", "out", "round", "none", "none/x", "sub/../../out", "root",
        "..", ".", "", "sub/", "f/", "in/x", "new/", "sub/../sub/../in",
    };
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++) {
            errno = 0;
            printf("%llu ", ways[w]);
            /* An absolute link leads to the host's own file of that name, if there is one. */
            if (strcmp(ones[i], "root") == 0 && ways[w] != RESOLVE_IN_ROOT && ways[w] != RESOLVE_BENEATH) {
                printf("\n");
                continue;
            }
            said(ones[i], opened(d, ones[i], O_RDONLY, 0, ways[w]));
        }
        errno = 0;
        said("link itself", opened(d, "in", O_PATH | O_NOFOLLOW, 0, ways[w]));
        said("not followed", opened(d, "in", O_RDONLY | O_NOFOLLOW, 0, ways[w]));
        said("make", opened(d, "sub/made", O_RDWR | O_CREAT | O_EXCL, 0600, ways[w]));
        said("made", unlink(in("n/sub/made")));
    }
    R(opened(d, "abs", O_RDONLY, 0, RESOLVE_BENEATH));
    R(opened(d, "abs", O_RDONLY, 0, RESOLVE_NO_SYMLINKS));
    R(opened(d, "abs", O_RDONLY, 0, RESOLVE_NO_MAGICLINKS));
    R(opened(d, "host", O_RDONLY, 0, RESOLVE_BENEATH));
    R(opened(d, in("n/f"), O_RDONLY, 0, RESOLVE_BENEATH));
    R(opened(d, "/f", O_RDONLY, 0, RESOLVE_IN_ROOT));
    R(opened(AT_FDCWD, in("n/f"), O_RDONLY, 0, RESOLVE_NO_SYMLINKS));
    R(opened(AT_FDCWD, in("n/in"), O_RDONLY, 0, RESOLVE_NO_SYMLINKS));
    R(opened(9999, "f", O_RDONLY, 0, RESOLVE_BENEATH));
    struct open_how how = {0};
    R(syscall(SYS_openat2, d, "f", &how, 8));
    R(syscall(SYS_openat2, d, "f", NULL, sizeof how));
    R(syscall(SYS_openat2, d, NULL, &how, sizeof how));
    struct {
        struct open_how how;
        long more;
    } longer = {{0}, 0};
    R(close(syscall(SYS_openat2, d, "f", &longer, sizeof longer)));
    longer.more = 1;
    R(syscall(SYS_openat2, d, "f", &longer, sizeof longer));
    /* Numbers of calls that libc has names for. */
    char room[200];
    struct stat st;
    struct iovec v = {room, 3};
    long fd;
    R((fd = syscall(SYS_openat, d, "raw", O_RDWR | O_CREAT, 0640)) > 2);
    R(syscall(SYS_write, fd, "0123456789", 10));
    R(syscall(SYS_lseek, fd, 2L, SEEK_SET));
    R(syscall(SYS_readv, fd, &v, 1));
    R(syscall(SYS_preadv, fd, &v, 1, 5L, 0L));
    R(syscall(SYS_pwritev, fd, &v, 1, 0L, 0L));
    R(syscall(SYS_preadv2, fd, &v, 1, 5L, 0L, 0));
    R(syscall(SYS_pwritev2, fd, &v, 1, 0L, 0L, RWF_APPEND));
    R(syscall(SYS_fstat, fd, &st));
    R((long)st.st_size);
    R(syscall(SYS_ftruncate, fd, 5L));
    R(syscall(SYS_newfstatat, d, "raw", &st, 0));
    R((long)st.st_size);
    R(syscall(SYS_fchmod, fd, 0600));
    R(syscall(SYS_fchmodat, d, "raw", 0644));
    R(syscall(SYS_fchown, fd, -1, -1));
    R(syscall(SYS_flock, fd, 2));
    R(syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE);
    R(syscall(SYS_faccessat, d, "raw", R_OK));
    R(syscall(SYS_mkdirat, d, "rawd", 0700));
    R(syscall(SYS_symlinkat, "raw", d, "rawl"));
    R(syscall(SYS_readlinkat, d, "rawl", room, sizeof room));
    R(syscall(SYS_linkat, d, "raw", d, "rawh", 0));
    R(syscall(SYS_renameat2, d, "rawh", d, "rawg", 0));
    R(syscall(SYS_unlinkat, d, "rawg", 0));
    R(syscall(SYS_unlinkat, d, "rawd", AT_REMOVEDIR));
    R(syscall(SYS_truncate, in("n/raw"), 3L));
    R(syscall(SYS_utimensat, d, "raw", NULL, 0));
    R(syscall(SYS_utimensat, fd, NULL, NULL, 0));
    R(syscall(SYS_fsetxattr, fd, "user.a", "b", 1, 0));
    R(syscall(SYS_getxattr, in("n/raw"), "user.a", room, sizeof room));
    R(syscall(SYS_chdir, in("n")));
    long n = syscall(SYS_getcwd, room, sizeof room);
    printf("%ld\n", n - (long)strlen(dir));
    R(syscall(SYS_getcwd, room, 2));
    R(syscall(SYS_fchdir, d));
    R(syscall(SYS_chdir, "/"));
#ifdef SYS_open
    R(syscall(SYS_close, syscall(SYS_open, in("n/raw"), O_RDONLY)));
    R(syscall(SYS_stat, in("n/raw"), &st));
    R(syscall(SYS_access, in("n/raw"), R_OK));
    R(syscall(SYS_rename, in("n/raw"), in("n/raw2")));
    R(syscall(SYS_unlink, in("n/raw2")));
    R(syscall(SYS_rmdir, in("n/none")));
    R(syscall(SYS_dup2, fd, 100));
    R(syscall(SYS_write, 100, "x", 1));
    R(syscall(SYS_close, 100));
#endif
    R(syscall(SYS_dup3, fd, fd, 0));
    R(syscall(SYS_close_range, fd, fd, 0));
    R(syscall(SYS_close, fd));
    R(syscall(SYS_statx, d, "f", 0, STATX_SIZE, room));
    close(d);
}

static void reap(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    printf("ended %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
}

#define TEN "1", "2", "3", "4", "5", "6", "7", "8", "9", "0"

void programs(const char *self) {
    fflush(stdout);
    pid_t pid;
    if ((pid = fork()) == 0) {
        execl(self, self, dir, "arguments", TEN, TEN, TEN, TEN, "last", (char *)NULL);
    }
    reap(pid);
    if ((pid = fork()) == 0) {
        execle(self, self, dir, "arguments", TEN, TEN, TEN, (char *)NULL, (char *[]){"X=given", NULL});
    }
    reap(pid);
    if ((pid = fork()) == 0) {
        execlp("sh", "sh", "-c", "echo $# $1 ${40}", "sh", TEN, TEN, TEN, TEN, (char *)NULL);
    }
    reap(pid);
    R(execl(in("none"), "none", (char *)NULL));
    R(execl(in("."), ".", (char *)NULL));
    make("script", "#!/bin/sh\necho script $0 $# | sed 's:.*/script:script:'\n");
    R(execl(in("script"), "script", (char *)NULL));
    R(chmod(in("script"), 0755));
    if ((pid = fork()) == 0) {
        execl(in("script"), "script", TEN, TEN, TEN, (char *)NULL);
    }
    reap(pid);
    char *bad[] = {"x", (char *)1, NULL};
    R(execv(in("script"), bad));
    R(execve(in("script"), (char *[]){"x", NULL}, GONE));
    /* What a new process is to do before it starts. */
    char *argv[] = {"sh", "-c", "cat; echo said; echo wrong >&2; echo $(basename $PWD); cat rel; ls", NULL};
    extern char **environ;
    make("input", "input\n");
    R(mkdir(in("work"), 0755));
    make("work/rel", "relative\n");
    posix_spawn_file_actions_t list;
    R(posix_spawn_file_actions_init(&list));
    R(posix_spawn_file_actions_addopen(&list, 0, in("input"), O_RDONLY, 0));
    R(posix_spawn_file_actions_addopen(&list, 1, in("said"), O_WRONLY | O_CREAT | O_TRUNC, 0640));
    R(posix_spawn_file_actions_addchdir_np(&list, in("work")));
    R(posix_spawn_file_actions_addopen(&list, 2, "wrong", O_WRONLY | O_CREAT | O_APPEND, 0600));
    R(posix_spawn(&pid, "/bin/sh", &list, NULL, argv, environ));
    reap(pid);
    show("said");
    show("work/wrong");
    R(posix_spawn(&pid, "/bin/sh", &list, NULL, argv, environ));
    reap(pid);
    show("work/wrong");
    R(posix_spawnp(&pid, "sh", &list, NULL, argv, environ));
    reap(pid);
    R(posix_spawn_file_actions_destroy(&list));
    posix_spawn_file_actions_init(&list);
    R(posix_spawn_file_actions_addopen(&list, 0, in("none"), O_RDONLY, 0));
    R(posix_spawn(&pid, "/bin/sh", &list, NULL, argv, environ));
    posix_spawn_file_actions_destroy(&list);
    posix_spawn_file_actions_init(&list);
    R(posix_spawn_file_actions_addchdir_np(&list, in("input")));
    R(posix_spawn(&pid, "/bin/sh", &list, NULL, argv, environ));
    posix_spawn_file_actions_destroy(&list);
    int work = open(in("work"), O_RDONLY | O_DIRECTORY);
    posix_spawn_file_actions_init(&list);
    R(posix_spawn_file_actions_addfchdir_np(&list, work));
    char *relative[] = {"./run", "3", NULL};
    make("work/run", "#!/bin/sh\necho ran with $1 in $(basename $PWD)\n");
    chmod(in("work/run"), 0755);
    /* What it prints comes before what is said of the call. */
    int code = posix_spawn(&pid, "./run", &list, NULL, relative, environ);
    reap(pid);
    R(code);
    posix_spawn_file_actions_destroy(&list);
    close(work);
    R(posix_spawn(&pid, in("none"), NULL, NULL, argv, environ));
    code = posix_spawn(&pid, in("work/run"), NULL, NULL, relative, environ);
    reap(pid);
    R(code);
    char command[PATH_MAX];
    snprintf(command, sizeof command, "cat %s", in("input"));
    FILE *f = popen(command, "r");
    lines(f);
    R(pclose(f));
    R(system(command));
}

static void finished(union sigval value) {
    *(int *)value.sival_ptr = 1;
}

void others(void) {
    /* Asynchronous I/O. */
    int fd = open(in("aio"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    char room[16] = {0};
    struct aiocb one = {.aio_fildes = fd, .aio_buf = "asynchronous", .aio_nbytes = 12};
    R(aio_write(&one));
    const struct aiocb *waits[] = {&one};
    R(aio_suspend(waits, 1, NULL));
    R(aio_error(&one));
    R(aio_return(&one));
    volatile int told = 0;
    struct aiocb two = {.aio_fildes = fd, .aio_buf = room, .aio_nbytes = 5, .aio_offset = 1};
    two.aio_sigevent.sigev_notify = SIGEV_THREAD;
    two.aio_sigevent.sigev_notify_function = finished;
    two.aio_sigevent.sigev_value.sival_ptr = (void *)&told;
    R(aio_read(&two));
    while (!told) {
        usleep(100);
    }
    R(aio_return(&two));
    text("read", room);
    R(aio_fsync(O_SYNC, &one));
    while (aio_error(&one) == EINPROGRESS) {
        usleep(100);
    }
    R(aio_return(&one));
    struct aiocb *list[] = {&one, &two};
    memset(&one, 0, sizeof one);
    memset(&two, 0, sizeof two);
    one.aio_fildes = two.aio_fildes = fd;
    one.aio_lio_opcode = LIO_WRITE;
    one.aio_buf = "LIST";
    one.aio_nbytes = 4;
    two.aio_lio_opcode = LIO_READ;
    two.aio_buf = room;
    two.aio_nbytes = 3;
    two.aio_offset = 5;
    R(lio_listio(LIO_WAIT, list, 2, NULL));
    R(aio_return(&one));
    R(aio_return(&two));
    close(fd);
    show("aio");
    int r = open(in("aio"), O_RDONLY);
    struct aiocb wrong = {.aio_fildes = r, .aio_buf = "x", .aio_nbytes = 1};
    R(aio_write(&wrong));
    while (aio_error(&wrong) == EINPROGRESS) {
        usleep(100);
    }
    R(aio_error(&wrong));
    R(aio_return(&wrong));
    close(r);
    R(ftok(in("aio"), 7) == ftok(in("./aio"), 7));
    R(ftok(in("none"), 7));
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(in("aio")) < sizeof address.sun_path) {
        strcpy(address.sun_path, in("aio"));
        R(connect(s, (void *)&address, sizeof address));
        strcpy(address.sun_path, in("none"));
        R(connect(s, (void *)&address, sizeof address));
    }
    close(s);
    /* A daemon's 0, 1 and 2 are /dev/null, whatever they were. */
    int ends[2];
    pipe(ends);
    pid_t pid = fork();
    if (pid == 0) {
        int f = open(in("daemon"), O_RDWR | O_CREAT, 0644);
        dup2(f, 1);
        if (write(1, "before ", 7) == 7 && daemon(0, 0) == 0 && write(1, "lost", 4) == 4) {
            char where[64] = "";
            getcwd(where, sizeof where);
            dprintf(f, "in %s", where);
        }
        _exit(0);
    }
    close(ends[1]);
    R(waitpid(pid, NULL, 0) == pid);
    R(read(ends[0], room, 1));
    close(ends[0]);
    show("daemon");
    RP(dlopen(in("none.so"), RTLD_NOW));
    make("not.so", "no library");
    RP(dlopen(in("not.so"), RTLD_NOW));
    RP(dlopen("libm.so.6", RTLD_NOW));
    RP(dlopen(NULL, RTLD_NOW));
    if (getenv("LIBRARY") != NULL) {
        char command[2 * PATH_MAX];
        const char *from = getenv("LIBRARY");
        snprintf(command, sizeof command, "cp '%s'/libfam*.so '%s'", from, in("."));
        R(system(command));
        void *a = dlopen(in("libfamily.so"), RTLD_NOW), *b = dlopen(in("libfamily.so"), RTLD_NOW);
        printf("%s, %s\n", a != NULL ? "opened" : dlerror(), a == b ? "the same" : "another");
        int (*answer)(void) = a == NULL ? NULL : (int (*)(void))dlsym(a, "weldfs_test_answer");
        printf("%d\n", answer == NULL ? -1 : answer());
        R(dlclose(a) | dlclose(b));
        a = dlmopen(LM_ID_BASE, in("libfamily.so"), RTLD_NOW);
        printf("%s\n", a != NULL ? "opened" : dlerror());
    }
}
