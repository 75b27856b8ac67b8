/*
 * One shard of an outbox, with the rows of one aggregate, and relays that publish the shard.
 *
 * step            stands for
 * Writer          Add and COMMIT behind the lock of an aggregate (pgoutbox/insert.go, rule 22)
 * Hold            shareKeeper.hold, renew: Store.Hold (sql/renew.sql, give.sql, take.sql,
 *                 held.sql); shardLeases.answered
 * Fetch           publisher.fetch, sql/fetch.sql: the lowest waiting rows, without a gap (O-01)
 * Publish         publisher.publish, batch.publishable: whether the lease is held
 * Send            publisher.publishInOrder: one record batch
 * Wave, SendOne   publisher.publishWave: each row after the acknowledgement of the one before
 *                 (O-08, O-09); batch.fail, park, block
 * Settle          publisher.settle, Outbox.Settle: sql/settle_sent.sql, settle_parked.sql,
 *                 settle_blocked.sql, each behind the relay and the epoch of the shard (O-13)
 * Leave           Store.Leave
 * World           the end of a lease, records that arrive after a failure, and a person who
 *                 retries or skips a parked row (pgoutbox/parked.go)
 *
 * Each variant with the name BROKEN_... has one fault, and spin must find it.
 */

#ifndef FAULTS
#define FAULTS 3
#endif
#ifndef ROWS
#define ROWS 3
#endif
#define RELAYS 2
#define NOBODY 9
#define GONE 8 /* a relay that died; the next process has another name */

mtype = { absent, waiting, settled, parked, blocked, skipped };
mtype = { sent, refused };

/* The table. Row 0 is the first one that was committed. */
mtype row[ROWS] = absent;

/* The row of the shard. */
byte owner = NOBODY;
byte epoch;
bool alive;             /* the lease has not ended */

/* What a relay knows. */
byte mine[RELAYS];      /* the epoch under which the relay holds the shard; 0: it does not */
bool lapsed[RELAYS];    /* the lease has ended by the clock of the relay */

/* The topic. */
bool published[ROWS];   /* first appearances */
byte delayed;           /* rows, as bits, of a request that failed and may still arrive */

byte faults = FAULTS;
#define FAULT faults > 0
#define ENDED(n) (row[n] == settled || row[n] == skipped)
#define ALL_ENDED (ENDED(0) && ENDED(1) && ENDED(ROWS - 1))
#define BIT(i) (1 << (i))
#define BEHIND_PARKED(i) ((i > 0 && row[i - 1] == parked) || (i > 1 && row[i - 2] == parked))

/* The promises: the name of the one that fails is in the error of spin. */
bool row_lost, out_of_order, settled_without_the_shard, never_published;
#define promise(name, condition) if :: (condition) -> skip :: else -> name = true; assert(!name) fi

/* A broker appends row n. All earlier rows are in the topic, or a person has skipped them. */
inline append(n)
{
	if
	:: !published[n] ->
		promise(out_of_order, n == 0 || published[n - 1] || row[n - 1] == skipped);
		published[n] = true
	:: else -> skip
	fi
}

inline appendAll(bits)
{
	j = 0;
	do
	:: j < ROWS -> if :: bits & BIT(j) -> append(j) :: else -> skip fi; j++
	:: else -> break
	od;
	j = 0
}

inline clear() { batch = 0; acked = 0; refusedRow = NOBODY; behind = 0; n = 0; under = 0; i = 0 }

#define CRASH \
	:: atomic { FAULT -> faults--; clear(); mine[me] = 0; lapsed[me] = false; \
		if :: owner == me -> owner = GONE :: else -> skip fi; goto Hold }

/* The relay renews the lease also in the middle of a round. */
#define RENEW(step) \
	:: atomic { lapsed[me] && owner == me && mine[me] == epoch -> \
		alive = true; lapsed[me] = false; goto step }

#ifdef BROKEN_NO_EPOCH
#define HOLDS_SHARD true
#else
#define HOLDS_SHARD (owner == me && epoch == under)
#endif

inline settle()
{
	if
	:: HOLDS_SHARD ->
		promise(settled_without_the_shard, owner == me && epoch == under);
		i = 0;
		do
		:: i < ROWS ->
			if
			:: (acked & BIT(i)) && row[i] != skipped && row[i] != settled ->
				promise(row_lost, published[i]);
				row[i] = settled
			:: i == refusedRow && row[i] == waiting -> row[i] = parked
			:: (behind & BIT(i)) && row[i] == waiting ->
				if
				:: BEHIND_PARKED(i) -> row[i] = blocked
				:: else -> skip
				fi
			:: else -> skip
			fi;
			i++
		:: else -> break
		od;
		i = 0
	:: else -> mine[me] = 0 /* lost: relay.share.drop */
	fi
}

