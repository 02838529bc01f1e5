import { createHash } from "node:crypto";

const [target, other] = process.argv.slice(2);
await fetch(`${target}/orders`, { method: "POST", body: "{}" });
console.log(createHash("sha256").update(Buffer.from(await (await fetch(other)).arrayBuffer())).digest("hex"));
