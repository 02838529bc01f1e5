package history

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Buckets is the number of files for facts, besides the one for facts without a job.
const Buckets = 256

// Loose is the bucket of facts without a subject: submissions that ended without a job.
const Loose = Buckets

const bufferSize = 16 << 10

// Store accepts facts from many goroutines until Close. Then they can be read.
type Store struct {
	dir     string
	buckets [Buckets + 1]bucket
}

type bucket struct {
	mu     sync.Mutex
	file   *os.File // nil: closed
	out    *bufio.Writer
	broken error // the first error of the disk; later facts are dropped
}

// Create makes an empty history in dir, which it makes when missing. An existing history is an error.
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

// bucketOf spreads jobs evenly.
func bucketOf(job string) int {
	if job == "" {
		return Loose
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, job) // never fails
	return int(h.Sum32() % Buckets)
}

// Add stores the fact. Close returns errors of the disk.
func (s *Store) Add(f Fact) {
	b := &s.buckets[bucketOf(f.Subject())]
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file != nil && b.broken == nil {
		b.broken = f.write(b.out)
	}
}

// write writes the fact as a line of JSON, without the members that are zero.
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
	_ = f.write(&line) // to memory
	return strings.TrimSuffix(line.String(), "\n")
}

// Close flushes the buffers and returns the errors of the disk. A history with a gap cannot be judged.
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

// Jobs returns the bucket's facts by subject, in the order of Add.
func (s *Store) Jobs(bucket int) (map[string][]Fact, error) {
	jobs := map[string][]Fact{}
	return jobs, s.Each(bucket, func(f Fact) error {
		jobs[f.Subject()] = append(jobs[f.Subject()], f)
		return nil
	})
}

// Each calls fn with the facts of the bucket until it returns an error.
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
			return fmt.Errorf("%s cannot be read: %w", file.Name(), err)
		}
		if err := fn(f); err != nil {
			return err
		}
	}
}
