package repo

import "context"

// CursorKey gives the secret that signs the cursors of lists: 32 bytes, the
// same for all processes and at all times.
func (s *Store) CursorKey(ctx context.Context) (key []byte, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.pool.QueryRow(ctx, `SELECT cursor_key FROM maintenance_state`).Scan(&key); err != nil {
		return nil, s.failed("read", err)
	}
	return key, nil
}
