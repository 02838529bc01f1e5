package conn

// fileLimit is a number to go by: Windows has none.
func fileLimit() int { return 1 << 14 }
