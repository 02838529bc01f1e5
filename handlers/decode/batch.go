package decode

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/job"
)

// Batch reads the body of a request for many jobs. key is the Idempotency-Key header. The error refuses the whole batch. What
// is wrong with an item is left in the Violations of its Request, with pointers into the item. All items together have at
// most job.MaxViolations; the others are counted.
func Batch(body []byte, key string, limits Limits) (job.BatchRequest, error) {
	r := newReader(public, body, limits)
	defer r.done()
	r.wrong = []string{"jobs"} // each item is read alone
	var sent struct {
		IdempotencyKey *string `json:"idempotency_key"`
	}
	r.document("BatchRequest", &sent)
	b := &batchReader{reader: r, ids: map[string]bool{}}
	for _, m := range r.outer {
		if m.name == "jobs" && m.value[0] == '[' && r.err == nil {
			b.readItems(m.value)
		}
	}
	b.req.IdempotencyKey, b.req.Hash = r.keyed(key, sent.IdempotencyKey)
	return b.req, r.result()
}

// batchReader reads the items of a batch.
type batchReader struct {
	*reader
	req      job.BatchRequest
	ids      map[string]bool // item ids so far
	reported int             // violations of items so far
}

func (b *batchReader) readItems(array []byte) {
	d := jsontext.NewDecoder(bytes.NewBuffer(array))
	_, _ = d.ReadToken()
	i := 0
	for ; d.PeekKind() != ']' && i < job.MaxBatchItems && b.err == nil; i++ {
		item, _ := d.ReadValue() // the array was read before
		b.readItem(i, item)
	}
	if i == 0 || b.err == nil && d.PeekKind() != ']' {
		b.malformedAt("/jobs", fmt.Sprintf("A batch has 1 to %d jobs.", job.MaxBatchItems))
	}
}

func (b *batchReader) readItem(i int, item jsontext.Value) {
	at := "/jobs/" + strconv.Itoa(i)
	if item.Kind() != '{' {
		b.malformedAt(at, "This must be an object.")
		return
	}
	r := newReader(public, item, b.limits)
	defer r.done()
	r.base, r.limit, r.guess, r.named, r.listed = at, job.MaxViolations-b.reported, b.guess, b.named, b.listed
	var sent struct {
		api.JobRequestMembers
		ItemID *string `json:"item_id"`
	}
	r.document("BatchItemRequest", &sent)
	if b.guess, b.named, b.listed = r.guess, r.named, r.listed; b.named > maxAllMembers || b.listed > maxElements {
		b.add(&r.findings)
		b.err = r.err
		return
	}
	req := r.job(&sent.JobRequestMembers)
	req.Violations = r.all()
	req.Violations = req.Violations[:min(r.limit, len(req.Violations))]
	req.Malformed = len(r.form) > 0
	b.req.Unlisted += r.count() - len(req.Violations)
	b.reported += len(req.Violations)
	for n := range req.Violations {
		req.Violations[n].Pointer = strings.TrimPrefix(req.Violations[n].Pointer, at)
	}
	id := cmp.Or(value(sent.ItemID), strconv.Itoa(i))
	if b.ids[id] {
		if sent.ItemID != nil {
			at += "/item_id"
		}
		b.malformedAt(at, "An item before has the same id. An item without one has its index, from 0, as its id.")
	}
	b.ids[id] = true
	b.req.Items = append(b.req.Items, job.ItemRequest{ItemID: id, Request: req})
}
