/* Handlers: the program's own for SIGBUS and SIGSEGV, whether installed before the first I/O or after it. */
#include "case.h"
#include <setjmp.h>

enum { SIZE = 8 * PAGE };
static unsigned char data[SIZE];
static volatile int caught, caught_code, on_stack;
static volatile void *caught_at;
static sigjmp_buf back;
static unsigned char alternate[65536];

static void note(int signal, siginfo_t *info, void *context) {
    (void)context;
    unsigned char here;
    caught = signal;
    caught_code = info->si_code;
    caught_at = info->si_addr;
    on_stack = &here >= alternate && &here < alternate + sizeof alternate;
    siglongjmp(back, 1);
}

static void note_plainly(int signal) {
    caught = signal;
    siglongjmp(back, 1);
}

static void install(int flags) {
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | flags};
    sigemptyset(&action.sa_mask);
    EQUAL(sigaction(SIGBUS, &action, NULL), 0);
    EQUAL(sigaction(SIGSEGV, &action, NULL), 0);
}

/* A page past the end of a file, mapped by the program: touching it is the program's own SIGBUS. */
static volatile unsigned char *past_the_end(void) {
    static int small;
    if (!small)
        small = make("small", 3, 100);
    unsigned char *map = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, small, 0);
    CHECK(map != MAP_FAILED);
    return map + PAGE;
}

static void own_faults_reach_the_handler(void) {
    for (int i = 0; i < 5; i++) {
        volatile unsigned char *bad = past_the_end();
        caught = 0;
        if (sigsetjmp(back, 1) == 0) {
            *bad = 1;
            fail(__FILE__, __LINE__, "no fault");
        }
        EQUAL(caught, SIGBUS);
        EQUAL(caught_code, BUS_ADRERR);
        EQUAL(caught_at == bad, 1);
        bad = (unsigned char *)unknown(48);
        caught = 0;
        if (sigsetjmp(back, 1) == 0) {
            *bad = 1;
            fail(__FILE__, __LINE__, "no fault");
        }
        EQUAL(caught, SIGSEGV);
        EQUAL(caught_code, SEGV_MAPERR);
        EQUAL(caught_at == bad, 1);
    }
}

/* The library's own faults never reach the program's handler. */
static void io_faults_do_not(int fd) {
    long other = KERNEL(SYS_open, (long)path("f"), (long)O_RDWR);
    caught = 0;
    if (sigsetjmp(back, 1) == 0) {
        heat_reads(fd, 1, 0, SIZE);
        for (int i = 0; i < 20; i++) {
            EQUAL(KERNEL(SYS_ftruncate, other, 2L * PAGE), 0);
            EQUAL(pread(fd, data, 100, 3 * PAGE), 0);
            EQUAL(pread(fd, data, 100, 2 * PAGE - 50), 50);
            FAILS(pread(fd, (void *)unknown(16), 100, 0), EFAULT);
            FAILS(pwrite(fd, (void *)unknown(16), 100, 0), EFAULT);
            EQUAL(KERNEL(SYS_ftruncate, other, (long)SIZE), 0);
            fill(data, 1, 0, SIZE);
            EQUAL(pwrite(fd, data + 2 * PAGE, 6 * PAGE, 2 * PAGE), 6 * PAGE);
        }
    }
    EQUAL(caught, 0);
}

static void installed_before_the_first_io(void) {
    install(0);
    int fd = make_hot("f", 1, 8);
    own_faults_reach_the_handler();
    io_faults_do_not(fd);
    own_faults_reach_the_handler();
}

static void installed_after_the_first_io(void) {
    int fd = make_hot("f", 1, 8);
    install(0);
    own_faults_reach_the_handler();
    io_faults_do_not(fd);
    own_faults_reach_the_handler();
}

static void on_an_alternate_stack(void) {
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    EQUAL(sigaltstack(&stack, NULL), 0);
    int fd = make_hot("f", 1, 8);
    install(SA_ONSTACK);
    own_faults_reach_the_handler();
    EQUAL(on_stack, 1);
    io_faults_do_not(fd);
    install(0);
    own_faults_reach_the_handler();
    EQUAL(on_stack, 0);
}

static void overflow_the_stack(volatile unsigned char *above) {
    volatile unsigned char frame[PAGE];
    frame[0] = above[0];
    if (above[0])
        overflow_the_stack(frame);
    frame[1] = above[1];
}

