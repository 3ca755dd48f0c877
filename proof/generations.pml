/* A model of one total by generation (docs/proof/protocol.md, section 14) for SPIN: a limit whose
   window begins at any instant, and calls in flight. Two instances, one store, and few
   messages. The search plays all orders of what may happen. Generations.v and AnyPhase.v are about
   any number of each, but know no restores and no loans. As in model.pml a switch takes out
   one part of the rule (-D and one of the names in `#ifdef` and `#ifndef`, below the
   line), and the search must then find a history that is over.

   Time goes in ticks. A generation is 2 ticks. The clock of instance 1 may be 1 ahead, which is 2e.

   SLIDING=1: the provider's window begins at any tick, and it counts a permit in the tick in which it
   is issued. With GUARD=1 its window is M - 1 generations, and the guard is the second tick of each
   generation. With GUARD=0 its window is M - 2 generations.
   SLIDING=0: calls in flight. Each slot that an instance has counts as a call until the instant by
   which its label's calls have ended. A crash ends none.

   An answer comes with the message that it is about, or is lost. */

#define LABELS 5

#ifndef SLIDING
#define SLIDING 0
#endif
#ifndef GUARD
#define GUARD 1
#endif
#ifndef T
#define T 1           /* the limit */
#endif
#ifndef M
#define M 2           /* so many labels in a row count */
#endif
#ifndef LAST
#define LAST 6        /* ticks; at most 10 */
#endif
/* How often each may happen, all instances together. */
#ifndef SENDS
#define SENDS 3       /* a transaction is sent */
#endif
#ifndef COPIES
#define COPIES 0      /* one arrives twice */
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef RESTORES
#define RESTORES 0    /* of a backup, under another cluster ID; at most 1 */
#endif
#ifndef LOANS
#define LOANS 0       /* permits lent */
#endif

/* What a transaction does: it moves by giving back, and taking of the running label; or it
   notes a restore. */
mtype = { TAKES, GIVES_BACK, MOVES, NOTES_RESTORE }
/* What else may happen. A message arrives, without or with an answer. The provider's window begins. */
mtype = { TICK, BACKUP, RESTORE, ARRIVES, ANSWERED, COPIED, GIVES_UP, READS, CRASHES_NOW, ISSUES, LENDS, HEARS, BEGINS }
#define NOT_YET 255

typedef Total {
	byte out[LABELS];  /* taken of each label */
	byte cluster;     /* that wrote it */
	byte from;        /* the first generation in which it hands out */
	byte writes
}
typedef Message {
	byte copies;      /* that have not arrived */
	mtype kind;
	byte label;
	byte to;          /* the label to which it moves */
	byte seen;        /* the number of writes of the total that it was computed from */
	Total next        /* what it writes */
}
typedef Instance {
	bool known;       /* it has read the total */
	Total total;      /* the newest total that it knows */
	byte cluster;     /* that has answered */
	byte may[LABELS]; /* what it may issue, or its slots */
	bool dead;
	bool waiting;     /* for the answer to sent[0] */
	Message sent[2];  /* the newest, and one whose answer it has given up */
	byte told[LABELS];/* what it has told the other that it lends */
	byte heard[LABELS]/* what it has heard that the other lends */
}
Instance inst[2];
Total store, backup;
byte cluster;         /* the store's ID */
bool saved;           /* there is a backup */
bool ahead;           /* the clock of instance 1 is */
byte tick, sends, copies, crashes, restores, loans;
byte begins, issued;  /* the provider's window, and what it has counted in it */

mtype act; byte x, l, k, a, b, c; bool ok; /* scratch, 0 between steps */

#define local(x) (tick + x * ahead)
#define gen(x) (local(x) / 2)
#define window_ends (begins + 2 * (M - 2 + GUARD))

#define copy(to, as) \
	to.out[0] = as.out[0]; to.out[1] = as.out[1]; to.out[2] = as.out[2]; to.out[3] = as.out[3]; to.out[4] = as.out[4]; \
	to.cluster = as.cluster; to.from = as.from; to.writes = as.writes
#define forget_labels(labels, to) \
	labels[0] = 0; \
	if :: to >= 1 -> labels[1] = 0 :: else fi; \
	if :: to >= 2 -> labels[2] = 0 :: else fi; \
	if :: to >= 3 -> labels[3] = 0 :: else fi; \
	if :: to >= 4 -> labels[4] = 0 :: else fi
