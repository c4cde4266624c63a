/* Every operation, on paths of every class, both ends in one process. */
#include "check.h"

#include <poll.h>
#include <unistd.h>

static const size_t SIZES[] = {1, 8, 119, 120, 121, 4096, 5000, 65536, 300000};
#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* The memory of containers, as a process that maps it by itself sees it. */
static void memory(int class_)
{
	struct bywash_options options = small(class_);
	struct bywash_path one = {0}, two = {0};
	struct bywash_memory_range range = {0};
	static uint8_t bytes[65536];
	both_ends(options, &one, &two);
	OK(bywash_options_free(&options));
	struct bywash_container container = filled(one, sizeof bytes, 3);
	if (class_ == BYWASH_CLASS_SEALED) {
		FAILS(bywash_container_memory(container, &range), BYWASH_ERROR_NOT_MAPPED, "sealed");
	} else {
		OK(bywash_container_memory(container, &range));
		CHECK(range.length == sizeof bytes);
		CHECK(pread(range.fd, bytes, range.length, (off_t)range.offset) == (ssize_t)sizeof bytes);
		CHECK(bytes[0] == byte_at(0, 3) && bytes[65535] == byte_at(65535, 3));
		CHECK(pwrite(range.fd, bytes, 1, (off_t)range.offset) < 0);
		FAILS(bywash_container_memory(container, NULL), BYWASH_ERROR_ARGUMENT, "null");
	}
	OK(bywash_ship(one, &container, BYWASH_FOREVER));
	struct bywash_message message = {0};
	OK(bywash_receive(two, 10 * SECOND, &message));
	OK(bywash_message_memory(message, 0, &range));
	CHECK(pread(range.fd, bytes, range.length, (off_t)range.offset) == (ssize_t)sizeof bytes);
	CHECK(bytes[1] == byte_at(1, 3) && bytes[65535] == byte_at(65535, 3));
	CHECK(pwrite(range.fd, bytes, 1, (off_t)range.offset) < 0);
	FAILS(bywash_message_memory(message, 1, &range), BYWASH_ERROR_ARGUMENT, "piece 1");
	OK(bywash_message_free(&message));
	OK(bywash_path_close(&one));
	OK(bywash_path_close(&two));
}

static void every_size(int class_, int maps)
{
	struct bywash_options options = small(class_);
	struct bywash_path one = {0}, two = {0};
	both_ends(options, &one, &two);
	OK(bywash_options_free(&options));
	CHECK(options.id == 0);
	for (size_t number = 0; number < COUNT(SIZES); number++) {
		size_t size = SIZES[number], length = 0;
		struct bywash_container container = filled(one, size, number);
		OK(bywash_container_length(container, &length));
		CHECK(length == size);
		OK(bywash_ship(one, &container, BYWASH_FOREVER));
		CHECK(container.id == 0);

		struct bywash_message message = {0};
		OK(bywash_receive(two, 10 * SECOND, &message));
		OK(bywash_message_length(message, &length));
		CHECK(length == size);
		check_piece(message, 0, size, number);

		const uint8_t *bytes = NULL, *again = NULL;
		if (maps || (size <= 120 && class_ != BYWASH_CLASS_SEALED)) {
			OK(bywash_map(message, 0, &bytes, &length));
			CHECK(length == size && bytes[size - 1] == byte_at(size - 1, number));
			OK(bywash_map(message, 0, &again, NULL));
			CHECK(again == bytes);
			OK(bywash_unmap(message, 0));
			OK(bywash_unmap(message, 0));
		} else {
			bytes = (const uint8_t *)"";
			FAILS(bywash_map(message, 0, &bytes, &length), BYWASH_ERROR_NOT_MAPPED, "copy them out");
			CHECK(bytes == NULL && length == 0);
		}
		OK(bywash_message_free(&message));
		CHECK(message.id == 0);
	}
	struct bywash_stats stats;
	OK(bywash_path_stats(two, &stats, sizeof stats));
	CHECK(stats.received == COUNT(SIZES));
	OK(bywash_path_stats(one, &stats, sizeof stats));
	CHECK(stats.shipped == COUNT(SIZES) && stats.shipped_bytes > 300000);
	/* A program that knows fewer counters gets these. */
	stats.shipped_bytes = 4711;
	OK(bywash_path_stats(one, &stats, sizeof stats.shipped));
	CHECK(stats.shipped == COUNT(SIZES) && stats.shipped_bytes == 4711);
	OK(bywash_path_close(&one));
	CHECK(one.id == 0);
	struct bywash_message message = {0};
	FAILS(bywash_receive(two, BYWASH_FOREVER, &message), BYWASH_ERROR_CLOSED, "closed");
	OK(bywash_path_close(&two));
}

