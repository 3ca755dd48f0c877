(* The shapes `sliding` and `bucket` (docs/proof/protocol.md, section 10).

   1. Which views bind a permit whose spans begin at any instant: the lemma of section 10.
   2. `sliding`: in no span of a window's length more calls arrive than the total.
   3. `bucket`, the code's own arithmetic (internal/window/shape/bucket.go), for a constant share: a span
      has at most the burst and what accrues. A change of the share adds nothing.
   4. `bucket`, all instances together, while rates and bursts change.

   Here the guard is how long a call may take to the provider. Without one, its arrival is the
   instant of issue.

   Not covered: permits that are given back, and that internal/window computes levels as part 4 has
   them while shares change. *)
From Quotient Require Import Sum Lending Views Hold.
From Coq Require Import Lqa Lia Qround Qfield Qminmax.
Open Scope Q_scope.

(* 1. WHAT BINDS *)

Definition slot_length (x : world) : Q := width x / 500.
(* So far back windows bind: a window's length, the guard, two slots, and the clocks' errors. *)
Definition reach (x : world) : Q := width x + guard x + 2 * slot_length x + 2 * clock_error x.

(* The timing rule of these shapes. *)
Definition timing_of_shapes (x : world) : Prop :=
  settle x >= freshness x * (1 + drift x) / (1 - drift x) + 2 * clock_error x * (1 + drift x) +
    (3 * width x + guard x) * drift x.

(* At the permit p at most n may be counted: by each view of the lookback of each window in reach.
   No view is left out because the next one gives. *)
Record reaching (x : world) (p : permit) (n : nat) (sent : Q) (R : view) : Prop := {
  s_fresh : sent <= at_ p /\ read x (who p) sent R /\ (R <= newest x (who p) (at_ p))%nat /\
    mono x (who p) (at_ p) - mono x (who p) sent < freshness x /\
    wall x (who p) (at_ p) - wall x (who p) sent < freshness x;
  s_windows : forall W, start x W <= corrected x (who p) (at_ p) ->
    corrected x (who p) (at_ p) - reach x < start x (W + 1) ->
    exists A, A <= at_ p /\
      settle x + (corrected x (who p) (at_ p) - start x W) <= mono x (who p) (at_ p) - mono x (who p) A /\
      forall v, (newest x (who p) A <= v <= newest x (who p) (at_ p))%nat ->
        applied x (who p) v /\ (n <= share x v (who p) W)%nat
}.

(* W holds the wall time a - e, and u was the newest view at this instant, S'/(1-r) before a at the
   latest. *)
Definition last_settled (x : world) (W : window) : Q :=
  start x W + clock_error x - freshness x / (1 - drift x).

(* The lemma of section 10. *)
Theorem one_view_binds x a W u p n sent R : assumed x -> timing_of_shapes x ->
  start x W <= a - clock_error x -> a - clock_error x < start x (W + 1) -> newest_at x u (last_settled x W) ->
  reaching x p n sent R -> a <= at_ p -> at_ p <= a + width x + guard x ->
  (n <= share x u (who p) W)%nat.
