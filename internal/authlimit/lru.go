package authlimit

import "container/list"

// lru is a table of bounded size that forgets what was used longest ago.
type lru[K comparable, V any] struct {
	max     int
	entries map[K]*list.Element
	order   *list.List // used last at the front
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](size int) *lru[K, V] {
	return &lru[K, V]{size, map[K]*list.Element{}, list.New()}
}

// get gives what is stored, and counts as a use of it.
func (t *lru[K, V]) get(key K) (value V, ok bool) {
	e, ok := t.entries[key]
	if !ok {
		return value, false
	}
	t.order.MoveToFront(e)
	return e.Value.(*entry[K, V]).value, true
}

func (t *lru[K, V]) put(key K, value V) {
	t.remove(key)
	t.entries[key] = t.order.PushFront(&entry[K, V]{key, value})
	if len(t.entries) > t.max {
		t.remove(t.order.Back().Value.(*entry[K, V]).key)
	}
}

func (t *lru[K, V]) remove(key K) {
	if e, ok := t.entries[key]; ok {
		t.order.Remove(e)
		delete(t.entries, key)
	}
}
