"""A real browser for tests of pages: headless Chromium, spoken to over pipes (the DevTools
protocol), so that nothing listens on a port.

    python tests/browser.py PAGE PICTURE [WIDTH HEIGHT] [light|dark|print]
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# as root there is no sandbox; the others keep it from looking for anything elsewhere
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0  # seconds


def found() -> str:
    """The browser's program; "" where there is none. TENFOLD_BROWSER names another."""
    named = os.environ.get("TENFOLD_BROWSER", "")
    return named or next(filter(None, map(shutil.which, NAMES)), "") or ""


class Browser:
    """One page. `complaints` are what its console said of errors, and what it failed to load;
    `asked` is every address it asked for."""

    def __enter__(self) -> Self:
        self.folder = tempfile.TemporaryDirectory(
            prefix="tenfold-browser-", ignore_cleanup_errors=True
        )
        to_read, self.write_to = os.pipe()
        self.read_from, to_write = os.pipe()
        command = [found(), *FLAGS, f"--user-data-dir={self.folder.name}", "about:blank"]
        self.process = subprocess.Popen(
            # Chromium reads from 3 and writes to 4
            ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", *command],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.number, self.rest, self.events = 0, b"", []
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.session = ""
        targets = self.ask("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.write_to)
        os.close(self.read_from)
        self.folder.cleanup()

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.write_to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.hear(deadline - time.monotonic())
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def hear(self, seconds: float) -> dict[str, Any]:
        """The next message; what a page complains of is noted."""
        while b"\0" not in self.rest:
            assert select.select([self.read_from], [], [], max(seconds, 0))[0], "it says nothing"
            content = os.read(self.read_from, 2**20)
            assert content, "the browser has ended"
            self.rest += content
        text, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(text)
        self.note(message.get("method", ""), message.get("params", {}))
        return message

    def note(self, method: str, told: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and told["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.complaints.append(json.dumps(told["args"])[:500])
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"][:200])
        elif method == "Network.loadingFailed":
            self.complaints.append(told["errorText"])
        elif method == "Page.loadEventFired":
            self.events.append(method)

    def open(self, path: Path) -> None:
        self.events.clear()
        self.ask("Page.navigate", url=path.absolute().as_uri())
        self.wait_for_load()

    def wait_for_load(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.events:
            self.hear(deadline - time.monotonic())
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, button: str = "none", count: int = 0) -> None:
        self.ask(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y,
            button=button,
            buttons=int(button == "left"),
            clickCount=count,
        )

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, "left", 1)
        for part in (0.3, 0.6, 1.0):
            here = [a + part * (b - a) for a, b in zip(start, end, strict=True)]
            self.mouse("mouseMoved", here[0], here[1], "left")
        self.mouse("mouseReleased", *end, "left", 1)

    def window(self, width: int, height: int, phone: bool = False) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    def appear(self, scheme: str = "light", media: str = "") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def picture(self, whole: bool = False) -> bytes:
        options: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {
                "x": 0,
                "y": 0,
                "scale": 1,
                **{k: size[k] for k in ("width", "height")},
            }
        return base64.b64decode(self.ask("Page.captureScreenshot", **options)["data"])

    def printed(self) -> bytes:
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])


def main() -> None:
    page, picture, *more = sys.argv[1:]
    size = [int(word) for word in more if word.isdigit()] or [1100, 900]
    look = next((word for word in more if not word.isdigit()), "light")
    with Browser() as browser:
        browser.window(size[0], size[1], phone=size[0] < 500)
        browser.appear("dark" if look == "dark" else "light", "print" if look == "print" else "")
        browser.open(Path(page))
        Path(picture).write_bytes(browser.picture(whole=True))
        print(browser.complaints or "no complaints")


if __name__ == "__main__":
    main()
