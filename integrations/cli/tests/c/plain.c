// A program that no library is preloaded into: statically linked, or told to be. It copies a file, by names as they are
// given, and says where it stands.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char room[4096];
    ssize_t n = 0;
    if (argc != 3)
        return 2;
    int from = open(argv[1], O_RDONLY), to = open(argv[2], O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (from < 0 || to < 0) {
        perror(from < 0 ? argv[1] : argv[2]);
        return 1;
    }
    while ((n = read(from, room, sizeof room)) > 0)
        if (write(to, room, (size_t)n) != n)
            return 1;
    if (n < 0 || close(to) != 0)
        return 1;
    printf("%s\n", getcwd(room, sizeof room) ? room : "nowhere");
    return 0;
}