#define forget_total(t) \
	t.out[0] = 0; t.out[1] = 0; t.out[2] = 0; t.out[3] = 0; t.out[4] = 0; t.cluster = 0; t.from = 0; t.writes = 0
#define differ(t, u) \
	(t.out[0] != u.out[0] || t.out[1] != u.out[1] || t.out[2] != u.out[2] || t.out[3] != u.out[3] || t.out[4] != u.out[4] || \
	t.cluster != u.cluster || t.from != u.from || t.writes != u.writes)

/* ---------------------------------------------------------------------------------- */

/* So many labels count that are not after the running one. */
#ifdef CURRENT_ONLY
#define COUNTED 1
#else
#define COUNTED M
#endif
/* The labels that count in generation g. */
#ifdef LATER_UNCOUNTED
#define counts(l, g) (l + COUNTED > g && l <= g)
#else
#define counts(l, g) (l + COUNTED > g)
#endif
#define of_label(t, l, g) (counts(l, g) -> t.out[l] : 0)
#define sum_of(t, g) (of_label(t, 0, g) + of_label(t, 1, g) + of_label(t, 2, g) + of_label(t, 3, g) + of_label(t, 4, g))

/* The tick of its own clock in which the calls of a label have ended. */
#ifdef NO_MARGIN
#define ends(l) (2 * (l + M))
#else
#define ends(l) (2 * (l + M) - 1)
#endif
#ifdef HELD_BEYOND
#define held_until(l) (ends(l) + 2)
#else
#define held_until(l) ends(l)
#endif
/* What is moved is taken on the same condition as anything else. */
#ifdef MOVE_UNCHECKED
#define may_move(x, l) true
#else
#define may_move(x, l) (sum_of(inst[x].total, gen(x)) + 1 - counts(l, gen(x)) <= T)
#endif

/* When a permit of a label may be issued. */
#ifdef NO_GUARD
#define guarded(x) true
#else
#define guarded(x) (!GUARD || local(x) % 2 == 0)
#endif
#ifdef ISSUES_LATER
#define runs(x, l) (gen(x) == l || gen(x) == l + 1)
#else
#define runs(x, l) (gen(x) == l)
#endif

/* The total is of a store that was there before a restore. */
#ifdef RESTORE_AT_ONCE
#define foreign(x) false
#else
#define foreign(x) (inst[x].total.cluster != inst[x].cluster)
#endif

/* How many generations later it hands out again: the clock that took last may be one ahead. */
#ifdef PAUSE_TOO_SHORT
#define PAUSE M
#else
#define PAUSE (M + 1)
#endif

/* Whether the store commits a message, and an answer of which cluster counts. */
#ifdef NO_CONDITION
#define commits(m) true
#else
#define commits(m) (store.writes == m.seen)
#endif
#ifdef ANY_CLUSTER
#define answers_count(x) true
#else
#define answers_count(x) (inst[x].cluster == cluster)
#endif

/* Never more than the limit. */
inline judge() {
#if SLIDING
	assert(issued <= T)
#else
	c = 0;
	for (a : 0 .. 1) {
		for (b : 0 .. LABELS - 1) {
			if :: local(a) < held_until(b) -> c = c + inst[a].may[b] :: else fi
		}
	}
	assert(c <= T)
#endif
}

/* What no longer matters is forgotten, so that there are fewer states. */
#ifdef NO_CONDITION
#define refused(x, k) false
#else
/* Its numbers may matter to its answer. */
#define refused(x, k) (restores == RESTORES && inst[x].sent[k].seen < store.writes && \
	!(k == 0 && inst[x].waiting && store.writes == inst[x].sent[k].seen + 1))
#endif
inline forget_sent(x, k) {
	if
	:: inst[x].sent[k].kind && inst[x].sent[k].copies == 0 && (k == 1 || !inst[x].waiting) ->
		inst[x].sent[k].kind = 0; inst[x].sent[k].label = 0; inst[x].sent[k].to = 0; inst[x].sent[k].seen = 0; forget_total(inst[x].sent[k].next)
	:: else ->
		if :: inst[x].sent[k].next.writes && refused(x, k) -> forget_total(inst[x].sent[k].next) :: else fi
	fi
}
inline next_tick() {
	tick++;
	if
	:: tick / 2 > M ->
		b = tick / 2 - M - 1;
		forget_labels(store.out, b); forget_labels(backup.out, b);
		for (a : 0 .. 1) {
			forget_labels(inst[a].total.out, b); forget_labels(inst[a].may, b);
			forget_labels(inst[a].told, b); forget_labels(inst[a].heard, b);
			forget_labels(inst[a].sent[0].next.out, b); forget_labels(inst[a].sent[1].next.out, b)
		}
	:: else
	fi
}

