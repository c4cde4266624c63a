/* Mounts: file systems made for one case, on tmpfs and on a loop device over an image file. */
#include "case.h"
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

enum { SIZE = 8 * PAGE };
static unsigned char data[SIZE];

/* Mounts made from here on are seen by nobody else and go with the process. */
static void own_mounts(void) {
    if (unshare(CLONE_NEWNS) != 0)
        skip("needs root: a mount namespace cannot be made");
    EQUAL(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    EQUAL(mkdir(path("mnt"), 0700), 0);
}

static int image_fd;

/* An ext4 of 16 MiB on a loop device that goes with the last user. */
static void mount_image(void) {
    own_mounts();
    image_fd = (int)KERNEL(SYS_open, (long)path("image"), (long)(O_RDWR | O_CREAT), 0600L);
    EQUAL(KERNEL(SYS_ftruncate, (long)image_fd, 16L << 20), 0);
    char command[512];
    snprintf(command, sizeof command, "mkfs.ext4 -q -b 4096 '%s'", path("image"));
    if (system(command) != 0)
        skip("mkfs.ext4 is not here");
    int control = open("/dev/loop-control", O_RDWR), loop = -1;
    if (control < 0)
        skip("there are no loop devices here");
    char device[64];
    for (int tries = 0; tries < 20; tries++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        CHECK(number >= 0);
        snprintf(device, sizeof device, "/dev/loop%d", number);
        loop = open(device, O_RDWR);
        struct loop_config config = {.fd = (unsigned)image_fd, .info = {.lo_flags = LO_FLAGS_AUTOCLEAR}};
        if (loop >= 0 && ioctl(loop, LOOP_CONFIGURE, &config) == 0)
            break;
        close(loop);
        loop = -1;
    }
    if (loop < 0)
        skip("no loop device is free");
    EQUAL(mount(device, path("mnt"), "ext4", 0, NULL), 0);
    EQUAL(close(loop), 0);
    EQUAL(close(control), 0);
}

static void unmounts_after_the_last_close(void) {
    own_mounts();
    for (int i = 0; i < 5; i++) {
        EQUAL(mount("tmpfs", path("mnt"), "tmpfs", 0, "size=1m"), 0);
        int fd = make_hot("mnt/f", 1, 8), other = make_hot("mnt/g", 2, 8);
        int copy = dup(fd);
        FAILS(umount(path("mnt")), EBUSY);
        EQUAL(close(fd), 0);
        EQUAL(unlink(path("mnt/g")), 0);
        EQUAL(close(other), 0);
        heat_reads(copy, 1, 0, SIZE);
        FAILS(umount(path("mnt")), EBUSY);
        EQUAL(close(copy), 0);
        EQUAL(umount(path("mnt")), 0);
    }
}

static void a_loop_mount_unmounts_after_the_last_close(void) {
    mount_image();
    int fd = make_hot("mnt/f", 1, 8);
    FAILS(umount(path("mnt")), EBUSY);
    EQUAL(close(fd), 0);
    EQUAL(umount(path("mnt")), 0);
}

static void read_only_remounts_after_the_last_close(void) {
    own_mounts();
    EQUAL(mount("tmpfs", path("mnt"), "tmpfs", 0, "size=1m"), 0);
    int fd = make_hot("mnt/f", 1, 8);
    FAILS(mount(NULL, path("mnt"), NULL, MS_REMOUNT | MS_RDONLY, NULL), EBUSY);
    EQUAL(close(fd), 0);
    EQUAL(mount(NULL, path("mnt"), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    FAILS(open(path("mnt/f"), O_RDWR), EROFS);
    fd = open(path("mnt/f"), O_RDONLY);
    heat_reads(fd, 1, 0, SIZE);
    EQUAL(close(fd), 0);
    EQUAL(umount(path("mnt")), 0);
}

/* Looks for 64 bytes in the image below the file system, where only written-back data is. */
static int image_holds(const unsigned char *token) {
    static unsigned char part[1 << 20];
    for (off_t at = 0;; at += (off_t)sizeof part) {
        long got = KERNEL(SYS_pread64, (long)image_fd, (long)part, (long)sizeof part, (long)at);
        if (got <= 0)
            return 0;
        if (memmem(part, (size_t)got, token, 64))
            return 1;
    }
}

/* Each way to ask for durability brings a hot overwrite to the device. */
static void synced_bytes_are_on_the_device(void) {
    mount_image();
    int fd = make_hot("mnt/f", 1, 8);
    EQUAL(fsync(fd), 0);
    int synchronous = open(path("mnt/f"), O_RDWR | O_DSYNC);
    for (int way = 0; way < 24; way++) {
        unsigned char token[64];
        off_t at = way % 8 * PAGE + 64 * (way % 5);
        for (int i = 0; i < 64; i++)
            token[i] = (unsigned char)(way * 7 + i * i + 3);
        int writer = way % 6 == 2 ? synchronous : fd;
        struct iovec part = {token, 64};
        if (way % 6 == 3) {
            EQUAL(pwritev2(fd, &part, 1, at, RWF_DSYNC), 64);
        } else {
            for (int round = 0; round < 40; round++)
                EQUAL(pwrite(writer, token, 64, at), 64);
        }
        if (way % 6 == 0)
            EQUAL(fsync(fd), 0);
        if (way % 6 == 1)
            EQUAL(fdatasync(fd), 0);
        if (way % 6 == 4) {
            unsigned char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            EQUAL(msync(map, SIZE, MS_SYNC), 0);
            EQUAL(munmap(map, SIZE), 0);
        }
        if (way % 6 == 5)
            sync();
        EQUAL(image_holds(token), 1);
    }
    EQUAL(close(fd), 0);
    EQUAL(close(synchronous), 0);
    EQUAL(umount(path("mnt")), 0);
}

/* The device loses the data below a file: reading it gives EIO, whatever was hot beside it. */
static void read_errors_are_eio(void) {
    mount_image();
    int fd = make("mnt/f", 1, 256 * PAGE);
    EQUAL(fsync(fd), 0);
    EQUAL(close(fd), 0);
    EQUAL(umount(path("mnt")), 0);
    char command[512];
    snprintf(command, sizeof command, "mount -o loop,ro,noload '%s' '%s'", path("image"), path("mnt"));
    if (system(command) != 0)
        skip("mount(8) cannot use a loop device here");
    fd = open(path("mnt/f"), O_RDONLY);
    EQUAL(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
    heat_reads(fd, 1, 0, 2 * PAGE);
    EQUAL(KERNEL(SYS_ftruncate, (long)image_fd, 1L << 20), 0);
    for (int i = 0; i < 20; i++)
        FAILS(pread(fd, data, 100, (200 + i) * PAGE), EIO);
    EQUAL(lseek(fd, 210 * PAGE, SEEK_SET), 210 * PAGE);
    FAILS(read(fd, data, 100), EIO);
    EQUAL(lseek(fd, 0, SEEK_CUR), 210 * PAGE);
    heat_reads(fd, 1, 0, PAGE);
    EQUAL(close(fd), 0);
    EQUAL(umount(path("mnt")), 0);
}

const struct test_case mount_cases[] = {
    {"mounts/unmounts_after_the_last_close", unmounts_after_the_last_close, READS},
    {"mounts/a_loop_mount_unmounts_after_the_last_close", a_loop_mount_unmounts_after_the_last_close, READS},
    {"mounts/read_only_remounts_after_the_last_close", read_only_remounts_after_the_last_close, READS},
    {"mounts/synced_bytes_are_on_the_device", synced_bytes_are_on_the_device, KERNEL_SYNCS},
    {"mounts/read_errors_are_eio", read_errors_are_eio, READS},
    {0},
};
