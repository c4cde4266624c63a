/* Offsets: read, write and lseek at the position of a hot file, and at its end. */
#include "case.h"

enum { PAGES = 4, SIZE = PAGES * PAGE };
static unsigned char data[SIZE + PAGE];

static void reads_and_writes_advance(void) {
    int fd = make_hot("f", 1, PAGES);
    off_t at = 0;
    for (int i = 0; i < 400; i++) {
        size_t length = (size_t)(i * 37 % 300 + 1);
        if (at + (off_t)length > SIZE)
            at = lseek(fd, i, SEEK_SET);
        if (i % 3 == 0) {
            fill(data, 1, at, length);
            EQUAL(write(fd, data, length), length);
        } else {
            EQUAL(read(fd, data, length), length);
            DATA(data, 1, at, length);
        }
        at += (off_t)length;
        if (i % 5 == 0)
            EQUAL(lseek(fd, 0, SEEK_CUR), at);
    }
    FILE_IS("f", 1, SIZE);
}

static void seeks_from_everywhere(void) {
    int fd = make_hot("f", 1, PAGES);
    EQUAL(lseek(fd, 100, SEEK_SET), 100);
    EQUAL(lseek(fd, 50, SEEK_CUR), 150);
    EQUAL(lseek(fd, -150, SEEK_CUR), 0);
    EQUAL(lseek64(fd, -1, SEEK_END), SIZE - 1);
    EQUAL(read(fd, data, 100), 1);
    DATA(data, 1, SIZE - 1, 1);
    EQUAL(read(fd, data, 100), 0);
    EQUAL(lseek(fd, 0, SEEK_CUR), SIZE);
    EQUAL(lseek(fd, 1000, SEEK_END), SIZE + 1000);
    EQUAL(read(fd, data, 100), 0);
    EQUAL(lseek(fd, 0, SEEK_CUR), SIZE + 1000);
    EQUAL(lseek(fd, 7, SEEK_SET), 7);
    FAILS(lseek(fd, -8, SEEK_CUR), EINVAL);
    FAILS(lseek(fd, -1, SEEK_SET), EINVAL);
    FAILS(lseek(fd, -SIZE - 1, SEEK_END), EINVAL);
    FAILS(lseek(fd, 0, 99), EINVAL);
    FAILS(lseek(fd, LONG_MAX, SEEK_CUR), EINVAL);
    EQUAL(lseek(fd, 0, SEEK_CUR), 7);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 7, 100);
}

static void seeks_to_data_and_holes(void) {
    int fd = make("f", 1, 2 * PAGE);
    fill(data, 1, 64 * PAGE, PAGE);
    EQUAL(pwrite(fd, data, PAGE, 64 * PAGE), PAGE);
    EQUAL(ftruncate(fd, 100 * PAGE), 0);
    heat_reads(fd, 1, 0, 2 * PAGE);
    heat_reads(fd, 1, 64 * PAGE, PAGE);
    heat_writes(fd, 1, 0, 2 * PAGE);
    EQUAL(lseek(fd, 0, SEEK_DATA), 0);
    EQUAL(lseek(fd, 10, SEEK_DATA), 10);
    EQUAL(lseek(fd, 10, SEEK_HOLE), 2 * PAGE);
    EQUAL(lseek(fd, 0, SEEK_CUR), 2 * PAGE);
    EQUAL(lseek(fd, 2 * PAGE, SEEK_DATA), 64 * PAGE);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 64 * PAGE, 100);
    EQUAL(lseek(fd, 64 * PAGE, SEEK_HOLE), 65 * PAGE);
    FAILS(lseek(fd, 65 * PAGE, SEEK_DATA), ENXIO);
    FAILS(lseek(fd, 100 * PAGE, SEEK_HOLE), ENXIO);
    EQUAL(lseek(fd, 0, SEEK_CUR), 65 * PAGE);
}

