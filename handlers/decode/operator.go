package decode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/job"
)

// ClientJob reads an operator's request for a job of a client, and gives the request of the job as it was sent.
func ClientJob(body []byte) (client job.ID, request []byte, err error) {
	d := newDecoder(body)
	named := false
	d.document([]member{
		{name: "client_id", read: func() { client, named = d.id() }},
		{name: "job", read: func() {
			if d.begins('{', "an object") {
				request = slices.Clone(d.value())
			}
		}},
	})
	d.require(named, "client_id")
	d.require(request != nil, "job")
	return client, request, d.result()
}

// Override reads the body of an operator's request for a retry, which may be missing.
func Override(body []byte) (override bool, err error) {
	if len(body) == 0 {
		return false, nil
	}
	d := newDecoder(body)
	d.document([]member{{name: "override", read: func() { override = d.boolean() }}})
	return override, d.result()
}

// Erasure reads the body of a request to erase a client: its id again, and why.
func Erasure(body []byte) (confirm job.ID, reason string, err error) {
	d := newDecoder(body)
	confirmed := false
	d.document([]member{
		{name: "confirm", read: func() { confirm, confirmed = d.id() }},
		{name: "reason", read: func() { reason, _ = d.reason() }},
	})
	d.require(confirmed, "confirm")
	return confirm, reason, d.result()
}

// Pause reads the body of a request to stop something. The target comes in its usual spelling.
func Pause(body []byte) (p job.Pause, err error) {
	d := newDecoder(body)
	var scoped, explained bool
	d.document([]member{
		{name: "scope", read: func() { p.Scope, scoped = choose(d, "scope", job.PauseScopes) }},
		{name: "target", read: func() { p.Target, _ = d.text() }},
		{name: "mode", read: func() { p.Mode, _ = choose(d, "mode", job.PauseModes) }},
		{name: "reason", read: func() {
			if p.Reason, explained = d.reason(); explained && strings.TrimSpace(p.Reason) == "" {
				d.invalid("It must say why: others read it in the audit log.")
			}
		}},
	})
	d.require(scoped, "scope")
	d.require(explained, "reason")
	switch {
	case p.Mode == "" && p.Scope == job.PauseWorker:
		p.Mode = job.ModeDrain
	case p.Mode == "":
		p.Mode = job.ModePause
	}
	d.pauseTarget(&p)
	return p, d.result()
}

// pauseTarget refuses a target and a mode that are not for the scope.
func (d *decoder) pauseTarget(p *job.Pause) {
	switch p.Scope {
	case job.PauseAll:
		if p.Target != "" {
			d.wrong("/target", "It must be left out where the scope is ALL.")
		}
	case job.PauseKind:
		if !slices.Contains(job.AllKinds(), job.Kind(p.Target)) {
			d.wrong("/target", "It must be a work kind of the catalogue.")
		}
	case job.PauseClient, job.PauseWorker:
		id, err := job.ParseID(p.Target)
		if err != nil || id.IsZero() {
			d.wrong("/target", "It must be the id of the "+strings.ToLower(string(p.Scope))+".")
		}
		p.Target = id.String()
	}
	if p.Scope == job.PauseWorker && p.Mode != job.ModeDrain {
		d.wrong("/mode", "A worker can only be drained: it takes no more jobs and ends those that it has.")
	}
}

// maxReason is the length of what an operator says about a change, in characters.
const maxReason = 1000

// reason reads why an operator does something.
func (d *decoder) reason() (string, bool) {
	text, ok := d.text()
	if ok && !isLine(text, maxReason) {
		d.invalid(fmt.Sprintf("It must be a line of at most %d characters.", maxReason))
	}
	return text, ok
}
