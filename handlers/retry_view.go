package handlers

import (
	"github.com/forgerun/forgerun/job"
)

// policyView is what a request says about the attempts of its job, as it was sent.
type policyView struct {
	MaxAttempts int          `json:"max_attempts,omitempty"`
	Backoff     *backoffView `json:"backoff,omitempty"`
	Codes       []job.Code   `json:"codes,omitempty"`
}

type backoffView struct {
	Strategy job.Strategy `json:"strategy"`
	Base     string       `json:"base,omitempty"`
	Max      string       `json:"max,omitempty"`
	Delay    string       `json:"delay,omitempty"`
	Delays   []string     `json:"delays,omitempty"`
}

// policyViewOf is nil for a request that says nothing.
func policyViewOf(p *job.RetryPolicy) *policyView {
	if p == nil {
		return nil
	}
	return &policyView{p.MaxAttempts, backoffViewOf(p), p.Codes}
}

func backoffViewOf(p *job.RetryPolicy) *backoffView {
	if len(p.Delays) == 0 {
		return nil
	}
	v := &backoffView{Strategy: p.Strategy}
	switch p.Strategy {
	case job.Exponential:
		v.Base, v.Max = p.Delays[0].String(), p.Delays[len(p.Delays)-1].String()
	case job.Constant:
		v.Delay = p.Delays[0].String()
	case job.Listed:
		for _, d := range p.Delays {
			v.Delays = append(v.Delays, d.String())
		}
	}
	return v
}
