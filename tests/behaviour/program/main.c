/* The behaviour program: `behaviour --list` names every case, `behaviour CASE FOLDER` runs one.
 *
 * Exit status 0: passed. 1: failed, stderr says where. 77: this machine cannot show it, stderr says why.
 * Started with other first words (`--read-on`, ...) it is what a case executes as another program.
 */
#include "case.h"
#include <stdarg.h>
#include <sys/vfs.h>
#include <time.h>

static const struct test_case *const tables[] = {
    opening_cases, descriptor_cases, reuse_cases,   offset_cases,  vector_cases,     sharing_cases,
    transfer_cases, stream_cases,     process_cases, spawn_cases,   size_cases,       sparse_cases,
    fault_cases,   buffer_cases,     signal_cases,  handler_cases, thread_cases,     lock_cases,
    durability_cases, async_cases,   confinement_cases, scale_cases, mount_cases,    time_cases,
    race_cases,    resource_cases,   mask_cases,    hidden_cases,
};

static const char *folder = ".";
const char *self;

_Noreturn void fail(const char *file, int line, const char *format, ...) {
    char text[512];
    int length = snprintf(text, sizeof text, "%s:%d: ", file, line);
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(text + length, sizeof text - (size_t)length, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof text - 2)
        length = sizeof text - 2;
    text[length++] = '\n';
    KERNEL(SYS_write, 2L, (long)text, (long)length);
    KERNEL(SYS_exit_group, 1L);
    abort();
}

_Noreturn void skip(const char *why) {
    KERNEL(SYS_write, 2L, (long)why, (long)strlen(why));
    KERNEL(SYS_exit_group, 77L);
    abort();
}

long kernel(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    long a = va_arg(arguments, long), b = va_arg(arguments, long), c = va_arg(arguments, long);
    register long d __asm__("r10") = va_arg(arguments, long);
    register long e __asm__("r8") = va_arg(arguments, long);
    register long f __asm__("r9") = va_arg(arguments, long);
    va_end(arguments);
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(d), "r"(e), "r"(f)
                     : "rcx", "r11", "memory");
    return result;
}

char *path(const char *name) {
    char *whole;
    CHECK(asprintf(&whole, "%s/%s", folder, name) > 0);
    return whole;
}

unsigned char pattern(unsigned tag, off_t at) {
    unsigned long mix = (unsigned long)at * 31 + (unsigned long)(at >> 8) * 7 + (unsigned long)(at >> 16) * 13;
    return (unsigned char)((mix + tag * 101UL) % 255 + 1);
}

void fill(void *to, unsigned tag, off_t at, size_t length) {
    for (size_t i = 0; i < length; i++)
        ((unsigned char *)to)[i] = pattern(tag, at + (off_t)i);
}

void check_data(const char *file, int line, const void *data, unsigned tag, off_t at, size_t length) {
    for (size_t i = 0; i < length; i++) {
        unsigned char got = ((const unsigned char *)data)[i], want = pattern(tag, at + (off_t)i);
        if (got != want)
            fail(file, line, "byte %zu of %zu (offset %lld of file %u) is %u, must be %u", i, length,
                 (long long)at + (long long)i, tag, got, want);
    }
}

void check_zeros(const char *file, int line, const void *data, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (((const unsigned char *)data)[i] != 0)
            fail(file, line, "byte %zu of %zu is %u, must be 0", i, length, ((const unsigned char *)data)[i]);
}

void check_file(const char *file, int line, const char *name, unsigned tag, off_t size) {
    static unsigned char data[1 << 16];
    long fd = KERNEL(SYS_open, (long)path(name), (long)O_RDONLY);
    if (fd < 0)
        fail(file, line, "%s cannot be opened: errno %ld", name, -fd);
    if (size_of((int)fd) != size)
        fail(file, line, "%s has %lld bytes, must have %lld", name, (long long)size_of((int)fd), (long long)size);
    off_t at = 0;
    for (long got; (got = KERNEL(SYS_read, fd, (long)data, (long)sizeof data)) != 0; at += got) {
        if (got < 0)
            fail(file, line, "%s cannot be read: errno %ld", name, -got);
        check_data(file, line, data, tag, at, (size_t)got);
    }
    KERNEL(SYS_close, fd);
}

