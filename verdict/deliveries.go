package verdict

import (
	"fmt"

	"github.com/forgerun/forgerun/verdict/fault"
)

func answered(r *record, f *finding) {
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if a.Unsigned && a.Error == "STATUS" { // a receiver may refuse an unsigned delivery
			continue
		}
		// Not the client's mistake: a fault withheld the delivery, or the service gave up too early.
		if r.disturbed[attempt{a.DeliveryID, a.Number}].dropped || a.GaveUp && a.Took < AnswerWithin {
			continue
		}
		within := AnswerWithin
		if r.Standards {
			within = StandardAnswerWithin
		}
		ok := a.Error == "" && a.Took <= within
		found := fmt.Sprintf("The client returned %d to the delivery %s.", a.Status, after(a.Took))
		if a.Status == 0 {
			found = fmt.Sprintf("The client did not respond to the delivery: %s %s.", a.Error, after(a.Took))
		}
		f.judge(ok, nil, r.attempted(a), found,
			fmt.Sprintf("Return 2xx within %.0f s: store the event, and process it afterwards.", within.Seconds()))
	}
}

// refused checks that the client does not answer 2xx to forged deliveries.
func refused(r *record, f *finding) {
	old, forged := false, false
	for i := range r.sent {
		x := &r.sent[i]
		if x.Fault.Tamper == "" || x.Status == 0 {
			continue
		}
		ok, why := x.Status < 200 || x.Status > 299, tamperText[x.Fault.Tamper]
		f.judge(ok, nil, x, fmt.Sprintf("The client returned %d to an invalid delivery: %s.", x.Status, why), "Return a status such as 401.")
		old, forged = old || !ok && x.Fault.Tamper == fault.TamperTimestamp, forged || !ok && x.Fault.Tamper != fault.TamperTimestamp
	}
	if r.Standards && old {
		f.cites = &demand{see: hooks + "verifying-signatures", quote: either(forged, validSignature+" [...] ", "") + freshTimestamp}
	}
}

const (
	validSignature = "Signing with multiple keys, even compromised ones, doesn't diminish the security of the scheme, as the consumer " +
		"still requires a valid signature."
	freshTimestamp = "Make sure to verify the `webhook-timestamp` header has a timestamp that is within some allowable tolerance of the " +
		"current timestamp to prevent replay attacks."
)

var tamperText = map[fault.Tamper]string{
	fault.TamperBody:      "the body was changed after signing",
	fault.TamperSignature: "the signatures do not match",
	fault.TamperTimestamp: "the request was signed an hour ago",
	fault.TamperKey:       "it was not signed with the service's key and secret",
	fault.TamperTarget:    "the request was signed for another receiver",
}

// repeated checks that the client answers a copy of a delivery with 2xx. After a failed attempt, a 2xx proves nothing: the client may
// have stored the id but not handled the event.
func repeated(r *record, f *finding) {
	failedDeliveries := map[string]bool{}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if a.Status/100 != 2 && !r.disturbed[attempt{a.DeliveryID, a.Number}].dropped {
			failedDeliveries[a.DeliveryID] = true
		}
	}
	for i := range r.sent {
		x := &r.sent[i]
		if x.Fault.Repeat == 0 || x.Status == 0 || x.Status/100 == 2 && failedDeliveries[x.Delivery] {
			continue
		}
		f.judge(x.Status/100 == 2, nil, x, fmt.Sprintf("The client returned %d to the repeated delivery.", x.Status),
			"Return 2xx again: the webhook-id is the same, so the event was already handled.")
	}
}
