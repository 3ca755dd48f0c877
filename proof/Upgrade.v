(* Long limits in a fleet of two versions (docs/proof/protocol.md, section 14). Instances of the one move the
   total of a window alone, by what they know of it (KeyBudget.v). Those of the other have a holding in
   the store, and move it and the total together, by the same number. Such an instance issues at most
   its holding: it lowers what it may issue before it sends a smaller one.

   Each version's transactions are on the condition of the total as it was read. So for the one the
   other's are no more than writes that came in between. *)
From Quotient Require Import KeyBudget.
From Coq Require Import Arith List Lia Bool.
Import ListNotations.

(* In the state of KeyBudget.v the holding of an instance of the other version is what it has
   [issued], and it does nothing else there. *)
Definition holding (s : state) (i : nat) : nat := issued s i.
Definition with_holding (s : state) (i n : nat) : state :=
  State (out s + n - holding s i) (version s + 1) (may s) (set (issued s) i n) (flying s) (copies s) (answers s) (limits s) (policy s).

Inductive step_mixed (other : nat -> bool) : state -> state -> Prop :=
| x_total s s' : step s s' -> (forall i, other i = true -> may s' i = may s i /\ issued s' i = issued s i) -> step_mixed other s s'
(* The store commits a total and a holding that were computed from what it has: the conditions are
   their revisions. More is taken only within a limit of now or before. *)
| x_holding s i n : other i = true ->
    (n <= holding s i \/ exists q, q <= policy s /\ out s + n - holding s i <= limits s q) ->
    step_mixed other s (with_holding s i n).

Inductive reached_mixed (other : nat -> bool) (l : nat -> nat) : state -> Prop :=
| x_first : reached_mixed other l (State 0 0 (fun _ => 0) (fun _ => 0) [] [] [] l 0)
| x_step s s' : reached_mixed other l s -> step_mixed other s s' -> reached_mixed other l s'.

Lemma mixed_sound other l s : reached_mixed other l s ->
  (sound 0 s /\ limits s = l) /\ forall i, other i = true -> may s i = 0.
Proof.
  induction 1 as [|s s' _ [[S E] N] st].
  - split; [split; [exact (proj1 (reached_sound l _ (p_first l)))|reflexivity]|reflexivity].
  - destruct st as [s s' st same|s i n O within].
    + split; [split; [eapply step_sound; eassumption|destruct st; exact E]|].
      intros i O. rewrite (proj1 (same i O)). auto.
    + split; [|exact N]. split; [|exact E]. destruct S as [fi re se cb nc be]. unfold held, on_the_way, holding in *.
      constructor; unfold held, on_the_way, with_holding, holding in *; simpl; auto.
      * intros ids nd. pose proof (held_changed (fun j => may s j + issued s j) (fun j => may s j + set (issued s) i n j) i ids nd) as [yes no].
        { intros j D. rewrite set_other by exact D. reflexivity. }
        destruct (in_dec Nat.eq_dec i ids) as [I | F].
        -- specialize (yes I). rewrite set_same in yes. specialize (fi ids nd). lia.
        -- rewrite (no F). specialize (fi (i :: ids) (NoDup_cons i F nd)). simpl in fi. lia.
      * intros b t I. specialize (cb b t I). lia.
      * intros t I V. specialize (cb true t I). lia.
      * intros M all. specialize (be M all). destruct within as [L | (q & Q & L)]; [lia|]. specialize (all q Q). lia.
Qed.

(* What the instances of the one version may issue and have issued, and the holdings of the others, are
   together at most the total, and that is at most the largest limit so far. *)
Theorem mixed_never_over other l s ids others M : reached_mixed other l s -> NoDup ids -> NoDup others ->
  (forall i, In i ids -> other i = false) -> (forall i, In i others -> other i = true) ->
  (forall q, q <= policy s -> l q <= M) ->
  held s ids + list_sum (map (holding s) others) <= out s /\ out s <= M.
Proof.
  intros R nd nd' news olds all. apply mixed_sound in R as ((S & <-) & N). split; [|apply (below 0 s S M all)].
  assert (NoDup (ids ++ others)) as both.
  { clear all. induction nd as [|i ids new nd IH]; simpl; [exact nd'|]. constructor.
    - intros I. apply in_app_iff in I as [I | I]; [contradiction|].
      specialize (news i (or_introl eq_refl)). specialize (olds i I). congruence.
    - apply IH. intros j J. apply news. right. exact J. }
  pose proof (fits 0 s S (ids ++ others) both) as F. unfold held in *. rewrite map_app, list_sum_app in F.
  enough (list_sum (map (holding s) others) <= list_sum (map (fun i => may s i + issued s i) others)) by lia.
  clear. induction others as [|i l IH]; simpl; unfold holding in *; lia.
Qed.

(* So each transaction has to raise the number of the total's writes. If that of a holding does not:
   instance 0 gives back 2, a copy of that is committed, and instance 1 takes 1. Then the total says
   that no copy was ([never_commits]), and what instance 0 counts is over. *)
Theorem writes_kept_it_breaks : exists s, reached_mixed (Nat.eqb 1) (fun _ => 5) s /\ In (true, return_2) (copies s) /\
  let s' := with_holding s 1 1 in never_commits return_2 (out s') (version s) = true /\
  out (counted s' return_2) < held (counted s' return_2) [0; 1].
Proof.
  eexists. split.
  - eapply x_step; [eapply x_step; [eapply x_step; [eapply x_step; [eapply x_step; [apply x_first|]|]|]|]|].
    + apply x_total; [apply (p_take _ _ _ _ _ _ _ _ _ 0 0 0 5 0); auto|auto].
    + apply x_total; [apply (p_commit 0 0 _ _ [] take_5 []); reflexivity|auto].
    + apply x_total; [exact (p_hear 5 1 (fun _ => 0) (fun _ => 0) [] [(true, take_5)] [] take_5 [] (fun _ => 5) 0)|].
      intros [|[|i]] O; try discriminate. auto.
    + apply x_total; [exact (p_return 5 1 (set (fun _ => 0) 0 5) (fun _ => 0) [] _ [] (fun _ => 5) 0 0 5 1 2 eq_refl)|].
      intros [|[|i]] O; try discriminate. auto.
    + apply x_total; [apply (p_commit 5 1 _ _ [] return_2 []); reflexivity|auto].
  - split; [left; reflexivity|]. vm_compute. split; [reflexivity|lia].
Qed.
