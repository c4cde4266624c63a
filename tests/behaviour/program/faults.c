/* Faults in the file: it is cut under us, the disk is full, a limit is reached. */
#include "case.h"
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>

enum { SIZE = 16 * PAGE };
static unsigned char data[SIZE];

/* Another process cuts and regrows the file as fast as it can, by plain system calls, until told to stop. */
static pid_t start_cutter(off_t small, atomic_int *stop) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0)
        return pid;
    long other = KERNEL(SYS_open, (long)path("f"), (long)O_RDWR);
    while (!atomic_load(stop)) {
        EQUAL(KERNEL(SYS_ftruncate, other, (long)small), 0);
        EQUAL(KERNEL(SYS_ftruncate, other, (long)SIZE), 0);
        EQUAL(KERNEL(SYS_pwrite64, other, (long)data, (long)SIZE, 0L), SIZE);
    }
    _exit(0);
}

static atomic_int *shared_flag(void) {
    return mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void zeros_or_pattern(const unsigned char *got, off_t at, long length) {
    for (long i = 0; i < length; i++)
        if (got[i] != 0 && got[i] != pattern(1, at + i))
            fail(__FILE__, __LINE__, "byte %lld is %u", (long long)at + i, got[i]);
}

/* Short counts and zeros are what a reader may see; a signal is not. */
static void readers_survive_a_file_that_is_cut(off_t small) {
    int fd = make_hot("f", 1, 16);
    unsigned char got[3000];
    atomic_int *stop = shared_flag();
    fill(data, 1, 0, SIZE);
    pid_t cutter = start_cutter(small, stop);
    long until = now_ms() + 400;
    for (int i = 0; now_ms() < until; i++) {
        off_t at = i * 677L % (SIZE - 3000);
        long length = pread(fd, got, i % 2 ? 3000 : 300, at);
        CHECK(length >= 0);
        CHECK(at >= small || length == (i % 2 ? 3000 : 300) || length >= small - at);
        zeros_or_pattern(got, at, length);
    }
    atomic_store(stop, 1);
    AWAIT(cutter);
}

static void reads_while_cut_at_a_page(void) {
    readers_survive_a_file_that_is_cut(4 * PAGE);
}

static void reads_while_cut_inside_a_page(void) {
    readers_survive_a_file_that_is_cut(4 * PAGE + 1234);
}

static void reads_while_emptied(void) {
    readers_survive_a_file_that_is_cut(0);
}

static void writes_while_cut(void) {
    int fd = make_hot("f", 1, 16);
    unsigned char own[3000];
    atomic_int *stop = shared_flag();
    fill(data, 1, 0, SIZE);
    pid_t cutter = start_cutter(3 * PAGE + 77, stop);
    long until = now_ms() + 400;
    for (int i = 0; now_ms() < until; i++) {
        off_t at = i * 677L % (SIZE - 3000);
        fill(own, 1, at, sizeof own);
        EQUAL(pwrite(fd, own, i % 2 ? 3000 : 300, at), i % 2 ? 3000 : 300);
        CHECK(size_of(fd) >= 3 * PAGE + 77);
    }
    atomic_store(stop, 1);
    AWAIT(cutter);
    EQUAL(size_of(fd), SIZE);
    EQUAL(pread(fd, data, SIZE, 0), SIZE);
    zeros_or_pattern(data, 0, SIZE);
}

/* A write is part of the file when it returns, however often the file was cut before: no write may be lost
 * in a page that is no longer the file's. */
static void a_write_after_a_cut_stays(void) {
    int fd = make_hot("f", 1, 16);
    unsigned char own[200], got[200];
    long other = KERNEL(SYS_open, (long)path("f"), (long)O_RDWR);
    for (int i = 0; i < 300; i++) {
        off_t at = i * 677L % (SIZE - 200);
        EQUAL(KERNEL(SYS_ftruncate, other, (long)(i % 3 ? at + 100 : 0)), 0);
        memset(own, i % 250 + 1, sizeof own);
        EQUAL(pwrite(fd, own, sizeof own, at), sizeof own);
        EQUAL(size_of(fd), at + 200);
        EQUAL(KERNEL(SYS_pread64, other, (long)got, 200L, (long)at), 200);
        EQUAL(memcmp(own, got, 200), 0);
    }
}

static int small_tmpfs(const char *options) {
    char *place = path("mnt");
    if (unshare(CLONE_NEWNS) != 0)
        skip("needs root: a mount namespace cannot be made");
    EQUAL(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    EQUAL(mkdir(place, 0700), 0);
    EQUAL(mount("tmpfs", place, "tmpfs", 0, options), 0);
    return 0;
}

static void a_full_disk_gives_enospc(void) {
    small_tmpfs("size=512k");
    int fd = make_hot("mnt/f", 1, 8);
    EQUAL(ftruncate(fd, 64 * PAGE), 0);
    int hog = open(path("mnt/hog"), O_WRONLY | O_CREAT, 0600);
    long got;
    while ((got = write(hog, data, PAGE)) == PAGE)
        ;
    EQUAL(got, -1);
    EQUAL(errno, ENOSPC);
    for (int i = 0; i < 60; i++) {
        FAILS(pwrite(fd, data, 100, (20 + i % 3) * PAGE), ENOSPC);
        EQUAL(pread(fd, data, 100, (20 + i % 3) * PAGE), 100);
        ZEROS(data, 100);
        fill(data, 1, 8 * PAGE - 100, 200);
        EQUAL(pwrite(fd, data, 200, 8 * PAGE - 100), 100);
        EQUAL(lseek(fd, 20 * PAGE, SEEK_SET), 20 * PAGE);
        FAILS(write(fd, data, 100), ENOSPC);
        EQUAL(lseek(fd, 0, SEEK_CUR), 20 * PAGE);
    }
    heat_writes(fd, 1, 0, 8 * PAGE);
    EQUAL(unlink(path("mnt/hog")), 0);
    EQUAL(close(hog), 0);
    fill(data, 1, 20 * PAGE, 100);
    EQUAL(pwrite(fd, data, 100, 20 * PAGE), 100);
    EQUAL(size_of(fd), 64 * PAGE);
}

/* Space comes back when the last descriptor of an unlinked file is closed, and at once when it is cut. */
static void space_comes_back(void) {
    small_tmpfs("size=512k");
    for (int i = 0; i < 10; i++) {
        int fd = make_hot("mnt/f", 1, 100);
        EQUAL(i % 2 ? ftruncate(fd, 0) : unlink(path("mnt/f")), 0);
        if (i % 2 == 0)
            EQUAL(close(fd), 0);
        int other = make("mnt/g", 2, 100 * PAGE);
        EQUAL(unlink(path("mnt/g")), 0);
        EQUAL(close(other), 0);
        if (i % 2)
            EQUAL(close(fd), 0);
    }
}

static volatile int limit_signals;

static void count_limit_signal(int signal) {
    (void)signal;
    limit_signals++;
}

/* RLIMIT_FSIZE holds for every write, also over bytes that exist. */
static void the_size_limit_is_kept(void) {
    int fd = make_hot("f", 1, 8);
    struct rlimit limit = {4 * PAGE + 50, RLIM_INFINITY};
    signal(SIGXFSZ, count_limit_signal);
    EQUAL(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 30; i++) {
        fill(data, 1, 4 * PAGE, 100);
        EQUAL(pwrite(fd, data, 100, 4 * PAGE), 50);
        EQUAL(limit_signals, i);
        FAILS(pwrite(fd, data, 100, 5 * PAGE), EFBIG);
        EQUAL(limit_signals, i + 1);
        EQUAL(pread(fd, data, 100, 6 * PAGE), 100);
        DATA(data, 1, 6 * PAGE, 100);
    }
    heat_writes(fd, 1, 0, 4 * PAGE);
    FAILS(ftruncate(fd, 9 * PAGE), EFBIG);
    signal(SIGXFSZ, SIG_IGN);
    FAILS(pwrite(fd, data, 100, 5 * PAGE), EFBIG);
    limit.rlim_cur = RLIM_INFINITY;
    EQUAL(setrlimit(RLIMIT_FSIZE, &limit), 0);
    heat_writes(fd, 1, 4 * PAGE, 4 * PAGE);
    FILE_IS("f", 1, 8 * PAGE);
}

static void the_size_limit_kills(void) {
    int fd = make_hot("f", 1, 8), status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = {PAGE, PAGE};
        EQUAL(setrlimit(RLIMIT_FSIZE, &limit), 0);
        for (int i = 0; i < 100; i++)
            pwrite(fd, data, 100, PAGE);
        _exit(0);
    }
    EQUAL(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
}

static void a_limit_set_from_outside_is_kept(void) {
    int fd = make_hot("f", 1, 8);
    struct rlimit limit = {PAGE, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    EQUAL(prlimit(0, RLIMIT_FSIZE, &limit, NULL), 0);
    for (int i = 0; i < 20; i++)
        FAILS(pwrite(fd, data, 100, 5 * PAGE), EFBIG);
}

/* Beyond what the file system can hold. */
static void the_largest_file(void) {
    int fd = make_hot("f", 1, 2);
    signal(SIGXFSZ, SIG_IGN);
    for (long from_end = 5; from_end <= 10; from_end += 5) {
        long want = KERNEL(SYS_pwrite64, (long)fd, (long)data, 10L, LONG_MAX - from_end);
        EQUAL(pwrite(fd, data, 10, LONG_MAX - from_end) < 0 ? -errno : 10, want);
        want = KERNEL(SYS_pread64, (long)fd, (long)data, 10L, LONG_MAX - from_end);
        long got = pread(fd, data, 10, LONG_MAX - from_end);
        EQUAL(got < 0 ? -errno : got, want);
    }
    heat_reads(fd, 1, 0, 2 * PAGE);
    EQUAL(lseek(fd, 0, SEEK_END), size_of(fd));
}

const struct test_case fault_cases[] = {
    {"faults/reads_while_cut_at_a_page", reads_while_cut_at_a_page, READS},
    {"faults/reads_while_cut_inside_a_page", reads_while_cut_inside_a_page, READS},
    {"faults/reads_while_emptied", reads_while_emptied, READS},
    {"faults/writes_while_cut", writes_while_cut, READS},
    {"faults/a_write_after_a_cut_stays", a_write_after_a_cut_stays, READS},
    {"faults/a_full_disk_gives_enospc", a_full_disk_gives_enospc, READS},
    {"faults/space_comes_back", space_comes_back, READS},
    {"faults/the_size_limit_is_kept", the_size_limit_is_kept, READS},
    {"faults/the_size_limit_kills", the_size_limit_kills, READS},
    {"faults/a_limit_set_from_outside_is_kept", a_limit_set_from_outside_is_kept, READS},
    {"faults/the_largest_file", the_largest_file, READS},
    {0},
};
