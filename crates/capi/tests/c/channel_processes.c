/* Channels between two processes: forked before they are made, killed, and what a child must not use. */
#include "channel.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void reap_child(pid_t child, int by_signal)
{
	int status = 0;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(by_signal ? WIFSIGNALED(status) && WTERMSIG(status) == by_signal
			: WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static struct bywash_channel_client client_of(int fds[2])
{
	struct bywash_channel_client client = {0};
	struct bywash_channel_client_options options = small_client(0);
	CHECK(close(fds[1]) == 0);
	OK(bywash_channel_client_over(fds[0], options, &client));
	OK(bywash_channel_client_options_free(&options));
	return client;
}

static struct bywash_channel_server server_of(int fds[2])
{
	struct bywash_channel_server server = {0};
	CHECK(close(fds[0]) == 0);
	OK(bywash_channel_server_over(fds[1], SERVER_DEFAULTS, &server));
	return server;
}

static void sums(struct bywash_channel_client client)
{
	struct bywash_completion completion;
	for (size_t number = 0; number < 200; number++) {
		uint64_t expected = number;
		for (size_t at = 0; at < 1000; at++)
			expected += byte_at(at, number);
		struct bywash_submission submission = {
			.opcode = 5, .arguments = {number}, .buffer = full_buffer(client, 1000, number)};
		OK(bywash_channel_client_submit(client, &submission, NULL));
		OK(bywash_channel_client_reap(client, 60 * SECOND, &completion));
		CHECK(completion.value == expected && completion.status == 5);
		OK(bywash_buffer_free(&completion.buffer));
	}
}

static void there_and_back(void)
{
	int fds[2];
	OK(bywash_socket_pair(fds));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct bywash_channel_server server = server_of(fds);
		serve_sums(server);
		OK(bywash_channel_server_close(&server));
		exit(0);
	}
	struct bywash_channel_client client = client_of(fds);
	struct bywash_credentials peer = {0, 0, 0};
	OK(bywash_channel_client_peer(client, &peer));
	CHECK(peer.pid == (uint32_t)child);
	sums(client);
	OK(bywash_channel_client_close(&client));
	reap_child(child, 0);
}

/* One client is accepted as such, the other one by its descriptor. */
static void a_name_in_the_file_system(const char *folder)
{
	char name[100];
	struct bywash_listener listener = {0};
	snprintf(name, sizeof name, "%s/channels.%d", folder, (int)getpid());
	OK(bywash_listen(name, &listener));
	for (int by_descriptor = 0; by_descriptor < 2; by_descriptor++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			struct bywash_channel_client client = {0};
			OK(bywash_channel_client_connect(name, CLIENT_DEFAULTS, &client));
			sums(client);
			OK(bywash_channel_client_close(&client));
			_exit(0);
		}
		struct bywash_channel_server server = {0};
		struct bywash_credentials peer = {0, 0, 0};
		if (by_descriptor) {
			int fd = -1;
			OK(bywash_accept_fd(listener, &fd));
			OK(bywash_channel_server_over(fd, SERVER_DEFAULTS, &server));
		} else {
			OK(bywash_channel_server_accept(listener, SERVER_DEFAULTS, &server));
		}
		OK(bywash_channel_server_peer(server, &peer));
		CHECK(peer.pid == (uint32_t)child && peer.uid == geteuid() && peer.gid == getegid());
		serve_sums(server);
		OK(bywash_channel_server_close(&server));
		reap_child(child, 0);
	}
	OK(bywash_listener_close(&listener));
	CHECK(unlink(name) == 0);
}

/* What it had completed before arrives, and then the news; by waiting, or in an event loop. */
static void a_server_that_is_killed(int in_an_event_loop)
{
	int fds[2];
	OK(bywash_socket_pair(fds));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct bywash_channel_server server = server_of(fds);
		struct bywash_request_contents contents;
		struct bywash_request request = next_of(server, &contents);
		OK(bywash_request_complete(&request, 1, 0));
		next_of(server, &contents);
		for (;;)
			pause();
	}
	struct bywash_channel_client client = client_of(fds);
	struct bywash_completion completion;
	struct bywash_submission submission = {.opcode = 1, .buffer = full_buffer(client, 1000, 1)};
	submit_plain(client, 1);
	OK(bywash_channel_client_submit(client, &submission, NULL));
	OK(bywash_channel_client_reap(client, 60 * SECOND, &completion));
	CHECK(completion.status == 1);
	FAILS(bywash_channel_client_reap(client, 0, &completion), BYWASH_ERROR_TIMED_OUT, "");
	int ready = -1;
	struct pollfd polled = {.events = POLLIN};
	OK(bywash_channel_client_fd(client, &polled.fd));
	OK(bywash_channel_client_arm(client, &ready));
	CHECK(ready == 0);
	CHECK(kill(child, SIGKILL) == 0);
	reap_child(child, SIGKILL);
	if (in_an_event_loop) {
		CHECK(poll(&polled, 1, 60000) == 1);
		FAILS(bywash_channel_client_arm(client, &ready), BYWASH_ERROR_PEER_DIED, "died");
	}
	FAILS(bywash_channel_client_reap(client, BYWASH_FOREVER, &completion), BYWASH_ERROR_PEER_DIED, "died");
	/* To submit goes on until the channel is full: who reaps hears of the end. */
	submit_plain(client, 1);
	OK(bywash_channel_client_close(&client));
}

