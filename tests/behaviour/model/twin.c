/* The generator, the two sides of every operation, and the comparison of everything. */
#include "model.h"
#include <stdarg.h>

uint64_t generator;
struct slot slots[SLOTS];
struct shared *shared;
int on_tmpfs;

/* splitmix64 */
uint64_t draw(uint64_t below) {
    uint64_t mix = generator += 0x9e3779b97f4a7c15;
    mix = (mix ^ mix >> 30) * 0xbf58476d1ce4e5b9;
    mix = (mix ^ mix >> 27) * 0x94d049bb133111eb;
    return (mix ^ mix >> 31) % below;
}

int chance(int of) {
    return draw((uint64_t)of) == 0;
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

char *name_of(char side, int name) {
    static char names[4][8];
    static int turn;
    char *to = names[turn++ % 4];
    snprintf(to, sizeof names[0], "%c%d", side, name);
    return to;
}

/* The last operations of this process, oldest first when printed. */
enum { KEPT = 24, TEXT = 160 };
static char log_lines[KEPT][TEXT];
static unsigned long log_count;

void describe(const char *format, ...) {
    static int trace = -1;
    if (trace < 0)
        trace = getenv("MODEL_TRACE") != NULL;
    char *line = log_lines[log_count++ % KEPT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, TEXT - 1, format, arguments);
    va_end(arguments);
    if (trace)
        fprintf(stderr, "[%d] %s\n", (int)KERNEL(SYS_getpid), line);
}

_Noreturn void differ(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY}; /* stderr may be a file */
    setrlimit(RLIMIT_FSIZE, &none);
    fprintf(stderr, "the twins differ: %s\nlast operations of this process:\n", text);
    for (unsigned long i = log_count < KEPT ? 0 : log_count - KEPT; i < log_count; i++)
        fprintf(stderr, "  %lu  %s\n", i, log_lines[i % KEPT]);
    KERNEL(SYS_exit_group, 1L);
    abort();
}

long answered(long value) {
    return value == -1 ? -errno : value;
}

void agree(const char *what, long a, long b) {
    if (a != b)
        differ("%s: A %ld, B %ld", what, a, b);
}

int open_slot(void) {
    for (int tries = 0; tries < 40; tries++) {
        int slot = (int)draw(SLOTS);
        if (slots[slot].a >= 0)
            return slot;
    }
    return -1;
}

int empty_slot(void) {
    for (int slot = 0; slot < SLOTS; slot++)
        if (slots[slot].a < 0)
            return slot;
    return -1;
}

off_t size_of(int fd) {
    struct stat stat;
    if (KERNEL(SYS_fstat, (long)fd, (long)&stat) != 0)
        differ("fstat of descriptor %d failed", fd);
    return stat.st_size;
}

off_t draw_offset(const struct slot *slot) {
    off_t size = size_of(slot->b), at;
    switch (draw(10)) {
    case 0:
        at = size + (off_t)draw(600) - 400;
        break;
    case 1:
        at = size - size % PAGE + (off_t)draw(20) - 10;
        break;
    case 2:
        at = (off_t)draw(LARGEST_FILE / PAGE / 8) * PAGE + (off_t)draw(20) - 10;
        break;
    case 3:
        at = size ? (off_t)draw((uint64_t)size) : 0;
        break;
    default:
        at = (off_t)draw(4 * PAGE);
    }
    at = at < 0 ? 0 : at;
    return is_direct(slot) ? at / PAGE * PAGE : at;
}

int is_direct(const struct slot *slot) {
    return (KERNEL(SYS_fcntl, (long)slot->b, (long)F_GETFL) & O_DIRECT) != 0;
}

size_t draw_length(const struct slot *slot) {
    if (is_direct(slot))
        return (1 + draw(5)) * PAGE;
    switch (draw(16)) {
    case 0:
        return draw(2);
    case 1:
        return PAGE;
    case 2:
        return 2 * PAGE - 10 + draw(20);
    case 3:
    case 4:
    case 5:
        return draw(5000);
    case 6:
        return chance(4) ? draw(BUFFER) : draw(20000);
    default:
        return 1 + draw(600);
    }
}

