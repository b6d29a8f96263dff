/* Preloaded into a service by .ci/alerts.py: what a failing or slow disk does, as long as a file in the folder $FAULTS asks for it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int asked(const char *what) {
    char path[4096];
    const char *folder = getenv("FAULTS");
    if (!folder) return 0;
    snprintf(path, sizeof path, "%s/%s", folder, what);
    return access(path, F_OK) == 0;
}

#define SYNC(name) \
    int name(int fd) { \
        static int (*real)(int); \
        if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, #name); \
        if (asked("sync-fails")) { errno = EIO; return -1; } \
        if (asked("sync-is-slow")) usleep(1500000); \
        return real(fd); \
    }
SYNC(fsync)
SYNC(fdatasync)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        static int (*real)(const char *, int, ...); \
        if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        if (strstr(path, "/damaged/main.json") && asked("open-is-slow")) usleep(1500000); \
        if (strstr(path, "/nameservice.log.db") && asked("open-fails")) { errno = EMFILE; return -1; } \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
