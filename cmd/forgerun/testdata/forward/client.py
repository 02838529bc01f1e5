import hashlib
import sys
import urllib.request

target, other = sys.argv[1:]
urllib.request.urlopen(urllib.request.Request(f"{target}/orders", b"{}"), timeout=30).close()
print(hashlib.sha256(urllib.request.urlopen(other, timeout=30).read()).hexdigest())
