package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// docs/explanation/reliability.md names every end-to-end test here, and none that does not
// exist.
func TestReliabilityPageNamesEveryTest(t *testing.T) {
	t.Parallel()
	unlisted := map[string]bool{ // about this program's papers and its contract, not about faults
		"TestMain": true, "TestReliabilityPageNamesEveryTest": true, "TestConfigurationPageListsWhatExists": true,
		"TestImportRulesHold": true, "TestImportRulesCatch": true,
		"TestConformancePageNamesTestsThatExist": true, "TestAPIPageListsTheCatalogue": true, "TestEndToEndFlow": true,
		"TestDocumentationNamesFilesThatExist": true,
		"TestWaitingForTheEnd":                 true, "TestGCPercent": true, "TestAllowedGarbage": true, "TestAfterEachCollection": true,
		"TestBatchWithMixedEnds": true, "TestBatchIsCanceled": true,
		"TestBatchWithCanceledItems": true, "TestRefusedItemHasAnInstance": true,
		"TestLinesOfAnActionHaveItsRequestID":   true,
		"TestOutcomeDocumentsConformToTheDraft": true, "TestLinkRelationsAreRegisteredOrURIs": true,
		"TestWebhookSuccess": true, "TestWebhookOfAFailure": true, "TestWebhookOfAnEmittedEvent": true, "TestWebhookSlowReceiver": true,
		"TestDeliveryIsPrompt": true, "TestRotation": true, "TestOutcomeStream": true, "TestNoOutcomeStream": true,
		"TestReceiversAccept": true, "TestReceiversRefuse": true, "TestWebhooksPageQuotesTheSnippets": true,
		"TestTraceOfAJob": true, "TestTraceOfARetry": true, "TestTraceOfACancel": true, "TestTraceOfAKey": true,
		"TestEveryProcessShowsEveryMetric": true, "TestMetricsAndLogsAgreeWithRows": true, "TestQueueDashboardInABrowser": true,
		"TestTracingIsConfigured": true, "TestDoctorFindsStuckJobs": true, "TestDoctorFindsAnotherMasterKey": true, "TestMaskAddress": true,
		"TestScheduleFromEndToEnd": true, "TestEveryCommandHelps": true, "TestEveryCommandRefusesWhatItDoesNotKnow": true,
		"TestConsoleInABrowser": true,
		"TestOperatorChanges":   true, "TestConsoleErasesAClient": true, "TestConsolePages": true,
		"TestDashboardsAndRulesUseMetricsThatExist": true, "TestDoctorFindsAHealthyStackHealthy": true, "TestDoctorFindsWhatIsWrong": true,
		"TestDoctorOfDev": true, "TestDocumentedRequestsWork": true, "TestDocumentsSuitTheTools": true, "TestTypeScriptClient": true,
		"TestDashboardAgreesWithTheRows": true, "TestDashboardShowsDeferredJobs": true, "TestDashboardShowsRetries": true,
		"TestRetriesStartWhenTheyAreDue": true,
		"TestDoctorUsage":                true, "TestDoctorJudgesPostgres": true, "TestDoctorJudgesRedis": true,
		"TestDoctorKnowsEveryObstacle": true,
		"TestDoctorJudgesTheOthers":    true, "TestDoctorJudgesTheConfiguration": true, "TestRunbookFitsTheStores": true,
		"TestSelectorsAreFound": true, "TestWhatIsNotFinished": true, "TestResultOfAJobWithoutOne": true, "TestProblemsTellWhatToDo": true,
		"TestIdempotencyConflictNamesWhatWasMade": true,
		"TestClientLibrary":                       true, "TestClientLibraryBatch": true, "TestClientLibraryVerifiesWebhooks": true,
		"TestFailureThatIsNotRetryableIsNotRetried": true, "TestCancelAndItsRepetition": true,
		"TestBulkCancelIsAborted": true, "TestConsoleBulk": true, "TestAxeIsAsPublished": true,
		"TestFaultsOnTheWire": true, "TestFaultsOfStreams": true, "TestOurClientIsRight": true, "TestNaiveClientIsCaught": true,
		"TestDisturbedDeliveries": true, "TestFaultsOfDeliveriesAreChecked": true, "TestFixtures": true, "TestDevChaosUsage": true,
		"TestReset": true, "TestExampleClientsAreRight": true, "TestExampleMistakesAreNamed": true,
		"TestTutorialOfTheTestBed": true, "TestClientLibraryOfATestBed": true,
		"TestCustomJobDoesWhatItsRequestSays": true, "TestCustomJobIsCanceled": true, "TestParamsThatChangeNothingAreNamed": true,
		"TestWithoutATestBedThereIsNoCustomKind": true, "TestClockMoves": true, "TestWhatFollowsTheClock": true,
		"TestDeliveriesFollowTheClock": true, "TestMovedClockNeedsATestBed": true, "TestAJobAnHourForManyDays": true,
		"TestPackagingNamesVariablesThatExist": true, "TestUnitsStartRoles": true, "TestUnitsAreSound": true,
		"TestReleaseNamesFilesThatExist": true,
		"TestTypeScriptLibrary":          true, "TestPythonLibrary": true, "TestClientLibrariesAreRight": true,
		"TestDocumentationTypesOfClients": true,
		"TestCommandLine":                 true, "TestConsoleIsOpened": true, "TestCompletionScripts": true, "TestManPages": true,
		"TestPageListsTheHelpOfTheProgram": true, "TestPageListsCommandsThatExist": true, "TestDevInATerminal": true,
		"TestPagesOfNamedOrigins":               true,
		"TestAllOriginsNeedClosedRegistration":  true,
		"TestDocsPage":                          true,
		"TestDocsPageTriesRequests":             true,
		"TestTakenAdminAddress":                 true,
		"TestProfiles":                          true,
		"TestDocumentationLinks":                true,
		"TestCommandsOnPagesRun":                true,
		"TestKubernetesFilesStartRoles":         true,
		"TestDocumentationLinksNamesOfHeadings": true,
	}
	page, err := os.ReadFile("../../docs/explanation/reliability.md")
	require.NoError(t, err)
	named := map[string]bool{}
	for _, name := range regexp.MustCompile(`\bTest\w+\b`).FindAllString(string(page), -1) {
		named[name] = true
	}
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(t`).FindAllStringSubmatch(string(content), -1) {
			name := match[1]
			require.True(t, named[name] || unlisted[name], "%s is not in docs/explanation/reliability.md", name)
		}
	}
	delete(named, "TestFlushAll") // the pattern in the last line
	exist := existingTests(t)
	for name := range named {
		require.True(t, exist[name], "%s is named in docs/explanation/reliability.md, but nowhere else", name)
	}
}

// existingTests are the names of the tests of all packages.
func existingTests(t *testing.T) map[string]bool {
	t.Helper()
	exist := map[string]bool{}
	err := filepath.WalkDir("../..", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(t`).FindAllStringSubmatch(string(content), -1) {
			exist[match[1]] = true
		}
		return nil
	})
	require.NoError(t, err)
	return exist
}

