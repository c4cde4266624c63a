"""Surfaces and pools: frames and containers that another process maps by itself."""

import mmap
import os
import pathlib
import select
import signal
import subprocess
import sys
import threading

import pytest

import bywash

ROOT = pathlib.Path(__file__).parents[2]
WIDTH, HEIGHT = 160, 120


class Xvfb:
    """An X server without a screen, whose picture lies in a file (xwd)."""

    def __init__(self, folder):
        words = ["Xvfb", "-displayfd", "1", "-nolisten", "tcp", "-noreset", "-screen", "0", "320x240x24"]
        words += ["-fbdir", str(folder)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.number = int(self.process.stdout.readline())
        self.name = f":{self.number}"
        self.picture = folder / "Xvfb_screen0"

    def rows(self):
        """The rows of the picture, as bytes of blue, green, red and nothing."""
        data = self.picture.read_bytes()

        def word(number):
            return int.from_bytes(data[4 * number : 4 * number + 4], "big")

        # XWDFileHeader: sizes of the header and of a row, number of colours, of 12 bytes each.
        header, height, row, colors = word(0), word(5), word(12), word(19)
        begin = header + 12 * colors
        return [data[begin + row * y : begin + row * (y + 1)] for y in range(height)]

    def shows(self, picture):
        return any(self.is_at(y, picture) for y in range(240 - HEIGHT + 1))

    def is_at(self, y, picture):
        rows = self.rows()
        at = rows[y].find(picture[: 4 * WIDTH])
        wanted = (picture[4 * WIDTH * row : 4 * WIDTH * (row + 1)] for row in range(HEIGHT))
        return at >= 0 and all(rows[y + row][at : at + 4 * WIDTH] == want for row, want in enumerate(wanted))

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        for left in (f"/tmp/.X{self.number}-lock", f"/tmp/.X11-unix/X{self.number}"):
            pathlib.Path(left).unlink(missing_ok=True)


@pytest.fixture
def xvfb(tmp_path):
    server = Xvfb(tmp_path)
    yield server
    server.end()


@pytest.fixture
def surface(xvfb):
    with bywash.Surface(WIDTH, HEIGHT, kind="x11", name=xvfb.name, title="drawn", timeout=10) as surface:
        yield surface


def pattern(seed):
    return bytes(
        byte for y in range(HEIGHT) for x in range(WIDTH) for byte in (x + seed & 255, y * 3 & 255, x * y & 255, 0)
    )


def draw(frame, picture):
    with memoryview(frame) as view:
        for y in range(frame.height):
            view[y * frame.row_bytes :][: 4 * WIDTH] = picture[4 * WIDTH * y : 4 * WIDTH * (y + 1)]


def test_what_is_drawn_is_shown(xvfb, surface):
    assert (surface.width, surface.height, surface.kind) == (WIDTH, HEIGHT, "x11")
    for seed in range(5):
        frame = surface.frame()
        assert (frame.width, frame.height, frame.row_bytes, len(frame)) == (WIDTH, HEIGHT, 4 * WIDTH, 4 * WIDTH * HEIGHT)
        draw(frame, pattern(seed))
        surface.present(frame, [(0, 0, WIDTH, HEIGHT)] if seed % 2 else ())
        surface.finish()
        assert xvfb.shows(pattern(seed))
    assert not xvfb.shows(pattern(77))
    stats = surface.stats()
    assert stats.presented == 5 and stats.returned == 4


def test_a_frame_that_was_presented_is_the_display_s(surface):
    frame = surface.frame(timeout=5)
    view = memoryview(frame)
    with pytest.raises(BufferError, match="cannot be presented while it is looked at through 1 view"):
        surface.present(frame)
    assert "1 view(s)" in repr(frame)
    view.release()
    surface.present(frame)
    assert "presented" in repr(frame)
    for use in (lambda: memoryview(frame), lambda: frame.width, lambda: surface.present(frame), frame.memory):
        with pytest.raises(ValueError, match="the frame was presented"):
            use()
    frame.free()


def test_a_frame_is_given_back(surface):
    for _ in range(5):
        surface.frame().free()
    for _ in range(5):
        surface.frame()
    held = [surface.frame() for _ in range(3)]
    with pytest.raises(bywash.NoRoomError, match="all 3 frames are held"):
        surface.frame()
    del held
    assert surface.frame().memory().length == 4 * WIDTH * HEIGHT


def test_an_event_loop(surface):
    shown = 0
    while shown < 10:
        frame = surface.try_frame()
        if frame is None:
            select.select([surface], [], [], 0.1)
            continue
        surface.present(frame)
        shown += 1
    surface.dispatch()


def test_errors_of_displays(xvfb, surface, monkeypatch):
    with bywash.Surface(8, 8, kind="x11", name=xvfb.name) as other, pytest.raises(bywash.UnfitError, match="another"):
        surface.present(other.frame())
    with pytest.raises(ValueError, match="the surface was closed"):
        other.frame()
    with pytest.raises(bywash.OptionError, match="number of frames is 17"):
        bywash.Surface(8, 8, kind="x11", name=xvfb.name, frames=17)
    with pytest.raises(ValueError, match="'quartz'"):
        bywash.Surface(8, 8, kind="quartz")
    with pytest.raises(bywash.IoError) as refused:
        bywash.Surface(8, 8, kind="wayland", name="/nowhere/at/all")
    assert refused.value.errno == 2
    with pytest.raises(bywash.UnfitError, match="its server chooses the mode"):
        bywash.Surface(8, 8, kind="x11", name=xvfb.name, mode=(640, 480))
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(bywash.OptionError, match="neither WAYLAND_DISPLAY nor DISPLAY"):
        bywash.Surface(8, 8)


def test_a_display_that_is_gone(xvfb, surface):
    surface.present(surface.frame())
    xvfb.process.kill()
    with pytest.raises(bywash.DisplayGone, match="is gone"):
        while True:
            surface.present(surface.frame())


def test_a_display_that_hangs_and_ctrl_c(xvfb, surface):
    surface.present(surface.frame())
    surface.finish()
    os.kill(xvfb.process.pid, signal.SIGSTOP)
    with pytest.raises(bywash.TimedOut):
        while True:
            surface.present(surface.frame(timeout=0.2))
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            surface.present(surface.frame())


def test_a_pool_for_readers():
    with bywash.Pool(100_000) as pool:
        assert pool.nbytes >= 100_000
        with pytest.raises(PermissionError):
            mmap.mmap(pool.fileno(), pool.nbytes)
        seen = mmap.mmap(pool.fileno(), pool.nbytes, prot=mmap.PROT_READ)
        container = pool.alloc(5000)
        assert len(container) == 5000
    view = memoryview(container)
    view[:3] = b"abc"
    at = container.memory().offset
    assert seen[at : at + 3] == b"abc"
    with pytest.raises(BufferError, match="cannot be shipped while"):
        container.ship()
    view.release()
    container.ship()
    with pytest.raises(ValueError, match="the container was shipped"):
        memoryview(container)
    assert container.memory().offset == at
    container.free()
    container.returned()
    with memoryview(container) as view:
        view[:3] = b"xyz"
    assert seen[at : at + 3] == b"xyz"
    with pytest.raises(ValueError, match="was not shipped"):
        container.returned()
    container.free()
    with pytest.raises(ValueError, match="the container was freed"):
        len(container)
    seen.close()


def test_a_pool_for_writers():
    pool = bywash.Pool(4096, trust="writer")
    with mmap.mmap(pool.fileno(), pool.nbytes) as seen, pool.alloc(pool.nbytes) as container:
        seen[7] = 9
        assert memoryview(container)[7] == 9
        with pytest.raises(bywash.NoRoomError):
            pool.alloc(1)
    with pytest.raises(bywash.TooLargeError):
        pool.alloc(1 << 20)
    pool.close()
    with pytest.raises(ValueError, match="the pool was closed"):
        pool.alloc(1)
    with pytest.raises(ValueError, match="trust"):
        bywash.Pool(1, trust="nobody")
    with pytest.raises(bywash.OptionError):
        bywash.Pool(0)


@pytest.mark.parametrize("words", [["python/examples/counter.py", "40"], ["docs/guide/displays.md"]])
def test_programs(xvfb, tmp_path, words):
    program = ROOT / words[0]
    if program.suffix == ".md":
        text = program.read_text().split("```python\n")[1].split("```")[0]
        program = tmp_path / "program.py"
        program.write_text(text)
    environment = {name: text for name, text in os.environ.items() if name != "WAYLAND_DISPLAY"}
    environment["DISPLAY"] = xvfb.name
    command = [sys.executable, str(program), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("40 frames" if words[1:] else "256 frames")
