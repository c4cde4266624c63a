/*
 * A program that relies on SIGSEGV and SIGBUS: own_handlers before|after|both FILE
 *
 * It installs its handlers before its first file operation, after many, or both, and then
 *  - catches its own stores to protected pages (as a garbage collector's write barrier does),
 *  - leaves a fault by siglongjmp, also on an alternate stack after a stack overflow,
 *  - touches a mapping of its own behind the end of a file, which must be a SIGBUS at that address,
 *  - gives read and write bad buffers, which must be EFAULT and no signal,
 *  - asks which handlers are installed, which must be its own,
 *  - dies by SIGSEGV and by SIGBUS in children, whose status it prints.
 * Between all of these it reads and writes small pieces of FILE, many times, and checks them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16, PIECE = 100 };

static unsigned char *barrier;		/* pages that become writable at their first fault */
static volatile int barrier_faults;
static sigjmp_buf back;
static volatile sig_atomic_t leave;	/* leave the next fault by siglongjmp */
static void *volatile fault_address;
static volatile int fault_signal;
static int fd;
static unsigned char *shadow;		/* expected contents of the file, shared with children */
enum { BYTES = PAGES * PAGE };

static void must(int ok, const char *what)
{
	if (!ok) {
		printf("failed: %s (%s)\n", what, strerror(errno));
		exit(1);
	}
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
	unsigned char *at = info->si_addr;

	(void)context;
	if (signal == SIGSEGV && at >= barrier && at < barrier + PAGES * PAGE && !leave) {
		barrier_faults++;
		mprotect((void *)((unsigned long)at & ~(PAGE - 1UL)), PAGE, PROT_READ | PROT_WRITE);
		return;
	}
	fault_address = at;
	fault_signal = signal;
	if (!leave)
		_exit(99);
	leave = 0;
	siglongjmp(back, 1);
}

static void install(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	static char alternate[64 * 1024];
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof alternate };

	must(sigaltstack(&stack, NULL) == 0, "sigaltstack");
	must(sigaction(SIGSEGV, &action, NULL) == 0, "sigaction SIGSEGV");
	must(sigaction(SIGBUS, &action, NULL) == 0, "sigaction SIGBUS");
}

static void says_whose(void)
{
	struct sigaction now;

	for (int signal = SIGBUS; signal <= SIGSEGV; signal += SIGSEGV - SIGBUS) {
		must(sigaction(signal, NULL, &now) == 0, "sigaction");
		printf("handler %d is %s, flags %x\n", signal,
		       now.sa_sigaction == on_fault ? "ours" : now.sa_handler == SIG_DFL ? "the default" : "foreign",
		       now.sa_flags & (SA_SIGINFO | SA_ONSTACK | SA_NODEFER | (int)SA_RESETHAND));
	}
}

/* Writes and reads small pieces of the file, many times, and checks what it has read. */
static void work(unsigned seed)
{
	unsigned char piece[PIECE];

	for (int round = 0; round < 400; round++) {
		seed = seed * 1103515245 + 12345;
		unsigned at = seed / 65536 * 7 % (BYTES - PIECE);
		if (round % 3 == 0) {
			memset(piece, round, PIECE);
			memcpy(shadow + at, piece, PIECE);
			must(pwrite(fd, piece, PIECE, at) == PIECE, "pwrite");
		} else {
			must(pread(fd, piece, PIECE, at) == PIECE, "pread");
			must(memcmp(piece, shadow + at, PIECE) == 0, "what was read");
		}
	}
}

static void write_barrier(void)
{
	barrier_faults = 0;
	must(mprotect(barrier, PAGES * PAGE, PROT_READ) == 0, "mprotect");
	for (int page = 0; page < PAGES; page += 2)
		((volatile unsigned char *)barrier)[page * PAGE + 5] = 1;
	work(1);
	/* The kernel does not store into a protected page: pread fails with EFAULT, and no signal is raised. */
	ssize_t got = pread(fd, barrier + PAGE + 7, PIECE, 0);
	printf("barrier faults %d, pread into a protected page %zd %s\n", barrier_faults, got,
	       got < 0 ? strerror(errno) : "");
}

