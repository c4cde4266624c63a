/* Sizes: ftruncate, truncate, fallocate and the sync calls on hot files. */
#include "case.h"

enum { SIZE = 8 * PAGE };
static unsigned char data[SIZE];

static void truncation_is_seen_at_once(void) {
    int fd = make_hot("f", 1, 8), other = open(path("f"), O_RDWR);
    heat_reads(other, 1, 0, SIZE);
    for (off_t size = SIZE - 1; size > 0; size -= 777) {
        EQUAL(ftruncate(size % 2 ? fd : other, size), 0);
        for (int twice = 0; twice < 2; twice++) {
            int reader = twice ? fd : other;
            long want = size < 50 ? size : 50;
            EQUAL(pread(reader, data, 200, size - want), want);
            DATA(data, 1, size - want, (size_t)want);
            EQUAL(pread(reader, data, 200, size), 0);
            EQUAL(pread(reader, data, 200, size + 5000), 0);
            EQUAL(lseek(reader, 0, SEEK_END), size);
        }
    }
}

static void truncation_by_name(void) {
    int fd = make_hot("f", 1, 8);
    EQUAL(truncate(path("f"), 3 * PAGE + 10), 0);
    EQUAL(pread(fd, data, 100, 3 * PAGE), 10);
    EQUAL(truncate64(path("f"), 5 * PAGE), 0);
    EQUAL(pread(fd, data, 2 * PAGE, 3 * PAGE), 2 * PAGE);
    DATA(data, 1, 3 * PAGE, 10);
    ZEROS(data + 10, 2 * PAGE - 10);
    FAILS(truncate(path("absent"), 0), ENOENT);
    FAILS(truncate(path("f"), -1), EINVAL);
    FAILS(ftruncate(fd, -1), EINVAL);
    FAILS(ftruncate(open(path("f"), O_RDONLY), 0), EINVAL);
}

/* What lay beyond a cut is zero when the file grows again, also within the page. */
static void regrown_bytes_are_zero(void) {
    int fd = make_hot("f", 1, 8);
    for (int i = 0; i < 50; i++) {
        off_t cut = 2 * PAGE + i * 67;
        fill(data, 1, 0, SIZE);
        EQUAL(pwrite(fd, data + PAGE, SIZE - PAGE, PAGE), SIZE - PAGE);
        heat_reads(fd, 1, 2 * PAGE, PAGE);
        EQUAL(ftruncate(fd, cut), 0);
        EQUAL(ftruncate64(fd, SIZE), 0);
        EQUAL(pread(fd, data, SIZE, 0), SIZE);
        DATA(data, 1, 0, (size_t)cut);
        ZEROS(data + cut, (size_t)(SIZE - cut));
    }
}

static void writes_after_a_cut_grow_again(void) {
    int fd = make_hot("f", 1, 8);
    EQUAL(ftruncate(fd, 100), 0);
    fill(data, 1, 50, 100);
    EQUAL(pwrite(fd, data, 100, 50), 100);
    FILE_IS("f", 1, 150);
    EQUAL(lseek(fd, 0, SEEK_END), 150);
    fill(data, 1, 150, 100);
    EQUAL(write(fd, data, 100), 100);
    FILE_IS("f", 1, 250);
}

static void allocation_grows_or_keeps_the_size(void) {
    int fd = make_hot("f", 1, 4);
    EQUAL(fallocate(fd, FALLOC_FL_KEEP_SIZE, 4 * PAGE, 4 * PAGE), 0);
    EQUAL(pread(fd, data, 100, 4 * PAGE), 0);
    EQUAL(lseek(fd, 0, SEEK_END), 4 * PAGE);
    EQUAL(fallocate64(fd, 0, 4 * PAGE, PAGE + 5), 0);
    EQUAL(pread(fd, data, SIZE, 4 * PAGE), PAGE + 5);
    ZEROS(data, PAGE + 5);
    EQUAL(lseek(fd, 0, SEEK_END), 5 * PAGE + 5);
    EQUAL(posix_fallocate(fd, 0, 6 * PAGE), 0);
    EQUAL(posix_fallocate64(fd, 0, 7 * PAGE), 0);
    EQUAL(pread(fd, data, SIZE, 4 * PAGE), 3 * PAGE);
    FAILS(fallocate(fd, 0, -1, 5), EINVAL);
    heat_reads(fd, 1, 0, 4 * PAGE);
    heat_writes(fd, 1, 0, 4 * PAGE);
}

