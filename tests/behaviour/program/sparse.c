/* Sparse files: holes read as zeros and stay holes. */
#include "case.h"

enum { SIZE = 64 * PAGE };
static unsigned char data[4 * PAGE];

/* The first and the last page have data, the rest is a hole. */
static int make_sparse(void) {
    int fd = make("f", 1, PAGE);
    fill(data, 1, SIZE - PAGE, PAGE);
    EQUAL(pwrite(fd, data, PAGE, SIZE - PAGE), PAGE);
    EQUAL(fsync(fd), 0);
    return fd;
}

static void reading_holes_allocates_nothing(void) {
    int fd = make_sparse();
    long before = blocks_of(fd);
    for (int round = 0; round < 60; round++) {
        for (off_t at = PAGE; at < SIZE - PAGE; at += 3 * PAGE) {
            memset(data, 1, 512);
            EQUAL(pread(fd, data, 512, at + round * 10), 512);
            ZEROS(data, 512);
        }
        EQUAL(lseek(fd, 5 * PAGE, SEEK_SET), 5 * PAGE);
        EQUAL(read(fd, data, 3 * PAGE), 3 * PAGE);
        ZEROS(data, 3 * PAGE);
    }
    heat_reads(fd, 1, 0, PAGE);
    heat_reads(fd, 1, SIZE - PAGE, PAGE);
    EQUAL(blocks_of(fd), before);
    EQUAL(lseek(fd, PAGE, SEEK_DATA), SIZE - PAGE);
}

static void reading_across_the_edge_of_a_hole(void) {
    int fd = make_sparse();
    long before = blocks_of(fd);
    heat_reads(fd, 1, 0, PAGE);
    for (int round = 0; round < 100; round++) {
        EQUAL(pread(fd, data, 1000, PAGE - 500), 1000);
        DATA(data, 1, PAGE - 500, 500);
        ZEROS(data + 500, 500);
        EQUAL(pread(fd, data, 1000, SIZE - PAGE - 500), 1000);
        ZEROS(data, 500);
        DATA(data + 500, 1, SIZE - PAGE, 500);
    }
    EQUAL(blocks_of(fd), before);
}

static void a_file_that_is_all_hole(void) {
    int fd = open(path("f"), O_RDWR | O_CREAT, 0600);
    EQUAL(ftruncate(fd, SIZE), 0);
    long before = blocks_of(fd);
    for (int round = 0; round < 200; round++) {
        EQUAL(pread(fd, data, 512, (round % 64) * PAGE), 512);
        ZEROS(data, 512);
        EQUAL(pread(fd, data, 512, 7 * PAGE), 512);
    }
    EQUAL(blocks_of(fd), before);
    EQUAL(lseek(fd, 0, SEEK_HOLE), 0);
    FAILS(lseek(fd, 0, SEEK_DATA), ENXIO);
}

static void writing_into_a_hole_allocates_only_there(void) {
    int fd = make_sparse();
    for (int i = 0; i < 64; i++)
        EQUAL(pread(fd, data, 512, 10 * PAGE), 512);
    fill(data, 1, 10 * PAGE, 300);
    EQUAL(pwrite(fd, data, 300, 10 * PAGE), 300);
    EQUAL(fsync(fd), 0);
    EQUAL(lseek(fd, PAGE, SEEK_DATA), 10 * PAGE);
    EQUAL(lseek(fd, 10 * PAGE, SEEK_HOLE), 11 * PAGE);
    for (int i = 0; i < 64; i++) {
        EQUAL(pread(fd, data, 600, 10 * PAGE - 100), 600);
        ZEROS(data, 100);
        DATA(data + 100, 1, 10 * PAGE, 300);
        ZEROS(data + 400, 200);
    }
    EQUAL(lseek(fd, PAGE, SEEK_DATA), 10 * PAGE);
}

/* Pages `first` to `last` of a file of 64 hot pages are a hole: reading them many times leaves it one. */
static void stays_a_hole(int fd, int first, int last) {
    EQUAL(fsync(fd), 0);
    long before = blocks_of(fd);
    for (int round = 0; round < 60; round++)
        for (off_t at = first * PAGE; at < last * PAGE; at += 5 * PAGE) {
            EQUAL(pread(fd, data, 512, at + round), 512);
            ZEROS(data, 512);
            EQUAL(pread(fd, data, 512, at + PAGE - 100), 512);
            ZEROS(data, 512);
        }
    EQUAL(blocks_of(fd), before);
    EQUAL(lseek(fd, first * PAGE, SEEK_HOLE), first * PAGE);
}

static void a_hole_punched_through_another_descriptor(void) {
    int fd = make_hot("f", 1, 64), other = open(path("f"), O_RDWR);
    heat_reads(other, 1, 0, PAGE);
    EQUAL(fallocate(other, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8 * PAGE, 48 * PAGE), 0);
    stays_a_hole(fd, 8, 54);
}

