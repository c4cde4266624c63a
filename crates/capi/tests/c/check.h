/* What the C tests have in common: checks that say where, and two ends in one process. */
#ifndef CHECK_H
#define CHECK_H

#include <bywash.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(truth)                                                                              \
	do {                                                                                      \
		if (!(truth)) {                                                                   \
			fprintf(stderr, "%s:%d: not true: %s (last error: %s)\n", __FILE__, __LINE__, #truth, \
				bywash_last_error_message());                                     \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)
#define OK(call) CHECK((call) == BYWASH_OK)
/* The call fails with this error, and the thread's message has this in it. */
#define FAILS(call, error, part)                                           \
	do {                                                               \
		CHECK((call) == (error));                                  \
		CHECK(strstr(bywash_last_error_message(), part) != NULL);  \
	} while (0)

static const int64_t SECOND = 1000000000;
static const struct bywash_options DEFAULTS = {0};

/* Options with an arena of 1 MiB and no huge pages. */
static inline struct bywash_options small(int class_)
{
	struct bywash_options options = {0};
	OK(bywash_options_new(&options));
	OK(bywash_options_set_class(options, class_));
	OK(bywash_options_set_arena_bytes(options, 1 << 20));
	OK(bywash_options_set_huge_pages(options, BYWASH_HUGE_PAGES_NO));
	return options;
}

struct other_end {
	int fd;
	struct bywash_options options;
	struct bywash_path path;
};

static inline void *make_other_end(void *argument)
{
	struct other_end *other = argument;
	OK(bywash_path_over(other->fd, other->options, &other->path));
	return NULL;
}

/* Two ends in this process, each of its own options. */
static inline void unlike_ends(struct bywash_options first, struct bywash_options second,
			       struct bywash_path *one, struct bywash_path *two)
{
	int fds[2];
	pthread_t thread;
	OK(bywash_socket_pair(fds));
	struct other_end other = {fds[1], second, {0}};
	CHECK(pthread_create(&thread, NULL, make_other_end, &other) == 0);
	OK(bywash_path_over(fds[0], first, one));
	CHECK(pthread_join(thread, NULL) == 0);
	*two = other.path;
}

static inline void both_ends(struct bywash_options options, struct bywash_path *one, struct bywash_path *two)
{
	unlike_ends(options, options, one, two);
}

/* Bytes that tell where they come from. */
static inline uint8_t byte_at(size_t at, size_t seed)
{
	return (uint8_t)(at * 31 + seed * 7);
}

/* A container of these bytes. */
static inline struct bywash_container filled(struct bywash_path path, size_t size, size_t seed)
{
	struct bywash_container container = {0};
	uint8_t *bytes = NULL;
	size_t length = 0;
	OK(bywash_alloc(path, size, 10 * SECOND, &container));
	OK(bywash_container_map(container, &bytes, &length));
	CHECK(bytes != NULL && length == size);
	for (size_t at = 0; at < size; at++)
		bytes[at] = byte_at(at, seed);
	return container;
}

/* The piece has these bytes. */
static inline void check_piece(struct bywash_message message, size_t piece, size_t size, size_t seed)
{
	size_t length = 0, copied = 0;
	OK(bywash_piece_length(message, piece, &length));
	CHECK(length == size);
	uint8_t *copy = malloc(size + 1);
	CHECK(copy != NULL);
	OK(bywash_piece_copy_to(message, piece, copy, size + 1, &copied));
	CHECK(copied == size);
	for (size_t at = 0; at < size; at++)
		CHECK(copy[at] == byte_at(at, seed));
	free(copy);
}

#endif
