/*
 * Claim, lease and completion of one event by handlers of On. Workers of one consumer group meet
 * the event in two records: copies in two partitions. Any worker may hold any record that is not
 * committed, so rebalances and workers that lost their partition need no steps of their own.
 *
 * step            stands for
 * claim()         decision.Record.Claim and Refuse (internal/decision/record.go)
 * renew()         Store.Renew: HeldBy, Renew (internal/decision/record.go)
 * complete()      decision.Record.Complete, late, End (internal/decision/end.go)
 * release()       decision.Record.Release (internal/decision/end.go)
 * Claim, Ask      eventGroup.claim, storeAccess.claimAll: one token until the store answers (R-01)
 * GiveUp          asker.drop, storeAccess.releaseGhosts (rule 32)
 * Alive           eventGroup.callAll: held.Alive before the handler; verdict.go: granted, refuse
 * Handler         eventGroup.call; LeaseRenewer.look and note; decide.go: actRetry, actReclaim
 * Abandon         decide.go: actGiveBack after the grace period (rule 13)
 * Complete        eventGroup.completeAll, storeAccess.completeAll
 * DeadLetter      Processor.giveUp: publish, record, settle (rule 6)
 * Copy            settle_answer.go: stepDeadLetterCopy, class already-dead
 * Commit          runner/session.go: mark, and the commit of the offset
 * Clock           the ends of leases by the store's clock, and requests that arrive late
 *
 * Configurations: AT_MOST_ONCE is DeadLetterUncertain. Without it the policy is RerunUncertain.
 * Each variant with the name BROKEN_... has one fault, and spin must find it.
 */

#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef FAULTS
#define FAULTS 3
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#define COPIES 2

mtype = { open, claimed, done, dead };
mtype = { silent, completed, released };
mtype = { fresh, uncertain, busy, isDone, isDead };
mtype = { none, lateClaim, lateRenew, lateDone, lateRelease };
mtype = { unstarted, failed, unknown };

/* The record of the event in the store. */
mtype state = open;
mtype last = silent;
byte token;        /* of the holder, or of the last call */
bool alive;        /* the lease has not ended */
bool doubt;
byte failures;
byte first = 9;    /* the record with the dead letter */

/* The workers. */
byte tok[WORKERS];     /* 0: no claim */
bool lapsed[WORKERS];  /* the lease has ended by the worker's clock, not later than the store's */
bool running[WORKERS]; /* between the check of the lease and the end of the completion */
bool acted[WORKERS];   /* this run had its effect */
bool renewing[WORKERS];/* an answer to a renewal is under way */

/* The world. */
bool committed[COPIES];
bool deadLetter[COPIES];   /* the dead-letter topic has acknowledged this record */
byte effects;
byte charged;          /* at a provider that compares idempotency keys */
byte keys;             /* that the provider has seen, as bits */
bool started;          /* by worker 0 with record 0: others begin the same, with other names */
bool window;           /* a crash or a lost lease in the declared window */
mtype late = none;     /* a request that arrives late */
byte lateToken;

/* Faults that are left, of all kinds together: a worker dies, and another process begins in its
 * place; a worker stands still for longer than its lease; the store acts and its answer is lost; a
 * request arrives once more, or after the death of its sender; a run fails without an effect. */
byte faults = FAULTS;
#define FAULT faults > 0

/* The promises: the name of the one that fails is in the error of spin. */
bool event_lost, effect_repeated, effect_beyond_at_most_once, charged_twice, stale_call_accepted,
	two_holders, never_settled;
#define promise(name, condition) if :: (condition) -> skip :: else -> name = true; assert(!name) fi

#if WORKERS > 2
#define HELD_BY_WORKER(t) (tok[0] == t || tok[1] == t || tok[2] == t)
#define RENEWED(t) ((tok[0] == t && !lapsed[0]) || (tok[1] == t && !lapsed[1]) || \
	(tok[2] == t && !lapsed[2]))
#else
#define HELD_BY_WORKER(t) (tok[0] == t || tok[1] == t)
#define RENEWED(t) ((tok[0] == t && !lapsed[0]) || (tok[1] == t && !lapsed[1]))
#endif

/* A token that is used nowhere stands for a random one. */
inline newToken()
{
	tok[me] = 0; next = 1;
	do
	:: next == token || next == lateToken || HELD_BY_WORKER(next) -> next++
	:: else -> break
	od;
	tok[me] = next; next = 0
}

