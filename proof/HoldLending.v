(* Loans under the outage rule `hold` (docs/proof/protocol.md, sections 6 and 13). An instance that has
   lost etcd counts the loans that it was told before, and those that it has charged, until their
   windows end. The bounds of Hold.v stay: a loan adds nothing, whichever of host and guest is cut
   off.

   That nothing is lent and told without etcd is not needed: a host charges before it tells. *)
From Quotient Require Import Sum Lending Views Hold.
From Coq Require Import Lqa Lia Qfield Qminmax.
Open Scope Q_scope.

(* "used + lent <= own bound now + heard" at each permit, by a plan. The own bound is that of the
   plan. It is 0 after an announced end. Plans without a good proof are made only where [may]. *)
Definition spends_by_plans (may : permit -> Q -> Prop) (y : lending) : Prop :=
  forall before p after, handed y = before ++ p :: after ->
  exists hs ks, NoDup hs /\ NoDup ks /\
    let spent := count (of (who p) (win p)) (before ++ [p]) in
    let heard_now := sum (fun h => sum (fun k => heard y h (who p) (win p) k (at_ p)) ks) hs in
    ((spent <= heard_now)%nat \/
     exists made A sent R, planned unbound (among y) before p made A sent R /\
       (fresh_plan (among y) p made sent \/ frozen_plan (among y) p A sent /\ may p made) /\
       (forall v U, ends (among y) v (who p) = Some U -> ~ U <= start (among y) (win p)) /\
       forall v, held (among y) p A v -> (spent <= share (among y) v (who p) (win p) + heard_now)%nat).

(* CLAIMED: the claims of Statement.v about `hold`, of the permits that are used. *)
Definition claim_hold_lending_all : Prop := forall y o d, assumed (among y) -> timing (among y) ->
  0 <= freshness (among y) -> remembers (among y) ->
  charged y -> as_told y -> spends_by_plans (fun _ made => o <= made) y ->
  (forall i s R, read (among y) i s R -> s <= o) ->
  o - slack (among y) <= d -> d <= o ->
  (forall p v, In p (handed y) -> committed (among y) v d -> (v <= newest (among y) (who p) o)%nat) ->
  forall W T, (forall v, total (among y) v W <= T)%nat -> (used y W <= T)%nat.

Definition claim_hold_lending_some : Prop := forall y cut own, assumed (among y) -> timing (among y) ->
  remembers (among y) -> NoDup cut ->
  charged y -> as_told y -> spends_by_plans (fun p _ => In (who p) cut) y ->
  forall W T, (forall v, total (among y) v W <= T)%nat ->
    (forall p, In p (handed y) -> win p = W -> In (who p) cut ->
      (share (among y) (newest (among y) (who p) (at_ p)) (who p) W <= own (who p))%nat) ->
    (used y W <= T + sum own cut)%nat.

(* What an instance has used and lent is at most its share, what it was lent, and, if it is cut off,
   [own]. What is lent cancels out. *)
Lemma cancels y W n cut own : assumed (among y) -> charged y -> as_told y ->
  (forall before p after, handed y = before ++ p :: after -> win p = W ->
    exists hs ks, NoDup hs /\ NoDup ks /\
      (count (of (who p) W) (before ++ [p]) <=
        share (among y) n (who p) W + cut_adds cut own (who p) +
        sum (fun h => sum (fun k => heard y h (who p) W k (at_ p)) ks) hs)%nat) ->
  (used y W <= total (among y) n W + sum own cut)%nat.
Proof.
  intros a ch told each. set (qs := handed y) in *.
  set (l := nodup Nat.eq_dec (map who qs)). assert (NoDup l) as nd by apply NoDup_nodup.
  assert (forall j, (count (of j W) qs <= (share (among y) n j W + cut_adds cut own j) + count (lent_in W j) qs)%nat) as all.
  { intros j. destruct (last_one (of j W) qs) as [Z | (before & p & after & H & fp & ->)]; [lia|].
    apply andb_prop in fp as [I J]. apply Nat.eqb_eq in I as <-. apply Z.eqb_eq in J.
    destruct (each _ _ _ H J) as (hs & ks & nh & nk & le).
    enough (sum (fun h => sum (fun k => heard y h (who p) W k (at_ p)) ks) hs <= count (lent_in W (who p)) qs)%nat by lia.
    eapply Nat.le_trans; [|apply (lent_once W (who p) hs ks); assumption].
    apply sum_le. intros h _. apply sum_le. intros k _.
    destruct (told h (who p) W k (at_ p)) as [-> | (s & m & st & T & lem)]; [lia|].
    eapply Nat.le_trans; [exact lem|]. eapply Nat.le_trans; [apply (ch _ _ _ _ _ _ T)|]. apply by_count_le. }
  pose proof (fit _ a n W l nd). pose proof (lent_by_guest W l qs nd). pose proof (used_or_lent y W).
  pose proof (sum_of_cut cut own l nd).
  assert ((count (in_window W) qs <= sum (fun j => (share (among y) n j W + cut_adds cut own j) + count (lent_in W j) qs) l)%nat).
  { eapply Nat.le_trans; [apply (count_by_incarnation W l)|apply sum_le; intros j _; apply all].
    intros p I. apply nodup_In, in_map, I. }
  rewrite !sum_add in *. unfold qs in *. lia.
