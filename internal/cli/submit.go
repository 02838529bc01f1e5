package cli

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/term"
)

// exclusive adds the flag --file to f. The function `check` fails if --file is combined with arguments or with other flags of f. Each of
// `pairs` names two more flags that exclude each other: "at in" means --at and --in.
func exclusive(f *pflag.FlagSet, what string, pairs ...string) (file *string, check func(args []string) error) {
	f.VisitAll(func(flag *pflag.Flag) { pairs = append(pairs, "file "+flag.Name) })
	file = f.StringP("file", "f", "", "read the whole "+what+", a JSON object, from this `file`; - is standard input")
	return file, func(args []string) error {
		if *file != "" && len(args) > 0 {
			return command.Usagef("--file contains the whole %s: remove the argument %s", what, args[0])
		}
		for _, pair := range pairs {
			if a, b, _ := strings.Cut(pair, " "); f.Changed(a) && f.Changed(b) {
				return command.Usagef("--%s and --%s cannot be combined", a, b)
			}
		}
		return nil
	}
}

func submit(f *pflag.FlagSet) run {
	var whole struct {
		client.JobRequest
		IdempotencyKey string `json:"idempotency_key"`
	}
	request := requestFlags(f, &whole.JobRequest)
	file, check := exclusive(f, "submission", "params param", "at in", "at event-name", "in event-name")
	key := f.String("idempotency-key", "", "idempotency `key`: repeating the command with this key returns the same job")
	waiting := f.BoolP("wait", "w", false, "wait until the job ends; the exit code reports its outcome")
	watching := f.Bool("watch", false, "watch the job until it ends; the exit code reports its outcome")
	timeoutFlag(f, "with --wait or --watch: ")
	return using(func(c *call, api *client.Client) error {
		err := check(c.args)
		switch {
		case err != nil:
		case *file != "":
			err = c.readJSON(*file, &whole)
		default:
			err = request(c)
		}
		if err != nil {
			return err
		}
		sent := cmp.Or(*key, whole.IdempotencyKey, newKey())
		accepted, err := api.Submit(c, whole.JobRequest, client.IdempotencyKey(sent))
		if err != nil {
			return c.explainLost(c.unknownKind(err, whole.WorkKind), sent, "job was")
		}
		c.warn(accepted.Warnings)
		if accepted.Replayed {
			c.notef("This idempotency key was used before: no new job was created.")
		}
		c.args = []string{accepted.JobID}
		switch {
		case *watching:
			return c.accepted("job", "jobs watch", watch(c, api))
		case *waiting:
			return c.accepted("job", "jobs wait", wait(c, api))
		}
		job, err := api.Job(c, accepted.JobID)
		if err != nil { // the job was accepted, so print the response to the submission instead
			return c.One(jobView, accepted)
		}
		return c.One(jobView, job)
	})(f)
}

func requestFlags(f *pflag.FlagSet, r *client.JobRequest) (complete run) {
	at := f.String("at", "", "run the job at this `time`, RFC 3339")
	in := f.Duration("in", 0, "run the job after this `duration`")
	members := f.StringToString("param", nil, "one parameter as `NAME=VALUE`; VALUE is JSON or plain text")
	f.Lookup("param").DefValue = ""
	params := f.String("params", "", "parameters as a `JSON` object, or @FILE")
	f.BoolVar(&r.AutoRetry, "auto-retry", false, "let the service retry the job while failures are retryable")
	attempts := f.Int("max-attempts", 0, "maximum number of `attempts`; the service then retries the job automatically")
	delays := f.DurationSlice("retry-delay", nil, "wait between attempts: one `duration`, or several in order")
	f.Lookup("retry-delay").DefValue = ""
	f.StringVar(&r.Callback, "callback", "", "`URL` that receives the job's events")
	f.StringVar(&r.CorrelationID, "correlation-id", "", "your own `id` for the job")
	eventName := f.String("event-name", "", "the job publishes an event of this `name`")
	eventData := f.String("event-data", "", "data of the event of --event-name, as `JSON` or @FILE")
	return func(c *call) (err error) {
		r.Type, r.WorkKind = client.Execute, strings.Join(c.args, "")
		if len(*delays) > 0 {
			r.Retry = &client.RetryPolicy{MaxAttempts: *attempts, Backoff: client.ListedBackoff(*delays...)}
		} else if *attempts != 0 {
			r.Retry = &client.RetryPolicy{MaxAttempts: *attempts}
		}
		switch {
		case *params != "":
			r.Params, err = c.object(*params, "--params")
		case len(*members) > 0:
			all := make(map[string]any, len(*members))
			for name, text := range *members {
				if all[name] = text; json.Valid([]byte(text)) {
					all[name] = json.RawMessage(text)
				}
			}
			r.Params = all
		}
		switch {
		case err != nil:
		case *eventData != "" && *eventName == "":
			err = command.Usagef("--event-data needs --event-name")
		case *in != 0:
			r.Type, r.ExecutionAt = client.Deferred, time.Now().Add(*in)
		case *at != "":
			r.Type = client.Deferred
			if r.ExecutionAt, err = command.ParseTime(*at); err != nil {
				err = command.Usagef("--at: %q is not a time such as 2026-01-31T12:00:00Z; use --in for a duration", *at)
			}
		case *eventName != "":
			r.Type, r.Event = client.EmitEvent, &client.Emission{Name: *eventName}
			if *eventData != "" {
				r.Event.Data, err = c.jsonText(*eventData, "--event-data")
			}
		}
		return err
	}
}

