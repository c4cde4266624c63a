/* The model: every operation is done twice, on file A through libc, where a preloaded library may step in,
 * and on its twin B by the system call instruction, where none can. The two must agree in every result.
 *
 * A slot holds a descriptor of A and one of B that were made the same way. Files come in pairs under the
 * names a0, b0, ... Everything is drawn from one generator, and one process acts at a time (children wait
 * for their turn on a pipe), so that a seed replays a run exactly.
 */
#ifndef MODEL_H
#define MODEL_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
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

enum {
    PAGE = 4096,
    SLOTS = 10,
    NAMES = 3,
    FILES_MAX = 65536,
    BUFFER = 256 << 10, /* the largest request */
    LARGEST_FILE = 4 << 20,
    CHILDREN = 3,
};

struct slot {
    int a, b;  /* descriptors; -1: empty */
    int file;  /* which pair */
    int flags; /* as opened */
};

/* What all processes of a run know together. */
struct shared {
    int current[NAMES];             /* the pair that a name stands for now */
    int files;                      /* pairs made so far */
    unsigned char given[FILES_MAX]; /* space was preallocated: what is a hole is no longer one answer */
    int forked; /* open files may be shared with a process that changes their flags unseen */
    int holes_unseen; /* somebody whom the library does not see may have made holes: on tmpfs they may fill */
};

extern struct slot slots[SLOTS];
extern struct shared *shared;
extern int on_tmpfs;
extern const char *self;

/* twin.c: the generator, the two sides, saying what is done, failing. */
extern uint64_t generator;
uint64_t draw(uint64_t below);
int chance(int of);
long kernel(long number, ...);
#define KERNEL(number, ...) kernel(number, ##__VA_ARGS__, 0L, 0L, 0L, 0L, 0L, 0L)
char *name_of(char side, int name);
void describe(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void differ(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What libc answered, as the kernel would have: -errno for an error. */
long answered(long value);
void agree(const char *what, long a, long b);

/* Slots: any that is open, or the number of an empty one, or -1. */
int open_slot(void);
int empty_slot(void);
off_t size_of(int fd);
/* A place in a file and a length, mostly where it is hot, at page boundaries or at the end. */
off_t draw_offset(const struct slot *slot);
size_t draw_length(const struct slot *slot);
/* With O_DIRECT everything is drawn aligned: what a misaligned request does before it fails depends on how
 * the file lies on the disk, which is not the same for twins. */
int is_direct(const struct slot *slot);
/* The two buffers; `unusable` bytes at the end lie in a page without access. */
struct buffers {
    unsigned char *a, *b;
    size_t length, unusable;
};
struct buffers draw_buffers(const struct slot *slot, size_t length, int for_writing);
void agree_on_data(const struct buffers *buffers, long result);

/* Compares sizes, positions and a part of the contents, or all of it. */
void check_slot(const struct slot *slot, off_t at, size_t length);
void check_position(const struct slot *slot);
void check_everything(void);

/* data.c, table.c, shape.c, share.c: the operations. */
struct operation {
    void (*run)(void);
    int weight;
};
extern const struct operation data_operations[], table_operations[], shape_operations[], share_operations[];

#endif
