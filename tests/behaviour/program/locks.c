/* Locks, leases and notices: what hangs on the open file and must end with its last descriptor. */
#include "case.h"
#include <sys/file.h>
#include <sys/inotify.h>

enum { SIZE = 4 * PAGE };
static unsigned char data[SIZE];

static struct flock range(short type, short whence, off_t start, off_t length) {
    return (struct flock){.l_type = type, .l_whence = whence, .l_start = start, .l_len = length};
}

/* The lock that another process meets at byte `at`: its first byte and length, or no lock at all. */
static void others_meet(off_t at, short type, off_t start, off_t length) {
    CHILD({
        struct flock lock = range(F_WRLCK, SEEK_SET, at, 1);
        int own = open(path("f"), O_RDWR);
        EQUAL(fcntl(own, F_GETLK, &lock), 0);
        EQUAL(lock.l_type, type);
        if (type != F_UNLCK) {
            EQUAL(lock.l_start, start);
            EQUAL(lock.l_len, length);
        }
    });
}

static void locks_from_the_position(void) {
    int fd = make_hot("f", 1, 4);
    EQUAL(lseek(fd, 400, SEEK_SET), 400);
    EQUAL(read(fd, data, 100), 100);
    struct flock lock = range(F_WRLCK, SEEK_CUR, 10, 20);
    EQUAL(fcntl(fd, F_SETLK, &lock), 0);
    others_meet(515, F_WRLCK, 510, 20);
    others_meet(400, F_UNLCK, 0, 0);
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, 500, 100);
    lock = range(F_RDLCK, SEEK_CUR, 0, -50);
    EQUAL(fcntl(fd, F_SETLKW, &lock), 0);
    others_meet(575, F_RDLCK, 550, 50);
    lock = range(F_WRLCK, SEEK_END, -5, 5);
    EQUAL(fcntl64(fd, F_SETLK, &lock), 0);
    others_meet(SIZE - 1, F_WRLCK, SIZE - 5, 5);
    lock = range(F_UNLCK, SEEK_SET, 0, 0);
    EQUAL(fcntl(fd, F_SETLK, &lock), 0);
    others_meet(515, F_UNLCK, 0, 0);
}

static void lockf_from_the_position(void) {
    int fd = make_hot("f", 1, 4);
    EQUAL(lseek(fd, 400, SEEK_SET), 400);
    EQUAL(read(fd, data, 100), 100);
    EQUAL(lockf(fd, F_LOCK, 30), 0);
    others_meet(510, F_WRLCK, 500, 30);
    EQUAL(read(fd, data, 100), 100);
    EQUAL(lockf64(fd, F_TLOCK, -50), 0);
    others_meet(560, F_WRLCK, 550, 50);
    EQUAL(lockf(fd, F_ULOCK, 0), 0);
    heat_reads(fd, 1, 0, SIZE);
}

/* POSIX locks go with the first close of any descriptor of the file. */
static void posix_locks_go_with_any_close(void) {
    int fd = make_hot("f", 1, 4), other = open(path("f"), O_RDWR);
    heat_reads(other, 1, 0, SIZE);
    struct flock lock = range(F_WRLCK, SEEK_SET, 0, 0);
    EQUAL(fcntl(fd, F_SETLK, &lock), 0);
    heat_reads(fd, 1, 0, SIZE);
    heat_writes(fd, 1, 0, SIZE);
    others_meet(5, F_WRLCK, 0, 0);
    EQUAL(close(other), 0);
    others_meet(5, F_UNLCK, 0, 0);
}

/* The library may not close a descriptor of its own to the file, which would drop the program's locks. */
static void posix_locks_stay_while_files_get_hot(void) {
    int fd = make("f", 1, SIZE);
    struct flock lock = range(F_WRLCK, SEEK_SET, 0, 0);
    EQUAL(fcntl(fd, F_SETLK, &lock), 0);
    for (int i = 0; i < 5; i++) {
        heat_reads(fd, 1, 0, SIZE);
        heat_writes(fd, 1, 0, SIZE);
        EQUAL(ftruncate(fd, SIZE + i), 0);
        EQUAL(ftruncate(fd, SIZE), 0);
        others_meet(5, F_WRLCK, 0, 0);
    }
}

