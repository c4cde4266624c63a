/*
 * A bank on Berkeley DB whose commits are acknowledged. All balances add up to 0 in every committed state.
 *
 *   make ENV
 *   transfer ENV CLIENT SEED TRANSACTIONS INDEX ACKNOWLEDGED
 *   sum ENV                 checks the accounts and the history; prints `sound`, and for each client its commits
 *
 * Every failure but a deadlock ends the program with status 1.
 */
#include <db.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ACCOUNTS = 100, CLIENTS = 2, ENTRY_BYTES = 32 };

struct account { long long balance; char padding[200]; };
struct transfer { int client; long long number; int source, target; long long amount; };

static unsigned long long state;

static unsigned below(unsigned limit)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)(state >> 33) % limit;
}

static void must(int error, const char *what)
{
	if (error != 0) {
		fprintf(stderr, "%s: %s\n", what, db_strerror(error));
		exit(1);
	}
}

static DBT dbt(void *data, size_t size)
{
	DBT it;
	memset(&it, 0, sizeof it);
	it.data = data;
	it.size = it.ulen = (u_int32_t)size;
	it.flags = DB_DBT_USERMEM;
	return it;
}

static DB_ENV *env;
static DB *accounts, *history;

static DB *open_table(const char *name, DBTYPE type)
{
	DB *table;
	must(db_create(&table, env, 0), "db_create");
	must(table->set_pagesize(table, 4096), "set_pagesize");
	must(table->open(table, NULL, name, NULL, type, DB_CREATE | DB_AUTO_COMMIT, 0644), name);
	return table;
}

static void open_bank(const char *home)
{
	must(db_env_create(&env, 0), "db_env_create");
	env->set_errfile(env, stderr);
	must(env->set_cachesize(env, 0, 64 * 1024, 1), "set_cachesize");
	must(env->set_lk_detect(env, DB_LOCK_DEFAULT), "set_lk_detect");
	must(env->open(env, home, DB_CREATE | DB_INIT_MPOOL | DB_INIT_TXN | DB_INIT_LOG | DB_INIT_LOCK, 0), "open");
	accounts = open_table("accounts.db", DB_BTREE);
	history = open_table("history.db", DB_RECNO);
}

static void close_bank(void)
{
	must(accounts->close(accounts, 0), "close");
	must(history->close(history, 0), "close");
	must(env->close(env, 0), "close");
}

/* Accounts have numbers from 0 on; behind them are the counters of the clients. */
static void make(const char *home)
{
	struct account account;
	DB_TXN *txn;

	open_bank(home);
	must(env->txn_begin(env, NULL, &txn, 0), "txn_begin");
	for (int id = 0; id < ACCOUNTS + CLIENTS; id++) {
		memset(&account, 0, sizeof account);
		DBT key = dbt(&id, sizeof id), value = dbt(&account, sizeof account);
		must(accounts->put(accounts, txn, &key, &value, 0), "put");
	}
	must(txn->commit(txn, 0), "commit");
	must(env->txn_checkpoint(env, 0, 0, DB_FORCE), "txn_checkpoint");
	close_bank();
}

static int add(DB_TXN *txn, int id, long long amount)
{
	struct account account;
	DBT key = dbt(&id, sizeof id), value = dbt(&account, sizeof account);
	int error = accounts->get(accounts, txn, &key, &value, DB_RMW);

	if (error != 0)
		return error;
	account.balance += amount;
	return accounts->put(accounts, txn, &key, &value, 0);
}

static int transfer_once(DB_TXN *txn, struct transfer *transfer)
{
	db_recno_t number;
	DBT key = dbt(&number, sizeof number), value = dbt(transfer, sizeof *transfer);
	int error = add(txn, ACCOUNTS + transfer->client, 1);

	if (error == 0)
		error = add(txn, transfer->source, -transfer->amount);
	if (error == 0)
		error = add(txn, transfer->target, transfer->amount);
	if (error == 0)
		error = history->put(history, txn, &key, &value, DB_APPEND);
	return error;
}

static void acknowledge(int index, int out, int client, long long number)
{
	struct stat stat;

	if (fstat(index, &stat) != 0)
		must(errno, "fstat");
	uint64_t entry[2] = { (uint64_t)stat.st_size / ENTRY_BYTES, (uint64_t)client << 32 | (uint64_t)number };
	if (write(out, entry, sizeof entry) != sizeof entry)
		must(errno, "write");
}

static void transfer(const char *home, int client, long long transactions, const char *clock, const char *path)
{
	int index = open(clock, O_RDONLY), out = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);

	if (index < 0 || out < 0)
		must(errno, "open");
	open_bank(home);
	for (long long number = 1; number <= transactions; number++) {
		struct transfer transfer = { client, number, (int)below(ACCOUNTS), (int)below(ACCOUNTS), below(1000) };
		for (;;) {
			DB_TXN *txn;
			must(env->txn_begin(env, NULL, &txn, 0), "txn_begin");
			int error = transfer_once(txn, &transfer);
			if (error == 0) {
				must(txn->commit(txn, DB_TXN_SYNC), "commit");
				break;
			}
			must(txn->abort(txn), "abort");
			if (error != DB_LOCK_DEADLOCK)
				must(error, "transfer");
		}
		acknowledge(index, out, client, number);
		if (number % 20 == 0)
			must(env->txn_checkpoint(env, 0, 0, 0), "txn_checkpoint");
	}
	close_bank();
}

static void sum(const char *home)
{
	struct account account;
	struct transfer transfer;
	long long all = 0, counted[CLIENTS], seen[CLIENTS] = { 0 };
	db_recno_t row;
	DBC *cursor;
	int error;

	open_bank(home);
	for (int id = 0; id < ACCOUNTS + CLIENTS; id++) {
		DBT key = dbt(&id, sizeof id), value = dbt(&account, sizeof account);
		must(accounts->get(accounts, NULL, &key, &value, 0), "get");
		if (id < ACCOUNTS)
			all += account.balance;
		else
			counted[id - ACCOUNTS] = account.balance;
	}
	must(history->cursor(history, NULL, &cursor, 0), "cursor");
	DBT key = dbt(&row, sizeof row), value = dbt(&transfer, sizeof transfer);
	while ((error = cursor->get(cursor, &key, &value, DB_NEXT)) == 0)
		seen[transfer.client]++;
	if (error != DB_NOTFOUND)
		must(error, "get");
	must(cursor->close(cursor), "close");
	close_bank();
	if (all != 0 || memcmp(seen, counted, sizeof seen) != 0) {
		fprintf(stderr, "half there: sum %lld, rows %lld and %lld, counters %lld and %lld\n", all, seen[0], seen[1],
			counted[0], counted[1]);
		exit(1);
	}
	printf("sound\n0 %lld\n1 %lld\n", counted[0], counted[1]);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "make") == 0) {
		make(argv[2]);
	} else if (argc == 8 && strcmp(argv[1], "transfer") == 0) {
		state = strtoull(argv[4], NULL, 10) * 2 + strtoull(argv[3], NULL, 10);
		transfer(argv[2], atoi(argv[3]), atoll(argv[5]), argv[6], argv[7]);
	} else if (argc == 3 && strcmp(argv[1], "sum") == 0) {
		sum(argv[2]);
	} else {
		fprintf(stderr, "see the head of bank_of_bdb.c\n");
		return 2;
	}
	return 0;
}
