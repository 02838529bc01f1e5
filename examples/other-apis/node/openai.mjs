// https://github.com/openai/openai-node#usage, https://platform.openai.com/docs/guides/batch
import OpenAI from "openai";
import { each, sleep, url } from "./each.mjs";

const client = new OpenAI({ apiKey: "key", baseURL: `${url}/v1` });

await each(async (name) => {
  let batch = await client.batches.create({
    input_file_id: `file-${name}`, endpoint: "/v1/chat/completions", completion_window: "24h",
  });
  while (!["completed", "failed", "expired", "cancelled"].includes(batch.status)) {
    await sleep(1000);
    batch = await client.batches.retrieve(batch.id);
  }
  return batch.status;
});
