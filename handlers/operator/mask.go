package operator

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/repo/operator"
)

// Mask names members of what clients and receivers send whose values operators do not see: patterns as of file names, where *
// stands for any characters, in either case.
type Mask []string

// masked is a store that hides them in all that it reads.
type masked struct {
	operator.Admin
	mask Mask
}

// Job hides them in what the client of a job has sent with it: params, the event to emit and behavior in the definition, the data of
// events, which have both, and the address of the callback.
func (r masked) Job(ctx context.Context, id job.ID) (*admin.Job, error) {
	j, err := r.Admin.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	j.Params, j.Definition = r.mask.hide(j.Params), r.mask.hide(j.Definition)
	for i := range j.Events {
		j.Events[i].Data = r.mask.hide(j.Events[i].Data)
	}
	r.mask.hideIn(j.Callback)
	for i := range j.Deliveries {
		r.mask.hideIn(j.Deliveries[i].URL)
	}
	return j, nil
}

func (r masked) Webhooks(ctx context.Context, q admin.Range) (admin.Page[admin.Webhook], error) {
	page, err := r.Admin.Webhooks(ctx, q)
	for i := range page.Data {
		r.mask.hideIn(&page.Data[i].URL)
	}
	return page, err
}

func (r masked) Webhook(ctx context.Context, id job.ID) (*admin.Webhook, error) {
	w, err := r.Admin.Webhook(ctx, id)
	if err == nil {
		r.mask.hideIn(&w.URL)
	}
	return w, err
}

func (r masked) Deliveries(ctx context.Context, q admin.Range) (admin.Page[admin.Delivery], error) {
	page, err := r.Admin.Deliveries(ctx, q)
	for i := range page.Data {
		r.mask.hideIn(page.Data[i].URL)
	}
	return page, err
}

// Delivery hides them in what receivers have answered, too. Of an answer that is no JSON it shows all, or nothing if it may name one.
func (r masked) Delivery(ctx context.Context, id job.ID) (*admin.LoggedDelivery, error) {
	d, err := r.Admin.Delivery(ctx, id)
	if err != nil {
		return nil, err
	}
	r.mask.hideIn(d.URL)
	for _, attempt := range d.AttemptsLog {
		a := attempt.Response
		if a == nil {
			continue
		}
		a.Headers = r.mask.hideHeaders(a.Headers)
		if binary, err := base64.StdEncoding.DecodeString(a.BodyBase64); err == nil && len(binary) > 0 && r.mask.mayBeIn(string(binary)) {
			a.Body, a.BodyBase64 = new("***"), ""
		}
		switch {
		case a.Body == nil:
		case json.Valid([]byte(*a.Body)):
			a.Body = new(string(r.mask.hide(json.RawMessage(*a.Body))))
		case r.mask.mayBeIn(*a.Body):
			a.Body = new("***")
		}
	}
	return d, nil
}

// ParseMask reads patterns that are separated by commas.
func ParseMask(list string) (Mask, error) {
	var m Mask
	for pattern := range strings.SplitSeq(list, ",") {
		if pattern = strings.ToLower(strings.TrimSpace(pattern)); pattern == "" {
			continue
		}
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, err
		}
		m = append(m, pattern)
	}
	return m, nil
}

// hidden is what is shown instead of a value.
const hidden = `"***"`

func (m Mask) hides(name string) bool {
	for _, pattern := range m {
		if ok, _ := path.Match(pattern, strings.ReplaceAll(strings.ToLower(name), "/", "_")); ok { // * does not stand for a slash
			return true
		}
	}
	return false
}

// assignment is a name with a value, as in the query of an address.
var assignment = regexp.MustCompile(`([^=?&#;\s"'<>]+)=([^&#\s"'<>]*)`)

// hideIn hides the values of parameters in a text that has addresses, if there is one.
func (m Mask) hideIn(text *string) {
	if text == nil || len(m) == 0 {
		return
	}
	*text = assignment.ReplaceAllStringFunc(*text, func(parameter string) string {
		name, _, _ := strings.Cut(parameter, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil || m.hides(plain) {
			return name + "=***"
		}
		return parameter
	})
}

// mayBeIn reports whether a text has all that a pattern is sure of.
func (m Mask) mayBeIn(text string) bool {
	text = strings.ToLower(strings.ReplaceAll(text, "\x00", "")) // of UTF-16
	return slices.ContainsFunc(m, func(pattern string) bool {
		sure, _, _ := strings.Cut(pattern, "[")
		for part := range strings.FieldsFuncSeq(sure, func(r rune) bool { return strings.ContainsRune(`*?\/_`, r) }) {
			if !strings.Contains(text, part) {
				return false
			}
		}
		return true
	})
}

// hide returns a JSON value without the values of members that m names, whatever they are and however deep they lie. What
// is shown stays as it was written: numbers keep all of their digits, and members their order, also those that come twice.
func (m Mask) hide(value json.RawMessage) json.RawMessage {
	if len(m) == 0 || len(value) == 0 {
		return value
	}
	var shown bytes.Buffer
	in := jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowDuplicateNames(true))
	out := jsontext.NewEncoder(&shown, jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true))
	for {
		token, err := in.ReadToken()
		if errors.Is(err, io.EOF) {
			return bytes.TrimSpace(shown.Bytes())
		}
		kind, entries := in.StackIndex(in.StackDepth())
		named := err == nil && kind == jsontext.KindBeginObject && entries%2 == 1 && m.hides(token.String())
		if err == nil {
			err = out.WriteToken(token)
		}
		if named && err == nil {
			err = errors.Join(in.SkipValue(), out.WriteToken(jsontext.String("***")))
		}
		if err != nil {
			return json.RawMessage(hidden) // storage has nothing that is not JSON
		}
	}
}

// hideHeaders is hide for the headers of an answer, which are lists of values by name.
func (m Mask) hideHeaders(value json.RawMessage) json.RawMessage {
	var headers map[string][]string
	if len(m) == 0 || json.Unmarshal(value, &headers) != nil {
		return value
	}
	for name, values := range headers {
		if m.hides(name) {
			headers[name] = []string{"***"}
			continue
		}
		for i := range values {
			m.hideIn(&values[i])
		}
	}
	shown, err := json.Marshal(headers)
	if err != nil {
		return json.RawMessage(`{}`) // cannot happen
	}
	return shown
}
