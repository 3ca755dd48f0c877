(* What is proved about the rule of docs/proof/protocol.md, and from what.

   This file has definitions only, and is all that a reader has to believe: a world, what
   is assumed of it ([assumed]), the rule that its instances obey ([obeys]), and the
   claims. The claims are proved in Sum.v, Lending.v, First.v and Hold.v. Example.v has a world that
   satisfies all assumptions, and one in which the rule without its lookback exceeds the total;
   LendingExample.v has the same of each rule of lending, and FirstExample.v a first instance.
   Views.v computes shares and revisions that give from what views show, as the code does, and
   proves what is assumed of them here; it uses Division.v. Extract.v makes a program of these
   definitions, and test/differential compares the shipped code with it.

   `.ci/run proof` checks that everything is proved, from no axiom.

   Covered: sections 2 to 4 of protocol.md for one window length, any number of
   instances, any totals and any views: the settle rule under the outage rule `stop`,
   the timing rule, revisions that give, announced ends, lending, also of borrowed
   permits (section 13), the first of a fleet, without loans (section 12), and `hold`
   (section 6). Other files state and prove more: HoldLending.v loans under `hold`,
   Arrivals.v calls as the provider counts them, Shapes.v the shapes `sliding` and `bucket`
   (section 10), KeyBudget.v and Marks.v long limits (section 14),
   Generations.v and AnyPhase.v the rule of generations, for windows of any phase and for
   calls in flight, SameId.v restores under the old cluster ID, Keys.v limits by key
   (section 15), Changes.v changes of the policy's times, Debts.v costs that are known late.

   Not covered: histories in restored stores (11), clocks that are worse than e (7), and the
   code itself.
   Several lengths are covered one by one, as section 4 argues. *)

From Coq Require Export QArith ZArith List Bool Arith.
Export ListNotations.

(* Incarnations are numbered, and so are the revisions that change the provider. View v
   is the state after revision v; view 0 is the empty store. A window is its index. *)
Definition incarnation := nat.
Definition view := nat.
Definition window := Z.
Bind Scope nat_scope with incarnation view.
Bind Scope Z_scope with window.

(* A permit. If it is lent, [loan] names the guest and the list of windows in which it may
   be used: a guest and a host have several lists in a window longer than the shortest. *)
Record permit := Permit {
  who : incarnation; (* the incarnation that issues it *)
  at_ : Q; (* when, in true time *)
  win : window; (* in which window, by its own clock *)
  loan : option (incarnation * nat)
}.

