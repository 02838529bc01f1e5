package handlers

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
)

// fakeClients knows a few credentials, and records what it was asked.
type fakeClients struct {
	err  error                         // of everything but Authenticate, if set
	seen func(context.Context, string) // of each Authenticate, if set

	mu     sync.Mutex
	down   error             // of Authenticate, if set
	gone   map[string]string // what credentials have become: revoked or expired
	told   sync.Map          // who watches keys
	caller job.Caller
	client job.ID
	rotate bool
	keyID  string
}

// revoke makes a key one that was revoked.
func (f *fakeClients) revoke(key string) {
	f.change(func() { f.gone = map[string]string{key: "revoked"} })
}

func (f *fakeClients) WatchKey(_ string, changed func()) (stop func()) {
	f.told.Store(&changed, nil)
	return func() { f.told.Delete(&changed) }
}

// tell says that keys have changed.
func (f *fakeClients) tell() {
	f.told.Range(func(changed, _ any) bool {
		(*changed.(*func()))()
		return true
	})
}

func (f *fakeClients) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fakeClients) Authenticate(ctx context.Context, bearer string) (job.Caller, error) {
	if f.seen != nil {
		f.seen(ctx, bearer)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return job.Caller{}, f.down
	}
	bearer = cmp.Or(f.gone[bearer], bearer)
	switch {
	case len(bearer) > httpkit.MaxTokenBytes:
		return job.Caller{}, errors.New("nobody should look at this")
	case bearer == "":
		return job.Caller{}, nil
	case bearer == adminKey:
		return job.Caller{Admin: true, Operator: "ann"}, nil
	case slices.Contains([]string{"read", "submit"}, bearer):
		return job.Caller{ClientID: clientA, KeyID: bearer, Scope: job.Scope(bearer)}, nil
	case bearer == "renewable":
		return job.Caller{ClientID: clientA, KeyID: "old", Scope: job.ScopeAll, Expired: true},
			job.Errorf(job.CodeTokenExpired, "The key has expired.")
	case bearer == "expired":
		return job.Caller{}, job.Errorf(job.CodeTokenExpired, "The key has expired.")
	case bearer == "revoked":
		return job.Caller{ClientID: clientB, KeyID: "revoked-key"}, job.Errorf(job.CodeKeyDisabled, "The key was revoked.")
	case bearer == otherKey:
		return job.Caller{ClientID: clientB, KeyID: "other", Scope: job.ScopeAll}, nil
	case len(bearer) >= len(goodKey) && bearer[:len(goodKey)] == goodKey: // a test may mark it
		return job.Caller{ClientID: clientA, KeyID: "good", Scope: job.ScopeAll}, nil
	}
	return job.Caller{}, job.Errorf(job.CodeInvalidCredentials, "The key is not known.")
}

func (f *fakeClients) note(caller job.Caller, client job.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.caller, f.client = caller, client
	if f.err == nil && client == httpkit.UnknownID {
		return job.Errorf(job.CodeClientNotFound, "There is no such client.")
	}
	return f.err
}

func (f *fakeClients) CreateClient(_ context.Context, caller job.Caller) (job.Client, error) {
	return job.Client{ID: clientA, CreatedAt: now}, f.note(caller, job.ID{})
}

func (f *fakeClients) CreateKey(_ context.Context, caller job.Caller, client job.ID, rotate bool, scope job.Scope) (job.IssuedKey, error) {
	f.change(func() { f.rotate = rotate })
	key := issued("frk_secret")
	key.Scope = scope
	return key, f.note(caller, client)
}

func (f *fakeClients) RenewKey(_ context.Context, caller job.Caller, client job.ID) (job.IssuedKey, error) {
	return issued(""), f.note(caller, client)
}

func (f *fakeClients) RevokeKey(_ context.Context, caller job.Caller, client job.ID, keyID string) error {
	f.change(func() { f.keyID = keyID })
	return f.note(caller, client)
}

func issued(secret string) job.IssuedKey {
	return job.IssuedKey{
		APIKey: job.APIKey{ID: "abc", Scope: job.ScopeAll, ClientID: clientA, CreatedAt: now, ExpiresAt: now.Add(time.Hour)}, Secret: secret,
	}
}

