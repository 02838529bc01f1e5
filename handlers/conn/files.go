package conn

// The files that are not for the connections of the public listener: those of
// the stores, of deliveries, logs, and the admin listener.
const (
	leastReserve = 64
	mostReserve  = 1024
)

// ForPublic gives how many connections the public listener may have within the
// process's limit of open files, which Go raises to the hard limit at the start.
func ForPublic() int {
	limit := fileLimit()
	return max(16, limit-min(max(limit/3, leastReserve), mostReserve))
}

// ForAdmin gives the same for the admin listener; it is part of the reserve.
func ForAdmin() int { return min(max(fileLimit()/16, 16), 256) }
