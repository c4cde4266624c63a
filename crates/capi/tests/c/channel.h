/* What the C tests of channels have in common: both ends in one process. */
#ifndef CHANNEL_H
#define CHANNEL_H

#include "check.h"

static const struct bywash_channel_client_options CLIENT_DEFAULTS = {0};
static const struct bywash_channel_server_options SERVER_DEFAULTS = {0};

/* A channel of depth 8 with an arena of 64 KiB and no huge pages. */
static inline struct bywash_channel_client_options small_client(int trusted)
{
	struct bywash_channel_client_options options = {0};
	OK(bywash_channel_client_options_new(&options));
	OK(bywash_channel_client_options_set_depth(options, 8));
	OK(bywash_channel_client_options_set_arena_bytes(options, 1 << 16));
	OK(bywash_channel_client_options_set_huge_pages(options, BYWASH_HUGE_PAGES_NO));
	OK(bywash_channel_client_options_set_trusted(options, trusted));
	return options;
}

struct server_end {
	int fd;
	struct bywash_channel_server server;
};

static inline void *make_server(void *argument)
{
	struct server_end *end = argument;
	OK(bywash_channel_server_over(end->fd, SERVER_DEFAULTS, &end->server));
	return NULL;
}

static inline void both_sides(int trusted, struct bywash_channel_client *client, struct bywash_channel_server *server)
{
	int fds[2];
	pthread_t thread;
	struct bywash_channel_client_options options = small_client(trusted);
	OK(bywash_socket_pair(fds));
	struct server_end other = {fds[1], {0}};
	CHECK(pthread_create(&thread, NULL, make_server, &other) == 0);
	OK(bywash_channel_client_over(fds[0], options, client));
	CHECK(pthread_join(thread, NULL) == 0);
	OK(bywash_channel_client_options_free(&options));
	*server = other.server;
}

/* A buffer of these bytes. */
static inline struct bywash_buffer full_buffer(struct bywash_channel_client client, size_t size, size_t seed)
{
	struct bywash_buffer buffer = {0};
	uint8_t bytes[8192];
	size_t copied = 0;
	CHECK(size <= sizeof bytes);
	for (size_t at = 0; at < size; at++)
		bytes[at] = byte_at(at, seed);
	OK(bywash_buffer_alloc(client, size, &buffer));
	OK(bywash_buffer_write(buffer, 0, bytes, size, &copied));
	CHECK(copied == size);
	return buffer;
}

/* The buffer has these bytes, and is freed. */
static inline void check_buffer(struct bywash_buffer *buffer, size_t size, size_t seed)
{
	uint8_t bytes[8192];
	size_t copied = 0;
	OK(bywash_buffer_read(*buffer, 0, bytes, sizeof bytes, &copied));
	CHECK(copied == size);
	for (size_t at = 0; at < size; at++)
		CHECK(bytes[at] == byte_at(at, seed));
	OK(bywash_buffer_free(buffer));
	CHECK(buffer->id == 0);
}

/* Submits a request of this opcode without anything else. */
static inline void submit_plain(struct bywash_channel_client client, uint8_t opcode)
{
	struct bywash_submission submission = {.opcode = opcode};
	OK(bywash_channel_client_submit(client, &submission, NULL));
}

/* The next request, which is there within ten seconds. */
static inline struct bywash_request next_of(struct bywash_channel_server server, struct bywash_request_contents *contents)
{
	struct bywash_request request = {0};
	OK(bywash_channel_server_next(server, 10 * SECOND, &request, contents));
	CHECK(request.id != 0);
	return request;
}

/* Answers each request with the sum of its bytes and its first argument, and adds 1 to each byte, until the
 * client submits no more. */
static inline void serve_sums(struct bywash_channel_server server)
{
	struct bywash_request request = {0};
	struct bywash_request_contents contents;
	int answer;
	while ((answer = bywash_channel_server_next(server, BYWASH_FOREVER, &request, &contents)) == BYWASH_OK) {
		uint8_t bytes[8192];
		size_t copied = 0;
		uint64_t sum = contents.arguments[0];
		OK(bywash_request_read(request, 0, bytes, sizeof bytes, &copied));
		CHECK(copied == contents.length);
		for (size_t at = 0; at < copied; at++)
			sum += bytes[at]++;
		OK(bywash_request_write(request, 0, bytes, copied, NULL));
		OK(bywash_request_complete(&request, contents.opcode, sum));
		CHECK(request.id == 0);
	}
	CHECK(answer == BYWASH_ERROR_CLOSED || answer == BYWASH_ERROR_HANDLE);
}

static inline void *serve_sums_in_a_thread(void *argument)
{
	serve_sums(*(struct bywash_channel_server *)argument);
	return NULL;
}

#endif
