package handlers

import (
	"encoding/json"

	"github.com/forgerun/forgerun/job"
)

// eventView is one event, in lists, reports and streams. An event of a batch or
// of a webhook belongs to no job: job_id, seq and attempt are null, and batch_id
// or webhook_id is there.
type eventView struct {
	EventID   job.ID          `json:"event_id"`
	Seq       *int            `json:"seq"`
	JobID     *job.ID         `json:"job_id"`
	BatchID   *job.ID         `json:"batch_id,omitempty"`
	WebhookID *job.ID         `json:"webhook_id,omitempty"`
	EventName string          `json:"event_name"`
	PrevState *job.State      `json:"prev_state"`
	NextState *job.State      `json:"next_state"`
	Attempt   *int            `json:"attempt"`
	Timestamp job.Time        `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

// eventViewOf shows an event of a job.
func eventViewOf(e job.Event) eventView {
	v := eventView{
		EventID: e.ID, EventName: e.Name, PrevState: orNull(e.Prev), NextState: orNull(e.Next),
		Timestamp: job.Time(e.At), Data: e.Data,
	}
	if !e.JobID.IsZero() {
		v.JobID, v.Seq, v.Attempt = &e.JobID, &e.Seq, &e.Attempt
	}
	return v
}

// occurrenceViewOf shows any event of a client.
func occurrenceViewOf(o job.Occurrence) eventView {
	v := eventViewOf(o.Event)
	v.WebhookID = idOrNull(o.Webhook)
	if o.Batch != nil {
		v.BatchID = &o.Batch.ID
	}
	return v
}

// progressView is how far a running job has come.
type progressView struct {
	Percentage     int      `json:"percentage"`
	Phase          string   `json:"phase"`
	StepsCompleted int      `json:"steps_completed"`
	StepsTotal     int      `json:"steps_total"`
	ItemsProcessed int      `json:"items_processed"`
	ItemsTotal     int      `json:"items_total"`
	UpdatedAt      job.Time `json:"updated_at"`
}

func progressViewOf(p *job.Progress) *progressView {
	if p == nil {
		return nil
	}
	return &progressView{
		p.Percentage, p.Phase, p.StepsCompleted, p.StepsTotal, p.ItemsProcessed, p.ItemsTotal, job.Time(p.UpdatedAt),
	}
}

// progressFrame is the data of job-progress on a stream.
type progressFrame struct {
	JobID    job.ID        `json:"job_id"`
	Attempt  int           `json:"attempt"`
	Progress *progressView `json:"progress"`
}

func progressFrameOf(id job.ID, attempt int, p *job.Progress) any {
	return progressFrame{id, attempt, progressViewOf(p)}
}

// frameData shows an event on a stream. What ended an attempt or a batch comes
// with its outcome document (draft section 5.4).
func (s *Server) frameData(o *job.Occurrence) any {
	switch {
	case o.Ended != nil:
		return s.links.Document(o.Origin, *o.Ended)
	case o.Batch != nil:
		return s.links.BatchDocument(o.Batch)
	}
	return occurrenceViewOf(*o)
}
