"""Says whether a captured webhook delivery is ForgeRun's.

Reads {method, url, headers, body_base64} from standard input, the secret from
WEBHOOK_SECRET and the published keys from the file DIRECTORY; at least one of
the two must be there. The secret needs the standard library only, the keys
need the package cryptography. Exit code 0 and "ok", or 1 and the reason.
"""

import base64
import hashlib
import hmac
import json
import os
import re
import sys
import time

MAX_AGE, SKEW = 300, 60  # seconds


def verify_secret(headers, body, secret, now):
    """Checks the HMAC made with the secret, and that the message is at most
    five minutes old. The body is the bytes as received."""
    webhook_id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    if abs(now - int(timestamp)) > MAX_AGE:
        raise ValueError("the timestamp is too old or in the future")
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.digest(key, f"{webhook_id}.{timestamp}.".encode() + body, "sha256")
    wanted = "v1," + base64.b64encode(mac).decode()
    given = headers["webhook-signature"].split(" ")
    if not any(hmac.compare_digest(entry.encode(), wanted.encode()) for entry in given):
        raise ValueError("no signature matches the secret")


def verify_key(method, url, headers, body, directory, now):
    """Checks the signature of RFC 9421 under the server's published keys. url is
    the one that was registered, not what a proxy made of it. Anything but the
    form that ForgeRun writes is refused."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    found = re.search(
        r'(?:^|,\s*)sig1=(\(((?:"[a-z0-9@-]+" ?)+)\)((?:;[a-z]+=(?:"[^"\\]*"|\d+))+))(?:,|$)', headers["signature-input"])
    signature = re.search(r"(?:^|,\s*)sig1=:([A-Za-z0-9+/=]+):(?:,|$)", headers["signature"])
    if not found or not signature:
        raise ValueError("Signature-Input or Signature has no sig1")
    signed, components, parameters = found.groups()

    params = dict(re.findall(r';([a-z]+)="?([^";]*)', parameters))
    if int(params["created"]) > now + SKEW or int(params["expires"]) < now - SKEW:
        raise ValueError("the signature is expired or dated in the future")
    keys = {key["kid"]: key["x"] for key in directory["keys"] if key.get("crv") == "Ed25519"}
    if params["keyid"] not in keys or params["alg"] != "ed25519":
        raise ValueError("no such key in the directory")

    covered = re.findall(r'"([^"]+)"', components)
    required = {"@method", "@target-uri", "content-type", "content-digest", "webhook-id"}
    required |= {name for name in headers if name.startswith("ce-")}  # binary mode
    if missing := required.difference(covered):
        raise ValueError(f"the signature does not cover {', '.join(sorted(missing))}")

    values = {**headers, "@method": method, "@target-uri": url}
    base = "".join(f'"{name}": {values[name]}\n' for name in covered) + f'"@signature-params": {signed}'
    key = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(keys[params["keyid"]] + "="))
    try:
        key.verify(base64.b64decode(signature[1]), base.encode())
    except InvalidSignature:
        raise ValueError("the signature does not match") from None

    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    if f"sha-256=:{digest}:" not in re.split(r",\s*", headers["content-digest"]):
        raise ValueError("the body does not match Content-Digest")


def main():
    captured = json.load(sys.stdin)
    secret, directory_file = os.environ.get("WEBHOOK_SECRET"), os.environ.get("DIRECTORY")
    headers = {name.lower(): value for name, value in captured["headers"].items()}
    body, now = base64.b64decode(captured["body_base64"]), time.time()
    if not secret and not directory_file:
        raise ValueError("set WEBHOOK_SECRET, DIRECTORY or both")
    if secret:
        verify_secret(headers, body, secret, now)
    if directory_file:
        with open(directory_file, encoding="utf-8") as file:
            verify_key(captured["method"], captured["url"], headers, body, json.load(file), now)
    print("ok")


if __name__ == "__main__":
    try:
        main()
    except KeyError as error:
        sys.exit(print(f"{error} is missing") or 1)
    except (ValueError, ImportError) as error:
        sys.exit(print(error) or 1)
