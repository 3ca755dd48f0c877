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

(* A process that is behind has neither sent nor heard anything since. *)
Definition left_alone (b : nat -> bool) (s s' : state) : Prop := forall i, b i = true ->
  taken (procs s' i) = taken (procs s i) /\ own (procs s' i) = own (procs s i) /\
  unknown (procs s' i) = unknown (procs s i) /\ waits s' i = waits s i.

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
| again_first : reached_again l (fun _ => false,
    State (Store 0 0 (fun _ => 0) (fun _ => 0) 0) (fun _ => Process 0 0 [] 0) [] [] l 0 (fun _ => None) []) 0
| again_step s s' lost : reached_again l s lost -> step_again s s' -> reached_again l s' lost
| again_restored b s lost b0 s0 lost0 more : reached_again l (b, s) lost -> reached_again l (b0, s0) lost0 ->
    policy s0 <= policy s ->
    (forall ids, NoDup ids -> list_sum (map (fun i => may (procs s i) - hold (db s0) i) ids) <= more) ->
    reached_again l (fun _ => true,
      State (db s0) (procs s) [] [] l (policy s + 1) (fun _ => None) []) (lost0 + more).

(* What always holds. [top] bounds what each process may issue, and its holding. *)
Record sound_again (lost : nat) (top : nat -> nat) (b : nat -> bool) (s : state) : Prop := {
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

Lemma others_unknown lost top b s i n : sound_again lost top b s -> In n (others (procs s i) (waits s i)) \/
  (exists t, waits s i = Some t /\ value t = n) -> In n (unknown (procs s i)).
Proof.
  intros H [I | (t & W & E)].
  - unfold others in I. destruct (waits s i); [|exact I]. destruct (unknown (procs s i)); [destruct I|right; exact I].
  - destruct (waits_right _ _ _ s H i t W) as (_ & _ & ->). left. exact E.
Qed.

(* A holding that has moved on is one that was sent. *)
Lemma moved_to lost top b s i : sound_again lost top b s -> b i = false -> own (procs s i) < hold_rev (db s) i ->
  may (procs s i) <= hold (db s) i.
Proof.
  intros H B L. destruct (known _ _ _ s H i B) as (_ & _ & moved). destruct (moved L) as (t & _ & <- & U).
  apply may_at_most, (others_unknown _ _ _ _ _ _ H). destruct U as [U | U]; [left; exact U|right; exists t; auto].
Qed.

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

Lemma step_sound_again lost top b s s' : sound_again lost top b s -> step s s' -> left_alone b s s' ->
  exists top', sound_again lost top' b s'.
Proof.
  intros H st alone. pose proof (fun i n => others_unknown _ _ _ _ i n H) as ou. pose proof (fun i => moved_to _ _ _ _ i H) as mt.
  destruct H as [rv tp ap kn wr sk sr db_ rr rf fi be wi]. unfold left_alone in alone.
  destruct st as [d ps fl rd l k w c|d ps fl rd l k w c i|d ps fl rd l k w c f I L|d ps fl rd l k w c f n q I E U room low Q t0|
    d ps fl rd l k w c t I O T P r|d ps fl rd l k w c t I why|d ps fl rd l k w c f t I R W E|d ps fl rd l k w c i L p];
    unfold dead in *; simpl in *.
  - (* An operator writes. *)
    exists top. constructor; unfold dead; simpl; auto.
    + intros t J. destruct (sk t J) as (a & b' & e). split; [lia|]. split; [exact b'|].
      intros K. destruct (e K) as [? | [? | (x & y)]]; auto. right. right. split; [exact x|].
      intros e'. destruct (y e') as [? | (? & ?)]; [left; assumption|right; split; [assumption|lia]].
    + intros f t J R. destruct (rf f t J R) as (a & b' & e). split; [exact a|]. split; [exact b'|].
      intros e'. destruct (e e') as (x & y). split; [exact x|].
      intros e2. destruct (y e2) as [? | (? & ?)]; [left; assumption|right; split; [assumption|lia]].
    + intros M all. apply be. intros q le. apply all. lia.
  - (* The store answers. *)
    exists top. constructor; unfold dead; simpl; auto.
    + intros f [<- | J]; simpl; [|apply rr, J]. repeat split; auto.
    + intros f t [<- | J]; simpl; [discriminate|apply rf, J].
  - (* A process learns that its holding has moved on. *)
    destruct (b (of f)) eqn:B.
    { destruct (alone _ B) as (_ & K & _). rewrite set_same in K. simpl in K. lia. }
    destruct (rr f I) as (le & _ & same & _ & [(_ & old) | new]); [lia|].
    destruct (kn _ B) as (le' & _ & moved). destruct (tp (of f)) as (t1 & t2).
    exists top. constructor; unfold dead; simpl; auto.
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
    exists top. constructor; unfold dead; simpl; auto.
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
    exists (set top (by_ t) v). constructor; unfold dead; simpl; auto.
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
    exists top. constructor; unfold dead; simpl; auto.
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
    exists top. constructor; unfold dead; simpl; auto.
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
    subst p. exists top. constructor; unfold dead; simpl; auto.
    + intros j. split_at j i; apply tp.
    + intros j Bj. split_at j i; apply kn; exact Bj.
    + intros j t. split_at j i; apply wr.
    + intros t J. destruct (sk t J) as (a & b' & e). split_at (by_ t) i; auto.
    + intros g J. destruct (rr g J) as (a & b' & c' & e & h). repeat split; auto. split_at (of g) i; exact h.
    + intros j. split_at j i; [|apply wi]. unfold may in *. simpl. lia.
Qed.

Lemma again_sound lost top b s b' s' : sound_again lost top b s -> step_again (b, s) (b', s') ->
  exists top', sound_again lost top' b' s'.
Proof.
  intros H st. inversion st as [x y z st' alone|x d ps fl rd l k w c f p I B how|x d ps fl rd l k w c f I B E n t]; subst.
  - eapply step_sound_again; eassumption.
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
  (exists top, sound_again lost top (fst x) (snd x)) /\ limits (snd x) = l.
Proof.
  induction 1 as [|(b, s) (b', s') lost H [(top & IH) E] st|b s lost b0 s0 lost0 more H [(top & IH) E] H0 [(top0 & IH0) E0] le within_]; simpl in *.
  - split; [|reflexivity]. exists (fun _ => 0). constructor; simpl; try discriminate.
    + split; intros; lia.
    + intros i. unfold may. simpl. lia.
    + intros i _. split; [lia|]. split; intros; lia.
    + intros t [].
    + intros t [].
    + intros t [].
    + intros f [].
    + intros f t [].
    + intros some _. induction some; simpl; lia.
    + intros; lia.
    + intros i. unfold may. simpl. lia.
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
  pose proof (fits _ _ _ _ S ids nd). pose proof (below _ _ _ _ S M all).
  assert (list_sum (map (fun i => used (procs s i)) ids) <= list_sum (map top ids)); [|lia].
  clear nd H. induction ids as [|i ids IH]; simpl; [lia|].
  pose proof (within _ _ _ _ S i). destruct (topped _ _ _ _ S i). lia.
Qed.
