/* Two processes: forked before the path is made, each end made in its own. And what a child must not use. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void reap(pid_t child, int by_signal)
{
	int status = 0;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(by_signal ? WIFSIGNALED(status) && WTERMSIG(status) == by_signal
			: WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The child's end, or the parent's. */
static struct bywash_path end_of(int fds[2], int mine, struct bywash_options options)
{
	struct bywash_path path = {0};
	CHECK(close(fds[1 - mine]) == 0);
	OK(bywash_path_over(fds[mine], options, &path));
	return path;
}

static void there_and_back(int class_)
{
	int fds[2];
	OK(bywash_socket_pair(fds));
	pid_t child = fork();
	CHECK(child >= 0);
	/* Who only forwards cannot look at what comes back. */
	int class_here = child != 0 && class_ == BYWASH_CLASS_FORWARD ? BYWASH_CLASS_CHECKED : class_;
	struct bywash_options options = small(class_here);
	struct bywash_path path = end_of(fds, child == 0, options);
	OK(bywash_options_free(&options));
	struct bywash_message message = {0};
	if (child == 0) {
		int answer;
		while ((answer = bywash_receive(path, BYWASH_FOREVER, &message)) == BYWASH_OK)
			OK(bywash_forward(path, &message, BYWASH_FOREVER));
		CHECK(answer == BYWASH_ERROR_CLOSED);
		OK(bywash_path_close(&path));
		exit(0);
	}
	for (size_t number = 0; number < 200; number++) {
		size_t size = (size_t[]){8, 1000, 70000}[number % 3];
		struct bywash_container container = filled(path, size, number);
		OK(bywash_ship(path, &container, BYWASH_FOREVER));
		OK(bywash_receive(path, 60 * SECOND, &message));
		check_piece(message, 0, size, number);
		OK(bywash_message_free(&message));
	}
	OK(bywash_path_close(&path));
	reap(child, 0);
}

static void a_peer_that_is_killed(void)
{
	int fds[2];
	OK(bywash_socket_pair(fds));
	struct bywash_options options = small(BYWASH_CLASS_CHECKED);
	pid_t child = fork();
	CHECK(child >= 0);
	struct bywash_path path = end_of(fds, child == 0, options);
	OK(bywash_options_free(&options));
	struct bywash_message message = {0};
	if (child == 0) {
		struct bywash_container container = filled(path, 1000, 1);
		OK(bywash_ship(path, &container, BYWASH_FOREVER));
		for (;;)
			pause();
	}
	OK(bywash_receive(path, 60 * SECOND, &message));
	CHECK(kill(child, SIGKILL) == 0);
	reap(child, SIGKILL);
	struct bywash_message more = {0};
	FAILS(bywash_receive(path, 60 * SECOND, &more), BYWASH_ERROR_PEER_DIED, "died");
	/* What it had shipped is still there. */
	check_piece(message, 0, 1000, 1);
	OK(bywash_message_free(&message));
	OK(bywash_path_close(&path));
}

static void what_the_parent_made_is_dead_in_the_child(void)
{
	struct bywash_options options = small(BYWASH_CLASS_CHECKED);
	struct bywash_path one = {0}, two = {0};
	both_ends(options, &one, &two);
	OK(bywash_options_free(&options));
	struct bywash_container container = filled(one, 1000, 2);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct bywash_container other = {0};
		struct bywash_message message = {0};
		FAILS(bywash_alloc(one, 1000, 0, &other), BYWASH_ERROR_FORKED, "forked");
		FAILS(bywash_receive(two, 0, &message), BYWASH_ERROR_FORKED, "forked");
		FAILS(bywash_ship(one, &container, 0), BYWASH_ERROR_FORKED, "forked");
		OK(bywash_free(&container));
		OK(bywash_path_close(&one));
		OK(bywash_path_close(&two));
		exit(0);
	}
	reap(child, 0);
	/* And nothing of that concerns the parent. */
	struct bywash_message message = {0};
	OK(bywash_ship(one, &container, BYWASH_FOREVER));
	OK(bywash_receive(two, 10 * SECOND, &message));
	check_piece(message, 0, 1000, 2);
	OK(bywash_message_free(&message));
	OK(bywash_path_close(&one));
	OK(bywash_path_close(&two));
}

/* Ships from several threads at a time on one path, which another thread closes meanwhile. */
static struct bywash_path shared;

static void *ships(void *argument)
{
	for (int number = 0; number < 300; number++) {
		struct bywash_container container = {0};
		int answer = bywash_alloc(shared, 500, BYWASH_FOREVER, &container);
		if (answer == BYWASH_OK)
			answer = bywash_ship(shared, &container, BYWASH_FOREVER);
		CHECK(answer == BYWASH_OK || answer == BYWASH_ERROR_HANDLE);
		OK(bywash_free(&container));
	}
	return argument;
}

static void several_threads(int close_early)
{
	struct bywash_options options = small(BYWASH_CLASS_CHECKED);
	struct bywash_path sink = {0};
	both_ends(options, &shared, &sink);
	OK(bywash_options_free(&options));
	pthread_t threads[3];
	for (int number = 0; number < 3; number++)
		CHECK(pthread_create(&threads[number], NULL, ships, NULL) == 0);
	struct bywash_path copy = shared;
	int received = 0, answer = BYWASH_OK;
	struct bywash_message message = {0};
	while (received < 900 && (answer = bywash_receive(sink, 60 * SECOND, &message)) == BYWASH_OK) {
		OK(bywash_message_free(&message));
		if (++received == 100 && close_early)
			OK(bywash_path_close(&copy));
	}
	CHECK(close_early ? received >= 100 && (received == 900 || answer == BYWASH_ERROR_CLOSED) : received == 900);
	for (int number = 0; number < 3; number++)
		CHECK(pthread_join(threads[number], NULL) == 0);
	if (!close_early)
		OK(bywash_path_close(&shared));
	OK(bywash_path_close(&sink));
}

int main(void)
{
	there_and_back(BYWASH_CLASS_CHECKED);
	there_and_back(BYWASH_CLASS_TRUSTED);
	there_and_back(BYWASH_CLASS_SEALED);
	there_and_back(BYWASH_CLASS_FORWARD);
	a_peer_that_is_killed();
	what_the_parent_made_is_dead_in_the_child();
	several_threads(0);
	several_threads(1);
	return 0;
}
