(* Long limits in a store that is restored from a backup under its old cluster ID (docs/protocol.md,
   section 14), where nobody may notice it: by how much more than the limit is issued at most.

   A read, and what is sent by it, end 2 s after the read began (coordinator.exchange). So it is
   assumed that no process hears of the store of before, and that the restored store commits nothing
   that was sent to it. A policy's revision is taken to name one policy.

   A process is [behind] until it has read the restored store. Then it notices, or not
   (internal/escrow.Account.Read): [notices]. One that has noticed tells what it has taken by what
   it knows, and leaves the total as it is ([a_tell]). That nothing more is handed out then is not
   needed here. *)
From Quotient Require Import Escrow Restored.
From Coq Require Import Arith List Lia Bool.
Import ListNotations.

(* Account.Read: it notices that its holding went back, or is one that it has not sent. Then it keeps
   to what it may issue. *)
Definition notices (p : process) (f : found) : bool :=
  if Nat.eqb (f_own f) (own p) then negb (Nat.eqb (f_hold f) (taken p))
  else (f_own f <? own p) || negb (existsb (Nat.eqb (f_hold f)) (unknown p)).
Definition looks_back (p : process) (f : found) : process :=
  if notices p f then keeps p (f_own f) else if Nat.eqb (f_own f) (own p) then p else learns p f.

