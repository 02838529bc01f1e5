package job

import "fmt"

// Languages are those of titles and details in outcome documents; the first is
// the default.
var Languages = []string{"en", "de", "fr"}

// Title gives the reason's title in a language, English if it is not one of
// Languages.
func (r Reason) Title(language string) string {
	if t, ok := translations[language][r]; ok {
		return t.title
	}
	return r.Spec().Title
}

type translation struct{ title, detail string }

// translations of the table Reasons, which is the English one.
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

// batchText is what documents say of batches in one language.
type batchText struct {
	partial, failed            string // titles
	succeededItems             counted
	failedItems, canceledItems counted
	all                        string // every failed item is listed
	some                       string // listed, failed
	refused                    string // detail of an item that was not accepted; "": as it was stored
}

// counted is a phrase with a number: for 1, and for any other.
type counted struct{ one, many string }

func (c counted) of(n int, more ...any) string {
	phrase := c.many
	if n == 1 {
		phrase = c.one
	}
	return fmt.Sprintf(phrase, append([]any{n}, more...)...)
}

var batchTexts = map[string]batchText{
	"en": {
		"Batch partially failed", "Batch failed",
		counted{"%d of %d items completed successfully", "%d of %d items completed successfully"},
		counted{", %d failed", ", %d failed"}, counted{", %d was canceled", ", %d were canceled"},
		" Only failed items are listed.", " The first %d of %d failed items are listed.",
		"",
	},
	"de": {
		"Stapel teilweise fehlgeschlagen", "Stapel fehlgeschlagen",
		counted{"%d von %d Einträgen war erfolgreich", "%d von %d Einträgen waren erfolgreich"},
		counted{", %d ist fehlgeschlagen", ", %d sind fehlgeschlagen"}, counted{", %d wurde abgebrochen", ", %d wurden abgebrochen"},
		" Nur fehlgeschlagene Einträge sind aufgeführt.", " Die ersten %d von %d fehlgeschlagenen Einträgen sind aufgeführt.",
		"Der Eintrag wurde bei der Einreichung abgelehnt.",
	},
	"fr": {
		"Échec partiel du lot", "Échec du lot",
		counted{"%d élément sur %d a réussi", "%d éléments sur %d ont réussi"},
		counted{", %d a échoué", ", %d ont échoué"}, counted{", %d a été annulé", ", %d ont été annulés"},
		" Seuls les éléments en échec sont listés.", " Les %d premiers éléments en échec sur %d sont listés.",
		"L'élément a été refusé à la soumission.",
	},
}

func batchTextOf(language string) batchText {
	if t, ok := batchTexts[language]; ok {
		return t
	}
	return batchTexts[Languages[0]]
}

func (t batchText) summary(o *BatchOutcome, items int) string {
	s := t.succeededItems.of(o.Succeeded, items)
	if o.Failed > 0 {
		s += t.failedItems.of(o.Failed)
	}
	if o.Canceled > 0 {
		s += t.canceledItems.of(o.Canceled)
	}
	s += "."
	switch {
	case o.Failed == 0:
		return s
	case len(o.Failures) == o.Failed:
		return s + t.all
	default:
		return s + fmt.Sprintf(t.some, len(o.Failures), o.Failed)
	}
}
