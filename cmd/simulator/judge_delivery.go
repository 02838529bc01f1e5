package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	forgerun "github.com/forgerun/forgerun/client"
)

// judgeDelivery compares a delivery as the service tells it, with what the
// receiver saw and with what the kind's script must lead to.
func (v *visit) judgeDelivery(sub *subscription, d deliveryView) {
	seen, open := sub.hook.received()
	v.got += ", " + describe(sub.script, d)
	event := ""
	if i := slices.IndexFunc(sub.report.Events, func(e eventView) bool { return e.Name == eventSucceeded }); i >= 0 {
		event = sub.report.Events[i].EventID
	}
	if d.EventID != event {
		v.differs("the delivery is of event %s, the job's %s is %s", orNone(d.EventID), eventSucceeded, orNone(event))
	}
	for i, m := range seen {
		v.judgeMessage(m, messageOf{
			url: sub.hook.url, jobID: sub.ticket.id, eventID: event, event: eventSucceeded, id: d.DeliveryID, secret: sub.secret,
			what: fmt.Sprintf("try %d", i+1),
		})
		if i > 0 && m.header.Get("Webhook-Timestamp") < seen[i-1].header.Get("Webhook-Timestamp") {
			v.differs("try %d has an earlier webhook-timestamp than the one before", i+1)
		}
	}
	if d.State == deliveryPending {
		v.judgePending(sub, d, seen, open)
		return
	}
	v.judgeTries(d, seen)
	v.judgeEnd(sub.script, d)
}

// describe gives a delivery's fate as the table shows it.
func describe(s script, d deliveryView) string {
	switch {
	case d.State == deliveryPending:
		return fmt.Sprintf("%d tries so far", d.Attempts)
	case d.State == deliveryFailed:
		return "delivery FAILED"
	case d.Attempts > 1:
		return "delivered on retry"
	case s.late > 0:
		return "delivered late"
	default:
		return "delivered"
	}
}

// judgePending looks at a delivery whose end was not waited for. Of a service
// whose times are unknown that is no fault, unless the receiver has accepted
// it, or the next try is overdue.
func (v *visit) judgePending(sub *subscription, d deliveryView, seen []message, open bool) {
	v.cut = true
	next := timeOf(d.NextAttemptAt)
	if v.pace.deliveryTries > 0 {
		v.differs("the delivery was not settled within %s", v.pace.patience)
	}
	v.notes = append(v.notes, fmt.Sprintf("after %s the delivery is still %s: %d tries made, the next one due at %s; "+
		"its end was not waited for (--webhook-patience)", v.pace.patience, d.State, d.Attempts, clock(next)))
	switch {
	case open: // a try is on its way
	case next.IsZero():
		v.differs("the %s delivery has no next_attempt_at", d.State)
	case slices.ContainsFunc(seen, func(m message) bool { return m.reply.accepts() && time.Since(m.at) > v.pace.overdue+m.reply.after }):
		v.differs("the delivery is still %s although the receiver has accepted it", d.State)
	case time.Since(next) > v.pace.overdue:
		v.differs("the delivery was to be tried again %s ago and was not, after %d tries", show(time.Since(next)), d.Attempts)
	}
	if len(seen) < d.Attempts {
		v.differs("the service counts %d tries, the receiver saw %d", d.Attempts, len(seen))
	}
	if most := sub.script.tries; most > 0 && d.Attempts >= most {
		v.differs("the delivery is still %s after %d tries, expected %s", d.State, d.Attempts, sub.script.state)
	}
}

