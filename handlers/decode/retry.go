package decode

import (
	"fmt"
	"time"

	"github.com/forgerun/forgerun/job"
)

// readRetry reads what a request says about the attempts of its job. A job with a policy is retried by the service, unless the
// request says otherwise.
func (s *submission) readRetry() {
	if !s.begins('{', "an object") {
		return
	}
	p := &job.RetryPolicy{}
	s.object([]member{
		{name: "max_attempts", read: func() { p.MaxAttempts = s.integer(1, job.MaxAttemptsAsked, 0) }},
		{name: "backoff", read: func() { s.readBackoff(p) }},
		{name: "codes", read: func() {
			s.list(len(job.FailureCodes()), "codes", func() {
				if code, ok := choose(s.decoder, "code of a failure", job.FailureCodes()); ok {
					p.Codes = append(p.Codes, code)
				}
			})
		}},
	})
	s.req.Retry = p
}

// backoffForm says what a backoff is.
const backoffForm = `A backoff is {"strategy": "EXPONENTIAL", "base": "1s", "max": "1m"}, {"strategy": "CONSTANT", "delay": "5s"} or ` +
	`{"strategy": "LIST", "delays": ["1s", "10s", "1m"]}.`

func (s *submission) readBackoff(p *job.RetryPolicy) {
	if !s.begins('{', "an object") {
		return
	}
	given := map[string][]time.Duration{}
	one := func(name string) member {
		return member{name: name, read: func() {
			if d, ok := s.duration(); ok {
				given[name] = []time.Duration{d}
			}
		}}
	}
	known := false
	s.object([]member{
		{name: "strategy", read: func() { p.Strategy, known = choose(s.decoder, "strategy", job.Strategies) }},
		one("base"), one("max"), one("delay"),
		{name: "delays", read: func() {
			s.list(job.MaxDelays, "delays", func() {
				if d, ok := s.duration(); ok {
					given["delays"] = append(given["delays"], d)
				}
			})
		}},
	})
	if s.err != nil || len(s.form)+len(s.values) > 0 {
		return // the rest may be missing because it was wrong
	}
	members := map[job.Strategy][]string{job.Exponential: {"base", "max"}, job.Constant: {"delay"}, job.Listed: {"delays"}}[p.Strategy]
	for _, name := range members {
		p.Delays = append(p.Delays, given[name]...)
		known = known && len(given[name]) > 0
		delete(given, name)
	}
	switch {
	case !known || len(given) > 0:
		s.invalid(backoffForm)
	case p.Strategy == job.Exponential && p.Delays[0] > p.Delays[1]:
		s.invalid(fmt.Sprintf("The base must not be longer than the max, and %s is longer than %s.", p.Delays[0], p.Delays[1]))
	}
}
