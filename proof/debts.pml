/* A model of debts that are paid by loans (docs/proof/guarantees.md) for SPIN: three instances,
   and two windows, which each enters when its clock says so. Debts.v is about any number of each.
   As in model.pml a switch takes out one part of the rule (-D and one of the names in
   `#ifdef` and `#ifndef`, below the line), and the search must then find a history that breaks a claim.

   A call takes one permit, and may cost more, which is known at any later time. Each instance has a
   share of 1 of each window, so the limit is 3. An instance in debt pays first: with its share and with
   what it hears it was lent. What hosts have told may be heard late, again, or never. */

#define N 3
#define WINDOWS 2

/* How often each may happen, all instances together. */
#ifndef CALLS
#define CALLS 3
#endif
#ifndef LOANS
#define LOANS 2
#endif
#ifndef EXTRA
#define EXTRA 2       /* a call costs 1 more than its permit, up to this */
#endif

mtype = { ENTERS, SETTLES, ISSUES, PAYS, FORGETS, LENDS, HEARS }

typedef Instance {
	byte window;      /* that runs by its clock; WINDOWS: it has ended */
	byte used;        /* issued, paid and lent in it */
	byte heard;       /* what it counts of loans in it */
	byte debt;
	byte running[WINDOWS]; /* its calls whose cost is not known yet, by the window of their permits */
	byte told[6];     /* the number that it has told another, of a window: see pair */
	byte had[6]       /* the number of another, of a window, that it has counted */
}
Instance inst[N];
byte booked[WINDOWS]; /* permits issued and paid, of each window */
byte cost;            /* of all calls; of those running at least 1 */
byte calls, loans;
bool misused;         /* one in debt issued or lent */

mtype act; byte x, y, v, c; /* scratch, 0 between steps */

#define pair(y, v) (2 * y + v)
#define has_left(x) (inst[x].heard + 1 > inst[x].used)
#define runs(x) (inst[x].window < WINDOWS)
#define debts (inst[0].debt + inst[1].debt + inst[2].debt)

inline judge() {
	assert(booked[0] <= N && booked[1] <= N); /* no window is over */
	assert(cost <= booked[0] + booked[1] + debts); /* each cost is booked, or owed */
	assert(!misused) /* a debt is paid before anything else */
}

/* ---------------------------------------------------------------------------------- */

#ifdef ISSUE_IN_DEBT
#define may_issue(x) true
#else
#define may_issue(x) (inst[x].debt == 0)
#endif
#ifdef LEND_IN_DEBT
#define may_lend(x) true
#else
#define may_lend(x) (inst[x].debt == 0)
#endif
#ifdef PAY_ANYHOW
#define may_pay(x) true
#else
#define may_pay(x) has_left(x)
#endif
#ifdef FORGIVE
#define forgives true
#else
#define forgives false
#endif
#ifdef LOAN_IN_ANY_WINDOW
#define hears_in(x, v) true
#else
#define hears_in(x, v) (inst[x].window == v)
#endif
#ifdef LOAN_SUMMED
#define unheard(x, y, v) (inst[y].told[pair(x, v)] > 0 && inst[x].heard < 3)
#else
#define unheard(x, y, v) (inst[y].told[pair(x, v)] > inst[x].had[pair(y, v)])
#endif

inline enter() {
	inst[x].window++; inst[x].used = 0;
#ifndef HEARD_STAYS
	inst[x].heard = 0
#endif
}
inline issue() {
	calls++; cost++; misused = inst[x].debt > 0;
	inst[x].used++; inst[x].running[inst[x].window]++; booked[inst[x].window]++
}
inline pay() {
	inst[x].debt--; booked[inst[x].window]++;
#ifndef PAY_NOT_CHARGED
	inst[x].used++
#endif
}
inline lend() {
	loans++; misused = inst[x].debt > 0;
	inst[x].told[pair(y, inst[x].window)]++;
#ifndef LEND_NOT_CHARGED
	inst[x].used++
#endif
}
inline hear() {
#ifdef LOAN_SUMMED
	inst[x].heard = inst[x].heard + inst[y].told[pair(x, v)]
#else
	inst[x].heard = inst[x].heard + inst[y].told[pair(x, v)] - inst[x].had[pair(y, v)];
	inst[x].had[pair(y, v)] = inst[y].told[pair(x, v)]
#endif
}

#define settling(i, w, k) \
	:: inst[i].running[w] && k <= EXTRA -> x = i; act = SETTLES; v = w; c = k
#define other(i, j) \
	:: runs(i) && has_left(i) && loans < LOANS && may_lend(i) -> x = i; act = LENDS; y = j \
	:: runs(i) && hears_in(i, 0) && unheard(i, j, 0) -> x = i; act = HEARS; y = j \
	:: runs(i) && hears_in(i, 1) && unheard(i, j, 1) -> x = i; act = HEARS; y = j; v = 1
#define instance(i) \
	:: runs(i) -> x = i; act = ENTERS \
	settling(i, 0, 0) settling(i, 0, 1) settling(i, 0, 2) settling(i, 1, 0) settling(i, 1, 1) settling(i, 1, 2) \
	:: runs(i) && has_left(i) && calls < CALLS && may_issue(i) -> x = i; act = ISSUES \
	:: runs(i) && inst[i].debt && may_pay(i) -> x = i; act = PAYS \
	:: forgives && inst[i].debt -> x = i; act = FORGETS \
	other(i, (i + 1) % N) other(i, (i + 2) % N)

init {
end:	do
	:: atomic {
		if
		instance(0)
		instance(1)
		instance(2)
		fi;
		d_step {
			printf("tick: instance %d, in window %d, %e; instance %d, window %d, %d more\n", x, inst[x].window, act, y, v, c);
			if
			:: act == ENTERS -> enter()
			:: act == SETTLES -> inst[x].running[v]--; inst[x].debt = inst[x].debt + c; cost = cost + c
			:: act == ISSUES -> issue()
			:: act == PAYS -> pay()
			:: act == FORGETS -> inst[x].debt--
			:: act == LENDS -> lend()
			:: act == HEARS -> hear()
			fi;
			judge();
#ifndef LOAN_IN_ANY_WINDOW
			/* Numbers of windows that have ended for the guest do not matter. */
			for (x : 0 .. N - 1) {
				for (y : 0 .. N - 1) {
					for (v : 0 .. WINDOWS - 1) {
						if
						:: v < inst[x].window -> inst[y].told[pair(x, v)] = 0; inst[x].had[pair(y, v)] = 0
						:: else
						fi
					}
				}
			}
#endif
			x = 0; y = 0; v = 0; c = 0; act = 0
		}
	}
	od
}
