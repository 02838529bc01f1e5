package receiver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

// message is one received delivery try.
type message struct {
	at     time.Time
	to     address
	url    string // of the receiver, as registered
	method string
	header http.Header
	body   []byte

	// Set by verify as far as it got.
	webhook string // id; "" for a callback
	event   client.WebhookMessage
	data    client.Outcome // of the job or the batch
}

// verify returns why the message must be rejected, "" if it is valid. An error means that the published keys were not available.
func (r *Receiver) verify(ctx context.Context, m *message) (forbidden string, err error) {
	id, secret := r.registered(ctx, m.to)
	m.webhook = id
	if err := m.read(); err != nil { // the history then has its claimed values
		return fmt.Sprintf("a message that cannot be read: %s", clip(err.Error())), nil
	}
	check := func(v client.Verifier) error {
		_, err := v.Verify(&http.Request{Method: m.method, Header: m.header, Body: io.NopCloser(bytes.NewReader(m.body))})
		return err
	}
	if id != "" {
		if err := check(client.Verifier{Secret: secret}); err != nil {
			return fmt.Sprintf("a message without a valid signature by the webhook's secret: %s", clip(err.Error())), nil
		}
	}
	if r.options.Keys != nil {
		switch err := check(client.Verifier{Keys: r.options.Keys, URL: m.url}); {
		case errors.Is(err, client.ErrSignature):
			return fmt.Sprintf("a message without a valid signature by a published key: %s", clip(err.Error())), nil
		case err != nil:
			return "", fmt.Errorf("not verified: %w", err)
		}
	}
	// The judge checks the job's owner. Here, body and subject must agree.
	if id := m.subjectID("jobs") + m.subjectID("batches"); id != m.data.JobID {
		return fmt.Sprintf("a message of job %s with the subject %s", orNone(m.data.JobID), orNone(m.event.Subject)), nil
	}
	return "", nil
}

// read reads the event of the message. Missing members stay empty.
func (m *message) read() error {
	event, err := client.ParseDelivery(m.header, m.body)
	if err != nil {
		return err
	}
	m.event = *event
	return json.Unmarshal(event.Data, &m.data)
}

func (m *message) id() string { return m.header.Get("Webhook-Id") }

// subjectID returns the id in a subject of a kind, "" for another kind.
func (m *message) subjectID(kind string) string {
	if is, id, _ := strings.Cut(m.event.Subject, "/"); is == kind {
		return id
	}
	return ""
}

// ticket returns the number in a correlation id of the form {run}.{n}, 0 otherwise.
func (m *message) ticket() int64 {
	_, number, _ := strings.Cut(m.data.CorrelationID, ".")
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return 0
	}
	return int64(n)
}

// subject names the message for draw. Another run with the same seed has the same names, but other ids.
func (m *message) subject() string {
	if n := m.ticket(); n > 0 {
		return fmt.Sprintf("%s/%d/%s/%d", m.to.name, n, m.event.Name, m.event.Sequence)
	}
	return m.id()
}

// fact returns the message's fact with the answered status, 0 for none.
func (m *message) fact(kind history.Kind, status int, note string) history.Fact {
	e := m.event
	scenario := history.ScenarioOf(m.data.Scenario)
	scenario.WorkKind, scenario.ExpectedOutcome = clip(scenario.WorkKind), clip(scenario.ExpectedOutcome)
	digest := sha256.Sum256(m.body)
	return history.Fact{
		At: m.at, Kind: kind, Tenant: m.to.tenant, Ticket: m.ticket(), Job: clip(m.subjectID("jobs")), Note: note,
		Delivery: &history.Delivery{
			ID: clip(m.id()), Webhook: m.webhook, Receiver: m.to.name, URL: m.url,
			EventID: clip(e.EventID), EventName: clip(e.Name), Seq: e.Sequence, Status: status, Body: hex.EncodeToString(digest[:]),
			JobStatus: clip(m.data.JobStatus), Emitted: clip(history.EmissionOf(m.data.Emitted)), Scenario: scenario, WorkKind: clip(e.WorkKind),
		},
	}
}

// clip limits text from outside.
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
