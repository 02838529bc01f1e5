// Package holders finds the process that holds a port or the lock of a file. It knows only what /proc of Linux shows to this user, and
// nothing elsewhere.
package holders

import "fmt"

// Holder is a process.
type Holder struct {
	PID     int
	Command string // how it was started, shortened; "" if that is not known
}

// String is the process for a sentence.
func (h Holder) String() string {
	if h.Command == "" {
		return fmt.Sprintf("process %d", h.PID)
	}
	return fmt.Sprintf("process %d (%s)", h.PID, h.Command)
}
