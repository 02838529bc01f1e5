// https://github.com/octokit/octokit.js#rest-api, https://docs.github.com/en/rest/metrics/statistics
import { Octokit } from "octokit";
import { each, sleep, url } from "./each.mjs";

const octokit = new Octokit({ baseUrl: url });

await each(async (repo) => {
  for (;;) {
    const { status } = await octokit.rest.repos.getContributorsStats({ owner: "octocat", repo });
    if (status !== 202) {
      return status;
    }
    await sleep(1000);
  }
});
