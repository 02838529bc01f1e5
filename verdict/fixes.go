package verdict

// guide helps the author of a client with a rule.
type guide struct {
	untested string // why the rule was not tested, as a phrase
	fix      Fix
}

// guides holds the guides by the id of their rule.
var guides = map[string]guide{
	"retry-after": {"no job was polled with Retry-After", Fix{
		"Sleep for the seconds in Retry-After before you read the job again.",
		`time.sleep(int(response.headers.get("Retry-After", 1)))`,
		`await sleep(1000 * Number(response.headers.get("Retry-After") ?? 1))`,
		`seconds, _ := strconv.Atoi(res.Header.Get("Retry-After")); time.Sleep(time.Duration(seconds) * time.Second)`,
	}},
	"list-polling": {"no list was polled", Fix{
		"Wait one second between two reads of a list, or follow the event stream.",
		`time.sleep(1)`, `await sleep(1000)`, `time.Sleep(time.Second)`,
	}},
	"stop-at-end": {"no job was read until it was final", Fix{
		"Leave the polling loop when the job has a final state.",
		`if job["state"] in FINAL: break`, `if (FINAL.has(job.state)) break`, `if final[job.State] { return job, nil }`,
	}},
	"conditional-requests": {"no job was polled with an ETag", Fix{
		"Keep the ETag of each response, send it with the next read, and treat 304 as unchanged.",
		`requests.get(url, headers={"If-None-Match": etag})`,
		`await fetch(url, { headers: { "If-None-Match": etag } })`,
		`req.Header.Set("If-None-Match", etag)`,
	}},
	"backoff": {"no failed request was repeated", Fix{
		"Wait for Retry-After; without it, double the wait after each failure and add jitter.",
		`Retry(total=5, backoff_factor=1, backoff_jitter=1, status_forcelist=[429, 502, 503], allowed_methods=None)  # urllib3`,
		`await sleep(1000 * (retryAfter ?? 2 ** attempt * (0.5 + Math.random())))`,
		`time.Sleep(max(retryAfter, time.Second<<attempt))`,
	}},
	"retry-budget": {"the client did not give up on a submission after several tries", Fix{
		"Count the tries of a request in one place, and give up after ten at most. Turn off retries in lower layers.",
		`for attempt in range(5): ...  # and Retry(total=0) in the transport below`,
		`for (let attempt = 0; attempt < 5; attempt++) { /* ... */ } // and retries: 0 in the library below`,
		`for attempt := range 5 { /* ... */ } // and no retrying RoundTripper below`,
	}},
	"retry-only-retryable": {"no submission was refused or lost", Fix{
		"Retry after 429, 5xx and lost responses; do not retry after other 4xx responses.",
		`retry = response is None or response.status_code == 429 or response.status_code >= 500`,
		`const retry = !response || response.status === 429 || response.status >= 500`,
		`retry := err != nil || res.StatusCode == 429 || res.StatusCode >= 500`,
	}},
	"idempotency-key": {"no submission was repeated", Fix{
		"Create one key for each job before the first try, and send it with every retry.",
		`key = str(uuid.uuid4())  # before the loop; then headers={"Idempotency-Key": key}`,
		`const key = crypto.randomUUID() // before the loop; then headers: { "Idempotency-Key": key }`,
		`key := uuid.NewString() // before the loop; then req.Header.Set("Idempotency-Key", key)`,
	}},
	"no-duplicates": {"no response to a submission was lost", Fix{
		"Retry with the same Idempotency-Key. If the API does not support one, check whether the job exists before you retry.",
		`requests.post(url, json=order, headers={"Idempotency-Key": order_key})  # the same key in every try`,
		`await fetch(url, { method: "POST", body, headers: { "Idempotency-Key": orderKey } }) // the same key in every try`,
		`req.Header.Set("Idempotency-Key", orderKey) // the same key in every try`,
	}},
	"same-body": {"no Idempotency-Key was used twice", Fix{
		"Serialize the body once, retry with the same bytes, and create a new key for each new job.",
		`body = json.dumps(order)  # once, before the loop`,
		`const body = JSON.stringify(order) // once, before the loop`,
		`body, err := json.Marshal(order) // once, before the loop`,
	}},
	"one-job-per-intention": {"no submission was repeated", Fix{
		"Store one key with each job: use it for every retry of this job, and for no other job.",
		`order.key = order.key or str(uuid.uuid4())`, `order.key ??= crypto.randomUUID()`,
		`if order.Key == "" { order.Key = uuid.NewString() }`,
	}},
	"lost-answer": {"no response to a submission was lost", Fix{
		"After a time-out or a broken connection, repeat the submission with the same key.",
		`except requests.ConnectionError: continue  # the loop sends the same key again`,
		`catch { continue } // the loop sends the same key again`,
		`if err != nil { continue } // the loop sends the same key again`,
	}},
	"outcome-learned": {"no job ended", Fix{
		"Follow each job until it ends: poll it, read its events, or receive its webhook.",
		`while job["state"] not in FINAL: job = read(job_id)`, `while (!FINAL.has(job.state)) job = await read(jobId)`,
		`for !final[job.State] { job, err = read(ctx, jobID) }`,
	}},
	"stream-resume": {"no event stream was cut", Fix{
		"Keep the id of the last event, wait for the stream's `retry` time, and send the id when you reconnect.",
		`headers={"Last-Event-ID": last_id}`, `new EventSource(url) // sends the id; with fetch: headers: { "Last-Event-ID": lastId }`,
		`req.Header.Set("Last-Event-ID", lastID)`,
	}},
	"half-events": {"no event stream was cut within an event", Fix{
		"Handle an event, and keep its id, only after the empty line that ends it.",
		`if line == "": handle(event); last_id = event.id`, `if (line === "") { handle(event); lastId = event.id }`,
		`if line == "" { handle(event); lastID = event.ID }`,
	}},
	"tolerant-reader": {"no response had unknown fields or states", Fix{
		"Ignore fields that you do not know, and treat an unknown state as not final.",
		`final = job["state"] in FINAL  # not: job["state"] != "RUNNING"`,
		`const final = FINAL.has(job.state) // not: job.state !== "RUNNING"`,
		`// use json.Decoder without DisallowUnknownFields`,
	}},
	"deliveries-answered": {"no webhooks", Fix{
		"Return 2xx as soon as the event is stored, and process it afterwards.",
		`queue.put(event); return "", 204`, `queue.add(event); res.sendStatus(204)`, `queue <- event; w.WriteHeader(http.StatusNoContent)`,
	}},
	"tampered-refused": {"no forged webhooks", Fix{
		"Verify the signature over the raw body and the timestamp of each request, and return 401 if either is invalid.",
		`Webhook(secret).verify(request.get_data(), dict(request.headers))  # standardwebhooks`,
		`new Webhook(secret).verify(rawBody, req.headers) // standardwebhooks`,
		`err := wh.Verify(body, r.Header) // standardwebhooks`,
	}},
	"repeated-delivery": {"no repeated webhooks", Fix{
		"Store each Webhook-Id with its event, in one transaction. If you already have the id, return 2xx and skip the event. " +
			"Only your own tests can check whether each event is handled.",
		`if not store.add(headers["Webhook-Id"]): return "", 204`,
		`if (!(await store.add(req.headers["webhook-id"]))) return res.sendStatus(204)`,
		`if !store.Add(r.Header.Get("Webhook-Id")) { w.WriteHeader(http.StatusNoContent); return }`,
	}},
	"not-retryable": {"no job failed permanently", Fix{
		"Check `retryable` in the failure before you retry a job.",
		`if job["failure"]["retryable"]: retry(job)`, `if (job.failure.retryable) await retry(job)`, `if job.Failure.Retryable { retry(job) }`,
	}},
	"key-renewal": {"no API key expired", Fix{
		"Renew the key well before `expires_at`.",
		`if expires_at - now() < timedelta(hours=1): renew()`, `if (expiresAt - Date.now() < 3_600_000) await renew()`,
		`if time.Until(expiresAt) < time.Hour { renew() }`,
	}},
	"no-key-in-url": {"no request", Fix{
		"Send the key in the Authorization header (Bearer token); URLs end up in logs.",
		`session.headers["Authorization"] = authorization  # not params={"key": key}`,
		`await fetch(url, { headers: { Authorization: authorization } })`,
		`req.Header.Set("Authorization", authorization)`,
	}},
	"connection-reuse": {"fewer than ten requests were sent in a row", Fix{
		"Use one HTTP client for all requests, and read each response body completely.",
		`session = requests.Session()  # once`, `const agent = new Agent({ keepAlive: true }) // once`, `var client = &http.Client{} // once`,
	}},
	"time-outs": {"no response took 30 s or longer", Fix{
		"Set a time-out for each request.",
		`requests.get(url, timeout=20)`, `await fetch(url, { signal: AbortSignal.timeout(20_000) })`,
		`client := &http.Client{Timeout: 20 * time.Second}`,
	}},
	"redirects": {"no redirect", Fix{
		"Send the same method and body to the address in Location, and stop after 20 redirects in a row.",
		`requests.post(url, data=body)  # follows 307 and 308 with method and body`, `await fetch(url, { redirect: "follow" })`,
		`req, _ := http.NewRequest("POST", url, bytes.NewReader(body)) // GetBody lets the client send it again`,
	}},
	"no-key-elsewhere": {"no redirect to another host", Fix{
		"If you follow redirects yourself, drop the credentials when Location names another host.",
		`requests.get(url, headers={"Authorization": authorization})  # drops the header if the host changes`,
		`if (new URL(location, url).host !== new URL(url).host) headers.delete("Authorization")`,
		`if req.URL.Host != via[0].URL.Host { req.Header.Del("Authorization") } // in CheckRedirect`,
	}},
	"content-negotiation": {"no request", Fix{
		"Send bodies as application/json, and accept application/json and application/problem+json.",
		`requests.post(url, json=order)`, `headers: { "Content-Type": "application/json" }`, `req.Header.Set("Content-Type", "application/json")`,
	}},
	"correlation-ids": {"no submission", Fix{
		"Send a different X-Correlation-ID for each job.",
		`headers={"X-Correlation-ID": order.id}`, `headers: { "X-Correlation-ID": order.id }`, `req.Header.Set("X-Correlation-ID", order.ID)`,
	}},
}
