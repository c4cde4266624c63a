// Threads: mutexes, condition variables, barriers, once, thread-local memory, cancellation, timeouts.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 2000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static long counter, sum, queue[16];
static int queued, done;
static atomic_long atomic_counter;
static __thread long own;
static sem_t semaphore;

static void *count(void *argument) {
    long number = (long)argument;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
        atomic_fetch_add(&atomic_counter, number);
        own += number;
        if (round % 500 == 0) sched_yield();
    }
    pthread_barrier_wait(&barrier);
    pthread_rwlock_rdlock(&lock);
    long seen = counter;
    pthread_rwlock_unlock(&lock);
    return (void *)(seen == THREADS * ROUNDS ? own : -1);
}

static void *consume(void *argument) {
    (void)argument;
    for (;;) {
        pthread_mutex_lock(&mutex);
        while (queued == 0 && !done) pthread_cond_wait(&condition, &mutex);
        if (queued == 0) { pthread_mutex_unlock(&mutex); return NULL; }
        sum += queue[--queued];
        pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&mutex);
    }
}

static void *wait_forever(void *argument) {
    (void)argument;
    for (;;) pause();
}

static void cleanup(void *argument) { printf("cleanup %s\n", (char *)argument); }

static void *cancelled(void *argument) {
    pthread_cleanup_push(cleanup, "of a cancelled thread");
    wait_forever(argument);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *holder(void *argument) {
    pthread_mutex_lock(argument);
    return NULL;
}

static void *post(void *argument) {
    (void)argument;
    for (int round = 0; round < 100; round++) sem_post(&semaphore);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long number = 0; number < THREADS; number++) pthread_create(&threads[number], NULL, count, (void *)number);
    for (long number = 0; number < THREADS; number++) {
        void *result;
        pthread_join(threads[number], &result);
        printf("thread %ld: %ld\n", number, (long)result);
    }
    printf("counter %ld, atomic %ld\n", counter, atomic_load(&atomic_counter));

    for (int number = 0; number < 3; number++) pthread_create(&threads[number], NULL, consume, NULL);
    for (long number = 1; number <= 1000; number++) {
        pthread_mutex_lock(&mutex);
        while (queued == 16) pthread_cond_wait(&condition, &mutex);
        queue[queued++] = number;
        pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    done = 1;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    for (int number = 0; number < 3; number++) pthread_join(threads[number], NULL);
    printf("sum %ld\n", sum);

    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_nsec += 20000000;
    if (deadline.tv_nsec >= 1000000000) { deadline.tv_sec++; deadline.tv_nsec -= 1000000000; }
    pthread_mutex_lock(&mutex);
    int result = pthread_cond_timedwait(&condition, &mutex, &deadline);
    pthread_mutex_unlock(&mutex);
    printf("timed wait: %s\n", strerror(result));

    pthread_create(&threads[0], NULL, cancelled, NULL);
    usleep(10000);
    pthread_cancel(threads[0]);
    void *value;
    pthread_join(threads[0], &value);
    printf("cancelled: %d\n", value == PTHREAD_CANCELED);

    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_t robust;
    pthread_mutex_init(&robust, &attributes);
    pthread_create(&threads[0], NULL, holder, &robust);
    pthread_join(threads[0], NULL);
    result = pthread_mutex_lock(&robust);
    printf("robust: %s\n", strerror(result));
    pthread_mutex_consistent(&robust);
    printf("unlock: %d\n", pthread_mutex_unlock(&robust));

    sem_init(&semaphore, 0, 0);
    pthread_create(&threads[0], NULL, post, NULL);
    for (int round = 0; round < 100; round++) sem_wait(&semaphore);
    pthread_join(threads[0], NULL);
    printf("semaphore: %d\n", sem_trywait(&semaphore));
    return 0;
}
