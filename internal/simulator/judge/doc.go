// Package judge says whether a run of the simulator saw anything that must never
// happen. Collect asks, when all is over, what the API, the rows, the queue and
// the metrics say, and adds it to the history as further facts; Judge then holds
// all facts of each job against the invariants.
//
// It knows the service by its contract alone: states, transitions and the
// catalogue of work kinds are its own copies, so that a mistake of the service is
// not taken over. What could not be asked is told as not checked; it never passes
// silently.
package judge
