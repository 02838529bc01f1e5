package delivery

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/forgerun/forgerun/job"
)

const (
	maxWebhookEvents      = 20
	maxWebhookDescription = 256 // characters
)

func (s *Webhooks) checkRequest(r job.WebhookRequest) []job.Violation {
	p := job.WebhookPatch{URL: &r.URL, Events: append([]string{}, r.Events...), Description: &r.Description, Violations: r.Violations}
	if r.ContentMode != "" {
		p.ContentMode = &r.ContentMode
	}
	return s.checkPatch(p)
}

// checkPatch returns all violations of a patch, including those found while decoding. It skips members that could not be decoded.
func (s *Webhooks) checkPatch(p job.WebhookPatch) []job.Violation {
	violations := slices.Clone(p.Violations)
	wrong := func(pointer, detail string) {
		if detail != "" && !concerns(p.Violations, pointer) {
			violations = append(violations, job.Violation{Pointer: pointer, Detail: detail})
		}
	}
	switch {
	case p.URL == nil:
	case *p.URL == "":
		wrong("/url", "A webhook needs a URL to send its events to.")
	case s.Targets != nil:
		wrong("/url", s.Targets(*p.URL))
	}
	if p.Events != nil && !concerns(p.Violations, "/events") {
		violations = append(violations, checkEvents(p.Events)...)
	}
	if p.Description != nil && utf8.RuneCountInString(*p.Description) > maxWebhookDescription {
		wrong("/description", fmt.Sprintf("At most %d characters are allowed.", maxWebhookDescription))
	}
	if p.ContentMode != nil && !p.ContentMode.Valid() {
		wrong("/content_mode", fmt.Sprintf("This must be %s or %s.", job.ContentBinary, job.ContentStructured))
	}
	return violations
}

func concerns(violations []job.Violation, pointer string) bool {
	return slices.ContainsFunc(violations, func(v job.Violation) bool {
		return v.Pointer == pointer || strings.HasPrefix(v.Pointer, pointer+"/")
	})
}

func checkEvents(events []string) (violations []job.Violation) {
	if len(events) == 0 || len(events) > maxWebhookEvents {
		return []job.Violation{{
			Pointer: "/events", Detail: fmt.Sprintf("A webhook needs 1 to %d of these event names: %s.", maxWebhookEvents,
				job.SubscribableNames()),
		}}
	}
	for i, name := range events {
		v := job.Violation{Pointer: fmt.Sprintf("/events/%d", i)}
		switch {
		case !job.Subscribable(name):
			v.Detail = "Unknown event name; the event names are: " + job.SubscribableNames() + "."
		case slices.Contains(events[:i], name):
			v.Detail = "This name is listed twice."
		default:
			continue
		}
		violations = append(violations, v)
	}
	return violations
}
