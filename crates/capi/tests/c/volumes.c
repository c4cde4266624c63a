/* Volumes of a device server: calls that wait, queues, buffers, callbacks, what is asked and refused. The server's socket is
 * the first argument, a file of 8192 sevens the second one. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <time.h>

enum { BLOCK = 4096, MANY = 64 };

static struct bywash_client connect_to(const char *socket, int choice)
{
	struct bywash_client client = {0};
	struct bywash_client_options options = {0};
	OK(bywash_client_options_new(&options));
	OK(bywash_client_options_set_name(options, "volumes.c"));
	OK(bywash_client_options_set_limit(options, 30 * (uint64_t)SECOND));
	OK(bywash_client_options_set_depth(options, 32));
	OK(bywash_client_options_set_arena_bytes(options, 1 << 20));
	OK(bywash_client_options_set_wait(options, BYWASH_WAIT_SLEEP));
	OK(bywash_client_options_set_choice(options, choice));
	OK(bywash_client_options_set_reconnect(options, 0));
	FAILS(bywash_client_options_set_choice(options, 3), BYWASH_ERROR_ARGUMENT, "none of 0 to 2");
	OK(bywash_client_connect(socket, options, &client));
	OK(bywash_client_options_free(&options));
	CHECK(options.id == 0);
	return client;
}

static void fill(uint8_t *bytes, size_t size, size_t seed)
{
	for (size_t at = 0; at < size; at++)
		bytes[at] = byte_at(at, seed);
}

static void calls_that_wait(const char *socket, const char *name, int choice, int is_mapped)
{
	static uint8_t bytes[64 * BLOCK], copy[64 * BLOCK];
	struct bywash_client client = connect_to(socket, choice);
	struct bywash_volume volume = {0};
	struct bywash_volume_info info;
	struct bywash_text why = {0};
	const char *characters = NULL;
	size_t length = 99;
	OK(bywash_volume_open(client, name, BYWASH_ACCESS_READ_WRITE, &volume));
	/* It stays open without its connection's handle. */
	OK(bywash_client_close(&client));
	OK(bywash_volume_get_info(volume, &info, sizeof info));
	CHECK(info.bytes >= 1 << 20 && info.block > 0 && BLOCK % info.block == 0);
	CHECK(info.access == BYWASH_ACCESS_READ_WRITE && info.is_mapped == (uint32_t)is_mapped);
	OK(bywash_volume_why_not_mapped(volume, &why));
	OK(bywash_text_get(why, &characters, &length));
	CHECK((length == 0) == is_mapped);
	OK(bywash_text_free(&why));

	fill(bytes, sizeof bytes, 5);
	OK(bywash_volume_write(volume, BLOCK, bytes, sizeof bytes, 0));
	OK(bywash_volume_flush(volume));
	OK(bywash_volume_read(volume, BLOCK, copy, sizeof copy));
	CHECK(memcmp(bytes, copy, sizeof bytes) == 0);
	OK(bywash_volume_write_zeroes(volume, BLOCK, BLOCK, 1));
	OK(bywash_volume_discard(volume, 32 * BLOCK, BLOCK));
	OK(bywash_volume_read(volume, BLOCK, copy, BLOCK));
	for (size_t at = 0; at < BLOCK; at++)
		CHECK(copy[at] == 0);
	OK(bywash_volume_compare_and_write(volume, BLOCK, copy, bytes, info.block));
	FAILS(bywash_volume_compare_and_write(volume, BLOCK, copy, bytes, info.block), BYWASH_ERROR_DIFFERS,
	      "differ from the expected");
	OK(bywash_volume_write(volume, 0, bytes, BLOCK, 1));

	FAILS(bywash_volume_write(volume, 1, bytes, BLOCK, 0), BYWASH_ERROR_RANGE, "multiples of");
	FAILS(bywash_volume_read(volume, info.bytes, copy, BLOCK), BYWASH_ERROR_RANGE, "not all within");
	FAILS(bywash_volume_read(volume, 0, NULL, BLOCK), BYWASH_ERROR_ARGUMENT, "null");
	struct bywash_volume other = volume;
	OK(bywash_volume_close(&volume));
	CHECK(volume.id == 0);
	OK(bywash_volume_close(&volume));
	FAILS(bywash_volume_flush(other), BYWASH_ERROR_HANDLE, "freed");
}

