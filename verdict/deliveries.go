package verdict

import (
	"fmt"

	"github.com/forgerun/forgerun/verdict/fault"
)

// answered: deliveries get 2xx in time.
func answered(r *record, f *finding) {
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if a.Unsigned && a.Error == "STATUS" { // a receiver that refuses it is right
			continue
		}
		if r.disturbed[attempt{a.DeliveryID, a.Number}].dropped || a.GaveUp && a.Took < AnswerWithin { // the client might have answered in time
			continue
		}
		within := AnswerWithin
		if r.Standards {
			within = StandardAnswerWithin
		}
		ok := a.Error == "" && a.Took <= within
		found := fmt.Sprintf("%d %s.", a.Status, after(a.Took))
		if a.Error != "" {
			found = fmt.Sprintf("%s %s.", a.Error, after(a.Took))
		}
		f.judge(ok, nil, r.attempted(a), found,
			fmt.Sprintf("2xx within %.0f s: take the event, and work on it afterwards.", within.Seconds()))
	}
}

// refused: what the service did not sign for this receiver and this moment gets no 2xx. One without an answer tells nothing.
func refused(r *record, f *finding) {
	for i := range r.sent {
		if x := &r.sent[i]; x.Fault.Tamper != "" && x.Status != 0 {
			f.judge(x.Status < 200 || x.Status > 299, nil, x, fmt.Sprintf("The client answered %d.", x.Status),
				"A status such as 401: "+wrongWith[x.Fault.Tamper])
		}
	}
}

var wrongWith = map[fault.Tamper]string{
	fault.TamperBody:      "the body is not the one that was signed.",
	fault.TamperSignature: "the signatures do not match.",
	fault.TamperTimestamp: "it was signed an hour ago.",
	fault.TamperKey:       "neither the key nor the secret is the service's.",
	fault.TamperTarget:    "it was signed for another receiver.",
}

// repeated: a copy of what was answered with 2xx gets 2xx, too. One without an answer tells nothing.
func repeated(r *record, f *finding) {
	for i := range r.sent {
		if x := &r.sent[i]; x.Fault.Repeat > 0 && x.Status != 0 {
			f.judge(200 <= x.Status && x.Status <= 299, nil, x, fmt.Sprintf("The client answered the copy with %d.", x.Status),
				"2xx, as for the first one: it is known by its Webhook-Id, and nothing is done.")
		}
	}
}
