package history

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Buckets is the number of files for facts about jobs.
const Buckets = 256

// Loose is the index of the bucket for facts without a subject, such as refused submissions.
const Loose = Buckets

const bufferSize = 16 << 10

// Store writes facts. Any goroutine may add facts until Close. After Close, the facts can be read.
type Store struct {
	dir     string
	buckets [Buckets + 1]bucket
}

type bucket struct {
	mu     sync.Mutex
	file   *os.File // nil: closed
	out    *bufio.Writer
	broken error // first disk error; facts added after an error are dropped
}

// Create makes an empty history in the folder `dir`. It creates the folder if necessary. It returns an error if the folder already has a
// history.
func Create(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	s := &Store{dir: dir}
	for i := range s.buckets {
		file, err := os.OpenFile(s.path(i), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.buckets[i].file, s.buckets[i].out = file, bufio.NewWriterSize(file, bufferSize)
	}
	return s, nil
}

func (s *Store) path(i int) string { return filepath.Join(s.dir, fmt.Sprintf("facts-%03d.jsonl", i)) }

func bucketOf(job string) int {
	if job == "" {
		return Loose
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, job) // never fails
	return int(h.Sum32() % Buckets)
}

// Add stores the fact. Errors are returned later, by Close.
func (s *Store) Add(f Fact) {
	b := &s.buckets[bucketOf(f.Subject())]
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file != nil && b.broken == nil {
		b.broken = f.write(b.out)
	}
}

func (f *Fact) write(w io.Writer) error {
	err := json.MarshalWrite(w, f, json.OmitZeroStructFields(true), jsonv1.FormatDurationAsNano(true), jsontext.AllowInvalidUTF8(true))
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	return err
}

// String returns the fact's line in the history.
func (f *Fact) String() string {
	var line strings.Builder
	_ = f.write(&line) // cannot fail: it writes to memory
	return strings.TrimSuffix(line.String(), "\n")
}

// Close flushes the buffers and returns disk errors. If it fails, facts are missing, so the run cannot be judged.
func (s *Store) Close() error {
	var errs []error
	for i := range s.buckets {
		b := &s.buckets[i]
		b.mu.Lock()
		if b.file != nil {
			b.broken = errors.Join(b.broken, b.out.Flush(), b.file.Close())
			b.file = nil
		}
		errs = append(errs, b.broken)
		b.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Jobs groups the facts of a bucket by subject. The facts of a subject are in the order of Add.
func (s *Store) Jobs(bucket int) (map[string][]Fact, error) {
	jobs := map[string][]Fact{}
	return jobs, s.Each(bucket, func(f Fact) error {
		jobs[f.Subject()] = append(jobs[f.Subject()], f)
		return nil
	})
}

// Each calls fn with the facts of the bucket until fn returns an error.
func (s *Store) Each(bucket int, fn func(Fact) error) error {
	file, err := os.Open(s.path(bucket))
	if err != nil {
		return err
	}
	defer file.Close()
	facts := jsontext.NewDecoder(bufio.NewReaderSize(file, 64<<10))
	for {
		var f Fact
		if err := json.UnmarshalDecode(facts, &f, jsonv1.FormatDurationAsNano(true)); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read %s: %w", file.Name(), err)
		}
		if err := fn(f); err != nil {
			return err
		}
	}
}

// Move is one change of the clock. When Postgres' clock showed Real, the service time was set to Service. After that, the service time runs
// at Rate.
type Move struct {
	Number  int64 // number of the move, from 1; 0: a reading of the clock, not a move
	Real    time.Time
	Service time.Time
	Rate    float64 // 0: frozen
}

func (m Move) at(real time.Time) time.Time {
	if m.Rate == 1 { // exact, without rounding through float64
		return m.Service.Add(real.Sub(m.Real))
	}
	return m.Service.Add(time.Duration(float64(real.Sub(m.Real)) * m.Rate))
}

// Moves are the moves of a test bed's clock, in order. They convert real time to service time. Without moves, service time equals real
// time.
type Moves []Move

func unmoved(real time.Time) Move { return Move{Real: real, Service: real, Rate: 1} }

func (ms Moves) until(real time.Time) int {
	return sort.Search(len(ms), func(i int) bool { return ms[i].Real.After(real) })
}

func (ms Moves) before(i int) Move {
	if i > 0 {
		return ms[i-1]
	}
	return unmoved(ms[i].Real)
}

// Latest returns a function that converts a time on Postgres' clock to the highest service time that any process may have used by then.
// After a move, a process may use the old setting for up to `lag`.
func (ms Moves) Latest(lag time.Duration) func(real time.Time) time.Time {
	peaks := make([]time.Time, len(ms)) // for each move, the highest service time of a process that does not know the move yet
	for i, m := range ms {
		if i > 0 || m.Number == 1 {
			peaks[i] = ms.before(i).at(m.Real.Add(lag))
		}
		if i > 0 && peaks[i-1].After(peaks[i]) {
			peaks[i] = peaks[i-1]
		}
	}
	return func(real time.Time) time.Time {
		at := ms.At(real)
		if n := ms.until(real); n > 0 && peaks[n-1].After(at) {
			return peaks[n-1]
		}
		return at
	}
}

// At returns the service time when Postgres' clock shows `real`. Before the first move, it returns `real`. If ms does not contain the
// first move, At assumes the setting of ms[0] for all earlier times.
func (ms Moves) At(real time.Time) time.Time {
	switch before := ms[:ms.until(real)]; {
	case len(before) > 0:
		return before[len(before)-1].at(real)
	case len(ms) > 0 && ms[0].Number != 1:
		return ms[0].at(real)
	}
	return real
}

// Most returns the largest advance of the service time around any move: from `d` before the move to `d` after it. The result is at least
// 2 d, the advance without a move.
func (ms Moves) Most(d time.Duration) time.Duration {
	most := 2 * d
	for _, m := range ms {
		most = max(most, ms.At(m.Real.Add(d)).Sub(ms.At(m.Real.Add(-d))))
	}
	return most
}

// Since converts the service time of an event to real time. If the clock was moved, this is only possible for events after the last move,
// and only at rate 1. Otherwise `known` is false.
func (ms Moves) Since(at time.Time) (real time.Time, known bool) {
	if len(ms) == 0 {
		return at, true
	}
	last := ms[len(ms)-1]
	if last.Rate != 1 || !at.After(last.Service) {
		return time.Time{}, false
	}
	return last.Real.Add(at.Sub(last.Service)), true
}

// Passing describes how the clock reached a service time: by the jump of a move, or by running after a move.
type Passing struct {
	// Exact is true if the clock skipped the service time, or did not run at rate 1. An event that was due at the service time must then have
	// exactly this time.
	Exact bool
	// Before is the highest service time of a process that does not know this move yet.
	Before time.Time
}

// Passed describes how the clock reached the service time `at`. After a move, a process may use the old setting for up to `lag`. Passed
// returns the zero value if the clock reached `at` before the first move in ms, or if this is unknown.
func (ms Moves) Passed(at time.Time, lag time.Duration) Passing {
	for i, m := range ms {
		if i == 0 && m.Number != 1 && at.Before(m.Service) {
			return Passing{} // unknown
		}
		before := ms.before(i)
		jumped := at.After(before.at(m.Real)) && !at.After(m.Service)
		ran := at.After(m.Service)
		if rest := ms[i+1:]; len(rest) > 0 {
			ran = ran && !at.After(m.at(rest[0].Real))
		}
		if jumped || ran {
			return Passing{Exact: jumped || m.Rate != 1, Before: before.at(m.Real.Add(lag))}
		}
	}
	return Passing{}
}
