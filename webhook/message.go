package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict/fault"
)

const (
	mimeJSON       = "application/json"
	mimeCloudEvent = "application/cloudevents+json"
)

// message is the content of a delivery. All attempts of a delivery send the same content.
type message struct {
	contentType string
	language    string  // language of the texts in the body, or ""
	attributes  []field // headers of the CloudEvents binary mode; nil in structured mode
	body        []byte
}

// field is a component of a signature (RFC 9421, section 2): a header, or a value such as @method.
type field struct {
	name, value string
}

// cloudEvent is a CloudEvents 1.0 event, with the extension "sequence" and our own extension "workkind".
type cloudEvent struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Type            string          `json:"type"`
	Source          string          `json:"source"`
	Subject         string          `json:"subject,omitempty"`
	Time            job.Time        `json:"time"`
	Sequence        string          `json:"sequence,omitempty"`
	SequenceType    string          `json:"sequencetype,omitempty"`
	WorkKind        job.Kind        `json:"workkind,omitempty"`
	DataContentType string          `json:"datacontenttype"`
	Data            json.RawMessage `json:"data"`
}

// emittedDocument is the data of event.emitted: the job's document and the client's event.
type emittedDocument struct {
	plainDocument
	Emitted struct {
		Name string          `json:"name"`
		Data json.RawMessage `json:"data"`
	} `json:"emitted"`
}

// plainDocument is a job.Document without MarshalJSON. If emittedDocument had this method, its JSON would lack the field Emitted.
type plainDocument job.Document

func render(links job.Links, o *job.Occurrence, mode job.ContentMode, changed fault.Effect) (message, error) {
	mediaType, language, data, err := content(links, o)
	if err != nil {
		return message{}, err
	}
	if changed.Rewrites() {
		data = testbed.Shape.Rewrite(&changed, data)
	}
	e := cloudEvent{
		SpecVersion: "1.0", ID: o.ID.String(), Type: o.Name, Source: links.PublicURL + "/v1", Subject: subject(o),
		Time: job.Time(o.At), DataContentType: mediaType, Data: data,
	}
	if !o.JobID.IsZero() {
		e.Sequence, e.SequenceType, e.WorkKind = strconv.Itoa(o.Seq), "Integer", o.Origin.Scenario.WorkKind
	}
	if mode == job.ContentStructured {
		body, err := encode(e)
		return message{contentType: mimeCloudEvent, language: language, body: body}, err
	}
	attributes, err := e.attributes()
	return message{mediaType, language, attributes, data}, err
}

// attributes returns the headers for binary mode. Binary mode has Content-Type instead of datacontenttype.
func (e *cloudEvent) attributes() ([]field, error) {
	at, err := e.Time.MarshalText()
	if err != nil {
		return nil, err
	}
	all := []field{
		{"ce-specversion", e.SpecVersion}, {"ce-id", e.ID}, {"ce-type", e.Type}, {"ce-source", e.Source},
		{"ce-subject", e.Subject}, {"ce-time", string(at)}, {"ce-sequence", e.Sequence}, {"ce-sequencetype", e.SequenceType},
		{"ce-workkind", string(e.WorkKind)},
	}
	return slices.DeleteFunc(all, func(a field) bool { return a.value == "" }), nil
}

func subject(o *job.Occurrence) string {
	switch {
	case !o.JobID.IsZero():
		return "jobs/" + o.JobID.String()
	case o.Batch != nil:
		return "batches/" + o.Batch.ID.String()
	case !o.Webhook.IsZero():
		return "webhooks/" + o.Webhook.String()
	case o.Name == job.EventBulkCompleted:
		var data struct {
			BulkID string `json:"bulkId"`
		}
		if json.Unmarshal(o.Data, &data) != nil || data.BulkID == "" {
			return ""
		}
		return "bulk/" + data.BulkID
	default:
		return ""
	}
}

// content returns the data of an occurrence, and the language of its texts. For an ended job, the data is the document of the ended
// attempt (async problem details draft, section 5.3). For other job events, the data describes the attempt at the time of the event.
func content(links job.Links, o *job.Occurrence) (mediaType, language string, data []byte, err error) {
	var d job.Document
	switch {
	case o.Ended != nil:
		d = links.Document(o.Origin, *o.Ended)
	case o.Batch != nil:
		d = links.BatchDocument(o.Batch)
	case o.JobID.IsZero():
		if o.Name == job.EventWebhookDisabled {
			language = job.Languages[0]
		}
		data, err = encode(o.Data)
		return mimeJSON, language, data, err
	case o.Name == job.EventEmitted:
		d := emittedDocument{plainDocument: plainDocument(links.Document(o.Origin, job.Attempt{Number: o.Attempt, State: job.Running}))}
		if err := json.Unmarshal(o.Data, &d.Emitted); err != nil {
			return "", "", nil, fmt.Errorf("event %s has no name and data: %w", o.ID, err)
		}
		data, err = encode(d)
		return mimeJSON, "", data, err
	case o.Next == "" || o.Next.Final():
		return "", "", nil, fmt.Errorf("event %s (%s) came without the attempt that ended", o.ID, o.Name)
	default:
		d = links.Document(o.Origin, job.Attempt{Number: o.Attempt, State: o.Next})
	}
	mediaType, data, err = d.Encode()
	return mediaType, d.Language, data, err
}

func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
