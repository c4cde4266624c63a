"""What moves: who owns it, and what can be seen of it."""

import gc
import os

import numpy as np
import pytest

import bywash


def shipped(one, other, data):
    container = one.alloc(len(data))
    container.copy_from(data)
    one.ship(container)
    [piece] = other.receive()
    return piece


def test_a_container_is_a_writable_buffer(pair):
    one, other = pair(class_="trusted")
    container = one.alloc(8000)
    assert len(container) == 8000 <= container.capacity
    first, second = np.frombuffer(container, np.float64), np.frombuffer(container, np.uint8)
    assert np.shares_memory(first, second) and first.flags.writeable and first.flags.aligned
    first[:] = np.arange(1000)
    with memoryview(container) as view:
        assert (view.nbytes, view.format, view.readonly) == (8000, "B", False)
        view[:8] = np.float64(7).tobytes()
    assert first[0] == 7.0
    del first, second
    one.ship(container)
    [piece] = other.receive()
    assert np.frombuffer(piece, np.float64).sum() == 7 + 999 * 500


@pytest.mark.parametrize("class_", ["trusted", "sealed"])
@pytest.mark.parametrize("nbytes", [64, 100_000])
def test_what_was_received_is_seen_where_it_is(pair, class_, nbytes):
    one, other = pair(class_=class_)
    piece = shipped(one, other, os.urandom(nbytes))
    first, second = np.frombuffer(piece, np.uint8), np.frombuffer(piece, np.uint8)
    assert np.shares_memory(first, second)
    assert not first.flags.writeable and memoryview(piece).readonly
    with pytest.raises(ValueError):
        first.flags.writeable = True
    with pytest.raises(TypeError):
        memoryview(piece)[0] = 1
    assert first.tobytes() == piece.tobytes() == bytes(memoryview(piece))


@pytest.mark.parametrize("class_", ["checked", "trusted", "sealed"])
def test_the_memory_can_be_read_by_its_descriptor(pair, class_):
    one, other = pair(class_=class_)
    data = os.urandom(100_000)
    container = one.alloc(len(data))
    container.copy_from(data)
    if class_ == "sealed":
        with pytest.raises(bywash.NotMappedError):
            container.memory()
    else:
        assert os.pread(*memory_words(container.memory())) == data
    one.ship(container)
    [piece] = other.receive()
    memory = piece.memory()
    assert os.pread(*memory_words(memory)) == data and memory.length == len(data)
    with pytest.raises(PermissionError):
        os.pwrite(memory.fd, b"x", memory.offset)
    with pytest.raises(ValueError):
        container.memory()


def memory_words(memory):
    return memory.fd, memory.length, memory.offset


def test_nothing_is_copied(peers):
    """The memory that is filled is the memory that is seen: a write by the one is a change for the other."""
    _, path = peers.start("add_one", class_="trusted", writable=True)
    container = path.alloc(100_000)
    np.frombuffer(container, np.uint8)[:] = 41
    address = np.frombuffer(container, np.uint8).ctypes.data
    path.ship(container)
    [piece] = path.receive()
    array = np.frombuffer(piece, np.uint8)
    # Came back as the peer's shipment of our own memory.
    assert array.min() == array.max() == 42
    stats = path.stats()
    assert stats.copied_out_bytes == 0 and stats.inline == 0
    assert address % 64 == 0


def test_a_write_before_it_is_given_back_is_seen(pair):
    """Both ends in one process map the arena twice; the bytes are the same ones."""
    one, other = pair(class_="trusted", writable=True)
    container = one.alloc(4096)
    container.copy_from(b"a" * 4096)
    one.ship(container)
    [piece] = other.receive()
    view = memoryview(piece)
    assert not view.readonly
    view[0:1] = b"z"
    view.release()
    other.ship(piece)
    [back] = one.receive()
    assert back.tobytes()[:2] == b"za"


@pytest.mark.parametrize("nbytes", [5, 5000])
def test_on_a_checked_path_it_must_be_copied_out(pair, nbytes):
    one, other = pair()
    data = os.urandom(nbytes)
    piece = shipped(one, other, data)
    for look in (memoryview, lambda piece: np.frombuffer(piece, np.uint8)):
        with pytest.raises(BufferError, match="the path is a checked one.*copy them out by tobytes"):
            look(piece)
    assert bytes(piece) == piece.tobytes() == data
    target = bytearray(nbytes + 3)
    assert piece.copy_to(target) == nbytes and target == data + bytes(3)
    short = np.zeros(3, np.uint8)
    assert piece.copy_to(short) == 3 and short.tobytes() == data[:3]
    with pytest.raises(BufferError, match="cannot be written"):
        piece.copy_to(bytes(10))
    with pytest.raises(BufferError, match="not in one piece"):
        piece.copy_to(np.zeros(10, np.uint8)[::2])
    with pytest.raises(TypeError):
        piece.copy_to(7)


