/*
 * One event by handlers of OnTx: claim, effect and completion are one transaction of the database
 * of the effects. Workers meet the event in two records, as in claim.pml.
 *
 * step            stands for
 * Begin           txGroup.claim, TxStore.ClaimTx: the insert of the row of the key takes its lock
 * Handler         txGroup.work: the handler calls its statements in the transaction
 * CommitTx        the COMMIT of ClaimTx; a lost answer matches ErrUnknownCommit (P-11)
 * Failed          a rollback; txOutcome and decide (group_tx.go, tx.go, decide.go)
 * DeadLetter      Processor.giveUp, then recordTx in a transaction of its own (recorder.go)
 * Copy            settle_answer.go: stepDeadLetterCopy, class already-dead
 * Commit          runner/session.go: mark, and the commit of the offset
 * Server          the database: ends sessions of clients that have disappeared, and serves a COMMIT
 *                 whose client is gone
 *
 * Each variant with the name BROKEN_... has one fault, and spin must find it.
 */

#ifndef FAULTS
#define FAULTS 4
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#define WORKERS 2
#define COPIES 2
#define NOBODY 255
#define GONE 254   /* a session whose client has disappeared holds the lock */

mtype = { none, done, dead };
mtype = { idle, began, ran, sent, ended };

/* Committed data. */
mtype row = none;      /* the record of the event */
byte first = 9;        /* the record of Kafka with the dead letter */
byte effects;

/* The lock on the row of the key, and what the transaction that holds it has written. */
byte lock = NOBODY;    /* a worker, NOBODY or GONE */
bool hasEffect;        /* the transaction has the effect of the handler */
bool hasDone;          /* and the completion */
bool sentLate;         /* COMMIT of a client that is gone is still on its way */

bool committed[COPIES];
bool deadLetter[COPIES];
byte failures[WORKERS];
byte faults = FAULTS;
#define FAULT faults > 0

/* The promises: the name of the one that fails is in the error of spin. */
bool event_lost, effect_repeated, effect_without_record, never_settled;
#define promise(name, condition) if :: (condition) -> skip :: else -> name = true; assert(!name) fi

inline serveCommit()
{
	if
	:: hasEffect ->
		if :: effects < 2 -> effects++ :: else -> skip fi;
		promise(effect_repeated, effects <= 1)
	:: else -> skip
	fi;
	if :: hasDone -> row = done :: else -> skip fi;
	rollBack();
#if !defined(BROKEN_RECORD_AFTER_COMMIT) && !defined(BROKEN_CLAIM_COMMITTED_FIRST)
	promise(effect_without_record, (row == done) == (effects > 0));
#endif
}

inline rollBack() { hasEffect = false; hasDone = false; sentLate = false; lock = NOBODY }

#define CRASH \
	:: atomic { FAULT -> faults--; failures[me] = 0; \
		if :: lock == me -> lock = GONE :: else -> skip fi; goto Idle }

/* The session is cut: by the network, by the server after idle_in_transaction_session_timeout, or
 * because the worker stood still. The server may notice at once or later. */
#define CUT \
	:: atomic { FAULT && lock == me -> faults--; \
		if :: rollBack() :: lock = GONE fi; goto Begin }

proctype Worker(byte me)
{
	byte p;

Idle:
	if
	:: atomic { !committed[0] -> p = 0 }
	:: atomic { !committed[1] -> p = 1 }
	:: committed[0] && committed[1] -> goto End
	fi;

Begin: /* while another transaction holds the key, the answer is Busy: ask again */
	if
	:: atomic { lock == NOBODY && row == none -> lock = me;
#ifdef BROKEN_CLAIM_COMMITTED_FIRST
		row = done;
#endif
		goto Handler }
	:: atomic { lock == NOBODY && row == done -> goto Commit }
	:: atomic { lock == NOBODY && row == dead ->
		if :: first == p -> goto Commit :: else -> goto Copy fi }
	CRASH
	fi;

Handler:
	if
	:: atomic { lock == me -> hasEffect = true;
#if !defined(BROKEN_RECORD_AFTER_COMMIT) && !defined(BROKEN_CLAIM_COMMITTED_FIRST)
		hasDone = true;
#endif
		goto CommitTx }
	:: atomic { FAULT && lock == me -> faults--; goto Failed }
	CUT
	CRASH
	fi;

CommitTx:
	if
	:: atomic { lock == me -> serveCommit();
#ifdef BROKEN_RECORD_AFTER_COMMIT
		goto Record
#else
		goto Commit
#endif
		}
	:: atomic { FAULT && lock == me -> faults--; /* the answer is lost: acted, not yet, or never */
		if
		:: serveCommit()
		:: lock = GONE; sentLate = true
		:: lock = GONE
		fi;
#ifdef BROKEN_UNKNOWN_IS_COMMITTED
		goto Commit
#else
		goto Begin
#endif
		}
	CUT
	:: atomic { FAULT && lock == me -> faults--; /* a crash with COMMIT on its way */
		lock = GONE; sentLate = true; failures[me] = 0; goto Idle }
	CRASH
	fi;

#ifdef BROKEN_RECORD_AFTER_COMMIT
Record:
	if
	:: atomic { row = done; goto Commit }
	CRASH
	fi;
#endif

Failed:
	if
	:: atomic { lock == me -> rollBack(); failures[me]++;
		if :: failures[me] < ATTEMPTS -> goto Begin :: else -> goto DeadLetter fi }
	CUT
	CRASH
	fi;

DeadLetter:
	if
	:: atomic { deadLetter[p] = true; goto Dead }
	CRASH
	fi;

Dead: /* another end that the store knows stands */
	if
	:: atomic { lock == NOBODY ->
		if :: row == none -> row = dead; first = p :: else -> skip fi; goto Commit }
	:: atomic { FAULT && lock == NOBODY -> faults--; /* the answer is lost */
		if :: row == none -> row = dead; first = p :: else -> skip fi; goto Dead }
	CRASH
	fi;

Copy:
	if
	:: atomic { deadLetter[p] = true; goto Commit }
	CRASH
	fi;

Commit:
	if
	:: atomic { failures[me] = 0;
		promise(event_lost, (row == done && effects > 0) || deadLetter[p]);
		committed[p] = true; goto Idle }
	CRASH
	fi;
End:
	skip
}

proctype Server()
{
	do
	:: atomic { lock == GONE && sentLate -> serveCommit() }
	:: atomic { lock == GONE -> rollBack() }
	:: atomic { timeout ->
		promise(never_settled, committed[0] && committed[1] && row != none && lock == NOBODY);
		break }
	od
}

init { atomic { run Worker(0); run Worker(1); run Server() } }
