"""A headless Chromium to open pages with, spoken to over the pipe of its DevTools protocol: no driver, no port."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # needs rights that a container lacks; only pages of our own are opened
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--hide-scrollbars",
)
_READS, _WRITES = 3, 4  # descriptors by which the browser takes calls and answers them


def find_browser() -> str | None:
    """The path of an installed Chromium or Chrome."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in a browser of its own; `close` ends it.

    Args:
        executable: of the browser.
        profile: an empty folder.
        patience: seconds after which an answer that has not come is an error.
    """

    def __init__(self, executable: str, profile: Path, patience: float = 60.0) -> None:
        self.patience = patience
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        # Above those that the browser is given, which would close them otherwise.
        calls_read, self._calls = map(_raised, os.pipe())
        self._answers, answers_written = map(_raised, os.pipe())
        log = str(profile / "browser.log")
        self._process = os.posix_spawn(
            executable,
            [executable, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            dict(os.environ),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, calls_read, _READS),
                (os.POSIX_SPAWN_DUP2, answers_written, _WRITES),
            ],
            setpgroup=0,
        )
        os.close(calls_read)
        os.close(answers_written)
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a method of the protocol.

        Raises:
            RuntimeError: the browser refuses.
            TimeoutError: it does not answer.
        """
        self._number += 1
        call = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            call["sessionId"] = self._session
        os.write(self._calls, json.dumps(call).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def resize(self, width: int, height: int = 900) -> None:
        """Give the window a size in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def prefer(self, theme: str, media: str = "") -> None:
        """Let pages see the system's theme, `light` or `dark`, and a medium, as `print`."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def open(self, url: str) -> None:
        """Go to a page and wait until it is loaded."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, as JSON has it.

        Raises:
            RuntimeError: it throws.
        """
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{script}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true in the page."""
        deadline = time.monotonic() + self.patience
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true in the page: {condition}")
            time.sleep(0.05)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Move the mouse (`Moved`), or press or release its left button (`Pressed`, `Released`) at a place."""
        button = {} if kind == "Moved" else {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **button, **more)

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def close(self) -> None:
        """End the browser."""
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._calls)
        os.close(self._answers)

    def _attach(self) -> None:
        """Open a page, and hear of what happens in it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + self.patience
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError(f"the browser has not answered for {self.patience:g} seconds")
            read = os.read(self._answers, 1 << 16)
            if not read:
                raise RuntimeError("the browser has ended")
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, event: str | None, found: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.errors.append(str(found["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and found["type"] in ("error", "warning", "assert"):
            self.errors.append(str(found["args"]))
        elif event == "Log.entryAdded" and found["entry"]["level"] in ("error", "warning"):
            self.errors.append(str(found["entry"]))
        elif event == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])


def _raised(descriptor: int) -> int:
    """The same under a number that is not taken, and not handed on to other processes."""
    other = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 16)
    os.close(descriptor)
    return other
