/* Every operation of channels, both ends in one process. */
#include "channel.h"

#include <poll.h>
#include <unistd.h>

static void one_request_and_all_that_it_says(void)
{
	struct bywash_channel_client client = {0};
	struct bywash_channel_server server = {0};
	struct bywash_request_contents contents;
	struct bywash_completion completion;
	uint16_t tag = 99;
	uint8_t bytes[8] = {0}, *memory = NULL;
	size_t length = 0, copied = 0;
	uint32_t count = 99;
	both_sides(0, &client, &server);
	OK(bywash_channel_client_depth(client, &count));
	CHECK(count == 8);
	OK(bywash_channel_client_in_flight(client, &count));
	CHECK(count == 0);

	struct bywash_buffer buffer = full_buffer(client, 5000, 3), before = buffer;
	struct bywash_submission submission = {
		.opcode = 200, .flags = 100, .arguments = {1, 2, 3, 4, 5, UINT64_MAX}, .buffer = buffer,
		.user_data = (uintptr_t)&tag};
	OK(bywash_channel_client_submit(client, &submission, &tag));
	CHECK(submission.buffer.id == 0 && submission.opcode == 200 && tag < 8);
	OK(bywash_channel_client_in_flight(client, &count));
	CHECK(count == 1);

	struct bywash_request request = next_of(server, &contents);
	CHECK(contents.opcode == 200 && contents.flags == 100 && contents.length == 5000);
	CHECK(contents.arguments[0] == 1 && contents.arguments[4] == 5 && contents.arguments[5] == UINT64_MAX);
	/* What is read is from where it is asked for, and ends where the memory does. */
	OK(bywash_request_read(request, 4996, bytes, sizeof bytes, &copied));
	CHECK(copied == 4 && bytes[3] == byte_at(4999, 3));
	OK(bywash_request_read(request, 5000, bytes, sizeof bytes, &copied));
	CHECK(copied == 0);
	OK(bywash_request_memory(request, &memory, &length));
	CHECK(length == 5000 && memory[17] == byte_at(17, 3));
	memory[0] = 77;
	OK(bywash_request_write(request, 4999, (const uint8_t *)"xyz", 3, &copied));
	CHECK(copied == 1);
	OK(bywash_request_complete(&request, 65535, UINT64_MAX));
	CHECK(request.id == 0);

	OK(bywash_channel_client_reap(client, 10 * SECOND, &completion));
	CHECK(completion.tag == tag && completion.status == 65535 && completion.value == UINT64_MAX);
	CHECK(completion.user_data == (uintptr_t)&tag);
	CHECK(completion.buffer.id != 0 && completion.buffer.id != before.id);
	OK(bywash_buffer_length(completion.buffer, &length));
	OK(bywash_buffer_read(completion.buffer, 0, bytes, 1, &copied));
	CHECK(length == 5000 && copied == 1 && bytes[0] == 77);
	OK(bywash_buffer_read(completion.buffer, 4999, bytes, 8, &copied));
	CHECK(copied == 1 && bytes[0] == 'x');
	OK(bywash_channel_client_in_flight(client, &count));
	CHECK(count == 0);

	struct bywash_channel_stats stats;
	OK(bywash_channel_client_stats(client, &stats, sizeof stats));
	CHECK(stats.requests == 1 && stats.completions == 1 && stats.copied_bytes == 5002);
	/* A program that knows fewer counters gets these, and one that knows more gets zeros. */
	struct {
		struct bywash_channel_stats known;
		uint64_t newer;
	} later = {.newer = 4711};
	stats.completions = 4711;
	OK(bywash_channel_server_stats(server, &stats, sizeof stats.requests));
	CHECK(stats.requests == 1 && stats.completions == 4711);
	OK(bywash_channel_server_stats(server, &later.known, sizeof later));
	CHECK(later.known.completions == 1 && later.known.copied_bytes == 5 && later.newer == 0);

	/* Without memory. */
	submit_plain(client, 9);
	request = next_of(server, &contents);
	memory = bytes;
	OK(bywash_request_memory(request, &memory, &length));
	CHECK(contents.length == 0 && length == 0 && memory == NULL);
	OK(bywash_request_complete(&request, 0, 0));
	struct bywash_buffer back = completion.buffer;
	OK(bywash_channel_client_reap(client, 10 * SECOND, &completion));
	CHECK(completion.buffer.id == 0 && completion.user_data == 0 && completion.status == 0);

	struct bywash_credentials peer = {0, 0, 0};
	OK(bywash_channel_client_peer(client, &peer));
	CHECK(peer.pid == (uint32_t)getpid() && peer.uid == geteuid() && peer.gid == getegid());
	OK(bywash_channel_server_peer(server, &peer));
	CHECK(peer.pid == (uint32_t)getpid());

	/* A buffer outlives its channel. */
	OK(bywash_channel_client_close(&client));
	OK(bywash_channel_client_close(&client));
	CHECK(client.id == 0);
	FAILS(bywash_channel_server_next(server, BYWASH_FOREVER, &request, &contents), BYWASH_ERROR_CLOSED, "closed");
	OK(bywash_channel_server_close(&server));
	OK(bywash_buffer_read(back, 4999, bytes, 8, &copied));
	CHECK(copied == 1 && bytes[0] == 'x');
	OK(bywash_buffer_free(&back));
}

