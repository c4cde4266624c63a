// Threads that each fill and sort numbers of their own.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static long threads, count;

static int by_value(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static void *sort(void *number) {
    uint64_t *numbers = malloc(count * sizeof *numbers), state = (uintptr_t)number + 1;
    for (long at = 0; at < count; at++) numbers[at] = state = state * 6364136223846793005 + 1442695040888963407;
    qsort(numbers, count, sizeof *numbers, by_value);
    uint64_t median = numbers[count / 2];
    free(numbers);
    return (void *)(uintptr_t)(median >> 32);
}

int main(int arguments, char **words) {
    threads = atol(words[1]);
    count = atol(words[2]);
    pthread_t all[64];
    uintptr_t sum = 0;
    for (long at = 0; at < threads; at++) pthread_create(&all[at], 0, sort, (void *)at);
    for (long at = 0; at < threads; at++) {
        void *median;
        pthread_join(all[at], &median);
        sum += (uintptr_t)median;
    }
    printf("%lx\n", (long)sum);
    return 0;
}
