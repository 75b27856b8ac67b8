package otelidem

// Recording returns the number of runs whose spans have not ended.
func (o *Observer) Recording() int64 { return o.spans.recording.Load() }
