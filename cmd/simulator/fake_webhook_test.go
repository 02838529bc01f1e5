package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/forgerun/forgerun/job"
)

// The fake's webhooks: a goroutine for each delivery, which ends with it.

const fakeWebhookTries = 4

// fakeTimeLimit is how long a try may take: short where the receiver stays silent,
// and otherwise so long that no busy machine reaches it.
func fakeTimeLimit(kind string) time.Duration {
	if kind == "WEBHOOK_TIMEOUT" {
		return 2 * time.Second
	}
	return time.Minute
}

// webhookFlaws are ways in which the fake's deliveries are not perfect.
type webhookFlaws struct {
	refuse         string // of registration: the member that is refused
	noMasterKey    bool   // or all of it
	noSecret       bool   // or it has no secret
	bareSecret     bool   // or one of another form
	unreachable    string // no try reaches the receiver: the class of the error
	none           bool   // no delivery is made
	noRetry        bool   // what failed stays PENDING
	earlyFailure   bool   // or is given up at once
	fewTries       bool   // or one try too soon
	backoff        time.Duration
	alwaysAccepted bool          // whatever the receiver answers
	timeLimit      time.Duration // of a try of any kind
	again          bool          // what was accepted is sent once more
	twice          bool          // each event has two deliveries
	newIDs         bool          // each try has an id of its own
	otherSecret    bool          // signed with another secret
	oldTimestamp   bool
	otherDigest    bool
	otherBody      bool // after signing
	noSignature    bool // of RFC 9421
	otherKey       bool // signed with another key than the published one
	otherTarget    bool // or for another address
	uncovered      bool // or not over the event's subject
	noKeys         bool // none is published
	otherSubject   bool
	noScenario     bool // in the body
	noKind         bool // in the attributes
	noCallback     bool
}

type fakeHook struct{ ID, URL, Secret string }

type fakeDelivery struct {
	ID            string
	Hook          *fakeHook // nil for a callback
	URL           string
	Event         fakeEvent
	State         string
	Created       time.Time
	Next, Settled *time.Time
	Status        int
	Error         string
	Log           []map[string]any
}

func (f *fake) webhookRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /.well-known/http-message-signatures-directory", f.directory)
	mux.HandleFunc("POST /v1/webhooks", f.authed(f.createWebhook))
	mux.HandleFunc("DELETE /v1/webhooks/{id}", f.authed(f.deleteWebhook))
	mux.HandleFunc("GET /v1/jobs/{id}/deliveries", f.authed(f.withJob(f.listDeliveries)))
	mux.HandleFunc("GET /v1/jobs/{id}/deliveries/{delivery}", f.authed(func(w http.ResponseWriter, r *http.Request) {
		j := f.Jobs[r.PathValue("id")]
		for _, d := range f.deliveries[j] {
			if d.ID == r.PathValue("delivery") {
				body := d.view(j)
				body["attempts_log"] = d.Log
				f.send(w, 200, "delivery", j, body)
				return
			}
		}
		f.problem(w, 404, "RFA_REQUEST_NOT_FOUND")
	}))
}

func (f *fake) createWebhook(w http.ResponseWriter, r *http.Request) {
	var s struct {
		URL    string   `json:"url"`
		Events []string `json:"events"`
	}
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil || len(s.Events) == 0 || f.flaws.webhooks.refuse != "" {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(400)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"code": "RFA_JOB_VALIDATION_FAILED", "violations": []any{map[string]any{"pointer": f.flaws.webhooks.refuse, "detail": "Not so."}},
		})
		return
	}
	if f.flaws.webhooks.noMasterKey {
		f.problem(w, 503, "RFA_CONFIG_INVALID")
		return
	}
	secret := sha256.Sum256([]byte(s.URL))
	h := &fakeHook{ID: uuid.NewString(), URL: s.URL, Secret: "whsec_" + base64.StdEncoding.EncodeToString(secret[:])}
	f.hooks[h.ID] = h
	now := fakeNow()
	body := map[string]any{"webhook_id": h.ID, "secret": h.Secret, "created_at": stamp(&now)}
	if f.flaws.webhooks.bareSecret {
		body["secret"] = strings.TrimPrefix(h.Secret, "whsec_")
	}
	if f.flaws.webhooks.noSecret {
		delete(body, "secret")
	}
	f.json(w, 201, body)
}

func (f *fake) deleteWebhook(w http.ResponseWriter, r *http.Request) {
	delete(f.hooks, r.PathValue("id"))
	f.json(w, 200, map[string]any{"deleted": true})
}

func (f *fake) listDeliveries(w http.ResponseWriter, j *fakeJob) {
	list := []any{}
	for _, d := range f.deliveries[j] {
		list = append(list, d.view(j))
	}
	f.json(w, 200, map[string]any{"data": list, "page": map[string]any{"limit": 100, "next_cursor": nil}})
}

