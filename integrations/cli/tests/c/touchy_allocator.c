/* An allocator that, like jemalloc's when it sets itself up, looks at files while it is at work, and dies when it is
 * asked for memory meanwhile. Prints "sound" when nobody did. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char room[64 << 20] __attribute__((aligned(64)));
static atomic_size_t used;
static __thread int at_work;
static atomic_int rounds;

static void die(const char *why) {
    (void)!write(2, why, strlen(why));
    _exit(99);
}

/* What allocators do, and more: names with the prefix's last component in them, dots, numbers of no descriptor. */
static void look_at_files(void) {
    char buffer[256];
    struct stat about;
    (void)!readlink("/etc/malloc.conf", buffer, sizeof buffer);
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, buffer, sizeof buffer) <= 0 || fcntl(fd, F_GETFD) < 0 || lseek(fd, 0, SEEK_SET) != 0)
        die("open\n");
    if (pread(fd, buffer, 1, 0) != 1 || fstat(fd, &about) != 0 || close(fd) != 0)
        die("read\n");
    long raw = syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY);
    if (raw < 0 || syscall(SYS_read, raw, buffer, sizeof buffer) <= 0 || syscall(SYS_close, raw) != 0)
        die("syscall\n");
    if (access("/sys/devices/system/node/node9999", R_OK) == 0 || stat("/tmp/../welder/x", &about) == 0)
        die("access\n");
    if (open("/usr/weld/../weld/nothing", O_RDONLY) >= 0 || readlink("/x/weld", buffer, sizeof buffer) >= 0)
        die("prefix\n");
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || munmap(page, 4096) != 0)
        die("mmap\n");
}

void *malloc(size_t n) {
    if (at_work)
        die("memory was asked for inside a call that an allocator makes\n");
    at_work = 1;
    if (atomic_fetch_add(&rounds, 1) % 64 == 0) {
        int saved = errno;
        look_at_files();
        errno = saved;
    }
    size_t at = atomic_fetch_add(&used, (n + 127) & ~(size_t)63);
    if (at + n + 128 > sizeof room)
        die("no memory left\n");
    *(size_t *)(room + at) = n;
    at_work = 0;
    return room + at + 64;
}

void free(void *p) { (void)p; }

void *calloc(size_t n, size_t size) {
    /* Static memory, never given twice. */
    return malloc(n * size);
}

void *realloc(void *old, size_t n) {
    void *new = malloc(n);
    if (old) {
        size_t had = *(size_t *)((char *)old - 64);
        memcpy(new, old, had < n ? had : n);
    }
    return new;
}

void *aligned_alloc(size_t alignment, size_t n) {
    size_t at = (size_t)malloc(n + 2 * alignment + 64);
    char *p = (char *)((at + 64 + alignment - 1) & ~(alignment - 1));
    *(size_t *)(p - 64) = n;
    return p;
}

int posix_memalign(void **p, size_t alignment, size_t n) {
    *p = aligned_alloc(alignment, n);
    return 0;
}

void *memalign(size_t alignment, size_t n) { return aligned_alloc(alignment, n); }

int main(void) {
    /* And with the device in use, which allocates. */
    int fd = open("/weld/f", O_RDWR | O_CREAT, 0600);
    if (fd < 0 || write(fd, "x", 1) != 1 || close(fd) != 0)
        die("the device\n");
    for (int i = 0; i < 1000; i++)
        free(malloc(100));
    (void)!write(1, "sound\n", 6);
    return 0;
}
