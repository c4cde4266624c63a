/* Opening: every variant of open, what it refuses, and the kinds of file that it gives. */
#include "case.h"
#include <dirent.h>
#include <sys/socket.h>

extern int __open_2(const char *, int), __open64_2(const char *, int);
extern int __openat_2(int, const char *, int), __openat64_2(int, const char *, int);

static void reads_right(int fd, unsigned tag) {
    unsigned char data[700];
    CHECK(fd >= 0);
    heat_reads(fd, tag, 0, 2 * PAGE);
    EQUAL(read(fd, data, sizeof data), sizeof data);
    DATA(data, tag, 0, sizeof data);
    EQUAL(kernel_position(fd) == 0 || kernel_position(fd) == sizeof data, 1);
    EQUAL(lseek(fd, 0, SEEK_CUR), sizeof data);
    EQUAL(close(fd), 0);
    FAILS(read(fd, data, 1), EBADF);
}

static void every_variant_opens(void) {
    char *name = path("f");
    int folder = open(path("."), O_RDONLY | O_DIRECTORY);
    EQUAL(close(make("f", 1, 2 * PAGE)), 0);
    reads_right(open(name, O_RDONLY), 1);
    reads_right(open64(name, O_RDONLY), 1);
    reads_right(openat(AT_FDCWD, name, O_RDONLY), 1);
    reads_right(openat64(folder, "f", O_RDONLY), 1);
    reads_right(openat(folder, "f", O_RDWR | O_CREAT, 0600), 1);
    reads_right(__open_2(name, O_RDONLY), 1);
    reads_right(__open64_2(name, O_RDWR), 1);
    reads_right(__openat_2(folder, "f", O_RDONLY), 1);
    reads_right(__openat64_2(AT_FDCWD, name, O_RDWR), 1);
    reads_right(open(name, (int)unknown(O_RDONLY)), 1);
}

static void creat_makes_and_empties(void) {
    struct stat stat_of;
    unsigned char data[64];
    int hot = make_hot("f", 1, 2), fd;
    umask(022);
    fd = creat(path("new"), 0777);
    EQUAL(fstat(fd, &stat_of), 0);
    EQUAL(stat_of.st_mode & 07777, 0755);
    FAILS(read(fd, data, 1), EBADF);
    EQUAL(write(fd, "abc", 3), 3);
    EQUAL(size_of(fd), 3);
    fd = creat64(path("f"), 0600);
    CHECK(fd >= 0);
    EQUAL(pread(hot, data, sizeof data, 0), 0);
    EQUAL(read(hot, data, sizeof data), 0);
    EQUAL(lseek(hot, 0, SEEK_END), 0);
}

