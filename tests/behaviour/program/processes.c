/* Processes: positions and tables across fork, vfork and clone. */
#include "case.h"
#include <sched.h>

enum { SIZE = 4 * PAGE };
static unsigned char data[SIZE];

static int hot_at_500(void) {
    int fd = make_hot("f", 1, 4);
    EQUAL(lseek(fd, 400, SEEK_SET), 400);
    EQUAL(read(fd, data, 100), 100);
    return fd;
}

static void takes(int fd, off_t at) {
    EQUAL(read(fd, data, 100), 100);
    DATA(data, 1, at, 100);
}

static void a_forked_child_shares_the_position(void) {
    int fd = hot_at_500();
    CHILD({
        EQUAL(lseek(fd, 0, SEEK_CUR), 500);
        takes(fd, 500);
        heat_reads(fd, 1, 0, SIZE);
        heat_writes(fd, 1, 0, SIZE);
    });
    takes(fd, 600);
    CHILD(EQUAL(lseek(fd, 2000, SEEK_SET), 2000));
    takes(fd, 2000);
    CHILD({
        EQUAL(close(fd), 0);
        FAILS(read(fd, data, 1), EBADF);
    });
    takes(fd, 2100);
    FILE_IS("f", 1, SIZE);
}

/* Parent and child take turns over pipes; each must go on where the other stopped. */
static void turns_between_parent_and_child(void) {
    int fd = hot_at_500(), to[2], from[2];
    char byte = 0;
    EQUAL(pipe(to), 0);
    EQUAL(pipe(from), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 30; i++) {
            EQUAL(read(to[0], &byte, 1), 1);
            takes(fd, 600 + i * 200);
            EQUAL(write(from[1], &byte, 1), 1);
        }
        _exit(0);
    }
    for (int i = 0; i < 30; i++) {
        takes(fd, 500 + i * 200);
        EQUAL(write(to[1], &byte, 1), 1);
        EQUAL(read(from[0], &byte, 1), 1);
    }
    AWAIT(pid);
    EQUAL(lseek(fd, 0, SEEK_CUR), 500 + 60 * 100);
}

static void what_was_opened_after_the_fork_is_private(void) {
    CHILD({
        int fd = hot_at_500();
        takes(fd, 500);
    });
    int fd = hot_at_500();
    CHILD({
        int own = open(path("f"), O_RDWR);
        heat_reads(own, 1, 0, SIZE);
        takes(own, 0);
        takes(own, 100);
    });
    takes(fd, 500);
}

static void grandchildren_share_too(void) {
    int fd = hot_at_500();
    CHILD({
        takes(fd, 500);
        CHILD({
            takes(fd, 600);
            CHILD(takes(fd, 700));
            takes(fd, 800);
        });
        takes(fd, 900);
    });
    takes(fd, 1000);
}

static void children_that_write_in_turn(void) {
    int fd = make("log", 1, 0);
    for (int i = 0; i < 40; i++) {
        fill(data, 1, i * 200, 200);
        EQUAL(write(fd, data, 100), 100);
        CHILD(EQUAL(write(fd, data + 100, 100), 100));
    }
    FILE_IS("log", 1, 40 * 200);
}

/* The child of vfork has its own descriptors but its parent's memory: what it closes and opens must not
 * change what the parent's numbers mean. */
static void vfork_children_close_and_reopen(void) {
    int fd = hot_at_500();
    EQUAL(close(make("other", 2, SIZE)), 0);
    static volatile long wrong;
    char *other = path("other");
    for (int i = 0; i < 20; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            static unsigned char got[100];
            wrong = close(fd) != 0;
            wrong |= read(fd, got, 1) != -1;
            wrong |= open(other, O_RDWR) != fd;
            for (int round = 0; round < 60; round++)
                wrong |= pread(fd, got, 100, round) != 100 || got[0] != pattern(2, round);
            wrong |= read(fd, got, 100) != 100 || got[0] != pattern(2, 0);
            _exit(0);
        }
        AWAIT(pid);
        EQUAL(wrong, 0);
        takes(fd, 500 + i * 100);
        EQUAL(lseek(fd, 0, SEEK_CUR), 600 + i * 100);
        heat_writes(fd, 1, 0, PAGE);
    }
    FILE_IS("other", 2, SIZE);
    FILE_IS("f", 1, SIZE);
}

