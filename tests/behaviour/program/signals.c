/* Signals: I/O inside handlers, handlers that jump out of I/O, blocked signals. */
#include "case.h"
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/time.h>

enum { SIZE = 8 * PAGE };
static unsigned char data[SIZE];
static int fd, other;
static atomic_int handled, stop;

static void every(long microseconds) {
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    EQUAL(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

static void handle(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    EQUAL(sigaction(SIGALRM, &action, NULL), 0);
}

static void io_in_a_handler(int signal) {
    unsigned char own[300];
    int saved = errno, i = atomic_fetch_add(&handled, 1);
    (void)signal;
    off_t at = i * 611L % (SIZE - 300);
    EQUAL(pread(fd, own, 300, at), 300);
    DATA(own, 1, at, 300);
    EQUAL(pwrite(fd, own, 300, at), 300);
    EQUAL(pread(other, own, 300, at), 300);
    DATA(own, 2, at, 300);
    errno = saved;
}

static void handlers_do_io_while_main_does(void) {
    fd = make_hot("f", 1, 8);
    other = make_hot("g", 2, 8);
    handle(io_in_a_handler, SA_RESTART);
    every(100);
    long until = now_ms() + 500;
    for (int i = 0; now_ms() < until; i++) {
        off_t at = i * 677L % (SIZE - 1500);
        EQUAL(pread(fd, data, 1500, at), 1500);
        DATA(data, 1, at, 1500);
        EQUAL(pwrite(fd, data, 1500, at), 1500);
    }
    every(0);
    CHECK(handled > 100);
    FILE_IS("f", 1, SIZE);
}

enum { RECORD = 64, RECORDS = 8192 };
static unsigned char taken[RECORDS];
static unsigned char whole[RECORDS * RECORD];

/* The number of the next record at the position, -1 at the end. */
static int take(void) {
    unsigned char own[RECORD];
    int number;
    long got = read(fd, own, sizeof own);
    if (got == 0)
        return -1;
    EQUAL(got, sizeof own);
    memcpy(&number, own, sizeof number);
    CHECK(number >= 0 && number < RECORDS);
    for (int byte = sizeof number; byte < RECORD; byte++)
        EQUAL(own[byte], (unsigned char)(number * 3 + byte));
    taken[number]++;
    return number;
}

static void take_in_a_handler(int signal) {
    int saved = errno;
    (void)signal;
    atomic_fetch_add(&handled, take() >= 0);
    errno = saved;
}

/* Main and the handler take from one position: every record once, none twice, none left out. */
static void handlers_share_the_position_with_main(void) {
    for (int number = 0; number < RECORDS; number++) {
        for (int byte = 0; byte < RECORD; byte++)
            whole[number * RECORD + byte] = (unsigned char)(number * 3 + byte);
        memcpy(whole + number * RECORD, &number, sizeof number);
    }
    fd = open(path("f"), O_RDWR | O_CREAT, 0600);
    for (int at = 0; at < (int)sizeof whole; at += PAGE)
        EQUAL(write(fd, whole + at, PAGE), PAGE);
    handle(take_in_a_handler, SA_RESTART);
    for (int round = 0; round < 20; round++) {
        EQUAL(lseek(fd, 0, SEEK_SET), 0);
        memset(taken, 0, sizeof taken);
        every(50);
        while (take() >= 0)
            ;
        every(0);
        for (int number = 0; number < RECORDS; number++)
            EQUAL(taken[number], 1);
    }
    CHECK(handled > 20);
}

static sigjmp_buf back;

static void jump_out(int signal) {
    (void)signal;
    atomic_fetch_add(&handled, 1);
    siglongjmp(back, 1);
}

/* A handler may leave any call in the middle; the next call must find nothing locked or half done. */
static void handlers_jump_out_of_io(void) {
    fd = make_hot("f", 1, 8);
    other = make_hot("g", 2, 8);
    char *name = path("g");
    handle(jump_out, 0);
    long until = now_ms() + 600;
    for (volatile int i = 0; now_ms() < until; i++) {
        if (sigsetjmp(back, 1) == 0) {
            struct itimerval once = {{0, 0}, {0, 50 + i % 100}};
            EQUAL(setitimer(ITIMER_REAL, &once, NULL), 0);
            for (volatile int turn = 0; turn < 100000; turn++) {
                off_t at = turn * 677L % (SIZE - 2000);
                pread(fd, data, 2000, at);
                fill(data, 1, at, 100);
                pwrite(fd, data, 100, at);
                lseek(other, at, SEEK_SET);
                read(other, data, 500);
                close(open(name, O_RDONLY));
            }
        }
        alarm(0);
        EQUAL(pread(fd, data, 500, 100), 500);
        DATA(data, 1, 100, 500);
        EQUAL(pread(other, data, 500, 100), 500);
        DATA(data, 2, 100, 500);
    }
    CHECK(handled > 50);
    FILE_IS("f", 1, SIZE);
    FILE_IS("g", 2, SIZE);
}

static void *read_on(void *unused) {
    unsigned char own[300];
    (void)unused;
    for (int i = 0; !atomic_load(&stop); i++) {
        off_t at = i * 331L % (SIZE - 300);
        EQUAL(pread(fd, own, 300, at), 300);
        DATA(own, 1, at, 300);
        EQUAL(pwrite(fd, own, 300, at), 300);
    }
    return NULL;
}

static void jumping_leaves_other_threads_running(void) {
    pthread_t thread;
    sigset_t alarms;
    fd = make_hot("f", 1, 8);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    EQUAL(pthread_sigmask(SIG_BLOCK, &alarms, NULL), 0); /* the new thread starts with it blocked */
    EQUAL(pthread_create(&thread, NULL, read_on, NULL), 0);
    EQUAL(pthread_sigmask(SIG_UNBLOCK, &alarms, NULL), 0);
    handle(jump_out, 0);
    long until = now_ms() + 300;
    while (now_ms() < until) {
        if (sigsetjmp(back, 1) == 0) {
            struct itimerval once = {{0, 0}, {0, 70}};
            EQUAL(setitimer(ITIMER_REAL, &once, NULL), 0);
            for (volatile int turn = 0; turn < 100000; turn++) {
                fill(data, 1, turn % 5000, 900);
                pwrite(fd, data, 900, turn % 5000);
            }
        }
        alarm(0);
    }
    atomic_store(&stop, 1);
    EQUAL(pthread_join(thread, NULL), 0);
    FILE_IS("f", 1, SIZE);
}

/* Faults are dealt with also where the thread has blocked every signal there is. */
static void *blocked_reader(void *unused) {
    unsigned char own[3000];
    sigset_t all;
    (void)unused;
    sigfillset(&all);
    EQUAL(pthread_sigmask(SIG_SETMASK, &all, NULL), 0);
    for (int i = 0; !atomic_load(&stop); i++) {
        long got = pread(fd, own, sizeof own, i * 677L % (SIZE - 3000));
        CHECK(got >= 0 && got <= (long)sizeof own);
        CHECK(pwrite(fd, own, 200, 2 * PAGE) == 200);
        FAILS(pread(fd, (void *)unknown(16), 100, 0), EFAULT);
    }
    sigset_t now;
    EQUAL(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
    EQUAL(sigismember(&now, SIGBUS) && sigismember(&now, SIGSEGV), 1);
    return NULL;
}

static void faults_with_all_signals_blocked(void) {
    pthread_t thread;
    fd = make_hot("f", 1, 8);
    fill(data, 1, 0, SIZE);
    long kernel_fd = KERNEL(SYS_open, (long)path("f"), (long)O_RDWR);
    EQUAL(pthread_create(&thread, NULL, blocked_reader, NULL), 0);
    long until = now_ms() + 500;
    while (now_ms() < until) {
        EQUAL(KERNEL(SYS_ftruncate, kernel_fd, 3L * PAGE + 55), 0);
        EQUAL(KERNEL(SYS_pwrite64, kernel_fd, (long)data, (long)SIZE, 0L), SIZE);
    }
    atomic_store(&stop, 1);
    EQUAL(pthread_join(thread, NULL), 0);
}

/* Masks that the program sets are the ones it gets back. */
static void masks_are_the_programs(void) {
    sigset_t set, got;
    fd = make_hot("f", 1, 8);
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    sigaddset(&set, SIGUSR1);
    EQUAL(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    heat_reads(fd, 1, 0, SIZE);
    EQUAL(sigprocmask(SIG_SETMASK, NULL, &got), 0);
    EQUAL(sigismember(&got, SIGBUS), 1);
    EQUAL(sigismember(&got, SIGUSR1), 1);
    EQUAL(sigismember(&got, SIGSEGV), 0);
    EQUAL(kill(getpid(), SIGBUS), 0);
    heat_reads(fd, 1, 0, SIZE);
    EQUAL(sigpending(&got), 0);
    EQUAL(sigismember(&got, SIGBUS), 1);
    struct timespec none = {0, 0};
    EQUAL(sigtimedwait(&set, NULL, &none), SIGBUS);
}

static void slow_calls_are_still_interrupted(void) {
    int ends[2];
    fd = make_hot("f", 1, 8);
    EQUAL(pipe(ends), 0);
    handle(io_in_a_handler, 0);
    other = make_hot("g", 2, 8);
    struct itimerval once = {{0, 0}, {0, 20000}};
    EQUAL(setitimer(ITIMER_REAL, &once, NULL), 0);
    FAILS(read(ends[0], data, 1), EINTR);
    EQUAL(handled, 1);
}

const struct test_case signal_cases[] = {
    {"signals/handlers_do_io_while_main_does", handlers_do_io_while_main_does, READS},
    {"signals/handlers_share_the_position_with_main", handlers_share_the_position_with_main, POSITION_READS},
    {"signals/handlers_jump_out_of_io", handlers_jump_out_of_io, READS},
    {"signals/jumping_leaves_other_threads_running", jumping_leaves_other_threads_running, READS},
    {"signals/faults_with_all_signals_blocked", faults_with_all_signals_blocked, READS},
    {"signals/masks_are_the_programs", masks_are_the_programs, READS},
    {"signals/slow_calls_are_still_interrupted", slow_calls_are_still_interrupted, READS},
    {0},
};
