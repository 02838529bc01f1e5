// Package facts turns what the client library read into what the history keeps.
package facts

import (
	"encoding/json"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Job keeps what both a poll and the list of jobs show.
func Job(j *client.Job) *history.Job {
	return &history.Job{
		Type: j.Type, WorkKind: j.WorkKind, State: j.State, Outcome: j.Outcome, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts,
		CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt,
		ExecutionAt: Optional(j.ExecutionAt), StartedAt: Optional(j.StartedAt), FinishedAt: Optional(j.FinishedAt),
		Correlation: j.CorrelationID, Batch: j.BatchID, Schedule: j.ScheduleID, ScheduledFor: Optional(j.ScheduledFor),
	}
}

// Emission gives name and data of the client's own event out of an event's data.
func Emission(data json.RawMessage) (string, error) {
	var e struct {
		Name string          `json:"name"`
		Data json.RawMessage `json:"data"`
	}
	err := json.Unmarshal(data, &e)
	return e.Name + " " + string(e.Data), err
}

// Scenario reads what an event's data say of the scenario. What is not there is
// judged as such.
func Scenario(data json.RawMessage) history.Scenario {
	var s struct {
		WorkKind        string `json:"work_kind"`
		DurationMS      *int64 `json:"duration_ms"`
		ExpectedOutcome string `json:"expected_outcome"`
	}
	_ = json.Unmarshal(data, &s)
	return history.Scenario{WorkKind: s.WorkKind, DurationMS: s.DurationMS, Expected: s.ExpectedOutcome}
}

// OutcomeScenario keeps what an outcome document says of the scenario.
func OutcomeScenario(o *client.Outcome) (kept history.Scenario) {
	if s := o.Scenario; s != nil {
		kept.WorkKind, kept.Expected = s.WorkKind, s.ExpectedOutcome
		if s.DurationMS != 0 {
			kept.DurationMS = &s.DurationMS
		}
	}
	return kept
}

// Optional gives nil for the zero time.
func Optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