static void a_queue(const char *socket, const char *name, int choice)
{
	static uint8_t bytes[BLOCK], copies[MANY][BLOCK];
	struct bywash_client client = connect_to(socket, choice);
	struct bywash_queue queue = {0};
	struct bywash_done done[MANY];
	uint64_t volume = 0;
	size_t count = 99, written = 0, reaped = 0;
	int is_done = 9, fd = -1;
	OK(bywash_queue_new(client, &queue));
	OK(bywash_queue_open(queue, name, BYWASH_ACCESS_READ_WRITE, &volume));
	CHECK(volume != 0);
	FAILS(bywash_queue_reap(queue, SECOND, done, MANY, &count), BYWASH_ERROR_IDLE, "no request is in flight");
	CHECK(bywash_queue_reap(queue, 0, done, MANY, &count) == BYWASH_ERROR_TIMED_OUT);
	while (reaped < MANY) {
		while (written < MANY) {
			fill(bytes, BLOCK, written);
			int answer = bywash_queue_write(queue, volume, written * BLOCK, bytes, BLOCK, 0, written);
			if (answer == BYWASH_ERROR_NO_ROOM)
				break;
			CHECK(answer == BYWASH_OK);
			written++;
		}
		OK(bywash_queue_reap(queue, -1, done, 5, &count));
		CHECK(count >= 1 && count <= 5);
		for (size_t at = 0; at < count; at++)
			CHECK(done[at].error == BYWASH_OK && done[at].user_data < MANY);
		reaped += count;
	}
	OK(bywash_queue_flush(queue, volume, 7));
	FAILS(bywash_queue_close_volume(queue, volume), BYWASH_ERROR_BUSY, "in flight");
	OK(bywash_queue_in_flight(queue, &count));
	CHECK(count == 1);
	do {
		OK(bywash_queue_arm(queue, &is_done, &fd));
		struct pollfd polled = {.fd = fd, .events = POLLIN};
		CHECK(is_done || poll(&polled, 1, 10000) == 1);
		OK(bywash_queue_in_flight(queue, &count));
	} while (bywash_queue_reap(queue, 0, done, MANY, &count) == BYWASH_ERROR_TIMED_OUT);
	CHECK(count == 1 && done[0].user_data == 7 && done[0].error == BYWASH_OK);

	/* Into memory that is lent until then. */
	for (size_t first = 0; first < MANY; first += 16) {
		for (size_t at = first; at < first + 16; at++)
			OK(bywash_queue_read(queue, volume, at * BLOCK, copies[at], BLOCK, at));
		OK(bywash_queue_wait(queue, first ? 16 : SIZE_MAX, 30 * SECOND));
		OK(bywash_queue_reap(queue, 0, done, MANY, &count));
		CHECK(count == 16);
	}
	OK(bywash_queue_wait(queue, 1, -1));
	for (size_t at = 0; at < MANY; at++) {
		fill(bytes, BLOCK, at);
		CHECK(memcmp(bytes, copies[at], BLOCK) == 0);
	}
	OK(bywash_queue_write_zeroes(queue, volume, 0, BLOCK, 0, 1));
	OK(bywash_queue_reap(queue, -1, done, 1, &count));
	OK(bywash_queue_discard(queue, volume, BLOCK, BLOCK, 1));
	OK(bywash_queue_reap(queue, -1, done, 1, &count));
	fill(bytes, BLOCK, 1);
	OK(bywash_queue_compare_and_write(queue, volume, 0, bytes, bytes, 512, 3));
	OK(bywash_queue_reap(queue, -1, done, 1, &count));
	CHECK(count == 1 && done[0].error != BYWASH_OK && done[0].user_data == 3);
	CHECK(done[0].error == BYWASH_ERROR_DIFFERS || done[0].error == BYWASH_ERROR_RANGE);
	FAILS(bywash_queue_flush(queue, volume + 1, 1), BYWASH_ERROR_HANDLE, "another queue");
	/* What is in flight when it is closed is not heard of any more. */
	OK(bywash_queue_read(queue, volume, 0, copies[0], BLOCK, 1));
	OK(bywash_queue_close(&queue));
	CHECK(queue.id == 0);
	OK(bywash_client_close(&client));
}