Qed.

Lemma all_over_handed y W : exists z, forall p, In p (handed y) -> win p = W -> at_ p <= z.
Proof.
  induction (handed y) as [|p ps (z & H)]; [exists 0; intros _ []|].
  exists (Qmax (at_ p) z). intros q [-> | I] Q; [apply Q.le_max_l|].
  apply Qle_trans with (2 := Q.le_max_r _ _). apply H; assumption.
Qed.

Theorem hold_lending_all : claim_hold_lending_all.
Proof.
  intros y o d a ti f0 mem ch told ob away low high knew W T small.
  destruct (newest_exists (among y) (Qmin (B_plus (among y) W) d) a) as (u & at_B), (all_over_handed y W) as (z & over).
  destruct (run_exists (among y) W z u a) as (n & Rn).
  apply Nat.le_trans with (total (among y) n W + sum (fun _ => 0%nat) (@nil nat))%nat; [|specialize (small n); unfold sum; simpl; lia].
  apply cancels; auto. intros before p after H J.
  assert (In p (handed y)) as I by (rewrite H; apply in_elt).
  destruct (ob _ _ _ H) as (hs & ks & nh & nk & rule). rewrite J in rule. cbv zeta in rule.
  exists hs, ks. split; [exact nh|]. split; [exact nk|].
  destruct rule as [only | (made & A & sent & R & ok & how & free & bound)]; [lia|].
  destruct (between_counts (among y) W u z n A p a J (over p I J) Rn) as (v & hv & _ & grew); auto.
  - rewrite <- J in at_B. eapply away_reaches; eauto.
  - apply (p_history _ _ _ _ _ _ _ _ ok).
  - specialize (bound v hv). lia.
Qed.

Theorem hold_lending_some : claim_hold_lending_some.
Proof.
  intros y cut own a ti mem nc ch told ob W T small shares.
  destruct (newest_exists (among y) (B_plus (among y) W) a) as (u & at_B), (all_over_handed y W) as (z & over).
  destruct (run_exists (among y) W z u a) as (n & Rn).
  pose proof (timing_leaves_an_instant (among y) a ti W) as BB.
  apply Nat.le_trans with (total (among y) n W + sum own cut)%nat; [|specialize (small n); lia].
  apply cancels; auto. intros before p after H J.
  assert (In p (handed y)) as I by (rewrite H; apply in_elt).
  destruct (ob _ _ _ H) as (hs & ks & nh & nk & rule). rewrite J in rule. cbv zeta in rule.
  exists hs, ks. split; [exact nh|]. split; [exact nk|].
  destruct rule as [only | (made & A & sent & R & ok & how & free & bound)]; [lia|].
  destruct (p_begins _ _ _ _ _ _ _ _ ok) as (le & _), (p_lookback _ _ _ _ _ _ _ _ ok) as (Am & _).
  destruct (in_dec Nat.eq_dec (who p) cut) as [C | out].
  - rewrite (cut_adds_own cut own _ C). specialize (shares p I J C).
    assert (newest (among y) (who p) A <= newest (among y) (who p) (at_ p))%nat by (apply mem; lra).
    assert (held (among y) p A (newest (among y) (who p) (at_ p))) as hv.
    { split; [apply (p_history _ _ _ _ _ _ _ _ ok); lia|]. split; [lia|left; reflexivity]. }
    specialize (bound _ hv). lia.
  - destruct how as [fr | (_ & C)]; [|contradiction].
    destruct (between_counts (among y) W u z n A p a J (over p I J) Rn) as (v & hv & _ & grew); auto.
    + split.
      * eapply newest_by; [exact a| |exact at_B]. pose proof (plan_reaches _ a _ _ _ _ _ _ _ ok) as reach.
        rewrite J in reach. lra.
      * eapply Nat.le_trans; [|apply (mem _ _ _ le)].
        eapply newest_since; [exact a|exact ok| |exact at_B]. rewrite <- J. eapply plan_is_later; eassumption.
    + apply (p_history _ _ _ _ _ _ _ _ ok).
    + specialize (bound v hv). lia.
Qed.
