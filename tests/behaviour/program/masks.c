/* Masks and jumps: every way to block SIGBUS and SIGSEGV, and to leave a read in the middle. */
#include "case.h"
#include <poll.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/time.h>
#include <threads.h>
#include <ucontext.h>

enum { PAGES = 16, SIZE = PAGES * PAGE };
static unsigned char data[1 << 16];
static int hot;

/* Another process cuts the file under its mapping, and a buffer is bad: both are errors or short counts. */
static void faults_are_results(void) {
    long other = KERNEL(SYS_open, (long)path("f"), (long)O_RDWR);
    EQUAL(pread(hot, data, 512, 8 * PAGE), 512);
    EQUAL(KERNEL(SYS_ftruncate, other, 100L), 0);
    EQUAL(pread(hot, data, 512, 8 * PAGE), 0);
    EQUAL(KERNEL(SYS_ftruncate, other, (long)SIZE), 0);
    FAILS(pread(hot, (void *)unknown(16), 512, 0), EFAULT);
    KERNEL(SYS_close, other);
}

static int is_blocked(int signal) {
    sigset_t now;
    EQUAL(pthread_sigmask(SIG_BLOCK, NULL, &now), 0);
    return sigismember(&now, signal);
}

static void unblock(void) {
    sigset_t none;
    sigemptyset(&none);
    EQUAL(pthread_sigmask(SIG_SETMASK, &none, NULL), 0);
    EQUAL(is_blocked(SIGBUS), 0);
    EQUAL(is_blocked(SIGSEGV), 0);
}

static void both_blocked(void) {
    EQUAL(is_blocked(SIGBUS), 1);
    EQUAL(is_blocked(SIGSEGV), 1);
    faults_are_results();
    unblock();
    faults_are_results();
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
extern int __sigsuspend(const sigset_t *), __sigpause(int, int);
extern int sigblock(int), sigsetmask(int), siggetmask(void);
#define BOTH (1 << (SIGBUS - 1) | 1 << (SIGSEGV - 1))

static void do_nothing(int signal) {
    (void)signal;
}

static void every_function_that_blocks(void) {
    hot = make_hot("f", 1, PAGES);
    sigset_t all, old;
    sigfillset(&all);
    EQUAL(sigprocmask(SIG_BLOCK, &all, NULL), 0);
    both_blocked();
    EQUAL(pthread_sigmask(SIG_SETMASK, &all, &old), 0);
    EQUAL(sigismember(&old, SIGBUS), 0);
    both_blocked();
    EQUAL(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, 8L), 0);
    both_blocked();
    EQUAL(sighold(SIGBUS) | sighold(SIGSEGV), 0);
    both_blocked();
    EQUAL(sigset(SIGBUS, SIG_HOLD) == SIG_DFL, 1);
    EQUAL(sigset(SIGSEGV, SIG_HOLD) == SIG_DFL, 1);
    EQUAL(sigset(SIGSEGV, SIG_HOLD) == SIG_HOLD, 1);
    both_blocked();
    EQUAL(sigblock(BOTH), 0);
    EQUAL(siggetmask(), BOTH);
    both_blocked();
    EQUAL(sigsetmask(~0), 0);
    both_blocked();
    EQUAL(sighold(SIGBUS), 0);
    EQUAL(sigrelse(SIGBUS), 0);
    EQUAL(is_blocked(SIGBUS), 0);
    EQUAL(sigset(SIGBUS, do_nothing) == SIG_DFL, 1);
    faults_are_results();
    EQUAL(raise(SIGBUS), 0);
    EQUAL(sigset(SIGBUS, SIG_DFL) == do_nothing, 1);
    FAILS(sighold(999), EINVAL);
    EQUAL(sigset(0, SIG_DFL) == SIG_ERR, 1);
}

static volatile int handled;

static void read_in_the_handler(int signal) {
    (void)signal;
    handled++;
    faults_are_results();
}

/* Masks that hold for as long as a call waits: a handler runs with them. */
static void masks_while_waiting(void) {
    hot = make_hot("f", 1, PAGES);
    signal(SIGUSR1, read_in_the_handler);
    sigset_t wait, usr;
    sigfillset(&wait);
    sigdelset(&wait, SIGUSR1);
    sigemptyset(&usr);
    sigaddset(&usr, SIGUSR1);
    EQUAL(sigprocmask(SIG_BLOCK, &usr, NULL), 0);
    struct timespec limit = {5, 0};
    struct epoll_event event;
    int epoll = epoll_create1(0);
    for (int way = 0; way < 7; way++) {
        kill(getpid(), SIGUSR1);
        switch (way) {
        case 0: FAILS(sigsuspend(&wait), EINTR); break;
        case 1: FAILS(ppoll(NULL, 0, &limit, &wait), EINTR); break;
        case 2: FAILS(pselect(0, NULL, NULL, NULL, &limit, &wait), EINTR); break;
        case 3: FAILS(epoll_pwait(epoll, &event, 1, 5000, &wait), EINTR); break;
        case 4: FAILS(__sigpause(SIGUSR1, 1), EINTR); break;
        case 5: FAILS(syscall(SYS_ppoll, NULL, 0L, &limit, &wait, 8L), EINTR); break;
        case 6: FAILS(__sigsuspend(&wait), EINTR); break;
        }
        EQUAL(handled, way + 1);
        EQUAL(is_blocked(SIGBUS), 0);
        faults_are_results();
    }
}

