(* Long limits (docs/proof/protocol.md, section 14): the store has one total for each window, of the provider
   or of a key. The permits issued in the window, and those that instances may still issue, are at most
   the total, and that is at most the largest limit so far.

   Messages may be lost, late, or come again: the store executes each as often as it likes. A
   transaction has two conditions, the total and its version, which is the number of its writes so
   far: so at most one execution commits. An instance that is told of a refusal may have had a copy
   committed. It counts on the refusal only if the store shows that another write came instead
   ([never_commits]).

   A store that was restored under another cluster ID is one that commits nothing more, if no
   instance counts its acknowledgement of a take that an earlier cluster's total allowed, and if its
   total of the window names the earlier cluster: [out] is then the total before the restore.

   Marks.v has stores that are restored under other IDs, SameId.v one that is restored under its old
   ID. Not covered: an operator that lowers the total, and a total that is deleted before its window
   has ended. *)
From Coq Require Import Arith List Lia Bool.
Import ListNotations.

(* A transaction: of whom, the total and the version that it was computed from, and the permits that
   it takes or gives back. *)
Inductive way := takes | returns.
Record transaction := Transaction { of : nat; way_of : way; seen : nat; seen_version : nat; permits : nat }.

Definition out_after (t : transaction) : nat :=
  match way_of t with takes => seen t + permits t | returns => seen t - permits t end.

(* What an instance may send. A take keeps within the limit that it knows. *)
Definition may_take (limit seen n : nat) : bool := seen + n <=? limit.
Definition may_return (may seen n : nat) : bool := (n <=? may) && (n <=? seen).
(* No copy of a transaction commits, nor has one committed, by what the store has: it was written
   once since, and to another total. *)
Definition never_commits (t : transaction) (out version : nat) : bool :=
  (version =? seen_version t + 1) && negb (out =? out_after t).

