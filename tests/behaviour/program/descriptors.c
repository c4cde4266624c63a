/* Descriptors: closing, duplicating, flags. */
#include "case.h"
#include <linux/close_range.h>
#include <sys/ioctl.h>

static void a_closed_descriptor_is_bad(void) {
    unsigned char data[64];
    struct iovec part = {data, sizeof data};
    int fd = make_hot("f", 1, 2);
    EQUAL(close(fd), 0);
    FAILS(close(fd), EBADF);
    FAILS(read(fd, data, 1), EBADF);
    FAILS(pread(fd, data, 1, 0), EBADF);
    FAILS(readv(fd, &part, 1), EBADF);
    FAILS(preadv(fd, &part, 1, 0), EBADF);
    FAILS(write(fd, data, 1), EBADF);
    FAILS(pwrite(fd, data, 1, 0), EBADF);
    FAILS(writev(fd, &part, 1), EBADF);
    FAILS(pwritev(fd, &part, 1, 0), EBADF);
    FAILS(lseek(fd, 0, SEEK_CUR), EBADF);
    FAILS(ftruncate(fd, 0), EBADF);
    FAILS(fsync(fd), EBADF);
    FAILS(fdatasync(fd), EBADF);
    FAILS(fallocate(fd, 0, 0, 1), EBADF);
    FAILS(dup(fd), EBADF);
    FAILS(fcntl(fd, F_GETFL), EBADF);
    FAILS(read(-1, data, 1), EBADF);
    FAILS(write(INT_MAX, data, 1), EBADF);
    FILE_IS("f", 1, 2 * PAGE);
}

static void close_range_closes(void) {
    int a = make_hot("a", 1, 1), b = make_hot("b", 2, 1), c = make_hot("c", 3, 1);
    CHECK(a < b && b < c);
    EQUAL(close_range((unsigned)b, (unsigned)b, CLOSE_RANGE_CLOEXEC), 0);
    heat_reads(b, 2, 0, PAGE);
    EQUAL(fcntl(b, F_GETFD), FD_CLOEXEC);
    EQUAL(close_range((unsigned)b, ~0U, 0), 0);
    heat_reads(a, 1, 0, PAGE);
    char byte;
    FAILS(pread(b, &byte, 1, 0), EBADF);
    FAILS(pread(c, &byte, 1, 0), EBADF);
    EQUAL(make("d", 4, PAGE), b);
    heat_reads(b, 4, 0, PAGE);
    closefrom(a);
    FAILS(pread(a, &byte, 1, 0), EBADF);
    FAILS(pread(b, &byte, 1, 0), EBADF);
    EQUAL(make("e", 5, PAGE), a);
    heat_reads(a, 5, 0, PAGE);
}

/* Whoever closes everything from 3 on gets 3 next, and the library still works. */
static void the_lowest_number_is_given(void) {
    char byte;
    EQUAL(close_range(3, ~0U, 0), 0);
    EQUAL(make_hot("a", 1, 1), 3);
    EQUAL(make_hot("b", 2, 1), 4);
    EQUAL(make_hot("c", 3, 1), 5);
    EQUAL(close(4), 0);
    FAILS(read(4, &byte, 1), EBADF);
    EQUAL(make_hot("d", 4, 1), 4);
    heat_reads(3, 1, 0, PAGE);
    heat_reads(4, 4, 0, PAGE);
    heat_reads(5, 3, 0, PAGE);
    EQUAL(dup(0), 6);
}

static void closing_everything_one_by_one(void) {
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    EQUAL(make_hot("a", 1, 2), 3);
    heat_reads(3, 1, 0, 2 * PAGE);
}

static void open_files_are_limited_by_the_program_alone(void) {
    EQUAL(close_range(3, ~0U, 0), 0);
    struct rlimit limit = {20, 20};
    EQUAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EQUAL(make_hot("f", 1, 2), 3);
    for (int fd = 4; fd < 20; fd++)
        EQUAL(open(path("f"), O_RDWR), fd);
    FAILS(open(path("f"), O_RDWR), EMFILE);
    FAILS(dup(3), EMFILE);
    for (int fd = 3; fd < 20; fd++)
        heat_reads(fd, 1, 0, 2 * PAGE);
}

