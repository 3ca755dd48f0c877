(* The proofs of Statement.v's claims. The comments name the steps of docs/proof/protocol.md,
   section 4. *)
From Quotient Require Export Statement.
From Coq Require Import Lqa Lia Qfield Qminmax.

Lemma start_next x W : start x (W + 1) == start x W + width x.
Proof. unfold start. rewrite inject_Z_plus. ring. Qed.

Lemma scaled c a b : 0 < c -> c * a <= c * b -> a <= b.
Proof. intros. apply (Qmult_le_l a b c); assumption. Qed.

(* B- and B+ without their divisions. *)
Lemma B_minus_scaled x W : assumed x ->
  (1 + drift x) * B_minus x W == (1 + drift x) * (start x W + clock_error x) - (settle x - width x * drift x).
Proof. intros a. destruct (lengths x a) as (_ & ? & _). unfold B_minus. field. lra. Qed.

Lemma B_plus_scaled x W : assumed x ->
  (1 - drift x) * B_plus x W == (1 - drift x) * (start x W - clock_error x) - freshness x.
Proof. intros a. destruct (lengths x a) as (_ & _ & ? & _). unfold B_plus. field. lra. Qed.

Theorem timing_leaves_an_instant : claim_timing.
Proof.
  intros x a T W. destruct (lengths x a) as (_ & r0 & r1 & _).
  apply (scaled (1 + drift x)); [lra|]. rewrite B_minus_scaled by assumption.
  unfold B_plus, timing in *.
  assert ((1 + drift x) * (start x W - clock_error x - freshness x / (1 - drift x)) ==
    (1 + drift x) * (start x W - clock_error x) - freshness x * (1 + drift x) / (1 - drift x)) as -> by (field; lra).
  lra.
Qed.