Record state := State {
  out : nat; (* the total in the store *)
  version : nat; (* the number of its writes *)
  may : nat -> nat; (* what an instance may still issue *)
  issued : nat -> nat; (* what it has issued *)
  flying : list transaction; (* sent, neither committed nor known never to be *)
  copies : list (bool * transaction); (* the others that were sent, and whether they were committed *)
  answers : list transaction; (* takes that were committed, and give-backs that never will be: unheard *)
  limits : nat -> nat; (* by each revision of the policy *)
  policy : nat (* the policy's revision *)
}.

Definition set {A} (f : nat -> A) (i : nat) (a : A) : nat -> A := fun j => if Nat.eqb j i then a else f j.

Definition acknowledged (t : transaction) (a : list transaction) : list transaction :=
  match way_of t with takes => t :: a | returns => a end.

Inductive step : state -> state -> Prop :=
(* An operator writes another policy. *)
| p_policy o v m d f z a l k : step (State o v m d f z a l k) (State o v m d f z a l (k + 1))
(* An instance sends a take, by any total that it has read, and by a limit of any time. It may issue
   nothing of it yet. *)
| p_take o v m d f z a l k i c w n q : q <= k -> may_take (l q) c n = true ->
    step (State o v m d f z a l k) (State o v m d (Transaction i takes c w n :: f) z a l k)
(* It gives back: it lowers what it may issue, then sends. *)
| p_return o v m d f z a l k i c w n : may_return (m i) c n = true ->
    step (State o v m d f z a l k) (State o v (set m i (m i - n)) d (Transaction i returns c w n :: f) z a l k)
(* The store commits a transaction if total and version are those that were seen. *)
| p_commit o v m d f1 t f2 z a l k : o = seen t -> v = seen_version t ->
    step (State o v m d (f1 ++ t :: f2) z a l k)
      (State (out_after t) (v + 1) m d (f1 ++ f2) ((true, t) :: z) (acknowledged t a) l k)
(* So it does with a copy. *)
| p_copy o v m d f z b t a l k : In (b, t) z -> o = seen t -> v = seen_version t ->
    step (State o v m d f z a l k) (State (out_after t) (v + 1) m d f z (acknowledged t a) l k)
(* It refuses a give-back, of which no copy commits. *)
| p_refuse o v m d f1 t f2 z a l k : way_of t = returns -> never_commits t o v = true ->
    step (State o v m d (f1 ++ t :: f2) z a l k)
      (State o v m d (f1 ++ f2) ((false, t) :: z) (t :: a) l k)
(* So it does with a copy of one that was committed. *)
| p_refuse_copy o v m d f z t a l k : In (true, t) z -> way_of t = returns -> never_commits t o v = true ->
    step (State o v m d f z a l k) (State o v m d f z (t :: a) l k)
(* An instance hears that its take was committed, or that its give-back never will be, and counts the
   permits. It hears that once, or never. *)
| p_hear o v m d f z a1 t a2 l k :
    step (State o v m d f z (a1 ++ t :: a2) l k)
      (State o v (set m (of t) (m (of t) + permits t)) d f z (a1 ++ a2) l k)
(* It issues a permit. *)
| p_issue o v m d f z a l k i : 0 < m i ->
    step (State o v m d f z a l k) (State o v (set m i (m i - 1)) (set d i (d i + 1)) f z a l k)
(* It forgets what it may issue: it crashes, or the key is forgotten. *)
| p_forget o v m d f z a l k i n : n <= m i ->
    step (State o v m d f z a l k) (State o v (set m i n) d f z a l k).

Inductive reached (l : nat -> nat) : state -> Prop :=
| p_first : reached l (State 0 0 (fun _ => 0) (fun _ => 0) [] [] [] l 0)
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
  copies_before : forall b t, In (b, t) (copies s) -> seen_version t < version s;
  newest_copy : forall t, In (true, t) (copies s) -> seen_version t + 1 = version s -> out s = out_after t;
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
  intros [fi re se cb nc be] st.
  assert (forall ids i (g : nat -> nat) e, NoDup ids ->
    (forall j, j <> i -> g j = may s j + issued s j) ->
    g i + e <= may s i + issued s i + on_the_way s ->
    list_sum (map g ids) + e <= out s + lost) as one.
  { intros ids i g e nd same le. unfold held in fi.
    pose proof (held_changed (fun j => may s j + issued s j) g i ids nd same) as [yes no].
    destruct (in_dec Nat.eq_dec i ids) as [I | N].
    - specialize (yes I). specialize (fi ids nd). simpl in *. lia.
    - rewrite (no N). specialize (fi (i :: ids) (NoDup_cons i N nd)). simpl in *. lia. }
  destruct st as [o v m d f z a l k|o v m d f z a l k i c w n q Q T|o v m d f z a l k i c w n R|
    o v m d f1 t f2 z a l k E V|o v m d f z b t a l k I E V|o v m d f1 t f2 z a l k W N|
    o v m d f z t a l k I W N|o v m d f z a1 t a2 l k|o v m d f z a l k i L|o v m d f z a l k i n L];
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
    subst o v. destruct t as [i w c s n]. unfold out_after, acknowledged in *. simpl in *.
    assert (forall b t, In (b, t) ((true, Transaction i w c s n) :: z) -> seen_version t < s + 1) as cb'.
    { intros b t [[= <- <-] | I]; [simpl; lia|]. specialize (cb b t I). lia. }
    destruct w.
    + destruct (se (Transaction i takes c s n) (in_elt _ _ _) eq_refl) as (q & Q & le). simpl in le.
      constructor; unfold held, on_the_way; simpl; auto.
      * intros ids nd. specialize (fi ids nd). rewrite sum_middle in fi. unfold back at 1 in fi. simpl in fi. lia.
      * intros t I. apply re, in_middle, I.
      * intros t I. apply se, in_middle, I.
      * intros t [[= <-] | I] E; [reflexivity|]. specialize (cb _ _ I). lia.
      * intros M all. specialize (all q Q). lia.
    + pose proof (re (Transaction i returns c s n) (in_elt _ _ _) eq_refl) as within. simpl in within.
      constructor; unfold held, on_the_way; simpl; auto.
      * intros ids nd. specialize (fi ids nd). rewrite sum_middle in fi. unfold back at 1 in fi. simpl in fi. lia.
      * intros t I. apply re, in_middle, I.
      * intros t I. apply se, in_middle, I.
      * intros t [[= <-] | I] E; [reflexivity|]. specialize (cb _ _ I). lia.
      * intros M all. specialize (be M all). lia.
  - (* It commits no copy: the version is a later one. *)
    specialize (cb _ _ I). lia.
  - (* It refuses a give-back. *)
    apply andb_prop in N as [V D]. apply Nat.eqb_eq in V. apply negb_true_iff, Nat.eqb_neq in D.
    destruct t as [i w c s n]. simpl in *. subst w. constructor; unfold held, on_the_way; simpl; auto.
    + intros ids nd. specialize (fi ids nd). rewrite sum_middle in fi. unfold back at 1 in fi. simpl in *. lia.
    + intros t I. apply re, in_middle, I.
    + intros t I. apply se, in_middle, I.
    + intros b t [[= <- <-] | I]; [simpl; lia|eauto].
    + intros t [[= ] | I]; auto.
  - (* It refuses no copy of what it has committed so. *)
    apply andb_prop in N as [V D]. apply Nat.eqb_eq in V. apply negb_true_iff, Nat.eqb_neq in D.
    exfalso. apply D, nc; auto.
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
    + intros b t [].
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

Definition with_total (o : nat) (s : state) : state :=
  State o (version s) (may s) (issued s) (flying s) (copies s) (answers s) (limits s) (policy s).
(* An instance counts the permits of a transaction. *)
Definition counted (s : state) (t : transaction) : state :=
  State (out s) (version s) (set (may s) (of t) (may s (of t) + permits t)) (issued s) (flying s) (copies s) (answers s) (limits s) (policy s).

(* An instance that counts an unknown outcome as its own is over, if the take was not committed. *)
Theorem unknown_counted_it_breaks : exists s t, reached (fun _ => 5) s /\ In t (flying s) /\
  out (counted s t) < held (counted s t) [of t].
Proof.
  set (t := Transaction 0 takes 0 0 5).
  exists (State 0 0 (fun _ => 0) (fun _ => 0) [t] [] [] (fun _ => 5) 0), t.
  split; [|split; [left; reflexivity|vm_compute; lia]].
  eapply p_step; [apply p_first|]. apply (p_take _ _ _ _ _ _ _ _ _ 0 0 0 5 0); auto.
Qed.

(* So is one that gives back first, and lowers what it may issue afterwards: others may take these
   permits in between. *)
Definition take_5 := Transaction 0 takes 0 0 5.
Lemma a_holder_of_5 : reached (fun _ => 5)
  (State 5 1 (set (fun _ => 0) 0 5) (fun _ => 0) [] [(true, take_5)] [] (fun _ => 5) 0).
Proof.
  eapply p_step; [eapply p_step; [eapply p_step; [apply p_first|]|]|].
  - apply (p_take _ _ _ _ _ _ _ _ _ 0 0 0 5 0); auto.
  - apply (p_commit 0 0 _ _ [] take_5 []); reflexivity.
  - exact (p_hear 5 1 (fun _ => 0) (fun _ => 0) [] [(true, take_5)] [] take_5 [] (fun _ => 5) 0).
Qed.
Theorem returned_first_it_breaks : exists s, reached (fun _ => 5) s /\
  out (with_total (out s - 5) s) < held (with_total (out s - 5) s) [0].
Proof.
  eexists. split; [apply a_holder_of_5|vm_compute; lia].
Qed.

(* And one that counts on any refusal of a give-back: instance 0 gives back 2, a copy of that is
   committed, and the other refused. *)
Definition return_2 := Transaction 0 returns 5 1 2.
Lemma a_returned_2 : reached (fun _ => 5)
  (State 3 2 (set (set (fun _ => 0) 0 5) 0 3) (fun _ => 0) [] [(true, return_2); (true, take_5)] [] (fun _ => 5) 0).
Proof.
  eapply p_step; [eapply p_step; [apply a_holder_of_5|]|].
  - exact (p_return 5 1 (set (fun _ => 0) 0 5) (fun _ => 0) [] _ [] (fun _ => 5) 0 0 5 1 2 eq_refl).
  - apply (p_commit 5 1 _ _ [] return_2 []); reflexivity.
Qed.
Theorem refusal_believed_it_breaks : exists s t, reached (fun _ => 5) s /\ In (true, t) (copies s) /\
  seen_version t <> version s /\ out (counted s t) < held (counted s t) [0].
Proof.
  eexists. exists return_2. split; [apply a_returned_2|]. split; [left; reflexivity|].
  split; [discriminate|vm_compute; lia].
Qed.

(* And a store that compares the total alone, which may return to its earlier value: instance 1 takes
   the 2, and the copy would be committed. *)
Theorem total_alone_it_breaks : exists s t, reached (fun _ => 5) s /\ In (true, t) (copies s) /\
  seen t = out s /\ out_after t < held s [0; 1].
Proof.
  set (u := Transaction 1 takes 3 2 2). set (m := set (set (fun _ => 0) 0 5) 0 3).
  exists (State 5 3 (set m 1 2) (fun _ => 0) [] [(true, u); (true, return_2); (true, take_5)] [] (fun _ => 5) 0), return_2.
  split; [|split; [right; left; reflexivity|split; [reflexivity|vm_compute; lia]]].
  eapply p_step; [eapply p_step; [eapply p_step; [apply a_returned_2|]|]|].
  - apply (p_take _ _ _ _ _ _ _ _ _ 1 3 2 2 0); auto.
  - apply (p_commit 3 2 _ _ [] u []); reflexivity.
  - exact (p_hear 5 3 m (fun _ => 0) [] _ [] u [] (fun _ => 5) 0).
Qed.
