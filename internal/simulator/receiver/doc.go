// Package receiver plays the webhook receivers of a run of the simulator: it
// verifies each message, writes down that it came, and answers it as well or as
// badly as the scenario wants. What was sent is judged elsewhere.
package receiver
