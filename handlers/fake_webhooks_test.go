package handlers

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

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
