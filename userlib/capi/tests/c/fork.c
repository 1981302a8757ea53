/* A child that is made while other threads of its parent are inside the library: it may use nothing of what it
 * inherited, may give all of it back, and waits for no lock that a thread held which it does not have. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IN_FLIGHT = 512, CHILDREN = 30 };

static weldfs_queue *queue;
static weldfs_dir *dir;
static atomic_int over;

/* Most of the time inside the queue's list of jobs. */
static void *forgets(void *arg) {
    while (!atomic_load(&over)) weldfs_forget(queue, 0);
    return arg;
}

/* Most of the time waiting for the device with the directory's place in hand. */
static void *lists(void *arg) {
    weldfs_entry entry;
    while (!atomic_load(&over)) {
        weldfs_seekdir(dir, 0);
        weldfs_readdir(dir, &entry);
    }
    return arg;
}

int main(int argc, char **argv) {
    weldfs_client *client;
    weldfs_completion done[64];
    CHECK(argc == 2);
    GIVES(0, weldfs_attach(argv[1], NULL, &client));
    weldfs_queue_options options = {.size = sizeof options, .depth = IN_FLIGHT};
    GIVES(0, weldfs_queue_create(client, &options, &queue));
    GIVES(0, weldfs_opendir(client, "/", &dir));
    weldfs_job job = {.size = sizeof job};
    for (int i = 0; i < IN_FLIGHT; i++) GIVES(0, weldfs_submit_nop(queue, &job));
    pthread_t threads[2];
    CHECK(pthread_create(&threads[0], NULL, forgets, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, lists, NULL) == 0);
    for (int i = 0; i < CHILDREN; i++) {
        usleep(1000);
        pid_t child = fork();
        if (child == 0) {
            alarm(5);
            weldfs_entry entry;
            GIVES(-EBADF, weldfs_readdir(dir, &entry));
            GIVES(-EBADF, weldfs_seekdir(dir, 0));
            GIVES(-EBADF, weldfs_forget(queue, 1));
            GIVES(-EBADF, weldfs_queue_flush(queue));
            weldfs_queue_destroy(queue);
            weldfs_closedir(dir);
            execlp("true", "true", (char *)NULL);
            _exit(1);
        }
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    atomic_store(&over, 1);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    int heard = 0;
    while (heard < IN_FLIGHT) {
        int64_t n = weldfs_queue_reap(queue, done, 64, 5000);
        CHECK(n > 0);
        heard += (int)n;
    }
    weldfs_queue_destroy(queue);
    weldfs_closedir(dir);
    weldfs_detach(client);
    puts("children wait for nobody");
    return 0;
}
