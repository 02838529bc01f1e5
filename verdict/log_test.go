package verdict

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A Log stores every field of an exchange, and distinguishes exchanges that differ in one field.
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
		want := value.Interface()
		log.Add(&x)
		kept := log.kept[log.Len()-1]
		if name == "End" {
			require.Equal(t, want, kept.End())
			continue
		}
		require.Equal(t, want, reflect.ValueOf(kept).Elem().FieldByName(name).Interface(), name)
	}
	size := log.Len()
	for range 10 {
		log.Add(&Exchange{Path: "a", Shown: []string{"a"}})
		require.Same(t, log.kept[size].Exchange, log.kept[log.Len()-1].Exchange)
	}
}
