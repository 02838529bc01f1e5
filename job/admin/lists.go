package admin

import (
	"encoding/json"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// Range chooses by time, client and what else a list can be narrowed by. Zero fields choose all.
type Range struct {
	ClientID  job.ID
	WebhookID job.ID
	JobID     job.ID
	WorkKind  job.Kind
	Code      job.Code
	State     string
	EventName string
	Enabled   *bool
	Named     *bool // of clients
	From, To  *time.Time
	After     job.ID // go on after this one; lists run from new to old
	Limit     int
}

// Page is a part of a list.
type Page[T any] struct {
	Data []T
	Next job.ID // where to go on; zero at the end
}

// Bounded is a list as far as it was read.
type Bounded[T any] struct {
	Data []T  `json:"data"`
	More bool `json:"more"`
}

// Count is a number of entries, as far as it was counted.
type Count struct {
	Count int  `json:"count"`
	More  bool `json:"more"`
}

// Worker is a worker process.
type Worker struct {
	WorkerID    job.ID    `json:"worker_id"`
	Name        string    `json:"name"`
	State       string    `json:"state"`
	Drained     bool      `json:"drained"` // an operator has it take no more jobs
	Silent      bool      `json:"silent"`  // it is alive by its lease, but has not sent three heartbeats in a row
	Slots       int       `json:"slots"`
	Held        int       `json:"held"`
	Jobs        []HeldJob `json:"jobs"`
	StartedAt   job.Time  `json:"started_at"`
	HeartbeatAt job.Time  `json:"heartbeat_at"`
	ExpiresAt   job.Time  `json:"expires_at"`
}

// HeldJob is a job that a worker holds.
type HeldJob struct {
	JobID      job.ID    `json:"job_id"`
	ClientID   job.ID    `json:"client_id"`
	WorkKind   job.Kind  `json:"work_kind"`
	State      job.State `json:"state"`
	Attempt    int       `json:"attempt"`
	AssignedAt *job.Time `json:"assigned_at"`
	StartedAt  *job.Time `json:"started_at"`
}

// Queue is the jobs of one client and kind that wait.
type Queue struct {
	ClientID    job.ID    `json:"client_id"`
	WorkKind    job.Kind  `json:"work_kind"`
	Queued      int       `json:"queued"`
	Scheduled   int       `json:"scheduled"`
	OldestRunAt *job.Time `json:"oldest_run_at"`
}

// FailureGroup is failures that have code, kind and detail in common.
type FailureGroup struct {
	Code      job.Code `json:"code"`
	WorkKind  job.Kind `json:"work_kind"`
	Detail    string   `json:"detail"`
	Count     int      `json:"count"`
	Retryable int      `json:"retryable"` // how many of them could be retried now
	FirstAt   job.Time `json:"first_at"`
	LastAt    job.Time `json:"last_at"`
	LastJobID job.ID   `json:"last_job_id"`
}

// Found is something that has the id that was looked for. Type is what paths call one of its kind.
type Found struct {
	Type     string  `json:"type"`
	ID       job.ID  `json:"id"`
	ClientID *job.ID `json:"client_id"` // owner
}

// Usage is what of a limit is used.
type Usage struct {
	Used  *int `json:"used"`
	Limit *int `json:"limit"`
}

// Client is a client with its use of limits.
type Client struct {
	ClientID   job.ID   `json:"client_id"`
	Name       *string  `json:"name"` // that operators gave it
	CreatedAt  job.Time `json:"created_at"`
	ActiveJobs Usage    `json:"active_jobs"`
	OpenJobs   Usage    `json:"open_jobs"`
	Webhooks   Usage    `json:"webhooks"`
}

// ClientDetail is a client with its keys.
type ClientDetail struct {
	Client
	Keys []Key `json:"keys"`
}

// Key is an API key without its secret.
type Key struct {
	KeyID      string    `json:"key_id"`
	Scope      string    `json:"scope"`
	CreatedAt  job.Time  `json:"created_at"`
	ExpiresAt  job.Time  `json:"expires_at"`
	RevokedAt  *job.Time `json:"revoked_at"`
	ReplacedBy *string   `json:"replaced_by"`
}

// Webhook is a webhook without its secrets.
type Webhook struct {
	view.Webhook
	ClientID job.ID `json:"client_id"`
}

// Delivery is one event on its way to one webhook, or to the callback of its job.
type Delivery struct {
	view.Delivery
	ClientID job.ID `json:"client_id"`
}

// LoggedDelivery is a delivery with its attempts.
type LoggedDelivery struct {
	Delivery
	AttemptsLog []DeliveryAttempt `json:"attempts_log"`
}

// DeliveryAttempt is one attempt to deliver.
type DeliveryAttempt struct {
	Number     int             `json:"number"`
	StartedAt  job.Time        `json:"started_at"`
	DurationMS int64           `json:"duration_ms"`
	Status     *int            `json:"status"`
	Error      *view.SendCause `json:"error"`
	Response   *Response       `json:"response"`
}

// Response is what a receiver answered, as far as it is kept. Body is nil, and BodyBase64 has it, unless it is text.
type Response struct {
	Headers    json.RawMessage `json:"headers"`
	Body       *string         `json:"body"`
	BodyBase64 string          `json:"body_base64,omitempty"`
	Truncated  bool            `json:"truncated"`
}

// Batch is a batch; Counts is nil in lists.
type Batch struct {
	BatchID       job.ID         `json:"batch_id"`
	ClientID      job.ID         `json:"client_id"`
	CreatedAt     job.Time       `json:"created_at"`
	CompletedAt   *job.Time      `json:"completed_at"`
	Status        *job.Status    `json:"status"`
	Total         int            `json:"total"`
	CorrelationID *string        `json:"correlation_id"`
	Counts        map[string]int `json:"counts,omitempty"`
}

// System is the service as a whole.
type System struct {
	Version       string   `json:"version"`
	Time          job.Time `json:"time"`
	SchemaVersion int      `json:"schema_version"`
	TestBed       bool     `json:"test_bed"`
	Leader        *Leader  `json:"leader"`
	WorkersAlive  int      `json:"workers_alive"`
	Slots         int      `json:"slots"`
	Backlog       Backlog  `json:"backlog"`
}

// Leader is the process that leads.
type Leader struct {
	LeaderID  job.ID   `json:"leader_id"`
	ExpiresAt job.Time `json:"expires_at"`
}

// Backlog is how much waits.
type Backlog struct {
	Queued           Count     `json:"queued"`
	Scheduled        Count     `json:"scheduled"`
	Held             Count     `json:"held"`
	OldestRunAt      *job.Time `json:"oldest_run_at"`
	Deliveries       Count     `json:"deliveries"`
	OldestDeliveryAt *job.Time `json:"oldest_delivery_at"`
}

// AuditEntry is what an operator did.
type AuditEntry struct {
	AuditID    job.ID          `json:"audit_id"`
	At         job.Time        `json:"at"`
	Operator   string          `json:"operator"`
	Action     string          `json:"action"`
	TargetType string          `json:"target_type"`
	TargetID   *string         `json:"target_id"`
	RequestID  string          `json:"request_id"`
	Status     *int            `json:"status"` // HTTP; null while it is being done, or if its process died
	Detail     json.RawMessage `json:"detail"`
}

// AuditQuery chooses entries. Zero fields choose all.
type AuditQuery struct {
	Operator, Action, TargetID string
	From, To                   *time.Time
	After                      job.ID
	Limit                      int
}
