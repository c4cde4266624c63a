/* Vectors and variants: readv, preadv2 and their kin, fortified and double-underscore names. */
#include "case.h"

extern ssize_t __read_chk(int, void *, size_t, size_t), __pread_chk(int, void *, size_t, off_t, size_t);
extern ssize_t __pread64_chk(int, void *, size_t, off_t, size_t);
extern ssize_t __read(int, void *, size_t), __write(int, const void *, size_t);
extern off_t __lseek(int, off_t, int);
extern ssize_t __pread64(int, void *, size_t, off_t), __pwrite64(int, const void *, size_t, off_t);
extern int __open(const char *, int, ...), __open64(const char *, int, ...), __close(int);
extern int __dup2(int, int), __fcntl(int, int, ...);

static unsigned char data[4 * PAGE];

static void fortified_reads(void) {
    int fd = make_hot("f", 1, 2);
    char small[64];
    for (int i = 0; i < 50; i++) {
        EQUAL(lseek(fd, i, SEEK_SET), i);
        EQUAL(read(fd, small, unknown(60)), 60);
        DATA(small, 1, i, 60);
        EQUAL(pread(fd, small, unknown(60), 100 + i), 60);
        DATA(small, 1, 100 + i, 60);
        EQUAL(__read_chk(fd, data, 50, sizeof data), 50);
        DATA(data, 1, i + 60, 50);
        EQUAL(__pread_chk(fd, data, 50, 20, sizeof data), 50);
        DATA(data, 1, 20, 50);
        EQUAL(__pread64_chk(fd, data, 50, 30, sizeof data), 50);
        DATA(data, 1, 30, 50);
        EQUAL(lseek(fd, 0, SEEK_CUR), i + 110);
    }
}

