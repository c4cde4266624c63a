// Threads that wait for each other by looking at memory again and again: a baton goes round, and its owner computes a while.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_long baton;
static long threads, rounds, work, sum;

static void *pass(void *argument) {
    long number = (long)argument;
    for (long round = 0; round < rounds; round++) {
        while (atomic_load_explicit(&baton, memory_order_acquire) != round * threads + number) {}
        for (long step = 0; step < work; step++) sum = sum * 31 + step;
        atomic_store_explicit(&baton, round * threads + number + 1, memory_order_release);
    }
    return 0;
}

int main(int count, char **arguments) {
    threads = atol(arguments[1]);
    rounds = atol(arguments[2]);
    work = atol(arguments[3]);
    pthread_t handles[64];
    for (long number = 0; number < threads; number++) pthread_create(&handles[number], 0, pass, (void *)number);
    for (long number = 0; number < threads; number++) pthread_join(handles[number], 0);
    printf("%ld\n", sum);
    return 0;
}