// judgeTries compares the service's log of tries with what the receiver saw.
func (v *visit) judgeTries(d deliveryView, seen []message) {
	if len(seen) != d.Attempts {
		v.differs("the service counts %d tries, the receiver saw %d", d.Attempts, len(seen))
		return
	}
	if len(d.Log) != d.Attempts {
		v.differs("the delivery has %d attempts and a log of %d", d.Attempts, len(d.Log))
		return
	}
	for i, try := range d.Log {
		if try.Number != i+1 {
			v.differs("entry %d of the log of tries has number %d", i+1, try.Number)
		}
		want, took := seen[i].reply, time.Duration(try.DurationMS)*time.Millisecond
		switch status := try.status(); {
		case status == 0 && want.after > 0:
			v.differs("try %d was given up after %s, the receiver answers after %s: the service's time limit must be longer",
				i+1, show(took), show(want.after))
		case status != want.status:
			v.differs("try %d is logged with status %d, the receiver answered %d", i+1, status, want.status)
		case took < want.after-time.Millisecond:
			v.differs("try %d is logged with %s, the receiver took %s", i+1, show(took), show(want.after))
		case want.accepts() && i+1 < len(seen):
			v.differs("the delivery was sent again after the receiver had accepted it")
		}
	}
}

// judgeEnd holds a settled delivery against the script.
func (v *visit) judgeEnd(s script, d deliveryView) {
	code := ""
	if d.LastError != nil {
		code = " " + d.LastError.Code
	}
	if d.State != s.state {
		v.differs("the delivery ended %s%s after %d tries, expected %s", d.State, code, d.Attempts, s.state)
	}
	if (d.LastError != nil) != (d.State == deliveryFailed) {
		v.differs("the %s delivery has last_error%s", d.State, orNone(code))
	}
	if d.SettledAt == nil || d.NextAttemptAt != nil {
		v.differs("the %s delivery lacks settled_at, or has a next_attempt_at", d.State)
	}
	switch want := s.tries; {
	case want > 0 && d.Attempts != want:
		v.differs("the delivery took %d tries, expected %d", d.Attempts, want)
	case want == 0 && v.pace.deliveryTries > 0 && d.Attempts != v.pace.deliveryTries:
		v.differs("the delivery was given up after %d tries, the service has %d", d.Attempts, v.pace.deliveryTries)
	case want == 0 && d.Attempts < 2:
		v.differs("the delivery was given up without a retry")
	}
	if d.SettledAt != nil && d.CreatedAt != nil && d.SettledAt.Sub(d.CreatedAt.Time) < s.late {
		v.differs("the delivery was settled %s after its event, before the receiver answered", show(d.SettledAt.Sub(d.CreatedAt.Time)))
	}
}

// messageOf is what a message must be. An empty event, id or secret is not
// looked at.
type messageOf struct {
	what, url, jobID, event, eventID, id, secret string
}

// judgeMessage verifies one try as a receiver should, and a little more.
func (v *visit) judgeMessage(m message, want messageOf) {
	differs := func(format string, args ...any) { v.differs("%s: %s", want.what, fmt.Sprintf(format, args...)) }
	expect := func(name, value string) {
		if got := m.header.Get(name); value != "" && got != value {
			differs("%s is %s, expected %s", strings.ToLower(name), orNone(got), value)
		}
	}
	if m.method != http.MethodPost {
		differs("it came by %s", m.method)
	}
	expect("Webhook-Id", want.id)
	expect("Content-Type", "application/json")
	expect("Ce-Specversion", "1.0")
	expect("Ce-Type", want.event)
	expect("Ce-Id", want.eventID)
	expect("Ce-Subject", "jobs/"+want.jobID)
	if d := m.document(); d.JobID != want.jobID || d.JobStatus == "" || want.event == eventSucceeded && d.JobStatus != "COMPLETED" {
		differs("the body has jobId %s and jobStatus %s", orNone(d.JobID), orNone(d.JobStatus))
	}
	verifier := forgerun.Verifier{Secret: want.secret, Keys: v.client.keys.Key, Now: func() time.Time { return m.at }}
	if err := verifier.VerifyKey(m.method, want.url, m.header, m.body); err != nil {
		differs("signature (RFC 9421): %s", plain(err))
	}
	if want.secret == "" {
		return
	}
	if err := verifier.VerifySecret(m.header, m.body); err != nil {
		differs("webhook-signature: %s", plain(err))
	}
}

// plain says what the client library found, without its name.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "client: ") }

func (r reply) accepts() bool { return r.status >= 200 && r.status < 300 }
