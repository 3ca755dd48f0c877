(* The proofs of Statement.v's claims about lending. A permit is counted where it is used.
   One that is lent on is passed along a chain of hosts, and cancels out at each of them. *)
From Quotient Require Import Sum.
From Coq Require Import Lia Qminmax.

Definition lent_to (j : incarnation) (p : permit) : bool :=
  match loan p with Some (guest, _) => Nat.eqb guest j | None => false end.
Definition lent_in (W : window) (j : incarnation) (p : permit) : bool := in_window W p && lent_to j p.
Definition is_loan (W : window) (p : permit) : bool := in_window W p && negb (is_used p).

Lemma by_count_le t f ps : (count f (by_ t ps) <= count f ps)%nat.
Proof.
  induction ps as [|p ps IH]; [apply Nat.le_refl|]. simpl.
  destruct (Qle_bool (at_ p) t); rewrite ?count_cons; lia.
Qed.

(* What hosts have lent to one guest: each permit once. *)
Lemma lent_once W j hs ks ps : NoDup hs -> NoDup ks ->
  (sum (fun h => sum (fun k => count (lent h j W k) ps) ks) hs <= count (lent_in W j) ps)%nat.
Proof.
  intros nh nk. eapply Nat.le_trans; [apply sum_le; intros h _|].
  - apply (sum_counts (fun k p => lent h j W k p) (fun p => of h W p && lent_to j p)); [assumption| |];
      unfold lent.
    + intros k p _. unfold is_lent, lent_to. destruct (loan p) as [[j' k']|]; [|intros H; exact H].
      intros H. apply andb_prop in H as [-> H]. apply andb_prop in H as [-> _]. reflexivity.
    + intros k k' p H H'. apply andb_prop in H as [_ H], H' as [_ H'].
      unfold is_lent in *. destruct (loan p) as [[j' m]|]; [|discriminate].
      apply andb_prop in H as [_ H], H' as [_ H']. apply Nat.eqb_eq in H, H'. congruence.
  - apply (sum_counts (fun h p => of h W p && lent_to j p)); [assumption| |]; unfold of, lent_in.
    + intros h p _ H. rewrite <- andb_assoc in H. apply andb_prop in H as [_ H]. exact H.
    + intros h h' p H H'. rewrite <- andb_assoc in H, H'. apply andb_prop in H as [H _], H' as [H' _].
      apply Nat.eqb_eq in H, H'. congruence.
Qed.

(* Each permit that is lent has one guest. *)
Lemma lent_by_guest W l ps : NoDup l -> (sum (fun j => count (lent_in W j) ps) l <= count (is_loan W) ps)%nat.
Proof.
  intros nd. apply (sum_counts (fun j p => lent_in W j p)); [assumption| |]; unfold lent_in, is_loan.
  - intros j p _ H. apply andb_prop in H as [-> H]. unfold lent_to, is_used in *.
    destruct (loan p) as [[]|]; [reflexivity|discriminate].
  - intros j j' p H H'. apply andb_prop in H as [_ H], H' as [_ H']. unfold lent_to in *.
    destruct (loan p) as [[]|]; [|discriminate]. apply Nat.eqb_eq in H, H'. congruence.
Qed.

Lemma used_or_lent y W : count (in_window W) (handed y) = (used y W + count (is_loan W) (handed y))%nat.
Proof.
  unfold used. rewrite (count_split (fun p => in_window W p && is_used p)) by
    (intros p H; apply andb_prop in H as [H _]; exact H).
  f_equal. unfold is_loan. induction (handed y) as [|p ps IH]; [reflexivity|]. rewrite !count_cons, IH.
  destruct (in_window W p), (is_used p); reflexivity.
Qed.

(* Along a run nobody's share falls, but of those that have bound themselves. *)
Lemma grows x i W k n : assumed x ->
  (forall v U, ends x v i = Some U -> ~ U <= start x W) ->
  (k <= n)%nat -> (forall v, (k <= v < n)%nat -> gives x v W = true) ->
  (share x k i W <= share x n i W)%nat.
Proof.
  intros a free kn. induction kn as [|n kn IH]; intros giving; [lia|].
  specialize (IH ltac:(intros; apply giving; lia)).
  destruct (taking x a n W i) as [G | (U & ended & early)]; [apply giving; lia| |].
  - rewrite Nat.add_1_r in G. lia.
  - destruct (free _ _ ended early).
Qed.

(* The view that counts, in [run_counts], and what it leaves to its instance. *)
Lemma counts x before p A sent R B u z n : assumed x -> allowed unbound x before p A sent R ->
  B_minus x (win p) <= B -> B <= B_plus x (win p) -> newest_at x u B ->
  at_ p <= z -> run x (win p) z u n ->
  (forall v U, ends x v (who p) = Some U -> ~ U <= start x (win p)) ->
  exists v, held x p A v /\ (share x v (who p) (win p) <= share x n (who p) (win p))%nat.
Proof.
  intros a ok low high at_B pz R' free.
  exists (Nat.min (newest x (who p) (at_ p)) n). split; [eapply run_counts; eassumption|].
  destruct R' as (un & giving & _).
  pose proof (newest_after _ a _ _ _ _ _ _ _ _ ok high at_B).
  apply grows; auto; [lia|]. intros v ?. apply giving. lia.
Qed.

Theorem lending_settles : claim_lending_settles.
Proof.
  intros y a ch told o W B u z n low high at_B over R. set (qs := handed y) in *.
  set (l := nodup Nat.eq_dec (map who qs)). assert (NoDup l) as nd by apply NoDup_nodup.
  (* Each has used and lent at most its share and what it was lent. *)
  assert (forall j, (count (of j W) qs <= share (among y) n j W + count (lent_in W j) qs)%nat) as each.
  { intros j. destruct (last_one (of j W) qs) as [Z | (before & p & after & H & fp & ->)]; [lia|].
    apply andb_prop in fp as [I J]. apply Nat.eqb_eq in I as <-. apply Z.eqb_eq in J as <-.
    assert (In p qs) as inp by (rewrite H; apply in_elt).
    destruct (o _ _ _ H) as (hs & ks & nh & nk & rule). cbv zeta in rule.
    assert (sum (fun h => sum (fun k => heard y h (who p) (win p) k (at_ p)) ks) hs <= count (lent_in (win p) (who p)) qs)%nat as got.
    { eapply Nat.le_trans; [|apply (lent_once (win p) (who p) hs ks); assumption].
      apply sum_le. intros h _. apply sum_le. intros k _.
      destruct (told h (who p) (win p) k (at_ p)) as [-> | (s & m & st & T & le)]; [lia|].
      eapply Nat.le_trans; [exact le|]. eapply Nat.le_trans; [apply (ch _ _ _ _ _ _ T)|]. apply by_count_le. }
    destruct rule as [only | (A & sent & Rv & ok & free & bound)]; [lia|].
    destruct (counts (among y) before p A sent Rv B u z n a ok low high at_B (over _ inp eq_refl) R free) as (v & hv & le).
    specialize (bound v hv). lia. }
  (* The sum over all: what is lent cancels out. *)
  pose proof (fit _ a n W l nd). pose proof (lent_by_guest W l qs nd). pose proof (used_or_lent y W).
  assert ((count (in_window W) qs <= sum (fun j => share (among y) n j W + count (lent_in W j) qs) l)%nat).
  { eapply Nat.le_trans; [apply (count_by_incarnation W l)|apply sum_le; intros j _; apply each].
    intros p I. apply nodup_In, in_map, I. }
  rewrite sum_add in *. unfold qs in *. lia.
Qed.

Theorem lending_never_over : claim_lending_never_over.
Proof.
  intros y a t ch told o W T small.
  destruct (newest_exists (among y) (B_minus (among y) W) a) as (u & at_B).
  assert (exists z, forall p, In p (handed y) -> win p = W -> at_ p <= z) as (z & over).
  { induction (handed y) as [|p ps (z & H)]; [exists 0; intros _ []|].
    exists (Qmax (at_ p) z). intros q [-> | I] Q; [apply Q.le_max_l|].
    apply Qle_trans with (2 := Q.le_max_r _ _). apply H; assumption. }
  destruct (run_exists (among y) W z u a) as (n & R).
  eapply Nat.le_trans; [|apply (small n)].
  eapply lending_settles; eauto; [apply Qle_refl|]. apply timing_leaves_an_instant; assumption.
Qed.

(* What a ledger computes (internal/window/ledger.go, loan.go): how many permits an own bound and what
   was heard leave, and the number that a host tells. Of a number that it is told a guest counts what it
   has not counted yet, as far as that gives it at most the total. Extract.v makes a program of these. *)
Definition leaves (own heard_now : nat) (i : incarnation) (W : window) (before : list permit) : nat :=
  (own + heard_now - count (of i W) before)%nat.
Definition number (h j : incarnation) (W : window) (ps : list permit) : nat := count (lent h j W 0) ps.
Definition counts_more (total own heard_now lent had told : nat) : nat :=
  Nat.min (told - had) (total + lent - (own + heard_now)).

(* So it obeys the rule: [spends_as_heard], [charged] and [as_told]. *)
Theorem leaves_spends own heard_now before p : (0 < leaves own heard_now (who p) (win p) before)%nat ->
  (count (of (who p) (win p)) (before ++ [p]) <= own + heard_now)%nat.
Proof.
  unfold leaves, count. rewrite filter_app, app_length. simpl. destruct (of (who p) (win p) p); simpl; lia.
Qed.
Theorem counts_more_told total own heard_now lent had told :
  (had + counts_more total own heard_now lent had told <= Nat.max had told)%nat.
Proof. unfold counts_more. lia. Qed.
