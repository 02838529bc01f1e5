from __future__ import annotations

import base64
import functools
import json
import os
import unittest
from pathlib import Path
from typing import Any

from forgerun.schemas import KeyDirectory
from forgerun.webhooks import Keys, SignatureError, Verifier, signed_uri

try:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
except ImportError:
    HAS_KEYS = False
else:
    HAS_KEYS = True
needs_keys = unittest.skipUnless(HAS_KEYS, "the package cryptography is not installed")

# Deliveries of a real service, with their keys and secrets.
FILE = os.environ.get("DELIVERIES", str(Path(__file__).parents[3] / "client" / "testdata" / "deliveries.json"))
CAPTURED = json.loads(Path(FILE).read_text())


class Directory:
    def __init__(self) -> None:
        self.reads = 0
        self.failing = False

    def signing_keys(self) -> KeyDirectory:
        self.reads += 1
        if self.failing:
            raise OSError("away")
        directory: KeyDirectory = CAPTURED["directory"]
        return directory


class One:
    """A source of keys that returns the same key for every id."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key

    def key(self, key_id: str) -> bytes | None:
        return self._key


class Delivery:
    def __init__(self, name: str) -> None:
        captured = CAPTURED["deliveries"][name]
        self.method: str = captured["method"]
        self.url: str = captured["url"]
        self.headers: dict[str, str] = {name.lower(): value for name, value in captured["headers"].items()}
        self.body = base64.b64decode(captured["body_base64"])
        self.secret: str = CAPTURED["secret" if "ce-id" in self.headers else "structured_secret"]
        self.at = int(self.headers["webhook-timestamp"])

    def now(self) -> float:
        return self.at


class WebhooksTest(unittest.TestCase):
    def refused(self, verifier: Verifier, of: Delivery, **changed: Any) -> None:
        request: dict[str, Any] = {"method": of.method, "headers": of.headers, "body": of.body, **changed}
        with self.assertRaises(SignatureError):
            verifier.verify(**request)

    def test_deliveries_of_a_real_service_are_verified_in_both_content_modes(self) -> None:
        for name in CAPTURED["deliveries"]:
            d = Delivery(name)
            verifiers = [Verifier(secret=d.secret, now=d.now)]
            if HAS_KEYS:
                verifiers.append(Verifier(keys=Keys(Directory()), url=d.url, now=d.now))
                verifiers.append(Verifier(secret=d.secret, keys=Keys(Directory()), url=d.url, now=d.now))
            for verifier in verifiers:
                message = verifier.verify(d.method, {n.title(): v for n, v in d.headers.items()}, d.body)
                self.assertEqual((message.name, message.webhook_id), (name, d.headers["webhook-id"]))
                if name.startswith("job."):
                    self.assertEqual(message.job_id, message.data["jobId"])

    def test_what_was_changed_is_refused_with_the_secret(self) -> None:
        d = Delivery("job.failed")
        verifier = Verifier(secret=d.secret, now=d.now)
        self.refused(verifier, d, body=d.body + b" ")
        self.refused(verifier, d, headers={**d.headers, "webhook-id": "x"})
        self.refused(verifier, d, headers={})
        self.refused(verifier, d, headers={**d.headers, "webhook-signature": "v1,"})
        self.refused(verifier, d, headers={**d.headers, "webhook-signature": "v2" + d.headers["webhook-signature"][2:]})
        self.refused(Verifier(secret="whsec_eA==", now=d.now), d)
        for shift in (-301, 301):
            self.refused(Verifier(secret=d.secret, now=functools.partial(float, d.at + shift)), d)
        verifier.verify(d.method, {**d.headers, "webhook-signature": "v1,AAAA " + d.headers["webhook-signature"]}, d.body)

    @needs_keys
    def test_what_was_changed_is_refused_with_a_key(self) -> None:
        d = Delivery("job.failed")
        verifier = Verifier(keys=Keys(Directory()), url=d.url, now=d.now)
        zeros = base64.b64encode(bytes(64)).decode()
        self.refused(verifier, d, body=d.body + b" ")
        self.refused(verifier, d, method="PUT")
        self.refused(verifier, d, headers={})
        for name, value in (("webhook-id", "x"), ("ce-type", "job.succeeded"), ("ce-tenant", "x"), ("content-type", "text/plain"),
                            ("signature", f"sig1=:{zeros}:"), ("signature", "sig1=:AAAA:"), ("signature-input", "sig1=(")):
            self.refused(verifier, d, headers={**d.headers, name: value})
        self.refused(Verifier(keys=Keys(Directory()), url=d.url + "x", now=d.now), d)
        self.refused(Verifier(keys=Keys(Directory()), url=d.url, now=lambda: d.at + 361), d)
        self.refused(Verifier(keys=One(None), url=d.url, now=d.now), d)
        self.refused(Verifier(keys=One(bytes(32)), url=d.url, now=d.now), d)
        away = Directory()
        away.failing = True
        with self.assertRaises(OSError):
            Verifier(keys=Keys(away), url=d.url, now=d.now).verify(d.method, d.headers, d.body)

    @needs_keys
    def test_a_signature_counts_only_if_it_covers_what_it_must(self) -> None:
        d, private = Delivery("job.failed"), Ed25519PrivateKey.generate()
        public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        verifier = Verifier(keys=One(public), url=d.url, now=d.now)
        components = ["@method", "@target-uri", "content-type", "content-digest", "webhook-id"]
        components += [name for name in d.headers if name.startswith("ce-")]
        values = {**d.headers, "@method": "POST", "@target-uri": d.url}

        def signed(names: list[str], algorithm: str = "ed25519") -> dict[str, str]:
            listed = " ".join(f'"{name}"' for name in names)
            text = f'({listed});created={d.at};expires={d.at + 300};keyid="k";alg="{algorithm}"'
            base = "".join(f'"{name}": {values[name]}\n' for name in names) + f'"@signature-params": {text}'
            signature = base64.b64encode(private.sign(base.encode())).decode()
            inputs = f'x=("@method");created=1;expires=2, s.1={text}'
            return {**d.headers, "signature-input": inputs, "signature": f"x=:AA==:, s.1=:{signature}:"}

        verifier.verify(d.method, signed(components), d.body)
        for name in components:
            self.refused(verifier, d, headers=signed([other for other in components if other != name]))
        self.refused(verifier, d, headers=signed(["webhook-id", *components]))
        self.refused(verifier, d, headers=signed(components, "hmac-sha256"))

    def test_the_url_is_brought_into_the_form_that_is_signed(self) -> None:
        for given, wanted in (
            ("https://example.com", "https://example.com/"), ("HTTPS://Example.COM:443?x=1", "https://example.com/?x=1"),
            ("http://example.com:443/", "http://example.com:443/"), ("http://example.com:80/A?B#c", "http://example.com/A?B"),
            ("https://example.com/ä?q=ü", "https://example.com/%C3%A4?q=%C3%BC"),
            ("https://example.com//a/./..", "https://example.com//a/./.."),
        ):
            self.assertEqual(signed_uri(given), wanted)
        wrong: list[dict[str, Any]] = [{}, {"keys": Keys(Directory())}, {"secret": "whsec_"}, {"secret": "whsec_!"}]
        for arguments in wrong:
            with self.assertRaises(ValueError):
                Verifier(**arguments)

    def test_keys_are_kept_and_read_again_for_one_that_is_new(self) -> None:
        directory, time = Directory(), [0.0]
        keys = Keys(directory, now=lambda: time[0])
        known = CAPTURED["directory"]["keys"][0]["kid"]
        self.assertEqual(len(keys.key(known) or b""), 32)
        self.assertIsNone(keys.key("other"))
        self.assertEqual(directory.reads, 1, "not more than once a minute")
        time[0] += 60
        self.assertIsNone(keys.key("other"))
        self.assertEqual(directory.reads, 2)
        directory.failing = True
        time[0] += 300
        self.assertIsNotNone(keys.key(known), "old keys stay in use")
        with self.assertRaises(OSError):  # the unknown key may be a new one
            keys.key("other")
        time[0] += 3600
        with self.assertRaises(OSError):
            keys.key(known)


if __name__ == "__main__":
    unittest.main()