// keyDirectory is what a directory of signing keys looks like.
const keyDirectory = `{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig",` +
	`"kid":"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`

const testSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

var (
	errNoWebhook  = job.Errorf(job.CodeWebhookNotFound, "There is no such webhook.")
	errNoDelivery = job.Errorf(job.CodeRequestNotFound, "There is no such delivery.")
)

// aWebhook is one that is enabled and well.
func aWebhook() *job.Webhook {
	return &job.Webhook{
		ID: webhookID, ClientID: clientA, URL: "https://example.com/hook?a=<b>", Events: []string{"job.*", "batch.completed"},
		Description: "Mine", ContentMode: job.ContentBinary, CreatedAt: now, UpdatedAt: *at(1),
		Secrets: []job.SealedSecret{{Sealed: []byte("sealed current secret")}},
	}
}

func anyWebhook(context.Context, job.ID, job.ID) (*job.Webhook, error) { return aWebhook(), nil }

// aDelivery is one of an event of a job to a webhook, not sent yet.
func aDelivery() *job.Delivery {
	return &job.Delivery{
		ID: deliveryID, ClientID: clientA, Endpoint: webhookID, WebhookID: webhookID, JobID: jobID, Seq: 5,
		EventID: eventID, EventName: job.EventFailed, CreatedAt: now, State: job.DeliveryPending, NextAttemptAt: at(2),
	}
}

// aCallback is one that was given up.
var aCallback = job.Delivery{
	ID: deliveryID, ClientID: clientA, URL: "https://example.com/done", JobID: jobID, Seq: 3, EventID: eventID,
	EventName: job.EventAssigned, CreatedAt: now, State: job.DeliveryFailed, Attempts: 9, Tries: 9, SettledAt: at(60),
	LastStatus: 503, LastError: job.SendTimeout, LastReason: "timeout after 10 s from 203.0.113.5:443",
}

// deliveryAttempts have what receivers answer: nothing, text, what is no text, and text that was cut off within a character.
var deliveryAttempts = []job.DeliveryAttempt{
	{Number: 1, StartedAt: now, Duration: 10 * time.Second, Error: job.SendTimeout},
	{Number: 2, StartedAt: *at(5), Duration: 1999 * time.Microsecond, Status: 503, Error: job.SendServerError,
		Header: map[string][]string{"Content-Type": {"text/html"}, "Set-Cookie": {"a=1", "b=2"}}, Body: []byte("<script>\u00e4</script>\x1b")},
	{Number: 3, StartedAt: now, Status: 200, Body: []byte("a\x00b")}, {Number: 4, StartedAt: now, Status: 200, Body: []byte("\xff\xfe")},
	{Number: 5, StartedAt: now, Status: 200, Body: []byte("a\xf0\x9f\x98")},
	{Number: 6, StartedAt: now, Status: 200, Body: []byte("a\xf0\x9f\x98"), Truncated: true},
	{Number: 7, StartedAt: now, Status: 200, Body: []byte("a\x80\x80\x80\x80"), Truncated: true},
}

// fakeWebhooks records what it was asked, and answers with what its members
// say. Without find there is no webhook, and what belongs to a job is there if
// the job is.
type fakeWebhooks struct {
	*lookups
	jobs *fakeJobs
	find finder[*job.Webhook]
	err  error // of everything, if set

	page     job.DeliveryPage
	delivery *job.Delivery // nil: aDelivery
	attempts []job.DeliveryAttempt
	replay   job.Replay

	request  job.WebhookRequest
	patch    job.WebhookPatch
	query    job.DeliveryQuery
	owner    job.DeliveryOwner
	of       job.ID // the id of a delivery
	since    time.Time
	after    job.Position
	asks     bool         // for proofs
	says     func() error // what a receiver says that is asked; nil: that it wants events
	proved   []string     // the URLs of receivers that were asked
	replays  int          // calls of Replay
	failures int          // calls of RedeliverFailed
}

func (f *fakeWebhooks) refusal(violations []job.Violation, malformed bool) error {
	if f.err == nil && len(violations) > 0 {
		return job.Request{Malformed: malformed}.Refusal(violations)
	}
	return f.err
}

