(* The division of a total and the revisions that give, as functions of what two views show of
   one window (docs/protocol.md, sections 1 and 2). They satisfy [fit] and [taking] of
   Statement.v. Extract.v makes programs of them, which the shipped code is compared with. *)
From Quotient Require Import Sum Division.
From Coq Require Import Lia Lqa Qfield.
Open Scope nat_scope.

(* The number of k = 0, 1, 2, ... below n up to the first of which f does not hold; from k on. *)
Fixpoint run_from (f : nat -> bool) (k n : nat) : nat :=
  match n with 0 => 0 | S n => if f k then S (run_from f (S k) n) else 0 end.

(* An instance in a division. [at_seat] is v, in parts of 2^64. *)
Record claim := Claim { by_id : nat; at_seat : Z; weight : positive }.

(* Seat k of an instance stands at (k + v) / w. Of two at one place that of the smaller ID comes
   first. *)
Definition place (m : claim) (k : nat) : Q := (Z.of_nat k * 18446744073709551616 + at_seat m) # weight m.
Definition precedes (m : claim) (l : nat) (o : claim) (k : nat) : bool :=
  match Qcompare (place m l) (place o k) with Lt => true | Eq => by_id m <? by_id o | Gt => false end.

(* How many of the first T seats of all instances come before seat k of m. *)
Definition seats_before (T : nat) (all : list claim) (m : claim) (k : nat) : nat :=
  sum (fun o => run_from (fun l => precedes o l m k) 0 T) all.

(* By weight: each of the first T seats has one permit. *)
Definition by_weight (T : nat) (all : list claim) (m : claim) : nat :=
  run_from (fun k => seats_before T all m k <? T) 0 T.

(* Equally: floor(T/n), and one more if fewer than T mod n instances rank before it. *)
Definition equally (T : nat) (all : list claim) (m : claim) : nat :=
  part T (length all) (length (filter (fun o => precedes o 0 m 0) all)).

