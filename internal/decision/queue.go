package decision

import "crypto/sha256"

// ShortQueue is the longest name of a queue that a store keeps unchanged as a key. An index entry
// of a database holds about 2,700 bytes, and a Kafka key may be larger.
const ShortQueue = 512

// QueueKey is the key of a queue in the tables of a store, never nil. A name longer than
// [ShortQueue] becomes its beginning and its hash. Together these are longer than any name that is
// kept unchanged.
func QueueKey(name string) []byte {
	if len(name) <= ShortQueue {
		return append([]byte{}, name...) // never nil, which would be null
	}
	sum := sha256.Sum256([]byte(name))
	return append([]byte(name[:ShortQueue]), sum[:]...)
}
