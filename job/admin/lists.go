package admin

import (
	"time"

	"github.com/forgerun/forgerun/job"
)

// Range selects list entries by time, client and other filters. A zero member matches every entry.
type Range struct {
	ClientID  job.ID
	WebhookID job.ID
	JobID     job.ID
	WorkKind  job.Kind
	Code      job.Code
	State     string
	EventName string
	Enabled   *bool
	Named     *bool // true selects clients with a name, false clients without a name
	From, To  *time.Time
	After     job.ID // the page begins after this entry; lists run from new to old
	Limit     int
}

// Page is a part of a list.
type Page[T any] struct {
	Data []T
	Next job.ID // position of the next page; zero at the end
}

// Bounded is a list that was built from a limited number of rows. More reports whether rows were left out.
type Bounded[T any] struct {
	Data []T  `json:"data"`
	More bool `json:"more"`
}

// ClientDetail is a client with its keys.
type ClientDetail struct {
	Client
	Keys []Key `json:"keys"`
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

// AuditQuery selects entries of the audit log. A zero member matches every entry.
type AuditQuery struct {
	Operator, Action, TargetID string
	From, To                   *time.Time
	After                      job.ID
	Limit                      int
}
