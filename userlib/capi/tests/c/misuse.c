/* Arguments that no program should pass give errors, not crashes, and leave nothing behind. */
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

int main(int argc, char **argv) {
    CHECK(argc == 2);
    weldfs_client *client = (weldfs_client *)1;
    GIVES(-EINVAL, weldfs_attach(NULL, NULL, &client));
    CHECK(client == NULL);
    GIVES(-EINVAL, weldfs_attach(argv[1], NULL, NULL));
    GIVES(-ENOENT, weldfs_attach("/nowhere/at/all", NULL, &client));
    CHECK(strstr(weldfs_last_error(), "weldfs_attach") && strstr(weldfs_last_error(), "ENOENT"));
    weldfs_options options = {.size = 3};
    GIVES(-EINVAL, weldfs_attach(argv[1], &options, &client));
    options = (weldfs_options){.size = sizeof options, .flags = 1u << 31};
    GIVES(-EINVAL, weldfs_attach(argv[1], &options, &client));
    options = (weldfs_options){.size = sizeof options, .reserved = {1}};
    GIVES(-EINVAL, weldfs_attach(argv[1], &options, &client));
    options = (weldfs_options){.size = sizeof options, .durability = 9};
    GIVES(-EINVAL, weldfs_attach(argv[1], &options, &client));
    options = (weldfs_options){.size = sizeof options, .token = "no token"};
    GIVES(-EACCES, weldfs_attach(argv[1], &options, &client));
    /* A newer program: what this library does not know may be there as long as it asks for nothing. */
    struct {
        weldfs_options known;
        uint64_t unknown;
    } newer = {{.size = sizeof newer}, 1};
    GIVES(-E2BIG, weldfs_attach(argv[1], &newer.known, &client));
    newer.unknown = 0;
    GIVES(0, weldfs_attach(argv[1], &newer.known, &client));
    weldfs_detach(client);
    /* An older one: its structure is shorter. */
    options = (weldfs_options){.size = offsetof(weldfs_options, token)};
    GIVES(0, weldfs_attach(argv[1], &options, &client));

    weldfs_file *f = (weldfs_file *)1;
    GIVES(-EINVAL, weldfs_open(NULL, "/m", O_RDWR, 0, &f));
    GIVES(-EINVAL, weldfs_open(client, NULL, O_RDWR, 0, &f));
    GIVES(-EINVAL, weldfs_open(client, "/m", O_RDWR, 0, NULL));
    GIVES(-ENOENT, weldfs_open(client, "/m", O_RDWR, 0, &f));
    CHECK(f == NULL);
    char *longest = malloc(10000);
    memset(longest, 'x', 9999);
    longest[9999] = 0;
    GIVES(-ENAMETOOLONG, weldfs_open(client, longest, O_RDWR | O_CREAT, 0600, &f));
    free(longest);
    GIVES(0, weldfs_open(client, "/m", O_RDWR | O_CREAT, 0600, &f));
    GIVES(-EINVAL, weldfs_pwrite(f, NULL, 5, 0, WELDFS_DEFAULT, NULL));
    GIVES(0, weldfs_pwrite(f, NULL, 0, 0, WELDFS_DEFAULT, NULL));
    GIVES(-EINVAL, weldfs_pwrite(f, "x", 1, 0, 7, NULL));
    GIVES(-EINVAL, weldfs_pwrite(f, "x", SIZE_MAX, 0, WELDFS_DEFAULT, NULL));
    GIVES(-EINVAL, weldfs_pread(f, NULL, 5, 0));
    GIVES(-EINVAL, weldfs_pread(NULL, NULL, 0, 0));
    CHECK(weldfs_pread(f, &(char){0}, 1, UINT64_MAX - 1) < 0);
    GIVES(-EINVAL, weldfs_lseek(f, 0, 77));
    GIVES(-EINVAL, weldfs_lseek(f, 0, -1));
    GIVES(-EINVAL, weldfs_flock(f, 12345));
    GIVES(-EINVAL, weldfs_access(client, "/m", 1000));
    GIVES(-EINVAL, weldfs_rename(client, "/m", "/n", 99));
    GIVES(-EINVAL, weldfs_fstat(f, NULL));
    GIVES(-EINVAL, weldfs_fsetxattr(f, "user.a", "v", 1, 99));
    weldfs_time times[2] = {{.nsec = 2000000000}, {.nsec = 0}};
    GIVES(-EINVAL, weldfs_futimens(f, times));
    GIVES(-EINVAL, weldfs_read_modify_write(f, 0, 99, "x", NULL, 1, NULL, WELDFS_DEFAULT));
    GIVES(-EINVAL, weldfs_read_modify_write(f, 0, WELDFS_ADD, "xxx", NULL, 3, NULL, WELDFS_DEFAULT));
    GIVES(-EINVAL, weldfs_read_modify_write(f, 0, WELDFS_COMPARE_SWAP, "x", NULL, 1, NULL, WELDFS_DEFAULT));
    GIVES(-EINVAL, weldfs_read_modify_write(f, 0, WELDFS_PATCH, "x", "x", 1, NULL, WELDFS_DEFAULT));
    GIVES(-E2BIG, weldfs_read_modify_write(f, 0, WELDFS_PATCH, "x", NULL, 1 << 20, NULL, WELDFS_DEFAULT));
    GIVES(-E2BIG, weldfs_open_read_close(client, "/m", O_RDONLY, &(char){0}, SIZE_MAX, 0));
    GIVES(-EINVAL, weldfs_readdir(NULL, NULL));
    weldfs_dir *dir;
    GIVES(-ENOTDIR, weldfs_opendir(client, "/m", &dir));
    CHECK(dir == NULL);

    weldfs_queue *queue;
    weldfs_buf *buf;
    weldfs_queue_options wanted = {.size = sizeof wanted, .flags = 8};
    GIVES(-EINVAL, weldfs_queue_create(client, &wanted, &queue));
    wanted = (weldfs_queue_options){.size = sizeof wanted, .depth = 4, .pool_bytes = 4096};
    GIVES(0, weldfs_queue_create(client, &wanted, &queue));
    weldfs_job job = {.size = sizeof job, .flags = 4};
    GIVES(-EINVAL, weldfs_submit_nop(queue, &job));
    job = (weldfs_job){.size = sizeof job, .durability = 3};
    GIVES(-EINVAL, weldfs_submit_nop(queue, &job));
    GIVES(-EINVAL, weldfs_submit_nop(NULL, NULL));
    GIVES(-EINVAL, weldfs_submit_pread(queue, NULL, NULL, 0, 0, NULL));
    GIVES(-EINVAL, weldfs_submit_pread(queue, f, NULL, 5, 0, NULL));
    GIVES(-E2BIG, weldfs_submit_pwrite(queue, f, "x", SIZE_MAX, 0, NULL));
    GIVES(-EINVAL, weldfs_submit_unlink(queue, NULL, NULL));
    GIVES(-ENOENT, weldfs_forget(queue, 12345));
    GIVES(-ENOMEM, weldfs_buf_alloc(queue, 1 << 20, &buf));
    CHECK(buf == NULL && weldfs_buf_data(NULL) == NULL && weldfs_buf_len(NULL) == 0);
    GIVES(0, weldfs_queue_in_flight(queue));
    GIVES(-EBADF, weldfs_reconnect(client) == 0 ? weldfs_fsync(f) : 0);
    GIVES(-ENODEV, weldfs_submit_nop(queue, NULL));
    weldfs_queue_destroy(queue);
    weldfs_close(f);
    weldfs_queue_destroy(NULL);
    weldfs_buf_free(NULL);
    weldfs_closedir(NULL);
    weldfs_close(NULL);
    weldfs_detach(client);
    weldfs_detach(NULL);
    CHECK(strcmp(weldfs_strerror(-ENOENT), weldfs_strerror(ENOENT)) == 0 && *weldfs_strerror(0));
    CHECK(*weldfs_strerror(-2147483647 - 1) && *weldfs_strerror(99999));
    puts("misuse is refused");
    return 0;
}
