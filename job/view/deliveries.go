package view

import (
	"cmp"
	"encoding/json"

	"github.com/forgerun/forgerun/job"
)

// Cause is a reason, as a code and in words.
type Cause struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// SendCause is why a delivery failed: the class, and the reason with the receiver's address.
type SendCause struct {
	Code   job.SendError `json:"code"`
	Reason string        `json:"detail"`
}

// MarshalJSON writes the sentence of the class if there is no reason.
func (c SendCause) MarshalJSON() ([]byte, error) {
	return json.Marshal(Cause{string(c.Code), cmp.Or(c.Reason, c.Code.Text())})
}

// DisabledCause is why a webhook is disabled, with a sentence.
type DisabledCause job.DisabledReason

// MarshalJSON writes the code with its sentence.
func (c DisabledCause) MarshalJSON() ([]byte, error) {
	return json.Marshal(Cause{string(c), job.DisabledReason(c).Text()})
}
