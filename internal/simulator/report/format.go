package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/forgerun/forgerun/internal/cli/term"
)

var english = message.NewPrinter(language.English)

// grouped formats 1234567 as 1,234,567.
func grouped(n int64) string { return english.Sprintf("%d", n) }

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(n) + " " + what + "s"
}

// brief formats a duration with three digits: 12.3 ms, or 1m40s.
func brief(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	d = d.Round(unit)
	text := d.String()
	if end := strings.LastIndexAny(text, "0123456789") + 1; d < time.Minute {
		return text[:end] + " " + text[end:]
	}
	return text
}

// clockTime formats a duration as 1:02:03, or 2:03 below an hour.
func clockTime(d time.Duration) string {
	s := int64(max(d, 0).Round(time.Second) / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// rate formats a number per second.
func rate(n int64, d time.Duration) string {
	if d <= 0 {
		n, d = 0, 1
	}
	return english.Sprintf("%.1f/s", float64(n)/d.Seconds())
}

// percent formats a share with one decimal. It returns 0 % or 100 % only if that is exact.
func percent(some, all int64) string {
	share := 100 * float64(some) / float64(max(all, 1))
	switch {
	case some > 0 && share < 0.1:
		return "<0.1 %"
	case some < all && share > 99.9:
		return ">99.9 %"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", share), ".0") + " %"
}

// listed formats the numbers other than 0, except those of the given names.
func listed(numbers map[string]int64, without ...string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if numbers[name] != 0 && !slices.Contains(without, name) {
			parts = append(parts, strings.ToLower(term.Masked(name))+" "+grouped(numbers[name]))
		}
	}
	return strings.Join(parts, "  ")
}

func total(numbers map[string]int64) int64 {
	var n int64
	for _, one := range numbers {
		n += one
	}
	return n
}

// ms returns a duration in milliseconds, for JSON.
func ms(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}
