import { ForgeRunError, UnexpectedAnswerError } from "./errors.js";
import { about, type Answer, backoff, type Call, type CallOptions, Http, type Options, passing, retryAfter, statusOf } from "./http.js";
import { follow, type StreamEvent, type StreamOptions } from "./stream.js";
import * as t from "./types.js";

/** Selects the jobs of a list. */
export interface JobFilter {
  state?: t.JobState;
  type?: t.JobType;
  work_kind?: t.WorkKind;
  batch_id?: string;
  /** RFC 3339 in UTC, inclusive. */
  created_after?: string;
  /** RFC 3339 in UTC, exclusive. */
  created_before?: string;
  /** Number of jobs in one page. The list reads all pages. */
  limit?: number;
}

/** The output of a job. */
export interface Result {
  readonly contentType: string;
  readonly data: Uint8Array;
}

const longPoll = 20; // seconds that the service may delay its response to a poll
const defaultPoll = 1000; // ms between polls if the service does not advise an interval
const longestPoll = 3_600_000;
const earlyPolls = 3; // a new job may not be found by the first polls

/** A client of one ForgeRun service. Create it once and keep it, so that connections are reused. */
export class ForgeRun {
  readonly #http: Http;

  constructor(options: Options) {
    this.#http = new Http(options);
  }

  /**
   * Creates a client and its first key, for tests. It needs a service with open registration, such as `forgerun dev`. Only this response
   * has the key. If the response is lost, register again.
   */
  static async register(options: Omit<Options, "apiKey">): Promise<{ clientId: string; apiKey: string }> {
    const anybody = new ForgeRun(options);
    const { client_id } = await anybody.#call<t.Schemas["Client"]>({ method: "POST", path: "/v1/clients", keyed: true });
    const key = await anybody.#call<t.Schemas["Key"]>({ method: "POST", path: `/v1/clients/${segment(client_id)}/keys`, once: true });
    return { clientId: client_id, apiKey: key.api_key! };
  }

  /** Submits a job. When this returns, the job is stored and will run even if the service restarts. */
  async submit(job: t.JobRequest, options?: CallOptions): Promise<t.JobReceipt> {
    return this.#call({ method: "POST", path: "/v1/jobs", body: job, keyed: true }, options);
  }

  /** Submits a job and waits for its end. */
  async run(job: t.JobRequest, options?: CallOptions): Promise<t.Job> {
    const { job_id } = await this.submit(job, options);
    return this.wait(job_id, options);
  }

  /** Reads a job once. */
  async get(id: string, options?: CallOptions): Promise<t.Job> {
    return this.#call({ method: "GET", path: `/v1/jobs/${segment(id)}` }, options);
  }

  /**
   * Polls a job until it is final, in any state: a failed job is not an error. It polls as often as the service advises, and continues
   * while the service is unavailable, so set a limit with a signal: `AbortSignal.timeout(60_000)`.
   */
  async wait(id: string, options?: CallOptions): Promise<t.Job> {
    return this.#poll<t.Job>(`/v1/jobs/${segment(id)}`, t.isFinal, options);
  }

  /** Lists jobs, newest first. Pages are read on demand. */
  jobs(filter: JobFilter = {}, options?: CallOptions): AsyncGenerator<t.JobSummary, void, undefined> {
    return this.#list("/v1/jobs", filter, options);
  }

  /** Cancels a job. A final job does not change. */
  async cancel(id: string, options?: CallOptions): Promise<t.JobChange> {
    return this.#call({ method: "POST", path: `/v1/jobs/${segment(id)}/cancel` }, options);
  }

  /** Queues the next attempt of a FAILED job. If its failure is not retryable, this throws a ProblemError with status 409. */
  async retry(id: string, options?: CallOptions): Promise<t.JobRetry> {
    return this.#call({ method: "POST", path: `/v1/jobs/${segment(id)}/retry`, keyed: true }, options);
  }

