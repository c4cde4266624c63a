/* Reads and writes of every kind. */
#include "model.h"

static struct slot *any(void) {
    int slot = open_slot();
    return slot < 0 ? NULL : &slots[slot];
}

static off_t position_of(const struct slot *slot) {
    return KERNEL(SYS_lseek, (long)slot->b, 0L, (long)SEEK_CUR);
}

/* One that can be read or written at its position. */
static struct slot *any_at_position(void) {
    struct slot *slot = any();
    return slot && is_direct(slot) && position_of(slot) % PAGE != 0 ? NULL : slot;
}

static void after_write(const struct slot *slot, off_t at, long result) {
    if (chance(3) && result > 0)
        check_slot(slot, at - 64, (size_t)result + 128);
    else
        check_slot(slot, 0, 0);
}

static void do_read(void) {
    struct slot *slot = any_at_position();
    if (!slot)
        return;
    struct buffers buffers = draw_buffers(slot, draw_length(slot), 0);
    describe("read(slot %d, %zu bytes, %zu unusable)", (int)(slot - slots), buffers.length, buffers.unusable);
    long a = answered(read(slot->a, buffers.a, buffers.length));
    long b = KERNEL(SYS_read, (long)slot->b, (long)buffers.b, (long)buffers.length);
    agree("read", a, b);
    agree_on_data(&buffers, a);
}

static void do_pread(void) {
    struct slot *slot = any();
    if (!slot)
        return;
    off_t at = draw_offset(slot);
    struct buffers buffers = draw_buffers(slot, draw_length(slot), 0);
    describe("pread(slot %d, %zu bytes, %zu unusable, at %lld)", (int)(slot - slots), buffers.length,
             buffers.unusable, (long long)at);
    long a = answered(chance(2) ? pread(slot->a, buffers.a, buffers.length, at)
                                : pread64(slot->a, buffers.a, buffers.length, at));
    long b = KERNEL(SYS_pread64, (long)slot->b, (long)buffers.b, (long)buffers.length, (long)at);
    agree("pread", a, b);
    agree_on_data(&buffers, a);
}

/* Direct writes are left to program/durability.c: on ext4, amid buffered writes of extents that were only
 * allocated, the twins differ by and by without any library as well. */
static void do_write(void) {
    struct slot *slot = any_at_position();
    if (!slot || is_direct(slot))
        return;
    off_t at = position_of(slot);
    size_t length = at > LARGEST_FILE ? draw(10) : draw_length(slot);
    struct buffers buffers = draw_buffers(slot, length, 1);
    describe("write(slot %d, %zu bytes, %zu unusable) at %lld", (int)(slot - slots), buffers.length,
             buffers.unusable, (long long)at);
    long a = answered(write(slot->a, buffers.a, buffers.length));
    long b = KERNEL(SYS_write, (long)slot->b, (long)buffers.b, (long)buffers.length);
    agree("write", a, b);
    after_write(slot, at, a);
}

static void do_pwrite(void) {
    struct slot *slot = any();
    if (!slot || is_direct(slot))
        return;
    off_t at = draw_offset(slot);
    struct buffers buffers = draw_buffers(slot, draw_length(slot), 1);
    describe("pwrite(slot %d, %zu bytes, %zu unusable, at %lld)", (int)(slot - slots), buffers.length,
             buffers.unusable, (long long)at);
    long a = answered(chance(2) ? pwrite(slot->a, buffers.a, buffers.length, at)
                                : pwrite64(slot->a, buffers.a, buffers.length, at));
    long b = KERNEL(SYS_pwrite64, (long)slot->b, (long)buffers.b, (long)buffers.length, (long)at);
    agree("pwrite", a, b);
    after_write(slot, at, a);
}

enum { PARTS = 6 };

/* The buffers cut into parts of the same lengths, some of them empty. */
static int cut(const struct buffers *buffers, struct iovec *a, struct iovec *b) {
    int count = 1 + (int)draw(PARTS);
    size_t from = 0;
    for (int i = 0; i < count; i++) {
        size_t length = i == count - 1 ? buffers->length - from : draw(buffers->length - from + 1);
        a[i] = (struct iovec){buffers->a + from, length};
        b[i] = (struct iovec){buffers->b + from, length};
        from += length;
    }
    return count;
}

