package conn

// Public connections leave some file descriptors of the process unused: at least leastReserve, at most mostReserve.
const (
	leastReserve = 64
	mostReserve  = 1024
)

// ForPublic returns how many public connections the process's limit of open files allows.
func ForPublic() int {
	limit := fileLimit()
	return max(16, limit-min(max(limit/3, leastReserve), mostReserve))
}

// ForAdmin returns how many connections the admin listener may have. They use reserved file descriptors.
func ForAdmin() int { return min(max(fileLimit()/16, 16), 256) }
