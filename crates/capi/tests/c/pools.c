/* Pools: containers for a process that maps the arena by itself, here this one. */
#include "check.h"

#include <errno.h>
#include <sys/mman.h>

static const struct bywash_pool NO_POOL = {0};

static void a_reader_can_only_read(void)
{
	struct bywash_pool pool = {0};
	struct bywash_pool_container container = {0}, copy;
	struct bywash_memory_range range = {0};
	uint8_t *bytes = NULL, *seen;
	size_t length = 0, size = 0;
	int fd = -1;
	OK(bywash_pool_create(100000, BYWASH_TRUST_READER, &pool));
	OK(bywash_pool_memory(pool, &fd, &size));
	CHECK(fd >= 0 && size >= 100000);
	OK(bywash_pool_alloc(pool, 5000, &container));
	OK(bywash_pool_container_map(container, &bytes, &length));
	CHECK(length == 5000);
	memcpy(bytes + 4996, "last", 4);
	OK(bywash_pool_container_memory(container, &range));
	CHECK(range.fd == fd && range.offset % 4096 == 0 && range.length == 5000);
	CHECK(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
	seen = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(seen != MAP_FAILED && memcmp(seen + range.offset + 4996, "last", 4) == 0);

	FAILS(bywash_pool_container_returned(container), BYWASH_ERROR_NOT_MAPPED, "was not shipped");
	OK(bywash_pool_container_ship(container));
	FAILS(bywash_pool_container_ship(container), BYWASH_ERROR_NOT_MAPPED, "was shipped");
	FAILS(bywash_pool_container_map(container, &bytes, NULL), BYWASH_ERROR_NOT_MAPPED, "returned()");
	OK(bywash_pool_container_memory(container, &range));
	OK(bywash_pool_container_returned(container));
	OK(bywash_pool_container_map(container, &bytes, NULL));
	bytes[0] = 'x';
	CHECK(seen[range.offset] == 'x');
	/* The container keeps the memory of a pool that is freed. */
	OK(bywash_pool_free(&pool));
	CHECK(pool.id == 0);
	bytes[0] = 'y';
	CHECK(seen[range.offset] == 'y');
	copy = container;
	OK(bywash_pool_container_free(&container));
	CHECK(container.id == 0);
	FAILS(bywash_pool_container_map(copy, &bytes, NULL), BYWASH_ERROR_HANDLE, "");
	OK(bywash_pool_container_free(&container));
	munmap(seen, size);
}

static void what_is_shipped_is_not_used_again(void)
{
	struct bywash_pool pool = {0};
	struct bywash_pool_container one = {0}, other = {0};
	uint8_t *seen;
	size_t size = 0;
	int fd = -1;
	OK(bywash_pool_create(4096, BYWASH_TRUST_WRITER, &pool));
	OK(bywash_pool_memory(pool, &fd, &size));
	seen = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(seen != MAP_FAILED);
	munmap(seen, size);
	OK(bywash_pool_alloc(pool, size, &one));
	FAILS(bywash_pool_alloc(pool, 1, &other), BYWASH_ERROR_NO_ROOM, "holds 4096 in 1");
	OK(bywash_pool_container_ship(one));
	OK(bywash_pool_container_free(&one));
	FAILS(bywash_pool_alloc(pool, 1, &other), BYWASH_ERROR_NO_ROOM, "has 4096 in 1");
	OK(bywash_pool_free(&pool));
}

static void errors(void)
{
	struct bywash_pool pool = {0};
	struct bywash_pool_container container = {0};
	FAILS(bywash_pool_create(0, BYWASH_TRUST_READER, &pool), BYWASH_ERROR_OPTION, "the pool is 0");
	FAILS(bywash_pool_create(1, 2, &pool), BYWASH_ERROR_ARGUMENT, "the trust 2");
	FAILS(bywash_pool_create(1, 0, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_pool_alloc(NO_POOL, 1, &container), BYWASH_ERROR_HANDLE, "");
	FAILS(bywash_pool_memory(NO_POOL, NULL, NULL), BYWASH_ERROR_HANDLE, "");
	OK(bywash_pool_create(1, BYWASH_TRUST_READER, &pool));
	FAILS(bywash_pool_alloc(pool, 1 << 20, &container), BYWASH_ERROR_TOO_LARGE, "1048576");
	FAILS(bywash_pool_alloc(pool, 1, NULL), BYWASH_ERROR_ARGUMENT, "null");
	FAILS(bywash_pool_memory(pool, NULL, NULL), BYWASH_ERROR_ARGUMENT, "null");
	OK(bywash_pool_free(&pool));
}

int main(void)
{
	a_reader_can_only_read();
	what_is_shipped_is_not_used_again();
	errors();
	return 0;
}
