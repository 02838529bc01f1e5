package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// The server's user owns only the data folder. The user of this process owns everything else. Otherwise the server's user could create
	// links that make root overwrite other files.
	dataName    = "data"
	lockName    = "lock"
	spareName   = "elsewhere" // link to the folder with the server's files, if the server's user cannot enter dir
	runningName = "running"   // holds the PID of the latest server; the server inherits the file's lock
)

type home struct {
	dir  string // absolute, without symbolic links
	user *account
	lock *os.File // held while the server runs
}

func (h *home) path(name string) string { return filepath.Join(h.dir, name) }

func (h *home) dataDir() string { return h.path(dataName) }

// childEnv returns the environment of a server. It omits the configuration, secrets and PG* variables of this process. It makes the server
// use English messages and UTC.
func childEnv() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// openHome creates the folder o.Dir. It checks that the server's user can enter the folder and run the server's program.
//
// If this process runs as root, o.Dir is often below a folder that only root may enter, such as /root. The server then uses a folder below
// the machine's spareDir; see spareHome. Temporary servers never use spareDir, because the folder would remain after a crash.
func openHome(ctx context.Context, o ServerOptions, program string, users []string) (*home, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	user, err := accountFor(filepath.Join(dir, dataName), users)
	if err != nil {
		return nil, err
	}
	real, err := makeHomeDir(dir, user)
	if err != nil {
		return nil, err
	}
	err = user.enters(ctx, real, program)
	if errors.Is(err, fs.ErrPermission) {
		spare := o.computer().spareDir
		if _, noData := os.Stat(filepath.Join(dir, dataName)); noData == nil || o.throwaway || filepath.Dir(dir) == spare {
			return nil, fmt.Errorf("this process runs as root, the server must not run as root, and user %s cannot enter %s or run %s: "+
				"use a folder that every user can reach, such as one below %s: %w", user.name, dir, program, spare, err)
		}
		if o.Dir, err = spareHome(real, spare); err != nil {
			return nil, err
		}
		o.Logger.Warn("the server's user cannot enter the folder, so the server keeps its files elsewhere",
			"folder", dir, "user", user.name, "kept_in", o.Dir)
		return openHome(ctx, o, program, users)
	}
	return &home{dir: real, user: user}, err
}

// spareHome returns the folder below `spare` that a link in `dir` names. If the link is missing, spareHome creates it. The folder's name is
// random. So if `dir` is deleted and created again, the server does not get the old data.
func spareHome(dir, spare string) (string, error) {
	link := filepath.Join(dir, spareName)
	err := os.Symlink(filepath.Join(spare, url.PathEscape(dir)+"-"+rand.Text()[:8]), link)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	target, err := os.Readlink(link)
	if err == nil && filepath.Dir(target) != spare {
		err = fmt.Errorf("the link %s names %s, which is not in %s: remove the link", link, target, spare)
	}
	return target, err
}

// makeHomeDir creates dir if it is missing, with permissions that let the server's user enter it. It returns the path without symbolic
// links.
func makeHomeDir(dir string, user *account) (string, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	err := os.Mkdir(dir, 0o700)
	if err == nil && user != nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// BusyError means that another process runs a server in the folder.
type BusyError struct {
	Folder string
	Lock   string
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("the folder %s is in use by another forgerun process", e.Folder)
}

// acquire locks the folder until release or the end of this process.
func (h *home) acquire() error {
	f, err := os.OpenFile(h.path(lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: the folder belongs to another user; run as that user, or remove it", err)
	}
	if err != nil {
		return err
	}
	busy, err := lockFile(f)
	if err == nil {
		h.lock = f
		return nil
	}
	_ = f.Close()
	if busy {
		return &BusyError{Folder: h.dir, Lock: h.path(lockName)}
	}
	return fmt.Errorf("locking %s: %w", h.dir, err)
}

// release unlocks the file explicitly. Closing it is not enough, because a child process between fork and exec still has a copy of the
// descriptor.
func (h *home) release() {
	if h.lock != nil {
		unlockFile(h.lock)
		_ = h.lock.Close()
		h.lock = nil
	}
}

func (h *home) noteRunning(pid int) error {
	return os.WriteFile(h.path(runningName), fmt.Appendln(nil, pid), 0o600)
}

// claim locks the file "running" and returns it. The next server inherits the file and the lock. If the previous server still runs or is
// paused, claim kills it and waits until its processes are gone. The server's data survives, as after a crash.
func (h *home) claim(ctx context.Context, log *slog.Logger) (*os.File, error) {
	f, err := os.OpenFile(h.path(runningName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		busy, err := lockFile(f)
		if err == nil {
			return f, nil
		}
		if first && busy {
			log.Warn("the previous server is still running", "folder", h.dir)
		}
		if busy {
			h.killNoted()
		}
		if !busy || !Sleep(ctx, 10*pollPeriod) {
			return nil, errors.Join(fmt.Errorf("stop the former server of %s: %w", h.dir, err), context.Cause(ctx), f.Close())
		}
	}
}

// killNoted kills the process with the PID in the file "running". The server's remaining processes then exit on their own.
func (h *home) killNoted() {
	var pid int
	text, _ := os.ReadFile(h.path(runningName))
	if _, err := fmt.Sscan(string(text), &pid); err != nil || pid <= 0 {
		return
	}
	if process, err := os.FindProcess(pid); err == nil {
		_ = process.Kill()
	}
}

// account is the user under which a server runs when this process is root. If the account is nil, the server runs under the user of this
// process.
type account struct {
	name string
	Credential
}

// accountFor returns the account of a server with its files in dataDir, or nil if this process does not run as root. The account is the
// owner of dataDir. If dataDir is missing or belongs to root, it is the first user in `names` that exists.
func accountFor(dataDir string, names []string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	info, err := os.Stat(dataDir)
	if err == nil {
		if owner := ownerOf(info); owner.Uid != 0 {
			return &account{fmt.Sprint("id ", owner.Uid), owner}, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, name := range names {
		if a, err := lookupAccount(name); err == nil {
			return a, nil
		}
	}
	return nil, fmt.Errorf("there is no unprivileged user to run as: none of %s exists", strings.Join(names, ", "))
}

func lookupAccount(name string) (*account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, noUID := strconv.ParseUint(u.Uid, 10, 32)
	gid, noGID := strconv.ParseUint(u.Gid, 10, 32)
	return &account{name, Credential{Uid: uint32(uid), Gid: uint32(gid)}}, errors.Join(noUID, noGID)
}

func (a *account) credential() *Credential {
	if a == nil {
		return nil
	}
	return &a.Credential
}

func (a *account) give(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, int(a.Uid), int(a.Gid))
}

// enters checks that the account has access to the folder `dir` and to `program`. It runs "program --version" in the folder, because access
// may also depend on access lists, mount options and security modules. Without access, the error wraps fs.ErrPermission.
func (a *account) enters(ctx context.Context, dir, program string) error {
	if a == nil {
		return nil
	}
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Dir = dir
	runAs(cmd, a.credential(), 0)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s as user %s: %w", filepath.Base(program), a.name, err)
	}
	return nil
}