static void punched_holes_read_as_zero(void) {
    int fd = make_hot("f", 1, 8);
    long before = blocks_of(fd);
    EQUAL(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * PAGE, 4 * PAGE), 0);
    CHECK(blocks_of(fd) < before);
    long after = blocks_of(fd);
    for (int i = 0; i < 100; i++) {
        EQUAL(pread(fd, data, 300, 2 * PAGE - 100), 300);
        DATA(data, 1, 2 * PAGE - 100, 100);
        ZEROS(data + 100, 200);
    }
    EQUAL(blocks_of(fd), after);
    fill(data, 1, 3 * PAGE, 100);
    EQUAL(pwrite(fd, data, 100, 3 * PAGE), 100);
    EQUAL(pread(fd, data, 200, 3 * PAGE), 200);
    DATA(data, 1, 3 * PAGE, 100);
    ZEROS(data + 100, 100);
    EQUAL(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 50), 0);
    EQUAL(pread(fd, data, 200, 0), 200);
    ZEROS(data + 100, 50);
    DATA(data + 150, 1, 150, 50);
}

static void ranges_are_zeroed_collapsed_and_inserted(void) {
    int fd = make_hot("f", 1, 8);
    if (fallocate(fd, FALLOC_FL_ZERO_RANGE, PAGE, PAGE) < 0 && errno == EOPNOTSUPP)
        skip("this file system has no FALLOC_FL_ZERO_RANGE");
    EQUAL(pread(fd, data, 3 * PAGE, 0), 3 * PAGE);
    DATA(data, 1, 0, PAGE);
    ZEROS(data + PAGE, PAGE);
    DATA(data + 2 * PAGE, 1, 2 * PAGE, PAGE);
    EQUAL(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 2 * PAGE), 0);
    for (int i = 0; i < 50; i++) {
        EQUAL(pread(fd, data, 100, PAGE), 100);
        DATA(data, 1, 3 * PAGE, 100);
        EQUAL(pread(fd, data, PAGE, 6 * PAGE - 10), 10);
    }
    EQUAL(fallocate(fd, FALLOC_FL_INSERT_RANGE, PAGE, PAGE), 0);
    EQUAL(pread(fd, data, 3 * PAGE, 0), 3 * PAGE);
    DATA(data, 1, 2 * PAGE, PAGE);
    ZEROS(data + PAGE, PAGE);
    DATA(data + 2 * PAGE, 1, 3 * PAGE, PAGE);
}

static void sync_calls_succeed(void) {
    int fd = make_hot("f", 1, 4);
    for (int i = 0; i < 5; i++) {
        heat_writes(fd, 1, 0, PAGE);
        EQUAL(fsync(fd), 0);
        heat_writes(fd, 1, 0, PAGE);
        EQUAL(fdatasync(fd), 0);
        heat_writes(fd, 1, 0, PAGE);
        EQUAL(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER), 0);
        EQUAL(lseek(fd, 0, SEEK_CUR), 0);
    }
    int ends[2];
    EQUAL(pipe(ends), 0);
    FAILS(fsync(ends[0]), EINVAL);
    FAILS(sync_file_range(ends[0], 0, 0, 0), ESPIPE);
    FILE_IS("f", 1, 4 * PAGE);
}

/* A process that cuts and regrows in lock-step, by plain system calls. */
static void others_cut_and_regrow(void) {
    int fd = make_hot("f", 1, 8);
    long other = KERNEL(SYS_open, (long)path("f"), (long)O_RDWR);
    static const off_t sizes[] = {SIZE, 4 * PAGE, 3 * PAGE + 100, 3 * PAGE + 99, 1, 0, 5, 7 * PAGE - 1, SIZE};
    for (size_t i = 0; i < 5 * sizeof sizes / sizeof *sizes; i++) {
        off_t size = sizes[i % (sizeof sizes / sizeof *sizes)];
        EQUAL(KERNEL(SYS_ftruncate, other, (long)size), 0);
        for (off_t at = 0; at < SIZE; at += PAGE / 2) {
            long want = size - at < 0 ? 0 : size - at > 300 ? 300 : size - at;
            EQUAL(pread(fd, data, 300, at), want);
            EQUAL(lseek(fd, at, SEEK_SET), at);
            EQUAL(read(fd, data, 300), want);
            EQUAL(lseek(fd, 0, SEEK_CUR), at + want);
        }
        EQUAL(lseek(fd, 0, SEEK_END), size);
    }
}

