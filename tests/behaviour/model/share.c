/* What others share: mappings, transfers in the kernel, streams, other processes. */
#include "model.h"
#include <spawn.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

extern char **environ;

/* Loads and stores through mappings of both, inside the file. */
static void do_map(void) {
    int slot = open_slot();
    if (slot < 0)
        return;
    off_t size = size_of(slots[slot].b), at = draw_offset(&slots[slot]) / PAGE * PAGE;
    if (at >= size)
        return;
    int writes = chance(2);
    long protection = PROT_READ | (writes ? PROT_WRITE : 0);
    describe("mmap(slot %d, page at %lld) and %s", slot, (long long)at, writes ? "store" : "load");
    unsigned char *a = mmap(NULL, PAGE, (int)protection, MAP_SHARED, slots[slot].a, at);
    long result_a = a == MAP_FAILED ? -errno : 0;
    long b_at = KERNEL(SYS_mmap, 0L, (long)PAGE, protection, (long)MAP_SHARED, (long)slots[slot].b, (long)at);
    agree("mmap", result_a, b_at < 0 && b_at > -4096 ? b_at : 0);
    if (result_a != 0)
        return;
    unsigned char *b = (unsigned char *)b_at;
    size_t inside = size - at < PAGE ? (size_t)(size - at) : PAGE;
    if (memcmp(a, b, inside) != 0)
        differ("mappings of slot %d at %lld", slot, (long long)at);
    if (writes)
        for (int i = 0; i < 20; i++) {
            size_t place = draw(inside);
            a[place] = b[place] = (unsigned char)draw(256);
        }
    munmap(a, PAGE);
    KERNEL(SYS_munmap, b_at, (long)PAGE);
    check_slot(&slots[slot], at, PAGE);
}

/* Whether a transfer would overwrite what it is reading. Pages travel through a pipe by reference, so what arrives
 * then depends on whether a page of zeros was a hole, which another process's truncation may decide
 * (docs/internals/promises.md, known differences). */
static int overwrites_its_source(int from, int to, off_t at, off_t length) {
    struct stat source, target;
    if (fstat(slots[from].b, &source) || fstat(slots[to].b, &target) || source.st_dev != target.st_dev ||
        source.st_ino != target.st_ino)
        return 0;
    off_t to_at = KERNEL(SYS_lseek, slots[to].b, 0L, (long)SEEK_CUR);
    return at < to_at + length && to_at < at + length;
}

/* sendfile, copy_file_range and splice between two slots, with and without an offset of their own. */
static void do_transfer(void) {
    int from = open_slot(), to = open_slot();
    if (from < 0 || is_direct(&slots[from]) || is_direct(&slots[to]))
        return;
    static const char *const ways[] = {"sendfile", "copy_file_range", "splice"};
    int way = (int)draw(3), own = chance(2);
    off_t at_a = draw_offset(&slots[from]), at_b = at_a;
    size_t length = 1 + draw(3 * PAGE);
    describe("%s(slot %d to slot %d, %zu bytes, from %s %lld)", ways[way], from, to, length,
             own ? "position" : "offset", (long long)at_a);
    off_t source_at = own ? KERNEL(SYS_lseek, slots[from].b, 0L, (long)SEEK_CUR) : at_b;
    if (overwrites_its_source(from, to, source_at, (off_t)length))
        return;
    off_t *in_a = own ? NULL : &at_a;
    long in_b = own ? 0 : (long)&at_b, a, b, fd_in = slots[from].b, fd_out = slots[to].b;
    if (way == 0) {
        a = answered(sendfile(slots[to].a, slots[from].a, in_a, length));
        b = KERNEL(SYS_sendfile, fd_out, fd_in, in_b, (long)length);
    } else if (way == 1) {
        a = answered(copy_file_range(slots[from].a, in_a, slots[to].a, NULL, length, 0));
        b = KERNEL(SYS_copy_file_range, fd_in, in_b, fd_out, 0L, (long)length, 0L);
    } else {
        int ends[2];
        agree("pipe", pipe(ends), 0);
        a = answered(splice(slots[from].a, in_a, ends[1], NULL, length, 0));
        if (a > 0)
            a = answered(splice(ends[0], NULL, slots[to].a, NULL, (size_t)a, 0));
        close(ends[0]);
        close(ends[1]);
        agree("pipe", pipe(ends), 0);
        b = KERNEL(SYS_splice, fd_in, in_b, (long)ends[1], 0L, (long)length, 0L);
        if (b > 0)
            b = KERNEL(SYS_splice, (long)ends[0], 0L, fd_out, 0L, b, 0L);
        close(ends[0]);
        close(ends[1]);
    }
    agree(ways[way], a, b);
    agree("offset after a transfer", at_a, at_b);
    check_position(&slots[from]);
    check_position(&slots[to]);
    check_slot(&slots[to], 0, (size_t)size_of(slots[to].b));
}