/* A message of x arrives; its answer is lost, or comes. */
inline arrives() {
	inst[x].sent[k].copies--;
	ok = commits(inst[x].sent[k]);
	if :: ok -> copy(store, inst[x].sent[k].next) :: else fi
}
inline answered() {
	inst[x].waiting = false;
	a = inst[x].sent[0].label;
	if
	:: ok ->
		if
		:: answers_count(x) ->
			if
			:: inst[x].sent[0].kind == TAKES -> inst[x].may[a]++
			:: inst[x].sent[0].kind == MOVES -> inst[x].may[inst[x].sent[0].to]++
			:: else
			fi;
#ifdef SEND_BEFORE_LOWER
			if
			:: (inst[x].sent[0].kind == MOVES || inst[x].sent[0].kind == GIVES_BACK) && inst[x].may[a] > 0 -> inst[x].may[a]--
			:: else
			fi
#endif
		:: else
		fi
#ifndef SEND_BEFORE_LOWER
	/* Refused: it never commits if the store was written once since, and to something else. */
	:: !ok && (inst[x].sent[0].kind == MOVES || inst[x].sent[0].kind == GIVES_BACK) ->
#ifdef BELIEVE_REFUSAL
		inst[x].may[a]++
#else
		if
		:: inst[x].cluster == cluster && store.writes == inst[x].sent[0].seen + 1 && differ(store, inst[x].sent[0].next) ->
			inst[x].may[a]++
		:: else
		fi
#endif
#endif
	:: else
	fi;
	copy(inst[x].total, store); inst[x].cluster = cluster
}
inline gives_up() {
	inst[x].waiting = false;
#ifdef COUNT_UNANSWERED
	if :: inst[x].sent[0].kind == TAKES -> inst[x].may[inst[x].sent[0].label]++ :: else fi
#endif
}

/* A transaction is sent. What it gives back or moves is lowered before. */
inline send() {
	sends++;
	if
	:: inst[x].sent[0].copies > 0 -> /* nobody waits for its answer */
		inst[x].sent[1].copies = inst[x].sent[0].copies; inst[x].sent[1].kind = inst[x].sent[0].kind;
		inst[x].sent[1].label = inst[x].sent[0].label; inst[x].sent[1].seen = inst[x].sent[0].seen;
		copy(inst[x].sent[1].next, inst[x].sent[0].next)
	:: else
	fi;
	copy(inst[x].sent[0].next, inst[x].total);
	inst[x].sent[0].next.writes++; inst[x].sent[0].next.cluster = inst[x].cluster;
	inst[x].sent[0].copies = 1; inst[x].sent[0].kind = act; inst[x].sent[0].label = l; inst[x].sent[0].to = 0;
	inst[x].sent[0].seen = inst[x].total.writes;
	inst[x].waiting = true;
	if
	:: act == TAKES -> inst[x].sent[0].next.out[l]++
	:: act == NOTES_RESTORE -> inst[x].sent[0].next.from = gen(x) + PAUSE
	:: else ->
		inst[x].sent[0].next.out[l]--;
#ifndef SEND_BEFORE_LOWER
		inst[x].may[l]--;
#endif
		if :: act == MOVES -> inst[x].sent[0].to = gen(x); inst[x].sent[0].next.out[gen(x)]++ :: else fi
	fi
}

inline lend() {
	loans++; inst[x].told[l]++;
#ifndef LEND_NOT_CHARGED
	inst[x].may[l]--
#endif
}
/* It hears the number that the other has told. */
inline hear() {
#ifdef LOAN_SUMMED
	inst[x].may[l] = inst[x].may[l] + inst[1 - x].told[l]; inst[x].heard[l]++
#else
	inst[x].may[l] = inst[x].may[l] + inst[1 - x].told[l] - inst[x].heard[l]; inst[x].heard[l] = inst[1 - x].told[l]
#endif
}
#ifdef LOAN_SUMMED
#define unheard(x, l) (inst[1 - x].told[l] > 0 && inst[x].heard[l] < 2)
#else
#define unheard(x, l) (inst[1 - x].told[l] > inst[x].heard[l])
#endif