Proof.
  intros as_ T lo hi at_B ok ap pz.
  destruct (lengths x as_) as (e0 & r0 & r1 & g0 & w0), (error x as_ (who p) (at_ p)) as [E F].
  rewrite start_next in hi. unfold timing_of_shapes in T.
  assert (0 < slot_length x) as d0 by (unfold slot_length; apply Qlt_shift_div_l; lra).
  destruct (s_windows _ _ _ _ _ ok W) as (A & older & M & all); [lra|rewrite start_next; unfold reach; lra|].
  set (c := corrected x (who p) (at_ p)) in *. set (b := start x W) in *.
  (* Before. *)
  assert (A <= last_settled x W) as AB.
  { pose proof (not_fast x as_ (who p) _ _ older) as N. apply (scaled (1 + drift x)); [lra|]. unfold last_settled.
    assert ((1 + drift x) * (start x W + clock_error x - freshness x / (1 - drift x)) ==
      (1 + drift x) * (start x W + clock_error x) - freshness x * (1 + drift x) / (1 - drift x)) as -> by (field; lra).
    fold b. assert (drift x * (c - b) <= drift x * (2 * width x + guard x + 2 * clock_error x)) by nra.
    assert (0 <= drift x * width x) by nra.
    assert ((1 + drift x) * at_ p <= (1 + drift x) * (c + clock_error x)) by nra. lra. }
  (* After. *)
  assert (last_settled x W < sent) as later.
  { destruct (s_fresh _ _ _ _ _ ok) as (le & _ & _ & M1 & M2). apply Qnot_le_lt. intros late.
    assert ((1 - drift x) * last_settled x W == (1 - drift x) * (b + clock_error x) - freshness x) as K by
      (unfold last_settled, b; field; lra).
    assert ((1 - drift x) * (b + clock_error x) <= (1 - drift x) * at_ p) by (apply Qmult_le_l; lra).
    assert ((1 - drift x) * sent <= (1 - drift x) * last_settled x W) by (apply Qmult_le_l; lra).
    destruct (not_slow x as_ (who p) _ _ le); lra. }
  apply all. split.
  - apply (newest_by x as_ p _ u A AB at_B).
  - destruct at_B as ([-> | C] & _); [lia|]. destruct (s_fresh _ _ _ _ _ ok) as (_ & rd & delivered & _).
    pose proof (linearizable x as_ _ _ _ u rd). enough (u <= R)%nat by lia. apply H. lra.
Qed.

