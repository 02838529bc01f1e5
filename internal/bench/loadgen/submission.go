// Package loadgen submits jobs as fast as they are accepted and reads them at a constant
// rate. The simulator's generator keeps a history and takes three times the CPU, which
// would lower the maximum rate of a service on the same cores.
package loadgen

import (
	"fmt"
	"time"

	"github.com/valyala/fasthttp"
)

// Target is where jobs are submitted.
type Target struct {
	URL, Key string
	Body     []byte // nil: a job of no duration with a result of 1 KB
}

var defaultBody = []byte(`{"type":"EXECUTE","work_kind":"PAYLOAD_SMALL"}`)

// Submission is a request that one goroutine can send again and again.
type Submission struct {
	client   *fasthttp.Client
	request  *fasthttp.Request
	response *fasthttp.Response
}

// NewSubmission makes the request.
func NewSubmission(client *fasthttp.Client, to Target) Submission {
	s := Submission{client: client, request: newRequest(to.URL, to.Key), response: fasthttp.AcquireResponse()}
	s.request.Header.SetMethod(fasthttp.MethodPost)
	s.request.Header.SetContentType("application/json")
	s.request.SetBodyRaw(defaultBody)
	if to.Body != nil {
		s.request.SetBodyRaw(to.Body)
	}
	return s
}

func newRequest(url, key string) *fasthttp.Request {
	r := fasthttp.AcquireRequest()
	r.SetRequestURI(url)
	r.Header.Set("Authorization", "Bearer "+key)
	return r
}

// Send submits a job. Anything but 202 is an error.
func (s Submission) Send() error {
	return send(s.client, s.request, s.response, fasthttp.StatusAccepted)
}

// Read gets an address. Anything but 200 is an error.
func Read(client *fasthttp.Client, url, key string) error {
	request, response := newRequest(url, key), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	return send(client, request, response, fasthttp.StatusOK)
}

func send(client *fasthttp.Client, request *fasthttp.Request, response *fasthttp.Response, want int) error {
	err := client.Do(request, response)
	if err == nil && response.StatusCode() != want {
		err = fmt.Errorf("answer %d: %s", response.StatusCode(), response.Body())
	}
	return err
}

// NewClient has so many connections at most, which stay open between requests.
func NewClient(connections int) *fasthttp.Client {
	const patience = 20 * time.Second
	return &fasthttp.Client{
		MaxConnsPerHost: connections, MaxConnWaitTimeout: patience, ReadTimeout: patience, MaxIdleConnDuration: time.Minute,
	}
}