func (d *fakeDelivery) view(j *fakeJob) map[string]any {
	seq := 1 + slices.IndexFunc(j.Events, func(e fakeEvent) bool { return e.ID == d.Event.ID })
	v := map[string]any{
		"seq":         seq,
		"delivery_id": d.ID, "webhook_id": nil, "url": d.URL, "job_id": j.ID, "event_id": d.Event.ID, "event_name": d.Event.Name,
		"state": d.State, "attempts": len(d.Log), "next_attempt_at": stamp(d.Next), "created_at": stamp(&d.Created),
		"settled_at": stamp(d.Settled), "last_status": d.Status, "last_error": nil,
	}
	if d.Hook != nil {
		v["webhook_id"], v["url"] = d.Hook.ID, nil
	}
	if d.Error != "" {
		v["last_error"] = map[string]any{"code": d.Error, "detail": "Told so by the test."}
	}
	return v
}

// publish makes the deliveries of an event.
func (f *fake) publish(j *fakeJob, e fakeEvent) {
	flaws := f.flaws.webhooks
	if j.Callback != "" && !flaws.noCallback {
		f.deliver(j, &fakeDelivery{URL: j.Callback, Event: e})
	}
	if e.Name != "job.succeeded" || flaws.none {
		return
	}
	for _, h := range f.hooks {
		f.deliver(j, &fakeDelivery{Hook: h, URL: h.URL, Event: e})
		if flaws.twice {
			f.deliver(j, &fakeDelivery{Hook: h, URL: h.URL, Event: e})
		}
	}
}

func (f *fake) deliver(j *fakeJob, d *fakeDelivery) {
	now := fakeNow()
	d.ID, d.State, d.Created, d.Next = uuid.NewString(), "PENDING", now, &now
	f.deliveries[j] = append(f.deliveries[j], d)
	body := f.content(j, d.Event)
	f.sending.Go(func() { f.trying(d, body) })
}

func (f *fake) content(j *fakeJob, e fakeEvent) []byte {
	status := map[string]string{"RUNNING": "PROCESSING", "SUCCEEDED": "COMPLETED", "CANCELED": "CANCELLED", "FAILED": "FAILED"}[e.Next]
	if status == "" {
		status = "ACCEPTED"
	}
	spec, _ := job.SpecOf(job.Kind(j.Kind), fakeLimit)
	document := map[string]any{"jobId": j.ID, "jobStatus": status, "correlationId": j.CorrelationID}
	if !f.flaws.webhooks.noScenario {
		document["scenario"] = map[string]any{"workKind": j.Kind, "durationMs": spec.DurationMS, "expectedOutcome": spec.Expected}
	}
	body, err := json.Marshal(document)
	must(err)
	return body
}

// trying makes the tries of a delivery until it is settled.
func (f *fake) trying(d *fakeDelivery, body []byte) {
	flaws, wait := f.flaws.webhooks, f.flaws.webhooks.backoff
	if wait == 0 {
		wait = 200 * time.Millisecond
	}
	tries := fakeWebhookTries
	switch {
	case flaws.earlyFailure:
		tries = 1
	case flaws.fewTries:
		tries--
	}
	for n := 1; ; n++ {
		began := fakeNow()
		status, problem := f.try(d, body)
		f.mu.Lock()
		f.record(d, n, tries, began, wait, status, problem)
		over := d.State != "PENDING" || flaws.noRetry || d.Hook != nil && f.hooks[d.Hook.ID] == nil
		f.mu.Unlock()
		if over {
			break
		}
		time.Sleep(wait)
		wait *= 2
	}
	if flaws.again {
		_, _ = f.try(d, body)
	}
}

func (f *fake) record(d *fakeDelivery, n, tries int, began time.Time, wait time.Duration, status int, problem string) {
	now := fakeNow()
	try := map[string]any{
		"number": n, "started_at": stamp(&began), "duration_ms": now.Sub(began).Milliseconds(), "status": nil, "error": nil,
	}
	if problem != "" {
		try["error"] = map[string]any{"code": problem}
	}
	if status > 0 {
		try["status"] = status
	}
	d.Log, d.Status, d.Error = append(d.Log, try), status, problem
	switch {
	case problem == "":
		d.State, d.Next, d.Settled = "DELIVERED", nil, &now
	case n == tries:
		d.State, d.Next, d.Settled = "FAILED", nil, &now
	default:
		next := now.Add(wait)
		d.Next = &next
	}
}