static void several_pieces(void)
{
	struct bywash_options options = small(BYWASH_CLASS_TRUSTED);
	struct bywash_path one = {0}, two = {0};
	both_ends(options, &one, &two);
	OK(bywash_options_free(&options));
	struct bywash_container containers[BYWASH_PIECES_MAX];
	for (size_t count = 1; count <= BYWASH_PIECES_MAX; count *= 4) {
		size_t pieces = 0, length = 0, sum = 0;
		for (size_t number = 0; number < count; number++) {
			containers[number] = filled(one, 200 + number, number);
			sum += 200 + number;
		}
		OK(bywash_ship_several(one, containers, count, BYWASH_FOREVER));
		struct bywash_message message = {0};
		OK(bywash_receive(two, 10 * SECOND, &message));
		OK(bywash_message_pieces(message, &pieces));
		CHECK(pieces == count);
		OK(bywash_message_length(message, &length));
		CHECK(length == sum);
		for (size_t number = 0; number < count; number++) {
			const uint8_t *bytes = NULL;
			CHECK(containers[number].id == 0);
			check_piece(message, number, 200 + number, number);
			OK(bywash_map(message, number, &bytes, &length));
			CHECK(length == 200 + number && bytes[1] == byte_at(1, number));
		}
		uint8_t start[250];
		size_t copied = 0;
		OK(bywash_copy_to(message, start, sizeof start, &copied));
		CHECK(copied == (count == 1 ? 200 : 250));
		CHECK(count == 1 || start[200] == byte_at(0, 1));
		FAILS(bywash_map(message, count, &(const uint8_t *){0}, &length), BYWASH_ERROR_ARGUMENT, "piece");

		/* Apart, and together again behind a header. */
		struct bywash_message apart[BYWASH_PIECES_MAX];
		FAILS(bywash_message_split(&message, apart, count - 1, &pieces), BYWASH_ERROR_ARGUMENT, "room");
		OK(bywash_message_split(&message, apart, BYWASH_PIECES_MAX, &pieces));
		CHECK(pieces == count && message.id == 0);
		struct bywash_shipment shipment[2] = {{filled(two, 8, 99), {0}}, {{0}, apart[count - 1]}};
		OK(bywash_ship_cargo(two, shipment, 2, BYWASH_FOREVER));
		CHECK(shipment[0].container.id == 0 && shipment[1].message.id == 0);
		for (size_t number = 0; number + 1 < count; number++)
			OK(bywash_message_free(&apart[number]));
		OK(bywash_receive(one, 10 * SECOND, &message));
		check_piece(message, 0, 8, 99);
		check_piece(message, 1, 199 + count, count - 1);
		OK(bywash_message_free(&message));
	}
	OK(bywash_path_close(&one));
	OK(bywash_path_close(&two));
}

static void written_in_place(void)
{
	struct bywash_options options = small(BYWASH_CLASS_TRUSTED_TO_WRITE);
	struct bywash_path one = {0}, two = {0};
	both_ends(options, &one, &two);
	OK(bywash_options_free(&options));
	struct bywash_container container = filled(one, 5000, 1);
	OK(bywash_ship(one, &container, BYWASH_FOREVER));
	struct bywash_message message = {0};
	uint8_t *bytes = NULL;
	const uint8_t *seen = NULL;
	size_t length = 0;
	OK(bywash_receive(two, 10 * SECOND, &message));
	OK(bywash_map_to_write(message, 0, &bytes, &length));
	CHECK(length == 5000);
	memset(bytes, 2, length);
	OK(bywash_forward(two, &message, BYWASH_FOREVER));
	CHECK(message.id == 0);
	OK(bywash_receive(one, 10 * SECOND, &message));
	OK(bywash_map(message, 0, &seen, &length));
	CHECK(length == 5000 && seen[0] == 2 && seen[4999] == 2);
	OK(bywash_message_free(&message));
	/* What travels in the ring is a copy, which can be written by all means. */
	container = filled(one, 100, 1);
	OK(bywash_ship(one, &container, BYWASH_FOREVER));
	OK(bywash_receive(two, 10 * SECOND, &message));
	OK(bywash_map_to_write(message, 0, &bytes, &length));
	CHECK(bytes != NULL && length == 100);
	OK(bywash_message_free(&message));
	OK(bywash_path_close(&one));
	OK(bywash_path_close(&two));
}