Lemma holds_instant x t : assumed x -> exists W, start x W <= t /\ t < start x (W + 1).
Proof.
  intros a. destruct (lengths x a) as (_ & _ & _ & _ & w0). exists (Qfloor (t / width x)).
  assert (width x * (t / width x) == t) as K by (field; lra).
  pose proof (Qfloor_le (t / width x)) as lo. pose proof (Qlt_floor (t / width x)) as hi.
  unfold start. set (f := inject_Z (Qfloor (t / width x))) in *. set (f' := inject_Z (Qfloor (t / width x) + 1)) in *.
  split; rewrite <- K, (Qmult_comm _ (width x)); [apply Qmult_le_l|apply Qmult_lt_l]; assumption.
Qed.

(* 2. SLIDING *)

(* The slots are of the monotonic clock. The latest 502 count, with that of the permit, and those of
   the guard. *)
Definition span_of (x : world) : Z := 502 + Qceiling (guard x / slot_length x).
Definition slot (x : world) (p : permit) : Z := Qfloor (mono x (who p) (at_ p) / slot_length x).
Definition counts_with (x : world) (p q : permit) : bool :=
  Nat.eqb (who q) (who p) && Z.ltb (slot x p - span_of x) (slot x q).
Definition slides (x : world) : Prop := forall before p after, permits x = before ++ p :: after ->
  exists sent R, reaching x p (count (counts_with x p) (before ++ [p])) sent R.

(* The same of slots and numbers of permits, as the code keeps them: a guard is less than half a
   window. Extract.v makes a program of it. *)
Definition slots_that_count (transit slot_ : Z) : Z := Z.min (502 + (transit + slot_ - 1) / slot_) 752.
Definition in_ring (span now : Z) (all : list (Z * Z)) : Z :=
  fold_right (fun e s => if Z.ltb (now - span) (fst e) then snd e + s else s)%Z 0%Z all.

(* CLAIMED: wherever a span of a window's length begins, if each call arrives within the guard. A
   monotonic clock is not fast by more than a 750th, and does not run back. *)
Definition in_transit (x : world) (arrives : permit -> Q) : Prop := forall p, In p (permits x) ->
  at_ p <= arrives p /\ arrives p <= at_ p + guard x.
Definition arrives_in (arrives : permit -> Q) (a z : Q) (p : permit) : bool :=
  Qle_bool a (arrives p) && Qle_bool (arrives p) z.
Definition claim_sliding_never_over : Prop := forall x arrives, assumed x -> timing_of_shapes x ->
  750 * drift x <= 1 -> 2 * guard x <= width x ->
  (forall i t t', t <= t' -> mono x i t <= mono x i t') -> slides x -> in_transit x arrives ->
  forall a T, (forall v W, total x v W <= T)%nat ->
    (count (arrives_in arrives a (a + width x)) (permits x) <= T)%nat.

Lemma count_by_who f l ps : (forall p, In p ps -> In (who p) l) ->
  (count f ps <= sum (fun i => count (fun p => Nat.eqb (who p) i && f p) ps) l)%nat.
Proof.
  induction ps as [|p ps IH]; intros I; [apply Nat.le_0_l|].
  specialize (IH (fun q J => I q (or_intror J))). rewrite count_cons.
  unfold sum at 1. rewrite (map_ext _ _ (fun i => count_cons (fun p => Nat.eqb (who p) i && f p) p ps)).
  fold (sum (fun i => (if Nat.eqb (who p) i && f p then 1 else 0) + count (fun p => Nat.eqb (who p) i && f p) ps)%nat l).
  rewrite sum_add.
  pose proof (sum_part (fun i => if Nat.eqb (who p) i && f p then 1 else 0)%nat _ _ (I p (or_introl eq_refl))) as P.
  simpl in P. rewrite Nat.eqb_refl in P. simpl in P. lia.
Qed.

Lemma span_counts x p q : assumed x -> 750 * drift x <= 1 -> 2 * guard x <= width x ->
  (forall i t t', t <= t' -> mono x i t <= mono x i t') ->
  who q = who p -> at_ p - at_ q <= width x + guard x -> counts_with x p q = true.
Proof.
  intros as_ slow half back same near. unfold counts_with. rewrite same, Nat.eqb_refl. simpl. apply Z.ltb_lt.
  destruct (lengths x as_) as (_ & r0 & r1 & g0 & w0). unfold slot, span_of. rewrite same.
  set (d := slot_length x). assert (width x == 500 * d) as wd by (unfold d, slot_length; field).
  assert (0 < d) as d0 by lra.
  set (mp := mono x (who p) (at_ p)). set (mq := mono x (who p) (at_ q)).
  assert (mp - mq <= 501 * d + guard x) as M.
  { destruct (Qlt_le_dec (at_ p) (at_ q)) as [L | L].
    - pose proof (back (who p) (at_ p) (at_ q) ltac:(lra)). fold mp mq in H. lra.
    - pose proof (not_fast x as_ (who p) _ _ L) as N. fold mp mq in N.
      assert ((1 + drift x) * (at_ p - at_ q) <= (1 + drift x) * (width x + guard x)) by (apply Qmult_le_l; lra).
      assert (drift x * (width x + guard x) <= drift x * (750 * d)) by nra. nra. }
  assert (mp / d <= mq / d + 501 + guard x / d) as nearer.
  { apply Qle_shift_div_r; [exact d0|].
    assert ((mq / d + 501 + guard x / d) * d == mq + 501 * d + guard x) as -> by (field; lra). lra. }
  pose proof (Qfloor_le (mp / d)) as lo. pose proof (Qlt_floor (mq / d)) as hi. pose proof (Qle_ceiling (guard x / d)) as up.
  rewrite inject_Z_plus in hi. change (inject_Z 1) with 1 in hi.
  assert (inject_Z (Qfloor (mp / d)) < inject_Z (Qfloor (mq / d) + (502 + Qceiling (guard x / d)))) as K.
  { rewrite !inject_Z_plus. change (inject_Z 502) with 502. lra. }
  rewrite <- Zlt_Qlt in K. lia.
Qed.

Theorem sliding_never_over : claim_sliding_never_over.
Proof.
  intros x arrives as_ ti slow half back o late a T small.
  destruct (holds_instant x (a - guard x - clock_error x) as_) as (W & lo & hi).
  destruct (newest_exists x (last_settled x W) as_) as (u & at_B).
  assert (forall p, In p (permits x) -> arrives_in arrives a (a + width x) p = true ->
    a - guard x <= at_ p /\ at_ p <= a - guard x + width x + guard x) as near.
  { intros p I F. unfold arrives_in in F. apply andb_prop in F as [F G]. apply Qle_bool_iff in F, G.
    destruct (late p I). split; lra. }
  set (l := nodup Nat.eq_dec (map who (permits x))).
  eapply Nat.le_trans; [|apply (small u W)]. eapply Nat.le_trans; [|apply (fit x as_ u W l), NoDup_nodup].
  eapply Nat.le_trans; [apply (count_by_who _ l); intros p I; apply nodup_In, in_map, I|].
  apply sum_le. intros i _.
  destruct (last_one (fun p => Nat.eqb (who p) i && arrives_in arrives a (a + width x) p) (permits x)) as
    [-> | (before & p & after & H & fp & ->)]; [lia|].
  apply andb_prop in fp as [I J]. apply Nat.eqb_eq in I as <-.
  destruct (o _ _ _ H) as (sent & R & ok).
  destruct (near p) as [P1 P2]; [rewrite H; apply in_elt|exact J|].
  eapply Nat.le_trans with (count (counts_with x p) (before ++ [p])).
  - apply count_le_in. intros q Q F. apply andb_prop in F as [F G]. apply Nat.eqb_eq in F.
    destruct (near q) as [Q1 Q2]; [|exact G|apply span_counts; auto; lra].
    rewrite H. change (p :: after) with ([p] ++ after). rewrite app_assoc. apply in_or_app. left. exact Q.
  - eapply one_view_binds; eassumption.
Qed.

(* 3. BUCKET: one instance, as the code computes it. Instants are nanoseconds. [every] is the time in
   which the share accrues. *)
Open Scope Z_scope.
Record bucket := Bucket { empty : Z; rate : Z; burst : Z }.
Definition scaled_by (n m c plus : Z) : Z := (n * m + plus) / c.
Definition full (every : Z) (b : bucket) : Z := scaled_by (burst b) every (rate b) 0.
Definition cost (every : Z) (b : bucket) (n : Z) : Z := scaled_by n every (rate b) (rate b - 1).
Definition ready (every : Z) (b : bucket) (now : Z) : Z :=
  if (rate b <=? 0) || (burst b <=? 0) || (now - empty b <=? 0) then 0
  else if full every b <=? now - empty b then burst b
  else Z.min (burst b) (scaled_by (now - empty b) (rate b) every 0).
Definition take (every : Z) (b : bucket) (n now : Z) : bucket :=
  if (rate b <=? 0) || (n <=? 0) then b
  else Bucket (Z.max (empty b) (Z.min (Z.max (empty b) (now - full every b) + cost every b n) (now + 1))) (rate b) (burst b).
(* Another share and burst, as of now. A bucket of which nothing was taken yet stays full. *)
Definition unused : Z := - 2 ^ 61.
Definition roll (every : Z) (b : bucket) (now r k : Z) : bucket :=
  let age := if rate b =? 0 then 0 else Z.max 0 (Z.min (now - empty b) (full every b)) in
  Bucket (if (rate b <? r) && negb (empty b =? unused) then Z.max (empty b) (now - scaled_by age (rate b) r 0) else empty b) r (Z.min k r).

(* Permits taken at instants from a to z, in order, each time as many as are ready at most. *)
Fixpoint takes_from (every z a : Z) (b : bucket) (all : list (Z * Z)) : Prop :=
  match all with
  | [] => a <= z
  | (now, n) :: later => a <= now /\ now <= z /\ 0 <= n <= ready every b now /\ takes_from every z now (take every b n now) later
  end.
Definition taken (all : list (Z * Z)) : Z := fold_right (fun e sum => snd e + sum) 0 all.

Lemma take_costs every b n now : 0 < every -> 0 < rate b -> 0 < n <= ready every b now ->
  empty (take every b n now) = Z.max (empty b) (now - full every b) + cost every b n /\
  empty (take every b n now) <= now + 1.
Proof.
  intros e0 r0 (n0 & le). unfold take, ready in *.
  assert ((rate b <=? 0) = false) as E by (apply Z.leb_gt; lia). rewrite E in *.
  assert ((n <=? 0) = false) as -> by (apply Z.leb_gt; lia). simpl in *.
  destruct (Z.leb_spec (burst b) 0); [simpl in le; lia|]. destruct (Z.leb_spec (now - empty b) 0); [simpl in le; lia|]. simpl in le.
  assert (0 <= cost every b n) as c0 by (unfold cost, scaled_by; apply Z.div_pos; nia).
  assert (Z.max (empty b) (now - full every b) + cost every b n <= now + 1); [|lia].
  destruct (Z.leb_spec (full every b) (now - empty b)).
  - assert (cost every b n <= full every b + 1); [|lia]. unfold cost, full, scaled_by.
    rewrite Z.add_0_r. rewrite <- Z.div_add by lia. apply Z.div_le_mono; nia.
  - assert (cost every b n <= now - empty b); [|lia]. unfold cost. unfold scaled_by at 1.
    assert (n * every <= (now - empty b) * rate b) as K.
    { assert (n <= scaled_by (now - empty b) (rate b) every 0) as L by lia. unfold scaled_by in L. rewrite Z.add_0_r in L.
      pose proof (Z.mul_div_le ((now - empty b) * rate b) every e0). nia. }
    apply Z.lt_succ_r. apply Z.div_lt_upper_bound; nia.
Qed.

Lemma take_same every b n now : rate (take every b n now) = rate b /\ burst (take every b n now) = burst b.
Proof. unfold take. destruct ((rate b <=? 0) || (n <=? 0)); auto. Qed.

Lemma full_same every b b' : rate b = rate b' -> burst b = burst b' -> full every b = full every b'.
Proof. unfold full. intros -> ->. reflexivity. Qed.

Lemma takes_at_most every z c all : 0 < every -> forall a b, 0 < rate b -> 0 <= burst b ->
  c <= a -> empty b <= z + 1 -> takes_from every z a b all ->
  taken all * every <= rate b * (z + 1 - Z.max (empty b) (c - full every b)).
Proof.
  intros e0. induction all as [|(now, n) all IH]; simpl; intros a b r0 b0 ca ez ok.
  - assert (0 <= full every b) by (unfold full, scaled_by; apply Z.div_pos; nia). nia.
  - destruct ok as (an & nz & (n0 & le) & later).
    destruct (take_same every b n now) as (sr & sb). pose proof (full_same every _ _ sr sb) as sf.
    destruct (Z.eq_dec n 0) as [-> | N].
    + assert (take every b 0 now = b) as same by (unfold take; rewrite orb_true_r; reflexivity).
      rewrite same in later. simpl. apply (IH now b); auto; lia.
    + destruct (take_costs every b n now e0 r0 ltac:(lia)) as (E & le').
      specialize (IH now (take every b n now)). rewrite sr, sb, sf in IH.
      specialize (IH r0 b0 ltac:(lia) ltac:(lia) later).
      assert (n * every <= rate b * cost every b n) as paid.
      { unfold cost, scaled_by. pose proof (Z.mul_succ_div_gt (n * every + (rate b - 1)) (rate b) r0). nia. }
      assert (0 <= rate b * (Z.max (empty (take every b n now)) (c - full every b) - empty (take every b n now))) by nia.
      assert (0 <= rate b * (Z.max (empty b) (now - full every b) - Z.max (empty b) (c - full every b))) by nia.
      rewrite E in *. nia.
Qed.

(* In a span from a to z: at most the burst, and what accrues from a until a nanosecond after z. *)
Theorem bucket_never_over every b a z all : 0 < every -> 0 < rate b -> 0 <= burst b -> empty b <= z + 1 ->
  takes_from every z a b all ->
  taken all * every <= burst b * every + rate b * (z + 1 - a).
Proof.
  intros e0 r0 b0 ez ok. pose proof (takes_at_most every z a all e0 a b r0 b0 ltac:(lia) ez ok) as H.
  assert (rate b * full every b <= burst b * every) as F.
  { unfold full, scaled_by. rewrite Z.add_0_r. apply Z.mul_div_le. lia. }
  nia.
Qed.

(* A changed share adds no permits, if the bucket is not empty beyond now. A bucket that grows keeps
   at most the burst that it had. *)
Theorem roll_adds_nothing every b now r k : 0 < every -> 0 <= rate b -> 0 <= r -> 0 <= burst b ->
  empty b <> unused -> empty b <= now ->
  (now - empty (roll every b now r k)) * r <= (now - empty b) * rate b /\
  (rate b < r -> (now - empty (roll every b now r k)) * r <= burst b * every).
Proof.
  intros e0 r0 q0 b0 used le. unfold roll. apply Z.eqb_neq in used. rewrite used.
  destruct (Z.ltb_spec (rate b) r) as [more | less]; simpl; [|split; [nia|lia]].
  assert (0 <= full every b) as f0 by (unfold full, scaled_by; destruct (Z.eq_dec (rate b) 0) as [-> | N];
    [rewrite Zdiv_0_r; lia|apply Z.div_pos; nia]).
  set (age := if rate b =? 0 then 0 else Z.max 0 (Z.min (now - empty b) (full every b))).
  assert (0 <= age /\ age * rate b <= (now - empty b) * rate b /\ age * rate b <= burst b * every) as (a0 & a1 & a2).
  { unfold age. destruct (Z.eqb_spec (rate b) 0) as [-> | N]; [split; [lia|split; nia]|].
    assert (rate b * full every b <= burst b * every).
    { unfold full, scaled_by. rewrite Z.add_0_r. apply Z.mul_div_le. lia. }
    rewrite Z.max_r by lia. split; [lia|]. split; [nia|].
    pose proof (Z.le_min_r (now - empty b) (full every b)). nia. }
  assert ((now - Z.max (empty b) (now - scaled_by age (rate b) r 0)) * r <= age * rate b); [|split; lia].
  pose proof (Z.mul_div_le (age * rate b) r ltac:(lia)). unfold scaled_by. rewrite Z.add_0_r.
  pose proof (Z.le_max_r (empty b) (now - age * rate b / r)). nia.
Qed.

(* 4. BUCKET: all instances. Time is cut into pieces. In each the rates and bursts are constant, and
   permits are issued at its end. *)
Open Scope Q_scope.
Record piece := Piece { lasts : Q; rates : incarnation -> Q; keeps : incarnation -> Q; issues : incarnation -> Q }.

Definition available (i : incarnation) (level : Q) (c : piece) : Q :=
  Qmin (keeps c i) (level + rates c i * lasts c).
Fixpoint obeys_bucket (i : incarnation) (level : Q) (all : list piece) : Prop :=
  match all with
  | [] => True
  | c :: later => 0 <= issues c i /\ issues c i <= available i level c /\
      obeys_bucket i (available i level c - issues c i) later
  end.

Definition total_of (f : incarnation -> Q) (l : list incarnation) : Q := fold_right (fun i s => f i + s) 0 l.
Fixpoint issued_in (i : incarnation) (all : list piece) : Q :=
  match all with [] => 0 | c :: later => issues c i + issued_in i later end.
Fixpoint accrues (i : incarnation) (all : list piece) : Q :=
  match all with [] => 0 | c :: later => rates c i * lasts c + accrues i later end.
Fixpoint lasting (all : list piece) : Q :=
  match all with [] => 0 | c :: later => lasts c + lasting later end.

(* When an instance issues its first permit of the span, its burst is at most its part at the span's
   beginning, and what might have accrued since. Within a window's length of the beginning this
   follows from [one_view_binds]. Later it does since a burst is at most the share. *)
Fixpoint opens_within (i : incarnation) (part : Q) (all : list piece) : Prop :=
  match all with
  | [] => True
  | c :: later =>
      issues c i <= 0 /\ opens_within i (part + rates c i * lasts c) later \/
      keeps c i <= part + rates c i * lasts c
  end.

Lemma spends_level i all : forall level, 0 <= level -> (forall c, In c all -> 0 <= rates c i /\ 0 <= lasts c) ->
  obeys_bucket i level all -> issued_in i all <= level + accrues i all.
Proof.
  induction all as [|c all IH]; simpl; intros level l0 pos ok; [lra|].
  destruct ok as (i0 & le & later). assert (available i level c <= level + rates c i * lasts c) by apply Q.le_min_r.
  specialize (IH (available i level c - issues c i) ltac:(lra) (fun d I => pos d (or_intror I)) later). lra.
Qed.

Lemma spends_part i all : forall level part, 0 <= part -> (forall c, In c all -> 0 <= rates c i /\ 0 <= lasts c) ->
  obeys_bucket i level all -> opens_within i part all -> issued_in i all <= part + accrues i all.
Proof.
  induction all as [|c all IH]; simpl; intros level part p0 pos ok op; [lra|].
  destruct (pos c (or_introl eq_refl)) as (r0 & t0).
  assert (0 <= rates c i * lasts c) by (apply Qmult_le_0_compat; assumption).
  destruct ok as (i0 & le & later). destruct op as [(none & op) | within].
  - specialize (IH _ (part + rates c i * lasts c) ltac:(lra) (fun d I => pos d (or_intror I)) later op). lra.
  - assert (available i level c <= keeps c i) by apply Q.le_min_l.
    pose proof (spends_level i all (available i level c - issues c i) ltac:(lra) (fun d I => pos d (or_intror I)) later). lra.
Qed.

Lemma total_le f g l : (forall i, In i l -> f i <= g i) -> total_of f l <= total_of g l.
Proof.
  induction l as [|i l IH]; simpl; intros H; [lra|].
  pose proof (H i (or_introl eq_refl)). specialize (IH (fun j I => H j (or_intror I))). lra.
Qed.
Lemma total_add f g l : total_of (fun i => f i + g i) l == total_of f l + total_of g l.
Proof. induction l as [|i l IH]; simpl; lra. Qed.
Lemma total_scaled f c l : total_of (fun i => f i * c) l == total_of f l * c.
Proof. induction l as [|i l IH]; simpl; lra. Qed.

Lemma accrue_together M l all : (forall c, In c all -> 0 <= lasts c /\ total_of (rates c) l <= M) ->
  total_of (fun i => accrues i all) l <= M * lasting all.
Proof.
  induction all as [|c all IH]; simpl; intros H.
  - clear. induction l; simpl; lra.
  - destruct (H c (or_introl eq_refl)) as (t0 & le). specialize (IH (fun d I => H d (or_intror I))).
    rewrite total_add, total_scaled.
    assert (total_of (rates c) l * lasts c <= M * lasts c) by (apply Qmult_le_compat_r; assumption). lra.
Qed.

(* In a span all instances issue at most the whole burst, and what the limit accrues in it. *)
Theorem buckets_never_over l levels part all B M :
  (forall c i, In c all -> In i l -> 0 <= rates c i) ->
  (forall c, In c all -> 0 <= lasts c /\ total_of (rates c) l <= M) ->
  (forall i, In i l -> 0 <= part i) -> total_of part l <= B ->
  (forall i, In i l -> obeys_bucket i (levels i) all /\ opens_within i (part i) all) ->
  total_of (fun i => issued_in i all) l <= B + M * lasting all.
Proof.
  intros r0 each p0 sum ok.
  apply Qle_trans with (total_of (fun i => part i + accrues i all) l).
  - apply total_le. intros i I. destruct (ok i I) as (o & op). apply (spends_part i all (levels i)); auto.
    intros c J. split; [apply r0; assumption|apply each, J].
  - rewrite total_add. pose proof (accrue_together M l all each). lra.
Qed.

(* Arrivals. Calls arrive within g of their permits, so those of a span of t were issued in a span of
   t + g. If the burst is less by what accrues in g, at most the burst and what accrues in t arrive. *)
Theorem bucket_arrivals_never_over l levels part all B M g t :
  (forall c i, In c all -> In i l -> 0 <= rates c i) ->
  (forall c, In c all -> 0 <= lasts c /\ total_of (rates c) l <= M) ->
  (forall i, In i l -> 0 <= part i) -> total_of part l <= B - M * g ->
  (forall i, In i l -> obeys_bucket i (levels i) all /\ opens_within i (part i) all) ->
  lasting all == t + g ->
  total_of (fun i => issued_in i all) l <= B + M * t.
Proof.
  intros r0 each p0 less ok long. pose proof (buckets_never_over l levels part all _ M r0 each p0 less ok).
  assert (M * lasting all == M * t + M * g) as E by (rewrite long; ring). lra.
Qed.
