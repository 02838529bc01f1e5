package cli

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
)

// submission has the flags that describe a job.
type submission struct {
	kind, at, params, callback, correlation string
	in                                      time.Duration
	members                                 map[string]string
	eventName, eventData                    string
	autoRetry                               bool
	attempts                                int
	delays                                  []time.Duration
}

func submit(f *pflag.FlagSet) run {
	var d submission
	f.StringVar(&d.at, "at", "", "when to run it: a `time`, RFC 3339 or +DURATION from now")
	f.DurationVar(&d.in, "in", 0, "when to run it, from now: a `duration`")
	f.StringToStringVar(&d.members, "param", nil, "a member of the parameters, as `NAME=VALUE`; VALUE is JSON, or else a text")
	f.Lookup("param").DefValue = ""
	f.StringVar(&d.params, "params", "", "parameters as a `JSON` object, or @FILE")
	f.BoolVar(&d.autoRetry, "auto-retry", false, "have the service retry it while that may help")
	f.IntVar(&d.attempts, "max-attempts", 0, "try it at most so many `times`; the service retries it by itself then")
	f.DurationSliceVar(&d.delays, "retry-delay", nil, "how long it waits between attempts: one `duration`, or several in their order")
	f.Lookup("retry-delay").DefValue = ""
	f.StringVar(&d.callback, "callback", "", "`URL` that gets its events")
	f.StringVar(&d.correlation, "correlation-id", "", "`id` of your own")
	f.StringVar(&d.eventName, "event-name", "", "publish an event of this `name`")
	f.StringVar(&d.eventData, "event-data", "", "data of that event, as `JSON` or @FILE")
	file := f.StringP("file", "f", "", "read the whole submission, a JSON object, from this `file`; - is standard input")
	key := f.String("idempotency-key", "", "`key` that makes a repetition get the same job")
	waiting := f.BoolP("wait", "w", false, "wait for its end, and exit as it ended")
	watching := f.Bool("watch", false, "show what happens to it until its end, and exit as it ended")
	timeoutFlag(f, "with --wait or --watch: ")
	return using(func(c *call, api *client.Client) (err error) {
		d.kind = strings.Join(c.args, "")
		var whole struct {
			client.JobRequest
			IdempotencyKey string `json:"idempotency_key"`
		}
		switch {
		case *file == "":
			whole.JobRequest, err = d.request(c, time.Now())
		case !reflect.DeepEqual(d, submission{}):
			err = command.Usagef("--file has the whole submission: leave KIND and the flags that describe a job out")
		default:
			err = c.readJSON(*file, &whole)
		}
		if err != nil {
			return err
		}
		sent := cmp.Or(*key, whole.IdempotencyKey, newKey())
		accepted, err := api.Submit(c, whole.JobRequest, client.IdempotencyKey(sent))
		if err != nil {
			return c.lost(c.unknownKind(err, whole.WorkKind), sent, "job was")
		}
		c.warn(accepted.Warnings)
		if accepted.Replayed {
			c.notef("This idempotency key was used before: no new job was made.")
		}
		c.args = []string{accepted.JobID}
		switch {
		case *watching:
			return watch(c, api)
		case *waiting:
			return wait(c, api)
		}
		job, err := api.Job(c, accepted.JobID)
		if err != nil { // it was accepted all the same
			return c.One(jobView, accepted)
		}
		return c.One(jobView, job)
	})(f)
}