static struct bywash_queue queue_of(const char *socket, const char *name, int choice, int trusted, uint64_t *volume)
{
	struct bywash_client client = {0};
	struct bywash_client_options options = {0};
	struct bywash_queue queue = {0};
	OK(bywash_client_options_new(&options));
	OK(bywash_client_options_set_choice(options, choice));
	OK(bywash_client_options_set_arena_bytes(options, 1 << 20));
	OK(bywash_client_options_set_trusted(options, trusted));
	OK(bywash_client_connect(socket, options, &client));
	OK(bywash_client_options_free(&options));
	OK(bywash_queue_new(client, &queue));
	OK(bywash_client_close(&client));
	OK(bywash_queue_open(queue, name, BYWASH_ACCESS_READ_WRITE, volume));
	return queue;
}

static void buffers_that_are_not_copied(const char *socket, const char *name, int choice)
{
	static uint8_t bytes[2 * BLOCK], copy[2 * BLOCK];
	uint64_t volume = 0;
	struct bywash_queue queue = queue_of(socket, name, choice, 0, &volume);
	struct bywash_buffer buffer = {0}, more[16] = {{0}};
	struct bywash_done done;
	size_t count = 0, length = 0, taken = 0;
	uint8_t *mapped = NULL;
	OK(bywash_queue_alloc(queue, 2 * BLOCK, &buffer));
	OK(bywash_buffer_length(buffer, &length));
	CHECK(length == 2 * BLOCK);
	FAILS(bywash_buffer_map(buffer, &mapped, NULL), BYWASH_ERROR_NOT_MAPPED, "");
	fill(bytes, sizeof bytes, 11);
	OK(bywash_buffer_write(buffer, 0, bytes, sizeof bytes, &count));
	CHECK(count == sizeof bytes);
	struct bywash_buffer other = buffer;
	OK(bywash_queue_write_buffer(queue, volume, 0, &buffer, 1, 5));
	CHECK(buffer.id == 0);
	FAILS(bywash_buffer_length(other, &length), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_queue_write_buffer(queue, volume, 0, &buffer, 0, 5), BYWASH_ERROR_HANDLE, "");
	OK(bywash_queue_reap(queue, -1, &done, 1, &count));
	CHECK(count == 1 && done.user_data == 5 && done.error == BYWASH_OK && done.buffer.id != 0);
	buffer = done.buffer;
	memset(copy, 0, sizeof copy);
	OK(bywash_buffer_write(buffer, 0, copy, sizeof copy, NULL));
	OK(bywash_buffer_resize(buffer, BLOCK));
	OK(bywash_queue_read_buffer(queue, volume, BLOCK, &buffer, 6));
	OK(bywash_queue_reap(queue, -1, &done, 1, &count));
	CHECK(done.user_data == 6 && done.error == BYWASH_OK);
	buffer = done.buffer;
	OK(bywash_buffer_read(buffer, 0, copy, sizeof copy, &count));
	CHECK(count == BLOCK && memcmp(copy, bytes + BLOCK, BLOCK) == 0);

	/* What is refused stays, under a new handle. */
	other = buffer;
	FAILS(bywash_queue_write_buffer(queue, volume, 1, &buffer, 0, 1), BYWASH_ERROR_RANGE, "multiples of");
	CHECK(buffer.id != 0 && buffer.id != other.id);
	OK(bywash_buffer_length(buffer, &length));
	FAILS(bywash_queue_read_buffer((struct bywash_queue){0}, volume, 0, &buffer, 1), BYWASH_ERROR_HANDLE, "");
	OK(bywash_buffer_length(buffer, &length));
	FAILS(bywash_queue_read_buffer(queue, volume, 0, NULL, 1), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_queue_alloc(queue, 1 << 30, &more[0]), BYWASH_ERROR_TOO_LARGE, "arena");
	while (taken < 16 && bywash_queue_alloc(queue, 100000, &more[taken]) == BYWASH_OK)
		taken++;
	CHECK(taken > 0 && taken < 16);
	while (taken > 0)
		OK(bywash_buffer_free(&more[--taken]));
	OK(bywash_queue_in_flight(queue, &count));
	CHECK(count == 0);
	OK(bywash_queue_close(&queue));
	OK(bywash_buffer_free(&buffer));
}

