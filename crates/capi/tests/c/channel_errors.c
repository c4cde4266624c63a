/* What goes wrong with channels: dead handles, null pointers, numbers that cannot be, what is not taken. */
#include "channel.h"

#include <fcntl.h>
#include <unistd.h>

static struct bywash_channel_client client;
static struct bywash_channel_server server;

static void a_buffer_that_is_in_flight(void)
{
	uint8_t byte = 7, *bytes = NULL;
	size_t length = 0;
	struct bywash_request_contents contents;
	struct bywash_completion completion;
	struct bywash_submission submission = {.opcode = 1, .buffer = full_buffer(client, 100, 1)};
	struct bywash_buffer copy = submission.buffer;
	OK(bywash_channel_client_submit(client, &submission, NULL));
	for (int round = 0; round < 2; round++, copy.id = 0x123456789abcdef0) {
		struct bywash_submission again = {.opcode = 1, .buffer = copy};
		FAILS(bywash_channel_client_submit(client, &again, NULL), BYWASH_ERROR_HANDLE, "");
		CHECK(again.buffer.id == copy.id);
		FAILS(bywash_buffer_read(copy, 0, &byte, 1, &length), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_buffer_write(copy, 0, &byte, 1, &length), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_buffer_map(copy, &bytes, &length), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_buffer_length(copy, &length), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_buffer_capacity(copy, &length), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_buffer_resize(copy, 1), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_buffer_free(&copy), BYWASH_ERROR_HANDLE, "");
		CHECK(byte == 7 && bytes == NULL && length == 0 && copy.id != 0);
	}
	copy.id = 0;
	OK(bywash_buffer_free(&copy));
	struct bywash_request request = next_of(server, &contents);
	OK(bywash_request_complete(&request, 0, 0));
	OK(bywash_channel_client_reap(client, 10 * SECOND, &completion));
	check_buffer(&completion.buffer, 100, 1);
}

static void a_request_that_is_completed(void)
{
	uint8_t byte = 7, *bytes = NULL;
	size_t length = 0;
	struct bywash_request_contents contents;
	struct bywash_completion completion;
	submit_plain(client, 1);
	submit_plain(client, 2);
	struct bywash_request request = next_of(server, &contents), copy = request;
	OK(bywash_request_complete(&request, 3, 4));
	FAILS(bywash_request_complete(&request, 3, 4), BYWASH_ERROR_HANDLE, "zero");
	FAILS(bywash_request_complete(&copy, 3, 4), BYWASH_ERROR_HANDLE, "");
	/* The next one has its place, and not its handle. */
	struct bywash_request next = next_of(server, &contents);
	CHECK(next.id != copy.id && copy.id != 0);
	FAILS(bywash_request_complete(&copy, 5, 6), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_request_read(copy, 0, &byte, 1, &length), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_request_write(copy, 0, &byte, 1, &length), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_request_memory(copy, &bytes, &length), BYWASH_ERROR_HANDLE, "");
	CHECK(byte == 7 && bytes == NULL && length == 0);
	OK(bywash_request_complete(&next, 7, 8));
	OK(bywash_channel_client_reap(client, 10 * SECOND, &completion));
	CHECK(completion.status == 3 && completion.value == 4);
	OK(bywash_channel_client_reap(client, 10 * SECOND, &completion));
	CHECK(completion.status == 7 && completion.value == 8);
	/* Neither was completed twice. */
	FAILS(bywash_channel_client_reap(client, 0, &completion), BYWASH_ERROR_TIMED_OUT, "");
}