static void positional_calls_leave_the_position(void) {
    int fd = make_hot("f", 1, PAGES);
    EQUAL(lseek(fd, 33, SEEK_SET), 33);
    for (int i = 0; i < 100; i++) {
        EQUAL(pread(fd, data, 100, i * 100), 100);
        DATA(data, 1, i * 100, 100);
        EQUAL(pwrite(fd, data, 100, i * 100), 100);
        EQUAL(lseek(fd, 0, SEEK_CUR), 33);
    }
    FAILS(pread(fd, data, 1, -1), EINVAL);
    FAILS(pwrite(fd, data, 1, -1), EINVAL);
    FAILS(pread64(fd, data, 0, -1), EINVAL);
    EQUAL(pread64(fd, data, 1, LONG_MAX - 1), 0);
    FAILS(pread64(fd, data, 1, LONG_MAX), EINVAL);
    EQUAL(pread(fd, data, 10, SIZE), 0);
    EQUAL(pread(fd, data, 10, SIZE - 3), 3);
    EQUAL(read(fd, data, 10), 10);
    DATA(data, 1, 33, 10);
}

/* Requests that end at, straddle and lie past the end, of every alignment. */
static void reads_stop_at_the_end(void) {
    int fd = make("f", 1, 2 * PAGE + 123);
    heat_reads(fd, 1, 0, 2 * PAGE);
    for (int round = 0; round < 20; round++)
        for (off_t from_end = -200; from_end < 100; from_end += 7) {
            off_t at = 2 * PAGE + 123 + from_end;
            long want = from_end >= 0 ? 0 : from_end < -150 ? 150 : -from_end;
            memset(data, 0xEE, 200);
            EQUAL(pread(fd, data, 150, at), want);
            DATA(data, 1, at, (size_t)want);
            EQUAL(data[want], 0xEE);
            EQUAL(lseek(fd, at, SEEK_SET), at);
            EQUAL(read(fd, data, 150), want);
            EQUAL(lseek(fd, 0, SEEK_CUR), at + want);
        }
}

static void zero_lengths_do_nothing(void) {
    int fd = make_hot("f", 1, 2);
    void *bad = (void *)unknown(16);
    EQUAL(lseek(fd, 9, SEEK_SET), 9);
    EQUAL(read(fd, bad, 0), 0);
    EQUAL(write(fd, bad, 0), 0);
    EQUAL(pread(fd, bad, 0, 5), 0);
    EQUAL(pwrite(fd, bad, 0, 5), 0);
    EQUAL(pwrite(fd, bad, 0, 5 * PAGE), 0);
    EQUAL(lseek(fd, 0, SEEK_CUR), 9);
    FILE_IS("f", 1, 2 * PAGE);
}

static void counts_have_a_limit(void) {
    int fd = make_hot("f", 1, 2);
    EQUAL(read(fd, data, unknown(2 * PAGE)), 2 * PAGE);
    long both[2];
    ssize_t (*volatile reads)(int, void *, size_t) = read;
    ssize_t (*volatile writes)(int, const void *, size_t) = write;
    EQUAL(lseek(fd, 0, SEEK_SET), 0);
    both[0] = reads(fd, data, unknown((size_t)-1)) < 0 ? errno : 0;
    both[1] = -KERNEL(SYS_read, (long)fd, (long)data, -1L);
    EQUAL(both[0], both[1]);
    both[0] = writes(fd, data, unknown((size_t)-1)) < 0 ? errno : 0;
    both[1] = -KERNEL(SYS_write, (long)fd, (long)data, -1L);
    EQUAL(both[0], both[1]);
    FILE_IS("f", 1, 2 * PAGE);
}

static void errno_is_left_alone(void) {
    int fd = make_hot("f", 1, 2);
    for (int i = 0; i < 200; i++) {
        errno = 77;
        EQUAL(pread(fd, data, 100, i), 100);
        EQUAL(errno, 77);
        EQUAL(pwrite(fd, data, 100, i), 100);
        EQUAL(errno, 77);
        EQUAL(lseek(fd, 0, SEEK_CUR), 0);
        EQUAL(errno, 77);
    }
    errno = 77;
    close(open(path("f"), O_RDWR));
    EQUAL(errno, 77);
}

