package decode

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/forgerun/forgerun/job"
)

// The bounds of a webhook's members.
const (
	maxWebhookEvents    = 20
	maxDescriptionRunes = 256
)

// Webhook reads the body of a request for a webhook. key is that of the header.
// An error is a body that cannot be read to its end. All else that is wrong is
// left in the request's Violations, so that the use case can add what it finds.
func Webhook(body []byte, key string) (req job.WebhookRequest, err error) {
	d := newDecoder(body, Limits{})
	req.IdempotencyKey, req.Hash = d.keyed(key, []member{
		{"url", required, set(&req.URL, readURL)},
		{"events", required, set(&req.Events, readWebhookEvents)},
		{"description", optional, set(&req.Description, checked(checkDescription))},
		{"content_mode", optional, set(&req.ContentMode, readContentMode)},
		d.keyMember(),
	})
	if d.err != nil {
		return job.WebhookRequest{}, d.result()
	}
	req.Violations, req.Unlisted, req.Malformed = d.request()
	return req, nil
}

// WebhookPatch reads the body of a change of a webhook: a JSON merge
// patch (RFC 7396). A webhook has no member that could be removed, so null is
// refused. Errors and Violations are as of Webhook.
func WebhookPatch(body []byte) (p job.WebhookPatch, err error) {
	d := newDecoder(body, Limits{})
	d.mergePatch([]member{
		{"url", kept, set(&p.URL, pointer(readURL))},
		{"events", kept, set(&p.Events, readWebhookEvents)},
		{"description", kept, set(&p.Description, pointer(checked(checkDescription)))},
		{"content_mode", kept, set(&p.ContentMode, pointer(readContentMode))},
		{"enabled", kept, set(&p.Enabled, pointer(readBool))},
	})
	if d.err != nil {
		return job.WebhookPatch{}, d.result()
	}
	p.Violations, p.Unlisted, p.Malformed = d.request()
	return p, nil
}

// Since reads the body that says from when on deliveries are meant, and
// with a cursor where to go on; it is nil if there is none.
func Since(body []byte) (since time.Time, cursor *string, err error) {
	err = readBody(body, []member{
		{"since", required, set(&since, readTime)},
		{"cursor", optional, set(&cursor, pointer(readText))},
	}).result()
	return since, cursor, err
}

// readWebhookEvents reads the names of events. A name that comes again counts once.
func readWebhookEvents(d *decoder) ([]string, bool) {
	events := []string{}
	n, ok := d.array("an array of strings", func(i int) {
		if name, ok := readWebhookEvent(d); ok && i < maxWebhookEvents && !slices.Contains(events, name) {
			events = append(events, name)
		}
	})
	if ok && d.err == nil && (n == 0 || n > maxWebhookEvents) {
		d.invalid(fmt.Sprintf("This must have 1 to %d names of events and has %d.", maxWebhookEvents, n))
	}
	return events, ok
}

// eventForm lists what a webhook may ask for.
var eventForm = "This must be one of " + job.SubscribableNames() + ". Progress, job.progress, is shown in event streams only."

var readWebhookEvent = parsed(func(d *decoder, text string) (string, string) {
	if job.Subscribable(text) {
		return text, ""
	}
	return "", noSuch(d, "event", text, job.SubscribableEvents, eventForm)
})

func checkDescription(text string) string {
	n := utf8.RuneCountInString(text)
	return unless(n <= maxDescriptionRunes, fmt.Sprintf("The description may have at most %d characters and has %d.", maxDescriptionRunes, n))
}

var readContentMode = oneOf("content mode", []job.ContentMode{job.ContentBinary, job.ContentStructured},
	"It must be "+string(job.ContentBinary)+" or "+string(job.ContentStructured)+".")