static void buffers_that_are_looked_at(const char *socket)
{
	uint64_t volume = 0;
	struct bywash_queue queue = queue_of(socket, "fast", BYWASH_CHOICE_CHANNEL, 1, &volume);
	struct bywash_buffer buffer = {0};
	struct bywash_done done;
	uint8_t *mapped = NULL;
	size_t count = 0, length = 0;
	OK(bywash_queue_alloc(queue, BLOCK, &buffer));
	OK(bywash_buffer_map(buffer, &mapped, &length));
	CHECK(length == BLOCK);
	fill(mapped, length, 3);
	OK(bywash_queue_write_buffer(queue, volume, 0, &buffer, 0, 1));
	OK(bywash_queue_reap(queue, -1, &done, 1, &count));
	OK(bywash_buffer_map(done.buffer, &mapped, &length));
	CHECK(mapped[1] == byte_at(1, 3));
	/* One that is in flight goes with the queue. */
	OK(bywash_queue_read_buffer(queue, volume, 0, &done.buffer, 1));
	OK(bywash_queue_close(&queue));
}

struct other_channel {
	int fd;
	struct bywash_channel_server server;
};

static void *serve_nobody(void *argument)
{
	struct other_channel *other = argument;
	OK(bywash_channel_server_over(other->fd, (struct bywash_channel_server_options){0}, &other->server));
	return NULL;
}

static void of_another_kind(const char *socket)
{
	uint64_t volume = 0;
	struct bywash_queue queue = queue_of(socket, "fast", BYWASH_CHOICE_AUTOMATIC, 0, &volume);
	struct bywash_buffer buffer = {0}, before;
	struct bywash_submission submission = {0};
	int fds[2];
	OK(bywash_queue_alloc(queue, BLOCK, &buffer));
	before = buffer;
	OK(bywash_socket_pair(fds));
	pthread_t thread;
	struct other_channel other = {fds[1], {0}};
	CHECK(pthread_create(&thread, NULL, serve_nobody, &other) == 0);
	struct bywash_channel_client client = {0};
	OK(bywash_channel_client_over(fds[0], (struct bywash_channel_client_options){0}, &client));
	CHECK(pthread_join(thread, NULL) == 0);
	submission.buffer = buffer;
	FAILS(bywash_channel_client_submit(client, &submission, NULL), BYWASH_ERROR_UNFIT, "of a queue");
	CHECK(submission.buffer.id == before.id);
	OK(bywash_buffer_free(&buffer));
	OK(bywash_buffer_alloc(client, BLOCK, &buffer));
	before = buffer;
	FAILS(bywash_queue_write_buffer(queue, volume, 0, &buffer, 0, 1), BYWASH_ERROR_UNFIT, "of a channel");
	CHECK(buffer.id == before.id);
	OK(bywash_buffer_free(&buffer));
	OK(bywash_channel_client_close(&client));
	OK(bywash_channel_server_close(&other.server));
	OK(bywash_queue_close(&queue));
}

