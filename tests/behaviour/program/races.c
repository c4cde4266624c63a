/* Writes that meet what cannot be waited for: kill -9 in their middle, and another process that cuts the file. */
#include "case.h"
#include <sched.h>
#include <stdatomic.h>

enum { TURNS = 60, ROUNDS = 1500 };

/* Memory of parent and child. */
static void *shared(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

/* Overwrites `pages` pages again and again by one call a time, each time with another byte. */
static _Noreturn void overwrite(int pages, atomic_long *done) {
    size_t bytes = (size_t)pages * PAGE;
    unsigned char *data = malloc(bytes);
    int fd = open(path("f"), O_RDWR);
    CHECK(data && fd >= 0);
    for (;; atomic_fetch_add(done, 1)) {
        memset(data, 1 + *done % 250, bytes);
        EQUAL(pwrite(fd, data, bytes, 0), (ssize_t)bytes);
        EQUAL(pread(fd, data, 64, 0), 64);
    }
}

/* The kernel writes each page whole, whenever the writer is killed. */
static void a_killed_writer_leaves_whole_pages(void) {
    enum { PAGES = 16 };
    static unsigned char got[PAGES * PAGE];
    atomic_long *done = shared(sizeof *done);
    EQUAL(close(make("f", 1, sizeof got)), 0);
    for (int turn = 0; turn < TURNS; turn++) {
        *done = 0;
        fflush(NULL);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            overwrite(PAGES, done);
        while (atomic_load(done) < 200)
            sched_yield();
        usleep(turn * 37 % 500);
        EQUAL(kill(pid, SIGKILL), 0);
        EQUAL(waitpid(pid, NULL, 0), pid);
        int fd = open(path("f"), O_RDONLY);
        EQUAL(KERNEL(SYS_pread64, (long)fd, (long)got, (long)sizeof got, 0L), sizeof got);
        EQUAL(close(fd), 0);
        if (turn == 0)
            continue; /* the file may still be as it was made */
        for (int page = 0; page < PAGES; page++)
            for (int i = 1; i < PAGE; i++)
                EQUAL(got[page * PAGE + i], got[page * PAGE]);
    }
}

struct turns {
    atomic_long begun, cut, checked;
};

static void wait_for(atomic_long *word, long value) {
    for (int looks = 0; atomic_load(word) < value; looks++)
        if (looks > 2000)
            sched_yield();
}

/* Once in each round the file is cut in its last page, somewhere within the parent's write. */
static _Noreturn void cut_in_rounds(struct turns *turns, off_t size) {
    unsigned lot = 1;
    int fd = open(path("f"), O_RDWR);
    CHECK(fd >= 0);
    for (long round = 1; round <= ROUNDS; round++) {
        wait_for(&turns->begun, round);
        lot = lot * 1103515245 + 12345;
        for (volatile unsigned i = 0; i < (lot >> 16) % 6000; i++)
            ;
        EQUAL(ftruncate(fd, size), 0);
        atomic_store(&turns->cut, round);
        wait_for(&turns->checked, round);
    }
    _exit(0);
}

/* However a write and another process's truncation fall together, it is as if one came after the other: nothing
 * of the write shows behind the end, neither at once nor when the file grows. */
static void a_write_and_a_truncation(int pages) {
    static unsigned char data[16 * PAGE], got[PAGE];
    size_t bytes = (size_t)pages * PAGE;
    off_t last = (off_t)bytes - PAGE, cut = last + 100;
    struct turns *turns = shared(sizeof *turns);
    int fd = make_hot("f", 1, pages);
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        cut_in_rounds(turns, cut);
    EQUAL(close(fd), 0);
    fd = open(path("f"), O_RDWR);
    for (long round = 1; round <= ROUNDS; round++) {
        EQUAL(ftruncate(fd, 0), 0);
        memset(data, 'A', bytes);
        for (int i = 0; i < 3; i++)
            EQUAL(pwrite(fd, data, bytes, 0), (ssize_t)bytes);
        for (int page = 0; page < pages; page++)
            EQUAL(pread(fd, got, 64, (off_t)page * PAGE), 64);
        memset(data, 'B', bytes);
        atomic_store(&turns->begun, round);
        for (volatile int i = 0; i < 1500; i++)
            ;
        EQUAL(pwrite(fd, data, bytes, 0), (ssize_t)bytes);
        wait_for(&turns->cut, round);
        if (size_of(fd) == cut) {
            EQUAL(pread(fd, got, PAGE, last), 100);
            EQUAL(ftruncate(fd, (off_t)bytes), 0);
            EQUAL(pread(fd, got, PAGE, last), PAGE);
            for (int i = 100; i < PAGE; i++)
                EQUAL(got[i], 0);
        } else {
            EQUAL(size_of(fd), (off_t)bytes);
            EQUAL(pread(fd, got, PAGE, last), PAGE);
            for (int i = 0; i < PAGE; i++)
                EQUAL(got[i], 'B');
        }
        atomic_store(&turns->checked, round);
    }
    AWAIT(pid);
}

static void a_write_of_a_page_and_a_truncation(void) {
    a_write_and_a_truncation(1);
}

static void a_write_of_two_pages_and_a_truncation(void) {
    a_write_and_a_truncation(2);
}

static void a_write_of_many_pages_and_a_truncation(void) {
    a_write_and_a_truncation(16);
}

const struct test_case race_cases[] = {
    {"races/a_killed_writer_leaves_whole_pages", a_killed_writer_leaves_whole_pages, KERNEL_WRITES},
    {"races/a_write_of_a_page_and_a_truncation", a_write_of_a_page_and_a_truncation, WRITES},
    {"races/a_write_of_two_pages_and_a_truncation", a_write_of_two_pages_and_a_truncation, WRITES},
    {"races/a_write_of_many_pages_and_a_truncation", a_write_of_many_pages_and_a_truncation, WRITES},
    {0},
};
