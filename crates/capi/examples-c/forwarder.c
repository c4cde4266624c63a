/* Three processes in a row: the one in the middle hands messages on without mapping or copying a byte.
 *
 *   cc forwarder.c -o forwarder $(pkg-config --cflags --libs bywash) && ./forwarder [messages]
 */
#include "example.h"

#include <string.h>

enum { LENGTH = 4000 };

static void source(struct bywash_path path, long messages)
{
	for (long number = 0; number < messages; number++) {
		struct bywash_container container = {0};
		uint8_t *bytes;
		must(bywash_alloc(path, LENGTH, BYWASH_FOREVER, &container));
		must(bywash_container_map(container, &bytes, NULL));
		memset(bytes, (int)number, LENGTH);
		must(bywash_ship(path, &container, BYWASH_FOREVER));
	}
	must(bywash_path_close(&path));
}

static void forwarder(struct bywash_path from, struct bywash_path to)
{
	struct bywash_message message = {0};
	int answer;
	while ((answer = bywash_receive(from, BYWASH_FOREVER, &message)) == BYWASH_OK) {
		struct bywash_credentials origin;
		size_t length;
		/* What can be seen without a look inside. */
		must(bywash_message_length(message, &length));
		must(bywash_message_origin(message, &origin));
		if (length == LENGTH && origin.uid == geteuid())
			must(bywash_forward(to, &message, BYWASH_FOREVER));
		else
			must(bywash_message_free(&message));
	}
	if (answer != BYWASH_ERROR_CLOSED)
		must(answer);
	/* The sink receives what is on its way before it hears of the end. */
	must(bywash_path_close(&from));
	must(bywash_path_close(&to));
}

static long sink(struct bywash_path path)
{
	struct bywash_message message = {0};
	long messages = 0;
	while (bywash_receive(path, BYWASH_FOREVER, &message) == BYWASH_OK) {
		uint8_t copy[LENGTH];
		must(bywash_copy_to(message, copy, sizeof copy, NULL));
		must(bywash_message_free(&message));
		if (copy[0] == (uint8_t)messages && copy[LENGTH - 1] == (uint8_t)messages)
			messages++;
	}
	must(bywash_path_close(&path));
	return messages;
}

int main(int count, char **arguments)
{
	long messages = count > 1 ? atol(arguments[1]) : 1000000;
	struct bywash_options defaults = {0}, forward = of_class(BYWASH_CLASS_FORWARD);
	int first[2], second[2];
	must(bywash_socket_pair(first));
	must(bywash_socket_pair(second));
	pid_t at_source = fork();
	if (at_source == 0) {
		close(second[0]);
		close(second[1]);
		source(end_of(first, 0, defaults), messages);
		return 0;
	}
	pid_t in_the_middle = fork();
	if (in_the_middle == 0) {
		/* The middle ships nothing of its own: it needs no arena. */
		must(bywash_options_set_arena_bytes(forward, 0));
		struct bywash_path from = end_of(first, 1, forward);
		forwarder(from, end_of(second, 0, forward));
		return 0;
	}
	close(first[0]);
	close(first[1]);
	double start = seconds();
	long received = sink(end_of(second, 1, defaults));
	printf("%ld messages, %.0f ns each\n", received, (seconds() - start) * 1e9 / (double)received);
	must(bywash_options_free(&forward));
	return ended_well(at_source) && ended_well(in_the_middle) && received == messages ? 0 : 1;
}