static void a_hole_left_by_a_write_past_the_end(void) {
    int fd = make_hot("f", 1, 8);
    EQUAL(pwrite(fd, "x", 1, 100 * PAGE), 1);
    stays_a_hole(fd, 8, 98);
}

static void a_hole_left_by_another_descriptors_write(void) {
    int fd = make_hot("f", 1, 8), other = open(path("f"), O_WRONLY);
    EQUAL(pwrite(other, "x", 1, 100 * PAGE), 1);
    stays_a_hole(fd, 8, 98);
}

static void a_hole_left_by_growing(void) {
    int fd = make_hot("f", 1, 8), other = open(path("f"), O_RDWR);
    heat_reads(other, 1, 0, PAGE);
    EQUAL(ftruncate(fd, 4 * PAGE), 0);
    EQUAL(ftruncate(other, 100 * PAGE), 0);
    stays_a_hole(fd, 4, 98);
    EQUAL(truncate(path("f"), 2 * PAGE), 0);
    EQUAL(truncate(path("f"), 100 * PAGE), 0);
    stays_a_hole(fd, 2, 98);
}

static void a_hole_left_by_opening_anew(void) {
    for (int stream = 0; stream < 2; stream++) {
        int fd = make_hot("f", 1, 64);
        if (stream)
            EQUAL(fclose(fopen(path("f"), "w")), 0);
        else
            EQUAL(close(open(path("f"), O_WRONLY | O_TRUNC)), 0);
        EQUAL(pwrite(fd, "x", 1, 100 * PAGE), 1);
        stays_a_hole(fd, 0, 98);
        EQUAL(close(fd), 0);
    }
}

/* The descriptor that was used first is gone, and the file is cut by its name. */
static void a_hole_left_under_a_duplicate(void) {
    for (int unseen = 0; unseen < 2; unseen++) {
        int first = make_hot("f", 1, 64), fd = dup(first);
        EQUAL(unseen ? (int)KERNEL(SYS_close, (long)first) : close(first), 0);
        heat_reads(fd, 1, 0, 64 * PAGE);
        EQUAL(truncate(path("f"), 2 * PAGE), 0);
        EQUAL(truncate(path("f"), 100 * PAGE), 0);
        stays_a_hole(fd, 2, 98);
        EQUAL(close(fd), 0);
    }
}

static void a_terabyte_of_hole(void) {
    const off_t terabyte = 1L << 40;
    int fd = open(path("f"), O_RDWR | O_CREAT, 0600);
    EQUAL(ftruncate(fd, terabyte), 0);
    enum { PLACES = 64 };
    for (int place = 0; place < PLACES; place++) {
        off_t at = terabyte / PLACES * place + 123;
        fill(data, 1, at, 2 * PAGE);
        EQUAL(pwrite(fd, data, 2 * PAGE, at), 2 * PAGE);
    }
    EQUAL(fsync(fd), 0);
    long before = blocks_of(fd);
    for (int round = 0; round < 60; round++)
        for (int place = 0; place < PLACES; place++) {
            off_t at = terabyte / PLACES * place + 123 + round * 50;
            EQUAL(pread(fd, data, 512, at), 512);
            DATA(data, 1, at, 512);
            EQUAL(pwrite(fd, data, 512, at), 512);
            EQUAL(pread(fd, data, 512, at + (1L << 30)), 512);
            ZEROS(data, 512);
        }
    EQUAL(pread(fd, data, 512, terabyte - 10), 10);
    EQUAL(lseek(fd, 0, SEEK_END), terabyte);
    EQUAL(blocks_of(fd), before);
}

const struct test_case sparse_cases[] = {
    {"sparse/reading_holes_allocates_nothing", reading_holes_allocates_nothing, READS},
    {"sparse/reading_across_the_edge_of_a_hole", reading_across_the_edge_of_a_hole, READS},
    {"sparse/a_file_that_is_all_hole", a_file_that_is_all_hole, ANY},
    {"sparse/writing_into_a_hole_allocates_only_there", writing_into_a_hole_allocates_only_there, ANY},
    {"sparse/a_hole_punched_through_another_descriptor", a_hole_punched_through_another_descriptor, READS},
    {"sparse/a_hole_left_by_a_write_past_the_end", a_hole_left_by_a_write_past_the_end, READS},
    {"sparse/a_hole_left_by_another_descriptors_write", a_hole_left_by_another_descriptors_write, READS},
    {"sparse/a_hole_left_by_growing", a_hole_left_by_growing, READS},
    {"sparse/a_hole_left_by_opening_anew", a_hole_left_by_opening_anew, READS},
    {"sparse/a_hole_left_under_a_duplicate", a_hole_left_under_a_duplicate, READS},
    {"sparse/a_terabyte_of_hole", a_terabyte_of_hole, ANY},
    {0},
};