/* A request larger than the buffer that the compiler knew of ends the program. */
static void fortified_reads_abort_on_overflow(void) {
    int fd = make_hot("f", 1, 2), status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        KERNEL(SYS_close, 2L);
        __read_chk(fd, data, 65, 64);
        _exit(0);
    }
    EQUAL(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void double_underscore_names(void) {
    EQUAL(close(make_hot("f", 1, 2)), 0);
    int fd = __open(path("f"), O_RDWR), other = __open64(path("f"), O_RDWR);
    heat_reads(fd, 1, 0, 2 * PAGE);
    heat_writes(fd, 1, 0, 2 * PAGE);
    for (int i = 0; i < 50; i++) {
        EQUAL(lseek(fd, 10 * i, SEEK_SET), 10 * i);
        EQUAL(__read(fd, data, 10), 10);
        DATA(data, 1, 10 * i, 10);
        EQUAL(read(fd, data, 10), 10);
        DATA(data, 1, 10 * i + 10, 10);
        fill(data, 1, 10 * i + 20, 10);
        EQUAL(__write(fd, data, 10), 10);
        EQUAL(__lseek(fd, 0, SEEK_CUR), 10 * i + 30);
        EQUAL(__lseek(fd, 500, SEEK_SET), 500);
        EQUAL(read(fd, data, 10), 10);
        DATA(data, 1, 500, 10);
        EQUAL(__pread64(other, data, 10, 40), 10);
        DATA(data, 1, 40, 10);
        EQUAL(__pwrite64(other, data, 10, 40), 10);
    }
    int copy = __fcntl(fd, F_DUPFD, 0);
    EQUAL(read(fd, data, 10), 10);
    EQUAL(lseek(copy, 0, SEEK_CUR), 520);
    EQUAL(lseek(other, 7, SEEK_SET), 7);
    EQUAL(__dup2(other, fd), fd);
    EQUAL(read(fd, data, 10), 10);
    DATA(data, 1, 7, 10);
    EQUAL(lseek(other, 0, SEEK_CUR), 17);
    EQUAL(__close(fd), 0);
    FAILS(read(fd, data, 1), EBADF);
}

static void vectors_read_and_write_in_order(void) {
    int fd = make_hot("f", 1, 4);
    static unsigned char a[100], b[1], c[700];
    struct iovec parts[] = {{a, sizeof a}, {NULL, 0}, {b, sizeof b}, {c, sizeof c}};
    for (int i = 0; i < 100; i++) {
        off_t at = i * 130 % (4 * PAGE - 801);
        EQUAL(lseek(fd, at, SEEK_SET), at);
        EQUAL(readv(fd, parts, 4), 801);
        DATA(a, 1, at, 100);
        DATA(b, 1, at + 100, 1);
        DATA(c, 1, at + 101, 700);
        EQUAL(lseek(fd, at, SEEK_SET), at);
        EQUAL(writev(fd, parts, 4), 801);
        EQUAL(lseek(fd, 0, SEEK_CUR), at + 801);
        EQUAL(preadv(fd, parts, 4, 5), 801);
        DATA(c, 1, 106, 700);
        EQUAL(pwritev(fd, parts, 4, 5), 801);
        EQUAL(preadv64(fd, parts, 4, 4 * PAGE - 150), 150);
        DATA(c, 1, 4 * PAGE - 49, 49);
        EQUAL(pwritev64(fd, parts, 1, 4 * PAGE - 150), 100);
        EQUAL(lseek(fd, 0, SEEK_CUR), at + 801);
    }
    FILE_IS("f", 1, 4 * PAGE);
}

static void vectors_are_checked(void) {
    int fd = make_hot("f", 1, 4);
    static struct iovec many[IOV_MAX + 1];
    for (int i = 0; i <= IOV_MAX; i++)
        many[i] = (struct iovec){data + i, 1};
    EQUAL(readv(fd, many, 0), 0);
    EQUAL(readv(fd, (struct iovec *)unknown(16), 0), 0);
    EQUAL(readv(fd, many, IOV_MAX), IOV_MAX);
    DATA(data, 1, 0, IOV_MAX);
    EQUAL(lseek(fd, 0, SEEK_CUR), IOV_MAX);
    FAILS(readv(fd, many, IOV_MAX + 1), EINVAL);
    FAILS(preadv(fd, many, IOV_MAX + 1, 0), EINVAL);
    FAILS(writev(fd, many, (int)unknown((size_t)-1)), EINVAL);
    FAILS(pwritev(fd, many, 1, -1), EINVAL);
    FAILS(preadv(fd, many, 1, -5), EINVAL);
    many[1].iov_len = (size_t)-1;
    FAILS(readv(fd, many, 2), EINVAL);
    FAILS(writev(fd, many, 2), EINVAL);
    FAILS(readv(fd, (struct iovec *)unknown(16), 1), EFAULT);
    many[0] = (struct iovec){(void *)unknown(16), 100};
    FAILS(readv(fd, many, 1), EFAULT);
    EQUAL(lseek(fd, 0, SEEK_CUR), IOV_MAX);
    many[0] = (struct iovec){data, 100};
    many[1] = (struct iovec){(void *)unknown(16), 100};
    EQUAL(preadv(fd, many, 2, 50), 100);
    DATA(data, 1, 50, 100);
    FILE_IS("f", 1, 4 * PAGE);
}

static void minus_one_means_the_position(void) {
    int fd = make_hot("f", 1, 2);
    struct iovec part = {data, 100};
    EQUAL(lseek(fd, 300, SEEK_SET), 300);
    for (int i = 0; i < 20; i++) {
        EQUAL(preadv2(fd, &part, 1, -1, 0), 100);
        DATA(data, 1, 300 + i * 200, 100);
        fill(data, 1, 400 + i * 200, 100);
        EQUAL(pwritev2(fd, &part, 1, -1, 0), 100);
        EQUAL(lseek(fd, 0, SEEK_CUR), 500 + i * 200);
    }
    EQUAL(preadv64v2(fd, &part, 1, 7, 0), 100);
    DATA(data, 1, 7, 100);
    EQUAL(pwritev64v2(fd, &part, 1, 7, 0), 100);
    FILE_IS("f", 1, 2 * PAGE);
}

static void flags_of_vectors(void) {
    int fd = make_hot("f", 1, 2);
    struct iovec part = {data, 100};
    long want = KERNEL(SYS_preadv2, (long)fd, (long)&part, 1L, 50L, 0L, (long)RWF_NOWAIT);
    for (int i = 0; i < 50; i++)
        EQUAL(preadv2(fd, &part, 1, 50, RWF_NOWAIT) < 0 ? -errno : 100, want);
    fill(data, 1, 50, 100);
    EQUAL(pwritev2(fd, &part, 1, 50, RWF_DSYNC), 100);
    EQUAL(pwritev2(fd, &part, 1, 50, RWF_SYNC), 100);
    FAILS(preadv2(fd, &part, 1, 50, 0x40000000), EOPNOTSUPP);
    FAILS(pwritev2(fd, &part, 1, 50, 0x40000000), EOPNOTSUPP);
    fill(data, 1, 2 * PAGE, 100);
    EQUAL(pwritev2(fd, &part, 1, 0, RWF_APPEND), 100);
    EQUAL(lseek(fd, 0, SEEK_CUR), 0);
    FILE_IS("f", 1, 2 * PAGE + 100);
    fill(data, 1, 2 * PAGE + 100, 100);
    EQUAL(pwritev2(fd, &part, 1, -1, RWF_APPEND), 100);
    EQUAL(lseek(fd, 0, SEEK_CUR), 2 * PAGE + 200);
    FILE_IS("f", 1, 2 * PAGE + 200);
}

/* A file that is read by lists alone is served like any other. */
static void lists_alone_are_enough(void) {
    enum { CALLS = 400 };
    struct iovec parts[2] = {{data, 100}, {data + 100, 300}};
    int fd = make("f", 1, 4 * PAGE);
    for (int i = 0; i < CALLS; i++) {
        off_t at = i * 677 % (3 * PAGE);
        if (i % 2)
            EQUAL(preadv(fd, parts, 2, at), 400);
        else
            EQUAL(preadv2(fd, parts, 2, at, 0), 400);
        DATA(data, 1, at, 400);
    }
}

static void lists_alone_are_enough_at_the_position(void) {
    enum { CALLS = 400 };
    struct iovec parts[2] = {{data, 100}, {data + 100, 300}};
    int fd = make("f", 1, 4 * PAGE);
    for (int i = 0; i < CALLS; i++) {
        off_t at = i * 677 % (3 * PAGE);
        EQUAL(lseek(fd, at, SEEK_SET), at);
        EQUAL(readv(fd, parts, 2), 400);
        DATA(data, 1, at, 400);
    }
}

/* The same memory as source and target: a read into the mapping of the file itself. */
static void buffers_in_the_files_own_mapping(void) {
    int fd = make_hot("f", 1, 4);
    unsigned char *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    EQUAL(pwrite(fd, map + PAGE, 100, 3 * PAGE), 100);
    EQUAL(memcmp(map + 3 * PAGE, map + PAGE, 100), 0);
    EQUAL(pread(fd, map, 200, 2 * PAGE), 200);
    DATA(map, 1, 2 * PAGE, 200);
    EQUAL(pread(fd, map + 2 * PAGE, 200, 2 * PAGE), 200);
    DATA(map + 2 * PAGE, 1, 2 * PAGE, 200);
    EQUAL(pwrite(fd, map + 2 * PAGE, 200, 2 * PAGE), 200);
    DATA(map + 2 * PAGE, 1, 2 * PAGE, 200);
}

const struct test_case vector_cases[] = {
    {"vectors/fortified_reads", fortified_reads, READS},
    {"vectors/fortified_reads_abort_on_overflow", fortified_reads_abort_on_overflow, READS},
    {"vectors/double_underscore_names", double_underscore_names, READS | WRITES},
    {"vectors/vectors_read_and_write_in_order", vectors_read_and_write_in_order, READS | WRITES},
    {"vectors/vectors_are_checked", vectors_are_checked, READS},
    {"vectors/minus_one_means_the_position", minus_one_means_the_position, READS},
    {"vectors/flags_of_vectors", flags_of_vectors, READS},
    {"vectors/lists_alone_are_enough", lists_alone_are_enough, READS},
    {"vectors/lists_alone_are_enough_at_the_position", lists_alone_are_enough_at_the_position,
     POSITION_READS},
    {"vectors/buffers_in_the_files_own_mapping", buffers_in_the_files_own_mapping, READS},
    {0},
};
