package delivery

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/forgerun/forgerun/job"
)

// Limits of a webhook's values.
const (
	maxWebhookEvents      = 20
	maxWebhookDescription = 256 // characters
)

// refusalOf is the error for a request with all that is wrong with it.
func refusalOf(violations []job.Violation, unlisted int, malformed bool) *job.Error {
	return job.Request{Malformed: malformed, Unlisted: unlisted}.Refusal(violations)
}

// checkRequest gives everything that is wrong with a request for a webhook. A
// member in which decoding found something wrong has no value to be checked.
func (s *Webhooks) checkRequest(r job.WebhookRequest) []job.Violation {
	p := job.WebhookPatch{URL: &r.URL, Events: append([]string{}, r.Events...), Description: &r.Description, Violations: r.Violations}
	if r.ContentMode != "" {
		p.ContentMode = &r.ContentMode
	}
	return s.checkPatch(p)
}

// checkPatch is checkRequest for the members that a patch has.
func (s *Webhooks) checkPatch(p job.WebhookPatch) []job.Violation {
	violations := slices.Clone(p.Violations)
	if p.URL != nil && !concerns(p.Violations, "/url") {
		violations = append(violations, s.checkURL(*p.URL)...)
	}
	if p.Events != nil && !concerns(p.Violations, "/events") {
		violations = append(violations, checkEvents(p.Events)...)
	}
	if p.Description != nil {
		violations = append(violations, checkDescription(*p.Description)...)
	}
	if p.ContentMode != nil && !concerns(p.Violations, "/content_mode") {
		violations = append(violations, checkContentMode(*p.ContentMode)...)
	}
	return violations
}

// concerns reports whether a violation points at a member or into it.
func concerns(violations []job.Violation, pointer string) bool {
	return slices.ContainsFunc(violations, func(v job.Violation) bool {
		return v.Pointer == pointer || strings.HasPrefix(v.Pointer, pointer+"/")
	})
}

func (s *Webhooks) checkURL(url string) []job.Violation {
	wrong := ""
	switch {
	case url == "":
		wrong = "A webhook needs the URL that its events are sent to."
	case s.deps.Targets != nil:
		wrong = s.deps.Targets.Check(url)
	}
	if wrong == "" {
		return nil
	}
	return []job.Violation{{Pointer: "/url", Detail: wrong}}
}

func checkEvents(events []string) (violations []job.Violation) {
	if len(events) == 0 || len(events) > maxWebhookEvents {
		return []job.Violation{{
			Pointer: "/events", Detail: fmt.Sprintf("A webhook needs 1 to %d names of events; these exist: %s.", maxWebhookEvents,
				job.SubscribableNames()),
		}}
	}
	for i, name := range events {
		v := job.Violation{Pointer: fmt.Sprintf("/events/%d", i)}
		switch {
		case !job.Subscribable(name):
			v.Detail = "There is no such event to ask for; these exist: " + job.SubscribableNames() + "."
		case slices.Contains(events[:i], name):
			v.Detail = "This name was given before."
		default:
			continue
		}
		violations = append(violations, v)
	}
	return violations
}

func checkDescription(description string) []job.Violation {
	if utf8.RuneCountInString(description) <= maxWebhookDescription {
		return nil
	}
	return []job.Violation{{Pointer: "/description", Detail: fmt.Sprintf("At most %d characters are allowed.", maxWebhookDescription)}}
}

func checkContentMode(m job.ContentMode) []job.Violation {
	if m.Valid() {
		return nil
	}
	return []job.Violation{{Pointer: "/content_mode", Detail: fmt.Sprintf("Allowed are %s and %s.", job.ContentBinary, job.ContentStructured)}}
}
