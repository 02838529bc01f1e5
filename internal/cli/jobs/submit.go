package jobs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

// submitFlags describe a job.
type submitFlags struct {
	request               client.JobRequest
	at, params, file, key string
	in                    time.Duration
	members               map[string]string
	eventName, eventData  string
	attempts              int
	delays                []time.Duration
	wait, watch           bool
}

func submitCommand(s *session.Session) *cobra.Command {
	var f submitFlags
	c := command.New("submit [KIND]", "Submit a job",
		s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, args []string) error {
			f.request.WorkKind = strings.Join(args, "")
			if err := f.complete(s, time.Now()); err != nil {
				return err
			}
			return submit(ctx, s, api, p, f)
		}))
	c.Long = "Submits a job. KIND is its work kind, such as SUCCESS_FAST; without one the service draws it. The type follows from the\n" +
		"flags: --at or --in makes it DEFERRED, --event-name EMIT_EVENT, otherwise it is EXECUTE.\n\n" +
		"An idempotency key is always sent. Without --idempotency-key it is a new one for each command: if the answer is lost, it is\n" +
		"told, so that you can repeat the command with it and get the same job."
	c.ValidArgsFunction = completeKinds
	flags := c.Flags()
	flags.StringVar(&f.at, "at", "", "when to run it: a `time`, RFC 3339 or +DURATION from now")
	flags.DurationVar(&f.in, "in", 0, "when to run it, from now: a `duration`")
	flags.StringToStringVar(&f.members, "param", nil, "a member of the parameters, as `NAME=VALUE`; VALUE is JSON, or else a text")
	flags.Lookup("param").DefValue = ""
	flags.StringVar(&f.params, "params", "", "parameters as a `JSON` object, or @FILE")
	flags.BoolVar(&f.request.AutoRetry, "auto-retry", false, "have the service retry it while that may help")
	flags.IntVar(&f.attempts, "max-attempts", 0, "try it at most so many `times`; the service retries it by itself then")
	flags.DurationSliceVar(&f.delays, "retry-delay", nil, "how long it waits between attempts: one `duration`, or several in their order")
	flags.Lookup("retry-delay").DefValue = ""
	flags.StringVar(&f.request.Callback, "callback", "", "`URL` that gets its events")
	flags.StringVar(&f.request.CorrelationID, "correlation-id", "", "`id` of your own")
	flags.StringVar(&f.eventName, "event-name", "", "publish an event of this `name`")
	flags.StringVar(&f.eventData, "event-data", "", "data of that event, as `JSON` or @FILE")
	flags.StringVarP(&f.file, "file", "f", "", "read the whole submission, a JSON object, from this `file`; - is standard input")
	flags.StringVar(&f.key, "idempotency-key", "", "`key` that makes a repetition get the same job")
	flags.BoolVarP(&f.wait, "wait", "w", false, "wait for its end, and exit as it ended")
	flags.BoolVar(&f.watch, "watch", false, "show what happens to it until its end, and exit as it ended")
	flags.Duration("timeout", 0, "with --wait or --watch: for how long; 0: no limit")
	return c
}

// members makes parameters of values that are JSON, or else texts.
func members(given map[string]string) map[string]any {
	all := make(map[string]any, len(given))
	for name, text := range given {
		if all[name] = text; json.Valid([]byte(text)) {
			all[name] = json.RawMessage(text)
		}
	}
	return all
}

// idempotencyKey is the key that was given, or a new one.
func idempotencyKey(given string) string { return cmp.Or(given, "cli-"+rand.Text()) }

// explainLost says how to repeat a submission whose answer was lost.
func explainLost(s *session.Session, err error, key, what string) error {
	if _, lost := errors.AsType[*client.NoAnswerError](err); lost {
		s.Notef("Whether the %s accepted is not known. The same command with --idempotency-key %s makes no second one.", what, key)
	}
	return err
}

var suggestion = regexp.MustCompile(`Did you mean (\w+)\?`)

// unknownKind says of a work kind that there is none which one was meant, instead of all that there are.
func unknownKind(s *session.Session, err error, kind string) error {
	problem, ok := errors.AsType[*client.Problem](err)
	if !ok || kind == "" || !slices.ContainsFunc(problem.Violations, func(v client.Violation) bool { return v.Pointer == "/work_kind" }) {
		return err
	}
	if meant := suggestion.FindStringSubmatch(problem.Detail); meant != nil {
		return s.Reword(err, fmt.Sprintf("unknown kind %q (did you mean %s?)", kind, meant[1]))
	}
	return s.Reword(err, fmt.Sprintf("unknown kind %q: forgerun kinds lists them", kind))
}

