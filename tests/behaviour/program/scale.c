/* Scale: many open files, many positions, little memory. */
#include "case.h"

enum { FILES = 10000, BYTES = 2 * PAGE };
static unsigned char data[BYTES];
static int fds[FILES];

static long anonymous_kib(void) {
    char line[128];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "RssAnon: %ld", &kib) == 1)
            break;
    fclose(status);
    CHECK(kib >= 0);
    return kib;
}

/* Under 1 KiB for each open file beside the windows, and the program can still map what it likes. */
static void ten_thousand_open_files(void) {
    struct rlimit limit;
    EQUAL(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = FILES + 100;
    if (limit.rlim_max < limit.rlim_cur)
        limit.rlim_max = limit.rlim_cur;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        skip("10,000 files may not be opened here (ulimit -n)");
    for (int i = 0; i < 64; i++) {
        char name[32];
        snprintf(name, sizeof name, "f%d", i);
        EQUAL(close(make(name, (unsigned)i, BYTES)), 0);
    }
    long before = anonymous_kib();
    for (int i = 0; i < FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "f%d", i % 64);
        char *whole = path(name);
        fds[i] = open(whole, O_RDWR);
        free(whole);
        CHECK(fds[i] >= 0);
    }
    for (int round = 0; round < 8; round++)
        for (int i = 0; i < FILES; i++) {
            off_t at = (i + round * 131) % (BYTES - 64);
            EQUAL(pread(fds[i], data, 64, at), 64);
            DATA(data, (unsigned)(i % 64), at, 64);
            if (round == 7)
                EQUAL(lseek(fds[i], i % 1000, SEEK_SET), i % 1000);
        }
    for (int i = 0; i < FILES; i++) {
        EQUAL(read(fds[i], data, 64), 64);
        DATA(data, (unsigned)(i % 64), i % 1000, 64);
    }
    CHECK(anonymous_kib() - before < FILES + 2048);
    for (int i = 0; i < 20000; i++) {
        void *map = mmap(NULL, PAGE, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(map != MAP_FAILED);
    }
    for (int i = 0; i < FILES; i++)
        EQUAL(close(fds[i]), 0);
    heat_reads(open(path("f5"), O_RDONLY), 5, 0, BYTES);
}

/* Far more than any window: places all over a large file, in an order that defeats every cache of windows. */
static void places_all_over_a_large_file(void) {
    const off_t size = 64L << 30;
    int fd = open(path("f"), O_RDWR | O_CREAT, 0600);
    EQUAL(ftruncate(fd, size), 0);
    enum { PLACES = 400 };
    for (int i = 0; i < PLACES; i++) {
        off_t at = size / PLACES * i;
        fill(data, 1, at, PAGE);
        EQUAL(pwrite(fd, data, PAGE, at), PAGE);
    }
    for (int round = 0; round < 40; round++)
        for (int i = 0; i < PLACES; i++) {
            off_t at = size / PLACES * (i * 149 % PLACES) + round;
            EQUAL(pread(fd, data, 100, at), 100);
            DATA(data, 1, at, 100);
            EQUAL(pwrite(fd, data, 100, at), 100);
            EQUAL(lseek(fd, at, SEEK_SET), at);
            EQUAL(read(fd, data, 100), 100);
            DATA(data, 1, at, 100);
        }
    EQUAL(size_of(fd), size);
}

static void opening_and_closing_for_ever(void) {
    close(make_hot("f", 1, 2));
    char *name = path("f");
    long before = 0;
    for (int i = 0; i < 5000; i++) {
        int fd = open(name, O_RDWR);
        for (int round = 0; round < 12; round++)
            EQUAL(pread(fd, data, 100, round * 100), 100);
        DATA(data, 1, 1100, 100);
        EQUAL(close(fd), 0);
        if (i == 500)
            before = anonymous_kib();
    }
    CHECK(anonymous_kib() - before < 1024);
}

static void many_files_in_turn(void) {
    enum { TURN = 600 };
    for (int i = 0; i < TURN; i++) {
        char name[32];
        snprintf(name, sizeof name, "t%d", i % 300);
        int fd = make(name, (unsigned)i, BYTES);
        for (int round = 0; round < 10; round++) {
            EQUAL(pread(fd, data, 100, round * 100), 100);
            DATA(data, (unsigned)i, round * 100, 100);
        }
        if (i % 3 == 0)
            EQUAL(unlink(path(name)), 0);
        EQUAL(close(fd), 0);
    }
}

const struct test_case scale_cases[] = {
    {"scale/ten_thousand_open_files", ten_thousand_open_files, READS},
    {"scale/places_all_over_a_large_file", places_all_over_a_large_file, READS},
    {"scale/opening_and_closing_for_ever", opening_and_closing_for_ever, READS},
    {"scale/many_files_in_turn", many_files_in_turn, ANY},
    {0},
};
