package receiver

// Held returns the number of messages that have arrived, so that a test can wait for them.
func (r *Receiver) Held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tries)
}
