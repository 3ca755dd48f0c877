(* Long limits (docs/protocol.md, section 14): on one line of a store, the permits issued in a
   window are at most the largest limit so far, and none is taken beyond the limit in force.
   Messages may be lost, late and repeated, and processes may stop. [process] is what
   internal/escrow.Account knows. Restored.v has a store that is restored. Not covered: that an
   answer of "not committed" lifts the bound of what was sent. *)
From Coq Require Import Arith List Lia Bool.
Import ListNotations.

(* What is in the store: for the window its total, and for each process its holding. Each key has
   the revision at which it was written. *)
Record store := Store { out : nat; out_rev : nat; hold : nat -> nat; hold_rev : nat -> nat; newest : nat }.

(* What a process knows of its holding. [unknown] are the values that it has sent on the condition
   that its holding is at [own], whose outcome it does not know. *)
Record process := Process { taken : nat; own : nat; unknown : list nat; used : nat }.
Definition may (p : process) : nat := fold_right Nat.min (taken p) (unknown p).

(* A transaction on its way: it makes the holding [value] and the total [total], if both keys are
   at the revisions that were read. If it takes permits, the policy must be at [if_policy] too. *)
Record sent := Sent { by_ : nat; if_own : nat; if_total : nat; if_policy : nat; value : nat; makes : nat }.

(* An answer to a read. *)
Record found := Found { of : nat; f_hold : nat; f_own : nat; f_out : nat; f_total : nat }.

