package verdict

import (
	"bufio"
	_ "embed"
	"net/textproto"
	"strings"

	"github.com/forgerun/forgerun/verdict/fault"
)

// Pages that several rules cite. Other addresses are in rules.txt.
const (
	rfc9110 = "https://www.rfc-editor.org/rfc/rfc9110#section-"
	hooks   = "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#"
	judging = "https://github.com/forgerun/forgerun/blob/main/docs/reference/testbed.md#sessions-and-the-verdict"
	client  = "https://github.com/forgerun/forgerun/blob/main/docs/reference/api.md#what-a-client-does"
)

// rulesText describes the rules, in order. Each block of fields describes one rule.
//
//go:embed rules.txt
var rulesText string

var checks = map[string]func(*record, *finding){
	"retry-after": retryAfter, "list-polling": listing, "stop-at-end": stopAtEnd, "conditional-requests": conditional, "backoff": backoff,
	"retry-budget": budget, "retry-only-retryable": retried, "idempotency-key": keyed, "no-duplicates": duplicates, "same-body": sameBody,
	"one-job-per-intention": oneJob, "lost-answer": lookedUp, "outcome-learned": outcome, "stream-resume": resumed, "half-events": halfEvents,
	"tolerant-reader": tolerant, "deliveries-answered": answered, "tampered-refused": refused, "repeated-delivery": repeated,
	"not-retryable": unretried, "key-renewal": renewed, "no-key-in-url": secret, "connection-reuse": reused, "time-outs": timeouts,
	"redirects": followed, "no-key-elsewhere": keySentElsewhere, "content-negotiation": negotiated, "correlation-ids": correlated,
}

var rules = readRules()

func readRules() (all []rule) {
	for r := textproto.NewReader(bufio.NewReader(strings.NewReader(rulesText))); ; {
		h, err := r.ReadMIMEHeader()
		if len(h) == 0 {
			return all
		}
		one := rule{
			id: h.Get("Rule"), title: h.Get("Title"), demand: demand{Level(h.Get("Level")), h.Get("See"), h.Get("Quote")},
			standard: demand{Level(h.Get("Standard-Level")), h.Get("Standard-See"), h.Get("Standard-Quote")},
			exercise: h.Get("Exercise"), foreign: h.Get("Standard-Exercise"), untested: h.Get("Untested"), check: checks[h.Get("Rule")],
			fix: Fix{h.Get("Fix"), h.Get("Python"), h.Get("TypeScript"), h.Get("Go")},
		}
		for name := range strings.FieldsSeq(h.Get("Profiles")) {
			one.profiles = append(one.profiles, fault.Profile(name))
		}
		if all = append(all, one); err != nil { // the last rule
			return all
		}
	}
}
