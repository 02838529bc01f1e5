package term

import (
	"os"

	"golang.org/x/sys/unix"
)

// KeyByKey has a terminal give each key at once and show none of them; Ctrl-C still interrupts. It is not ok if f is no terminal,
// or one in whose background this process is: asking would stop it.
func KeyByKey(f *os.File) (restore func(), ok bool) {
	fd := int(f.Fd())
	if !foreground(fd) {
		return nil, false
	}
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, false
	}
	changed := *before
	changed.Lflag &^= unix.ICANON | unix.ECHO
	changed.Cc[unix.VMIN], changed.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, setTermios, &changed); err != nil {
		return nil, false
	}
	return func() {
		if foreground(fd) {
			_ = unix.IoctlSetTermios(fd, setTermios, before)
		}
	}, true
}

func foreground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