static ucontext_t first, second;
static volatile int visits;
static char coroutine_stack[1 << 17];

static void coroutine(void) {
    visits++;
    faults_are_results();
    both_blocked();
    swapcontext(&second, &first);
    visits++;
    faults_are_results();
}

static void contexts_with_masks(void) {
    hot = make_hot("f", 1, PAGES);
    EQUAL(getcontext(&second), 0);
    second.uc_stack.ss_sp = coroutine_stack;
    second.uc_stack.ss_size = sizeof coroutine_stack;
    second.uc_link = &first;
    sigfillset(&second.uc_sigmask);
    makecontext(&second, coroutine, 0);
    EQUAL(swapcontext(&first, &second), 0);
    EQUAL(visits, 1);
    faults_are_results();
    sighold(SIGBUS);
    sighold(SIGSEGV);
    EQUAL(swapcontext(&first, &second), 0);
    EQUAL(visits, 2);
    faults_are_results();
    volatile int turns = 0;
    unblock();
    ucontext_t here;
    EQUAL(getcontext(&here), 0);
    EQUAL(is_blocked(SIGBUS), 0);
    if (turns++ == 0) {
        sighold(SIGBUS);
        sighold(SIGSEGV);
        setcontext(&here);
    }
    EQUAL(turns, 2);
    faults_are_results();
}

/* sigsetjmp's mask comes back with siglongjmp, in the program's eyes and for faults. */
static void jumps_restore_masks(void) {
    hot = make_hot("f", 1, PAGES);
    sigjmp_buf back;
    volatile int turns = 0;
    if (sigsetjmp(back, 1) == 0 && turns++ == 0) {
        sighold(SIGBUS);
        sighold(SIGSEGV);
        faults_are_results();
        siglongjmp(back, 1);
    }
    EQUAL(is_blocked(SIGBUS), 0);
    sighold(SIGBUS);
    sighold(SIGSEGV);
    if (sigsetjmp(back, 1) == 0) {
        unblock();
        siglongjmp(back, 1);
    }
    both_blocked();
}

static void *sees_both_blocked(void *unused) {
    (void)unused;
    both_blocked();
    return NULL;
}

static int sees_both_blocked_too(void *unused) {
    (void)unused;
    EQUAL(is_blocked(SIGBUS) & is_blocked(SIGSEGV), 1);
    faults_are_results();
    return 0;
}

static void threads_inherit_masks(void) {
    hot = make_hot("f", 1, PAGES);
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    pthread_t thread;
    EQUAL(sigprocmask(SIG_SETMASK, &all, NULL), 0);
    EQUAL(pthread_create(&thread, NULL, sees_both_blocked, NULL), 0);
    EQUAL(pthread_join(thread, NULL), 0);
    thrd_t other;
    EQUAL(thrd_create(&other, sees_both_blocked_too, NULL), thrd_success);
    EQUAL(thrd_join(other, NULL), thrd_success);
    both_blocked();
    pthread_attr_t attributes;
    EQUAL(pthread_attr_init(&attributes), 0);
    EQUAL(pthread_attr_setsigmask_np(&attributes, &all), 0);
    EQUAL(pthread_create(&thread, &attributes, sees_both_blocked, NULL), 0);
    EQUAL(pthread_join(thread, NULL), 0);
    EQUAL(is_blocked(SIGBUS), 0);
}

/* This program again, which looks at its mask (`--blocked`). */
static void child_has_both_blocked(void (*start)(char *const[])) {
    char *words[] = {(char *)self, "--blocked", NULL};
    start(words);
}

static void by_exec(char *const words[]) {
    CHILD({
        execv("/nowhere/absent", words);
        faults_are_results();
        execv(self, words);
    });
}

static void by_vfork(char *const words[]) {
    pid_t pid = vfork();
    if (pid == 0) {
        execv(self, words);
        _exit(1);
    }
    AWAIT(pid);
}

#include <spawn.h>
static void by_spawn(char *const words[]) {
    pid_t pid;
    EQUAL(posix_spawn(&pid, self, NULL, NULL, words, environ), 0);
    AWAIT(pid);
}

static void by_system(char *const words[]) {
    char *command;
    CHECK(asprintf(&command, "exec '%s' %s", words[0], words[1]) > 0);
    EQUAL(system(command), 0);
}

