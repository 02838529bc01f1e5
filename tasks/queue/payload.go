package queue

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/forgerun/forgerun/job"
)

// The asynq types: of a task that points at a job, and of one that names a client
// that may have something to deliver.
const (
	JobTask      = "job"
	DeliveryTask = "deliveries"
)

// ErrBadPayload is of a payload that this package did not write.
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

// payloadOf writes a task as JSON.
func payloadOf(t job.Task) []byte {
	p := jobPayload{Job: t.JobID.String(), Attempt: t.Attempt, Dispatch: t.Dispatch, Kind: t.WorkKind, Reason: t.Reason}
	if !t.ClientID.IsZero() {
		p.Client = t.ClientID.String()
	}
	b, _ := json.Marshal(p) // strings and numbers
	return b
}

// ParseTask reads the JSON of payloadOf, of which only the name's members and the kind count. Attempts count from 1, dispatches
// from 0.
func ParseTask(payload string) (job.Task, error) {
	var p struct {
		Job      string   `json:"job"`
		Attempt  int      `json:"attempt"`
		Dispatch int      `json:"dispatch"`
		Kind     job.Kind `json:"kind"`
	}
	if err := json.Unmarshal([]byte(payload), &p); err != nil {
		return job.Task{}, ErrBadPayload
	}
	id, err := parseID(p.Job)
	if err != nil || p.Attempt < 1 || p.Dispatch < 0 {
		return job.Task{}, ErrBadPayload
	}
	return job.Task{JobID: id, Attempt: p.Attempt, Dispatch: p.Dispatch, WorkKind: p.Kind}, nil
}

// wakeUpPayload writes a delivery task: a client's id as JSON.
func wakeUpPayload(client string) []byte { return []byte(`{"client":"` + client + `"}`) }

// ParseDelivery reads the JSON of wakeUpPayload.
func ParseDelivery(payload string) (job.ID, error) {
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
