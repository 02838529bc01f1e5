const { randomUUID } = require("node:crypto");

async function order() {
  const url = process.env.FORGERUN_URL;
  const made = await fetch(`${url}/orders`, { method: "POST", headers: { "idempotency-key": randomUUID() }, body: "tea" });
  expect((await (await fetch(new URL(made.headers.get("location"), url))).json()).status).toBe("succeeded");
}

test("right one", order);
test("right two", order);
test("right three", order);
