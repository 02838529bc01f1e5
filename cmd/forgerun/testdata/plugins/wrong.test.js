test("one key for two orders", async () => {
  for (const body of ["tea", "coffee"]) {
    await fetch(`${process.env.FORGERUN_URL}/orders`, { method: "POST", headers: { "idempotency-key": "17" }, body });
  }
});

test("no pause after 429", async () => {
  const url = process.env.FORGERUN_URL;
  const made = await fetch(`${url}/orders`, { method: "POST", body: "tea" });
  for (let n = 0; n < 3; n += 1) await fetch(new URL(`${made.headers.get("location")}?busy=1`, url));
});