/* A copy of the descriptor made by `copy` stands where the first does, whoever moves. */
static void shares_its_position(int first, int second) {
    unsigned char data[100];
    EQUAL(lseek(first, 0, SEEK_CUR), 100);
    EQUAL(lseek(second, 0, SEEK_CUR), 100);
    EQUAL(read(second, data, 100), 100);
    DATA(data, 1, 100, 100);
    EQUAL(read(first, data, 100), 100);
    DATA(data, 1, 200, 100);
    EQUAL(lseek(second, 0, SEEK_CUR), 300);
    EQUAL(lseek(second, 1000, SEEK_SET), 1000);
    EQUAL(read(first, data, 100), 100);
    DATA(data, 1, 1000, 100);
    EQUAL(write(second, data, 0), 0);
    fill(data, 1, 1100, 100);
    EQUAL(write(first, data, 100), 100);
    EQUAL(lseek(second, 0, SEEK_CUR), 1200);
    EQUAL(close(first), 0);
    EQUAL(read(second, data, 100), 100);
    DATA(data, 1, 1200, 100);
    heat_reads(second, 1, 0, 2 * PAGE);
    EQUAL(lseek(second, 0, SEEK_CUR), 1300);
    EQUAL(close(second), 0);
}

static int hot_at_100(void) {
    unsigned char data[100];
    int fd = make_hot("f", 1, 2);
    EQUAL(read(fd, data, sizeof data), sizeof data);
    DATA(data, 1, 0, sizeof data);
    return fd;
}

static void duplicates_share_the_position(void) {
    int fd = hot_at_100();
    shares_its_position(fd, dup(fd));
    fd = hot_at_100();
    shares_its_position(fd, dup2(fd, 40));
    fd = hot_at_100();
    shares_its_position(fd, dup3(fd, 41, O_CLOEXEC));
    fd = hot_at_100();
    shares_its_position(fd, fcntl(fd, F_DUPFD, 50));
    fd = hot_at_100();
    shares_its_position(fd, fcntl(fd, F_DUPFD_CLOEXEC, 50));
    fd = hot_at_100();
    shares_its_position(dup(fd), fd);
    fd = hot_at_100();
    shares_its_position(fd, (int)syscall(SYS_dup, fd));
    FILE_IS("f", 1, 2 * PAGE);
}

static void two_opens_have_two_positions(void) {
    unsigned char data[100];
    int one = hot_at_100(), two = open(path("f"), O_RDWR);
    heat_reads(two, 1, 0, 2 * PAGE);
    EQUAL(lseek(two, 0, SEEK_CUR), 0);
    EQUAL(read(two, data, 50), 50);
    EQUAL(read(one, data, 100), 100);
    DATA(data, 1, 100, 100);
    EQUAL(lseek(two, 0, SEEK_CUR), 50);
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", one);
    int three = open(name, O_RDONLY);
    EQUAL(read(three, data, 100), 100);
    DATA(data, 1, 0, 100);
    EQUAL(lseek(one, 0, SEEK_CUR), 200);
}

static void dup2_replaces_what_was_there(void) {
    unsigned char data[100];
    int a = make_hot("a", 1, 2), b = make_hot("b", 2, 2);
    EQUAL(lseek(a, 500, SEEK_SET), 500);
    EQUAL(lseek(b, 700, SEEK_SET), 700);
    EQUAL(dup2(a, b), b);
    EQUAL(read(b, data, 100), 100);
    DATA(data, 1, 500, 100);
    heat_reads(b, 1, 0, 2 * PAGE);
    EQUAL(dup2(b, b), b);
    FAILS(dup3(b, b, 0), EINVAL);
    FAILS(dup2(999, b), EBADF);
    heat_reads(b, 1, 0, 2 * PAGE);
    FAILS(dup2(a, -1), EBADF);
    EQUAL(dup2(open("/dev/zero", O_RDONLY), a), a);
    EQUAL(read(a, data, 100), 100);
    ZEROS(data, 100);
    EQUAL(read(b, data, 100), 100);
    DATA(data, 1, 600, 100);
    FILE_IS("b", 2, 2 * PAGE);
}

