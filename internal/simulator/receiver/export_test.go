package receiver

// Held is the number of messages that have come: a test can wait for them.
func (r *Receiver) Held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tries)
}
