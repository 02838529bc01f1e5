package repo

import (
	"embed"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

// The statements stand in sql/, in a file named like the Go file that sends
// them. Each begins with a comment: its name, its contract (what it locks and in
// which order, the indexes that it uses, what no row means, the triggers that
// follow) and its parameters in the order of their values. {{x}} stands for the
// fragment or the constant x.
//
//go:embed sql/*.sql
var sqlFiles embed.FS

// section is a statement or a fragment, without comments.
type section struct {
	text   string
	params []string
}

var sections = readSections()

// constants are what the statements share with Go code.
var constants = map[string]string{
	"batchColumns": batchColumns, "bulkColumns": bulkColumns, "faultColumns": faultColumns, "sessionColumns": sessionColumns,
	"scheduleColumns": scheduleColumns, "jumped": "NULL::timestamptz", "scheduleMembers": "", "scheduleValues": "",
	"bulkItemColumns": bulkItemColumns, "bulkJobColumns": bulkJobColumns,
	"claimedColumns":  strings.ReplaceAll(deliveryColumns, "deliveries.", "e."),
	"deliveryColumns": deliveryColumns, "erasureColumns": erasureColumns,
	"eventColumns": eventColumns, "heldColumns": heldColumns, "jobColumns": jobColumns, "listColumns": listColumns,
	"pauseColumns":   pauseColumns,
	"attemptColumns": attemptColumns, "scenarioColumns": scenarioColumns, "steppedColumns": steppedColumns,
	"taskColumns": taskColumns, "webhookColumns": webhookColumns,
	"batchBytes": strconv.Itoa(batchBytes), "maxClaimBytes": strconv.Itoa(maxClaimBytes),
	"throttledUntil": "timestamptz '" + job.ThrottledUntil.Format(time.DateTime+"-07") + "'",
	"pausedUntil":    "timestamptz '" + job.PausedUntil.Format(time.DateTime+"-07") + "'",
	"moment":         "clock_timestamp()",
	"maxCounted":     strconv.Itoa(maxCounted), "maxLooked": strconv.Itoa(maxLooked), "maxPickupBytes": strconv.Itoa(maxPickupBytes),
}

// parameter is how a statement's parameter is written.
var parameter = regexp.MustCompile(`@(\w+)`)

// made are the statements that have no fragments of their own, as they are sent.
var made sync.Map

// statement gives the statement of that name as it is sent: parameters are
// numbered, and comments are gone. with are pairs of references, such as
// {{owner}}, and what they stand for in this statement: one that has any is made
// once, when the program starts. Regular expressions would take most of that time.
func statement(name string, with ...string) string {
	if len(with) > 0 {
		return compose(name, with)
	}
	text, ok := made.Load(name)
	if !ok {
		text, _ = made.LoadOrStore(name, compose(name, nil))
	}
	return text.(string)
}

func compose(name string, with []string) string {
	text := numbers(sections[name].params).Replace(expand("{{"+name+"}}", with))
	if strings.Contains(text, "@") {
		panic("repo: statement " + name + " has other parameters than it lists")
	}
	return text
}

// numbers gives parameters their numbers. Of names that begin alike the longest counts.
func numbers(params []string) *strings.Replacer {
	pairs := make([][]string, len(params))
	for i, p := range params {
		pairs[i] = []string{"@" + p, "$" + strconv.Itoa(i+1)}
	}
	slices.SortFunc(pairs, func(a, b []string) int { return len(b[0]) - len(a[0]) })
	return strings.NewReplacer(slices.Concat(pairs...)...)
}

func expand(text string, with []string) string {
	var out strings.Builder
	text = strings.NewReplacer(with...).Replace(text)
	for {
		before, rest, found := strings.Cut(text, "{{")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, _ := strings.Cut(rest, "}}")
		out.WriteString(meaning(name, with))
		text = after
	}
}

// meaning is what a reference to the name stands for.
func meaning(name string, with []string) string {
	if value, ok := constants[name]; ok {
		return value
	}
	s, ok := sections[name]
	if !ok {
		panic("repo: nothing is called " + name)
	}
	return expand(s.text, with)
}

// readSections parses the files. A comment has its line for itself.
func readSections() map[string]section {
	files, err := sqlFiles.ReadDir("sql")
	if err != nil {
		panic(err) // cannot happen: the folder is embedded
	}
	all := map[string]section{}
	for _, f := range files {
		content, err := sqlFiles.ReadFile("sql/" + f.Name())
		if err != nil {
			panic(err)
		}
		// The heads of statements, and of fragments, which only stand within statements.
		for text := range strings.SplitSeq(strings.ReplaceAll("\n"+string(content), "\n-- fragment: ", "\n-- name: "), "\n-- name: ") {
			name, body, _ := strings.Cut(text, "\n")
			all[name] = readSection(body)
		}
	}
	delete(all, "") // what is before a file's first head
	return all
}

func readSection(body string) section {
	var s section
	var lines []string
	listed := false // the parameters have begun
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			lines = append(lines, line)
			continue
		}
		if listed = listed || strings.HasPrefix(line, "-- Parameters: "); listed {
			for _, p := range parameter.FindAllStringSubmatch(line, -1) {
				s.params = append(s.params, p[1])
			}
		}
	}
	s.text = strings.TrimSpace(strings.Join(lines, ""))
	return s
}
