//go:build !linux

package holders

// OfPort finds nothing.
func OfPort(string) (Holder, bool) { return Holder{}, false }

// OfLock finds nothing.
func OfLock(string) (Holder, bool) { return Holder{}, false }
