package receiver

// Held returns the number of messages that have arrived.
func (r *Receiver) Held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tries)
}
