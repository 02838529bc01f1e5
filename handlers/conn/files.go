package conn

// The process reserves between leastReserve and mostReserve files for databases, deliveries, logs and the admin listener.
const (
	leastReserve = 64
	mostReserve  = 1024
)

// ForPublic returns how many connections the public listener may have within the process's limit of open files.
func ForPublic() int {
	limit := fileLimit()
	return max(16, limit-min(max(limit/3, leastReserve), mostReserve))
}

// ForAdmin returns how many connections the admin listener may have. They count as part of the reserved files.
func ForAdmin() int { return min(max(fileLimit()/16, 16), 256) }
