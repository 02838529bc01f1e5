package report

import (
	"encoding/json"
	"io"

	"github.com/forgerun/forgerun/verdict"
)

// JournalType is the media type of a journal.
const JournalType = "application/x-ndjson"

// Journal writes the judged requests and attempts, one entry per line.
func Journal(w io.Writer, v *verdict.Verdict) error {
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	for e := range v.Journal() {
		if err := lines.Encode(e); err != nil {
			return err
		}
	}
	return nil
}
