"""How two programs come together, and what an end tells of itself."""

import os
import pathlib
import socket
import stat
import threading

import pytest

import bywash
import bywash.errors


def container_of(path, data):
    container = path.alloc(len(data))
    assert container.copy_from(data) == len(data)
    return container


@pytest.mark.parametrize("class_", ["checked", "trusted", "sealed"])
@pytest.mark.parametrize("nbytes", [1, 8, 120, 121, 5000, 3 << 20])
def test_what_is_shipped_arrives_and_comes_back(peers, class_, nbytes):
    _, path = peers.start("echo", class_=class_)
    data = os.urandom(nbytes)
    for _ in range(5):
        path.ship(container_of(path, data))
        message = path.receive()
        assert len(message) == 1 and len(message[0]) == nbytes == message.nbytes
        assert message.tobytes() == bytes(message) == bytes(message[0]) == data


def test_a_path_by_name(peers, tmp_path):
    name = tmp_path / "x.sock"
    with bywash.Listener.bind(name) as listener:
        assert stat.S_ISSOCK(os.stat(name).st_mode)
        process, _ = peers.start("send", 3, 1000, where=str(name))
        with listener.accept(timeout=20) as path:
            assert path.peer == (process.pid, os.geteuid(), os.getegid())
            assert path.peer.pid == process.pid
            assert [message.tobytes() for message in path] == [bytes([n]) * 1000 for n in range(3)]
    assert listener.closed and path.closed
    assert name.exists(), "the name stays"


def test_nobody_connects(tmp_path):
    listener = bywash.Listener.bind(tmp_path / "x.sock")
    with pytest.raises(bywash.TimedOut):
        listener.accept(timeout=0.1)
    listener.close()
    with pytest.raises(ValueError, match="the listener was closed"):
        listener.accept()


def test_nobody_listens(tmp_path):
    with pytest.raises(bywash.IoError, match=f"cannot connect to {tmp_path}/none") as caught:
        bywash.Path.connect(tmp_path / "none")
    assert caught.value.errno == 2
    with pytest.raises(bywash.IoError, match="cannot listen"):
        bywash.Listener.bind("/proc/none")


def test_sockets_are_taken_over():
    here, there = bywash.socket_pair()
    assert here.type == socket.SOCK_SEQPACKET and here.family == socket.AF_UNIX
    there.close()
    # A peer that leaves before it has presented itself has not closed a path: there was none.
    with pytest.raises(bywash.PeerDied):
        bywash.Path.over(here)
    assert here.fileno() == -1
    with pytest.raises(ValueError, match="descriptor -1 is not open"):
        bywash.Path.over(here)
    with pytest.raises(ValueError, match="descriptor 987654 is not open"):
        bywash.Path.over(987654)
    with pytest.raises(TypeError):
        bywash.Path.over("0")


def test_a_peer_that_does_not_present_itself():
    here, there = bywash.socket_pair()
    with pytest.raises(bywash.TimedOut):
        bywash.Path.over(here, handshake_timeout=0.1)
    there.close()


def test_ends_that_do_not_fit():
    here, there = bywash.socket_pair()
    errors = []

    def other():
        try:
            bywash.Path.over(there, class_="sealed")
        except bywash.Error as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.raises(bywash.MisfitError, match="one end is sealed and the other is not"):
        bywash.Path.over(here)
    thread.join()
    assert isinstance(errors[0], bywash.MisfitError)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"class_": "safe"}, "class_ is 'safe', and must be one of 'checked', 'trusted', 'sealed', 'forward'"),
        ({"wait": 1}, "wait is 1, and must be one of 'adaptive', 'spin', 'sleep'"),
        ({"huge_pages": "yes"}, "huge_pages is 'yes', and must be one of"),
        ({"depth": 3}, "the depth is 3, and must be a power of two up to 4096"),
        ({"depth": 1 << 33}, "depth is 8589934592, and must be a whole number from 0 to 4294967295"),
        ({"arena_bytes": -1}, "arena_bytes is -1, and must be a whole number from 0"),
        ({"arena_bytes": 1 << 60}, "the arena is 1152921504606846976, and must be"),
        ({"containers_out_max": 0}, "the number of containers that can be out is 0"),
        ({"handshake_timeout": -1}, "handshake_timeout is -1, and must be a number of seconds from 0 on"),
        ({"writable": True}, "writable goes with class_='trusted' only"),
    ],
)
def test_options_that_cannot_be(options, text):
    here, there = bywash.socket_pair()
    with pytest.raises(bywash.OptionError) as caught:
        bywash.Path.over(here, **options)
    assert text in str(caught.value)
    assert isinstance(caught.value, ValueError)
    there.close()