static void several_volumes_by_one_request(const char *socket, int choice)
{
	static uint8_t bytes[3 * BLOCK], copy[3 * BLOCK];
	struct bywash_client client = connect_to(socket, choice);
	struct bywash_volume fast = {0}, slow = {0};
	fill(bytes, sizeof bytes, 21);
	OK(bywash_volume_open(client, "fast", BYWASH_ACCESS_READ_WRITE, &fast));
	OK(bywash_volume_open(client, "slow", BYWASH_ACCESS_READ_WRITE, &slow));
	struct bywash_write_piece written[] = {{fast, 0, bytes, BLOCK}, {slow, BLOCK, bytes + BLOCK, 2 * BLOCK}};
	struct bywash_read_piece read[] = {{slow, BLOCK, copy + BLOCK, 2 * BLOCK}, {fast, 0, copy, BLOCK}};
	OK(bywash_client_write_many(client, written, 2, 1));
	OK(bywash_client_read_many(client, read, 2));
	CHECK(memcmp(bytes, copy, sizeof bytes) == 0);
	/* All of it is looked at before any of it is done. */
	written[1].offset = 1;
	written[0].from = copy + BLOCK;
	FAILS(bywash_client_write_many(client, written, 2, 0), BYWASH_ERROR_RANGE, "slow");
	OK(bywash_volume_read(fast, 0, copy, BLOCK));
	CHECK(memcmp(bytes, copy, BLOCK) == 0);
	FAILS(bywash_client_read_many(client, read, 0), BYWASH_ERROR_PIECES, "1 to 32");
	FAILS(bywash_client_read_many(client, read, BYWASH_VOLUME_PIECES_MAX + 1), BYWASH_ERROR_PIECES, "33 ranges");
	FAILS(bywash_client_read_many(client, NULL, 2), BYWASH_ERROR_ARGUMENT, "null");
	read[1].volume.id = 0;
	FAILS(bywash_client_read_many(client, read, 2), BYWASH_ERROR_HANDLE, "");

	struct bywash_queue queue = {0};
	struct bywash_done done;
	uint64_t first = 0, second = 0;
	size_t count = 0;
	OK(bywash_queue_new(client, &queue));
	OK(bywash_queue_open(queue, "fast", BYWASH_ACCESS_READ_WRITE, &first));
	OK(bywash_queue_open(queue, "slow", BYWASH_ACCESS_READ_WRITE, &second));
	struct bywash_range ranges[] = {{second, 0, 2 * BLOCK}, {first, BLOCK, BLOCK}};
	OK(bywash_queue_write_many(queue, ranges, 2, bytes, 1, 8));
	OK(bywash_queue_reap(queue, -1, &done, 1, &count));
	CHECK(done.user_data == 8 && done.error == BYWASH_OK && done.buffer.id == 0);
	memset(copy, 0, sizeof copy);
	OK(bywash_queue_read_many(queue, ranges, 2, copy, 9));
	OK(bywash_queue_reap(queue, -1, &done, 1, &count));
	CHECK(done.user_data == 9 && done.error == BYWASH_OK);
	CHECK(memcmp(bytes, copy, sizeof bytes) == 0);
	ranges[0].length = (size_t)1 << 60;
	FAILS(bywash_queue_read_many(queue, ranges, 2, copy, 9), BYWASH_ERROR_RANGE, "not all within");
	FAILS(bywash_queue_write_many(queue, ranges, 33, bytes, 0, 9), BYWASH_ERROR_PIECES, "33 ranges");
	struct bywash_range all[BYWASH_VOLUME_PIECES_MAX];
	for (size_t at = 0; at < BYWASH_VOLUME_PIECES_MAX; at++)
		all[at] = (struct bywash_range){first, at % 2 * BLOCK, 0};
	all[31].length = BLOCK;
	OK(bywash_queue_read_many(queue, all, BYWASH_VOLUME_PIECES_MAX, copy, 9));
	OK(bywash_queue_reap(queue, -1, &done, 1, &count));
	CHECK(done.error == BYWASH_OK && memcmp(copy, bytes + 2 * BLOCK, BLOCK) == 0);
	OK(bywash_queue_close(&queue));
	OK(bywash_volume_close(&fast));
	OK(bywash_volume_close(&slow));
	OK(bywash_client_close(&client));
}

