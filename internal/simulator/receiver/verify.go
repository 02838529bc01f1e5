package receiver

import (
	"context"
	"errors"
	"fmt"

	"github.com/forgerun/forgerun/client"
)

// verify reads the message and says why it must not be accepted, "" if it may be.
// An error means that this is not known now, without the published keys.
func (r *Receiver) verify(ctx context.Context, m *message) (forbidden string, err error) {
	registered := r.registered(ctx, m.to)
	m.webhook = registered.id
	unread := m.read() // first, so that the history has what it claims to be
	if registered.id != "" {
		v := client.Verifier{Secret: registered.secret}
		if _, err := v.Verify(m.request()); err != nil && unread == nil {
			return fmt.Sprintf("a message that the webhook's secret has not signed: %s", clip(err.Error())), nil
		}
	}
	if r.options.Keys != nil {
		v := client.Verifier{Keys: r.options.Keys, URL: m.url}
		switch _, err := v.Verify(m.request()); {
		case unread != nil: // is returned below
		case errors.Is(err, client.ErrSignature):
			return fmt.Sprintf("a message that no published key has signed: %s", clip(err.Error())), nil
		case err != nil:
			return "", fmt.Errorf("not verified: %w", err)
		}
	}
	if unread != nil {
		return fmt.Sprintf("a message that cannot be read: %s", clip(unread.Error())), nil
	}
	return m.contradiction(), nil
}

// contradiction says that body and subject are not of the same job or batch: each alone may be right. "" if they are. Whose
// job it is, the judge checks.
func (m *message) contradiction() string {
	if id := m.subjectID("jobs/") + m.subjectID("batches/"); id != m.data.JobID {
		return fmt.Sprintf("a message of job %s with the subject %s", orNone(m.data.JobID), orNone(m.event.Subject))
	}
	return ""
}
