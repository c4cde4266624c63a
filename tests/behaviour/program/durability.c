/* Durability: what was written is in the file whatever becomes of the program. */
#include "case.h"
#include <stdatomic.h>

/* A record never straddles two pages: a kill between them leaves the first part, with any kernel. */
enum { SIZE = 8 * PAGE, RECORD = 64 };
static unsigned char data[SIZE];

struct progress {
    atomic_int done; /* writes that have returned */
};

static struct progress *shared(void) {
    return mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* Runs `work` in a child, kills it after `ms` and answers how many writes had returned. */
static int killed_after(void (*work)(struct progress *), long ms) {
    struct progress *progress = shared();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        work(progress);
        _exit(1);
    }
    long until = now_ms() + 5000;
    while (atomic_load(&progress->done) == 0 && now_ms() < until)
        sleep_ms(1);
    sleep_ms(ms);
    EQUAL(kill(pid, SIGKILL), 0);
    int status;
    EQUAL(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    int done = atomic_load(&progress->done);
    CHECK(done > 0);
    return done;
}

static void append_for_ever(struct progress *progress) {
    int fd = open(path("f"), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    for (int i = 0;; i++) {
        fill(data, 1, (off_t)i * RECORD, RECORD);
        EQUAL(write(fd, data, RECORD), RECORD);
        atomic_store(&progress->done, i + 1);
    }
}

static void write_on_for_ever(struct progress *progress) {
    int fd = open(path("f"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0;; i++) {
        fill(data, 1, (off_t)i * RECORD, RECORD);
        if (i % 2)
            EQUAL(write(fd, data, RECORD), RECORD);
        else
            EQUAL(pwrite(fd, data, RECORD, (off_t)i * RECORD), RECORD);
        EQUAL(lseek(fd, (off_t)(i + 1) * RECORD, SEEK_SET), (off_t)(i + 1) * RECORD);
        EQUAL(pread(fd, data, RECORD, (off_t)i * RECORD / 2), RECORD);
        atomic_store(&progress->done, i + 1);
    }
}

/* The file ends with the last record that was acknowledged, or with the one that was being written. */
static void appended_bytes_survive(void (*work)(struct progress *)) {
    for (long ms = 0; ms < 30; ms += 5) {
        off_t done = killed_after(work, ms);
        struct stat stat_of;
        EQUAL(stat(path("f"), &stat_of), 0);
        CHECK(stat_of.st_size == done * RECORD || stat_of.st_size == (done + 1) * RECORD);
        FILE_IS("f", 1, stat_of.st_size);
    }
}

static void kill_while_appending(void) {
    appended_bytes_survive(append_for_ever);
}

static void kill_while_growing_at_the_position(void) {
    appended_bytes_survive(write_on_for_ever);
}

enum { SLOTS = SIZE / RECORD };

static void overwrite_for_ever(struct progress *progress) {
    int fd = open(path("f"), O_RDWR);
    for (int i = 0;; i++) {
        memset(data, i / SLOTS % 250 + 1, RECORD);
        EQUAL(pwrite(fd, data, RECORD, i % SLOTS * RECORD), RECORD);
        atomic_store(&progress->done, i + 1);
    }
}

/* Overwrites in turn: the record after the last acknowledged one may be old or new, every other is known. */
static void kill_while_overwriting(void) {
    for (long ms = 0; ms < 30; ms += 5) {
        close(make_hot("f", 1, 8));
        int done = killed_after(overwrite_for_ever, ms);
        int fd = open(path("f"), O_RDONLY);
        EQUAL(size_of(fd), SIZE);
        EQUAL(KERNEL(SYS_pread64, (long)fd, (long)data, (long)SIZE, 0L), SIZE);
        for (int slot = 0; slot < SLOTS; slot++) {
            int last = (done - 1 - slot) / SLOTS;
            if (slot == done % SLOTS)
                continue;
            for (int byte = 0; byte < RECORD; byte++) {
                if (done - 1 < slot)
                    DATA(data + slot * RECORD + byte, 1, slot * RECORD + byte, 1);
                else
                    EQUAL(data[slot * RECORD + byte], last % 250 + 1);
            }
        }
        EQUAL(close(fd), 0);
    }
}

/* A read-only pass by the program that died must not have changed anything. */
static void read_for_ever(struct progress *progress) {
    int fd = open(path("f"), O_RDWR);
    for (int i = 0;; i++) {
        EQUAL(pread(fd, data, 300, i * 77L % (SIZE - 300)), 300);
        atomic_store(&progress->done, i + 1);
    }
}

static void kill_while_reading(void) {
    int fd = make_hot("f", 1, 8);
    killed_after(read_for_ever, 10);
    EQUAL(close(fd), 0);
    FILE_IS("f", 1, SIZE);
}

static void exit_without_close(void) {
    for (int way = 0; way < 3; way++) {
        int status;
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            int fd = make_hot("f", 1, 8);
            fill(data, 1, SIZE, 100);
            EQUAL(pwrite(fd, data, 100, SIZE), 100);
            if (way == 0)
                exit(0);
            if (way == 1)
                _exit(0);
            abort();
        }
        EQUAL(waitpid(pid, &status, 0), pid);
        CHECK(way == 2 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
        FILE_IS("f", 1, SIZE + 100);
    }
}

/* With O_SYNC and O_DSYNC each write is the kernel's, which makes it durable. */
static void synchronous_writes_are_the_kernels(void) {
    static const int modes[] = {O_SYNC, O_DSYNC};
    close(make("f", 1, SIZE));
    for (int mode = 0; mode < 2; mode++) {
        int fd = open(path("f"), O_RDWR | modes[mode]);
        for (int i = 0; i < 60; i++) {
            fill(data, 1, 100, 100);
            EQUAL(pwrite(fd, data, 100, 100), 100);
            EQUAL(lseek(fd, 100, SEEK_SET), 100);
            EQUAL(write(fd, data, 100), 100);
        }
        EQUAL(fcntl(fd, F_GETFL) & O_SYNC, modes[mode]);
    }
    FILE_IS("f", 1, SIZE);
}

static void direct_io_is_the_kernels(void) {
    int first = make("f", 1, SIZE);
    EQUAL(close(first), 0);
    int fd = open(path("f"), O_RDWR | O_DIRECT);
    if (fd < 0 && errno == EINVAL)
        skip("this file system has no O_DIRECT");
    unsigned char *aligned = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 100; i++) {
        off_t at = i % 8 * PAGE;
        EQUAL(pread(fd, aligned, PAGE, at), PAGE);
        DATA(aligned, 1, at, PAGE);
        EQUAL(pwrite(fd, aligned, PAGE, at), PAGE);
        EQUAL(lseek(fd, at, SEEK_SET), at);
        EQUAL(read(fd, aligned, PAGE), PAGE);
        EQUAL(lseek(fd, 0, SEEK_CUR), at + PAGE);
        long want = KERNEL(SYS_pread64, (long)fd, (long)aligned + 1, 100L, 3L);
        EQUAL(pread(fd, aligned + 1, 100, 3) < 0 ? -errno : 100, want);
    }
    FILE_IS("f", 1, SIZE);
}

/* A buffered descriptor and one with O_DIRECT of the same file see each other. */
static void direct_and_buffered_see_each_other(void) {
    int fd = make_hot("f", 1, 8), direct = open(path("f"), O_RDWR | O_DIRECT);
    if (direct < 0 && errno == EINVAL)
        skip("this file system has no O_DIRECT");
    unsigned char *aligned = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 30; i++) {
        memset(data, i + 1, PAGE);
        EQUAL(pwrite(fd, data, 300, 2 * PAGE + 50), 300);
        EQUAL(pread(direct, aligned, PAGE, 2 * PAGE), PAGE);
        EQUAL(memcmp(aligned + 50, data, 300), 0);
        memset(aligned, 200 - i, PAGE);
        EQUAL(pwrite(direct, aligned, PAGE, 3 * PAGE), PAGE);
        EQUAL(pread(fd, data, 300, 3 * PAGE + 7), 300);
        EQUAL(memcmp(aligned, data, 300), 0);
    }
}

static void direct_can_be_switched_on(void) {
    int fd = make_hot("f", 1, 8);
    if (fcntl(fd, F_SETFL, O_DIRECT) < 0 && errno == EINVAL)
        skip("this file system has no O_DIRECT");
    unsigned char *aligned = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long want = KERNEL(SYS_pread64, (long)fd, (long)aligned + 1, 100L, 3L);
    for (int i = 0; i < 60; i++) {
        EQUAL(pread(fd, aligned + 1, 100, 3) < 0 ? -errno : 100, want);
        EQUAL(pread(fd, aligned, PAGE, PAGE), PAGE);
        DATA(aligned, 1, PAGE, PAGE);
    }
    EQUAL(fcntl(fd, F_SETFL, 0), 0);
    heat_reads(fd, 1, 0, SIZE);
    heat_writes(fd, 1, 0, SIZE);
    FILE_IS("f", 1, SIZE);
}

const struct test_case durability_cases[] = {
    {"durability/kill_while_appending", kill_while_appending, ANY},
    {"durability/kill_while_growing_at_the_position", kill_while_growing_at_the_position, READS},
    {"durability/kill_while_overwriting", kill_while_overwriting, READS},
    {"durability/kill_while_reading", kill_while_reading, READS},
    {"durability/exit_without_close", exit_without_close, READS},
    {"durability/synchronous_writes_are_the_kernels", synchronous_writes_are_the_kernels, NO_WRITES},
    {"durability/direct_io_is_the_kernels", direct_io_is_the_kernels, NO_READS | NO_WRITES},
    {"durability/direct_and_buffered_see_each_other", direct_and_buffered_see_each_other, READS},
    {"durability/direct_can_be_switched_on", direct_can_be_switched_on, READS},
    {0},
};