static void submissions_that_come_back(void)
{
	struct bywash_channel_client other = {0};
	struct bywash_channel_server other_server = {0};
	struct bywash_completion completion;
	struct bywash_request_contents contents;
	struct bywash_request request = {0};
	uint16_t tag = 99;
	/* Of another channel. */
	both_sides(0, &other, &other_server);
	struct bywash_submission submission = {
		.opcode = 9, .arguments = {1}, .buffer = full_buffer(other, 100, 2), .user_data = 5};
	struct bywash_buffer before = submission.buffer;
	FAILS(bywash_channel_client_submit(client, &submission, &tag), BYWASH_ERROR_UNFIT, "another channel");
	CHECK(submission.buffer.id != 0 && submission.buffer.id != before.id && tag == 99);
	CHECK(submission.opcode == 9 && submission.arguments[0] == 1 && submission.user_data == 5);
	FAILS(bywash_buffer_free(&before), BYWASH_ERROR_HANDLE, "");
	check_buffer(&submission.buffer, 100, 2);
	OK(bywash_channel_client_close(&other));
	OK(bywash_channel_server_close(&other_server));
	/* As many as it is deep. */
	for (int number = 0; number < 8; number++)
		submit_plain(client, 1);
	submission.buffer = full_buffer(client, 100, 3);
	FAILS(bywash_channel_client_submit(client, &submission, &tag), BYWASH_ERROR_NO_ROOM, "8 requests are in flight");
	check_buffer(&submission.buffer, 100, 3);
	for (int number = 0; number < 8; number++) {
		request = next_of(server, &contents);
		OK(bywash_request_complete(&request, 0, 0));
		OK(bywash_channel_client_reap(client, 10 * SECOND, &completion));
	}
	FAILS(bywash_channel_server_next(server, 0, &request, &contents), BYWASH_ERROR_TIMED_OUT, "");
}

