/* Bad buffers: the result of the call is that of the plain system call on a twin file in the same state. */
#include "case.h"

enum { PAGES = 4, SIZE = PAGES * PAGE };
static int fd, twin;
static unsigned char contents[SIZE], other[SIZE];

static void make_twins(void) {
    fd = make_hot("f", 1, PAGES);
    twin = make("twin", 1, SIZE);
}

/* Pages of a buffer: 'w' writable, 'r' read-only, 'n' no access, '-' unmapped. */
static unsigned char *buffer(const char *pages) {
    size_t count = strlen(pages);
    unsigned char *at = mmap(NULL, (count + 3) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    at += PAGE; /* a page before and two behind keep the next mapping out of the gaps */
    fill(at, 7, 0, (count + 2) * PAGE);
    for (size_t i = 0; i < count; i++) {
        if (pages[i] == '-')
            EQUAL(munmap(at + i * PAGE, PAGE), 0);
        else if (pages[i] != 'w')
            EQUAL(mprotect(at + i * PAGE, PAGE, pages[i] == 'r' ? PROT_READ : PROT_NONE), 0);
    }
    return at;
}

static long result(long value) {
    return value == -1 ? -errno : value;
}

static void same_read(unsigned char *to, unsigned char *twin_to, size_t length, off_t at) {
    long want = KERNEL(SYS_pread64, (long)twin, (long)twin_to, (long)length, (long)at);
    EQUAL(result(pread(fd, to, length, at)), want);
    if (want > 0)
        DATA(to, 1, at, (size_t)want);
    EQUAL(lseek(fd, at, SEEK_SET), at);
    EQUAL(result(read(fd, to, length)), want);
    EQUAL(lseek(fd, 0, SEEK_CUR), at + (want > 0 ? want : 0));
}

static void same_write(unsigned char *from, size_t length, off_t at) {
    long want = KERNEL(SYS_pwrite64, (long)twin, (long)from, (long)length, (long)at);
    EQUAL(result(pwrite(fd, from, length, at)), want);
    EQUAL(lseek(fd, at, SEEK_SET), at);
    EQUAL(result(write(fd, from, length)), want);
    EQUAL(lseek(fd, 0, SEEK_CUR), at + (want > 0 ? want : 0));
    EQUAL(size_of(fd), size_of(twin));
    long got = KERNEL(SYS_pread64, (long)fd, (long)contents, (long)SIZE, 0L);
    EQUAL(got, KERNEL(SYS_pread64, (long)twin, (long)other, (long)SIZE, 0L));
    EQUAL(memcmp(contents, other, (size_t)got), 0);
}

static void wild_pointers(void) {
    make_twins();
    static const size_t wild[] = {0, 16, 4095, 0x7ffffffff000, 0x800000000000, 0xffff800000000000, -1UL, -4096UL};
    for (int round = 0; round < 20; round++)
        for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
            unsigned char *bad = (unsigned char *)unknown(wild[i]);
            same_read(bad, bad, 100, 50);
            same_read(bad, bad, 5000, 50);
            same_write(bad, 100, 50);
        }
    heat_reads(fd, 1, 0, SIZE);
}

static void reads_into_bad_pages(void) {
    make_twins();
    static const char *const kinds[] = {"w-", "wn", "wr", "-w", "nw", "rw", "w-w", "wnw", "wrw", "ww-"};
    static const size_t starts[] = {0, 1, 100, 4000, 4095};
    static const size_t lengths[] = {1, 90, 200, 4096, 5000, 8192, 10000};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        unsigned char *to = buffer(kinds[kind]), *twin_to = buffer(kinds[kind]);
        for (int start = 0; start < 5; start++)
            for (int length = 0; length < 7; length++)
                for (off_t at = 0; at < 9000; at += 2222)
                    same_read(to + starts[start], twin_to + starts[start], lengths[length], at);
    }
    heat_reads(fd, 1, 0, SIZE);
}

static void writes_from_bad_pages(void) {
    make_twins();
    static const char *const kinds[] = {"w-", "wn", "r-", "-w", "nw", "w-w", "wnw", "ww-"};
    static const size_t starts[] = {0, 1, 100, 4000, 4095};
    static const size_t lengths[] = {1, 90, 200, 4096, 5000, 8192};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        unsigned char *from = buffer(kinds[kind]);
        for (int start = 0; start < 5; start++)
            for (int length = 0; length < 6; length++)
                for (off_t at = 0; at < 8000; at += 3333)
                    same_write(from + starts[start], lengths[length], at);
    }
}

/* A buffer that is itself a mapping of a file past that file's end. */
static void buffers_past_the_end_of_a_mapped_file(void) {
    make_twins();
    int small = make("small", 3, 100);
    unsigned char *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, small, 0);
    CHECK(map != MAP_FAILED);
    for (int i = 0; i < 40; i++) {
        same_read(map + PAGE, map + PAGE, 100, 10);
        same_read(map + 4000, map + 4000, 200, 10);
        same_write(map + PAGE, 100, 10);
        same_write(map + 4000, 200, 10);
    }
}

static void buffers_of_a_shrunken_program_break(void) {
    make_twins();
    unsigned char *top = sbrk(4 * PAGE);
    CHECK(top != (void *)-1);
    unsigned char *edge = (unsigned char *)(((unsigned long)top + 2 * PAGE) & ~(PAGE - 1UL));
    EQUAL(brk(edge) == 0, 1);
    for (int i = 0; i < 20; i++) {
        same_read(edge - 50, edge - 50, 100, i);
        same_read(edge, edge, 100, i);
    }
}

const struct test_case buffer_cases[] = {
    {"buffers/wild_pointers", wild_pointers, READS},
    {"buffers/reads_into_bad_pages", reads_into_bad_pages, READS},
    {"buffers/writes_from_bad_pages", writes_from_bad_pages, READS},
    {"buffers/buffers_past_the_end_of_a_mapped_file", buffers_past_the_end_of_a_mapped_file, READS},
    {"buffers/buffers_of_a_shrunken_program_break", buffers_of_a_shrunken_program_break, READS},
    {0},
};
