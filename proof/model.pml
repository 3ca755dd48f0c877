/* A model of the rule of docs/proof/protocol.md for SPIN: three instances, three windows, and
   few revisions. The search plays all orders of what may happen. Statement.v is about any
   number of each. Here a switch takes out one part of the rule (-D and one of the
   names in `#ifdef` and `#ifndef`, below the line), and the search must then find a history
   in which the sum is above the total. So neither the rule nor the model is vacuous.

   Time goes in ticks. In each the store may commit one revision, and then each instance
   has its turn. A window is 2 ticks and S' is 1. One clock may be 1 ahead of the others,
   which is 2e, and all run at the same rate. So the timing rule demands S = 2. Window k
   starts at local time 2k + 2, and its lookback at local time 2k, when the window before
   starts. There is no guard, and the sum is that of windows by index.

   An instance issues as much as it may as soon as it may. Nothing that others do depends
   on it, so this exceeds the total if anything does. */

#define N 3           /* instances; the last is no member at first */
#define WINDOWS 3
#define LAST 8        /* the tick in which the slowest clock ends the last window */
#define NONE 255      /* no view, or no key */
#define EVER 254      /* a key that has no `until` */
#define OLD 2         /* ticks: S' has passed */

/* What an instance may do in a turn, beside the rest. */
#define STUCK 1       /* its read is not answered yet */
#define PROMISE 2
#define LEND 3        /* one permit more */
#define HEAR 4
#define PASS 5        /* it hears, and lends one permit on */

/* How often each may happen, all instances together. */
#ifndef REVISIONS
#define REVISIONS 2   /* after the first view; at most 3 */
#endif
#ifndef TOTALS
#define TOTALS 1      /* 1: of the total */
#endif
#ifndef MEMBERS
#define MEMBERS 1     /* 1: a join, and deletions */
#endif
#ifndef GAPS
#define GAPS 0        /* of a watch */
#endif
#ifndef STUCK_READS
#define STUCK_READS 0 /* 1: a read of instance 0 may be answered late */
#endif
#ifndef PROMISES
#define PROMISES 0    /* 1: instance 1 may promise its end */
#endif
#ifndef LOANS
#define LOANS 0       /* permits lent, and lent on, in a ring: by 0 to 1, by 1 to 2, by 2 to 0 */
#endif

typedef View { byte total; byte until[N] } /* the first window that a key has no part in */
View view[REVISIONS + 1];
byte newest;          /* the newest revision */

typedef Instance {
	byte pos;         /* its newest view */
	byte base;        /* its view when the running window's lookback began */
	byte next;        /* the same of the next window */
	byte proof;       /* ticks since its newest proof was requested */
	byte asked;       /* the revision that its outstanding read returns */
	byte ago;         /* ticks since that was sent */
	byte used;        /* what it has used and lent in the running window */
	byte ends;        /* it issues nothing in this window and later ones */
#ifdef FROM_NOW
	byte before; byte earlier;
#endif
	byte got;         /* what it has heard that it was lent in the running window */
	byte told_in;     /* the window of its newest loan */
	byte told;        /* the number told, of that window */
	byte took_in;     /* the window of the newest loan that it has heard of */
	byte took;        /* the number heard */
	byte skipped      /* the revisions that it has not applied, as bits */
}
Instance inst[N];
bool ahead[N];        /* whether its clock is 1 ahead of the others; of one at most */
byte tick, gaps, promises, loans, heard, act;
bool joined;

byte sum[WINDOWS];    /* what all have used of each window */
byte u[WINDOWS];      /* the newest view at B, which is S before the slowest clock's start */

byte a, b, c, d, n, rank, part, least, W, limit; /* scratch, 0 between steps */
bool giving;

#define takes_part(v, x, W) (view[v].until[x] != NONE && W < view[v].until[x])
#define local(x) (tick + ahead[x] - 1)
#define begun(x) (tick + ahead[x] >= 1)
#define in_a_window(x) (begun(x) && local(x) >= 2 && local(x) < 2 + 2 * WINDOWS)
#define active(x) (tick + ahead[x] <= 2 * WINDOWS + 2)
#define running(x) (local(x) / 2 - 1)
#define host(x) ((x + 2) % 3)

