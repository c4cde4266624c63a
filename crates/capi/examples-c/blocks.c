/* A server keeps a small block device in memory, and a client writes and reads it with many requests under way:
 * how many requests a second are that, and is what was read what was written?
 *
 *   cc blocks.c -o blocks $(pkg-config --cflags --libs bywash) && ./blocks [requests]
 */
#include "example.h"

#include <string.h>

enum { BLOCK = 4096, BLOCKS = 1024, DEPTH = 64 };

/* What this service understands; the library knows of none of it. */
enum { READ = 1, WRITE = 2 };
enum { DONE = 0, NO_SUCH_BLOCK = 1, NO_SUCH_REQUEST = 2, NOT_A_BLOCK = 3 };

/* ---- the server ---- */

/* Nothing that a client says is believed before it was looked at. */
static uint16_t serve(uint8_t (*device)[BLOCK], struct bywash_request request,
		      const struct bywash_request_contents *asked)
{
	uint64_t block = asked->arguments[0];
	if (block >= BLOCKS)
		return NO_SUCH_BLOCK;
	if (asked->length != BLOCK)
		return NOT_A_BLOCK;
	switch (asked->opcode) {
	case READ:
		must(bywash_request_write(request, 0, device[block], BLOCK, NULL));
		return DONE;
	case WRITE:
		must(bywash_request_read(request, 0, device[block], BLOCK, NULL));
		return DONE;
	default:
		return NO_SUCH_REQUEST;
	}
}

static void server(int fd)
{
	uint8_t (*device)[BLOCK] = calloc(BLOCKS, BLOCK);
	struct bywash_channel_server_options options = {0};
	struct bywash_channel_server server = {0};
	struct bywash_request request = {0};
	struct bywash_request_contents asked;
	int answer;
	if (device == NULL)
		exit(1);
	must(bywash_channel_server_options_new(&options));
	must(bywash_channel_server_options_set_depth_max(options, DEPTH));
	must(bywash_channel_server_options_set_arena_bytes_max(options, 4 << 20));
	must(bywash_channel_server_over(fd, options, &server));
	must(bywash_channel_server_options_free(&options));
	while ((answer = bywash_channel_server_next(server, BYWASH_FOREVER, &request, &asked)) == BYWASH_OK)
		must(bywash_request_complete(&request, serve(device, request, &asked), asked.length));
	/* The client has submitted everything. */
	if (answer != BYWASH_ERROR_CLOSED)
		must(answer);
	must(bywash_channel_server_close(&server));
	free(device);
}

/* ---- the client ---- */

struct stream {
	struct bywash_channel_client client;
	/* As many buffers as can be under way: those that are not. */
	struct bywash_buffer idle[DEPTH];
	int idle_count;
	/* How often each block was written, and whether a request for it is under way: a server may complete requests
	 * in any order, so that two for one block would race. */
	uint32_t version[BLOCKS];
	uint8_t in_use[BLOCKS];
	long completed;
};

/* What is in a block: zeros, until it was written. */
static void fill(uint64_t words[BLOCK / 8], uint64_t block, uint32_t version)
{
	for (int at = 0; at < BLOCK / 8; at++)
		words[at] = version == 0 ? 0 : block << 32 | version;
}

static void submit(struct stream *stream, int opcode, uint64_t block)
{
	struct bywash_submission submission = {.opcode = (uint8_t)opcode, .arguments = {block}};
	/* What the completion is to be known by: the request's kind and its block. */
	submission.user_data = block << 8 | (uint64_t)opcode;
	submission.buffer = stream->idle[--stream->idle_count];
	if (opcode == WRITE) {
		uint64_t words[BLOCK / 8];
		fill(words, block, ++stream->version[block]);
		must(bywash_buffer_write(submission.buffer, 0, (const uint8_t *)words, BLOCK, NULL));
	}
	stream->in_use[block] = 1;
	must(bywash_channel_client_submit(stream->client, &submission, NULL));
}

static void reap(struct stream *stream)
{
	struct bywash_completion completion;
	must(bywash_channel_client_reap(stream->client, BYWASH_FOREVER, &completion));
	uint64_t block = completion.user_data >> 8;
	if (completion.status != DONE || completion.value != BLOCK) {
		fprintf(stderr, "block %llu: status %d\n", (unsigned long long)block, completion.status);
		exit(1);
	}
	if ((completion.user_data & 255) == READ) {
		uint64_t words[BLOCK / 8], expected[BLOCK / 8];
		fill(expected, block, stream->version[block]);
		must(bywash_buffer_read(completion.buffer, 0, (uint8_t *)words, BLOCK, NULL));
		if (memcmp(words, expected, BLOCK) != 0) {
			fprintf(stderr, "block %llu is not what was written\n", (unsigned long long)block);
			exit(1);
		}
	}
	stream->in_use[block] = 0;
	stream->idle[stream->idle_count++] = completion.buffer;
	stream->completed++;
}

/* Writes or reads blocks here and there, with as many requests under way as there can be. */
static void client(int fd, long requests)
{
	struct bywash_channel_client_options options = {0};
	struct stream stream = {{0}, {{0}}, 0, {0}, {0}, 0};
	must(bywash_channel_client_options_new(&options));
	must(bywash_channel_client_options_set_depth(options, DEPTH));
	must(bywash_channel_client_options_set_arena_bytes(options, 4 << 20));
	must(bywash_channel_client_over(fd, options, &stream.client));
	must(bywash_channel_client_options_free(&options));
	for (; stream.idle_count < DEPTH; stream.idle_count++)
		must(bywash_buffer_alloc(stream.client, BLOCK, &stream.idle[stream.idle_count]));
	uint64_t random = 1;
	double start = seconds();
	for (long number = 0; number < requests; number++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		uint64_t block = (random >> 33) % BLOCKS;
		while (stream.idle_count == 0 || stream.in_use[block])
			reap(&stream);
		submit(&stream, random >> 63 ? WRITE : READ, block);
	}
	while (stream.completed < requests)
		reap(&stream);
	printf("%ld requests, %.0f a second\n", requests, (double)requests / (seconds() - start));
	while (stream.idle_count > 0)
		must(bywash_buffer_free(&stream.idle[--stream.idle_count]));
	must(bywash_channel_client_close(&stream.client));
}

int main(int count, char **arguments)
{
	long requests = count > 1 ? atol(arguments[1]) : 1000000;
	int fds[2];
	must(bywash_socket_pair(fds));
	/* Fork first: each process makes its own end. */
	pid_t child = fork();
	if (child == 0) {
		close(fds[0]);
		server(fds[1]);
		return 0;
	}
	close(fds[1]);
	client(fds[0], requests);
	return ended_well(child) ? 0 : 1;
}
