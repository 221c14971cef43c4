"""Static files of a gateway: what is in the folder, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import tidewire as tw
from http_support import Site, site

TOKEN = tw.Token("a-long-secret")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A site with a folder in it, a hidden file, and something beside it that is nobody's
    business.
    """
    made = tmp_path / "site"
    (made / "parts").mkdir(parents=True)
    (made / ".git").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    for name, text in (
        ("index.html", "<!doctype html><title>here</title>"),
        ("parts/live.js", "export {};"),
        ("parts/a name.bin", "\0"),
        (".env", "secret"),
        (".git/config", "secret"),
    ):
        (made / name).write_text(text)
    return made


@pytest.fixture
def place(folder: Path) -> Iterator[Site]:
    with site(http=tw.Http(files=folder), tokens=(TOKEN,)) as made:
        yield made


def test_files_come_with_their_type_and_need_no_token(place: Site, folder: Path) -> None:
    assert place.ask("GET", "/services/shop/echo").status != 200
    for path, kind in (
        ("/files/", "text/html; charset=utf-8"),
        ("/files/index.html", "text/html; charset=utf-8"),
        ("/files/parts/live.js", "text/javascript; charset=utf-8"),
        ("/files/parts/a%20name.bin", "application/octet-stream"),
    ):
        answer = place.ask("GET", path)
        assert (answer.status, answer.headers["content-type"]) == (200, kind), path
        assert (answer.headers["x-content-type-options"], answer.headers["cache-control"]) == ("nosniff", "no-cache")
        assert place.ask("HEAD", path).body == b""
    moved = place.ask("GET", "/files")
    assert (moved.status, moved.headers["location"]) == (308, "/files/")
    assert place.ask("POST", "/files/index.html").problem[0] == 405
    # They are those of the beginning.
    (folder / "index.html").write_text("other")
    (folder / "new.txt").write_text("new")
    assert b"here" in place.ask("GET", "/files/").body
    assert place.ask("GET", "/files/new.txt").status == 404


ELSEWHERE = """
../secret.txt parts/../../secret.txt %2e%2e/secret.txt ..%2fsecret.txt parts%2flive.js ..%5csecret.txt
%252e%252e%252fsecret.txt //secret.txt /etc/passwd %2fetc%2fpasswd ....//secret.txt .env .git/config ./index.html
parts parts//live.js index.html%00 index.html%00.js index.html/ INDEX.HTML
"""


def test_no_path_leads_elsewhere(place: Site) -> None:
    for path in ELSEWHERE.split():
        # As bytes: a client would tidy it up.
        request = f"GET /files/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answer = place.raw(request.encode())
        assert answer.split(b" ", 2)[1] == b"404", (path, answer)
        assert b"secret" not in answer.lower().replace(b"secret.txt", b""), path


def test_a_folder_that_cannot_be_served_is_told_at_once(folder: Path, tmp_path: Path) -> None:
    with tw.Node(name="hub") as node:

        def listen(**settings: object) -> None:
            node.listen("http://127.0.0.1:0", http=tw.Http(**settings))  # type: ignore[arg-type]

        with pytest.raises(tw.InvalidArgument, match=r"files: .*nowhere: it can't be read"):
            listen(files=tmp_path / "nowhere")
        with pytest.raises(tw.InvalidArgument, match="http_files_bytes=20"):
            listen(files=folder, limits={"http_files_bytes": 20})
        for wrong in ("", 5):
            with pytest.raises(tw.InvalidArgument, match="files"):
                listen(files=wrong)
        os.symlink(tmp_path / "secret.txt", folder / "linked.txt")
        with pytest.raises(tw.InvalidArgument, match=r"linked\.txt: it is no file and no folder"):
            listen(files=str(folder))
