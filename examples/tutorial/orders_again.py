import os
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parent.parent / "python"))
import client

client.TRIES = 2  # after 2 tries, insist tries again

def insist(do):
    while True:
        try:
            return do()
        except client.GaveUp as err:
            print("again:", err)
            time.sleep(2)

forge = client.Client(os.environ["FORGERUN_URL"], os.environ["FORGERUN_API_KEY"])
for order in range(2):
    job_id = insist(lambda: forge.submit({"type": "EXECUTE", "work_kind": "SUCCESS_FAST"}, f"order-{order}"))
    print("order", order, insist(lambda: forge.wait(job_id))["state"])
