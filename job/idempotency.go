package job

// RequestKey is an idempotency key, with what tells whether a request repeats
// the one that it was used for first.
type RequestKey struct {
	ClientID ID     // zero of a request without a client's credentials
	Scope    string // keys of different scopes are different
	Key      string
	Hash     [32]byte // of method, path and body
}

// Answer is what a request with an idempotency key was answered. It has no
// secrets: it is stored as it is.
type Answer struct {
	Status  int // 0: only Subject is known
	Header  map[string]string
	Body    []byte
	Subject ID // what the request made, zero for nothing in particular
}
