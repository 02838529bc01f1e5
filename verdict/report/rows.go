package report

import (
	"slices"
	"strings"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

const maxRows = 500

// row is a request in a table, or several consecutive equal requests.
type row struct {
	verdict.Entry
	Count  int
	Last   int
	LastAt fault.Time
}

type rows []row

// add adds a request, or returns false if the table is full. If the request repeats the previous one, add increases the count of that
// row.
func (all *rows) add(e *verdict.Entry) bool {
	if n := len(*all); n > 0 && (*all)[n-1].repeatedBy(e) {
		last := &(*all)[n-1]
		if last.Request != e.Request {
			last.Request = withoutJob(e)
		}
		last.Count, last.Last, last.LastAt = last.Count+1, e.Number, e.At
		return true
	}
	if len(*all) == maxRows {
		return false
	}
	*all = append(*all, row{Entry: *e, Count: 1, Last: e.Number, LastAt: e.At})
	return true
}

// repeatedBy reports whether a request comes directly after the requests of the row and is equal to them. If there is no fault and no
// broken rule, the job may differ.
func (r *row) repeatedBy(e *verdict.Entry) bool {
	if e.Number != r.Last+1 || e.Answer != r.Answer || e.Fault != r.Fault || !slices.Equal(e.Breaks, r.Breaks) {
		return false
	}
	return e.Request == r.Request || e.Fault == "" && len(e.Breaks) == 0 && withoutJob(e) == withoutJob(&r.Entry)
}

func withoutJob(e *verdict.Entry) string {
	id := e.Job[strings.LastIndexByte(e.Job, '/')+1:]
	if id == "" {
		return e.Request
	}
	path, query, asked := strings.Cut(e.Request, "?")
	path = strings.TrimSuffix(strings.ReplaceAll(path+"/", "/"+id+"/", "/{job}/"), "/")
	return path + either(asked, "?", "") + query
}
