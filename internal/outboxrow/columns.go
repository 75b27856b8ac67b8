package outboxrow

import "github.com/idem-go/idem/outbox"

// Columns returns the values of rows for database/sql: shard, topic, key, event_id, event_type,
// payload and headers of each entry.
func Columns(entries []outbox.Entry) ([]any, error) {
	args := make([]any, 0, 7*len(entries))
	for i := range entries {
		e := &entries[i]
		headers, err := EncodeHeaders(e.Headers)
		if err != nil {
			return nil, err
		}
		var key, payload, column any // a nil slice in an interface is not NULL for each driver
		if e.Key != "" {
			key = []byte(e.Key)
		}
		if e.Payload != nil {
			payload = e.Payload
		}
		if headers != nil {
			column = *headers
		}
		args = append(args, ShardOf(e), e.Topic, key, e.ID, e.Type, payload, column)
	}
	return args, nil
}
