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

// Mask is a list of patterns for member names. Operators cannot see the values of matching members. In a pattern, * stands for any
// characters. Case is ignored.
type Mask []string

type masked struct {
	operator.Admin
	mask Mask
}

// Job returns a job. It masks values in the params, definition, event data, callback and delivery URLs.
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

// Delivery returns a delivery. It masks values in the URL and the receiver's responses. A body that is not JSON is hidden completely if it
// may contain a masked name.
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

// ParseMask parses a comma-separated list of patterns.
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

const hidden = `"***"`

func (m Mask) hides(name string) bool {
	for _, pattern := range m {
		if ok, _ := path.Match(pattern, strings.ReplaceAll(strings.ToLower(name), "/", "_")); ok { // path.Match's * does not match a slash
			return true
		}
	}
	return false
}

// assignment matches "name=value", as in the query of a URL.
var assignment = regexp.MustCompile(`([^=?&#;\s"'<>]+)=([^&#\s"'<>]*)`)

// hideIn hides the values of masked query parameters in the URLs of a text, which may be nil.
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

// mayBeIn reports whether a text may contain a masked name. It only looks for the literal parts of the patterns.
func (m Mask) mayBeIn(text string) bool {
	text = strings.ToLower(strings.ReplaceAll(text, "\x00", "")) // UTF-16 has NUL bytes between ASCII characters
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

// hide replaces the values of masked members in a JSON value at any depth. Everything else stays as written, including digits of numbers,
// order and duplicate members.
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
			return json.RawMessage(hidden) // cannot happen: storage only has valid JSON
		}
	}
}

// hideHeaders is like hide, for the headers of a response, which map names to lists of values.
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
