// Package holders finds the process that holds a port or the lock of a file. It uses only what Linux shows to this user in /proc,
// and finds nothing on other systems.
package holders

import "fmt"

// Holder is a process.
type Holder struct {
	PID     int
	Command string // shortened command line; "" if unknown
}

// String describes the process for use in a sentence.
func (h Holder) String() string {
	if h.Command == "" {
		return fmt.Sprintf("process %d", h.PID)
	}
	return fmt.Sprintf("process %d (%s)", h.PID, h.Command)
}