def test_an_option_that_there_is_not():
    with pytest.raises(TypeError, match="there is no option colour; there are class_, writable"):
        bywash.Path.connect("/nowhere", colour=1)


def test_options_reach_the_path(pair):
    one, other = pair(arena_bytes=1 << 20, depth=4, containers_out_max=8, wait="sleep", huge_pages="no")
    with pytest.raises(bywash.TooLargeError, match="make it larger"):
        one.alloc(2 << 20)
    for _ in range(4):
        one.ship(one.alloc(1))
    with pytest.raises(bywash.TimedOut):
        one.ship(one.alloc(1), timeout=0)
    assert other.receive().nbytes == 1
    one.ship(one.alloc(1), timeout=0)


def test_stats(pair):
    one, other = pair()
    one.ship(container_of(one, b"x" * 5000))
    other.receive().tobytes()
    assert one.stats().shipped == 1 and one.stats().shipped_bytes == 5000
    stats = other.stats()
    assert (stats.received, stats.received_bytes, stats.copied_out_bytes) == (1, 5000, 5000)
    assert stats._asdict()["inline"] == 0


def test_a_closed_path(pair):
    one, other = pair()
    one.ship(container_of(one, b"last"))
    kept = one.alloc(1000)
    with one:
        assert "to process" in repr(one)
    assert one.closed and repr(one) == "<bywash.Path: closed>"
    for use in (one.receive, one.arm, one.fileno, one.stats, lambda: one.alloc(1), lambda: one.peer):
        with pytest.raises(ValueError, match="the path was closed"):
            use()
    one.close()
    kept.copy_from(b"still there")
    # What was shipped before arrives.
    assert other.receive().tobytes() == b"last"
    with pytest.raises(bywash.Closed, match="the peer has closed its end"):
        other.receive()
    assert list(other) == []


def test_exceptions_are_one_family():
    classes = [getattr(bywash.errors, name) for name in bywash.errors.__all__]
    assert all(issubclass(one, bywash.Error) and issubclass(one, OSError) for one in classes)
    assert all(getattr(bywash, one.__name__) is one for one in classes)
    assert issubclass(bywash.TimedOut, TimeoutError)
    assert issubclass(bywash.NotMappedError, BufferError)


def test_everything_is_documented_and_typed():
    package = pathlib.Path(bywash.__file__).parent
    assert (package / "py.typed").exists()
    stubs = (package / "_bywash.pyi").read_text()
    for name in ("Container", "Received", "Message", "Path", "Listener", "Flow", "Running"):
        one = getattr(bywash, name)
        assert one.__doc__ and one.__module__ == "bywash"
        for member in vars(one):
            if not member.startswith("_"):
                assert vars(one)[member].__doc__, f"{name}.{member} says nothing"
                section = stubs.split(f"class {name}")[1].split("@final")[0]
                assert f"def {member}(" in section, f"{name}.{member} has no type"


def test_an_arena_that_is_used_up_tells_who_holds_it(pair):
    path, other = pair(arena_bytes=1 << 20)
    kept = [path.alloc(1 << 18) for _ in range(4)]
    with pytest.raises(bywash.TimedOut, match="this program holds 1048576 in 4 containers"):
        path.alloc(1 << 18, timeout=0.01)
    path.ship(kept.pop())
    message = other.receive()
    with pytest.raises(bywash.TimedOut, match="this program holds 786432 in 3 .*the peer holds 262144 in 1 "):
        path.alloc(1 << 18, timeout=0.12)
    stats = path.stats()
    assert (stats.arena_bytes, stats.arena_held, stats.arena_held_bytes) == (1 << 20, 3, 3 << 18)
    assert (stats.arena_shipped, stats.arena_shipped_bytes, stats.arena_largest_free) == (1, 1 << 18, 0)
    del message
