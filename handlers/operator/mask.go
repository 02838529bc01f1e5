package operator

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"

	"github.com/forgerun/forgerun/job/admin"
)

// Mask names members of what clients and receivers send whose values operators do not see: patterns as of file names, where *
// stands for any characters, in either case.
type Mask []string

// job hides them in what the client of a job has sent with it: params, the event to emit and behavior in the definition, and the
// data of events, which have both.
func (m Mask) job(j *admin.Job) {
	j.Params, j.Definition = m.hide(j.Params), m.hide(j.Definition)
	for i := range j.Events {
		j.Events[i].Data = m.hide(j.Events[i].Data)
	}
}

// delivery hides them in what receivers have answered.
func (m Mask) delivery(d *admin.LoggedDelivery) {
	for _, attempt := range d.AttemptsLog {
		if r := attempt.Response; r != nil {
			r.Headers = m.hideHeaders(r.Headers)
			if r.Body != nil && json.Valid([]byte(*r.Body)) {
				r.Body = new(string(m.hide(json.RawMessage(*r.Body))))
			}
		}
	}
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

// hide gives a JSON value without the values of members that m names, whatever they are and however deep they lie. What
// is shown stays as it was written: numbers keep all of their digits.
func (m Mask) hide(value json.RawMessage) json.RawMessage {
	if len(m) == 0 || len(value) == 0 {
		return value
	}
	var shown bytes.Buffer
	if err := m.copy(&shown, value); err != nil {
		return json.RawMessage(hidden) // storage has nothing that is not JSON
	}
	return shown.Bytes()
}

// hideHeaders is hide for the headers of an answer, which are lists of values by name.
func (m Mask) hideHeaders(value json.RawMessage) json.RawMessage {
	var headers map[string][]string
	if len(m) == 0 || json.Unmarshal(value, &headers) != nil {
		return value
	}
	for name := range headers {
		if m.hides(name) {
			headers[name] = []string{"***"}
		}
	}
	shown, err := json.Marshal(headers)
	if err != nil {
		return json.RawMessage(`{}`) // cannot happen
	}
	return shown
}

func (m Mask) copy(to *bytes.Buffer, value json.RawMessage) error {
	switch value = bytes.TrimSpace(value); value[0] {
	case '{':
		return m.copyObject(to, value)
	case '[':
		var entries []json.RawMessage
		if err := json.Unmarshal(value, &entries); err != nil {
			return err
		}
		to.WriteByte('[')
		for i, entry := range entries {
			if i > 0 {
				to.WriteByte(',')
			}
			if err := m.copy(to, entry); err != nil {
				return err
			}
		}
		to.WriteByte(']')
	default:
		to.Write(value)
	}
	return nil
}

// copyObject keeps the order of the members, and those that come twice.
func (m Mask) copyObject(to *bytes.Buffer, value json.RawMessage) error {
	decoder := json.NewDecoder(bytes.NewReader(value))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	to.WriteByte('{')
	for first := true; decoder.More(); first = false {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		var member json.RawMessage
		if err := decoder.Decode(&member); err != nil {
			return err
		}
		if !first {
			to.WriteByte(',')
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return err
		}
		to.Write(append(quoted, ':'))
		if text, _ := name.(string); m.hides(text) {
			to.WriteString(hidden)
			continue
		}
		if err := m.copy(to, member); err != nil {
			return err
		}
	}
	to.WriteByte('}')
	return nil
}
