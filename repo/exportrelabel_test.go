package repo

// AnyLabelAhead is the look for labels that no transaction can have given.
var AnyLabelAhead = anyLabelAhead
