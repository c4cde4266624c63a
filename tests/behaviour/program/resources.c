/* Resources: locked memory and limits are the program's own, whatever maps files beside it. */
#include "case.h"

enum { SIZE = 64 << 20, MIB = 1 << 20 };

/* A number of /proc/self/status, in KiB. */
static long status_of(const char *key) {
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            value = atol(line + strlen(key) + 1);
    fclose(file);
    CHECK(value >= 0);
    return value;
}

/* A file of 64 MiB with data at its beginning only, of which a part is hot. */
static int hot_and_sparse(void) {
    int fd = make("sparse", 1, 8 * PAGE);
    EQUAL(ftruncate(fd, SIZE), 0);
    heat_reads(fd, 1, 0, 8 * PAGE);
    return fd;
}

static void nothing_changed(int fd, long blocks) {
    unsigned char data[PAGE];
    EQUAL(blocks_of(fd), blocks);
    EQUAL(pread(fd, data, 100, 500), 100);
    DATA(data, 1, 500, 100);
    EQUAL(pread(fd, data, 100, SIZE / 2), 100);
    ZEROS(data, 100);
}

/* The memory that is locked is the program's: some libraries, stacks, a heap. */
static void lock_all(int flags) {
    EQUAL(mlockall(flags), 0);
    CHECK(status_of("VmLck:") < 10 << 10);
    CHECK(status_of("VmRSS:") < 10 << 10);
    EQUAL(munlockall(), 0);
}

static void locking_all_memory_maps_no_file(void) {
    int fd = hot_and_sparse();
    long blocks = blocks_of(fd);
    lock_all(MCL_CURRENT);
    nothing_changed(fd, blocks);
}

static void memory_to_come_is_locked_without_files(void) {
    int fd = hot_and_sparse();
    long blocks = blocks_of(fd);
    EQUAL(mlockall(MCL_FUTURE), 0);
    heat_reads(fd, 1, 0, 8 * PAGE);
    nothing_changed(fd, blocks);
    CHECK(status_of("VmLck:") < 10 << 10);
    int another = make("another", 2, 4 * MIB);
    heat_reads(another, 2, 0, 4 * MIB);
    CHECK(status_of("VmLck:") < 10 << 10);
}

static void locking_by_number_is_the_same(void) {
    int fd = hot_and_sparse();
    long blocks = blocks_of(fd);
    EQUAL(syscall(SYS_mlockall, MCL_CURRENT | MCL_FUTURE), 0);
    CHECK(status_of("VmLck:") < 10 << 10);
    nothing_changed(fd, blocks);
}

/* A user's limit is 8 MiB in most places, and all of a process's mappings count. */
static void a_user_can_lock_within_the_limit(void) {
    if (geteuid() != 0)
        skip("needs root to become another user");
    int fd = hot_and_sparse();
    struct rlimit limit = {8 * MIB, 8 * MIB};
    EQUAL(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    EQUAL(setresuid(12345, 12345, 12345), 0);
    lock_all(MCL_CURRENT);
    lock_all(MCL_CURRENT | MCL_FUTURE);
    (void)fd;
}

static long blocks_of_a_mebibyte(void) {
    long count = 0;
    for (char *block; count < 200 && (block = malloc(MIB)) != NULL; count++)
        memset(block, 1, MIB);
    return count;
}

static void a_limit_of_data_is_the_programs(void) {
    struct rlimit limit = {128 * MIB, 128 * MIB};
    EQUAL(setrlimit(RLIMIT_DATA, &limit), 0);
    int fd = make_hot("f", 1, 16);
    CHECK(blocks_of_a_mebibyte() >= 112);
    heat_reads(fd, 1, 0, 16 * PAGE);
}

/* With no data left for anybody, files are read all the same. */
static void without_data_left_files_are_read(void) {
    struct rlimit limit = {status_of("VmData:") << 10, RLIM_INFINITY};
    EQUAL(setrlimit(RLIMIT_DATA, &limit), 0);
    int fds[40];
    for (int i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        fds[i] = make(name, i, 4 * PAGE);
        heat_reads(fds[i], i, 0, 4 * PAGE);
    }
    int high = fcntl(fds[7], F_DUPFD, 900);
    CHECK(high >= 900);
    heat_reads(high, 7, 0, 4 * PAGE);
}

/* Reads all of a large file some times; CASE_RESIDENT_KIB says what may be resident then. */
static void reading_a_large_file(void) {
    enum { LARGE = 64 << 20, PIECE = 64 << 10 };
    static unsigned char piece[PIECE];
    const char *most = getenv("CASE_RESIDENT_KIB");
    int fd = make("large", 1, 0);
    for (off_t at = 0; at < LARGE; at += PIECE) {
        fill(piece, 1, at, PIECE);
        EQUAL(pwrite(fd, piece, PIECE, at), PIECE);
    }
    for (int round = 0; round < 12; round++)
        for (off_t at = 0; at < LARGE; at += PAGE) {
            EQUAL(pread(fd, piece, 256, (at * 5 + 1000) % LARGE), 256);
            DATA(piece, 1, (at * 5 + 1000) % LARGE, 256);
        }
    if (most != NULL && status_of("VmRSS:") > atol(most))
        fail(__FILE__, __LINE__, "%ld KiB are resident", status_of("VmRSS:"));
}

/* Reads one half of a file many times, then the other half as often, or (CASE_EVENLY) all of it at random. */
static void reading_one_half_after_the_other(void) {
    enum { LARGE = 8 << 20, PIECE = 64 << 10, READS_OF_A_HALF = 30000 };
    static unsigned char piece[PIECE];
    int evenly = getenv("CASE_EVENLY") != NULL;
    int fd = make("halves", 1, 0);
    for (off_t at = 0; at < LARGE; at += PIECE) {
        fill(piece, 1, at, PIECE);
        EQUAL(pwrite(fd, piece, PIECE, at), PIECE);
    }
    unsigned long long random = 1;
    for (int read = 0; read < 2 * READS_OF_A_HALF; read++) {
        random = random * 6364136223846793005 + 1442695040888963407;
        off_t at = (off_t)(random >> 33) % (evenly ? LARGE : LARGE / 2) / PAGE * PAGE;
        if (!evenly && read >= READS_OF_A_HALF)
            at += LARGE / 2;
        EQUAL(pread(fd, piece, 512, at), 512);
        DATA(piece, 1, at, 16);
    }
}

const struct test_case resource_cases[] = {
    {"resources/reading_one_half_after_the_other", reading_one_half_after_the_other, READS},
    {"resources/reading_a_large_file", reading_a_large_file, READS},
    {"resources/locking_all_memory_maps_no_file", locking_all_memory_maps_no_file, READS},
    {"resources/memory_to_come_is_locked_without_files", memory_to_come_is_locked_without_files, READS},
    {"resources/locking_by_number_is_the_same", locking_by_number_is_the_same, READS},
    {"resources/a_user_can_lock_within_the_limit", a_user_can_lock_within_the_limit, READS | KERNEL_SYNCS},
    {"resources/a_limit_of_data_is_the_programs", a_limit_of_data_is_the_programs, READS},
    {"resources/without_data_left_files_are_read", without_data_left_files_are_read, ANY},
    {0},
};
