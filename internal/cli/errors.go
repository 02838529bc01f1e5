package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/term"
)

func (s *Shell) explain(ctx context.Context, err error) error {
	_, exit := errors.AsType[*command.Exit](err)
	switch {
	case err == nil || exit:
		return err
	case errors.Is(context.Cause(ctx), errTimedOut):
		return &command.Exit{Code: command.TimedOut, Err: errTimedOut}
	case ctx.Err() != nil:
		return command.Code(command.Interrupted)
	}
	problem, ok := errors.AsType[*client.Problem](err)
	err = s.reword(err)
	switch {
	case ok && refusesInput(problem):
		return &command.Exit{Code: command.WrongUsage, Err: err}
	case !ok || problem.Status != http.StatusUnauthorized:
		return err
	case strings.Contains(problem.URL, adminPath):
		return fmt.Errorf("%w Pass the token in FORGERUN_ADMIN_TOKEN, --admin-token or a context", err)
	}
	return fmt.Errorf("%w: pass the API key in FORGERUN_API_KEY, --key or a context", err)
}

// refusesInput reports whether the service found the request invalid and did nothing. A problem without a code is from another server.
func refusesInput(p *client.Problem) bool {
	switch p.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return strings.HasPrefix(p.Code, "RFA_")
	}
	return false
}

type reworded struct {
	error
	text string
}

func (r reworded) Error() string { return r.text }
func (r reworded) Unwrap() error { return r.error }

// reword shortens the service's error to one sentence without the request's method and URL. With --verbose it returns err unchanged.
func (s *Shell) reword(err error) error {
	problem, ok := errors.AsType[*client.Problem](err)
	if _, done := errors.AsType[reworded](err); !ok || done || s.verbose {
		return err
	}
	return reworded{err, strings.Replace(err.Error(), problem.Error(), sentence(problem), 1)}
}

func sentence(p *client.Problem) string {
	text := strings.TrimSuffix(cmp.Or(p.Detail, p.Title), ".")
	if noun, missing := strings.CutSuffix(strings.TrimPrefix(p.Code, "RFA_"), "_NOT_FOUND"); missing && p.Status == http.StatusNotFound {
		if id := idIn(p.URL); id != "" && noun != "RESULT" && noun != "REQUEST" {
			text = strings.ToLower(noun) + " " + id + " not found"
		}
	}
	for _, v := range p.Violations {
		if !strings.Contains(text, strings.TrimSuffix(v.Detail, ".")) {
			text += "; " + v.Pointer + v.Parameter + " " + v.Detail
		}
	}
	return term.Line(text + " (" + cmp.Or(p.Code, http.StatusText(p.Status)) + ")")
}

func idIn(address string) string {
	at, err := url.Parse(address)
	if err != nil {
		return ""
	}
	_, path, _ := strings.Cut(at.Path, "/v1/")
	_, id, _ := strings.Cut(path, "/")
	id, _, _ = strings.Cut(id, "/")
	return id
}
