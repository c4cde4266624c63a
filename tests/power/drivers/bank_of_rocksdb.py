"""A bank in RocksDB, through the C functions of Debian's library (package librocksdb, which rocksdb-tools needs).

bank_of_rocksdb.py make FOLDER
bank_of_rocksdb.py transfer FOLDER INDEX ACKNOWLEDGED SEED TRANSACTIONS   two threads, each with accounts of its own
bank_of_rocksdb.py sum FOLDER                                             checks the accounts, prints the commits
"""

import ctypes
import ctypes.util
import os
import random
import struct
import sys
import threading

NAME = ctypes.util.find_library("rocksdb") or "librocksdb.so.7.8"
LIBRARY = ctypes.CDLL(NAME)
ACCOUNTS = 50
ENTRY_BYTES = 32


def call(name, *arguments, gives=ctypes.c_void_p):
    function = getattr(LIBRARY, "rocksdb_" + name)
    function.restype = gives
    return function(*arguments)


def checked(name, *arguments, gives=ctypes.c_void_p):
    error = ctypes.c_char_p()
    result = call(name, *arguments, ctypes.byref(error), gives=gives)
    if error.value:
        sys.exit(f"rocksdb_{name}: {error.value.decode()}")
    return result


def pointer(value):
    return ctypes.c_void_p(value)


class Bank:
    def __init__(self, folder: str) -> None:
        options = pointer(call("options_create"))
        call("options_set_create_if_missing", options, ctypes.c_ubyte(1))
        # Small, so that tables are written and merged all the time.
        call("options_set_write_buffer_size", options, ctypes.c_size_t(65536))
        self.database = pointer(checked("open", options, folder.encode()))
        self.synced = pointer(call("writeoptions_create"))
        call("writeoptions_set_sync", self.synced, ctypes.c_ubyte(1))
        self.reads = pointer(call("readoptions_create"))
        call("readoptions_set_verify_checksums", self.reads, ctypes.c_ubyte(1))

    def get(self, key: str) -> int:
        length = ctypes.c_size_t()
        name = key.encode()
        found = checked("get", self.database, self.reads, name, ctypes.c_size_t(len(name)), ctypes.byref(length))
        if not found:
            return 0
        value = ctypes.string_at(found, length.value)
        call("free", pointer(found), gives=None)
        return struct.unpack_from("<q", value)[0]

    def write(self, values: dict[str, bytes]) -> None:
        batch = pointer(call("writebatch_create"))
        for key, value in values.items():
            name = key.encode()
            sizes = ctypes.c_size_t(len(name)), ctypes.c_size_t(len(value))
            call("writebatch_put", batch, name, sizes[0], value, sizes[1])
        checked("write", self.database, self.synced, batch, gives=None)
        call("writebatch_destroy", batch, gives=None)

    def close(self) -> None:
        call("close", self.database, gives=None)


def transfer(bank: Bank, client: int, index: str, acknowledged: str, seed: int, transactions: int) -> None:
    chance = random.Random(seed * 2 + client)
    clock = os.open(index, os.O_RDONLY)
    out = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in range(1, transactions + 1):
        source, target = chance.sample(range(ACCOUNTS), 2)
        keys = [f"{client}-{account}" for account in (source, target)]
        amount = chance.randrange(100)
        padding = chance.randbytes(chance.choice([10, 300, 4000]))
        values = [bank.get(keys[0]) - amount, bank.get(keys[1]) + amount]
        batch = {key: struct.pack("<q", value) + padding for key, value in zip(keys, values)}
        batch[f"counter-{client}"] = struct.pack("<q", number)
        bank.write(batch)
        position = os.fstat(clock).st_size // ENTRY_BYTES
        os.write(out, struct.pack("<QQ", position, client << 32 | number))


def main() -> None:
    mode, folder, *rest = sys.argv[1:]
    bank = Bank(folder)
    if mode == "transfer":
        index, acknowledged, seed, transactions = rest
        work = [(bank, client, index, acknowledged, int(seed), int(transactions)) for client in range(2)]
        threads = [threading.Thread(target=transfer, args=arguments) for arguments in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    elif mode == "sum":
        for client in range(2):
            balance = sum(bank.get(f"{client}-{account}") for account in range(ACCOUNTS))
            if balance != 0:
                sys.exit(f"half there: the accounts of client {client} add up to {balance}")
        print("sound")
        for client in range(2):
            print(client, bank.get(f"counter-{client}"))
    bank.close()


main()
