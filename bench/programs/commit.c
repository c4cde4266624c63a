/* Commits of pages, one after the other.
 *
 *     commit FILE in-place|growing|once|direct BYTES OPS SPAN SEED [PAGES]
 *
 * in-place  writes pages of BYTES at random offsets in the first SPAN bytes of a file; fdatasync after each
 * growing   appends pages to a file; fdatasync after each
 * once      as in-place, with one fdatasync at the end
 * direct    writes blocks, from the first to the last and again, to a file that is there, with O_DIRECT and O_DSYNC
 *
 * Each of OPS commits has PAGES pages, or one. The file is synced once before, as those of a program that has been
 * running are. If a line can be read from standard input, the program waits for it before it begins. The last line
 * says how many commits were made, in how many seconds, a sum over the file that is left (not for direct), and how
 * long commits took.
 */
#define _GNU_SOURCE
#include "latency.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static void die(const char *what)
{
    fprintf(stderr, "commit: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t sum_of(int file, uint64_t *buffer, size_t bytes)
{
    uint64_t sum = 0;
    off_t at = 0;
    for (ssize_t length; (length = pread(file, buffer, bytes, at)) > 0; at += length)
        for (size_t word = 0; word < (size_t)length / sizeof *buffer; word++)
            sum = (sum ^ buffer[word]) * 0x100000001b3u;
    return sum ^ (uint64_t)at;
}

int main(int count, char **arguments)
{
    if (count != 7 && count != 8) {
        fprintf(stderr, "usage: commit FILE in-place|growing|once|direct BYTES OPS SPAN SEED [PAGES]\n");
        return 2;
    }
    const char *path = arguments[1], *mode = arguments[2];
    size_t bytes = strtoull(arguments[3], NULL, 10);
    uint64_t ops = strtoull(arguments[4], NULL, 10), pages = strtoull(arguments[5], NULL, 10) / bytes;
    uint64_t state = (strtoull(arguments[6], NULL, 10) + 1) * 0x9e3779b97f4a7c15u;
    uint64_t each = count == 8 ? strtoull(arguments[7], NULL, 10) : 1, written = 0;
    int direct = !strcmp(mode, "direct"), growing = !strcmp(mode, "growing"), once = !strcmp(mode, "once");
    int flags = direct ? O_WRONLY | O_DIRECT | O_DSYNC : growing ? O_RDWR | O_CREAT | O_TRUNC : O_RDWR;
    int file = open(path, flags, 0644);
    if (file < 0)
        die(path);
    uint64_t *buffer;
    if (posix_memalign((void **)&buffer, 4096, bytes))
        die("memory");
    memset(buffer, 0x5a, bytes);
    expect_commits(ops);
    if (!direct && fdatasync(file))
        die("fdatasync");
    char line[8];
    if (!isatty(0) && !fgets(line, sizeof line, stdin) && ferror(stdin))
        die("standard input");
    uint64_t begin = clock_ns();
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t from = clock_ns();
        for (uint64_t end = written + each; written < end; written++) {
            uint64_t page = direct ? written % pages : growing ? written : next(&state) % pages;
            buffer[0] = written;
            if (pwrite(file, buffer, bytes, (off_t)(page * bytes)) != (ssize_t)bytes)
                die("write");
        }
        if (!direct && (!once || i == ops - 1) && fdatasync(file))
            die("fdatasync");
        note_commit(from);
    }
    double seconds = (double)(clock_ns() - begin) * 1e-9;
    uint64_t sum = direct ? 0 : sum_of(file, buffer, bytes);
    tell_commits();
    printf("ops=%llu seconds=%.9f sum=%016llx\n", (unsigned long long)ops, seconds, (unsigned long long)sum);
    return 0;
}
