/* Several threads: the halves of an end, workers, who is told that an end is in use, what a close ends, callbacks. */
#include "channel.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

/* One thread submits and another one reaps. */
struct reaper {
	struct bywash_channel_client client;
	uint64_t sum;
	int answer;
};

static void *reaps(void *argument)
{
	struct reaper *reaper = argument;
	struct bywash_completion completion;
	for (int number = 0; number < 3000; number++) {
		reaper->answer = bywash_channel_client_reap(reaper->client, BYWASH_FOREVER, &completion);
		if (reaper->answer != BYWASH_OK)
			break;
		CHECK(completion.user_data == completion.value);
		reaper->sum += completion.value;
		OK(bywash_buffer_free(&completion.buffer));
	}
	return NULL;
}

static void two_threads(void)
{
	struct bywash_channel_client client = {0};
	struct bywash_channel_server server = {0};
	pthread_t service, thread;
	both_sides(0, &client, &server);
	struct reaper reaper = {client, 0, BYWASH_OK};
	CHECK(pthread_create(&service, NULL, serve_sums_in_a_thread, &server) == 0);
	CHECK(pthread_create(&thread, NULL, reaps, &reaper) == 0);
	for (uint64_t number = 0; number < 3000; number++) {
		struct bywash_submission submission = {.opcode = 1, .arguments = {number}, .user_data = number};
		int answer;
		if (number % 2 == 0) {
			OK(bywash_buffer_alloc(client, 8, &submission.buffer));
			OK(bywash_buffer_write(submission.buffer, 0, (const uint8_t[8]){0}, 8, NULL));
		}
		while ((answer = bywash_channel_client_submit(client, &submission, NULL)) == BYWASH_ERROR_NO_ROOM) {
			CHECK((submission.buffer.id != 0) == (number % 2 == 0));
			usleep(10);
		}
		CHECK(answer == BYWASH_OK);
	}
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(reaper.answer == BYWASH_OK && reaper.sum == 2999ull * 3000 / 2);
	OK(bywash_channel_client_close(&client));
	CHECK(pthread_join(service, NULL) == 0);
	OK(bywash_channel_server_close(&server));
}

/* Three threads complete what one takes, and look at its memory without waiting for each other. */
struct workers {
	pthread_mutex_t lock;
	struct bywash_request requests[8];
	int count, over;
};

static void *works(void *argument)
{
	struct workers *workers = argument;
	for (int over = 0; !over;) {
		struct bywash_request request = {0};
		CHECK(pthread_mutex_lock(&workers->lock) == 0);
		if (workers->count > 0)
			request = workers->requests[--workers->count];
		over = workers->over && request.id == 0;
		CHECK(pthread_mutex_unlock(&workers->lock) == 0);
		if (request.id == 0) {
			usleep(10);
			continue;
		}
		uint8_t bytes[8192];
		size_t copied = 0;
		OK(bywash_request_read(request, 0, bytes, sizeof bytes, &copied));
		OK(bywash_request_write(request, 0, bytes, copied, NULL));
		OK(bywash_request_complete(&request, 0, bytes[copied - 1]));
	}
	return NULL;
}

struct taker {
	struct bywash_channel_server server;
	struct workers *workers;
};

static void *takes(void *argument)
{
	struct taker *taker = argument;
	struct bywash_request_contents contents;
	struct bywash_request request = {0};
	int over = 0;
	while (!over) {
		over = bywash_channel_server_next(taker->server, BYWASH_FOREVER, &request, &contents) != BYWASH_OK;
		CHECK(pthread_mutex_lock(&taker->workers->lock) == 0);
		if (over)
			taker->workers->over = 1;
		else
			taker->workers->requests[taker->workers->count++] = request;
		CHECK(pthread_mutex_unlock(&taker->workers->lock) == 0);
	}
	return NULL;
}