/* part = share(v, x, W): the total divided equally, the rest to the first. */
inline share(v, x, W) {
	n = 0; rank = 0;
	for (b : 0 .. N - 1) {
		if
		:: takes_part(v, b, W) -> n++; rank = rank + (b < x -> 1 : 0)
		:: else
		fi
	}
	part = 0;
	if
	:: takes_part(v, x, W) ->
		part = view[v].total / n + (rank < view[v].total % n -> 1 : 0)
	:: else
	fi
}

/* giving = whether revision v + 1 gives for W. */
inline gives(v, W) {
	giving = view[v].total <= view[v + 1].total;
	for (b : 0 .. N - 1) {
		giving = giving && (takes_part(v, b, W) == takes_part(v + 1, b, W) ||
			takes_part(v, b, W) && view[v + 1].until[b] != NONE)
	}
}

/* The sum of W is at most the total at the end of the run of u, as far as committed. */
inline judge(W) {
	d = u[W];
	do
	:: d < newest ->
		gives(d, W);
		if :: giving -> d++ :: else -> break fi
	:: else -> break
	od;
	assert(sum[W] <= view[d].total)
}

/* ---------------------------------------------------------------------------------- */

/* giving = whether revision v + 1 gives for W, as the instance x finds. */
inline finds_giving(v, x, W) {
	giving = true;
#ifndef TOTAL_MAY_FALL
	giving = view[v].total <= view[v + 1].total;
#endif
	for (b : 0 .. N - 1) {
#ifndef DELETION_GIVES
		giving = giving && !(takes_part(v, b, W) && view[v + 1].until[b] == NONE);
#endif
#ifndef JOIN_GIVES
		giving = giving && !(!takes_part(v, b, W) && takes_part(v + 1, b, W));
#endif
		skip
	}
#ifdef OWN_SHARE_ALONE
	share(v, x, W); c = part;
	share(v + 1, x, W);
	giving = c <= part;
#endif
#ifdef NO_LOOKBACK
	giving = true;
#endif
}

/* least = the smallest share of x in W over the views that count. */
inline bound(x, W) {
	share(inst[x].pos, x, W);
	least = part;
	a = inst[x].base;
	do
	:: a < inst[x].pos ->
		finds_giving(a, x, W);
		if
		:: !giving && !(inst[x].skipped & (1 << a)) ->
			share(a, x, W);
			least = (part < least -> part : least)
		:: else
		fi;
		a++
	:: else -> break
	od
#ifdef NEWEST_AFTER_GIVING
	if
	:: inst[x].pos > 0 ->
		finds_giving(inst[x].pos - 1, x, W);
		if :: giving -> share(inst[x].pos, x, W); least = part :: else fi
	:: else
	fi
#endif
}

/* A gap: the newest view is listed, and the history begins again. */
inline relist(x) {
	gaps++;
	printf("tick %d: instance %d has a gap\n", tick, x);
#ifdef GAP_FORGOTTEN
	a = inst[x].pos + 1;
	do
	:: a < newest -> inst[x].skipped = inst[x].skipped | (1 << a); a++
	:: else -> break
	od;
#else
	inst[x].base = NONE; inst[x].next = NONE;
#endif
#ifdef READY_AT_ONCE
	inst[x].base = newest; inst[x].next = newest;
#endif
#ifdef NUMBER_FORGOTTEN
	inst[x].took = 0;
#endif
	inst[x].pos = newest
}

/* The answer of the outstanding read: a proof, once the watch has delivered as much. */
inline answered(x) {
	if
#ifndef WATCH_NOT_COMPARED
	:: inst[x].pos < inst[x].asked
#endif
	:: else ->
#ifdef DATED_AT_ANSWER
		inst[x].proof = 0
#else
		inst[x].proof = (inst[x].ago < inst[x].proof -> inst[x].ago : inst[x].proof)
#endif
	fi
}

/* An end: from the next window on it issues nothing. */
inline promise(x) {
	promises++;
	printf("tick %d: instance %d promises an end\n", tick, x);
#ifdef END_OF_THE_RUNNING_WINDOW
	inst[x].ends = (local(x) >= 2 -> running(x) : 0)
#else
	inst[x].ends = local(x) / 2
#endif
}

