/* Opening, closing and duplicating. */
#include "model.h"

static void open_pair(int into, int name, int flags) {
    describe("slot %d = open(file %d, %#o)", into, name, flags);
    long a = answered(open(name_of('a', name), flags, 0600));
    long b = KERNEL(SYS_open, (long)name_of('b', name), (long)flags, 0600L);
    if (a < 0 || b < 0)
        agree("open", a, b);
    else
        slots[into] = (struct slot){(int)a, (int)b, shared->current[name], flags};
}

static void do_open(void) {
    static const int modes[] = {O_RDWR, O_RDWR, O_RDWR, O_RDONLY, O_WRONLY};
    static const int extras[] = {0, 0, 0, 0, 0, 0, O_APPEND, O_APPEND, O_CLOEXEC, O_TRUNC, O_DSYNC, O_SYNC, O_DIRECT,
                                 O_CREAT};
    int into = empty_slot();
    if (into < 0)
        return;
    int extra = extras[draw(sizeof extras / sizeof *extras)];
    if (extra == O_TRUNC && chance(2))
        extra = 0;
    open_pair(into, (int)draw(NAMES), modes[draw(5)] | extra);
}

static void do_close(void) {
    int open_count = 0, slot = open_slot();
    for (int i = 0; i < SLOTS; i++)
        open_count += slots[i].a >= 0;
    if (slot < 0 || (open_count < 4 && !chance(4)))
        return;
    static const char *const ways[] = {"close", "close", "close", "syscall close", "close by instruction", "close_range"};
    int way = (int)draw(6), fd = slots[slot].a;
    describe("%s(slot %d)", ways[way], slot);
    long a = way < 3    ? close(fd)
             : way == 3 ? syscall(SYS_close, fd)
             : way == 4 ? KERNEL(SYS_close, (long)fd)
                        : close_range((unsigned)fd, (unsigned)fd, 0);
    agree("close", answered(a), KERNEL(SYS_close, (long)slots[slot].b));
    slots[slot].a = slots[slot].b = -1;
    if (chance(4)) {
        /* The number now stands for something that is no file. */
        int ends[2];
        char byte = 0;
        agree("pipe", pipe(ends), 0);
        if (way != 4 || ends[0] == fd) {
            agree("read of an empty pipe", write(ends[1], "x", 1), 1);
            agree("read of a pipe", read(ends[0], &byte, 1), 1);
            agree("byte of a pipe", byte, 'x');
            agree("lseek of a pipe", answered(lseek(ends[0], 0, SEEK_CUR)), -ESPIPE);
        }
        close(ends[0]);
        close(ends[1]);
    }
}

static void do_duplicate(void) {
    int from = open_slot(), into = empty_slot();
    if (from < 0 || into < 0)
        return;
    static const char *const ways[] = {"dup", "F_DUPFD", "F_DUPFD_CLOEXEC", "syscall dup"};
    int way = (int)draw(4);
    describe("slot %d = %s(slot %d)", into, ways[way], from);
    long a = way == 0   ? dup(slots[from].a)
             : way == 1 ? fcntl(slots[from].a, F_DUPFD, 100)
             : way == 2 ? fcntl(slots[from].a, F_DUPFD_CLOEXEC, 3)
                        : syscall(SYS_dup, slots[from].a);
    long b = KERNEL(SYS_dup, (long)slots[from].b);
    if (a < 0 || b < 0)
        differ("dup: A %ld, B %ld", answered(a), b);
    slots[into] = slots[from];
    slots[into].a = (int)a;
    slots[into].b = (int)b;
    if (way == 2)
        slots[into].flags |= O_CLOEXEC;
    else
        slots[into].flags &= ~O_CLOEXEC;
    if (way == 2)
        KERNEL(SYS_fcntl, b, (long)F_SETFD, (long)FD_CLOEXEC);
}

static void do_duplicate_over(void) {
    int from = open_slot(), over = open_slot();
    if (from < 0)
        return;
    int third = chance(2);
    describe("dup%d(slot %d over slot %d)", third ? 3 : 2, from, over);
    long a = answered(third ? dup3(slots[from].a, slots[over].a, 0) : dup2(slots[from].a, slots[over].a));
    long b = third ? KERNEL(SYS_dup3, (long)slots[from].b, (long)slots[over].b, 0L)
                   : KERNEL(SYS_dup2, (long)slots[from].b, (long)slots[over].b);
    agree("dup2 succeeds", a < 0 ? a : 0, b < 0 ? b : 0);
    if (a < 0 || from == over)
        return;
    agree("number from dup2", a, slots[over].a);
    int numbers[2] = {slots[over].a, slots[over].b};
    slots[over] = slots[from];
    slots[over].flags &= ~O_CLOEXEC;
    slots[over].a = numbers[0];
    slots[over].b = numbers[1];
}

static void do_set_flags(void) {
    int slot = open_slot();
    if (slot < 0 || shared->forked)
        return;
    int flags = chance(2) ? O_APPEND : chance(8) ? O_DIRECT : 0;
    describe("fcntl(slot %d, F_SETFL, %#o)", slot, flags);
    long a = answered(fcntl(slots[slot].a, F_SETFL, flags));
    agree("F_SETFL", a, KERNEL(SYS_fcntl, (long)slots[slot].b, (long)F_SETFL, (long)flags));
    agree("F_GETFL", answered(fcntl(slots[slot].a, F_GETFL)) & ~0100000L,
          KERNEL(SYS_fcntl, (long)slots[slot].b, (long)F_GETFL) & ~0100000L);
}

/* A name gets a new file; slots of the old one go on. */
static void do_replace(void) {
    int name = (int)draw(NAMES), into = empty_slot();
    if (into < 0 || shared->files >= FILES_MAX)
        return;
    describe("unlink(file %d)", name);
    agree("unlink", answered(unlink(name_of('a', name))), KERNEL(SYS_unlink, (long)name_of('b', name)));
    shared->current[name] = shared->files++;
    open_pair(into, name, O_RDWR | O_CREAT | O_EXCL);
}

const struct operation table_operations[] = {
    {do_open, 14}, {do_close, 10}, {do_duplicate, 6}, {do_duplicate_over, 3}, {do_set_flags, 4}, {do_replace, 1}, {0},
};
