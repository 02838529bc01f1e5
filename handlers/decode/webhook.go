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
func Webhook(body []byte, key string) (job.WebhookRequest, error) {
	d := newDecoder(body)
	var req job.WebhookRequest
	var hasURL, hasEvents bool
	req.IdempotencyKey, req.Hash = d.keyed(key, []member{
		{name: "url", read: func() { req.URL, hasURL = d.url() }},
		{name: "events", read: func() { req.Events, hasEvents = d.webhookEvents() }},
		{name: "description", read: func() { req.Description = d.description() }},
		{name: "content_mode", read: func() { req.ContentMode = d.contentMode() }},
		d.keyMember(),
	})
	d.require(hasURL, "url")
	d.require(hasEvents, "events")
	if d.err != nil {
		return job.WebhookRequest{}, d.result()
	}
	req.Violations, req.Unlisted, req.Malformed = d.findings()
	return req, nil
}

// WebhookPatch reads the body of a change of a webhook: a JSON merge
// patch (RFC 7396). A webhook has no member that could be removed, so null is
// refused. Errors and Violations are as of Webhook.
func WebhookPatch(body []byte) (job.WebhookPatch, error) {
	d := newDecoder(body)
	var p job.WebhookPatch
	d.document([]member{
		{name: "url", read: d.notNull(func() { url, _ := d.url(); p.URL = &url })},
		{name: "events", read: d.notNull(func() { p.Events, _ = d.webhookEvents() })},
		{name: "description", read: d.notNull(func() { text := d.description(); p.Description = &text })},
		{name: "content_mode", read: d.notNull(func() { mode := d.contentMode(); p.ContentMode = &mode })},
		{name: "enabled", read: d.notNull(func() { on := d.boolean(); p.Enabled = &on })},
	})
	if d.err != nil {
		return job.WebhookPatch{}, d.result()
	}
	if len(d.outer) == 0 && len(d.form) == 0 {
		d.malformedAt("", "The object must have at least one of url, events, description, content_mode, enabled.")
	}
	p.Violations, p.Unlisted, p.Malformed = d.findings()
	return p, nil
}

// Since reads the body that says from when on deliveries are meant, and
// with a cursor where to go on; it is nil if there is none.
func Since(body []byte) (since time.Time, cursor *string, err error) {
	d := newDecoder(body)
	present := false
	d.document([]member{
		{name: "since", read: func() {
			var at *time.Time
			if at, present = d.time(); at != nil {
				since = *at
			}
		}},
		{name: "cursor", read: func() {
			if text, ok := d.text(); ok {
				cursor = &text
			}
		}},
	})
	d.require(present, "since")
	return since, cursor, d.result()
}

// webhookEvents reads the names of events; false if they are absent or no
// array. A name that comes again counts once.
func (d *decoder) webhookEvents() ([]string, bool) {
	if !d.begins('[', "an array of strings") {
		return nil, false
	}
	events := []string{}
	n := d.array(func(i int) {
		if name, ok := d.webhookEvent(); ok && i < maxWebhookEvents && !slices.Contains(events, name) {
			events = append(events, name)
		}
	})
	if d.err == nil && (n == 0 || n > maxWebhookEvents) {
		d.invalid(fmt.Sprintf("This must have 1 to %d names of events and has %d.", maxWebhookEvents, n))
	}
	return events, true
}

func (d *decoder) webhookEvent() (string, bool) {
	name, ok := d.text()
	if ok && !job.Subscribable(name) {
		d.invalid("There is no such event." + suggest(d, name, job.SubscribableEvents) + " " + eventForm)
		return "", false
	}
	return name, ok
}

// eventForm lists what a webhook may ask for.
var eventForm = "This must be one of " + job.SubscribableNames() + ". Progress, job.progress, is shown in event streams only."

func (d *decoder) description() string {
	text, _ := d.text()
	if n := utf8.RuneCountInString(text); n > maxDescriptionRunes {
		d.invalid(fmt.Sprintf("The description may have at most %d characters and has %d.", maxDescriptionRunes, n))
		return ""
	}
	return text
}

func (d *decoder) contentMode() job.ContentMode {
	text, ok := d.text()
	mode := job.ContentMode(text)
	if ok && !mode.Valid() {
		d.invalid("There is no such content mode." + suggest(d, text, []job.ContentMode{job.ContentBinary, job.ContentStructured}) +
			" It must be " + string(job.ContentBinary) + " or " + string(job.ContentStructured) + ".")
		return ""
	}
	return mode
}