static void programs_inherit_masks(void) {
    hot = make_hot("f", 1, PAGES);
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGBUS);
    sigaddset(&both, SIGSEGV);
    EQUAL(sigprocmask(SIG_SETMASK, &both, NULL), 0);
    child_has_both_blocked(by_exec);
    child_has_both_blocked(by_vfork);
    child_has_both_blocked(by_spawn);
    child_has_both_blocked(by_system);
    both_blocked();
}

static void *waits_for_segv(void *got) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    struct timespec limit = {10, 0};
    *(int *)got = sigtimedwait(&set, NULL, &limit);
    return NULL;
}

/* A signal for the process reaches the thread that waits for it, past those that block it. */
static void sent_signals_reach_who_waits(void) {
    hot = make_hot("f", 1, PAGES);
    sigset_t all;
    sigfillset(&all);
    EQUAL(pthread_sigmask(SIG_SETMASK, &all, NULL), 0);
    heat_reads(hot, 1, 0, SIZE);
    int got = 0;
    pthread_t thread;
    EQUAL(pthread_create(&thread, NULL, waits_for_segv, &got), 0);
    sleep_ms(50);
    EQUAL(kill(getpid(), SIGSEGV), 0);
    EQUAL(pthread_join(thread, NULL), 0);
    EQUAL(got, SIGSEGV);
}

static sigjmp_buf out;
static volatile int jumps;

static void jump_out(int signal) {
    (void)signal;
    jumps++;
    siglongjmp(out, 1);
}

static void interrupt_after(long us) {
    struct itimerval timer = {.it_value = {0, us}};
    EQUAL(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

/* A handler that jumps out of reads and writes leaves nothing of the file open, and no thread without it. */
static void jumps_out_of_copies(void) {
    hot = make_hot("f", 1, 256);
    heat_reads(hot, 1, 0, 256 * PAGE);
    signal(SIGALRM, jump_out);
    for (volatile int turn = 0; turn < 200; turn++)
        if (sigsetjmp(out, 1) == 0) {
            interrupt_after(50 + turn * 37 % 200);
            for (;;) {
                pread(hot, data, sizeof data, 0);
                fill(data, 1, 0, 16);
                pwrite(hot, data, 16, 0);
            }
        }
    EQUAL(jumps, 200);
    heat_reads(hot, 1, 0, PAGE);
    EQUAL(flock(hot, LOCK_EX), 0);
    EQUAL(close(hot), 0);
    int again = open(path("f"), O_RDWR);
    EQUAL(flock(again, LOCK_EX | LOCK_NB), 0);
}

static unsigned char alternate[1 << 16];

static void jumps_from_the_alternate_stack(void) {
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    EQUAL(sigaltstack(&stack, NULL), 0);
    hot = make_hot("f", 1, 256);
    heat_reads(hot, 1, 0, 256 * PAGE);
    struct sigaction action = {.sa_handler = jump_out, .sa_flags = SA_ONSTACK};
    EQUAL(sigaction(SIGALRM, &action, NULL), 0);
    for (volatile int turn = 0; turn < 100; turn++)
        if (sigsetjmp(out, 1) == 0) {
            interrupt_after(50 + turn * 37 % 200);
            for (;;)
                pread(hot, data, sizeof data, 0);
        }
    EQUAL(flock(hot, LOCK_EX), 0);
    EQUAL(close(hot), 0);
    EQUAL(flock(open(path("f"), O_RDWR), LOCK_EX | LOCK_NB), 0);
}

static void close_it(int signal) {
    (void)signal;
    close(hot);
    handled = 1;
}

static void closed_in_a_handler(void) {
    signal(SIGALRM, close_it);
    for (int turn = 0; turn < 40; turn++) {
        hot = make_hot("f", 1, 64);
        heat_reads(hot, 1, 0, 64 * PAGE);
        EQUAL(flock(hot, LOCK_EX), 0);
        handled = 0;
        interrupt_after(100 + turn * 3);
        while (!handled)
            pread(hot, data, sizeof data, 0);
        int again = open(path("f"), O_RDWR);
        EQUAL(flock(again, LOCK_EX | LOCK_NB), 0);
        close(again);
    }
}

const struct test_case mask_cases[] = {
    {"masks/every_function_that_blocks", every_function_that_blocks, READS},
    {"masks/masks_while_waiting", masks_while_waiting, READS},
    {"masks/contexts_with_masks", contexts_with_masks, READS},
    {"masks/jumps_restore_masks", jumps_restore_masks, READS},
    {"masks/threads_inherit_masks", threads_inherit_masks, READS},
    {"masks/programs_inherit_masks", programs_inherit_masks, READS},
    {"masks/sent_signals_reach_who_waits", sent_signals_reach_who_waits, READS},
    {"masks/jumps_out_of_copies", jumps_out_of_copies, READS},
    {"masks/jumps_from_the_alternate_stack", jumps_from_the_alternate_stack, READS},
    {"masks/closed_in_a_handler", closed_in_a_handler, READS},
    {0},
};
