// Requests to the server: the operator API and the session. All addresses are relative to the page, so that it works behind a prefix.
import { read, write } from "./exact.js";
import { followClock } from "./format.js";

const API = "admin/v1/";
const PATIENCE = 15000; // ms; time limit of a request

// Failure is the error of a request: a response without success, or no response, which has status 0.
export class Failure extends Error {
  constructor(status, problem, retryAfter) {
    super(problem.detail || problem.title || (status ? `The server answered ${status}.` : "The server does not respond."));
    this.status = status;
    this.code = problem.code || "";
    this.problem = problem;
    this.retryAfter = retryAfter;
  }

  // missing reports whether the server has no such route. It is false if only the requested object does not exist.
  get missing() {
    return [404, 405, 501].includes(this.status) && (this.code === "" || /^RFA_REQUEST_(NOT_FOUND|METHOD)/.test(this.code));
  }
}

// server has the features of this server. Processes of another version may have others.
export const server = { bulk: false, testbed: false };

async function learn() {
  const [bulk, system] = await Promise.all([optional(get("bulk", { limit: 1 })), optional(get("system"))]);
  server.bulk = bulk !== null;
  server.testbed = !!system?.test_bed;
  if (server.testbed) followClock(await get("testbed/clock"));
}

// session.now is the operator who is logged in, or null.
export const session = { now: null, onEnd: () => {} };

export async function begin() {
  try {
    session.now = await call("GET", "session");
    await learn();
  } catch (failure) {
    if (failure.status !== 401) throw failure;
    session.now = null;
  }
  return session.now;
}

export async function login(token) {
  session.now = await call("POST", "login", { form: { token } });
  await learn();
}

export async function logout() {
  await call("POST", "logout");
  session.now = null;
}

export const get = (path, query, signal) => call("GET", API + path + queryOf(query), { signal });
export const post = (path, body = {}) => call("POST", API + path, { json: body });
export const remove = path => call("DELETE", API + path);
export const addressOf = path => new URL(API + path, document.baseURI).href;

// optional returns the response to a request, or null if the server has no such route.
export async function optional(answer) {
  try {
    return await answer;
  } catch (failure) {
    if (failure.missing) return null;
    throw failure;
  }
}

export function queryOf(query) {
  const given = Object.entries(query || {}).filter(([, v]) => v !== "" && v !== null && v !== undefined);
  return given.length ? "?" + new URLSearchParams(given) : "";
}

// fetchText returns the beginning of a text, and whether there is more.
export async function fetchText(path, most) {
  const response = await ask("GET", API + path, {});
  const text = await response.text();
  return { text: text.slice(0, most), more: text.length > most };
}

async function call(method, path, options = {}) {
  const response = await ask(method, path, options);
  if (response.status === 204) return null;
  const text = await response.text();
  try {
    return text ? read(text) : null;
  } catch {
    throw new Failure(0, { detail: "The response is not JSON. Does this address still belong to ForgeRun?" });
  }
}

async function ask(method, path, { json, form, signal }) {
  const headers = { Accept: "application/json", "X-CSRF-Token": session.now?.csrf_token || "none" };
  let body;
  if (json !== undefined) {
    headers["Content-Type"] = "application/json";
    body = write(json);
  }
  if (form) body = new URLSearchParams(form);
  const limits = [AbortSignal.timeout(PATIENCE)];
  if (signal) limits.push(signal);
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), {
      method, headers, body, signal: AbortSignal.any(limits), credentials: "same-origin", cache: "no-store", redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure(0, {});
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  const failure = new Failure(response.status, problem || {}, Number(response.headers.get("Retry-After")) || 0);
  if (response.status === 401 && path !== "login" && path !== "session") session.onEnd(failure);
  throw failure;
}
