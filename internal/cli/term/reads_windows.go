package term

// IgnoreReads does nothing: Windows stops no process for a read.
func IgnoreReads() {}
