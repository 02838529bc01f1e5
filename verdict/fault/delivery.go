package fault

import "time"

// Delivery is the value of Match.Operation in rules for webhook deliveries to the client.
const Delivery = "delivery"

// Limits of effects on deliveries.
const (
	MaxDeliveryDelay = 10 * time.Second
	MaxCopies        = 5
	MaxPadding       = 4 << 20
	// DeliveryExtra is the longest time that faults add to an attempt: a delay, two forged requests and copies.
	DeliveryExtra = MaxDeliveryDelay + 3*ExtraTimeout
	// ExtraTimeout is the time limit of each forged request, and of all copies together.
	ExtraTimeout = 10 * time.Second
)

// Tamper is the difference between a forged request and a valid delivery.
type Tamper string

// The kinds of tampering. Each makes all signatures of the delivery invalid.
const (
	TamperBody      Tamper = "body"      // a space was added after signing
	TamperSignature Tamper = "signature" // all signatures were changed
	TamperTimestamp Tamper = "timestamp" // signed an hour ago
	TamperKey       Tamper = "key"       // signed with a key and a secret that are not the service's
	TamperTarget    Tamper = "target"    // signed for another receiver, with that receiver's secret
)

// Tampers lists all kinds of tampering.
var Tampers = []Tamper{TamperBody, TamperSignature, TamperTimestamp, TamperKey, TamperTarget}

// OfDeliveries reports whether the fault has members that apply only to deliveries.
func (e *Effect) OfDeliveries() bool {
	return e.Drop || e.Repeat > 0 || e.Tamper != "" || e.RotatedSecret || e.Padding > 0
}

// ForDeliveries reports whether the fault has only members that can apply to deliveries.
func (e *Effect) ForDeliveries() bool {
	rest := *e
	rest.Delay, rest.Drop, rest.Repeat, rest.Tamper, rest.RotatedSecret, rest.Padding = 0, false, 0, "", false, 0
	rest.Extensions, rest.JobStatus = false, ""
	return rest == Effect{}
}