static void bad_buffers(void)
{
	void *volatile nowhere = (void *)64;
	char *half = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(half != MAP_FAILED && munmap(half + PAGE, PAGE) == 0, "half a buffer");
	for (int round = 0; round < 50; round++) {
		must(pread(fd, nowhere, PIECE, 0) == -1 && errno == EFAULT, "pread to nowhere");
		must(pwrite(fd, nowhere, PIECE, 0) == -1 && errno == EFAULT, "pwrite from nowhere");
		must(pread(fd, half + PAGE, PIECE, 0) == -1 && errno == EFAULT, "pread behind the buffer");
	}
	work(2);
}

static void jump_out(void)
{
	for (int round = 0; round < 20; round++) {
		char *nowhere = (char *)(8UL * round + 16);
		if (sigsetjmp(back, 1) == 0) {
			leave = 1;
			*(volatile char *)nowhere = 1;
		}
		must(fault_signal == SIGSEGV && fault_address == nowhere, "the address of a fault");
		work(3 + (unsigned)round);
	}
	printf("left %d faults\n", 20);
}

static void behind_the_end(const char *name)
{
	char other[256];
	snprintf(other, sizeof other, "%s.short", name);
	int file = open(other, O_RDWR | O_CREAT | O_TRUNC, 0644);
	must(file >= 0 && ftruncate(file, 3 * PAGE) == 0, other);
	char *map = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	must(map != MAP_FAILED, "mmap");
	map[2 * PAGE] = 'x';
	must(ftruncate(file, PAGE) == 0, "ftruncate");
	if (sigsetjmp(back, 1) == 0) {
		leave = 1;
		*(volatile char *)(map + 2 * PAGE + 8) = 'y';
	}
	must(fault_signal == SIGBUS && fault_address == map + 2 * PAGE + 8, "the SIGBUS");
	printf("SIGBUS behind the end\n");
	/* System calls meet the same end of the file without a signal: 0 bytes, or EFAULT. */
	printf("pread behind the end %zd, ", pread(file, shadow, 0, 2 * PAGE));
	printf("read from a mapping that lost its file %zd\n", pwrite(fd, map + 2 * PAGE, PIECE, 0));
	must(close(file) == 0 && unlink(other) == 0, "close");
}

#pragma GCC diagnostic ignored "-Winfinite-recursion"
static int overflow(volatile char *above)
{
	volatile char frame[10000];

	frame[0] = above[0];
	return overflow(frame) + frame[0];
}

static void *overflow_a_thread(void *unused)
{
	static char alternate[64 * 1024];
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof alternate };
	char first = 1;

	must(sigaltstack(&stack, NULL) == 0, "sigaltstack");
	if (sigsetjmp(back, 1) == 0) {
		leave = 1;
		overflow(&first);
	}
	printf("left a stack overflow by signal %d\n", fault_signal);
	return unused;
}

static void die(int signal, void (*handler)(int))
{
	int status;

	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		struct sigaction action = { .sa_handler = handler };
		must(sigaction(signal, &action, NULL) == 0, "sigaction");
		work(4);
		if (signal == SIGSEGV)
			*(volatile char *)24 = 1;
		raise(signal);
		_exit(0);
	}
	must(waitpid(child, &status, 0) == child, "waitpid");
	printf("child: %s %d\n", WIFSIGNALED(status) ? "signal" : "exit",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void once(int signal)
{
	_exit(40 + signal);
}

int main(int argc, char **argv)
{
	pthread_t thread;

	must(argc == 3, "usage: own_handlers before|after|both FILE");
	says_whose();
	if (strcmp(argv[1], "after"))
		install();
	shadow = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(shadow != MAP_FAILED, "mmap");
	fd = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0644);
	must(fd >= 0 && write(fd, shadow, BYTES) == BYTES, "open");
	work(0);
	if (strcmp(argv[1], "before"))
		install();
	says_whose();
	barrier = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(barrier != MAP_FAILED, "mmap");
	write_barrier();
	bad_buffers();
	jump_out();
	behind_the_end(argv[2]);
	must(pthread_create(&thread, NULL, overflow_a_thread, NULL) == 0, "pthread_create");
	must(pthread_join(thread, NULL) == 0, "pthread_join");
	work(5);
	for (int signal = SIGBUS; signal <= SIGSEGV; signal += SIGSEGV - SIGBUS) {
		die(signal, SIG_DFL);
		die(signal, once);
	}
	says_whose();
	write_barrier();
	printf("the end\n");
	return 0;
}