@pytest.mark.parametrize("nbytes", [5, 5000])
def test_on_a_forward_path_it_is_only_passed_on(pair, nbytes):
    one, other = pair(theirs={"class_": "forward", "arena_bytes": 0})
    piece = shipped(one, other, bytes(nbytes))
    assert len(piece) == nbytes and piece.origin.pid == os.getpid()
    for look in (memoryview, bytes, bywash.Received.tobytes, lambda piece: piece.copy_to(bytearray(10))):
        with pytest.raises(bywash.NotMappedError, match="the path is a forward one"):
            look(piece)
    other.ship(piece)
    assert one.receive().nbytes == nbytes


def test_what_is_looked_at_cannot_be_shipped_or_freed(pair):
    one, other = pair(class_="trusted")
    container = one.alloc(1000)
    views = [memoryview(container), np.frombuffer(container, np.uint8), memoryview(container)[5:10]]
    for use in (lambda: one.ship(container), container.free, lambda: container.resize(10)):
        with pytest.raises(BufferError, match=r"while it is looked at through \d view"):
            use()
    with pytest.raises(BufferError), container:
        pass
    views[0].release()
    with pytest.raises(BufferError, match="through 2 view"):
        one.ship(container)
    views.clear()
    gc.collect()
    one.ship(container)
    message = other.receive()
    array = np.frombuffer(message[0], np.uint8)
    for use in (lambda: other.ship(message), message.free, message[0].free):
        with pytest.raises(BufferError, match="release or delete them first"):
            use()
    assert array.sum() == 0, "it is still there"
    del array
    other.ship(message)


def test_a_view_keeps_the_container(pair):
    one, _ = pair(class_="trusted")
    array = np.frombuffer(one.alloc(100_000), np.uint8)
    gc.collect()
    one.close()
    array[:] = 3
    assert array.sum() == 300_000


@pytest.mark.parametrize("class_", ["trusted", "sealed"])
def test_a_view_keeps_what_was_received(pair, class_):
    one, other = pair(class_=class_)
    array = np.frombuffer(shipped(one, other, b"k" * 100_000), np.uint8)
    gc.collect()
    one.close()
    other.close()
    assert array.min() == array.max() == ord("k")


def test_what_was_shipped_is_gone(pair):
    one, other = pair(class_="trusted")
    container = one.alloc(1000)
    one.ship(container)
    uses = (
        lambda: one.ship(container),
        lambda: memoryview(container),
        lambda: len(container),
        lambda: container.capacity,
        lambda: container.resize(1),
        lambda: container.copy_from(b""),
    )
    for use in uses:
        with pytest.raises(ValueError, match="was shipped"):
            use()
    assert repr(container) == "<bywash.Container: shipped>"
    container.free()
    message = other.receive()
    [piece] = message
    other.ship(message)
    for use in (piece.tobytes, lambda: other.ship(message), lambda: memoryview(piece), lambda: len(piece)):
        with pytest.raises(ValueError, match="was shipped"):
            use()
    assert len(message) == 1


def test_what_was_freed_is_gone(pair):
    one, other = pair(arena_bytes=1 << 20, class_="trusted")
    with one.alloc(900_000) as container:
        assert one.try_alloc(900_000) is None
    container.free()
    with pytest.raises(ValueError, match="was freed"):
        one.ship(container)
    with pytest.raises(ValueError, match="was freed"):
        memoryview(container)
    # Its room can be used again.
    with pytest.raises(RuntimeError, match="mine"), one.alloc(900_000) as container:
        kept = memoryview(container)
        raise RuntimeError("mine")
    kept.release()
    del container
    assert one.alloc(900_000, timeout=0)


def test_room_comes_back_when_the_peer_lets_go(pair):
    one, other = pair(arena_bytes=1 << 20)
    one.ship(one.alloc(900_000))
    with pytest.raises(bywash.TimedOut):
        one.alloc(900_000, timeout=0.05)
    with other.receive() as message:
        assert message.nbytes == 900_000
    with pytest.raises(ValueError, match="was freed"):
        message.tobytes()
    assert one.alloc(900_000, timeout=5)