Section Permit.
  Variables (x : world) (a : assumed x) (before : list permit) (p : permit).
  Variables (A sent B : Q) (R u : view) (counted : world -> permit -> Q -> view -> Prop).
  Hypothesis ok : allowed counted x before p A sent R.
  Hypothesis low : B_minus x (win p) <= B.
  Hypothesis high : B <= B_plus x (win p).
  Hypothesis at_B : newest_at x u B.

  (* Before: A is B- or earlier. *)
  Lemma lookback_reaches : A <= B.
  Proof.
    apply Qle_trans with (2 := low).
    destruct (lengths x a) as (_ & r0 & _ & g0 & _), (lookback _ _ _ _ _ _ _ ok) as [older M],
      (guarded _ _ _ _ _ _ _ ok) as [_ G], (error x a (who p) (at_ p)) as [E _].
    pose proof (not_fast x a (who p) _ _ older) as F. rewrite start_next in G.
    apply (scaled (1 + drift x)); [lra|]. rewrite B_minus_scaled by assumption.
    set (b := start x (win p)) in *. set (c := corrected x (who p) (at_ p)) in *.
    assert (drift x * (c - b) <= drift x * width x) by nra.
    assert ((1 + drift x) * at_ p <= (1 + drift x) * (c + clock_error x)) by nra.
    lra.
  Qed.

  (* After: the proof was requested after B+. *)
  Lemma proof_is_later : B < sent.
  Proof.
    apply Qle_lt_trans with (1 := high).
    destruct (lengths x a) as (_ & _ & r1 & g0 & _), (fresh _ _ _ _ _ _ _ ok) as (older & _ & _ & M & N),
      (guarded _ _ _ _ _ _ _ ok) as [G _], (error x a (who p) (at_ p)) as [_ E].
    apply Qnot_le_lt. intros late.
    assert ((1 - drift x) * sent <= (1 - drift x) * B_plus x (win p)) as L by (apply Qmult_le_l; lra).
    rewrite B_plus_scaled in L by assumption.
    assert ((1 - drift x) * (start x (win p) - clock_error x) <= (1 - drift x) * at_ p) by (apply Qmult_le_l; lra).
    destruct (not_slow x a (who p) _ _ older); lra.
  Qed.

  (* So the view held at A is u or older, and the one held at t is u or newer. *)
  Lemma newest_before : (newest x (who p) A <= u)%nat.
  Proof.
    destruct (causal x a (who p) A) as [-> | C]; [lia|]. destruct at_B as [_ next].
    apply Nat.nlt_ge. intros H. pose proof (line x a (u + 1) (newest x (who p) A) ltac:(lia)).
    pose proof lookback_reaches. lra.
  Qed.

  Lemma newest_after : (u <= newest x (who p) (at_ p))%nat.
  Proof.
    destruct at_B as [[-> | C] _]; [lia|].
    destruct (fresh _ _ _ _ _ _ _ ok) as (_ & read & delivered & _).
    pose proof (linearizable x a _ _ _ u read) as L. pose proof proof_is_later.
    enough (u <= R)%nat by lia. apply L. lra.
  Qed.

  (* Run: the bound counts the newest view, or the run's last one if that is older. *)
  Lemma run_counts z n : at_ p <= z -> run x (win p) z u n ->
    held x p A (Nat.min (newest x (who p) (at_ p)) n).
  Proof.
    intros z0 (un & giving & stop). pose proof newest_before. pose proof newest_after.
    repeat split; [apply (history _ _ _ _ _ _ _ ok)| | |]; try lia.
    destruct (Nat.le_gt_cases (newest x (who p) (at_ p)) n) as [H1 | H1]; [left; lia|right].
    rewrite Nat.min_r by lia. destruct stop as [-> | late]; [reflexivity|].
    destruct (causal x a (who p) (at_ p)) as [H2 | C]; [lia|].
    pose proof (line x a (n + 1) (newest x (who p) (at_ p)) ltac:(lia)). lra.
  Qed.
End Permit.

(* The promise of an announced end: its incarnation issues nothing in windows from there on. *)
Lemma promise x before p after v U : assumed x -> obeys x ->
  permits x = before ++ p :: after -> ends x v (who p) = Some U -> start x (win p) < U.
Proof.
  intros a o H s. destruct (bound_itself x a _ _ _ s) as (c & early & later).
  destruct (Qlt_le_dec c (at_ p)) as [C | C].
  - apply later; [rewrite H; apply in_elt|reflexivity|assumption].
  - pose proof (forward x a (who p) _ _ C). destruct (o _ _ _ H) as (? & ? & ? & ok).
    destruct (guarded _ _ _ _ _ _ _ ok) as [G _], (lengths x a) as (_ & _ & _ & ? & _). lra.
Qed.

(* Along a run nobody's share falls, but of those that issue nothing. *)
Lemma shares_grow x before p after n k : assumed x -> obeys x ->
  permits x = before ++ p :: after ->
  (k <= n)%nat -> (forall v, (k <= v < n)%nat -> gives x v (win p) = true) ->
  (share x k (who p) (win p) <= share x n (who p) (win p))%nat.
Proof.
  intros a o H kn. induction kn as [|n kn IH]; intros giving; [lia|].
  specialize (IH ltac:(intros; apply giving; lia)).
  destruct (taking x a n (win p) (who p)) as [G | (U & ends & early)]; [apply giving; lia| |].
  - rewrite Nat.add_1_r in G. lia.
  - pose proof (promise x _ _ _ _ _ a o H ends). lra.
Qed.

(* Counting. *)
Lemma count_cons f p l : count f (p :: l) = ((if f p then 1 else 0) + count f l)%nat.
Proof. unfold count. simpl. destruct (f p); reflexivity. Qed.

Lemma count_le_in f f' ps : (forall p, In p ps -> f p = true -> f' p = true) -> (count f ps <= count f' ps)%nat.
Proof.
  induction ps as [|p ps IH]; intros all; [apply Nat.le_refl|]. rewrite !count_cons.
  specialize (IH (fun q I => all q (or_intror I))). specialize (all p (or_introl eq_refl)).
  destruct (f p), (f' p); simpl; try lia; discriminate (all eq_refl).
Qed.

Lemma sum_le {A} (f f' : A -> nat) l : (forall i, In i l -> (f i <= f' i)%nat) ->
  (sum f l <= sum f' l)%nat.
Proof.
  unfold sum. induction l as [|i l IH]; simpl; intros H; [lia|].
  pose proof (H i (or_introl eq_refl)). specialize (IH (fun j I => H j (or_intror I))). lia.
Qed.

Lemma sum_add {A} (f f' : A -> nat) l : sum (fun i => f i + f' i)%nat l = (sum f l + sum f' l)%nat.
Proof. unfold sum. induction l as [|i l IH]; simpl; lia. Qed.

Lemma sum_part {A} (f : A -> nat) i l : In i l -> (f i <= sum f l)%nat.
Proof.
  unfold sum. induction l as [|j l IH]; simpl; [tauto|].
  intros [-> | I]; [|specialize (IH I)]; lia.
Qed.

(* Each permit has its incarnation. *)
Lemma count_by_incarnation W l ps : (forall p, In p ps -> In (who p) l) ->
  (count (in_window W) ps <= sum (fun i => count (of i W) ps) l)%nat.
Proof.
  induction ps as [|p ps IH]; intros I; [apply Nat.le_0_l|].
  specialize (IH (fun q J => I q (or_intror J))). rewrite count_cons.
  unfold sum at 1. rewrite (map_ext _ _ (fun i => count_cons (of i W) p ps)).
  fold (sum (fun i => (if of i W p then 1 else 0) + count (of i W) ps)%nat l). rewrite sum_add.
  pose proof (sum_part (fun i => if of i W p then 1 else 0)%nat _ _ (I p (or_introl eq_refl))) as P.
  unfold of in P at 1. rewrite Nat.eqb_refl in P. simpl in P. lia.
Qed.

(* Tests of which a permit satisfies at most one count it at most once. *)
Lemma count_split f F ps : (forall p, f p = true -> F p = true) ->
  count F ps = (count f ps + count (fun p => F p && negb (f p)) ps)%nat.
Proof.
  intros all. induction ps as [|p ps IH]; [reflexivity|]. rewrite !count_cons, IH.
  specialize (all p). destruct (f p), (F p); simpl; try lia.
Qed.

Lemma sum_counts {A} (f : A -> permit -> bool) F l ps : NoDup l ->
  (forall i p, In i l -> f i p = true -> F p = true) ->
  (forall i j p, f i p = true -> f j p = true -> i = j) ->
  (sum (fun i => count (f i) ps) l <= count F ps)%nat.
Proof.
  intros nd all once. revert F all.
  induction nd as [|i l new nd IH]; intros F all; [apply Nat.le_0_l|].
  rewrite (count_split (f i) F) by (intros p; apply all; left; reflexivity).
  apply Nat.add_le_mono_l, IH. intros j p I fj. apply andb_true_intro. split.
  - apply (all j); [right|]; assumption.
  - destruct (f i p) eqn:fi; [|reflexivity].
    rewrite (once i j p fi fj) in new. contradiction.
Qed.

(* The last permit that satisfies a test. *)
Lemma last_one f ps : count f ps = 0%nat \/
  exists before p after, ps = before ++ p :: after /\ f p = true /\
    count f ps = count f (before ++ [p]).
Proof.
  induction ps as [|q ps [none | (before & p & after & -> & fp & same)]]; [left; reflexivity| |].
  - rewrite count_cons. destruct (f q) eqn:fq; [right|left; assumption].
    exists [], q, ps. simpl. rewrite count_cons, fq, none. auto.
  - right. exists (q :: before), p, after. simpl. rewrite !count_cons, same. auto.
Qed.

Theorem sum_holds : claim_sum.
Proof.
  intros x a o W B u z n low high at_B over R.
  set (l := nodup Nat.eq_dec (map who (permits x))).
  eapply Nat.le_trans; [apply (count_by_incarnation W l)|].
  { intros p I. apply nodup_In, in_map, I. }
  eapply Nat.le_trans; [|apply (fit x a n W l), NoDup_nodup].
  apply sum_le. intros i _.
  destruct (last_one (of i W) (permits x)) as [-> | (before & p & after & H & fp & ->)]; [lia|].
  apply andb_prop in fp as [I J]. apply Nat.eqb_eq in I as <-. apply Z.eqb_eq in J as <-.
  destruct (o _ _ _ H) as (A & sent & Rv & ok).
  assert (at_ p <= z) as pz by (apply over; [rewrite H; apply in_elt|reflexivity]).
  eapply Nat.le_trans; [eapply (bound _ _ _ _ _ _ _ ok), run_counts; eassumption|].
  destruct R as (un & giving & _).
  pose proof (newest_after _ a _ _ _ _ _ _ _ _ ok high at_B).
  eapply shares_grow; try eassumption; [lia|]. intros v ?. apply giving. lia.
Qed.

Lemma all_over x W : exists z, over_by x W z.
Proof.
  unfold over_by. induction (permits x) as [|p ps (z & H)]; [exists 0; intros _ []|].
  exists (Qmax (at_ p) z). intros q [-> | I] Q; [apply Q.le_max_l|].
  apply Qle_trans with (2 := Q.le_max_r _ _). apply H; assumption.
Qed.

Theorem settle_holds : claim_settle.
Proof.
  intros x a o W B u low high at_B stop. destruct (all_over x W) as (z & over).
  apply (sum_holds x a o W B u z u); auto. repeat split; auto. intros v ?. lia.
Qed.

Lemma newest_exists x B : assumed x -> exists u, newest_at x u B.
Proof.
  intros a. destruct (finite x a B) as (N & late). induction N as [|N IH].
  - exists 0%nat. split; [left; reflexivity|]. pose proof (line x a 0 (0 + 1) ltac:(lia)). lra.
  - destruct (Qlt_le_dec B (commit x N)) as [C | C]; [auto|].
    exists N. split; [right; assumption|]. rewrite Nat.add_1_r. assumption.
Qed.

Lemma run_exists x W z u : assumed x -> exists n, run x W z u n.
Proof.
  intros a. destruct (finite x a z) as (N & late).
  assert (z < commit x (u + N)) as L by (pose proof (line x a N (u + N) ltac:(lia)); lra).
  clear late. revert u L. induction N as [|N IH]; intros u L.
  - exists u. split; [lia|]. split; [intros; lia|right].
    pose proof (line x a (u + 0) (u + 1) ltac:(lia)). lra.
  - destruct (gives x u W) eqn:G.
    + destruct (IH (u + 1)%nat) as (n & un & giving & stop).
      { replace (u + 1 + N)%nat with (u + Datatypes.S N)%nat by lia. assumption. }
      exists n. split; [lia|]. split; [|assumption]. intros v ?.
      destruct (Nat.eq_dec v u) as [-> |]; [assumption|]. apply giving. lia.
    + exists u. split; [lia|]. split; [intros; lia|]. left. assumption.
Qed.

Theorem never_over : claim_never_over.
Proof.
  intros x a t o W T small.
  destruct (newest_exists x (B_minus x W) a) as (u & at_B), (all_over x W) as (z & over).
  destruct (run_exists x W z u a) as (n & R).
  eapply Nat.le_trans; [|apply (small n)].
  apply (sum_holds x a o W (B_minus x W) u z n); auto; [apply Qle_refl|].
  apply timing_leaves_an_instant; assumption.
Qed.

Theorem true_windows : claim_true_windows.
Proof.
  intros x a o eg p I. apply in_split in I as (before & after & H).
  destruct (o _ _ _ H) as (A & sent & R & ok), (error x a (who p) (at_ p)) as [E F].
  destruct (guarded _ _ _ _ _ _ _ ok) as [G1 G2]. split; lra.
Qed.
