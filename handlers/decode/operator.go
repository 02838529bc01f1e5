package decode

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/job"
)

// ForClient is an operator's request in the name of a client. Request is the client's request as it was sent.
type ForClient struct {
	ClientID job.ID
	Request  []byte
}

// ForClientOf returns a reader of such a request, which is in the named member.
func ForClientOf(name string) func(body []byte) (ForClient, error) {
	return func(body []byte) (r ForClient, err error) {
		err = readBody(body, []member{
			{"client_id", required, set(&r.ClientID, readID)},
			{name, required, func(d *decoder) {
				if d.begins('{', "an object") {
					r.Request = slices.Clone(d.value())
				}
			}},
		}).result()
		return r, err
	}
}

// Override reads the body of an operator's request for a retry, which may be missing.
func Override(body []byte) (override bool, err error) {
	err = readBody(orEmpty(body), []member{{"override", optional, set(&override, readBool)}}).result()
	return override, err
}

// maxClientName is how long the name of a client may be, in characters.
const maxClientName = 100

// ClientName reads the body of a request that names a client; "" removes the name.
func ClientName(body []byte) (name string, err error) {
	line := word(func(s string) bool { return isLine(s, maxClientName) },
		fmt.Sprintf("It must be a line of at most %d characters.", maxClientName))
	err = readBody(body, []member{{"name", required, set(&name, line)}}).result()
	return name, err
}

// Erasing is a request to erase a client: its id again, and why.
type Erasing struct {
	Confirm job.ID
	Reason  string
}

// Erasure reads the body of a request to erase a client.
func Erasure(body []byte) (r Erasing, err error) {
	err = readBody(body, []member{
		{"confirm", required, set(&r.Confirm, readID)},
		{"reason", optional, set(&r.Reason, checked(checkReason))},
	}).result()
	return r, err
}

// Pause reads the body of a request to stop something. The target comes in its usual spelling.
func Pause(body []byte) (p job.Pause, err error) {
	d := readBody(body, []member{
		{"scope", required, set(&p.Scope, choice("scope", job.PauseScopes))},
		{"target", optional, set(&p.Target, readText)},
		{"mode", optional, set(&p.Mode, choice("mode", job.PauseModes))},
		{"reason", required, set(&p.Reason, checked(func(text string) string {
			if strings.TrimSpace(text) == "" {
				return "It must say why: others read it in the audit log."
			}
			return checkReason(text)
		}))},
	})
	usual := job.ModePause
	if p.Scope == job.PauseWorker {
		usual = job.ModeDrain
	}
	p.Mode = cmp.Or(p.Mode, usual)
	checkPause(d, &p)
	return p, d.result()
}

// checkPause refuses a target and a mode that are not for the scope.
func checkPause(d *decoder, p *job.Pause) {
	switch p.Scope {
	case job.PauseAll:
		if p.Target != "" {
			d.invalidAt("/target", "It must be left out where the scope is ALL.")
		}
	case job.PauseKind:
		if !slices.Contains(job.AllKinds(), job.Kind(p.Target)) {
			d.invalidAt("/target", "It must be a work kind of the catalogue.")
		}
	case job.PauseClient, job.PauseWorker:
		id, err := job.ParseID(p.Target)
		if err != nil || id.IsZero() {
			d.invalidAt("/target", "It must be the id of the "+strings.ToLower(string(p.Scope))+".")
		}
		p.Target = id.String()
	}
	if p.Scope == job.PauseWorker && p.Mode != job.ModeDrain {
		d.invalidAt("/mode", "A worker can only be drained: it takes no more jobs and ends those that it has.")
	}
}

// maxReason is the length of what an operator says about a change, in characters.
const maxReason = 1000

func checkReason(text string) string {
	return unless(isLine(text, maxReason), fmt.Sprintf("It must be a line of at most %d characters.", maxReason))
}
