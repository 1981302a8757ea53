# needs: gcc
# A program without libc's shared object: it makes its system calls by itself, and lies in the directory.
cd "$D" || exit 1
cat > "$T/static.c" <<'END'
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char name[4096];
    snprintf(name, sizeof name, "%s/written", argv[1]);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, "hello, world\n", 13) != 13) return perror(name), 1;
    char *map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return perror("mmap"), 1;
    map[0] = 'H';
    munmap(map, 4096);
    struct stat st;
    if (fstat(fd, &st) || st.st_size != 13 || fsync(fd)) return perror("fstat"), 1;
    int n = 0;
    DIR *dir = opendir(argv[1]);
    if (!dir) return perror("opendir"), 1;
    for (struct dirent *e; (e = readdir(dir));) n += e->d_name[0] != '.';
    return printf("%d names\n", n) < 0;
}
END
gcc -static -O1 -o "$T/static" "$T/static.c" || exit 1
"$T/static" "$D"; echo "outside: $?"; cat written
cp "$T/static" inside; ./inside "$D"; echo "inside: $?"; cat written
