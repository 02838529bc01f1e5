package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
)

// await waits until the function `done` returns true for the job. It returns nil if the client does not wait or the time is up.
func (s *API) await(r *httpkit.Request, prefs *header.Preferences, id job.ID, done func(*job.Job) bool) (*job.Job, error) {
	return httpkit.Wait(r, prefs, func(ctx context.Context) (*job.Job, error) {
		return s.Jobs.Await(ctx, r.Caller.ClientID, id, done)
	})
}

// onceEnded reads data that exists only after the function `ended` returns true for the job. If the client waits, onceEnded reads the data
// again after the wait. If the job is still unfinished, the error has a Retry-After.
func onceEnded[T any](s *API, r *httpkit.Request, read func() (T, error), ended func(*job.Job) bool) (T, error) {
	prefs := r.Preferences()
	v, err := read()
	if err == nil {
		prefs.ApplyWait()
	}
	var j *job.Job
	if tooEarly(err) != nil {
		var failed error
		if j, failed = s.await(r, prefs, r.PathID(), ended); failed != nil {
			return v, failed
		}
		if j != nil {
			v, err = read()
		}
	}
	r.Honored(prefs)
	early := tooEarly(err)
	if early == nil {
		return v, err
	}
	if j == nil { // the client did not wait, or the time was up
		if j, err = s.Jobs.Job(r.Ctx, r.Caller.ClientID, r.PathID()); err != nil {
			return v, err
		}
	}
	early.RetryAfter = time.Duration(s.pollAfter(j)) * time.Second
	return v, early
}

func tooEarly(err error) *job.Error {
	var known *job.Error
	if !errors.As(err, &known) || known.Code != job.CodeJobNotFinished {
		return nil
	}
	early := *known
	return &early
}
