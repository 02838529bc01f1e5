package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// marker is the file that distinguishes a demo folder from anything else. It is also
// the lock of the folder.
const marker = ".forgerun-demo"

// folder is the data folder of one demo, held by a lock.
type folder struct {
	path string
	lock *os.File
}

// claimFolder takes <dataDir>/demo for this demo and empties it. It deletes
// nothing unless the folder carries the marker of an earlier demo and no other
// demo, nor a service that one left behind, still uses it.
func claimFolder(dataDir string) (*folder, error) {
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dataDir, "demo")
	if err := os.MkdirAll(dataDir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the data folder: %w", err)
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cannot make the data folder: %w", err)
	}
	if err := checkOurs(path); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, marker), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot mark the demo folder: %w", err)
	}
	f := &folder{path: path, lock: lock}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.release()
		return nil, fmt.Errorf("another demo, or a service that one left behind, still uses %s%s", path, runningService(path))
	}
	if err := f.empty(); err != nil {
		f.release()
		return nil, fmt.Errorf("cannot empty the demo folder: %w", err)
	}
	return f, nil
}

// runningService names the service in the folder if it is ready.
func runningService(path string) string {
	info, err := readReady(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d at %s)", info.PID, info.URL)
}

// checkOurs refuses a folder with content that no demo has made.
func checkOurs(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder: nothing was touched; choose another --data-dir", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return nil
	}
	if info, err := os.Lstat(filepath.Join(path, marker)); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("%s was not made by the demo: nothing was deleted; choose another --data-dir", path)
	}
	return nil
}

// empty removes everything but the marker.
func (f *folder) empty() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == marker {
			continue
		}
		if err := os.RemoveAll(filepath.Join(f.path, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// release gives the folder up; what is in it stays for whoever wants to look.
func (f *folder) release() { _ = f.lock.Close() }
