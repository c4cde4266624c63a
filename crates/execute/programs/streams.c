// Streams of "Architectural Support for User-Level Input/Output" (Schaelicke, 2001), where 23 of them are read at a time:
// threads, of which each reads its own file in order.
//
//     streams [--request 64K] [--rate BYTES] [--bytes BYTES] [--touch] FILE...
//
// Each stream begins its file anew at the end, until it has read --bytes; without --bytes it reads its file once. With
// --rate, a stream reads so many bytes per second: it waits after each request until the time of the next one, and a
// request that takes longer is counted as late. Without --rate, requests follow each other at once. --touch loads each
// word of what was read, and prints the sum.
//
// Written are, for each stream, its bytes, bytes per second, late requests and sum, and the bytes per second of all. All
// streams begin at the same moment.
//
// It runs on Linux as it is: gcc -O2 -pthread streams.c
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// Stream, with what it has counted.
struct stream {
    const char *name;
    int file;
    char *buffer;
    pthread_t thread;
    uint64_t bytes, limit, late, sum;
    double seconds;
};

static size_t request_bytes = 64 << 10;
static uint64_t rate, bytes_limit;
static int touches;
static pthread_barrier_t start;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

// Reads a number of bytes, with a suffix K, M or G; ends the program if it is none, or 0.
static uint64_t parse_bytes(const char *option, const char *text) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (end == text || *text == '-' || errno || end[shift > 0] || value == 0 || value > (uint64_t)INT64_MAX >> shift) {
        fprintf(stderr, "--%s needs a number of bytes such as 4096, 16K or 1G, not '%s'\n", option, text);
        exit(2);
    }
    return value << shift;
}

static uint64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

// Waits for the time at which a byte is due; returns 1 if it is over.
static int wait_for_time(uint64_t begin, uint64_t byte) {
    uint64_t due = begin + (uint64_t)((unsigned __int128)byte * 1000000000 / rate);
    if (nanoseconds() > due) return 1;
    struct timespec time = {due / 1000000000, due % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) {}
    return 0;
}

// Returns the sum of the words of some bytes; the last word is filled up with zeros.
static uint64_t sum_words(const char *bytes, size_t length) {
    uint64_t sum = 0, word;
    size_t at = 0;
    for (; at + 8 <= length; at += 8) {
        memcpy(&word, bytes + at, 8);
        sum += word;
    }
    word = 0;
    memcpy(&word, bytes + at, length - at);
    return sum + word;
}

static void *read_stream(void *argument) {
    struct stream *stream = argument;
    off_t offset = 0;
    pthread_barrier_wait(&start);
    uint64_t begin = nanoseconds();
    while (stream->bytes < stream->limit) {
        uint64_t left = stream->limit - stream->bytes;
        ssize_t got = pread(stream->file, stream->buffer, left < request_bytes ? left : request_bytes, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail(stream->name);
        if (got == 0 && offset == 0) {
            fprintf(stderr, "%s has become empty\n", stream->name);
            exit(1);
        }
        if (touches) stream->sum += sum_words(stream->buffer, got);
        stream->bytes += got;
        offset = got == 0 ? 0 : offset + got;
        if (rate && got > 0) stream->late += wait_for_time(begin, stream->bytes);
    }
    stream->seconds = (nanoseconds() - begin) * 1e-9;
    return NULL;
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"request", required_argument, NULL, 'q'},
        {"rate", required_argument, NULL, 'r'},
        {"bytes", required_argument, NULL, 'b'},
        {"touch", no_argument, NULL, 't'},
        {0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'q': request_bytes = parse_bytes("request", optarg); break;
        case 'r': rate = parse_bytes("rate", optarg); break;
        case 'b': bytes_limit = parse_bytes("bytes", optarg); break;
        case 't': touches = 1; break;
        default: return 2;
        }
    }
    int count = argc - optind;
    if (count < 1) {
        fprintf(stderr, "usage: %s [--request 64K] [--rate BYTES] [--bytes BYTES] [--touch] FILE...\n", argv[0]);
        return 2;
    }
    struct stream *streams = calloc(count, sizeof *streams);
    if (!streams) fail("memory for the streams");
    pthread_barrier_init(&start, NULL, count);
    for (int number = 0; number < count; number++) {
        struct stream *stream = &streams[number];
        struct stat status;
        stream->name = argv[optind + number];
        stream->file = open(stream->name, O_RDONLY | O_CLOEXEC);
        if (stream->file < 0 || fstat(stream->file, &status)) fail(stream->name);
        if (status.st_size == 0) {
            fprintf(stderr, "%s is empty\n", stream->name);
            return 1;
        }
        stream->limit = bytes_limit ? bytes_limit : (uint64_t)status.st_size;
        if ((errno = posix_memalign((void **)&stream->buffer, 4096, request_bytes))) fail("memory for a stream");
        posix_fadvise(stream->file, 0, 0, POSIX_FADV_SEQUENTIAL);
        if ((errno = pthread_create(&stream->thread, NULL, read_stream, stream))) fail("pthread_create");
    }
    uint64_t bytes = 0;
    double seconds = 0;
    for (int number = 0; number < count; number++) {
        struct stream *stream = &streams[number];
        pthread_join(stream->thread, NULL);
        printf("%s: %llu bytes, %.0f bytes per second, %llu late, sum %016llx\n", stream->name,
               (unsigned long long)stream->bytes, stream->bytes / stream->seconds, (unsigned long long)stream->late,
               (unsigned long long)stream->sum);
        bytes += stream->bytes;
        if (stream->seconds > seconds) seconds = stream->seconds;
    }
    printf("%d streams: %llu bytes, %.0f bytes per second\n", count, (unsigned long long)bytes, bytes / seconds);
    return 0;
}