/* What callbacks have seen. */
struct seen {
	struct bywash_queue queue;
	uint64_t volume;
	size_t count;
	int closes;
	uint8_t bytes[MANY][BLOCK];
	pthread_mutex_t mutex;
	pthread_cond_t changed;
};

static void called(void *context, int error, const struct bywash_done *done)
{
	struct seen *seen = context;
	CHECK(error == BYWASH_OK && done != NULL && done->error == BYWASH_OK);
	CHECK(pthread_mutex_lock(&seen->mutex) == 0);
	seen->count++;
	FAILS(bywash_queue_dispatch_stop(seen->queue), BYWASH_ERROR_BUSY, "its own end");
	/* A callback may submit, and close. */
	if (done->user_data + 8 < MANY)
		OK(bywash_queue_read(seen->queue, seen->volume, (done->user_data + 8) * BLOCK,
				     seen->bytes[done->user_data + 8], BLOCK, done->user_data + 8));
	if (seen->closes) {
		struct bywash_queue queue = seen->queue;
		OK(bywash_queue_close(&queue));
	}
	CHECK(pthread_cond_signal(&seen->changed) == 0);
	CHECK(pthread_mutex_unlock(&seen->mutex) == 0);
}

static void callbacks(const char *socket, const char *name)
{
	static struct seen seen;
	static uint8_t bytes[BLOCK];
	struct bywash_done done;
	size_t count = 0;
	memset(&seen, 0, sizeof seen);
	CHECK(pthread_mutex_init(&seen.mutex, NULL) == 0 && pthread_cond_init(&seen.changed, NULL) == 0);
	seen.queue = queue_of(socket, name, BYWASH_CHOICE_AUTOMATIC, 0, &seen.volume);
	for (size_t at = 0; at < MANY; at++) {
		fill(bytes, BLOCK, at + 40);
		OK(bywash_queue_write(seen.queue, seen.volume, at * BLOCK, bytes, BLOCK, 0, at));
		OK(bywash_queue_reap(seen.queue, -1, &done, 1, &count));
	}
	OK(bywash_queue_dispatch_stop(seen.queue));
	FAILS(bywash_queue_dispatch(seen.queue, NULL, NULL), BYWASH_ERROR_ARGUMENT, "null");
	OK(bywash_queue_dispatch(seen.queue, called, &seen));
	FAILS(bywash_queue_dispatch(seen.queue, called, &seen), BYWASH_ERROR_BUSY, "has a callback");
	FAILS(bywash_queue_reap(seen.queue, 0, &done, 1, &count), BYWASH_ERROR_BUSY, "callbacks reap");
	for (uint64_t at = 0; at < 8; at++)
		OK(bywash_queue_read(seen.queue, seen.volume, at * BLOCK, seen.bytes[at], BLOCK, at));
	CHECK(pthread_mutex_lock(&seen.mutex) == 0);
	while (seen.count < MANY)
		CHECK(pthread_cond_wait(&seen.changed, &seen.mutex) == 0);
	CHECK(pthread_mutex_unlock(&seen.mutex) == 0);
	OK(bywash_queue_dispatch_stop(seen.queue));
	for (size_t at = 0; at < MANY; at++) {
		fill(bytes, BLOCK, at + 40);
		CHECK(memcmp(bytes, seen.bytes[at], BLOCK) == 0);
	}
	OK(bywash_queue_read(seen.queue, seen.volume, 0, bytes, BLOCK, 77));
	OK(bywash_queue_reap(seen.queue, -1, &done, 1, &count));
	CHECK(done.user_data == 77);

	/* Closed from within: nothing is called after that. */
	seen.count = 0;
	seen.closes = 1;
	for (uint64_t at = 0; at < 8; at++)
		OK(bywash_queue_read(seen.queue, seen.volume, 0, bytes, BLOCK, MANY + at));
	OK(bywash_queue_dispatch(seen.queue, called, &seen));
	CHECK(pthread_mutex_lock(&seen.mutex) == 0);
	while (seen.count == 0)
		CHECK(pthread_cond_wait(&seen.changed, &seen.mutex) == 0);
	CHECK(pthread_mutex_unlock(&seen.mutex) == 0);
	struct timespec while_more_could_come = {.tv_nsec = 200 * 1000 * 1000};
	nanosleep(&while_more_could_come, NULL);
	CHECK(seen.count == 1);
	FAILS(bywash_queue_flush(seen.queue, seen.volume, 1), BYWASH_ERROR_HANDLE, "");
}

