package job

import (
	"fmt"
	"strconv"
	"time"
)

// MaxBatchItems limits the jobs of a batch.
const MaxBatchItems = 1000

// MaxFailedItems is how many failed items a batch's outcome document lists (async-problem-details, section 7.1.1). Clients can list the
// batch's jobs to see the other failed jobs.
const MaxFailedItems = 50

// BatchRequest is a decoded request for many jobs.
type BatchRequest struct {
	ClientID   ID
	RequestID  string
	ReceivedAt time.Time
	Items      []ItemRequest
	Unlisted   int // number of violations that Items does not list; if above 0, the batch is refused

	IdempotencyKey string
	Hash           [32]byte // hash of the canonical request without the idempotency key

	CorrelationID string
	Language      string
}

// Warnings returns the warnings of items without violations. Each warning has a pointer into the body of the batch request. If there are
// more than MaxViolations warnings, the last one says how many are omitted.
func (r BatchRequest) Warnings() (warnings []Violation) {
	more := 0
	for i, item := range r.Items {
		if len(item.Request.Violations) > 0 {
			continue
		}
		for _, w := range item.Request.Warnings {
			if len(warnings) == MaxViolations-1 {
				more++
				continue
			}
			w.Pointer = "/jobs/" + strconv.Itoa(i) + w.Pointer
			warnings = append(warnings, w)
		}
	}
	if more > 0 {
		warnings = append(warnings, Violation{Pointer: "/jobs", Detail: "And " + Grouped(more) + " more of this kind, which are not listed."})
	}
	return warnings
}

// ItemRequest is one job of a batch request.
type ItemRequest struct {
	ItemID  string // id from the request, or the item's zero-based index
	Request Request
}

// Refusal is the stored reason why an item of a batch was refused.
type Refusal struct {
	Code       Code        `json:"code"`
	Detail     string      `json:"detail"`
	Violations []Violation `json:"violations,omitempty"` // with JSON Pointers into the body of the batch request
}

// Batch is a set of jobs submitted in one request.
type Batch struct {
	ID            ID
	ClientID      ID
	CreatedAt     time.Time
	CorrelationID string
	Language      string
	RequestID     string
	Items         []BatchItem // items in the order of the request; they never change
	Unread        int         // number of items that the store did not load into Items
	Counts        map[State]int
	Outcome       *BatchOutcome // nil until all jobs are final; later retries do not change it
}

// Unfinished reports whether the batch has an unfinished job.
func (b *Batch) Unfinished() bool {
	for state, n := range b.Counts {
		if n > 0 && !state.Final() {
			return true
		}
	}
	return false
}

// BatchItem is one item in the original response to a batch. An accepted item has a job, a refused item has a Refusal.
type BatchItem struct {
	ItemID  string   `json:"item_id"`
	JobID   ID       `json:"job_id,omitzero"`
	State   State    `json:"state,omitempty"` // the job's state when it was accepted
	Refusal *Refusal `json:"refusal,omitempty"`
}

// BatchSubmission is a batch ready to be stored, with its accepted jobs.
type BatchSubmission struct {
	Batch          Batch
	Jobs           []Job
	IdempotencyKey string
	RequestHash    [32]byte
	Committed      func() // called after the commit, once for the whole batch
}

// BatchOutcome is the outcome of a batch. It is set once all jobs are final. Later retries do not change it (async-problem-details, section
// 4.2).
type BatchOutcome struct {
	Status      Status
	CompletedAt time.Time
	Succeeded   int
	Failed      int // includes items that timed out or were refused
	Canceled    int
	Failures    []ItemFailure // failed items, at most MaxFailedItems
}

// ItemFailure is a failed item of a batch.
type ItemFailure struct {
	ItemID    string `json:"item_id"`
	JobID     ID     `json:"job_id,omitzero"` // zero for a refused item
	Status    Status `json:"status"`          // FAILED or TIMED_OUT
	Reason    Reason `json:"reason,omitempty"`
	Detail    string `json:"detail"` // English text
	Retryable bool   `json:"retryable"`
	Stage     Stage  `json:"stage"`
}

// In returns the detail in the given language.
func (f ItemFailure) In(language string) string {
	if refused := batchTextOf(language).refused; f.JobID.IsZero() && refused != "" {
		return refused
	}
	failure := Failure{Reason: f.Reason, Detail: f.Detail}
	return failure.In(language)
}

// ItemOutcome is an item in a batch's outcome document (async-problem-details, section 7.1).
type ItemOutcome struct {
	ItemID          string `json:"itemId"`
	Status          Status `json:"status"`
	Detail          string `json:"detail"`
	Retryable       bool   `json:"retryable"`
	ProcessingStage Stage  `json:"processingStage"`
}

// BatchStatus returns the status of a batch from the numbers of its ended items (async-problem-details, section 7.2). A cancel is not an
// error, because the client asked for it.
func BatchStatus(succeeded, failed, canceled int) Status {
	switch {
	case failed > 0 && succeeded+canceled > 0:
		return StatusCompletedWithErrors
	case failed > 0:
		return StatusFailed
	case canceled > 0 && succeeded == 0:
		return StatusCancelled
	default:
		return StatusCompleted
	}
}

