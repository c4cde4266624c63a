/* Reuse: a number whose file was closed behind the library's back and that now means something else. */
#include "case.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

static unsigned char data[600];

/* A hot descriptor at position 400, closed by a way that is not close(). */
static int closed_by_syscall(void) {
    int fd = make_hot("old", 1, 2);
    EQUAL(lseek(fd, 300, SEEK_SET), 300);
    EQUAL(read(fd, data, 100), 100);
    EQUAL(syscall(SYS_close, fd), 0);
    return fd;
}

static int closed_by_instruction(void) {
    int fd = make_hot("old", 1, 2);
    EQUAL(lseek(fd, 300, SEEK_SET), 300);
    EQUAL(read(fd, data, 100), 100);
    EQUAL(KERNEL(SYS_close, (long)fd), 0);
    return fd;
}

static void means_the_new_file(int fd) {
    EQUAL(make("new", 2, 2 * PAGE), fd);
    EQUAL(lseek(fd, 0, SEEK_CUR), 0);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 2, 0, 100);
    heat_reads(fd, 2, 0, 2 * PAGE);
    heat_writes(fd, 2, 0, 2 * PAGE);
    FILE_IS("old", 1, 2 * PAGE);
    FILE_IS("new", 2, 2 * PAGE);
}

static void closed_by_syscall_is_bad(void) {
    int fd = closed_by_syscall();
    FAILS(read(fd, data, 1), EBADF);
    FAILS(pread(fd, data, 1, 0), EBADF);
    FAILS(pwrite(fd, data, 1, 0), EBADF);
}

static void by_another_file(void) {
    means_the_new_file(closed_by_syscall());
}

static void by_another_file_after_an_unseen_close(void) {
    means_the_new_file(closed_by_instruction());
}

/* What the library does for every open file before a fork must not reach the one that has the number now. */
static void by_another_file_before_a_fork(void) {
    static const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    EQUAL(close(make("new", 2, 2 * PAGE)), 0);
    int fd = make_hot("old", 1, 2);
    EQUAL(lseek(fd, 300, SEEK_SET), 300);
    EQUAL(read(fd, data, 100), 100);
    fill(data, 1, 0, 100);
    EQUAL(pwrite(fd, data, 100, 0), 100);
    EQUAL(KERNEL(SYS_close, (long)fd), 0);
    EQUAL(KERNEL(SYS_openat, (long)AT_FDCWD, (long)path("new"), (long)O_RDWR, 0L), fd);
    EQUAL(KERNEL(SYS_lseek, (long)fd, 50L, (long)SEEK_SET), 50);
    EQUAL(KERNEL(SYS_utimensat, (long)fd, 0L, (long)long_ago, 0L), 0);
    CHILD(EQUAL(kernel_position(fd), 50));
    EQUAL(kernel_position(fd), 50);
    struct stat stat_of;
    EQUAL(KERNEL(SYS_fstat, (long)fd, (long)&stat_of), 0);
    EQUAL(stat_of.st_mtim.tv_sec, 1000);
}

/* Files that are never mapped, under the number of one that was: nothing of that one may be left. */
static void by_files_that_are_not_mapped(void) {
    static const int flags[] = {O_WRONLY, O_RDWR | O_APPEND, O_RDWR | O_DSYNC, O_RDWR | O_DIRECT};
    static unsigned char aligned[PAGE] __attribute__((aligned(PAGE)));
    EQUAL(close(make("new", 2, 2 * PAGE)), 0);
    for (int i = 0; i < 4; i++) {
        int fd = i % 2 ? closed_by_syscall() : closed_by_instruction();
        EQUAL(open(path("new"), flags[i]), fd);
        EQUAL(lseek(fd, 0, SEEK_CUR), 0);
        if (i > 0) {
            EQUAL(read(fd, aligned, PAGE), PAGE);
            DATA(aligned, 2, 0, PAGE);
            EQUAL(pread(fd, aligned, PAGE, PAGE), PAGE);
            DATA(aligned, 2, PAGE, PAGE);
        }
        fill(aligned, 2, i == 1 ? 2 * PAGE : 0, PAGE);
        EQUAL(pwrite(fd, aligned, PAGE, 0), PAGE);
        EQUAL(close(fd), 0);
        FILE_IS("old", 1, 2 * PAGE);
        FILE_IS("new", 2, i > 0 ? 3 * PAGE : 2 * PAGE);
        fd = closed_by_instruction();
        EQUAL(open(path("new"), O_RDWR | O_DIRECT), fd);
        EQUAL(read(fd, aligned, PAGE), PAGE);
        DATA(aligned, 2, 0, PAGE);
        EQUAL(close(fd), 0);
    }
}