func submit(ctx context.Context, s *session.Session, api *client.Client, printer *output.Printer, f submitFlags) error {
	key := idempotencyKey(f.key)
	accepted, err := api.Submit(ctx, f.request, client.IdempotencyKey(key))
	if err != nil {
		return explainLost(s, unknownKind(s, err, f.request.WorkKind), key, "job was")
	}
	for _, w := range accepted.Warnings {
		s.Notef("warning: %s: %s", w.Pointer, w.Detail)
	}
	if accepted.Replayed {
		s.Notef("This idempotency key was used before: no new job was made.")
	}
	switch {
	case f.watch:
		return watch(ctx, api, printer, []string{accepted.JobID})
	case f.wait:
		return wait(ctx, api, printer, []string{accepted.JobID})
	}
	job, err := api.Job(ctx, accepted.JobID)
	if err != nil { // it was accepted all the same
		return printer.One(jobView, accepted)
	}
	return printer.One(jobView, job)
}

// complete makes the submission of what the flags say.
func (f *submitFlags) complete(s *session.Session, now time.Time) error {
	if f.file != "" {
		if f.request != (client.JobRequest{}) || f.at != "" || f.in != 0 || f.members != nil || f.params != "" ||
			f.eventName != "" || f.attempts != 0 || f.delays != nil {
			return command.Usagef("--file has the whole submission: leave KIND and the flags that describe a job out")
		}
		return f.read(s)
	}
	if f.attempts != 0 || f.delays != nil {
		f.request.Retry = &client.RetryPolicy{MaxAttempts: f.attempts}
		if f.delays != nil {
			f.request.Retry.Backoff = client.ListedBackoff(f.delays...)
		}
	}
	var err error
	switch f.request.Type = client.Execute; {
	case f.params != "" && f.members != nil:
		return command.Usagef("--params has all parameters: leave --param out")
	case f.members != nil:
		f.request.Params = members(f.members)
	case f.params != "":
		if f.request.Params, err = object(f.params, "--params"); err != nil {
			return err
		}
	}
	switch {
	case f.at != "" && f.in != 0:
		return command.Usagef("--at and --in both say when: leave one out")
	case f.in != 0 && f.eventName != "":
		return command.Usagef("an event is published at once: leave --in out")
	case f.in != 0:
		due := now.Add(f.in)
		f.request.Type, f.request.ExecutionAt = client.Deferred, due
	case f.at != "" && f.eventName != "":
		return command.Usagef("an event is published at once: leave --at out")
	case f.eventData != "" && f.eventName == "":
		return command.Usagef("--event-data needs --event-name")
	case f.at != "":
		f.request.Type = client.Deferred
		f.request.ExecutionAt, err = later(f.at, now)
	case f.eventName != "":
		f.request.Type, f.request.Event = client.EmitEvent, &client.Emission{Name: f.eventName}
		if f.eventData != "" {
			f.request.Event.Data, err = jsonText(f.eventData, "--event-data")
		}
	}
	return err
}

// read takes a whole submission as the API does, with its idempotency key unless the flag has one.
func (f *submitFlags) read(s *session.Session) error {
	var whole struct {
		client.JobRequest
		IdempotencyKey string `json:"idempotency_key"`
	}
	err := s.ReadJSON(f.file, &whole)
	f.request, f.key = whole.JobRequest, cmp.Or(f.key, whole.IdempotencyKey)
	return err
}

// later reads a moment to come.
func later(text string, now time.Time) (time.Time, error) {
	if ahead, ok := strings.CutPrefix(text, "+"); ok {
		if d, err := time.ParseDuration(ahead); err == nil && d >= 0 {
			return now.Add(d).UTC(), nil
		}
	}
	at, err := command.ParseTime(text)
	if err != nil {
		return time.Time{}, command.Usagef("--at: %q is neither a time such as 2026-01-31T12:00:00Z nor one from now such as +10m", text)
	}
	return at, nil
}

// jsonText reads JSON of an argument, or of the file after @.
func jsonText(text, flag string) (json.RawMessage, error) {
	if name, ok := strings.CutPrefix(text, "@"); ok {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, command.Usagef("%s: %w", flag, err)
		}
		text = string(content)
	}
	if !json.Valid([]byte(text)) {
		return nil, command.Usagef("%s is no JSON", flag)
	}
	return json.RawMessage(text), nil
}

func object(text, flag string) (json.RawMessage, error) {
	raw, err := jsonText(text, flag)
	if err == nil && !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		err = command.Usagef("%s must be a JSON object", flag)
	}
	return raw, err
}
