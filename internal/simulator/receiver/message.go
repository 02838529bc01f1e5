package receiver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

// message is one try, as it was received.
type message struct {
	at     time.Time
	to     address
	url    string // of the receiver, as the service knows it
	method string
	header http.Header
	body   []byte

	// Set by verify, as far as it came.
	webhook string // id; "" for a callback
	event   client.WebhookMessage
	data    client.Outcome // of the job or the batch
}

func (m *message) id() string { return m.header.Get("Webhook-Id") }

// read takes the event out of the message. A member that is missing is left
// empty.
func (m *message) read() error {
	event, err := client.ParseDelivery(m.header, m.body)
	if err != nil {
		return err
	}
	m.event = *event
	return json.Unmarshal(event.Data, &m.data)
}

// request is the message as a Verifier takes it.
func (m *message) request() *http.Request {
	return &http.Request{Method: m.method, Header: m.header, Body: io.NopCloser(bytes.NewReader(m.body))}
}

// subjectID gives the id in a subject of that kind, "" in one of another.
func (m *message) subjectID(kind string) string {
	if id, ok := strings.CutPrefix(m.event.Subject, kind); ok {
		return id
	}
	return ""
}

// job is the id of the job that the message is about, "" for none.
func (m *message) job() string { return clip(m.subjectID("jobs/")) }

// ticket is the number in a correlation id of the form {run}.{n}, 0 in another.
func (m *message) ticket() int64 {
	_, number, _ := strings.Cut(m.data.CorrelationID, ".")
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return 0
	}
	return int64(n)
}

// subject names the message for the drawing of answers: the same in another run
// with the same seed, which ids are not.
func (m *message) subject() string {
	if n := m.ticket(); n > 0 {
		return fmt.Sprintf("%s/%d/%s/%d", m.to.name, n, m.event.Name, m.event.Sequence)
	}
	return m.id()
}

// fact is what the history keeps of a message that is answered with a status, 0
// for nothing.
func (m *message) fact(kind history.Kind, status int, note string) history.Fact {
	e := m.event
	scenario := history.ScenarioOf(m.data.Scenario)
	scenario.WorkKind, scenario.ExpectedOutcome = clip(scenario.WorkKind), clip(scenario.ExpectedOutcome)
	digest := sha256.Sum256(m.body)
	return history.Fact{
		At: m.at, Kind: kind, Tenant: m.to.tenant, Ticket: m.ticket(), Job: m.job(), Note: note,
		Delivery: &history.Delivery{
			ID: clip(m.id()), Webhook: m.webhook, Receiver: m.to.name, URL: m.url,
			EventID: clip(e.EventID), EventName: clip(e.Name), Seq: e.Sequence, Status: status, Body: hex.EncodeToString(digest[:]),
			JobStatus: clip(m.data.JobStatus), Emitted: clip(history.EmissionOf(m.data.Emitted)), Scenario: scenario, WorkKind: clip(e.WorkKind),
		},
	}
}

// clip bounds what is kept of text from outside.
func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return fmt.Sprintf("%q", clip(s))
}