proctype Relay(byte me)
{
	byte batch, acked, behind, under, n, i, j;
	byte refusedRow = NOBODY;

Hold:
	if
	:: atomic { owner == me -> alive = true; lapsed[me] = false; mine[me] = epoch; goto Fetch }
	:: atomic { owner == NOBODY || (owner != me && !alive) ->
		owner = me; epoch++; alive = true; lapsed[me] = false; mine[me] = epoch; goto Fetch }
#ifdef BROKEN_SHARED_SHARD
	:: atomic { mine[me] == 0 && owner != NOBODY -> mine[me] = epoch; goto Fetch }
#endif
	:: atomic { FAULT && (owner == NOBODY || (owner != me && !alive)) -> faults--;
		/* the answer is lost */
		owner = me; epoch++; alive = true; goto Hold }
	:: atomic { FAULT && owner == me -> faults--; /* gives up what is above its share */
		owner = NOBODY; mine[me] = 0; goto Hold }
	:: ALL_ENDED -> goto Leave
	fi;

Fetch:
	if
	:: atomic { mine[me] > 0 && !lapsed[me] -> /* held: the rows that wait, from the lowest one on */
		under = mine[me];
		i = 0;
		do
		:: i < ROWS && row[i] == waiting ->
			if /* Blocked: an earlier row is parked */
			:: BEHIND_PARKED(i) -> behind = behind | BIT(i)
			:: else -> batch = batch | BIT(i)
			fi;
			i++
#ifdef BROKEN_SHARED_SHARD
		:: i < ROWS && row[i] == waiting -> i++ /* locked by the other relay: SKIP LOCKED */
#endif
		:: i < ROWS && row[i] != waiting -> i++
		:: else -> break
		od;
		i = 0;
		if
		:: batch == 0 && behind == 0 -> goto Idle
		:: else -> n = 0; goto Publish
		fi }
	:: atomic { mine[me] == 0 || lapsed[me] -> goto Hold }
	CRASH
	fi;

Idle: /* until a row waits, or the shard is to be held again */
	if
	:: atomic { row[0] == waiting || row[1] == waiting || row[ROWS - 1] == waiting ->
		clear(); goto Hold }
	:: atomic { owner != me || !alive -> clear(); goto Hold }
	:: atomic { ALL_ENDED -> clear(); goto Leave }
	CRASH
	fi;

Publish: /* batch.publishable: the lease under which the rows were fetched is still held */
	if
	:: atomic { batch == 0 || lapsed[me] || mine[me] != under -> goto Settle }
	:: atomic { batch != 0 && !lapsed[me] && mine[me] == under -> goto Send }
	RENEW(Publish)
	CRASH
	fi;

Send:
	if
	:: atomic { /* publishInOrder: one record batch, appended as a whole */
#ifdef BROKEN_SETTLED_UNACKNOWLEDGED
		acked = acked | batch; delayed = delayed | batch; batch = 0; goto Settle }
#else
		appendAll(batch); acked = acked | batch; batch = 0; goto Settle }
#endif
	:: atomic { FAULT && delayed == 0 -> faults--; /* no answer: acted, later, or never */
		if :: appendAll(batch) :: delayed = batch :: true fi;
		goto Wave }
	:: atomic { goto Wave } /* a producer without the ability, or rows failed lately */
	CRASH
	fi;

Wave: /* the first row of the rest */
	if
	:: atomic { batch == 0 || lapsed[me] || mine[me] != under -> goto Settle }
	:: atomic { batch != 0 && !lapsed[me] && mine[me] == under ->
		n = 0; do :: !(batch & BIT(n)) -> n++ :: else -> break od; goto SendOne }
	RENEW(Wave)
	CRASH
	fi;

SendOne:
	if
	:: atomic { append(n); acked = acked | BIT(n); batch = batch & ~BIT(n); goto Wave }
	:: atomic { FAULT && delayed == 0 -> faults--;
		if :: append(n) :: delayed = BIT(n) :: true fi;
#ifdef BROKEN_GOES_ON_AFTER_FAILURE
		batch = batch & ~BIT(n); goto Wave
#else
		goto Settle /* stuck: no later row of the aggregate in this round */
#endif
		}
	:: atomic { FAULT -> faults--; /* the broker refuses the row as it is */
		refusedRow = n; behind = behind | (batch & ~BIT(n)); goto Settle }
	CRASH
	fi;

Settle: /* repeated until the store answers, before any other work */
	if
	:: atomic { settle(); clear(); goto Hold }
	:: atomic { FAULT -> faults--; settle(); goto Settle } /* the answer is lost */
	CRASH
	fi;

Leave:
	if
	:: atomic { if :: owner == me -> owner = NOBODY :: else -> skip fi; mine[me] = 0; goto End }
	CRASH
	fi;
End:
	skip
}

/* Transactions add the rows of one aggregate, and release its lock when they are visible. */
proctype Writer()
{
#ifdef BROKEN_SEQUENCE_ALONE
	if /* a later number may be committed first */
	:: atomic { row[0] = waiting }; atomic { row[1] = waiting }
	:: atomic { row[1] = waiting }; atomic { row[0] = waiting }
	fi;
#else
	atomic { row[0] = waiting };
	atomic { row[1] = waiting };
#endif
#if ROWS > 2
	atomic { row[2] = waiting }
#endif
}

inline release()
{
	j = 0;
	do
	:: j < ROWS -> if :: row[j] == blocked -> row[j] = waiting :: else -> skip fi; j++
	:: else -> break
	od;
	j = 0
}

/* The lease of relay w ends by its clock, and perhaps by that of the store. */
#define LAPSE(w) \
	:: atomic { FAULT && owner == w && mine[w] == epoch && !lapsed[w] -> faults--; \
		lapsed[w] = true; if :: alive = false :: true fi }
#define PERSON(n) \
	:: atomic { row[n] == parked -> if :: row[n] = waiting :: row[n] = skipped fi; release() }
#define RENEWED(w) (owner == w && mine[w] == epoch && !lapsed[w])

proctype World()
{
	byte j;
	do
	:: atomic { owner != NOBODY && alive && !RENEWED(0) && !RENEWED(1) -> alive = false }
	LAPSE(0)
	LAPSE(1)
	:: atomic { delayed != 0 -> appendAll(delayed); delayed = 0 }
	PERSON(0)
	PERSON(1)
#if ROWS > 2
	PERSON(2)
#endif
	:: atomic { timeout ->
		j = 0;
		do
		:: j < ROWS ->
			promise(never_published, row[j] == skipped || (row[j] == settled && published[j]));
			j++
		:: else -> break
		od;
		break }
	od
}

init { atomic { run Relay(0); run Relay(1); run Writer(); run World() } }
