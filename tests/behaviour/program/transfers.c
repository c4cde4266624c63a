/* Transfers inside the kernel from and to a descriptor whose position the library may keep. */
#include "case.h"
#include <sys/sendfile.h>
#include <sys/socket.h>

enum { SIZE = 4 * PAGE };
static unsigned char data[SIZE];

static int hot_at(const char *name, unsigned tag, off_t at) {
    int fd = make_hot(name, tag, 4);
    EQUAL(lseek(fd, at - 10, SEEK_SET), at - 10);
    EQUAL(read(fd, data, 10), 10);
    DATA(data, tag, at - 10, 10);
    return fd;
}

static void sendfile_from_the_position(void) {
    int ends[2], fd = hot_at("f", 1, 500);
    EQUAL(pipe(ends), 0);
    EQUAL(sendfile(ends[1], fd, NULL, 100), 100);
    EQUAL(read(ends[0], data, sizeof data), 100);
    DATA(data, 1, 500, 100);
    EQUAL(lseek(fd, 0, SEEK_CUR), 600);
    off_t at = 50;
    EQUAL(sendfile64(ends[1], fd, &at, 100), 100);
    EQUAL(at, 150);
    EQUAL(read(ends[0], data, sizeof data), 100);
    DATA(data, 1, 50, 100);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 600, 100);
}

static void sendfile_to_the_position(void) {
    int from = hot_at("f", 1, 500), to = hot_at("g", 1, 500);
    EQUAL(ftruncate(to, 501), 0);
    EQUAL(sendfile(to, from, NULL, 200), 200);
    EQUAL(lseek(to, 0, SEEK_CUR), 700);
    EQUAL(lseek(from, 0, SEEK_CUR), 700);
    EQUAL(size_of(to), 700);
    fill(data, 1, 700, 100);
    EQUAL(write(to, data, 100), 100);
    FILE_IS("g", 1, 800);
}

static void sendfile_sends_what_was_written(void) {
    int ends[2], fd = make_hot("f", 1, 4);
    EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    for (int i = 0; i < 100; i++) {
        memset(data, i, 64);
        EQUAL(pwrite(fd, data, 64, i), 64);
        off_t at = i;
        EQUAL(sendfile(ends[0], fd, &at, 64), 64);
        unsigned char got[64];
        EQUAL(recv(ends[1], got, 64, MSG_WAITALL), 64);
        EQUAL(memcmp(got, data, 64), 0);
    }
}

static void copy_file_range_between_positions(void) {
    int from = hot_at("f", 1, 300), to = hot_at("g", 1, 300);
    EQUAL(copy_file_range(from, NULL, to, NULL, 100, 0), 100);
    EQUAL(lseek(from, 0, SEEK_CUR), 400);
    EQUAL(lseek(to, 0, SEEK_CUR), 400);
    off_t in = 1000, out = SIZE;
    fill(data, 1, SIZE, 100);
    EQUAL(pwrite(from, data, 100, 1000), 100);
    EQUAL(copy_file_range(from, &in, to, &out, 100, 0), 100);
    EQUAL(in, 1100);
    EQUAL(read(to, data, 100), 100);
    DATA(data, 1, 400, 100);
    FILE_IS("g", 1, SIZE + 100);
    heat_reads(to, 1, 0, SIZE);
    EQUAL(pread(to, data, 200, SIZE), 100);
    DATA(data, 1, SIZE, 100);
}

static void splice_from_and_to_the_position(void) {
    int ends[2], from = hot_at("f", 1, 300), to = hot_at("g", 1, 300);
    EQUAL(pipe(ends), 0);
    EQUAL(splice(from, NULL, ends[1], NULL, 100, 0), 100);
    EQUAL(lseek(from, 0, SEEK_CUR), 400);
    EQUAL(splice(ends[0], NULL, to, NULL, 100, 0), 100);
    EQUAL(lseek(to, 0, SEEK_CUR), 400);
    EQUAL(read(from, data, 100), 100);
    DATA(data, 1, 400, 100);
    EQUAL(read(to, data, 100), 100);
    DATA(data, 1, 400, 100);
    loff_t at = 7;
    EQUAL(splice(from, &at, ends[1], NULL, 100, 0), 100);
    EQUAL(at, 107);
    EQUAL(read(ends[0], data, 100), 100);
    DATA(data, 1, 7, 100);
    EQUAL(lseek(from, 0, SEEK_CUR), 500);
    FILE_IS("g", 1, SIZE);
}

const struct test_case transfer_cases[] = {
    {"transfers/sendfile_from_the_position", sendfile_from_the_position, READS},
    {"transfers/sendfile_to_the_position", sendfile_to_the_position, READS},
    {"transfers/sendfile_sends_what_was_written", sendfile_sends_what_was_written, READS},
    {"transfers/copy_file_range_between_positions", copy_file_range_between_positions, READS},
    {"transfers/splice_from_and_to_the_position", splice_from_and_to_the_position, READS},
    {0},
};
