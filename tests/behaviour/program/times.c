/* Times: a file's mtime and ctime move when it is written, and whoever compares times is not misled. */
#include "case.h"
#include <sys/inotify.h>
#include <time.h>

/* The kernel stamps with a clock that ticks every few ms; the stamp of a mapped write may be 10 ms and a tick
 * too old. */
enum { CLOCK_MS = 24, LATE_MS = 150 };
static unsigned char data[PAGE];

static long ms_of(struct timespec time) {
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static long mtime(const char *name) {
    struct stat stat_of;
    EQUAL(stat(path(name), &stat_of), 0);
    EQUAL(ms_of(stat_of.st_mtim) <= ms_of(stat_of.st_ctim), 1);
    return ms_of(stat_of.st_mtim);
}

static long wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return ms_of(now);
}

static void time_moves_after_hot_writes(void) {
    int fd = make_hot("f", 1, 4);
    for (int i = 0; i < 5; i++) {
        sleep_ms(2 * CLOCK_MS);
        long before = wall_ms();
        fill(data, 1, 100, 100);
        for (int round = 0; round < 100; round++)
            EQUAL(pwrite(fd, data, 100, 100), 100);
        long until = now_ms() + LATE_MS;
        while (mtime("f") < before - CLOCK_MS && now_ms() < until)
            sleep_ms(2);
        CHECK(mtime("f") >= before - CLOCK_MS);
    }
}

/* One write into a hot page, as a single event. */
static void time_moves_after_a_single_write(void) {
    int fd = make_hot("f", 1, 4);
    for (int i = 0; i < 8; i++) {
        sleep_ms(2 * CLOCK_MS + i * 5);
        long before = wall_ms();
        EQUAL(pwrite(fd, data, 0, 0), 0);
        fill(data, 1, 200, 100);
        EQUAL(pwrite(fd, data, 100, 200), 100);
        long until = now_ms() + LATE_MS;
        while (mtime("f") < before - CLOCK_MS && now_ms() < until)
            sleep_ms(2);
        CHECK(mtime("f") >= before - CLOCK_MS);
    }
}

static void exact(int fd, int how) {
    fill(data, 1, 100, 100);
    for (int round = 0; round < 70; round++)
        EQUAL(pwrite(fd, data, 100, 100), 100);
    sleep_ms(2 * CLOCK_MS);
    long before = wall_ms();
    for (int round = 0; round < 3; round++)
        EQUAL(pwrite(fd, data, 100, 100), 100);
    if (how == 0)
        EQUAL(close(fd), 0);
    else if (how == 1)
        EQUAL(fsync(fd), 0);
    else if (how == 2)
        EQUAL(fdatasync(fd), 0);
    long after = wall_ms(), got = mtime("f");
    CHECK(got >= before - CLOCK_MS && got <= after);
}

static void time_is_exact_after_close(void) {
    for (int i = 0; i < 5; i++)
        exact(make_hot("f", 1, 4), 0);
}

static void time_is_exact_after_fsync(void) {
    int fd = make_hot("f", 1, 4);
    for (int i = 0; i < 4; i++)
        exact(fd, 1 + i % 2);
}

static void time_is_exact_after_exit(void) {
    EQUAL(close(make_hot("f", 1, 4)), 0);
    long *before = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(path("f"), O_RDWR);
        heat_reads(fd, 1, 0, PAGE);
        heat_writes(fd, 1, 0, PAGE);
        sleep_ms(2 * CLOCK_MS);
        *before = wall_ms();
        fill(data, 1, 100, 100);
        EQUAL(pwrite(fd, data, 100, 100), 100);
        exit(0);
    }
    AWAIT(pid);
    long after = wall_ms(), got = mtime("f");
    CHECK(got >= *before - CLOCK_MS && got <= after);
}