  /** Deletes a final job and all its data. */
  async delete(id: string, options?: CallOptions): Promise<void> {
    await this.#http.send({ method: "DELETE", path: `/v1/jobs/${segment(id)}` }, options);
  }

  /** Reads the report of the given attempt, or of the latest attempt that has ended. */
  async report(id: string, options?: CallOptions & { attempt?: number }): Promise<t.Report> {
    return this.#call({ method: "GET", path: `/v1/jobs/${segment(id)}/report${query({ attempt: options?.attempt })}` }, options);
  }

  /** Lists the attempts of a job. */
  attempts(id: string, options?: CallOptions): AsyncGenerator<t.Attempt, void, undefined> {
    return this.#list(`/v1/jobs/${segment(id)}/attempts`, {}, options);
  }

  /** Lists the events in the log of a job so far. */
  events(id: string, options?: CallOptions): AsyncGenerator<t.Event, void, undefined> {
    return this.#list(`/v1/jobs/${segment(id)}/events`, {}, options);
  }

  /** Reads the output of a SUCCEEDED job. It checks the digest if the platform has `crypto.subtle`. */
  async result(id: string, options?: CallOptions): Promise<Result> {
    const call: Call = { method: "GET", path: `/v1/jobs/${segment(id)}/result`, headers: { Accept: "*/*" } };
    const answer = await this.#http.send(call, options);
    const digest = /sha-256=:([^:]+):/.exec(answer.headers.get("Repr-Digest") ?? "")?.[1];
    if (digest !== undefined && globalThis.crypto?.subtle !== undefined) {
      const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", answer.body.slice()));
      if (btoa(String.fromCharCode(...sum)) !== digest) {
        throw new UnexpectedAnswerError(this.#http.info(call), about(answer), "its bytes do not match Repr-Digest");
      }
    }
    return { contentType: answer.headers.get("Content-Type") ?? "application/octet-stream", data: answer.body };
  }

  /** Follows a job from its beginning to its end. It yields each event exactly once, even if connections are lost. */
  stream(id: string, options: StreamOptions = {}): AsyncGenerator<StreamEvent, void, undefined> {
    return follow(this.#http, { method: "GET", path: `/v1/jobs/${segment(id)}/events` }, true, options);
  }

  /** Follows all jobs, batches and webhooks of the client from now on. It does not end by itself. */
  streamAll(options: StreamOptions = {}): AsyncGenerator<StreamEvent, void, undefined> {
    return follow(this.#http, { method: "GET", path: "/v1/events" }, false, options);
  }

  /** Submits 1 to 1,000 jobs with one idempotency key. Each job is accepted or refused separately: a refused item has a `failure`. */
  async submitBatch(jobs: readonly t.BatchItemRequest[], options?: CallOptions): Promise<t.BatchReceipt> {
    return this.#call({ method: "POST", path: "/v1/jobs/batch", body: { jobs }, keyed: true }, options);
  }

  /** Reads a batch once. */
  async batch(id: string, options?: CallOptions): Promise<t.Batch> {
    return this.#call({ method: "GET", path: `/v1/batches/${segment(id)}` }, options);
  }

  /** Waits until a batch is complete. */
  async waitBatch(id: string, options?: CallOptions): Promise<t.Batch> {
    return this.#poll<t.Batch>(`/v1/batches/${segment(id)}`, t.isComplete, options);
  }

  /** Lists the jobs of a batch. */
  batchJobs(id: string, options?: CallOptions): AsyncGenerator<t.BatchJob, void, undefined> {
    return this.#list(`/v1/batches/${segment(id)}/jobs`, {}, options);
  }

  /** Cancels the jobs of a batch that are not final. */
  async cancelBatch(id: string, options?: CallOptions): Promise<t.Batch> {
    return this.#call({ method: "POST", path: `/v1/batches/${segment(id)}/cancel` }, options);
  }

  /** Registers a webhook. Only the first response has the `secret`. If it was lost, `secret` is null: rotate the secret then. */
  async createWebhook(webhook: t.WebhookRequest, options?: CallOptions): Promise<t.IssuedWebhook> {
    return this.#call({ method: "POST", path: "/v1/webhooks", body: webhook, keyed: true }, options);
  }

  /** Creates a new secret for a webhook. The old one stays valid for a day. It is not retried, because only one response has the secret. */
  async rotateSecret(id: string, options?: CallOptions): Promise<t.IssuedWebhook> {
    return this.#call({ method: "POST", path: `/v1/webhooks/${segment(id)}/rotate-secret`, once: true }, options);
  }

  /** Deletes a webhook. */
  async deleteWebhook(id: string, options?: CallOptions): Promise<void> {
    await this.#http.send({ method: "DELETE", path: `/v1/webhooks/${segment(id)}` }, options);
  }

  /** Reads the published keys that verify deliveries. The class `Keys` of the webhooks module keeps them up to date. */
  async signingKeys(options?: CallOptions): Promise<t.Schemas["KeyDirectory"]> {
    const headers = { Accept: "application/http-message-signatures-directory+json, application/json" };
    return this.#call({ method: "GET", path: "/.well-known/http-message-signatures-directory", headers }, options);
  }

  async #call<T>(call: Call, options?: CallOptions): Promise<T> {
    return this.#http.json<T>(call, await this.#http.send(call, options));
  }

  /** Polls a resource until it is final. The service delays each response until the resource changes. An unchanged resource is a 304. */
  async #poll<T>(path: string, final: (resource: T) => boolean, options?: CallOptions): Promise<T> {
    let tag = "";
    let seen = false;
    for (let failures = 0; ; ) {
      const call: Call = { method: "GET", path, holds: longPoll, headers: { Prefer: `wait=${longPoll}` } };
      if (tag) call.headers!["If-None-Match"] = tag;
      const began = Date.now();
      let answer: Answer;
      try {
        answer = await this.#http.send(call, options);
      } catch (error) {
        const early = statusOf(error) === 404 && failures < earlyPolls && !seen ? 0 : undefined;
        const asked = passing(error, true) ?? early;
        if (!(error instanceof ForgeRunError) || asked === undefined) throw error;
        await this.#http.sleep(Math.min(longestPoll, Math.max(asked, backoff(++failures))), options?.signal);
        continue;
      }
      failures = 0;
      seen = true;
      let wait = retryAfter(answer.headers) ?? defaultPoll;
      if (answer.status === 304) {
        wait -= Date.now() - began; // subtract the time that the service delayed the response
      } else {
        const resource = this.#http.json<T>(call, answer);
        if (final(resource)) return resource;
        tag = answer.headers.get("ETag") ?? "";
      }
      wait = Math.min(longestPoll, Math.max(0, wait));
      await this.#http.sleep(wait * (1 + Math.random() / 10), options?.signal); // jitter, so that polls of many jobs spread out
    }
  }

  /** Reads all pages of a list. Pages before the last one may be short or empty. */
  async *#list<T>(path: string, filter: object, options?: CallOptions): AsyncGenerator<T, void, undefined> {
    let cursor: string | undefined;
    do {
      const call: Call = { method: "GET", path: path + query({ ...filter, cursor }) };
      const page = await this.#call<{ data: T[]; page: { next_cursor: string | null } }>(call, options);
      yield* page.data;
      const next = page.page.next_cursor ?? undefined;
      if (next !== undefined && next === cursor) throw new Error("the list has no end: its cursor leads to itself");
      cursor = next;
    } while (cursor !== undefined);
  }
}

/** Escapes an id, which may have any characters. It refuses an empty id and dots alone, which would lead to another resource. */
function segment(id: string): string {
  if (/^\.{0,2}$/.test(id)) throw new TypeError(`${JSON.stringify(id)} is no id`);
  return encodeURIComponent(id);
}

function query(values: object): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return given.length === 0 ? "" : `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
}
