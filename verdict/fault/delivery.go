package fault

import "time"

// Delivery is what a rule names as its operation to disturb the deliveries of a client's events.
const Delivery = "delivery"

// Limits of what is done to deliveries.
const (
	MaxDeliveryDelay = 10 * time.Second
	MaxCopies        = 5
	MaxPadding       = 4 << 20
	// DeliveryExtra is how much longer than an undisturbed one a disturbed attempt takes at most: the delay, the altered requests
	// before and after it, and the copies.
	DeliveryExtra = MaxDeliveryDelay + 3*ExtraTimeout
	// ExtraTimeout bounds each altered request, and the copies together.
	ExtraTimeout = 10 * time.Second
)

// Tamper says in what a request differs from a delivery that the receiver may trust.
type Tamper string

// What may be wrong with a request. Neither of its signatures holds then.
const (
	TamperBody      Tamper = "body"      // a space was added after it was signed
	TamperSignature Tamper = "signature" // both signatures were changed
	TamperTimestamp Tamper = "timestamp" // it was signed an hour ago
	TamperKey       Tamper = "key"       // with a key and a secret that are not the service's
	TamperTarget    Tamper = "target"    // for another receiver, with that one's secret
)

// Tampers are all of them.
var Tampers = []Tamper{TamperBody, TamperSignature, TamperTimestamp, TamperKey, TamperTarget}

// OfDeliveries reports whether the fault is one of deliveries.
func (e *Effect) OfDeliveries() bool {
	return e.Drop || e.Repeat > 0 || e.Tamper != "" || e.RotatedSecret || e.Padding > 0
}

// ForDeliveries reports whether nothing of the fault is for anything but deliveries.
func (e *Effect) ForDeliveries() bool {
	rest := *e
	rest.Delay, rest.Drop, rest.Repeat, rest.Tamper, rest.RotatedSecret, rest.Padding = 0, false, 0, "", false, 0
	rest.Extensions, rest.JobStatus = false, ""
	return rest == Effect{}
}
