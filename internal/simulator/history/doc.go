// Package history keeps what was seen of a run of the simulator: every request
// and answer, every event of a stream, every delivery to a webhook, and at the
// end what the API and the rows say. Nothing is judged here.
//
// Facts are lines of JSON in a folder, spread over files by the job they are
// about, so that a run of a million jobs is written with little memory, and
// later read back one file at a time with all facts of a job together.
package history
