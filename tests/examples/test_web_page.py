"""The page of examples/web: its kernel equals NumPy in wasmtime, and headless Chromium shows its result."""

import functools
import http.server
import importlib.util
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.runtime.wasm_module import wasm_linker

WEB = Path(__file__).parents[2] / "examples" / "web"
LATE_SECONDS = 6
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(wasm_linker() is None, reason="needs wasm-ld or the package ziglang")


def builder():
    spec = importlib.util.spec_from_file_location("web_build", WEB / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def picture():
    y, x = np.mgrid[0:258, 0:258]
    return (0.5 + 0.25 * np.sin(x * x / 900) + 0.2 * np.sign(np.sin(y / 9) * np.sin(x / 13))).astype("float32")


def sharpened(image, amount):
    mean = sum(image[dy : dy + 256, dx : dx + 256] for dy in range(3) for dx in range(3)) / np.float32(9)
    middle = image[1:257, 1:257]
    return np.clip(middle + np.float32(amount) * (middle - mean), 0, 1)


def test_the_kernel_equals_numpy(tmp_path):
    wasmtime = pytest.importorskip("wasmtime")
    (path,) = builder().build(tmp_path)
    engine = wasmtime.Engine()
    store = wasmtime.Store(engine)
    exports = wasmtime.Instance(store, wasmtime.Module.from_file(engine, str(path)), []).exports(store)
    memory, image = exports["memory"], picture()
    at, out = (exports["tw_alloc"](store, size) for size in (image.nbytes, 4 * 256 * 256))
    memory.write(store, image.tobytes(), at)
    for amount in (-1, 0.5, 4):
        assert exports["sharpen"](store, at, float(amount), out) == 0
        got = np.frombuffer(bytes(memory.read(store, out, out + 4 * 256 * 256)), "float32").reshape(256, 256)
        np.testing.assert_allclose(got, sharpened(image, amount), atol=1e-5)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files, and an image that comes late, until which Chromium takes the page for unfinished."""

    def do_GET(self):
        if self.path == "/late.png":
            time.sleep(LATE_SECONDS)
        super().do_GET()


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_page_in_chromium(tmp_path):
    """The clock of the page is the real one, so the time that it shows is that of the kernel."""
    builder().build(tmp_path)
    page = (WEB / "index.html").read_text()
    (tmp_path / "index.html").write_text(page.replace("</html>", '<img src="late.png"></html>'))
    handler = functools.partial(Handler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--timeout=60000", "--dump-dom"]
        address = f"http://127.0.0.1:{server.server_address[1]}/index.html"
        done = subprocess.run([*command, address], capture_output=True, text=True, timeout=120)
        server.shutdown()
    found = re.search(r"amount 1: ([\d.]+) ms for 256 x 256 pixels, mean ([\d.]+)", done.stdout)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    assert float(found[1]) > 0
    assert float(found[2]) == pytest.approx(float(sharpened(picture(), 1).mean()), abs=2e-4)
