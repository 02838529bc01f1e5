// Package loadgen submits jobs as fast as they are accepted (Closed) or at a constant
// rate (OpenLoop). The simulator's generator takes three times the CPU, which would
// lower the maximum rate of a service on the same cores (docs/explanation/performance.md).
package loadgen

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"
)

// Target is where jobs are submitted.
type Target struct {
	URL, Key string
	Body     []byte // nil: Body
}

// Body is what is submitted: a job of no duration with a result of 1 KB.
var Body = []byte(`{"type":"EXECUTE","work_kind":"PAYLOAD_SMALL"}`)

// Submission is a request that one goroutine can send again and again.
type Submission struct {
	Request  *fasthttp.Request
	Response *fasthttp.Response
	client   *fasthttp.Client
}

// NewSubmission makes the request.
func NewSubmission(client *fasthttp.Client, to Target) Submission {
	s := Submission{client: client, Request: fasthttp.AcquireRequest(), Response: fasthttp.AcquireResponse()}
	s.Request.SetRequestURI(to.URL)
	s.Request.Header.SetMethod(fasthttp.MethodPost)
	s.Request.Header.SetContentType("application/json")
	s.Request.Header.Set("Authorization", "Bearer "+to.Key)
	s.Request.SetBodyRaw(Body)
	if to.Body != nil {
		s.Request.SetBodyRaw(to.Body)
	}
	return s
}

// Send submits a job. Anything but 202 is an error.
func (s Submission) Send() error {
	err := s.client.Do(s.Request, s.Response)
	if err == nil && s.Response.StatusCode() != fasthttp.StatusAccepted {
		err = fmt.Errorf("answer %d: %s", s.Response.StatusCode(), s.Response.Body())
	}
	return err
}

// Status sends the request and gives the status of the answer, 0 if there is none.
func (s Submission) Status() int {
	if err := s.client.Do(s.Request, s.Response); err != nil {
		return 0
	}
	return s.Response.StatusCode()
}

// JobID is that of the job which was accepted last.
func (s Submission) JobID() (uuid.UUID, error) {
	var receipt struct {
		ID uuid.UUID `json:"job_id"`
	}
	err := json.Unmarshal(s.Response.Body(), &receipt)
	return receipt.ID, err
}

// NewClient has so many connections at most, which stay open between requests.
func NewClient(connections int) *fasthttp.Client {
	return &fasthttp.Client{MaxConnsPerHost: connections, ReadTimeout: 20 * time.Second, MaxIdleConnDuration: time.Minute}
}
