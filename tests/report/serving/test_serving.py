"""`torchreel serve`: who is answered, what is answered, and the page while its store is written."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.stores import FAILED, failing
from tests.store.rows import add_compile, add_failure, add_recording
from torchreel.errors import UsageError
from torchreel.report.serving import LiveReport, ReportServer, live
from torchreel.store import Store, parse

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@pytest.fixture
def path(empty: Path) -> Path:
    return failing(empty)


@pytest.fixture
def serving(path: Path) -> Iterator[ReportServer]:
    report = LiveReport(parse(str(path)), lambda store, row: f"torchreel show {row.place}")
    with ReportServer(report) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def get(serving: ReportServer, name: str = "", **headers: str) -> tuple[int, Any, bytes]:
    """Ask for a name below the token, as a browser does."""
    connection = http.client.HTTPConnection("127.0.0.1", serving.port, timeout=20)
    connection.request("GET", f"/{serving.token}/{name}", headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


def until(serving: ReportServer, name: str, holds: Callable[[Any], bool]) -> Any:
    """Ask until something holds: a server does not read a store at every request."""
    ends = time.monotonic() + 60
    while not holds(found := json.loads(get(serving, name)[2])):
        assert time.monotonic() < ends
        time.sleep(0.1)
    return found


def said(serving: ReportServer, request: str) -> str:
    """Send bytes, and return all that comes back."""
    with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as client:
        client.sendall(request.encode())
        client.shutdown(socket.SHUT_WR)
        found = b""
        while more := client.recv(65536):
            found += more
    return found.decode()


def test_the_page_and_its_parts_are_answered(serving: ReportServer) -> None:
    status, headers, page = get(serving)
    assert status == 200
    assert HEADERS.items() <= dict(headers).items()
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert b"sha256-" in page
    document = json.loads(get(serving, "document")[2])
    assert [row["address"] for row in document["document"]["compiles"]] == ["1/0/0", "1/0/1"]
    assert document["document"]["elsewhere"] == "server"
    assert json.loads(get(serving, "state")[2]) == {"revision": document["revision"]}
    details = json.loads(get(serving, "compile?1%2F0%2F1")[2])
    assert details["details"]["next"] == "torchreel show 1/0/1"
    assert details["details"]["graphs"][0]["content"] < len(details["packed"])


@pytest.mark.parametrize(
    "place", ["", "1/7/7", "1", "../../etc/passwd", "1/0/1%00", "9" * 500, "run.db%231/0/1"]
)
def test_what_is_no_compile_of_it_is_not_found(serving: ReportServer, place: str) -> None:
    assert get(serving, f"compile?{place}")[0] == 404


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET / HTTP/1.1", 404),
        ("GET /{token} HTTP/1.1", 404),
        ("GET /{token}x/ HTTP/1.1", 404),
        ("GET /{token}/../run.db HTTP/1.1", 404),
        ("GET /{token}/run.db HTTP/1.1", 404),
        ("GET http://127.0.0.1/{token}/ HTTP/1.1", 404),
        ("GET /é/ HTTP/1.1", 404),
        ("HEAD /{token}/ HTTP/1.1", 405),
        ("POST /{token}/ HTTP/1.1", 405),
        ("DELETE /{token}/state HTTP/1.1", 405),
        ("OPTIONS /{token}/ HTTP/1.1", 405),
        ("TRACE /{token}/ HTTP/1.1", 405),
    ],
)
def test_anything_else_is_refused(serving: ReportServer, request_line: str, status: int) -> None:
    line = request_line.format(token=serving.token)
    answer = said(serving, f"{line}\r\nHost: 127.0.0.1:{serving.port}\r\n\r\n")
    assert answer.startswith(f"HTTP/1.0 {status} ")
    assert serving.token not in answer


@pytest.mark.parametrize(
    "host",
    [
        "", "Host: evil.example\r\n", "Host: 127.0.0.1\r\n", "Host: 127.0.0.1:1\r\n",
        "Host: evil.example:{port}\r\n", "Host: 127.0.0.1.evil.example:{port}\r\n",
        "Host: 127.0.0.1:{port}\r\nHost: evil.example\r\n",
        "X-Forwarded-Host: 127.0.0.1:{port}\r\n",
    ],
)  # fmt: skip
def test_another_host_or_none_is_forbidden(serving: ReportServer, host: str) -> None:
    """A page of a stranger reaches 127.0.0.1 under its own name (DNS rebinding)."""
    host = host.format(port=serving.port)
    answer = said(serving, f"GET /{serving.token}/ HTTP/1.1\r\n{host}\r\n")
    assert answer.startswith("HTTP/1.0 403 ")
    assert "html" not in answer.partition("\r\n\r\n")[2]
    named = said(
        serving, f"GET /{serving.token}/state HTTP/1.0\r\nHost: localhost:{serving.port}\r\n\r\n"
    )
    assert named.startswith("HTTP/1.0 200 ")


def test_a_request_of_the_first_http_is_refused(serving: ReportServer) -> None:
    assert "403" in said(serving, f"GET /{serving.token}/\r\n\r\n")


def test_it_listens_on_the_loopback_alone_and_the_token_is_its_own(
    serving: ReportServer, path: Path
) -> None:
    assert serving.socket.getsockname()[0] == "127.0.0.1"
    report = LiveReport(parse(str(path)), lambda store, row: "")
    with ReportServer(report) as other:
        assert len(other.token) >= 32
        assert other.token != serving.token
    with pytest.raises(UsageError, match="can't be had"):
        ReportServer(report, serving.port)


def test_a_server_s_store_is_read_again_when_it_has_changed_alone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    works = live.list_compiles
    monkeypatch.setattr(live, "_PAUSE", 0)

    def listed(*arguments: Any) -> Any:
        read.append(arguments)
        return works(*arguments)

    monkeypatch.setattr(live, "list_compiles", listed)
    report = LiveReport(parse(url), lambda store, row: "")
    with Store.open(url, write=True) as store:
        seen = []
        changes: list[Callable[[Any], object]] = [
            lambda w: add_compile(w, add_recording(w, status="running"), ended_ns=7),
            lambda w: w.update("recordings", 1, status="done"),
            lambda w: add_failure(w, 1, 1, FAILED),
            lambda w: w.delete("recordings", 1),
        ]
        for number, change in enumerate(changes, 1):
            with store.writer() as w:
                change(w)
            seen += [report.state(), report.state()]
            assert len(set(seen)) == len(read) == number, number


def test_many_clients_that_say_nothing_do_not_stop_it(serving: ReportServer) -> None:
    silent = [socket.create_connection(("127.0.0.1", serving.port)) for _ in range(40)]
    try:
        silent[0].sendall(b"GET / HT")
        assert get(serving, "state")[0] == 200
        for client in silent:  # none was left meanwhile: no answer came of a client's time limit
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)
    finally:
        for client in silent:
            client.close()


def test_what_is_written_later_comes_with_another_revision(
    serving: ReportServer, path: Path
) -> None:
    before = json.loads(get(serving, "document")[2])
    with Store.open(path, write=True) as store, store.writer() as w:
        add_compile(w, add_recording(w, run="later"), "5/0")
    found = until(serving, "document", lambda found: found["revision"] != before["revision"])
    rows = [row["address"] for row in found["document"]["compiles"]]
    assert rows == ["1/0/0", "1/0/1", "2/5/0"]
    assert get(serving, "compile?2/5/0")[0] == 200


def test_serving_changes_no_file(serving: ReportServer, path: Path) -> None:
    before = path.read_bytes(), sorted(os.listdir(path.parent))
    for name in ("", "state", "document", "compile?1/0/1"):
        assert get(serving, name)[0] == 200
    assert (path.read_bytes(), sorted(os.listdir(path.parent))) == before


def test_a_store_that_is_gone_is_said(serving: ReportServer, path: Path) -> None:
    assert get(serving)[0] == 200
    path.rename(path.with_suffix(".moved"))
    assert "run.db" in until(serving, "state", lambda found: "error" in found)["error"]
    assert get(serving)[0] in (404, 503)


def test_the_command_serves_until_it_is_interrupted(path: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "torchreel.cli", "serve", str(path)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # A job in the background of a script is started with this signal ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)(/[\w-]{32}/)$", line.strip())
        assert found, line
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)
        connection.request("GET", found[2])
        assert connection.getresponse().status == 200
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(20) == 0
        finally:
            process.kill()  # else the end of the `with` waits for it
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_a_missing_store_is_said_at_once(run: Run, tmp_path: Path) -> None:
    result = run("serve", tmp_path / "no.db")
    assert result.status not in (0, 1)
    assert "no.db" in result.err


def test_it_imports_no_torch(path: Path) -> None:
    code = (
        "import sys\nfrom torchreel.report.serving import LiveReport, ReportServer\n"
        "from torchreel.store import parse\n"
        f"report = LiveReport(parse({str(path)!r}), lambda store, row: '')\n"
        "assert report.page() and report.compile('1/0/1')\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- in a browser ---------------------------------------------------------------------------------


def check_that_a_compile_stays(page: Any, path: Path) -> None:
    """A recording before it gets one more compile, and then one that is looked at later."""
    page.click("#compiles >> text=1/0/1")
    page.wait_for_selector("main h1 >> text=1/0/1")
    page.click("#back")
    page.click("#compiles >> text=2/5/0")
    page.wait_for_selector("main h1 >> text=2/5/0")
    page.evaluate("document.querySelector('#panel').dataset.kept = 'yes'")
    assert page.evaluate("location.hash") == "#/c/2"
    with Store.open(path, write=True) as store, store.writer() as w:
        add_compile(w, 1, "0/6")
        add_compile(w, 1, "0/7")
    page.wait_for_selector("a[rel=prev][href='#/c/3']", timeout=20_000)
    assert page.evaluate("location.hash") == "#/c/4"
    assert page.locator("#panel").get_attribute("data-kept") == "yes"
    assert page.locator("main h1").inner_text() == "2/5/0"
    page.click("#tab-guards")
    page.wait_for_selector("#tab-guards[aria-selected=true]")
    assert page.locator("main h1").inner_text() == "2/5/0"
    for address in ("2/5/0", "", "1/0/1"):  # back in the history
        page.go_back()
        page.wait_for_selector(f"main h1 >> text={address or 'Compiles of'}", state="attached")
    page.click("#back")


@pytest.mark.slow
def test_the_page_follows_its_store_and_says_when_its_server_is_gone(
    browser: Any,
    path: Path,
) -> None:
    report = LiveReport(parse(str(path)), lambda store, row: "")
    serving = ReportServer(report)
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    try:
        page.goto(serving.url)
        page.wait_for_selector("#compiles table")
        assert page.locator("#compiles a.open").count() == 2
        page.click("text=1/0/1 >> nth=-1")
        page.wait_for_selector(".waterfall")
        page.click("#tab-graphs")
        page.wait_for_selector(".drawing .node")
        page.click("#back")
        with Store.open(path, write=True) as store, store.writer() as w:
            add_compile(w, add_recording(w, run="later"), "5/0")
        page.wait_for_selector("#compiles >> text=2/5/0", timeout=20_000)
        check_that_a_compile_stays(page, path)
        assert page.locator("#live").is_hidden()
    finally:
        serving.shutdown()
        thread.join()
        serving.server_close()
    page.wait_for_selector("#live:visible", timeout=20_000)
    assert "The server of this page is gone" in page.locator("#live").inner_text()
    assert all(url.startswith(serving.url) for url in asked)
    page.close()
