package conn

// fileLimit returns a reasonable default: Windows has no such limit.
func fileLimit() int { return 1 << 14 }