/* An unlinked file that was opened twice is still resized by the other descriptor. */
static void an_unlinked_file_that_was_opened_twice(void) {
    int fd = make("f", 1, 0), other = open(path("f"), O_RDWR);
    EQUAL(unlink(path("f")), 0);
    fill(data, 1, 0, SIZE);
    EQUAL(write(fd, data, SIZE), SIZE);
    heat_reads(fd, 1, 0, SIZE);
    heat_reads(other, 1, 0, SIZE);
    heat_position(fd);
    fill(data, 1, SIZE, 100);
    EQUAL(pwrite(other, data, 100, SIZE), 100);
    EQUAL(lseek(fd, 0, SEEK_END), SIZE + 100);
    CHILD(EQUAL(KERNEL(SYS_ftruncate, (long)other, 3L * PAGE + 100), 0));
    for (int i = 0; i < 20; i++) {
        EQUAL(pread(fd, data, 300, 3 * PAGE), 100);
        EQUAL(pread(fd, data, 300, 5 * PAGE), 0);
        EQUAL(lseek(fd, 0, SEEK_END), 3 * PAGE + 100);
    }
}

/* A buffer larger than the file: as many bytes as there are, whatever becomes of the file. */
static void small_file_in_a_large_buffer(void) {
    enum { BYTES = 1000 };
    static unsigned char buffer[128 * 1024];
    int fd = make("f", 1, BYTES), other = open(path("f"), O_RDWR);
    struct iovec parts[3] = {{buffer, 300}, {buffer + 300, 600}, {buffer + 900, 5000}};
    for (int i = 0; i < 200; i++) {
        EQUAL(pread(fd, buffer, sizeof buffer, 0), BYTES);
        DATA(buffer, 1, 0, BYTES);
        EQUAL(pread(fd, buffer, PAGE, 400), BYTES - 400);
        DATA(buffer, 1, 400, BYTES - 400);
        EQUAL(preadv(fd, parts, 3, 0), BYTES);
        DATA(buffer, 1, 0, BYTES);
        EQUAL(pread(fd, buffer, PAGE, BYTES), 0);
    }
    EQUAL(KERNEL(SYS_ftruncate, (long)other, 500L), 0);
    EQUAL(pread(fd, buffer, sizeof buffer, 0), 500);
    EQUAL(pread(fd, buffer, PAGE, 400), 100);
    EQUAL(KERNEL(SYS_ftruncate, (long)other, 2000L), 0);
    EQUAL(pread(fd, buffer, sizeof buffer, 0), 2000);
    DATA(buffer, 1, 0, 500);
    for (int i = 500; i < 2000; i++)
        EQUAL(buffer[i], 0);
    EQUAL(pread(fd, buffer, PAGE, 1900), 100);
}

const struct test_case size_cases[] = {
    {"sizes/small_file_in_a_large_buffer", small_file_in_a_large_buffer, READS},
    {"sizes/truncation_is_seen_at_once", truncation_is_seen_at_once, READS},
    {"sizes/truncation_by_name", truncation_by_name, READS},
    {"sizes/regrown_bytes_are_zero", regrown_bytes_are_zero, READS},
    {"sizes/writes_after_a_cut_grow_again", writes_after_a_cut_grow_again, READS},
    {"sizes/allocation_grows_or_keeps_the_size", allocation_grows_or_keeps_the_size, READS},
    {"sizes/punched_holes_read_as_zero", punched_holes_read_as_zero, READS},
    {"sizes/ranges_are_zeroed_collapsed_and_inserted", ranges_are_zeroed_collapsed_and_inserted, READS},
    {"sizes/sync_calls_succeed", sync_calls_succeed, READS},
    {"sizes/an_unlinked_file_that_was_opened_twice", an_unlinked_file_that_was_opened_twice, READS},
    {"sizes/others_cut_and_regrow", others_cut_and_regrow, READS},
    {0},
};
