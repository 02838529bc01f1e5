package handlers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// maxBatchViolations bounds what is said of the items of one batch: beyond it,
// only the first violation of an item is told.
const maxBatchViolations = 1000

// batchSubmission reads a request for many jobs. What is wrong with an item
// refuses that item; what is wrong around the items refuses all.
type batchSubmission struct {
	*decoder
	req        job.BatchRequest
	maxPayload int
	members    [][]byte        // as in submission
	ids        map[string]bool // item ids so far
	told       int             // violations of items so far
}

// errTooManyItems ends the reading: the rest of the items is not looked at.
var errTooManyItems = errors.New("too many items")

// decodeBatch reads the body of a request for many jobs. key is the one of the
// header. An error refuses the whole batch. Items of a wrong form have a
// Refusal, with pointers into the body; wrong values are left in the Violations
// of the item's Request, with pointers into the item.
func decodeBatch(body []byte, key string, maxPayload int) (job.BatchRequest, error) {
	b := &batchSubmission{decoder: newDecoder(body), maxPayload: maxPayload, ids: map[string]bool{}}
	hasJobs := false
	b.document(func(name string) bool {
		start := b.nameAt
		switch name {
		case "jobs":
			hasJobs = b.readItems()
			b.members = append(b.members, body[start:b.json.InputOffset()])
		case "idempotency_key":
			b.req.IdempotencyKey = b.key()
		default:
			return false
		}
		return true
	})
	b.require(hasJobs, "/jobs")
	b.req.IdempotencyKey = b.oneKey(b.req.IdempotencyKey, key)
	if err := b.result(); err != nil {
		return job.BatchRequest{}, err
	}
	if len(b.values) > 0 {
		return job.BatchRequest{}, job.Invalid(b.values...)
	}
	if b.req.IdempotencyKey != "" {
		b.req.Hash = canonicalHash(b.members)
	}
	return b.req, nil
}

// readItems reads the array of items; false if it is absent or no array.
func (b *batchSubmission) readItems() bool {
	if b.err != nil || b.null() {
		return false
	}
	if b.json.PeekKind() != '[' {
		b.tree()
		b.wrongType("an array")
		return false
	}
	b.token()
	n := 0
	for ; b.err == nil && b.json.PeekKind() != ']'; n++ {
		b.readItem(n)
	}
	b.token()
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
	at := jsontext.Pointer("/jobs/" + strconv.Itoa(i))
	outerForm, outerValues := b.form, b.values
	b.form, b.values = nil, nil // what is noted within the item is kept apart
	item, named := b.item(at, strconv.Itoa(i))
	form, values := b.form, b.values
	b.form, b.values = outerForm, outerValues
	if b.err != nil { // the text ends here, and with it the batch
		b.form = append(b.form, form...)
		return
	}
	b.judge(&item, at, form, values)
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
func (b *batchSubmission) item(at jsontext.Pointer, id string) (item job.ItemRequest, named bool) {
	s := &submission{decoder: b.decoder, maxPayload: b.maxPayload, at: at}
	hasType := false
	s.object(func(name string) bool {
		switch name {
		case "item_id":
			own := s.word(validItemID, "The id must be 1 to 128 characters of A-Z, a-z, 0-9, '.', '-' and '_'.")
			if named = own != ""; named {
				id = own
			}
		case "idempotency_key":
			if !s.null() {
				s.tree()
				s.malformed("An item has no key of its own. Give one for the whole batch, beside jobs or in the Idempotency-Key header.")
			}
		default:
			return s.member(name, &hasType)
		}
		return true
	})
	s.require(hasType, at+"/type")
	return job.ItemRequest{ItemID: id, Request: s.req}, named
}

func validItemID(id string) bool {
	const maxBytes = 128
	return 0 < len(id) && len(id) <= maxBytes && isWord(id)
}

// judge refuses the item if its form is wrong, and otherwise leaves what is
// wrong with its values to the use case.
func (b *batchSubmission) judge(item *job.ItemRequest, at jsontext.Pointer, form, values []job.Violation) {
	limit := maxViolations
	if b.told >= maxBatchViolations {
		limit = 1
	}
	if len(form) > 0 {
		all := slices.Concat(form, values)
		item.Refusal = &job.Refusal{
			Code: job.CodeMalformed, Detail: "The item is not of the expected form.", Violations: all[:min(limit, len(all))],
		}
		item.Request = job.Request{}
		b.told += len(item.Refusal.Violations)
		return
	}
	values = values[:min(limit, len(values))]
	for i := range values {
		values[i].Pointer = strings.TrimPrefix(values[i].Pointer, string(at))
	}
	item.Request.Violations = values
	b.told += len(values)
}