Record state := State { db : store; procs : nat -> process; flying : list sent; read : list found;
  limits : nat -> nat; (* by each revision of the policy *)
  policy : nat (* the policy's revision *) }.

(* What a process knows after an answer in which its holding has moved on, and after it has sent. *)
Definition learns (p : process) (f : found) : process := Process (f_hold f) (f_own f) [] (used p).
Definition sends (p : process) (n : nat) : process := Process (taken p) (own p) (n :: unknown p) (used p).

Definition set {A} (f : nat -> A) (i : nat) (a : A) : nat -> A := fun j => if Nat.eqb j i then a else f j.

Inductive step : state -> state -> Prop :=
(* An operator writes another policy. *)
| s_policy d ps fl rd l k : step (State d ps fl rd l k) (State d ps fl rd l (k + 1))
(* The store answers a read; the answer may come at any time, often, or never. *)
| s_read d ps fl rd l k i :
    step (State d ps fl rd l k) (State d ps fl (Found i (hold d i) (hold_rev d i) (out d) (out_rev d) :: rd) l k)
(* A process takes an answer in which its holding has moved on to one that it has sent. *)
| s_moved d ps fl rd l k f : In f rd -> own (ps (of f)) < f_own f ->
    step (State d ps fl rd l k) (State d (set ps (of f) (learns (ps (of f)) f)) fl rd l k)
(* A process sends a transaction by what it has read, if its holding has not moved. A value that it
   sends bounds it from before on. It takes only what is left of the limit that it knows. *)
| s_send d ps fl rd l k f n q : In f rd -> f_own f = own (ps (of f)) -> used (ps (of f)) <= n ->
    (n <= f_hold f \/ f_out f + (n - f_hold f) <= l q) -> f_hold f <= f_out f + n ->
    step (State d ps fl rd l k) (State d (set ps (of f) (sends (ps (of f)) n))
      (Sent (of f) (f_own f) (f_total f) q n (f_out f + n - f_hold f) :: fl) rd l k)
(* The store commits a transaction whose conditions hold. *)
| s_commit d ps fl rd l k t : In t fl -> hold_rev d (by_ t) = if_own t -> out_rev d = if_total t ->
    (hold d (by_ t) < value t -> k = if_policy t) ->
    let r := newest d + 1 in
    step (State d ps fl rd l k)
      (State (Store (makes t) r (set (hold d) (by_ t) (value t)) (set (hold_rev d) (by_ t) r) r) ps fl rd l k)
(* A process issues a permit. *)
| s_issue d ps fl rd l k i : used (ps i) < may (ps i) ->
    let p := ps i in
    step (State d ps fl rd l k) (State d (set ps i (Process (taken p) (own p) (unknown p) (used p + 1))) fl rd l k).

Inductive reached (l : nat -> nat) : state -> Prop :=
| r_first : reached l (State (Store 0 0 (fun _ => 0) (fun _ => 0) 0) (fun _ => Process 0 0 [] 0) [] [] l 0)
| r_step s s' : reached l s -> step s s' -> reached l s'.

(* What always holds. *)
Record sound (s : state) : Prop := {
  revs : out_rev (db s) <= newest (db s) /\ forall i, hold_rev (db s) i <= newest (db s);
  known : forall i, own (procs s i) <= hold_rev (db s) i /\
    (own (procs s i) = hold_rev (db s) i -> taken (procs s i) = hold (db s) i) /\
    (own (procs s i) < hold_rev (db s) i -> In (hold (db s) i) (unknown (procs s i)));
  sent_known : forall t, In t (flying s) -> if_own t <= own (procs s (by_ t)) /\
    (if_own t = own (procs s (by_ t)) -> In (value t) (unknown (procs s (by_ t))));
  sent_right : forall t, In t (flying s) -> if_total t <= out_rev (db s) /\
    (if_own t = hold_rev (db s) (by_ t) -> if_total t = out_rev (db s) ->
      makes t + hold (db s) (by_ t) = out (db s) + value t /\
      (hold (db s) (by_ t) < value t -> makes t <= limits s (if_policy t)));
  read_right : forall f, In f (read s) -> f_own f <= hold_rev (db s) (of f) /\ f_total f <= out_rev (db s) /\
    (f_own f = hold_rev (db s) (of f) -> f_hold f = hold (db s) (of f)) /\
    (f_total f = out_rev (db s) -> f_out f = out (db s)) /\
    (f_own f <= own (procs s (of f)) \/ f_own f = hold_rev (db s) (of f));
  fits : forall ids, NoDup ids -> list_sum (map (hold (db s)) ids) <= out (db s);
  below : forall M, (forall q, q <= policy s -> limits s q <= M) -> out (db s) <= M;
  within : forall i, used (procs s i) <= may (procs s i)
}.

Lemma may_at_most p n : In n (unknown p) -> may p <= n.
Proof. unfold may. induction (unknown p) as [|m l IH]; simpl; [intros []|]. intros [-> | I]; [lia|]. specialize (IH I). lia. Qed.
Lemma may_taken p : may p <= taken p.
Proof. unfold may. induction (unknown p); simpl; lia. Qed.

Lemma set_same {A} (f : nat -> A) i a : set f i a i = a.
Proof. unfold set. rewrite Nat.eqb_refl. reflexivity. Qed.
Lemma set_other {A} (f : nat -> A) i a j : j <> i -> set f i a j = f j.
Proof. unfold set. intros H. apply Nat.eqb_neq in H. rewrite H. reflexivity. Qed.

(* What a process may issue is at most its holding. *)
Lemma may_held s i : sound s -> may (procs s i) <= hold (db s) i.
Proof.
  intros H. destruct (known s H i) as (le & same & moved).
  destruct (Nat.eq_dec (own (procs s i)) (hold_rev (db s) i)) as [E | E].
  - rewrite <- same by exact E. apply may_taken.
  - apply may_at_most, moved. lia.
Qed.

Lemma sum_set f i a ids : ~ In i ids -> list_sum (map (set f i a) ids) = list_sum (map f ids).
Proof.
  induction ids as [|j ids IH]; intros H; simpl; [reflexivity|].
  rewrite set_other by (intros ->; apply H; left; reflexivity). rewrite IH; [reflexivity|]. intros I. apply H. right. exact I.
Qed.

Lemma step_sound s s' : sound s -> step s s' -> sound s'.
Proof.
  intros H st. pose proof (fun i => may_held s i H) as mh. destruct H as [rv kn sk sr rr fi be wi].
  destruct st as [d ps fl rd l k|d ps fl rd l k i|d ps fl rd l k f I L|d ps fl rd l k f n q I E U room low|d ps fl rd l k t I O T P r|d ps fl rd l k i L p];
    simpl in *.
  - (* An operator writes. *)
    constructor; simpl; auto. intros M all. apply be. intros q le. apply all. lia.
  - (* The store answers. *)
    constructor; simpl; auto. intros f [<- | J]; simpl; [|apply rr, J]. repeat split; auto.
  - (* A process learns that its holding has moved on. *)
    destruct (rr f I) as (le & _ & same & _ & [old | new]); [lia|].
    destruct (kn (of f)) as (le' & _ & moved).
    constructor; simpl; auto.
    + intros i. destruct (Nat.eq_dec i (of f)) as [-> | N]; [rewrite set_same; simpl|rewrite set_other by exact N; apply kn].
      split; [exact le|]. split; [intros; apply same; assumption|lia].
    + intros t J. destruct (sk t J) as (a & b). destruct (Nat.eq_dec (by_ t) (of f)) as [N | N].
      * rewrite N in *. rewrite set_same. simpl. lia.
      * rewrite set_other by exact N. auto.
    + intros g J. destruct (rr g J) as (a & b & c & e & h). repeat split; auto.
      destruct (Nat.eq_dec (of g) (of f)) as [N | N]; [rewrite N in *; rewrite set_same; simpl; lia|].
      rewrite set_other by exact N. exact h.
    + intros i. destruct (Nat.eq_dec i (of f)) as [-> | N]; [rewrite set_same; simpl|rewrite set_other by exact N; apply wi].
      unfold may. simpl. rewrite (same new). eapply Nat.le_trans; [apply wi|apply mh].
  - (* A process sends. *)
    destruct (rr f I) as (le & le2 & same & same2 & _). destruct (kn (of f)) as (le' & kept & moved).
    constructor; simpl; auto.
    + intros i. destruct (Nat.eq_dec i (of f)) as [-> | N]; [rewrite set_same; simpl|rewrite set_other by exact N; apply kn].
      split; [exact le'|]. split; [exact kept|]. intros K. right. apply moved, K.
    + intros t [<- | J]; simpl.
      * rewrite set_same. simpl. split; [lia|]. intros _. left. reflexivity.
      * destruct (sk t J) as (a & b). destruct (Nat.eq_dec (by_ t) (of f)) as [N | N].
        -- rewrite N in *. rewrite set_same. simpl. split; [exact a|]. intros K. right. apply b, K.
        -- rewrite set_other by exact N. auto.
    + intros t [<- | J]; simpl; [|apply sr, J]. split; [exact le2|]. intros A B.
      pose proof (same A). pose proof (same2 B). split; [lia|]. intros K. lia.
    + intros g J. destruct (rr g J) as (a & b & c & e & h). repeat split; auto.
      destruct (Nat.eq_dec (of g) (of f)) as [N | N]; [rewrite N in *; rewrite set_same; exact h|].
      rewrite set_other by exact N. exact h.
    + intros i. destruct (Nat.eq_dec i (of f)) as [-> | N]; [rewrite set_same; simpl|rewrite set_other by exact N; apply wi].
      unfold may. simpl. specialize (wi (of f)). unfold may in wi. lia.
  - (* The store commits. *)
    destruct (sr t I) as (_ & right). destruct (right (eq_sym O) (eq_sym T)) as (exact_ & room).
    destruct (sk t I) as (old & unknown_). destruct (kn (by_ t)) as (le' & _).
    assert (own (ps (by_ t)) = hold_rev d (by_ t)) as now by lia.
    destruct rv as (rv1 & rv2).
    constructor; simpl; auto.
    + split; [lia|]. intros i. destruct (Nat.eq_dec i (by_ t)) as [-> | N]; [rewrite set_same; lia|].
      rewrite set_other by exact N. specialize (rv2 i). lia.
    + intros i. destruct (Nat.eq_dec i (by_ t)) as [-> | N].
      * rewrite !set_same. pose proof (rv2 (by_ t)). split; [unfold r; lia|]. split; [unfold r; lia|].
        intros _. apply unknown_. lia.
      * rewrite !set_other by exact N. apply kn.
    + intros u J. destruct (sr u J) as (a & _). split; [unfold r; lia|]. intros _ K. unfold r in K. lia.
    + intros g J. destruct (rr g J) as (a & b & c & e & h). pose proof (rv2 (of g)).
      split; [|split; [unfold r; lia|]].
      * destruct (Nat.eq_dec (of g) (by_ t)) as [-> | N]; [rewrite set_same; unfold r; pose proof (rv2 (by_ t)); lia|].
        rewrite set_other by exact N. exact a.
      * split; [|split; [unfold r; lia|]].
        -- destruct (Nat.eq_dec (of g) (by_ t)) as [N | N]; [rewrite N in *; rewrite set_same; unfold r; lia|].
           rewrite !set_other by exact N. exact c.
        -- destruct (Nat.eq_dec (of g) (by_ t)) as [N | N]; [left; rewrite N in *; lia|].
           rewrite set_other by exact N. exact h.
    + intros ids nd. destruct (in_dec Nat.eq_dec (by_ t) ids) as [J | J].
      * apply in_split in J as (l1 & l2 & ->). pose proof (fi _ nd) as F.
        apply NoDup_remove in nd as (nd & new). rewrite !map_app, !list_sum_app in *. simpl in *.
        rewrite set_same. rewrite !sum_set by (intros K; apply new, in_or_app; auto). lia.
      * rewrite sum_set by exact J. pose proof (fi (by_ t :: ids) (NoDup_cons _ J nd)) as F. simpl in F. lia.
    + intros M all. destruct (Nat.lt_ge_cases (hold d (by_ t)) (value t)) as [K | K]; [|specialize (be M all); lia]. pose proof (room K). pose proof (all k (Nat.le_refl k)). rewrite (P K) in *. lia.
  - (* A process issues. *)
    subst p. constructor; simpl; auto.
    + intros j. destruct (Nat.eq_dec j i) as [-> | N]; [rewrite set_same; simpl; apply kn|rewrite set_other by exact N; apply kn].
    + intros t J. destruct (Nat.eq_dec (by_ t) i) as [N | N]; [rewrite N, set_same; simpl; rewrite <- N; apply sk, J|].
      rewrite set_other by exact N. apply sk, J.
    + intros g J. destruct (Nat.eq_dec (of g) i) as [N | N]; [rewrite N, set_same; simpl; rewrite <- N; apply rr, J|].
      rewrite set_other by exact N. apply rr, J.
    + intros j. destruct (Nat.eq_dec j i) as [-> | N]; [rewrite set_same; simpl|rewrite set_other by exact N; apply wi].
      unfold may in *. simpl. lia.
Qed.

Lemma reached_sound l s : reached l s -> sound s /\ limits s = l.
Proof.
  induction 1 as [|s s' H [IH E] st].
  - split; [|reflexivity]. constructor; simpl.
    + split; intros; lia.
    + intros i. split; [lia|]. split; intros; lia.
    + intros t [].
    + intros t [].
    + intros f [].
    + intros some _. induction some; simpl; lia.
    + intros; lia.
    + intros i. unfold may. simpl. lia.
  - split; [eapply step_sound; eassumption|]. destruct st; exact E.
Qed.

Lemma held_out s ids : sound s -> NoDup ids -> list_sum (map (fun i => used (procs s i)) ids) <= out (db s).
Proof.
  intros S nd. eapply Nat.le_trans; [|apply (fits s S ids nd)].
  clear nd. induction ids as [|i ids IH]; simpl; [lia|].
  pose proof (within s S i). pose proof (may_held s i S). lia.
Qed.

(* All permits that were issued in the window are at most the largest limit so far. *)
Theorem escrow_never_over l s ids M : reached l s -> NoDup ids -> (forall q, q <= policy s -> l q <= M) ->
  list_sum (map (fun i => used (procs s i)) ids) <= M.
Proof.
  intros H nd all. apply reached_sound in H as (S & <-).
  eapply Nat.le_trans; [apply (held_out s ids S nd)|apply (below s S M all)].
Qed.

(* What is taken is within the limit in force when it is. *)
Theorem taken_within_limit l s s' : reached l s -> step s s' -> out (db s) < out (db s') ->
  out (db s') <= l (policy s).
Proof.
  intros H st. apply reached_sound in H as (S & <-). destruct S as [_ _ _ sr _ _ _ _].
  destruct st as [| | | |d ps fl rd l k t I O T P r|]; simpl in *; intros more; try lia.
  destruct (sr t I) as (_ & right). destruct (right (eq_sym O) (eq_sym T)) as (exact_ & room).
  rewrite P by lia. apply room. lia.
Qed.

(* What a process sends, as functions: the total that it writes, and whether it may. Extract.v makes
   a program of them. *)
Definition makes_by (f : found) (n : nat) : nat := f_out f + n - f_hold f.
Definition may_send (limit : nat) (p : process) (f : found) (n : nat) : bool :=
  (used p <=? n) && ((n <=? f_hold f) || (f_out f + (n - f_hold f) <=? limit)) && (f_hold f <=? f_out f + n).
Theorem may_send_is_a_step d ps fl rd l k f n q : In f rd -> f_own f = own (ps (of f)) ->
  may_send (l q) (ps (of f)) f n = true ->
  step (State d ps fl rd l k) (State d (set ps (of f) (sends (ps (of f)) n))
    (Sent (of f) (f_own f) (f_total f) q n (makes_by f n) :: fl) rd l k).
Proof.
  intros I E H. unfold may_send in H. apply andb_prop in H as [H low]. apply andb_prop in H as [U room].
  apply s_send; auto.
  - apply Nat.leb_le, U.
  - apply orb_prop in room as [r | r]; apply Nat.leb_le in r; auto.
  - apply Nat.leb_le, low.
Qed.
