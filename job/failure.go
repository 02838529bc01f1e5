package job

// Reason is the reason for a failed attempt. A Reason is also the last part of a problem type URI. These URIs are public, so the meaning of
// a Reason never changes.
type Reason string

// Reasons for failed attempts.
const (
	FailedImmediately   Reason = "failed-immediately"
	FailedAfterProgress Reason = "failed-after-progress"
	DependencyFailed    Reason = "dependency-failed"
	FailedOnce          Reason = "failed-once"
	FailedAgain         Reason = "failed-again"
	TimedOut            Reason = "job-timed-out"
	WorkerLost          Reason = "worker-lost"
	WorkerShutdown      Reason = "worker-shutdown"
	WorkerExhausted     Reason = "worker-exhausted"
	DefinitionInvalid   Reason = "definition-invalid"
	OutputInvalid       Reason = "output-invalid"
	WorkPanicked        Reason = "work-panicked"
	CustomFailed        Reason = "custom-failure"
)

// Stage is the processing step in which an attempt failed (async-problem-details, section 3.8, table 3).
type Stage string

// Stages of table 3.
const (
	StageValidation    Stage = "validation"
	StageAuthorization Stage = "authorization"
	StageQueuing       Stage = "queuing"
	StageProcessing    Stage = "processing"
	StageRendering     Stage = "rendering"
	StageConversion    Stage = "conversion"
	StageStorage       Stage = "storage"
	StageDelivery      Stage = "delivery"
)

// StageSpec describes a stage.
type StageSpec struct {
	Stage Stage
	About string
}

// Stages documents all stages. A server must document its stages (async-problem-details, section 3.8).
var Stages = []StageSpec{
	{StageValidation, "The input was invalid. The input of a batch item is checked at submission, that of a job right after its start."},
	{StageAuthorization, "The job lacked permission for its work. No predefined work kind fails at this stage."},
	{StageQueuing, "The job could not be queued. No predefined work kind fails at this stage: if the queue is full, the submission is " +
		"refused."},
	{StageProcessing, "The work itself failed, ran too long, timed out on a dependency, or lost its worker."},
	{StageRendering, "The work failed while it assembled its output."},
	{StageConversion, "The work failed while it converted data from one form into another. No predefined work kind fails at this stage."},
	{StageStorage, "The result could not be stored, or was not complete."},
	{StageDelivery, "The outcome could not be delivered to the client's address. This does not change the outcome of the job."},
}

// ReasonSpec describes a reason.
type ReasonSpec struct {
	Reason    Reason
	Code      Code
	Stage     Stage
	Retryable bool // another attempt may succeed; if false, /retry is refused
	Title     string
	Detail    string
}

// Reasons is the table of all reasons.
var Reasons = []ReasonSpec{
	{FailedImmediately, CodeInternal, StageValidation, false, "Job failed at once", "The job's input was refused right after the start."},
	{FailedAfterProgress, CodeInternal, StageRendering, false, "Job failed after progress", "The job failed after part of its work was done."},
	{DependencyFailed, CodeDependencyTimeout, StageProcessing, true, "Job failed because of a dependency",
		"A dependency of the job did not respond in time."},
	{FailedOnce, CodeDependencyTimeout, StageProcessing, true, "Job failed, a retry will help", "A transient fault ended this attempt."},
	{FailedAgain, CodeDependencyTimeout, StageProcessing, true, "Job failed because of a recurring fault",
		"An intermittent fault ended this attempt."},
	{TimedOut, CodeTimeout, StageProcessing, true, "Job timed out", "The job ran longer than the execution limit."},
	{WorkerLost, CodeWorkerUnavailable, StageProcessing, true, "Worker lost", "The worker that ran the job stopped responding."},
	{WorkerShutdown, CodeWorkerUnavailable, StageProcessing, true, "Worker shut down",
		"The worker that ran the job was shut down before the job ended."},
	{WorkerExhausted, CodeWorkerUnavailable, StageProcessing, true, "Worker out of resources",
		"The worker that ran the job had no disk space, memory or file handles left for it."},
	{DefinitionInvalid, CodeInternal, StageProcessing, false, "Job definition unusable",
		"The job's definition is missing or damaged; nothing was run."},
	{OutputInvalid, CodeInternal, StageStorage, false, "Job output unusable", "The job ended without a complete result."},
	{WorkPanicked, CodeInternal, StageProcessing, false, "Job crashed", "The job's work ended unexpectedly."},
	{CustomFailed, CodeDependencyTimeout, StageProcessing, true, "Job failed as requested",
		"The request for the job asked for this attempt to fail."},
}

// Spec returns the description of r. For an unknown reason, it returns the description of WorkPanicked.
func (r Reason) Spec() ReasonSpec {
	for _, s := range Reasons {
		if s.Reason == r {
			return s
		}
	}
	return WorkPanicked.Spec()
}

// Failure is the failure of one attempt. It is stored with the attempt and never changes.
type Failure struct {
	Reason     Reason
	Code       Code
	Retryable  bool
	RetryAfter int // whole seconds, at least 1 when Retryable, else 0
	Stage      Stage
	Detail     string // English text
}