(* An instance's key in a view. It takes part from [from] on and before [until]. *)
Record member := Member { ident : nat; name : nat; own_weight : positive; from : Z; until : Z }.

(* What a view shows of one window. [limit] is the policy's, if there is a limit. *)
Record policy := Policy {
  limit : option nat;
  in_force : bool;
  supported : bool;
  paused : bool;
  times : list nat; (* S, S', e and g *)
  weighted : bool;
  overrides : list (nat * positive) (* weights by name *)
}.
Record shown := Shown { terms : policy; members : list member }.

(* [begins] is the window's start, and [rank] gives v of each ID. *)
Section Window.
Variables (begins : Z) (rank : nat -> Z).

Definition takes_part (m : member) : bool := ((from m <=? begins) && (begins <? until m))%Z.
Definition ended (m : member) : bool := (until m <=? begins)%Z.

Definition weight_in (p : policy) (m : member) : positive :=
  if weighted p then
    match find (fun o => fst o =? name m) (overrides p) with Some (_, w) => w | None => own_weight m end
  else 1%positive.
Definition claim_of (p : policy) (m : member) : claim := Claim (ident m) (rank (ident m)) (weight_in p m).
Definition claims (u : shown) : list claim := map (claim_of (terms u)) (filter takes_part (members u)).

Definition divided (p : policy) (T : nat) (all : list claim) (m : claim) : nat :=
  if weighted p then by_weight T all m else equally T all m.

(* What is divided: nothing of a limit that is not in force, paused or not supported. *)
Definition amount (p : policy) : option nat :=
  if in_force p && supported p && negb (paused p) then limit p else Some 0.

Definition find_claim (i : nat) (all : list claim) : option claim := find (fun m => by_id m =? i) all.

(* The share of an incarnation; None if the view does not bind it. *)
Definition share_of (u : shown) (i : nat) : option nat :=
  match find_claim i (claims u) with
  | Some m => match amount (terms u) with Some T => Some (divided (terms u) T (claims u) m) | None => None end
  | None => Some 0
  end.

(* Two policies divide in the same way. *)
Fixpoint same_overrides (a b : list (nat * positive)) : bool :=
  match a, b with
  | [], [] => true
  | (n, w) :: a, (n', w') :: b => (n =? n') && Pos.eqb w w' && same_overrides a b
  | _, _ => false
  end.
Fixpoint same_times (a b : list nat) : bool :=
  match a, b with [], [] => true | s :: a, t :: b => (s =? t) && same_times a b | _, _ => false end.
Definition divides_as (p q : policy) : bool :=
  Bool.eqb (weighted p) (weighted q) && same_overrides (overrides p) (overrides q).
Definition same_limit (a b : option nat) : bool :=
  match a, b with None, None => true | Some n, Some m => n =? m | _, _ => false end.
Definition same_policy (p q : policy) : bool :=
  same_limit (limit p) (limit q) && Bool.eqb (in_force p) (in_force q) && Bool.eqb (supported p) (supported q) &&
  Bool.eqb (paused p) (paused q) && divides_as p q.

(* Rule 3 of section 2, of the policies; [written] if the revision writes the policy. *)
Definition policy_gives (written : bool) (p q : policy) : bool :=
  (negb written && same_policy p q) ||
  (same_times (times p) (times q) && supported p && supported q && in_force p && in_force q &&
   match limit p, limit q with Some T, Some T' => T <=? T' | _, _ => false end &&
   (negb (paused q) || paused p) && divides_as p q).

(* ... and of the instances: each takes part in both views as the same one, or in neither. One
   that takes part may also end. *)
Definition find_member (i : nat) (all : list member) : option member := find (fun m => ident m =? i) all.
Definition keeps (u v : shown) : bool :=
  forallb (fun m => negb (takes_part m) ||
    match find_member (ident m) (members v) with
    | Some n => ended n || (takes_part n && Pos.eqb (own_weight m) (own_weight n) && (name m =? name n))
    | None => false
    end) (members u) &&
  forallb (fun n => negb (takes_part n) ||
    match find_member (ident n) (members u) with Some m => takes_part m | None => false end) (members v).

(* Whether the revision between two views gives. *)
Definition gives_of (written : bool) (u v : shown) : bool :=
  keeps u v && policy_gives written (terms u) (terms v).
End Window.

(* The smallest share of the views that an incarnation held, oldest first, each with whether its
   next revision gives. The newest always counts; None binds nobody. *)
Definition least (a b : option nat) : option nat :=
  match a, b with Some n, Some m => Some (Nat.min n m) | Some n, None => Some n | None, _ => b end.
Fixpoint bound_of (older : list (option nat * bool)) (newest : option nat) : option nat :=
  match older with
  | [] => newest
  | (share, gives) :: older => if gives then bound_of older newest else least share (bound_of older newest)
  end.
Definition within (n : nat) (bound : option nat) : Prop := match bound with Some m => n <= m | None => True end.

(* PROOFS. *)

Lemma run_below f n : forall k l, l < run_from f k n -> f (k + l) = true.
Proof.
  induction n as [|n IH]; intros k l H; simpl in H; [lia|].
  destruct (f k) eqn:E; [|lia]. destruct l as [|l]; [rewrite Nat.add_0_r; exact E|].
  replace (k + S l) with (S k + l) by lia. apply IH. lia.
Qed.

Lemma run_at_least f n : forall k m, (forall l, l < m -> f (k + l) = true) -> m <= n -> m <= run_from f k n.
Proof.
  induction n as [|n IH]; intros k m H le; simpl; [lia|]. destruct m as [|m]; [lia|].
  assert (f k = true) as -> by (rewrite <- (Nat.add_0_r k); apply H; lia).
  apply le_n_S, IH; [|lia]. intros l L. replace (S k + l) with (k + S l) by lia. apply H. lia.
Qed.

Lemma run_at_most f n : forall k, run_from f k n <= n.
Proof. induction n as [|n IH]; intros k; simpl; [lia|]. destruct (f k); [|lia]. specialize (IH (S k)). lia. Qed.

Lemma run_stops f n k m : f (k + m) = false -> run_from f k n <= m.
Proof.
  intros H. apply Nat.nlt_ge. intros L. apply run_below in L. congruence.
Qed.

Lemma run_stopped f n : forall k, run_from f k n < n -> f (k + run_from f k n) = false.
Proof.
  induction n as [|n IH]; intros k H; simpl in *; [lia|]. destruct (f k) eqn:E.
  - replace (k + S (run_from f (S k) n)) with (S k + run_from f (S k) n) by lia. apply IH. lia.
  - rewrite Nat.add_0_r. exact E.
Qed.

Lemma run_grows f g k n n' : n <= n' -> (forall l, l < n -> f (k + l) = true -> g (k + l) = true) ->
  run_from f k n <= run_from g k n'.
Proof.
  intros le H. pose proof (run_at_most f n k). apply run_at_least; [|lia].
  intros l L. apply H; [lia|]. eapply run_below, L.
Qed.

Lemma run_capped f k n n' : run_from f k n < n -> n <= n' -> run_from f k n' = run_from f k n.
Proof.
  intros L le. apply Nat.le_antisymm; [apply run_stops, run_stopped, L|].
  apply run_grows; [exact le|auto].
Qed.

(* Seats are in a strict order. *)
Lemma less p q : (p < q)%Q -> Qcompare p q = Lt.
Proof. intros H. apply Qlt_alt, H. Qed.
Lemma same p q : (p == q)%Q -> Qcompare p q = Eq.
Proof. intros H. apply Qeq_alt, H. Qed.

Lemma precedes_not_itself m k : precedes m k m k = false.
Proof.
  unfold precedes. destruct (Qcompare_spec (place m k) (place m k)) as [E|L|L].
  - apply Nat.ltb_irrefl.
  - destruct (Qlt_irrefl _ L).
  - destruct (Qlt_irrefl _ L).
Qed.

Lemma place_below m l k : l < k -> (place m l < place m k)%Q.
Proof. intros H. unfold place, Qlt. simpl. apply Z.mul_lt_mono_pos_r; lia. Qed.

Lemma precedes_own m l k : l < k -> precedes m l m k = true.
Proof. intros H. unfold precedes. rewrite less by (apply place_below, H). reflexivity. Qed.

Lemma precedes_trans a i b j c k : precedes a i b j = true -> precedes b j c k = true -> precedes a i c k = true.
Proof.
  unfold precedes.
  destruct (Qcompare_spec (place a i) (place b j)) as [E|L|L]; try discriminate; intros H;
  destruct (Qcompare_spec (place b j) (place c k)) as [E'|L'|L']; try discriminate; intros H'.
  - rewrite same by (rewrite E; exact E'). apply Nat.ltb_lt in H, H'. apply Nat.ltb_lt. lia.
  - rewrite less by (rewrite E; exact L'). reflexivity.
  - rewrite less by (rewrite <- E'; exact L). reflexivity.
  - rewrite less by (eapply Qlt_trans; eassumption). reflexivity.
Qed.

Lemma precedes_total a i b j : by_id a <> by_id b -> precedes a i b j = true \/ precedes b j a i = true.
Proof.
  intros H. unfold precedes.
  destruct (Qcompare_spec (place a i) (place b j)) as [E|L|L].
  - rewrite same by (symmetry; exact E).
    destruct (Nat.lt_gt_cases (by_id a) (by_id b)) as [[G|G] _]; [assumption|left|right]; apply Nat.ltb_lt; lia.
  - left. reflexivity.
  - right. rewrite less by exact L. reflexivity.
Qed.

(* If one seat precedes another, fewer seats precede it. *)
Lemma fewer_before T all a i b j : In a all -> precedes a i b j = true -> i < T ->
  seats_before T all a i < seats_before T all b j.
Proof.
  intros I P iT. unfold seats_before, sum.
  assert (forall o, run_from (fun l => precedes o l a i) 0 T <= run_from (fun l => precedes o l b j) 0 T) as each.
  { intros o. apply run_grows; [lia|]. intros l _ H. eapply precedes_trans; eassumption. }
  assert (run_from (fun l => precedes a l a i) 0 T < run_from (fun l => precedes a l b j) 0 T) as own.
  { apply Nat.le_lt_trans with i; [apply run_stops, precedes_not_itself|].
    apply run_at_least; [|lia]. intros l L. simpl. destruct (Nat.eq_dec l i) as [-> |]; [exact P|].
    eapply precedes_trans; [apply precedes_own|exact P]. lia. }
  revert I. induction all as [|o all IH]; intros I; [destruct I|]. simpl.
  destruct I as [-> | I].
  - apply Nat.add_lt_le_mono; [exact own|]. clear -each. induction all as [|o all IH]; simpl; [lia|].
    specialize (each o). lia.
  - apply Nat.add_le_lt_mono; [apply each|apply IH, I].
Qed.

(* The seats with a permit have different ranks below T. So there are at most T. *)
Lemma by_weight_fits T all : NoDup (map by_id all) -> sum (by_weight T all) all <= T.
Proof.
  intros nd. set (taken := flat_map (fun m => map (seats_before T all m) (seq 0 (by_weight T all m))) all).
  assert (length taken = sum (by_weight T all) all) as <-.
  { unfold taken, sum. generalize (by_weight T all), (seats_before T all). intros g f. clear nd taken.
    induction all as [|m all IH]; [reflexivity|]. simpl. rewrite app_length, map_length, seq_length, IH. reflexivity. }
  assert (NoDup taken) as once.
  { enough (forall some, incl some all -> NoDup (map by_id some) ->
      NoDup (flat_map (fun m => map (seats_before T all m) (seq 0 (by_weight T all m))) some)) as H
      by (apply H; [apply incl_refl|exact nd]).
    clear nd taken. induction some as [|m some IH]; intros sub nd; simpl; [constructor|].
    simpl in nd. apply NoDup_cons_iff in nd as [new nd].
    assert (forall k, k < by_weight T all m -> k < T) as inT.
    { intros k L. pose proof (run_at_most (fun k => seats_before T all m k <? T) T 0). unfold by_weight in L. lia. }
    assert (NoDup (map (seats_before T all m) (seq 0 (by_weight T all m)))) as own.
    { assert (forall n s, s + n <= by_weight T all m -> NoDup (map (seats_before T all m) (seq s n))) as H.
      { induction n as [|n IHn]; intros s le; simpl; constructor; [|apply IHn; lia].
        intros I. apply in_map_iff in I as (k & same & I). apply in_seq in I.
        pose proof (fewer_before T all m s m k (sub m (or_introl eq_refl)) (precedes_own m s k ltac:(lia)) (inT s ltac:(lia))). lia. }
      apply H. lia. }
    assert (forall l l', NoDup l -> NoDup l' -> (forall r : nat, In r l -> In r l' -> False) -> NoDup (l ++ l')) as app.
    { clear. induction l as [|r l IH]; intros l' n n' H; simpl; [exact n'|].
      apply NoDup_cons_iff in n as [new n]. constructor.
      - intros I. apply in_app_or in I as [I | I]; [contradiction|]. apply (H r); [left; reflexivity|exact I].
      - apply IH; [exact n|exact n'|]. intros s I J. apply (H s); [right; exact I|exact J]. }
    apply app; [exact own|apply IH; [intros o I; apply sub; right; exact I|exact nd]|].
    intros r I J. apply in_map_iff in I as (k & <- & I). apply in_flat_map in J as (o & os & J).
    apply in_map_iff in J as (l & same & J). apply in_seq in I, J.
    assert (by_id m <> by_id o) as differ by (intros E; apply new; rewrite E; apply in_map, os).
    assert (l < T) by (pose proof (run_at_most (fun k => seats_before T all o k <? T) T 0); unfold by_weight in J; lia).
    destruct (precedes_total m k o l differ) as [P | P].
    - pose proof (fewer_before T all m k o l (sub m (or_introl eq_refl)) P (inT k ltac:(lia))). lia.
    - pose proof (fewer_before T all o l m k (sub o (or_intror os)) P ltac:(lia)). lia. }
  apply Nat.le_trans with (length (seq 0 T)); [|rewrite seq_length; lia].
  apply NoDup_incl_length; [exact once|]. intros r I. unfold taken in I.
  apply in_flat_map in I as (m & _ & I). apply in_map_iff in I as (k & <- & I). apply in_seq in I.
  apply in_seq. pose proof (run_below _ T 0 k (proj2 I)) as L. apply Nat.ltb_lt in L. simpl in L. lia.
Qed.

(* Of fewer instances each has fewer before it. A limit that grows takes no seat away. *)
Lemma before_of_fewer T T' all all' m k : T <= T' ->
  (forall (f : claim -> nat), sum f all' <= sum f all) ->
  seats_before T all m k < T -> seats_before T' all' m k < T'.
Proof.
  intros le fewer L. eapply Nat.le_lt_trans; [apply fewer|].
  enough (seats_before T' all m k = seats_before T all m k) as E by (unfold seats_before in *; lia).
  unfold seats_before, sum in *. f_equal. clear fewer. induction all as [|o all IH]; [reflexivity|].
  simpl in L |- *. f_equal; [apply run_capped; lia|apply IH; lia].
Qed.

Lemma by_weight_grows T T' all all' m : T <= T' -> (forall (f : claim -> nat), sum f all' <= sum f all) ->
  by_weight T all m <= by_weight T' all' m.
Proof.
  intros le fewer. apply run_grows; [exact le|]. intros k _ H. apply Nat.ltb_lt in H. apply Nat.ltb_lt.
  eapply before_of_fewer; eassumption.
Qed.

(* Equally: ranks differ, and are below the number of instances. *)
Lemma filter_less {A} (f g : A -> bool) l : (forall a, f a = true -> g a = true) ->
  length (filter f l) <= length (filter g l) /\
  forall a, In a l -> f a = false -> g a = true -> length (filter f l) < length (filter g l).
Proof.
  intros H. induction l as [|a l [le less]]; simpl; [split; [lia|intros _ []]|].
  specialize (H a). split.
  - destruct (f a); [rewrite H by reflexivity; simpl; lia|]. destruct (g a); simpl; lia.
  - intros b [-> | I] F G.
    + rewrite F, G. simpl. lia.
    + specialize (less b I F G). destruct (f a); [rewrite H by reflexivity; simpl; lia|]. destruct (g a); simpl; lia.
Qed.

Definition rank_in (all : list claim) (m : claim) : nat := length (filter (fun o => precedes o 0 m 0) all).

Lemma rank_less all a b : In a all -> precedes a 0 b 0 = true -> rank_in all a < rank_in all b.
Proof.
  intros I P. unfold rank_in. apply (proj2 (filter_less (fun o => precedes o 0 a 0) (fun o => precedes o 0 b 0) all
    (fun o H => precedes_trans _ _ _ _ _ _ H P))) with a; [exact I|apply precedes_not_itself|exact P].
Qed.

Lemma rank_below all m : In m all -> rank_in all m < length all.
Proof.
  intros I. assert (length (filter (fun _ => true) all) = length all) as <-.
  { clear I. induction all as [|o all IH]; [reflexivity|]. simpl. rewrite IH. reflexivity. }
  apply (proj2 (filter_less (fun o => precedes o 0 m 0) (fun _ => true) all (fun _ _ => eq_refl))) with m;
    [exact I|apply precedes_not_itself|reflexivity].
Qed.

Lemma same_one {A} (f : A -> nat) l a b : NoDup (map f l) -> In a l -> In b l -> f a = f b -> a = b.
Proof.
  induction l as [|c l IH]; intros nd I J E; [destruct I|]. simpl in nd. apply NoDup_cons_iff in nd as [new nd].
  destruct I as [<- | I], J as [<- | J]; auto.
  - destruct new. rewrite E. apply in_map, J.
  - destruct new. rewrite <- E. apply in_map, I.
Qed.

Lemma once_each {A} (f g : A -> nat) l : NoDup (map f l) ->
  (forall a b, In a l -> In b l -> f a <> f b -> g a <> g b) -> NoDup (map g l).
Proof.
  induction l as [|c l IH]; intros nd H; simpl; [constructor|]. simpl in nd. apply NoDup_cons_iff in nd as [new nd].
  constructor; [|apply IH; [exact nd|intros a b I J; apply H; right; assumption]].
  intros I. apply in_map_iff in I as (a & E & I). apply (H a c (or_intror I) (or_introl eq_refl)); [|exact E].
  intros F. apply new. rewrite <- F. apply in_map, I.
Qed.

Lemma sum_incl {A} (f : A -> nat) l : forall l', NoDup l -> incl l l' -> sum f l <= sum f l'.
Proof.
  unfold sum. induction l as [|a l IH]; intros l' nd sub; simpl; [lia|]. apply NoDup_cons_iff in nd as [new nd].
  destruct (in_split a l' (sub a (or_introl eq_refl))) as (l1 & l2 & ->).
  specialize (IH (l1 ++ l2) nd). rewrite map_app, list_sum_app in *. simpl.
  enough (list_sum (map f l) <= list_sum (map f l1) + list_sum (map f l2)) by lia. apply IH.
  intros b I. specialize (sub b (or_intror I)). apply in_app_or in sub as [J | [<- | J]]; [|contradiction|];
    apply in_or_app; auto.
Qed.

Lemma equally_fits T all : NoDup (map by_id all) -> sum (equally T all) all <= T.
Proof.
  intros nd. destruct all as [|m0 rest] eqn:E; [unfold sum; simpl; lia|]. rewrite <- E in *.
  eapply Nat.le_trans; [|apply Nat.eq_le_incl, (parts_fit T (length all)); rewrite E; discriminate].
  assert (sum (equally T all) all = sum (part T (length all)) (map (rank_in all) all)) as ->.
  { unfold sum. rewrite map_map. reflexivity. }
  apply sum_incl.
  - apply (once_each by_id); [exact nd|]. intros a b I J differ.
    destruct (precedes_total a 0 b 0 differ) as [P | P]; apply (rank_less all) in P; try assumption; lia.
  - intros r I. apply in_map_iff in I as (m & <- & I). apply in_seq. pose proof (rank_below all m I). lia.
Qed.

Lemma sum_ones {A} (f : A -> bool) l : length (filter f l) = sum (fun a => if f a then 1 else 0) l.
Proof. unfold sum. induction l as [|a l IH]; simpl; [reflexivity|]. rewrite <- IH. destruct (f a); reflexivity. Qed.

Lemma equally_grows T T' all all' m : T <= T' -> In m all' -> (forall (f : claim -> nat), sum f all' <= sum f all) ->
  equally T all m <= equally T' all' m.
Proof.
  intros le I fewer. unfold equally. apply equal_part_grows.
  - exact le.
  - specialize (fewer (fun _ => 1)). unfold sum in fewer. clear I. revert fewer.
    assert (forall l : list claim, list_sum (map (fun _ => 1) l) = length l) as H.
    { induction l as [|o l IH]; simpl; lia. }
    rewrite !H. auto.
  - destruct all'; [destruct I|discriminate].
  - rewrite !sum_ones. apply fewer.
Qed.

(* Of the claims of a view. *)
Lemma divided_fits p T all : NoDup (map by_id all) -> sum (divided p T all) all <= T.
Proof.
  intros nd. unfold divided. destruct (weighted p); [apply by_weight_fits, nd|apply equally_fits, nd].
Qed.

Lemma divided_grows p q T T' all all' m : T <= T' -> weighted p = weighted q -> In m all' ->
  NoDup all' -> incl all' all -> divided p T all m <= divided q T' all' m.
Proof.
  intros le same I nd sub. unfold divided. rewrite same.
  assert (forall f : claim -> nat, sum f all' <= sum f all) as fewer by (intros f; apply sum_incl; assumption).
  destruct (weighted q); [apply by_weight_grows|apply equally_grows]; assumption.
Qed.

Lemma nodup_filter {A} (f : A -> nat) (g : A -> bool) l : NoDup (map f l) -> NoDup (map f (filter g l)).
Proof.
  induction l as [|a l IH]; intros nd; [constructor|]. simpl in *. apply NoDup_cons_iff in nd as [new nd].
  destruct (g a); [|apply IH, nd]. simpl. constructor; [|apply IH, nd].
  intros I. apply new. apply in_map_iff in I as (b & <- & I). apply filter_In in I. apply in_map, I.
Qed.

Section Shown.
Variables (begins : Z) (rank : nat -> Z).

Lemma claims_once u : NoDup (map ident (members u)) -> NoDup (map by_id (claims begins rank u)).
Proof. intros nd. unfold claims. rewrite map_map. simpl. apply nodup_filter, nd. Qed.

Definition permits_of (u : shown) (i : nat) : nat := match share_of begins rank u i with Some n => n | None => 0 end.

(* The shares by a view sum to at most what is divided, whatever incarnations are counted. *)
Theorem shares_fit u T l : NoDup (map ident (members u)) -> amount (terms u) = Some T -> NoDup l ->
  sum (permits_of u) l <= T.
Proof.
  intros nd some once.
  eapply Nat.le_trans; [|apply (divided_fits (terms u) T (claims begins rank u)), claims_once, nd].
  set (f := divided (terms u) T (claims begins rank u)).
  assert (sum (permits_of u) l = sum (fun i => match find_claim i (claims begins rank u) with Some m => f m | None => 0 end) l) as ->.
  { unfold sum. f_equal. apply map_ext. intros i. unfold permits_of, share_of. rewrite some.
    destruct (find_claim i (claims begins rank u)); reflexivity. }
  generalize (claims begins rank u). intros all. clear - once. unfold sum.
  induction all as [|m all IH].
  - simpl. clear. induction l; simpl; lia.
  - simpl. eapply Nat.le_trans; [|apply Nat.add_le_mono_l, IH]. clear IH.
    induction once as [|i l new once IH]; simpl; [lia|].
    destruct (Nat.eqb_spec (by_id m) i) as [E | E]; [|lia].
    enough (list_sum (map (fun i => match (if by_id m =? i then Some m else find_claim i all) with Some m => f m | None => 0 end) l) <=
      list_sum (map (fun i => match find_claim i all with Some m => f m | None => 0 end) l)) by lia.
    clear IH once. induction l as [|j l IH]; simpl; [lia|].
    destruct (Nat.eqb_spec (by_id m) j) as [F | F]; [destruct new; left; congruence|].
    specialize (IH ltac:(intros H; apply new; right; exact H)). lia.
Qed.

Lemma same_overrides_eq a : forall b, same_overrides a b = true -> a = b.
Proof.
  induction a as [|[n w] a IH]; intros [|[n' w'] b] H; simpl in H; try discriminate; [reflexivity|].
  apply andb_prop in H as [H K]. apply andb_prop in H as [H L]. apply Nat.eqb_eq in H as ->.
  apply Pos.eqb_eq in L as ->. f_equal. apply IH, K.
Qed.

Lemma divides_as_eq p q : divides_as p q = true -> weighted p = weighted q /\ overrides p = overrides q.
Proof.
  intros H. apply andb_prop in H as [H K]. split; [apply eqb_prop, H|apply same_overrides_eq, K].
Qed.

Definition at_most (a b : option nat) : Prop :=
  match a, b with _, None => True | Some n, Some m => n <= m | None, Some _ => False end.

(* If a revision gives, the amount does not fall, and is divided in the same way. *)
Lemma policy_gives_grows written p q : policy_gives written p q = true ->
  at_most (amount p) (amount q) /\ weighted p = weighted q /\ overrides p = overrides q.
Proof.
  intros H. apply orb_prop in H as [H | H].
  - apply andb_prop in H as [_ H]. unfold same_policy in H. repeat (apply andb_prop in H as [H ?]).
    split; [|apply divides_as_eq; assumption].
    repeat match goal with E : Bool.eqb _ _ = true |- _ => apply eqb_prop in E end. unfold amount.
    rewrite <- H1, <- H2, <- H3. destruct (in_force p && supported p && negb (paused p)); [|simpl; lia].
    unfold same_limit in H. destruct (limit p), (limit q); simpl; try discriminate; try exact I.
    apply Nat.eqb_eq in H. lia.
  - repeat (apply andb_prop in H as [H ?]). split; [|apply divides_as_eq; assumption].
    unfold amount. rewrite H3, H4, H5, H6. simpl.
    destruct (limit p) as [T|], (limit q) as [T'|]; try discriminate. apply Nat.leb_le in H2.
    destruct (paused p), (paused q); simpl in *; try discriminate; lia.
Qed.

Lemma find_once {A} (f : A -> nat) l m : NoDup (map f l) -> In m l -> find (fun n => f n =? f m) l = Some m.
Proof.
  intros nd I. destruct (find (fun n => f n =? f m) l) as [n|] eqn:F.
  - apply find_some in F as [J E]. apply Nat.eqb_eq in E. f_equal. eapply same_one; eassumption.
  - apply find_none with (x := m) in F; [|exact I]. rewrite Nat.eqb_refl in F. discriminate.
Qed.

Lemma claim_kept p q m n : ident m = ident n -> own_weight m = own_weight n -> name m = name n ->
  weighted p = weighted q -> overrides p = overrides q -> claim_of rank p m = claim_of rank q n.
Proof.
  intros E F G H K. unfold claim_of, weight_in. rewrite E, F, G, H, K. reflexivity.
Qed.

(* A revision that gives takes permits from nobody, but from those that have ended. *)
Theorem giving_takes_nothing written u v i :
  NoDup (map ident (members u)) -> NoDup (map ident (members v)) -> gives_of begins written u v = true ->
  at_most (share_of begins rank u i) (share_of begins rank v i) \/
  exists n, In n (members v) /\ ident n = i /\ (until n <= begins)%Z.
Proof.
  intros nu nv H. unfold gives_of in H. apply andb_prop in H as [K P]. apply andb_prop in K as [K L].
  apply policy_gives_grows in P as (grows & W & O).
  rewrite forallb_forall in K, L.
  (* Each claim of v is one of u. *)
  assert (incl (claims begins rank v) (claims begins rank u)) as sub.
  { intros c I. apply in_map_iff in I as (n & <- & I). apply filter_In in I as [I T].
    specialize (L n I). rewrite T in L. simpl in L. destruct (find_member (ident n) (members u)) as [m|] eqn:F; [|discriminate].
    apply find_some in F as [J E]. apply Nat.eqb_eq in E. specialize (K m J). rewrite L in K. simpl in K.
    rewrite E in K. unfold find_member in K. rewrite (find_once ident) in K by assumption.
    apply in_map_iff. exists m. split; [|apply filter_In; auto].
    apply orb_prop in K as [K | K].
    - unfold ended, takes_part in *. apply andb_prop in T as [_ T]. apply Z.leb_le in K. apply Z.ltb_lt in T. lia.
    - repeat (apply andb_prop in K as [K ?]). apply claim_kept; try assumption; [apply Pos.eqb_eq|apply Nat.eqb_eq]; assumption. }
  unfold share_of at 1. destruct (find_claim i (claims begins rank u)) as [c|] eqn:F.
  2:{ left. destruct (share_of begins rank v i); simpl; [lia|exact I]. }
  apply find_some in F as [I E]. apply Nat.eqb_eq in E. pose proof I as inU.
  apply in_map_iff in I as (m & <- & I). apply filter_In in I as [I T]. simpl in E.
  specialize (K m I). rewrite T in K. simpl in K. rewrite E in K.
  destruct (find_member i (members v)) as [n|] eqn:F; [|discriminate].
  apply find_some in F as [J G]. apply Nat.eqb_eq in G. apply orb_prop in K as [K | K].
  { right. exists n. split; [exact J|]. split; [exact G|]. apply Z.leb_le, K. }
  left. apply andb_prop in K as [K named]. apply andb_prop in K as [K weighs].
  assert (claim_of rank (terms u) m = claim_of rank (terms v) n) as same.
  { apply claim_kept; try assumption; [congruence|apply Pos.eqb_eq|apply Nat.eqb_eq]; assumption. }
  assert (In (claim_of rank (terms u) m) (claims begins rank v)) as inV.
  { rewrite same. apply in_map, filter_In. auto. }
  unfold share_of. rewrite same in *. unfold find_claim.
  replace i with (by_id (claim_of rank (terms v) n)) by exact G.
  rewrite find_once by (try apply claims_once; assumption).
  destruct (amount (terms u)), (amount (terms v)); simpl in grows |- *; try contradiction; try exact Logic.I.
  apply divided_grows; try assumption. eapply NoDup_map_inv, claims_once, nv.
Qed.
End Shown.

(* What the bound allows is what each view allows that counts. *)
Lemma bound_of_within n older newest : within n (bound_of older newest) <->
  within n newest /\ forall share, In (share, false) older -> within n share.
Proof.
  induction older as [|[share gives] older IH]; simpl; [tauto|].
  assert (forall a b, within n (least a b) <-> within n a /\ within n b) as both.
  { intros [a|] [b|]; simpl; try tauto. lia. }
  destruct gives.
  - rewrite IH. split; intros [N H]; split; auto. intros s [E | I]; [discriminate|auto].
  - rewrite both, IH. split.
    + intros (S' & N & H). split; [exact N|]. intros s [E | I]; [injection E as <-; exact S'|auto].
    + intros (N & H). repeat split; auto.
Qed.

(* [bound_of] is rule 3 of Statement.v: of the views that an incarnation held from A on. *)
Definition older_views (x : world) (p : permit) (A : Q) : list (option nat * bool) :=
  map (fun v => (Some (share x v (who p) (win p)), gives x v (win p)))
    (seq (newest x (who p) A) (newest x (who p) (at_ p) - newest x (who p) A)).

Theorem bound_is_held x p A n : newest x (who p) A <= newest x (who p) (at_ p) ->
  (forall v, newest x (who p) A <= v <= newest x (who p) (at_ p) -> applied x (who p) v) ->
  within n (bound_of (older_views x p A) (Some (share x (newest x (who p) (at_ p)) (who p) (win p)))) <->
  (forall v, held x p A v -> n <= share x v (who p) (win p)).
Proof.
  intros le all. rewrite bound_of_within. simpl. split.
  - intros (N & H) v (_ & range & [-> | G]); [exact N|].
    destruct (Nat.eq_dec v (newest x (who p) (at_ p))) as [-> | E]; [exact N|].
    apply (H (Some (share x v (who p) (win p)))). apply in_map_iff. exists v. rewrite G. split; [reflexivity|].
    apply in_seq. lia.
  - intros H. split; [apply H; repeat split; auto|]. intros s I. apply in_map_iff in I as (v & E & I).
    injection E as <- G. apply in_seq in I. simpl. apply H. split; [apply all; lia|]. split; [lia|right; exact G].
Qed.

(* The timing rule, as a test. *)
Definition least_settle (S' e r w : Q) : Q := (S' * (1 + r) / (1 - r) + 2 * e * (1 + r) + w * r)%Q.
Definition timely (S S' e r w : Q) : bool := Qle_bool (least_settle S' e r w) S.
Theorem timely_is_timing x : timely (settle x) (freshness x) (clock_error x) (drift x) (width x) = true <-> timing x.
Proof. apply Qle_bool_iff. Qed.

(* Views that show limits, and shares and revisions that are computed from what they show,
   satisfy what Statement.v assumes of them. *)
Record computed (x : world) (shows : view -> window -> shown) (begins : window -> Z)
    (rank : window -> nat -> Z) (written : view -> bool) : Prop := {
  known : forall v W, NoDup (map ident (members (shows v W)));
  limited : forall v W, amount (terms (shows v W)) = Some (total x v W);
  shared : forall v W i, share_of (begins W) (rank W) (shows v W) i = Some (share x v i W);
  given : forall v W, gives x v W = gives_of (begins W) (written v) (shows v W) (shows (v + 1) W);
  told_end : forall v W n, In n (members (shows v W)) -> (until n <= begins W)%Z ->
    exists U, ends x v (ident n) = Some U /\ (U <= start x W)%Q
}.

Theorem computed_fits x shows begins rank written : computed x shows begins rank written ->
  forall u W l, NoDup l -> sum (fun i => share x u i W) l <= total x u W.
Proof.
  intros c u W l nd.
  pose proof (shares_fit (begins W) (rank W) (shows u W) (total x u W) l (known _ _ _ _ _ c u W) (limited _ _ _ _ _ c u W) nd) as H.
  eapply Nat.le_trans; [|exact H]. apply sum_le. intros i _. unfold permits_of.
  rewrite (shared _ _ _ _ _ c). apply Nat.le_refl.
Qed.

Theorem computed_takes x shows begins rank written : computed x shows begins rank written ->
  forall v W i, gives x v W = true ->
  share x v i W <= share x (v + 1) i W \/ exists U, ends x (v + 1) i = Some U /\ (U <= start x W)%Q.
Proof.
  intros c v W i G. rewrite (given _ _ _ _ _ c) in G.
  destruct (giving_takes_nothing (begins W) (rank W) (written v) (shows v W) (shows (v + 1) W) i
    (known _ _ _ _ _ c v W) (known _ _ _ _ _ c (v + 1) W) G) as [le | (n & I & <- & early)].
  - left. rewrite !(shared _ _ _ _ _ c) in le. exact le.
  - right. apply (told_end _ _ _ _ _ c _ _ _ I early).
Qed.

(* The least settle time as the code computes it: in whole units of time, where r is 1/d, each
   part rounded up, and their sum to a multiple of [step]. It satisfies the timing rule. *)
Definition rounded_up (a b : Z) : Z := ((a + b - 1) / b)%Z.
Definition min_settle (d step S' e w : Z) : Z :=
  (let need := rounded_up (S' * (d + 1)) (d - 1) + rounded_up (2 * e * (d + 1)) d + rounded_up w d in
   rounded_up need step * step)%Z.

Lemma rounded_up_enough a b : (0 < b)%Z -> (a <= rounded_up a b * b)%Z.
Proof.
  intros b0. unfold rounded_up. pose proof (Z.div_mod (a + b - 1) b ltac:(lia)).
  pose proof (Z.mod_pos_bound (a + b - 1) b b0). nia.
Qed.

Lemma rounded_up_ratio a b : (0 < b)%Z -> (inject_Z a / inject_Z b <= inject_Z (rounded_up a b))%Q.
Proof.
  intros b0. assert (0 < inject_Z b)%Q as B by (change 0%Q with (inject_Z 0); rewrite <- Zlt_Qlt; exact b0).
  apply Qle_shift_div_r; [exact B|]. rewrite <- inject_Z_mult, <- Zle_Qle. apply rounded_up_enough, b0.
Qed.

Lemma no_less p q : (p == q)%Q -> (p <= q)%Q.
Proof. intros ->. apply Qle_refl. Qed.

Theorem min_settle_is_timely d step S' e w : (1 < d)%Z -> (0 < step)%Z ->
  timely (inject_Z (min_settle d step S' e w)) (inject_Z S') (inject_Z e) (1 / inject_Z d) (inject_Z w) = true.
Proof.
  intros d1 s0. apply Qle_bool_iff. unfold min_settle.
  set (f := rounded_up (S' * (d + 1)) (d - 1)). set (c := rounded_up (2 * e * (d + 1)) d). set (v := rounded_up w d).
  pose proof (rounded_up_enough (f + c + v) step s0) as H. rewrite Zle_Qle, !inject_Z_plus in H.
  eapply Qle_trans; [|exact H]. unfold least_settle.
  assert (0 < inject_Z d)%Q as D by (change 0%Q with (inject_Z 0); rewrite <- Zlt_Qlt; lia).
  assert (0 < inject_Z d - 1)%Q as D1.
  { change 1%Q with (inject_Z 1). change 0%Q with (inject_Z 0). unfold Qminus. rewrite <- inject_Z_opp, <- inject_Z_plus, <- Zlt_Qlt. lia. }
  repeat apply Qplus_le_compat.
  - eapply Qle_trans; [|apply (rounded_up_ratio (S' * (d + 1)) (d - 1)); lia].
    apply no_less. rewrite inject_Z_mult, inject_Z_plus. unfold Z.sub. rewrite inject_Z_plus.
    change (inject_Z 1) with 1%Q. change (inject_Z (-(1))) with (-(1))%Q. field. split; lra.
  - eapply Qle_trans; [|apply (rounded_up_ratio (2 * e * (d + 1)) d); lia].
    apply no_less. rewrite !inject_Z_mult, inject_Z_plus. change (inject_Z 1) with 1%Q. change (inject_Z 2) with 2%Q.
    field. lra.
  - eapply Qle_trans; [|apply (rounded_up_ratio w d); lia]. apply no_less. field. lra.
Qed.
