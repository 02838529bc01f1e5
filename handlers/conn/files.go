package conn

// Between leastReserve and mostReserve file descriptors of the process are not used for public connections.
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
