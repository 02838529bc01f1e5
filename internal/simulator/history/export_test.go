package history

import "os"

// BucketOf is for tests.
var BucketOf = bucketOf

// WriteTo makes the writer keep facts about no job in the file.
func (w *Writer) WriteTo(file *os.File) error {
	b := &w.buckets[Loose]
	err := b.file.Close()
	b.file = file
	b.out.Reset(file)
	return err
}
