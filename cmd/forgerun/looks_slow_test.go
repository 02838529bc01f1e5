//go:build slow

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func init() {
	looks = []look{{360, "light"}, {360, "dark"}, {1400, "light"}, {1400, "dark"}}
	accessible = requireAccessible
	verifiers = allVerifiers
}

// requireAccessible fails if axe, an accessibility checker, finds serious or critical problems in the visible page. Before the check,
// requireAccessible removes collapsed parts of the page, because axe is slow with many elements.
func requireAccessible(c *consoleTab, at string) {
	c.t.Helper()
	if !evaluate[bool](c, `!!window.axe`) {
		text, err := os.ReadFile("testdata/axe/axe.min.js")
		require.NoError(c.t, err)
		// A reloading page is dimmed. axe would report its low contrast.
		const undimmed = `; (sheet => { sheet.replaceSync(".page { opacity: 1 !important; transition: none !important }");
			document.adoptedStyleSheets = [sheet]; })(new CSSStyleSheet()); true`
		evaluate[bool](c, string(text)+undimmed)
	}
	evaluate[bool](c, `window.parked = [...document.querySelectorAll("details:not([open]) > :not(summary)")].map(e => [e, e.parentElement]),
		parked.forEach(([e]) => e.remove()), true`)
	found := evaluate[string](c, `axe.run(document, { resultTypes: ["violations"] }).then(r => JSON.stringify(
		r.violations.filter(v => v.impact === "serious" || v.impact === "critical").map(v => [v.id, v.impact,
			v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + " " + (n.any[0]?.message || n.failureSummary || ""))])))`)
	evaluate[bool](c, `parked.forEach(([e, parent]) => parent.append(e)), true`)
	violations := parsed[[]any](c.t, found)
	require.Empty(c.t, violations, at)
}

func allVerifiers(t *testing.T) []verifier {
	t.Helper()
	bySecret := func(name, remedy string, command ...string) verifier {
		return verifier{name: name, missing: missingProgram(command[0], remedy), command: command, secretOnly: true}
	}
	classes := t.TempDir()
	java := bySecret("Java", "install a JDK", "java", "-XX:TieredStopAtLevel=1", "-cp", classes, "Verify")
	if java.missing == "" {
		java.missing = missingProgram("javac", "install a JDK")
	}
	if java.missing == "" {
		runIn(t, snippets, nil, "javac", "-d", classes, "Verify.java")
	}
	return []verifier{
		goVerifier(t), npmVerifier(t), nodeVerifier(), pythonVerifier(t), java,
		bySecret("Ruby", "install Ruby 3", "ruby", filepath.Join(snippets, "verify.rb")),
		bySecret("PHP", "install PHP 8", "php", filepath.Join(snippets, "verify.php")),
		bySecret("C#", "install .NET 10", "dotnet", "run", filepath.Join(snippets, "Verify.cs")),
		bySecret("a shell", "install openssl", "sh", filepath.Join(snippets, "verify.sh")),
	}
}

func nodeVerifier() verifier {
	return verifier{
		name: "Node alone", missing: missingProgram("node", "install Node 20 or later"),
		command: []string{"node", filepath.Join(snippets, "verify-plain.mjs")},
	}
}

func npmVerifier(t *testing.T) verifier {
	v := verifier{name: "Node with npm packages", missing: missingProgram("node", "install Node 20 or later")}
	if v.missing == "" {
		v.missing = missingProgram("npm", "install npm")
	}
	if v.missing != "" {
		return v
	}
	packages, err := npmPackages()
	if err != nil {
		v.missing = "its npm packages cannot be installed; run npm ci in docs/examples/webhooks to see why: " + err.Error()
		return v
	}
	dir := t.TempDir()
	v.command = []string{"node", filepath.Join(dir, "verify.mjs")}
	script, err := os.ReadFile(filepath.Join(snippets, "verify.mjs"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(v.command[1], script, 0o600))
	require.NoError(t, os.Symlink(packages, filepath.Join(dir, "node_modules")))
	return v
}

// npmPackages returns a folder with the packages in the snippets' lock file. npmPackages installs them once per lock file. Several test
// processes may install at the same time. The first process to finish renames its folder into the cache.
var npmPackages = sync.OnceValues(func() (string, error) {
	lock, err := os.ReadFile(filepath.Join(snippets, "package-lock.json"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256(lock)
	home := filepath.Join(cache, "forgerun-test")
	place := filepath.Join(home, "npm-"+hex.EncodeToString(sum[:8]))
	packages := filepath.Join(place, "node_modules")
	if _, err := os.Stat(packages); err == nil {
		return packages, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(home, "installing-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join(snippets, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(work, name), content, 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--loglevel=error")
	install.Dir = work
	if output, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(output))
	}
	if err := os.Rename(work, place); err != nil {
		if _, lost := os.Stat(packages); lost != nil {
			return "", err
		}
	}
	return packages, nil
})

func pythonVerifier(t *testing.T) verifier {
	v := verifier{name: "Python", missing: missingProgram("python3", "install Python 3.9 or later")}
	v.command = []string{"python3", filepath.Join(snippets, "verify.py")}
	if v.missing == "" && exec.CommandContext(t.Context(), "python3", "-c", "import cryptography").Run() != nil {
		v.missing = "its package cryptography is missing; pip install cryptography"
	}
	return v
}