static void as_many_as_it_is_deep(void)
{
	struct bywash_channel_client client = {0};
	struct bywash_channel_server server = {0};
	struct bywash_completion completion;
	pthread_t thread;
	both_sides(0, &client, &server);
	CHECK(pthread_create(&thread, NULL, serve_sums_in_a_thread, &server) == 0);
	size_t submitted = 0, reaped = 0;
	uint64_t in_flight = 0;
	while (reaped < 2000) {
		while (submitted < 2000 && submitted - reaped < 8) {
			size_t size = 1 + submitted % 300;
			struct bywash_submission submission = {
				.opcode = (uint8_t)submitted, .arguments = {submitted},
				.buffer = full_buffer(client, size, submitted), .user_data = submitted};
			uint16_t tag = 99;
			OK(bywash_channel_client_submit(client, &submission, &tag));
			CHECK(tag < 8 && !(in_flight >> tag & 1));
			in_flight |= 1ull << tag;
			submitted++;
		}
		OK(bywash_channel_client_reap(client, 60 * SECOND, &completion));
		CHECK(in_flight >> completion.tag & 1);
		in_flight &= ~(1ull << completion.tag);
		uint64_t number = completion.user_data, sum = number;
		size_t size = 1 + number % 300;
		uint8_t bytes[300];
		OK(bywash_buffer_read(completion.buffer, 0, bytes, sizeof bytes, NULL));
		for (size_t at = 0; at < size; at++) {
			CHECK(bytes[at] == (uint8_t)(byte_at(at, number) + 1));
			sum += byte_at(at, number);
		}
		CHECK(completion.value == sum && completion.status == (uint8_t)number);
		OK(bywash_buffer_free(&completion.buffer));
		reaped++;
	}
	OK(bywash_channel_client_close(&client));
	CHECK(pthread_join(thread, NULL) == 0);
	OK(bywash_channel_server_close(&server));
}

