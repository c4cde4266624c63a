"""Two processes that transfer money in one database, and write down each commit after it has returned.

bank_of_sqlite.py DATABASE JOURNAL SYNCHRONOUS INDEX ACKNOWLEDGED SEED TRANSACTIONS
"""

import os
import random
import sqlite3
import struct
import sys

DATABASE, JOURNAL, SYNCHRONOUS, INDEX, ACKNOWLEDGED, SEED, TRANSACTIONS = sys.argv[1:]
ENTRY_BYTES = 32


def work(member: int) -> None:
    chance = random.Random(int(SEED) * 2 + member)
    index = os.open(INDEX, os.O_RDONLY)
    acknowledged = os.open(ACKNOWLEDGED, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    bank = sqlite3.connect(DATABASE, timeout=60, isolation_level=None)
    bank.execute(f"PRAGMA journal_mode={JOURNAL}")
    bank.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
    # A small cache that is spilled, and a write-ahead log that is often emptied.
    bank.execute("PRAGMA cache_size=10")
    bank.execute("PRAGMA wal_autocheckpoint=40")
    for _ in range(int(TRANSACTIONS)):
        bank.execute("BEGIN IMMEDIATE")
        bank.execute("UPDATE counter SET number=number+1")
        (number,) = bank.execute("SELECT number FROM counter").fetchone()
        source, target, amount = chance.randrange(200), chance.randrange(200), chance.randrange(100)
        bank.execute("UPDATE account SET balance=balance-? WHERE id=?", (amount, source))
        bank.execute("UPDATE account SET balance=balance+? WHERE id=?", (amount, target))
        note = chance.randbytes(chance.choice([10, 100, 3000, 20000]))
        bank.execute("INSERT INTO history VALUES(?,?,?,?,?)", (number, source, target, amount, note))
        bank.execute("COMMIT")
        position = os.fstat(index).st_size // ENTRY_BYTES
        os.write(acknowledged, struct.pack("<QQ", position, number))


def main() -> int:
    children = []
    for member in range(2):
        child = os.fork()
        if child == 0:
            work(member)
            os._exit(0)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


sys.exit(main())
