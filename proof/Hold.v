(* The proofs of Statement.v's claims about the outage rule `hold`, and about plans that keep
   the clock's offset. *)
From Quotient Require Import Sum Lending Views.
From Coq Require Import Lqa Lia Qfield Qminmax.
Open Scope Q_scope.

Section Plan.
  Variables (x : world) (a : assumed x) (before : list permit) (p : permit).
  Variables (made A sent : Q) (R : view) (counted : world -> permit -> Q -> view -> Prop).
  Hypothesis ok : planned counted x before p made A sent R.

  (* As in section 4, at the instant of the plan. *)
  Lemma plan_reaches : A <= B_minus x (win p).
  Proof.
    destruct (lengths x a) as (_ & r0 & _ & g0 & _), (p_lookback _ _ _ _ _ _ _ _ ok) as [older M],
      (p_begins _ _ _ _ _ _ _ _ ok) as (_ & _ & G), (error x a (who p) made) as [E _].
    pose proof (not_fast x a (who p) _ _ older) as F. rewrite start_next in G.
    apply (scaled (1 + drift x)); [lra|]. rewrite B_minus_scaled by assumption.
    set (b := start x (win p)) in *. set (c := corrected x (who p) made) in *.
    assert (drift x * (c - b) <= drift x * width x) by nra.
    assert ((1 + drift x) * made <= (1 + drift x) * (c + clock_error x)) by nra.
    lra.
  Qed.

  Lemma plan_is_later : fresh_plan x p made sent -> B_plus x (win p) < sent.
  Proof.
    intros (M & N). destruct (lengths x a) as (_ & _ & r1 & g0 & _), (p_proof _ _ _ _ _ _ _ _ ok) as (older & _),
      (p_begins _ _ _ _ _ _ _ _ ok) as (_ & G & _), (error x a (who p) made) as [_ E].
    apply Qnot_le_lt. intros late.
    assert ((1 - drift x) * sent <= (1 - drift x) * B_plus x (win p)) as L by (apply Qmult_le_l; lra).
    rewrite B_plus_scaled in L by assumption.
    assert ((1 - drift x) * (start x (win p) - clock_error x) <= (1 - drift x) * made) by (apply Qmult_le_l; lra).
    destruct (not_slow x a (who p) _ _ older); lra.
  Qed.

  Lemma frozen_reaches : frozen_plan x p A sent -> A <= sent - settle x / (1 + drift x).
  Proof.
    intros (older & M). destruct (lengths x a) as (_ & r0 & _).
    pose proof (not_fast x a (who p) _ _ older) as F.
    apply (scaled (1 + drift x)); [lra|].
    assert ((1 + drift x) * (sent - settle x / (1 + drift x)) == (1 + drift x) * sent - settle x) as -> by (field; lra).
    lra.
  Qed.

  Lemma newest_by B u t : t <= B -> newest_at x u B -> (newest x (who p) t <= u)%nat.
  Proof.
    intros le (_ & next). destruct (causal x a (who p) t) as [-> | C]; [lia|].
    apply Nat.nlt_ge. intros H. pose proof (line x a (u + 1) (newest x (who p) t) ltac:(lia)). lra.
  Qed.

  Lemma newest_since B u : B < sent -> newest_at x u B -> (u <= newest x (who p) made)%nat.
  Proof.
    intros le ([-> | C] & _); [lia|]. destruct (p_proof _ _ _ _ _ _ _ _ ok) as (_ & rd & delivered).
    pose proof (linearizable x a _ _ _ u rd). enough (u <= R)%nat by lia. apply H. lra.
  Qed.
End Plan.

(* If u was the newest view before, and is the newest or older now, some view binds the permit by at
   most what the last view of the run leaves to its instance. *)
Lemma between_counts x W u z n A p : assumed x -> win p = W -> at_ p <= z -> run x W z u n ->
  (newest x (who p) A <= u <= newest x (who p) (at_ p))%nat ->
  (forall v, (newest x (who p) A <= v <= newest x (who p) (at_ p))%nat -> applied x (who p) v) ->
  (forall v U, ends x v (who p) = Some U -> ~ U <= start x W) ->
  exists v, held x p A v /\ (u <= v <= n)%nat /\ (share x v (who p) W <= share x n (who p) W)%nat.
Proof.
  intros a J pz (un & giving & stop) (nA & nt) all free.
  set (k := Nat.min (newest x (who p) (at_ p)) n). exists k. split.
  - split; [apply all; lia|]. split; [lia|].
    destruct (Nat.le_gt_cases (newest x (who p) (at_ p)) n) as [H1 | H1]; [left; lia|right].
    unfold k. rewrite Nat.min_r, J by lia. destruct stop as [-> | late]; [reflexivity|].
    destruct (causal x a (who p) (at_ p)) as [H2 | C]; [lia|].
    pose proof (line x a (n + 1) (newest x (who p) (at_ p)) ltac:(lia)). lra.
  - split; [lia|]. apply grows; [exact a|exact free|lia|]. intros v ?. apply giving. lia.
Qed.

(* What those that are cut off add. *)
Definition cut_adds (cut : list incarnation) (own : incarnation -> nat) (i : incarnation) : nat :=
  if existsb (Nat.eqb i) cut then own i else 0%nat.

Lemma cut_adds_own cut own i : In i cut -> cut_adds cut own i = own i.
Proof.
  intros I. unfold cut_adds. assert (existsb (Nat.eqb i) cut = true) as ->; [|reflexivity].
  apply existsb_exists. exists i. split; [exact I|apply Nat.eqb_refl].
Qed.

Lemma sum_of_cut cut own l : NoDup l -> (sum (cut_adds cut own) l <= sum own cut)%nat.
Proof.
  intros nd. apply Nat.le_trans with (sum own (filter (fun i => existsb (Nat.eqb i) cut) l)).
  - unfold sum, cut_adds. clear nd. induction l as [|i l IH]; simpl; [lia|].
    destruct (existsb (Nat.eqb i) cut); simpl; lia.
  - apply sum_incl; [apply NoDup_filter, nd|]. intros i I. apply filter_In in I as [_ I].
    apply existsb_exists in I as (j & I & E). apply Nat.eqb_eq in E as ->. exact I.
Qed.

(* Views that were newest before and are newest after u bound all permits of a window, but
   those of some incarnations. *)
Lemma sandwiched x W u z n cut own : assumed x -> NoDup cut -> over_by x W z -> run x W z u n ->
  (forall before p after, permits x = before ++ p :: after -> win p = W ->
    start x W <= corrected x (who p) (at_ p) /\
    (In (who p) cut /\ (count (of (who p) W) (before ++ [p]) <= own (who p))%nat \/
     exists A, (newest x (who p) A <= u <= newest x (who p) (at_ p))%nat /\
       (forall v, (newest x (who p) A <= v <= newest x (who p) (at_ p))%nat -> applied x (who p) v) /\
       forall v, held x p A v -> (u <= v <= n)%nat -> (count (of (who p) W) (before ++ [p]) <= share x v (who p) W)%nat)) ->
  (issued x W <= total x n W + sum own cut)%nat.
Proof.
  intros a nc over ru each.
  set (l := nodup Nat.eq_dec (map who (permits x))).
  apply Nat.le_trans with (sum (fun i => share x n i W + cut_adds cut own i)%nat l).
  - eapply Nat.le_trans; [apply (count_by_incarnation W l)|].
    { intros p I. apply nodup_In, in_map, I. }
    apply sum_le. intros i _.
    destruct (last_one (of i W) (permits x)) as [-> | (before & p & after & H & fp & ->)]; [lia|].
    apply andb_prop in fp as [I J]. apply Nat.eqb_eq in I as <-. apply Z.eqb_eq in J.
    destruct (each _ _ _ H J) as (G & [(I & le) | (A & (nA & nt) & all & le)]).
    + rewrite (cut_adds_own cut own _ I). lia.
    + destruct (between_counts x W u z n A p a J) as (v & hv & range & grew); auto.
      * apply over; [rewrite H; apply in_elt|exact J].
      * intros v U s. destruct (bound_itself x a _ _ _ s) as (c & early & later).
        destruct (Qlt_le_dec c (at_ p)) as [C | C].
        -- assert (start x (win p) < U) by (apply later; [rewrite H; apply in_elt|reflexivity|exact C]). rewrite J in *. lra.
        -- pose proof (forward x a (who p) _ _ C). lra.
      * specialize (le _ hv range). lia.
  - rewrite sum_add. apply Nat.add_le_mono; [apply (fit x a n W l), NoDup_nodup|apply sum_of_cut, NoDup_nodup].
Qed.

Lemma plan_begins counted x before p made A sent R : assumed x -> planned counted x before p made A sent R ->
  start x (win p) <= corrected x (who p) (at_ p).
Proof.
  intros a ok. destruct (p_begins _ _ _ _ _ _ _ _ ok) as (le & G & _).
  pose proof (forward x a (who p) _ _ le). destruct (lengths x a) as (_ & _ & _ & ? & _). lra.
Qed.

Theorem hold_some : claim_hold_some.
Proof.
  intros x cut own a ti mem nc o W T small shares.
  destruct (newest_exists x (B_plus x W) a) as (u & at_B), (all_over x W) as (z & over).
  destruct (run_exists x W z u a) as (n & Rn).
  pose proof (timing_leaves_an_instant x a ti W) as BB.
  apply Nat.le_trans with (total x n W + sum own cut)%nat; [|specialize (small n); lia].
  apply (sandwiched x W u z n cut own a nc over Rn).
  intros before p after H <-. destruct (o _ _ _ H) as (made & A & sent & R & ok & how).
  split; [eapply plan_begins; eassumption|].
  destruct (p_begins _ _ _ _ _ _ _ _ ok) as (le & _), (p_lookback _ _ _ _ _ _ _ _ ok) as (Am & _).
  destruct (in_dec Nat.eq_dec (who p) cut) as [I | out].
  - left. split; [exact I|]. eapply Nat.le_trans; [apply (p_bound _ _ _ _ _ _ _ _ ok (newest x (who p) (at_ p)))|
      apply shares; [rewrite H; apply in_elt|reflexivity|exact I]].
    assert (newest x (who p) A <= newest x (who p) (at_ p))%nat by (apply mem; lra).
    split; [apply (p_history _ _ _ _ _ _ _ _ ok); lia|]. split; [lia|left; reflexivity].
  - right. destruct how as [fr | (_ & I)]; [|contradiction]. exists A. split; [split|split].
    + eapply newest_by; [exact a| |exact at_B]. pose proof (plan_reaches x a _ _ _ _ _ _ _ ok). lra.
    + eapply Nat.le_trans; [|apply (mem _ _ _ le)].
      eapply newest_since; [exact a|exact ok| |exact at_B]. eapply plan_is_later; eassumption.
    + apply (p_history _ _ _ _ _ _ _ _ ok).
    + intros v hv _. apply (p_bound _ _ _ _ _ _ _ _ ok v hv).
Qed.

Lemma slack_is x W : assumed x -> B_plus x W == B_minus x W + slack x.
Proof. intros a. destruct (lengths x a) as (_ & r0 & r1 & _). unfold B_plus, B_minus, slack. field. lra. Qed.

(* All of etcd goes away at o: each plan has been made with what was the newest view at B. *)
Lemma away_reaches counted x o y before p made A sent R u : assumed x -> timing x -> 0 <= freshness x -> remembers x ->
  (forall i s R, read x i s R -> s <= o) -> o - slack x <= y -> y <= o ->
  (forall v, committed x v y -> (v <= newest x (who p) o)%nat) ->
  planned counted x before p made A sent R ->
  fresh_plan x p made sent \/ frozen_plan x p A sent /\ o <= made ->
  newest_at x u (Qmin (B_plus x (win p)) y) ->
  (newest x (who p) A <= u <= newest x (who p) (at_ p))%nat.
Proof.
  intros a ti f0 mem away low high knew ok how.
  pose proof (timing_leaves_an_instant x a ti (win p)) as BB. pose proof (slack_is x (win p) a) as S.
  destruct (lengths x a) as (e0 & r0 & r1 & _ & w0).
  set (B := Qmin (B_plus x (win p)) y). intros at_B.
  destruct (p_begins _ _ _ _ _ _ _ _ ok) as (le & _).
  assert (B <= B_plus x (win p)) as B1 by apply Q.le_min_l.
  assert (B <= y) as B2 by apply Q.le_min_r.
  pose proof (plan_reaches x a _ _ _ _ _ _ _ ok) as reach.
  destruct (p_proof _ _ _ _ _ _ _ _ ok) as (_ & rd & _). pose proof (away _ _ _ rd).
  destruct how as [fr | (fz & later)].
  - pose proof (plan_is_later x a _ _ _ _ _ _ _ ok fr) as after_B.
    split.
    + eapply newest_by; [exact a| |exact at_B]. unfold B. apply Q.min_glb; lra.
    + eapply Nat.le_trans; [|apply (mem _ _ _ le)]. eapply newest_since; [exact a|exact ok| |exact at_B]. lra.
  - pose proof (frozen_reaches x a _ _ _ fz) as far.
    assert (slack x <= settle x / (1 + drift x)) as enough.
    { unfold slack. assert (0 <= freshness x / (1 - drift x)) by (apply Qle_shift_div_l; lra).
      assert (0 <= width x * drift x / (1 + drift x)) by (apply Qle_shift_div_l; nra).
      assert ((settle x - width x * drift x) / (1 + drift x) ==
        settle x / (1 + drift x) - width x * drift x / (1 + drift x)) as -> by (field; lra). lra. }
    split.
    + eapply newest_by; [exact a| |exact at_B]. unfold B. apply Q.min_glb; lra.
    + eapply Nat.le_trans; [apply knew|apply mem; lra].
      destruct at_B as ([-> | C] & _); [left; reflexivity|right; lra].
Qed.

Theorem hold_all : claim_hold_all.
Proof.
  intros x o y a ti f0 mem ob away low high knew W T small.
  destruct (newest_exists x (Qmin (B_plus x W) y) a) as (u & at_B), (all_over x W) as (z & over).
  destruct (run_exists x W z u a) as (n & Rn).
  replace T with (T + sum (fun _ => 0%nat) (@nil nat))%nat by (unfold sum; simpl; lia).
  apply Nat.le_trans with (total x n W + sum (fun _ => 0%nat) (@nil nat))%nat; [|specialize (small n); lia].
  apply (sandwiched x W u z n [] (fun _ => 0%nat) a (NoDup_nil _) over Rn).
  intros before p after H <-. destruct (ob _ _ _ H) as (made & A & sent & R & ok & how).
  split; [eapply plan_begins; eassumption|]. right. exists A.
  split; [|split; [apply (p_history _ _ _ _ _ _ _ _ ok)|intros v hv _; apply (p_bound _ _ _ _ _ _ _ _ ok v hv)]].
  assert (In p (permits x)) as I by (rewrite H; apply in_elt).
  eapply away_reaches; eauto.
Qed.

Theorem hold_true_windows : claim_hold_true_windows.
Proof.
  intros counted x before p made A sent R a ok slow eg.
  destruct (p_begins _ _ _ _ _ _ _ _ ok) as (le & G & G'), (lengths x a) as (e0 & r0 & r1 & g0 & w0).
  destruct (error x a (who p) made) as [E F]. pose proof (p_ends _ _ _ _ _ _ _ _ ok) as N. rewrite start_next in N.
  assert (0 <= width x * drift x / (1 - drift x)) as k0 by (apply Qle_shift_div_l; nra).
  set (k := width x * drift x / (1 - drift x)) in *.
  assert ((1 - drift x) * k == width x * drift x) as K by (unfold k; field; lra).
  split; [lra|]. rewrite start_next. apply Qnot_le_lt. intros late.
  set (c := corrected x (who p) made) in *. set (b := start x (win p)) in *.
  set (M := mono x (who p) (at_ p) - mono x (who p) made) in *.
  assert (at_ p - made <= M + k); [|lra].
  apply (scaled (1 - drift x)); [lra|]. assert (0 <= drift x * (width x - M)) by (apply Qmult_le_0_compat; lra). lra.
Qed.
