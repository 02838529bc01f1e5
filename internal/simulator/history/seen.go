package history

import (
	"encoding/json"

	"github.com/forgerun/forgerun/client"
)

// EventOf converts an event of a log. It fails if the event does not contain the client's own event correctly.
func EventOf(e *client.Event) (kept *Event, err error) {
	kept = &Event{ID: e.EventID, Seq: e.Seq, Name: e.EventName, Prev: e.PrevState, Next: e.NextState, Attempt: e.Attempt, At: e.Timestamp}
	if e.JobID != "" {
		_ = json.Unmarshal(e.Data, &kept.Scenario)
	}
	if e.EventName == "event.emitted" {
		var own client.Emission
		err = json.Unmarshal(e.Data, &own)
		kept.Emitted = EmissionOf(&own)
	}
	return kept, err
}

// EmissionOf converts the client's own event, "" for none.
func EmissionOf(e *client.Emission) string {
	if e == nil {
		return ""
	}
	return e.Name + " " + string(e.Data)
}

// ScenarioOf converts a document's scenario.
func ScenarioOf(s *client.Scenario) (kept Scenario) {
	if s != nil {
		kept = Scenario(*s)
	}
	return kept
}