static unsigned char *region(void) {
    unsigned char *at = mmap(NULL, BUFFER + 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + BUFFER + 2 * PAGE, 2 * PAGE, PROT_NONE) != 0)
        differ("no buffer: errno %d", errno);
    return at;
}

/* Both buffers begin at the same place in a page; one in fifty runs into a page without access. */
struct buffers draw_buffers(const struct slot *slot, size_t length, int for_writing) {
    static unsigned char *a, *b;
    if (!a) {
        a = region();
        b = region();
    }
    struct buffers buffers = {.length = length};
    int direct = is_direct(slot);
    size_t start = !direct && chance(3) ? draw(PAGE) : 0;
    if (!direct && length > 0 && length <= BUFFER && chance(50)) {
        buffers.unusable = 1 + draw(length);
        start = BUFFER + 2 * PAGE - (length - buffers.unusable);
        if (buffers.unusable > 2 * PAGE)
            length = buffers.length -= buffers.unusable - 2 * PAGE, buffers.unusable = 2 * PAGE;
    }
    buffers.a = a + start;
    buffers.b = b + start;
    size_t usable = length - buffers.unusable;
    if (for_writing) {
        unsigned char first = (unsigned char)draw(255);
        for (size_t i = 0; i < usable; i++)
            buffers.a[i] = buffers.b[i] = (unsigned char)(first + i * 7);
    } else {
        memset(buffers.a, 0xEE, usable);
        memset(buffers.b, 0xEE, usable);
    }
    return buffers;
}

void agree_on_data(const struct buffers *buffers, long result) {
    size_t length = buffers->unusable ? (result > 0 ? (size_t)result : 0) : buffers->length;
    if (memcmp(buffers->a, buffers->b, length) == 0)
        return;
    size_t at = 0;
    while (buffers->a[at] == buffers->b[at])
        at++;
    differ("data, byte %zu of %ld: A %d, B %d", at, result, buffers->a[at], buffers->b[at]);
}

/* Descriptors of the pair that can be read past any library, whatever mode the slot has. */
static void open_again(const struct slot *slot, long *a, long *b) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", slot->a);
    *a = KERNEL(SYS_open, (long)name, (long)O_RDONLY);
    snprintf(name, sizeof name, "/proc/self/fd/%d", slot->b);
    *b = KERNEL(SYS_open, (long)name, (long)O_RDONLY);
    if (*a < 0 || *b < 0)
        differ("a slot cannot be opened again: %ld, %ld", *a, *b);
}

void check_slot(const struct slot *slot, off_t at, size_t length) {
    static unsigned char from_a[BUFFER], from_b[BUFFER];
    struct stat stat_a, stat_b;
    KERNEL(SYS_fstat, (long)slot->a, (long)&stat_a);
    KERNEL(SYS_fstat, (long)slot->b, (long)&stat_b);
    agree("size", stat_a.st_size, stat_b.st_size);
    if (on_tmpfs && !shared->holes_unseen)
        agree("blocks", stat_a.st_blocks, stat_b.st_blocks);
    if (length == 0)
        return;
    long a, b;
    open_again(slot, &a, &b);
    off_t end = at + (off_t)length;
    for (at = at < 0 ? 0 : at; at < end; at += BUFFER) {
        long part = end - at < BUFFER ? end - at : BUFFER;
        long got = KERNEL(SYS_pread64, a, (long)from_a, part, (long)at);
        agree("bytes in the file", got, KERNEL(SYS_pread64, b, (long)from_b, part, (long)at));
        for (long i = 0; i < got; i++)
            if (from_a[i] != from_b[i])
                differ("contents at %lld of file %d: A %d, B %d", (long long)at + i, slot->file, from_a[i],
                       from_b[i]);
        if (got < part)
            break;
    }
    KERNEL(SYS_close, a);
    KERNEL(SYS_close, b);
}

void check_position(const struct slot *slot) {
    agree("position", answered(lseek(slot->a, 0, SEEK_CUR)),
          KERNEL(SYS_lseek, (long)slot->b, 0L, (long)SEEK_CUR));
}

void check_everything(void) {
    for (int slot = 0; slot < SLOTS; slot++) {
        if (slots[slot].a < 0)
            continue;
        check_slot(&slots[slot], 0, (size_t)size_of(slots[slot].b) + 1);
        check_position(&slots[slot]);
    }
}