/* What is stamped is the last write, and not the close, the exit or the fsync some time after it. */
static void time_is_that_of_the_last_write(void) {
    char event[4096] __attribute__((aligned(8)));
    for (int how = 0; how < 3; how++) {
        int fd = make_hot("f", 1, 4);
        fill(data, 1, 100, 100);
        for (int round = 0; round < 200; round++)
            EQUAL(pwrite(fd, data, 100, 100), 100);
        long written = mtime("f");
        sleep_ms(4 * CLOCK_MS);
        int events = inotify_init1(IN_NONBLOCK);
        CHECK(inotify_add_watch(events, path("f"), IN_ATTRIB | IN_MODIFY) >= 0);
        if (how == 1)
            EQUAL(fsync(fd), 0);
        else if (how == 2)
            CHILD({ heat_reads(fd, 1, PAGE, PAGE); });
        EQUAL(close(fd), 0);
        EQUAL(mtime("f"), written);
        EQUAL(read(events, event, sizeof event), -1);
        EQUAL(errno, EAGAIN);
        EQUAL(close(events), 0);
    }
}

static void time_rests_when_nothing_is_written(void) {
    int fd = make_hot("f", 1, 4);
    EQUAL(fsync(fd), 0);
    sleep_ms(2 * CLOCK_MS);
    long before = mtime("f");
    heat_reads(fd, 1, 0, PAGE);
    sleep_ms(2 * CLOCK_MS);
    heat_reads(fd, 1, 0, PAGE);
    EQUAL(close(fd), 0);
    EQUAL(mtime("f"), before);
}

/* What touch, cp -p and tar set is not overwritten by a stamp for an earlier write. */
static void times_that_were_set_stay(void) {
    struct timespec times[2] = {{1000000000, 0}, {1000000000, 0}};
    int fd = make_hot("f", 1, 4);
    heat_writes(fd, 1, 0, PAGE);
    EQUAL(futimens(fd, times), 0);
    EQUAL(mtime("f"), 1000000000000L);
    sleep_ms(2 * CLOCK_MS);
    EQUAL(mtime("f"), 1000000000000L);
    EQUAL(close(fd), 0);
    EQUAL(mtime("f"), 1000000000000L);
    fd = open(path("f"), O_RDWR);
    heat_writes(fd, 1, 0, PAGE);
    EQUAL(utimensat(AT_FDCWD, path("f"), times, 0), 0);
    heat_reads(fd, 1, 0, PAGE);
    EQUAL(close(fd), 0);
    EQUAL(mtime("f"), 1000000000000L);
}

/* Writing takes the set-uid bit away when a user without rights writes. */
static void set_uid_bits_go_with_a_write(void) {
    if (geteuid() != 0)
        skip("needs root: no file of another user can be made");
    int fd = make_hot("f", 1, 4);
    EQUAL(fchmod(fd, 06777), 0);
    CHILD({
        EQUAL(chmod(path("."), 0777), 0);
        EQUAL(setgid(65534), 0);
        EQUAL(setuid(65534), 0);
        heat_writes(fd, 1, 0, PAGE);
        struct stat stat_of;
        EQUAL(fstat(fd, &stat_of), 0);
        EQUAL(stat_of.st_mode & 06000, 0);
    });
}

const struct test_case time_cases[] = {
    {"times/time_moves_after_hot_writes", time_moves_after_hot_writes, READS},
    {"times/time_moves_after_a_single_write", time_moves_after_a_single_write, READS},
    {"times/time_is_exact_after_close", time_is_exact_after_close, READS},
    {"times/time_is_exact_after_fsync", time_is_exact_after_fsync, READS},
    {"times/time_is_exact_after_exit", time_is_exact_after_exit, READS},
    {"times/time_is_that_of_the_last_write", time_is_that_of_the_last_write, READS | KERNEL_SYNCS},
    {"times/time_rests_when_nothing_is_written", time_rests_when_nothing_is_written, READS},
    {"times/times_that_were_set_stay", times_that_were_set_stay, READS},
    {"times/set_uid_bits_go_with_a_write", set_uid_bits_go_with_a_write, READS},
    {0},
};