static void vfork_children_share_the_position(void) {
    int fd = hot_at_500();
    static volatile long got;
    pid_t pid = vfork();
    if (pid == 0) {
        got = lseek(fd, 1000, SEEK_CUR);
        _exit(0);
    }
    AWAIT(pid);
    EQUAL(got, 1500);
    takes(fd, 1500);
    pid = vfork();
    if (pid == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", fd);
        execl(self, self, "--read-on", number, "1", "1600", NULL);
        _exit(1);
    }
    AWAIT(pid);
    takes(fd, 1700);
}

/* What Python's subprocess does: vfork, dup2 onto 0-2, close the rest, exec. */
static void vfork_children_rearrange_and_exec(void) {
    int fd = hot_at_500(), ends[2];
    for (int i = 0; i < 10; i++) {
        EQUAL(pipe(ends), 0);
        pid_t pid = vfork();
        if (pid == 0) {
            dup2(ends[1], 1);
            dup2(fd, 0);
            close_range(3, ~0U, 0);
            execl("/bin/echo", "echo", "hello", NULL);
            _exit(1);
        }
        AWAIT(pid);
        EQUAL(close(ends[1]), 0);
        char text[16];
        EQUAL(read(ends[0], text, sizeof text), 6);
        EQUAL(memcmp(text, "hello\n", 6), 0);
        EQUAL(close(ends[0]), 0);
        takes(fd, 500 + 100 * i);
        heat_reads(fd, 1, 0, SIZE);
    }
}

static int shared_fd;

static int reopen_in_a_clone(void *other) {
    if (close(shared_fd) != 0)
        return 1;
    return open(other, O_RDWR) == shared_fd ? 0 : 2;
}

/* With CLONE_FILES the child's descriptors are the parent's. */
static void clones_that_share_the_table(void) {
    static char stack[65536] __attribute__((aligned(16)));
    EQUAL(close(make("other", 2, SIZE)), 0);
    shared_fd = hot_at_500();
    fflush(NULL);
    pid_t pid = clone(reopen_in_a_clone, stack + sizeof stack, CLONE_FILES | SIGCHLD, path("other"));
    CHECK(pid > 0);
    AWAIT(pid);
    EQUAL(read(shared_fd, data, 100), 100);
    DATA(data, 2, 0, 100);
    heat_reads(shared_fd, 2, 0, SIZE);
    heat_writes(shared_fd, 2, 0, SIZE);
    FILE_IS("f", 1, SIZE);
}

static int seek_in_a_clone(void *unused) {
    (void)unused;
    return lseek(shared_fd, 1000, SEEK_SET) == 1000 ? 0 : 1;
}

static void clones_with_their_own_table(void) {
    static char stack[65536] __attribute__((aligned(16)));
    shared_fd = hot_at_500();
    EQUAL(close(make("other", 2, SIZE)), 0);
    fflush(NULL);
    AWAIT(clone(reopen_in_a_clone, stack + sizeof stack, SIGCHLD, path("other")));
    takes(shared_fd, 500);
    AWAIT(clone(seek_in_a_clone, stack + sizeof stack, SIGCHLD, NULL));
    takes(shared_fd, 1000);
    AWAIT(clone(reopen_in_a_clone, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, path("other")));
    takes(shared_fd, 1100);
    heat_reads(shared_fd, 1, 0, SIZE);
}

static void fork_by_syscall(void) {
    int fd = hot_at_500();
    for (int i = 0; i < 10; i++) {
        fflush(NULL);
        pid_t pid = (pid_t)syscall(SYS_fork);
        if (pid == 0) {
            takes(fd, 500 + i * 200);
            _exit(0);
        }
        AWAIT(pid);
        takes(fd, 600 + i * 200);
    }
}

static void *unshare_and_close(void *fd) {
    EQUAL(unshare(CLONE_FILES), 0);
    EQUAL(close(*(int *)fd), 0);
    FAILS(pread(*(int *)fd, data, 1, 0), EBADF);
    int other = make("other", 2, 2 * PAGE);
    EQUAL(other, *(int *)fd);
    unsigned char own[100];
    EQUAL(pread(other, own, 100, 0), 100);
    DATA(own, 2, 0, 100);
    return NULL;
}