static void what_administrators_ask(const char *socket)
{
	struct bywash_client client = connect_to(socket, BYWASH_CHOICE_AUTOMATIC);
	struct bywash_volume volume = {0};
	uint8_t bytes[BLOCK];
	OK(bywash_client_create(client, "new", "disk", 1 << 20, 0, 0, 0600));
	FAILS(bywash_client_create(client, "new", "disk", 1 << 20, 0, 0, 0600), BYWASH_ERROR_REFUSED, "new");
	OK(bywash_client_create_thin(client, "thin", "disk", 1 << 30, 0, 0, 0600));
	OK(bywash_client_snapshot(client, "thin", "snapshot"));
	FAILS(bywash_client_snapshot(client, "snapshot", "other"), BYWASH_ERROR_REFUSED, "is a snapshot");
	FAILS(bywash_client_snapshot(client, "thin", NULL), BYWASH_ERROR_ARGUMENT, "null");
	OK(bywash_client_clone_snapshot(client, "snapshot", "clone"));
	FAILS(bywash_client_rollback(client, "clone", "snapshot"), BYWASH_ERROR_REFUSED, "not a snapshot of volume 'clone'");
	OK(bywash_volume_open(client, "thin", BYWASH_ACCESS_READ_WRITE, &volume));
	memset(bytes, 7, sizeof bytes);
	OK(bywash_volume_write(volume, 0, bytes, BLOCK, 0));
	FAILS(bywash_client_rollback(client, "thin", "snapshot"), BYWASH_ERROR_REFUSED, "open for writing");
	OK(bywash_volume_close(&volume));
	OK(bywash_client_rollback(client, "thin", "snapshot"));
	OK(bywash_volume_open(client, "thin", BYWASH_ACCESS_READ, &volume));
	OK(bywash_volume_read(volume, 0, bytes, BLOCK));
	CHECK(bytes[0] == 0 && memcmp(bytes, bytes + 1, sizeof bytes - 1) == 0);
	OK(bywash_volume_close(&volume));
	OK(bywash_client_remove(client, "thin"));
	OK(bywash_client_remove(client, "snapshot"));
	OK(bywash_client_remove(client, "clone"));
	FAILS(bywash_client_create(client, "new", NULL, 1 << 20, 0, 0, 0600), BYWASH_ERROR_ARGUMENT, "null");
	OK(bywash_client_resize(client, "new", 2 << 20));
	OK(bywash_client_rename(client, "new", "newer"));
	OK(bywash_client_permit(client, "newer", -1, -1, 0640, 1));
	FAILS(bywash_client_permit(client, "newer", -1, -1, 1 << 20, -1), BYWASH_ERROR_ARGUMENT, "the mode 1048576");
	FAILS(bywash_volume_open(client, "newer", BYWASH_ACCESS_READ_WRITE, &volume), BYWASH_ERROR_DENIED, "newer");
	OK(bywash_volume_open(client, "newer", BYWASH_ACCESS_READ, &volume));
	OK(bywash_client_revoke(client, "newer"));
	FAILS(bywash_volume_read(volume, 0, bytes, BLOCK), BYWASH_ERROR_REVOKED, "was revoked");
	OK(bywash_volume_close(&volume));
	OK(bywash_client_remove(client, "newer"));
	FAILS(bywash_client_remove(client, "newer"), BYWASH_ERROR_MISSING, "newer");
	OK(bywash_client_close(&client));
}

