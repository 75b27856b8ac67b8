package dynamostore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/idem-go/idem/dedup"
)

// version is in every item. A release with another format raises version and still reads this
// one.
const version = 1

// The states of a record, as in the item.
const (
	claimed = "claimed"
	open    = "open" // released, or waiting for a later copy
	done    = "done"
	dead    = "dead"
)

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

// record is the item of an event.
type record struct {
	state string
	token dedup.Token // of the last claim
	// grows by one with each write. rev and token together identify a state of the item.
	rev         uint64
	lease       time.Duration
	doubt       bool // claimed: the claim is Uncertain; open: the next one will be
	reopened    bool // open: waits for the replay of an operator
	fence       uint64
	failures    uint32
	takeovers   uint32
	position    dedup.Position
	fingerprint dedup.Fingerprint
	first       dedup.Origin
	reason      string
	result      dedup.Result

	retention        time.Duration // whole seconds
	expires          int64         // seconds since 1970, by the clock of the writer, with a margin
	created, changed time.Time     // by the clock of the writer
}

// forgotten reports whether an existing record counts as absent, because DynamoDB deletes days
// late (H-22). No clock of this host forgets a claim: a claim ends with its lease.
func (r *record) forgotten(now time.Time) bool {
	return r.state != claimed && r.expires < now.Unix()
}

func (r *record) heldBy(t dedup.Token) bool { return r.state == claimed && r.token == t }

// overtaken reports whether a copy at p must not run.
func (r *record) overtaken(p dedup.Position) bool {
	return p.Generation != r.position.Generation || p.Before(r.position)
}

// conflicts compares fingerprints if there are two. A replayed copy may differ, because a person
// may have repaired the copy.
func (r *record) conflicts(q *dedup.Request) bool {
	return q.Position.Generation == 0 && dedup.Differ(r.fingerprint, q.Fingerprint)
}

// keep sets the end of the record's retention.
func (r *record) keep(retention time.Duration, now time.Time) {
	r.changed, r.retention = now, seconds(retention)
	r.expires = expiry(r.state, now.Add(r.lease), r.retention)
}

// claimMargin is additional life of claims. DynamoDB deletes by its own clock, and the writer's
// clock sets the time. A difference of the clocks must not remove a held claim.
const claimMargin = 24 * time.Hour

// expiry is the value of the attribute that DynamoDB and this store compare with the time.
func expiry(state string, from time.Time, retention time.Duration) int64 {
	m := claimMargin
	if state != claimed {
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
		aKey: text(key), aVersion: number(version), aState: text(r.state),
		aToken: binary(r.token[:]), aRev: unsigned(r.rev),
		aFence: unsigned(r.fence), aRetention: number(int64(r.retention / time.Second)),
		aExpires: number(r.expires),
		aCreated: number(r.created.UnixMilli()), aChanged: number(r.changed.UnixMilli()),
	}
	for name, n := range map[string]uint32{aFailures: r.failures, aTakeovers: r.takeovers,
		aGeneration: r.position.Generation, aRetry: r.position.Retry, aSchema: r.result.Schema} {
		if n != 0 {
			it[name] = unsigned(n)
		}
	}
	if r.state == claimed {
		it[aLease] = number(millis(r.lease))
	}
	if r.doubt {
		it[aDoubt] = yes
	}
	if r.reopened {
		it[aReopened] = yes
	}
	if b := r.fingerprint.Bytes(); b != nil {
		it[aFingerprint] = binary(b)
	}
	if r.reason != "" {
		it[aReason] = text(r.reason)
	}
	if r.result.Data != nil {
		it[aResult] = binary(r.result.Data)
	}
	for name, v := range originOf(r.first) {
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
	r := &record{
		state: d.text(aState), rev: d.unsigned(aRev, 64), fence: d.unsigned(aFence, 64),
		failures: uint32(d.unsigned(aFailures, 32)), takeovers: uint32(d.unsigned(aTakeovers, 32)),
		position: dedup.Position{Generation: uint32(d.unsigned(aGeneration, 32)),
			Retry: uint32(d.unsigned(aRetry, 32))},
		doubt: d.flag(aDoubt), reopened: d.flag(aReopened), reason: d.text(aReason),
		lease: time.Duration(d.number(aLease, maxMillis)) * time.Millisecond,
		retention: time.Duration(d.number(aRetention,
			int64(maxRetention/time.Second))) * time.Second,
		expires: d.number(aExpires, 1<<62),
		created: time.UnixMilli(d.number(aCreated, 1<<62)).UTC(),
		changed: time.UnixMilli(d.number(aChanged, 1<<62)).UTC(),
		result:  dedup.Result{Schema: uint32(d.unsigned(aSchema, 32)), Data: d.binary(aResult)},
	}
	d.fixed(aToken, r.token[:])
	if b := d.binary(aFingerprint); b != nil {
		var ok bool
		r.fingerprint, ok = dedup.ParseFingerprint(b)
		d.require(ok, aFingerprint)
	}
	r.first = d.origin()
	switch r.state {
	case claimed:
		d.require(r.lease > 0, aLease)
	case open, done, dead:
		r.lease = 0
	default:
		d.require(false, aState)
	}
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

// reason is s as valid UTF-8, shortened to the limit at the end of a character.
func reason(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= dedup.MaxReason {
		return s
	}
	n := dedup.MaxReason
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// next is a copy of r to be changed and written.
func (r *record) next(state string, now time.Time) *record {
	n := *r
	n.state, n.changed = state, now
	n.rev++
	return &n
}
