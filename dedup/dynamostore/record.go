package dynamostore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// version is in every item. A release with another format raises version and still reads this
// one.
const version = 1

// states are the states of a record, as in the item.
var states = [...]string{
	decision.Open:    "open", // released, or waiting for a later copy
	decision.Claimed: "claimed", decision.Done: "done", decision.Dead: "dead",
}

// The attributes of an item, as in the package documentation.
const (
	aKey         = "key"
	aVersion     = "version"
	aState       = "state"
	aToken       = "token"
	aRev         = "rev"
	aLease       = "lease"
	aDoubt       = "doubt"
	aReopened    = "reopened"
	aFence       = "fence"
	aFailures    = "failures"
	aTakeovers   = "takeovers"
	aGeneration  = "generation"
	aRetry       = "retry"
	aFingerprint = "fingerprint"
	aTopic       = "topic"
	aPartition   = "partition"
	aOffset      = "offset"
	aTime        = "time"
	aReason      = "reason"
	aSchema      = "schema"
	aResult      = "result"
	aRetention   = "retention"
	aExpires     = "expires"
	aCreated     = "created"
	aChanged     = "changed"
	aBorn        = "born"
)

type item = map[string]types.AttributeValue

// record is the item of an event. Lease and LastCall of the embedded record are not in the item:
// [watch] measures leases, and conditions recognise a repeated call.
type record struct {
	decision.Record
	// grows by one with each write. rev and the token together identify a state of the item.
	rev     uint64
	lease   time.Duration // the length, if claimed
	expires int64         // seconds since 1970, by the clock of the writer, with a margin
}

// forgotten reports whether an existing record counts as absent, because DynamoDB deletes days
// late (H-22). No clock of this host forgets a claim: a claim ends with its lease.
func (r *record) forgotten(now time.Time) bool {
	return r.State != decision.Claimed && r.expires < now.Unix()
}

// stamp rounds the retention, and sets the ends of the record that follow from it.
func (r *record) stamp() {
	if r.State != decision.Claimed {
		r.lease = 0
	}
	r.Retention = seconds(r.Retention)
	r.Expires = r.Changed.Add(r.lease + r.Retention)
	r.expires = expiry(r.State, r.Changed.Add(r.lease), r.Retention)
}

// claimMargin is additional life of claims. DynamoDB deletes by its own clock, and the writer's
// clock sets the time. A difference of the clocks must not remove a held claim.
const claimMargin = 24 * time.Hour

// expiry is the value of the attribute that DynamoDB and this store compare with the time.
func expiry(state decision.State, from time.Time, retention time.Duration) int64 {
	m := claimMargin
	if state != decision.Claimed {
		m = margin(retention)
	}
	return ceil(from.Add(retention + m))
}

// margin covers clocks that differ: a hundredth of the retention, at least a minute, at most an
// hour.
func margin(retention time.Duration) time.Duration {
	return min(max(retention/100, time.Minute), time.Hour)
}

// ceil is t in seconds since 1970, rounded up.
func ceil(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }

// seconds and millis round up, so that retention and leases are never too short. Both limit the
// retention so that sums do not overflow.
func seconds(d time.Duration) time.Duration {
	return (min(d, maxRetention) + time.Second - 1).Truncate(time.Second)
}

const maxRetention = 100 * 365 * 24 * time.Hour

func millis(d time.Duration) int64 { return int64((d-1)/time.Millisecond) + 1 }

func number[N int | int32 | int64](n N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
}

func unsigned[N uint32 | uint64](n N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(uint64(n), 10)}
}

func text(s string) types.AttributeValue   { return &types.AttributeValueMemberS{Value: s} }
func binary(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }

var yes types.AttributeValue = &types.AttributeValueMemberBOOL{Value: true}

// encode returns the item. Values that are mostly zero are left out then: an item up to 1 KB costs
// one unit.
func (r *record) encode(key string) item {
	it := item{
		aKey: text(key), aVersion: number(version), aState: text(states[r.State]),
		aToken: binary(r.Token[:]), aRev: unsigned(r.rev),
		aFence: unsigned(r.Fence), aRetention: number(int64(r.Retention / time.Second)),
		aExpires: number(r.expires),
		aCreated: number(r.Created.UnixMilli()), aChanged: number(r.Changed.UnixMilli()),
	}
	for name, n := range map[string]uint32{
		aFailures: r.Failures, aTakeovers: r.Takeovers, aGeneration: r.Position.Generation,
		aRetry: r.Position.Retry, aSchema: r.Result.Schema,
	} {
		if n != 0 {
			it[name] = unsigned(n)
		}
	}
	if r.State == decision.Claimed {
		it[aLease] = number(millis(r.lease))
	}
	if r.Doubt {
		it[aDoubt] = yes
	}
	if r.Reopened {
		it[aReopened] = yes
	}
	if b := r.Fingerprint.Bytes(); b != nil {
		it[aFingerprint] = binary(b)
	}
	if r.Reason != "" {
		it[aReason] = text(r.Reason)
	}
	if r.Result.Data != nil {
		it[aResult] = binary(r.Result.Data)
	}
	for name, v := range originOf(r.First) {
		it[name] = v
	}
	return it
}

// known reports whether o has a field.
func known(o dedup.Origin) bool { return !o.Same(dedup.Origin{}) || !o.Time.IsZero() }

