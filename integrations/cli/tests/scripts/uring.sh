# needs: gcc /usr/include/liburing.h
# io_uring by liburing: files that were open before the ring, and after; linked writes and a sync; registered files.
cd "$D" || exit 1
cat > "$T/uring.c" <<'END'
#include <assert.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static struct io_uring ring;
static int done(int n) {
    int last = 0;
    assert(io_uring_submit_and_wait(&ring, n) == n);
    for (int i = 0; i < n; i++) {
        struct io_uring_cqe *cqe;
        assert(io_uring_wait_cqe(&ring, &cqe) == 0);
        if (cqe->res < 0) printf("%s\n", strerror(-cqe->res));
        last = cqe->res;
        io_uring_cqe_seen(&ring, cqe);
    }
    return last;
}
int main(void) {
    int before = open("before", O_RDWR | O_CREAT, 0644);
    assert(write(before, "0123456789", 10) == 10 && lseek(before, 4, SEEK_SET) == 4);
    int twin = dup(before);
    assert(io_uring_queue_init(8, &ring, 0) == 0);
    char room[16] = {0};
    io_uring_prep_read(io_uring_get_sqe(&ring), before, room, 4, 0);
    assert(done(1) == 4 && memcmp(room, "0123", 4) == 0);
    assert(lseek(twin, 0, SEEK_CUR) == 4 && read(twin, room, 2) == 2 && memcmp(room, "45", 2) == 0);
    assert(lseek(before, 0, SEEK_CUR) == 6);
    int after = open("after", O_RDWR | O_CREAT | O_APPEND, 0644);
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    io_uring_prep_write(sqe, after, "one,", 4, 0);
    sqe->flags |= IOSQE_IO_LINK;
    sqe = io_uring_get_sqe(&ring);
    io_uring_prep_write(sqe, after, "two.", 4, 0);
    sqe->flags |= IOSQE_IO_LINK;
    io_uring_prep_fsync(io_uring_get_sqe(&ring), after, 0);
    assert(done(3) == 0);
    assert(io_uring_register_files(&ring, &before, 1) == 0);
    sqe = io_uring_get_sqe(&ring);
    io_uring_prep_write(sqe, 0, "fixed", 5, 20);
    sqe->flags |= IOSQE_FIXED_FILE;
    assert(done(1) == 5);
    assert(pread(before, room, 5, 20) == 5 && memcmp(room, "fixed", 5) == 0);
    printf("%ld\n", (long)lseek(before, 0, SEEK_END));
    return 0;
}
END
gcc -o "$T/uring" "$T/uring.c" -luring && "$T/uring" && cat after && sha256sum < before