static void a_thread_that_leaves_the_shared_table(void) {
    int fd = hot_at_500();
    pthread_t thread;
    EQUAL(pthread_create(&thread, NULL, unshare_and_close, &fd), 0);
    EQUAL(pthread_join(thread, NULL), 0);
    takes(fd, 500);
    heat_reads(fd, 1, 0, SIZE);
}

static volatile int stop;

static void *keep_reading(void *fd) {
    unsigned char own[100];
    while (!stop) {
        EQUAL(pread(*(int *)fd, own, 100, 300), 100);
        EQUAL(pwrite(*(int *)fd, own, 100, 300), 100);
    }
    return NULL;
}

/* A fork while another thread is in the middle of a call leaves nothing locked in the child. */
static void forks_beside_busy_threads(void) {
    int fd = make_hot("f", 1, 4);
    pthread_t thread;
    EQUAL(pthread_create(&thread, NULL, keep_reading, &fd), 0);
    for (int i = 0; i < 50; i++)
        CHILD({
            alarm(20);
            EQUAL(pread(fd, data, 100, 300), 100);
            DATA(data, 1, 300, 100);
            EQUAL(pwrite(fd, data, 100, 300), 100);
            int own = open(path("f"), O_RDWR);
            for (int round = 0; round < 40; round++)
                EQUAL(pread(own, data, 100, 300), 100);
        });
    stop = 1;
    EQUAL(pthread_join(thread, NULL), 0);
    FILE_IS("f", 1, SIZE);
}

/* Descriptors are opened, duplicated, exchanged and closed before anything is read at an offset, by the process or by
 * its child: each number leads to its file when it is. */
static void rearranged_before_the_first_read_at_an_offset(void) {
    CHILD({
        make("f", 1, SIZE);
        make("g", 2, SIZE);
    });
    int f = open(path("f"), O_RDWR), g = open(path("g"), O_RDWR), ends[2];
    int copy = dup(f), moved = fcntl(g, F_DUPFD, 40), far = fcntl(f, F_DUPFD, 100);
    CHECK(f >= 3 && g >= 3 && copy >= 3 && moved >= 40 && far >= 100);
    EQUAL(dup2(g, f), f);
    EQUAL(close(g), 0);
    CHILD({
        EQUAL(close(moved), 0);
        EQUAL(dup2(copy, moved), moved);
        FAILS(pread(g, data, 1, 0), EBADF);
        heat_reads(moved, 1, 0, SIZE);
        heat_reads(f, 2, 0, SIZE);
        heat_reads(far, 1, 0, SIZE);
        CHILD(heat_reads(f, 2, 0, SIZE));
        FAILS(pread(g, data, 1, 0), EBADF);
    });
    EQUAL(pipe(ends), 0);
    FAILS(pread(ends[0], data, 1, 0), ESPIPE);
    EQUAL(dup2(ends[0], f), f);
    heat_reads(moved, 2, 0, SIZE);
    heat_reads(copy, 1, 0, SIZE);
    FAILS(pread(f, data, 1, 0), ESPIPE);
    FILE_IS("f", 1, SIZE);
    FILE_IS("g", 2, SIZE);
}

const struct test_case process_cases[] = {
    {"processes/a_forked_child_shares_the_position", a_forked_child_shares_the_position, READS},
    {"processes/turns_between_parent_and_child", turns_between_parent_and_child, READS},
    {"processes/what_was_opened_after_the_fork_is_private", what_was_opened_after_the_fork_is_private, READS},
    {"processes/grandchildren_share_too", grandchildren_share_too, READS},
    {"processes/children_that_write_in_turn", children_that_write_in_turn, ANY},
    {"processes/vfork_children_close_and_reopen", vfork_children_close_and_reopen, READS},
    {"processes/vfork_children_share_the_position", vfork_children_share_the_position, READS},
    {"processes/vfork_children_rearrange_and_exec", vfork_children_rearrange_and_exec, READS},
    {"processes/clones_that_share_the_table", clones_that_share_the_table, READS},
    {"processes/clones_with_their_own_table", clones_with_their_own_table, READS},
    {"processes/fork_by_syscall", fork_by_syscall, READS},
    {"processes/a_thread_that_leaves_the_shared_table", a_thread_that_leaves_the_shared_table, READS},
    {"processes/forks_beside_busy_threads", forks_beside_busy_threads, READS},
    {"processes/rearranged_before_the_first_read_at_an_offset", rearranged_before_the_first_read_at_an_offset,
     READS},
    {0},
};
