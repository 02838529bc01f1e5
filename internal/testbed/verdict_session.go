package testbed

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/internal/yamlfile"
	"github.com/forgerun/forgerun/verdict"
)

type judged struct {
	*client.Client
	id, key, session string
	pages, journal   bool           // whether `end` reads the HTML pages and the journals of the sessions
	operator         *client.Client // nil without an operator token
}

// begin sets the faults and starts a session. If no key is given, it first registers a client.
func (v *verdictRun) begin(ctx context.Context, under conditions) (as *judged, err error) {
	ctx, cancel := context.WithTimeout(ctx, verdictCalls)
	defer cancel()
	as = &judged{key: v.key, pages: v.html != "", journal: v.html != "" || under.faults != nil}
	if v.control == "" && v.key == "" {
		if as.id, as.key, err = stack.Register(ctx, v.url); err != nil {
			return nil, err
		}
	}
	if as.Client, err = client.New(client.Config{URL: cmp.Or(v.control, v.url), Key: as.key}); err != nil {
		return nil, err
	}
	if v.token != "" {
		as.operator = as.WithKey(v.token)
	}
	rules := under.faults
	if v.faults != "" {
		rules = v.ownFaults
	}
	if len(rules) > 0 {
		if _, err = as.SetFaults(ctx, client.FaultRules{Seed: under.seed, Rules: rules}); err != nil {
			return nil, fmt.Errorf("%s: %w", strings.TrimSpace("--faults "+v.faults), v.explain(err))
		}
	}
	began, err := as.StartSession(ctx, client.SessionRequest{Profile: under.profile, Seed: under.seed, Rules: v.rules})
	if err != nil {
		return nil, v.explain(err)
	}
	as.session = began.SessionID
	return as, nil
}

func (v *verdictRun) explain(err error) error {
	p, ok := errors.AsType[*client.Problem](err)
	switch {
	case ok && p.Status == http.StatusNotFound:
		return fmt.Errorf("the service at %s has no test bed: set FORGERUN_TESTBED=true, or use forgerun dev", v.url)
	case ok && p.Status == http.StatusUnauthorized:
		return fmt.Errorf("the service at %s refuses the key of --key or FORGERUN_API_KEY: %w", v.url, err)
	}
	return err
}

// readFaults reads the file of --faults, before any service starts.
func (v *verdictRun) readFaults() (err error) {
	if v.faults != "" {
		if v.ownFaults, err = readFaults[client.FaultRule](v.faults); err != nil {
			return fmt.Errorf("--faults %s: %w", v.faults, err)
		}
	}
	return nil
}

func readFaults[Rule any](path string) (rules []Rule, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []struct {
		Match  any `json:"match,omitempty"`
		Effect any `json:"effect"`
	}
	if err := yamlfile.Decode(text, &list); err != nil {
		return nil, fmt.Errorf("the file must be an array of rules with match and effect: %w", err)
	}
	for n, rule := range list {
		match, _ := rule.Match.(map[string]any)
		for _, member := range []string{"nth", "every", "times", "probability"} {
			if v, set := match[member]; set && (v == 0 || v == 0.0) { // the service would ignore 0, so the rule would match all requests
				return nil, fmt.Errorf("rule %d: /match/%s: must be greater than 0", n+1, member)
			}
		}
	}
	return recoded[[]Rule](list)
}

// recoded converts a value to another type with the same JSON.
func recoded[T any](v any) (to T, err error) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &to)
	}
	return to, err
}

// sessionsSince returns the session `id` and all later sessions, oldest first.
func sessionsSince(ctx context.Context, c *client.Client, id string) (sessions []client.Session, err error) {
	for n, err := range c.Sessions(ctx) {
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, n)
		if n.SessionID == id {
			break
		}
	}
	slices.Reverse(sessions)
	return sessions, nil
}

type shownSession struct {
	verdict.Verdict
	page, journal []byte
}

// end ends the run's session, which also ends the run's labeled sessions. It returns the verdicts of all these sessions. If there are
// labeled sessions, it omits an unlabeled session without requests.
func (j *judged) end(ctx context.Context) (ended []shownSession, err error) {
	_, err = j.EndSession(ctx, j.session)
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Status == http.StatusUnauthorized && j.id != "" {
		if err = j.renew(ctx); err == nil {
			_, err = j.EndSession(ctx, j.session)
		}
	}
	if err != nil {
		return nil, err
	}
	sessions, err := sessionsSince(ctx, j.Client, j.session)
	if err != nil {
		return nil, err
	}
	if len(sessions) > 1 && sessions[0].Exchanges == 0 {
		sessions = sessions[1:]
	}
	for _, n := range sessions {
		text, err := j.VerdictAs(ctx, n.SessionID, "application/json")
		if err != nil {
			return nil, err
		}
		var shown shownSession
		if err := json.Unmarshal(text, &shown.Verdict); err != nil {
			return nil, fmt.Errorf("cannot read the verdict of the service: %w", err)
		}
		if j.pages {
			if shown.page, err = j.VerdictAs(ctx, n.SessionID, "text/html"); err != nil {
				return nil, err
			}
		}
		if j.journal {
			if shown.journal, err = j.lines(ctx, n.SessionID); err != nil {
				return nil, err
			}
		}
		ended = append(ended, shown)
	}
	return ended, nil
}

// renew replaces an expired key. If there is an operator token, it creates a new key, because RenewKey fails if the command has renewed the
// key before.
func (j *judged) renew(ctx context.Context) error {
	var made *client.Key
	var err error
	if j.operator != nil {
		made, err = j.operator.CreateKey(ctx, j.id, true)
	} else {
		made, err = j.RenewKey(ctx, j.id)
	}
	if err == nil {
		j.Client = j.WithKey(made.APIKey)
	}
	return err
}

func (j *judged) lines(ctx context.Context, id string) ([]byte, error) {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	for entry, err := range j.Journal(ctx, id) {
		if err != nil {
			return nil, err
		}
		if err := lines.Encode(entry); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}
