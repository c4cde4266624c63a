/* Writes that a commit log cannot note, for the model program.
 *
 *   unseen mapping PATH WORD BYTES   by a shared mapping, then msync
 *   unseen ring PATH WORD BYTES      by a ring of requests (io_uring)
 *   unseen flag PATH WORD BYTES      by one call that is durable when it returns (RWF_DSYNC)
 *   unseen direct PATH WORD BYTES    past the page cache, durable when it returns (O_DIRECT and O_DSYNC)
 *   unseen send PATH WORD BYTES      by sendfile to a descriptor with O_DSYNC
 *   unseen descriptor WORD BYTES     to the descriptor 1, which another program has opened
 *
 * The first BYTES of the file, which are whole blocks, become repetitions of WORD, little-endian.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

static void fail(const char *what) {
  fprintf(stderr, "unseen: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void mapping(int fd, const char *bytes, size_t length) {
  char *mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) fail("mmap");
  memcpy(mapped, bytes, length);
  if (msync(mapped, length, MS_SYNC) != 0) fail("msync");
}

static void ring(int fd, const char *bytes, size_t length) {
  struct io_uring ring;
  int failed = io_uring_queue_init(4, &ring, 0);
  if (failed < 0) errno = -failed, fail("io_uring_queue_init");
  io_uring_prep_write(io_uring_get_sqe(&ring), fd, bytes, length, 0);
  struct io_uring_cqe *done;
  if (io_uring_submit(&ring) != 1 || io_uring_wait_cqe(&ring, &done) != 0) fail("io_uring_submit");
  if (done->res != (int)length) errno = EIO, fail("a write by a ring");
}

static void send_bytes(int fd, const char *bytes, size_t length) {
  int from = memfd_create("sent", 0);
  if (from < 0 || pwrite(from, bytes, length, 0) != (ssize_t)length) fail("memfd_create");
  for (size_t sent = 0; sent < length;) {
    ssize_t count = sendfile(fd, from, NULL, length - sent);
    if (count <= 0) fail("sendfile");
    sent += count;
  }
}

int main(int count, char **words) {
  int has_path = count == 5;
  if (!has_path && count != 4) return fputs("unseen: read the first lines of its source\n", stderr), 2;
  uint64_t word = strtoull(words[count - 2], NULL, 10);
  size_t length = strtoull(words[count - 1], NULL, 10);
  char *bytes = aligned_alloc(4096, length);
  if (bytes == NULL) fail("aligned_alloc");
  for (size_t at = 0; at + sizeof word <= length; at += sizeof word) memcpy(bytes + at, &word, sizeof word);
  const char *mode = words[1];
  int flags = !strcmp(mode, "direct") ? O_DIRECT | O_DSYNC : !strcmp(mode, "send") ? O_DSYNC : 0;
  int fd = has_path ? open(words[2], O_RDWR | flags) : 1;
  if (fd < 0) fail(words[2]);
  struct iovec whole = {bytes, length};
  if (!strcmp(mode, "mapping")) mapping(fd, bytes, length);
  else if (!strcmp(mode, "ring")) ring(fd, bytes, length);
  else if (!strcmp(mode, "send")) send_bytes(fd, bytes, length);
  else if (!strcmp(mode, "flag")) {
    if (pwritev2(fd, &whole, 1, 0, RWF_DSYNC) != (ssize_t)length) fail("pwritev2");
  } else if (pwrite(fd, bytes, length, 0) != (ssize_t)length) fail("pwrite");
  return 0;
}
