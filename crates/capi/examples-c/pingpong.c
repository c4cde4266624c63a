/* A message goes to another process and comes back, again and again: how long does that take?
 *
 *   cc pingpong.c -o pingpong $(pkg-config --cflags --libs bywash) && ./pingpong [rounds]
 */
#include "example.h"

/* The other process sends everything back as it came. */
static void pong(struct bywash_path path)
{
	struct bywash_message message = {0};
	int answer;
	while ((answer = bywash_receive(path, BYWASH_FOREVER, &message)) == BYWASH_OK)
		must(bywash_forward(path, &message, BYWASH_FOREVER));
	if (answer != BYWASH_ERROR_CLOSED)
		must(answer);
	must(bywash_path_close(&path));
}

static void ping(struct bywash_path path, long rounds)
{
	struct bywash_container container = {0};
	struct bywash_message message = {0};
	double start = seconds();
	for (long round = 0; round < rounds; round++) {
		uint8_t *bytes;
		must(bywash_alloc(path, 64, BYWASH_FOREVER, &container));
		must(bywash_container_map(container, &bytes, NULL));
		bytes[0] = (uint8_t)round;
		must(bywash_ship(path, &container, BYWASH_FOREVER));
		must(bywash_receive(path, BYWASH_FOREVER, &message));
		must(bywash_message_free(&message));
	}
	printf("%ld rounds, %.0f ns each\n", rounds, (seconds() - start) * 1e9 / (double)rounds);
	must(bywash_path_close(&path));
}

int main(int count, char **arguments)
{
	long rounds = count > 1 ? atol(arguments[1]) : 1000000;
	struct bywash_options defaults = {0};
	int fds[2];
	must(bywash_socket_pair(fds));
	/* Fork first: each process makes its own end. */
	pid_t child = fork();
	if (child == 0) {
		pong(end_of(fds, 1, defaults));
		return 0;
	}
	ping(end_of(fds, 0, defaults), rounds);
	return ended_well(child) ? 0 : 1;
}
