(* Long limits by key (docs/protocol.md, section 14): the store has one total for each window of a
   key, and no holdings. The permits issued in the window, and those that instances may still issue,
   are at most the total, and that is at most the largest limit so far.

   Messages may be lost and late. A transaction commits at most once: nobody sends one again whose
   outcome is unknown. It compares the total's value, so a total that returns to an earlier value
   may commit it. A condition on the total's revision too only makes it fail more often.

   A store that was restored under another cluster ID is one that commits nothing more, if no
   instance counts its acknowledgement of a take that an earlier cluster's total allowed, and if its
   total of the window names the earlier cluster: [out] is then the total before the restore.

   SameId.v has a store that is restored under its old ID. Not covered: one that is restored under
   another ID without a total, an operator that lowers the total, and a total that is deleted before
   its window has ended. *)
From Coq Require Import Arith List Lia Bool.
Import ListNotations.

(* A transaction: of whom, the total that it was computed from, and the permits that it takes or
   gives back. *)
Inductive way := takes | returns.
Record transaction := Transaction { of : nat; way_of : way; seen : nat; permits : nat }.

Definition out_after (t : transaction) : nat :=
  match way_of t with takes => seen t + permits t | returns => seen t - permits t end.

(* What an instance may send. A take keeps within the limit that it knows. *)
Definition may_take (limit seen n : nat) : bool := seen + n <=? limit.
Definition may_return (may seen n : nat) : bool := (n <=? may) && (n <=? seen).

