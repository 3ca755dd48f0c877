(* A process that continues another, and both issue. Without the rule when its windows open, they
   exceed the total. So the claims of Continued.v are not empty. *)
From Quotient Require Import Sum Example Continued.
From Coq Require Import Lqa Lia.
Open Scope Q_scope.

(* The world of Example.v, where process 2 goes on as incarnation 0. *)
Definition name (i : incarnation) : nat := if Nat.eqb i 2 then 0%nat else i.
Definition began (_ : incarnation) : Q := 156.
Definition resumed (ps : list permit) : world :=
  let x := example 3 ps in
  World (settle x) (freshness x) (clock_error x) (drift x) (guard x) (width x) (commit x)
    (fun v i _ => share_of v (name i)) (total x) (gives x) (ends x) (corrected x) (mono x) (wall x) (newest x)
    (applied x) (read x) ps.

Lemma names_differ l i j : NoDup (map name l) -> In i l -> In j l -> name i = name j -> i = j.
Proof.
  induction l as [|k l IH]; simpl; [intros _ []|]. intros nd I J same. inversion_clear nd as [|? ? new nd'].
  destruct I as [-> | I], J as [-> | J]; auto; exfalso; apply new; [rewrite same|rewrite <- same]; apply in_map; assumption.
Qed.

Lemma sum_of_some (f g : nat -> nat) (P : nat -> bool) l :
  sum (fun i => if P i then f (g i) else 0%nat) l = sum f (map g (filter P l)).
Proof. unfold sum. induction l as [|i l IH]; simpl; [reflexivity|]. rewrite IH. destruct (P i); reflexivity. Qed.

Lemma resumed_fits u l l' : NoDup (map name l) -> NoDup l' ->
  (sum (fun i => if existsb (Nat.eqb i) l then share_of u (name i) else 0%nat) l' <= share_of u 0 + share_of u 1)%nat.
Proof.
  intros nd nd'. rewrite (sum_of_some (share_of u) name (fun i => existsb (Nat.eqb i) l)). apply shares_of_two.
  set (k := filter (fun i => existsb (Nat.eqb i) l) l').
  assert (forall i, In i k -> In i l) as sub.
  { intros i I. apply filter_In in I as [_ I]. apply existsb_exists in I as (j & J & E).
    apply Nat.eqb_eq in E as ->. exact J. }
  assert (NoDup k) as ndk by (apply NoDup_filter; exact nd'). revert sub ndk. generalize k. clear k.
  induction k as [|i k IH]; intros sub ndk; simpl; constructor; inversion_clear ndk as [|? ? new ndk'].
  - intros I. apply in_map_iff in I as (j & same & J). apply new.
    rewrite <- (names_differ l j i nd (sub j (or_intror J)) (sub i (or_introl eq_refl)) same). exact J.
  - apply IH; [intros j J; apply sub; right; exact J|exact ndk'].
Qed.

Lemma resumed_assumed ps l : NoDup (map name l) -> assumed (counting l (resumed ps)).
Proof.
  intros nd. destruct (example_assumed 3 ps ltac:(lra)) as [a b c d e f g h i j k m]. constructor; auto; simpl.
  - intros u W l' nd'. apply resumed_fits; assumption.
  - intros v W p giving. left. destruct (existsb (Nat.eqb p) l); [|lia].
    destruct (k v W (name p) giving) as [le | (U & no & _)]; [exact le|discriminate no].
Qed.

(* Process 0 issues both permits of window 15 and ends. Process 2 issues those of window 16. *)
Definition issued_in_turn : list permit := [
  permit_of 0 155 15; permit_of 0 155 15; permit_of 2 165 16; permit_of 2 165 16].
(* Or it begins at once with those of window 15. *)
Definition issued_twice : list permit := [
  permit_of 0 155 15; permit_of 0 155 15; permit_of 2 158 15; permit_of 2 158 15].

Ltac each_permit H := simpl in H; repeat (destruct H as [<- | H]; [|]); try contradiction.

Lemma same_name i j : i <> j -> name i = name j -> i = 0%nat /\ j = 2%nat \/ i = 2%nat /\ j = 0%nat.
Proof. unfold name. destruct (Nat.eqb_spec i 2), (Nat.eqb_spec j 2); lia. Qed.

Lemma zero_then_two : follows (resumed issued_in_turn) began 0 2.
Proof.
  constructor; intros p I w; each_permit I; try discriminate w; unfold start, began; simpl; unfold Qle; simpl; try split; lia.
Qed.

Theorem example_continues : continues (resumed issued_in_turn) name began.
Proof.
  constructor; [intros l; apply resumed_assumed|]. intros i j D same.
  destruct (same_name i j D same) as [(-> & ->) | (-> & ->)]; [left|right]; exact zero_then_two.
Qed.

Ltac obeys_here ps := intros before p after H; simpl in H; unfold ps, permit_of in H; last_of before H;
  try (destruct before; discriminate);
  allow ltac:(fun v counts => destruct counts as (_ & range & last);
    each_view range; vm_compute in last |- *; destruct last; try discriminate; try lia).

Theorem example_continued_obeys : obeys (resumed issued_in_turn) /\ timing (resumed issued_in_turn) /\
  map (issued (resumed issued_in_turn)) [15; 16]%Z = [2; 2]%nat.
Proof. split; [obeys_here issued_in_turn|]. split; [exact (example_timing 3 issued_in_turn)|reflexivity]. Qed.

(* That process 0 has ended is not enough. *)
Theorem without_opens_it_breaks : exists x W B u, (forall l, NoDup (map name l) -> assumed (counting l x)) /\
  (forall p, In p (permits x) -> who p = 0%nat -> at_ p <= began 2) /\
  (forall p, In p (permits x) -> who p = 2%nat -> began 2 <= at_ p) /\
  timing x /\ obeys x /\ B_minus x W <= B /\ B <= B_plus x W /\ newest_at x u B /\ gives x u W = false /\
  total x u W = 2%nat /\ issued x W = 4%nat.
Proof.
  exists (resumed issued_twice), 15%Z, 146, 1%nat. split; [intros l; apply resumed_assumed|].
  split; [|split]; [intros p I w; each_permit I; try discriminate w; unfold began; simpl; lra..|].
  split; [exact (example_timing 3 issued_twice)|]. split; [obeys_here issued_twice|].
  repeat split; try (right; compare); compare.
Qed.
