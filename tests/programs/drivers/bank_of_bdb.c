/*
 * A bank on Berkeley DB. All balances add up to 0 in every committed state.
 *
 *   make ENV                      an environment with transactions and 500 accounts
 *   transfer ENV sync|nosync SEED transfers until it is killed
 *   sum ENV                       prints the sum of the balances, and checks the history against the accounts
 *   count ENV                     prints the number of committed transfers
 *   fill FILE btree|hash SEED     no environment, no transactions: random puts, gets and deletes
 *
 * Every failure but a deadlock ends the program with status 1.
 */
#include <db.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACCOUNTS = 500, FILL_OPERATIONS = 30000, FILL_KEYS = 4000 };

struct account { long long balance; long long moves; char padding[200]; };
struct transfer { int source, target; long long amount; };

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

static void open_bank(const char *home, int no_sync)
{
	must(db_env_create(&env, 0), "db_env_create");
	env->set_errfile(env, stderr);
	must(env->set_cachesize(env, 0, 64 * 1024, 1), "set_cachesize");
	must(env->set_lk_detect(env, DB_LOCK_DEFAULT), "set_lk_detect");
	if (no_sync)
		must(env->set_flags(env, DB_TXN_WRITE_NOSYNC, 1), "set_flags");
	must(env->open(env, home, DB_CREATE | DB_INIT_MPOOL | DB_INIT_TXN | DB_INIT_LOG | DB_INIT_LOCK, 0), "open");
	must(db_create(&accounts, env, 0), "db_create");
	must(accounts->set_pagesize(accounts, 1024), "set_pagesize");
	must(accounts->open(accounts, NULL, "accounts.db", NULL, DB_BTREE, DB_CREATE | DB_AUTO_COMMIT, 0644),
	     "accounts.db");
	must(db_create(&history, env, 0), "db_create");
	must(history->set_pagesize(history, 1024), "set_pagesize");
	must(history->open(history, NULL, "history.db", NULL, DB_RECNO, DB_CREATE | DB_AUTO_COMMIT, 0644),
	     "history.db");
}

static void close_bank(void)
{
	must(accounts->close(accounts, 0), "close");
	must(history->close(history, 0), "close");
	must(env->close(env, 0), "close");
}

static void make(const char *home)
{
	struct account account;
	DB_TXN *txn;

	open_bank(home, 0);
	must(env->txn_begin(env, NULL, &txn, 0), "txn_begin");
	for (int id = 0; id < ACCOUNTS; id++) {
		memset(&account, 0, sizeof account);
		DBT key = dbt(&id, sizeof id), value = dbt(&account, sizeof account);
		must(accounts->put(accounts, txn, &key, &value, 0), "put");
	}
	must(txn->commit(txn, 0), "commit");
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
	account.moves++;
	return accounts->put(accounts, txn, &key, &value, 0);
}

static int transfer_once(DB_TXN *txn)
{
	struct transfer transfer = { (int)below(ACCOUNTS), (int)below(ACCOUNTS), below(1000) };
	db_recno_t number;
	DBT key = dbt(&number, sizeof number), value = dbt(&transfer, sizeof transfer);
	int error = add(txn, transfer.source, -transfer.amount);

	if (error == 0)
		error = add(txn, transfer.target, transfer.amount);
	if (error == 0)
		error = history->put(history, txn, &key, &value, DB_APPEND);
	return error;
}

static void transfer_for_ever(const char *home, int no_sync)
{
	DB_TXN *txn;

	open_bank(home, no_sync);
	for (int round = 0;; round++) {
		int error = 0;

		must(env->txn_begin(env, NULL, &txn, 0), "txn_begin");
		for (unsigned moves = 1 + below(4); moves > 0 && error == 0; moves--)
			error = transfer_once(txn);
		if (error != 0 && error != DB_LOCK_DEADLOCK)
			must(error, "transfer");
		if (error != 0 || below(8) == 0)
			must(txn->abort(txn), "abort");
		else
			must(txn->commit(txn, 0), "commit");
		if (round % 50 == 49)
			must(env->txn_checkpoint(env, 0, 0, 0), "txn_checkpoint");
	}
}