static void flock_goes_with_the_last_close(void) {
    int fd = make_hot("f", 1, 4);
    EQUAL(flock(fd, LOCK_EX), 0);
    int copy = dup(fd);
    heat_writes(copy, 1, 0, SIZE);
    int other = open(path("f"), O_RDWR);
    FAILS(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    EQUAL(close(fd), 0);
    FAILS(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    heat_reads(copy, 1, 0, SIZE);
    EQUAL(close(copy), 0);
    EQUAL(flock(other, LOCK_EX | LOCK_NB), 0);
    for (int i = 0; i < 50; i++) {
        EQUAL(close(other), 0);
        other = open(path("f"), O_RDWR);
        heat_reads(other, 1, 0, PAGE);
        heat_writes(other, 1, 0, PAGE);
        EQUAL(flock(other, LOCK_EX | LOCK_NB), 0);
    }
}

static void open_file_locks_go_with_the_last_close(void) {
    int fd = make_hot("f", 1, 4);
    struct flock lock = range(F_WRLCK, SEEK_CUR, 0, 10);
    EQUAL(lseek(fd, 100, SEEK_SET), 100);
    EQUAL(fcntl(fd, F_OFD_SETLK, &lock), 0);
    int other = open(path("f"), O_RDWR);
    heat_reads(other, 1, 0, SIZE);
    lock = range(F_WRLCK, SEEK_SET, 100, 10);
    FAILS(fcntl(other, F_OFD_SETLK, &lock), EAGAIN);
    EQUAL(fcntl(other, F_OFD_GETLK, &lock), 0);
    EQUAL(lock.l_start, 100);
    EQUAL(close(fd), 0);
    lock = range(F_WRLCK, SEEK_SET, 100, 10);
    EQUAL(fcntl(other, F_OFD_SETLK, &lock), 0);
}

static void leases_can_be_had_after_close(void) {
    int fd = make_hot("f", 1, 4);
    EQUAL(close(fd), 0);
    for (int i = 0; i < 20; i++) {
        fd = open(path("f"), O_RDWR);
        EQUAL(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
        EQUAL(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
        heat_reads(fd, 1, 0, PAGE);
        heat_writes(fd, 1, 0, PAGE);
        EQUAL(close(fd), 0);
        fd = open(path("f"), O_RDONLY);
        EQUAL(fcntl(fd, F_SETLEASE, F_RDLCK), 0);
        EQUAL(close(fd), 0);
    }
}

static void closing_is_noticed(void) {
    int fd = make_hot("f", 1, 4), notices = inotify_init1(IN_NONBLOCK);
    CHECK(inotify_add_watch(notices, path("f"), IN_CLOSE) > 0);
    FAILS(read(notices, data, sizeof data), EAGAIN);
    EQUAL(close(fd), 0);
    CHECK(read(notices, data, sizeof data) > 0);
    EQUAL(((struct inotify_event *)(void *)data)->mask, IN_CLOSE_WRITE);
    fd = open(path("f"), O_RDONLY);
    heat_reads(fd, 1, 0, SIZE);
    FAILS(read(notices, data, sizeof data), EAGAIN);
    EQUAL(close(fd), 0);
    CHECK(read(notices, data, sizeof data) > 0);
    EQUAL(((struct inotify_event *)(void *)data)->mask, IN_CLOSE_NOWRITE);
}

/* While it is open for writing a file cannot be executed, and the other way round. */
static void executed_files_cannot_be_written(void) {
    int from = open("/bin/sleep", O_RDONLY), to = open(path("sleep"), O_RDWR | O_CREAT, 0755);
    for (long got; (got = read(from, data, sizeof data)) > 0;)
        EQUAL(write(to, data, (size_t)got), got);
    for (int i = 0; i < 64; i++)
        EQUAL(pread(to, data, 512, i), 512);
    FAILS(execl(path("sleep"), "sleep", "0", NULL), ETXTBSY);
    EQUAL(close(to), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        do /* the parent's attempts below are in the way at times */
            execl(path("sleep"), "sleep", "100", NULL);
        while (errno == ETXTBSY);
        _exit(1);
    }
    long until = now_ms() + 5000;
    while ((to = open(path("sleep"), O_RDWR)) >= 0 && now_ms() < until) {
        EQUAL(close(to), 0);
        sleep_ms(1);
    }
    EQUAL(to, -1);
    EQUAL(errno, ETXTBSY);
    EQUAL(kill(pid, SIGKILL), 0);
    EQUAL(waitpid(pid, NULL, 0), pid);
}

const struct test_case lock_cases[] = {
    {"locks/locks_from_the_position", locks_from_the_position, READS},
    {"locks/lockf_from_the_position", lockf_from_the_position, READS},
    {"locks/posix_locks_go_with_any_close", posix_locks_go_with_any_close, READS},
    {"locks/posix_locks_stay_while_files_get_hot", posix_locks_stay_while_files_get_hot, READS},
    {"locks/flock_goes_with_the_last_close", flock_goes_with_the_last_close, READS},
    {"locks/open_file_locks_go_with_the_last_close", open_file_locks_go_with_the_last_close, READS},
    {"locks/leases_can_be_had_after_close", leases_can_be_had_after_close, READS},
    {"locks/closing_is_noticed", closing_is_noticed, READS},
    {"locks/executed_files_cannot_be_written", executed_files_cannot_be_written, READS},
    {0},
};
