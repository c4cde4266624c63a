/* Random look-ups and updates in a Berkeley DB database whose cache is smaller than its data.
 *
 *     berkeley load DIR btree|hash none|nosync|sync RECORDS
 *     berkeley run  DIR btree|hash none|nosync|sync RECORDS OPS CACHE SEED
 *
 * One operation in four updates a record, the others look one up; with transactions, four operations make
 * one transaction. The last line says how many operations were done, in how many seconds, a sum over every value
 * that was read, and how long transactions took.
 */
#include "latency.h"
#include <db.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VALUE_BYTES 100
#define OPS_PER_TRANSACTION 4

static DB_ENV *environment;
static DB *database;

static void check(int result, const char *what)
{
    if (result != 0) {
        fprintf(stderr, "berkeley: %s: %s\n", what, db_strerror(result));
        exit(1);
    }
}

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Keys in an order of their own, so that neighbours in number are not neighbours in the tree. */
static uint64_t key_of(uint64_t record)
{
    return (record + 1) * 0x9e3779b97f4a7c15u;
}

static void open_all(const char *directory, const char *type, const char *mode, uint32_t cache)
{
    int transactions = strcmp(mode, "none") != 0;
    uint32_t flags = DB_CREATE | DB_PRIVATE | DB_INIT_MPOOL;
    if (transactions)
        flags |= DB_INIT_TXN | DB_INIT_LOG | DB_INIT_LOCK;
    check(db_env_create(&environment, 0), "environment");
    check(environment->set_cachesize(environment, 0, cache, 1), "cache size");
    if (!strcmp(mode, "nosync"))
        check(environment->set_flags(environment, DB_TXN_NOSYNC, 1), "NOSYNC");
    check(environment->open(environment, directory, flags, 0644), directory);
    check(db_create(&database, environment, 0), "database");
    check(database->set_pagesize(database, 4096), "page size");
    check(database->open(database, NULL, "data.db", NULL, !strcmp(type, "hash") ? DB_HASH : DB_BTREE,
                         DB_CREATE | (transactions ? DB_AUTO_COMMIT : 0), 0644),
          "data.db");
}

static void close_all(void)
{
    check(database->close(database, 0), "close data.db");
    check(environment->close(environment, 0), "close the environment");
}

static void put(DB_TXN *transaction, uint64_t record, uint64_t word)
{
    char value[VALUE_BYTES];
    uint64_t key = key_of(record);
    DBT k = {.data = &key, .size = sizeof key}, v = {.data = value, .size = sizeof value};
    memset(value, (int)(word & 0xff), sizeof value);
    memcpy(value, &word, sizeof word);
    check(database->put(database, transaction, &k, &v, 0), "put");
}

static uint64_t get(DB_TXN *transaction, uint64_t record)
{
    char value[VALUE_BYTES];
    uint64_t key = key_of(record), word;
    DBT k = {.data = &key, .size = sizeof key};
    DBT v = {.data = value, .ulen = sizeof value, .flags = DB_DBT_USERMEM};
    check(database->get(database, transaction, &k, &v, 0), "get");
    memcpy(&word, value, sizeof word);
    return word;
}

int main(int count, char **arguments)
{
    if (count < 6 || (!strcmp(arguments[1], "run") && count < 9)) {
        fprintf(stderr, "usage: berkeley load|run DIR btree|hash none|nosync|sync RECORDS [OPS CACHE SEED]\n");
        return 2;
    }
    const char *directory = arguments[2], *type = arguments[3], *mode = arguments[4];
    uint64_t records = strtoull(arguments[5], NULL, 10);
    if (!strcmp(arguments[1], "load")) {
        open_all(directory, type, "none", 64 << 20);
        for (uint64_t record = 0; record < records; record++)
            put(NULL, record, record);
        close_all();
        return 0;
    }
    uint64_t ops = strtoull(arguments[6], NULL, 10);
    uint64_t state = (strtoull(arguments[8], NULL, 10) + 1) * 0x9e3779b97f4a7c15u, sum = 0;
    int transactions = strcmp(mode, "none") != 0;
    DB_TXN *transaction = NULL;
    struct timespec from, to;

    open_all(directory, type, mode, (uint32_t)strtoul(arguments[7], NULL, 10));
    ops -= ops % OPS_PER_TRANSACTION;
    expect_commits(ops / OPS_PER_TRANSACTION);
    uint64_t begun = 0;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (uint64_t i = 0; i < ops; i++) {
        if (transactions && i % OPS_PER_TRANSACTION == 0) {
            begun = clock_ns();
            check(environment->txn_begin(environment, NULL, &transaction, 0), "begin");
        }
        uint64_t record = next(&state) % records;
        if (i % 4 == 3)
            put(transaction, record, next(&state));
        else
            sum = (sum ^ get(transaction, record)) * 0x100000001b3u;
        if (transactions && i % OPS_PER_TRANSACTION == OPS_PER_TRANSACTION - 1) {
            check(transaction->commit(transaction, 0), "commit");
            note_commit(begun);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    close_all();
    tell_commits();
    printf("ops=%llu seconds=%.9f sum=%016llx\n", (unsigned long long)ops,
           (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9,
           (unsigned long long)sum);
    return 0;
}
