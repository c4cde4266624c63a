// Signals: handlers, masks, interrupted calls, alternate stack, timers, ends.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t seen, order[8], count;
static char *alternate;
static volatile int on_alternate;

static void handler(int signal) { seen = signal; if (count < 8) order[count++] = signal; }

static void nested(int signal) {
    char local;
    on_alternate = &local >= alternate && &local < alternate + 65536;
    handler(signal);
    raise(SIGUSR2);
}

static void install(int signal, void (*function)(int), int flags) {
    struct sigaction action = {.sa_handler = function, .sa_flags = flags};
    sigaction(signal, &action, NULL);
}

static void *interrupt(void *argument) {
    usleep(20000);
    pthread_kill(*(pthread_t *)argument, SIGUSR1);
    return NULL;
}

int main(int argc, char **argv) {
    install(SIGUSR1, handler, 0);
    install(SIGUSR2, handler, 0);
    double kept = 1.5;
    raise(SIGUSR1);
    printf("handled %d, %.1f\n", seen, kept);
    sigset_t set, old, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    seen = 0;
    kill(getpid(), SIGUSR1);
    sigpending(&pending);
    printf("blocked: seen %d, pending %d\n", seen, sigismember(&pending, SIGUSR1));
    sigprocmask(SIG_SETMASK, &old, NULL);
    printf("unblocked: seen %d\n", seen);

    pthread_t self = pthread_self(), thread;
    pthread_create(&thread, NULL, interrupt, &self);
    struct timespec time = {5, 0}, left = {0, 0};
    int result = nanosleep(&time, &left);
    printf("sleep: %d %s, left %d\n", result, strerror(errno), left.tv_sec == 4);
    pthread_join(thread, NULL);

    int ends[2];
    if (pipe(ends)) return 1;
    char byte;
    pthread_create(&thread, NULL, interrupt, &self);
    result = read(ends[0], &byte, 1);
    printf("read: %d %s\n", result, strerror(errno));
    pthread_join(thread, NULL);

    install(SIGALRM, handler, SA_RESTART);
    struct itimerval timer = {{0, 0}, {0, 10000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    sigemptyset(&set);
    seen = 0;
    result = sigsuspend(&set);
    printf("suspend: %d %s, seen %d\n", result, strerror(errno), seen == SIGALRM);

    signal(SIGPIPE, SIG_IGN);
    close(ends[0]);
    result = write(ends[1], "x", 1);
    printf("pipe: %d %s\n", result, strerror(errno));
    install(SIGPIPE, handler, 0);
    result = write(ends[1], "x", 1);
    printf("pipe: %d, seen %d\n", result, seen == SIGPIPE);

    alternate = malloc(65536);
    stack_t stack = {.ss_sp = alternate, .ss_size = 65536};
    printf("stack: %d\n", sigaltstack(&stack, NULL));
    install(SIGUSR1, nested, SA_ONSTACK | SA_RESETHAND);
    count = 0;
    raise(SIGUSR1);
    printf("nested: %d %d, alternate %d\n", order[0] == SIGUSR1, order[1] == SIGUSR2, on_alternate);
    struct sigaction action;
    sigaction(SIGUSR1, NULL, &action);
    printf("reset: %d\n", action.sa_handler == SIG_DFL);

    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR2);
    siginfo_t information;
    result = sigwaitinfo(&set, &information);
    printf("wait: %d\n", result == SIGUSR2);
    struct timespec brief = {0, 1000000};
    result = sigtimedwait(&set, NULL, &brief);
    printf("timed wait: %d %s\n", result, strerror(errno));
    printf("kill: %d", kill(getpid() + 1000, 0));
    printf(" %s\n", strerror(errno));
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "abort")) abort();
    if (argc > 1 && !strcmp(argv[1], "fault")) *(volatile int *)16 = 1;
    return 7;
}
