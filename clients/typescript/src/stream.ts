import { ForgeRunError, NoAnswerError, UnexpectedAnswerError } from "./errors.js";
import { about, type Call, type Http, type Limit, limited, passing, refusal } from "./http.js";

/** What to watch, and from where. */
export interface StreamOptions {
  /** Go on after the event with this id. Without it the stream of a job begins with the job, that of a client now. */
  lastEventId?: string;
  /** How long the stream may be silent before it is opened anew, in milliseconds. 45,000 without it: three heartbeats. */
  silence?: number;
  /** Ends the stream with an error. */
  signal?: AbortSignal;
}

/** An event of a stream. */
export interface StreamEvent {
  /** Resumes after it; undefined for `job-progress`, which is not repeated. */
  readonly id: string | undefined;
  /** `job-running`, `job-succeeded`, ... */
  readonly name: string;
  /** An outcome document for the ends of jobs and batches, otherwise the event as in the list. */
  readonly data: unknown;
}

const defaultReconnect = 2000; // until the service says otherwise
const longestReconnect = 30_000;
const lasting = 10_000; // a connection that lasts so long, or brings something, ends a series of failures
const afterEnd = 250; // when the job has probably ended: the next answer will say so
const remembered = 256; // ids of which repetitions are recognized
const maxEvent = 4 << 20; // characters
const ends = new Set(["job-succeeded", "job-failed", "job-canceled", "job-retries-exhausted"]);

type Events = AsyncGenerator<StreamEvent, void, undefined>;

/** Yields events, each once and none left out, over as many connections as it takes. */
export async function* follow(http: Http, call: Call, ofJob: boolean, options: StreamOptions): Events {
  const seen = new Set<string>();
  let last = options.lastEventId ?? "";
  let reconnect = defaultReconnect;
  let failures = 0;
  let connected = false;
  for (;;) {
    const began = Date.now();
    let progress = false;
    let ending = false;
    let failure: Error;
    const limit = limited(options.silence ?? 45_000, options.signal);
    try {
      options.signal?.throwIfAborted();
      const headers = http.headers({ Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) });
      const response = await http.open(call, headers, limit.signal);
      if (response.status === 204) return; // there is no more
      const body = await events(http, call, response);
      connected = true;
      for await (const frame of frames(body, limit)) {
        if (frame.retry !== undefined) reconnect = Math.min(longestReconnect, Math.max(100, frame.retry));
        if (frame.id !== undefined && seen.has(frame.id)) continue; // it came before the stream was opened again
        if (frame.id !== undefined) remember(seen, (last = frame.id));
        progress = true;
        if (frame.data === undefined || frame.name === "position") continue; // at which the stream of a client begins
        ending = ofJob && ends.has(frame.name);
        yield { id: frame.id, name: frame.name, data: parse(http, call, response, frame.data) };
      }
      failure = new Error("the stream has ended");
    } catch (error) {
      if (options.signal?.aborted) throw options.signal.reason;
      if (error instanceof RangeError) throw error; // another connection would not help
      failure = error instanceof ForgeRunError ? error : new NoAnswerError(http.info(call, failures + 1), error);
      const asked = passing(failure, true);
      if (asked === undefined || (!connected && failures + 1 >= http.maxTries)) throw failure;
      reconnect = Math.max(reconnect, Math.min(asked, longestReconnect));
      ending = false;
    } finally {
      limit.clear();
      limit.abort(); // closes the connection of a reader that stopped
    }
    failures = progress || Date.now() - began >= lasting ? 1 : failures + 1;
    const wait = ending ? afterEnd : Math.min(longestReconnect, reconnect * 2 ** (failures - 1)) * (1 + Math.random() / 2);
    http.retrying(failure, wait);
    await http.sleep(wait, options.signal);
  }
}

/** Keeps the latest ids. */
function remember(seen: Set<string>, id: string): void {
  seen.add(id);
  if (seen.size > remembered) seen.delete(seen.values().next().value!);
}

/** The body of an answer that is an event stream. */
async function events(http: Http, call: Call, response: Response): Promise<ReadableStream<Uint8Array>> {
  if (response.status !== 200) {
    const body = await response.arrayBuffer().catch(() => new ArrayBuffer(0)); // status and headers count
    throw refusal(http.info(call), response, new Uint8Array(body));
  }
  if (!response.body || !/^text\/event-stream\b/.test(response.headers.get("Content-Type") ?? "")) {
    throw new UnexpectedAnswerError(http.info(call), about(response), "it is not an event stream");
  }
  return response.body;
}

function parse(http: Http, call: Call, response: Response, data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    throw new UnexpectedAnswerError(http.info(call), about(response), "the data of an event is not JSON");
  }
}

/** The lines between two empty ones of an event stream. */
export interface Frame {
  id: string | undefined;
  name: string;
  data: string | undefined;
  retry: number | undefined;
}

/** The complete frames of a stream (HTML standard, section 9.2.6). What a lost connection cut off is sent again. */
export async function* frames(body: ReadableStream<Uint8Array>, limit: Limit): AsyncGenerator<Frame, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let lines: string[] = [];
  for (;;) {
    limit.restart();
    const { value, done } = await reader.read();
    limit.pause(); // the time that the reader of the events takes is its own
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    if (rest.length > maxEvent) throw new RangeError("an event of the stream is too long");
    // A CR at the end may be the first half of CRLF: it waits for what follows.
    for (let end = /\r\n|\n|\r(?!$)/.exec(rest); end; end = /\r\n|\n|\r(?!$)/.exec(rest)) {
      const line = rest.slice(0, end.index);
      rest = rest.slice(end.index + end[0].length);
      if (line !== "") {
        lines.push(line);
        continue;
      }
      const frame = read(lines);
      lines = [];
      if (frame.id !== undefined || frame.data !== undefined || frame.retry !== undefined) yield frame;
    }
  }
}

function read(lines: readonly string[]): Frame {
  const frame: Frame = { id: undefined, name: "message", data: undefined, retry: undefined };
  for (const line of lines) {
    const [, name, value = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
    if (name === "event") frame.name = value;
    else if (name === "data") frame.data = frame.data === undefined ? value : `${frame.data}\n${value}`;
    else if (name === "id" && value !== "" && !value.includes("\0")) frame.id = value; // an empty one would reset the position
    else if (name === "retry" && /^\d+$/.test(value)) frame.retry = Number(value);
  }
  return frame;
}
