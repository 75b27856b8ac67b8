package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/dedup"
)

// version is the first byte of every record. A release with another format raises version and
// still reads this one.
const version = 1

// The states of a record.
const (
	pending byte = 'p' // claimed
	open    byte = 'o' // released, or waiting for a later copy
	done    byte = 'd'
	dead    byte = 'x'
)

// The flags of a record.
const (
	flagUncertain   byte = 1 << iota // pending: the claim is Uncertain; open: the next one will be
	flagReopened                     // open: waits for the replay of an operator
	flagFingerprint                  // the token is followed by 16 bytes of fingerprint
	flagResult                       // done: with a result
	flagChecksum                     // the token is followed by 4 bytes of fingerprint
	flagsKnown      = 1<<iota - 1
)

const (
	headLen = 23 // version, state, flags, check, token
	// The parts that may follow.
	checksumLen    = 4
	fingerprintLen = 16

	maxInt = 1 << 53 // scripts count exactly up to here
)

var (
	errVersion = errors.New("record of an unknown version")
	errRecord  = errors.New("record is damaged")
	errForeign = errors.New("record belongs to another key")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkOf is part of a record, so that the record counts for its own key only.
func checkOf(k dedup.Key) uint32  { return checkOfText([]byte(k.String())) }
func checkOfText(k []byte) uint32 { return crc32.Checksum(k, castagnoli) }

// record is the value of a key. The package documentation has its format.
type record struct {
	state       byte
	uncertain   bool
	reopened    bool
	check       uint32
	token       dedup.Token // of the last claim
	fingerprint dedup.Fingerprint
	fence       uint64
	failures    uint32
	takeovers   uint32
	position    dedup.Position
	lease       int64 // milliseconds; pending only
	total       int64 // life of the record in milliseconds; zero if done
	first       dedup.Origin
	reason      string       // dead only
	result      dedup.Result // done only
}

func (r *record) flags() (f byte) {
	if r.uncertain {
		f |= flagUncertain
	}
	if r.reopened {
		f |= flagReopened
	}
	switch len(r.fingerprint.Bytes()) {
	case 0:
	case checksumLen:
		f |= flagChecksum
	default:
		f |= flagFingerprint
	}
	if !r.result.IsZero() {
		f |= flagResult
	}
	return f
}

// encode returns r as the bytes of its value.
func (r *record) encode() string {
	return string(r.appendTo(make([]byte, 0,
		128+len(r.first.Topic)+len(r.reason)+len(r.result.Data))))
}

// appendTo appends the result of encode.
func (r *record) appendTo(b []byte) []byte {
	flags := r.flags()
	b = append(b, version, r.state, flags)
	b = binary.BigEndian.AppendUint32(b, r.check)
	b = append(b, r.token[:]...)
	b = append(b, r.fingerprint.Bytes()...)
	for _, n := range [...]uint64{
		r.fence, uint64(r.failures), uint64(r.takeovers), uint64(r.position.Generation),
		uint64(r.position.Retry), uint64(r.lease), uint64(r.total),
	} {
		b = binary.AppendUvarint(b, n)
	}
	return r.appendRest(appendOrigin(b, &r.first))
}

// appendOrigin appends a delivery, behind its length.
func appendOrigin(b []byte, o *dedup.Origin) []byte {
	var numbers [3 * binary.MaxVarintLen64]byte
	n := binary.AppendVarint(numbers[:0], int64(o.Partition))
	n = binary.AppendVarint(n, o.Offset)
	n = binary.AppendVarint(n, o.Time.UnixMilli())
	b = binary.AppendUvarint(b, uint64(len(n)+len(o.Topic)))
	b = append(b, n...)
	return append(b, o.Topic...)
}

// appendRest appends the end of a value: the reason of a dead event, or the result of a done one.
func (r *record) appendRest(b []byte) []byte {
	if !r.result.IsZero() {
		b = binary.AppendUvarint(b, uint64(r.result.Schema))
		b = append(b, r.result.Data...)
	}
	return append(b, r.reason...)
}

// holds reports whether value is a claim of this key with token t, without a fingerprint or with f.
// This is the usual case of a completion, checked without decoding the record: only this claim has
// that token.
func holds(value string, check uint32, t *dedup.Token, f *dedup.Fingerprint) bool {
	if len(value) <= headLen || value[0] != version || value[1] != pending ||
		value[7:headLen] != string(t[:]) ||
		uint32(value[3])<<24|uint32(value[4])<<16|uint32(value[5])<<8|uint32(value[6]) != check {
		return false
	}
	n := fingerprintIn(value[2])
	return n == 0 || len(value) > headLen+n && value[headLen:headLen+n] == string(f.Bytes())
}

// fingerprintIn is the number of bytes of the fingerprint in a record with these flags.
func fingerprintIn(flags byte) int {
	switch flags & (flagFingerprint | flagChecksum) {
	case 0:
		return 0
	case flagChecksum:
		return checksumLen
	default:
		return fingerprintLen
	}
}

// decode reads the value of a key with this check. decode accepts only values that encode
// writes.
func decode(value string, check uint32) (record, error) {
	r, err := parse(value)
	if err == nil && r.check != check {
		err = errForeign
	}
	return r, err
}

func parse(value string) (r record, err error) {
	if value == "" || value[0] != version {
		if value == "" {
			return r, errRecord
		}
		return r, fmt.Errorf("%w: %d", errVersion, value[0])
	}
	if len(value) < headLen {
		return r, errRecord
	}
	flags := value[2]
	r.state = value[1]
	r.uncertain, r.reopened = flags&flagUncertain != 0, flags&flagReopened != 0
	r.check = binary.BigEndian.Uint32([]byte(value[3:7]))
	copy(r.token[:], value[7:headLen])
	p := parser{rest: value[headLen:]}
	if n := fingerprintIn(flags); n > 0 {
		f, ok := dedup.ParseFingerprint([]byte(p.bytes(uint64(n))))
		r.fingerprint = f
		p.require(ok && flags&(flagFingerprint|flagChecksum) != flagFingerprint|flagChecksum)
	}
	r.fence = p.uvarint(maxInt)
	r.failures, r.takeovers = p.uint32(), p.uint32()
	r.position = dedup.Position{Generation: p.uint32(), Retry: p.uint32()}
	r.lease, r.total = int64(p.uvarint(maxInt)), int64(p.uvarint(maxInt))
	p.require(r.lease <= r.total)
	r.first = p.origin()
	if flags&flagResult != 0 {
		r.result = p.result()
	} else if r.state == dead {
		r.reason, p.rest = p.rest, ""
	}
	p.require(p.rest == "" && flags&^byte(flagsKnown) == 0 && r.plausible(flags&flagResult != 0))
	if p.bad {
		return record{}, errRecord
	}
	return r, nil
}

// plausible reports whether the flags and the lease fit the state.
func (r *record) plausible(result bool) bool {
	switch r.state {
	case pending:
		return !r.reopened && !result && r.lease > 0
	case open:
		return !result && r.lease == 0
	case dead:
		return !r.reopened && !result && r.lease == 0
	case done:
		return !r.reopened && r.lease == 0
	}
	return false
}

// parser takes a value apart. After a mistake bad is set, and the rest reads as empty.
type parser struct {
	rest string
	bad  bool
}

func (p *parser) require(ok bool) { p.bad = p.bad || !ok }

func (p *parser) bytes(n uint64) string {
	if n > uint64(len(p.rest)) {
		p.bad, p.rest = true, ""
		return ""
	}
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s
}

// uvarint reads a number in its shortest form, at most limit.
func (p *parser) uvarint(limit uint64) (v uint64) {
	for i := 0; i < len(p.rest) && i < binary.MaxVarintLen64; i++ {
		c := p.rest[i]
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			shortest := i == 0 || c != 0
			fits := i < binary.MaxVarintLen64-1 || c == 1
			p.require(shortest && fits && v <= limit)
			p.rest = p.rest[i+1:]
			return v
		}
	}
	p.bad, p.rest = true, ""
	return 0
}