static void buffers(void)
{
	struct bywash_channel_client client = {0};
	struct bywash_channel_server server = {0};
	struct bywash_buffer all = {0}, other = {0};
	size_t length = 0, copied = 0;
	uint8_t bytes[4] = {1, 2, 3, 4}, *at = bytes;
	both_sides(0, &client, &server);
	FAILS(bywash_buffer_alloc(client, (1 << 16) + 1, &all), BYWASH_ERROR_TOO_LARGE, "65536 at most");
	OK(bywash_buffer_alloc(client, 1 << 16, &all));
	FAILS(bywash_buffer_alloc(client, 1, &other), BYWASH_ERROR_NO_ROOM, "this program holds 65536 in 1 buffers");
	CHECK(other.id == 0);
	OK(bywash_buffer_capacity(all, &length));
	CHECK(length == 1 << 16);
	FAILS(bywash_buffer_resize(all, (1 << 16) + 1), BYWASH_ERROR_TOO_LARGE, "do not fit");
	OK(bywash_buffer_resize(all, 10));
	OK(bywash_buffer_length(all, &length));
	CHECK(length == 10);
	OK(bywash_buffer_write(all, 8, bytes, 4, &copied));
	CHECK(copied == 2);
	OK(bywash_buffer_write(all, 11, bytes, 4, &copied));
	CHECK(copied == 0);
	OK(bywash_buffer_write(all, SIZE_MAX, bytes, 4, &copied));
	CHECK(copied == 0);
	OK(bywash_buffer_read(all, 9, bytes, 4, &copied));
	CHECK(copied == 1 && bytes[0] == 2 && bytes[1] == 2);
	FAILS(bywash_buffer_map(all, &at, &length), BYWASH_ERROR_NOT_MAPPED, "copy them");
	CHECK(at == NULL && length == 0);
	/* It is the server's meanwhile, and its room is not there for others. */
	struct bywash_submission submission = {.opcode = 1, .buffer = all};
	OK(bywash_channel_client_submit(client, &submission, NULL));
	FAILS(bywash_buffer_alloc(client, 1, &other), BYWASH_ERROR_NO_ROOM, "65536 in 1 wait for the server");
	struct bywash_request_contents contents;
	struct bywash_request request = next_of(server, &contents);
	CHECK(contents.length == 10);
	FAILS(bywash_buffer_alloc(client, 1, &other), BYWASH_ERROR_NO_ROOM, "the server has 65536 in 1");
	OK(bywash_request_complete(&request, 0, 0));
	FAILS(bywash_buffer_alloc(client, 1, &other), BYWASH_ERROR_NO_ROOM, "65536 in 1 are done and wait to be reaped");
	struct bywash_completion completion;
	OK(bywash_channel_client_reap(client, 10 * SECOND, &completion));
	OK(bywash_buffer_free(&completion.buffer));
	OK(bywash_buffer_alloc(client, 1 << 16, &other));
	OK(bywash_buffer_free(&other));
	OK(bywash_channel_client_close(&client));
	OK(bywash_channel_server_close(&server));

	/* Of a server that is trusted they can be looked at. */
	both_sides(1, &client, &server);
	OK(bywash_buffer_alloc(client, 5, &all));
	OK(bywash_buffer_map(all, &at, &length));
	CHECK(length == 5);
	memcpy(at, "hello", 5);
	submission = (struct bywash_submission){.opcode = 1, .buffer = all};
	OK(bywash_channel_client_submit(client, &submission, NULL));
	request = next_of(server, &contents);
	OK(bywash_request_write(request, 1, (const uint8_t *)"a", 1, NULL));
	OK(bywash_request_complete(&request, 0, 0));
	OK(bywash_channel_client_reap(client, 10 * SECOND, &completion));
	uint8_t *same = NULL;
	OK(bywash_buffer_map(completion.buffer, &same, NULL));
	CHECK(same == at && memcmp(same, "hallo", 5) == 0);
	OK(bywash_buffer_free(&completion.buffer));
	OK(bywash_channel_client_close(&client));
	OK(bywash_channel_server_close(&server));
}

static void an_event_loop(void)
{
	struct bywash_channel_client client = {0};
	struct bywash_channel_server server = {0};
	struct bywash_request request = {0};
	struct bywash_request_contents contents;
	struct bywash_completion completion;
	int ready = -1;
	both_sides(0, &client, &server);
	struct pollfd asks = {.events = POLLIN}, answers = {.events = POLLIN};
	OK(bywash_channel_client_fd(client, &asks.fd));
	OK(bywash_channel_server_fd(server, &answers.fd));
	for (int round = 0; round < 3; round++) {
		FAILS(bywash_channel_client_reap(client, 0, &completion), BYWASH_ERROR_TIMED_OUT, "not at once");
		FAILS(bywash_channel_server_next(server, 1000000, &request, &contents), BYWASH_ERROR_TIMED_OUT, "before the timeout");
		OK(bywash_channel_client_arm(client, &ready));
		CHECK(ready == 0 && poll(&asks, 1, 0) == 0);
		OK(bywash_channel_server_arm(server, &ready));
		CHECK(ready == 0 && poll(&answers, 1, 0) == 0);
		submit_plain(client, 1);
		CHECK(poll(&answers, 1, 5000) == 1);
		OK(bywash_channel_server_arm(server, &ready));
		CHECK(ready == 1);
		OK(bywash_channel_server_next(server, 0, &request, &contents));
		OK(bywash_request_complete(&request, 0, 0));
		CHECK(poll(&asks, 1, 5000) == 1);
		OK(bywash_channel_client_arm(client, &ready));
		CHECK(ready == 1);
		OK(bywash_channel_client_reap(client, 0, &completion));
	}
	OK(bywash_channel_client_arm(client, &ready));
	CHECK(ready == 0);
	OK(bywash_channel_server_close(&server));
	CHECK(poll(&asks, 1, 5000) == 1);
	OK(bywash_channel_client_arm(client, &ready));
	CHECK(ready == 1);
	FAILS(bywash_channel_client_reap(client, 0, &completion), BYWASH_ERROR_CLOSED, "closed");
	OK(bywash_channel_client_close(&client));
}

int main(void)
{
	one_request_and_all_that_it_says();
	as_many_as_it_is_deep();
	buffers();
	an_event_loop();
	return 0;
}
