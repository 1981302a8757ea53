/* Images and sockets by name: an image that no device serves is opened in the process, once for all who name it, closed
 * cleanly with the last, locked against others; one that is served is reached through its device. The arguments: an
 * image that is not served, a socket, and another image that is not served. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *image;

static int embedded(weldfs_client *client) {
    weldfs_info info;
    GIVES(0, weldfs_get_info(client, &info));
    CHECK(info.embedded <= 1 && info.medium <= WELDFS_MEDIUM_BLOCK && info.reserved0[0] == 0);
    return info.embedded;
}

/* What another process gets: the outcome of its attempt to open the image. */
static int elsewhere(void) {
    pid_t child = fork();
    if (child == 0) {
        setenv("WELDFS_WAIT", "0.2", 1);
        weldfs_client *other;
        int got = weldfs_attach_target(image, NULL, &other);
        if (got == -EBUSY && strstr(weldfs_last_error(), "in use") == NULL) _exit(98);
        weldfs_detach(other);
        _exit(-got);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return -WEXITSTATUS(status);
}

/* Many at once: one of them starts the device, the last of them closes it. */
static void *comes_and_goes(void *number) {
    char name[32], back[32];
    snprintf(name, sizeof name, "/thread-%d", *(int *)number);
    for (int i = 0; i < 20; i++) {
        weldfs_client *client;
        GIVES(0, weldfs_attach_target(image, NULL, &client));
        CHECK(embedded(client) == 1);
        int64_t n = (int64_t)strlen(name);
        GIVES(n, weldfs_open_write_close(client, name, O_WRONLY | O_CREAT, 0644, name, (size_t)n, 0, WELDFS_DEFAULT, NULL));
        GIVES(n, weldfs_open_read_close(client, name, O_RDONLY, back, sizeof back, 0));
        CHECK(memcmp(name, back, (size_t)n) == 0);
        weldfs_detach(client);
    }
    return NULL;
}

/* A thread that used a client and lives on does not keep the device. */
static pthread_barrier_t used, over;
static void *lingers(void *client) {
    GIVES(0, weldfs_access(client, "/", F_OK));
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&over);
    return NULL;
}

/* A device in a forked child, whose parent has one too, with threads that wait: they are not the child's, and what is
 * known of their waiting must not be in the way of its own. */
static void with_a_device_behind(const char *behind) {
    weldfs_client *kept;
    GIVES(0, weldfs_attach_target(behind, NULL, &kept));
    GIVES(1, weldfs_open_write_close(kept, "/f", O_WRONLY | O_CREAT, 0644, "1", 1, 0, WELDFS_DURABLE, NULL));
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(30);
            weldfs_client *own;
            GIVES(0, weldfs_attach_target(image, NULL, &own));
            GIVES(2, weldfs_open_write_close(own, "/g", O_WRONLY | O_CREAT, 0644, "22", 2, 0, WELDFS_DURABLE, NULL));
            weldfs_detach(own);
            _exit(0);
        }
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    weldfs_stat st;
    GIVES(0, weldfs_stat_path(kept, "/f", &st));
    weldfs_detach(kept);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    image = argv[1];
    weldfs_client *first, *second, *third;
    weldfs_options options = {.size = sizeof options, .memory_bytes = 64 << 20};
    GIVES(0, weldfs_attach_target(image, &options, &first));
    CHECK(embedded(first) == 1);
    GIVES(0, weldfs_attach_target(image, NULL, &second)); /* the same device: neither is kept out */
    GIVES(5, weldfs_open_write_close(first, "/f", O_WRONLY | O_CREAT, 0644, "hello", 5, 0, WELDFS_DURABLE, NULL));
    weldfs_stat st;
    GIVES(0, weldfs_stat_path(second, "/f", &st));
    GIVES(5, st.bytes);
    GIVES(-EBUSY, elsewhere());

    /* A forked child has no part in it, and its end harms nothing. */
    pid_t child = fork();
    if (child == 0) {
        GIVES(-ENODEV, weldfs_stat_path(first, "/f", &st));
        weldfs_detach(first);
        weldfs_detach(second);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    GIVES(0, weldfs_stat_path(first, "/f", &st));

    /* A file keeps it, whatever became of the clients; then it is free for others. */
    weldfs_file *file;
    pthread_t thread;
    CHECK(pthread_barrier_init(&used, NULL, 2) == 0 && pthread_barrier_init(&over, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, lingers, first) == 0);
    pthread_barrier_wait(&used);
    GIVES(0, weldfs_open(second, "/f", O_RDWR, 0, &file));
    weldfs_detach(first);
    weldfs_detach(second);
    GIVES(1, weldfs_write(file, "J", 1, WELDFS_DEFAULT));
    GIVES(-EBUSY, elsewhere());
    GIVES(0, weldfs_close(file));
    GIVES(0, elsewhere());
    pthread_barrier_wait(&over);
    pthread_join(thread, NULL);

    pthread_t threads[4];
    int numbers[4] = {0, 1, 2, 3};
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, comes_and_goes, &numbers[i]) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    GIVES(0, elsewhere());

    with_a_device_behind(argv[3]);

    /* A device elsewhere. */
    GIVES(0, weldfs_attach_target(argv[2], NULL, &third));
    CHECK(embedded(third) == 0);
    weldfs_detach(third);

    /* What cannot be. */
    GIVES(-ENOENT, weldfs_attach_target("/nonexistent/image", NULL, &third));
    CHECK(third == NULL && strstr(weldfs_last_error(), "/nonexistent/image") != NULL);
    GIVES(-EISDIR, weldfs_attach_target("/", NULL, &third));
    GIVES(-EUCLEAN, weldfs_attach_target(argv[0], NULL, &third));
    GIVES(-EINVAL, weldfs_attach_target(NULL, NULL, &third));
    options.memory_bytes = 1;
    GIVES(-EINVAL, weldfs_attach_target(image, &options, &third));
    puts("targets are reached");
    return 0;
}
