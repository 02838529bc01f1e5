package decode

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/job"
)

// batchSubmission reads a request for many jobs. What is wrong with an item
// refuses that item; what is wrong around the items refuses all.
type batchSubmission struct {
	*decoder
	req      job.BatchRequest
	hasJobs  bool
	limits   Limits
	ids      map[string]bool // item ids so far
	reported int             // violations of items so far
}

// errTooManyItems ends the reading: the rest of the items is not looked at.
var errTooManyItems = errors.New("too many items")

// Batch reads the body of a request for many jobs. key is that of the header.
// An error refuses the whole batch. What is wrong with an item is left in the
// Violations of its Request, with pointers into the item; of all items together
// not more than job.MaxViolations are, and the others are counted.
func Batch(body []byte, key string, limits Limits) (job.BatchRequest, error) {
	b := &batchSubmission{decoder: newDecoder(body), limits: limits, ids: map[string]bool{}}
	b.req.IdempotencyKey, b.req.Hash = b.keyed(key, b.members())
	b.require(b.hasJobs, "jobs")
	if err := b.result(); err != nil {
		return job.BatchRequest{}, err
	}
	return b.req, nil
}

// members are those of the request.
func (b *batchSubmission) members() []member {
	return []member{{name: "jobs", read: func() { b.hasJobs = b.readItems() }}, b.keyMember()}
}

// readItems reads the array of items; false if it is absent or no array.
func (b *batchSubmission) readItems() bool {
	if !b.begins('[', "an array") {
		return false
	}
	n := b.array(b.readItem)
	if b.err == nil && n == 0 {
		b.malformed(fmt.Sprintf("A batch has 1 to %d jobs.", job.MaxBatchItems))
	}
	return true
}

func (b *batchSubmission) readItem(i int) {
	if i == job.MaxBatchItems {
		b.malformedAt("/jobs", fmt.Sprintf("A batch has 1 to %d jobs.", job.MaxBatchItems))
		b.err = errTooManyItems
		return
	}
	if b.json.PeekKind() != '{' {
		b.tree()
		b.wrongType("an object")
		return
	}
	at := "/jobs/" + strconv.Itoa(i)
	outerForm, outerValues, outerLimit, outerMore := b.form, b.values, b.limit, b.more
	b.form, b.values, b.more = nil, nil, 0 // violations of the item are kept apart
	b.limit = job.MaxViolations - b.reported
	item, named := b.item(strconv.Itoa(i))
	form, all, limit := b.form, b.violations(), b.limit
	b.req.Unlisted += b.more + max(0, len(all)-limit)
	b.form, b.values, b.limit, b.more = outerForm, outerValues, outerLimit, outerMore
	if b.err != nil { // the text ends here, and with it the batch
		b.form = append(b.form, form...)
		return
	}
	all = all[:min(limit, len(all))]
	for i := range all {
		all[i].Pointer = strings.TrimPrefix(all[i].Pointer, at)
	}
	item.Request.Violations, item.Request.Malformed = all, len(form) > 0
	b.reported += len(all)
	if b.ids[item.ItemID] {
		if named {
			at += "/item_id"
		}
		b.malformedAt(at, "An item before has the same id. An item without one has its index, from 0, as its id.")
	}
	b.ids[item.ItemID] = true
	b.req.Items = append(b.req.Items, item)
}

// item reads one item. id is what it is called if it has no item_id.
func (b *batchSubmission) item(id string) (item job.ItemRequest, named bool) {
	s := &submission{decoder: b.decoder, limits: b.limits}
	s.object(append(s.members(),
		member{name: "item_id", read: func() {
			own := s.word(validName, "The id must be 1 to 128 "+wordForm)
			if named = own != ""; named {
				id = own
			}
		}},
		member{name: "idempotency_key", unlisted: true,
			read: s.refused("An item has no key of its own. Give one for the whole batch, beside jobs or in the Idempotency-Key header.")},
	))
	s.require(s.hasType, "type")
	s.readWork()
	return job.ItemRequest{ItemID: id, Request: s.req}, named
}