/* glibc's own write, which passes through no symbol that could be preloaded. */
static void do_print(void) {
    int slot = open_slot();
    if (slot < 0 || is_direct(&slots[slot]))
        return;
    char text[64];
    int length = snprintf(text, sizeof text, "<%ld of the twins>", (long)draw(1000000));
    describe("dprintf(slot %d)", slot);
    long a = dprintf(slots[slot].a, "%s", text) == length ? length : -1;
    long b = KERNEL(SYS_write, (long)slots[slot].b, (long)text, (long)length);
    agree("dprintf", a, b == length ? b : -1);
    check_slot(&slots[slot], 0, 0);
}

/* An unbuffered stream on a duplicate: it shares the position and leaves it after what it took. */
static void do_stream(void) {
    int slot = open_slot();
    if (slot < 0 || slots[slot].flags & O_ACCMODE || is_direct(&slots[slot]))
        return;
    size_t length = 1 + draw(300), got_b = 0;
    unsigned char a[300], b[300];
    describe("fread(stream on slot %d, %zu bytes)", slot, length);
    FILE *stream = fdopen(dup(slots[slot].a), "r");
    if (!stream)
        differ("fdopen: errno %d", errno);
    setvbuf(stream, NULL, _IONBF, 0);
    size_t got_a = fread(a, 1, length, stream);
    fclose(stream);
    for (long part; got_b < length; got_b += (size_t)part)
        if ((part = KERNEL(SYS_read, (long)slots[slot].b, (long)(b + got_b), (long)(length - got_b))) <= 0)
            break;
    agree("fread", (long)got_a, (long)got_b);
    if (memcmp(a, b, got_a) != 0)
        differ("data of fread");
    check_position(&slots[slot]);
}

/* Sends A's descriptor through a socket to this process and duplicates B's. */
static void do_pass(void) {
    int from = open_slot(), into = empty_slot(), ends[2];
    if (from < 0 || into < 0)
        return;
    describe("slot %d = slot %d passed over a socket", into, from);
    agree("socketpair", socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    char byte = 'x';
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr head;
    } control = {{0}};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(&control.head), &slots[from].a, sizeof(int));
    agree("sendmsg", answered(sendmsg(ends[0], &message, 0)), 1);
    memset(&control, 0, sizeof control);
    agree("recvmsg", answered(recvmsg(ends[1], &message, 0)), 1);
    slots[into] = slots[from];
    slots[into].flags &= ~O_CLOEXEC;
    memcpy(&slots[into].a, CMSG_DATA(&control.head), sizeof(int));
    slots[into].b = (int)KERNEL(SYS_dup, (long)slots[from].b);
    close(ends[0]);
    close(ends[1]);
    check_position(&slots[into]);
}

static void ended_well(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            differ("waitpid: errno %d", errno);
    if (status != 0)
        differ("a child ended with status %#x", (unsigned)status);
}

/* The child of vfork works in this process's memory, with descriptors of its own. */
static void do_vfork(void) {
    int slot = open_slot(), other = open_slot();
    if (slot < 0)
        return;
    int seeks = chance(2);
    describe("vfork; the child closes slot %d%s", slot, seeks ? " and seeks" : "");
    static volatile long a, b;
    pid_t pid = vfork();
    if (pid == 0) {
        if (seeks) {
            a = lseek(slots[other].a, 17, SEEK_CUR);
            b = KERNEL(SYS_lseek, (long)slots[other].b, 17L, (long)SEEK_CUR);
        }
        close(slots[slot].a);
        int again = open("a0", O_RDWR);
        char byte;
        pread(again, &byte, 1, 0);
        _exit(0);
    }
    ended_well(pid);
    if (seeks)
        agree("lseek of a vfork child", a, b);
    check_position(&slots[slot]);
    check_position(&slots[other]);
}

/* Another program inherits a slot, compares what it reads through both, and leaves the positions changed. */
static void do_execute(void) {
    int slot = open_slot();
    if (slot < 0 || slots[slot].flags & O_CLOEXEC || (slots[slot].flags & O_ACCMODE) == O_WRONLY)
        return;
    if (is_direct(&slots[slot]))
        return;
    char a[16], b[16], length[16];
    snprintf(a, sizeof a, "%d", slots[slot].a);
    snprintf(b, sizeof b, "%d", slots[slot].b);
    snprintf(length, sizeof length, "%d", 1 + (int)draw(2000));
    describe("execute a program that reads %s bytes of slot %d", length, slot);
    char *words[] = {(char *)self, "--compare", a, b, length, NULL};
    pid_t pid;
    agree("posix_spawn", posix_spawn(&pid, self, NULL, NULL, words, environ), 0);
    ended_well(pid);
    check_position(&slots[slot]);
}

const struct operation share_operations[] = {
    {do_map, 6}, {do_transfer, 4}, {do_print, 4}, {do_stream, 3}, {do_pass, 2}, {do_vfork, 2}, {do_execute, 1}, {0},
};