inline issue() {
	inst[x].may[l]--;
	if :: begins != NOT_YET -> issued++ :: else fi
}
inline crash() {
	crashes++; inst[x].dead = true; inst[x].waiting = false; inst[x].known = false;
	forget_total(inst[x].total); inst[x].cluster = 0;
#if SLIDING
	forget_labels(inst[x].may, 4)
#endif
}

#define idle(x) (!inst[x].dead && !inst[x].waiting)
#define sending(x) (idle(x) && inst[x].known && sends < SENDS && gen(x) < LABELS && inst[x].sent[1].copies == 0)
#define hands_out(x) (gen(x) >= inst[x].total.from)
#define gives_back(x, l) (sending(x) && !foreign(x) && inst[x].may[l] > 0 && inst[x].total.out[l] > 0)
#define moves(x, l) (gives_back(x, l) && l < gen(x) && hands_out(x) && may_move(x, l))

#define label(y, n) \
	:: gives_back(y, n) -> x = y; act = GIVES_BACK; l = n \
	:: moves(y, n) -> x = y; act = MOVES; l = n \
	:: SLIDING && !inst[y].dead && inst[y].may[n] > 0 && runs(y, n) && guarded(y) -> x = y; act = ISSUES; l = n \
	:: loans < LOANS && idle(y) && inst[y].may[n] > 0 -> x = y; act = LENDS; l = n \
	:: LOANS && idle(y) && unheard(y, n) -> x = y; act = HEARS; l = n

#define instance(y) \
	:: inst[y].sent[0].copies > 0 -> x = y; act = ARRIVES \
	:: inst[y].sent[1].copies > 0 -> x = y; act = ARRIVES; k = 1 \
	:: inst[y].sent[0].copies > 0 && inst[y].waiting -> x = y; act = ANSWERED \
	:: inst[y].sent[0].copies == 1 && inst[y].waiting && copies < COPIES -> x = y; act = COPIED \
	:: inst[y].waiting -> x = y; act = GIVES_UP \
	:: idle(y) && (!inst[y].known || inst[y].cluster != cluster || differ(inst[y].total, store)) -> x = y; act = READS \
	:: crashes < CRASHES && !inst[y].dead -> x = y; act = CRASHES_NOW \
	:: sending(y) && foreign(y) -> x = y; act = NOTES_RESTORE \
	:: sending(y) && !foreign(y) && hands_out(y) && sum_of(inst[y].total, gen(y)) < T -> x = y; act = TAKES; l = gen(y) \
	label(y, 0) label(y, 1) label(y, 2) label(y, 3) label(y, 4)

init {
	atomic {
		store.writes = 1;
		begins = NOT_YET;
		if :: true :: ahead = true fi
	}
end:	do
	:: atomic {
		if
		:: tick + 1 < LAST && (begins == NOT_YET || tick < window_ends) -> act = TICK
		:: SLIDING && begins == NOT_YET -> act = BEGINS
		:: !saved && restores < RESTORES -> act = BACKUP
		:: saved && restores < RESTORES -> act = RESTORE
		instance(0)
		instance(1)
		fi;
		d_step {
			printf("tick %d: %e, instance %d, label %d\n", tick, act, x, l);
			if
			:: act == TICK -> next_tick()
			:: act == BEGINS -> begins = tick
			:: act == BACKUP -> copy(backup, store); saved = true
			:: act == RESTORE -> copy(store, backup); forget_total(backup); saved = false; cluster++; restores++
			:: act == ARRIVES -> arrives()
			:: act == ANSWERED -> arrives(); answered()
			:: act == COPIED -> copies++; inst[x].sent[0].copies++
			:: act == GIVES_UP -> gives_up()
			:: act == READS -> inst[x].known = true; copy(inst[x].total, store); inst[x].cluster = cluster
			:: act == CRASHES_NOW -> crash()
			:: act == ISSUES -> issue()
			:: act == LENDS -> lend()
			:: act == HEARS -> hear()
			:: else -> send()
			fi;
			forget_sent(0, 0); forget_sent(0, 1); forget_sent(1, 0); forget_sent(1, 1);
			judge();
			x = 0; act = 0; l = 0; k = 0; a = 0; b = 0; c = 0; ok = false
		}
	}
	od
}