static void flags_are_the_kernels(void) {
    int fd = make_hot("f", 1, 1);
    EQUAL(fcntl(fd, F_GETFL) & ~O_LARGEFILE & ~0100000, O_RDWR);
    EQUAL(fcntl(fd, F_GETFD), 0);
    EQUAL(fcntl(fd, F_SETFD, FD_CLOEXEC), 0);
    EQUAL(fcntl(fd, F_GETFD), FD_CLOEXEC);
    EQUAL(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    EQUAL(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    heat_reads(fd, 1, 0, PAGE);
    heat_writes(fd, 1, 0, PAGE);
    FAILS(fcntl(fd, 9999), EINVAL);
}

static void append_can_be_switched(void) {
    unsigned char data[100];
    int fd = make_hot("f", 1, 2), copy = dup(fd);
    EQUAL(lseek(fd, 100, SEEK_SET), 100);
    EQUAL(fcntl(copy, F_SETFL, O_APPEND), 0);
    fill(data, 1, 2 * PAGE, 100);
    EQUAL(write(fd, data, 100), 100);
    EQUAL(lseek(fd, 0, SEEK_CUR), 2 * PAGE + 100);
    FILE_IS("f", 1, 2 * PAGE + 100);
    EQUAL(fcntl(fd, F_SETFL, 0), 0);
    EQUAL(lseek(fd, 200, SEEK_SET), 200);
    fill(data, 1, 200, 100);
    EQUAL(write(fd, data, 100), 100);
    EQUAL(lseek(copy, 0, SEEK_CUR), 300);
    int nonblocking = 1;
    EQUAL(ioctl(fd, FIONBIO, &nonblocking), 0);
    FILE_IS("f", 1, 2 * PAGE + 100);
}

static void append_ignores_offsets(void) {
    unsigned char data[100];
    EQUAL(close(make_hot("f", 1, 1)), 0);
    int fd = open(path("f"), O_RDWR | O_APPEND);
    heat_reads(fd, 1, 0, PAGE);
    EQUAL(lseek(fd, 10, SEEK_SET), 10);
    for (int i = 0; i < 100; i++) {
        off_t end = PAGE + i * 200;
        fill(data, 1, end, 100);
        EQUAL(write(fd, data, 100), 100);
        EQUAL(lseek(fd, 0, SEEK_CUR), end + 100);
        fill(data, 1, end + 100, 100);
        EQUAL(pwrite(fd, data, 100, 0), 100);
        EQUAL(lseek(fd, 0, SEEK_CUR), end + 100);
    }
    FILE_IS("f", 1, PAGE + 100 * 200);
    EQUAL(lseek(fd, 10, SEEK_SET), 10);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 10, 100);
}

static void bytes_to_read_follow_the_position(void) {
    unsigned char data[1000];
    int fd = make_hot("f", 1, 2), left = -1;
    EQUAL(read(fd, data, sizeof data), sizeof data);
    EQUAL(ioctl(fd, FIONREAD, &left), 0);
    EQUAL(left, 2 * PAGE - 1000);
}

const struct test_case descriptor_cases[] = {
    {"descriptors/a_closed_descriptor_is_bad", a_closed_descriptor_is_bad, READS},
    {"descriptors/close_range_closes", close_range_closes, READS},
    {"descriptors/the_lowest_number_is_given", the_lowest_number_is_given, READS},
    {"descriptors/closing_everything_one_by_one", closing_everything_one_by_one, READS},
    {"descriptors/open_files_are_limited_by_the_program_alone", open_files_are_limited_by_the_program_alone,
     READS},
    {"descriptors/duplicates_share_the_position", duplicates_share_the_position, READS},
    {"descriptors/two_opens_have_two_positions", two_opens_have_two_positions, READS},
    {"descriptors/dup2_replaces_what_was_there", dup2_replaces_what_was_there, READS},
    {"descriptors/flags_are_the_kernels", flags_are_the_kernels, READS},
    {"descriptors/append_can_be_switched", append_can_be_switched, READS},
    {"descriptors/append_ignores_offsets", append_ignores_offsets, READS},
    {"descriptors/bytes_to_read_follow_the_position", bytes_to_read_follow_the_position, READS},
    {0},
};