int make(const char *name, unsigned tag, off_t size) {
    unsigned char page[PAGE];
    int fd = open(path(name), O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    for (off_t at = 0; at < size; at += PAGE) {
        size_t length = size - at < PAGE ? (size_t)(size - at) : PAGE;
        fill(page, tag, at, length);
        EQUAL(pwrite(fd, page, length, at), length);
    }
    return fd;
}

enum { ROUNDS = 64, READ_BYTES = 512, WRITE_BYTES = 256 };

void heat_reads(int fd, unsigned tag, off_t from, off_t length) {
    unsigned char data[READ_BYTES];
    for (int round = 0; round < ROUNDS; round++)
        for (off_t at = from + length - PAGE; at >= from; at -= PAGE) {
            off_t place = at + (round * 977) % (PAGE - READ_BYTES);
            EQUAL(pread(fd, data, sizeof data, place), sizeof data);
            DATA(data, tag, place, sizeof data);
        }
}

void heat_writes(int fd, unsigned tag, off_t from, off_t length) {
    unsigned char data[WRITE_BYTES];
    for (int round = 0; round < ROUNDS; round++)
        for (off_t at = from + length - PAGE; at >= from; at -= PAGE) {
            off_t place = at + (round * 977) % (PAGE - WRITE_BYTES);
            fill(data, tag, place, sizeof data);
            EQUAL(pwrite(fd, data, sizeof data, place), sizeof data);
        }
}

void heat_position(int fd) {
    unsigned char data[WRITE_BYTES];
    for (int round = 0; round < ROUNDS; round++) {
        EQUAL(lseek(fd, round, SEEK_SET), round);
        EQUAL(read(fd, data, sizeof data), sizeof data);
        EQUAL(lseek(fd, 0, SEEK_CUR), round + WRITE_BYTES);
    }
    EQUAL(lseek(fd, 0, SEEK_SET), 0);
}

int make_hot(const char *name, unsigned tag, int pages) {
    int fd = make(name, tag, (off_t)pages * PAGE);
    heat_reads(fd, tag, 0, (off_t)pages * PAGE);
    heat_writes(fd, tag, 0, (off_t)pages * PAGE);
    heat_position(fd);
    return fd;
}

void await(const char *file, int line, pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            fail(file, line, "waitpid: errno %d", errno);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        _exit(77);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail(file, line, "the child ended with status %#x", (unsigned)status);
}

off_t size_of(int fd) {
    struct stat stat;
    EQUAL(KERNEL(SYS_fstat, (long)fd, (long)&stat), 0);
    return stat.st_size;
}

long blocks_of(int fd) {
    struct stat stat;
    EQUAL(KERNEL(SYS_fstat, (long)fd, (long)&stat), 0);
    return stat.st_blocks;
}

off_t kernel_position(int fd) {
    return KERNEL(SYS_lseek, (long)fd, 0L, (long)SEEK_CUR);
}

void sleep_ms(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int is_tmpfs(void) {
    struct statfs fs;
    EQUAL(statfs(folder, &fs), 0);
    return fs.f_type == 0x01021994;
}

size_t unknown(size_t value) {
    volatile size_t hidden = value;
    return hidden;
}

/* `--read-on FD TAG AT`: an inherited descriptor stands at AT and gives the file's data from there. */
static int read_on(char **words) {
    unsigned char data[100];
    int fd = atoi(words[0]), at = atoi(words[2]);
    EQUAL(lseek(fd, 0, SEEK_CUR), at);
    EQUAL(read(fd, data, sizeof data), sizeof data);
    DATA(data, (unsigned)atoi(words[1]), at, sizeof data);
    return 0;
}

/* `--closed FD`: the descriptor must not have been inherited. */
static int closed(char **words) {
    FAILS(fcntl(atoi(words[0]), F_GETFD), EBADF);
    return 0;
}

/* `--blocked`: SIGBUS and SIGSEGV were inherited blocked. */
static int blocked(void) {
    sigset_t now;
    EQUAL(sigprocmask(SIG_BLOCK, NULL, &now), 0);
    EQUAL(sigismember(&now, SIGBUS), 1);
    EQUAL(sigismember(&now, SIGSEGV), 1);
    return 0;
}

static int list(void) {
    for (size_t table = 0; table < sizeof tables / sizeof *tables; table++)
        for (const struct test_case *one = tables[table]; one->name; one++)
            printf("%s\t%d\n", one->name, one->expects);
    return 0;
}

int main(int count, char **words) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    self = realpath("/proc/self/exe", NULL);
    if (count == 2 && strcmp(words[1], "--list") == 0)
        return list();
    if (count == 5 && strcmp(words[1], "--read-on") == 0)
        return read_on(words + 2);
    if (count == 2 && strcmp(words[1], "--blocked") == 0)
        return blocked();
    if (count == 3 && strcmp(words[1], "--closed") == 0)
        return closed(words + 2);
    if (count == 3) {
        folder = words[2];
        for (size_t table = 0; table < sizeof tables / sizeof *tables; table++)
            for (const struct test_case *one = tables[table]; one->name; one++)
                if (strcmp(one->name, words[1]) == 0) {
                    one->run();
                    return 0;
                }
    }
    fprintf(stderr, "usage: behaviour --list | behaviour CASE FOLDER\n");
    return 2;
}
