"""A browser for tests of pages: Debian's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, expect, sync_playwright

expect.set_options(timeout=30_000)  # milliseconds; a busy machine is no failure
OWN = ("file:", "data:", "blob:", "about:", "http://127.0.0.1", "http://localhost")


@dataclass
class Visit:
    """An open page, with what went wrong on it.

    Attributes:
        page: Playwright's page.
        errors: Errors of scripts, errors on the console, and requests that failed.
        strangers: Requests to other machines.
    """

    page: Page
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)


def chromium_path() -> str:
    """Return where Chromium is; skip the test where it is not, but fail with CI=true."""
    path = shutil.which("chromium")
    if path is None and os.environ.get("CI") == "true":
        pytest.fail("Chromium is not installed; apt-get install chromium")
    if path is None:
        pytest.skip("Chromium is not installed; apt-get install chromium")
    return path


@contextmanager
def browser_page(
    address: str | Path,
    *,
    width: int = 1280,
    height: int = 900,
    scheme: Literal["light", "dark"] = "light",
    password: str | None = None,
    arguments: tuple[str, ...] = (),
) -> Iterator[Visit]:
    """Open a page and fail at the end if it had errors or asked another machine for anything.

    Args:
        address: Address of a page, or path of a file.
        width: Of the window, in pixels; 390 for a phone.
        height: Of the window, in pixels.
        scheme: Colours the reader prefers.
        password: What the reader enters where the browser asks for one.
        arguments: More of Chromium's command line.
    """
    executable = chromium_path()
    url = address.resolve().as_uri() if isinstance(address, Path) else address
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu", *arguments]
        )
        try:
            page = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                http_credentials={"username": "reader", "password": password} if password else None,
            )
            visit = Visit(page)
            _listen(visit)
            page.goto(url, wait_until="load")
            yield visit
        finally:
            browser.close()
    assert visit.errors == []
    assert visit.strangers == []


def _listen(visit: Visit) -> None:
    page, errors = visit.page, visit.errors
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda text: errors.append(text.text) if text.type == "error" else None)
    page.on("requestfailed", lambda request: errors.append(f"failed: {request.url}"))
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith(OWN) else visit.strangers.append(request.url)
        ),
    )
