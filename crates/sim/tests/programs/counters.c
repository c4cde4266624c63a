// Threads that add to counters: each to one of its own, in one line or in lines apart.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, ROUNDS = 20000 };

static volatile long counters[THREADS * 8] __attribute__((aligned(64)));
static long distance;
static pthread_barrier_t begin;

static void *add(void *number) {
    volatile long *counter = &counters[(long)number * distance];
    pthread_barrier_wait(&begin);
    for (long round = 0; round < ROUNDS; round++) *counter += 1;
    return 0;
}

int main(int count, char **arguments) {
    distance = atol(arguments[1]);
    pthread_barrier_init(&begin, 0, THREADS);
    pthread_t threads[THREADS];
    for (long number = 0; number < THREADS; number++) pthread_create(&threads[number], 0, add, (void *)number);
    for (long number = 0; number < THREADS; number++) pthread_join(threads[number], 0);
    long sum = 0;
    for (long number = 0; number < THREADS; number++) sum += counters[number * distance];
    printf("%ld\n", sum);
    return 0;
}
