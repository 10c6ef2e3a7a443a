"""A server for the page, accessible only from this machine."""

import os
import secrets
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bokeh.application import Application
from bokeh.application.handlers import FunctionHandler
from bokeh.server.auth_provider import AuthProvider
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from bokeh.settings import settings
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.web import HTTPError

from nsmbayes.errors import InputError
from nsmbayes.explore.explorer import Explorer
from nsmbayes.explore.page import Page

_ADDRESS = "127.0.0.1"
_HOSTS = (_ADDRESS, "localhost")


class LocalOnly(AuthProvider):
    """Rejects requests that do not come from this page: foreign origins, and other host names for this address."""

    def __init__(self, hosts: tuple[str, ...]):
        self._hosts = hosts
        super().__init__()

    @property
    def get_user(self) -> Any:
        """A function that returns the only user, or raises an error."""
        return self._check

    @property
    def get_user_async(self) -> None:
        """None: `get_user` is used instead."""

    @property
    def login_url(self) -> str:
        """Never shown, since there is no login."""
        return "/"

    @property
    def get_login_url(self) -> None:
        """None: see `login_url`."""

    @property
    def login_handler(self) -> None:
        """None: there is no login."""

    @property
    def logout_url(self) -> None:
        """None: there is no logout."""

    @property
    def logout_handler(self) -> None:
        """None: there is no logout."""

    def _check(self, handler: Any) -> str:
        origin = handler.request.headers.get("Origin")
        if handler.request.host not in self._hosts or (
            origin is not None and origin not in {f"http://{host}" for host in self._hosts}
        ):
            raise HTTPError(403, "nsmbayes explore answers pages of its own only")
        return "local"


def local_server(explorer: Explorer[Any], *, port: int, title: str) -> tuple[BaseServer, str]:
    """Build a server on the loopback address, not yet started; return it with the address of its page.

    The address contains a secret, so that other users of this machine cannot open the page.
    """
    settings.resources.set_value("server")  # load nothing from other servers, regardless of the user's Bokeh settings
    try:
        listening = socket.create_server((_ADDRESS, port))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise InputError(f"`--port` {port} cannot be used ({why}). Choose another, or 0 for a free one.") from error
    listening.setblocking(False)
    port = listening.getsockname()[1]
    hosts = tuple(f"{host}:{port}" for host in _HOSTS)
    path, executor = f"/{secrets.token_urlsafe(12)}", ThreadPoolExecutor(1)

    def page(document: Any) -> None:
        Page(document, explorer, executor, title=title)

    application = BokehTornado(
        {path: Application(FunctionHandler(page))},
        extra_websocket_origins=hosts,
        use_index=False,
        auth_provider=LocalOnly(hosts),
    )
    http = HTTPServer(application)
    http.add_sockets([listening])
    return BaseServer(IOLoop.current(), application, http), f"http://{_ADDRESS}:{port}{path}"