/* A handler on an alternate stack is how programs notice that their own stack is full. */
static void a_full_stack_is_noticed(void) {
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct rlimit limit = {1 << 20, RLIM_INFINITY};
    EQUAL(setrlimit(RLIMIT_STACK, &limit), 0);
    EQUAL(sigaltstack(&stack, NULL), 0);
    make_hot("f", 1, 8);
    install(SA_ONSTACK);
    volatile unsigned char start[2] = {1, 2};
    if (sigsetjmp(back, 1) == 0)
        overflow_the_stack(start);
    EQUAL(caught, SIGSEGV);
    EQUAL(on_stack, 1);
}

static int dies_of(void (*fault)(void)) {
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        fault();
        _exit(0);
    }
    EQUAL(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void touch_past_the_end(void) {
    *past_the_end() = 1;
}

static void touch_nothing(void) {
    *(volatile unsigned char *)unknown(48) = 1;
}

static void raise_bus(void) {
    raise(SIGBUS);
}

static void queue_segv(void) {
    kill(getpid(), SIGSEGV);
}

static void the_default_action_still_kills(void) {
    make_hot("f", 1, 8);
    EQUAL(dies_of(touch_past_the_end), SIGBUS);
    EQUAL(dies_of(touch_nothing), SIGSEGV);
    EQUAL(dies_of(raise_bus), SIGBUS);
    EQUAL(dies_of(queue_segv), SIGSEGV);
    EQUAL(dies_of(abort), SIGABRT);
    install(0);
    signal(SIGBUS, SIG_DFL);
    signal(SIGSEGV, SIG_DFL);
    EQUAL(dies_of(touch_past_the_end), SIGBUS);
    EQUAL(dies_of(touch_nothing), SIGSEGV);
}

/* An ignored or blocked synchronous fault kills, as the kernel has it. */
static void ignored_and_blocked_faults_kill(void) {
    make_hot("f", 1, 8);
    signal(SIGBUS, SIG_IGN);
    signal(SIGSEGV, SIG_IGN);
    EQUAL(dies_of(touch_past_the_end), SIGBUS);
    EQUAL(dies_of(touch_nothing), SIGSEGV);
    EQUAL(dies_of(raise_bus), 0);
    install(0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    sigaddset(&set, SIGSEGV);
    EQUAL(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    EQUAL(dies_of(touch_past_the_end), SIGBUS);
    EQUAL(dies_of(touch_nothing), SIGSEGV);
    EQUAL(dies_of(raise_bus), 0);
}

static void asked_for_once(void) {
    install(SA_RESETHAND);
    if (sigsetjmp(back, 1) == 0)
        touch_past_the_end();
    EQUAL(caught, SIGBUS);
    touch_past_the_end();
}

static void reset_handlers_run_once(void) {
    int fd = make_hot("f", 1, 8);
    EQUAL(dies_of(asked_for_once), SIGBUS);
    install(SA_RESETHAND);
    io_faults_do_not(fd);
    if (sigsetjmp(back, 1) == 0)
        touch_past_the_end();
    EQUAL(caught, SIGBUS);
    struct sigaction now;
    EQUAL(sigaction(SIGBUS, NULL, &now), 0);
    EQUAL(now.sa_handler == SIG_DFL, 1);
    EQUAL(sigaction(SIGSEGV, NULL, &now), 0);
    EQUAL(now.sa_sigaction == note, 1);
}

static volatile int turns, depth, deepest, mask_of_handler;

static void nested(int signal) {
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    mask_of_handler = sigismember(&now, SIGBUS) | sigismember(&now, SIGUSR1) << 1;
    if (++depth > deepest)
        deepest = depth;
    if (++turns < 3)
        raise(signal);
    depth--;
}

/* SA_NODEFER lets a handler interrupt itself; without it the second one waits; sa_mask is blocked. */
static void masks_of_handlers(void) {
    make_hot("f", 1, 8);
    struct sigaction action = {.sa_handler = nested, .sa_flags = SA_NODEFER};
    sigaddset(&action.sa_mask, SIGUSR1);
    EQUAL(sigaction(SIGBUS, &action, NULL), 0);
    raise(SIGBUS);
    EQUAL(deepest, 3);
    EQUAL(mask_of_handler, 2);
    struct sigaction got;
    EQUAL(sigaction(SIGBUS, NULL, &got), 0);
    EQUAL(got.sa_handler == nested, 1);
    EQUAL(got.sa_flags & ~0x04000000, SA_NODEFER);
    EQUAL(sigismember(&got.sa_mask, SIGUSR1), 1);
    EQUAL(sigismember(&got.sa_mask, SIGUSR2), 0);
    deepest = turns = 0;
    action.sa_flags = 0;
    EQUAL(sigaction(SIGBUS, &action, NULL), 0);
    raise(SIGBUS);
    EQUAL(deepest, 1);
    EQUAL(turns, 3);
    EQUAL(mask_of_handler, 3);
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    EQUAL(sigismember(&now, SIGBUS), 0);
}

/* What was installed is what is handed back, by every way of asking. */
static void the_old_handler_is_handed_back(void) {
    struct sigaction old;
    EQUAL(sigaction(SIGBUS, NULL, &old), 0);
    EQUAL(old.sa_handler == SIG_DFL, 1);
    EQUAL(signal(SIGSEGV, note_plainly) == SIG_DFL, 1);
    make_hot("f", 1, 8);
    EQUAL(sigaction(SIGBUS, NULL, &old), 0);
    EQUAL(old.sa_handler == SIG_DFL, 1);
    EQUAL(signal(SIGSEGV, SIG_IGN) == note_plainly, 1);
    EQUAL(signal(SIGSEGV, SIG_DFL) == SIG_IGN, 1);
    EQUAL(signal(SIGBUS, note_plainly) == SIG_DFL, 1);
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    EQUAL(sigaction(SIGBUS, &action, &old), 0);
    EQUAL(old.sa_handler == note_plainly, 1);
    EQUAL(old.sa_flags & SA_RESTART, SA_RESTART);
    EQUAL(sigaction(SIGBUS, &old, &action), 0);
    EQUAL(action.sa_sigaction == note, 1);
    EQUAL(action.sa_flags & (SA_SIGINFO | SA_ONSTACK), SA_SIGINFO | SA_ONSTACK);
    if (sigsetjmp(back, 1) == 0)
        touch_past_the_end();
    EQUAL(caught, SIGBUS);
    FAILS(sigaction(SIGKILL, &action, NULL), EINVAL);
    FAILS(sigaction(999, &action, NULL), EINVAL);
    EQUAL(signal(999, SIG_DFL) == SIG_ERR, 1);
}

static void touch_through_a_handler(int signal) {
    (void)signal;
    unsigned char got[100];
    EQUAL(pread(open(path("f"), O_RDONLY), got, 100, 0), 100);
    DATA(got, 1, 0, 100);
    siglongjmp(back, 1);
}

/* A SIGBUS handler may itself do I/O. */
static void handlers_of_faults_do_io(void) {
    int fd = make_hot("f", 1, 8);
    signal(SIGBUS, touch_through_a_handler);
    signal(SIGSEGV, touch_through_a_handler);
    for (volatile int i = 0; i < 50; i++) {
        if (sigsetjmp(back, 1) == 0)
            touch_past_the_end();
        EQUAL(pread(fd, data, 100, i), 100);
        DATA(data, 1, i, 100);
        if (sigsetjmp(back, 1) == 0)
            touch_nothing();
        EQUAL(pwrite(fd, data, 100, i), 100);
    }
}

const struct test_case handler_cases[] = {
    {"handlers/installed_before_the_first_io", installed_before_the_first_io, READS},
    {"handlers/installed_after_the_first_io", installed_after_the_first_io, READS},
    {"handlers/on_an_alternate_stack", on_an_alternate_stack, READS},
    {"handlers/a_full_stack_is_noticed", a_full_stack_is_noticed, READS},
    {"handlers/the_default_action_still_kills", the_default_action_still_kills, READS},
    {"handlers/ignored_and_blocked_faults_kill", ignored_and_blocked_faults_kill, READS},
    {"handlers/reset_handlers_run_once", reset_handlers_run_once, READS},
    {"handlers/masks_of_handlers", masks_of_handlers, READS},
    {"handlers/the_old_handler_is_handed_back", the_old_handler_is_handed_back, READS},
    {"handlers/handlers_of_faults_do_io", handlers_of_faults_do_io, READS},
    {0},
};