static void open_refuses_as_the_kernel_does(void) {
    char *file = path("f");
    char long_name[400];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    EQUAL(close(make_hot("f", 1, 1)), 0);
    EQUAL(symlink("f", path("link")), 0);
    FAILS(open(path("absent"), O_RDONLY), ENOENT);
    FAILS(open(file, O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    FAILS(open(path("f/x"), O_RDONLY), ENOTDIR);
    FAILS(open(file, O_RDONLY | O_DIRECTORY), ENOTDIR);
    FAILS(open(path("."), O_RDWR), EISDIR);
    FAILS(open(path("link"), O_RDONLY | O_NOFOLLOW), ELOOP);
    FAILS(open(path(long_name), O_RDONLY), ENAMETOOLONG);
    FAILS(open((const char *)unknown(16), O_RDONLY), EFAULT);
    FAILS(openat(-1, "f", O_RDONLY), EBADF);
    FAILS(openat((int)unknown(9999), "f", O_RDONLY), EBADF);
    EQUAL(chmod(file, 0), 0);
    if (geteuid() == 0)
        CHILD({
            EQUAL(seteuid(65534), 0);
            CHECK(open(file, O_RDONLY) < 0);
        });
}

static void opening_with_trunc_empties_a_hot_file(void) {
    unsigned char data[64];
    int hot = make_hot("f", 1, 4);
    EQUAL(lseek(hot, PAGE, SEEK_SET), PAGE);
    int other = open(path("f"), O_WRONLY | O_TRUNC);
    CHECK(other >= 0);
    EQUAL(pread(hot, data, sizeof data, 0), 0);
    EQUAL(read(hot, data, sizeof data), 0);
    fill(data, 1, 0, sizeof data);
    EQUAL(pwrite(hot, data, sizeof data, 0), sizeof data);
    FILE_IS("f", 1, sizeof data);
}

static void access_mode_is_kept(void) {
    unsigned char data[512];
    EQUAL(close(make_hot("f", 1, 2)), 0);
    int reader = open(path("f"), O_RDONLY), writer = open(path("f"), O_WRONLY);
    heat_reads(reader, 1, 0, 2 * PAGE);
    heat_writes(writer, 1, 0, 2 * PAGE);
    for (int i = 0; i < 100; i++) {
        FAILS(pwrite(reader, data, sizeof data, 0), EBADF);
        FAILS(write(reader, data, sizeof data), EBADF);
        FAILS(pread(writer, data, sizeof data, 0), EBADF);
        FAILS(read(writer, data, sizeof data), EBADF);
        FAILS(read(writer, data, 0), EBADF);
        FAILS(write(reader, data, 0), EBADF);
    }
    FILE_IS("f", 1, 2 * PAGE);
}

static void tmpfile_without_a_name(void) {
    unsigned char page[PAGE];
    int fd = open(path("."), O_TMPFILE | O_RDWR, 0600);
    if (fd < 0 && errno == EOPNOTSUPP)
        skip("this file system has no O_TMPFILE");
    CHECK(fd >= 0);
    for (int i = 0; i < 4; i++) {
        fill(page, 3, i * PAGE, PAGE);
        EQUAL(write(fd, page, PAGE), PAGE);
    }
    heat_reads(fd, 3, 0, 4 * PAGE);
    heat_writes(fd, 3, 0, 4 * PAGE);
    char link_name[64];
    snprintf(link_name, sizeof link_name, "/proc/self/fd/%d", fd);
    EQUAL(linkat(AT_FDCWD, link_name, AT_FDCWD, path("named"), AT_SYMLINK_FOLLOW), 0);
    FILE_IS("named", 3, 4 * PAGE);
}

static void path_only_descriptors_do_no_io(void) {
    unsigned char data[64];
    EQUAL(close(make_hot("f", 1, 1)), 0);
    int fd = open(path("f"), O_PATH);
    CHECK(fd >= 0);
    for (int i = 0; i < 50; i++) {
        FAILS(read(fd, data, sizeof data), EBADF);
        FAILS(pread(fd, data, sizeof data, 0), EBADF);
        FAILS(write(fd, data, sizeof data), EBADF);
        FAILS(lseek(fd, 0, SEEK_CUR), EBADF);
        FAILS(ftruncate(fd, 0), EBADF);
    }
    struct stat stat_of;
    EQUAL(fstat(fd, &stat_of), 0);
    EQUAL(stat_of.st_size, PAGE);
}

static void memfd_is_a_file(void) {
    unsigned char page[PAGE];
    int fd = memfd_create("m", 0);
    CHECK(fd >= 0);
    fill(page, 4, 0, PAGE);
    EQUAL(write(fd, page, PAGE), PAGE);
    heat_reads(fd, 4, 0, PAGE);
    heat_writes(fd, 4, 0, PAGE);
    unsigned char *map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    EQUAL(pwrite(fd, "xyz", 3, 10), 3);
    EQUAL(memcmp(map + 10, "xyz", 3), 0);
}

/* F_SEAL_WRITE is refused with EBUSY while anybody has a writable mapping. */
static void seals_can_be_added_after_writing(void) {
    unsigned char page[PAGE];
    int fd = memfd_create("m", MFD_ALLOW_SEALING);
    CHECK(fd >= 0);
    fill(page, 4, 0, PAGE);
    EQUAL(write(fd, page, PAGE), PAGE);
    heat_reads(fd, 4, 0, PAGE);
    heat_writes(fd, 4, 0, PAGE);
    EQUAL(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    FAILS(pwrite(fd, page, PAGE, PAGE), EPERM);
    heat_writes(fd, 4, 0, PAGE);
    EQUAL(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE), 0);
    FAILS(pwrite(fd, page, 100, 0), EPERM);
    FAILS(ftruncate(fd, 0), EPERM);
    heat_reads(fd, 4, 0, PAGE);
    EQUAL(fcntl(fd, F_GET_SEALS), F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE);
}

static void future_write_seal_stops_writes(void) {
    unsigned char page[PAGE];
    int fd = memfd_create("m", MFD_ALLOW_SEALING);
    fill(page, 4, 0, PAGE);
    EQUAL(write(fd, page, PAGE), PAGE);
    heat_reads(fd, 4, 0, PAGE);
    heat_writes(fd, 4, 0, PAGE);
    EQUAL(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    for (int i = 0; i < 100; i++)
        FAILS(pwrite(fd, "zzz", 3, 0), EPERM);
    heat_reads(fd, 4, 0, PAGE);
}

static void an_unlinked_file_lives_on(void) {
    struct stat stat_of;
    int fd = make("f", 5, 4 * PAGE);
    EQUAL(unlink(path("f")), 0);
    heat_reads(fd, 5, 0, 4 * PAGE);
    heat_writes(fd, 5, 0, 4 * PAGE);
    EQUAL(fstat(fd, &stat_of), 0);
    EQUAL(stat_of.st_nlink, 0);
    int other = make("f", 6, 4 * PAGE);
    heat_reads(other, 6, 0, 4 * PAGE);
    heat_reads(fd, 5, 0, 4 * PAGE);
    CHILD(heat_reads(fd, 5, 0, 4 * PAGE));
}

static void rename_over_keeps_files_apart(void) {
    int old = make_hot("f", 7, 2), new = make_hot("g", 8, 2);
    EQUAL(rename(path("g"), path("f")), 0);
    int again = open(path("f"), O_RDWR);
    heat_reads(old, 7, 0, 2 * PAGE);
    heat_reads(again, 8, 0, 2 * PAGE);
    EQUAL(pwrite(new, "zz", 2, 100), 2);
    char two[2];
    EQUAL(pread(again, two, 2, 100), 2);
    EQUAL(memcmp(two, "zz", 2), 0);
    EQUAL(pread(old, two, 2, 100), 2);
    DATA(two, 7, 100, 2);
}

static void two_names_are_one_file(void) {
    char got[3];
    int one = make_hot("f", 9, 2);
    EQUAL(link(path("f"), path("hard")), 0);
    EQUAL(symlink("f", path("soft")), 0);
    int hard = open(path("hard"), O_RDWR), soft = open(path("soft"), O_RDWR);
    heat_reads(hard, 9, 0, 2 * PAGE);
    heat_reads(soft, 9, 0, 2 * PAGE);
    EQUAL(pwrite(soft, "abc", 3, 50), 3);
    EQUAL(pread(hard, got, 3, 50), 3);
    EQUAL(memcmp(got, "abc", 3), 0);
    EQUAL(ftruncate(hard, 51), 0);
    EQUAL(pread(one, got, 3, 50), 1);
    EQUAL(pread(soft, got, 3, 51), 0);
}

static void what_is_no_regular_file_is_left_alone(void) {
    char data[64];
    int folder = open(path("."), O_RDONLY), zero = open("/dev/zero", O_RDWR);
    FAILS(read(folder, data, 1), EISDIR);
    for (int i = 0; i < 50; i++)
        EQUAL(read(zero, data, sizeof data), sizeof data);
    ZEROS(data, sizeof data);
    int proc = open("/proc/self/stat", O_RDONLY);
    for (int i = 0; i < 50; i++)
        CHECK(pread(proc, data, sizeof data, 0) > 0);
    EQUAL(mkfifo(path("fifo"), 0600), 0);
    int fifo = open(path("fifo"), O_RDWR);
    EQUAL(write(fifo, "abc", 3), 3);
    EQUAL(read(fifo, data, sizeof data), 3);
    FAILS(lseek(fifo, 0, SEEK_CUR), ESPIPE);
    FAILS(pread(fifo, data, 1, 0), ESPIPE);
    DIR *listing = fdopendir(folder);
    CHECK(readdir(listing) != NULL);
    EQUAL(closedir(listing), 0);
    FAILS(read(folder, data, 1), EBADF);
}

const struct test_case opening_cases[] = {
    {"opening/every_variant_opens", every_variant_opens, READS},
    {"opening/creat_makes_and_empties", creat_makes_and_empties, READS},
    {"opening/open_refuses_as_the_kernel_does", open_refuses_as_the_kernel_does, ANY},
    {"opening/opening_with_trunc_empties_a_hot_file", opening_with_trunc_empties_a_hot_file, READS},
    {"opening/access_mode_is_kept", access_mode_is_kept, READS},
    {"opening/tmpfile_without_a_name", tmpfile_without_a_name, READS | WRITES},
    {"opening/path_only_descriptors_do_no_io", path_only_descriptors_do_no_io, ANY},
    {"opening/memfd_is_a_file", memfd_is_a_file, ANY},
    {"opening/seals_can_be_added_after_writing", seals_can_be_added_after_writing, ANY},
    {"opening/future_write_seal_stops_writes", future_write_seal_stops_writes, ANY},
    {"opening/an_unlinked_file_lives_on", an_unlinked_file_lives_on, READS | WRITES},
    {"opening/rename_over_keeps_files_apart", rename_over_keeps_files_apart, READS},
    {"opening/two_names_are_one_file", two_names_are_one_file, READS},
    {"opening/what_is_no_regular_file_is_left_alone", what_is_no_regular_file_is_left_alone, ANY},
    {0},
};
