/* What goes wrong: dead handles, null pointers, numbers that cannot be, shipment that is not taken. */
#include "check.h"

#include <fcntl.h>
#include <unistd.h>

static struct bywash_path one, two;

static void dead_containers(void)
{
	uint8_t *bytes = NULL;
	size_t length = 0;
	struct bywash_container container = filled(one, 1000, 0), copy = container;
	OK(bywash_ship(one, &container, BYWASH_FOREVER));
	CHECK(container.id == 0);
	/* Shipped: neither the variable nor the copy leads anywhere. */
	FAILS(bywash_ship(one, &container, 0), BYWASH_ERROR_HANDLE, "handle");
	FAILS(bywash_ship(one, &copy, 0), BYWASH_ERROR_HANDLE, "shipped");
	FAILS(bywash_container_map(copy, &bytes, &length), BYWASH_ERROR_HANDLE, "shipped");
	FAILS(bywash_container_length(copy, &length), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_container_capacity(copy, &length), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_container_resize(copy, 1), BYWASH_ERROR_HANDLE, "");
	CHECK(bytes == NULL && length == 0);
	/* The next one has its place, and not its handle. */
	struct bywash_container next = filled(one, 1000, 0);
	CHECK(next.id != copy.id);
	FAILS(bywash_free(&copy), BYWASH_ERROR_HANDLE, "");
	OK(bywash_container_length(next, &length));
	copy = next;
	OK(bywash_free(&next));
	OK(bywash_free(&next));
	FAILS(bywash_free(&copy), BYWASH_ERROR_HANDLE, "freed");
	/* The same one twice in a message: nothing is shipped, and what was good is good. */
	struct bywash_container twice[2] = {filled(one, 500, 5), {0}};
	twice[1] = twice[0];
	FAILS(bywash_ship_several(one, twice, 2, 0), BYWASH_ERROR_HANDLE, "");
	OK(bywash_container_map(twice[0], &bytes, &length));
	CHECK(length == 500 && bytes[499] == byte_at(499, 5));
	OK(bywash_free(&twice[0]));
	struct bywash_container rubbish = {0x123456789abcdef0};
	FAILS(bywash_free(&rubbish), BYWASH_ERROR_HANDLE, "");
	CHECK(rubbish.id == 0x123456789abcdef0);
}

static void dead_messages(void)
{
	struct bywash_message message = {0};
	const uint8_t *bytes = NULL;
	uint8_t byte;
	size_t count = 0;
	struct bywash_credentials origin;
	OK(bywash_receive(two, 10 * SECOND, &message));
	struct bywash_message copy = message;
	OK(bywash_message_free(&message));
	for (int round = 0; round < 2; round++, copy.id = 0) {
		FAILS(bywash_map(copy, 0, &bytes, &count), BYWASH_ERROR_HANDLE, "");
		CHECK(bytes == NULL && count == 0);
		FAILS(bywash_map_to_write(copy, 0, (uint8_t **)&bytes, &count), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_unmap(copy, 0), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_copy_to(copy, &byte, 1, NULL), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_piece_copy_to(copy, 0, &byte, 1, NULL), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_message_length(copy, &count), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_message_pieces(copy, &count), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_piece_length(copy, 0, &count), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_message_origin(copy, &origin), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_forward(two, &copy, 0), BYWASH_ERROR_HANDLE, "");
		FAILS(bywash_message_split(&copy, &message, 1, &count), BYWASH_ERROR_HANDLE, "");
	}
	OK(bywash_message_free(&copy));
}