// Every test that the pages on conformance name exists, in some package, and
// each row of their tables names one or says that there is none.
func TestConformancePageNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	exist := existingTests(t)
	pages, err := filepath.Glob("../../docs/explanation/conformance/*.md")
	require.NoError(t, err)
	require.Len(t, pages, 2, "the contract and the patterns")
	for _, page := range append(pages, "../../docs/explanation/conformance.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		rules, columns := 0, 0
		for line := range strings.Lines(string(text)) {
			cells := strings.Split(strings.TrimSpace(line), "|")
			if strings.HasPrefix(line, "| section |") {
				columns = len(cells)
			}
			if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| section |") {
				continue
			}
			rules++
			require.Len(t, cells, columns, line)
			named := strings.TrimSpace(cells[columns-2])
			if named == "not tested" {
				continue
			}
			require.NotEmpty(t, named, "%s: a rule without a test: %s", page, line)
			for name := range strings.SplitSeq(named, ", ") {
				require.True(t, exist[name], "%s: %q does not exist", page, name)
			}
		}
		require.Greater(t, rules, 50, page)
	}
}

// The table of work kinds in docs/reference/api.md is the catalogue.
func TestAPIPageListsTheCatalogue(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/api.md")
	require.NoError(t, err)
	for _, kind := range job.Kinds() {
		spec, _ := job.SpecOf(kind, 0)
		duration, size := strconv.FormatInt(spec.DurationMS, 10)+" ms", strconv.Itoa(spec.PayloadSize/1024)+" KiB"
		switch kind {
		case job.RunsOverTimeout:
			duration = "limit + 1000 ms"
		case job.PayloadInvalid:
			duration, size = "-", "-"
		}
		row := "| `" + string(kind) + "` | " + duration + " | " + size + " | " + spec.Expected
		require.Contains(t, strings.ReplaceAll(string(page), ",", ""), row)
	}
}

// sourceFile is a file of this repository as documentation names it.
var sourceFile = regexp.MustCompile(
	"`((?:app|client|cmd|handlers|internal|job|migrations|monitoring|repo|scripts|tasks|webhook)/[\\w./-]+\\.\\w+)`")

// Every file that the documentation names exists.
func TestDocumentationNamesFilesThatExist(t *testing.T) {
	t.Parallel()
	pages := []string{"../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md"}
	for _, pattern := range []string{"../../docs/*/*.md", "../../docs/explanation/conformance/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, named := range sourceFile.FindAllStringSubmatch(string(text), -1) {
			name := strings.Replace(named[1], "NNNNN_what", "00001_core", 1) // the name of a migration to come
			found, err := filepath.Glob("../../" + name)
			require.NoError(t, err)
			require.NotEmpty(t, found, "%s in %s", name, page)
		}
	}
}