func (f *fakeWebhooks) Register(_ context.Context, r job.WebhookRequest) (job.IssuedWebhook, error) {
	f.request = r
	if err := f.refusal(r.Violations, r.Malformed); err != nil {
		return job.IssuedWebhook{}, err
	}
	if f.asks && !r.Proven {
		return job.IssuedWebhook{}, job.ErrUnproven
	}
	return job.IssuedWebhook{Webhook: *aWebhook(), Secret: testSecret}, nil
}

func (f *fakeWebhooks) Prove(_ context.Context, _ job.ID, url string) error {
	f.proved = append(f.proved, url)
	if f.says == nil {
		return nil
	}
	return f.says()
}

func (f *fakeWebhooks) Webhooks(ctx context.Context, client job.ID) ([]job.Webhook, error) {
	if f.find == nil || f.err != nil {
		return nil, f.err
	}
	w, err := f.find(ctx, client, webhookID)
	return []job.Webhook{*w}, err
}

func (f *fakeWebhooks) Webhook(ctx context.Context, client, id job.ID) (*job.Webhook, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.find.of(ctx, f.lookups, client, id, webhookID, errNoWebhook)
}

func (f *fakeWebhooks) Update(ctx context.Context, client, id job.ID, p job.WebhookPatch) (*job.Webhook, error) {
	f.patch = p
	if err := f.refusal(p.Violations, p.Malformed); err != nil {
		return nil, err
	}
	if f.asks && p.URL != nil && !p.Proven {
		return nil, job.ErrUnproven
	}
	return f.Webhook(ctx, client, id)
}

func (f *fakeWebhooks) Unregister(ctx context.Context, client, id job.ID) error {
	_, err := f.Webhook(ctx, client, id)
	return err
}

func (f *fakeWebhooks) RotateSecret(ctx context.Context, client, id job.ID) (job.IssuedWebhook, error) {
	w, err := f.Webhook(ctx, client, id)
	if err != nil {
		return job.IssuedWebhook{}, err
	}
	return job.IssuedWebhook{Webhook: *w, Secret: testSecret}, nil
}

func (f *fakeWebhooks) Test(ctx context.Context, client, id job.ID) (*job.Delivery, error) {
	_, err := f.Webhook(ctx, client, id)
	return &job.Delivery{
		ID: deliveryID, ClientID: clientA, WebhookID: id, EventID: eventID, EventName: job.EventWebhookTest,
		CreatedAt: now, State: job.DeliveryPending, NextAttemptAt: &now,
	}, err
}

// check sees whether there is the owner of deliveries.
func (f *fakeWebhooks) check(ctx context.Context, client job.ID, owner job.DeliveryOwner) (err error) {
	f.owner = owner
	if owner.JobID.IsZero() {
		_, err = f.Webhook(ctx, client, owner.WebhookID)
	} else if err = f.err; err == nil {
		_, err = f.jobs.Job(ctx, client, owner.JobID)
	}
	return err
}

func (f *fakeWebhooks) Deliveries(ctx context.Context, client job.ID, q job.DeliveryQuery) (job.DeliveryPage, error) {
	f.query = q
	return f.page, f.check(ctx, client, q.Owner)
}

func (f *fakeWebhooks) Delivery(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery,
	[]job.DeliveryAttempt, error) {
	d, err := f.Redeliver(ctx, client, owner, id)
	return d, f.attempts, err
}

func (f *fakeWebhooks) Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error) {
	f.of = id
	if err := f.check(ctx, client, owner); err != nil {
		return nil, err
	}
	if id != deliveryID {
		return nil, errNoDelivery
	}
	if f.delivery != nil {
		return f.delivery, nil
	}
	return aDelivery(), nil
}

func (f *fakeWebhooks) RedeliverFailed(ctx context.Context, client, id job.ID, since time.Time) (job.Replay, error) {
	f.since = since
	f.failures++
	_, err := f.Webhook(ctx, client, id)
	return f.replay, err
}

func (f *fakeWebhooks) Replay(ctx context.Context, client, id job.ID, since time.Time, after job.Position) (job.Replay, error) {
	f.since, f.after = since, after
	f.replays++
	_, err := f.Webhook(ctx, client, id)
	return f.replay, err
}
