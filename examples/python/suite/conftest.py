"""Has forgerun verdict judge each test apart from the others: its requests carry its name, in as many processes as there are."""

import http.client
import os
import urllib.parse

import pytest

SERVICE = urllib.parse.urlsplit(os.environ.get("FORGERUN_URL", "")).netloc


@pytest.fixture(autouse=True)
def session_of_the_test(request, monkeypatch):
    """Is for all that uses http.client: urllib, requests, forgerun. With httpx or aiohttp give the client this header."""
    label = request.node.nodeid.encode("ascii", "replace").decode()[-200:].strip()
    endheaders = http.client.HTTPConnection.endheaders

    def with_label(connection, *args, **kwargs):
        if f"{connection.host}:{connection.port}" == SERVICE:
            connection.putheader("ForgeRun-Session", label)
        return endheaders(connection, *args, **kwargs)

    monkeypatch.setattr(http.client.HTTPConnection, "endheaders", with_label)
    return label
