/* LD_PRELOAD this into a process under test: its disk becomes slower, its clock another.
 *
 * SLOW_SYNC_US  microseconds that every fsync and fdatasync takes longer
 * FAULTS_FILE   a file of two 64-bit integers, which may change while the process runs: the same for syncs, and the
 *               milliseconds that the wall clock is ahead. Timers use the monotonic clock, which stays as it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long always_us;
static const volatile long long *faults;

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("SLOW_SYNC_US"), *path = getenv("FAULTS_FILE");
    always_us = text ? atol(text) : 0;
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, 2 * sizeof(long long), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        faults = mapped;
}

static void wait_a_moment(void) {
    long long us = always_us + (faults ? faults[0] : 0);
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    if (us > 0)
        nanosleep(&time, NULL);
}

int fsync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    wait_a_moment();
    return real(fd);
}

int fdatasync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    wait_a_moment();
    return real(fd);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    /* Not through dlsym, which may allocate: allocators ask for the time. */
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME && faults) {
        long long ms = faults[1];
        time->tv_sec += ms / 1000;
        time->tv_nsec += ms % 1000 * 1000000;
        if (time->tv_nsec >= 1000000000) {
            time->tv_nsec -= 1000000000;
            time->tv_sec += 1;
        }
    }
    return result;
}
