package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// account is the unprivileged user as which a root parent runs its servers; nil: as this process.
type account struct {
	name string
	uid  uint32
	gid  uint32
}

// accountFor returns the account for a server whose files are in dataDir; nil when this process is not root. Existing
// files stay with their owner; otherwise it is the first of the named users that exists.
func accountFor(dataDir string, names []string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil // nil means: as this process
	}
	info, err := os.Stat(dataDir)
	if err == nil {
		if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 {
			return &account{name: "id " + strconv.Itoa(int(owner.Uid)), uid: owner.Uid, gid: owner.Gid}, nil
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
	return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, errors.Join(noUID, noGID)
}

func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

// give makes the account the owner of a file or folder that this process has just created.
func (a *account) give(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// enters runs the program with dir as its working folder: the error wraps fs.ErrPermission if the account may not.
// Modes are not all that counts (access lists, mount options, security modules).
func (a *account) enters(ctx context.Context, dir, program string) error {
	if a == nil {
		return nil
	}
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential()}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s as user %s: %w", filepath.Base(program), a.name, err)
	}
	return nil
}