inline claim(t, answer)
{
	if
	:: state == claimed && token == t -> /* the answer was lost: repeat it */
		alive = true;
		if :: doubt -> answer = uncertain :: else -> answer = fresh fi
	:: else ->
		if
		:: state == done -> answer = isDone
		:: state == dead -> answer = isDead
		:: state == claimed && alive -> answer = busy
		:: else ->
			if
			:: state == claimed -> /* taken over */
#ifndef BROKEN_NO_DOUBT
				doubt = true
#else
				skip
#endif
			:: else -> skip
			fi;
			state = claimed; token = t; last = silent; alive = true;
			if :: doubt -> answer = uncertain :: else -> answer = fresh fi
		fi
	fi
}

inline renew(t)
{
	if
	:: state == claimed && token == t -> alive = true
	:: else -> skip /* lost */
	fi
}

/* The token names the newest claim, or the store must refuse the call. */
inline accepted(t) { promise(stale_call_accepted, token == t) }

#ifdef BROKEN_NO_TOKEN
#define HELD(t) (state == claimed)
#else
#define HELD(t) (state == claimed && token == t)
#endif

inline complete(t, as, record, served)
{
	if
	:: HELD(t) || (as == done && doubt && state == open && last == released && token == t) ->
		accepted(t);
		last = completed; state = as; served = true;
		if :: as == dead -> first = record :: else -> skip fi
	:: else -> served = (state != claimed && last == completed && token == t)
	fi
}

inline release(t, outcome)
{
	if
	:: state == claimed && token == t ->
		accepted(t);
		state = open; last = released;
		if
		:: outcome == failed -> failures++
		:: outcome == unknown -> doubt = true
		:: else -> skip
		fi
	:: else -> skip
	fi
}

inline forget()
{
	tok[me] = 0; lapsed[me] = false; running[me] = false; acted[me] = false;
	renewing[me] = false; answer = none; refused = false; served = false
}

/* A worker dies. Its request may still be on its way. */
#define CRASH(request) \
	:: atomic { FAULT -> faults--; window = window || acted[me]; \
		if :: FAULT && request != none && late == none -> \
			faults--; late = request; lateToken = tok[me] \
		:: true fi; \
		forget(); goto Idle }

