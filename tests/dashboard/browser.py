"""A headless Chromium, driven through ChromeDriver by the W3C WebDriver protocol. Standard library alone."""
import base64
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

# Chromium's own services are off: the tests have no network.
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
         "--disable-features=Translate,OptimizationHints,MediaRouter"]


def missing(program):
    """Why the page of this program cannot be tested here; None: it can."""
    for tool, package in (("chromedriver", "chromium-driver"), ("chromium", "chromium")):
        if shutil.which(tool) is None:
            return f"Debian's package {package} is not installed"
    if b'type="importmap"' not in pathlib.Path(program).read_bytes():
        return "the program was built without the web page: its npm packages were not fetched"
    return None


class Browser:
    """One tab. Use it as a context manager."""

    def __init__(self, width=1280, height=900, dark=False):
        self.size, self.dark = (width, height), dark
        self.folder = tempfile.mkdtemp(prefix="carve-browser-")

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = open(os.path.join(self.folder, "driver.log"), "wb")
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}"], stdout=self.log, stderr=self.log,
                                       env={**os.environ, "HOME": self.folder}, start_new_session=True)
        flags = [*FLAGS, f"--user-data-dir={self.folder}/profile", f"--window-size={self.size[0]},{self.size[1]}"]
        if self.dark:
            flags += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": flags, "binary": shutil.which("chromium")},
                  "goog:loggingPrefs": {"browser": "ALL"}}
        end = time.monotonic() + 60
        while True:
            try:
                self.session = "/session/" + self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
                return self
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > end or self.driver.poll() is not None:
                    self.__exit__()
                    raise
                time.sleep(0.1)

    def __exit__(self, *_):
        try:
            if hasattr(self, "session"):
                self._call("DELETE", self.session)
        except OSError:
            pass
        self.driver.terminate()
        self.driver.wait(10)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            said = json.load(error)["value"]
            raise AssertionError(f"{path}: {said['error']}: {said['message']}") from error

    def open(self, url):
        self._call("POST", f"{self.session}/url", {"url": url})

    def resize(self, width, height):
        self._call("POST", f"{self.session}/window/rect", {"width": width, "height": height})

    def script(self, text, *arguments):
        """The value that the body of a function returns; a promise is awaited."""
        return self._call("POST", f"{self.session}/execute/sync", {"script": text, "args": list(arguments)})

    def text(self):
        return self.script("return document.body.innerText")

    def wait_for(self, condition, seconds=10):
        """Waits until the JavaScript expression is true; returns its value and the seconds that it took."""
        begin = time.monotonic()
        while True:
            value = self.script(f"return {condition}")
            if value:
                return value, time.monotonic() - begin
            if time.monotonic() - begin > seconds:
                raise AssertionError(f"not true within {seconds} s: {condition}\nthe page:\n{self.text()[:3000]}")
            time.sleep(0.05)

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self._call("GET", f"{self.session}/screenshot")))

    def complaints(self):
        """What the browser logged as an error since the last call: exceptions, refused scripts, failed loads."""
        return [entry["message"] for entry in self._call("POST", f"{self.session}/se/log", {"type": "browser"})
                if entry["level"] == "SEVERE"]