static void a_client_that_is_killed(int in_an_event_loop)
{
	int fds[2];
	OK(bywash_socket_pair(fds));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct bywash_channel_client client = client_of(fds);
		struct bywash_submission submission = {.opcode = 1, .buffer = full_buffer(client, 1000, 1)};
		OK(bywash_channel_client_submit(client, &submission, NULL));
		for (;;)
			pause();
	}
	struct bywash_channel_server server = server_of(fds);
	struct bywash_request_contents contents;
	struct bywash_request request = next_of(server, &contents), none = {0};
	struct pollfd polled = {.events = POLLIN};
	int ready = -1;
	uint8_t byte = 0;
	OK(bywash_channel_server_fd(server, &polled.fd));
	OK(bywash_channel_server_arm(server, &ready));
	CHECK(ready == 0);
	CHECK(kill(child, SIGKILL) == 0);
	reap_child(child, SIGKILL);
	if (in_an_event_loop) {
		CHECK(poll(&polled, 1, 60000) == 1);
		FAILS(bywash_channel_server_arm(server, &ready), BYWASH_ERROR_PEER_DIED, "died");
	}
	FAILS(bywash_channel_server_next(server, BYWASH_FOREVER, &none, &contents), BYWASH_ERROR_PEER_DIED, "died");
	/* Its memory is still there, and to complete what it had asked for is no error. */
	OK(bywash_request_read(request, 999, &byte, 1, NULL));
	CHECK(byte == byte_at(999, 1) && none.id == 0);
	OK(bywash_request_complete(&request, 0, 0));
	OK(bywash_channel_server_close(&server));
}

static void never(void *context, int error, const struct bywash_completion *completion)
{
	(void)context;
	CHECK(error == BYWASH_OK && completion == NULL);
}

static void what_the_parent_made_is_dead_in_the_child(int with_callbacks)
{
	struct bywash_channel_client client = {0};
	struct bywash_channel_server server = {0};
	struct bywash_request_contents contents;
	struct bywash_completion completion;
	both_sides(0, &client, &server);
	struct bywash_submission submission = {.opcode = 1, .buffer = full_buffer(client, 1000, 2)};
	struct bywash_buffer other = full_buffer(client, 10, 3);
	submit_plain(client, 7);
	struct bywash_request request = next_of(server, &contents);
	if (with_callbacks)
		OK(bywash_channel_client_dispatch(client, never, NULL));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct bywash_buffer buffer = {0};
		struct bywash_request none = {0};
		int ready = -1, gone = with_callbacks ? BYWASH_ERROR_BUSY : BYWASH_ERROR_FORKED;
		alarm(60);
		FAILS(bywash_channel_client_submit(client, &submission, NULL), BYWASH_ERROR_FORKED, "forked");
		CHECK(submission.buffer.id != 0);
		FAILS(bywash_buffer_alloc(client, 1, &buffer), BYWASH_ERROR_FORKED, "forked");
		FAILS(bywash_channel_client_reap(client, 0, &completion), gone, "");
		FAILS(bywash_channel_client_arm(client, &ready), gone, "");
		FAILS(bywash_channel_server_next(server, BYWASH_FOREVER, &none, &contents), BYWASH_ERROR_FORKED, "forked");
		FAILS(bywash_channel_server_arm(server, &ready), BYWASH_ERROR_FORKED, "forked");
		FAILS(bywash_request_complete(&request, 9, 9), BYWASH_ERROR_FORKED, "forked");
		if (with_callbacks)
			FAILS(bywash_channel_client_dispatch_stop(client), BYWASH_ERROR_FORKED, "forked");
		OK(bywash_buffer_free(&submission.buffer));
		OK(bywash_buffer_free(&other));
		OK(bywash_channel_client_close(&client));
		OK(bywash_channel_server_close(&server));
		/* What belonged to the thread that is not here any more would be called a leak. */
		if (with_callbacks)
			execl("/bin/true", "true", (char *)NULL);
		_exit(with_callbacks);
	}
	reap_child(child, 0);
	/* And nothing of that concerns the parent. */
	OK(bywash_channel_client_dispatch_stop(client));
	FAILS(bywash_channel_client_reap(client, 0, &completion), BYWASH_ERROR_TIMED_OUT, "");
	OK(bywash_request_complete(&request, 8, 0));
	OK(bywash_channel_client_reap(client, 10 * SECOND, &completion));
	CHECK(completion.status == 8);
	OK(bywash_channel_client_submit(client, &submission, NULL));
	request = next_of(server, &contents);
	OK(bywash_request_complete(&request, 0, 0));
	OK(bywash_channel_client_reap(client, 10 * SECOND, &completion));
	check_buffer(&completion.buffer, 1000, 2);
	check_buffer(&other, 10, 3);
	OK(bywash_channel_client_close(&client));
	OK(bywash_channel_server_close(&server));
}

int main(int count, char **arguments)
{
	CHECK(count == 2);
	there_and_back();
	a_name_in_the_file_system(arguments[1]);
	for (int in_an_event_loop = 0; in_an_event_loop < 2; in_an_event_loop++) {
		a_server_that_is_killed(in_an_event_loop);
		a_client_that_is_killed(in_an_event_loop);
	}
	what_the_parent_made_is_dead_in_the_child(0);
	what_the_parent_made_is_dead_in_the_child(1);
	return 0;
}
