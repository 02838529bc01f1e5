package session

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
	"github.com/forgerun/forgerun/internal/cli/operator"
	"github.com/forgerun/forgerun/internal/cli/term"
)

// Explain says an error as people are to read it, and adds what they can do about it.
func (s *Session) Explain(ctx context.Context, err error) error {
	exit, known := errors.AsType[*command.Exit](err)
	switch {
	case err == nil || known && exit != nil:
		return err
	case errors.Is(context.Cause(ctx), ErrTimedOut):
		return &command.Exit{Code: command.TimedOut, Err: ErrTimedOut}
	case ctx.Err() != nil:
		return command.Code(command.Interrupted)
	}
	problem, ok := errors.AsType[*client.Problem](err)
	err = s.Said(err)
	switch {
	case !ok || problem.Status != http.StatusUnauthorized:
		return err
	case strings.Contains(problem.URL, operator.Path):
		return fmt.Errorf("%w Give it as FORGERUN_ADMIN_TOKEN, --admin-token or in a context", err)
	}
	return fmt.Errorf("%w: give the API key as FORGERUN_API_KEY, --key or in a context", err)
}

// plain is an error in other words.
type plain struct {
	error
	text string
}

func (p plain) Error() string { return p.text }
func (p plain) Unwrap() error { return p.error }

// Said says an answer of the service without its request, unless --verbose is given.
func (s *Session) Said(err error) error {
	problem, ok := errors.AsType[*client.Problem](err)
	if _, done := errors.AsType[plain](err); !ok || done || s.verbose {
		return err
	}
	return plain{err, strings.Replace(err.Error(), problem.Error(), sentence(problem), 1)}
}

// Reword says an error that is about an answer of the service in a text of the command's own.
func (s *Session) Reword(err error, text string) error {
	if s.verbose {
		return fmt.Errorf("%s: %w", text, err)
	}
	return plain{err, text}
}

// sentence says what is wrong: what is not found by its id, and each violation once.
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

// idIn returns the id of the resource that an address is of or below, "" for none.
func idIn(address string) string {
	at, err := url.Parse(address)
	if err != nil {
		return ""
	}
	_, path, _ := strings.Cut(at.Path, "/v1/")
	if parts := strings.Split(path, "/"); len(parts) > 1 {
		return parts[1]
	}
	return ""
}
