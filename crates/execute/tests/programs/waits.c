// Pipes, ppoll, pselect, epoll, event counters, timers, clocks.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int ends[2], event;

static void *write_later(void *argument) {
    usleep(20000);
    if (write(ends[1], "later", 5) != 5) perror("write");
    return argument;
}

static void *drain(void *argument) {
    char buffer[1000];
    long total = 0, got;
    while ((got = read(ends[0], buffer, sizeof buffer)) > 0) total += got;
    return (void *)total;
}

static void show(int epoll, int timeout) {
    struct epoll_event events[8];
    int count = epoll_wait(epoll, events, 8, timeout);
    printf("epoll: %d", count);
    for (int index = 0; index < count; index++) printf(" (%x %d)", events[index].events, (int)events[index].data.u32);
    printf("\n");
}

int main(void) {
    char buffer[100] = "";
    pthread_t thread;
    if (pipe(ends)) return 1;
    pthread_create(&thread, NULL, write_later, NULL);
    printf("read: %ld", (long)read(ends[0], buffer, 100));
    printf(" %s\n", buffer);
    pthread_join(thread, NULL);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    printf("read: %ld", (long)read(ends[0], buffer, 100));
    printf(" %s\n", strerror(errno));
    struct pollfd polled[3] = {{ends[0], POLLIN, 0}, {ends[1], POLLOUT, 0}, {77, POLLIN, 0}};
    printf("poll: %d", poll(polled, 3, 0));
    printf(" %x %x %x\n", polled[0].revents, polled[1].revents, polled[2].revents);
    pthread_create(&thread, NULL, write_later, NULL);
    printf("poll: %d", poll(polled, 1, 5000));
    printf(" %x\n", polled[0].revents);
    pthread_join(thread, NULL);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    struct timeval wait = {0, 1000};
    printf("select: %d", select(ends[0] + 1, &set, NULL, NULL, &wait));
    printf(" %d\n", FD_ISSET(ends[0], &set));
    if (read(ends[0], buffer, 100) != 5) return 1;
    wait = (struct timeval){0, 1000};
    printf("select: %d", select(ends[0] + 1, &set, NULL, NULL, &wait));
    printf(" %d\n", FD_ISSET(ends[0], &set));

    int epoll = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN, .data.u32 = 1};
    epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &wanted);
    printf("again: %d", epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &wanted));
    printf(" %s\n", strerror(errno));
    show(epoll, 0);
    if (write(ends[1], "ab", 2) != 2) return 1;
    show(epoll, 0);
    show(epoll, 0);
    wanted.events = EPOLLIN | EPOLLET;
    epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &wanted);
    show(epoll, 0);
    show(epoll, 0);
    if (write(ends[1], "c", 1) != 1) return 1;
    show(epoll, 0);
    wanted.events = EPOLLIN | EPOLLONESHOT;
    epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &wanted);
    show(epoll, 0);
    show(epoll, 10);
    event = eventfd(3, EFD_NONBLOCK);
    wanted = (struct epoll_event){.events = EPOLLIN, .data.u32 = 2};
    epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted);
    show(epoll, -1);
    uint64_t value;
    printf("event: %ld", (long)read(event, &value, 8));
    printf(" %lu\n", (unsigned long)value);
    printf("event: %ld", (long)read(event, &value, 8));
    printf(" %s\n", strerror(errno));
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec times = {{0, 5000000}, {0, 5000000}};
    timerfd_settime(timer, 0, &times, NULL);
    wanted.data.u32 = 3;
    epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &wanted);
    show(epoll, 1000);
    printf("timer: %ld", (long)read(timer, &value, 8));
    printf(" %d\n", value >= 1);
    close(timer);
    int outer = epoll_create1(0);
    wanted.data.u32 = 4;
    epoll_ctl(outer, EPOLL_CTL_ADD, epoll, &wanted);
    value = 1;
    if (write(event, &value, 8) != 8) return 1;
    show(outer, 100);
    printf("file: %d", epoll_ctl(epoll, EPOLL_CTL_ADD, open("/dev/null", O_RDONLY), &wanted));
    printf(" %d\n", errno == EPERM);
    printf("delete: %d", epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL));
    printf(" %d\n", epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL));
    close(ends[0]);
    close(ends[1]);

    if (pipe(ends)) return 1;
    pthread_create(&thread, NULL, drain, NULL);
    char *much = malloc(300000);
    memset(much, 5, 300000);
    printf("much: %ld\n", (long)write(ends[1], much, 300000));
    close(ends[1]);
    void *total;
    pthread_join(thread, &total);
    printf("drained: %ld\n", (long)total);

    struct timespec before, after, pause = {0, 30000000};
    clock_gettime(CLOCK_MONOTONIC, &before);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    clock_gettime(CLOCK_MONOTONIC, &after);
    long passed = (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec;
    printf("slept: %d\n", passed >= 30000000 && passed < 3000000000L);
    printf("invalid: %d\n", clock_gettime(12345, &before));
    return 0;
}