// originOf returns the attributes of an origin. An empty origin has no attribute.
func originOf(o dedup.Origin) item {
	if !known(o) {
		return nil
	}
	return item{aTopic: text(o.Topic), aPartition: number(o.Partition), aOffset: number(o.Offset),
		aTime: number(o.Time.UnixMilli())}
}

var (
	errVersion = errors.New("item of an unknown version")
	errItem    = errors.New("item is damaged")
)

// decode reads the item of key. decode accepts only values that encode and the updates write.
func decode(key string, it item) (*record, error) {
	d := decoder{item: it}
	if v := d.unsigned(aVersion, 32); d.bad == "" && v != version {
		return nil, fmt.Errorf("%w: %d", errVersion, v)
	}
	d.require(d.text(aKey) == key, aKey)
	state := slices.Index(states[:], d.text(aState))
	d.require(state >= 0, aState)
	r := &record{
		Record: decision.Record{
			State: decision.State(max(state, 0)), Fence: d.unsigned(aFence, 64),
			Failures:  uint32(d.unsigned(aFailures, 32)),
			Takeovers: uint32(d.unsigned(aTakeovers, 32)),
			Position: dedup.Position{
				Generation: uint32(d.unsigned(aGeneration, 32)),
				Retry:      uint32(d.unsigned(aRetry, 32)),
			},
			Doubt: d.flag(aDoubt), Reopened: d.flag(aReopened), Reason: d.text(aReason),
			First: d.origin(),
			Retention: time.Duration(d.number(aRetention,
				int64(maxRetention/time.Second))) * time.Second,
			Created: time.UnixMilli(d.number(aCreated, 1<<62)).UTC(),
			Changed: time.UnixMilli(d.number(aChanged, 1<<62)).UTC(),
			Result: dedup.Result{
				Schema: uint32(d.unsigned(aSchema, 32)), Data: d.binary(aResult),
			},
		},
		rev:     d.unsigned(aRev, 64),
		lease:   time.Duration(d.number(aLease, maxMillis)) * time.Millisecond,
		expires: d.number(aExpires, 1<<62),
	}
	d.fixed(aToken, r.Token[:])
	if b := d.binary(aFingerprint); b != nil {
		var ok bool
		r.Fingerprint, ok = dedup.ParseFingerprint(b)
		d.require(ok, aFingerprint)
	}
	if r.State == decision.Claimed {
		d.require(r.lease > 0, aLease)
	} else {
		r.lease = 0
	}
	r.Expires = r.Changed.Add(r.lease + r.Retention)
	d.require(r.expires > 0, aExpires)
	if d.bad != "" {
		return nil, fmt.Errorf("%w: attribute %s", errItem, d.bad)
	}
	return r, nil
}

const maxMillis = int64(maxRetention / time.Millisecond)

// decoder takes an item apart. A missing attribute reads as zero. bad names the first unreadable
// one.
type decoder struct {
	item item
	bad  string
}

func (d *decoder) require(ok bool, name string) {
	if !ok && d.bad == "" {
		d.bad = name
	}
}

func (d *decoder) digits(name string) (string, bool) {
	v, some := d.item[name]
	if !some {
		return "", false
	}
	n, ok := v.(*types.AttributeValueMemberN)
	d.require(ok, name)
	if !ok {
		return "", false
	}
	return n.Value, true
}

func (d *decoder) unsigned(name string, bits int) uint64 {
	s, some := d.digits(name)
	if !some {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, bits)
	d.require(err == nil, name)
	return n
}

func (d *decoder) number(name string, most int64) int64 {
	s, some := d.digits(name)
	if !some {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	d.require(err == nil && n <= most, name)
	return n
}

func (d *decoder) text(name string) string {
	v, some := d.item[name]
	if !some {
		return ""
	}
	s, ok := v.(*types.AttributeValueMemberS)
	d.require(ok, name)
	if !ok {
		return ""
	}
	return s.Value
}

// binary is nil only if the attribute is missing.
func (d *decoder) binary(name string) []byte {
	v, some := d.item[name]
	if !some {
		return nil
	}
	b, ok := v.(*types.AttributeValueMemberB)
	d.require(ok, name)
	if !ok {
		return nil
	}
	return append([]byte{}, b.Value...)
}

func (d *decoder) fixed(name string, into []byte) {
	b := d.binary(name)
	d.require(len(b) == len(into), name)
	copy(into, b)
}

func (d *decoder) flag(name string) bool {
	v, some := d.item[name]
	if !some {
		return false
	}
	b, ok := v.(*types.AttributeValueMemberBOOL)
	d.require(ok, name)
	return ok && b.Value
}

func (d *decoder) origin() (o dedup.Origin) {
	if _, some := d.item[aOffset]; !some {
		return o
	}
	o.Topic = d.text(aTopic)
	o.Offset = d.number(aOffset, 1<<63-1)
	partition := d.number(aPartition, 1<<31-1)
	o.Partition = int32(partition)
	d.require(int64(o.Partition) == partition, aPartition)
	o.Time = time.UnixMilli(d.number(aTime, 1<<62)).UTC()
	return o
}

// next is a copy of r to be changed and written.
func (r *record) next() *record {
	n := *r
	n.rev++
	return &n
}
