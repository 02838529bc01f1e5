package conn

// Windows does not limit open files, so fileLimit returns a fixed number.
func fileLimit() int { return 1 << 14 }
