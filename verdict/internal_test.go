package verdict

import (
	"cmp"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/fault"
)

func TestLogStoresEachField(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	log := &Log{}
	log.Add(&Exchange{Start: at, End: at})
	members := reflect.TypeFor[Exchange]()
	for i := range members.NumField() {
		name := members.Field(i).Name
		x := Exchange{Start: at, End: at}
		value := reflect.ValueOf(&x).Elem().Field(i)
		switch v := value.Addr().Interface().(type) {
		case *string:
			*v = "a"
		case *Role:
			*v = Submit
		case *bool:
			*v = true
		case *int:
			*v = 1
		case *uint64:
			*v = 1
		case *[]string:
			*v = []string{"a"}
		case *time.Time:
			*v = at.Add(-time.Minute)
			x.End = at.Add(time.Minute)
		default: // a pointer
			value.Set(reflect.New(value.Type().Elem()))
		}
		log.Add(&x)
		kept := log.kept[log.Len()-1]
		switch name {
		case "End":
			require.Equal(t, x.End, x.Start.Add(kept.took))
		default:
			require.Equal(t, value.Interface(), reflect.ValueOf(kept).Elem().FieldByName(name).Interface(), name)
		}
	}
	size := log.Len()
	for range 10 {
		log.Add(&Exchange{Path: "a", Shown: []string{"a"}})
		require.Same(t, log.kept[size].request, log.kept[log.Len()-1].request)
		require.Same(t, log.kept[size].response, log.kept[log.Len()-1].response)
	}
}

func TestRulesAreComplete(t *testing.T) {
	t.Parallel()
	require.Len(t, rules, len(checks))
	for _, r := range rules {
		require.NotNil(t, r.check, r.id)
		for _, text := range []string{r.title, r.exercise, r.untested, r.fix.Text, r.fix.Python, r.fix.TypeScript, r.fix.Go} {
			require.NotEmpty(t, text, r.id)
		}
		for _, d := range []demand{r.demand, cmp.Or(r.standard, r.demand)} {
			require.Contains(t, []Level{Must, Should}, d.level, r.id)
			require.NotEmpty(t, d.see, r.id)
			require.NotEmpty(t, d.quote, r.id)
		}
		require.Subset(t, fault.Profiles, r.profiles, r.id)
	}
}
