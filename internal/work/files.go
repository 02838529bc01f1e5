package work

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/forgerun/forgerun/job"
)

const (
	blockSize  = 64 << 10
	fileBlocks = 64
)

var errReadBack = errors.New("it was read back differently")

// tempFile is a file of 4 MiB. An attempt writes and reads its blocks repeatedly. It does not sync the file, because that would slow down
// the database's disk.
type tempFile struct {
	dir      string
	file     *os.File
	unlinked bool
	written  []byte
	read     []byte
	random   rand.PCG
}

// write writes block n modulo fileBlocks and reads it back. Each pass through the file has new content.
func (f *tempFile) write(n int) error {
	if err := f.open(); err != nil {
		return exhausted(err)
	}
	block := n % fileBlocks
	if block == 0 {
		fill(f.written, &f.random)
	}
	offset := int64(block) * blockSize
	if _, err := f.file.WriteAt(f.written, offset); err != nil {
		return exhausted(err)
	}
	if _, err := f.file.ReadAt(f.read, offset); err != nil {
		return exhausted(err)
	}
	if !bytes.Equal(f.written, f.read) {
		return exhausted(errReadBack)
	}
	return nil
}

// exhausted wraps an error with job.ErrExhausted. The cause is in this machine, such as a full disk or a missing folder. Another machine
// may be able to do the work.
func exhausted(err error) error { return fmt.Errorf("%w: temp file: %w", job.ErrExhausted, err) }

// open creates the file on first use. If the system allows it, open removes the file's name at once, so that a crash leaves no file behind.
func (f *tempFile) open() error {
	if f.file != nil {
		return nil
	}
	file, err := os.CreateTemp(f.dir, "forgerun-io-*")
	if err != nil {
		return err
	}
	f.file = file
	f.unlinked = os.Remove(file.Name()) == nil
	f.written, f.read = make([]byte, blockSize), make([]byte, blockSize)
	return nil
}

func (f *tempFile) release() {
	if f.file == nil {
		return
	}
	_ = f.file.Close()
	if !f.unlinked {
		_ = os.Remove(f.file.Name())
	}
}