/* Rules 1, 2 and 4 of section 2. Without them its own bound is 0. */
#ifdef NO_FRESHNESS
#define fresh(x) true
#else
#define fresh(x) (inst[x].proof < OLD)
#endif
#ifdef END_IGNORED
#define goes_on(x) true
#else
#ifdef END_STILL_BORROWS
#define goes_on(x) (running(x) < inst[x].ends || inst[x].got > 0)
#else
#define goes_on(x) (running(x) < inst[x].ends)
#endif
#endif

/* Used and lent are at most the own bound now, and what was heard. */
inline issue(x) {
	if
	:: in_a_window(x) ->
		W = running(x);
		if
		:: inst[x].base != NONE && fresh(x) && goes_on(x) -> bound(x, W)
		:: else -> least = 0
		fi;
		limit = least + inst[x].got;
		if
		:: (act == LEND || act == PASS) && limit > inst[x].used ->
			loans++;
			inst[x].told = (inst[x].told_in == W -> inst[x].told + 1 : 1);
			inst[x].told_in = W;
			printf("tick %d: instance %d lends one more permit of window %d: %d\n", tick, x, W, inst[x].told);
#ifdef LOAN_NOT_CHARGED
			if :: act == PASS -> inst[x].used++ :: else fi
#else
#ifdef PASSED_NOT_CHARGED
			if :: act == LEND -> inst[x].used++ :: else fi
#else
			inst[x].used++
#endif
#endif
		:: else
		fi;
		if
		:: limit > inst[x].used ->
			printf("tick %d: instance %d, at view %d, uses %d of window %d\n", tick, x, inst[x].pos, limit - inst[x].used, W);
			sum[W] = sum[W] + limit - inst[x].used;
			inst[x].used = limit;
			judge(W)
		:: else
		fi
	:: else
	fi
}

/* It hears of the newest number of its host, perhaps late or once more. */
inline hear(x) {
	if
	:: in_a_window(x) && inst[host(x)].told_in != NONE &&
#ifndef LOAN_IN_ANY_WINDOW
		running(x) == inst[host(x)].told_in &&
#endif
		true ->
		c = (inst[x].took_in == inst[host(x)].told_in -> inst[x].took : 0);
#ifdef LOAN_SUMMED
		c = 0;
#endif
		if
		:: inst[host(x)].told > c ->
			printf("tick %d: instance %d hears of %d more of window %d\n", tick, x, inst[host(x)].told - c, inst[host(x)].told_in);
			inst[x].got = inst[x].got + inst[host(x)].told - c;
			inst[x].took_in = inst[host(x)].told_in; inst[x].took = inst[host(x)].told
		:: else
		fi
	:: else
	fi
}

/* A turn of x: its watch has delivered `heard` revisions (GAP: it had a gap), and it
   does `act`. */
#define GAP 9
inline turn(x) {
	inst[x].proof = (inst[x].proof < OLD -> inst[x].proof + 1 : OLD);
	inst[x].ago = (inst[x].ago < OLD -> inst[x].ago + 1 : OLD);
	if :: heard == GAP -> relist(x) :: else -> inst[x].pos = inst[x].pos + heard fi;
#ifdef COUNT_FORGOTTEN
	if :: heard > 0 -> inst[x].used = 0 :: else fi;
#endif
#ifdef COALESCED
	if :: heard == 2 -> inst[x].skipped = inst[x].skipped | (1 << (inst[x].pos - 1)) :: else fi;
#endif
#ifdef S_IS_1
	if :: begun(x) && local(x) % 2 == 1 -> inst[x].next = inst[x].pos :: else fi;
#endif
	if
	:: begun(x) && local(x) % 2 == 0 ->
		inst[x].used = 0; inst[x].got = 0; inst[x].base = inst[x].next; inst[x].next = inst[x].pos
	:: else
	fi;
#ifdef FROM_NOW
	inst[x].base = inst[x].earlier; inst[x].earlier = inst[x].before; inst[x].before = inst[x].pos;
#endif
	if
	:: act == STUCK
	:: else -> answered(x); inst[x].asked = newest; inst[x].ago = 0; answered(x)
	fi;
	if :: act == PROMISE -> promise(x) :: else fi;
	if :: act == HEAR || act == PASS -> hear(x) :: else fi;
	issue(x);
	/* What no longer matters is forgotten, so that there are fewer states. */
	if :: begun(x) && local(x) >= 2 * WINDOWS -> inst[x].next = 0 :: else fi;
	if
	:: begun(x) && local(x) >= 2 * WINDOWS + 1 ->
		inst[x].pos = 0; inst[x].base = 0; inst[x].used = 0; inst[x].proof = 0; inst[x].asked = 0;
		inst[x].ago = 0; inst[x].ends = 0; inst[x].skipped = 0; inst[x].got = 0
	:: else
	fi
}

