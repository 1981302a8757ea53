/* Traces a process and does not look: its end is seen by nothing until this ends, with its standard input. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 2 || ptrace(PTRACE_SEIZE, atoi(argv[1]), NULL, NULL) != 0) {
        printf("ptrace: %s\n", strerror(errno));
        return 1;
    }
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    return 0;
}