static void null_pointers(void)
{
	const struct bywash_container none = {0};
	FAILS(bywash_options_new(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_options_free(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_listen(NULL, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_listen(NULL, &(struct bywash_listener){0}), BYWASH_ERROR_ARGUMENT, "name");
	FAILS(bywash_listener_fd((struct bywash_listener){0}, NULL), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_listener_close(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_accept((struct bywash_listener){0}, DEFAULTS, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_connect(NULL, DEFAULTS, &(struct bywash_path){0}), BYWASH_ERROR_ARGUMENT, "name");
	FAILS(bywash_socket_pair(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_path_over(0, DEFAULTS, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_path_close(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_path_peer(one, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_path_stats(one, NULL, 8), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_path_fd(one, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_path_arm(one, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_alloc(one, 1, 0, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_container_map(none, NULL, NULL), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_free(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_ship(one, NULL, 0), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_ship_several(one, NULL, 3, 0), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_ship_cargo(one, NULL, 3, 0), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_forward(one, NULL, 0), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_receive(one, 0, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_message_free(NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_map((struct bywash_message){0}, 0, NULL, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_copy_to((struct bywash_message){0}, NULL, 5, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_message_split(NULL, NULL, 0, NULL), BYWASH_ERROR_ARGUMENT, "null");
	struct bywash_container container = filled(one, 5, 0);
	FAILS(bywash_container_map(container, NULL, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_container_length(container, NULL), BYWASH_ERROR_ARGUMENT, "null");
	OK(bywash_free(&container));
}

static void numbers_that_cannot_be(void)
{
	struct bywash_options options = {0};
	struct bywash_path path = {0};
	FAILS(bywash_options_set_depth(options, 8), BYWASH_ERROR_HANDLE, "");
	OK(bywash_options_new(&options));
	FAILS(bywash_options_set_class(options, 5), BYWASH_ERROR_ARGUMENT, "class 5");
	FAILS(bywash_options_set_class(options, -1), BYWASH_ERROR_ARGUMENT, "class -1");
	FAILS(bywash_options_set_wait(options, 3), BYWASH_ERROR_ARGUMENT, "wait");
	FAILS(bywash_options_set_huge_pages(options, 3), BYWASH_ERROR_ARGUMENT, "huge pages");
	FAILS(bywash_options_set_handshake_timeout(options, -1), BYWASH_ERROR_OPTION, "negative");
	OK(bywash_options_set_wait(options, BYWASH_WAIT_SLEEP));
	OK(bywash_options_set_containers_out_max(options, 64));
	OK(bywash_options_set_peer_arena_bytes_max(options, 1 << 30));
	OK(bywash_options_set_depth(options, 3));
	int fds[2];
	OK(bywash_socket_pair(fds));
	FAILS(bywash_path_over(fds[0], options, &path), BYWASH_ERROR_OPTION, "power of two");
	CHECK(path.id == 0 && fcntl(fds[0], F_GETFD) < 0);
	close(fds[1]);
	FAILS(bywash_path_over(-1, options, &path), BYWASH_ERROR_ARGUMENT, "not open");
	FAILS(bywash_path_over(999, options, &path), BYWASH_ERROR_ARGUMENT, "not open");
	OK(bywash_options_set_depth(options, 8));
	OK(bywash_options_set_handshake_timeout(options, 1000000));
	OK(bywash_socket_pair(fds));
	FAILS(bywash_path_over(fds[0], options, &path), BYWASH_ERROR_TIMED_OUT, "");
	close(fds[1]);
	struct bywash_options dead = options;
	OK(bywash_options_free(&options));
	FAILS(bywash_path_over(0, dead, &path), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_connect("/nowhere/at/all", DEFAULTS, &path), BYWASH_ERROR_IO, "/nowhere/at/all");
	CHECK(bywash_last_error_number() == 2);
	struct bywash_container none[1] = {{0}};
	FAILS(bywash_ship_several(one, none, 0, 0), BYWASH_ERROR_PIECES, "of 0 containers");
	FAILS(bywash_ship_several(one, none, 65, 0), BYWASH_ERROR_PIECES, "has 1 to 64");
}

/* What cannot be shipped stays with who wanted to ship it. */
static void cargo_that_comes_back(void)
{
	struct bywash_options options = small(BYWASH_CLASS_CHECKED);
	struct bywash_path three = {0}, four = {0};
	uint8_t *bytes = NULL;
	size_t length = 0;
	OK(bywash_options_set_depth(options, 2));
	both_ends(options, &three, &four);
	struct bywash_container container = filled(one, 1000, 7), before = container;
	FAILS(bywash_ship(three, &container, BYWASH_FOREVER), BYWASH_ERROR_UNFIT, "another path");
	CHECK(container.id != 0 && container.id != before.id);
	FAILS(bywash_free(&before), BYWASH_ERROR_HANDLE, "");
	OK(bywash_container_map(container, &bytes, &length));
	CHECK(length == 1000 && bytes[999] == byte_at(999, 7));
	OK(bywash_ship(one, &container, BYWASH_FOREVER));

	/* A message that finds no room is still a message. */
	struct bywash_message message = {0};
	OK(bywash_receive(two, 10 * SECOND, &message));
	int answer;
	do {
		struct bywash_container filler = filled(three, 10, 0);
		answer = bywash_ship(three, &filler, 1000000);
		OK(bywash_free(&filler));
	} while (answer == BYWASH_OK);
	CHECK(answer == BYWASH_ERROR_TIMED_OUT);
	FAILS(bywash_forward(three, &message, 1000000), BYWASH_ERROR_TIMED_OUT, "");
	check_piece(message, 0, 1000, 7);

	/* So are several that were to go together. */
	struct bywash_shipment both[2] = {{filled(three, 300, 8), {0}}, {{0}, message}};
	FAILS(bywash_ship_cargo(three, both, 2, 1000000), BYWASH_ERROR_TIMED_OUT, "");
	OK(bywash_container_map(both[0].container, &bytes, &length));
	CHECK(length == 300 && bytes[299] == byte_at(299, 8));
	check_piece(both[1].message, 0, 1000, 7);
	struct bywash_shipment mixed[1] = {{both[0].container, both[1].message}};
	FAILS(bywash_ship_cargo(three, mixed, 1, 0), BYWASH_ERROR_ARGUMENT, "one place");
	OK(bywash_free(&both[0].container));
	OK(bywash_message_free(&both[1].message));

	/* The other end is gone. */
	OK(bywash_path_close(&four));
	container = filled(three, 10, 0);
	FAILS(bywash_ship(three, &container, BYWASH_FOREVER), BYWASH_ERROR_CLOSED, "closed");
	OK(bywash_free(&container));
	struct bywash_path dead = three;
	OK(bywash_path_close(&three));
	FAILS(bywash_path_close(&dead), BYWASH_ERROR_HANDLE, "closed");
	FAILS(bywash_alloc(dead, 1, 0, &container), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_receive(dead, 0, &message), BYWASH_ERROR_HANDLE, "");
	container = filled(one, 10, 0);
	before = container;
	FAILS(bywash_ship(dead, &container, 0), BYWASH_ERROR_HANDLE, "");
	CHECK(container.id == before.id);
	OK(bywash_free(&container));
	OK(bywash_options_free(&options));
}

/* A sealed container that found no room is sealed, and can go later. */
static void sealed_and_not_shipped(void)
{
	struct bywash_options options = small(BYWASH_CLASS_SEALED);
	struct bywash_path three = {0}, four = {0};
	struct bywash_container container = {0};
	struct bywash_message message = {0};
	uint8_t *bytes = NULL;
	size_t length = 0;
	int shipped = 0;
	both_ends(options, &three, &four);
	OK(bywash_options_free(&options));
	FAILS(bywash_alloc(three, 0, 0, &container), BYWASH_ERROR_UNFIT, "at least one byte");
	for (;; shipped++) {
		container = filled(three, 100, (size_t)shipped);
		if (bywash_ship(three, &container, 1000000) != BYWASH_OK)
			break;
		CHECK(shipped < 10000);
	}
	OK(bywash_container_length(container, &length));
	CHECK(length == 100);
	FAILS(bywash_container_map(container, &bytes, &length), BYWASH_ERROR_NOT_MAPPED, "sealed");
	for (int number = 0; number <= shipped; number++) {
		OK(bywash_receive(four, 10 * SECOND, &message));
		check_piece(message, 0, 100, (size_t)number);
		OK(bywash_message_free(&message));
		if (container.id != 0)
			OK(bywash_ship(three, &container, 10 * SECOND));
	}
	OK(bywash_path_close(&three));
	OK(bywash_path_close(&four));
}

static void *another_thread(void *argument)
{
	(void)argument;
	CHECK(strcmp(bywash_last_error_message(), "") == 0);
	return NULL;
}

int main(void)
{
	CHECK(strcmp(bywash_last_error_message(), "") == 0);
	struct bywash_options options = small(BYWASH_CLASS_CHECKED);
	both_ends(options, &one, &two);
	OK(bywash_options_free(&options));
	dead_containers();
	dead_messages();
	null_pointers();
	numbers_that_cannot_be();
	cargo_that_comes_back();
	sealed_and_not_shipped();
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, another_thread, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	OK(bywash_path_close(&one));
	OK(bywash_path_close(&two));
	return 0;
}
