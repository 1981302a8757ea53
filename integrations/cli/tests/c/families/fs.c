/* Names, attributes, directories and walks over trees. */
#include "show.h"
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

void names(void) {
    R(mkdir(in("d"), 0755));
    R(mkdir(in("d"), 0755));
    R(mkdir(in("d/e/"), 0700));
    R(mkdir(in("none/e"), 0700));
    R(mkdirat(-1, "x", 0700));
    make("d/f", "f");
    R(rmdir(in("d")));
    R(rmdir(in("d/f")));
    R(rmdir(in("d/.")));
    R(rmdir(in("d/e/..")));
    R(unlink(in("d")));
    R(unlink(in("d/f/")));
    R(unlink(in("none")));
    R(unlinkat(AT_FDCWD, in("d/e"), AT_REMOVEDIR));
    R(unlinkat(AT_FDCWD, in("d/f"), 77));
    R(remove(in("d")));
    R(rename(in("d/f"), in("g")));
    R(rename(in("none"), in("x")));
    R(rename(in("g"), in("d")));
    R(rename(in("d"), in("g")));
    R(rename(in("d"), in("d/sub")));
    R(rename(in("g"), in("none/x")));
    make("h", "h");
    R(renameat2(AT_FDCWD, in("g"), AT_FDCWD, in("h"), RENAME_NOREPLACE));
    R(renameat2(AT_FDCWD, in("g"), AT_FDCWD, in("h"), RENAME_EXCHANGE));
    R(renameat2(AT_FDCWD, in("g"), AT_FDCWD, in("none"), RENAME_EXCHANGE));
    R(renameat2(AT_FDCWD, in("g"), AT_FDCWD, in("h"), 77));
    show("g");
    R(link(in("g"), in("l")));
    R(link(in("g"), in("l")));
    R(link(in("d"), in("dl")));
    R(link(in("none"), in("x")));
    R(linkat(AT_FDCWD, in("g"), AT_FDCWD, in("x"), 77));
    R(symlink("g", in("s")));
    R(symlink("g", in("s")));
    R(symlink("", in("t")));
    R(symlink("nothing", in("dangling")));
    R(linkat(AT_FDCWD, in("s"), AT_FDCWD, in("hard-s"), 0));
    R(linkat(AT_FDCWD, in("s"), AT_FDCWD, in("hard-g"), AT_SYMLINK_FOLLOW));
    char target[64] = "................";
    R(readlink(in("s"), target, 10));
    R(readlink(in("g"), target, 10));
    R(readlink(in("none"), target, 10));
    R(readlinkat(-1, "x", target, 10));
    static char longer[PATH_MAX + 2];
    memset(longer, 'y', sizeof longer - 1);
    R(symlink(longer, in("t")));
    longer[PATH_MAX - 1] = 0;
    R(symlink(longer, in("t")));
    char name[260];
    memset(name, 'z', sizeof name);
    name[256] = 0;
    R(mkdir(in(name), 0700));
    R(rename(in("g"), in(name)));
    R(symlink("x", in(name)));
    R(link(in("g"), in(name)));
    R(unlink(in(name)));
    name[255] = 0;
    R(mkdir(in(name), 0700));
    R(rmdir(in(name)));
    R(mknod(in("node"), S_IFREG | 0600, 0));
    R(mknod(in("node"), S_IFREG | 0600, 0));
    R(mknod(in("dir"), S_IFDIR | 0600, 0));
    /* A device has no FIFOs: only what is wrong with the name can be compared. */
    R(mkfifo(in("node"), 0600));
    R(mkfifo(in("s"), 0600));
    R(mkfifo(in("none/x"), 0600));
    R(mkfifo(in("node/x"), 0600));
    R(mknod(in("node"), S_IFIFO | 0600, 0));
    R(mknod(in("none/x"), S_IFSOCK | 0600, 0));
    name[255] = 'z';
    R(mkfifo(in(name), 0600));
    name[255] = 0;
    int fd = open(in("."), O_TMPFILE | O_RDWR, 0600);
    char proc[40];
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    R(write(fd, "tmp", 3));
    R(linkat(AT_FDCWD, proc, AT_FDCWD, in("linked"), AT_SYMLINK_FOLLOW));
    show("linked");
    close(fd);
    /* Where one stands. */
    char room[PATH_MAX];
    text("cwd", getcwd(room, sizeof room));
    R(chdir(in("d")));
    text("cwd", getcwd(room, sizeof room));
    text("too small", getcwd(room, 4));
    text("nothing", getcwd(room, 0));
    char *made = getcwd(NULL, 0);
    text("made", made);
    free(made);
    made = get_current_dir_name();
    text("made", made);
    free(made);
    make("d/here", "here");
    R(access("here", R_OK));
    R(access("../d/here", R_OK));
    R(chdir("none"));
    R(chdir("here"));
    R(chdir(".."));
    text("cwd", getcwd(room, sizeof room));
    fd = open("d", O_RDONLY | O_DIRECTORY);
    R(fchdir(fd));
    close(fd);
    text("cwd", getcwd(room, sizeof room));
    fd = open("here", O_RDONLY);
    R(fchdir(fd));
    R(fchdir(9999));
    close(fd);
    text("relative", realpath("../d/./here", room));
    R(chdir("/"));
    text("real", realpath(in("d//../s"), room));
    text("dangling", realpath(in("dangling"), room));
    text("none", realpath(in("none"), room));
    text("below a file", realpath(in("g/"), room));
    text("empty", realpath("", room));
    made = realpath(in("d"), NULL);
    text("made", made);
    free(made);
    made = canonicalize_file_name(in("s"));
    text("canonical", made);
    free(made);
}

