(* Long limits (docs/protocol.md, section 14): on one line of a store, the permits issued in a
   window are at most the largest limit so far, and none is taken beyond the limit in force.
   Messages may be lost, late and repeated, and processes may stop. [process] is what
   internal/escrow.Account knows. Restored.v and SameIdHoldings.v have one that is restored. *)
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

(* An answer to a read, or that a transaction is not committed: it reads too. *)
Record found := Found { of : nat; f_hold : nat; f_own : nat; f_out : nat; f_total : nat; refused : option sent }.

Record state := State { db : store; procs : nat -> process; flying : list sent; read : list found;
  limits : nat -> nat; (* by each revision of the policy *)
  policy : nat; (* the policy's revision *)
  waits : nat -> option sent; (* what a process has sent last, if it has no answer *)
  done : list sent (* what was committed *) }.

(* What a process knows after an answer in which its holding has moved on, after it has sent, and
   after an answer that what it sent last is not committed, in which its holding has not moved. *)
Definition learns (p : process) (f : found) : process := Process (f_hold f) (f_own f) [] (used p).
Definition sends (p : process) (n : nat) : process := Process (taken p) (own p) (n :: unknown p) (used p).
Definition forgets (p : process) : process := Process (taken p) (own p) (tl (unknown p)) (used p).

Definition set {A} (f : nat -> A) (i : nat) (a : A) : nat -> A := fun j => if Nat.eqb j i then a else f j.

Inductive step : state -> state -> Prop :=
(* An operator writes another policy. *)
| s_policy d ps fl rd l k w c : step (State d ps fl rd l k w c) (State d ps fl rd l (k + 1) w c)
(* The store answers a read; the answer may come at any time, often, or never. *)
| s_read d ps fl rd l k w c i : step (State d ps fl rd l k w c)
    (State d ps fl (Found i (hold d i) (hold_rev d i) (out d) (out_rev d) None :: rd) l k w c)
(* A process takes an answer in which its holding has moved on to one that it has sent. *)
| s_moved d ps fl rd l k w c f : In f rd -> own (ps (of f)) < f_own f ->
    step (State d ps fl rd l k w c) (State d (set ps (of f) (learns (ps (of f)) f)) fl rd l k (set w (of f) None) c)
(* A process sends a transaction by what it has read, if its holding has not moved. A value that it
   sends bounds it from before on. It takes only what is left of the limit that it knows. *)
| s_send d ps fl rd l k w c f n q : In f rd -> f_own f = own (ps (of f)) -> used (ps (of f)) <= n ->
    (n <= f_hold f \/ f_out f + (n - f_hold f) <= l q) -> f_hold f <= f_out f + n -> q <= k ->
    let t := Sent (of f) (f_own f) (f_total f) q n (f_out f + n - f_hold f) in
    step (State d ps fl rd l k w c)
      (State d (set ps (of f) (sends (ps (of f)) n)) (t :: fl) rd l k (set w (of f) (Some t)) c)
(* The store commits a transaction whose conditions hold. *)
| s_commit d ps fl rd l k w c t : In t fl -> hold_rev d (by_ t) = if_own t -> out_rev d = if_total t ->
    (hold d (by_ t) < value t -> k = if_policy t) ->
    let r := newest d + 1 in
    step (State d ps fl rd l k w c)
      (State (Store (makes t) r (set (hold d) (by_ t) (value t)) (set (hold_rev d) (by_ t) r) r) ps fl rd l k w (t :: c))
(* It answers that one is not committed, of which a condition fails. That may be a copy of one that
   it has committed. *)
| s_refuse d ps fl rd l k w c t : In t fl ->
    hold_rev d (by_ t) <> if_own t \/ out_rev d <> if_total t \/ hold d (by_ t) < value t /\ k <> if_policy t ->
    step (State d ps fl rd l k w c)
      (State d ps fl (Found (by_ t) (hold d (by_ t)) (hold_rev d (by_ t)) (out d) (out_rev d) (Some t) :: rd) l k w c)
(* A process that waits for it takes that answer, if its holding has not moved: s_moved is the
   other case. *)
| s_refused d ps fl rd l k w c f t : In f rd -> refused f = Some t -> w (of f) = Some t -> f_own f = own (ps (of f)) ->
    step (State d ps fl rd l k w c) (State d (set ps (of f) (forgets (ps (of f)))) fl rd l k (set w (of f) None) c)
(* A process issues a permit. *)
| s_issue d ps fl rd l k w c i : used (ps i) < may (ps i) ->
    let p := ps i in
    step (State d ps fl rd l k w c) (State d (set ps i (Process (taken p) (own p) (unknown p) (used p + 1))) fl rd l k w c).

Inductive reached (l : nat -> nat) : state -> Prop :=
| r_first : reached l
    (State (Store 0 0 (fun _ => 0) (fun _ => 0) 0) (fun _ => Process 0 0 [] 0) [] [] l 0 (fun _ => None) [])
| r_step s s' : reached l s -> step s s' -> reached l s'.

(* What a process has sent, but for what it waits for. *)
Definition others (p : process) (w : option sent) : list nat := match w with None => unknown p | Some _ => tl (unknown p) end.

(* A transaction that was refused while its holding was at the revision that it names. *)
Definition dead (s : state) (t : sent) : Prop := ~ In t (done s) /\
  (if_own t = hold_rev (db s) (by_ t) ->
    if_total t < out_rev (db s) \/ hold (db s) (by_ t) < value t /\ if_policy t < policy s).

(* A process that is behind has neither sent nor heard anything since. *)
Definition left_alone (b : nat -> bool) (s s' : state) : Prop := forall i, b i = true ->
  taken (procs s' i) = taken (procs s i) /\ own (procs s' i) = own (procs s i) /\
  unknown (procs s' i) = unknown (procs s i) /\ waits s' i = waits s i.
Definition nobody (i : nat) : bool := false.
Lemma nobody_left_alone s s' : left_alone nobody s s'.
Proof. intros i. discriminate. Qed.

(* What always holds. [top] bounds what each process may issue, and its holding; [lost] are permits that
   restored stores have lost, and [b] those that have not looked at the restored store yet
   (SameIdHoldings.v). On one line these are 0 and nobody. *)
Record sound (lost : nat) (top : nat -> nat) (b : nat -> bool) (s : state) : Prop := {
  revs : out_rev (db s) <= newest (db s) /\ forall i, hold_rev (db s) i <= newest (db s);
  topped : forall i, hold (db s) i <= top i /\ may (procs s i) <= top i;
  apart : forall i, b i = true -> waits s i = None /\ (forall t, In t (flying s) -> by_ t <> i);
  known : forall i, b i = false -> own (procs s i) <= hold_rev (db s) i /\
    (own (procs s i) = hold_rev (db s) i -> taken (procs s i) <= top i) /\
    (own (procs s i) < hold_rev (db s) i -> exists t, In t (done s) /\ value t = hold (db s) i /\
      (In (value t) (others (procs s i) (waits s i)) \/ waits s i = Some t));
  waits_right : forall i t, waits s i = Some t -> by_ t = i /\ if_own t = own (procs s i) /\
    unknown (procs s i) = value t :: tl (unknown (procs s i));
  sent_known : forall t, In t (flying s) -> if_policy t <= policy s /\ if_own t <= own (procs s (by_ t)) /\
    (if_own t = own (procs s (by_ t)) -> In (value t) (others (procs s (by_ t)) (waits s (by_ t))) \/
      waits s (by_ t) = Some t \/ dead s t);
  sent_right : forall t, In t (flying s) -> if_total t <= out_rev (db s) /\
    (if_own t = hold_rev (db s) (by_ t) -> if_total t = out_rev (db s) ->
      makes t + hold (db s) (by_ t) = out (db s) + value t /\
        (hold (db s) (by_ t) < value t -> makes t <= limits s (if_policy t)) \/
      makes t = out (db s) /\ value t <= top (by_ t));
  done_before : forall t, In t (done s) -> if_own t < hold_rev (db s) (by_ t);
  read_right : forall f, In f (read s) -> f_own f <= hold_rev (db s) (of f) /\ f_total f <= out_rev (db s) /\
    (f_own f = hold_rev (db s) (of f) -> f_hold f = hold (db s) (of f)) /\
    (f_total f = out_rev (db s) -> f_out f = out (db s)) /\
    (b (of f) = false /\ f_own f <= own (procs s (of f)) \/ f_own f = hold_rev (db s) (of f));
  refused_right : forall f t, In f (read s) -> refused f = Some t ->
    In t (flying s) /\ of f = by_ t /\ (f_own f = if_own t -> dead s t);
  fits : forall ids, NoDup ids -> list_sum (map top ids) <= out (db s) + lost;
  below : forall M, (forall q, q <= policy s -> limits s q <= M) -> out (db s) <= M;
  within : forall i, used (procs s i) <= may (procs s i)
}.

Lemma may_at_most p n : In n (unknown p) -> may p <= n.
Proof. unfold may. induction (unknown p) as [|m l IH]; simpl; [intros []|]. intros [-> | I]; [lia|]. specialize (IH I). lia. Qed.
Lemma may_taken p : may p <= taken p.
Proof. unfold may. induction (unknown p); simpl; lia. Qed.
Lemma may_forgets p : may p <= may (forgets p).
Proof. unfold may, forgets. simpl. destruct (unknown p); simpl; lia. Qed.

Lemma set_same {A} (f : nat -> A) i a : set f i a i = a.
Proof. unfold set. rewrite Nat.eqb_refl. reflexivity. Qed.
Lemma set_other {A} (f : nat -> A) i a j : j <> i -> set f i a j = f j.
Proof. unfold set. intros H. apply Nat.eqb_neq in H. rewrite H. reflexivity. Qed.

(* What others are, is unknown; and so is what a process waits for. *)
Lemma others_unknown lost top b s i n : sound lost top b s -> In n (others (procs s i) (waits s i)) \/
  (exists t, waits s i = Some t /\ value t = n) -> In n (unknown (procs s i)).
Proof.
  intros H [I | (t & W & E)].
  - unfold others in I. destruct (waits s i); [|exact I]. destruct (unknown (procs s i)); [destruct I|right; exact I].
  - destruct (waits_right _ _ _ s H i t W) as (_ & _ & ->). left. exact E.
Qed.

(* A holding that has moved on is one that was sent. *)
Lemma moved_to lost top b s i : sound lost top b s -> b i = false -> own (procs s i) < hold_rev (db s) i ->
  may (procs s i) <= hold (db s) i.
Proof.
  intros H B L. destruct (known _ _ _ s H i B) as (_ & _ & moved). destruct (moved L) as (t & _ & <- & U).
  apply may_at_most, (others_unknown _ _ _ _ _ _ H). destruct U as [U | U]; [left; exact U|right; exists t; auto].
Qed.

Lemma sum_set f i a ids : ~ In i ids -> list_sum (map (set f i a) ids) = list_sum (map f ids).
Proof.
  induction ids as [|j ids IH]; intros H; simpl; [reflexivity|].
  rewrite set_other by (intros ->; apply H; left; reflexivity). rewrite IH; [reflexivity|]. intros I. apply H. right. exact I.
Qed.

(* A fact about process [i], which has changed, and about all others, which have not. *)
Ltac split_at j i := let N := fresh "N" in
  destruct (Nat.eq_dec j i) as [N | N]; [rewrite ?N in *; rewrite ?set_same in *; simpl in *|rewrite ?set_other in * by exact N].

Lemma step_sound lost top b s s' : sound lost top b s -> step s s' -> left_alone b s s' ->
  exists top', sound lost top' b s' /\ (db s' = db s -> top' = top).
Proof.
  intros H st alone. pose proof (fun i n => others_unknown _ _ _ _ i n H) as ou. pose proof (fun i => moved_to _ _ _ _ i H) as mt.
  destruct H as [rv tp ap kn wr sk sr db_ rr rf fi be wi]. unfold left_alone in alone.
  destruct st as [d ps fl rd l k w c|d ps fl rd l k w c i|d ps fl rd l k w c f I L|d ps fl rd l k w c f n q I E U room low Q t0|
    d ps fl rd l k w c t I O T P r|d ps fl rd l k w c t I why|d ps fl rd l k w c f t I R W E|d ps fl rd l k w c i L p];
    unfold dead in *; simpl in *.
  - (* An operator writes. *)
    exists top. split; [|auto]. constructor; unfold dead; simpl; auto.
    + intros t J. destruct (sk t J) as (a & b' & e). split; [lia|]. split; [exact b'|].
      intros K. destruct (e K) as [? | [? | (x & y)]]; auto. right. right. split; [exact x|].
      intros e'. destruct (y e') as [? | (? & ?)]; [left; assumption|right; split; [assumption|lia]].
    + intros f t J R. destruct (rf f t J R) as (a & b' & e). split; [exact a|]. split; [exact b'|].
      intros e'. destruct (e e') as (x & y). split; [exact x|].
      intros e2. destruct (y e2) as [? | (? & ?)]; [left; assumption|right; split; [assumption|lia]].
    + intros M all. apply be. intros q le. apply all. lia.
  - (* The store answers. *)
    exists top. split; [|auto]. constructor; unfold dead; simpl; auto.
    + intros f [<- | J]; simpl; [|apply rr, J]. repeat split; auto.
    + intros f t [<- | J]; simpl; [discriminate|apply rf, J].
  - (* A process learns that its holding has moved on. *)
    destruct (b (of f)) eqn:B.
    { destruct (alone _ B) as (_ & K & _). rewrite set_same in K. simpl in K. lia. }
    destruct (rr f I) as (le & _ & same & _ & [(_ & old) | new]); [lia|].
    destruct (kn _ B) as (le' & _ & moved). destruct (tp (of f)) as (t1 & t2).
    exists top. split; [|auto]. constructor; unfold dead; simpl; auto.
    + intros i. split_at i (of f); [|apply tp]. split; [exact t1|]. unfold may. simpl. rewrite (same new). exact t1.
    + intros i Bi. split_at i (of f); [congruence|apply ap, Bi].
    + intros i Bi. split_at i (of f); [|apply kn, Bi].
      split; [exact le|]. split; [intros; rewrite (same new); exact t1|lia].
    + intros i t. split_at i (of f); [discriminate|apply wr].
    + intros t J. destruct (sk t J) as (a & b' & e). split_at (by_ t) (of f); [split; [exact a|lia]|auto].
    + intros g J. destruct (rr g J) as (a & b' & c' & e & h). repeat split; auto.
      split_at (of g) (of f); [destruct h as [(? & ?) | ?]; [left; split; [assumption|lia]|auto]|exact h].
    + intros i. split_at i (of f); [|apply wi].
      unfold may. simpl. rewrite (same new). eapply Nat.le_trans; [apply wi|apply mt; [exact B|lia]].
  - (* A process sends. *)
    destruct (b (of f)) eqn:B.
    { destruct (alone _ B) as (_ & _ & K & _). rewrite set_same in K. simpl in K.
      apply (f_equal (@length nat)) in K. simpl in K. lia. }
    destruct (rr f I) as (le & le2 & same & same2 & _). destruct (kn _ B) as (le' & kept & moved).
    exists top. split; [|auto]. constructor; unfold dead; simpl; auto.
    + intros i. split_at i (of f); [|apply tp]. destruct (tp (of f)) as (t1 & t2). split; [exact t1|].
      unfold may in *. simpl. lia.
    + intros i Bi. assert (i <> of f) as D by congruence. rewrite set_other by exact D. destruct (ap i Bi) as (a & no).
      split; [exact a|]. intros t [<- | J]; [simpl; congruence|auto].
    + intros i Bi. split_at i (of f); [|apply kn, Bi].
      split; [exact le'|]. split; [exact kept|]. intros K. destruct (moved K) as (t & a & b' & e). exists t.
      split; [exact a|]. split; [exact b'|]. left. apply ou. destruct e as [e | e]; [left; exact e|right; exists t; auto].
    + intros i t. split_at i (of f); [|apply wr]. intros [= <-]. unfold t0. simpl. auto.
    + intros t [<- | J].
      * simpl. rewrite !set_same. simpl. split; [exact Q|]. split; [lia|]. intros _. right. left. reflexivity.
      * destruct (sk t J) as (a & b' & e). split_at (by_ t) (of f); [|auto]. split; [exact a|]. split; [exact b'|].
        intros K. destruct (e K) as [e' | [e' | D]]; [left; apply ou; auto|left; apply ou; right; exists t; auto|auto].
    + intros t [<- | J]; simpl; [|apply sr, J]. split; [exact le2|]. intros A C.
      pose proof (same A). pose proof (same2 C). left. split; [lia|]. intros K. lia.
    + intros g J. destruct (rr g J) as (a & b' & c' & e & h). repeat split; auto.
      split_at (of g) (of f); exact h.
    + intros g t J R. destruct (rf g t J R) as (a & b' & e). auto.
    + intros i. split_at i (of f); [|apply wi].
      unfold may. simpl. specialize (wi (of f)). unfold may in wi. lia.
  - (* The store commits. *)
    assert (b (by_ t) = false) as B.
    { destruct (b (by_ t)) eqn:B; [|reflexivity]. destruct (ap _ B) as (_ & no). destruct (no t I eq_refl). }
    destruct (sr t I) as (_ & right). specialize (right (eq_sym O) (eq_sym T)).
    destruct (sk t I) as (_ & old & unknown_). destruct (kn _ B) as (le' & _).
    assert (own (ps (by_ t)) = hold_rev d (by_ t)) as now by lia.
    destruct rv as (rv1 & rv2). destruct (tp (by_ t)) as (t1 & t2).
    assert (exists v, value t <= v /\ (v + out d <= top (by_ t) + makes t)) as (v & v1 & v2).
    { destruct right as [(e & _) | (e & ?)]; [exists (top (by_ t) + value t - hold d (by_ t))|exists (top (by_ t))]; lia. }
    assert (forall u, if_own u <= hold_rev d (by_ u) -> if_total u <= out_rev d ->
      ~ In u c /\ (if_own u = hold_rev d (by_ u) -> if_total u < out_rev d \/ hold d (by_ u) < value u /\ if_policy u < k) ->
      ~ (t = u \/ In u c) /\ (if_own u = set (hold_rev d) (by_ t) r (by_ u) ->
        if_total u < r \/ set (hold d) (by_ t) (value t) (by_ u) < value u /\ if_policy u < k)) as still.
    { intros u b1 b2 (x & y). split; [|intros _; left; unfold r; lia]. intros [<- | J]; [|contradiction].
      destruct (y (eq_sym O)) as [? | (z & ?)]; [lia|specialize (P z); lia]. }
    assert (forall u, In u fl -> if_own u <= hold_rev d (by_ u)) as own_le.
    { intros u J. destruct (sk u J) as (_ & a & _). destruct (b (by_ u)) eqn:Bu; [|destruct (kn _ Bu); lia].
      destruct (ap _ Bu) as (_ & no). destruct (no u J eq_refl). }
    assert (In (value t) (unknown (ps (by_ t)))) as sent_.
    { apply ou. destruct unknown_ as [? | [? | (_ & D)]]; [lia|auto|right; exists t; auto|].
      destruct (D (eq_sym O)) as [? | (z & ?)]; [lia|specialize (P z); lia]. }
    exists (set top (by_ t) v). split; [|intros D; apply (f_equal out_rev) in D; simpl in D; unfold r in D; lia]. constructor; unfold dead; simpl; auto.
    + split; [lia|]. intros i. destruct (Nat.eq_dec i (by_ t)) as [-> | N]; [rewrite set_same; lia|].
      rewrite set_other by exact N. specialize (rv2 i). lia.
    + intros i. destruct (Nat.eq_dec i (by_ t)) as [-> | N]; [|rewrite !set_other by exact N; apply tp].
      rewrite !set_same. split; [exact v1|]. pose proof (may_at_most _ _ sent_). lia.
    + intros i Bi. destruct (Nat.eq_dec i (by_ t)) as [-> | N].
      * rewrite !set_same. pose proof (rv2 (by_ t)). split; [unfold r; lia|]. split; [unfold r; lia|].
        intros _. exists t. split; [left; reflexivity|]. split; [reflexivity|].
        destruct unknown_ as [? | [? | (_ & D)]]; [lia|auto|auto|]. destruct (D (eq_sym O)) as [? | (z & ?)]; [lia|specialize (P z); lia].
      * rewrite !set_other by exact N. destruct (kn i Bi) as (a & b' & e). split; [exact a|]. split; [exact b'|].
        intros K. destruct (e K) as (u & x & y). exists u. auto.
    + intros u J. destruct (sk u J) as (a & b' & e). split; [exact a|]. split; [exact b'|].
      intros K. destruct (e K) as [? | [? | D]]; auto. right. right. apply still; [apply own_le, J|apply sr, J|exact D].
    + intros u J. destruct (sr u J) as (a & _). split; [unfold r; lia|]. intros _ K. unfold r in K. lia.
    + intros u [<- | J]; [rewrite set_same; unfold r; pose proof (rv2 (by_ t)); lia|].
      specialize (db_ u J). destruct (Nat.eq_dec (by_ u) (by_ t)) as [N | N]; [rewrite N in *; rewrite set_same; unfold r; pose proof (rv2 (by_ t)); lia|].
      rewrite set_other by exact N. exact db_.
    + intros g J. destruct (rr g J) as (a & b' & c' & e & h). pose proof (rv2 (of g)).
      split; [|split; [unfold r; lia|]].
      * destruct (Nat.eq_dec (of g) (by_ t)) as [-> | N]; [rewrite set_same; unfold r; pose proof (rv2 (by_ t)); lia|].
        rewrite set_other by exact N. exact a.
      * split; [|split; [unfold r; lia|]].
        -- destruct (Nat.eq_dec (of g) (by_ t)) as [N | N]; [rewrite N in *; rewrite set_same; unfold r; lia|].
           rewrite !set_other by exact N. exact c'.
        -- destruct (Nat.eq_dec (of g) (by_ t)) as [N | N]; [left; rewrite N in *; split; [exact B|lia]|].
           rewrite set_other by exact N. exact h.
    + intros g u J R. destruct (rf g u J R) as (a & b' & e). split; [exact a|]. split; [exact b'|].
      intros K. apply still; [apply own_le, a|apply sr, a|apply e, K].
    + intros ids nd. destruct (in_dec Nat.eq_dec (by_ t) ids) as [J | J].
      * apply in_split in J as (l1 & l2 & ->). pose proof (fi _ nd) as F.
        apply NoDup_remove in nd as (nd & new). rewrite !map_app, !list_sum_app in *. simpl in *.
        rewrite set_same. rewrite !sum_set by (intros K; apply new, in_or_app; auto). lia.
      * rewrite sum_set by exact J. pose proof (fi (by_ t :: ids) (NoDup_cons _ J nd)) as F. simpl in F. lia.
    + intros M all. destruct right as [(e & room) | (e & _)]; [|rewrite e; apply be, all].
      destruct (Nat.lt_ge_cases (hold d (by_ t)) (value t)) as [K | K]; [|specialize (be M all); lia].
      pose proof (room K). pose proof (all k (Nat.le_refl k)). rewrite (P K) in *. lia.
  - (* The store refuses. *)
    exists top. split; [|auto]. constructor; unfold dead; simpl; auto.
    + intros f [<- | J]; simpl; [|apply rr, J]. repeat split; auto.
    + intros f u [<- | J]; simpl; [|apply rf, J]. intros [= <-]. split; [exact I|]. split; [reflexivity|].
      intros K. split; [intros D; specialize (db_ t D); lia|]. intros _.
      destruct (sr t I) as (a & _), (sk t I) as (b' & _). destruct why as [? | [? | (? & ?)]]; [congruence|left; lia|right; split; [assumption|lia]].
  - (* A process hears that. *)
    destruct (wr _ _ W) as (by_t & own_t & head). destruct (rf f t I R) as (_ & _ & is_dead).
    assert (f_own f = if_own t) as at_ by congruence. destruct (is_dead at_) as (not_done & _).
    assert (b (of f) = false) as B.
    { destruct (b (of f)) eqn:B; [|reflexivity]. destruct (ap _ B) as (no & _). congruence. }
    destruct (kn _ B) as (le & same & moved). destruct (tp (of f)) as (t1 & t2).
    assert (own (ps (of f)) < hold_rev d (of f) -> exists u, In u c /\ value u = hold d (of f) /\ In (value u) (tl (unknown (ps (of f))))) as moved'.
    { intros K. destruct (moved K) as (u & x & y & z). exists u. split; [exact x|]. split; [exact y|].
      rewrite W in z. simpl in z. destruct z as [z | [= ->]]; [exact z|contradiction]. }
    exists top. split; [|auto]. constructor; unfold dead; simpl; auto.
    + intros i. split_at i (of f); [|apply tp]. split; [exact t1|].
      destruct (Nat.eq_dec (own (ps (of f))) (hold_rev d (of f))) as [e | e].
      * eapply Nat.le_trans; [apply may_taken|apply same, e].
      * destruct moved' as (u & _ & y & z); [lia|]. eapply Nat.le_trans; [apply may_at_most; exact z|lia].
    + intros i Bi. split_at i (of f); [congruence|apply ap, Bi].
    + intros i Bi. split_at i (of f); [|apply kn, Bi]. split; [exact le|]. split; [exact same|].
      intros K. destruct (moved' K) as (u & x & y & z). exists u. auto.
    + intros i u. split_at i (of f); [discriminate|apply wr].
    + intros u J. destruct (sk u J) as (a & b' & e). split_at (by_ u) (of f); [|auto]. split; [exact a|]. split; [exact b'|].
      intros K. destruct (e K) as [e' | [e' | D]]; [rewrite W in e'; auto|rewrite W in e'; injection e' as <-|auto].
      right. right. rewrite <- N. exact (is_dead at_).
    + intros g J. destruct (rr g J) as (a & b' & c' & e & h). repeat split; auto.
      split_at (of g) (of f); exact h.
    + intros i. split_at i (of f); [|apply wi]. eapply Nat.le_trans; [apply wi|apply may_forgets].
  - (* A process issues. *)
    subst p. exists top. split; [|auto]. constructor; unfold dead; simpl; auto.
    + intros j. split_at j i; apply tp.
    + intros j Bj. split_at j i; apply kn; exact Bj.
    + intros j t. split_at j i; apply wr.
    + intros t J. destruct (sk t J) as (a & b' & e). split_at (by_ t) i; auto.
    + intros g J. destruct (rr g J) as (a & b' & c' & e & h). repeat split; auto. split_at (of g) i; exact h.
    + intros j. split_at j i; [|apply wi]. unfold may in *. simpl. lia.
Qed.

Lemma first_sound l : sound 0 (fun _ => 0) nobody
  (State (Store 0 0 (fun _ => 0) (fun _ => 0) 0) (fun _ => Process 0 0 [] 0) [] [] l 0 (fun _ => None) []).
Proof.
  constructor; simpl; try discriminate.
  - split; intros; lia.
  - intros i. unfold may. simpl. lia.
  - intros i _. split; [lia|]. split; intros; lia.
  - intros t [].
  - intros t [].
  - intros t [].
  - intros f [].
  - intros f t [].
  - intros some _. induction some; simpl; lia.
  - intros; lia.
  - intros i. unfold may. simpl. lia.
Qed.

Lemma reached_sound l s : reached l s -> (exists top, sound 0 top nobody s) /\ limits s = l.
Proof.
  induction 1 as [|s s' H [(top & IH) E] st]; [split; [eexists; apply first_sound|reflexivity]|].
  split; [|destruct st; exact E].
  destruct (step_sound _ _ _ _ _ IH st (nobody_left_alone s s')) as (top' & S & _). exists top'. exact S.
Qed.

Lemma held_out lost top b s ids : sound lost top b s -> NoDup ids ->
  list_sum (map (fun i => used (procs s i)) ids) <= out (db s) + lost.
Proof.
  intros S nd. eapply Nat.le_trans; [|apply (fits _ _ _ _ S ids nd)].
  clear nd. induction ids as [|i ids IH]; simpl; [lia|].
  pose proof (within _ _ _ _ S i). destruct (topped _ _ _ _ S i). lia.
Qed.

(* All permits that were issued in the window are at most the largest limit so far. *)
Theorem escrow_never_over l s ids M : reached l s -> NoDup ids -> (forall q, q <= policy s -> l q <= M) ->
  list_sum (map (fun i => used (procs s i)) ids) <= M.
Proof.
  intros H nd all. apply reached_sound in H as ((top & S) & <-).
  pose proof (held_out _ _ _ _ ids S nd). pose proof (below _ _ _ _ S M all). lia.
Qed.

(* What is taken is within the limit in force when it is. *)
Theorem taken_within_limit l s s' : reached l s -> step s s' -> out (db s) < out (db s') ->
  out (db s') <= l (policy s).
Proof.
  intros H st. apply reached_sound in H as ((top & S) & <-). pose proof (sent_right _ _ _ _ S) as sr.
  destruct st as [| | | |d ps fl rd l k w c t I O T P r| | |]; simpl in *; intros more; try lia.
  destruct (sr t I) as (_ & right). destruct (right (eq_sym O) (eq_sym T)) as [(exact_ & room) | (same & _)]; [|lia].
  rewrite P by lia. apply room. lia.
Qed.

(* What a process sends, as functions: the total that it writes, and whether it may. Extract.v makes
   a program of them. *)
Definition makes_by (f : found) (n : nat) : nat := f_out f + n - f_hold f.
Definition may_send (limit : nat) (p : process) (f : found) (n : nat) : bool :=
  (used p <=? n) && ((n <=? f_hold f) || (f_out f + (n - f_hold f) <=? limit)) && (f_hold f <=? f_out f + n).
Theorem may_send_is_a_step d ps fl rd l k w c f n q : In f rd -> f_own f = own (ps (of f)) ->
  may_send (l q) (ps (of f)) f n = true -> q <= k ->
  let t := Sent (of f) (f_own f) (f_total f) q n (makes_by f n) in
  step (State d ps fl rd l k w c)
    (State d (set ps (of f) (sends (ps (of f)) n)) (t :: fl) rd l k (set w (of f) (Some t)) c).
Proof.
  intros I E H Q t. unfold may_send in H. apply andb_prop in H as [H low]. apply andb_prop in H as [U room].
  apply s_send; auto.
  - apply Nat.leb_le, U.
  - apply orb_prop in room as [r | r]; apply Nat.leb_le in r; auto.
  - apply Nat.leb_le, low.
Qed.

(* Whoever forgets what it has sent before it looks at its holding is over, if a copy of that came
   before: so was internal/escrow. Here process 0 holds 5, and gives all back. The store commits
   that, and refuses the copy. *)
Theorem forgets_first_it_breaks : exists s, reached (fun _ => 5) s /\
  (exists f t, In f (read s) /\ refused f = Some t /\ waits s 0 = Some t) /\
  hold (db s) 0 < may (forgets (procs s 0)).
Proof.
  assert (forall l d ps fl rd k w c, reached l (State d ps fl rd l k w c) ->
    reached l (State d ps fl (Found 0 (hold d 0) (hold_rev d 0) (out d) (out_rev d) None :: rd) l k w c)) as reads.
  { intros. eapply r_step; [eassumption|]. constructor. }
  pose proof (reads _ _ _ _ _ _ _ _ (r_first (fun _ => 5))) as H.
  eapply r_step in H; [|eapply (s_send _ _ _ _ _ _ _ _ _ 5 0); [left; reflexivity|reflexivity|simpl; lia..]]. cbn in H.
  eapply r_step in H; [|eapply s_commit; [left; reflexivity|reflexivity..|intros _; reflexivity]]. cbn in H.
  apply reads in H. cbn in H.
  eapply r_step in H; [|eapply s_moved; [left; reflexivity|vm_compute; lia]]. cbn in H.
  eapply r_step in H; [|eapply (s_send _ _ _ _ _ _ _ _ _ 0 0); [left; reflexivity|reflexivity|vm_compute; lia..]]. cbn in H.
  eapply r_step in H; [|eapply s_commit; [left; reflexivity|reflexivity..|vm_compute; lia]]. cbn in H.
  eapply r_step in H; [|eapply s_refuse; [left; reflexivity|left; vm_compute; discriminate]]. cbn in H.
  eexists. split; [exact H|]. split; [|vm_compute; lia].
  eexists. eexists. split; [left; reflexivity|]. split; reflexivity.
Qed.
