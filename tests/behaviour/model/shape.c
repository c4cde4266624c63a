/* Sizes, space, durability and limits. */
#include "model.h"

static off_t draw_size(const struct slot *slot) {
    off_t size = size_of(slot->b);
    switch (draw(6)) {
    case 0:
        return draw(3) ? (off_t)draw(8 * PAGE) : 0;
    case 1:
        return (off_t)draw(LARGEST_FILE / PAGE / 8) * PAGE;
    case 2:
        return (off_t)draw(LARGEST_FILE);
    default:
        size += (off_t)draw(6 * PAGE) - PAGE;
        return size < 0 ? 0 : size > LARGEST_FILE ? LARGEST_FILE : size;
    }
}

static void do_truncate(void) {
    int slot = open_slot();
    if (slot < 0)
        return;
    off_t size = draw_size(&slots[slot]);
    describe("ftruncate(slot %d, %lld)", slot, (long long)size);
    long a = answered(chance(2) ? ftruncate(slots[slot].a, size) : ftruncate64(slots[slot].a, size));
    agree("ftruncate", a, KERNEL(SYS_ftruncate, (long)slots[slot].b, (long)size));
    check_slot(&slots[slot], size - PAGE, 2 * PAGE);
}

/* By a name, by another process or past the library: nobody tells the library that holds the file. */
static void do_truncate_from_outside(void) {
    int slot = open_slot();
    if (slot < 0)
        return;
    int name = (int)draw(NAMES), by_name = chance(2);
    off_t size = draw_size(&slots[slot]);
    describe("truncate(file %d, %lld) %s", name, (long long)size, by_name ? "by name" : "from outside");
    shared->holes_unseen |= !by_name;
    long a = by_name ? answered(truncate(name_of('a', name), size))
                     : KERNEL(SYS_truncate, (long)name_of('a', name), (long)size);
    agree("truncate", a, KERNEL(SYS_truncate, (long)name_of('b', name), (long)size));
}

static void do_write_from_outside(void) {
    int name = (int)draw(NAMES), slot = open_slot();
    if (slot < 0)
        return;
    off_t at = draw_offset(&slots[slot]);
    struct buffers buffers = draw_buffers(&slots[slot], draw_length(&slots[slot]), 1);
    size_t length = buffers.length - buffers.unusable;
    describe("pwrite(file %d, %zu bytes, at %lld) from outside", name, length, (long long)at);
    shared->holes_unseen = 1;
    long a = KERNEL(SYS_open, (long)name_of('a', name), (long)O_WRONLY);
    long b = KERNEL(SYS_open, (long)name_of('b', name), (long)O_WRONLY);
    agree("pwrite", KERNEL(SYS_pwrite64, a, (long)buffers.a, (long)length, (long)at),
          KERNEL(SYS_pwrite64, b, (long)buffers.b, (long)length, (long)at));
    KERNEL(SYS_close, a);
    KERNEL(SYS_close, b);
}

static void do_allocate(void) {
    static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
                                FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE};
    int slot = open_slot(), mode = modes[draw(7)];
    if (slot < 0)
        return;
    off_t at = draw_offset(&slots[slot]), length = 1 + (off_t)draw(8 * PAGE);
    if (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)) {
        at = at / PAGE * PAGE;
        length = PAGE;
    }
    if (!(mode & FALLOC_FL_PUNCH_HOLE))
        shared->given[slots[slot].file] = 1;
    describe("fallocate(slot %d, %#x, %lld, %lld)", slot, mode, (long long)at, (long long)length);
    long a = answered(fallocate(slots[slot].a, mode, at, length));
    agree("fallocate", a, KERNEL(SYS_fallocate, (long)slots[slot].b, (long)mode, (long)at, (long)length));
    check_slot(&slots[slot], at - 64, (size_t)length + 128);
}

static void do_sync(void) {
    int slot = open_slot();
    if (slot < 0 || (!on_tmpfs && !chance(3)))
        return;
    int way = (int)draw(3);
    describe("%s(slot %d)", way == 0 ? "fsync" : way == 1 ? "fdatasync" : "sync_file_range", slot);
    long fd = slots[slot].b;
    long a = answered(way == 0   ? fsync(slots[slot].a)
                      : way == 1 ? fdatasync(slots[slot].a)
                                 : sync_file_range(slots[slot].a, 0, 0, SYNC_FILE_RANGE_WRITE));
    long b = way == 0   ? KERNEL(SYS_fsync, fd)
             : way == 1 ? KERNEL(SYS_fdatasync, fd)
                        : KERNEL(SYS_sync_file_range, fd, 0L, 0L, (long)SYNC_FILE_RANGE_WRITE);
    agree("sync", a, b);
}

/* SIGXFSZ is ignored: writes at and past the limit fail with EFBIG. */
static void do_limit(void) {
    struct rlimit limit = {chance(3) ? draw(10 * PAGE) : RLIM_INFINITY, RLIM_INFINITY};
    describe("setrlimit(RLIMIT_FSIZE, %ld)", (long)limit.rlim_cur);
    agree("setrlimit", setrlimit(RLIMIT_FSIZE, &limit), 0);
    if (limit.rlim_cur == RLIM_INFINITY)
        return;
    for (int i = 0; i < 10; i++)
        data_operations[draw(7)].run();
    limit.rlim_cur = RLIM_INFINITY;
    agree("setrlimit", setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void do_times(void) {
    int slot = open_slot();
    if (slot < 0)
        return;
    struct timespec times[2] = {{1000000000, 0}, {1000000000 + (long)draw(1000), 0}};
    struct stat stat_of;
    describe("futimens(slot %d, %ld)", slot, times[1].tv_sec);
    agree("futimens", answered(futimens(slots[slot].a, times)), 0);
    agree("fstat", answered(fstat(slots[slot].a, &stat_of)), 0);
    agree("mtime", stat_of.st_mtim.tv_sec, times[1].tv_sec);
}

const struct operation shape_operations[] = {
    {do_truncate, 8}, {do_truncate_from_outside, 6}, {do_write_from_outside, 8}, {do_allocate, 5},
    {do_sync, 3},     {do_limit, 2},                 {do_times, 1},              {0},
};
