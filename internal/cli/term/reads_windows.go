package term

// IgnoreReads does nothing, since Windows does not stop a process for a read.
func IgnoreReads() {}
