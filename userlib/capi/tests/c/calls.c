/* Every call that waits, once with success: the arguments arrive where they belong and the results come back. */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static weldfs_client *client;

static void files(void) {
    weldfs_file *f;
    char room[64];
    uint64_t where = 0;
    weldfs_stat st;
    GIVES(0, weldfs_open(client, "/f", O_RDWR | O_CREAT | O_EXCL, 0640, &f));
    GIVES(5, weldfs_write(f, "hello", 5, WELDFS_DEFAULT));
    GIVES(6, weldfs_pwrite(f, " world", 6, WELDFS_END, WELDFS_DURABLE, &where));
    GIVES(5, where);
    GIVES(3, weldfs_pwrite(f, "HEL", 3, 0, WELDFS_VOLATILE, NULL));
    GIVES(0, weldfs_lseek(f, 0, SEEK_SET));
    GIVES(11, weldfs_read(f, room, sizeof room));
    CHECK(memcmp(room, "HELlo world", 11) == 0);
    GIVES(5, weldfs_pread(f, room, 20, 6));
    GIVES(0, weldfs_fstat(f, &st));
    CHECK(st.bytes == 11 && S_ISREG(st.mode) && (st.mode & 07777) == 0640 && st.nlink == 1);
    GIVES(0, weldfs_set_hints(f, WELDFS_PRIORITY_HIGH | WELDFS_LIFE_EXTREME));
    GIVES(3, weldfs_pwrite(f, "HEL", 3, 0, WELDFS_VOLATILE, NULL));
    GIVES(5, weldfs_pread_how(f, room, 20, 6, WELDFS_PRIORITY_LOW));
    GIVES(-EINVAL, weldfs_pread_how(f, room, 20, 6, 0x5000));
    GIVES(-EINVAL, weldfs_set_hints(f, 0x5000));
    GIVES(-EINVAL, weldfs_set_hints(f, WELDFS_DURABLE));
    GIVES(-EINVAL, weldfs_set_hints(NULL, 0));
    GIVES(0, weldfs_set_hints(f, 0));
    GIVES(0, weldfs_ftruncate(f, 4));
    GIVES(0, weldfs_fallocate(f, FALLOC_FL_KEEP_SIZE, 0, 65536));
    GIVES(-EOPNOTSUPP, weldfs_fallocate(f, FALLOC_FL_COLLAPSE_RANGE, 0, 4096));
    GIVES(0, weldfs_fchmod(f, 0600));
    GIVES(0, weldfs_fchown(f, UINT32_MAX, UINT32_MAX));
    weldfs_time times[2] = {{.sec = 5, .nsec = UTIME_OMIT}, {.sec = 1000, .nsec = 7}};
    GIVES(0, weldfs_futimens(f, times));
    GIVES(0, weldfs_fstat(f, &st));
    CHECK(st.bytes == 4 && st.mtime.sec == 1000 && st.mtime.nsec == 7 && st.atime.sec != 5);
    GIVES(0, weldfs_futimens(f, NULL));
    GIVES(0, weldfs_flock(f, LOCK_EX));
    weldfs_file *other;
    GIVES(0, weldfs_open(client, "/f", O_RDONLY, 0, &other));
    GIVES(-EAGAIN, weldfs_flock(other, LOCK_SH));
    GIVES(0, weldfs_flock(f, LOCK_UN));
    GIVES(-EBADF, weldfs_write(other, "x", 1, WELDFS_DEFAULT));
    GIVES(0, weldfs_close(other));
    GIVES(0, weldfs_fsetxattr(f, "user.a", "value", 5, 0));
    GIVES(5, weldfs_fgetxattr(f, "user.a", NULL, 0));
    GIVES(5, weldfs_fgetxattr(f, "user.a", room, sizeof room));
    GIVES(7, weldfs_flistxattr(f, room, sizeof room));
    CHECK(strcmp(room, "user.a") == 0);
    GIVES(0, weldfs_fremovexattr(f, "user.a"));
    GIVES(-ENODATA, weldfs_fgetxattr(f, "user.a", room, sizeof room));
    GIVES(0, weldfs_fsync(f));
    GIVES(0, weldfs_fdatasync(f));
    GIVES(0, weldfs_close(f));
}

static void names(void) {
    weldfs_stat st;
    char room[64];
    GIVES(0, weldfs_mkdir(client, "/d", 0777));
    GIVES(0, weldfs_stat_path(client, "d", &st));
    CHECK(S_ISDIR(st.mode) && (st.mode & 07777) == 0750); /* the umask of the options */
    GIVES(0, weldfs_link(client, "/f", "/d/hard"));
    GIVES(0, weldfs_symlink(client, "../f", "/d/soft"));
    GIVES(0, weldfs_lstat_path(client, "/d/soft", &st));
    CHECK(S_ISLNK(st.mode));
    GIVES(4, weldfs_readlink(client, "/d/soft", room, sizeof room));
    CHECK(memcmp(room, "../f", 4) == 0);
    GIVES(0, weldfs_truncate(client, "/d/soft", 9));
    GIVES(0, weldfs_chmod(client, "/f", 0604));
    GIVES(0, weldfs_lchown(client, "/f", UINT32_MAX, UINT32_MAX));
    GIVES(0, weldfs_utimens(client, "/f", NULL));
    GIVES(0, weldfs_access(client, "/f", R_OK | W_OK));
    GIVES(0, weldfs_stat_path(client, "/d/hard", &st));
    CHECK(st.bytes == 9 && st.nlink == 2 && (st.mode & 07777) == 0604);
    GIVES(-EEXIST, weldfs_rename(client, "/f", "/d/hard", 1 /* RENAME_NOREPLACE */));
    GIVES(0, weldfs_rename(client, "/f", "/d/moved", 0));
    weldfs_dir *dir;
    weldfs_entry entry;
    int seen = 0;
    GIVES(0, weldfs_opendir(client, "/d", &dir));
    while (weldfs_readdir(dir, &entry) == 1) {
        CHECK(entry.kind == (strcmp(entry.name, "soft") == 0 ? DT_LNK : DT_REG));
        seen++;
    }
    GIVES(3, seen);
    GIVES(0, weldfs_seekdir(dir, 0));
    GIVES(1, weldfs_readdir(dir, &entry));
    weldfs_closedir(dir);
    GIVES(-ENOTEMPTY, weldfs_rmdir(client, "/d"));
    GIVES(0, weldfs_unlink(client, "/d/moved"));
    GIVES(0, weldfs_unlink(client, "/d/hard"));
    GIVES(0, weldfs_unlink(client, "/d/soft"));
    GIVES(0, weldfs_rmdir(client, "/d"));
}