static void several_workers(void)
{
	struct bywash_channel_client client = {0};
	struct bywash_channel_server server = {0};
	struct bywash_completion completion;
	pthread_t threads[4];
	both_sides(0, &client, &server);
	struct workers workers = {PTHREAD_MUTEX_INITIALIZER, {{0}}, 0, 0};
	struct taker taker = {server, &workers};
	CHECK(pthread_create(&threads[3], NULL, takes, &taker) == 0);
	for (int number = 0; number < 3; number++)
		CHECK(pthread_create(&threads[number], NULL, works, &workers) == 0);
	for (size_t number = 0; number < 1000 + 8; number++) {
		if (number >= 8) {
			OK(bywash_channel_client_reap(client, 60 * SECOND, &completion));
			CHECK(completion.value == byte_at(5999, completion.user_data));
			check_buffer(&completion.buffer, 6000, completion.user_data);
		}
		if (number < 1000) {
			struct bywash_submission submission = {
				.opcode = 1, .buffer = full_buffer(client, 6000, number), .user_data = number};
			OK(bywash_channel_client_submit(client, &submission, NULL));
		}
	}
	OK(bywash_channel_client_close(&client));
	for (int number = 0; number < 4; number++)
		CHECK(pthread_join(threads[number], NULL) == 0);
	OK(bywash_channel_server_close(&server));
}

/* Waits in a call, until the end is closed by another thread, which may just be looking when this one begins. */
struct waiter {
	struct bywash_channel_client client;
	struct bywash_channel_server server;
	int answer;
	atomic_int over;
};

static void *waits_for_a_completion(void *argument)
{
	struct waiter *waiter = argument;
	struct bywash_completion completion;
	do
		waiter->answer = bywash_channel_client_reap(waiter->client, BYWASH_FOREVER, &completion);
	while (waiter->answer == BYWASH_ERROR_BUSY);
	atomic_store(&waiter->over, 1);
	return NULL;
}

static void *waits_for_a_request(void *argument)
{
	struct waiter *waiter = argument;
	struct bywash_request request = {0};
	struct bywash_request_contents contents;
	do
		waiter->answer = bywash_channel_server_next(waiter->server, 60 * SECOND, &request, &contents);
	while (waiter->answer == BYWASH_ERROR_BUSY);
	atomic_store(&waiter->over, 1);
	return NULL;
}

static void one_waits_and_others_do_the_rest(void)
{
	struct bywash_channel_client client = {0};
	struct bywash_channel_server server = {0};
	struct bywash_completion completion;
	struct bywash_request request = {0};
	struct bywash_request_contents contents;
	struct bywash_channel_stats stats;
	pthread_t threads[2];
	int ready = -1, answer;
	uint32_t count = 9;
	both_sides(0, &client, &server);
	struct waiter one = {.client = client}, two = {.server = server};
	CHECK(pthread_create(&threads[0], NULL, waits_for_a_completion, &one) == 0);
	CHECK(pthread_create(&threads[1], NULL, waits_for_a_request, &two) == 0);
	while ((answer = bywash_channel_client_reap(client, 0, &completion)) == BYWASH_ERROR_TIMED_OUT)
		usleep(100);
	CHECK(answer == BYWASH_ERROR_BUSY);
	FAILS(bywash_channel_client_reap(client, 0, &completion), BYWASH_ERROR_BUSY, "another thread");
	FAILS(bywash_channel_client_reap(client, BYWASH_FOREVER, &completion), BYWASH_ERROR_BUSY, "another thread");
	FAILS(bywash_channel_client_arm(client, &ready), BYWASH_ERROR_BUSY, "another thread");
	while ((answer = bywash_channel_server_next(server, 0, &request, &contents)) == BYWASH_ERROR_TIMED_OUT)
		usleep(100);
	CHECK(answer == BYWASH_ERROR_BUSY);
	FAILS(bywash_channel_server_next(server, 0, &request, &contents), BYWASH_ERROR_BUSY, "another thread");
	FAILS(bywash_channel_server_arm(server, &ready), BYWASH_ERROR_BUSY, "another thread");
	CHECK(ready == -1 && request.id == 0);
	/* What does not wait goes on meanwhile. */
	struct bywash_buffer buffer = full_buffer(client, 10, 1);
	OK(bywash_channel_client_stats(client, &stats, sizeof stats));
	OK(bywash_channel_server_stats(server, &stats, sizeof stats));
	OK(bywash_channel_client_in_flight(client, &count));
	CHECK(count == 0);
	OK(bywash_buffer_free(&buffer));
	/* A close ends the waits. */
	CHECK(!atomic_load(&one.over) && !atomic_load(&two.over));
	OK(bywash_channel_server_close(&server));
	CHECK(pthread_join(threads[1], NULL) == 0 && two.answer == BYWASH_ERROR_HANDLE);
	CHECK(pthread_join(threads[0], NULL) == 0 && one.answer == BYWASH_ERROR_CLOSED);
	OK(bywash_channel_client_close(&client));

	both_sides(0, &client, &server);
	one = (struct waiter){.client = client};
	CHECK(pthread_create(&threads[0], NULL, waits_for_a_completion, &one) == 0);
	while (bywash_channel_client_reap(client, 0, &completion) != BYWASH_ERROR_BUSY)
		usleep(100);
	OK(bywash_channel_client_close(&client));
	CHECK(pthread_join(threads[0], NULL) == 0 && one.answer == BYWASH_ERROR_HANDLE);
	FAILS(bywash_channel_server_next(server, BYWASH_FOREVER, &request, &contents), BYWASH_ERROR_CLOSED, "");
	OK(bywash_channel_server_close(&server));
}