static void null_pointers(void)
{
	const struct bywash_buffer no_buffer = {0};
	const struct bywash_request no_request = {0};
	const struct bywash_channel_client no_client = {0};
	const struct bywash_channel_server no_server = {0};
	struct bywash_request_contents contents;
	struct bywash_completion completion;
	struct bywash_submission submission = {.opcode = 1};
	FAILS(bywash_channel_client_options_new(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_client_options_free(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_server_options_new(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_server_options_free(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_client_connect("x", CLIENT_DEFAULTS, NULL), BYWASH_ERROR_ARGUMENT, "new client");
	FAILS(bywash_channel_client_connect(NULL, CLIENT_DEFAULTS, &(struct bywash_channel_client){0}), BYWASH_ERROR_ARGUMENT, "name");
	FAILS(bywash_channel_client_over(0, CLIENT_DEFAULTS, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_server_over(0, SERVER_DEFAULTS, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_server_accept((struct bywash_listener){0}, SERVER_DEFAULTS, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_server_accept((struct bywash_listener){0}, SERVER_DEFAULTS, &(struct bywash_channel_server){0}),
	      BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_accept_fd((struct bywash_listener){0}, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_accept_fd((struct bywash_listener){0}, &(int){0}), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_channel_client_close(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_server_close(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_buffer_alloc(client, 1, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_buffer_free(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_buffer_write(no_buffer, 0, NULL, 1, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_buffer_read(no_buffer, 0, NULL, 1, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_buffer_map(no_buffer, NULL, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_client_submit(client, NULL, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_client_submit(no_client, &submission, NULL), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_channel_client_reap(client, 0, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_client_reap(no_client, 0, &completion), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_channel_client_arm(client, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_client_fd(client, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_client_depth(client, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_client_in_flight(client, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_client_peer(client, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_client_stats(client, NULL, 8), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_client_dispatch(no_client, NULL, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_client_dispatch_stop(no_client), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_channel_server_next(server, 0, NULL, &contents), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_server_next(server, 0, &(struct bywash_request){0}, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_server_next(no_server, 0, &(struct bywash_request){0}, &contents), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_channel_server_arm(server, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_server_fd(server, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_server_peer(server, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_channel_server_stats(server, NULL, 8), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_request_complete(NULL, 0, 0), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_request_read(no_request, 0, NULL, 1, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_request_write(no_request, 0, NULL, 1, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_request_memory(no_request, NULL, NULL), BYWASH_ERROR_ARGUMENT, "null");
}

struct server_over {
	int fd, answer;
	struct bywash_channel_server_options options;
	struct bywash_channel_server made;
	const char *expected;
};

static void *tries_to_serve(void *argument)
{
	struct server_over *over = argument;
	over->answer = bywash_channel_server_over(over->fd, over->options, &over->made);
	CHECK(over->answer == BYWASH_OK || strstr(bywash_last_error_message(), over->expected) != NULL);
	return NULL;
}

static void numbers_that_cannot_be(void)
{
	struct bywash_channel_client_options asked = {0};
	struct bywash_channel_server_options allowed = {0};
	struct bywash_channel_client made = {0};
	struct bywash_channel_server served = {0};
	int fds[2];
	FAILS(bywash_channel_client_options_set_depth(asked, 8), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_channel_server_options_set_depth_max(allowed, 8), BYWASH_ERROR_HANDLE, "");
	OK(bywash_channel_client_options_new(&asked));
	OK(bywash_channel_server_options_new(&allowed));
	FAILS(bywash_channel_client_options_set_wait(asked, 3), BYWASH_ERROR_ARGUMENT, "wait 3");
	FAILS(bywash_channel_server_options_set_wait(allowed, -1), BYWASH_ERROR_ARGUMENT, "wait -1");
	FAILS(bywash_channel_client_options_set_huge_pages(asked, 3), BYWASH_ERROR_ARGUMENT, "huge pages");
	FAILS(bywash_channel_client_options_set_handshake_timeout(asked, -1), BYWASH_ERROR_OPTION, "negative");
	FAILS(bywash_channel_server_options_set_handshake_timeout(allowed, -1), BYWASH_ERROR_OPTION, "negative");
	OK(bywash_channel_client_options_set_depth(asked, 3));
	OK(bywash_channel_server_options_set_depth_max(allowed, 3));
	OK(bywash_socket_pair(fds));
	FAILS(bywash_channel_client_over(fds[0], asked, &made), BYWASH_ERROR_OPTION, "power of two");
	FAILS(bywash_channel_server_over(fds[1], allowed, &served), BYWASH_ERROR_OPTION, "power of two");
	CHECK(made.id == 0 && served.id == 0 && fcntl(fds[0], F_GETFD) < 0 && fcntl(fds[1], F_GETFD) < 0);
	FAILS(bywash_channel_client_over(-1, CLIENT_DEFAULTS, &made), BYWASH_ERROR_ARGUMENT, "not open");
	FAILS(bywash_channel_server_over(999, SERVER_DEFAULTS, &served), BYWASH_ERROR_ARGUMENT, "not open");
	OK(bywash_channel_client_options_set_depth(asked, 16));
	OK(bywash_channel_client_options_set_huge_pages(asked, BYWASH_HUGE_PAGES_RESERVED));
	OK(bywash_socket_pair(fds));
	FAILS(bywash_channel_client_over(fds[0], asked, &made), BYWASH_ERROR_OPTION, "huge pages");
	close(fds[1]);
	OK(bywash_channel_client_options_set_huge_pages(asked, BYWASH_HUGE_PAGES_NO));
	/* Nobody presents itself. */
	OK(bywash_channel_client_options_set_handshake_timeout(asked, 1000000));
	OK(bywash_channel_server_options_set_handshake_timeout(allowed, 1000000));
	OK(bywash_channel_server_options_set_depth_max(allowed, 8));
	OK(bywash_socket_pair(fds));
	FAILS(bywash_channel_client_over(fds[0], asked, &made), BYWASH_ERROR_TIMED_OUT, "");
	close(fds[1]);
	OK(bywash_socket_pair(fds));
	FAILS(bywash_channel_server_over(fds[0], allowed, &served), BYWASH_ERROR_TIMED_OUT, "");
	close(fds[1]);
	/* More than is allowed, of depth and of memory. */
	OK(bywash_channel_client_options_set_handshake_timeout(asked, 10 * SECOND));
	OK(bywash_channel_server_options_set_handshake_timeout(allowed, 10 * SECOND));
	for (int round = 0; round < 2; round++) {
		pthread_t thread;
		OK(bywash_socket_pair(fds));
		struct server_over over = {fds[1], 0, allowed, {0}, "asks for"};
		CHECK(pthread_create(&thread, NULL, tries_to_serve, &over) == 0);
		FAILS(bywash_channel_client_over(fds[0], asked, &made), BYWASH_ERROR_MISFIT, "server allows");
		CHECK(pthread_join(thread, NULL) == 0 && over.answer == BYWASH_ERROR_MISFIT && over.made.id == 0);
		OK(bywash_channel_client_options_set_depth(asked, 8));
		OK(bywash_channel_client_options_set_arena_bytes(asked, 1 << 20));
		OK(bywash_channel_server_options_set_arena_bytes_max(allowed, (1 << 20) - 1));
	}
	struct bywash_channel_client_options dead = asked;
	struct bywash_channel_server_options dead_too = allowed;
	OK(bywash_channel_client_options_free(&asked));
	OK(bywash_channel_client_options_free(&asked));
	OK(bywash_channel_server_options_free(&allowed));
	FAILS(bywash_channel_client_over(0, dead, &made), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_channel_server_over(0, dead_too, &served), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_channel_client_options_set_trusted(dead, 1), BYWASH_ERROR_HANDLE, "");
	CHECK(fcntl(0, F_GETFD) >= 0);
	FAILS(bywash_channel_client_connect("/nowhere/at/all", CLIENT_DEFAULTS, &made), BYWASH_ERROR_IO, "/nowhere/at/all");
	CHECK(bywash_last_error_number() == 2);
}

/* A client without an arena has no buffers; a path is no channel. */
static void what_is_not_there(void)
{
	struct bywash_channel_client_options options = small_client(0);
	struct bywash_channel_client made = {0};
	struct bywash_buffer buffer = {0};
	pthread_t thread;
	int fds[2];
	OK(bywash_channel_client_options_set_arena_bytes(options, 0));
	OK(bywash_socket_pair(fds));
	struct server_over over = {fds[1], 0, SERVER_DEFAULTS, {0}, NULL};
	CHECK(pthread_create(&thread, NULL, tries_to_serve, &over) == 0);
	OK(bywash_channel_client_over(fds[0], options, &made));
	CHECK(pthread_join(thread, NULL) == 0 && over.answer == BYWASH_OK);
	FAILS(bywash_buffer_alloc(made, 1, &buffer), BYWASH_ERROR_TOO_LARGE, "0 at most");
	OK(bywash_channel_client_close(&made));
	OK(bywash_channel_server_close(&over.made));
	OK(bywash_socket_pair(fds));
	over = (struct server_over){fds[1], 0, SERVER_DEFAULTS, {0}, "not an end of a bywash channel"};
	CHECK(pthread_create(&thread, NULL, tries_to_serve, &over) == 0);
	struct bywash_path path = {0};
	FAILS(bywash_path_over(fds[0], DEFAULTS, &path), BYWASH_ERROR_MISFIT, "not an end of a");
	CHECK(pthread_join(thread, NULL) == 0 && over.answer == BYWASH_ERROR_MISFIT);
	CHECK(path.id == 0 && over.made.id == 0);
	OK(bywash_channel_client_options_free(&options));
}

static void ends_that_are_closed(void)
{
	struct bywash_request_contents contents;
	struct bywash_completion completion;
	struct bywash_channel_client dead = client;
	struct bywash_channel_server dead_server = server;
	uint8_t *memory = NULL;
	int ready = -1;
	struct bywash_submission submission = {.opcode = 1, .buffer = full_buffer(client, 100, 4)};
	OK(bywash_channel_client_submit(client, &submission, NULL));
	submit_plain(client, 2);
	struct bywash_request held = next_of(server, &contents), done = next_of(server, &contents);
	OK(bywash_request_complete(&done, 2, 0));
	OK(bywash_channel_server_close(&server));
	FAILS(bywash_channel_server_next(dead_server, 0, &done, &contents), BYWASH_ERROR_HANDLE, "closed");
	FAILS(bywash_channel_server_arm(dead_server, &ready), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_channel_server_close(&dead_server), BYWASH_ERROR_HANDLE, "");
	/* What was taken keeps its memory, and is freed by being completed. */
	OK(bywash_request_memory(held, &memory, NULL));
	CHECK(memory[99] == byte_at(99, 4));
	FAILS(bywash_request_complete(&held, 0, 0), BYWASH_ERROR_CLOSED, "before it was completed");
	CHECK(held.id == 0);
	/* What was completed before arrives, and then the end. */
	OK(bywash_channel_client_reap(client, 10 * SECOND, &completion));
	CHECK(completion.status == 2 && completion.buffer.id == 0);
	FAILS(bywash_channel_client_reap(client, 10 * SECOND, &completion), BYWASH_ERROR_CLOSED, "closed");
	FAILS(bywash_channel_client_reap(client, 0, &completion), BYWASH_ERROR_CLOSED, "closed");
	OK(bywash_channel_client_close(&client));
	submission = (struct bywash_submission){.opcode = 1};
	FAILS(bywash_channel_client_submit(dead, &submission, NULL), BYWASH_ERROR_HANDLE, "closed");
	FAILS(bywash_channel_client_reap(dead, 0, &completion), BYWASH_ERROR_HANDLE, "closed");
	FAILS(bywash_buffer_alloc(dead, 1, &submission.buffer), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_channel_client_close(&dead), BYWASH_ERROR_HANDLE, "");
}

int main(void)
{
	both_sides(0, &client, &server);
	a_buffer_that_is_in_flight();
	a_request_that_is_completed();
	submissions_that_come_back();
	null_pointers();
	numbers_that_cannot_be();
	what_is_not_there();
	ends_that_are_closed();
	return 0;
}
