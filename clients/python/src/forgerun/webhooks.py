"""Verifies webhook deliveries and callbacks, as docs/reference/webhooks.md of ForgeRun describes.

With the secret of a webhook (Standard Webhooks) the standard library is enough. With the published keys (RFC 9421, ed25519) the
package cryptography is needed: ``pip install forgerun-client[keys]``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .schemas import KeyDirectory

MAX_AGE = 300  # seconds, by webhook-timestamp
SKEW = 60  # seconds; allowed clock difference for created and expires
MAX_ENTRIES = 16  # maximum number of signatures to try
MUST_COVER = {"@method", "@target-uri", "content-type", "content-digest", "webhook-id"}


class SignatureError(Exception):
    """The message is forged, changed or too old: answer 401. After any other error answer 503, and the message is sent again."""


@dataclass(frozen=True)
class WebhookMessage:
    """A verified delivery."""

    #: The same each time the delivery is sent. Store it to recognize duplicates.
    webhook_id: str
    event_id: str
    #: job.failed, ...
    name: str
    source: str
    subject: str
    time: str
    #: Position in the job's log, from 1; None for messages without a job.
    sequence: int | None
    #: None for messages without a job.
    job_id: str | None
    #: For messages about jobs and batches, an outcome document.
    data: Any


class KeySource(Protocol):
    """Finds published keys."""

    def key(self, key_id: str) -> bytes | None:
        """Returns the 32 bytes of the key with this id; None if there is none."""


class KeyReader(Protocol):
    """Reads the published keys. Client implements it."""

    def signing_keys(self) -> KeyDirectory:
        """Reads the keys."""


class Verifier:
    """Checks the signatures of deliveries: with the secret, the keys, or both.

    secret, ``whsec_...``, proves that the message belongs to that webhook. It does not protect ce- headers. In binary content mode, all
    fields of the message except webhook_id and data come from these headers.

    keys prove that ForgeRun sent exactly this message to url, the registered URL, not one rewritten by a proxy. They do not prove for
    which client: any client can use your URL as a callback. A callback has no secret, so check that you submitted the job job_id before
    you act. keys need the package cryptography.
    """

    def __init__(
        self, *, secret: str | None = None, keys: KeySource | None = None, url: str | None = None, now: Callable[[], float] = time.time
    ) -> None:
        if secret is None and keys is None:
            raise ValueError("a Verifier needs a secret, keys or both")
        self._secret = None if secret is None else _decoded(secret.removeprefix("whsec_"))
        if self._secret == b"":
            raise ValueError("the secret must be whsec_ followed by base64")
        self._keys = keys
        self._now = now
        self._target = ""
        if keys is not None:
            if not url:
                raise ValueError("a Verifier with keys needs the URL that was registered")
            self._target = signed_uri(url)
            _ed25519()  # reports a missing package now instead of at the first delivery

    def verify(self, method: str, headers: Mapping[str, str], body: bytes) -> WebhookMessage:
        """Verifies a request with the secret and the keys, if set, and returns its message.

        The body must be the original bytes, not parsed and encoded again.
        """
        fields = {name.lower(): value for name, value in headers.items()}
        if self._secret is not None:
            self._verify_secret(self._secret, fields, body)
        if self._keys is not None:
            self._verify_key(self._keys, method, fields, body)
        return _read(fields, body)

    def _verify_secret(self, secret: bytes, fields: Mapping[str, str], body: bytes) -> None:
        webhook_id, timestamp = fields.get("webhook-id", ""), fields.get("webhook-timestamp", "")
        # Dots separate the signed parts. With a dot in the id, the same text could be split differently into id, time and body.
        if not webhook_id or "." in webhook_id or not re.fullmatch("[0-9]{1,12}", timestamp):
            raise SignatureError("webhook-id or webhook-timestamp is missing or wrong")
        if abs(self._now() - int(timestamp)) > MAX_AGE:
            raise SignatureError("its timestamp is too old or in the future")
        wanted = hmac.digest(secret, f"{webhook_id}.{timestamp}.".encode() + body, "sha256")
        entries = fields.get("webhook-signature", "").split()[:MAX_ENTRIES]
        if not any(entry.startswith("v1,") and hmac.compare_digest(_decoded(entry[3:]), wanted) for entry in entries):
            raise SignatureError("no signature matches the secret")

    def _verify_key(self, keys: KeySource, method: str, fields: Mapping[str, str], body: bytes) -> None:
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        if f"sha-256=:{digest}:" not in re.split(r",\s*", fields.get("content-digest", "")):
            raise SignatureError("the body does not match Content-Digest")
        refused = SignatureError("it has no signature")
        for signed in _inputs(fields)[:MAX_ENTRIES]:
            try:
                base, signature = self._base(signed, method, fields)
                key = keys.key(signed.params.get("keyid", ""))
                if key is None:
                    raise SignatureError("the signature's key is not published")
                if not _matches(key, signature, base):
                    raise SignatureError("the signature does not match")
                return
            except SignatureError as error:
                refused = error
        raise refused

    def _base(self, signed: _Input, method: str, fields: Mapping[str, str]) -> tuple[bytes, bytes]:
        """Returns the signed text (RFC 9421, section 2.5) and the signature."""
        params, now = signed.params, self._now()
        if not int(params.get("created") or 1 << 60) - SKEW <= now <= int(params.get("expires") or 0) + SKEW:
            raise SignatureError("the signature is expired or dated in the future")
        if params.get("alg") != "ed25519":
            raise SignatureError("the signature's algorithm is not ed25519")
        required = MUST_COVER | {name for name in fields if name.startswith("ce-")}
        if missing := required.difference(signed.components):
            raise SignatureError(f"the signature does not cover {', '.join(sorted(missing))}")
        if len(set(signed.components)) < len(signed.components):
            raise SignatureError("a component is signed twice")
        values = {**fields, "@method": method, "@target-uri": self._target}
        if absent := set(signed.components).difference(values):
            raise SignatureError(f"there is no component {', '.join(sorted(absent))}")
        base = "".join(f'"{name}": {values[name]}\n' for name in signed.components) + f'"@signature-params": {signed.text}'
        begin = f"{signed.name}=:"
        members = re.split(r",\s*", fields.get("signature", ""))
        return base.encode(), _decoded(next((m[len(begin) : -1] for m in members if m.startswith(begin)), ""))


@dataclass(frozen=True)
class _Input:
    """A member of Signature-Input."""

    name: str
    text: str
    components: list[str]
    params: dict[str, str]


MEMBER = re.compile(
    r'(?:^|,\s*)([a-z*][a-z0-9_.*-]*)=(\(((?:"[a-z0-9@-]+" ?)*)\)((?:;[a-z]+=(?:"[^"\\]*"|[0-9]{1,15}))+))(?=\s*,|$)'
)


def _inputs(fields: Mapping[str, str]) -> list[_Input]:
    """Returns the members of Signature-Input that have ForgeRun's form. It skips others."""
    found = []
    for name, text, components, params in MEMBER.findall(fields.get("signature-input", "")):
        pairs = {key: quoted or number for key, quoted, number in re.findall(r';([a-z]+)=(?:"([^"]*)"|([0-9]+))', params)}
        if not all(pairs.get(time, "").isdigit() for time in ("created", "expires")):
            continue
        found.append(_Input(name, text, re.findall('"([^"]+)"', components), pairs))
    return found


