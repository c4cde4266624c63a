/* Times of a program's commits, and the quantiles of them that its last line tells. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t *commit_ns;
static uint64_t commit_count;

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Makes room for the times of so many commits, on pages that are there already when the clock starts. */
static void expect_commits(uint64_t count)
{
    commit_ns = malloc((count + 1) * sizeof *commit_ns);
    if (!commit_ns) {
        fprintf(stderr, "no memory for the times of %llu commits\n", (unsigned long long)count);
        exit(1);
    }
    for (uint64_t i = 0; i <= count; i++)
        commit_ns[i] = i;
}

static void note_commit(uint64_t begin_ns)
{
    commit_ns[commit_count++] = clock_ns() - begin_ns;
}

static int compare_ns(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* Prints the times, in nanoseconds, that half of the commits, 99 % and 99.9 % of them do not exceed. */
static void tell_commits(void)
{
    if (commit_count == 0)
        return;
    qsort(commit_ns, commit_count, sizeof *commit_ns, compare_ns);
    uint64_t last = commit_count - 1;
    printf("commits=%llu p50=%llu p99=%llu p99.9=%llu ", (unsigned long long)commit_count,
           (unsigned long long)commit_ns[last / 2], (unsigned long long)commit_ns[last * 99 / 100],
           (unsigned long long)commit_ns[last * 999 / 1000]);
}
