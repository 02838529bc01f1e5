package decode

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// unmarshalers read what the types of requests have, and JSON of the client's own within its limit.
func (r *reader) unmarshalers() *jsonv2.Unmarshalers {
	return jsonv2.JoinUnmarshalers(
		jsonv2.UnmarshalFromFunc(whole[int]), jsonv2.UnmarshalFromFunc(whole[int64]),
		jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v *time.Duration) error {
			raw, err := d.ReadValue()
			if err == nil && raw.Kind() == '"' {
				*v, err = time.ParseDuration(string(unquoted(raw)))
			}
			return err
		}),
		jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v *json.RawMessage) error {
			raw, err := d.ReadValue()
			switch {
			case err != nil || raw.Kind() == 'n':
			case r.limits.MaxPayload > 0 && len(raw) > r.limits.MaxPayload:
				r.invalidAt(r.base+string(d.StackPointer()),
					fmt.Sprintf("This may have at most %d bytes and has %d.", r.limits.MaxPayload, len(raw)))
			default:
				*v = json.RawMessage(raw.Clone())
			}
			return err
		}),
		jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v *job.PlannedProblem) error {
			raw, err := d.ReadValue()
			if err == nil && raw.Kind() == '{' {
				*v = r.plannedProblem(r.base+string(d.StackPointer()), raw)
			}
			return err
		}),
	)
}

// whole reads integers, also in forms such as 1.0 and 1e2.
func whole[T int | int64](d *jsontext.Decoder, v *T) error {
	raw, err := d.ReadValue()
	if err != nil || raw.Kind() == 'n' {
		return err
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err == nil {
		*v = T(n)
		return nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	*v = T(f)
	return err
}
