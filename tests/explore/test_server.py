"""The server answers pages of its own on this machine, and nobody else."""

import asyncio
import socket
import sys

import numpy as np
import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from nsmbayes.cli import main
from nsmbayes.errors import InputError
from nsmbayes.explore import explorer_of
from nsmbayes.explore.server import local_server


@pytest.fixture(scope="module")
def explorer(random_method):
    method = random_method(1, 2, noise_levels=(0.2, 0.8), excess=None)
    return explorer_of(method, np.random.default_rng(0).standard_normal((20, 1)), beta=0.3)


def with_server(explorer, ask):
    """What a coroutine finds out about a running server."""

    async def running():
        server, address = local_server(explorer, port=0, title="test")
        server.start()
        try:
            return await asyncio.wait_for(ask(address), 60)
        finally:
            server.stop()

    return asyncio.run(running())


async def status(address, **headers):
    try:
        return (await AsyncHTTPClient().fetch(HTTPRequest(address, headers=headers, follow_redirects=False))).code
    except HTTPClientError as error:
        return error.code


async def socket_status(address, origin):
    place = address.replace("http://", "ws://") + "/ws"
    try:
        connection = await websocket_connect(
            HTTPRequest(place, headers={"Origin": origin}), subprotocols=["bokeh", "x"]
        )
    except HTTPClientError as error:
        return error.code
    connection.close()
    return 101


def test_only_its_own_pages_are_answered(explorer):
    async def ask(address):
        base, _, secret = address.rpartition("/")
        port = base.rpartition(":")[2]
        page = (await AsyncHTTPClient().fetch(address)).body.decode()
        assert "nsmExplore" in page
        assert "Content-Security-Policy" in page
        assert "https://" not in page.split("<body>")[0].replace("https://github.com", "")
        assert len(secret) >= 16
        assert await status(address) == 200
        assert await status(address, Host=f"localhost:{port}") == 200
        for host in (f"evil.example:{port}", "127.0.0.1:1", "127.0.0.1"):
            assert await status(address, Host=host) == 403
        assert await status(address, Origin="http://evil.example") == 403
        assert await status(base + "/") == 404
        for origin in ("http://evil.example", f"http://evil.example:{port}", "http://127.0.0.1:1", "null"):
            assert await socket_status(address, origin) == 403
        assert await socket_status(address, base) != 403

    with_server(explorer, ask)


def test_it_listens_on_the_loopback_address_alone(explorer):
    async def ask(address):
        port = int(address.split(":")[2].split("/")[0])
        with socket.socket() as other:  # the same port of another address of this machine is free
            other.bind(("127.0.0.2", port))
        with socket.socket() as same, pytest.raises(OSError, match="in use"):
            same.bind(("127.0.0.1", port))
        with pytest.raises(InputError, match=rf"`--port` {port} cannot be used \(.*in use\). Choose another, or 0"):
            local_server(explorer, port=port, title="second")

    with_server(explorer, ask)


@pytest.fixture(scope="module")
def saved(trained_gnk, tmp_path_factory):
    folder = tmp_path_factory.mktemp("explore")
    trained_gnk.save(folder / "model")
    (folder / "data.csv").write_text("\n".join(map(str, np.linspace(-2, 8, 30))) + "\n")
    (folder / "wide.csv").write_text("1,2\n3,4.5\n")
    return folder


@pytest.mark.parametrize(
    ("model", "data", "more", "said"),
    [
        ("nothing", "data.csv", [], "is not a model folder"),
        ("model", "nothing.csv", [], "is not a file"),
        ("model", "wide.csv", [], "`x` must have 1 column"),
        ("model", "data.csv", ["--port", "-1"], "`--port` must be"),
        ("model", "data.csv", ["--port", "99999"], "`--port` must be at most 65,535"),
        ("model", "data.csv", ["--beta", "0"], "`beta` must be"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(saved, model, data, more, said, capsys):
    command = ["explore", str(saved / model), str(saved / data), "--no-browser", *more]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_without_bokeh_the_extra_is_named(saved, capsys, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "bokeh"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "nsmbayes.explore.server")
    assert main(["explore", str(saved / "model"), str(saved / "data.csv"), "--no-browser"]) == 2
    assert "pip install 'nsmbayes[explore]'" in capsys.readouterr().err
