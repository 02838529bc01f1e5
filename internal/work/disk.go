package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

const (
	blockSize = 64 << 10
	fileSize  = 4 << 20
)

// errReadBack means that a temp file did not hold what was written to it.
var errReadBack = errors.New("a temp file was read back differently")

// disk is IO_HEAVY: in each step it writes a temp file of 4 MiB, block by
// block, and reads each block back. It does not sync: that would take the disk
// from the database.
type disk struct {
	idle
	dir      string
	file     *os.File
	unlinked bool
	written  []byte // the block to write
	read     []byte
	random   rand.PCG
}

func (*disk) phase() string { return "WRITING" }

func (f *disk) step(ctx context.Context, _ int, until time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := f.open(); err != nil {
		return err
	}
	fill(f.written, &f.random)
	for offset := int64(0); offset < fileSize; offset += blockSize {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f.unit(offset); err != nil {
			return fmt.Errorf("temp file: %w", err)
		}
		if !time.Now().Before(until) {
			return nil
		}
	}
	return nil
}

// open makes the file on the first step. Its name is removed at once where the
// system allows that, so that not even a killed process leaves it behind.
func (f *disk) open() error {
	if f.file != nil {
		return nil
	}
	file, err := os.CreateTemp(f.dir, "forgerun-io-*")
	if err != nil {
		return fmt.Errorf("temp file: %w", err)
	}
	f.file = file
	f.unlinked = os.Remove(file.Name()) == nil
	f.written, f.read = make([]byte, blockSize), make([]byte, blockSize)
	return nil
}

func (f *disk) unit(offset int64) error {
	if _, err := f.file.WriteAt(f.written, offset); err != nil {
		return err
	}
	if _, err := f.file.ReadAt(f.read, offset); err != nil {
		return err
	}
	if !bytes.Equal(f.written, f.read) {
		return errReadBack
	}
	return nil
}

func (f *disk) release() {
	if f.file == nil {
		return
	}
	_ = f.file.Close()
	if !f.unlinked {
		_ = os.Remove(f.file.Name())
	}
}
