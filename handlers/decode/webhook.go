package decode

import (
	"slices"
	"time"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/job"
)

// Webhook reads the body of a request for a webhook. key is the Idempotency-Key header. The error is for a body that cannot
// be read to its end. Other mistakes are left in the request's Violations, so that the use case can add its own.
func Webhook(body []byte, key string) (req job.WebhookRequest, err error) {
	r := newReader(public, body, Limits{})
	defer r.done()
	var sent api.WebhookRequest
	if r.document("WebhookRequest", &sent); r.err != nil {
		return req, r.result()
	}
	req = job.WebhookRequest{URL: sent.URL, Events: unique(sent.Events), Description: value(sent.Description),
		ContentMode: sent.ContentMode}
	req.IdempotencyKey, req.Hash = r.keyed(key, sent.IdempotencyKey)
	req.Violations, req.Unlisted, req.Malformed = r.request()
	return req, nil
}

// WebhookPatch reads the body of a change of a webhook: a JSON merge patch (RFC 7396). A webhook has no member that could be
// removed, so null is refused. Errors and Violations are as of Webhook.
func WebhookPatch(body []byte) (p job.WebhookPatch, err error) {
	r := newReader(public, body, Limits{})
	defer r.done()
	var sent api.WebhookPatch
	if r.document("WebhookPatch", &sent); r.err != nil {
		return p, r.result()
	}
	p = job.WebhookPatch{URL: sent.URL, Events: unique(sent.Events), Description: sent.Description,
		ContentMode: sent.ContentMode, Enabled: sent.Enabled}
	p.Violations, p.Unlisted, p.Malformed = r.request()
	return p, nil
}

// unique drops names that come again.
func unique(names []string) (once []string) {
	for _, name := range names {
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once
}

// Since reads the body that says from when on deliveries are meant, and with a cursor where to go on; it is nil if there is
// none.
func Since(body []byte) (since time.Time, cursor *string, err error) {
	var sent api.SinceRequest
	err = public.read("SinceRequest", body, &sent)
	return time.Time(sent.Since), sent.Cursor, err
}