static void mode_of(const char *name) {
    struct stat st = {0};
    R(lstat(in(name), &st));
    printf("%s: %o, %d links, %lld bytes, %u:%u\n", name, st.st_mode, (int)st.st_nlink,
           S_ISDIR(st.st_mode) ? 0 : (long long)st.st_size, st.st_uid, st.st_gid);
}

void attributes(void) {
    make("p", "0123456789");
    R(symlink("p", in("pl")));
    R(symlink("nowhere", in("pn")));
    mode_of("p");
    R(chmod(in("p"), 07654));
    mode_of("p");
    R(chmod(in("pl"), 0640));
    R(fchmodat(AT_FDCWD, in("pl"), 0600, 0));
    R(fchmodat(AT_FDCWD, in("none"), 0600, 0));
    R(fchmodat(AT_FDCWD, in("p"), 0600, 77));
    R(lchmod(in("pl"), 0600));
    mode_of("p");
    R(chown(in("p"), 3, 4));
    R(lchown(in("pl"), 5, 6));
    R(fchownat(AT_FDCWD, in("p"), 7, -1, 77));
    R(chown(in("pn"), 1, 1));
    R(chown(in("p/x"), 1, 1));
    mode_of("p");
    mode_of("pl");
    struct stat st;
    R(stat(in("pn"), &st));
    R(stat(in("p/"), &st));
    R(stat(in(""), &st));
    R(stat("", &st));
    R(fstatat(AT_FDCWD, "", &st, 0));
    R(fstatat(AT_FDCWD, in("p"), &st, 1 << 20));
    int fd = open(in("p"), O_RDWR);
    R(fstatat(fd, "", &st, AT_EMPTY_PATH));
    printf("%lld bytes\n", (long long)st.st_size);
    R(fstatat(fd, "", &st, 0));
    R(fstatat(fd, "x", &st, 0));
    R(fstat(9999, &st));
    struct statx sx;
    R(statx(AT_FDCWD, in("p"), 0, STATX_BASIC_STATS | STATX_BTIME, &sx));
    printf("%llu bytes, birth %s\n", (unsigned long long)sx.stx_size, sx.stx_mask & STATX_BTIME ? "known" : "unknown");
    R(statx(AT_FDCWD, in("p"), 1 << 20, STATX_SIZE, &sx));
    R(statx(AT_FDCWD, in("p"), 0, 1u << 31, &sx));
    R(statx(AT_FDCWD, in("p"), AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, STATX_SIZE, &sx));
    struct timespec times[2] = {{1000, 5}, {2000, 6}};
    R(utimensat(AT_FDCWD, in("p"), times, 0));
    R(utimensat(AT_FDCWD, in("p"), times, 77));
    R(utimensat(AT_FDCWD, in("pn"), times, 0));
    R(utimensat(AT_FDCWD, in("pn"), times, AT_SYMLINK_NOFOLLOW));
    stat(in("p"), &st);
    printf("%ld.%ld %ld.%ld\n", st.st_atim.tv_sec, st.st_atim.tv_nsec, st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_nsec = 1000000000;
    R(futimens(fd, times));
    times[1].tv_nsec = UTIME_OMIT;
    R(futimens(fd, times));
    R(utimensat(AT_FDCWD, in("none"), times, 0));
    struct timeval old[2] = {{3000, 7}, {4000, 1000000}};
    R(utimes(in("p"), old));
    old[1].tv_usec = 8;
    R(utimes(in("p"), old));
    R(futimes(fd, old));
    R(lutimes(in("pl"), old));
    R(futimesat(AT_FDCWD, in("p"), old));
    struct utimbuf oldest = {5000, 6000};
    R(utime(in("p"), &oldest));
    stat(in("p"), &st);
    printf("%ld %ld\n", st.st_atim.tv_sec, st.st_mtim.tv_sec);
    R(truncate(in("p"), 4));
    R(truncate(in("p"), -1));
    R(truncate(in("."), 4));
    R(truncate(in("none"), 4));
    R(ftruncate(fd, 20));
    show("p");
    R(access(in("p"), 77));
    R(access(in("pn"), F_OK));
    R(faccessat(AT_FDCWD, in("pn"), F_OK, AT_SYMLINK_NOFOLLOW));
    R(faccessat(AT_FDCWD, in("p"), F_OK, 1 << 20));
    R(faccessat(AT_FDCWD, in("p"), R_OK, AT_EACCESS));
    R(eaccess(in("p"), R_OK));
    struct statfs sf;
    struct statvfs sv;
    R(statfs(in("p"), &sf));
    R(statfs(in("none"), &sf));
    R(fstatfs(fd, &sf));
    R(statvfs(in("p"), &sv));
    R(fstatvfs(fd, &sv));
    R(fstatvfs(9999, &sv));
    printf("%lu %lu\n", sv.f_namemax, sv.f_bsize);
    R(pathconf(in("p"), _PC_NAME_MAX));
    R(pathconf(in("p"), _PC_PATH_MAX));
    R(pathconf(in("p"), _PC_PIPE_BUF));
    R(pathconf(in("p"), _PC_NO_TRUNC));
    R(pathconf(in("p"), 7777));
    R(pathconf(in("none"), _PC_NAME_MAX));
    R(pathconf("", _PC_NAME_MAX));
    R(fpathconf(fd, _PC_NAME_MAX));
    R(fpathconf(fd, _PC_FILESIZEBITS));
    R(fpathconf(9999, _PC_NAME_MAX));
    char value[70000] = {0};
    R(setxattr(in("p"), "user.one", "1234", 4, 0));
    R(setxattr(in("p"), "user.one", "1234", 4, XATTR_CREATE));
    R(setxattr(in("p"), "user.two", "1234", 4, XATTR_REPLACE));
    R(setxattr(in("p"), "user.two", "1234", 4, 77));
    R(setxattr(in("p"), "nospace", "1234", 4, 0));
    R(setxattr(in("p"), "", "1234", 4, 0));
    R(setxattr(in("p"), "user.", "1234", 4, 0));
    R(setxattr(in("p"), "user.big", value, 65537, 0));
    R(lsetxattr(in("pl"), "user.x", "1", 1, 0));
    R(getxattr(in("pl"), "user.one", value, 10));
    R(getxattr(in("p"), "user.one", value, 2));
    R(getxattr(in("p"), "user.one", NULL, 0));
    R(getxattr(in("p"), "user.none", value, 10));
    R(lgetxattr(in("pl"), "user.one", value, 10));
    R(fgetxattr(fd, "user.one", value, 10));
    R(fgetxattr(9999, "user.one", value, 10));
    R(fsetxattr(fd, "user.two", NULL, 0, 0));
    R(listxattr(in("p"), value, sizeof value));
    R(listxattr(in("p"), value, 3));
    R(llistxattr(in("pl"), value, sizeof value));
    R(flistxattr(fd, NULL, 0));
    R(removexattr(in("p"), "user.one"));
    R(fremovexattr(fd, "user.one"));
    R(lremovexattr(in("pl"), "user.one"));
    R(getxattr(in("none"), "user.one", value, 10));
    close(fd);
}

static int visible(const struct dirent *e) {
    return e->d_name[0] != '.';
}

void directories(void) {
    R(mkdir(in("t"), 0755));
    make("t/b", "");
    make("t/a", "");
    R(mkdir(in("t/sub"), 0755));
    R(symlink("a", in("t/link")));
    DIR *d = opendir(in("t"));
    int count = 0, right = 0;
    struct stat st;
    stat(in("t/a"), &st);
    errno = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL; count++) {
        right += strcmp(e->d_name, "a") == 0 && e->d_ino == st.st_ino && e->d_type == DT_REG;
    }
    printf("%d entries, %d right, errno %d\n", count, right, errno);
    long place = telldir(d);
    rewinddir(d);
    RP(readdir(d));
    seekdir(d, place);
    RP(readdir(d));
    R(fcntl(dirfd(d), F_GETFD) & FD_CLOEXEC);
    R(closedir(d));
    RP(opendir(in("t/a")));
    RP(opendir(in("none")));
    RP(opendir(""));
    int fd = open(in("t/a"), O_RDONLY);
    RP(fdopendir(fd));
    RP(fdopendir(9999));
    close(fd);
    fd = open(in("t"), O_RDONLY | O_DIRECTORY);
    d = fdopendir(fd);
    printf("the same number: %d\n", dirfd(d) == fd);
    closedir(d);
    R(fcntl(fd, F_GETFD));
    struct dirent **list;
    int n;
    R(n = scandir(in("t"), &list, visible, alphasort));
    for (int i = 0; i < n; i++) {
        printf("%s type %d\n", list[i]->d_name, list[i]->d_type);
        free(list[i]);
    }
    free(list);
    R(n = scandir(in("t"), &list, NULL, versionsort));
    for (int i = 0; i < n; i++) {
        printf("%s\n", list[i]->d_name);
        free(list[i]);
    }
    free(list);
    R(scandir(in("none"), &list, NULL, NULL));
    fd = open(in("."), O_RDONLY | O_DIRECTORY);
    R(scandirat(fd, "t", &list, visible, alphasort));
    char room[4096];
    int t = openat(fd, "t", O_RDONLY | O_DIRECTORY);
    long got = syscall(SYS_getdents64, t, room, sizeof room);
    printf("getdents64: %s\n", got > 0 ? "entries" : "none");
    R(syscall(SYS_getdents64, t, room, sizeof room));
    R(lseek(t, 0, SEEK_SET));
    printf("again: %d\n", syscall(SYS_getdents64, t, room, sizeof room) == got);
    lseek(t, 0, SEEK_SET);
    R(syscall(SYS_getdents64, t, room, 8));
    close(t);
    t = open(in("t/a"), O_RDONLY);
    R(syscall(SYS_getdents64, t, room, sizeof room));
    close(t);
    close(fd);
    static const char *const patterns[] = {"t/*", "t/[ab]", "*/sub", "t/none*", "t/", "t/{b,a,none}", "none/*"};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        glob_t found = {0};
        printf("%s: %d", patterns[i], glob(in(patterns[i]), GLOB_BRACE | GLOB_MARK, NULL, &found));
        printf(", flags %d\n", found.gl_flags & (1 << 9));
        for (size_t p = 0; p < found.gl_pathc; p++) {
            text("  ", found.gl_pathv[p]);
        }
        globfree(&found);
    }
    R(chdir(in("t")));
    glob_t found = {0};
    R(glob("*", 0, NULL, &found));
    R(glob("/etc/host[s]", GLOB_APPEND, NULL, &found));
    for (size_t p = 0; p < found.gl_pathc; p++) {
        text("  ", found.gl_pathv[p]);
    }
    globfree(&found);
    R(chdir("/"));
}

