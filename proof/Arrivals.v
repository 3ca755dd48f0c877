(* Fixed windows as the provider counts them (docs/proof/protocol.md, section 4): it counts a call when the
   call arrives, in windows of its own clock. *)
From Quotient Require Import Sum.
From Coq Require Import Lqa Lia.
Open Scope Q_scope.

(* A call is sent only if its permit is valid for [margin] more, by the instance's clock
   (Permit.Valid). It arrives within [transit] of that. The provider's clock is off by at most [off]. *)
Record provider := Provider {
  margin : Q; transit : Q; off : Q;
  sends : permit -> bool; leaves : permit -> Q; arrives : permit -> Q;
  shows : Q -> Q (* the provider's clock *)
}.
Record counts_arrivals (y : provider) (x : world) : Prop := {
  in_time : forall p, In p (permits x) -> sends y p = true ->
    at_ p <= leaves y p /\ corrected x (who p) (leaves y p) < start x (win p + 1) - margin y /\
    leaves y p <= arrives y p /\ arrives y p <= leaves y p + transit y;
  provider_error : forall t, t - off y <= shows y t /\ shows y t <= t + off y
}.

(* The provider counts a permit's call in window W. *)
Definition counted_in (x : world) (y : provider) (W : window) (p : permit) : bool :=
  sends y p && (Qle_bool (start x W) (shows y (arrives y p)) && negb (Qle_bool (start x (W + 1)) (shows y (arrives y p)))).

Lemma counted_between x y W p : counted_in x y W p = true <->
  sends y p = true /\ start x W <= shows y (arrives y p) /\ shows y (arrives y p) < start x (W + 1).
Proof.
  unfold counted_in. rewrite !andb_true_iff, negb_true_iff, Qle_bool_iff, <- not_true_iff_false, Qle_bool_iff.
  split; intros (s & a & b); (split; [exact s|split; [exact a|]]); [apply Qnot_le_lt, b|apply Qlt_not_le, b].
Qed.

(* Of a world this needs the clocks alone, and that permits are issued in their windows, the guard away
   from the edges, by them. *)
Record clocks_near (x : world) : Prop := {
  some_width : 0 < width x;
  near : forall i t, t - clock_error x <= corrected x i t /\ corrected x i t <= t + clock_error x
}.
Definition in_their_windows (x : world) : Prop := forall p, In p (permits x) ->
  start x (win p) + guard x <= corrected x (who p) (at_ p) /\
  corrected x (who p) (at_ p) < start x (win p + 1) - guard x.

Lemma assumed_clocks x : assumed x -> clocks_near x.
Proof. intros a. destruct (lengths x a) as (_ & _ & _ & _ & w0). split; [exact w0|apply (error x a)]. Qed.
Lemma obeys_in_windows x : obeys x -> in_their_windows x.
Proof.
  intros o p I. apply in_split in I as (before & after & H). destruct (o _ _ _ H) as (A & sent & R & ok).
  exact (guarded _ _ _ _ _ _ _ ok).
Qed.

Section Windows.
  Variables (x : world) (y : provider).
  Hypotheses (k : clocks_near x) (w : in_their_windows x) (c : counts_arrivals y x).

  Lemma arrives_near p : In p (permits x) -> sends y p = true ->
    start x (win p) + guard x - clock_error x - off y <= shows y (arrives y p) /\
    shows y (arrives y p) < start x (win p + 1) - margin y + clock_error x + off y + transit y.
  Proof.
    intros I s. destruct (in_time _ _ c p I s) as (L & M & L' & L'').
    destruct (provider_error _ _ c (arrives y p)) as [C C'], k as [_ e], (e (who p) (leaves y p)) as [F F'].
    destruct (w p I) as [G G'], (e (who p) (at_ p)) as [E E']. split; lra.
  Qed.

  Lemma starts V W : (V <= W)%Z -> start x V <= start x W.
  Proof.
    intros le. destruct k as [w0 _]. unfold start. apply Qmult_le_compat_r; [|lra].
    rewrite <- Zle_Qle. exact le.
  Qed.

  (* With a guard of both clocks' errors, and a margin of these and the transit, a call counts in its
     permit's window. *)
  Lemma arrives_in_window p W : clock_error x + off y <= guard x -> clock_error x + off y + transit y <= margin y -> In p (permits x) ->
    counted_in x y W p = true -> win p = W.
  Proof.
    intros g m I K. apply counted_between in K as (s & K & K'). destruct (arrives_near p I s) as [N N'].
    destruct (Z.lt_trichotomy (win p) W) as [L | [E | L]]; [exfalso| exact E |exfalso].
    - pose proof (starts (win p + 1)%Z W ltac:(lia)). lra.
    - pose proof (starts (W + 1)%Z (win p) ltac:(lia)). lra.
  Qed.
End Windows.

Section Arrivals.
  Variables (x : world) (y : provider).
  Hypotheses (a : assumed x) (o : obeys x) (c : counts_arrivals y x).
  Let k := assumed_clocks x a.
  Let w := obeys_in_windows x o.

  Theorem arrivals_never_over W T : timing x -> clock_error x + off y <= guard x -> clock_error x + off y + transit y <= margin y ->
    (forall v, total x v W <= T)%nat -> (count (counted_in x y W) (permits x) <= T)%nat.
  Proof.
    intros ti g m small. eapply Nat.le_trans; [|apply (never_over x a ti o W T small)].
    apply count_le_in. intros p I K. apply Z.eqb_eq. exact (arrives_in_window x y k w c p W g m I K).
  Qed.

  (* Without a guard and a margin it may count in the window before, or in the one after. So a
     window at the provider has at most three totals. *)
  Theorem arrivals_of_three W T : timing x -> clock_error x + off y + transit y <= width x ->
    0 <= margin y -> 0 <= transit y ->
    (forall v V, total x v V <= T)%nat -> (count (counted_in x y W) (permits x) <= 3 * T)%nat.
  Proof.
    intros ti g m t0 small. destruct (lengths x a) as (_ & _ & _ & g0 & _).
    apply Nat.le_trans with (issued x (W - 1)%Z + issued x W + issued x (W + 1)%Z)%nat.
    - unfold issued.
      assert (forall p, In p (permits x) -> counted_in x y W p = true -> win p = (W - 1)%Z \/ win p = W \/ win p = (W + 1)%Z) as near.
      { intros p I K. apply counted_between in K as (s & K & K'). destruct (arrives_near x y k w c p I s) as [N N'].
        destruct (Z.lt_ge_cases (win p) (W - 1)%Z) as [L | L]; [exfalso|].
        - pose proof (starts x k (win p + 1)%Z (W - 1)%Z ltac:(lia)) as S. pose proof (start_next x (W - 1)%Z) as S'.
          replace (W - 1 + 1)%Z with W in S' by lia. lra.
        - destruct (Z.lt_ge_cases (W + 1)%Z (win p)) as [L' | L']; [exfalso|lia].
          pose proof (starts x k (W + 2)%Z (win p) ltac:(lia)) as S. pose proof (start_next x (W + 1)%Z) as S'.
          replace (W + 1 + 1)%Z with (W + 2)%Z in S' by lia. lra. }
      revert near. induction (permits x) as [|p ps IH]; intros near; [apply Nat.le_0_l|].
      specialize (IH (fun q I => near q (or_intror I))). specialize (near p (or_introl eq_refl)).
      rewrite !count_cons. unfold in_window at 1 3 5.
      destruct (counted_in x y W p); [|lia].
      destruct (near eq_refl) as [-> | [-> | ->]]; rewrite Z.eqb_refl; lia.
    - pose proof (never_over x a ti o (W - 1)%Z T (fun v => small v _)).
      pose proof (never_over x a ti o W T (fun v => small v _)).
      pose proof (never_over x a ti o (W + 1)%Z T (fun v => small v _)). lia.
  Qed.
End Arrivals.
