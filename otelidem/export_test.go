package otelidem

// Recording is how many runs have spans that are not ended.
func (o *Observer) Recording() int64 { return o.spans.recording.Load() }
