package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// asynq types of job tasks and delivery tasks.
const (
	JobTask      = "job"
	DeliveryTask = "delivery"
)

// ErrBadPayload is returned for a payload that this package did not write.
var ErrBadPayload = errors.New("not a payload of this queue")

type hint struct {
	queue       string
	kind        string // asynq's type
	id          string
	payload     []byte
	at          time.Time // when to run, by Postgres' clock; zero: now
	traceparent string
	of          job.Task // zero for a delivery
}

func (h hint) task() *asynq.Task {
	if h.traceparent == "" || len(h.traceparent) > MaxTraceparent || !utf8.ValidString(h.traceparent) { // asynq refuses invalid UTF-8
		return asynq.NewTask(h.kind, h.payload)
	}
	return asynq.NewTaskWithHeaders(h.kind, h.payload, map[string]string{TraceHeader: h.traceparent})
}

// againMark separates the id of a lost task from the number of its replacement: the first replacement of "x" is "x/1".
const againMark = "/"

func (h hint) name(n int) string {
	if n == 0 {
		return h.id
	}
	return h.id + againMark + strconv.Itoa(n)
}

// TaskName returns the asynq id of a job's task: "{job_id}:{attempt}". If the attempt was queued again, ":{dispatch}" follows. asynq
// rejects a second task with the same id.
func TaskName(t job.Task) string {
	if t.Dispatch > 0 {
		return fmt.Sprintf("%s:%d:%d", t.JobID, t.Attempt, t.Dispatch)
	}
	return fmt.Sprintf("%s:%d", t.JobID, t.Attempt)
}

// jobPayload is the payload of a job's task. The first three fields identify the task. Handlers also use RunAt and Kind. The other fields
// are only shown in the dashboard.
type jobPayload struct {
	Job      job.ID     `json:"job"`
	Attempt  int        `json:"attempt"`
	Dispatch int        `json:"dispatch,omitempty"`
	RunAt    time.Time  `json:"run_at,omitzero"` // exact time; asynq's own time is rounded to seconds
	Kind     job.Kind   `json:"kind,omitempty"`
	Client   job.ID     `json:"client,omitzero"`
	Reason   job.Reason `json:"reason,omitempty"` // failure of the previous attempt
}

func jobHint(t job.Task) hint {
	b, _ := json.Marshal(jobPayload{t.JobID, t.Attempt, t.Dispatch, t.RunAt.UTC(), t.WorkKind, t.ClientID, t.Reason})
	return hint{
		queue: redisconn.Jobs, kind: JobTask, id: TaskName(t), payload: b, at: t.RunAt, traceparent: t.TraceParent, of: t,
	}
}

// ParseTask reads job, attempt, dispatch, kind and time from the payload of a job's task. The attempt is at least 1, the dispatch at least
// 0.
func ParseTask(payload []byte) (job.Task, error) {
	var p jobPayload
	if json.Unmarshal(payload, &p) != nil || p.Job.IsZero() || p.Attempt < 1 || p.Dispatch < 0 {
		return job.Task{}, ErrBadPayload
	}
	return job.Task{JobID: p.Job, Attempt: p.Attempt, Dispatch: p.Dispatch, WorkKind: p.Kind, RunAt: p.RunAt}, nil
}

type deliveryPayload struct {
	Delivery job.ID `json:"delivery"`
	Client   job.ID `json:"client"`
	Endpoint job.ID `json:"endpoint"`
}

func deliveryHint(t job.DeliveryTask) hint {
	b, _ := json.Marshal(deliveryPayload{t.ID, t.ClientID, t.Endpoint})
	return hint{queue: redisconn.Webhooks, kind: DeliveryTask, id: t.ID.String(), payload: b, at: t.At}
}

// ParseDelivery reads the payload of a delivery's task.
func ParseDelivery(payload []byte) (job.DeliveryTask, error) {
	var p deliveryPayload
	if json.Unmarshal(payload, &p) != nil || p.Delivery.IsZero() || p.Client.IsZero() || p.Endpoint.IsZero() {
		return job.DeliveryTask{}, ErrBadPayload
	}
	return job.DeliveryTask{ID: p.Delivery, ClientID: p.Client, Endpoint: p.Endpoint}, nil
}