static void forwarded_without_looking(void)
{
	struct bywash_options ends = small(BYWASH_CLASS_CHECKED), middle = small(BYWASH_CLASS_FORWARD);
	struct bywash_path source = {0}, from = {0}, to = {0}, sink = {0};
	unlike_ends(ends, middle, &source, &from);
	unlike_ends(middle, ends, &to, &sink);
	for (size_t number = 0; number < 100; number++) {
		size_t size = (size_t[]){50, 3000, 100000}[number % 3];
		struct bywash_container pair[2] = {filled(source, size, number), filled(source, 10, 1)};
		OK(bywash_ship_several(source, pair, 1 + number % 2, BYWASH_FOREVER));
		struct bywash_message message = {0};
		OK(bywash_receive(from, 10 * SECOND, &message));
		if (size > 120) {
			const uint8_t *bytes = NULL;
			FAILS(bywash_map(message, 0, &bytes, NULL), BYWASH_ERROR_NOT_MAPPED, "");
		}
		OK(bywash_forward(to, &message, 10 * SECOND));
		OK(bywash_receive(sink, 10 * SECOND, &message));
		check_piece(message, 0, size, number);
		OK(bywash_message_free(&message));
		if (pair[1].id != 0)
			OK(bywash_free(&pair[1]));
	}
	struct bywash_stats stats;
	OK(bywash_path_stats(to, &stats, sizeof stats));
	CHECK(stats.forwarded > 60);
	OK(bywash_path_close(&sink));
	OK(bywash_path_close(&to));
	OK(bywash_path_close(&from));
	OK(bywash_path_close(&source));
	OK(bywash_options_free(&ends));
	OK(bywash_options_free(&middle));
}

static void an_event_loop(void)
{
	struct bywash_options options = small(BYWASH_CLASS_CHECKED);
	struct bywash_path one = {0}, two = {0};
	struct bywash_message message = {0};
	int fd = -1, ready = -1;
	both_ends(options, &one, &two);
	OK(bywash_options_free(&options));
	OK(bywash_path_fd(two, &fd));
	struct pollfd polled = {.fd = fd, .events = POLLIN};
	OK(bywash_path_arm(two, &ready));
	CHECK(ready == 0 && poll(&polled, 1, 0) == 0);
	struct bywash_container container = filled(one, 10, 0);
	OK(bywash_ship(one, &container, BYWASH_FOREVER));
	CHECK(poll(&polled, 1, 5000) == 1);
	OK(bywash_receive(two, 0, &message));
	OK(bywash_message_free(&message));
	FAILS(bywash_receive(two, 0, &message), BYWASH_ERROR_TIMED_OUT, "not at once");
	FAILS(bywash_receive(two, 1000000, &message), BYWASH_ERROR_TIMED_OUT, "before the timeout");
	CHECK(message.id == 0);
	container = filled(one, 10, 0);
	OK(bywash_ship(one, &container, BYWASH_FOREVER));
	OK(bywash_path_arm(two, &ready));
	CHECK(ready == 1);
	OK(bywash_path_close(&one));
	OK(bywash_path_close(&two));
}