Inductive step_again : (nat -> bool) * state -> (nat -> bool) * state -> Prop :=
| a_step b s s' : step s s' -> left_alone b s s' -> step_again (b, s) (b, s')
(* A process reads the restored store for the first time. It may notice more: that the store's
   revision, or the total's, went back. *)
| a_look b d ps fl rd l k w c f p : In f rd -> b (of f) = true ->
    p = looks_back (ps (of f)) f \/ p = keeps (ps (of f)) (f_own f) ->
    step_again (b, State d ps fl rd l k w c) (set b (of f) false, State d (set ps (of f) p) fl rd l k w c)
| a_tell b d ps fl rd l k w c f : In f rd -> b (of f) = false -> f_own f = own (ps (of f)) ->
    let n := may (ps (of f)) in
    let t := Sent (of f) (f_own f) (f_total f) k n (f_out f) in
    step_again (b, State d ps fl rd l k w c)
      (b, State d (set ps (of f) (sends (ps (of f)) n)) (t :: fl) rd l k (set w (of f) (Some t)) c).

(* The state, and what the restores have lost: what processes may issue, and have issued, beyond
   their holdings in the backup. *)
Inductive reached_again (l : nat -> nat) : (nat -> bool) * state -> nat -> Prop :=
| again_first : reached_again l (nobody,
    State (Store 0 0 (fun _ => 0) (fun _ => 0) 0) (fun _ => Process 0 0 [] 0) [] [] l 0 (fun _ => None) []) 0
| again_step s s' lost : reached_again l s lost -> step_again s s' -> reached_again l s' lost
| again_restored b s lost b0 s0 lost0 more : reached_again l (b, s) lost -> reached_again l (b0, s0) lost0 ->
    policy s0 <= policy s ->
    (forall ids, NoDup ids -> list_sum (map (fun i => may (procs s i) - hold (db s0) i) ids) <= more) ->
    reached_again l (fun _ => true,
      State (db s0) (procs s) [] [] l (policy s + 1) (fun _ => None) []) (lost0 + more).

Lemma may_keeps p at_ : may (keeps p at_) = may p.
Proof. reflexivity. Qed.

Lemma looks_back_within p f : used p <= may p -> used (looks_back p f) <= may (looks_back p f) /\ used (looks_back p f) = used p.
Proof.
  intros H. unfold looks_back, notices.
  destruct (Nat.eqb (f_own f) (own p)); [destruct (negb (Nat.eqb (f_hold f) (taken p))); auto|].
  destruct (f_own f <? own p); [auto|]. simpl. destruct (existsb (Nat.eqb (f_hold f)) (unknown p)) eqn:E; [|auto].
  apply existsb_exists in E as (v & I & E). apply Nat.eqb_eq in E as <-. simpl. split; [|reflexivity].
  pose proof (may_at_most p _ I). unfold may. simpl. lia.
Qed.

Lemma again_sound lost top b s b' s' : sound lost top b s -> step_again (b, s) (b', s') ->
  exists top', sound lost top' b' s'.
Proof.
  intros H st. inversion st as [x y z st' alone|x d ps fl rd l k w c f p I B how|x d ps fl rd l k w c f I B E n t]; subst.
  - destruct (step_sound _ _ _ _ _ H st' alone) as (top' & S & _). exists top'. exact S.
  - (* A process looks. *)
    destruct H as [rv tp ap kn wr sk sr db_ rr rf fi be wi]. unfold dead in *. simpl in *.
    destruct (rr f I) as (le & _ & same & _ & [(? & _) | new]); [congruence|]. destruct (ap _ B) as (free & none).
    destruct (tp (of f)) as (t1 & t2). pose proof (same new) as found_.
    assert (used p = used (ps (of f)) /\ used p <= may p /\ may p <= top (of f) /\ taken p <= top (of f) /\ own p = hold_rev d (of f)) as (u1 & u2 & m1 & m2 & o1).
    { assert (let p := keeps (ps (of f)) (f_own f) in
        used p = used (ps (of f)) /\ used p <= may p /\ may p <= top (of f) /\ taken p <= top (of f) /\ own p = hold_rev d (of f)) as kept
        by (simpl; repeat split; auto; apply wi).
      destruct how as [-> | ->]; [|exact kept].
      destruct (looks_back_within (ps (of f)) f (wi _)) as (x1 & x2). split; [exact x2|]. split; [exact x1|].
      unfold looks_back, notices in *.
      destruct (Nat.eqb_spec (f_own f) (own (ps (of f)))) as [e | e].
      - destruct (Nat.eqb_spec (f_hold f) (taken (ps (of f)))) as [e' | e']; [|apply kept]. simpl. repeat split; [exact t2|lia|lia].
      - destruct (f_own f <? own (ps (of f))); [apply kept|].
        destruct (existsb (Nat.eqb (f_hold f)) (unknown (ps (of f)))); [|apply kept].
        unfold may. simpl. rewrite found_. repeat split; auto. }
    exists top. constructor; unfold dead; simpl; auto.
    + intros i. split_at i (of f); [|apply tp]. auto.
    + intros i. split_at i (of f); [discriminate|apply ap].
    + intros i. split_at i (of f); [intros _|apply kn]. split; [lia|]. split; [intros _; exact m2|lia].
    + intros i t. split_at i (of f); [congruence|apply wr].
    + intros t J. rewrite set_other by (apply none, J). apply sk, J.
    + intros g J. destruct (rr g J) as (a & b1 & c' & e & h). repeat split; auto.
      split_at (of g) (of f); [|exact h]. destruct h as [(? & _) | ?]; [congruence|auto].
    + intros i. split_at i (of f); [exact u2|apply wi].
  - (* A process tells what it has taken. *)
    rename b' into b. pose proof (fun i n => others_unknown _ _ _ _ i n H) as ou.
    destruct H as [rv tp ap kn wr sk sr db_ rr rf fi be wi]. unfold dead in *. simpl in *.
    destruct (rr f I) as (le & le2 & same & same2 & _). destruct (kn _ B) as (le' & kept & moved).
    destruct (tp (of f)) as (t1 & t2).
    assert (may (sends (ps (of f)) n) = may (ps (of f))) as still by (unfold n, may; simpl; lia).
    exists top. constructor; unfold dead; simpl; auto.
    + intros i. split_at i (of f); [|apply tp]. rewrite still. auto.
    + intros i Bi. assert (i <> of f) as D by congruence. rewrite set_other by exact D. destruct (ap i Bi) as (a & no).
      split; [exact a|]. intros u [<- | J]; [simpl; congruence|auto].
    + intros i Bi. split_at i (of f); [|apply kn, Bi].
      split; [exact le'|]. split; [exact kept|]. intros K. destruct (moved K) as (u & a & b' & e). exists u.
      split; [exact a|]. split; [exact b'|]. left. apply ou. destruct e as [e | e]; [left; exact e|right; exists u; auto].
    + intros i u. split_at i (of f); [|apply wr]. intros [= <-]. unfold t. simpl. auto.
    + intros u [<- | J].
      * simpl. rewrite !set_same. simpl. split; [lia|]. split; [lia|]. intros _. right. left. reflexivity.
      * destruct (sk u J) as (a & b' & e). split_at (by_ u) (of f); [|auto]. split; [exact a|]. split; [exact b'|].
        intros K. destruct (e K) as [e' | [e' | D]]; [left; apply ou; auto|left; apply ou; right; exists u; auto|auto].
    + intros u [<- | J]; simpl; [|apply sr, J]. split; [exact le2|]. intros _ C. right. split; [apply same2, C|exact t2].
    + intros g J. destruct (rr g J) as (a & b' & c' & e & h). repeat split; auto.
      split_at (of g) (of f); exact h.
    + intros g u J R. destruct (rf g u J R) as (a & b' & e). auto.
    + intros i. split_at i (of f); [|apply wi]. rewrite still. apply wi.
Qed.

Lemma sum_at_most (f g h : nat -> nat) ids : (forall i, f i <= g i + h i) ->
  list_sum (map f ids) <= list_sum (map g ids) + list_sum (map h ids).
Proof. intros le. induction ids as [|i ids IH]; simpl; [lia|]. specialize (le i). lia. Qed.

Lemma reached_again_sound l x lost : reached_again l x lost ->
  (exists top, sound lost top (fst x) (snd x)) /\ limits (snd x) = l.
Proof.
  induction 1 as [|(b, s) (b', s') lost H [(top & IH) E] st|b s lost b0 s0 lost0 more H [(top & IH) E] H0 [(top0 & IH0) E0] le within_]; simpl in *.
  - split; [|reflexivity]. eexists. apply first_sound.
  - split; [eapply again_sound; eassumption|].
    inversion st as [x y z st' alone|x d ps fl rd l' k w c f p I B how|x d ps fl rd l' k w c f I B E' n t]; subst; [|reflexivity..].
    destruct st'; reflexivity.
  - split; [|reflexivity].
    destruct IH0 as [rv0 tp0 _ _ _ _ _ _ _ _ fi0 be0 _]. pose proof (within _ _ _ _ IH) as wi.
    exists (fun i => Nat.max (hold (db s0) i) (may (procs s i))). constructor; simpl; try discriminate; auto.
    + intros i. split; [apply Nat.le_max_l|apply Nat.le_max_r].
    + intros t [].
    + intros t [].
    + intros t [].
    + intros f [].
    + intros f t [].
    + intros ids nd. specialize (fi0 ids nd). specialize (within_ ids nd).
      pose proof (sum_at_most (fun i => Nat.max (hold (db s0) i) (may (procs s i))) top0
        (fun i => may (procs s i) - hold (db s0) i) ids ltac:(intros i; destruct (tp0 i); lia)). lia.
    + intros M all. apply be0. intros q Q. rewrite E0. apply all. lia.
Qed.

(* All permits that are issued in the window exceed the largest limit by at most what the restores
   have lost. *)
Theorem same_id_holdings_over_by l b s lost ids M : reached_again l (b, s) lost -> NoDup ids ->
  (forall q, q <= policy s -> l q <= M) -> list_sum (map (fun i => used (procs s i)) ids) <= M + lost.
Proof.
  intros H nd all. apply reached_again_sound in H as ((top & S) & <-). simpl in *.
  pose proof (held_out _ _ _ _ ids S nd). pose proof (below _ _ _ _ S M all). lia.
Qed.