static long long sum(void)
{
	long long balances = 0, moves = 0, said = 0;
	struct account account;
	struct transfer transfer;
	DBC *cursor;
	int id, error;
	db_recno_t number;
	DBT key = dbt(&id, sizeof id), value = dbt(&account, sizeof account);

	must(accounts->cursor(accounts, NULL, &cursor, 0), "cursor");
	while ((error = cursor->get(cursor, &key, &value, DB_NEXT)) == 0)
		balances += account.balance, moves += account.moves;
	must(error == DB_NOTFOUND ? 0 : error, "accounts");
	must(cursor->close(cursor), "close");
	key = dbt(&number, sizeof number);
	value = dbt(&transfer, sizeof transfer);
	must(history->cursor(history, NULL, &cursor, 0), "cursor");
	while ((error = cursor->get(cursor, &key, &value, DB_NEXT)) == 0)
		said++;
	must(error == DB_NOTFOUND ? 0 : error, "history");
	must(cursor->close(cursor), "close");
	if (moves != 2 * said) {
		fprintf(stderr, "the accounts know %lld moves, the history %lld transfers\n", moves, said);
		exit(1);
	}
	return balances;
}

static void count(void)
{
	DB_BTREE_STAT *stat;

	must(history->stat(history, NULL, &stat, 0), "stat");
	printf("count %u\n", stat->bt_ndata);
	free(stat);
}

static void fill(const char *file, const char *kind)
{
	char buffer[400];
	unsigned found = 0;
	DB *db;

	must(db_create(&db, NULL, 0), "db_create");
	must(db->set_cachesize(db, 0, 64 * 1024, 1), "set_cachesize");
	must(db->set_pagesize(db, 1024), "set_pagesize");
	must(db->open(db, NULL, file, NULL, strcmp(kind, "hash") ? DB_BTREE : DB_HASH, DB_CREATE, 0644), file);
	for (int operation = 0; operation < FILL_OPERATIONS; operation++) {
		unsigned number = below(FILL_KEYS), length = 20 + below(300);
		DBT key = dbt(&number, sizeof number), value = dbt(buffer, sizeof buffer);

		switch (below(4)) {
		case 0:
			memset(buffer, 'a' + operation % 26, length);
			value.size = length;
			must(db->put(db, NULL, &key, &value, 0), "put");
			break;
		case 1:
			if (below(5) == 0) {
				int error = db->del(db, NULL, &key, 0);
				must(error == DB_NOTFOUND ? 0 : error, "del");
				break;
			}
			/* fall through */
		default: {
			int error = db->get(db, NULL, &key, &value, 0);
			must(error == DB_NOTFOUND ? 0 : error, "get");
			found += error == 0 ? value.size : 0;
		}
		}
		if (operation % 10000 == 9999)
			must(db->sync(db, 0), "sync");
	}
	must(db->close(db, 0), "close");
	printf("found %u bytes\n", found);
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	if (argc > 3)
		state = strtoull(argv[argc - 1], NULL, 10);
	if (!strcmp(what, "make")) {
		make(argv[2]);
	} else if (!strcmp(what, "transfer") && argc > 4) {
		transfer_for_ever(argv[2], !strcmp(argv[3], "nosync"));
	} else if (!strcmp(what, "sum")) {
		open_bank(argv[2], 0);
		printf("sum %lld\n", sum());
		close_bank();
	} else if (!strcmp(what, "count")) {
		open_bank(argv[2], 0);
		count();
		close_bank();
	} else if (!strcmp(what, "fill") && argc > 4) {
		fill(argv[2], argv[3]);
	} else {
		fprintf(stderr, "usage: see the head of the source\n");
		return 2;
	}
	return 0;
}
