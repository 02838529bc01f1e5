package decode

import (
	"cmp"
	"slices"
	"time"

	"github.com/forgerun/forgerun/job"
)

// Empty accepts only a missing body or {}.
func Empty(body []byte) error { return public.read("EmptyRequest", orEmpty(body), &struct{}{}) }

// Key is a request for an API key.
type Key struct {
	Rotate bool
	Scope  job.Scope
}

// CreateKey reads the optional body of a request for a key.
func CreateKey(body []byte) (k Key, err error) {
	err = public.read("KeyRequest", orEmpty(body), &k, func(r *reader) {
		if k.Scope = cmp.Or(k.Scope, job.ScopeAll); k.Rotate && k.Scope != job.ScopeAll {
			r.invalidAt("/scope", "Only a key with the scope all can replace the current key: remove rotate or scope.")
		}
	})
	return k, err
}

// RevokeKey reads the body of a request that revokes a key.
func RevokeKey(body []byte) (keyID string, err error) {
	var sent struct{ KeyID string }
	err = public.read("RevokeRequest", body, &sent)
	return sent.KeyID, err
}

// Webhook reads the body of a request to create a webhook. `key` is the Idempotency-Key header. Webhook returns an error only if the body
// is invalid JSON or exceeds a limit such as maxDepth. Other mistakes are in req.Violations.
func Webhook(body []byte, key string) (req job.WebhookRequest, err error) {
	r := newReader(public, body, Limits{})
	defer r.done()
	if r.document("WebhookRequest", &req); r.err != nil {
		return req, r.result()
	}
	req.Events = unique(req.Events)
	req.IdempotencyKey, req.Hash = r.keyed(key, req.IdempotencyKey)
	req.Violations, req.Unlisted, req.Malformed = r.request()
	return req, nil
}

// WebhookPatch reads the body of a request to change a webhook: a JSON merge patch (RFC 7396). null is refused because no member of a
// webhook can be removed. WebhookPatch reports mistakes in the same way as Webhook.
func WebhookPatch(body []byte) (p job.WebhookPatch, err error) {
	r := newReader(public, body, Limits{})
	defer r.done()
	if r.document("WebhookPatch", &p); r.err != nil {
		return p, r.result()
	}
	p.Events = unique(p.Events)
	p.Violations, p.Unlisted, p.Malformed = r.request()
	return p, nil
}

func unique(names []string) (once []string) {
	for _, name := range names {
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once
}

// Again is a request to resend deliveries.
type Again struct {
	Since  time.Time
	Cursor *string
}

// Since reads the body of a request to resend deliveries.
func Since(body []byte) (a Again, err error) {
	err = public.read("SinceRequest", body, &a)
	return a, err
}

// Bulk reads the body of a client's request for a bulk operation.
func Bulk(body []byte) (job.BulkRequest, error) { return public.Bulk(body) }

// Bulk reads the body of a request for a bulk operation. The schema of the operator API names some filter members differently: kind, from
// and to.
func (s *Schemas) Bulk(body []byte) (job.BulkRequest, error) {
	var sent struct {
		job.BulkRequest
		Filter struct {
			job.BulkFilter
			Kind     job.Kind
			From, To *job.Time
		}
	}
	sent.Rate = job.DefaultBulkRate
	err := s.read("BulkRequest", body, &sent, func(r *reader) {
		q, f := &sent.BulkRequest, &sent.Filter
		f.WorkKind = cmp.Or(f.WorkKind, f.Kind)
		f.CreatedAfter, f.CreatedBefore = cmp.Or(f.CreatedAfter, f.From), cmp.Or(f.CreatedBefore, f.To)
		q.Filter = f.BulkFilter
		rest := q.Filter
		switch rest.All = false; {
		case q.Filter.All && rest.Names():
			r.invalidAt("/filter/all", "all cannot be combined with other members; remove all or the others.")
		case r.fine() && !q.Filter.Names():
			r.invalidAt("/filter", "The filter needs at least one member. To select all of your jobs, send {\"all\": true}.")
		case r.fine() && q.Override && q.Action != job.BulkRetry:
			r.invalidAt("/override", "Only retries support override.")
		}
	})
	return sent.BulkRequest, err
}
