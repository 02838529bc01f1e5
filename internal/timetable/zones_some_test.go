//go:build !slow

package timetable_test

import "testing"

// zonesToCount are zones that change at two, at midnight and by half an hour. With -tags slow, they are all zones.
func zonesToCount(*testing.T) []string {
	return []string{"Europe/Berlin", "Asia/Beirut", "Australia/Lord_Howe"}
}
