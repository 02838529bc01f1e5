package verdict

import (
	"net/http"
	"slices"
	"sort"
	"time"
)

// reader is the part of a client that sends a read, such as a process or a browser tab. Requests with the same values of these fields come
// from one reader.
type reader struct {
	keyID, accept, agent string
	connection           uint64 // 0 if unknown, or if each request uses a new connection
}

func (r *record) readerOf(x *exchange) reader {
	who := reader{keyID: x.KeyID, accept: x.Accept, agent: x.Agent}
	if r.shared[x.Connection] {
		who.connection = x.Connection
	}
	return who
}

// place is a key for reads: a resource and one of its readers.
type place struct {
	target
	reader
}

func (r *record) placeOf(x *exchange) place { return place{targetOf(x), r.readerOf(x)} }

func (r *record) indexReaders() {
	r.shared = map[uint64]bool{}
	seen := map[uint64]bool{0: true}
	r.each(func(x *exchange) {
		if x.Connection != 0 && (seen[x.Connection] || x.Reused) {
			r.shared[x.Connection] = true
		}
		seen[x.Connection] = true
	})
	r.reads = indexed(r, func(x *exchange, add func(place)) {
		if x.Method == http.MethodGet && x.Stream == nil {
			add(r.placeOf(x))
			add(r.ofKey(x))
		}
	})
}

// ofKey returns a place that stands for all readers with the API key of x.
func (r *record) ofKey(x *exchange) place {
	return place{targetOf(x), reader{keyID: x.KeyID, agent: anyAgent}}
}

const anyAgent = "\x00" // no real User-Agent has this value

func (r *record) sameReads(x *exchange) group {
	if x.Stream != nil {
		return nil
	}
	return r.reads[r.placeOf(x)]
}

const (
	loop  = 3 // number of consecutive mistakes that prove a loop; fewer may come from different parts of the client
	turns = 3 // number of readers that may look like one reader, such as browser tabs that share a connection
)

type loops struct {
	*finding
	rows map[reader]*row
}

// row holds the unreported mistakes of a reader. A read that keeps the rule deletes the row.
type row struct {
	mistakes []mistake
	gaps     []time.Duration
	crowded  bool // the reads are too frequent even for several readers (see record.crowded), or a loop was found
}

type mistake struct {
	before, x       *exchange
	found, expected string
}

func newLoops(f *finding) *loops { return &loops{f, map[reader]*row{}} }

func (l *loops) right(who reader, before, x *exchange, found string) {
	delete(l.rows, who)
	l.pass(before, x, found)
}

// noteMistake notes a mistake of a reader. Mistakes count only if at least three in a row are evenly spaced, or too close together for
// several readers. Other mistakes may come from several readers that take turns, such as browser tabs.
func (l *loops) noteMistake(who reader, crowded bool, m mistake) {
	now := l.rows[who]
	if now == nil {
		now = &row{}
		l.rows[who] = now
	}
	now.mistakes, now.crowded = append(now.mistakes, m), now.crowded || crowded
	now.gaps = append(now.gaps, m.x.Start.Sub(m.before.End()))
	if len(now.gaps) < loop || !now.crowded && !evenlySpaced(now.gaps[len(now.gaps)-loop:]) {
		return
	}
	now.crowded = true
	for _, m := range now.mistakes {
		l.fail(m.before, m.x, m.found, m.expected)
	}
	now.mistakes = nil
}

func evenlySpaced(gaps []time.Duration) bool {
	least, most := slices.Min(gaps), slices.Max(gaps)
	return most <= least+least/10+10*time.Millisecond
}

// crowded reports whether the last `turns` reads, including x, ended less than `told` before y. Even readers that take turns do not read
// so often.
func (r *record) crowded(x, y *exchange, told time.Duration) bool {
	all := r.sameReads(x)
	i := sort.Search(len(all), func(i int) bool { return all[i].place >= x.place }) - (turns - 1)
	return i >= 0 && y.Start.Sub(all[i].End()) < told-Tolerance
}

// A hint is a delivery or a stream event about a job. After a hint, the client may read each resource once without waiting.
type hints struct {
	r    *record
	used map[target]int
}

func (r *record) newHints() *hints { return &hints{r, map[target]int{}} }

// jobHints are the hints about one job, sorted by time.
type jobHints []jobHint

type jobHint struct {
	at  time.Time
	sum int // number of hints up to and including this one
}

func (r *record) indexHints() {
	r.hints = map[string]jobHints{}
	r.each(func(x *exchange) {
		if x.Stream == nil || x.Stream.Events == 0 {
			return
		}
		ids := slices.Concat([]string{x.Job}, x.Final, x.Shown)
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			if id != "" {
				r.hints[id] = append(r.hints[id], jobHint{x.Start, x.Stream.Events})
			}
		}
	})
	for i := range r.Attempts {
		a := &r.Attempts[i]
		r.hints[a.JobID] = append(r.hints[a.JobID], jobHint{a.At, 1})
	}
	for _, all := range r.hints {
		slices.SortStableFunc(all, func(x, y jobHint) int { return x.at.Compare(y.at) })
		for i := 1; i < len(all); i++ {
			all[i].sum += all[i-1].sum
		}
	}
}

func (all jobHints) by(moment time.Time) int {
	n := sort.Search(len(all), func(i int) bool { return all[i].at.After(moment) })
	if n == 0 {
		return 0
	}
	return all[n-1].sum
}

// use marks a hint about one of the jobs as used for the resource of y. It returns false if no unused hint may have caused y.
func (h *hints) use(x, y *exchange, jobs ...string) bool {
	total := h.r.hints[""].by(y.Start)
	for _, id := range jobs {
		if id == "" {
			continue
		}
		if h.r.mayHaveShown(id, x.Start, y.Start) {
			return true
		}
		total += h.r.hints[id].by(y.Start)
	}
	if total <= h.used[targetOf(y)] {
		return false
	}
	h.used[targetOf(y)]++
	return true
}
