package decode

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/job"
)

// ForClient is an operator's request on behalf of a client. Request is the client's request, not yet decoded.
type ForClient struct {
	ClientID job.ID
	Request  []byte
}

// ForClientOf returns a function that decodes a request on behalf of a client. `name` is the name of the member that has the client's
// request.
func (s *Schemas) ForClientOf(schema, name string) func(body []byte) (ForClient, error) {
	return func(body []byte) (ForClient, error) {
		r := newReader(s, body, Limits{})
		defer r.done()
		var sent map[string]json.RawMessage
		r.document(schema, &sent)
		asked := ForClient{Request: sent[name]}
		_ = json.Unmarshal(sent["client_id"], &asked.ClientID) // cannot fail: the schema has checked it
		return asked, r.result()
	}
}

// Override reads the optional body of an operator's request to retry a job.
func (s *Schemas) Override(body []byte) (bool, error) {
	var sent struct{ Override bool }
	err := s.read("RetryRequest", orEmpty(body), &sent)
	return sent.Override, err
}

// ClientName reads the body of a request that names a client. An empty name removes the name.
func (s *Schemas) ClientName(body []byte) (string, error) {
	var sent struct{ Name string }
	err := s.read("ClientName", body, &sent)
	return sent.Name, err
}

// Erasing is a request to erase a client, with the client id as confirmation.
type Erasing struct {
	Confirm job.ID
	Reason  string
}

// Erasure reads the body of a request to erase a client.
func (s *Schemas) Erasure(body []byte) (e Erasing, err error) {
	err = s.read("ErasureRequest", body, &e)
	return e, err
}

// Pause reads the body of a pause request. It normalizes the spelling of the target.
func (s *Schemas) Pause(body []byte) (p job.Pause, err error) {
	err = s.read("PauseRequest", body, &p, func(r *reader) {
		usual := job.ModePause
		if p.Scope == job.PauseWorker {
			usual = job.ModeDrain
		}
		p.Mode = cmp.Or(p.Mode, usual)
		checkPause(r, &p)
	})
	return p, err
}

func checkPause(r *reader, p *job.Pause) {
	if strings.TrimSpace(p.Reason) == "" && r.fine() {
		r.invalidAt("/reason", "A reason is required for the audit log.")
	}
	switch p.Scope {
	case job.PauseAll:
		if p.Target != "" {
			r.invalidAt("/target", "It must be omitted if the scope is ALL.")
		}
	case job.PauseKind:
		if !slices.Contains(job.AllKinds(), job.Kind(p.Target)) {
			r.invalidAt("/target", "It must be the name of a work kind.")
		}
	case job.PauseClient, job.PauseWorker:
		id, err := job.ParseID(p.Target)
		if err != nil || id.IsZero() {
			r.invalidAt("/target", "It must be the id of the "+strings.ToLower(string(p.Scope))+".")
		}
		p.Target = id.String()
	}
	if p.Scope == job.PauseWorker && p.Mode != job.ModeDrain {
		r.invalidAt("/mode", "A worker can only be drained: it finishes its jobs and takes no more.")
	}
}
