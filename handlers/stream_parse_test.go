package handlers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// block is what stands between two blank lines of an event stream.
type block struct {
	id, event, data string
	retry           int    // of the start
	comment         bool   // a heartbeat, or a note
	note            string // what a comment says
}

var (
	eventName = regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`)
	plainID   = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

// readBlock reads one block. It is stricter than the standard: fields in the
// order id, event, data, each at most once and with one space after the colon,
// lines that end in LF alone, data that is JSON without superfluous space.
func readBlock(r *bufio.Reader) (block, error) {
	var b block
	var fields []string
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			if len(fields) > 0 || line != "" {
				return b, fmt.Errorf("cut within a block, after %q %q: %w", fields, line, err)
			}
			return b, err
		}
		line = strings.TrimSuffix(line, "\n")
		if strings.ContainsAny(line, "\r\x00") {
			return b, fmt.Errorf("odd byte in line %q", line)
		}
		if line == "" {
			return b, b.check(fields)
		}
		if line == ":" || strings.HasPrefix(line, ": ") {
			b.comment = true
			b.note = strings.TrimPrefix(line, ": ")
			fields = append(fields, ":")
			continue
		}
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			return b, fmt.Errorf("not a field: %q", line)
		}
		fields = append(fields, name)
		if err := b.set(name, value); err != nil {
			return b, err
		}
	}
}

func (b *block) set(name, value string) (err error) {
	switch name {
	case "id":
		b.id = value
		if !plainID.MatchString(value) {
			err = fmt.Errorf("bad id %q", value)
		}
	case "event":
		b.event = value
		if !eventName.MatchString(value) {
			err = fmt.Errorf("bad event %q", value)
		}
	case "data":
		b.data = value
		var compact bytes.Buffer
		if err = json.Compact(&compact, []byte(value)); err == nil && compact.String() != value {
			err = fmt.Errorf("data is not compact: %q", value)
		}
	case "retry":
		b.retry, err = strconv.Atoi(value)
		if b.retry < 1000 || b.retry > 3000 {
			err = fmt.Errorf("retry is %q", value)
		}
	default:
		err = fmt.Errorf("unknown field %q", name)
	}
	return err
}

func (b *block) check(fields []string) error {
	switch got := strings.Join(fields, " "); got {
	case ":", "retry", "retry id", "id event data", "event data":
		return nil
	default:
		return fmt.Errorf("a block of %q", got)
	}
}