func (p *parser) uint32() uint32 { return uint32(p.uvarint(math.MaxUint32)) }

func (p *parser) varint() int64 {
	u := p.uvarint(math.MaxUint64)
	return int64(u>>1) ^ -int64(u&1)
}

func (p *parser) origin() (o dedup.Origin) {
	f := parser{rest: p.bytes(p.uvarint(math.MaxInt32)), bad: p.bad}
	partition := f.varint()
	f.require(partition == int64(int32(partition)))
	o.Partition, o.Offset = int32(partition), f.varint()
	o.Time = time.UnixMilli(f.varint()).UTC()
	o.Topic = f.rest
	p.bad = f.bad
	return o
}

func (p *parser) result() dedup.Result {
	r := dedup.Result{Schema: p.uint32()}
	if p.rest != "" || r.Schema == 0 {
		r.Data = []byte(p.rest)
	}
	p.rest = ""
	return r
}

// cut shortens a reason to the limit, at the end of a character.
func cut(reason string) string {
	if len(reason) <= dedup.MaxReason {
		return reason
	}
	n := dedup.MaxReason
	for n > dedup.MaxReason-utf8.UTFMax && !utf8.RuneStart(reason[n]) {
		n--
	}
	return reason[:n]
}

// millis rounds up, so that leases and retention are never too short.
func millis(d time.Duration) int64 {
	return int64((d-1)/time.Millisecond) + 1
}

// known reports whether o has a field.
func known(o *dedup.Origin) bool { return !o.Same(dedup.Origin{}) || !o.Time.IsZero() }

// leaseLeft is the remaining lease of a pending record with this ttl, in milliseconds. The
// computation is that of the scripts, but a ttl that the store has not set is not repaired.
func (r *record) leaseLeft(ttl int64) int64 {
	if ttl < 0 || ttl > r.total {
		return r.lease
	}
	return ttl - (r.total - r.lease)
}
