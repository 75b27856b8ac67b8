-- Head of every script: the record's format, as in record.go, and the form of a reply. A script
-- uses one key only and gets the caller's token as ARGV[1]. It reads the record again, because the
-- record may have changed since the pipeline.
local VERSION, PENDING, OPEN, DONE, DEAD = 1, 'p', 'o', 'd', 'x'
local UNCERTAIN, REOPENED, FINGERPRINT, RESULT, CHECKSUM = 1, 2, 4, 8, 16

local key, token = KEYS[1], ARGV[1]
local byte, char, sub = string.byte, string.char, string.sub

local function uvarint(s, i)
  local b = byte(s, i)
  if b < 128 then
    return b, i + 1
  end
  local v, m = b - 128, 128
  for n = i + 1, i + 7 do
    b = byte(s, n)
    if b < 128 then
      return v + b * m, n + 1
    end
    v, m = v + (b - 128) * m, m * 128
  end
  error('number too long')
end

local function put(v)
  local s = ''
  while v >= 128 do
    s, v = s .. char(128 + v % 128), (v - v % 128) / 128
  end
  return s .. char(v)
end

-- decode returns nil for a record of another version: the caller decides.
local function decode(s)
  if byte(s, 1) ~= VERSION then
    return nil
  end
  local flags, i = byte(s, 3), 24
  local r = {
    state = sub(s, 2, 2),
    uncertain = flags % (2 * UNCERTAIN) >= UNCERTAIN,
    reopened = flags % (2 * REOPENED) >= REOPENED,
    result = flags % (2 * RESULT) >= RESULT,
    check = sub(s, 4, 7),
    token = sub(s, 8, 23),
    fingerprint = '',
  }
  if flags % (2 * FINGERPRINT) >= FINGERPRINT then
    r.fingerprint, i = sub(s, 24, 39), 40
  elseif flags % (2 * CHECKSUM) >= CHECKSUM then
    r.fingerprint, i = sub(s, 24, 27), 28
  end
  r.fence, i = uvarint(s, i)
  r.failures, i = uvarint(s, i)
  r.takeovers, i = uvarint(s, i)
  r.generation, i = uvarint(s, i)
  r.retry, i = uvarint(s, i)
  r.lease, i = uvarint(s, i)
  r.total, i = uvarint(s, i)
  local first, at = uvarint(s, i)
  r.first = sub(s, i, at + first - 1) -- with its length
  r.rest = sub(s, at + first)
  return r
end

local function encode(r)
  local flags = (r.uncertain and UNCERTAIN or 0) + (r.reopened and REOPENED or 0)
    + (#r.fingerprint == 16 and FINGERPRINT or #r.fingerprint == 4 and CHECKSUM or 0) + (r.result and RESULT or 0)
  return char(VERSION) .. r.state .. char(flags) .. r.check .. r.token .. r.fingerprint
    .. put(r.fence) .. put(r.failures) .. put(r.takeovers) .. put(r.generation) .. put(r.retry)
    .. put(r.lease) .. put(r.total) .. r.first .. r.rest
end

-- reply starts with the token of the call, so that the caller detects the answer to another call
-- (R-15).
local function reply(code, left, value)
  return { token, code, left or 0, value or '' }
end

local function write(r, ttl)
  local value = encode(r)
  redis.call('SET', key, value, 'PX', ttl)
  return value
end

local function holds(r)
  return r.state == PENDING and r.token == token
end

-- leaseLeft is the remaining lease by the server's clock alone. The record was written to live for
-- total, the lease and the retention. A TTL that the store never sets (none, or more than total:
-- persisted, restored, clock set back) has no meaning. Then the lease begins anew, once.
local function leaseLeft(r)
  if r.state ~= PENDING then
    return 0
  end
  local ttl = redis.call('PTTL', key)
  if ttl < 0 or ttl > r.total then
    redis.call('PEXPIRE', key, r.total)
    ttl = r.total
  end
  return ttl - (r.total - r.lease)
end

local raw = redis.call('GET', key)
local rec = raw and decode(raw)
if raw and not rec then
  return reply('look', 0, raw)
end
