package queue

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/job"
)

// The asynq types: of a task that points at a job, and of one that names a client
// that may have something to deliver, whose payload is the client's id.
const (
	JobTask      = "job"
	DeliveryTask = "deliveries"
)

// ErrBadPayload is of a payload that nobody here wrote.
var ErrBadPayload = errors.New("not a payload that this queue has")

// TaskName is a task's id in asynq: "{job_id}:{attempt}:{dispatch}". So a second enqueue is a conflict.
func TaskName(t job.Task) string {
	b := make([]byte, 0, 48)
	b = append(b, t.JobID.String()...)
	b = append(b, ':')
	b = strconv.AppendInt(b, int64(t.Attempt), 10)
	b = append(b, ':')
	return string(strconv.AppendInt(b, int64(t.Dispatch), 10))
}

// jobPayload is what a task says. The first three members name it; the others are for who looks at the queue.
type jobPayload struct {
	Job      string     `json:"job"`
	Attempt  int        `json:"attempt"`
	Dispatch int        `json:"dispatch,omitempty"`
	Kind     job.Kind   `json:"kind,omitempty"`
	Client   string     `json:"client,omitempty"`
	Reason   job.Reason `json:"reason,omitempty"` // why the attempt before failed
}

// payloadOf writes a task as JSON, or as its name for consumers that read nothing else.
func payloadOf(t job.Task, name bool) []byte {
	if name {
		return []byte(TaskName(t))
	}
	p := jobPayload{Job: t.JobID.String(), Attempt: t.Attempt, Dispatch: t.Dispatch, Kind: t.WorkKind, Reason: t.Reason}
	if !t.ClientID.IsZero() {
		p.Client = t.ClientID.String()
	}
	b, _ := json.Marshal(p) // strings and numbers
	return b
}

// ParseTask reads a task's payload: its name, in exactly the spelling of TaskName, or the JSON of payloadOf, of which only the
// name's members and the kind count; the name says nothing of the kind. Attempts count from 1, dispatches from 0.
func ParseTask(payload string) (job.Task, error) {
	if !strings.HasPrefix(payload, "{") {
		return parseName(payload)
	}
	var p struct {
		Job      string `json:"job"`
		Attempt  int    `json:"attempt"`
		Dispatch int    `json:"dispatch"`
		Kind     string `json:"kind"`
	}
	if err := json.Unmarshal([]byte(payload), &p); err != nil {
		return job.Task{}, ErrBadPayload
	}
	t, err := parseName(p.Job + ":" + strconv.Itoa(p.Attempt) + ":" + strconv.Itoa(p.Dispatch))
	if err == nil {
		t.WorkKind = job.Kind(p.Kind)
	}
	return t, err
}

func parseName(name string) (job.Task, error) {
	id, numbers, _ := strings.Cut(name, ":")
	attempt, dispatch, _ := strings.Cut(numbers, ":")
	var t job.Task
	var err1, err2, err3 error
	t.JobID, err1 = job.ParseID(id)
	t.Attempt, err2 = strconv.Atoi(attempt)
	t.Dispatch, err3 = strconv.Atoi(dispatch)
	if err1 != nil || err2 != nil || err3 != nil || t.JobID.IsZero() || t.Attempt < 1 || t.Dispatch < 0 || TaskName(t) != name {
		return job.Task{}, ErrBadPayload
	}
	return t, nil
}

// wakeUpPayload writes a delivery task: a client's id as JSON, or alone for consumers that read nothing else.
func wakeUpPayload(client string, name bool) []byte {
	if name {
		return []byte(client)
	}
	return []byte(`{"client":"` + client + `"}`)
}

// ParseDelivery reads a delivery task's payload: a client's id, or the JSON of wakeUpPayload.
func ParseDelivery(payload string) (job.ID, error) {
	if !strings.HasPrefix(payload, "{") {
		return parseID(payload)
	}
	var p struct {
		Client string `json:"client"`
	}
	if err := json.Unmarshal([]byte(payload), &p); err != nil {
		return job.ID{}, ErrBadPayload
	}
	return parseID(p.Client)
}

// parseID reads an id in exactly the spelling that it is given.
func parseID(text string) (job.ID, error) {
	id, err := job.ParseID(text)
	if err != nil || id.IsZero() || id.String() != text {
		return job.ID{}, ErrBadPayload
	}
	return id, nil
}