// In returns the detail in the given language. Languages other than English have one fixed text per reason.
func (f *Failure) In(language string) string {
	if t, ok := translations[language][f.Reason]; ok {
		return t.detail
	}
	return f.Detail
}

// NewFailure returns the failure of an attempt with the given reason. For a retryable failure, b determines RetryAfter.
func NewFailure(r Reason, attempt int, b Backoff) *Failure {
	s := r.Spec()
	f := &Failure{Reason: s.Reason, Code: s.Code, Retryable: s.Retryable, Stage: s.Stage, Detail: s.Detail}
	if f.Retryable {
		f.RetryAfter = b.RetryAfter(attempt)
	}
	return f
}

// Languages are the languages of titles and details in outcome documents; the first is the default.
var Languages = []string{"en", "de", "fr"}

// Title returns the title in the given language, or in English if the language is not one of Languages.
func (r Reason) Title(language string) string {
	if t, ok := translations[language][r]; ok {
		return t.title
	}
	return r.Spec().Title
}

type translation struct{ title, detail string }

var translations = map[string]map[Reason]translation{
	"de": {
		FailedImmediately: {"Job sofort fehlgeschlagen", "Die Eingabe des Jobs wurde gleich nach dem Start abgelehnt."},
		FailedAfterProgress: {"Job nach einem Teil der Arbeit fehlgeschlagen",
			"Der Job ist fehlgeschlagen, nachdem ein Teil seiner Arbeit getan war."},
		DependencyFailed: {"Job an einer Abhängigkeit gescheitert", "Ein Dienst, den der Job braucht, hat nicht rechtzeitig geantwortet."},
		FailedOnce:       {"Job fehlgeschlagen, ein neuer Versuch hilft", "Eine vorübergehende Störung hat diesen Versuch beendet."},
		FailedAgain: {"Job an einer wiederkehrenden Störung gescheitert",
			"Eine Störung, die kommt und geht, hat diesen Versuch beendet."},
		TimedOut:       {"Zeit des Jobs abgelaufen", "Der Job lief länger, als die Grenze der Laufzeit erlaubt."},
		WorkerLost:     {"Worker verloren", "Der Worker, der den Job ausführte, antwortet nicht mehr."},
		WorkerShutdown: {"Worker heruntergefahren", "Der Worker, der den Job ausführte, wurde vor dem Ende des Jobs heruntergefahren."},
		WorkerExhausted: {"Worker ohne Betriebsmittel",
			"Der Worker, der den Job ausführte, hatte dafür keinen Platz, Speicher oder keine Dateien mehr frei."},
		DefinitionInvalid: {"Definition des Jobs unbrauchbar", "Die Definition des Jobs fehlt oder ist beschädigt; nichts wurde ausgeführt."},
		OutputInvalid:     {"Ausgabe des Jobs unbrauchbar", "Der Job endete ohne vollständiges Ergebnis."},
		WorkPanicked:      {"Job abgestürzt", "Die Arbeit des Jobs endete unerwartet."},
		CustomFailed:      {"Job wie verlangt fehlgeschlagen", "Der Auftrag sagt, dass dieser Versuch fehlschlägt."},
	},
	"fr": {
		FailedImmediately:   {"Échec immédiat de la tâche", "L'entrée de la tâche a été refusée juste après le démarrage."},
		FailedAfterProgress: {"Échec de la tâche en cours de route", "La tâche a échoué alors qu'une partie du travail était faite."},
		DependencyFailed:    {"Échec de la tâche sur une dépendance", "Un service dont la tâche dépend n'a pas répondu à temps."},
		FailedOnce:          {"Échec de la tâche, une nouvelle tentative aidera", "Une panne passagère a mis fin à cette tentative."},
		FailedAgain:         {"Échec de la tâche sur une panne récurrente", "Une panne intermittente a mis fin à cette tentative."},
		TimedOut:            {"Délai de la tâche dépassé", "La tâche a duré plus longtemps que la limite d'exécution."},
		WorkerLost:          {"Exécuteur perdu", "L'exécuteur qui traitait la tâche ne répond plus."},
		WorkerShutdown:      {"Exécuteur arrêté", "L'exécuteur qui traitait la tâche a été arrêté avant la fin de celle-ci."},
		WorkerExhausted: {"Exécuteur à court de ressources",
			"L'exécuteur qui traitait la tâche n'avait plus de place, de mémoire ou de fichiers pour elle."},
		DefinitionInvalid: {"Définition de la tâche inutilisable",
			"La définition de la tâche manque ou est endommagée ; rien n'a été exécuté."},
		OutputInvalid: {"Sortie de la tâche inutilisable", "La tâche s'est terminée sans résultat complet."},
		WorkPanicked:  {"Plantage de la tâche", "Le travail de la tâche s'est terminé de façon inattendue."},
		CustomFailed:  {"Échec de la tâche comme demandé", "La demande dit que cette tentative échoue."},
	},
}
