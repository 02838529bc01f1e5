package receiver

import (
	"context"
	"errors"
	"fmt"

	"github.com/forgerun/forgerun/client"
)

// verify reads the message and says what is strange about it, "" for nothing.
// An error means that this cannot be told now, without the published keys.
func (r *Receiver) verify(ctx context.Context, m *message) (strange string, err error) {
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
		case unread != nil: // is told below
		case errors.Is(err, client.ErrSignature):
			return fmt.Sprintf("a message that no published key has signed: %s", clip(err.Error())), nil
		case err != nil:
			return "", fmt.Errorf("not verified: %w", err)
		}
	}
	if unread != nil {
		return fmt.Sprintf("a message that cannot be read: %s", clip(unread.Error())), nil
	}
	return r.foreign(m), nil
}

// foreign says why the message is not one for its tenant, "" if it may be. Body
// and subject must be of the same job or batch: each alone may be right.
func (r *Receiver) foreign(m *message) string {
	if id := m.subjectID("jobs/") + m.subjectID("batches/"); id != m.data.JobID {
		return fmt.Sprintf("a message of job %s with the subject %s", orNone(m.data.JobID), orNone(m.event.Subject))
	}
	if r.options.Owner == nil || m.job() == "" {
		return ""
	}
	if owner, known := r.options.Owner(m.job()); known && owner != m.to.tenant {
		return fmt.Sprintf("tenant %d got a message of a job of tenant %d", m.to.tenant, owner)
	}
	return ""
}