static void fused(void) {
    char room[64] = {0};
    weldfs_written at;
    weldfs_file *f;
    uint64_t offset;
    uint32_t sum, again;
    GIVES(5, weldfs_open_write_close(client, "/w", O_RDWR | O_CREAT, 0600, "first", 5, 0, WELDFS_DURABLE, &at));
    CHECK(at.created == 1 && at.offset == 0);
    GIVES(5, weldfs_open_read_close(client, "/w", O_RDONLY, room, sizeof room, 0));
    GIVES(5, weldfs_open_read_write_close(client, "/w", O_RDWR, 0, room, 5, 0, "second", 6, WELDFS_END,
                                          WELDFS_DEFAULT, &at));
    CHECK(memcmp(room, "first", 5) == 0 && at.offset == 5 && at.created == 0);
    GIVES(0, weldfs_open(client, "/w", O_RDWR | O_TRUNC, 0, &f));
    GIVES(0, weldfs_append_checksum_write(f, "123456789", 9, WELDFS_DEFAULT, &offset, &sum));
    CHECK(offset == 0 && sum == 0xe3069283u); /* CRC-32C's check value */
    GIVES(0, weldfs_read_checksum_verify(f, room, 9, 0, &again));
    CHECK(again == sum && memcmp(room, "123456789", 9) == 0);
    GIVES(-EBADMSG, weldfs_pwrite_verified(f, "12345678X", 9, 0, sum, WELDFS_DEFAULT, &offset));
    GIVES(9, weldfs_pwrite_verified(f, "123456789", 9, 0, sum, WELDFS_DURABLE, &offset));
    CHECK(offset == 0);
    GIVES(9, weldfs_checksum_range(f, 0, 9, &again));
    CHECK(again == sum);
    GIVES(13, weldfs_checksum_range(f, 0, UINT64_MAX, NULL));
    GIVES(1, weldfs_pwrite(f, "X", 1, 3, WELDFS_DEFAULT, NULL));
    GIVES(-EBADMSG, weldfs_read_checksum_verify(f, NULL, 9, 0, NULL));
    GIVES(-ENODATA, weldfs_read_checksum_verify(f, NULL, 100, 0, NULL));
    GIVES(0, weldfs_read_modify_write(f, 3, WELDFS_PATCH, "4", NULL, 1, room, WELDFS_DEFAULT));
    CHECK(room[0] == 'X');
    uint64_t one = 1, old;
    GIVES(0, weldfs_read_modify_write(f, 64, WELDFS_ADD, &one, NULL, 8, &old, WELDFS_DURABLE));
    GIVES(0, weldfs_read_modify_write(f, 64, WELDFS_ADD, &one, NULL, 8, &old, WELDFS_DEFAULT));
    CHECK(old == 1);
    GIVES(0, weldfs_read_modify_write(f, 64, WELDFS_XOR, "\x03", NULL, 1, NULL, WELDFS_DEFAULT));
    GIVES(0, weldfs_read_modify_write(f, 64, WELDFS_COMPARE_SWAP, "\x07", "\x01", 1, NULL, WELDFS_DEFAULT));
    GIVES(-ECANCELED, weldfs_read_modify_write(f, 64, WELDFS_COMPARE_SWAP, "\x07", "\x01", 1, room, WELDFS_DEFAULT));
    CHECK(room[0] == 7);
    GIVES(0, weldfs_close(f));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    weldfs_options options = {.size = sizeof options, .flags = WELDFS_OPTION_UMASK, .umask = 027};
    memcpy(options.client_id, "sixteen bytes it", 16);
    GIVES(0, weldfs_attach_target(argv[1], &options, &client));
    weldfs_info info;
    GIVES(0, weldfs_get_info(client, &info));
    CHECK(info.payload_max >= 1 << 20 && info.durability == WELDFS_DURABLE && info.read_only == 0);
    uint8_t id[16];
    GIVES(0, weldfs_client_id(client, id));
    CHECK(memcmp(id, "sixteen bytes it", 16) == 0);
    weldfs_space space;
    GIVES(0, weldfs_get_space(client, &space));
    CHECK(space.blocks_free > 0 && space.name_max == 255);
    int64_t json = weldfs_stats_json(client, NULL, 0);
    CHECK(json > 2);
    char text[8];
    CHECK(weldfs_stats_json(client, text, sizeof text) > 2 && text[0] == '{' && strlen(text) == 7);
    CHECK(weldfs_version() >= WELDFS_VERSION);
    files();
    names();
    fused();
    GIVES(0, weldfs_sync(client));
    GIVES(0, weldfs_reconnect(client));
    GIVES(-ENOENT, weldfs_stat_path(client, "/f", &(weldfs_stat){0}));
    weldfs_detach(client);
    puts("every call works");
    return 0;
}
