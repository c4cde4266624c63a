"""Volumes of a device server: calls that wait, rights, waits that end, a server that goes."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import bywash
import bywash.serve

BLOCK = 4096
WAYS = [("fast", "mapped", True), ("fast", "channel", False), ("slow", "automatic", False)]


def pattern(nbytes, seed):
    return bytes((at * 31 + seed * 7) % 256 for at in range(nbytes))


@pytest.mark.parametrize(("name", "choice", "mapped"), WAYS)
def test_calls_that_wait(device_server, name, choice, mapped):
    with device_server.connect(choice=choice) as client, client.open(name, "read-write") as volume:
        assert (volume.name, volume.access, volume.device) == (name, "read-write", f"{name}-device")
        assert volume.mapped == mapped
        assert volume.path.startswith("mapped" if mapped else "through the channel: ")
        # A volume of memory has whole chunks.
        assert len(volume) == volume.nbytes >= 1 << 20 and BLOCK % volume.block == 0
        data = pattern(600_000 // BLOCK * BLOCK, 3)
        assert volume.write_at(data, BLOCK) == len(data)
        volume.flush()
        assert volume.read_at(len(data), BLOCK) == data
        assert volume.write_at(np.full(BLOCK // 8, 1.5), 0, durable=True) == BLOCK
        array = np.empty((2, BLOCK // 16))
        assert volume.readinto_at(array, 0) == BLOCK
        assert (array == 1.5).all()
        room = bytearray(2 * BLOCK)
        assert volume.readinto_at(memoryview(room)[BLOCK:], BLOCK) == BLOCK
        assert room[:BLOCK] == bytes(BLOCK) and room[BLOCK:] == data[:BLOCK]
        volume.write_zeroes(BLOCK, BLOCK, durable=True)
        assert volume.read_at(BLOCK, BLOCK) == bytes(BLOCK)
        volume.discard(2 * BLOCK, BLOCK)
        one = pattern(volume.block, 9)
        assert volume.compare_and_write(BLOCK, bytes(volume.block), one)
        assert not volume.compare_and_write(BLOCK, bytes(volume.block), one)
        assert volume.read_at(volume.block, BLOCK) == one
        assert volume.read_at(0, 0) == b"" and volume.write_at(b"", 0) == 0


def test_what_is_wrong(device_server):
    client = device_server.connect()
    volume = client.open("fast", "read-write")
    wrong = [
        (bywash.RangeError, "not all within fast", lambda: volume.read_at(BLOCK, len(volume))),
        (bywash.RangeError, "not all within fast", lambda: volume.read_at(1 << 60, 0)),
        (bywash.RangeError, "must be multiples of", lambda: volume.write_at(bytes(BLOCK), 1)),
        (bywash.RangeError, "give the same number of both", lambda: volume.compare_and_write(0, bytes(512), bytes(1024))),
        (bywash.MissingError, "none", lambda: client.open("none")),
        (FileNotFoundError, "none", lambda: client.open("none")),
        (bywash.OptionError, "one of 'read', 'write', 'read-write'", lambda: client.open("fast", "rw")),
        (bywash.DeniedError, "opened for read", lambda: client.open("fast").write_at(bytes(BLOCK), 0)),
        (PermissionError, "opened for write", lambda: client.open("fast", "write").read_at(BLOCK, 0)),
        (bywash.NotMappedError, "cannot be mapped", lambda: device_server.connect(choice="mapped").open("slow")),
        (bywash.OptionError, "one of 'automatic'", lambda: device_server.connect(choice="no")),
        (bywash.OptionError, "the client's name", lambda: device_server.connect(name="n" * 65)),
        (TypeError, "there is no option size", lambda: device_server.connect(size=1)),
        (bywash.IoError, "nowhere", lambda: bywash.serve.Client.connect("/nowhere")),
        (bywash.RefusedError, "fast", lambda: client.create("fast", "fast-device", 1 << 20)),
        (BufferError, "cannot be written", lambda: volume.readinto_at(bytes(BLOCK), 0)),
        (BufferError, "not in one piece", lambda: volume.write_at(np.zeros(2 * BLOCK, np.uint8)[::2], 0)),
        (TypeError, "bytes-like", lambda: volume.write_at("text", 0)),
        (OverflowError, "negative", lambda: volume.read_at(-1, 0)),
        (ValueError, "not open", lambda: client.open_descriptor(-1)),
    ]
    for kind, text, what in wrong:
        with pytest.raises(kind, match=text):
            what()
    client.close()
    with pytest.raises(ValueError, match="the client was closed"):
        client.volumes()
    # What it has opened stays.
    volume.write_at(bytes(BLOCK), 0)
    volume.close()
    assert volume.closed and client.closed
    with pytest.raises(ValueError, match="the volume was closed"):
        volume.flush()


def test_a_file_that_the_program_has_opened(device_server, tmp_path):
    place = tmp_path / "mine"
    place.write_bytes(pattern(2 * BLOCK, 1))
    client = device_server.connect()
    with place.open("r+b") as file:
        volume = client.open_descriptor(file)
        # The file stays the program's.
        assert file.read(2) == pattern(2, 1)
    assert (volume.access, len(volume)) == ("read-write", 2 * BLOCK)
    volume.write_at(pattern(BLOCK, 2), BLOCK, durable=True)
    assert place.read_bytes() == pattern(BLOCK, 1) + pattern(BLOCK, 2)
    descriptor = os.open(place, os.O_RDONLY)
    volume = client.open_descriptor(descriptor)
    os.close(descriptor)
    assert volume.access == "read" and volume.read_at(BLOCK, 0) == pattern(BLOCK, 1)


def test_several_volumes_by_one_request(device_server):
    for choice in ("automatic", "channel"):
        client = device_server.connect(choice=choice)
        fast, slow = client.open("fast", "read-write"), client.open("slow", "read-write")
        client.write_many([(fast, 0, pattern(BLOCK, 4)), (slow, BLOCK, pattern(2 * BLOCK, 5))], durable=True)
        one, two = np.zeros(BLOCK, np.uint8), bytearray(2 * BLOCK)
        client.read_many([(slow, BLOCK, two), (fast, 0, one)])
        assert bytes(one) == pattern(BLOCK, 4) and two == pattern(2 * BLOCK, 5)
        with pytest.raises(ValueError, match="overlap"):
            client.read_many([(fast, 0, two), (slow, 0, memoryview(two)[BLOCK:])])
        with pytest.raises(bywash.PiecesError, match="1 to 32"):
            client.read_many([])
        # All of it is looked at before any of it is done.
        with pytest.raises(bywash.RangeError, match="slow"):
            client.write_many([(fast, 0, bytes(BLOCK)), (slow, 1, bytes(BLOCK))])
        assert fast.read_at(BLOCK, 0) == pattern(BLOCK, 4)
        other = device_server.connect().open("fast")
        with pytest.raises(bywash.UnfitError, match="belongs to another client"):
            client.read_many([(other, 0, one)])


def test_what_administrators_ask(device_server):
    client = device_server.connect(name="tester")
    client.create("new", "slow-device", 1 << 20, mode=0o640)
    [volume] = [volume for volume in client.volumes() if volume["name"] == "new"]
    assert (volume["device"], volume["bytes"]) == ("slow-device", 1 << 20)
    assert (volume["mode"], volume["owner"]) == (0o640, os.geteuid())
    client.create("thin", "slow-device", 1 << 30, thin=True)
    [thin] = [volume for volume in client.volumes() if volume["name"] == "thin"]
    assert (thin["bytes"], thin["allocated"]) == (1 << 30, 0)
    client.snapshot("thin", "snapshot")
    client.clone_snapshot("snapshot", "clone")
    [snapshot] = [volume for volume in client.volumes() if volume["name"] == "snapshot"]
    assert (snapshot["is_snapshot"], snapshot["origin"], snapshot["shared"]) == (True, "thin", 0)
    with pytest.raises(bywash.RefusedError, match="not a snapshot of volume 'clone'"):
        client.rollback("clone", "snapshot")
    client.rollback("thin", "snapshot")
    for name in ["thin", "snapshot", "clone"]:
        client.remove(name)
    client.resize("new", 2 << 20)
    client.rename("new", "newer")
    client.permit("newer", read_only=True)
    with pytest.raises(bywash.DeniedError):
        client.open("newer", "read-write")
    volume = client.open("newer")
    assert len(volume) == 2 << 20
    client.revoke("newer")
    with pytest.raises(bywash.RevokedError, match="open the volume again"):
        volume.read_at(BLOCK, 0)
    status = client.status()
    [mine] = [one for one in status["clients"] if one["client"] == client.number]
    assert (mine["name"], mine["pid"]) == ("tester", os.getpid())
    client.remove("newer")
    assert "newer" not in [volume["name"] for volume in client.volumes()]
    assert client.reconnects == 0 and client.lost_bytes == 0


def test_ctrl_c_ends_a_wait(device_server):
    client = device_server.connect()
    volume = client.open("late", "read-write")
    queue = client.queue()
    late = queue.open("late", "read-write")
    queue.read(late, 0, BLOCK)
    room = bytearray(BLOCK)
    for wait in (lambda: volume.read_at(BLOCK, 0), lambda: volume.readinto_at(room, 0), queue.reap):
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            wait()
        assert time.monotonic() - begin < 1
        timer.join()
    # What was given up harms nobody.
    assert queue.reap().result() == bytes(BLOCK)
    volume.write_at(pattern(BLOCK, 1), 0)
    assert volume.read_at(BLOCK, 0) == pattern(BLOCK, 1)


def test_the_limit(device_server):
    volume = device_server.connect(limit=0.3).open("late")
    begin = time.monotonic()
    with pytest.raises(bywash.TimedOut, match="had no reply within 300ms"):
        volume.read_at(BLOCK, 0)
    assert 0.25 < time.monotonic() - begin < 1.5


def test_other_threads_run_meanwhile(device_server):
    volume = device_server.connect().open("late")
    counted = 0
    reader = threading.Thread(target=volume.read_at, args=(BLOCK, 0))
    reader.start()
    begin = time.monotonic()
    while reader.is_alive():
        counted += 1
        time.sleep(0.01)
    assert counted > 20 and time.monotonic() - begin > 1


def test_threads_share_a_volume(device_server):
    volume = device_server.connect(choice="channel", depth=4).open("fast", "read-write")
    failed = []

    def work(number):
        try:
            for turn in range(50):
                data = pattern(BLOCK, number * 50 + turn)
                volume.write_at(data, number * BLOCK)
                if volume.read_at(BLOCK, number * BLOCK) != data:
                    failed.append((number, turn))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_server_that_goes(device_server):
    client = device_server.connect()
    slow, fast = client.open("slow", "read-write"), client.open("fast", "read-write")
    slow.write_at(pattern(BLOCK, 6), 0, durable=True)
    lasting = device_server.connect(reconnect=20).open("slow", "read-write")
    device_server.stop()
    with pytest.raises(bywash.ServerGone, match="the server is gone"):
        slow.read_at(BLOCK, 0)
    with pytest.raises(ConnectionError):
        fast.flush()
    starter = threading.Timer(0.3, device_server.start)
    starter.start()
    assert lasting.read_at(BLOCK, 0) == pattern(BLOCK, 6)
    starter.join()


def test_ctrl_c_while_it_is_connected_again(device_server):
    volume = device_server.connect(reconnect=20).open("slow")
    device_server.stop()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        volume.read_at(BLOCK, 0)
    assert time.monotonic() - begin < 2
    timer.join()
    device_server.start()
    assert len(volume.read_at(BLOCK, 0)) == BLOCK


def test_a_forked_child_has_none_of_it(device_server):
    client = device_server.connect()
    mapped = client.open("fast", "read-write")
    queue = client.queue()
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for what in (lambda: mapped.read_at(BLOCK, 0), client.status, lambda: queue.open("fast")):
            try:
                what()
                said.append("done")
            except BaseException as error:
                said.append(type(error).__name__)
        os.write(here, " ".join(said).encode())
        os._exit(0)
    os.close(here)
    with os.fdopen(there) as said:
        assert said.read() == "ForkedError ForkedError ForkedError"
    os.waitpid(child, 0)
    mapped.write_at(bytes(BLOCK), 0)
    assert queue.open("fast") is not None


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("python/README.md", "True mapped\n"),
        ("docs/guide/serve.md", "mapped\n523776.0\n0 4096\n"),
    ],
)
def test_what_the_pages_say(device_server, tmp_path, page, says):
    with device_server.connect() as client:
        client.create("log", "fast-device", 1 << 20)
    text = (pathlib.Path(__file__).parents[2] / page).read_text()
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    [block] = [block for block in blocks if "bywash.serve" in block]
    program = tmp_path / "program.py"
    program.write_text(block.replace("/tmp/bywash.sock", str(device_server.socket)))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(says)