// Total returns the number of items.
func (b *Batch) Total() int { return len(b.Items) + b.Unread }

// Refused returns the number of refused items. Unread must be 0, since only loaded items are counted.
func (b *Batch) Refused() int {
	n := 0
	for _, item := range b.Items {
		if item.Refusal != nil {
			n++
		}
	}
	return n
}

// Status returns the batch's current status.
func (b *Batch) Status() Status {
	switch {
	case b.Outcome != nil:
		return b.Outcome.Status
	case b.Counts[Created]+b.Counts[Queued]+b.Counts[Assigned]+b.Refused() == b.Total():
		return StatusAccepted
	default:
		return StatusProcessing
	}
}

// BatchPath returns the path of a batch.
func BatchPath(id ID) string { return "/v1/batches/" + id.String() }

// ItemInstance returns the URI reference of a refused item: the batch's path with the item's index in the request.
func ItemInstance(batch ID, index int) string {
	return BatchPath(batch) + "#/jobs/" + strconv.Itoa(index)
}

// BatchDocument returns the outcome document of a batch (async-problem-details, section 7).
func (l Links) BatchDocument(b *Batch) Document {
	d := Document{
		Instance: l.At(BatchPath(b.ID)), JobID: b.ID, JobStatus: b.Status(),
		SubmittedAt: Time(b.CreatedAt), CorrelationID: b.CorrelationID,
	}
	o := b.Outcome
	if o == nil {
		return d
	}
	d.CompletedAt = TimeOf(&o.CompletedAt)
	d.Language = l.languageOf(b.Language)
	text := batchTextOf(d.Language)
	d.Detail = text.summary(o, b.Total())
	switch o.Status {
	case StatusCompletedWithErrors:
		d.Type, d.Title, d.Status = l.ProblemType(BatchPartiallyFailed), text.partial, 207
	case StatusFailed:
		d.Type, d.Title, d.Status = l.ProblemType(BatchFailed), text.failed, 500
	case StatusAccepted, StatusProcessing, StatusCompleted, StatusCancelled, StatusTimedOut:
		return d
	}
	for _, f := range o.Failures {
		d.Results = append(d.Results, ItemOutcome{f.ItemID, f.Status, f.In(d.Language), f.Retryable, f.Stage})
	}
	return d
}

// Problem types of batches, as the last part of the type URI.
const (
	BatchPartiallyFailed = "batch-partially-failed"
	BatchFailed          = "batch-failed"
)

type batchText struct {
	partial, failed            string // titles
	succeededItems             counted
	failedItems, canceledItems counted
	all                        string // sentence for a document that lists all failed items
	some                       string // format string if only some are listed; arguments: number of listed items, number of failed items
	refused                    string // detail of a refused item; "" means the stored detail
}

type counted struct{ one, many string }

func (c counted) of(n int, more ...any) string {
	phrase := c.many
	if n == 1 {
		phrase = c.one
	}
	return fmt.Sprintf(phrase, append([]any{n}, more...)...)
}

var batchTexts = map[string]batchText{
	"en": {
		"Batch partially failed", "Batch failed",
		counted{"%d of %d items completed successfully", "%d of %d items completed successfully"},
		counted{", %d failed", ", %d failed"}, counted{", %d was canceled", ", %d were canceled"},
		" Only failed items are listed.", " The first %d of %d failed items are listed.",
		"",
	},
	"de": {
		"Stapel teilweise fehlgeschlagen", "Stapel fehlgeschlagen",
		counted{"%d von %d Einträgen war erfolgreich", "%d von %d Einträgen waren erfolgreich"},
		counted{", %d ist fehlgeschlagen", ", %d sind fehlgeschlagen"}, counted{", %d wurde abgebrochen", ", %d wurden abgebrochen"},
		" Nur fehlgeschlagene Einträge sind aufgeführt.", " Die ersten %d von %d fehlgeschlagenen Einträgen sind aufgeführt.",
		"Der Eintrag wurde bei der Einreichung abgelehnt.",
	},
	"fr": {
		"Échec partiel du lot", "Échec du lot",
		counted{"%d élément sur %d a réussi", "%d éléments sur %d ont réussi"},
		counted{", %d a échoué", ", %d ont échoué"}, counted{", %d a été annulé", ", %d ont été annulés"},
		" Seuls les éléments en échec sont listés.", " Les %d premiers éléments en échec sur %d sont listés.",
		"L'élément a été refusé à la soumission.",
	},
}

func batchTextOf(language string) batchText {
	if t, ok := batchTexts[language]; ok {
		return t
	}
	return batchTexts[Languages[0]]
}

func (t batchText) summary(o *BatchOutcome, items int) string {
	s := t.succeededItems.of(o.Succeeded, items)
	if o.Failed > 0 {
		s += t.failedItems.of(o.Failed)
	}
	if o.Canceled > 0 {
		s += t.canceledItems.of(o.Canceled)
	}
	s += "."
	switch {
	case o.Failed == 0:
		return s
	case len(o.Failures) == o.Failed:
		return s + t.all
	default:
		return s + fmt.Sprintf(t.some, len(o.Failures), o.Failed)
	}
}
