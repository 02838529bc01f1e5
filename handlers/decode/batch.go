package decode

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/job"
)

// batchReader reads a request for many jobs. What is wrong with an item
// refuses that item; what is wrong around the items refuses all.
type batchReader struct {
	*decoder
	req      job.BatchRequest
	ids      map[string]bool // item ids so far
	reported int             // violations of items so far

	item    submission // that is read
	itemID  string     // "" if it has none of its own
	members []member   // of an item
}

// errTooManyItems ends the reading: the rest of the items is not looked at.
var errTooManyItems = errors.New("too many items")

// Batch reads the body of a request for many jobs. key is that of the header.
// An error refuses the whole batch. What is wrong with an item is left in the
// Violations of its Request, with pointers into the item; of all items together
// not more than job.MaxViolations are, and the others are counted.
func Batch(body []byte, key string, limits Limits) (job.BatchRequest, error) {
	b := &batchReader{decoder: newDecoder(body, limits), ids: map[string]bool{}}
	b.members = append(b.item.members(),
		member{"item_id", optional, set(&b.itemID, word(validName, "The id must be 1 to 128 "+wordForm))},
		member{keyName, hidden, refuse("An item has no key of its own. Give one for the whole batch, beside jobs or in the " +
			"Idempotency-Key header.")},
	)
	b.req.IdempotencyKey, b.req.Hash = b.keyed(key, []member{{"jobs", required, b.readItems}, b.keyMember()})
	return b.req, b.result()
}

func (b *batchReader) readItems(*decoder) {
	if n, ok := b.array("an array", b.readItem); ok && b.err == nil && n == 0 {
		b.malformed(fmt.Sprintf("A batch has 1 to %d jobs.", job.MaxBatchItems))
	}
}

func (b *batchReader) readItem(i int) {
	if i == job.MaxBatchItems {
		b.malformedAt("/jobs", fmt.Sprintf("A batch has 1 to %d jobs.", job.MaxBatchItems))
		b.err = errTooManyItems
		return
	}
	if !b.begins('{', "an object") {
		return
	}
	around := b.findings // those of the item are kept apart
	b.findings = findings{limit: job.MaxViolations - b.reported}
	b.item, b.itemID = submission{}, ""
	b.object(b.members)
	b.item.complete(b.decoder)
	found := b.findings
	b.findings = around
	all := found.all()
	all = all[:min(found.limit, len(all))]
	b.req.Unlisted += found.count() - len(all)
	if b.err != nil { // the text ends here, and with it the batch
		b.form = append(b.form, found.form...)
		return
	}
	b.addItem(i, all, len(found.form) > 0)
}

// addItem adds the item that was read, with what is wrong with it.
func (b *batchReader) addItem(i int, violations []job.Violation, malformed bool) {
	at := "/jobs/" + strconv.Itoa(i)
	b.reported += len(violations)
	for n := range violations {
		violations[n].Pointer = strings.TrimPrefix(violations[n].Pointer, at)
	}
	b.item.req.Violations, b.item.req.Malformed = violations, malformed
	id := cmp.Or(b.itemID, strconv.Itoa(i))
	if b.ids[id] {
		if b.itemID != "" {
			at += "/item_id"
		}
		b.malformedAt(at, "An item before has the same id. An item without one has its index, from 0, as its id.")
	}
	b.ids[id] = true
	b.req.Items = append(b.req.Items, job.ItemRequest{ItemID: id, Request: b.item.req})
}