inline turn_of(x) {
	atomic {
		if
		:: true
		:: active(x) && inst[x].pos + 1 <= newest -> heard = 1
		:: active(x) && inst[x].pos + 2 <= newest -> heard = 2
		:: active(x) && gaps < GAPS && inst[x].pos < newest -> heard = GAP
		:: active(x) && gaps < GAPS && inst[x].pos < newest && LOANS -> heard = GAP; act = HEAR
		:: x == 0 && active(x) && STUCK_READS -> act = STUCK
		:: x == 0 && active(x) && STUCK_READS && inst[x].pos < newest -> act = STUCK; heard = 1
		:: x == 1 && active(x) && promises < PROMISES && inst[x].ends == EVER && begun(x) && view[newest].until[x] == EVER -> act = PROMISE
		:: loans < LOANS && in_a_window(x) -> act = LEND
		:: LOANS && inst[host(x)].told_in != NONE && in_a_window(x) -> act = HEAR
		:: loans < LOANS && inst[host(x)].told_in != NONE && in_a_window(x) -> act = PASS
		fi;
		d_step {
			if :: active(x) -> turn(x) :: else fi;
			heard = 0; act = 0;
			a = 0; b = 0; c = 0; d = 0; n = 0; rank = 0; part = 0; least = 0; W = 0; limit = 0;
			giving = false
		}
	}
}

/* The store may commit a revision: a total, an end that an instance has announced, a deletion,
   a join. B of window k is in tick 2k + 1. */
inline store() {
	atomic {
		if
		:: true
		:: newest < REVISIONS && tick < LAST ->
			d_step {
				newest++;
				view[newest].total = view[newest - 1].total;
				view[newest].until[0] = view[newest - 1].until[0];
				view[newest].until[1] = view[newest - 1].until[1];
				view[newest].until[2] = view[newest - 1].until[2]
			}
			if
			:: TOTALS && view[newest].total != 1 -> view[newest].total = 1
			:: TOTALS && view[newest].total != 2 -> view[newest].total = 2
			:: TOTALS && view[newest].total != 3 -> view[newest].total = 3
			:: MEMBERS && !joined -> joined = true; view[newest].until[2] = EVER
			:: MEMBERS && view[newest].until[0] != NONE -> view[newest].until[0] = NONE
			:: MEMBERS && view[newest].until[1] != NONE -> view[newest].until[1] = NONE
			:: view[newest].until[1] == EVER && inst[1].ends != EVER -> view[newest].until[1] = inst[1].ends
			:: else -> newest--
			fi;
			printf("tick %d: newest revision %d: total %d, keys until %d %d %d\n", tick, newest,
				view[newest].total, view[newest].until[0], view[newest].until[1], view[newest].until[2])
		fi;
		d_step {
			if :: tick % 2 == 1 && tick / 2 < WINDOWS -> u[tick / 2] = newest :: else fi;
			/* Windows that are over for all need no memory. */
			if :: tick >= 5 && tick % 2 == 1 -> sum[(tick - 5) / 2] = 0; u[(tick - 5) / 2] = 0 :: else fi
		}
	}
}

init {
	atomic {
		view[0].total = 2;
		view[0].until[0] = EVER; view[0].until[1] = EVER; view[0].until[2] = NONE;
		inst[0].proof = OLD; inst[1].proof = OLD; inst[2].proof = OLD;
		inst[0].ends = EVER; inst[1].ends = EVER; inst[2].ends = EVER;
		inst[0].told_in = NONE; inst[1].told_in = NONE; inst[2].told_in = NONE;
		inst[0].took_in = NONE; inst[1].took_in = NONE; inst[2].took_in = NONE;
		if :: true :: ahead[0] = true :: ahead[1] = true :: ahead[2] = true fi
	}
	do
	:: tick <= LAST -> store(); turn_of(0); turn_of(1); turn_of(2); tick++
	:: else -> break
	od
}
