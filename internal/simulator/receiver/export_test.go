package receiver

func (r *Receiver) Arrived() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tries)
}