// jsonText returns `text`, which must be JSON. For "@FILE", it returns the content of the file.
func (c *call) jsonText(text, flag string) (json.RawMessage, error) {
	if name, ok := strings.CutPrefix(text, "@"); ok {
		content, err := c.readFile(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		text = string(content)
	}
	if !json.Valid([]byte(text)) {
		return nil, command.Usagef("%s is not JSON", flag)
	}
	return json.RawMessage(text), nil
}

func (c *call) object(text, flag string) (json.RawMessage, error) {
	raw, err := c.jsonText(text, flag)
	if err == nil && !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		err = command.Usagef("%s must be a JSON object", flag)
	}
	return raw, err
}

func newKey() string { return "cli-" + rand.Text() }

func (c *call) explainLost(err error, key, what string) error {
	if _, lost := errors.AsType[*client.NoAnswerError](err); lost {
		c.notef("It is unknown whether the %s accepted. Repeat the command with --idempotency-key %s: it creates no duplicate.", what, key)
	}
	return err
}

// If the wait for an accepted job or batch failed, for example because of --timeout, accepted prints the id and the command that
// continues the wait. It always returns err.
func (c *call) accepted(what, next string, err error) error {
	if _, ended := errors.AsType[*command.Exit](err); err == nil || ended {
		return err
	}
	id := c.args[0]
	c.notef("The %s %s was accepted. To follow it: forgerun %s %s", what, id, next, id)
	if c.Quiet {
		_, _ = fmt.Fprintln(c.Out, term.Line(id))
	}
	return err
}

func (c *call) warn(warnings []client.Violation) {
	for _, w := range warnings {
		c.notef("warning: %s: %s", w.Pointer, w.Detail)
	}
}

var suggestion = regexp.MustCompile(`Did you mean (\w+)\?`)

// The service's error for an unknown kind lists all kinds. unknownKind shortens it.
func (c *call) unknownKind(err error, kind string) error {
	problem, ok := errors.AsType[*client.Problem](err)
	if !ok || kind == "" || !slices.ContainsFunc(problem.Violations, func(v client.Violation) bool { return v.Pointer == "/work_kind" }) {
		return err
	}
	text := fmt.Sprintf("unknown kind %q: 'forgerun kinds' lists all kinds", kind)
	if meant := suggestion.FindStringSubmatch(problem.Detail); meant != nil {
		text = fmt.Sprintf("unknown kind %q (did you mean %s?)", kind, meant[1])
	}
	if c.verbose {
		return fmt.Errorf("%s: %w", text, err)
	}
	return reworded{err, text}
}

var kindView = output.NewView("KIND:work_kind, DOES:does")

func (s *Shell) kinds() *cobra.Command {
	return s.commonFlags(s.cmd("kinds", "List the work kinds and what they do",
		withoutFlags(func(c *call) error { return c.List(kindView, client.Kinds) })))
}

func completeKinds(_ *cobra.Command, args []string, begun string) (names []string, _ cobra.ShellCompDirective) {
	for _, k := range client.Kinds {
		if len(args) == 0 && strings.HasPrefix(k.Name, strings.ToUpper(begun)) {
			names = append(names, k.Name+"\t"+k.Does)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
