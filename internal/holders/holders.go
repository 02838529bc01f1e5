// Package holders finds the process that listens on a port or has locked a file. It reads /proc, with this user's permissions. On systems
// other than Linux it finds nothing.
package holders

import "fmt"

// Holder is a process that listens on a port or has locked a file.
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
