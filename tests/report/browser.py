"""A headless Chromium for tests, driven by the DevTools protocol over a pipe (NUL-terminated JSON on descriptors 3
and 4).

Protocol: https://chromedevtools.github.io/devtools-protocol
"""
import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time

TIMEOUT_SECONDS = 60


def find_chromium():
    """Returns the path of a Chromium that starts; None if there is none. Ubuntu has a stub that only asks to install
    a snap."""
    for path in filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        if subprocess.run([path, "--version"], capture_output=True).returncode == 0:
            return path
    return None


class Browser:
    """One page. Collects the page's complaints in `complaints` and what it loads in `requests`."""

    def __init__(self, program, profile):
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()

        def take_descriptors():
            # Move both above 4 first, because either pipe may occupy the other one's target.
            low, high = os.dup2(to_browser, 200), os.dup2(from_browser, 201)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self._process = subprocess.Popen(
            [program, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
             f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(3, 4), preexec_fn=take_descriptors)
        os.close(to_browser)
        os.close(from_browser)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session = None
        self._events = []
        self.complaints = []
        self.requests = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        os.close(self._to)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)

    def _read(self, deadline):
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                raise TimeoutError(f"the browser is silent for {TIMEOUT_SECONDS} s")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise EOFError(f"the browser ended with {self._process.wait()}")
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        name, values = event.get("method"), event.get("params", {})
        self._events.append(name)
        if name == "Runtime.exceptionThrown":
            self.complaints.append(values["exceptionDetails"]["text"])
        elif name == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([each.get("value") for each in values["args"]]))
        elif name == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.complaints.append(values["entry"]["text"])
        elif name == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])

    def call(self, method, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            answer = self._read(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def wait_for(self, event):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while event not in self._events:
            self._note(self._read(deadline))

    def open(self, url):
        """Loads the page. Returns the seconds until its load event and the next frame, measured on this side of the
        pipe."""
        self._events.clear()
        begin = time.monotonic()
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return time.monotonic() - begin

    def value(self, expression):
        """Evaluates a JavaScript expression, and waits for the result if it is a promise."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def show_as(self, width, height=900, scheme="light"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, key, code):
        for kind in ("rawKeyDown", "char", "keyUp"):
            text = {"text": "\r"} if kind == "char" and key == "Enter" else {}
            if kind == "char" and not text:
                continue
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def screenshot(self, path, clip=None):
        """Takes a picture of the whole page, or of a part of it: {"x", "y", "width", "height"}."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = clip or {"x": 0, "y": 0, "width": size["width"], "height": size["height"]}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip={**clip, "scale": 1})
        path.write_bytes(base64.b64decode(data["data"]))
