/* What the C tests share. */
#ifndef CHECK_H
#define CHECK_H
#include <stdio.h>
#include <stdlib.h>
#include <weldfs.h>

#define CHECK(condition)                                                                            \
    do {                                                                                            \
        if (!(condition)) {                                                                         \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition,          \
                    weldfs_last_error());                                                           \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)
/* The call gives exactly this. */
#define GIVES(expected, call)                                                                       \
    do {                                                                                            \
        long long got_ = (long long)(call);                                                         \
        if (got_ != (long long)(expected)) {                                                        \
            fprintf(stderr, "%s:%d: %s gives %lld, not %s; last error: %s\n", __FILE__, __LINE__,   \
                    #call, got_, #expected, weldfs_last_error());                                   \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)
#endif
