package handlers

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

// Jobs are the use cases that change a client's jobs. Here as in the other
// interfaces, an id that is not the client's own is answered as one that never
// existed.
type Jobs interface {
	Submit(ctx context.Context, r job.Request) (job.Receipt, error)
	Cancel(ctx context.Context, client, id job.ID) (job.Change, error)
	Retry(ctx context.Context, client, id job.ID) (job.Change, error)
	Delete(ctx context.Context, client, id job.ID) error // nil for one that is gone already
	// CancelClient stops some of a client's unfinished jobs, and tells whether there may be more.
	CancelClient(ctx context.Context, client job.ID) (canceled int, more bool, err error)
}

// Reader reads a client's jobs.
type Reader interface {
	Job(ctx context.Context, client, id job.ID) (*job.Job, error)
	// Await reads a job again with each change until done says so. When ctx
	// ends first, it gives the job as it was read last.
	Await(ctx context.Context, client, id job.ID, done func(*job.Job) bool) (*job.Job, error)
	Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error)    // attempt 0: the latest
	Attempts(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error) // from the first to the current one
	Result(ctx context.Context, client, id job.ID) (*job.StoredResult, error)
	List(ctx context.Context, client job.ID, q job.Query) (job.Page, error)
}

// Batches are the use cases of batches.
type Batches interface {
	SubmitBatch(ctx context.Context, r job.BatchRequest) (b *job.Batch, replayed bool, err error)
	Batch(ctx context.Context, client, id job.ID) (*job.Batch, error)
	CancelBatch(ctx context.Context, client, id job.ID) (*job.Batch, error)
}

// Events are the use cases of watching.
type Events interface {
	// JobEvents reads events of a job after the given seq: at most limit, and
	// fewer where they are large.
	JobEvents(ctx context.Context, client, id job.ID, after, limit int) (job.Log, error)
	// ClientEvents reads in the same way events of all of a client's jobs and
	// batches after the given position. Nothing will ever appear between the
	// position and what it answers with.
	ClientEvents(ctx context.Context, client job.ID, after job.Position, limit int) (job.Feed, error)
	// FeedEnd is the position after everything that ClientEvents can give now.
	FeedEnd(ctx context.Context) (job.Position, error)
	// Watch receives the notifications of one job, or with the zero id of all of a
	// client's jobs and batches, until stop is called. Some may be late and others
	// come twice; what is not received in time is merged. Progress comes of single
	// jobs only.
	Watch(client, id job.ID) (notifications <-chan job.Notification, stop func())
}

// Webhooks are the use cases of webhooks.
type Webhooks interface {
	Register(ctx context.Context, r job.WebhookRequest) (job.IssuedWebhook, error)
	Webhooks(ctx context.Context, client job.ID) ([]job.Webhook, error) // newest first
	Webhook(ctx context.Context, client, id job.ID) (*job.Webhook, error)
	Update(ctx context.Context, client, id job.ID, p job.WebhookPatch) (*job.Webhook, error)
	Unregister(ctx context.Context, client, id job.ID) error
	RotateSecret(ctx context.Context, client, id job.ID) (job.IssuedWebhook, error)
}

// Proofs asks receivers whether they want events: Webhooks asks for that with
// job.ErrUnproven.
type Proofs interface {
	Prove(ctx context.Context, client job.ID, url string) error
}

// Deliveries are the use cases of deliveries to webhooks and callbacks.
type Deliveries interface {
	Test(ctx context.Context, client, id job.ID) (*job.Delivery, error)
	Deliveries(ctx context.Context, client job.ID, q job.DeliveryQuery) (job.DeliveryPage, error)
	Delivery(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, []job.DeliveryAttempt, error)
	Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error)
	// RedeliverFailed sends again what failed since a time, and Replay also what
	// was not sent at all. Each does a part at a time; the answer to Replay says
	// after which position to go on.
	RedeliverFailed(ctx context.Context, client, id job.ID, since time.Time) (job.Replay, error)
	Replay(ctx context.Context, client, id job.ID, since time.Time, after job.Position) (job.Replay, error)
}

// Clients are the use cases of clients and their keys. Except for
// Authenticate they decide themselves what the caller may do.
type Clients interface {
	Authenticate(ctx context.Context, bearer string) (job.Caller, error) // "": without credentials, where they are optional
	CreateClient(ctx context.Context, caller job.Caller) (job.Client, error)
	CreateKey(ctx context.Context, caller job.Caller, client job.ID, rotate bool, scope job.Scope) (job.IssuedKey, error)
	RenewKey(ctx context.Context, caller job.Caller, client job.ID) (job.IssuedKey, error)
	RevokeKey(ctx context.Context, caller job.Caller, client job.ID, keyID string) error
}

// Admission bounds how many submissions wait for storage at once.
type Admission interface {
	// Full refuses with an error while nobody would be admitted.
	Full() error
	// Enter admits a submission, and Leave must follow; an error refuses it.
	Enter() error
	Leave(accepted bool)
}

// Limiter counts a client's requests.
type Limiter interface {
	Allow(ctx context.Context, client job.ID) job.Allowance
	// AllowItems counts the items of a request that was allowed, all or none.
	AllowItems(ctx context.Context, client job.ID, items int) job.Allowance
}

// Health reports whether the process can do its work.
type Health interface {
	Ready(ctx context.Context) Readiness
}

// Readiness is the answer of /readyz.
type Readiness struct {
	OK     bool              `json:"-"`      // false: 503
	Status string            `json:"status"` // "ok", "degraded" or "unavailable"
	Checks map[string]string `json:"checks"` // by dependency
}
