package queue

import (
	"encoding/json"
	"errors"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// The asynq types: of a task that points at a job, and of one that points at a delivery.
const (
	JobTask      = "job"
	DeliveryTask = "delivery"
)

// ErrBadPayload is of a payload that this package did not write.
var ErrBadPayload = errors.New("not a payload that this queue has")

// hint is a task before asynq has it.
type hint struct {
	queue       string
	kind        string // asynq's type
	id          string
	payload     []byte
	at          time.Time // in the service's time; zero: at once
	traceparent string    // "" for none
	of          job.Task  // zero for a delivery
}

func (h hint) task() *asynq.Task {
	if h.traceparent == "" || len(h.traceparent) > MaxTraceparent || !utf8.ValidString(h.traceparent) { // asynq refuses what is no UTF-8
		return asynq.NewTask(h.kind, h.payload)
	}
	return asynq.NewTaskWithHeaders(h.kind, h.payload, map[string]string{TraceHeader: h.traceparent})
}

// againMark separates a task's id from the number of the repetition: the relay makes another task beside one that is not run.
const againMark = "/"

// name is the asynq id of the task, or of its n-th repetition.
func (h hint) name(n int) string {
	if n == 0 {
		return h.id
	}
	return h.id + againMark + strconv.Itoa(n)
}

// TaskName is the asynq id of a job's task: "{job_id}:{attempt}". An attempt that was queued again under the same number has a third
// part, which counts that. So a second enqueue is a conflict.
func TaskName(t job.Task) string {
	b := make([]byte, 0, 48)
	b = append(b, t.JobID.String()...)
	b = append(b, ':')
	b = strconv.AppendInt(b, int64(t.Attempt), 10)
	if t.Dispatch > 0 {
		b = append(b, ':')
		b = strconv.AppendInt(b, int64(t.Dispatch), 10)
	}
	return string(b)
}

// jobPayload is what a task of a job says. The first three members name it; the others are for who looks at the queue.
type jobPayload struct {
	Job      string     `json:"job"`
	Attempt  int        `json:"attempt"`
	Dispatch int        `json:"dispatch,omitempty"`
	RunAt    *time.Time `json:"run_at,omitempty"` // asynq keeps whole seconds
	Kind     job.Kind   `json:"kind,omitempty"`
	Client   string     `json:"client,omitempty"`
	Reason   job.Reason `json:"reason,omitempty"` // why the attempt before failed
}

func jobHint(t job.Task) hint {
	p := jobPayload{Job: t.JobID.String(), Attempt: t.Attempt, Dispatch: t.Dispatch, Kind: t.WorkKind, Reason: t.Reason}
	if !t.RunAt.IsZero() {
		at := t.RunAt.UTC()
		p.RunAt = &at
	}
	if !t.ClientID.IsZero() {
		p.Client = t.ClientID.String()
	}
	b, _ := json.Marshal(p) // strings, numbers and a time
	return hint{
		queue: redisconn.Jobs, kind: JobTask, id: TaskName(t), payload: b, at: t.RunAt, traceparent: t.TraceParent, of: t,
	}
}

// ParseTask reads the payload of a job's task, of which only the name's members, the time and the kind count. Attempts count from 1,
// dispatches from 0.
func ParseTask(payload []byte) (job.Task, error) {
	var p jobPayload
	if err := json.Unmarshal(payload, &p); err != nil {
		return job.Task{}, ErrBadPayload
	}
	id, err := parseID(p.Job)
	if err != nil || p.Attempt < 1 || p.Dispatch < 0 {
		return job.Task{}, ErrBadPayload
	}
	t := job.Task{JobID: id, Attempt: p.Attempt, Dispatch: p.Dispatch, WorkKind: p.Kind}
	if p.RunAt != nil {
		t.RunAt = *p.RunAt
	}
	return t, nil
}

// deliveryPayload is what a task of a delivery says.
type deliveryPayload struct {
	Delivery string `json:"delivery"`
	Client   string `json:"client"`
	Endpoint string `json:"endpoint"`
}

func deliveryHint(t job.DeliveryTask) hint {
	id := t.ID.String()
	b, _ := json.Marshal(deliveryPayload{id, t.ClientID.String(), t.Endpoint.String()}) // strings
	return hint{queue: redisconn.Webhooks, kind: DeliveryTask, id: id, payload: b, at: t.At}
}

// ParseDelivery reads the payload of a delivery's task.
func ParseDelivery(payload []byte) (t job.DeliveryTask, err error) {
	var p deliveryPayload
	if err := json.Unmarshal(payload, &p); err != nil {
		return t, ErrBadPayload
	}
	var errs [3]error
	t.ID, errs[0] = parseID(p.Delivery)
	t.ClientID, errs[1] = parseID(p.Client)
	t.Endpoint, errs[2] = parseID(p.Endpoint)
	if errors.Join(errs[:]...) != nil {
		return job.DeliveryTask{}, ErrBadPayload
	}
	return t, nil
}

// parseID reads an id in exactly the spelling that it is given.
func parseID(text string) (job.ID, error) {
	id, err := job.ParseID(text)
	if err != nil || id.IsZero() || id.String() != text {
		return job.ID{}, ErrBadPayload
	}
	return id, nil
}
