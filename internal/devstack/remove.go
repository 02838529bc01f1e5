package devstack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// Remove deletes the folder of a server that does not run, by the name it was given as Dir, with all data. Unlike
// os.RemoveAll it also deletes files kept elsewhere behind a symbolic link, and stops a server that a killed parent
// left there. It refuses a folder in use, and one that no server has used. A missing folder is no error.
func Remove(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := remove(dir); err != nil {
		return fmt.Errorf("devstack: removing %s: %w", dir, err)
	}
	return nil
}

func remove(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	h := &home{dir: real}
	if _, err := os.Lstat(h.path(lockName)); err != nil {
		return fmt.Errorf("it is not a server's folder: %w", err)
	}
	if err := h.acquire(); err != nil {
		return err
	}
	defer h.release()
	if err := endOrphansIn(real); err != nil {
		return err
	}
	// The link goes last: while it stands, a failed removal can be repeated.
	return errors.Join(os.RemoveAll(real), os.RemoveAll(dir))
}

// endOrphansIn stops a server of either kind that runs on the folder although its parent is gone.
func endOrphansIn(dir string) error {
	dir, err := filepath.EvalSymlinks(dir) // servers know their folder so
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	h := &home{dir: dir}
	for name, p := range map[string]program{"postgres": &cluster{home: h}, "redis": &redisProgram{home: h}} {
		s := &server{name: name, program: p, log: slog.New(slog.DiscardHandler)}
		if err := s.endOrphan(ctx); err != nil {
			return err
		}
	}
	return nil
}