static void by_syscall_open(void) {
    EQUAL(close(make("new", 2, 2 * PAGE)), 0);
    int fd = closed_by_syscall();
    EQUAL(syscall(SYS_openat, AT_FDCWD, path("new"), O_RDWR), fd);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 2, 0, 100);
    heat_reads(fd, 2, 0, 2 * PAGE);
    heat_writes(fd, 2, 0, 2 * PAGE);
    FILE_IS("old", 1, 2 * PAGE);
}

static void by_syscall_dup2(void) {
    int hot = make_hot("old", 1, 2), other = make_hot("new", 2, 2);
    EQUAL(lseek(other, 200, SEEK_SET), 200);
    EQUAL(syscall(SYS_dup2, other, hot), hot);
    EQUAL(read(hot, data, 100), 100);
    DATA(data, 2, 200, 100);
    EQUAL(lseek(other, 0, SEEK_CUR), 300);
    heat_writes(hot, 2, 0, 2 * PAGE);
    FILE_IS("old", 1, 2 * PAGE);
}

static void stream(int reader, int writer) {
    for (int i = 0; i < 50; i++) {
        EQUAL(write(writer, "hello", 5), 5);
        memset(data, 0, 8);
        EQUAL(read(reader, data, sizeof data), 5);
        EQUAL(memcmp(data, "hello", 5), 0);
    }
    FAILS(lseek(reader, 0, SEEK_CUR), ESPIPE);
    FAILS(pread(reader, data, 1, 0), ESPIPE);
    FILE_IS("old", 1, 2 * PAGE);
}

static void by_a_socket(void) {
    int ends[2], fd = closed_by_syscall();
    EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    EQUAL(ends[0], fd);
    stream(ends[0], ends[1]);
    stream(ends[1], ends[0]);
}

static void by_a_socket_after_an_unseen_close(void) {
    int ends[2], fd = closed_by_instruction();
    EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    EQUAL(ends[0], fd);
    stream(ends[0], ends[1]);
}

static void by_a_pipe(void) {
    int ends[2], fd = closed_by_syscall();
    EQUAL(pipe(ends), 0);
    EQUAL(ends[0], fd);
    stream(ends[0], ends[1]);
    close(ends[0]);
    close(ends[1]);
    fd = closed_by_syscall();
    EQUAL(pipe2(ends, O_CLOEXEC), 0);
    EQUAL(ends[0], fd);
    stream(ends[0], ends[1]);
}

static void by_a_pipe_after_an_unseen_close(void) {
    int ends[2], fd = closed_by_instruction();
    EQUAL(pipe(ends), 0);
    EQUAL(ends[0], fd);
    stream(ends[0], ends[1]);
}

static void by_an_accepted_connection(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), caller = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t length = sizeof(sa_family_t) + 16;
    snprintf(name.sun_path + 1, 15, "byw%d", getpid());
    EQUAL(bind(listener, (struct sockaddr *)&name, length), 0);
    EQUAL(listen(listener, 1), 0);
    EQUAL(connect(caller, (struct sockaddr *)&name, length), 0);
    int fd = closed_by_syscall();
    EQUAL(accept(listener, NULL, NULL), fd);
    stream(fd, caller);
}