// try sends a delivery once.
func (f *fake) try(d *fakeDelivery, body []byte) (status int, problem string) {
	flaws := f.flaws.webhooks
	if flaws.unreachable != "" {
		return 0, flaws.unreachable
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(flaws.timeLimit, fakeTimeLimit(kindOf(body))))
	defer cancel()
	resp, err := f.receiver.RoundTrip(f.message(ctx, d, body))
	switch {
	case flaws.alwaysAccepted && (err != nil || resp.StatusCode >= 300):
		return 200, ""
	case err != nil && ctx.Err() != nil:
		return 0, "TIMEOUT"
	case err != nil:
		return 0, "CONNECTION_FAILED"
	}
	resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		return resp.StatusCode, ""
	}
	return resp.StatusCode, "HTTP_5XX"
}

func (f *fake) message(ctx context.Context, d *fakeDelivery, body []byte) *http.Request {
	flaws, id, now := f.flaws.webhooks, d.ID, time.Now()
	if flaws.newIDs {
		id = uuid.NewString()
	}
	if flaws.oldTimestamp {
		now = now.Add(-time.Hour)
	}
	sum := sha256.Sum256(body)
	if flaws.otherDigest {
		sum[0]++
	}
	subject := "jobs/" + f.jobOf(body)
	if flaws.otherSubject {
		subject = "jobs/1"
	}
	header := map[string]string{
		"Content-Type": "application/json", "Content-Digest": "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":",
		"Webhook-Id": id, "Webhook-Timestamp": strconv.FormatInt(now.Unix(), 10),
		"Ce-Specversion": "1.0", "Ce-Id": d.Event.ID, "Ce-Type": d.Event.Name, "Ce-Subject": subject,
	}
	if !flaws.noKind {
		header["Ce-Workkind"] = kindOf(body)
	}
	if !flaws.noSignature {
		flaws.sign(header, d.URL, now)
	}
	if d.Hook != nil {
		secret := d.Hook.Secret
		if flaws.otherSecret {
			secret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("another"))
		}
		webhook, err := standardwebhooks.NewWebhook(secret)
		must(err)
		header["Webhook-Signature"], err = webhook.Sign(id, now, body)
		must(err)
	}
	if flaws.otherBody {
		body = append(bytes.Clone(body), ' ')
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(body))
	must(err)
	for name, value := range header {
		req.Header.Set(name, value)
	}
	return req
}

// fakeSigningKey signs what the fake delivers.
var fakeSigningKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

const fakeKeyID = "fake-key"

// sign adds a signature over the message (RFC 9421).
func (flaws webhookFlaws) sign(header map[string]string, target string, now time.Time) {
	key := fakeSigningKey
	if flaws.otherKey {
		key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	}
	if flaws.otherTarget {
		target += "/elsewhere"
	}
	names, base := `"@method" "@target-uri"`, "\"@method\": POST\n\"@target-uri\": "+target+"\n"
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if name == "Webhook-Timestamp" || flaws.uncovered && name == "Ce-Subject" {
			continue
		}
		lower := strings.ToLower(name)
		names += fmt.Sprintf(" %q", lower)
		base += fmt.Sprintf("%q: %s\n", lower, header[name])
	}
	params := fmt.Sprintf(`(%s);created=%d;expires=%d;keyid=%q;alg="ed25519"`, names, now.Unix(), now.Unix()+300, fakeKeyID)
	signature := ed25519.Sign(key, []byte(base+`"@signature-params": `+params))
	header["Signature-Input"] = "sig1=" + params
	header["Signature"] = "sig1=:" + base64.StdEncoding.EncodeToString(signature) + ":"
}

// directory publishes the key.
func (f *fake) directory(w http.ResponseWriter, _ *http.Request) {
	keys := []any{}
	if !f.flaws.webhooks.noKeys {
		public := base64.RawURLEncoding.EncodeToString(fakeSigningKey.Public().(ed25519.PublicKey))
		keys = append(keys, map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": fakeKeyID, "x": public})
	}
	f.json(w, 200, map[string]any{"keys": keys})
}

func (f *fake) jobOf(body []byte) string {
	var d struct{ JobID string }
	must(json.Unmarshal(body, &d))
	return d.JobID
}

// kindOf gives the work kind in a delivery's body.
func kindOf(body []byte) string {
	var d struct{ Scenario struct{ WorkKind string } }
	must(json.Unmarshal(body, &d))
	return d.Scenario.WorkKind
}

// handlerTransport is a network of one server.
type handlerTransport struct{ handler http.Handler }

func (t handlerTransport) RoundTrip(r *http.Request) (response *http.Response, err error) {
	defer func() {
		if recover() != nil { // the handler cut the connection
			err = errors.Join(errors.New("connection closed"), r.Context().Err())
		}
	}()
	rec := httptest.NewRecorder()
	t.handler.ServeHTTP(rec, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return rec.Result(), nil
}

// webhookKinds are the kinds that need a receiver.
func webhookKinds() (names []string) {
	for _, k := range job.Kinds() {
		if strings.HasPrefix(string(k), "WEBHOOK_") {
			names = append(names, string(k))
		}
	}
	return names
}