/* The position as pwritev2 takes it: -1 stands for the descriptor's own. */
static void do_vector(void) {
    struct slot *slot = any();
    if (!slot || is_direct(slot))
        return;
    struct iovec part_a[PARTS], part_b[PARTS];
    int writes = chance(2), variant = (int)draw(3), flags = 0;
    off_t at = variant == 2 && chance(2) ? -1 : draw_offset(slot);
    struct buffers buffers = draw_buffers(slot, draw_length(slot), writes);
    int count = cut(&buffers, part_a, part_b);
    if (variant == 2 && writes && chance(10))
        flags = chance(2) ? RWF_APPEND : RWF_DSYNC;
    describe("%s%s%s(slot %d, %d parts, %zu bytes, %zu unusable, at %lld, flags %d)", variant ? "p" : "",
             writes ? "writev" : "readv", variant == 2 ? "2" : "", (int)(slot - slots), count, buffers.length,
             buffers.unusable, (long long)at, flags);
    long a, b, fd = slot->b, parts = (long)part_b, high = at < 0 ? -1 : 0;
    if (writes) {
        a = variant == 0   ? writev(slot->a, part_a, count)
            : variant == 1 ? pwritev(slot->a, part_a, count, at)
                           : pwritev2(slot->a, part_a, count, at, flags);
        a = answered(a);
        b = variant == 0   ? KERNEL(SYS_writev, fd, parts, (long)count)
            : variant == 1 ? KERNEL(SYS_pwritev, fd, parts, (long)count, (long)at, high)
                           : KERNEL(SYS_pwritev2, fd, parts, (long)count, (long)at, high, (long)flags);
        agree("writev", a, b);
        after_write(slot, at, a);
    } else {
        a = variant == 0   ? readv(slot->a, part_a, count)
            : variant == 1 ? preadv(slot->a, part_a, count, at)
                           : preadv2(slot->a, part_a, count, at, 0);
        a = answered(a);
        b = variant == 0   ? KERNEL(SYS_readv, fd, parts, (long)count)
            : variant == 1 ? KERNEL(SYS_preadv, fd, parts, (long)count, (long)at, high)
                           : KERNEL(SYS_preadv2, fd, parts, (long)count, (long)at, high, 0L);
        agree("readv", a, b);
        agree_on_data(&buffers, a);
    }
}

static void do_seek(void) {
    struct slot *slot = any();
    if (!slot)
        return;
    int whence = (int)draw(3);
    off_t at = draw_offset(slot);
    if (whence == SEEK_CUR)
        at = (off_t)draw(3000) - 1500;
    if (whence == SEEK_END)
        at = (off_t)draw(1200) - 1000;
    describe("lseek(slot %d, %lld, %d)", (int)(slot - slots), (long long)at, whence);
    long a = answered(chance(2) ? lseek(slot->a, at, whence) : lseek64(slot->a, at, whence));
    agree("lseek", a, KERNEL(SYS_lseek, (long)slot->b, (long)at, (long)whence));
}

/* On a disk the kernel's answer depends on what was written back meanwhile; on tmpfs it is exact. */
static void do_seek_data(void) {
    struct slot *slot = any();
    if (!slot || !on_tmpfs || shared->holes_unseen || shared->given[slot->file])
        return;
    int whence = chance(2) ? SEEK_DATA : SEEK_HOLE;
    off_t at = draw_offset(slot);
    describe("lseek(slot %d, %lld, %s)", (int)(slot - slots), (long long)at,
             whence == SEEK_DATA ? "SEEK_DATA" : "SEEK_HOLE");
    long a = answered(lseek(slot->a, at, whence));
    agree("lseek", a, KERNEL(SYS_lseek, (long)slot->b, (long)at, (long)whence));
}

/* Many small accesses of one page, as a program does that has its hot spot there. */
static void do_burst(void) {
    struct slot *slot = any();
    if (!slot || is_direct(slot))
        return;
    off_t page = draw_offset(slot) / PAGE * PAGE;
    int count = 8 + (int)draw(24), one_in_writes = 2 + (int)draw(6);
    describe("burst(slot %d, %d accesses of the page at %lld)", (int)(slot - slots), count, (long long)page);
    for (int i = 0; i < count; i++) {
        off_t at = page + (off_t)draw(PAGE);
        size_t length = 1 + draw(400);
        int writes = chance(one_in_writes);
        struct buffers buffers = draw_buffers(slot, length, writes);
        long a, b;
        describe("  %s %zu bytes, %zu unusable, at %lld", writes ? "pwrite" : "pread", buffers.length,
                 buffers.unusable, (long long)at);
        if (writes) {
            a = answered(pwrite(slot->a, buffers.a, buffers.length, at));
            b = KERNEL(SYS_pwrite64, (long)slot->b, (long)buffers.b, (long)buffers.length, (long)at);
        } else {
            a = answered(pread(slot->a, buffers.a, buffers.length, at));
            b = KERNEL(SYS_pread64, (long)slot->b, (long)buffers.b, (long)buffers.length, (long)at);
        }
        agree(writes ? "write of a burst" : "read of a burst", a, b);
        agree_on_data(&buffers, a);
    }
    check_slot(slot, page, PAGE + 512);
}

const struct operation data_operations[] = {
    {do_read, 120},  {do_pread, 120}, {do_write, 60}, {do_pwrite, 80},
    {do_vector, 60}, {do_seek, 60},   {do_burst, 60}, {do_seek_data, 10},
    {0},
};