def signed_uri(url: str) -> str:
    """Normalizes a URL as the service does for signing: lower-case scheme and host, no default port, a path, no fragment, ASCII only."""
    parts = re.match(r"(https?)://([^/?#]+)([^?#]*)(\?[^#]*)?", url, re.IGNORECASE)
    if not parts:
        raise ValueError("the URL must begin with http:// or https:// and a host")
    scheme, host = parts[1].lower(), parts[2].lower()
    path = (parts[3] or "/") + (parts[4] or "")
    ascii_path = re.sub(r"[^\x21-\x7e]+", lambda found: urllib.parse.quote(found[0]), path)
    return f"{scheme}://{host.removesuffix(':443' if scheme == 'https' else ':80')}{ascii_path}"


def _read(fields: Mapping[str, str], body: bytes) -> WebhookMessage:
    """Parses the CloudEvent in binary or structured mode."""
    try:
        document = json.loads(body.decode())
    except ValueError:
        raise SignatureError("it is signed, but not JSON") from None
    structured = fields.get("content-type", "").lower().startswith("application/cloudevents+json")
    event = document if structured else {name[3:]: value for name, value in fields.items() if name.startswith("ce-")}
    if not isinstance(event, dict) or not event.get("id") or not event.get("type"):
        raise SignatureError("it is signed, but no CloudEvent: it has no id or no type")
    subject, sequence = str(event.get("subject", "")), str(event.get("sequence", ""))
    return WebhookMessage(
        webhook_id=fields.get("webhook-id", ""),
        event_id=str(event["id"]),
        name=str(event["type"]),
        source=str(event.get("source", "")),
        subject=subject,
        time=str(event.get("time", "")),
        sequence=int(sequence) if sequence.isascii() and sequence.isdigit() and int(sequence) > 0 else None,
        job_id=subject.removeprefix("jobs/") if subject.startswith("jobs/") else None,
        data=event.get("data") if structured else document,
    )


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise RuntimeError(
            "verifying with published keys needs the package cryptography, since Python has no ed25519: pip install forgerun-client[keys];"
            " with the secret of a webhook nothing is needed"
        ) from None
    return Ed25519PublicKey


def _matches(key: bytes, signature: bytes, text: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        _ed25519().from_public_bytes(key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


KEEP_KEYS = 300.0
ASK_AGAIN = 60.0  # wait before another read for an unknown key
AFTER_ERROR = 5.0
USE_OLD_KEYS = 3600.0  # keys stay valid for this time while reads fail


@dataclass
class Keys:
    """Caches the published keys of a service for five minutes. For an unknown key it reads them again, at most once a minute.

    Give it its own Client, with a short timeout and few tries: ``Keys(Client(url, timeout=5, max_tries=2))``.
    """

    reader: KeyReader
    now: Callable[[], float] = time.monotonic
    _keys: dict[str, bytes] = field(default_factory=dict, init=False)
    _read: float = field(default=float("-inf"), init=False)
    _next: float = field(default=float("-inf"), init=False)  # time of the next allowed read
    _error: Exception | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def key(self, key_id: str) -> bytes | None:
        """Returns the key with this id; None if there is none. Concurrent calls share one read of the keys."""
        with self._lock:
            now = self.now()
            if not (key_id in self._keys and now - self._read < KEEP_KEYS) and now >= self._next:
                self._ask(now)
            found = self._keys.get(key_id)
            # While reads fail, an unknown key may be a new one, so raise the read's error instead of refusing the message.
            if self._error is not None and (found is None or now - self._read >= USE_OLD_KEYS):
                raise self._error
            return found

    def _ask(self, now: float) -> None:
        try:
            keys = self.reader.signing_keys()["keys"]
            known = [key for key in keys if key["kty"] == "OKP" and key["crv"] == "Ed25519"]
            self._keys = {key["kid"]: base64.urlsafe_b64decode(key["x"] + "=") for key in known}
            self._error, self._read, self._next = None, now, now + ASK_AGAIN
        except Exception as error:
            self._error, self._next = error, now + AFTER_ERROR