static int calls, stop_at, act;

static int visit(const char *path, const struct stat *st, int kind, struct FTW *where) {
    printf("%d %d %s+%d ", kind, where->level, S_ISDIR(st->st_mode) ? "dir" : "other", (int)(strlen(path) - where->base));
    text("", path + where->base);
    calls++;
    return calls == stop_at ? 42 : act != 0 && where->level == 1 ? act : 0;
}

static int stand(const char *path, const struct stat *st, int kind, struct FTW *where) {
    char room[PATH_MAX];
    struct stat seen;
    int right = kind == FTW_NS || kind == FTW_SLN || lstat(path + where->base, &seen) == 0;
    printf("%d %s %s: ", kind, path + where->base, right && seen.st_ino == st->st_ino ? "stands beside it" : "elsewhere");
    text("", getcwd(room, sizeof room));
    return 0;
}

static int visit_old(const char *path, const struct stat *st, int kind) {
    printf("%d %d ", kind, S_ISREG(st->st_mode));
    text("", path);
    return 0;
}

static int by_name(const FTSENT **a, const FTSENT **b) {
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void walk(const char *label, char *const *roots, int options, int instr) {
    printf("-- fts %s\n", label);
    errno = 0;
    FTS *fts = fts_open(roots, options, by_name);
    if (fts == NULL) {
        printf("no walk: %s\n", strerrorname_np(errno));
        return;
    }
    FTSENT *all = fts_children(fts, 0);
    printf("%s roots\n", all == NULL ? "no" : "some");
    for (FTSENT *e; (e = fts_read(fts)) != NULL;) {
        printf("%d level %d name %s(%d) errno %s ", e->fts_info, e->fts_level, e->fts_name, e->fts_namelen,
               e->fts_errno == 0 ? "0" : strerrorname_np(e->fts_errno));
        text("", e->fts_path);
        if (e->fts_info == FTS_F && e->fts_statp->st_size != 1) {
            printf("%lld bytes\n", (long long)e->fts_statp->st_size);
        }
        if (instr != 0 && strcmp(e->fts_name, "two") == 0 && e->fts_info == FTS_D && e->fts_number++ == 0) {
            printf("set %d\n", fts_set(fts, e, instr));
        }
        if (e->fts_info == FTS_SL && instr == FTS_FOLLOW) {
            fts_set(fts, e, FTS_FOLLOW);
        }
        if (e->fts_info == FTS_D && strcmp(e->fts_name, "one") == 0) {
            for (FTSENT *c = fts_children(fts, instr == 0 ? FTS_NAMEONLY : 0); c != NULL; c = c->fts_link) {
                printf("  child %s\n", c->fts_name);
            }
        }
    }
    printf("end: %s\n", errno == 0 ? "0" : strerrorname_np(errno));
    R(fts_close(fts));
}

void trees(void) {
    /* Every directory has one entry, so that the order is the same everywhere. */
    R(mkdir(in("w"), 0755));
    R(mkdir(in("w/one"), 0755));
    R(mkdir(in("w/one/two"), 0755));
    R(mkdir(in("w/one/two/three"), 0755));
    make("w/one/two/three/f", "f");
    R(symlink("../w", in("wl")));
    int flags[] = {0, FTW_PHYS, FTW_DEPTH, FTW_PHYS | FTW_DEPTH, FTW_MOUNT, FTW_ACTIONRETVAL};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        printf("-- nftw %d\n", flags[i]);
        R(nftw(in("w//"), visit, 4, flags[i]));
    }
    R(nftw(in("wl"), visit, 4, 0));
    R(nftw(in("wl"), visit, 4, FTW_PHYS));
    R(nftw(in("w/one/two/three/f"), visit, 4, 0));
    R(nftw(in("none"), visit, 4, 0));
    R(nftw("", visit, 4, 0));
    calls = 0;
    stop_at = 3;
    R(nftw(in("w"), visit, 4, 0));
    stop_at = 0;
    act = FTW_SKIP_SUBTREE;
    R(nftw(in("w"), visit, 4, FTW_ACTIONRETVAL));
    act = FTW_SKIP_SIBLINGS;
    R(nftw(in("w"), visit, 4, FTW_ACTIONRETVAL));
    act = 0;
    R(nftw(in("w"), stand, 4, FTW_CHDIR));
    R(nftw(in("w"), stand, 4, FTW_CHDIR | FTW_DEPTH | FTW_PHYS));
    R(ftw(in("w"), visit_old, 4));
    R(chdir(in("w")));
    R(nftw("one", visit, 1, 0));
    R(nftw("one", stand, 1, FTW_CHDIR));
    R(chdir("/"));
    /* Links: to nothing, and round and round. */
    R(symlink("nothing", in("w/one/two/three/dangling")) | unlink(in("w/one/two/three/f")));
    R(nftw(in("w"), visit, 4, 0));
    R(nftw(in("w"), visit, 4, FTW_PHYS));
    R(unlink(in("w/one/two/three/dangling")) | symlink("../..", in("w/one/two/three/up")));
    R(nftw(in("w"), visit, 4, 0));
    R(nftw(in("w"), visit, 4, FTW_PHYS));
    char *roots[] = {strdup(in("w")), NULL};
    walk("physical", roots, FTS_PHYSICAL | FTS_NOCHDIR, 0);
    walk("logical", roots, FTS_LOGICAL, 0);
    make("w/one/b", "b");
    make("w/one/c", "cc");
    R(symlink("nothing", in("w/one/dangling")));
    walk("physical, more", roots, FTS_PHYSICAL | FTS_NOCHDIR, 0);
    walk("skip", roots, FTS_PHYSICAL | FTS_NOCHDIR, FTS_SKIP);
    walk("follow", roots, FTS_PHYSICAL | FTS_NOCHDIR, FTS_FOLLOW);
    walk("again", roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, FTS_AGAIN);
    walk("dots", roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_SEEDOT, 0);
    char *links[] = {strdup(in("wl")), strdup(in("w/one/c")), strdup(in("none")), NULL};
    walk("roots", links, FTS_PHYSICAL | FTS_NOCHDIR, 0);
    walk("roots followed", links, FTS_PHYSICAL | FTS_NOCHDIR | FTS_COMFOLLOW, 0);
    walk("bad options", roots, 1 << 20, 0);
    char *nothing[] = {strdup(in("w")), "", NULL};
    walk("empty name", nothing, FTS_PHYSICAL, 0);
}
