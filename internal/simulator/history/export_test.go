package history

// BucketOf is for tests.
var BucketOf = bucketOf
