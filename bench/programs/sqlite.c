/* Selects and updates by primary key in an SQLite database with a page cache of 100 pages.
 *
 *     sqlite load FILE ROWS
 *     sqlite run  FILE ROWS KIND OPS SEED JOURNAL SYNCHRONOUS MMAP
 *
 * KIND is select-transaction, select-autocommit, update (a transaction of four updates) or commit (one of a single
 * update). JOURNAL is WAL, PERSIST or DELETE, SYNCHRONOUS is OFF, NORMAL or FULL, MMAP the bytes for PRAGMA
 * mmap_size. The last line says how many operations were done, in how many seconds, a sum over what was read or is
 * in the table at the end, and how long transactions took.
 */
#include "latency.h"
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define UPDATES_PER_TRANSACTION 4

static sqlite3 *database;

static void die(const char *what)
{
    fprintf(stderr, "sqlite: %s: %s\n", what, database ? sqlite3_errmsg(database) : "no memory");
    exit(1);
}

static void execute(const char *statement)
{
    if (sqlite3_exec(database, statement, NULL, NULL, NULL) != SQLITE_OK)
        die(statement);
}

static sqlite3_stmt *prepare(const char *text)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(database, text, -1, &statement, NULL) != SQLITE_OK)
        die(text);
    return statement;
}

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void load(uint64_t rows)
{
    execute("PRAGMA page_size=4096; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
            "CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER NOT NULL, pad BLOB NOT NULL); BEGIN");
    sqlite3_stmt *insert = prepare("INSERT INTO t VALUES(?1, ?1 * 7, printf('%0180d', ?1))");
    for (uint64_t row = 1; row <= rows; row++) {
        sqlite3_bind_int64(insert, 1, (sqlite3_int64)row);
        if (sqlite3_step(insert) != SQLITE_DONE)
            die("insert");
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    execute("COMMIT");
}

static uint64_t select_rows(uint64_t rows, uint64_t ops, uint64_t state)
{
    sqlite3_stmt *select = prepare("SELECT k, length(pad) FROM t WHERE id = ?1");
    uint64_t sum = 0;
    for (uint64_t i = 0; i < ops; i++) {
        sqlite3_bind_int64(select, 1, (sqlite3_int64)(next(&state) % rows) + 1);
        if (sqlite3_step(select) != SQLITE_ROW)
            die("select");
        sum = (sum ^ (uint64_t)sqlite3_column_int64(select, 0)) * 0x100000001b3u;
        sum += (uint64_t)sqlite3_column_int64(select, 1);
        sqlite3_reset(select);
    }
    sqlite3_finalize(select);
    return sum;
}

static void update_rows(uint64_t rows, uint64_t ops, uint64_t state, int updates)
{
    sqlite3_stmt *update = prepare("UPDATE t SET k = ?2 WHERE id = ?1");
    sqlite3_stmt *begin = prepare("BEGIN"), *commit = prepare("COMMIT");
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t from = clock_ns();
        if (sqlite3_step(begin) != SQLITE_DONE)
            die("begin");
        sqlite3_reset(begin);
        for (int j = 0; j < updates; j++) {
            sqlite3_bind_int64(update, 1, (sqlite3_int64)(next(&state) % rows) + 1);
            sqlite3_bind_int64(update, 2, (sqlite3_int64)(next(&state) >> 32));
            if (sqlite3_step(update) != SQLITE_DONE)
                die("update");
            sqlite3_reset(update);
        }
        if (sqlite3_step(commit) != SQLITE_DONE)
            die("commit");
        sqlite3_reset(commit);
        note_commit(from);
    }
    sqlite3_finalize(update);
    sqlite3_finalize(begin);
    sqlite3_finalize(commit);
}

static uint64_t total(void)
{
    sqlite3_stmt *statement = prepare("SELECT sum(k) FROM t");
    if (sqlite3_step(statement) != SQLITE_ROW)
        die("sum");
    uint64_t sum = (uint64_t)sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return sum;
}

int main(int count, char **arguments)
{
    if (count < 4 || (!strcmp(arguments[1], "run") && count < 10)) {
        fprintf(stderr, "usage: sqlite load|run FILE ROWS [KIND OPS SEED JOURNAL SYNCHRONOUS MMAP]\n");
        return 2;
    }
    if (sqlite3_open(arguments[2], &database) != SQLITE_OK)
        die(arguments[2]);
    uint64_t rows = strtoull(arguments[3], NULL, 10);
    if (!strcmp(arguments[1], "load")) {
        load(rows);
        sqlite3_close(database);
        return 0;
    }
    const char *kind = arguments[4];
    uint64_t ops = strtoull(arguments[5], NULL, 10), sum = 0;
    uint64_t state = (strtoull(arguments[6], NULL, 10) + 1) * 0x9e3779b97f4a7c15u;
    char settings[256];
    snprintf(settings, sizeof settings,
             "PRAGMA cache_size=100; PRAGMA mmap_size=%s; PRAGMA journal_mode=%s; PRAGMA synchronous=%s",
             arguments[9], arguments[7], arguments[8]);
    execute(settings);
    expect_commits(ops);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (!strcmp(kind, "select-transaction")) {
        execute("BEGIN");
        sum = select_rows(rows, ops, state);
        execute("COMMIT");
    } else if (!strcmp(kind, "select-autocommit")) {
        sum = select_rows(rows, ops, state);
    } else {
        update_rows(rows, ops, state, !strcmp(kind, "commit") ? 1 : UPDATES_PER_TRANSACTION);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    sum += total();
    if (sqlite3_close(database) != SQLITE_OK)
        die("close");
    tell_commits();
    printf("ops=%llu seconds=%.9f sum=%016llx\n", (unsigned long long)ops,
           (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9,
           (unsigned long long)sum);
    return 0;
}
