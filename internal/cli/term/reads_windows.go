package term

// IgnoreReads does nothing, because Windows never stops a process that reads from a terminal.
func IgnoreReads() {}
