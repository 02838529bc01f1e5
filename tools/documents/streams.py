"""Reads the event stream at FORGERUN_URL with the standard library, as the HTML standard has it, and prints the name of each event."""

import http.client
import os
import time
import urllib.request

last = ""
while True:
    headers = {"Authorization": "Bearer " + os.environ["FORGERUN_API_KEY"], "Accept": "text/event-stream"}
    if last:
        headers["Last-Event-ID"] = last
    try:
        with urllib.request.urlopen(urllib.request.Request(os.environ["FORGERUN_URL"] + "/v1/events", headers=headers)) as stream:
            name, data, buffered = "", False, last
            for line in stream:
                field, _, value = line.decode().rstrip("\n").partition(":")
                value = value.removeprefix(" ")
                if field == "event":
                    name = value
                elif field == "data":
                    data = True
                elif field == "id":
                    buffered = value
                elif line == b"\n":
                    last = buffered
                    if data:
                        print(name, flush=True)
                    name, data = "", False
    except (OSError, http.client.HTTPException):
        pass
    time.sleep(0.2)