static void an_arena_that_is_used_up(void)
{
	struct bywash_options options = small(BYWASH_CLASS_CHECKED);
	struct bywash_path one = {0}, two = {0};
	struct bywash_container container = {0}, all[32] = {{0}};
	size_t count = 0, capacity = 0, length = 0;
	int answer;
	both_ends(options, &one, &two);
	OK(bywash_options_free(&options));
	while ((answer = bywash_alloc(one, 100000, 0, &all[count])) == BYWASH_OK)
		count++;
	CHECK(answer == BYWASH_ERROR_TIMED_OUT && count >= 4 && all[count].id == 0);
	FAILS(bywash_alloc(one, 100000, 1000000, &container), BYWASH_ERROR_TIMED_OUT, "before the timeout");
	FAILS(bywash_alloc(one, 100000, 1000000, &container), BYWASH_ERROR_TIMED_OUT, "the peer holds 0 in 0 ");
	struct bywash_stats stats;
	OK(bywash_path_stats(one, &stats, sizeof stats));
	CHECK(stats.arena_held == count && stats.arena_held_bytes >= count * 100000);
	CHECK(stats.arena_shipped == 0 && stats.arena_held_bytes <= stats.arena_bytes);
	CHECK(stats.arena_largest_free < 100000);
	FAILS(bywash_alloc(one, 2 << 20, 0, &container), BYWASH_ERROR_TOO_LARGE, "larger");
	while (count-- > 0)
		OK(bywash_free(&all[count]));
	OK(bywash_alloc(one, 100000, 0, &container));
	OK(bywash_container_capacity(container, &capacity));
	CHECK(capacity >= 100000);
	OK(bywash_container_resize(container, 7));
	OK(bywash_container_resize(container, capacity));
	FAILS(bywash_container_resize(container, capacity + 1), BYWASH_ERROR_TOO_LARGE, "do not fit");
	OK(bywash_container_length(container, &length));
	CHECK(length == capacity);
	/* A container outlives its path. */
	OK(bywash_path_close(&one));
	OK(bywash_path_close(&two));
	OK(bywash_free(&container));
}

static void a_name_in_the_file_system(const char *folder)
{
	char name[100];
	struct bywash_listener listener = {0};
	struct bywash_credentials peer = {0, 0, 0}, origin = {0, 0, 0};
	struct bywash_path path = {0};
	int fd = -1;
	snprintf(name, sizeof name, "%s/operations.%d", folder, (int)getpid());
	FAILS(bywash_connect(name, DEFAULTS, &path), BYWASH_ERROR_IO, name);
	CHECK(bywash_last_error_number() == 2);
	OK(bywash_listen(name, &listener));
	OK(bywash_listener_fd(listener, &fd));
	struct pollfd polled = {.fd = fd, .events = POLLIN};
	CHECK(poll(&polled, 1, 0) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		OK(bywash_connect(name, DEFAULTS, &path));
		struct bywash_container container = filled(path, 1000, 3);
		OK(bywash_ship(path, &container, BYWASH_FOREVER));
		OK(bywash_path_close(&path));
		_exit(0);
	}
	CHECK(poll(&polled, 1, 10000) == 1);
	OK(bywash_accept(listener, DEFAULTS, &path));
	OK(bywash_listener_close(&listener));
	CHECK(listener.id == 0 && unlink(name) == 0);
	OK(bywash_path_peer(path, &peer));
	CHECK(peer.pid == (uint32_t)child && peer.uid == geteuid() && peer.gid == getegid());
	struct bywash_message message = {0};
	OK(bywash_receive(path, 10 * SECOND, &message));
	OK(bywash_message_origin(message, &origin));
	CHECK(origin.pid == peer.pid && origin.uid == peer.uid && origin.gid == peer.gid);
	check_piece(message, 0, 1000, 3);
	OK(bywash_message_free(&message));
	OK(bywash_path_close(&path));
}

int main(int count, char **arguments)
{
	CHECK(count == 2);
	CHECK(bywash_version() == BYWASH_VERSION);
	every_size(BYWASH_CLASS_CHECKED, 0);
	every_size(BYWASH_CLASS_TRUSTED, 1);
	every_size(BYWASH_CLASS_SEALED, 1);
	memory(BYWASH_CLASS_CHECKED);
	memory(BYWASH_CLASS_TRUSTED);
	memory(BYWASH_CLASS_SEALED);
	several_pieces();
	written_in_place();
	forwarded_without_looking();
	an_event_loop();
	an_arena_that_is_used_up();
	a_name_in_the_file_system(arguments[1]);
	return 0;
}