static void what_is_refused_and_what_is_told(const char *socket, const char *passed)
{
	struct bywash_client client = {0};
	struct bywash_volume volume = {0};
	struct bywash_text text = {0};
	struct bywash_volume_info info;
	const char *characters = NULL;
	uint8_t bytes[BLOCK] = {0};
	FAILS(bywash_client_connect("/nowhere", (struct bywash_client_options){0}, &client), BYWASH_ERROR_IO,
	      "/nowhere");
	CHECK(bywash_last_error_number() != 0);
	OK(bywash_client_connect(socket, (struct bywash_client_options){0}, &client));
	FAILS(bywash_volume_open(client, "none", BYWASH_ACCESS_READ, &volume), BYWASH_ERROR_MISSING, "none");
	FAILS(bywash_volume_open(client, "fast", 7, &volume), BYWASH_ERROR_ARGUMENT, "access");
	OK(bywash_volume_open(client, "fast", BYWASH_ACCESS_READ, &volume));
	FAILS(bywash_volume_write(volume, 0, bytes, BLOCK, 0), BYWASH_ERROR_DENIED, "opened for read");
	OK(bywash_volume_close(&volume));
	OK(bywash_client_volumes(client, &text));
	OK(bywash_text_get(text, &characters, NULL));
	CHECK(strstr(characters, "\"fast\"") != NULL && strstr(characters, "\"slow\"") != NULL);
	OK(bywash_text_free(&text));
	OK(bywash_client_status(client, &text));
	OK(bywash_text_get(text, &characters, NULL));
	CHECK(strstr(characters, "\"clients\"") != NULL);
	OK(bywash_text_free(&text));

	int fd = open(passed, O_RDONLY);
	CHECK(fd >= 0);
	OK(bywash_volume_open_descriptor(client, fd, &volume));
	OK(bywash_volume_get_info(volume, &info, sizeof info));
	CHECK(info.bytes == 8192 && info.access == BYWASH_ACCESS_READ);
	OK(bywash_volume_read(volume, 0, bytes, BLOCK));
	CHECK(bytes[0] == 7 && bytes[BLOCK - 1] == 7);
	FAILS(bywash_volume_open_descriptor(client, -1, &volume), BYWASH_ERROR_ARGUMENT, "not open");
	OK(bywash_volume_close(&volume));
	OK(bywash_client_close(&client));
}

int main(int count, char **words)
{
	CHECK(count == 3);
	calls_that_wait(words[1], "fast", BYWASH_CHOICE_MAPPED, 1);
	calls_that_wait(words[1], "fast", BYWASH_CHOICE_CHANNEL, 0);
	calls_that_wait(words[1], "slow", BYWASH_CHOICE_AUTOMATIC, 0);
	a_queue(words[1], "fast", BYWASH_CHOICE_AUTOMATIC);
	a_queue(words[1], "slow", BYWASH_CHOICE_AUTOMATIC);
	buffers_that_are_not_copied(words[1], "fast", BYWASH_CHOICE_AUTOMATIC);
	buffers_that_are_not_copied(words[1], "fast", BYWASH_CHOICE_CHANNEL);
	buffers_that_are_not_copied(words[1], "slow", BYWASH_CHOICE_AUTOMATIC);
	buffers_that_are_looked_at(words[1]);
	of_another_kind(words[1]);
	several_volumes_by_one_request(words[1], BYWASH_CHOICE_AUTOMATIC);
	several_volumes_by_one_request(words[1], BYWASH_CHOICE_CHANNEL);
	callbacks(words[1], "fast");
	callbacks(words[1], "slow");
	what_administrators_ask(words[1]);
	what_is_refused_and_what_is_told(words[1], words[2]);
	return 0;
}
