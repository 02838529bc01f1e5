import { ForgeRunError, NoAnswerError, UnexpectedAnswerError } from "./errors.js";
import { about, type Call, type Http, type Limit, limited, passing, refusal } from "./http.js";

/** Options of a stream. */
export interface StreamOptions {
  /** Resume after the event with this id. Default: a job's stream begins with its first event, a client's stream begins now. */
  lastEventId?: string;
  /** Milliseconds of silence after which the stream reconnects. Default: 45,000, three heartbeats. */
  silence?: number;
  /** Aborting this signal ends the stream with an error. */
  signal?: AbortSignal;
}

/** An event of a stream. */
export interface StreamEvent {
  /** Pass it as `lastEventId` to resume after this event. Undefined for `job-progress`, which is not sent again. */
  readonly id: string | undefined;
  /** `job-running`, `job-succeeded`, ... */
  readonly name: string;
  /** An outcome document if a job or batch has ended, otherwise the event as in the list of events. */
  readonly data: unknown;
}

const defaultReconnect = 2000; // ms; until the service sets another wait
const longestReconnect = 30_000;
const lasting = 10_000; // ms; a connection that lasts this long, or brings an event, resets the number of failures
const afterEnd = 250; // ms before reconnecting if the job has probably ended; the next response confirms the end
const remembered = 256; // number of ids kept to recognize duplicates
const maxEvent = 4 << 20; // characters
const ends = new Set(["job-succeeded", "job-failed", "job-canceled", "job-retries-exhausted"]);

type Events = AsyncGenerator<StreamEvent, void, undefined>;

/** Yields each event exactly once. It reconnects as often as necessary. */
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
      if (response.status === 204) return; // the job has no more events
      const body = await events(http, call, response);
      connected = true;
      for await (const frame of frames(body, limit)) {
        if (frame.retry !== undefined) reconnect = Math.min(longestReconnect, Math.max(100, frame.retry));
        if (frame.id !== undefined && seen.has(frame.id)) continue; // a duplicate of an event from an earlier connection
        if (frame.id !== undefined) remember(seen, (last = frame.id));
        progress = true;
        if (frame.data === undefined || frame.name === "position") continue; // "position" only tells where a client's stream begins
        ending = ofJob && ends.has(frame.name);
        yield { id: frame.id, name: frame.name, data: parse(http, call, response, frame.data) };
      }
      failure = new Error("the stream has ended");
    } catch (error) {
      if (options.signal?.aborted) throw options.signal.reason;
      if (error instanceof RangeError) throw error; // reconnecting would not help
      failure = error instanceof ForgeRunError ? error : new NoAnswerError(http.info(call, failures + 1), error);
      const asked = passing(failure, true);
      if (asked === undefined || (!connected && failures + 1 >= http.maxTries)) throw failure;
      reconnect = Math.max(reconnect, Math.min(asked, longestReconnect));
      ending = false;
    } finally {
      limit.clear();
      limit.abort(); // closes the connection if the reader has stopped
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

/** Returns the body of a response, which must be an event stream. */
async function events(http: Http, call: Call, response: Response): Promise<ReadableStream<Uint8Array>> {
  if (response.status !== 200) {
    const body = await response.arrayBuffer().catch(() => new ArrayBuffer(0)); // status and headers count even if the body is incomplete
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

/** A block of an event stream, between two blank lines. */
export interface Frame {
  id: string | undefined;
  name: string;
  data: string | undefined;
  retry: number | undefined;
}

/** Yields the complete frames of a stream (HTML standard, section 9.2.6). The service sends an incomplete frame again. */
export async function* frames(body: ReadableStream<Uint8Array>, limit: Limit): AsyncGenerator<Frame, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let lines: string[] = [];
  for (;;) {
    limit.restart();
    const { value, done } = await reader.read();
    limit.pause(); // the time for handling an event does not count as silence
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    if (rest.length > maxEvent) throw new RangeError("an event of the stream is too long");
    // A CR at the end may be the first half of CRLF, so wait for the next character.
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
