/* What every case of the behaviour program is written with.
 *
 * A case is a function that returns when all is as the kernel would have it and ends the process with a
 * message otherwise. It knows nothing of Bywash: it must pass with and without the preloaded library, on
 * tmpfs and on a disk's file system. To make the library serve a file at user level, a case makes it *hot*:
 * it reads (and overwrites) the same pages some dozens of times.
 *
 * Files are filled with a pattern that depends on a tag and the offset, so that data of another file or of
 * another place is recognised at once. The pattern has no zero byte: zero means hole.
 */
#ifndef CASE_H
#define CASE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

/* What the counters of a run under the library must show. */
enum expectation {
    ANY = 0,          /* nothing: the case is about something else */
    READS = 1,        /* reads were served at user level */
    WRITES = 2,       /* writes were served at user level */
    NO_READS = 4,     /* no read was served at user level */
    NO_WRITES = 8,    /* no write was served at user level */
    /* It looks at positions in a way that no library can follow. */
    KERNEL_POSITIONS = 16,
    POSITION_READS = 32, /* reads were served at user level, if positions are kept there */
    KERNEL_WRITES = 64,  /* nothing: mapped writes are off, for the case is about what they do not keep */
    KERNEL_SYNCS = 128,  /* nothing: there is no log, for the case is about what only the kernel's syncs do */
};

struct test_case {
    const char *name;
    void (*run)(void);
    int expects;
};

/* Each file of cases ends with its table, closed by an empty entry. */
extern const struct test_case opening_cases[], descriptor_cases[], reuse_cases[], offset_cases[],
    vector_cases[], sharing_cases[], transfer_cases[], stream_cases[], process_cases[], spawn_cases[],
    size_cases[], sparse_cases[], fault_cases[], buffer_cases[], signal_cases[], handler_cases[],
    thread_cases[], lock_cases[], durability_cases[], async_cases[], confinement_cases[], scale_cases[],
    mount_cases[], time_cases[], race_cases[], resource_cases[], mask_cases[], hidden_cases[];

/* Failing and skipping. */
_Noreturn void fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void skip(const char *why);

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            fail(__FILE__, __LINE__, "%s (errno %d)", #condition, errno);                                    \
    } while (0)

#define EQUAL(got, want)                                                                                     \
    do {                                                                                                     \
        long long got_ = (long long)(got), got_errno_ = errno, want_ = (long long)(want);                    \
        if (got_ != want_)                                                                                   \
            fail(__FILE__, __LINE__, "%s is %lld, must be %lld (errno %lld)", #got, got_, want_, got_errno_); \
    } while (0)

#define FAILS(call, error)                                                                                   \
    do {                                                                                                     \
        errno = 0;                                                                                           \
        long long got_ = (long long)(call);                                                                  \
        if (got_ != -1 || errno != (error))                                                                  \
            fail(__FILE__, __LINE__, "%s is %lld with errno %d, must be -1 with errno %d", #call, got_,      \
                 errno, (error));                                                                            \
    } while (0)

/* A system call by the instruction itself, which no preloaded library sees; answers -errno. */
long kernel(long number, ...);
#define KERNEL(number, ...) kernel(number, ##__VA_ARGS__, 0L, 0L, 0L, 0L, 0L, 0L)

/* The path of `name` in the case's folder; never freed. */
char *path(const char *name);

/* The pattern. */
unsigned char pattern(unsigned tag, off_t at);
void fill(void *to, unsigned tag, off_t at, size_t length);
void check_data(const char *file, int line, const void *data, unsigned tag, off_t at, size_t length);
#define DATA(data, tag, at, length) check_data(__FILE__, __LINE__, data, tag, at, length)
void check_zeros(const char *file, int line, const void *data, size_t length);
#define ZEROS(data, length) check_zeros(__FILE__, __LINE__, data, length)
/* The whole file as the kernel sees it: `size` bytes of the pattern and not one more. */
void check_file(const char *file, int line, const char *name, unsigned tag, off_t size);
#define FILE_IS(name, tag, size) check_file(__FILE__, __LINE__, name, tag, size)

/* A file of `size` bytes of the pattern, open for reading and writing, at position 0. */
int make(const char *name, unsigned tag, off_t size);
/* Reads, or overwrites with what is there, each page of a range some dozens of times. */
void heat_reads(int fd, unsigned tag, off_t from, off_t length);
void heat_writes(int fd, unsigned tag, off_t from, off_t length);
/* Moves so often that a library which keeps positions keeps this one; it ends at 0. */
void heat_position(int fd);
/* All of it, for a file of `pages` pages. */
int make_hot(const char *name, unsigned tag, int pages);

/* Children. `CHILD` runs a block in a forked child; the parent waits and fails if the child did. */
void await(const char *file, int line, pid_t pid);
#define AWAIT(pid) await(__FILE__, __LINE__, pid)
#define CHILD(...)                                                                                           \
    do {                                                                                                     \
        fflush(NULL);                                                                                        \
        pid_t child_ = fork();                                                                               \
        CHECK(child_ >= 0);                                                                                  \
        if (child_ == 0) {                                                                                   \
            __VA_ARGS__;                                                                                     \
            _exit(0);                                                                                        \
        }                                                                                                    \
        AWAIT(child_);                                                                                       \
    } while (0)

/* What the kernel says of a file, past any library. */
off_t size_of(int fd);
off_t kernel_position(int fd);
long blocks_of(int fd);
void sleep_ms(long ms);
long now_ms(void);
int is_tmpfs(void);
/* A number that the compiler cannot know, so that fortified variants are called. */
size_t unknown(size_t value);
/* The program itself, to be executed again with other arguments. */
extern const char *self;

#endif
