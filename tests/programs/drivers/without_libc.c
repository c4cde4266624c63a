/*
 * Copies a file without any libc, as programs of languages with a run-time of their own do: an entry point
 * of its own, raw system calls, and a second thread made by a raw clone that shares the descriptors.
 *   without_libc FROM TO                                                      (x86-64 and AArch64)
 */
enum { PIECE = 512, STACK = 65536 };

#if defined(__x86_64__)
enum { READ = 0, WRITE = 1, CLOSE = 3, OPENAT = 257, CLONE = 56, EXIT = 60, EXIT_GROUP = 231, YIELD = 24 };

static long call(long number, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}

__asm__(".globl _start\n_start:\n mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");

/* The new thread's stack is empty, so the thread calls `second`, which never returns. */
static long start_thread(long flags, char *stack)
{
	long result;
	__asm__ volatile("mov $0, %%r10\n mov $0, %%r8\n syscall\n test %%rax, %%rax\n jnz 1f\n call second\n1:"
			 : "=a"(result) : "a"((long)CLONE), "D"(flags), "S"(stack), "d"(0L)
			 : "rcx", "r8", "r10", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
enum { READ = 63, WRITE = 64, CLOSE = 57, OPENAT = 56, CLONE = 220, EXIT = 93, EXIT_GROUP = 94, YIELD = 124 };

static long call(long number, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c, x3 __asm__("x3") = d;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}

__asm__(".globl _start\n_start:\n mov x0, sp\n bl begin\n");

static long start_thread(long flags, char *stack)
{
	register long x8 __asm__("x8") = CLONE, x0 __asm__("x0") = flags;
	register char *x1 __asm__("x1") = stack;
	__asm__ volatile("mov x2, 0\n mov x3, 0\n mov x4, 0\n svc 0\n cbnz x0, 1f\n bl second\n1:"
			 : "+r"(x0) : "r"(x8), "r"(x1) : "x2", "x3", "x4", "x30", "memory");
	return x0;
}
#endif

static int from, to;
static volatile int done, failed;
static char stack[STACK] __attribute__((aligned(16)));

__attribute__((used)) void second(void)
{
	char piece[PIECE];
	long got;

	while ((got = call(READ, from, (long)piece, PIECE, 0)) > 0)
		if (call(WRITE, to, (long)piece, got, 0) != got)
			failed = 1;
	if (got < 0)
		failed = 1;
	__sync_synchronize();
	done = 1;
	for (;;)
		call(EXIT, 0, 0, 0, 0);
}

__attribute__((used)) void begin(long *arguments)
{
	enum { AT_FDCWD = -100, O_WRONLY_CREAT_TRUNC = 01 | 0100 | 01000 };
	/* VM, FS, FILES, SIGHAND, THREAD, SYSVSEM */
	const long flags = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000;
	char **argv = (char **)(arguments + 1);

	from = (int)call(OPENAT, AT_FDCWD, (long)argv[1], 0, 0);
	to = (int)call(OPENAT, AT_FDCWD, (long)argv[2], O_WRONLY_CREAT_TRUNC, 0644);
	if (from < 0 || to < 0 || start_thread(flags, stack + STACK) < 0)
		call(EXIT_GROUP, 1, 0, 0, 0);
	while (!done)
		call(YIELD, 0, 0, 0, 0);
	call(EXIT_GROUP, failed, 0, 0, 0);
}
