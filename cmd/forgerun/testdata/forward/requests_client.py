import hashlib
import sys

import requests

target, other = sys.argv[1:]
requests.post(f"{target}/orders", data=b"{}", timeout=30).raise_for_status()
print(hashlib.sha256(requests.get(other, timeout=30).content).hexdigest())