/* A buffer is one thread's at a time. */
static atomic_int enough;

static void *writes(void *argument)
{
	const size_t size = 8 << 20;
	uint8_t *bytes = calloc(1, size);
	CHECK(bytes != NULL);
	while (!atomic_load(&enough)) {
		int answer = bywash_buffer_write(*(struct bywash_buffer *)argument, 0, bytes, size, NULL);
		CHECK(answer == BYWASH_OK || answer == BYWASH_ERROR_BUSY);
		usleep(10);
	}
	free(bytes);
	return NULL;
}

static void *finds_its_buffer_in_use(void *argument)
{
	struct bywash_channel_client client = {0};
	OK(bywash_channel_client_over(*(int *)argument, CLIENT_DEFAULTS, &client));
	struct bywash_buffer buffer = {0};
	OK(bywash_buffer_alloc(client, 8 << 20, &buffer));
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, writes, &buffer) == 0);
	int answer = BYWASH_OK;
	size_t length = 0;
	for (time_t end = time(NULL) + 60; time(NULL) < end && answer == BYWASH_OK;)
		answer = bywash_buffer_length(buffer, &length);
	CHECK(answer == BYWASH_ERROR_BUSY);
	CHECK(strstr(bywash_last_error_message(), "one thread at a time") != NULL);
	atomic_store(&enough, 1);
	CHECK(pthread_join(thread, NULL) == 0);
	OK(bywash_buffer_free(&buffer));
	OK(bywash_channel_client_close(&client));
	return NULL;
}

static void a_buffer_of_two_threads(void)
{
	int fds[2];
	pthread_t thread;
	struct bywash_channel_server server = {0};
	OK(bywash_socket_pair(fds));
	CHECK(pthread_create(&thread, NULL, finds_its_buffer_in_use, &fds[0]) == 0);
	OK(bywash_channel_server_over(fds[1], SERVER_DEFAULTS, &server));
	CHECK(pthread_join(thread, NULL) == 0);
	OK(bywash_channel_server_close(&server));
}

/* Callbacks: each submits its buffer again until all rounds are done. */
struct rounds {
	struct bywash_channel_client client;
	atomic_int done, errors;
	int limit, last_error, stop_answer, close_at;
};

static void called(void *context, int error, const struct bywash_completion *completion)
{
	struct rounds *rounds = context;
	if (error != BYWASH_OK) {
		CHECK(completion == NULL && bywash_last_error_message()[0] != 0);
		rounds->last_error = error;
		atomic_fetch_add(&rounds->errors, 1);
		return;
	}
	int round = atomic_load(&rounds->done) + 1;
	CHECK(completion->user_data == (uintptr_t)context && completion->status == 0);
	rounds->stop_answer = bywash_channel_client_dispatch_stop(rounds->client);
	struct bywash_buffer buffer = completion->buffer;
	if (round < rounds->limit) {
		struct bywash_submission again = {.buffer = buffer, .user_data = (uintptr_t)context};
		OK(bywash_channel_client_submit(rounds->client, &again, NULL));
	} else {
		uint8_t byte = 0;
		OK(bywash_buffer_read(buffer, 0, &byte, 1, NULL));
		CHECK(byte == (uint8_t)round);
		OK(bywash_buffer_free(&buffer));
	}
	if (round == rounds->close_at)
		OK(bywash_channel_client_close(&rounds->client));
	atomic_store(&rounds->done, round);
}

