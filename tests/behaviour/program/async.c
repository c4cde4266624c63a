/* Asynchronous I/O that the program does itself, beside calls on the same files. */
#include "case.h"
#include <aio.h>
#include <libaio.h>
#include <liburing.h>

enum { SIZE = 8 * PAGE };
static unsigned char data[SIZE], got[SIZE];
static struct io_uring ring;

static void make_ring(void) {
    int result = io_uring_queue_init(16, &ring, 0);
    if (result == -EPERM || result == -ENOSYS)
        skip("io_uring is switched off here");
    EQUAL(result, 0);
}

static int finish(void) {
    struct io_uring_cqe *completion;
    EQUAL(io_uring_submit(&ring), 1);
    EQUAL(io_uring_wait_cqe(&ring, &completion), 0);
    int result = completion->res;
    io_uring_cqe_seen(&ring, completion);
    return result;
}

static int ring_read(int fd, void *to, unsigned length, unsigned long long at) {
    io_uring_prep_read(io_uring_get_sqe(&ring), fd, to, length, at);
    return finish();
}

static int ring_write(int fd, const void *from, unsigned length, unsigned long long at) {
    io_uring_prep_write(io_uring_get_sqe(&ring), fd, from, length, at);
    return finish();
}

static void io_uring_and_calls_see_each_other(void) {
    int fd = make_hot("f", 1, 8);
    make_ring();
    for (int i = 0; i < 200; i++) {
        off_t at = i * 151L % (SIZE - 100);
        memset(data, i, 100);
        EQUAL(pwrite(fd, data, 100, at), 100);
        EQUAL(ring_read(fd, got, 100, (unsigned long long)at), 100);
        EQUAL(memcmp(got, data, 100), 0);
        memset(data, i + 1, 100);
        EQUAL(ring_write(fd, data, 100, (unsigned long long)at), 100);
        EQUAL(pread(fd, got, 100, at), 100);
        EQUAL(memcmp(got, data, 100), 0);
    }
    EQUAL(ring_write(fd, data, 100, SIZE), 100);
    EQUAL(lseek(fd, 0, SEEK_END), SIZE + 100);
    EQUAL(pread(fd, got, 200, SIZE), 100);
    io_uring_queue_exit(&ring);
}

/* An offset of -1 means the descriptor's position. */
static void io_uring_at_the_position(void) {
    make_ring();
    int fd = make_hot("f", 1, 8);
    EQUAL(lseek(fd, 400, SEEK_SET), 400);
    for (int i = 0; i < 20; i++) {
        EQUAL(read(fd, got, 100), 100);
        DATA(got, 1, 400 + i * 200, 100);
        EQUAL(ring_read(fd, got, 100, -1ULL), 100);
        DATA(got, 1, 500 + i * 200, 100);
    }
    EQUAL(lseek(fd, 0, SEEK_CUR), 400 + 20 * 200);
}

/* The ring is made when the position is already kept. */
static void io_uring_made_late(void) {
    int fd = make_hot("f", 1, 8);
    EQUAL(lseek(fd, 400, SEEK_SET), 400);
    EQUAL(read(fd, got, 100), 100);
    make_ring();
    EQUAL(ring_read(fd, got, 100, -1ULL), 100);
    DATA(got, 1, 500, 100);
    EQUAL(read(fd, got, 100), 100);
    DATA(got, 1, 600, 100);
}

static void io_uring_closes_and_opens(void) {
    EQUAL(close(make("g", 2, SIZE)), 0);
    make_ring();
    int fd = make_hot("f", 1, 8);
    EQUAL(lseek(fd, 400, SEEK_SET), 400);
    EQUAL(read(fd, got, 100), 100);
    io_uring_prep_close(io_uring_get_sqe(&ring), fd);
    EQUAL(finish(), 0);
    FAILS(pread(fd, got, 1, 0), EBADF);
    FAILS(read(fd, got, 1), EBADF);
    io_uring_prep_openat(io_uring_get_sqe(&ring), AT_FDCWD, path("g"), O_RDWR, 0);
    EQUAL(finish(), fd);
    EQUAL(read(fd, got, 100), 100);
    DATA(got, 2, 0, 100);
    heat_reads(fd, 2, 0, SIZE);
    heat_writes(fd, 2, 0, SIZE);
    FILE_IS("f", 1, SIZE);
    FILE_IS("g", 2, SIZE);
}

static void libaio_and_calls_see_each_other(void) {
    int fd = make_hot("f", 1, 8);
    io_context_t context = 0;
    EQUAL(io_setup(8, &context), 0);
    for (int i = 0; i < 100; i++) {
        off_t at = i * 151L % (SIZE - 100);
        struct iocb request, *requests[] = {&request};
        struct io_event event;
        memset(data, i, 100);
        EQUAL(pwrite(fd, data, 100, at), 100);
        io_prep_pread(&request, fd, got, 100, at);
        EQUAL(io_submit(context, 1, requests), 1);
        EQUAL(io_getevents(context, 1, 1, &event, NULL), 1);
        EQUAL(event.res, 100);
        EQUAL(memcmp(got, data, 100), 0);
        memset(data, i + 1, 100);
        io_prep_pwrite(&request, fd, data, 100, at);
        EQUAL(io_submit(context, 1, requests), 1);
        EQUAL(io_getevents(context, 1, 1, &event, NULL), 1);
        EQUAL(event.res, 100);
        EQUAL(pread(fd, got, 100, at), 100);
        EQUAL(memcmp(got, data, 100), 0);
    }
    EQUAL(io_destroy(context), 0);
}

/* glibc does these in threads of its own, with calls that pass no preloaded symbol. */
static void posix_aio_and_calls_see_each_other(void) {
    int fd = make_hot("f", 1, 8);
    for (int i = 0; i < 50; i++) {
        off_t at = i * 151L % (SIZE - 100);
        struct aiocb request = {.aio_fildes = fd, .aio_buf = data, .aio_nbytes = 100, .aio_offset = at};
        const struct aiocb *list[] = {&request};
        memset(data, i, 100);
        EQUAL(aio_write(&request), 0);
        EQUAL(aio_suspend(list, 1, NULL), 0);
        EQUAL(aio_return(&request), 100);
        EQUAL(pread(fd, got, 100, at), 100);
        EQUAL(memcmp(got, data, 100), 0);
        EQUAL(lseek(fd, 0, SEEK_CUR), 0);
    }
}

const struct test_case async_cases[] = {
    {"async/io_uring_and_calls_see_each_other", io_uring_and_calls_see_each_other, READS},
    {"async/io_uring_at_the_position", io_uring_at_the_position, ANY},
    {"async/io_uring_made_late", io_uring_made_late, READS},
    {"async/io_uring_closes_and_opens", io_uring_closes_and_opens, ANY},
    {"async/libaio_and_calls_see_each_other", libaio_and_calls_see_each_other, READS},
    {"async/posix_aio_and_calls_see_each_other", posix_aio_and_calls_see_each_other, READS},
    {0},
};
