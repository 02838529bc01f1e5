package term

// IgnoreReads does nothing, because Windows does not stop a background process that reads from the terminal.
func IgnoreReads() {}
