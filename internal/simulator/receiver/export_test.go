package receiver

// Held is how many messages have been counted and are not forgotten: a test can
// wait for their arrival.
func (r *Receiver) Held() int {
	r.tries.mu.Lock()
	defer r.tries.mu.Unlock()
	return len(r.tries.latest)
}
