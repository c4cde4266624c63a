// Small database: SQLite with a table and an index, filled, changed and queried by one connection.
//
//     database FILE [--rows 1000] [--rows-per-commit 50] [--log] [--cache-pages 100]
//
// Each transaction ends with a commit, which waits until its changes are on the disk: SQLite calls fsync(2) or
// fdatasync(2) for each. By default it keeps a rollback journal; with --log it keeps a write-ahead log. What the queries
// return is printed as a digest, with the counts by which two runs can be compared.
//
// It needs SQLite's amalgamation (sqlite3.c, sqlite3.h), and runs on Linux as it is:
//     gcc -O1 -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION database.c sqlite3.c -lm
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sqlite3.h"

static sqlite3 *database;
static uint64_t digest = 14695981039346656037u;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, sqlite3_errmsg(database));
    exit(1);
}

static void execute(const char *statement) {
    if (sqlite3_exec(database, statement, NULL, NULL, NULL)) fail(statement);
}

static sqlite3_stmt *prepare(const char *statement) {
    sqlite3_stmt *prepared;
    if (sqlite3_prepare_v2(database, statement, -1, &prepared, NULL)) fail(statement);
    return prepared;
}

// Runs a statement that returns no rows, and resets it for its next use.
static void run(sqlite3_stmt *statement) {
    if (sqlite3_step(statement) != SQLITE_DONE || sqlite3_reset(statement)) fail(sqlite3_sql(statement));
}

// Adds a text to the digest (FNV-1a), with its end.
static void add_to_digest(const char *text) {
    do digest = (digest ^ (unsigned char)*text) * 1099511628211u;
    while (*text++);
}

// Runs a query, adds all that it returns to the digest, and returns the number of rows.
static long query(const char *text) {
    sqlite3_stmt *statement = prepare(text);
    long rows = 0;
    int step;
    for (; (step = sqlite3_step(statement)) == SQLITE_ROW; rows++) {
        for (int column = 0; column < sqlite3_column_count(statement); column++) {
            const unsigned char *value = sqlite3_column_text(statement, column);
            add_to_digest(value ? (const char *)value : "NULL");
        }
    }
    if (step != SQLITE_DONE) fail(text);
    sqlite3_finalize(statement);
    return rows;
}

// Returns the next number of a sequence that is the same in each run (Lehmer, modulo 2^31 - 1).
static long next_number(void) {
    static uint64_t state = 20031;
    state = state * 48271 % 2147483647;
    return state;
}

// Inserts rows in transactions, and changes an older row after every fifth one.
static void fill(long rows, long rows_per_commit) {
    sqlite3_stmt *insert = prepare("INSERT INTO account (id, owner, balance, note) VALUES (?, ?, ?, ?)");
    sqlite3_stmt *update = prepare("UPDATE account SET balance = balance + ? WHERE id = ?");
    for (long row = 0; row < rows; row++) {
        char owner[32], note[80];
        if (row % rows_per_commit == 0) execute("BEGIN IMMEDIATE");
        snprintf(owner, sizeof owner, "owner%ld", next_number() % (rows / 4 + 1));
        snprintf(note, sizeof note, "%0*ld", (int)(10 + next_number() % 60), row);
        sqlite3_bind_int64(insert, 1, row);
        sqlite3_bind_text(insert, 2, owner, -1, SQLITE_TRANSIENT);
        sqlite3_bind_double(insert, 3, next_number() % 100000 / 100.0);
        sqlite3_bind_text(insert, 4, note, -1, SQLITE_TRANSIENT);
        run(insert);
        if (row % 5 == 4) {
            sqlite3_bind_double(update, 1, next_number() % 1000 / 10.0);
            sqlite3_bind_int64(update, 2, next_number() % (row + 1));
            run(update);
        }
        if (row % rows_per_commit == rows_per_commit - 1 || row == rows - 1) execute("COMMIT");
    }
    sqlite3_finalize(insert);
    sqlite3_finalize(update);
}

static long parse_number(const char *option, const char *text) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < 1 || value > 100000000) {
        fprintf(stderr, "--%s needs a number from 1 to 100000000, not '%s'\n", option, text);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"rows", required_argument, NULL, 'r'},
        {"rows-per-commit", required_argument, NULL, 'c'},
        {"log", no_argument, NULL, 'l'},
        {"cache-pages", required_argument, NULL, 'p'},
        {0},
    };
    long rows = 1000, rows_per_commit = 50, pages = 100;
    int has_log = 0, option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'r': rows = parse_number("rows", optarg); break;
        case 'c': rows_per_commit = parse_number("rows-per-commit", optarg); break;
        case 'l': has_log = 1; break;
        case 'p': pages = parse_number("cache-pages", optarg); break;
        default: return 2;
        }
    }
    if (argc - optind != 1) {
        fprintf(stderr, "usage: %s FILE [--rows 1000] [--rows-per-commit 50] [--log] [--cache-pages 100]\n", argv[0]);
        return 2;
    }
    if (sqlite3_open(argv[optind], &database)) fail(argv[optind]);
    char setting[60];
    snprintf(setting, sizeof setting, "PRAGMA cache_size = %ld", pages);
    execute(setting);
    execute(has_log ? "PRAGMA journal_mode = WAL" : "PRAGMA journal_mode = DELETE");
    execute("PRAGMA synchronous = FULL");
    execute("CREATE TABLE account (id INTEGER PRIMARY KEY, owner TEXT NOT NULL, balance REAL NOT NULL, note TEXT)");
    execute("CREATE INDEX account_of ON account (owner)");
    fill(rows, rows_per_commit);
    long read = query("SELECT * FROM account ORDER BY id");
    read += query("SELECT owner, count(*), round(sum(balance), 2), max(length(note)) FROM account GROUP BY owner ORDER BY 2 DESC, 1");
    read += query("SELECT one.id, other.id FROM account one JOIN account other ON one.owner = other.owner AND one.id < other.id "
                  "WHERE one.balance > 900 ORDER BY 1, 2");
    read += query("PRAGMA integrity_check");
    printf("%ld rows written, %ld rows read, digest %016llx\n", rows, read, (unsigned long long)digest);
    if (sqlite3_close(database)) fail("close");
    return 0;
}