static void by_event_descriptors(void) {
    unsigned long long value = 7, got = 0;
    int fd = closed_by_syscall();
    EQUAL(eventfd(0, 0), fd);
    EQUAL(write(fd, &value, 8), 8);
    EQUAL(read(fd, &got, 8), 8);
    EQUAL(got, 7);
    EQUAL(close(fd), 0);
    fd = closed_by_syscall();
    EQUAL(epoll_create1(0), fd);
    FAILS(read(fd, data, 8), EINVAL);
    EQUAL(close(fd), 0);
    fd = closed_by_syscall();
    EQUAL(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), fd);
    FAILS(read(fd, data, 8), EAGAIN);
    EQUAL(close(fd), 0);
    fd = closed_by_syscall();
    EQUAL(inotify_init1(IN_NONBLOCK), fd);
    FAILS(read(fd, data, sizeof data), EAGAIN);
    EQUAL(close(fd), 0);
    sigset_t none;
    sigemptyset(&none);
    fd = closed_by_syscall();
    EQUAL(signalfd(-1, &none, SFD_NONBLOCK), fd);
    FAILS(read(fd, data, sizeof data), EAGAIN);
    EQUAL(close(fd), 0);
    fd = closed_by_syscall();
    EQUAL(memfd_create("m", 0), fd);
    EQUAL(read(fd, data, sizeof data), 0);
    EQUAL(write(fd, "abc", 3), 3);
    EQUAL(pread(fd, data, sizeof data, 0), 3);
}

static void by_mkstemp(void) {
    char *name = path("tXXXXXX");
    int fd = closed_by_syscall();
    EQUAL(mkstemp(name), fd);
    EQUAL(read(fd, data, sizeof data), 0);
    EQUAL(write(fd, "temporary", 9), 9);
    EQUAL(pread(fd, data, sizeof data, 0), 9);
    EQUAL(memcmp(data, "temporary", 9), 0);
    FILE_IS("old", 1, 2 * PAGE);
}

/* glibc opens a stream's file without passing through open(). */
static void by_a_stream(void) {
    EQUAL(close(make("new", 2, 2 * PAGE)), 0);
    int fd = closed_by_syscall();
    FILE *stream = fopen(path("new"), "r+");
    EQUAL(fileno(stream), fd);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 2, 0, 100);
    heat_reads(fd, 2, 0, 2 * PAGE);
    EQUAL(fread(data, 1, 100, stream), 100);
    DATA(data, 2, 100, 100);
    EQUAL(fclose(stream), 0);
    FAILS(read(fd, data, 1), EBADF);
    means_the_new_file(fd);
}

const struct test_case reuse_cases[] = {
    {"reuse/closed_by_syscall_is_bad", closed_by_syscall_is_bad, READS},
    {"reuse/by_another_file", by_another_file, READS},
    {"reuse/by_another_file_after_an_unseen_close", by_another_file_after_an_unseen_close, READS},
    {"reuse/by_another_file_before_a_fork", by_another_file_before_a_fork, READS},
    {"reuse/by_files_that_are_not_mapped", by_files_that_are_not_mapped, READS},
    {"reuse/by_syscall_open", by_syscall_open, READS},
    {"reuse/by_syscall_dup2", by_syscall_dup2, READS},
    {"reuse/by_a_socket", by_a_socket, READS},
    {"reuse/by_a_socket_after_an_unseen_close", by_a_socket_after_an_unseen_close, READS},
    {"reuse/by_a_pipe", by_a_pipe, READS},
    {"reuse/by_a_pipe_after_an_unseen_close", by_a_pipe_after_an_unseen_close, READS},
    {"reuse/by_an_accepted_connection", by_an_accepted_connection, READS},
    {"reuse/by_event_descriptors", by_event_descriptors, READS},
    {"reuse/by_mkstemp", by_mkstemp, READS},
    {"reuse/by_a_stream", by_a_stream, READS},
    {0},
};