static void begin(struct rounds *rounds)
{
	struct bywash_submission submission = {.user_data = (uintptr_t)rounds};
	OK(bywash_buffer_alloc(rounds->client, 1, &submission.buffer));
	OK(bywash_buffer_write(submission.buffer, 0, (const uint8_t *)"", 1, NULL));
	OK(bywash_channel_client_submit(rounds->client, &submission, NULL));
}

static void await(atomic_int *number, int value)
{
	for (int waited = 0; atomic_load(number) < value; waited++) {
		CHECK(waited < 60000);
		usleep(1000);
	}
}

static void callbacks(void)
{
	struct bywash_channel_client client = {0};
	struct bywash_channel_server server = {0};
	struct bywash_completion completion;
	pthread_t service;
	int ready = -1;
	both_sides(0, &client, &server);
	CHECK(pthread_create(&service, NULL, serve_sums_in_a_thread, &server) == 0);
	struct rounds rounds = {.client = client, .limit = 300};
	FAILS(bywash_channel_client_dispatch(client, NULL, NULL), BYWASH_ERROR_ARGUMENT, "null");
	OK(bywash_channel_client_dispatch_stop(client));
	OK(bywash_channel_client_dispatch(client, called, &rounds));
	FAILS(bywash_channel_client_dispatch(client, called, &rounds), BYWASH_ERROR_BUSY, "has a callback");
	FAILS(bywash_channel_client_reap(client, 0, &completion), BYWASH_ERROR_BUSY, "callbacks reap");
	FAILS(bywash_channel_client_arm(client, &ready), BYWASH_ERROR_BUSY, "callbacks reap");
	begin(&rounds);
	await(&rounds.done, 300);
	/* From within it cannot wait for itself. */
	CHECK(rounds.stop_answer == BYWASH_ERROR_BUSY);
	OK(bywash_channel_client_dispatch_stop(client));
	OK(bywash_channel_client_dispatch_stop(client));
	/* Nothing is called any more. */
	begin(&rounds);
	OK(bywash_channel_client_reap(client, 10 * SECOND, &completion));
	CHECK(completion.user_data == (uintptr_t)&rounds);
	OK(bywash_buffer_free(&completion.buffer));
	CHECK(atomic_load(&rounds.done) == 300 && atomic_load(&rounds.errors) == 0);
	/* Again, and the server ends: that is said once. */
	rounds.limit = 301;
	OK(bywash_channel_client_dispatch(client, called, &rounds));
	struct bywash_channel_server copy = server;
	OK(bywash_channel_server_close(&copy));
	CHECK(pthread_join(service, NULL) == 0);
	await(&rounds.errors, 1);
	usleep(1000);
	CHECK(atomic_load(&rounds.errors) == 1 && rounds.last_error == BYWASH_ERROR_CLOSED);
	OK(bywash_channel_client_close(&client));

	/* A close stops them, and one from within a callback does as well. */
	for (int round = 0; round < 2; round++) {
		both_sides(0, &client, &server);
		CHECK(pthread_create(&service, NULL, serve_sums_in_a_thread, &server) == 0);
		rounds = (struct rounds){.client = client, .limit = 5, .close_at = round * 5};
		OK(bywash_channel_client_dispatch(client, called, &rounds));
		begin(&rounds);
		await(&rounds.done, 5);
		if (round == 0)
			OK(bywash_channel_client_close(&client));
		else
			FAILS(bywash_channel_client_close(&client), BYWASH_ERROR_HANDLE, "closed");
		CHECK(pthread_join(service, NULL) == 0);
		OK(bywash_channel_server_close(&server));
	}
	/* The thread that closed its own client ends by itself. */
	usleep(300000);
}

int main(void)
{
	two_threads();
	several_workers();
	one_waits_and_others_do_the_rest();
	a_buffer_of_two_threads();
	callbacks();
	return 0;
}