Record world := World {
  (* The policy (protocol.md, section 1). *)
  settle : Q; (* S *)
  freshness : Q; (* S' *)
  clock_error : Q; (* e: bound on the error of corrected time *)
  drift : Q; (* r: bound on the error of rates *)
  guard : Q; (* g *)
  width : Q; (* w: length of a window *)

  (* The store. *)
  commit : view -> Q; (* when revision v was committed; of view 0 it has no meaning *)
  share : view -> incarnation -> window -> nat;
  total : view -> window -> nat;
  gives : view -> window -> bool; (* whether revision v + 1 gives *)
  ends : view -> incarnation -> option Q; (* the `until` in a key, by view v *)

  (* The clocks of an incarnation, as functions of true time. *)
  corrected : incarnation -> Q -> Q; (* corrected wall-clock time, which chooses windows *)
  mono : incarnation -> Q -> Q; (* monotonic clock *)
  wall : incarnation -> Q -> Q; (* the operating system's wall clock *)

  (* What an incarnation knows. *)
  newest : incarnation -> Q -> view; (* its newest view at an instant; 0 if none *)
  applied : incarnation -> view -> Prop; (* it has applied this revision by itself *)
  read : incarnation -> Q -> view -> Prop; (* a read sent at an instant returned v *)

  (* What it does. *)
  permits : list permit (* all permits ever issued, in order *)
}.

Open Scope Q_scope.

Definition start (x : world) (W : window) : Q := inject_Z W * width x.

(* Revision v was committed by the instant t. *)
Definition committed (x : world) (v : view) (t : Q) : Prop := v = 0%nat \/ commit x v <= t.

(* How many permits satisfy a test. *)
Definition count (test : permit -> bool) (ps : list permit) : nat := length (filter test ps).
Definition in_window (W : window) (p : permit) : bool := Z.eqb (win p) W.
Definition of (i : incarnation) (W : window) (p : permit) : bool :=
  Nat.eqb (who p) i && in_window W p.

Definition issued (x : world) (W : window) : nat := count (in_window W) (permits x).
Definition sum {A} (f : A -> nat) (l : list A) : nat := list_sum (map f l).

(* The timing rule of section 2. *)
Definition timing (x : world) : Prop :=
  settle x >= freshness x * (1 + drift x) / (1 - drift x) + 2 * clock_error x * (1 + drift x) + width x * drift x.

(* ASSUMED. Section 3 of protocol.md says what enforces or watches each assumption. *)
Record assumed (x : world) : Prop := {
  (* Lengths, and a rate error below 1. *)
  lengths : 0 <= clock_error x /\ 0 <= drift x /\ drift x < 1 /\ 0 <= guard x /\ 0 < width x;

  (* "one line of revisions: no fork, no loss of commits" *)
  line : forall v v', (v <= v')%nat -> commit x v <= commit x v';
  (* ... with a finite number of commits in a finite time. *)
  finite : forall t, exists v, t < commit x v;

  (* "A linearizable read sent at true time p returns at least the newest revision
     committed before p." *)
  linearizable : forall i p R v, read x i p R -> commit x v < p -> (v <= R)%nat;

  (* "A watch delivers the revisions ... in order, each whole, with any delay": nobody
     knows a revision before it is committed. That a watch omits none is not assumed:
     the rule asks for it. *)
  causal : forall i t, committed x (newest x i t) t;

  (* "corrected time is off by at most e" *)
  error : forall i t, t - clock_error x <= corrected x i t /\ corrected x i t <= t + clock_error x;
  (* "corrected time never runs back" *)
  forward : forall i t t', t <= t' -> corrected x i t <= corrected x i t';
  (* "monotonic clocks run true to 500 ppm, and corrected time is slewed by 500 ppm at
     most. Together r." A monotonic clock may stop in a suspension. *)
  not_fast : forall i t t', t <= t' -> mono x i t' - mono x i t <= (1 + drift x) * (t' - t);
  (* "no suspension while the operating system's clock is set back": between any two
     instants, one of the two clocks that measure a proof's age has not been slow. *)
  not_slow : forall i t t', t <= t' ->
    (1 - drift x) * (t' - t) <= mono x i t' - mono x i t \/
    (1 - drift x) * (t' - t) <= wall x i t' - wall x i t;

  (* "all instances compute the same shares": [share] has no other argument than the view,
     the incarnation and the window. "The shares of one u and W sum to at most T(u, W)",
     whatever incarnations are counted, each once. *)
  fit : forall u W l, NoDup l -> (sum (fun i => share x u i W) l <= total x u W)%nat;

  (* "A revision gives for W if it takes permits of W from nobody": nobody's share falls,
     except that of an incarnation whose key has an announced end before W. Division.v proves
     this of totals that grow and of instances that end. *)
  taking : forall v W i, gives x v W = true ->
    (share x v i W <= share x (v + 1) i W)%nat \/
    exists U, ends x (v + 1) i = Some U /\ U <= start x W;

  (* "an `until` is true", and "consumers of a provider write no end ... in another's name": at some
     instant before U by its own corrected time, the incarnation itself has bound itself
     to issue nothing more in windows that start at or after U. *)
  bound_itself : forall v i U, ends x v i = Some U ->
    exists s, corrected x i s < U /\
      forall p, In p (permits x) -> who p = i -> s < at_ p -> start x (win p) < U
}.

(* THE RULE of section 2. A permit p may follow the permits that were issued before if
   there are an instant A where its lookback begins, and a read sent at `sent` that
   returned R, such that all of this holds. [counted] chooses the views that bind. *)
Record allowed (counted : world -> permit -> Q -> view -> Prop)
    (x : world) (before : list permit) (p : permit) (A sent : Q) (R : view) : Prop := {
  (* W is the window that runs by corrected time, at least g away from its edges. *)
  guarded : start x (win p) + guard x <= corrected x (who p) (at_ p) /\
    corrected x (who p) (at_ p) < start x (win p + 1) - guard x;
  (* A = start(W) - S: by the monotonic clock S and the phase of the window ago. *)
  lookback : A <= at_ p /\
    settle x + (corrected x (who p) (at_ p) - start x (win p)) <=
      mono x (who p) (at_ p) - mono x (who p) A;
  (* history: every revision since A has been applied, without a gap. *)
  history : forall v, (newest x (who p) A <= v <= newest x (who p) (at_ p))%nat ->
    applied x (who p) v;
  (* fresh: by both clocks the read was sent less than S' ago, and the watch has
     delivered everything up to its revision. *)
  fresh : sent <= at_ p /\ read x (who p) sent R /\ (R <= newest x (who p) (at_ p))%nat /\
    mono x (who p) (at_ p) - mono x (who p) sent < freshness x /\
    wall x (who p) (at_ p) - wall x (who p) sent < freshness x;
  (* bound: counting this permit, at most the share by each view that counts. *)
  bound : forall v, counted x p A v ->
    (count (of (who p) (win p)) (before ++ [p]) <= share x v (who p) (win p))%nat
}.

Definition obeys_by counted (x : world) : Prop :=
  forall before p after, permits x = before ++ p :: after ->
    exists A sent R, allowed counted x before p A sent R.

(* Every view that it applied and held in [A, t] counts; the newest always, an older one
   unless its next revision gives for W. *)
Definition held (x : world) (p : permit) (A : Q) (v : view) : Prop :=
  applied x (who p) v /\
  (newest x (who p) A <= v <= newest x (who p) (at_ p))%nat /\
  (v = newest x (who p) (at_ p) \/ gives x v (win p) = false).

Definition obeys : world -> Prop := obeys_by held.

(* Section 4: B- and B+, and the view u that is the newest at B. *)
Definition B_minus (x : world) (W : window) : Q :=
  start x W + clock_error x - (settle x - width x * drift x) / (1 + drift x).
Definition B_plus (x : world) (W : window) : Q :=
  start x W - clock_error x - freshness x / (1 - drift x).
Definition newest_at (x : world) (u : view) (B : Q) : Prop :=
  committed x u B /\ B < commit x (u + 1).

(* No permit of W is issued after the instant z. *)
Definition over_by (x : world) (W : window) (z : Q) : Prop :=
  forall p, In p (permits x) -> win p = W -> at_ p <= z.

(* The run of u ends at n: each revision after u up to n gives for W, and the next one
   does not, or is committed after z. *)
Definition run (x : world) (W : window) (z : Q) (u n : view) : Prop :=
  (u <= n)%nat /\ (forall v, (u <= v < n)%nat -> gives x v W = true) /\
  (gives x n W = false \/ z < commit x (n + 1)).

(* CLAIMED. *)

(* B- <= B+: there is an instant to choose. *)
Definition claim_timing : Prop := forall x, assumed x -> timing x ->
  forall W, B_minus x W <= B_plus x W.

(* "The sum is at most the smallest T*(u, W) over the views u that were the newest at some
   time in [B-, B+]." *)
Definition claim_sum : Prop := forall x, assumed x -> obeys x ->
  forall W B u z n, B_minus x W <= B -> B <= B_plus x W -> newest_at x u B ->
    over_by x W z -> run x W z u n ->
    (issued x W <= total x n W)%nat.

(* If no revision gives, that is T(u, W). *)
Definition claim_settle : Prop := forall x, assumed x -> obeys x ->
  forall W B u, B_minus x W <= B -> B <= B_plus x W -> newest_at x u B ->
    gives x u W = false ->
    (issued x W <= total x u W)%nat.

(* There always are such B, u, z and n. So if no total is above T, neither is the sum. *)
Definition claim_never_over : Prop := forall x, assumed x -> timing x -> obeys x ->
  forall W T, (forall v, total x v W <= T)%nat -> (issued x W <= T)%nat.

(* With g >= e every permit is issued in its true window. *)
Definition claim_true_windows : Prop := forall x, assumed x -> obeys x -> clock_error x <= guard x ->
  forall p, In p (permits x) -> start x (win p) <= at_ p /\ at_ p < start x (win p + 1).

(* LENDING: section 13. *)

Record lending := Lending {
  among : world; (* its [permits] do not matter *)
  handed : list permit; (* all permits in order: used, or lent if they have a [loan] *)
  tells : incarnation -> incarnation -> window -> nat -> Q -> nat -> Prop;
    (* a host tells a guest, for a window and a list of windows, at an instant, a number *)
  heard : incarnation -> incarnation -> window -> nat -> Q -> nat
    (* the number of a host that a guest counts at an instant, for a window and a list *)
}.

(* What has happened by the instant t. *)
Definition by_ (t : Q) (ps : list permit) : list permit := filter (fun p => Qle_bool (at_ p) t) ps.
Definition is_used (p : permit) : bool := match loan p with None => true | _ => false end.
Definition is_lent (guest : incarnation) (k : nat) (p : permit) : bool :=
  match loan p with Some (j, l) => Nat.eqb j guest && Nat.eqb l k | _ => false end.
Definition lent (h j : incarnation) (W : window) (k : nat) (p : permit) : bool := of h W p && is_lent j k p.

(* "A host charges, then tells": when it tells a number, it has lent that many permits to
   this guest by this list of windows, of its own or borrowed ones. *)
Definition charged (y : lending) : Prop := forall h j W k s n, tells y h j W k s n ->
  (n <= count (lent h j W k) (by_ s (handed y)))%nat.

(* What a guest counts, it was told at an earlier instant; or it counts nothing. Messages
   may be lost, late, repeated, and in any order. *)
Definition as_told (y : lending) : Prop := forall h j W k t, heard y h j W k t = 0%nat \/
  exists s n, s <= t /\ tells y h j W k s n /\ (heard y h j W k t <= n)%nat.

(* Rules 1, 2 and 4 of section 2, without its bound. *)
Definition unbound (x : world) (p : permit) (A : Q) (v : view) : Prop := False.

(* "used + lent <= own bound now + heard", at each permit. The own bound is that of section
   2. It is 0 without a fresh proof, for a newcomer, and after an announced end. *)
Definition spends_as_heard (y : lending) : Prop := forall before p after, handed y = before ++ p :: after ->
  exists hs ks, NoDup hs /\ NoDup ks /\
    let spent := count (of (who p) (win p)) (before ++ [p]) in
    let heard_now := sum (fun h => sum (fun k => heard y h (who p) (win p) k (at_ p)) ks) hs in
    ((spent <= heard_now)%nat \/
     exists A sent R, allowed unbound (among y) before p A sent R /\
       (forall v U, ends (among y) v (who p) = Some U -> ~ U <= start (among y) (win p)) /\
       forall v, held (among y) p A v -> (spent <= share (among y) v (who p) (win p) + heard_now)%nat).

Definition used (y : lending) (W : window) : nat := count (fun p => in_window W p && is_used p) (handed y).

(* CLAIMED of lending: the same as of the sum. *)
Definition claim_lending_settles : Prop := forall y, assumed (among y) ->
  charged y -> as_told y -> spends_as_heard y ->
  forall W B u z n, B_minus (among y) W <= B -> B <= B_plus (among y) W -> newest_at (among y) u B ->
    (forall p, In p (handed y) -> win p = W -> at_ p <= z) -> run (among y) W z u n ->
    (used y W <= total (among y) n W)%nat.

Definition claim_lending_never_over : Prop := forall y, assumed (among y) -> timing (among y) ->
  charged y -> as_told y -> spends_as_heard y ->
  forall W T, (forall v, total (among y) v W <= T)%nat -> (used y W <= T)%nat.

(* THE FIRST OF A FLEET: section 12. *)

Record registry := Registry {
  fleet : world;
  takes : incarnation -> view -> window -> Prop; (* it takes part in the window by the view *)
  present : incarnation -> view -> Prop; (* its instance's key is in the view *)
  issuer_key : incarnation -> Q -> Prop; (* its issuer key is in the store at an instant *)
  registered : incarnation -> view (* the revision that wrote its keys *)
}.

(* As long as the longest proof is good, in true time. *)
Definition lag_of (x : world) : Q := freshness x / (1 - drift x).

Record registers (y : registry) : Prop := {
  part_taken : forall i v W, (0 < share (fleet y) v i W)%nat -> takes y i v W;
  keyed : forall i v W, takes y i v W -> present y i v;
  (* A revision that gives lets nobody join W. *)
  no_join : forall i v W, gives (fleet y) v W = true -> takes y i (v + 1) W -> takes y i v W;
  (* What an instance has learned it does not forget. *)
  learned : forall i t t', t <= t' -> (newest (fleet y) i t <= newest (fleet y) i t')%nat;

  no_key : forall i, ~ present y i 0;
  not_sooner : forall i v, present y i v -> (registered y i <= v)%nat;
  (* Written in the transaction that registers; once it has gone it does not come back. *)
  written_then : forall i, issuer_key y i (commit (fleet y) (registered y i));
  key_once : forall i s t z, s <= t -> t <= z -> issuer_key y i s -> issuer_key y i z -> issuer_key y i t
}.

(* "An incarnation that issues a permit at t has its issuer key in etcd at t." *)
Definition issuing (y : registry) : Prop :=
  forall p, In p (permits (fleet y)) -> issuer_key y (who p) (at_ p).

(* A permit of the first of a fleet, in windows of which section 2 would allow it none yet. *)
Record first (y : registry) (before : list permit) (p : permit) (sent : Q) (R : view) : Prop := {
  f_guarded : start (fleet y) (win p) + guard (fleet y) <= corrected (fleet y) (who p) (at_ p) /\
    corrected (fleet y) (who p) (at_ p) < start (fleet y) (win p + 1) - guard (fleet y);
  f_fresh : sent <= at_ p /\ read (fleet y) (who p) sent R /\ (R <= newest (fleet y) (who p) (at_ p))%nat /\
    mono (fleet y) (who p) (at_ p) - mono (fleet y) (who p) sent < freshness (fleet y) /\
    wall (fleet y) (who p) (at_ p) - wall (fleet y) (who p) sent < freshness (fleet y);
  (* In place of the lookback: it has applied every revision since its registration; *)
  f_history : (registered y (who p) <= newest (fleet y) (who p) (at_ p))%nat /\
    forall v, (registered y (who p) <= v <= newest (fleet y) (who p) (at_ p))%nat -> applied (fleet y) (who p) v;
  (* the transaction found no other issuer key; *)
  f_alone : forall h, h <> who p -> ~ issuer_key y h (commit (fleet y) (registered y (who p)));
  (* the window starts after that, by the clocks of all. *)
  f_opens : commit (fleet y) (registered y (who p)) <
    start (fleet y) (win p) + guard (fleet y) - clock_error (fleet y);
  f_bound : forall v, (registered y (who p) <= v <= newest (fleet y) (who p) (at_ p))%nat ->
    (v = newest (fleet y) (who p) (at_ p) \/ gives (fleet y) v (win p) = false) ->
    (count (of (who p) (win p)) (before ++ [p]) <= share (fleet y) v (who p) (win p))%nat
}.

(* Each permit obeys section 2, or is one of the first's. *)
Definition obeys_first (y : registry) : Prop := forall before p after,
  permits (fleet y) = before ++ p :: after ->
  (exists A sent R, allowed held (fleet y) before p A sent R) \/
  (exists sent R, first y before p sent R).

(* CLAIMED: that the code's way to [issuing] is one. An issuer key is there as long as its
   instance's key is, and S'/(1-r) longer. One whose owner deletes it, because nothing is issued
   any more, satisfies [issuing] by itself. *)
Definition claim_by_distance : Prop := forall y, assumed (fleet y) -> registers y -> obeys_first y ->
  (forall i v t, present y i v -> committed (fleet y) v t ->
    t < commit (fleet y) (v + 1) + lag_of (fleet y) -> issuer_key y i t) ->
  issuing y.

Definition claim_first_never_over : Prop := forall y, assumed (fleet y) -> timing (fleet y) ->
  registers y -> obeys_first y -> issuing y ->
  forall W T, (forall v, total (fleet y) v W <= T)%nat -> (issued (fleet y) W <= T)%nat.

(* HOLD: section 6. An instance issues by a plan. The plan is made at an instant of the window,
   and keeps the clock's offset of that instant until it ends. *)
Record planned (counted : world -> permit -> Q -> view -> Prop)
    (x : world) (before : list permit) (p : permit) (made A sent : Q) (R : view) : Prop := {
  (* The window runs, by corrected time, when the plan is made; *)
  p_begins : made <= at_ p /\ start x (win p) + guard x <= corrected x (who p) made /\
    corrected x (who p) made < start x (win p + 1);
  (* and at the permit, by the monotonic clock and the offset of that instant. *)
  p_ends : corrected x (who p) made + (mono x (who p) (at_ p) - mono x (who p) made) < start x (win p + 1) - guard x;
  p_lookback : A <= made /\
    settle x + (corrected x (who p) made - start x (win p)) <= mono x (who p) made - mono x (who p) A;
  p_history : forall v, (newest x (who p) A <= v <= newest x (who p) (at_ p))%nat -> applied x (who p) v;
  (* The newest proof: of any age. *)
  p_proof : sent <= made /\ read x (who p) sent R /\ (R <= newest x (who p) made)%nat;
  p_bound : forall v, counted x p A v -> (count (of (who p) (win p)) (before ++ [p]) <= share x v (who p) (win p))%nat
}.

(* The proof is good when the plan is made. *)
Definition fresh_plan (x : world) (p : permit) (made sent : Q) : Prop :=
  mono x (who p) made - mono x (who p) sent < freshness x /\
  wall x (who p) made - wall x (who p) sent < freshness x.
(* Or the lookback begins S before the proof was sent, or earlier. *)
Definition frozen_plan (x : world) (p : permit) (A sent : Q) : Prop :=
  A <= sent /\ settle x <= mono x (who p) sent - mono x (who p) A.

(* Plans without a good proof are made only where [may]. *)
Definition holds_where (may : permit -> Q -> Prop) (x : world) : Prop := forall before p after,
  permits x = before ++ p :: after -> exists made A sent R, planned held x before p made A sent R /\
    (fresh_plan x p made sent \/ frozen_plan x p A sent /\ may p made).

(* What an instance has learned it does not forget. *)
Definition remembers (x : world) : Prop :=
  forall i t t', t <= t' -> (newest x i t <= newest x i t')%nat.

(* B+ less B-: (S - MinSettle) / (1 + r). *)
Definition slack (x : world) : Q :=
  (settle x - width x * drift x) / (1 + drift x) - 2 * clock_error x - freshness x / (1 - drift x).

(* CLAIMED of hold: if all lose etcd at o, and each of those that issue held at o what was committed
   by o less the slack, the sum is never over. *)
Definition claim_hold_all : Prop := forall x o y, assumed x -> timing x -> 0 <= freshness x -> remembers x ->
  holds_where (fun _ made => o <= made) x ->
  (forall i s R, read x i s R -> s <= o) ->
  o - slack x <= y -> y <= o ->
  (forall p v, In p (permits x) -> committed x v y -> (v <= newest x (who p) o)%nat) ->
  forall W T, (forall v, total x v W <= T)%nat -> (issued x W <= T)%nat.

(* If some lose it, the sum is over by at most their shares, each by the newest view that it has.
   If nobody does, it is never over. *)
Definition claim_hold_some : Prop := forall x cut own, assumed x -> timing x -> remembers x -> NoDup cut ->
  holds_where (fun p _ => In (who p) cut) x ->
  forall W T, (forall v, total x v W <= T)%nat ->
    (forall p, In p (permits x) -> win p = W -> In (who p) cut ->
      (share x (newest x (who p) (at_ p)) (who p) W <= own (who p))%nat) ->
    (issued x W <= T + sum own cut)%nat.

(* By true time a plan's offset costs w*r/(1-r) of the guard, where the monotonic clock did not
   stand still. *)
Definition claim_hold_true_windows : Prop := forall counted x before p made A sent R, assumed x ->
  planned counted x before p made A sent R ->
  (1 - drift x) * (at_ p - made) <= mono x (who p) (at_ p) - mono x (who p) made ->
  clock_error x + width x * drift x / (1 - drift x) <= guard x ->
  start x (win p) <= at_ p /\ at_ p < start x (win p + 1).
