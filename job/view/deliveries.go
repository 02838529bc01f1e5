package view

import (
	"cmp"
	"encoding/json"

	"github.com/forgerun/forgerun/job"
)

// Cause is a reason: a code and a text.
type Cause struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// SendCause is the cause of a failed delivery. Code is the class of the error. Reason has the details, including the receiver's address.
type SendCause struct {
	Code   job.SendError `json:"code"`
	Reason string        `json:"detail"`
}

// MarshalJSON writes the code and the reason, or a sentence about the class if there is no reason.
func (c SendCause) MarshalJSON() ([]byte, error) {
	return json.Marshal(Cause{string(c.Code), cmp.Or(c.Reason, c.Code.Text())})
}

// DisabledCause is the reason why a webhook is disabled.
type DisabledCause job.DisabledReason

// MarshalJSON writes the code, and a text that explains it.
func (c DisabledCause) MarshalJSON() ([]byte, error) {
	return json.Marshal(Cause{string(c), job.DisabledReason(c).Text()})
}