def test_sizes_and_places(pair):
    one, other = pair()
    container = one.alloc(1000)
    container.resize(10)
    assert len(container) == 10 == len(memoryview(container))
    with pytest.raises(bywash.TooLargeError):
        container.resize(container.capacity + 1)
    assert container.copy_from(b"0123456789") == 10
    assert container.copy_from(np.array([0x6161], np.uint16), 4) == 2
    for offset in (9, 11, 2**63, 2**64 - 1):
        with pytest.raises(ValueError, match=f"2 bytes at {offset} do not fit into a container of 10"):
            container.copy_from(b"xx", offset)
    view = memoryview(container)
    container.copy_from(view[0:8], 2)
    view.release()
    one.ship(container)
    assert other.receive().tobytes() == b"010123aa67"
    one.ship(one.alloc(0))
    assert other.receive().tobytes() == b""
    assert memoryview(one.alloc(0)).nbytes == 0


def test_several_pieces(peers):
    process, path = peers.start("lengths", class_="trusted")
    header, body = path.alloc(16), path.alloc(100_000)
    path.ship(header, body, *(path.alloc(n) for n in (1, 2, 3)))
    message = path.receive()
    assert message.tobytes() == b"16,100000,1,2,3"
    assert message.origin.pid == process.pid == message[0].origin.pid


def test_a_message_is_a_sequence(pair):
    one, other = pair(class_="trusted")
    one.ship(*(one.alloc(n) for n in (1, 200, 3000)))
    message = other.receive()
    assert len(message) == 3 and message.nbytes == 3201 and message
    assert [len(piece) for piece in message] == [1, 200, 3000]
    assert message[-1] is message[2] and message[1:] == (message[1], message[2])
    assert message[0] in message and message.index(message[1]) == 1 and message.count(message[1]) == 1
    with pytest.raises(IndexError):
        message[3]
    match message:
        case [first, *_]:
            assert len(first) == 1
        case _:
            pytest.fail("it is a sequence")
    # A header of our own in front of what came, which came from elsewhere.
    other.ship(other.alloc(7), message)
    assert [len(piece) for piece in one.receive()] == [7, 1, 200, 3000]


def test_all_or_nothing(pair):
    one, other = pair(class_="trusted")
    first, second = one.alloc(10), one.alloc(1000)
    view = memoryview(second)
    with pytest.raises(BufferError):
        one.ship(first, second)
    with pytest.raises(ValueError, match="is being shipped|was shipped"):
        one.ship(first, first)
    with pytest.raises(bywash.PiecesError, match="a message of 65 containers"):
        one.ship(first, *(one.alloc(1) for _ in range(64)))
    with pytest.raises(bywash.PiecesError, match="a message of 0 containers"):
        one.ship()
    with pytest.raises(TypeError, match="a bytes cannot be shipped"):
        one.ship(first, b"x")
    view.release()
    one.ship(first, second)
    assert [len(piece) for piece in other.receive()] == [10, 1000]


def test_a_container_of_another_path(pair):
    one, other = pair()
    container = one.alloc(5000)
    with pytest.raises(bywash.UnfitError, match="it was allocated on another path"):
        other.ship(container)
    container.copy_from(b"mine")
    one.ship(container)
    assert other.receive().tobytes()[:4] == b"mine"


def test_sealed_containers_stay_as_they_are(pair):
    one, other = pair(class_="sealed")
    data = os.urandom(10_000)
    piece = shipped(one, other, data)
    other.ship(piece)
    with pytest.raises(ValueError):
        memoryview(piece)
    [back] = one.receive()
    assert back.tobytes() == data
    with pytest.raises(bywash.UnfitError, match="at least one byte"):
        one.ship(one.alloc(0))


def test_a_sealed_container_that_found_no_room(pair):
    one, other = pair(class_="sealed", depth=1)
    with pytest.raises(bywash.TimedOut):
        for _ in range(10_000):
            container = one.alloc(100)
            container.copy_from(b"kept")
            one.ship(container, timeout=0.05)
    # It was sealed on the way, so that it cannot be changed any more; it can be seen and shipped.
    assert memoryview(container).readonly and bytes(container)[:4] == b"kept"
    for change in (lambda: container.resize(1), lambda: container.copy_from(b"x")):
        with pytest.raises(BufferError, match="was sealed by a ship that did not find room"):
            change()
    while (message := other.try_receive()) is not None:
        message.free()
    one.ship(container, timeout=5)
    assert other.receive(timeout=5).tobytes()[:4] == b"kept"


def test_a_copy_onto_itself(pair):
    one, other = pair(class_="trusted", writable=True)
    piece = shipped(one, other, bytes(range(200)))
    with memoryview(piece) as view:
        assert piece.copy_to(view[10:]) == 190
        assert bytes(view) == bytes(range(10)) + bytes(range(190))
