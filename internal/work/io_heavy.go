package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/forgerun/forgerun/job"
)

const (
	blockSize = 64 << 10
	fileSize  = 4 << 20
)

// errReadBack means that a temp file did not hold what was written to it.
var errReadBack = errors.New("it was read back differently")

// ioHeavy is IO_HEAVY: in each step it writes a temp file of 4 MiB, block by
// block, and reads each block back. It does not sync: that would slow the
// database's disk down.
type ioHeavy struct {
	idle
	dir      string
	file     *os.File
	unlinked bool
	written  []byte // the block to write
	read     []byte
	random   rand.PCG
}

func (*ioHeavy) phase() string { return "WRITING" }

func (*ioHeavy) units(int) int { return fileSize / blockSize }

// unit writes a block and reads it back; each step writes other content.
func (f *ioHeavy) unit(_ context.Context, block int) (more bool, err error) {
	if err := f.open(); err != nil {
		return false, exhausted(err)
	}
	if block == 0 {
		fill(f.written, &f.random)
	}
	offset := int64(block) * blockSize
	if _, err := f.file.WriteAt(f.written, offset); err != nil {
		return false, exhausted(err)
	}
	if _, err := f.file.ReadAt(f.read, offset); err != nil {
		return false, exhausted(err)
	}
	if !bytes.Equal(f.written, f.read) {
		return false, exhausted(errReadBack)
	}
	return true, nil
}

// exhausted says that the trouble is this machine's, whatever it is: a full disk (ENOSPC, EDQUOT), no file
// handles (EMFILE), no memory (ENOMEM), a folder that is gone or a disk that is broken. Another one may do the work.
func exhausted(err error) error { return fmt.Errorf("%w: temp file: %w", job.ErrExhausted, err) }

// open makes the file on the first step, and removes its name at once where the system allows that.
func (f *ioHeavy) open() error {
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

func (f *ioHeavy) release() {
	if f.file == nil {
		return
	}
	_ = f.file.Close()
	if !f.unlinked {
		_ = os.Remove(f.file.Name())
	}
}
