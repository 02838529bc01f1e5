//go:build !slow

package timetable_test

import "testing"

// zonesToCount returns one zone for each kind of clock change: at two o'clock, at midnight, and by half an hour.
func zonesToCount(*testing.T) []string {
	return []string{"Europe/Berlin", "Asia/Beirut", "Australia/Lord_Howe"}
}