proctype Worker(byte me)
{
	byte p, next;
	mtype answer = none;
	bool refused, served;

Idle:
	if
	:: atomic { !committed[0] && (started || me == 0) -> p = 0; started = true }
	:: atomic { !committed[1] && started -> p = 1 }
	:: committed[0] && committed[1] -> goto End
	fi;

Claim:
	atomic {
		lapsed[me] = false; running[me] = false; acted[me] = false; renewing[me] = false;
		newToken()
	};

Ask:
	if
	:: atomic { claim(tok[me], answer); lapsed[me] = false;
		if
		:: answer == isDone -> forget(); goto Commit
		:: answer == isDead && first == p -> forget(); goto Commit
		:: answer == isDead && first != p -> forget(); goto Copy
		:: answer == busy ->
			forget();
#ifdef BROKEN_BUSY_IS_DUPLICATE
			goto Commit
#else
			goto Busy
#endif
		:: else -> goto Alive
		fi }
	:: atomic { FAULT -> faults--; claim(tok[me], answer); answer = none;
		if :: goto Ask :: goto GiveUp fi }
	:: atomic { FAULT && late == none -> faults--; late = lateClaim; lateToken = tok[me];
		goto Ask }
	CRASH(lateClaim)
	fi;

Busy: /* holds no claim (rule 9) */
	if
	:: !(state == claimed && alive) -> goto Claim
	CRASH(none)
	fi;

GiveUp:
	if
	:: atomic { release(tok[me], unstarted); forget(); goto Idle }
	CRASH(lateRelease)
	fi;

Alive:
	if
#ifndef BROKEN_NO_CHECK_OF_LEASE
	:: atomic { lapsed[me] -> release(tok[me], unstarted); goto Claim }
	:: atomic { !lapsed[me] ->
#else
	:: atomic { true ->
#endif
		refused = failures >= ATTEMPTS;
#ifdef AT_MOST_ONCE
		refused = refused || answer == uncertain;
#endif
		answer = none;
		if
		:: refused -> goto DeadLetter
		:: else -> running[me] = true; acted[me] = false;
#ifdef BROKEN_COMMIT_FIRST
			promise(event_lost, (state == done && effects > 0) || deadLetter[p]);
			committed[p] = true;
#endif
			goto Handler
		fi }
	CRASH(none)
	fi;

Handler:
	if
	:: atomic { /* the effect, in an outside system */
		promise(two_holders, lapsed[me] || (state == claimed && token == tok[me]));
		if :: effects < 2 -> effects++ :: else -> skip fi;
		acted[me] = true;
#ifdef AT_MOST_ONCE
		promise(effect_beyond_at_most_once, effects <= 1);
#endif
		promise(effect_repeated, effects <= 1 || window);
#ifdef BROKEN_KEY_OF_RECORD
		if :: !(keys & (1 << p)) -> keys = keys | (1 << p); charged++ :: else -> skip fi;
#else
		if :: !(keys & 1) -> keys = keys | 1; charged++ :: else -> skip fi;
#endif
		promise(charged_twice, charged <= 1);
		goto Complete }
	:: atomic { !lapsed[me] && !renewing[me] && FAULT -> faults--;
		renew(tok[me]); renewing[me] = true; goto Handler }
	:: atomic { renewing[me] -> renewing[me] = false; /* the lease counts from before the request */
#ifdef BROKEN_STALE_RENEWAL
		lapsed[me] = false;
#endif
		goto Handler }
	:: atomic { FAULT && late == none -> faults--; late = lateRenew; lateToken = tok[me];
		goto Handler }
	:: atomic { FAULT && !lapsed[me] -> faults--; running[me] = false;
		if
		:: failures + 1 < ATTEMPTS -> release(tok[me], failed); goto Claim
		:: else -> goto DeadLetter
		fi }
	:: atomic { lapsed[me] -> /* the handler saw its context end */
		release(tok[me], unknown); goto Claim }
	:: atomic { FAULT -> faults--; goto Abandon }
	CRASH(none)
	fi;

Abandon: /* the run goes on, and its claim is released as unknown */
	if
	:: atomic { window = true; lapsed[me] = true; renewing[me] = false;
		release(tok[me], unknown); goto Handler }
	CRASH(none)
	fi;

Complete:
	if
	:: atomic { complete(tok[me], done, p, served);
		if
		:: served -> forget(); goto Commit
		:: else -> goto Claim /* the claim is lost: the store is asked again */
		fi }
	:: atomic { FAULT -> faults--; complete(tok[me], done, p, served);
		acted[me] = acted[me] && !served; running[me] = running[me] && !served; served = false;
		if
		:: goto Complete
		:: window = window || acted[me]; forget(); goto Idle /* the outage is longer than a lease */
		fi }
	CRASH(lateDone)
	fi;

DeadLetter:
	if
#ifdef BROKEN_DEAD_BEFORE_SENT
	:: atomic { complete(tok[me], dead, p, served);
		if :: served -> served = false; goto Copy :: else -> goto Claim fi }
#else
	:: atomic { deadLetter[p] = true; goto Dead }
#endif
	:: atomic { FAULT -> faults--; /* not acknowledged */
		release(tok[me], failed); forget(); goto Idle }
	CRASH(none)
	fi;

Dead:
	if
	:: atomic { complete(tok[me], dead, p, served);
		if
		:: served -> forget(); goto Commit
		:: else -> goto Claim
		fi }
	:: atomic { FAULT -> faults--; complete(tok[me], dead, p, served); served = false; goto Dead }
	CRASH(none)
	fi;

Copy: /* of an event that was given up: a copy is never dropped */
	if
	:: atomic { deadLetter[p] = true; forget(); goto Commit }
	CRASH(none)
	fi;

Commit:
	if
	:: atomic {
		promise(event_lost, (state == done && effects > 0) || deadLetter[p]);
		committed[p] = true; goto Idle }
	CRASH(none)
	fi;
End:
	skip
}

/* The lease of worker w ends, for its own clock and perhaps for that of the store. If not, a
 * renewal acted and its answer was lost. */
#define LAPSE(w) \
	:: atomic { FAULT && state == claimed && tok[w] == token && !lapsed[w] -> faults--; \
		lapsed[w] = true; window = window || running[w]; \
		if :: alive = false :: true fi }

proctype Clock()
{
	mtype ignored = none;
	bool served;
	do
	:: atomic { state == claimed && alive && !RENEWED(token) -> alive = false }
	LAPSE(0)
	LAPSE(1)
#if WORKERS > 2
	LAPSE(2)
#endif
	:: atomic { late == lateClaim -> claim(lateToken, ignored); ignored = none;
		late = none; lateToken = 0 }
	:: atomic { late == lateRenew -> renew(lateToken); late = none; lateToken = 0 }
	:: atomic { late == lateDone -> complete(lateToken, done, 0, served); served = false;
		late = none; lateToken = 0 }
	:: atomic { late == lateRelease -> release(lateToken, unstarted); late = none; lateToken = 0 }
	:: atomic { timeout -> /* no worker has a next step */
		promise(never_settled, committed[0] && committed[1] && (state == done || state == dead));
		break }
	od
}

init
{
	atomic {
		run Worker(0); run Worker(1);
#if WORKERS > 2
		run Worker(2);
#endif
		run Clock()
	}
}
