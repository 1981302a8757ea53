/* XRT's C interface without a card, for tests: a kernel that makes letters upper case, in this process, and ways to go
 * wrong, chosen by the name of the image:
 *
 *   good.xclbin      works                     abort.xclbin  aborts, as the library does without a shim
 *   exit.xclbin      exits with code 3         crash.xclbin  dereferences NULL
 *   hang.xclbin      never comes back          noload.xclbin does not load
 *   other.xclbin     has no such kernel        long.xclbin   says that it made more than there is room for
 *   refuse.xclbin    the kernel returns EINVAL abortrun.xclbin  aborts when it runs
 *   exitrun.xclbin   exits when it runs        crashrun.xclbin  dereferences NULL when it runs
 *   hangrun.xclbin   never ends a run          dirty.xclbin     makes nothing, and says that it did
 *   count.xclbin     makes how many packets this process has run, as one byte
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char image[256];
static int device, kernel, run;
static void *args[7];
static uint64_t in_bytes, room;
static uint32_t count;
static char runs;

struct buffer { size_t size; char *host, *card; };

static int is(const char *name) { return strcmp(image, name) == 0; }

void *xrtDeviceOpen(unsigned index) {
    const char *tree = getenv("XILINX_XRT");
    char lib[4096];
    /* The library looks for what it loads itself below this; without, it aborts. */
    if (!tree || snprintf(lib, sizeof lib, "%s/lib", tree) < 0 || access(lib, R_OK | X_OK) != 0) abort();
    return index == 0 ? &device : NULL;
}
int xrtDeviceClose(void *d) { return d != &device; }
int xrtDeviceLoadXclbinFile(void *d, const char *path) {
    const char *slash = strrchr(path, '/');
    snprintf(image, sizeof image, "%s", slash ? slash + 1 : path);
    /* Held open, so that a test finds the process of an image. */
    (void)open(path, O_RDONLY);
    if (is("abort.xclbin")) { fprintf(stderr, "XRT_CORE: no shim was found\n"); abort(); }
    if (is("exit.xclbin")) exit(3);
    if (is("crash.xclbin")) *(volatile int *)(uintptr_t)(getpid() * 0) = 1;
    if (is("hang.xclbin")) for (;;) pause();
    return d != &device || is("noload.xclbin") ? -EINVAL : 0;
}
int xrtDeviceGetXclbinUUID(void *d, unsigned char *id) { memset(id, 7, 16); return d != &device; }
void *xrtPLKernelOpen(void *d, const unsigned char *id, const char *name) {
    return d == &device && id[15] == 7 && strcmp(name, "weld_shout") == 0 && !is("other.xclbin") ? &kernel : NULL;
}
int xrtKernelClose(void *k) { return k != &kernel; }
int xrtKernelArgGroupId(void *k, int arg) { return k == &kernel && arg % 2 == 0 ? arg : -1; }
void *xrtBOAlloc(void *d, size_t size, uint64_t flags, uint32_t group) {
    struct buffer *b = calloc(1, sizeof *b);
    if (d != &device || flags != 0 || group > 6) return NULL;
    b->size = size;
    b->host = calloc(1, size);
    b->card = malloc(size);
    /* As a card's memory: what was in it before. */
    memset(b->card, 'S', size);
    return b;
}
int xrtBOFree(void *p) { struct buffer *b = p; free(b->host); free(b->card); free(b); return 0; }
int xrtBOWrite(void *p, const void *from, size_t n, size_t at) {
    struct buffer *b = p;
    if (at + n > b->size) return -EINVAL;
    memcpy(b->host + at, from, n);
    return 0;
}
int xrtBORead(void *p, void *to, size_t n, size_t at) {
    struct buffer *b = p;
    if (at + n > b->size) return -EINVAL;
    memcpy(to, b->host + at, n);
    return 0;
}
int xrtBOSync(void *p, int direction, size_t n, size_t at) {
    struct buffer *b = p;
    if (at + n > b->size) return -EINVAL;
    if (direction == 0) memcpy(b->card + at, b->host + at, n);
    else memcpy(b->host + at, b->card + at, n);
    return 0;
}
void *xrtRunOpen(void *k) { return k == &kernel ? &run : NULL; }
int xrtRunSetArg(void *r, int index, ...) {
    va_list list;
    va_start(list, index);
    if (index == 1) in_bytes = va_arg(list, uint64_t);
    else if (index == 3) count = va_arg(list, uint32_t);
    else if (index == 5) room = va_arg(list, uint64_t);
    else args[index] = va_arg(list, void *);
    va_end(list);
    return r != &run;
}
int xrtRunStart(void *r) {
    if (is("abortrun.xclbin")) abort();
    if (is("exitrun.xclbin")) exit(5);
    if (is("crashrun.xclbin")) *(volatile int *)(uintptr_t)(getpid() * 0) = 1;
    return r != &run;
}
int xrtRunWaitFor(void *r, unsigned ms) {
    const char *from = ((struct buffer *)args[0])->card;
    char *to = ((struct buffer *)args[4])->card, *result = ((struct buffer *)args[6])->card;
    uint64_t made = is("long.xclbin") ? room + 1 : in_bytes;
    const char *words = ((struct buffer *)args[2])->card;
    uint32_t code = is("refuse.xclbin") || count != 1 || *(const uint32_t *)words != 0 ? EINVAL : 0;
    if (r != &run || ms == 0) return 5;
    if (is("hangrun.xclbin")) for (;;) pause();
    runs++;
    if (is("count.xclbin")) {
        made = 1;
        to[0] = runs;
    }
    else if (!is("dirty.xclbin")) for (uint64_t i = 0; i < in_bytes && i < room; i++) to[i] = (char)toupper((unsigned char)from[i]);
    memcpy(result, &made, 8);
    memcpy(result + 8, &code, 4);
    return 4;
}
int xrtRunClose(void *r) { return r != &run; }
