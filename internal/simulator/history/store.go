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
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Buckets is the number of files for facts, besides the one for facts without a job.
const Buckets = 256

// Loose is the bucket of facts without a subject: submissions that ended without a job.
const Loose = Buckets

const bufferSize = 16 << 10

// Writer accepts facts from many goroutines.
type Writer struct {
	dir     string
	buckets [Buckets + 1]bucket
	facts   atomic.Int64
	broken  atomic.Pointer[error] // the first error of the disk; later facts are dropped
}

type bucket struct {
	mu   sync.Mutex
	file *os.File
	out  *bufio.Writer
}

// Create makes an empty history in dir, which it makes when missing. An existing history is an error.
func Create(dir string) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	w := &Writer{dir: dir}
	for i := range w.buckets {
		file, err := os.OpenFile(bucketPath(dir, i), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		w.buckets[i].file, w.buckets[i].out = file, bufio.NewWriterSize(file, bufferSize)
	}
	return w, nil
}

func bucketPath(dir string, i int) string {
	return filepath.Join(dir, fmt.Sprintf("facts-%03d.jsonl", i))
}

// bucketOf spreads jobs evenly.
func bucketOf(job string) int {
	if job == "" {
		return Loose
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, job) // never fails
	return int(h.Sum32() % Buckets)
}

// Add stores the fact. Err and Close return errors of the disk.
func (w *Writer) Add(f Fact) {
	b := &w.buckets[bucketOf(f.Subject())]
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == nil || w.broken.Load() != nil {
		return
	}
	if err := f.write(b.out); err != nil {
		w.broken.CompareAndSwap(nil, &err)
		return
	}
	w.facts.Add(1)
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

// Err returns the first error of the disk so far. A history with a gap cannot be judged.
func (w *Writer) Err() error {
	if err := w.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// Facts returns the number of added facts.
func (w *Writer) Facts() int64 { return w.facts.Load() }

// Close flushes the buffers and returns the first error of any Add. The history may be read afterwards.
func (w *Writer) Close() error {
	errs := []error{w.Err()}
	for i := range w.buckets {
		errs = append(errs, w.buckets[i].close())
	}
	return errors.Join(errs...)
}

func (b *bucket) close() (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file != nil {
		err = errors.Join(b.out.Flush(), b.file.Close())
		b.file = nil
	}
	return err
}

// Reader reads a history that has been closed.
type Reader struct{ dir string }

// Open opens the history in dir.
func Open(dir string) (*Reader, error) {
	if _, err := os.Stat(bucketPath(dir, 0)); err != nil {
		return nil, fmt.Errorf("no history in %s: %w", dir, err)
	}
	return &Reader{dir: dir}, nil
}

// Jobs returns the bucket's facts by subject, in the order of Add.
func (r *Reader) Jobs(bucket int) (map[string][]Fact, error) {
	jobs := map[string][]Fact{}
	return jobs, r.Each(bucket, func(f Fact) error {
		jobs[f.Subject()] = append(jobs[f.Subject()], f)
		return nil
	})
}

// Each calls fn with the facts of the bucket until it returns an error.
func (r *Reader) Each(bucket int, fn func(Fact) error) error {
	file, err := os.Open(bucketPath(r.dir, bucket))
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
