/* What every part of the comparison uses: a call, its value and its errno, one line each. Nothing that is printed may
 * depend on where the directory is. */
#ifndef SHOW_H
#define SHOW_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* The directory. */
extern const char *dir;

/* A name in it; eight may be in use at a time. */
const char *in(const char *name);

/* Says what a call gave, and the errno of a failure. */
void said(const char *call, long value);

/* Calls, and says what came of it. */
#define R(call)                      \
    do {                             \
        errno = 0;                   \
        said(#call, (long)(call));   \
    } while (0)

/* As R for calls that return a pointer: whether there is one. */
#define RP(call)                                 \
    do {                                         \
        errno = 0;                               \
        said(#call, (call) != NULL ? 0 : -1L);   \
    } while (0)

/* Prints a text with the directory's name taken out. */
void text(const char *label, const char *value);

/* Makes a file with some content. */
void make(const char *name, const char *content);
/* Prints a file's content. */
void show(const char *name);

/* One page, followed by one that cannot be touched. */
extern char *edge;
/* A page that can only be read, and one that cannot be touched. */
extern char *fixed, *closed;
#define PAGE 4096
/* Bad pointers: nothing there, and no address. */
#define GONE ((void *)(edge + PAGE))
#define WILD ((void *)(uintptr_t)0xdead000000000000)

void descriptors(void);
void data(void);
void memory(void);
void names(void);
void attributes(void);
void directories(void);
void trees(void);
void streams(void);
void temporary(void);
void programs(const char *self);
void numbers(void);
void others(void);

#endif
