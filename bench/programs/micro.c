/* Reads and writes one file in a loop and tells how fast that went.
 *
 *     micro FILE OP BYTES PATTERN THREADS OPS SPAN SEED [FLAG...]
 *
 * OP       read | write
 * PATTERN  random | sequential
 * OPS      calls in all, shared out to the threads
 * SPAN     bytes of the file that are used, from its start
 * FLAG     direct (open with O_DIRECT), cold (no warm-up), mapped (copy from a mapping, without any call)
 *
 * Each thread keeps to a part of the span of its own, so that the file's content after the run depends on
 * the arguments alone. The warm-up visits every block twice with the same kind of call. The last line says
 * how many operations were done, in how many seconds, and a sum over the data read and, unless the run is
 * cold or direct, over the file as it was left.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum op { OP_READ, OP_WRITE };

#define THREADS_MAX 64

static int file;
static enum op op;
static size_t bytes;
static int sequential, cold;
static const unsigned char *mapping; /* NULL: calls are made */
static pthread_barrier_t start, end;

struct worker {
    pthread_t thread;
    uint64_t first; /* block at which its part begins */
    uint64_t blocks, ops, seed, sum;
};

static void die(const char *what)
{
    fprintf(stderr, "micro: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* A random block, without a division, which would take as long as a call does. */
static uint64_t pick(uint64_t *state, uint64_t blocks)
{
    return (uint64_t)(((unsigned __int128)next(state) * blocks) >> 64);
}

static uint64_t load(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* One call on a block; a write stores words that follow from the block's number alone. */
static void call(struct worker *me, unsigned char *buffer, uint64_t block)
{
    off_t at = (off_t)((me->first + block) * bytes);
    ssize_t done;
    if (op == OP_READ) {
        if (mapping) {
            memcpy(buffer, mapping + at, bytes);
            done = (ssize_t)bytes;
        } else {
            done = pread(file, buffer, bytes, at);
        }
        me->sum = (me->sum ^ (load(buffer) + 3 * load(buffer + bytes - 8))) * 0x100000001b3u;
    } else {
        uint64_t word = (me->first + block + 1) * 0x9e3779b97f4a7c15u;
        memcpy(buffer, &word, sizeof word);
        memcpy(buffer + bytes - 8, &word, sizeof word);
        done = pwrite(file, buffer, bytes, at);
    }
    if (done != (ssize_t)bytes)
        die(done < 0 ? (op == OP_READ ? "pread" : "pwrite") : "short transfer");
}

static void *work(void *argument)
{
    struct worker *me = argument;
    unsigned char *buffer;
    if (posix_memalign((void **)&buffer, 4096, bytes < 4096 ? 4096 : bytes) != 0)
        die("memory");
    memset(buffer, 0x5a, bytes);
    if (!cold)
        for (int pass = 0; pass < 2; pass++)
            for (uint64_t block = 0; block < me->blocks; block++)
                call(me, buffer, block);
    me->sum = 0;
    pthread_barrier_wait(&start);
    uint64_t state = me->seed;
    for (uint64_t i = 0; i < me->ops; i++)
        call(me, buffer, sequential ? i % me->blocks : pick(&state, me->blocks));
    pthread_barrier_wait(&end);
    free(buffer);
    return NULL;
}

static uint64_t sum_of_file(void)
{
    enum { CHUNK = 1 << 20 };
    unsigned char *buffer = malloc(CHUNK);
    uint64_t sum = 0;
    ssize_t got;
    for (off_t at = 0; (got = pread(file, buffer, CHUNK, at)) > 0; at += got)
        for (ssize_t i = 0; i + 8 <= got; i += 8)
            sum = (sum ^ load(buffer + i)) * 0x100000001b3u;
    if (got < 0)
        die("pread");
    free(buffer);
    return sum;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int count, char **arguments)
{
    static struct worker workers[THREADS_MAX];
    if (count < 9) {
        fprintf(stderr, "usage: micro FILE OP BYTES PATTERN THREADS OPS SPAN SEED [direct] [cold] [mapped]\n");
        return 2;
    }
    op = !strcmp(arguments[2], "read") ? OP_READ : OP_WRITE;
    bytes = strtoull(arguments[3], NULL, 10);
    sequential = !strcmp(arguments[4], "sequential");
    unsigned threads = (unsigned)atoi(arguments[5]);
    uint64_t ops = strtoull(arguments[6], NULL, 10), span = strtoull(arguments[7], NULL, 10);
    uint64_t seed = strtoull(arguments[8], NULL, 10);
    int direct = 0, mapped = 0;
    for (int i = 9; i < count; i++) {
        direct |= !strcmp(arguments[i], "direct");
        cold |= !strcmp(arguments[i], "cold");
        mapped |= !strcmp(arguments[i], "mapped");
    }
    if (bytes < 8 || threads < 1 || threads > THREADS_MAX || span / bytes / threads < 1) {
        fprintf(stderr, "micro: BYTES, THREADS or SPAN out of range\n");
        return 2;
    }
    file = open(arguments[1], (op == OP_READ ? O_RDONLY : O_RDWR) | (direct ? O_DIRECT : 0));
    if (file < 0)
        die(arguments[1]);
    if (mapped) {
        mapping = mmap(NULL, span, PROT_READ, MAP_SHARED, file, 0);
        if (op != OP_READ || mapping == MAP_FAILED)
            die("mapping");
    }

    pthread_barrier_init(&start, NULL, threads + 1);
    pthread_barrier_init(&end, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++) {
        struct worker *worker = &workers[i];
        worker->blocks = span / bytes / threads;
        worker->first = i * worker->blocks;
        worker->ops = ops / threads;
        worker->seed = (seed + i + 1) * 0x9e3779b97f4a7c15u;
        if (pthread_create(&worker->thread, NULL, work, worker) != 0)
            die("thread");
    }
    pthread_barrier_wait(&start);
    double from = seconds();
    pthread_barrier_wait(&end);
    double took = seconds() - from;
    uint64_t sum = 0;
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        sum += workers[i].sum;
    }
    if (op != OP_READ && !cold && !direct)
        sum ^= sum_of_file();
    printf("ops=%llu seconds=%.9f sum=%016llx\n", (unsigned long long)(ops / threads * threads), took,
           (unsigned long long)sum);
    return 0;
}