/* tail -f: what others append is there at once, also past an end that was hot. */
static void growth_by_others_is_seen(void) {
    int fd = make_hot("f", 1, 2);
    long other = KERNEL(SYS_open, (long)path("f"), (long)O_WRONLY);
    EQUAL(lseek(fd, 0, SEEK_END), 2 * PAGE);
    for (int i = 0; i < 200; i++) {
        off_t end = 2 * PAGE + i * 50;
        EQUAL(read(fd, data, 100), 0);
        EQUAL(pread(fd, data, 100, end - 10), 10);
        fill(data, 1, end, 50);
        EQUAL(KERNEL(SYS_pwrite64, other, (long)data, 50L, (long)end), 50);
        memset(data, 0, 100);
        EQUAL(pread(fd, data, 100, end - 10), 60);
        DATA(data, 1, end - 10, 60);
        EQUAL(read(fd, data, 100), 50);
        DATA(data, 1, end, 50);
        EQUAL(lseek(fd, 0, SEEK_END), end + 50);
    }
}

/* What is appended is part of the file for everybody when the call returns, and no byte more. */
static void own_growth_is_seen_by_others(void) {
    int fd = make_hot("f", 1, 1), other = (int)KERNEL(SYS_open, (long)path("f"), (long)O_RDONLY);
    EQUAL(lseek(fd, 0, SEEK_END), PAGE);
    for (int i = 0; i < 300; i++) {
        off_t end = PAGE + i * 100;
        fill(data, 1, end, 100);
        if (i % 2)
            EQUAL(write(fd, data, 100), 100);
        else
            EQUAL(pwrite(fd, data, 100, end), 100);
        EQUAL(lseek(fd, end + 100, SEEK_SET), end + 100);
        EQUAL(size_of(other), end + 100);
        EQUAL(KERNEL(SYS_pread64, (long)other, (long)data, 200L, (long)end), 100);
        DATA(data, 1, end, 100);
    }
    FILE_IS("f", 1, PAGE + 300 * 100);
}

static void a_write_across_the_end_grows_exactly(void) {
    int fd = make("f", 1, 2 * PAGE - 50);
    heat_reads(fd, 1, 0, PAGE);
    heat_writes(fd, 1, 0, PAGE);
    fill(data, 1, 2 * PAGE - 100, 200);
    EQUAL(pwrite(fd, data, 200, 2 * PAGE - 100), 200);
    EQUAL(size_of(fd), 2 * PAGE + 100);
    FILE_IS("f", 1, 2 * PAGE + 100);
    EQUAL(pwrite(fd, "x", 1, 3 * PAGE), 1);
    EQUAL(pread(fd, data, SIZE, 2 * PAGE + 100), PAGE - 100 + 1);
    ZEROS(data, PAGE - 100);
}

/* The kernel's position is right whenever somebody asks it without the library. */
static void syscall_function_sees_the_position(void) {
    int fd = make_hot("f", 1, 2);
    EQUAL(read(fd, data, 100), 100);
    EQUAL(syscall(SYS_lseek, fd, 0L, SEEK_CUR), 100);
    EQUAL(syscall(SYS_read, fd, data, 100), 100);
    DATA(data, 1, 100, 100);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 200, 100);
    EQUAL(syscall(SYS_lseek, fd, 1000L, SEEK_SET), 1000);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 1000, 100);
    EQUAL(syscall(SYS_write, fd, "abc", 3), 3);
    EQUAL(pread(fd, data, 3, 1100), 3);
    EQUAL(memcmp(data, "abc", 3), 0);
    EQUAL(lseek(fd, 0, SEEK_CUR), 1103);
}

const struct test_case offset_cases[] = {
    {"offsets/reads_and_writes_advance", reads_and_writes_advance, READS | WRITES},
    {"offsets/seeks_from_everywhere", seeks_from_everywhere, READS},
    {"offsets/seeks_to_data_and_holes", seeks_to_data_and_holes, READS},
    {"offsets/positional_calls_leave_the_position", positional_calls_leave_the_position, READS | WRITES},
    {"offsets/reads_stop_at_the_end", reads_stop_at_the_end, READS},
    {"offsets/zero_lengths_do_nothing", zero_lengths_do_nothing, READS},
    {"offsets/counts_have_a_limit", counts_have_a_limit, READS},
    {"offsets/errno_is_left_alone", errno_is_left_alone, READS | WRITES},
    {"offsets/growth_by_others_is_seen", growth_by_others_is_seen, READS},
    {"offsets/own_growth_is_seen_by_others", own_growth_is_seen_by_others, READS},
    {"offsets/a_write_across_the_end_grows_exactly", a_write_across_the_end_grows_exactly, READS},
    {"offsets/syscall_function_sees_the_position", syscall_function_sees_the_position, READS},
    {0},
};