// request makes a submission of the flags.
func (d *submission) request(c *call, now time.Time) (r client.JobRequest, err error) {
	r = client.JobRequest{
		Type: client.Execute, WorkKind: d.kind, AutoRetry: d.autoRetry, Callback: d.callback, CorrelationID: d.correlation,
	}
	if d.attempts != 0 || d.delays != nil {
		r.Retry = &client.RetryPolicy{MaxAttempts: d.attempts}
		if d.delays != nil {
			r.Retry.Backoff = client.ListedBackoff(d.delays...)
		}
	}
	switch {
	case d.params != "" && d.members != nil:
		return r, command.Usagef("--params has all parameters: leave --param out")
	case d.at != "" && d.in != 0:
		return r, command.Usagef("--at and --in both say when: leave one out")
	case d.in != 0 && d.eventName != "":
		return r, command.Usagef("an event is published at once: leave --in out")
	case d.at != "" && d.eventName != "":
		return r, command.Usagef("an event is published at once: leave --at out")
	case d.eventData != "" && d.eventName == "":
		return r, command.Usagef("--event-data needs --event-name")
	}
	switch {
	case d.members != nil:
		all := make(map[string]any, len(d.members))
		for name, text := range d.members {
			if all[name] = text; json.Valid([]byte(text)) {
				all[name] = json.RawMessage(text)
			}
		}
		r.Params = all
	case d.params != "":
		if r.Params, err = c.object(d.params, "--params"); err != nil {
			return r, err
		}
	}
	switch {
	case d.in != 0:
		r.Type, r.ExecutionAt = client.Deferred, now.Add(d.in)
	case d.at != "":
		r.Type = client.Deferred
		r.ExecutionAt, err = later(d.at, now)
	case d.eventName != "":
		r.Type, r.Event = client.EmitEvent, &client.Emission{Name: d.eventName}
		if d.eventData != "" {
			r.Event.Data, err = c.jsonText(d.eventData, "--event-data")
		}
	}
	return r, err
}

// later reads a time that may be relative to now.
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

// jsonText reads JSON from an argument, or from the file after @.
func (c *call) jsonText(text, flag string) (json.RawMessage, error) {
	if name, ok := strings.CutPrefix(text, "@"); ok {
		content, err := c.readFile(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		text = string(content)
	}
	if !json.Valid([]byte(text)) {
		return nil, command.Usagef("%s is no JSON", flag)
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

// lost says how to repeat a submission if its answer was lost.
func (c *call) lost(err error, key, what string) error {
	if _, lost := errors.AsType[*client.NoAnswerError](err); lost {
		c.notef("Whether the %s accepted is not known. The same command with --idempotency-key %s makes no second one.", what, key)
	}
	return err
}

func (c *call) warn(warnings []client.Violation) {
	for _, w := range warnings {
		c.notef("warning: %s: %s", w.Pointer, w.Detail)
	}
}

var suggestion = regexp.MustCompile(`Did you mean (\w+)\?`)

// unknownKind suggests a work kind if the one that was given does not exist, instead of listing all.
func (c *call) unknownKind(err error, kind string) error {
	problem, ok := errors.AsType[*client.Problem](err)
	if !ok || kind == "" || !slices.ContainsFunc(problem.Violations, func(v client.Violation) bool { return v.Pointer == "/work_kind" }) {
		return err
	}
	text := fmt.Sprintf("unknown kind %q: forgerun kinds lists them", kind)
	if meant := suggestion.FindStringSubmatch(problem.Detail); meant != nil {
		text = fmt.Sprintf("unknown kind %q (did you mean %s?)", kind, meant[1])
	}
	if c.verbose {
		return fmt.Errorf("%s: %w", text, err)
	}
	return reworded{err, text}
}

var kindView = output.NewView("KIND:work_kind, DOES:does")

// kinds is the command "kinds".
func (s *Shell) kinds() *cobra.Command {
	return s.plain(s.cmd("kinds", "The catalogue of work kinds: what jobs do",
		plainly(func(c *call) error { return c.List(kindView, output.Items(client.Kinds)) })))
}

// completeKinds completes an argument that is a work kind.
func completeKinds(_ *cobra.Command, args []string, begun string) (names []string, _ cobra.ShellCompDirective) {
	for _, k := range client.Kinds {
		if len(args) == 0 && strings.HasPrefix(k.Name, strings.ToUpper(begun)) {
			names = append(names, k.Name+"\t"+k.Does)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
