package testbed

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/testbed/summary"
	"github.com/forgerun/forgerun/verdict/proxy"
)

const (
	privateFile = 0o600 // mode of reports, which contain the client's requests
	sharedFile  = 0o644 // mode of reports with --shared-files
)

func (v *verdictRun) checkFiles() error {
	for flag, path := range map[string]string{"json-file": v.jsonFile, "junit": v.junit, "html": v.html, "summary": v.markdown} {
		info, err := os.Stat(path)
		if path == "" || err == nil && !info.Mode().IsRegular() && !info.IsDir() { // skip special files, because opening a named pipe would block
			continue
		}
		_, missing := os.Lstat(path)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, privateFile)
		if err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
		_ = f.Close()
		if missing != nil {
			_ = os.Remove(path)
		}
	}
	return nil
}

// baselineFile is the default of --baseline if --update-baseline is set.
const baselineFile = "forgerun-baseline.yaml"

func (v *verdictRun) readBaseline() (err error) {
	path := v.baselinePath
	if path == "" && v.update {
		path = baselineFile
	}
	if path == "" {
		return nil
	}
	if v.baseline, err = summary.ReadBaseline(path, v.update); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--baseline: %w: create the file with --update-baseline", err)
	} else if err != nil {
		return fmt.Errorf("--baseline: %w", err)
	}
	return nil
}

func (v *verdictRun) updateBaseline(shown *summary.Summary) error {
	if err := shown.UpdateBaseline(); err != nil {
		return fmt.Errorf("--update-baseline: %w", err)
	}
	path := shown.Baseline.Path
	shown.Notes = append(shown.Notes,
		"The rules that this client breaks are now in "+path+": commit this file, and run with --baseline "+path+".")
	return nil
}

func (v *verdictRun) reportToActions(shown *summary.Summary) error {
	if path := os.Getenv("GITHUB_STEP_SUMMARY"); path != "" {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, sharedFile) //nolint:gosec // GitHub's runner names the file
		if err != nil {
			return fmt.Errorf("GITHUB_STEP_SUMMARY: %w", err)
		}
		if err := cmp.Or(shown.Markdown(f), f.Close()); err != nil {
			return fmt.Errorf("GITHUB_STEP_SUMMARY: %w", err)
		}
	}
	if os.Getenv("GITHUB_ACTIONS") == "true" {
		return shown.Annotations(v.Stderr) // standard output may be JSON, so annotations go to standard error
	}
	return nil
}

// Without --shared-files, only the owner can read the written file, even if others could read an existing file at the path.
func (v *verdictRun) writeFile(path string, content []byte) error {
	mode := os.FileMode(privateFile)
	if v.shared {
		mode = sharedFile
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, mode)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() { // skip devices such as /dev/stdout
		err = cmp.Or(f.Chmod(mode), f.Truncate(0)) // restrict access before writing the content
	}
	if err == nil {
		_, err = f.Write(content)
	}
	return cmp.Or(err, f.Close())
}

// writePage writes the page of a single session to the file of --html. The pages of several sessions are written to a folder next to this
// file.
func (v *verdictRun) writePage(n shownSession, number int) error {
	path := v.html
	if number > 1 {
		if err := os.MkdirAll(filepath.Join(filepath.Dir(v.html), v.pageFolder()), 0o755); err != nil {
			return err
		}
		path = v.pagePath(number)
	}
	if number == 2 {
		if err := v.writePage(v.first, 0); err != nil {
			return err
		}
	}
	switch number {
	case 0:
		path = v.pagePath(1)
		_ = os.Remove(journalOf(v.html)) // the first session's journal is written to the folder instead
	case 1:
		v.first = n
	}
	link := html.EscapeString(url.PathEscape(filepath.Base(journalOf(path))))
	page := bytes.ReplaceAll(n.page, []byte(`href="journal"`), []byte(`href="`+link+`"`))
	return cmp.Or(v.writeFile(journalOf(path), n.journal), v.writeFile(path, page))
}

func journalOf(page string) string { return strings.TrimSuffix(page, ".html") + ".journal.ndjson" }

func (v *verdictRun) pageFolder() string {
	return strings.TrimSuffix(filepath.Base(v.html), ".html") + "-sessions"
}

func (v *verdictRun) pagePath(number int) string {
	return filepath.Join(filepath.Dir(v.html), v.pageFolder(), strconv.Itoa(number)+".html")
}

func (v *verdictRun) index(shown *summary.Summary) func(io.Writer) error {
	return func(w io.Writer) error {
		var links []string
		for i := range shown.Sessions {
			links = append(links, v.pageFolder()+"/"+strconv.Itoa(i+1)+".html")
		}
		return shown.Index(w, links)
	}
}

// write writes the requested files and prints the results. If a file cannot be written, it continues with the others.
func (v *verdictRun) write(shown *summary.Summary) error {
	index, print := v.html, shown.JSON
	if len(shown.Sessions) == 1 {
		index = "" // no index, because the file contains the page of the only session
	}
	failed := []error{v.unwritten}
	if v.unwritten != nil {
		shown.Page = ""
	}
	for _, file := range []struct {
		path  string
		write func(io.Writer) error
	}{{v.jsonFile, shown.JSON}, {v.junit, shown.JUnit}, {v.markdown, shown.Markdown}, {index, v.index(shown)}} {
		if file.path == "" {
			continue
		}
		var b bytes.Buffer
		failed = append(failed, cmp.Or(file.write(&b), v.writeFile(file.path, b.Bytes())))
	}
	if !v.json {
		print = func(w io.Writer) error { return shown.Text(w, term.Of(w, os.Getenv)) }
	}
	return errors.Join(append(failed, print(v.Stdout), v.reportToActions(shown))...)
}

const guessFile = "forgerun-api.yaml"

// writeGuess writes the description of the API that was guessed from the traffic, if there is one. It does not overwrite a user's file.
func (v *verdictRun) writeGuess(shown *summary.Summary) error {
	guess := shown.Guess()
	if guess == nil || len(v.targets) == 0 {
		return nil
	}
	if old, err := os.ReadFile(guessFile); err == nil && (v.api == guessFile || !strings.HasPrefix(string(old), "# "+proxy.GuessHeader)) {
		return nil
	}
	if err := os.WriteFile(guessFile, []byte(guess.YAML), sharedFile); err != nil {
		return fmt.Errorf("writing a description of the API: %w", err)
	}
	shown.Notes = append(shown.Notes, "An API description guessed from the traffic is in "+guessFile+": run again with --api "+guessFile+".")
	return nil
}