Record state := State {
  out : nat; (* the total in the store *)
  may : nat -> nat; (* what an instance may still issue *)
  issued : nat -> nat; (* what it has issued *)
  flying : list transaction; (* sent, neither committed nor refused *)
  answers : list transaction; (* takes that were committed, and give-backs that were refused: unheard *)
  limits : nat -> nat; (* by each revision of the policy *)
  policy : nat (* the policy's revision *)
}.

Definition set {A} (f : nat -> A) (i : nat) (a : A) : nat -> A := fun j => if Nat.eqb j i then a else f j.

Inductive step : state -> state -> Prop :=
(* An operator writes another policy. *)
| p_policy o m d f a l k : step (State o m d f a l k) (State o m d f a l (k + 1))
(* An instance sends a take, by any total that it has read, and by a limit of any time. It may issue
   nothing of it yet. *)
| p_take o m d f a l k i c n q : q <= k -> may_take (l q) c n = true ->
    step (State o m d f a l k) (State o m d (Transaction i takes c n :: f) a l k)
(* It gives back: it lowers what it may issue, then sends. *)
| p_return o m d f a l k i c n : may_return (m i) c n = true ->
    step (State o m d f a l k) (State o (set m i (m i - n)) d (Transaction i returns c n :: f) a l k)
(* The store commits a transaction if the total is the one that was seen. It does so once. *)
| p_commit o m d f1 t f2 a l k : o = seen t ->
    step (State o m d (f1 ++ t :: f2) a l k)
      (State (out_after t) m d (f1 ++ f2) (match way_of t with takes => t :: a | returns => a end) l k)
(* It refuses one, at any time. *)
| p_refuse o m d f1 t f2 a l k :
    step (State o m d (f1 ++ t :: f2) a l k)
      (State o m d (f1 ++ f2) (match way_of t with takes => a | returns => t :: a end) l k)
(* An instance hears that its take was committed, or its give-back refused, and counts the permits.
   It hears that once, or never. *)
| p_hear o m d f a1 t a2 l k :
    step (State o m d f (a1 ++ t :: a2) l k)
      (State o (set m (of t) (m (of t) + permits t)) d f (a1 ++ a2) l k)
(* It issues a permit. *)
| p_issue o m d f a l k i : 0 < m i ->
    step (State o m d f a l k) (State o (set m i (m i - 1)) (set d i (d i + 1)) f a l k)
(* It forgets what it may issue: it crashes, or the key is forgotten. *)
| p_forget o m d f a l k i n : n <= m i ->
    step (State o m d f a l k) (State o (set m i n) d f a l k).

Inductive reached (l : nat -> nat) : state -> Prop :=
| p_first : reached l (State 0 (fun _ => 0) (fun _ => 0) [] [] l 0)
| p_step s s' : reached l s -> step s s' -> reached l s'.

(* What the total has and no instance: committed takes that are unheard, and give-backs that are
   not committed. *)
Definition back (t : transaction) : nat := match way_of t with takes => 0 | returns => permits t end.
Definition on_the_way (s : state) : nat :=
  list_sum (map back (flying s)) + list_sum (map permits (answers s)).
Definition held (s : state) (ids : list nat) : nat := list_sum (map (fun i => may s i + issued s i) ids).

(* What always holds. [lost] are permits that a restored store has forgotten (SameId.v): none here. *)
Record sound (lost : nat) (s : state) : Prop := {
  fits : forall ids, NoDup ids -> held s ids + on_the_way s <= out s + lost;
  returned_within : forall t, In t (flying s) -> way_of t = returns -> permits t <= seen t;
  sent_within : forall t, In t (flying s) -> way_of t = takes ->
    exists q, q <= policy s /\ seen t + permits t <= limits s q;
  below : forall M, (forall q, q <= policy s -> limits s q <= M) -> out s <= M
}.

Lemma set_same {A} (f : nat -> A) i a : set f i a i = a.
Proof. unfold set. rewrite Nat.eqb_refl. reflexivity. Qed.
Lemma set_other {A} (f : nat -> A) i a j : j <> i -> set f i a j = f j.
Proof. unfold set. intros H. apply Nat.eqb_neq in H. rewrite H. reflexivity. Qed.

(* A sum over instances, where one has changed. *)
Lemma held_changed (f g : nat -> nat) i ids : NoDup ids -> (forall j, j <> i -> g j = f j) ->
  (In i ids -> list_sum (map g ids) + f i = list_sum (map f ids) + g i) /\
  (~ In i ids -> list_sum (map g ids) = list_sum (map f ids)).
Proof.
  intros nd same. induction nd as [|j ids new nd [IH1 IH2]]; simpl; [split; [intros []|auto]|].
  split.
  - intros [-> | I]; [rewrite IH2 by exact new; lia|]. specialize (IH1 I).
    rewrite (same j) by (intros ->; contradiction). lia.
  - intros N. rewrite IH2 by auto. rewrite same by auto. reflexivity.
Qed.

Lemma sum_middle {A} (f : A -> nat) a x b :
  list_sum (map f (a ++ x :: b)) = f x + list_sum (map f (a ++ b)).
Proof. rewrite !map_app, !list_sum_app. simpl. lia. Qed.

Lemma in_middle {A} (a b : list A) x y : In y (a ++ b) -> In y (a ++ x :: b).
Proof. rewrite !in_app_iff. simpl. tauto. Qed.

Lemma step_sound lost s s' : sound lost s -> step s s' -> sound lost s'.
Proof.
  intros [fi re se be] st.
  assert (forall ids i (g : nat -> nat) e, NoDup ids ->
    (forall j, j <> i -> g j = may s j + issued s j) ->
    g i + e <= may s i + issued s i + on_the_way s ->
    list_sum (map g ids) + e <= out s + lost) as one.
  { intros ids i g e nd same le. unfold held in fi.
    pose proof (held_changed (fun j => may s j + issued s j) g i ids nd same) as [yes no].
    destruct (in_dec Nat.eq_dec i ids) as [I | N].
    - specialize (yes I). specialize (fi ids nd). simpl in *. lia.
    - rewrite (no N). specialize (fi (i :: ids) (NoDup_cons i N nd)). simpl in *. lia. }
  destruct st as [o m d f a l k|o m d f a l k i c n q Q T|o m d f a l k i c n R|o m d f1 t f2 a l k E|
    o m d f1 t f2 a l k|o m d f a1 t a2 l k|o m d f a l k i L|o m d f a l k i n L];
    unfold held, on_the_way in *; simpl in *.
  - (* An operator writes. *)
    constructor; unfold held, on_the_way; simpl; auto.
    + intros t I W. destruct (se t I W) as (q & Q & le). exists q. split; [lia|exact le].
    + intros M all. apply be. intros q Q. apply all. lia.
  - (* An instance sends a take. *)
    constructor; unfold held, on_the_way; simpl; auto; intros t [<- | I] W; auto; [discriminate|].
    exists q. split; [exact Q|]. apply Nat.leb_le, T.
  - (* It gives back. *)
    apply andb_prop in R as [R within]. apply Nat.leb_le in R, within.
    constructor; unfold held, on_the_way; simpl; auto.
    + intros ids nd. apply (one ids i (fun j => set m i (m i - n) j + d j)); auto.
      * intros j N. rewrite set_other by exact N. reflexivity.
      * rewrite set_same. unfold back at 1. simpl. lia.
    + intros t [<- | I] W; [exact within|auto].
    + intros t [<- | I]; [discriminate|auto].
  - (* The store commits. *)
    subst o. destruct t as [i w c n]. unfold out_after. simpl in *. destruct w.
    + destruct (se (Transaction i takes c n) (in_elt _ _ _) eq_refl) as (q & Q & le). simpl in le.
      constructor; unfold held, on_the_way; simpl.
      * intros ids nd. specialize (fi ids nd). rewrite sum_middle in fi. unfold back at 1 in fi. simpl in fi. lia.
      * intros t I. apply re, in_middle, I.
      * intros t I. apply se, in_middle, I.
      * intros M all. specialize (all q Q). lia.
    + pose proof (re (Transaction i returns c n) (in_elt _ _ _) eq_refl) as within. simpl in within.
      constructor; unfold held, on_the_way; simpl.
      * intros ids nd. specialize (fi ids nd). rewrite sum_middle in fi. unfold back at 1 in fi. simpl in fi. lia.
      * intros t I. apply re, in_middle, I.
      * intros t I. apply se, in_middle, I.
      * intros M all. specialize (be M all). lia.
  - (* It refuses. *)
    destruct t as [i w c n]. simpl. constructor; unfold held, on_the_way; simpl; auto.
    + intros ids nd. specialize (fi ids nd). rewrite sum_middle in fi. unfold back at 1 in fi.
      destruct w; simpl in *; lia.
    + intros t I. apply re, in_middle, I.
    + intros t I. apply se, in_middle, I.
  - (* An instance hears. *)
    constructor; unfold held, on_the_way; simpl; auto.
    intros ids nd. rewrite sum_middle in one. apply (one ids (of t) (fun j => set m (of t) (m (of t) + permits t) j + d j)); auto.
    + intros j N. rewrite set_other by exact N. reflexivity.
    + rewrite set_same. lia.
  - (* It issues. *)
    constructor; unfold held, on_the_way; simpl; auto.
    intros ids nd. apply (one ids i (fun j => set m i (m i - 1) j + set d i (d i + 1) j)); auto.
    + intros j N. rewrite !set_other by exact N. reflexivity.
    + rewrite !set_same. lia.
  - (* It forgets. *)
    constructor; unfold held, on_the_way; simpl; auto.
    intros ids nd. apply (one ids i (fun j => set m i n j + d j)); auto.
    + intros j N. rewrite set_other by exact N. reflexivity.
    + rewrite set_same. lia.
Qed.

Lemma reached_sound l s : reached l s -> sound 0 s /\ limits s = l.
Proof.
  induction 1 as [|s s' H [IH E] st].
  - split; [|reflexivity]. constructor; unfold held, on_the_way; simpl.
    + intros ids _. induction ids; simpl; lia.
    + intros t [].
    + intros t [].
    + intros; lia.
  - split; [eapply step_sound; eassumption|]. destruct st; exact E.
Qed.

(* What all instances may issue and have issued is at most the total. *)
Theorem key_budget_fits l s ids : reached l s -> NoDup ids -> held s ids <= out s.
Proof. intros H nd. apply reached_sound in H as (S & _). pose proof (fits 0 s S ids nd). lia. Qed.

(* The total is at most the largest limit so far. *)
Theorem key_budget_never_over l s ids M : reached l s -> NoDup ids -> (forall q, q <= policy s -> l q <= M) ->
  held s ids <= out s /\ out s <= M.
Proof.
  intros H nd all. split; [eapply key_budget_fits; eassumption|].
  apply reached_sound in H as (S & <-). apply (below 0 s S M all).
Qed.

(* Each rule is needed. *)

(* An instance that counts an unknown outcome as its own is over, if the take was not committed. *)
Definition counts_unknown (s : state) (t : transaction) : state :=
  State (out s) (set (may s) (of t) (may s (of t) + permits t)) (issued s) (flying s) (answers s) (limits s) (policy s).
Theorem unknown_counted_it_breaks : exists s t, reached (fun _ => 5) s /\ In t (flying s) /\
  out (counts_unknown s t) < held (counts_unknown s t) [of t].
Proof.
  exists (State 0 (fun _ => 0) (fun _ => 0) [Transaction 0 takes 0 5] [] (fun _ => 5) 0), (Transaction 0 takes 0 5).
  split; [|split; [left; reflexivity|vm_compute; lia]].
  eapply p_step; [apply p_first|]. apply (p_take _ _ _ _ _ _ _ 0 0 5 0); auto.
Qed.

(* So is one that gives back first, and lowers what it may issue afterwards: others may take these
   permits in between. *)
Definition returned_first (s : state) (n : nat) : state :=
  State (out s - n) (may s) (issued s) (flying s) (answers s) (limits s) (policy s).
Lemma a_holder_of_5 : reached (fun _ => 5) (State 5 (set (fun _ => 0) 0 5) (fun _ => 0) [] [] (fun _ => 5) 0).
Proof.
  eapply p_step; [eapply p_step; [eapply p_step; [apply p_first|]|]|].
  - apply (p_take _ _ _ _ _ _ _ 0 0 5 0); auto.
  - apply (p_commit 0 _ _ [] (Transaction 0 takes 0 5) []). reflexivity.
  - exact (p_hear 5 (fun _ => 0) (fun _ => 0) [] [] (Transaction 0 takes 0 5) [] (fun _ => 5) 0).
Qed.
Theorem returned_first_it_breaks : exists s, reached (fun _ => 5) s /\
  out (returned_first s 5) < held (returned_first s 5) [0].
Proof.
  eexists. split; [apply a_holder_of_5|vm_compute; lia].
Qed.

(* And so is a store that commits a transaction twice: the total may have returned to its earlier
   value. Here instance 0 takes 5, and gives back 2, which instance 1 takes. *)
Theorem twice_it_breaks : exists s t, reached (fun _ => 5) s /\ way_of t = returns /\
  seen t = out s /\ out_after t < held s [0; 1].
Proof.
  set (t := Transaction 0 returns 5 2). set (u := Transaction 1 takes 3 2).
  set (m := set (fun _ => 0) 0 5).
  exists (State 5 (set (set m 0 3) 1 2) (fun _ => 0) [] [] (fun _ => 5) 0), t.
  split; [|split; [reflexivity|split; [reflexivity|vm_compute; lia]]].
  eapply p_step; [eapply p_step; [eapply p_step; [eapply p_step; [eapply p_step; [apply a_holder_of_5|]|]|]|]|].
  - exact (p_return 5 m (fun _ => 0) [] [] (fun _ => 5) 0 0 5 2 eq_refl).
  - apply (p_commit 5 _ _ [] t []). reflexivity.
  - apply (p_take _ _ _ _ _ _ _ 1 3 2 0); auto.
  - apply (p_commit 3 _ _ [] u []). reflexivity.
  - exact (p_hear 5 (set m 0 3) (fun _ => 0) [] [] u [] (fun _ => 5) 0).
Qed.
